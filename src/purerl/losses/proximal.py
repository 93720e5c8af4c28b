"""Proximal policy optimisation: the clipped surrogate and the KL penalty."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check, numerics
from ..errors import ConfigError
from ..numerics import Reduction
from ..types import Metrics, Scalar
from .ratio import ClipEpsilon, log_clip_bounds, ratio_metrics, share_outside
from .rows import rows


def ppo_clip(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip_epsilon: ClipEpsilon = 0.2,
    dual_clip: Scalar | None = None,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    differentiable: bool = False,
) -> tuple[Tensor, Metrics]:
    """Return PPO's clipped surrogate as a loss.

        L = −mean min(ρ A, clip(ρ, 1 − ε, 1 + ε) A),   ρ = exp(log π − log π_old)

    Evaluated as one branch, A exp(min(log ρ, log(1 + ε))) where A ≥ 0 and
    A exp(max(log ρ, log(1 − ε))) elsewhere: the same number, and a finite gradient at any ratio
    on the clipped side. NaN in a row that counts comes out. With a dual clip c, rows of negative
    advantage give at least c A: there the exponent is bounded by log c as well.

    Args:
        log_prob: floating ``[*B]``, of the stored action under the present policy, joint over
            heads and dimensions (`joint_log_prob`).
        old_log_prob: ``[*B]``, under the policy that acted; carries no gradient.
        advantage: A ``[*B]``, normalised or not; carries no gradient.
        clip_epsilon: ε ≥ 0, or (below, above); ∞ gives the plain surrogate −mean ρ A.
        dual_clip: c > 1, or None.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.
        differentiable: let gradients through what carries none, for derivatives of an update by
            the numbers that made its advantages and targets.

    Returns:
        the loss, and ``approx_kl`` (k3), ``approx_kl_k1``, ``clip_fraction``, ``ratio_mean``,
        ``ratio_max`` and ``effective_sample_size``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction, or a number dual_clip ≤ 1.

    Source: Schulman et al. 2017 (arXiv:1707.06347), equation 7; dual clip: Ye et al. 2020
    (arXiv:1912.09729), equation 3.

    >>> log_ratio = torch.tensor([1.5, 1.5, 0.5, 0.5]).log()
    >>> advantage = torch.tensor([2.0, -2.0, 2.0, -2.0])
    >>> ppo_clip(log_ratio, torch.zeros(4), advantage, clip_epsilon=0.25, reduction="none")[0]
    tensor([-2.5000,  3.0000, -1.0000,  1.5000])
    """
    inputs = {"log_prob": log_prob, "old_log_prob": old_log_prob, "advantage": advantage}
    r = rows(inputs, mask=mask, weight=weight, reduction=reduction, differentiable=differentiable)
    log_ratio, advantage = r.live(log_prob) - r.constant(old_log_prob), r.constant(advantage)
    low, high = log_clip_bounds(clip_epsilon, log_ratio)
    gain, loss = torch.minimum(log_ratio, high), torch.maximum(log_ratio, low)
    if dual_clip is not None:
        if not isinstance(dual_clip, Tensor) and dual_clip <= 1.0:
            raise ConfigError(f"dual_clip is {dual_clip}, expected more than 1")
        loss = torch.minimum(loss, r.scalar("dual_clip", dual_clip).log())
    surrogate = advantage * torch.where(advantage >= 0, gain, loss).exp()
    moved = log_ratio.detach()
    metrics = ratio_metrics(r, moved) | {"clip_fraction": share_outside(r, moved, low, high)}
    return r.reduce(-surrogate), metrics


def ppo_kl_penalty(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    kl: Tensor,
    *,
    beta: Scalar,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return PPO's surrogate with a KL penalty as a loss.

        L = −mean ρ A + β mean KL(π_old ‖ π)

    Args:
        log_prob: floating ``[*B]``, of the stored action under the present policy, joint.
        old_log_prob: ``[*B]``, under the policy that acted; carries no gradient.
        advantage: A ``[*B]``; carries no gradient.
        kl: ``[*B]``, KL(π_old ‖ π) with gradient into π, in closed form from the *stored*
            parameters of π_old: rebuilt from the present ones it would be 0.
        beta: β ≥ 0, adapted between updates by `ppo_kl_beta_update`.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``kl``, ``kl_beta``, ``approx_kl`` (k3), ``approx_kl_k1``, ``ratio_mean``,
        ``ratio_max`` and ``effective_sample_size``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction.

    Source: Schulman et al. 2017 (arXiv:1707.06347), equation 8.

    >>> zero, one = torch.zeros(2), torch.ones(2)
    >>> ppo_kl_penalty(zero, zero, one, 0.25 * one, beta=2.0)[0]
    tensor(-0.5000)
    """
    inputs = {"log_prob": log_prob, "old_log_prob": old_log_prob, "advantage": advantage, "kl": kl}
    r = rows(inputs, mask=mask, weight=weight, reduction=reduction)
    log_ratio, kl = r.live(log_prob) - r.constant(old_log_prob), r.live(kl)
    coef = r.scalar("beta", beta)
    loss = coef * kl - r.constant(advantage) * log_ratio.exp()
    metrics = ratio_metrics(r, log_ratio.detach())
    return r.reduce(loss), metrics | {"kl": r.mean(kl), "kl_beta": coef.to(r.result_dtype)}


def ppo_kl_beta_update(
    beta: Scalar,
    kl: Tensor,
    *,
    target: Scalar = 0.01,
    increment: Scalar = 2.0,
    decrement: Scalar = 0.5,
    tolerance: Scalar = 1.5,
) -> Tensor:
    """Return the penalty coefficient for the next update.

        β · increment  if KL > tolerance · target;   β · decrement  if KL < target / tolerance

    Call it once an update, with the mean KL over the batch, not once a minibatch.

    Args:
        beta: β, a number or 0-d.
        kl: floating 0-d, mean KL(π_old ‖ π) after the update.
        target: KL wanted.
        increment: factor > 1.
        decrement: factor < 1.
        tolerance: width of the band in which β stays.

    Raises:
        ShapeError: kl or beta is not one number.

    Source: Schulman et al. 2017 (arXiv:1707.06347), section 4.

    >>> [float(ppo_kl_beta_update(1.0, torch.tensor(kl))) for kl in (0.02, 0.01, 0.005)]
    [2.0, 1.0, 0.5]
    """
    check.floating(kl=kl)
    check.shape("kl", kl)
    old = numerics.scalar_like(beta, beta if isinstance(beta, Tensor) else kl)
    check.shape("beta", old)
    kl = kl.detach().to(old.dtype)
    wanted, width = (numerics.scalar_like(number, old) for number in (target, tolerance))
    up, down = (numerics.scalar_like(number, old) for number in (increment, decrement))
    raised = torch.where(kl > width * wanted, up * old, old)
    return torch.where(kl < wanted / width, down * old, raised)
