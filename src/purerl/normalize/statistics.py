"""Running mean and variance as plain values.

Statistics are a dict of tensors that lives in a learner's state, never in an environment:
``count`` (0-d), ``mean`` and ``m2`` (the sum of squared deviations), in float64 unless asked
otherwise. Evaluation applies them and leaves them as they are.

    Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", equation 2.1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from .. import check, numerics, recurrence
from ..errors import ConfigError, ShapeError
from ..types import Scalar

Stats: TypeAlias = dict[str, Tensor]


def init(
    shape: Sequence[int],
    *,
    prior_count: float = 0.0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Stats:
    """Return statistics of nothing: mean 0 and variance 1, with the weight of ``prior_count``.

    Args:
        shape: of one observation.
        prior_count: ≥ 0; 0 makes ``count`` int64. Stable-Baselines3 and gymnasium take 1e-4.
        dtype: of the statistics.
        device: of the statistics.

    Raises:
        ConfigError: prior_count is negative.

    >>> init(())
    {'count': tensor(0), 'mean': tensor(0., dtype=torch.float64),
     'm2': tensor(0., dtype=torch.float64)}
    """
    if not prior_count >= 0.0:
        raise ConfigError(f"prior_count is {prior_count}, expected a number of at least 0")
    mean = torch.zeros(tuple(shape), dtype=dtype, device=device)
    count_dtype = dtype if prior_count > 0.0 else torch.int64
    return {
        "count": torch.tensor(prior_count, dtype=count_dtype, device=device),
        "mean": mean,
        "m2": torch.full_like(mean, prior_count),  # variance 1
    }


def update(stats: Mapping[str, Tensor], batch: Tensor, *, mask: Tensor | None = None) -> Stats:
    """Return statistics that also know the rows of ``batch``: those of the concatenation.

    A row that holds NaN or infinity, or that the mask excludes, changes nothing.

    Args:
        stats: from `init`.
        batch: ``[*B, *shape]``, any real dtype; B may be empty, or of size 0.
        mask: bool ``[*B]``, False for rows that are no observation.

    Raises:
        ShapeError: shapes or dtypes do not fit.

    >>> stats = update(init(()), torch.tensor([2.0, 4.0, torch.nan]))
    >>> stats["count"], stats["mean"], variance(stats)
    (tensor(2), tensor(3., dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    rows, valid = _rows(stats, batch, mask)
    rows = rows.reshape(valid.numel(), *stats["mean"].shape)
    return merge(stats, _summary(rows, valid.reshape(-1)))


def merge(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Stats:
    """Return the statistics of everything that either knows.

        δ = μ₂ − μ₁;   n = n₁ + n₂;   μ = μ₁ + δ n₂/n;   M = M₁ + M₂ + δ² n₁ n₂/n

    Args:
        first: statistics.
        second: statistics of the same shape.

    Raises:
        ShapeError: the shapes differ.

    >>> merge(update(init(()), torch.tensor([1.0])), update(init(()), torch.tensor([3.0])))["m2"]
    tensor(2., dtype=torch.float64)
    """
    check.same_shape(first=first["mean"], second=second["mean"])
    mean, m2 = first["mean"], first["m2"]
    n_first, n_second = first["count"].to(mean.dtype), second["count"].to(mean.dtype)
    share = numerics.divide_or_zero(n_second, n_first + n_second)
    delta = second["mean"] - mean
    return {
        "count": first["count"] + second["count"],
        "mean": mean + delta * share,
        "m2": m2 + second["m2"] + delta.square() * (n_first * share),
    }


def cumulative(stats: Mapping[str, Tensor], batch: Tensor, *, mask: Tensor | None = None) -> Stats:
    """Return the statistics after each time step, as `update` with one step after the other.

    Args:
        stats: from `init`.
        batch: ``[T, *B, *shape]``.
        mask: bool ``[T, *B]``.

    Returns:
        statistics with a leading axis T on every leaf.

    Raises:
        ShapeError: shapes or dtypes do not fit.

    >>> cumulative(init(()), torch.tensor([1.0, 3.0]))["m2"]
    tensor([0., 2.], dtype=torch.float64)
    """
    rows, valid = _rows(stats, batch, mask)
    check.min_rank("batch", valid, 1)
    shape, num_steps = stats["mean"].shape, valid.shape[0]
    rows = rows.reshape(num_steps, valid.numel() // num_steps, *shape)
    step = _summary(rows, valid.reshape(num_steps, -1))
    count = stats["count"] + step["count"].cumsum(0)
    column = (num_steps,) + (1,) * len(shape)
    n_step = step["count"].to(rows.dtype).reshape(column)
    n = count.to(rows.dtype).reshape(column)
    # every sum below is of terms that do not cancel: means relative to the present one, then
    # the nonnegative increments of merge
    offset = recurrence.linear(1.0, n_step * (step["mean"] - stats["mean"]))
    mean = stats["mean"] + numerics.divide_or_zero(offset, n.expand_as(offset))
    before = torch.cat([stats["mean"].unsqueeze(0), mean[:-1]])
    between = (n - n_step) * numerics.divide_or_zero(n_step, n)
    increment = step["m2"] + (step["mean"] - before).square() * between
    m2 = recurrence.linear(1.0, increment, initial=stats["m2"])
    return {"count": count, "mean": mean, "m2": m2}


def variance(stats: Mapping[str, Tensor], *, ddof: int = 0) -> Tensor:
    """Return M / (n − ddof), and 1 where there are too few observations to tell.

    Args:
        stats: statistics.
        ddof: 0 for the population, 1 for the unbiased estimate.

    >>> variance(init(())), variance(update(init(()), torch.tensor([1.0, 3.0])), ddof=1)
    (tensor(1., dtype=torch.float64), tensor(2., dtype=torch.float64))
    """
    m2 = stats["m2"]
    n = stats["count"].to(m2.dtype) - ddof
    n = n.reshape(n.shape + (1,) * (m2.ndim - n.ndim))
    known = n > 0
    return torch.where(known, m2, torch.ones_like(m2)) / torch.where(known, n, torch.ones_like(n))


def apply(
    stats: Mapping[str, Tensor],
    x: Tensor,
    *,
    epsilon: Scalar = 1e-8,
    clip: Scalar | None = 10.0,
    center: bool = True,
    ddof: int = 0,
) -> Tensor:
    """Return observations in units of the statistics.

        clip((x − μ) / √(var + ε), −c, c),   without − μ if not centred

    Args:
        stats: statistics, left as they are.
        x: floating ``[*B, *shape]``; the result has its dtype, rounded once.
        epsilon: ε ≥ 0.
        clip: c > 0; None for no clipping.
        center: subtract the mean.
        ddof: of the variance.

    Raises:
        ShapeError: shapes or dtypes do not fit.

    >>> apply(update(init(()), torch.tensor([2.0, 4.0])), torch.tensor([3.0, 3.5, 99.0]))
    tensor([ 0.0000,  0.5000, 10.0000])
    """
    check.floating(x=x)
    _batch_shape(stats, "x", x)
    wide = x.to(torch.promote_types(x.dtype, stats["mean"].dtype))
    scale = (variance(stats, ddof=ddof) + numerics.scalar_like(epsilon, wide)).sqrt()
    normal = (wide - stats["mean"] if center else wide) / scale
    return clipped(normal, clip).to(x.dtype)


def clipped(x: Tensor, clip: Scalar | None) -> Tensor:
    """Return ``x`` clipped to [−c, c]; None is no clipping."""
    if clip is None:
        return x
    limit = numerics.scalar_like(clip, x)
    return torch.clamp(x, -limit, limit)


def _batch_shape(stats: Mapping[str, Tensor], name: str, x: Tensor) -> torch.Size:
    """Return the leading shape B of ``[*B, *shape]``, or raise a `ShapeError`."""
    shape = stats["mean"].shape
    split = x.ndim - len(shape)
    if split < 0 or x.shape[split:] != shape:
        expected = ", ".join(["...", *map(str, shape)])
        raise ShapeError(f"{name} has shape {list(x.shape)}, expected [{expected}]")
    return x.shape[:split]


def _rows(stats: Mapping[str, Tensor], batch: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the batch in the dtype of the statistics, and which rows ``[*B]`` count."""
    batch_shape = _batch_shape(stats, "batch", batch)
    rows = batch.to(stats["mean"].dtype)
    valid = rows.isfinite().unsqueeze(-1).flatten(len(batch_shape)).all(-1)
    if mask is None:
        return rows, valid
    check.boolean(mask=mask)
    check.shape("mask", mask, *batch_shape)
    return rows, valid & mask


def _summary(rows: Tensor, valid: Tensor) -> Stats:
    """Return the statistics of rows ``[*A, N, *shape]`` that are valid ``[*A, N]``, over N."""
    axis = valid.ndim - 1
    extra = rows.ndim - valid.ndim
    count = valid.sum(-1)
    mask = valid.reshape(valid.shape + (1,) * extra)
    divisor = count.clamp(min=1).to(rows.dtype).reshape(count.shape + (1,) * extra)
    mean = torch.where(mask, rows, torch.zeros_like(rows)).sum(axis) / divisor
    deviation = torch.where(mask, rows - mean.unsqueeze(axis), torch.zeros_like(rows))
    return {"count": count, "mean": mean, "m2": deviation.square().sum(axis)}
