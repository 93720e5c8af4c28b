"""What one watches while a policy learns, and the normalisation of advantages."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .. import check, numerics
from ..types import Scalar


def normalize_advantage(
    advantage: Tensor,
    *,
    mask: Tensor | None = None,
    ddof: int = 1,
    epsilon: Scalar = 1e-8,
    floor: Scalar | None = None,
) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1 over the valid rows.

        Â = (A − mean) / (std + ε),   or / max(std, floor);   var = Σ (A − mean)² / max(n − ddof, 1)

    Args:
        advantage: ``[*B]``.
        mask: bool ``[*B]``; rows that are False do not count and become 0.
        ddof: 1 for the unbiased variance (torch), 0 for the population's (numpy, JAX).
        epsilon: ε ≥ 0, added to the standard deviation.
        floor: divide by max(std, floor) instead, as TorchRL does.

    Constant advantages, and a single one, become 0; never NaN.

    >>> normalize_advantage(torch.tensor([0.0, 1.0, 2.0]))
    tensor([-1.,  0.,  1.])
    >>> normalize_advantage(torch.tensor([7.0]))
    tensor([0.])
    """
    check.same_shape(advantage=advantage, mask=mask)
    check.floating(advantage=advantage)
    dtype = advantage.dtype
    values = advantage.to(numerics.compute_dtype(dtype))
    centred = values - numerics.masked_mean(values, mask)
    if mask is not None:
        centred = torch.where(mask, centred, torch.zeros_like(centred))
        freedom = (mask.sum() - ddof).clamp(min=1)
        std = (centred.square().sum() / freedom).sqrt()
    else:
        std = (centred.square().sum() / max(values.numel() - ddof, 1)).sqrt()
    if floor is None:
        scale = std + numerics.scalar_like(epsilon, std)
    else:
        scale = torch.maximum(std, numerics.scalar_like(floor, std))
    return (centred / scale).to(dtype)


def approx_kl(
    log_ratio: Tensor, *, kind: Literal["k1", "k3"] = "k3", mask: Tensor | None = None
) -> Tensor:
    """Return an estimate of KL(π_old ‖ π) from the ratios of actions that π_old took.

        k1 = mean(−log ρ);   k3 = mean(ρ − 1 − log ρ) ≥ 0

    Args:
        log_ratio: ``[*B]``, log π − log π_old.
        kind: ``"k3"`` is non-negative and of lower variance; ``"k1"`` may be negative.
        mask: bool ``[*B]``.

    Source: Schulman 2020, "Approximating KL Divergence".

    >>> approx_kl(torch.tensor([0.2, -0.2]))
    tensor(0.0201)
    """
    check.same_shape(log_ratio=log_ratio, mask=mask)
    if check.option("kind", kind, ("k1", "k3")) == "k1":
        return numerics.masked_mean(-log_ratio, mask)
    return numerics.masked_mean(torch.expm1(log_ratio) - log_ratio, mask)


def clip_fraction(
    log_ratio: Tensor,
    *,
    clip_epsilon: Scalar | tuple[Scalar, Scalar] = 0.2,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the share of rows whose ratio lies outside [1 − ε, 1 + ε].

    Args:
        log_ratio: ``[*B]``, log π − log π_old.
        clip_epsilon: ε, or (below, above).
        mask: bool ``[*B]``.

    >>> clip_fraction(torch.tensor([0.0, 1.0]))
    tensor(0.5000)
    """
    check.same_shape(log_ratio=log_ratio, mask=mask)
    below, above = clip_epsilon if isinstance(clip_epsilon, tuple) else (clip_epsilon,) * 2
    change = torch.expm1(log_ratio)
    outside = (change > numerics.scalar_like(above, change)) | (
        change < -numerics.scalar_like(below, change)
    )
    return numerics.masked_mean(outside.to(log_ratio.dtype), mask)


def effective_sample_size(log_ratio: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Return the share of rows that the importance weights leave in effect.

        (Σ ρ)² / (n Σ ρ²)

    Args:
        log_ratio: ``[*B]``, log π − log π_old.
        mask: bool ``[*B]``.

    >>> effective_sample_size(torch.tensor([1.0, 3.0]).log())
    tensor(0.8000)
    """
    check.same_shape(log_ratio=log_ratio, mask=mask)
    kept = log_ratio if mask is None else torch.where(mask, log_ratio, -torch.inf)
    # a common factor cancels, and the largest ratio becomes 1: nothing overflows
    ratio = (kept - kept.amax()).exp()
    count = ratio.numel() if mask is None else mask.sum().clamp(min=1)
    return ratio.sum().square() / (count * ratio.square().sum())


def explained_variance(
    value: Tensor, value_target: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """Return how much of the variance of the targets the values explain; 1 is all of it.

        1 − Var(R − V) / Var(R),   population variances; NaN where Var(R) = 0

    Args:
        value: V ``[*B]``.
        value_target: R ``[*B]``.
        mask: bool ``[*B]``.

    >>> explained_variance(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    tensor(0.7500)
    """
    check.same_shape(value=value, value_target=value_target, mask=mask)
    total = _variance(value_target, mask)
    share = 1.0 - _variance(value_target - value, mask) / total
    return torch.where(total > 0, share, torch.nan)


def _variance(x: Tensor, mask: Tensor | None) -> Tensor:
    return numerics.masked_mean((x - numerics.masked_mean(x, mask)).square(), mask)
