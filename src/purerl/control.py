"""The two combinators that a train step is written in, and the eager executor that runs them.

A train step is a short composition of *stages*: collect (a scan over time), prepare, learn (a
scan over minibatches). An `Executor` says how a stage runs. The eager one is a Python loop, so
``torch.vmap``, ``torch.func.grad`` and a debugger can enter the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from . import tree
from .types import Tree

Body = Callable[[Any, Any], tuple[Any, Any]]
"""``body(carry, x) -> (carry, y)``, pure, with a carry of constant structure and shapes."""


class Scan(Protocol):
    """How to run a body along the leading axis of ``xs``."""

    def __call__(self, body: Body, carry: Any, xs: Tree) -> tuple[Any, Any]:
        """Return the last carry and the stacked outputs."""


class Call(Protocol):
    """How to run a whole stage."""

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(*args)``."""


class Executor(NamedTuple):
    """How the stages of a train step run."""

    scan: Scan
    call: Call


def scan(body: Body, carry: Any, xs: Tree) -> tuple[Any, Any]:
    """Fold ``body`` over the leading axis of ``xs``, stacking what it returns beside the carry.

        carry, y_t = body(carry, xs[t])   for t = 0 … T−1;   returns carry, [y_0 … y_{T−1}]

    Args:
        body: pure function ``(carry, x) -> (carry, y)``.
        carry: tree of tensors.
        xs: tree whose leaves all have the leading size T ≥ 1.

    >>> import torch
    >>> scan(lambda total, x: (total + x, total), torch.tensor(0), torch.arange(4))
    (tensor(6), tensor([0, 0, 1, 3]))
    """
    xs_leaves, rebuild = tree.flatten(xs)
    steps = [leaf.unbind(0) for leaf in xs_leaves]
    outputs = []
    for x in zip(*steps, strict=True):
        carry, y = body(carry, rebuild(x))
        outputs.append(y)
    return carry, tree.stack(outputs)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``: the eager way to run a stage."""
    return function(*args)


eager = Executor(scan=scan, call=call)
