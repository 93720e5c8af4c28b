"""How far a policy has moved from the one that acted, by the ratios of the actions taken."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..types import Metrics, Scalar
from .rows import Rows, rows

ClipEpsilon: TypeAlias = Scalar | tuple[Scalar, Scalar]
"""ε on both sides of 1, or one below and one above."""

KLEstimator: TypeAlias = Literal["k1", "k3"]


def approx_kl(log_ratio: Tensor, *, kind: KLEstimator = "k3", mask: Tensor | None = None) -> Tensor:
    """Return an estimate of KL(π_old ‖ π) from the ratios ρ of actions that π_old took.

        k1 = mean(−log ρ);   k3 = mean(ρ − 1 − log ρ) ≥ 0

    Args:
        log_ratio: floating ``[*B]``, log π − log π_old.
        kind: ``"k3"`` is never negative and of lower variance (Stable-Baselines3, CleanRL);
            ``"k1"`` is what TorchRL and Spinning Up report.
        mask: bool ``[*B]``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown kind.

    Source: Schulman 2020, "Approximating KL Divergence".

    >>> approx_kl(torch.tensor([0.2, -0.2]))
    tensor(0.0201)
    """
    r = rows({"log_ratio": log_ratio}, mask=mask)
    log_ratio = r.live(log_ratio)
    k1 = check.option("kind", kind, ("k1", "k3")) == "k1"
    return r.reduce(-log_ratio if k1 else _k3(log_ratio))


def _k3(log_ratio: Tensor) -> Tensor:
    # never below 0, though expm1 may round below its argument where both are tiny
    return (torch.expm1(log_ratio) - log_ratio).clamp(min=0.0)


def clip_fraction(
    log_ratio: Tensor, *, clip_epsilon: ClipEpsilon = 0.2, mask: Tensor | None = None
) -> Tensor:
    """Return the share of rows whose ratio lies outside [1 − ε, 1 + ε], whatever the advantage.

    Args:
        log_ratio: floating ``[*B]``, log π − log π_old.
        clip_epsilon: ε ≥ 0, or (below, above).
        mask: bool ``[*B]``.

    Raises:
        ShapeError: a shape or dtype differs.

    >>> clip_fraction(torch.tensor([0.0, 1.0]))
    tensor(0.5000)
    """
    r = rows({"log_ratio": log_ratio}, mask=mask)
    log_ratio = r.constant(log_ratio)
    return share_outside(r, log_ratio, *log_clip_bounds(clip_epsilon, log_ratio))


def share_outside(r: Rows, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the share of rows with x outside [low, high]."""
    return r.mean(((x > high) | (x < low)).to(x.dtype))


def log_clip_bounds(clip_epsilon: ClipEpsilon, log_ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(1 − below) and log(1 + above).

    The lower one is −∞ from below = 1 on: ratios are positive, so such a bound never binds.
    """
    below, above = clip_epsilon if isinstance(clip_epsilon, tuple) else (clip_epsilon,) * 2
    low = torch.log1p(-numerics.scalar_like(below, log_ratio).clamp(max=1.0))
    return low, torch.log1p(numerics.scalar_like(above, log_ratio))


def effective_sample_size(log_ratio: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Return the share of rows that their importance ratios leave in effect.

        (Σ ρ)² / (n Σ ρ²),   from 1/n (one ratio outweighs all) to 1 (all equal)

    Args:
        log_ratio: floating ``[*B]``, log π − log π_old.
        mask: bool ``[*B]``.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Kish 1965; TorchRL's ``ESS``.

    >>> effective_sample_size(torch.tensor([1.0, 3.0]).log())
    tensor(0.8000)
    """
    r = rows({"log_ratio": log_ratio}, mask=mask)
    return _effective_sample_size(r, r.constant(log_ratio))


def _effective_sample_size(r: Rows, log_ratio: Tensor) -> Tensor:
    # a common factor cancels, and with the largest ratio at 1 nothing overflows
    largest = log_ratio if r.mask is None else torch.where(r.mask, log_ratio, -torch.inf)
    ratio = r.live((log_ratio - largest.amax()).exp())
    count = ratio.numel() if r.mask is None else r.mask.sum()
    share = numerics.divide_or_zero(ratio.sum().square(), count * ratio.square().sum())
    return share.to(r.result_dtype)


def ratio_metrics(r: Rows, log_ratio: Tensor) -> Metrics:
    """Return what is reported of the ratios ``[*B]``, scrubbed and without gradient."""
    ratio = log_ratio.exp()
    return {
        "approx_kl": r.mean(_k3(log_ratio)),
        "approx_kl_k1": r.mean(-log_ratio),
        "ratio_mean": r.mean(ratio),
        "ratio_max": r.max(ratio),
        "effective_sample_size": _effective_sample_size(r, log_ratio),
    }
