"""The estimators: what ends an episode, what they share, and how they relate to each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from purerl import returns
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64
NAN = float("nan")
Data = dict[str, Tensor]

# Values are k/64, gamma and lmbda powers of two: every sum is exact, and so is every comparison.
CRITIC = ("reward", "next_value", "terminated", "truncated")
ADVANTAGE = ("reward", "value", "next_value", "terminated", "truncated")


def draw(num_steps: int, *shape: int, end: float = 0.3, seed: int = 0) -> Data:
    g = torch.Generator().manual_seed(seed)
    full = (num_steps, *shape)
    names = ("reward", "value", "next_value", "log_prob", "behavior_log_prob")
    data = {k: torch.randint(-64, 65, full, generator=g).to(F64) / 64 for k in names}
    for name in ("terminated", "truncated"):
        data[name] = torch.rand(full, generator=g) < end / 2
    return data


def critic(data: Data) -> Data:
    return {name: data[name] for name in CRITIC}


def advantage(data: Data) -> Data:
    return {name: data[name] for name in ADVANTAGE}


def flags(data: Data) -> Data:
    return {name: data[name] for name in ("terminated", "truncated")}


def q_inputs(data: Data) -> Data:
    renamed = {"q_value": data["value"], "next_expected_value": data["next_value"]}
    return renamed | {"reward": data["reward"], "log_ratio": data["log_prob"]} | flags(data)


Estimator = Callable[..., tuple[Tensor, ...]]
ESTIMATORS: dict[str, Estimator] = {
    "gae": lambda data, **o: tuple(returns.gae(**advantage(data), **o)),
    "td1": lambda data, **o: (returns.td1(**critic(data), **o),),
    "td_lambda": lambda data, **o: (returns.td_lambda(**critic(data), **o),),
    "n_step": lambda data, **o: (returns.n_step(**critic(data), n=3, **o),),
    "n_step_transition": lambda data, **o: (
        returns.n_step_transition(data["reward"], **flags(data), n=3, **o).reward,
    ),
    "reward_to_go": lambda data, **o: (returns.reward_to_go(data["reward"], **flags(data), **o),),
    "vtrace": lambda data, **o: tuple(returns.vtrace(**data, **o)[:2]),
    "retrace": lambda data, **o: (returns.retrace(**q_inputs(data), **o),),
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
# log-steps, and blocks
every_length = pytest.mark.parametrize("num_steps", [9, 150])


def equal(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


# The four ways in which a row can end, at row 1 of r = 1, v = 2 3 4 5, v' = 3 10 5 6.


def four_rows(*, terminated: bool, truncated: bool) -> Tensor:
    reward = torch.ones(4, dtype=F64)
    value, next_value = torch.tensor([[2.0, 3.0, 4.0, 5.0], [3.0, 10.0, 5.0, 6.0]], dtype=F64)
    second = torch.arange(4) == 1
    ends = {"terminated": second & terminated, "truncated": second & truncated}
    return returns.gae(reward, value, next_value, **ends, gamma=0.5, lmbda=0.5).advantage


def test_an_ordinary_row_bootstraps_and_reads_the_next_row() -> None:
    # delta = 0.5, 3, −0.5, −1; A_2 = −0.5 − 1/4, A_1 = 3 − 0.75/4, A_0 = 0.5 + 2.8125/4
    expected = [1.203125, 2.8125, -0.75, -1.0]
    assert four_rows(terminated=False, truncated=False).tolist() == expected


def test_a_truncated_row_bootstraps_from_its_own_successor_and_reads_no_further() -> None:
    assert four_rows(terminated=False, truncated=True).tolist() == [1.25, 3.0, -0.75, -1.0]


def test_a_terminated_row_neither_bootstraps_nor_reads_further() -> None:
    assert four_rows(terminated=True, truncated=False).tolist() == [0.0, -2.0, -0.75, -1.0]


def test_of_both_flags_termination_wins() -> None:
    assert four_rows(terminated=True, truncated=True).tolist() == [0.0, -2.0, -0.75, -1.0]


def test_gae_equals_a_plain_loop_for_every_mixture_of_flags() -> None:
    steps = 5
    ways = list(
        itertools.product(
            [(False, False), (False, True), (True, False), (True, True)], repeat=steps
        )
    )
    ends = torch.tensor(ways).permute(1, 2, 0)
    data = draw(steps, len(ways)) | {"terminated": ends[:, 0], "truncated": ends[:, 1]}
    found = returns.gae(**advantage(data), gamma=0.5, lmbda=0.5).advantage
    rows = {name: tensor.tolist() for name, tensor in data.items()}
    for b in range(len(ways)):
        later = 0.0
        for t in reversed(range(steps)):
            terminated, done = ways[b][t][0], any(ways[b][t])
            bootstrap = 0.0 if terminated else 0.5 * rows["next_value"][t][b]
            delta = rows["reward"][t][b] + bootstrap - rows["value"][t][b]
            later = delta if done else delta + 0.25 * later
            assert found[t, b].item() == later


# What all estimators share.


@every_estimator
@every_length
@pytest.mark.parametrize("garbage", [NAN, float("inf")])
def test_next_value_where_terminated_may_be_garbage(
    estimator: Estimator, num_steps: int, garbage: float
) -> None:
    data = draw(num_steps, 3)

    def run(fill: float) -> list[Tensor]:
        next_value = data["next_value"].masked_fill(data["terminated"], fill).requires_grad_()
        reward = data["reward"].clone().requires_grad_()
        given = data | {"next_value": next_value, "reward": reward}
        outputs = estimator(given, gamma=0.5, differentiable=True)
        total = cast(Tensor, sum((o**2).sum() for o in outputs))
        found = torch.autograd.grad(total, (next_value, reward), allow_unused=True)
        return [*outputs, *(g for g in found if g is not None)]

    assert equal(tuple(run(garbage)), tuple(run(0.0)))


@every_estimator
@every_length
def test_what_follows_an_end_may_be_garbage(estimator: Estimator, num_steps: int) -> None:
    data = draw(num_steps, 3, end=0.0)
    end = num_steps // 2
    data["truncated"][end, :2] = True
    data["terminated"][end, 1:] = True

    def run(fill: float) -> tuple[Tensor, ...]:
        given = {}
        for name, tensor in data.items():
            tensor = tensor.clone()
            tensor[end + 1 :] = fill
            given[name] = tensor
        return tuple(output[: end + 1] for output in estimator(given, gamma=0.5))

    assert equal(run(NAN), run(0.0))


@every_estimator
@every_length
def test_an_invalid_row_yields_zero_and_ends_the_window_before_it(
    estimator: Estimator, num_steps: int
) -> None:
    data = draw(num_steps, 3, end=0.0)
    mask = torch.ones(num_steps, 3, dtype=torch.bool)
    hole = num_steps // 2
    mask[hole] = False

    def run(fill: float) -> list[Tensor]:
        floats = [k for k, v in data.items() if v.is_floating_point()]
        given = data | {k: data[k].masked_fill(~mask, fill).requires_grad_() for k in floats}
        outputs = estimator(given, gamma=0.5, mask=mask, differentiable=True)
        total = cast(Tensor, sum((o**2).sum() for o in outputs))
        found = torch.autograd.grad(total, [given[k] for k in floats], allow_unused=True)
        return [*outputs, *(g for g in found if g is not None)]

    found = run(NAN)
    assert equal(tuple(found), tuple(run(0.0)))
    assert not any(tensor[hole].any() for tensor in found)
    outputs = estimator(data, gamma=0.5, mask=mask)
    before = estimator({k: v[:hole] for k, v in data.items()}, gamma=0.5)
    behind = estimator({k: v[hole + 1 :] for k, v in data.items()}, gamma=0.5)
    for whole, first, second in zip(outputs, before, behind, strict=True):
        torch.testing.assert_close(whole[:hole], first, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(whole[hole + 1 :], second, rtol=1e-13, atol=1e-13)


@every_estimator
@pytest.mark.parametrize(("num_steps", "more"), [(9, 4), (150, 3)])
def test_appended_padding_changes_no_bit(estimator: Estimator, num_steps: int, more: int) -> None:
    data = draw(num_steps, 3)

    def padded(tensor: Tensor) -> Tensor:
        fill = NAN if tensor.is_floating_point() else False
        return torch.cat([tensor, torch.full((more, 3), fill, dtype=tensor.dtype)])

    mask = padded(torch.ones(num_steps, 3, dtype=torch.bool))
    found = estimator({k: padded(v) for k, v in data.items()}, gamma=0.97, mask=mask)
    for whole, alone in zip(found, estimator(data, gamma=0.97), strict=True):
        assert torch.equal(whole[:num_steps], alone)
        assert not whole[num_steps:].any()


@every_estimator
@every_length
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_batch_columns_vmap_and_layout_agree_bit_for_bit(
    estimator: Estimator, num_steps: int, dtype: torch.dtype
) -> None:
    data = {k: v.to(dtype) if v.is_floating_point() else v for k, v in draw(num_steps, 7).items()}
    batch = estimator(data, gamma=0.97)
    columns = [estimator({k: v[:, b] for k, v in data.items()}, gamma=0.97) for b in range(7)]
    assert equal(batch, tuple(torch.stack(column, 1) for column in zip(*columns, strict=True)))
    mapped = torch.vmap(lambda d: estimator(d, gamma=0.97), in_dims=1, out_dims=1)(data)
    assert equal(batch, mapped)
    theirs = {k: v.movedim(0, 1).unsqueeze(-1) for k, v in data.items()}
    found = estimator(theirs, gamma=0.97, dim=-2)
    assert equal(batch, tuple(output.squeeze(-1).movedim(1, 0) for output in found))


@every_estimator
@every_length
def test_numbers_scalars_and_mapped_hyperparameters_agree_bit_for_bit(
    estimator: Estimator, num_steps: int
) -> None:
    data = {k: v.float() if v.is_floating_point() else v for k, v in draw(num_steps, 4).items()}
    gammas = torch.tensor([0.97, 0.5, 0.0, 1.0], dtype=F64)
    mapped = torch.vmap(lambda gamma: estimator(data, gamma=gamma))(gammas)
    for i, gamma in enumerate(gammas):
        number = estimator(data, gamma=float(gamma))
        assert all(output.dtype == torch.float32 for output in number)
        assert equal(number, estimator(data, gamma=gamma))
        assert equal(number, tuple(output[i] for output in mapped))


@every_estimator
def test_results_are_constants_unless_asked(estimator: Estimator) -> None:
    data = draw(6, 2)
    gamma = torch.tensor(0.5, dtype=F64, requires_grad=True)
    names = [k for k, v in data.items() if v.is_floating_point()]
    leaves = {k: data[k].clone().requires_grad_() for k in names}
    assert not any(o.requires_grad for o in estimator(data | leaves, gamma=gamma))
    asked = estimator(data | leaves, gamma=gamma, differentiable=True)
    assert all(o.requires_grad for o in asked)

    def total(floats: Data) -> Tensor:
        return cast(Tensor, sum(o.sum() for o in estimator(data | floats, gamma=0.5)))

    floats = {k: data[k] for k in names}
    gradients = torch.func.grad(total)(floats)
    assert not any(g.any() for g in gradients.values())
    ones = {k: torch.ones_like(v) for k, v in floats.items()}
    assert torch.func.jvp(total, (floats,), (ones,))[1] == 0.0


@every_estimator
@every_length
def test_derivatives_are_right_when_asked_for(estimator: Estimator, num_steps: int) -> None:
    data = draw(num_steps, end=0.1)
    gamma = torch.tensor(0.9, dtype=F64)
    # away from the kinks of the clipped ratios
    names = ["reward", "value", "next_value"]
    data["log_prob"] = data["log_prob"] + 0.01

    def total(gamma: Tensor, *floats: Tensor) -> Tensor:
        given = data | dict(zip(names, floats, strict=True))
        outputs = estimator(given, gamma=gamma, differentiable=True)
        return cast(Tensor, sum((o**2).sum() for o in outputs)) / num_steps

    inputs = [gamma, *(data[k] for k in names)]
    direction = [torch.ones_like(gamma), *(torch.sin(1.0 + data[k]) for k in names)]
    gradients = torch.func.grad(total, (0, 1, 2, 3))(*inputs)
    slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
    _, forward = torch.func.jvp(total, tuple(inputs), tuple(direction))
    step = 1e-6
    above, below = (
        total(*(x + sign * step * d for x, d in zip(inputs, direction, strict=True)))
        for sign in (1, -1)
    )
    torch.testing.assert_close(slope, forward, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(slope, (above - below) / (2 * step), rtol=1e-6, atol=1e-6)


@every_estimator
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_accumulated_in_float32_and_rounded_once(
    estimator: Estimator, dtype: torch.dtype
) -> None:
    data = {k: v.to(dtype) if v.is_floating_point() else v for k, v in draw(40, 3).items()}
    wide = {k: v.float() if v.is_floating_point() else v for k, v in data.items()}
    found, expected = estimator(data, gamma=0.99), estimator(wide, gamma=0.99)
    assert equal(found, tuple(output.to(dtype) for output in expected))


@every_estimator
def test_compiled_equals_eager(estimator: Estimator) -> None:
    data = draw(5, 2)
    compiled = torch.compile(
        lambda d: estimator(d, gamma=0.97), backend="aot_eager", fullgraph=True, dynamic=False
    )
    for found, expected in zip(compiled(data), estimator(data, gamma=0.97), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_gae_compiles_with_inductor_inside_vmap() -> None:
    data = draw(6, 2, 3)
    fields = list(advantage(data).values())

    def run(gamma: Tensor, *fields: Tensor) -> Tensor:
        return returns.gae(*fields, gamma=gamma, lmbda=0.95).advantage

    gammas = torch.tensor([0.9, 0.99], dtype=F64)
    mapped = torch.vmap(run, in_dims=(0, *[1] * 5))
    compiled = torch.compile(mapped, fullgraph=True, dynamic=False)
    torch.testing.assert_close(
        compiled(gammas, *fields), mapped(gammas, *fields), rtol=1e-13, atol=1e-13
    )


@every_estimator
def test_inputs_are_left_alone(estimator: Estimator) -> None:
    data = draw(9, 3)
    before = {k: v.clone() for k, v in data.items()}
    estimator(data, mask=torch.rand(9, 3, generator=torch.Generator().manual_seed(0)) < 0.8)
    assert all(torch.equal(data[k], before[k]) for k in data)


@every_estimator
@pytest.mark.parametrize("num_steps", [1, 2])
def test_results_share_no_memory_with_inputs(estimator: Estimator, num_steps: int) -> None:
    data = draw(num_steps)
    memory = {v.untyped_storage().data_ptr() for v in data.values()}
    for output in estimator(data, gamma=0.5):
        assert output.untyped_storage().data_ptr() not in memory


@every_estimator
def test_shapes_and_dtypes_must_match(estimator: Estimator) -> None:
    data = draw(4, 2)
    with pytest.raises(ShapeError, match=r"reward has shape \[0, 2\], expected no dimension of"):
        estimator({k: v[:0] for k, v in data.items()})
    with pytest.raises(ShapeError, match=r"terminated has shape \[4, 2, 1\], expected \[4, 2\] as"):
        estimator(data | {"terminated": data["terminated"].unsqueeze(-1)})
    with pytest.raises(ShapeError, match=r"truncated has dtype torch.float64, expected torch.bool"):
        estimator(data | {"truncated": data["truncated"].to(F64)})
    with pytest.raises(ShapeError, match=r"mask has shape \[4\], expected \[4, 2\] as reward"):
        estimator(data, mask=torch.ones(4, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"gamma has shape \[4\], expected \[\]"):
        estimator(data, gamma=torch.ones(4))


def test_floating_inputs_share_one_dtype() -> None:
    data = advantage(draw(4)) | {"value": torch.zeros(4)}
    with pytest.raises(ShapeError, match=r"value has dtype torch.float32, expected torch.float64"):
        returns.gae(**data)
    data["value"] = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ShapeError, match=r"value has dtype torch.int64, expected a floating dtype"):
        returns.gae(**data)


# How they relate.


def consistent(data: Data) -> Data:
    """Return the data with v'_t = v_{t+1} inside episodes."""
    inside = ~(data["terminated"] | data["truncated"])
    inside[-1] = False
    shifted = torch.cat([data["value"][1:], data["value"][:1]])
    return data | {"next_value": torch.where(inside, shifted, data["next_value"])}


