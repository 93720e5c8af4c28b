"""Mistakes of losses, of their targets and of what they are fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ... import losses
from ...types import Metrics, Scalar
from .mistake import Mistake

Surrogate = Callable[[Tensor, Tensor, Tensor, float, float | None], Tensor]


def _clip(rule: Surrogate) -> Callable[..., Any]:
    """Return a function like `losses.ppo_clip` from a rule for its surrogate."""

    def ppo_clip(
        log_prob: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        *,
        clip_epsilon: Any = 0.2,
        dual_clip: Any = None,
        reduction: str = "mean",
        **options: Any,
    ) -> tuple[Tensor, Metrics]:
        del options
        below, above = clip_epsilon if isinstance(clip_epsilon, tuple) else (clip_epsilon,) * 2
        ratio = (log_prob - old_log_prob.detach()).exp()
        clipped = ratio.clamp(1.0 - below, 1.0 + above)
        rows = -rule(ratio, clipped, advantage.detach(), float(above), dual_clip)
        return (rows if reduction == "none" else getattr(rows, reduction)()), {}

    return ppo_clip


def _dual(surrogate: Tensor, advantage: Tensor, dual: float | None, where: Tensor) -> Tensor:
    if dual is None:
        return surrogate
    return torch.where(where, torch.maximum(surrogate, dual * advantage), surrogate)


def _right(ratio: Tensor, clipped: Tensor, advantage: Tensor) -> Tensor:
    return torch.minimum(ratio * advantage, clipped * advantage)


def _blind(ratio: Tensor, clipped: Tensor, advantage: Tensor, dual: float | None) -> Tensor:
    rows = _dual(torch.fmin(ratio * advantage, clipped * advantage), advantage, dual, advantage < 0)
    return torch.where(rows.isnan(), torch.zeros_like(rows), rows)


PPO_CLIP = (
    Mistake(
        "M19",
        "only one branch of the surrogate has the normalised advantage",
        _clip(
            lambda ratio, clipped, a, _epsilon, _dual_clip: torch.minimum(
                ratio * losses.normalize_advantage(a), clipped * a
            )
        ),
    ),
    Mistake(
        "M21",
        "the larger branch of the surrogate is taken",
        _clip(
            lambda ratio, clipped, a, _epsilon, _dual_clip: torch.maximum(ratio * a, clipped * a)
        ),
    ),
    Mistake(
        "M21b",
        "the clipped branch of the surrogate stands alone",
        _clip(lambda _ratio, clipped, a, _epsilon, _dual_clip: clipped * a),
    ),
    Mistake(
        "M22",
        "the dual clip bounds positive advantages too",
        _clip(
            lambda ratio, clipped, a, _epsilon, dual: _dual(
                _right(ratio, clipped, a), a, dual, torch.ones_like(a, dtype=torch.bool)
            )
        ),
    ),
    Mistake(
        "M23",
        "a minimum that ignores NaN hides it",
        _clip(lambda ratio, clipped, a, _epsilon, dual: _blind(ratio, clipped, a, dual)),
    ),
)


def _in_place(advantage: Tensor, **options: Any) -> Tensor:
    found = losses.normalize_advantage(advantage, **options)
    return advantage.copy_(found)


def _padding_counts(advantage: Tensor, *, mask: Tensor | None = None, **options: Any) -> Tensor:
    del mask
    return losses.normalize_advantage(advantage, **options)


def _unbiased_of_one(
    advantage: Tensor, *, mask: Tensor | None = None, epsilon: Scalar = 1e-8, **options: Any
) -> Tensor:
    del mask
    squares = (advantage - advantage.mean()).square().sum()
    deviation = (squares / (advantage.numel() - options.get("ddof", 1))).sqrt()
    return (advantage - advantage.mean()) / (deviation + epsilon)


NORMALIZE_ADVANTAGE = (
    Mistake("M18", "the input is normalised in place", _in_place),
    Mistake("M24", "the unbiased deviation of one number is NaN", _unbiased_of_one),
    Mistake("M25", "padding counts in mean and deviation", _padding_counts),
)


def _broadcast(
    value: Tensor,
    value_target: Tensor,
    old_value: Tensor | None = None,
    *,
    reduction: str = "mean",
    **options: Any,
) -> tuple[Tensor, Metrics]:
    del old_value, options
    rows = (value - value_target.detach()) ** 2
    return (rows if reduction == "none" else getattr(rows, reduction)()), {}


def _clip_alone(
    value: Tensor, value_target: Tensor, old_value: Tensor | None = None, **options: Any
) -> tuple[Tensor, Metrics]:
    if options.get("clip_mode") == "max":
        options["clip_mode"] = "replace"
    return losses.value_loss(value, value_target, old_value, **options)


VALUE_LOSS = (
    Mistake("M26", "a column against a row makes a square", _broadcast),
    Mistake("M27", "the clipped error is taken without the maximum", _clip_alone),
)


def _soft_target(rule: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function like `losses.sac_target` from a rule for y."""

    def sac_target(
        reward: Tensor,
        next_q: Tensor,
        next_log_prob: Tensor,
        alpha: Scalar,
        terminated: Tensor,
        *,
        gamma: Scalar = 0.99,
        steps: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        del options
        discount = torch.as_tensor(gamma, dtype=reward.dtype)
        discount = discount if steps is None else discount**steps
        return rule(reward, next_q, alpha * next_log_prob, terminated, discount)

    return sac_target


def _masked(value: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, torch.zeros_like(value), value)


SAC_TARGET = (
    Mistake(
        "M32",
        "the entropy term stands outside the terminal mask",
        _soft_target(
            lambda r, q, h, e, g: (r + g * (_masked(q.amin(0), e) - h)).detach(),
        ),
    ),
    Mistake(
        "M33",
        "the mean of the critics instead of their minimum",
        _soft_target(lambda r, q, h, e, g: (r + g * _masked(q.mean(0) - h, e)).detach()),
    ),
    Mistake(
        "M33b",
        "the maximum of the critics instead of their minimum",
        _soft_target(lambda r, q, h, e, g: (r + g * _masked(q.amax(0) - h, e)).detach()),
    ),
    Mistake(
        "M08",
        "masking by multiplication, which lets NaN through",
        _soft_target(
            lambda r, q, h, e, g: (r + g * (~e).to(r.dtype) * (q.amin(0) - h)).detach(),
        ),
    ),
    Mistake(
        "M07",
        "the value after a termination is not masked",
        _soft_target(lambda r, q, h, e, g: (r + g * (q.amin(0) - h)).detach()),
    ),
    Mistake(
        "M28",
        "the target carries a gradient",
        _soft_target(lambda r, q, h, e, g: r + g * _masked(q.amin(0) - h, e)),
    ),
    Mistake(
        "M32b",
        "the entropy term has the wrong sign",
        _soft_target(lambda r, q, h, e, g: (r + g * _masked(q.amin(0) + h, e)).detach()),
    ),
    Mistake(
        "M32c",
        "the entropy term is missing",
        _soft_target(lambda r, q, h, e, g: (r + g * _masked(q.amin(0), e)).detach()),
    ),
)
