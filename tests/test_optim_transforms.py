"""Clipping, chains, skipped updates and joined leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tests.optim_cases import F64, GUARDED, OPTIMIZERS, Tree, close, draw, make_tree, run
from torch import Tensor

from purerl import optim, tree
from purerl.errors import ConfigError, ShapeError


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_torch_form_of_the_clip_equals_clip_grad_norm(max_norm: float) -> None:
    clip = optim.clip_by_global_norm(max_norm, form="torch")
    for k in range(100):
        grads = make_tree(k)
        reference = [leaf.clone().requires_grad_() for leaf in tree.leaves(grads)]
        for leaf in reference:
            leaf.grad = leaf.detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(reference, max_norm)
        clipped, state = clip.update(grads, clip.init(grads), grads)
        close(tree.leaves(clipped), [leaf.grad for leaf in reference])
        close(state["grad_norm"], norm)


def test_torch_form_stays_below_the_limit() -> None:
    clip = optim.clip_by_global_norm(1.0, form="torch")
    grads = torch.tensor([6.0, 8.0], dtype=F64)
    clipped, _ = clip.update(grads, clip.init(grads), grads)
    close(clipped, torch.tensor([6.0, 8.0], dtype=F64) / (10.0 + 1e-6))


def test_exact_form_has_the_limit_as_norm_keeps_the_direction_and_is_idempotent() -> None:
    clip = optim.clip_by_global_norm(0.5)
    for k in range(20):
        grads = make_tree(k)
        once, state = clip.update(grads, clip.init(grads), grads)
        twice, _ = clip.update(once, state, grads)
        norm = tree.global_norm(grads)
        close(state["grad_norm"], norm)
        close(tree.global_norm(once), torch.tensor(0.5, dtype=F64))
        close(once, tree.map(lambda g, n=norm: g * (0.5 / n), grads))
        close(twice, once)


@pytest.mark.parametrize("form", ["exact", "torch"])
@pytest.mark.parametrize("max_norm", [10.0, torch.inf])
def test_a_norm_below_the_limit_changes_no_bit(form: Any, max_norm: float) -> None:
    grads = tree.map(lambda g: 0.1 * g, make_tree(3))
    clip = optim.clip_by_global_norm(max_norm, form=form)
    assert tree.equal(clip.update(grads, clip.init(grads), grads)[0], grads)


@pytest.mark.parametrize("form", ["exact", "torch"])
def test_zero_gradients_stay_zero_with_finite_derivatives(form: Any) -> None:
    clip = optim.clip_by_global_norm(1.0, form=form)
    zero = torch.zeros(3)

    def clipped_sum(grads: Tensor) -> Tensor:
        result: Tensor = clip.update(grads, clip.init(grads), grads)[0].sum()
        return result

    assert torch.equal(clip.update(zero, clip.init(zero), zero)[0], zero)
    assert torch.func.grad(clipped_sum)(zero).isfinite().all()


def test_clipping_shows_a_nonfinite_gradient() -> None:
    grads = {"a": torch.tensor([1.0, torch.nan]), "b": torch.tensor([2.0])}
    clip = optim.clip_by_global_norm(1.0)
    clipped, state = clip.update(grads, clip.init(grads), grads)
    assert clipped["b"].isnan().all()
    assert state["grad_norm"].isnan()


def test_groups_are_clipped_by_their_own_norms() -> None:
    grads = {"actor": torch.tensor([6.0, 8.0]), "critic": {"w": torch.tensor([0.3, 0.4])}}
    clip = optim.clip_by_global_norm(1.0, per_group=True)
    clipped, state = clip.update(grads, clip.init(grads), grads)
    torch.testing.assert_close(clipped["actor"], torch.tensor([0.6, 0.8]))
    assert torch.equal(clipped["critic"]["w"], grads["critic"]["w"])
    torch.testing.assert_close(state["grad_norm"], torch.tensor(100.25).sqrt())
    with pytest.raises(ConfigError, match="needs a dict of groups at the top, got Tensor"):
        clip.init(torch.ones(2))


def test_value_clip_bounds_each_element_and_is_not_the_norm_clip() -> None:
    grads = {"w": torch.tensor([3.0, -0.5, -4.0])}
    part = optim.clip(2.0)
    assert torch.equal(part.update(grads, {}, grads)[0]["w"], torch.tensor([2.0, -0.5, -2.0]))
    half = torch.tensor(0.5, dtype=F64)
    clipped, _ = part.update(grads, {}, grads, max_grad_value=half)
    assert torch.equal(clipped["w"], torch.tensor([0.5, -0.5, -0.5]))


def test_an_unknown_hyperparameter_is_an_error_with_the_nearest_name() -> None:
    optimizer = optim.skip_nonfinite(
        optim.chain(optim.clip_by_global_norm(1.0), optim.flat(optim.adam(1e-3)))
    )
    params = make_tree(1)
    state = optimizer.init(params)
    with pytest.raises(ConfigError, match="learning_rte; did you mean learning_rate"):
        optimizer.update(params, state, params, learning_rte=0.1)
    with pytest.raises(ConfigError, match="unknown hyperparameter momentum"):
        optim.sgd(0.1).update(params, {}, params, momentum=0.1)


def test_each_part_of_a_chain_picks_its_own_names() -> None:
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1))
    assert optimizer.hparams == ("max_grad_norm", "learning_rate")
    params, grads = torch.zeros(2, dtype=F64), torch.tensor([6.0, 8.0], dtype=F64)
    moved, _ = optimizer.update(
        grads, optimizer.init(params), params, max_grad_norm=5.0, learning_rate=1.0
    )
    close(moved, torch.tensor([-3.0, -4.0], dtype=F64))


def test_wrong_constructions_are_refused() -> None:
    with pytest.raises(ConfigError, match="part 0 of the chain is an optimizer"):
        optim.chain(optim.adam(1e-3), optim.clip_by_global_norm(1.0))
    with pytest.raises(ConfigError, match="chain has no parts"):
        optim.chain()
    with pytest.raises(ConfigError, match="skip_nonfinite wraps an optimizer"):
        optim.skip_nonfinite(optim.clip(1.0))
    with pytest.raises(ConfigError, match=r"max_norm is 0\.0, expected a number above 0"):
        optim.clip_by_global_norm(0.0)
    with pytest.raises(ConfigError, match="form is 'exacts'; did you mean exact"):
        optim.clip_by_global_norm(1.0, form="exacts")


def test_chain_is_associative_in_parameters_and_state() -> None:
    a, b, c = optim.clip(0.7), optim.clip_by_global_norm(0.5), optim.adam(0.01)
    results = [
        run(optimizer, make_tree(1), 5)
        for optimizer in (
            optim.chain(a, b, c),
            optim.chain(optim.chain(a, b), c),
            optim.chain(a, optim.chain(b, c)),
        )
    ]
    assert tree.equal(results[0], results[1])
    assert tree.equal(results[0], results[2])


def test_order_in_a_chain_matters() -> None:
    grads, params = torch.tensor([3.0, 0.0]), torch.zeros(2)
    clip, scale = optim.clip(1.0), optim.clip_by_global_norm(2.0)
    first = optim.chain(clip, scale, optim.sgd(1.0))
    second = optim.chain(scale, clip, optim.sgd(1.0))
    for optimizer in (first, second):
        moved, _ = optimizer.update(grads, optimizer.init(params), params)
        assert torch.equal(moved, torch.tensor([-1.0, 0.0]))
    norms = [o.update(grads, o.init(params), params)[1] for o in (first, second)]
    assert (norms[0]["1"]["grad_norm"], norms[1]["0"]["grad_norm"]) == (1.0, 3.0)


@pytest.mark.parametrize("optimizer", [GUARDED, optim.flat(GUARDED)], ids=["leafwise", "flat"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", range(4))
def test_a_nonfinite_leaf_leaves_parameters_and_inner_state_bit_for_bit(
    optimizer: optim.Optimizer, bad: float, place: int
) -> None:
    params, state = run(optimizer, make_tree(1), 3)
    grads = make_tree(5)
    tree.leaves(grads)[place].view(-1)[-1] = bad
    moved, after = optimizer.update(grads, state, params)
    assert tree.equal(moved, params)
    assert tree.equal(after["inner"], state["inner"])
    assert (int(state["nonfinite"]), int(after["nonfinite"])) == (0, 1)


def test_with_finite_gradients_skip_nonfinite_is_its_inner_optimizer() -> None:
    inner = optim.adam(0.01)
    expected = run(inner, make_tree(1), 5)
    params, state = run(optim.skip_nonfinite(inner), make_tree(1), 5)
    assert tree.equal((params, state["inner"]), expected)


def test_a_caller_can_skip_an_update_for_reasons_of_its_own() -> None:
    params, state = run(GUARDED, make_tree(1), 3)
    bad = tree.map(lambda g: g * torch.nan, make_tree(5))
    for grads in (make_tree(5), bad):
        after = GUARDED.update(grads, state, params, skip=torch.tensor(True))
        assert tree.equal(after, (params, state))
    taken = GUARDED.update(make_tree(5), state, params, skip=torch.tensor(False))
    assert tree.equal(taken, GUARDED.update(make_tree(5), state, params))
    with pytest.raises(ShapeError, match="skip has dtype"):
        GUARDED.update(bad, state, params, skip=torch.tensor(1.0))


def test_no_nan_of_a_skipped_update_reaches_a_derivative() -> None:
    params, state = run(GUARDED, make_tree(1), 1)
    grads = tree.map(lambda g: g * torch.nan, make_tree(5))

    def total(learning_rate: Tensor, params: Tree) -> Tensor:
        moved, _ = GUARDED.update(grads, state, params, learning_rate=learning_rate)
        return torch.stack([leaf.sum() for leaf in tree.leaves(moved)]).sum()

    by_rate, by_params = torch.func.grad(total, argnums=(0, 1))(
        torch.tensor(0.1, dtype=F64), params
    )
    assert by_rate == 0.0
    assert all((leaf == 1.0).all() for leaf in tree.leaves(by_params))


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_flat_gives_the_numbers_of_its_inner_optimizer(
    make: Callable[[], optim.Optimizer],
) -> None:
    inner = optim.chain(optim.clip_by_global_norm(0.5), make())
    params, state = run(optim.flat(inner), make_tree(1), 10)
    expected, expected_state = run(inner, make_tree(1), 10)
    close(params, expected)
    close(state["0"]["grad_norm"], expected_state["0"]["grad_norm"])


def test_flat_keeps_groups_and_dtypes_apart() -> None:
    params = {"actor": torch.ones(2), "critic": {"a": torch.ones(2, dtype=F64), "n": torch.ones(3)}}
    inner = optim.chain(optim.clip_by_global_norm(0.5, per_group=True), optim.adam(0.1))
    state = optim.flat(inner).init(params)
    assert tree.paths(state["1"]["first_moment"]) == [
        "actor.float32",
        "critic.float64",
        "critic.float32",
    ]
    close(
        optim.flat(inner).update(params, state, params)[0],
        inner.update(params, inner.init(params), params)[0],
        rtol=1e-6,
    )


def test_unraveled_leaves_share_no_memory() -> None:
    value = {"a": draw(1, 2, 3), "b": draw(2, 4), "n": torch.arange(3)}
    vectors, unravel = optim.ravel(value)
    assert sorted(vectors) == ["float64", "int64"]
    back = unravel(vectors)
    assert tree.equal(back, value)
    assert len({leaf.untyped_storage().data_ptr() for leaf in tree.leaves(back)}) == 3
    packed = tree.from_dict(value)
    vectors, unravel = optim.ravel(packed)
    assert isinstance(unravel(vectors), TensorDict)


def test_training_on_raveled_parameters_equals_training_on_the_tree() -> None:
    def loss(params: Any, x: Tensor) -> Tensor:
        hidden = (x @ params["actor"]["weight"].T + params["actor"]["bias"]).tanh()
        return (hidden.sum(-1) * params["scale"] + params["critic"]["weight"].sum()).square().mean()

    x = draw(3, 7, 2)
    inner = optim.chain(optim.clip_by_global_norm(0.5, per_group=True), optim.adam(0.01))
    params = make_tree(1)
    params["scale"] = {"value": params["scale"]}

    def with_scale(params: Any) -> Any:
        return params | {"scale": params["scale"]["value"]}

    vectors, unravel = optim.ravel(params, per_group=True)
    state, joined_state = inner.init(params), inner.init(vectors)
    for _ in range(5):
        grads = torch.func.grad(lambda p: loss(with_scale(p), x))(params)
        params, state = inner.update(grads, state, params)
        grads = torch.func.grad(lambda v: loss(with_scale(unravel(v)), x))(vectors)
        vectors, joined_state = inner.update(grads, joined_state, vectors)
    close(unravel(vectors), params)
    close(joined_state["0"]["grad_norm"], state["0"]["grad_norm"])