def test_gae_reference_values() -> None:
    reward, value, next_value = torch.tensor([[1.0, 0.0], [0.5, 0.25], [0.25, 1.0]], dtype=F64)
    no = torch.zeros(2, dtype=torch.bool)
    found = returns.gae(reward, value, next_value, no, no, gamma=0.5, lmbda=0.5)
    assert found.advantage.tolist() == [0.6875, 0.25]
    assert found.value_target.tolist() == [1.1875, 0.5]


@every_length
def test_the_ends_of_lmbda_are_td0_and_td1(num_steps: int) -> None:
    data = consistent(draw(num_steps, 4, end=0.5))
    td0 = returns.td0(**critic(data), gamma=0.5)
    td1 = returns.td1(**critic(data), gamma=0.5)
    for lmbda, expected in ((0.0, td0), (1.0, td1)):
        options = {"gamma": 0.5, "lmbda": lmbda}
        assert torch.equal(returns.td_lambda(**critic(data), **options), expected)
        found = returns.gae(**advantage(data), **options)
        assert torch.equal(found.advantage, expected - data["value"])
    assert torch.equal(returns.n_step(**critic(data), n=1, gamma=0.5), td0)
    assert torch.equal(returns.n_step(**critic(data), n=num_steps - 1, gamma=0.5), td1)
    assert torch.equal(returns.n_step(**critic(data), n=num_steps, gamma=0.5), td1)
    assert torch.equal(
        returns.reward_to_go(
            data["reward"],
            **flags(data),
            next_value=data["next_value"],
            bootstrap="cut",
            gamma=0.5,
        ),
        td1,
    )


