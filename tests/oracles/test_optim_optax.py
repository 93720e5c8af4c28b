"""Optimizers, clipping, targets and schedules against optax, run live in double precision."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tests.optim_cases import Tree, close, make_tree

from purerl import optim, tree

MakeOptax = Callable[[Any], Any]


@pytest.fixture(scope="module")
def optax() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use what jax deprecates
        return importlib.import_module("optax")


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    import jax

    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        yield


def to_jax(value: Tree) -> Any:
    from jax import numpy

    return tree.map(lambda leaf: numpy.asarray(leaf.numpy()), value)


def close_to(actual: Any, expected: Any) -> None:
    # by key: jax sorts the keys of a dict
    pairs = tree.map(lambda a, e: [a, torch.from_numpy(np.array(e))], actual, expected)
    leaves = tree.leaves(pairs)
    close(leaves[::2], leaves[1::2])


# optax returns updates to add; its rmsprop has eps inside the root unless told otherwise
PAIRS: list[tuple[str, optim.Optimizer, MakeOptax]] = [
    ("adam", optim.adam(1e-2, epsilon=1e-5), lambda o: o.adam(1e-2, eps=1e-5, eps_root=0.0)),
    (
        "adamw",
        optim.adamw(1e-2, weight_decay=0.1),
        lambda o: o.adamw(1e-2, weight_decay=0.1, eps_root=0.0),
    ),
    ("sgd", optim.sgd(1e-2), lambda o: o.sgd(1e-2)),
    ("momentum", optim.sgd(1e-2, momentum=0.9), lambda o: o.sgd(1e-2, momentum=0.9)),
    (
        "nesterov",
        optim.sgd(1e-2, momentum=0.9, nesterov=True),
        lambda o: o.sgd(1e-2, momentum=0.9, nesterov=True),
    ),
    (
        "rmsprop",
        optim.rmsprop(1e-2, decay=0.9, epsilon=1e-5),
        lambda o: o.rmsprop(1e-2, decay=0.9, eps=1e-5, eps_in_sqrt=False),
    ),
    (
        "rmsprop, eps inside the root",
        optim.rmsprop(1e-2, decay=0.9, epsilon=1e-5, eps_inside_sqrt=True),
        lambda o: o.rmsprop(1e-2, decay=0.9, eps=1e-5),
    ),
    (
        "rmsprop, centered",
        optim.rmsprop(1e-2, decay=0.9, epsilon=1e-5, centered=True),
        lambda o: o.rmsprop(1e-2, decay=0.9, eps=1e-5, eps_in_sqrt=False, centered=True),
    ),
    (
        "clip, then adam",
        optim.flat(optim.chain(optim.clip_by_global_norm(0.5), optim.adam(1e-2))),
        lambda o: o.chain(o.clip_by_global_norm(0.5), o.adam(1e-2)),
    ),
    (
        "value clip, then sgd",
        optim.chain(optim.clip(0.5), optim.sgd(1e-2)),
        lambda o: o.chain(o.clip(0.5), o.sgd(1e-2)),
    ),
]


@pytest.mark.parametrize(("optimizer", "make"), [pytest.param(p, m, id=n) for n, p, m in PAIRS])
def test_optimizers_equal_optax_step_for_step(
    optax: ModuleType, optimizer: optim.Optimizer, make: MakeOptax
) -> None:
    import jax

    reference = make(optax)

    @jax.jit
    def step(grads: Any, state: Any, params: Any) -> Any:
        updates, state = reference.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = make_tree(1)
    state = optimizer.init(params)
    theirs = to_jax(params)
    their_state = reference.init(theirs)
    for k in range(100):
        grads = make_tree(100 + k)
        theirs, their_state = step(to_jax(grads), their_state, theirs)
        params, state = optimizer.update(grads, state, params)
    close_to(params, theirs)


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_exact_clip_equals_optax(optax: ModuleType, max_norm: float) -> None:
    grads = make_tree(1)
    clip, reference = optim.clip_by_global_norm(max_norm), optax.clip_by_global_norm(max_norm)
    theirs, _ = reference.update(to_jax(grads), reference.init(to_jax(grads)))
    ours, state = clip.update(grads, clip.init(grads), grads)
    close_to(ours, theirs)
    close_to(state["grad_norm"], optax.global_norm(to_jax(grads)))


def test_skipping_equals_apply_if_finite_until_that_gives_up(optax: ModuleType) -> None:
    import jax

    ours = optim.skip_nonfinite(optim.adam(1e-2))
    reference = optax.apply_if_finite(optax.adam(1e-2), max_consecutive_errors=5)
    update = jax.jit(reference.update)
    params = make_tree(1)
    state, theirs = ours.init(params), to_jax(params)
    their_state = reference.init(theirs)
    for k in range(20):
        grads = make_tree(10 + k)
        if k % 5 in (2, 3):
            grads["scale"].fill_(torch.nan)
        updates, their_state = update(to_jax(grads), their_state, theirs)
        theirs = optax.apply_updates(theirs, updates)
        params, state = ours.update(grads, state, params)
    close_to(params, theirs)
    assert int(state["nonfinite"]) == int(their_state.total_notfinite) == 8


def test_polyak_equals_incremental_update(optax: ModuleType) -> None:
    target, online = make_tree(1), make_tree(2)
    for tau in (0.0, 0.005, 0.7, 1.0):
        theirs = optax.incremental_update(to_jax(online), to_jax(target), step_size=tau)
        close_to(optim.polyak(target, online, tau), theirs)


def test_periodic_update_equals_optax_after_step_0(optax: ModuleType) -> None:
    target, online = make_tree(1), make_tree(2)
    new, old = to_jax(online), to_jax(target)
    for k in range(1, 8):
        theirs = optax.periodic_update(new, old, np.int64(k), 3)
        close_to(optim.periodic_update(target, online, torch.tensor(k), 3), theirs)


SCHEDULES: list[tuple[str, optim.Schedule, MakeOptax]] = [
    ("constant", optim.constant(0.3), lambda o: o.constant_schedule(0.3)),
    ("linear", optim.linear(1.0, 0.1, 10), lambda o: o.linear_schedule(1.0, 0.1, 10)),
    ("cosine", optim.cosine(2.0, 0.5, 10), lambda o: o.cosine_decay_schedule(2.0, 10, alpha=0.25)),
    (
        "piecewise",
        optim.piecewise([1.0, 0.5, 0.05], [3, 7]),
        lambda o: o.piecewise_constant_schedule(1.0, {3: 0.5, 7: 0.1}),
    ),
    (
        "joined",
        optim.piecewise([optim.linear(0.0, 1.0, 4), optim.cosine(1.0, 0.0, 6)], [4]),
        lambda o: o.join_schedules(
            [o.linear_schedule(0.0, 1.0, 4), o.cosine_decay_schedule(1.0, 6)], [4]
        ),
    ),
]


@pytest.mark.parametrize(("ours", "make"), [pytest.param(s, m, id=n) for n, s, m in SCHEDULES])
def test_schedules_equal_optax(optax: ModuleType, ours: optim.Schedule, make: MakeOptax) -> None:
    theirs = make(optax)
    expected = torch.tensor([float(theirs(np.int64(k))) for k in range(15)], dtype=torch.float64)
    close(ours(torch.arange(15)), expected)
