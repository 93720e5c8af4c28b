"""Optimizers against torch.optim and against their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.optim_cases import F64, OPTIMIZERS, PAIRS, close, draw, make_tree
from torch import Tensor

from purerl import optim, tree


@pytest.mark.parametrize(("ours", "theirs"), [pytest.param(o, t, id=n) for n, o, t in PAIRS])
def test_optimizers_equal_torch_step_for_step(
    ours: Callable[[], optim.Optimizer], theirs: Callable[[list[Tensor]], Any]
) -> None:
    params = make_tree(1)
    optimizer, state = ours(), ours().init(params)
    reference = [leaf.clone().requires_grad_() for leaf in tree.leaves(params)]
    stepper = theirs(reference)
    for k in range(100):
        grads = make_tree(100 + k)
        for leaf, grad in zip(reference, tree.leaves(grads), strict=True):
            leaf.grad = grad.clone()
        stepper.step()
        params, state = optimizer.update(grads, state, params)
        close(tree.leaves(params), [leaf.detach() for leaf in reference])


def test_first_adam_step_is_the_sign_of_the_gradient_softened_by_epsilon() -> None:
    params, grads = make_tree(1), make_tree(2)
    for epsilon in (1e-8, 1e-5, 1.0):
        optimizer = optim.adam(0.1, epsilon=epsilon)
        moved, _ = optimizer.update(grads, optimizer.init(params), params)
        expected = tree.map(lambda p, g, e=epsilon: p - 0.1 * g / (g.abs() + e), params, grads)
        close(moved, expected)


def test_adam_without_epsilon_does_not_see_the_scale_of_the_gradient() -> None:
    def final(scale: float) -> Any:
        optimizer, params = optim.adam(0.1, epsilon=0.0), make_tree(1)
        state = optimizer.init(params)
        for k in range(10):
            grads = tree.map(lambda g: scale * g, make_tree(100 + k))
            params, state = optimizer.update(grads, state, params)
        return params

    close(final(1e3), final(1.0))


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_learning_rate_of_zero_changes_no_bit(make: Callable[[], optim.Optimizer]) -> None:
    params = make_tree(1, torch.float32)
    state = make().init(params)
    moved, _ = make().update(make_tree(2, torch.float32), state, params, learning_rate=0.0)
    assert tree.equal(moved, params)


def test_epsilon_inside_the_root_is_another_formula() -> None:
    params, grads = make_tree(1), make_tree(2)
    optimizer = optim.rmsprop(0.1, decay=0.75, epsilon=0.5, eps_inside_sqrt=True)
    moved, _ = optimizer.update(grads, optimizer.init(params), params)
    close(
        moved, tree.map(lambda p, g: p - 0.1 * g / (0.25 * g.square() + 0.5).sqrt(), params, grads)
    )


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_hyperparameters_as_tensors_give_the_same_numbers_as_floats(
    make: Callable[[], optim.Optimizer], dtype: torch.dtype
) -> None:
    numbers = {
        "learning_rate": 0.03,
        "beta1": 0.7,
        "beta2": 0.95,
        "epsilon": 1e-4,
        "weight_decay": 0.2,
        "momentum": 0.8,
        "dampening": 0.1,
        "decay": 0.85,
    }
    numbers = {name: value for name, value in numbers.items() if name in make().hparams}
    tensors = {name: torch.tensor(value, dtype=F64) for name, value in numbers.items()}
    params, grads = make_tree(1, dtype), make_tree(2, dtype)
    state = make().init(params)
    by_number = make().update(grads, state, params, **numbers)
    by_tensor = make().update(grads, state, params, **tensors)
    assert tree.leaves(by_number[0])[0].dtype is dtype
    close(by_tensor, by_number, rtol=2.0 * torch.finfo(dtype).eps)


def test_lists_and_bare_tensors_are_trees_too() -> None:
    optimizer = optim.adam(0.1)
    params, grads = [draw(1, 2), draw(2, 3)], [draw(3, 2), draw(4, 3)]
    moved, _ = optimizer.update(grads, optimizer.init(params), params)
    assert isinstance(moved, list)
    single, _ = optimizer.update(grads[0], optimizer.init(params[0]), params[0])
    close(moved[0], single)


def test_half_precision_parameters_keep_float32_moments() -> None:
    # bfloat16 holds neither 0.999 nor a moment of 1e-3 · g² beside a larger one
    optimizer = optim.adam(1e-2)
    narrow = {"w": draw(1, 8).bfloat16()}
    wide = {"w": narrow["w"].float()}
    narrow_state, wide_state = optimizer.init(narrow), optimizer.init(wide)
    assert narrow_state["second_moment"]["w"].dtype is torch.float32
    for k in range(20):
        grads = {"w": draw(10 + k, 8).bfloat16()}
        narrow, narrow_state = optimizer.update(grads, narrow_state, narrow)
        wide, wide_state = optimizer.update({"w": grads["w"].float()}, wide_state, wide)
    assert narrow["w"].dtype is torch.bfloat16
    assert tree.equal(narrow_state, wide_state)


def test_the_step_count_is_an_integer_that_saturates() -> None:
    optimizer, params = optim.adam(0.1), torch.ones(1)
    state = optimizer.init(params) | {"count": torch.tensor(2**63 - 1)}
    moved, after = optimizer.update(torch.ones(1), state, params)
    assert int(after["count"]) == 2**63 - 1
    assert moved.isfinite().all()


def test_counts_beyond_the_precision_of_float32_still_move() -> None:
    optimizer, params = optim.adam(0.1), torch.ones(1)
    state = optimizer.init(params) | {"count": torch.tensor(2**24)}
    assert int(optimizer.update(torch.ones(1), state, params)[1]["count"]) == 2**24 + 1


def test_derivatives_pass_through_an_update() -> None:
    optimizer = optim.chain(optim.clip_by_global_norm(0.5), optim.adam(0.1, epsilon=1e-3))
    params, curvature = draw(1, 3), draw(2, 3).abs() + 0.5

    def final_loss(rate: Tensor, beta1: Tensor, start: Tensor) -> Tensor:
        params, state = start, optimizer.init(start)
        for _ in range(3):
            params, state = optimizer.update(
                curvature * params, state, params, learning_rate=rate, beta1=beta1
            )
        return (curvature * params.square()).sum()

    inputs = [torch.tensor(0.1, dtype=F64), torch.tensor(0.8, dtype=F64), params]
    assert torch.autograd.gradcheck(final_loss, [x.requires_grad_() for x in inputs])