def test_lambda_return_is_advantage_plus_value_for_one_critic_only() -> None:
    data = draw(9, 4)
    options = {"gamma": 0.5, "lmbda": 0.5}

    def both(data: Data) -> tuple[Tensor, Tensor]:
        target = returns.gae(**advantage(data), **options).value_target
        return returns.td_lambda(**critic(data), **options), target

    assert torch.equal(*both(consistent(data)))
    assert not torch.equal(*both(data))


def test_gae_is_the_mixture_of_n_step_advantages() -> None:
    data = consistent(draw(4, 4, end=0.0))
    g = [returns.n_step(**critic(data), n=n, gamma=0.5)[0] - data["value"][0] for n in range(1, 5)]
    mixture = 0.5 * g[0] + 0.25 * g[1] + 0.125 * g[2] + 0.125 * g[3]
    assert torch.equal(returns.gae(**advantage(data), gamma=0.5, lmbda=0.5).advantage[0], mixture)


def test_truncation_is_termination_with_the_bootstrap_paid_out() -> None:
    data = draw(9, 4) | {"terminated": torch.zeros(9, 4, dtype=torch.bool)}
    cut = data["truncated"]
    paid = {
        "reward": torch.where(cut, data["reward"] + 0.5 * data["next_value"], data["reward"]),
        "terminated": cut,
        "next_value": data["next_value"].masked_fill(cut, NAN),
    }
    found = returns.gae(**advantage(data | paid), gamma=0.5, lmbda=0.5)
    expected = returns.gae(**advantage(data), gamma=0.5, lmbda=0.5)
    assert torch.equal(found.advantage, expected.advantage)


