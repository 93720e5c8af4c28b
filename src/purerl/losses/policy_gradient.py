"""The PPO objective and its parts, as functions of log-probabilities, advantages and values."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..errors import ConfigError
from ..numerics import Distance, Reduction
from ..types import Metrics, Scalar
from .statistics import approx_kl, clip_fraction, effective_sample_size

ClipMode: TypeAlias = Literal["max", "replace"]


def ppo_clip(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip_epsilon: Scalar | tuple[Scalar, Scalar] = 0.2,
    dual_clip: Scalar | None = None,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return PPO's clipped surrogate as a loss.

        L = −mean min(ρ A, clip(ρ, 1−ε, 1+ε) A),   ρ = exp(log π − log π_old)

    Evaluated as one branch, A exp(min(log ρ, log1p ε)) where A ≥ 0 and A exp(max(log ρ,
    log1p −ε)) elsewhere, which is the same number and keeps the gradient finite at any ratio on
    the clipped side. A dual clip c bounds the second branch: A min(·, c).

    Args:
        log_prob: ``[*B]``, joint log-probability of the stored action under the present policy.
        old_log_prob: ``[*B]``, under the policy that acted; carries no gradient.
        advantage: ``[*B]``; carries no gradient.
        clip_epsilon: ε ≥ 0, or (below, above).
        dual_clip: c > 1, or None.
        mask: bool ``[*B]``; rows that are False count nowhere.
        weight: ``[*B]``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        the loss, and ``approx_kl`` (k3), ``approx_kl_k1``, ``clip_fraction``, ``ratio_mean``,
        ``ratio_max`` and ``effective_sample_size``.

    Raises:
        ShapeError: shapes differ.

    Source: Schulman et al. 2017, equation 7; dual clip: Ye et al. 2020, equation 3.

    >>> log_ratio = torch.tensor([1.5, 1.5, 0.5, 0.5]).log()
    >>> advantage = torch.tensor([2.0, -2.0, 2.0, -2.0])
    >>> ppo_clip(log_ratio, torch.zeros(4), advantage, clip_epsilon=0.25, reduction="none")[0]
    tensor([-2.5000,  3.0000, -1.0000,  1.5000])
    """
    check.same_shape(
        log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage, mask=mask, weight=weight
    )
    check.floating(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage)
    log_ratio, advantage = _scrubbed(mask, log_prob - old_log_prob.detach(), advantage.detach())
    below, above = clip_epsilon if isinstance(clip_epsilon, tuple) else (clip_epsilon,) * 2
    low = torch.log1p(-numerics.scalar_like(below, log_ratio))
    high = torch.log1p(numerics.scalar_like(above, log_ratio))
    surrogate_up = torch.minimum(log_ratio, high)
    surrogate_down = torch.maximum(log_ratio, low)
    if dual_clip is not None:
        ceiling = numerics.scalar_like(dual_clip, log_ratio).log()
        surrogate_down = torch.minimum(surrogate_down, ceiling)
    log_bounded = torch.where(advantage >= 0, surrogate_up, surrogate_down)
    loss = numerics.reduce(-advantage * log_bounded.exp(), reduction, mask=mask, weight=weight)
    log_ratio = log_ratio.detach()
    ratio = log_ratio.exp()
    metrics = {
        "approx_kl": approx_kl(log_ratio, kind="k3", mask=mask),
        "approx_kl_k1": approx_kl(log_ratio, kind="k1", mask=mask),
        "clip_fraction": clip_fraction(log_ratio, clip_epsilon=clip_epsilon, mask=mask),
        "ratio_mean": numerics.masked_mean(ratio, mask),
        "ratio_max": ratio.amax(),
        "effective_sample_size": effective_sample_size(log_ratio, mask=mask),
    }
    return loss, metrics


def _scrubbed(mask: Tensor | None, *values: Tensor) -> tuple[Tensor, ...]:
    """Return values with 0 where the mask is False, so that no garbage meets a gradient."""
    if mask is None:
        return values
    return tuple(torch.where(mask, value, torch.zeros_like(value)) for value in values)


def value_loss(
    value: Tensor,
    value_target: Tensor,
    old_value: Tensor | None = None,
    *,
    clip_epsilon: Scalar | None = None,
    clip_mode: ClipMode | None = None,
    kind: Distance = "l2",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the critic's regression loss, plain or clipped around the old value.

        None        d(V, R)
        "max"       max(d(V, R), d(V_c, R)),  V_c = V_old + clip(V − V_old, −c, c)
        "replace"   d(V_c, R)

    Args:
        value: V ``[*B]``.
        value_target: R ``[*B]``; carries no gradient.
        old_value: V_old ``[*B]``, needed for clipping; carries no gradient.
        clip_epsilon: c > 0, with a clip mode.
        clip_mode: ``"max"`` (CleanRL, openai/baselines) or ``"replace"`` (Stable-Baselines3).
        kind: distance d; ``"l2"`` has no factor ½.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        the loss, and ``value_clip_fraction``.

    Raises:
        ShapeError: shapes differ.
        ConfigError: clipping without an old value or an epsilon.

    >>> one, two = torch.ones(1), torch.full((1,), 2.0)
    >>> value_loss(one, two, torch.zeros(1), clip_epsilon=0.5, clip_mode="max")[0]
    tensor(2.2500)
    """
    check.same_shape(
        value=value, value_target=value_target, old_value=old_value, mask=mask, weight=weight
    )
    value, value_target = _scrubbed(mask, value, value_target.detach())
    loss = numerics.distance(value, value_target, kind)
    fraction = torch.zeros((), dtype=value.dtype, device=value.device)
    if clip_mode is not None:
        check.option("clip_mode", clip_mode, ("max", "replace"))
        if old_value is None or clip_epsilon is None:
            raise ConfigError(f"clip_mode {clip_mode!r} needs old_value and clip_epsilon")
        (old_value,) = _scrubbed(mask, old_value.detach())
        epsilon = numerics.scalar_like(clip_epsilon, value)
        clipped = old_value + torch.minimum(torch.maximum(value - old_value, -epsilon), epsilon)
        bounded = numerics.distance(clipped, value_target, kind)
        loss = torch.maximum(loss, bounded) if clip_mode == "max" else bounded
        outside = (value - old_value).detach().abs() > epsilon
        fraction = numerics.masked_mean(outside.to(value.dtype), mask)
    reduced = numerics.reduce(loss, reduction, mask=mask, weight=weight)
    return reduced, {"value_clip_fraction": fraction}


def entropy_bonus(
    entropy: Tensor, *, mask: Tensor | None = None, reduction: Reduction = "mean"
) -> tuple[Tensor, Metrics]:
    """Return minus the entropy as a loss, to be added with a positive coefficient.

        L = −mean H

    Args:
        entropy: H ``[*B]``, joint over heads and dimensions.
        mask: bool ``[*B]``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        the loss, and ``entropy``, the mean of H.

    >>> entropy_bonus(torch.tensor([1.0, 3.0]))[0]
    tensor(-2.)
    """
    check.same_shape(entropy=entropy, mask=mask)
    (entropy,) = _scrubbed(mask, entropy)
    metrics = {"entropy": numerics.masked_mean(entropy.detach(), mask)}
    return numerics.reduce(-entropy, reduction, mask=mask), metrics
