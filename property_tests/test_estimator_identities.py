"""More laws of the value estimators: identities between them, exact on dyadic numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from property_tests.strategies import Trajectory, exact, halves, trajectories
from torch import Tensor

from purerl import returns

F64 = torch.float64


def advantage(x: Trajectory, gamma: Any, lmbda: Any, **options: Any) -> Tensor:
    return returns.gae(*x, gamma=gamma, lmbda=lmbda, **options).advantage


def critic(x: Trajectory) -> tuple[Tensor, ...]:
    return x.reward, x.next_value, x.terminated, x.truncated


def bootstrap(x: Trajectory) -> Tensor:
    return torch.where(x.terminated, torch.zeros_like(x.next_value), x.next_value)


def moved(x: Trajectory) -> Tensor:
    """Row t + 1 at row t, zeros at the end."""
    return torch.cat([x.value[1:], torch.zeros_like(x.value[:1])])


@given(trajectories(), halves, halves, st.data())
def test_law_4_a_window_splits_at_a_done(
    x: Trajectory, gamma: float, lmbda: float, data: st.DataObject
) -> None:
    """Law 4: d_c = 1 implies A(x[0:T]) = cat(A(x[0:c+1]), A(x[c+1:T])), and so for every return."""
    column = Trajectory(*(field[:, 0] for field in x))
    ends = torch.nonzero(column.done[:-1]).flatten().tolist()
    if not ends:
        return
    c = data.draw(st.sampled_from(ends)) + 1
    head, tail = (Trajectory(*(f[part] for f in column)) for part in (slice(c), slice(c, None)))
    split = torch.cat([advantage(head, gamma, lmbda), advantage(tail, gamma, lmbda)])
    assert torch.equal(advantage(column, gamma, lmbda), split)
    for estimate in (
        lambda y: returns.td_lambda(*critic(y), gamma=gamma, lmbda=lmbda),
        lambda y: returns.n_step(*critic(y), n=3, gamma=gamma),
        lambda y: returns.reward_to_go(y.reward, y.terminated, y.truncated, gamma=gamma),
    ):
        assert torch.equal(estimate(column), torch.cat([estimate(head), estimate(tail)]))


@given(trajectories(), halves, halves, st.data())
def test_law_8_advantages_of_a_sum_are_the_sum_of_advantages(
    x: Trajectory, gamma: float, lmbda: float, data: st.DataObject
) -> None:
    """Law 8: A(x + y) = A(x) + A(y) for fixed flags."""
    other = [data.draw(exact(*x.reward.shape)) for _ in range(3)]
    y = Trajectory(*other, x.terminated, x.truncated)
    both = Trajectory(*(a + b for a, b in zip(x[:3], other, strict=True)), *x[3:])
    assert torch.equal(
        advantage(both, gamma, lmbda), advantage(x, gamma, lmbda) + advantage(y, gamma, lmbda)
    )


@given(trajectories(), halves, st.sampled_from([-4.0, 1.0, 2.5]))
def test_law_9_a_constant_reward_is_seen_only_where_an_episode_ends(
    x: Trajectory, lmbda: float, c: float
) -> None:
    """Law 9 at γ = ½: r + c, v + 2c, v' + 2c leave A, but for −γ c/(1−γ) where e_t and λ = 0."""
    gamma = 0.5
    shift = c / (1 - gamma)

    def shifted(y: Trajectory) -> Trajectory:
        raised = y.reward + c, y.value + shift, y.next_value + shift
        return Trajectory(*raised, y.terminated, y.truncated)

    endless = x._replace(terminated=torch.zeros_like(x.terminated))
    assert torch.equal(advantage(shifted(endless), gamma, lmbda), advantage(endless, gamma, lmbda))
    change = advantage(shifted(x), gamma, 0.0) - advantage(x, gamma, 0.0)
    expected = torch.where(x.terminated, -gamma * shift, 0.0).to(F64)
    assert torch.equal(change, expected)