@pytest.mark.parametrize(("num_steps", "at"), [(9, 4), (9, 1), (12, 11)])
def test_chunks_joined_by_the_carry_equal_the_whole(num_steps: int, at: int) -> None:
    data = draw(num_steps, 4)
    whole = returns.gae(**advantage(data), gamma=0.5, lmbda=0.5).advantage
    first, second = (
        {k: v[rows] for k, v in advantage(data).items()} for rows in (slice(0, at), slice(at, None))
    )
    later = returns.gae(**second, gamma=0.5, lmbda=0.5).advantage
    earlier = returns.gae(**first, gamma=0.5, lmbda=0.5, carry=later[0]).advantage
    assert torch.equal(torch.cat([earlier, later]), whole)


def test_the_carry_must_fit() -> None:
    with pytest.raises(ShapeError, match=r"carry has shape \[3\], expected \[2\]"):
        returns.gae(**advantage(draw(4, 2)), carry=torch.zeros(3, dtype=F64))


def test_each_row_discounts_with_its_own_gamma() -> None:
    reward, next_value = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])
    no, gamma = torch.zeros(2, dtype=torch.bool), torch.tensor([0.5, 0.25])
    found = returns.td_lambda(reward, next_value, no, no, gamma=gamma, lmbda=0.5)
    assert found.tolist() == [1.75, 3.0]
    assert returns.td1(reward, next_value, no, no, gamma=gamma).tolist() == [2.5, 3.0]


