"""What all value-based losses share: the bootstrapped target and its regression."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..numerics import Distance
from ..types import Metrics, Scalar
from .rows import Rows, rows

CriticReduce: TypeAlias = Literal["first", "mean", "min"]
CriticSum: TypeAlias = Literal["sum", "mean"]


def target_rows(
    reward: Tensor,
    terminated: Tensor,
    *others: Tensor,
    gamma: Scalar,
    steps: Tensor | None,
    mask: Tensor | None,
) -> Rows:
    """Check what every target is made of and return its `Rows`."""
    check.boolean(terminated=terminated)
    check.integer(steps=steps)
    check.same_shape(reward=reward, terminated=terminated, steps=steps)
    check.scalar_or_like(reward, "reward", gamma=gamma)
    return rows({"reward": reward}, *others, mask=mask)


def bellman(
    r: Rows,
    reward: Tensor,
    bootstrap: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar,
    steps: Tensor | None,
) -> Tensor:
    """Return r + γ^steps where(e, 0, bootstrap) as a constant, bootstrap ``[*B]`` or ``[*B, K]``.

    The whole bootstrap is masked, and selected rather than multiplied: a terminated row may hold
    NaN there.
    """
    discount = numerics.scalar_like(gamma, r.example).detach()
    if steps is not None:
        discount = discount ** steps.to(discount.dtype)
    columns = [r.live(reward.detach()), terminated, discount]
    if bootstrap.ndim > reward.ndim:
        columns = [c.unsqueeze(-1) if c.ndim == reward.ndim else c for c in columns]
    base, end, discount = columns
    kept = torch.where(end, torch.zeros_like(bootstrap), bootstrap.detach())
    return base + discount * kept


def reduce_members(q: Tensor, how: CriticReduce) -> Tensor:
    """Return one value a row from those of an ensemble, ``[K, *B]`` to ``[*B]``.

    >>> reduce_members(torch.tensor([[1.0, 4.0], [3.0, 2.0]]), "min")
    tensor([1., 2.])
    """
    match check.option("critic_reduce", how, ("first", "mean", "min")):
        case "first":
            return q[0]
        case "mean":
            return q.mean(0)
        case _:
            return q.amin(0)


def regression(
    r: Rows, q: Tensor, target: Tensor, *, kind: Distance, critic_sum: CriticSum = "sum"
) -> tuple[Tensor, Metrics]:
    """Return Σ_k mean d(Q_k, sg(y)) for live q ``[K, *B]`` and a constant target ``[*B]``."""
    per_member = numerics.distance(q, target.expand_as(q), kind)
    summed = check.option("critic_sum", critic_sum, ("sum", "mean")) == "sum"
    loss = per_member.sum(0) if summed else per_member.mean(0)
    q = q.detach()
    error = (q - target).abs()
    metrics = {
        "q_mean": r.mean(q.mean(0)),
        "target_mean": r.mean(target),
        "td_error_abs_mean": r.mean(error.mean(0)),
        "td_error_max": r.max(error.amax(0)),
        "priority": r.per_row(error.amax(0)),
    }
    return r.reduce(loss), metrics


def gather(q: Tensor, action: Tensor) -> Tensor:
    """Return q at the action, ``[*E, *B, A]`` and ``[*B]`` to ``[*E, *B]``."""
    index = action.to(torch.int64).expand(q.shape[:-1]).unsqueeze(-1)
    return q.gather(-1, index).squeeze(-1)


def gather_rows(q: Tensor, action: Tensor) -> Tensor:
    """Return q at the action, ``[*B, A, K]`` and ``[*B]`` to ``[*B, K]``."""
    index = action.to(torch.int64)[..., None, None].expand(*action.shape, 1, q.shape[-1])
    return q.gather(-2, index).squeeze(-2)
