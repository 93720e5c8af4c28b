"""What every optimizer, guarded, joined or plain, must hold: one table, one test per contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tests.optim_cases import CONTRACT, F64, GUARDED, Tree, close, draw, make_tree, run
from torch import Tensor

from purerl import optim, tree
from purerl.errors import ShapeError


@pytest.mark.parametrize("make", CONTRACT)
def test_update_leaves_its_inputs_alone_and_repeats_itself(
    make: Callable[[], optim.Optimizer],
) -> None:
    params, state = run(make(), make_tree(1), 2)
    inputs = (make_tree(7), state, params)
    before = tree.clone(inputs)
    first, second = make().update(*inputs), make().update(*inputs)
    assert tree.equal(inputs, before)
    assert tree.equal(first, second)


@pytest.mark.parametrize("make", CONTRACT)
def test_update_preserves_structure_and_dtype_of_dicts_and_tensordicts(
    make: Callable[[], optim.Optimizer],
) -> None:
    params = make_tree(1, torch.float32) | {
        "steps": torch.tensor([7, 8]),
        "half": draw(9, 3).half(),
    }
    grads = make_tree(2, torch.float32) | {"steps": torch.tensor([1, 1]), "half": draw(8, 3).half()}
    state = make().init(params)
    moved, after = make().update(grads, state, params)
    tree.require_same_structure("params", moved, params)
    tree.require_same_structure("state", after, state)
    assert torch.equal(moved["steps"], params["steps"])
    packed = make().update(tree.from_dict(grads), tree.from_dict(state), tree.from_dict(params))
    assert isinstance(packed[0], TensorDict)
    assert isinstance(packed[1], TensorDict)
    assert tree.equal(tree.to_dict(packed[0]), moved)
    assert tree.equal(tree.to_dict(packed[1]), after)


@pytest.mark.parametrize("make", CONTRACT)
def test_gradients_are_matched_by_key_not_by_order(make: Callable[[], optim.Optimizer]) -> None:
    def turned(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: turned(inner) for key, inner in reversed(value.items())}

    params, grads = make_tree(1), make_tree(2)
    state = make().init(params)
    moved, _ = make().update(turned(grads), turned(state), params)
    close(moved, make().update(grads, state, params)[0])


@pytest.mark.parametrize("make", CONTRACT)
def test_gradients_that_do_not_fit_are_named(make: Callable[[], optim.Optimizer]) -> None:
    params = make_tree(1)
    state = make().init(params)
    wrong_shape = make_tree(2) | {"actor": {"weight": draw(1, 3, 1), "bias": draw(2, 3)}}
    with pytest.raises(ShapeError, match=r"grads\.actor\.weight is .* expected .*\[3, 2\]"):
        make().update(wrong_shape, state, params)
    missing = {key: leaf for key, leaf in make_tree(2).items() if key != "scale"}
    with pytest.raises(ShapeError, match=r"grads\.scale is missing"):
        make().update(missing, state, params)


@pytest.mark.parametrize("make", CONTRACT)
def test_a_vmapped_population_equals_its_members_with_their_own_rates(
    make: Callable[[], optim.Optimizer],
) -> None:
    optimizer, members = make(), 3
    params = tree.stack([make_tree(m) for m in range(members)])
    rates = torch.tensor([0.1, 0.01, 0.0], dtype=F64)
    grads = [tree.stack([make_tree(50 + 7 * k + m) for m in range(members)]) for k in range(4)]

    def train(params: Tree, rate: Tensor, *grads: Tree) -> tuple[Any, Any]:
        state = optimizer.init(params)
        for g in grads:
            params, state = optimizer.update(g, state, params, learning_rate=rate)
        return params, state

    population = torch.vmap(train)(params, rates, *grads)
    for m in range(members):
        solo = train(*tree.index((params, rates, *grads), m))
        close(tree.index(population, m), solo)


def test_float32_members_are_not_promoted_by_float64_hyperparameters() -> None:
    params = tree.stack([make_tree(m, torch.float32) for m in range(2)])
    hparams = {
        name: torch.tensor([0.1, 0.2], dtype=F64)
        for name in ("learning_rate", "beta1", "beta2", "epsilon", "max_grad_norm")
    }

    def step(params: Tree, hparams: dict[str, Tensor]) -> Any:
        return GUARDED.update(params, GUARDED.init(params), params, **hparams)

    moved, state = torch.vmap(step)(params, hparams)
    assert {leaf.dtype for leaf in tree.leaves(moved)} == {torch.float32}
    floating = {leaf.dtype for leaf in tree.leaves(state) if leaf.is_floating_point()}
    assert floating == {torch.float32}


def test_members_skip_apart() -> None:
    params = tree.stack([make_tree(m) for m in range(3)])
    grads = tree.stack([make_tree(10 + m) for m in range(3)])
    grads["critic"]["weight"][1, 0, 2] = torch.nan
    state = torch.vmap(GUARDED.init)(params)
    moved, after = torch.vmap(GUARDED.update)(grads, state, params)
    assert after["nonfinite"].tolist() == [0, 1, 0]
    assert tree.equal(tree.index(moved, 1), tree.index(params, 1))
    for m in (0, 2):
        close(tree.index((moved, after), m), GUARDED.update(*tree.index((grads, state, params), m)))


def test_an_update_compiles_into_one_graph() -> None:
    optimizer = optim.flat(GUARDED)
    params, grads = make_tree(1), make_tree(2)
    state = optimizer.init(params)
    rate = torch.tensor(0.1, dtype=F64)

    def step(grads: Tree, state: Tree, params: Tree, rate: Tensor) -> Any:
        return optimizer.update(grads, state, params, learning_rate=rate)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=False)
    close(compiled(grads, state, params, rate), step(grads, state, params, rate))
    grads["scale"].fill_(torch.nan)
    assert tree.equal(compiled(grads, state, params, rate)[0], params)