def test_n_step_reference_values() -> None:
    no = torch.zeros(3, dtype=torch.bool)
    reward, next_value = torch.ones(3), torch.full((3,), 4.0)
    assert returns.n_step(reward, next_value, no, no, n=2, gamma=0.5).tolist() == [2.5, 2.5, 3.0]


def test_a_merged_transition_ends_with_its_episode() -> None:
    reward = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    terminated = torch.tensor([False, True, False, False, False])
    truncated = torch.tensor([False, False, False, True, False])
    found = returns.n_step_transition(reward, terminated, truncated, n=3, gamma=0.5)
    assert found.reward.tolist() == [2.0, 2.0, 8.0, 8.0, 16.0]
    assert found.steps.tolist() == [2, 1, 2, 1, 1]
    assert found.last_row.tolist() == [1, 1, 3, 3, 4]
    assert found.terminated.tolist() == [True, True, False, False, False]
    assert found.truncated.tolist() == [False, False, True, True, False]


def test_merged_transitions_follow_the_time_dimension() -> None:
    data = draw(9, 3, 2)
    expected = returns.n_step_transition(data["reward"], **flags(data), n=3, gamma=0.5)
    moved = {k: data[k].movedim(0, 1) for k in ("reward", "terminated", "truncated")}
    found = returns.n_step_transition(**moved, n=3, gamma=0.5, dim=1)
    assert equal(tuple(field.movedim(1, 0) for field in found), tuple(expected))