@given(st.data(), halves)
def test_law_11_the_true_value_has_no_advantage(data: st.DataObject, lmbda: float) -> None:
    """Law 11: if v solves the Bellman equation of a deterministic chain, A = 0 for every λ."""
    size = data.draw(st.integers(1, 8))
    reward = data.draw(exact(size))
    # to a later state, or to the end, which is state `size` of value 0
    successor = [data.draw(st.integers(state + 1, size)) for state in range(size)]
    value = torch.zeros(size + 1, dtype=F64)
    for state in reversed(range(size)):
        value[state] = reward[state] + 0.5 * value[successor[state]]
    visited = [0]
    while successor[visited[-1]] < size:
        visited.append(successor[visited[-1]])
    path = torch.tensor(visited)
    ahead = torch.tensor([successor[state] for state in visited])
    terminated = ahead == size
    x = Trajectory(
        reward[path],
        value[path],
        torch.where(terminated, torch.nan, value[ahead]),
        terminated,
        torch.zeros_like(terminated),
    )
    assert torch.equal(advantage(x, 0.5, lmbda), torch.zeros(len(path), dtype=F64))


@given(trajectories(consistent=True, max_steps=8), halves, halves)
def test_law_12_gae_is_a_mixture_of_n_step_advantages(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 12: A^λ_t = (1−λ) Σ_{n<M} λ^{n−1} A^(n)_t + λ^{M−1} A^(M)_t, M steps left to the cut."""
    steps, batch = x.reward.shape
    by_n = [returns.n_step(*critic(x), n=n, gamma=gamma) - x.value for n in range(1, steps + 1)]
    found = advantage(x, gamma, lmbda)
    for t in range(steps):
        for b in range(batch):
            end = next((k for k in range(t, steps) if x.done[k, b]), steps - 1)
            m = end - t + 1
            mixture = lmbda ** (m - 1) * by_n[m - 1][t, b]
            for n in range(1, m):
                mixture = mixture + (1 - lmbda) * lmbda ** (n - 1) * by_n[n - 1][t, b]
            assert torch.equal(found[t, b], mixture)


@given(trajectories(), halves, st.integers(2, 6))
def test_law_13_n_steps_are_one_step_and_then_fewer(x: Trajectory, gamma: float, n: int) -> None:
    """Law 13: G^(n)_t = r_t + γ (1−d_t) G^(n−1)_{t+1} + γ d_t (1−e_t) v'_t; at the end as d."""
    fewer = returns.n_step(*critic(x), n=n - 1, gamma=gamma)
    following = torch.cat([fewer[1:], bootstrap(x)[-1:]])
    ahead = torch.where(x.done, bootstrap(x), following)
    assert torch.equal(returns.n_step(*critic(x), n=n, gamma=gamma), x.reward + gamma * ahead)


@given(trajectories(), halves)
def test_law_13_the_ends_of_n_step(x: Trajectory, gamma: float) -> None:
    """Law 13: G^(1) = r + γ (1−e) v', and n at least the steps that remain gives λ = 1."""
    one = returns.n_step(*critic(x), n=1, gamma=gamma)
    assert torch.equal(one, x.reward + gamma * bootstrap(x))
    assert torch.equal(one, returns.td0(*critic(x), gamma=gamma))
    every = returns.n_step(*critic(x), n=len(x.reward), gamma=gamma)
    assert torch.equal(every, returns.td1(*critic(x), gamma=gamma))


@given(trajectories(), halves, st.integers(1, 6))
def test_law_13_merged_transitions_bootstrap_to_the_same_return(
    x: Trajectory, gamma: float, n: int
) -> None:
    """Law 13: (R, steps, successor) give G^(n) through γ^steps."""
    flags = x.terminated, x.truncated
    merged = returns.n_step_transition(x.reward, *flags, n=n, gamma=gamma)
    target = returns.td0(
        merged.reward,
        x.next_value.gather(0, merged.last_row),
        merged.terminated,
        gamma=gamma,
        steps=merged.steps,
    )
    assert torch.equal(target, returns.n_step(*critic(x), n=n, gamma=gamma))


@given(trajectories(consistent=True), halves, halves)
def test_law_14_vtrace_on_policy_has_the_advantage_of_its_own_target(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 14: A = r + γ (1−e) vs⁺ − v with vs⁺ = vs_{t+1}, or v' where the trace ends."""
    zeros = torch.zeros_like(x.reward)
    result = returns.vtrace(zeros, zeros, *x, gamma=gamma, lmbda=lmbda)
    ahead = torch.cat([result.value_target[1:], x.next_value[-1:]])
    ahead = torch.where(x.done, x.next_value, ahead)
    ahead = torch.where(x.terminated, torch.zeros_like(ahead), ahead)
    assert torch.equal(result.advantage, x.reward + gamma * ahead - x.value)


# powers of two have exact logarithms in base 2, and exp(log(2) k) is 2^k to a rounding, so the
# importance weights of these laws are compared through ratios that are exactly 1, or by a bound


@given(trajectories(max_steps=8), halves, st.data())
def test_law_15_without_clips_the_products_of_ratios_weigh_the_errors(
    x: Trajectory, gamma: float, data: st.DataObject
) -> None:
    """Law 15: no clips and λ = 1 give vs_t = v_t + Σ_k γ^{k−t} (Π_{i=t}^k ρ_i) δ_k to the cut."""
    exponent = data.draw(
        st.lists(st.integers(-2, 2), min_size=x.reward.numel(), max_size=x.reward.numel())
    )
    ratio = torch.tensor(exponent, dtype=F64).reshape(x.reward.shape).exp2()
    result = returns.vtrace(
        ratio.log(), torch.zeros_like(ratio), *x, gamma=gamma, rho_clip=None, c_clip=None
    )
    delta = x.reward + gamma * bootstrap(x) - x.value
    expected = x.value.clone()
    for t in range(len(delta)):
        weight, alive = torch.ones_like(delta[0]), torch.ones_like(x.done[0])
        for k in range(t, len(delta)):
            weight = weight * ratio[k]
            expected[t] += torch.where(alive, gamma ** (k - t) * weight * delta[k], 0.0)
            alive = alive & ~x.done[k]
    scale = 4.0**8 * 4 * (x.reward.abs().max() + x.value.abs().max() + x.next_value.abs().max())
    torch.testing.assert_close(
        result.value_target, expected, rtol=1e-13, atol=1e-15 * float(scale) + 1e-15
    )


@given(trajectories(), halves, halves, st.sampled_from([0.5, 1.0, 2.0]), st.data())
def test_law_15_ratios_above_both_clips_count_as_the_clip(
    x: Trajectory, gamma: float, lmbda: float, clip: float, data: st.DataObject
) -> None:
    """Law 15: all ρ above both equal clips give the output of ρ = clip."""
    above = data.draw(
        st.lists(st.integers(3, 9), min_size=x.reward.numel(), max_size=x.reward.numel())
    )
    log_ratio = torch.tensor(above, dtype=F64).reshape(x.reward.shape)
    zeros = torch.zeros_like(log_ratio)
    options = {"gamma": gamma, "lmbda": lmbda, "rho_clip": clip, "c_clip": clip}
    far = returns.vtrace(log_ratio, zeros, *x, **options)
    farther = returns.vtrace(log_ratio + 5.0, zeros, *x, **options)
    assert torch.equal(far.value_target, farther.value_target)
    assert torch.equal(far.advantage, farther.advantage)
    if clip == 1.0:
        on_policy = returns.vtrace(zeros, zeros, *x, **options)
        assert torch.equal(far.value_target, on_policy.value_target)


@given(trajectories(), halves, halves, st.data())
def test_law_5_vtrace_reads_nothing_beyond_a_cut(
    x: Trajectory, gamma: float, lmbda: float, data: st.DataObject
) -> None:
    """Law 5 for V-trace: target and advantage at a cut do not know what follows, NaN included."""
    log_ratio = data.draw(exact(*x.reward.shape)) / 16
    t = data.draw(st.integers(0, len(x.reward) - 1))
    beyond = (x.done[t:].cumsum(0) - x.done[t:].long()) > 0
    beyond = torch.cat([torch.zeros(t, x.done.shape[1], dtype=torch.bool), beyond])
    nan = torch.full_like(x.reward, torch.nan)
    garbage = x._replace(
        reward=torch.where(beyond, nan, x.reward),
        value=torch.where(beyond, nan, x.value),
        next_value=torch.where(beyond | x.terminated, nan, x.next_value),
    )
    zeros = torch.zeros_like(log_ratio)
    ours = returns.vtrace(log_ratio, zeros, *x, gamma=gamma, lmbda=lmbda)
    theirs = returns.vtrace(
        torch.where(beyond, nan, log_ratio), zeros, *garbage, gamma=gamma, lmbda=lmbda
    )
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        assert torch.equal(a[t], b[t])


@given(trajectories(), st.data())
def test_each_row_is_discounted_by_its_own_numbers(x: Trajectory, data: st.DataObject) -> None:
    """Rolling γ and λ: A_t = δ_t + γ_t λ_t (1−d_t) A_{t+1} with the numbers of row t."""
    count = x.reward.numel()
    gamma, lmbda = (
        torch.tensor(
            data.draw(st.lists(halves, min_size=count, max_size=count)), dtype=F64
        ).reshape(x.reward.shape)
        for _ in range(2)
    )
    delta = x.reward + gamma * bootstrap(x) - x.value
    expected = torch.zeros_like(delta)
    for t in range(len(delta)):
        weight = torch.ones_like(delta[0])
        for k in range(t, len(delta)):
            expected[t] += weight * delta[k]
            weight = weight * gamma[k] * lmbda[k] * ~x.done[k]
    assert torch.equal(advantage(x, gamma, lmbda), expected)


@given(trajectories(), halves, halves, st.sampled_from(["number", "scalar", "rolling"]))
def test_law_16_every_kind_of_number_and_every_time_axis_gives_one_answer(
    x: Trajectory, gamma: float, lmbda: float, kind: str
) -> None:
    """Law 16: floats, 0-d and rolling tensors, and time on another axis, agree bitwise."""
    whole = advantage(x, gamma, lmbda)
    numbers: list[Any] = [gamma, lmbda]
    if kind == "scalar":
        numbers = [torch.tensor(n, dtype=F64) for n in numbers]
    if kind == "rolling":
        numbers = [torch.full_like(x.reward, n) for n in numbers]
    assert torch.equal(advantage(x, *numbers), whole)
    last = Trajectory(*(field.T for field in x))
    on_last = [n.T if kind == "rolling" else n for n in numbers]
    assert torch.equal(advantage(last, *on_last, dim=-1), whole.T)
    torchrl = Trajectory(*(field.T.unsqueeze(-1) for field in x))
    rolled = [n.T.unsqueeze(-1) if kind == "rolling" else n for n in numbers]
    assert torch.equal(advantage(torchrl, *rolled, dim=-2), whole.T.unsqueeze(-1))


@pytest.mark.parametrize("name", ["td_lambda", "td1", "n_step", "reward_to_go", "td0"])
@given(x=trajectories(), gamma=halves)
def test_law_17_padding_leaves_every_return_alone(x: Trajectory, gamma: float, name: str) -> None:
    """Law 17: appended invalid rows of NaN change no return, and are 0 themselves."""
    options: dict[str, Any] = {"gamma": gamma} | ({"n": 2} if name == "n_step" else {})
    names = [] if name == "reward_to_go" else ["next_value"]
    steps, batch = x.reward.shape
    nan = torch.full((2, batch), torch.nan, dtype=F64)
    off = torch.zeros(2, batch, dtype=torch.bool)
    inputs = {n: getattr(x, n) for n in ["reward", *names, "terminated", "truncated"]}
    padded = {
        n: torch.cat([field, off if field.dtype is torch.bool else nan])
        for n, field in inputs.items()
    }
    mask = torch.cat([torch.ones(steps, batch, dtype=torch.bool), off])
    estimate = getattr(returns, name)
    found = estimate(**padded, **options, mask=mask)
    assert torch.equal(found[:steps], estimate(**inputs, **options))
    assert torch.equal(found[steps:], torch.zeros_like(nan))
