"""Normalised advantages, and how much of the returns a critic explains."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..types import Scalar
from .rows import rows

Singleton: TypeAlias = Literal["zero", "keep"]


def normalize_advantage(
    advantage: Tensor,
    *,
    mask: Tensor | None = None,
    ddof: int = 1,
    epsilon: Scalar = 1e-8,
    floor: Scalar | None = None,
    singleton: Singleton = "zero",
    exclude_dims: tuple[int, ...] = (),
) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1 over the rows that count.

        Â = (A − mean) / (std + ε),  or (A − mean) / max(std, floor);   std² = SS / max(n − ddof, 1)

    Constant advantages become exactly 0; NaN comes out only where NaN went in.

    Args:
        advantage: floating ``[*B]``.
        mask: bool ``[*B]``; rows that are False do not count and become 0.
        ddof: 1 for the unbiased variance (Stable-Baselines3, CleanRL), 0 for the population's
            (Spinning Up, brax, PureJaxRL).
        epsilon: ε ≥ 0, added to the standard deviation.
        floor: divide by max(std, floor) instead (TorchRL: 1e-6).
        singleton: what a single row becomes: ``"zero"``, or ``"keep"`` as it is.
        exclude_dims: dimensions with statistics of their own, such as that of the agents.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown singleton.

    >>> normalize_advantage(torch.tensor([0.0, 1.0, 2.0]))
    tensor([-1.,  0.,  1.])
    >>> normalize_advantage(torch.tensor([7.0])), normalize_advantage(torch.full((3,), 0.1))
    (tensor([0.]), tensor([0., 0., 0.]))
    """
    r = rows({"advantage": advantage}, mask=mask)
    check.option("singleton", singleton, ("zero", "keep"))
    wide = r.live(advantage)
    front = tuple(range(len(exclude_dims)))
    groups = wide.movedim(exclude_dims, front)
    table = groups.reshape(*groups.shape[: len(front)], -1)
    valid = None if mask is None else mask.movedim(exclude_dims, front).reshape(table.shape)
    centred, count = _centred(table, valid)
    freedom = (count - ddof).clamp(min=1)
    std = _root(centred.square().sum(-1, keepdim=True) / freedom)
    if floor is None:
        scale = std + numerics.scalar_like(epsilon, std)
    else:
        scale = torch.maximum(std, numerics.scalar_like(floor, std))
    normal = numerics.divide_or_zero(centred, scale.expand_as(centred))
    if singleton == "keep":
        normal = torch.where(count == 1, table, normal)
    return normal.reshape(groups.shape).movedim(front, exclude_dims).to(r.result_dtype)


def _centred(table: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return deviations from the mean of the last axis, 0 where invalid, and the counts."""
    # Less some element first, so that equal elements differ from their mean by exactly 0: the
    # rounding of a mean over a tiny standard deviation would otherwise pass for signal.
    if valid is None:
        shifted = table - table[..., :1].detach()
        count = torch.full_like(table[..., :1], table.shape[-1]).detach()
        return shifted - shifted.mean(-1, keepdim=True), count
    count = valid.sum(-1, keepdim=True).to(table.dtype)
    pivot = torch.where(valid, table, torch.inf).amin(-1, keepdim=True).detach()
    shifted = torch.where(valid, table - pivot, torch.zeros_like(table))
    mean = shifted.sum(-1, keepdim=True) / count.clamp(min=1)
    return torch.where(valid, shifted - mean, torch.zeros_like(table)), count


def _root(x: Tensor) -> Tensor:
    """Return √x, with gradient 0 instead of ∞ at 0."""
    zero = x == 0
    return torch.where(zero, torch.zeros_like(x), torch.where(zero, torch.ones_like(x), x).sqrt())


def explained_variance(
    value: Tensor, value_target: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """Return how much of the variance of the targets the values explain; 1 is all of it.

        1 − Var(R − V) / Var(R),   population variances; NaN where Var(R) = 0, never infinite

    Args:
        value: V, floating ``[*B]``.
        value_target: R ``[*B]``.
        mask: bool ``[*B]``.

    Raises:
        ShapeError: a shape or dtype differs.

    >>> explained_variance(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    tensor(0.7500)
    """
    r = rows({"value": value, "value_target": value_target}, mask=mask)
    value, value_target = r.constant(value), r.constant(value_target)
    valid = None if mask is None else mask.reshape(-1)
    pair = torch.stack([value_target - value, value_target]).flatten(1)
    centred, _ = _centred(pair, None if valid is None else valid.expand_as(pair))
    residual, total = centred.square().sum(-1).unbind()
    undefined = total == 0
    share = 1.0 - residual / torch.where(undefined, torch.ones_like(total), total)
    return torch.where(undefined, torch.full_like(share, torch.nan), share).to(r.result_dtype)