def test_td0_discounts_by_the_steps_of_a_merged_transition() -> None:
    reward, next_value = torch.ones(3), torch.full((3,), 8.0)
    terminated, steps = torch.tensor([False, False, True]), torch.tensor([1, 3, 2])
    found = returns.td0(reward, next_value, terminated, gamma=0.5, steps=steps)
    assert found.tolist() == [5.0, 2.0, 1.0]


def test_reward_to_go_restarts_at_every_end() -> None:
    end = torch.tensor([False, True, False, True])
    reward = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for ends in ((end, ~end & end), (~end & end, end)):
        assert returns.reward_to_go(reward, *ends, gamma=0.5).tolist() == [2.0, 2.0, 5.0, 4.0]


def test_vtrace_reference_values() -> None:
    log_prob = torch.tensor([4.0, 0.5], dtype=F64).log()
    reward, value, next_value = torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 2.0]], dtype=F64)
    no = torch.zeros(2, dtype=torch.bool)
    found = returns.vtrace(
        log_prob, torch.zeros_like(log_prob), reward, value, next_value, no, no, gamma=0.5
    )
    torch.testing.assert_close(found.value_target.tolist(), [0.75, 1.5])
    torch.testing.assert_close(found.advantage.tolist(), [-0.25, 0.5])
    torch.testing.assert_close(found.rho.tolist(), [4.0, 0.5])


def test_vtrace_on_policy_is_gae() -> None:
    data = draw(9, 4)
    data["behavior_log_prob"] = data["log_prob"]
    for lmbda in (0.5, 1.0):
        expected = returns.gae(**advantage(data), gamma=0.5, lmbda=lmbda).value_target
        found = returns.vtrace(**data, gamma=0.5, lmbda=lmbda)
        assert torch.equal(found.value_target, expected)


