"""What the tests of optimizers share: trees, a comparison, and every optimizer beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import optim, random, tree

F64 = torch.float64
Tree = dict[str, Any]


def draw(seed: int, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=torch.float64).to(dtype)


def make_tree(seed: int, dtype: torch.dtype = F64) -> Tree:
    w1, b1, w2, scale = (
        draw(4 * seed + i, *shape, dtype=dtype)
        for i, shape in enumerate([(3, 2), (3,), (1, 5), ()])
    )
    return {"actor": {"weight": w1, "bias": b1}, "critic": {"weight": w2}, "scale": scale}


def close(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    """Compare trees leaf by leaf; the absolute part is relative to the leaf's largest entry."""
    assert tree.paths(actual) == tree.paths(expected)
    for a, e in zip(tree.leaves(actual), tree.leaves(expected), strict=True):
        torch.testing.assert_close(a, e, rtol=rtol, atol=rtol * float(e.abs().max()))


def run(optimizer: optim.Optimizer, params: Any, num_steps: int, **hparams: Any) -> tuple[Any, Any]:
    state = optimizer.init(params)
    for k in range(num_steps):
        params, state = optimizer.update(make_tree(100 + k), state, params, **hparams)
    return params, state


GUARDED = optim.skip_nonfinite(optim.chain(optim.clip_by_global_norm(0.5), optim.adam(0.01)))

PAIRS: list[tuple[str, Callable[[], optim.Optimizer], Callable[[list[Tensor]], Any]]] = [
    ("adam", lambda: optim.adam(1e-2), lambda p: torch.optim.Adam(p, 1e-2)),
    (
        "adam, other betas and eps",
        lambda: optim.adam(1e-2, beta1=0.5, beta2=0.9, epsilon=1e-3),
        lambda p: torch.optim.Adam(p, 1e-2, betas=(0.5, 0.9), eps=1e-3),
    ),
    (
        "adam, beta1 = 0",
        lambda: optim.adam(1e-2, beta1=0.0, epsilon=1e-5),
        lambda p: torch.optim.Adam(p, 1e-2, betas=(0.0, 0.999), eps=1e-5),
    ),
    (
        "adamw",
        lambda: optim.adamw(1e-2, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
    ),
    ("sgd", lambda: optim.sgd(1e-2), lambda p: torch.optim.SGD(p, 1e-2)),
    (
        "sgd, momentum",
        lambda: optim.sgd(1e-2, momentum=0.9),
        lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    ),
    (
        "sgd, dampening",
        lambda: optim.sgd(1e-2, momentum=0.9, dampening=0.3),
        lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, dampening=0.3),
    ),
    (
        "sgd, nesterov",
        lambda: optim.sgd(1e-2, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True),
    ),
    (
        "rmsprop",
        lambda: optim.rmsprop(1e-2, epsilon=1e-5),
        lambda p: torch.optim.RMSprop(p, 1e-2, eps=1e-5),
    ),
    (
        "rmsprop, centered",
        lambda: optim.rmsprop(1e-2, decay=0.9, centered=True),
        lambda p: torch.optim.RMSprop(p, 1e-2, alpha=0.9, centered=True),
    ),
]
OPTIMIZERS = [pytest.param(make, id=name) for name, make, _ in PAIRS]
CONTRACT = [
    *OPTIMIZERS,
    pytest.param(lambda: GUARDED, id="guarded"),
    pytest.param(lambda: optim.flat(GUARDED), id="flat"),
]
