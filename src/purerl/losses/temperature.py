"""The temperature α of soft actor-critics: its loss, its bounds and the entropy it steers to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..errors import ConfigError, ShapeError
from ..numerics import Reduction
from ..types import Metrics, Scalar
from .rows import Rows, rows

AlphaForm: TypeAlias = Literal["log", "alpha"]


def sac_alpha(
    log_alpha: Tensor,
    log_prob: Tensor,
    target_entropy: Scalar,
    *,
    form: AlphaForm = "log",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the temperature's loss of soft actor-critic.

        "log"    L = −log_alpha · mean sg(log π(ã|s) + H̄)      gradient −m for log_alpha
        "alpha"  L = −exp(log_alpha) · mean sg(log π + H̄)      gradient −α m,  m the mean

    α rises exactly while the entropy −mean log π is below H̄.

    Args:
        log_alpha: log α, floating 0-d; or any shape, one loss an entry, if the rows are reduced.
        log_prob: ``[*B]``, joint, of the actor's sample; carries no gradient.
        target_entropy: H̄, the entropy wanted, a number or 0-d: `sac_target_entropy`.
        form: both are in use; Adam hides most of the factor α.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, shaped like log_alpha, and ``alpha`` and ``entropy``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Haarnoja et al. 2018 (arXiv:1812.05905), equation 18 is the alpha form; the log form is
    that of its authors' code, Stable-Baselines3 and TorchRL.

    >>> sac_alpha(torch.tensor(0.0), torch.tensor([-1.0, -3.0]), -2.0, form="alpha")[0]
    tensor(4.)
    """
    r = rows({"log_prob": log_prob}, log_alpha, mask=mask, weight=weight, reduction=reduction)
    return alpha_loss(r, log_alpha, -r.constant(log_prob), target_entropy, form)


def alpha_loss(
    r: Rows, log_alpha: Tensor, entropy: Tensor, target_entropy: Scalar, form: AlphaForm
) -> tuple[Tensor, Metrics]:
    """Return the temperature's loss for constant entropies ``[*B]``, exact or of one sample."""
    check.floating(log_alpha=log_alpha)
    excess = r.reduce_wide(r.scalar("target_entropy", target_entropy) - entropy)
    if excess.ndim and log_alpha.ndim:
        raise ShapeError(
            f"log_alpha has shape {list(log_alpha.shape)}, expected [] with reduction 'none'"
        )
    logs = log_alpha.to(r.example.dtype)
    log_form = check.option("form", form, ("log", "alpha")) == "log"
    loss = -(logs if log_form else logs.exp()) * excess
    metrics = {"alpha": logs.detach().exp().to(r.result_dtype), "entropy": r.mean(entropy)}
    return loss.to(r.result_dtype), metrics


def project_log_alpha(
    log_alpha: Tensor, *, low: Scalar | None = None, high: Scalar | None = None
) -> Tensor:
    """Return log α with α inside its bounds, to be applied after the optimiser's step.

        clip(log_alpha, log low, log high)

    Args:
        log_alpha: floating, any shape.
        low: lower bound on α, ≥ 0, or None.
        high: upper bound on α, or None; each side works alone.

    Raises:
        ShapeError: log_alpha is not floating.

    >>> project_log_alpha(torch.tensor([-9.0, 0.0]), low=1.0)
    tensor([0., 0.])
    """
    check.floating(log_alpha=log_alpha)
    if low is not None:
        log_alpha = torch.maximum(log_alpha, numerics.scalar_like(low, log_alpha).log())
    if high is not None:
        log_alpha = torch.minimum(log_alpha, numerics.scalar_like(high, log_alpha).log())
    return log_alpha


def sac_target_entropy(action_shape: Sequence[int]) -> float:
    """Return the entropy that soft actor-critic aims at by default, −D.

    Args:
        action_shape: of one action, without batch dimensions; D is the number of its elements.

    Source: Haarnoja et al. 2018 (arXiv:1812.05905), appendix D.

    >>> sac_target_entropy([2, 3])
    -6.0
    """
    return -float(math.prod(action_shape))


def sac_discrete_target_entropy(num_actions: int, *, scale: float = 0.98) -> float:
    """Return a share of the greatest entropy, scale · log(number of actions); positive.

    Args:
        num_actions: at least 1.
        scale: 0.98 (paper, TorchRL), 0.89 (CleanRL for Atari).

    Raises:
        ConfigError: no action.

    Source: Christodoulou 2019 (arXiv:1910.07207), section 4.

    >>> round(sac_discrete_target_entropy(3), 8)
    1.07664004
    """
    if num_actions < 1:
        raise ConfigError(f"num_actions is {num_actions}, expected at least 1")
    return scale * math.log(num_actions)