def test_vtrace_advantage_never_reads_the_next_trajectory() -> None:
    zero, value = torch.zeros(2, dtype=F64), torch.tensor([1.0, 100.0], dtype=F64)
    no, cut = torch.zeros(2, dtype=torch.bool), torch.tensor([True, False])
    found = returns.vtrace(zero, zero, zero, value, value, no, cut, gamma=1.0)
    assert found.value_target.tolist() == [1.0, 100.0]
    assert found.advantage.tolist() == [0.0, 0.0]


def test_vtrace_limits() -> None:
    data = draw(9, 4)
    never = data | {"log_prob": data["log_prob"] - 800.0}
    assert torch.equal(returns.vtrace(**never, gamma=0.5).value_target, data["value"])
    often = data | {"log_prob": data["behavior_log_prob"] + 1.0}
    always = data | {"log_prob": data["behavior_log_prob"]}
    expected = returns.vtrace(**always, gamma=0.5)
    assert equal(returns.vtrace(**often, gamma=0.5)[:2], expected[:2])
    free = returns.vtrace(**data, gamma=0.5, rho_clip=None, c_clip=None)
    wide = returns.vtrace(**data, gamma=0.5, rho_clip=1e9, c_clip=1e9, pg_rho_clip=None)
    assert equal(tuple(free), tuple(wide))
    tight = returns.vtrace(**data, gamma=0.5, pg_rho_clip=torch.tensor(0.0, dtype=F64))
    assert not tight.advantage.any()


def test_retrace_reference_values() -> None:
    reward, q_value = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0])
    ahead, no = torch.tensor([2.0, 4.0]), torch.zeros(2, dtype=torch.bool)
    half = torch.tensor([1.0, 0.5]).log()
    inputs = (reward, q_value, ahead)
    options: Any = {"gamma": 0.5}
    # G_1 = 1 + ½ · 4 = 3; G_0 = 1 + ½ · 2 + ½ c (3 − 2)
    for trace, log_ratio, expected in (
        ("retrace", half, [2.25, 3.0]),
        ("retrace", half + 5.0, [2.5, 3.0]),
        ("importance", half + 2.0 * torch.tensor(2.0).log(), [3.0, 3.0]),
        ("q_lambda", None, [2.5, 3.0]),
    ):
        found = returns.retrace(*inputs, log_ratio, no, no, trace=cast(Any, trace), **options)
        torch.testing.assert_close(found.tolist(), expected)
    found = returns.retrace(*inputs, None, no, no, trace="tree_backup", log_prob=half, **options)
    torch.testing.assert_close(found.tolist(), [2.25, 3.0])


def test_impossible_options_are_refused() -> None:
    data = draw(4)
    for run, message in (
        (lambda: returns.n_step(**critic(data), n=0), "n is 0, expected at least 1"),
        (
            lambda: returns.n_step_transition(data["reward"], **flags(data), n=-1),
            "n is -1, expected at least 1",
        ),
        (
            lambda: returns.reward_to_go(data["reward"], **flags(data), bootstrap="cut"),
            "bootstrap is 'cut', which needs next_value",
        ),
        (
            lambda: returns.reward_to_go(
                data["reward"], **flags(data), next_value=data["next_value"]
            ),
            "next_value is given, but bootstrap is 'none'",
        ),
        (
            lambda: returns.reward_to_go(
                data["reward"], **flags(data), bootstrap=cast(Any, "cuts")
            ),
            "bootstrap is 'cuts'; did you mean cut",
        ),
        (
            lambda: returns.retrace(**q_inputs(data), trace="tree_backup"),
            "trace is 'tree_backup', which needs log_prob",
        ),
        (
            lambda: returns.retrace(**cast(Any, q_inputs(data) | {"log_ratio": None})),
            "trace is 'retrace', which needs log_ratio",
        ),
        (
            lambda: returns.retrace(**q_inputs(data), trace=cast(Any, "retrac")),
            "trace is 'retrac'; did you mean retrace",
        ),
        (
            lambda: returns.vtrace(**data, pg_bootstrap=cast(Any, "mix")),
            "pg_bootstrap is 'mix'; did you mean mixed",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            run()
        assert message in str(caught.value)
    with pytest.raises(ShapeError, match=r"rho_clip has shape \[2\], expected \[\]"):
        returns.vtrace(**data, rho_clip=torch.ones(2))
