"""Target parameters that follow the online ones: softly at every call, or by copy now and then."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics, tree
from ..types import Scalar, Tree
from . import optimizer as base

Buffers: TypeAlias = Literal["copy", "polyak", "keep"]


def polyak(target: Tree, online: Tree, tau: Scalar, *, buffers: Buffers = "copy") -> Tree:
    """Return target parameters moved towards the online ones.

        target ← (1 − τ) · target + τ · online

    τ = 0 changes nothing and τ = 1 copies, bit for bit. Whatever lies below a key ``"buffers"``
    (as in networks made from modules) is a buffer: running statistics, which are averages already.

    Args:
        target: tree of tensors.
        online: tree of the same structure.
        tau: τ in [0, 1]. TorchRL's ``eps`` and Spinning Up's ``polyak`` are 1 − τ.
        buffers: ``"copy"`` (Stable-Baselines3), ``"polyak"`` or ``"keep"``; leaves that are not
            floating are always copied.

    Raises:
        ShapeError: the trees differ.
        ConfigError: unknown treatment of buffers.

    Source: Lillicrap et al. 2016, algorithm 1.

    >>> polyak({"w": torch.tensor([0.0])}, {"w": torch.tensor([1.0])}, 0.25)
    {'w': tensor([0.2500])}
    """
    check.option("buffers", buffers, ("copy", "polyak", "keep"))

    def move(t: Tensor, o: Tensor) -> Tensor:
        if not t.is_floating_point():
            return o
        wide = base.widen(t)
        return base.widen(torch.lerp(wide, base.widen(o, wide.dtype), _weight(tau, wide)), t.dtype)

    def buffer(t: Tensor, o: Tensor) -> Tensor:
        if buffers == "polyak":
            return move(t, o)
        return o if buffers == "copy" or not t.is_floating_point() else t

    def walk(old: Tree, new: Tree) -> Tree:
        if not isinstance(old, dict):
            return tree.map(move, old, new)
        return {
            name: tree.map(buffer, entry, new[name])
            if name == "buffers"
            else walk(entry, new[name])
            for name, entry in old.items()
        }

    old, new = base.plain(target), base.plain(online)
    base.aligned("online", new, old)
    return base.like(target, walk(old, new))


def _weight(tau: Scalar, reference: Tensor) -> Scalar:
    return numerics.scalar_like(tau, reference) if isinstance(tau, Tensor) else tau


def periodic_update(target: Tree, online: Tree, step: Tensor, period: int | Tensor) -> Tree:
    """Return the online parameters at every ``period``-th call, the target at all others.

        copies at step = N, 2N, 3N, …; buffers included

    Args:
        target: tree of tensors.
        online: tree of the same structure.
        step: int64 0-d, number of this call; the first is 1.
        period: N ≥ 1.

    Raises:
        ShapeError: the trees differ.

    Deviation: optax's function of this name copies at step 0 too.

    >>> [periodic_update(torch.zeros(1), torch.ones(1), torch.tensor(k), 2).item() for k in (1, 2)]
    [0.0, 1.0]
    """
    old, new = base.plain(target), base.plain(online)
    base.aligned("online", new, old)
    due = (step > 0) & (step % period == 0)
    return base.like(target, tree.map(lambda t, o: torch.where(due, o, t), old, new))
