"""The regression of a state-value critic."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..errors import ConfigError
from ..numerics import Distance, Reduction
from ..types import Metrics, Scalar
from .rows import rows

ClipMode: TypeAlias = Literal["max", "replace"]


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
    differentiable: bool = False,
) -> tuple[Tensor, Metrics]:
    """Return the critic's regression loss, plain or clipped around the old value.

        None        d(V, R)
        "max"       max( d(V, R), d(V_c, R) ),   V_c = clip(V, V_old − c, V_old + c)
        "replace"   d(V_c, R)

    Args:
        value: V, floating ``[*B]``.
        value_target: R ``[*B]``; carries no gradient.
        old_value: V_old ``[*B]``, needed to clip; carries no gradient.
        clip_epsilon: c > 0, given together with a clip mode.
        clip_mode: ``"max"`` (CleanRL, PureJaxRL, TorchRL); ``"replace"`` (Stable-Baselines3),
            which can be below the plain loss and has no gradient outside the band.
        kind: the distance d; ``"l2"`` has no factor ½ (`numerics.distance`).
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.
        differentiable: let gradients through what carries none, for derivatives of an update by
            the numbers that made its advantages and targets.

    Returns:
        the loss, and ``value_clip_fraction``, the share of rows with abs(V − V_old) > c.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: clip_epsilon, clip_mode and old_value do not come together, or an unknown
            option.

    Source: Schulman et al. 2017 (arXiv:1707.06347), equation 9; clipping: openai/baselines.

    >>> value, target, old_value = torch.tensor([[1.0], [2.0], [0.0]])
    >>> value_loss(value, target, old_value, clip_epsilon=0.5, clip_mode="max")[0]
    tensor(2.2500)
    """
    inputs = {"value": value, "value_target": value_target}
    if old_value is not None:
        inputs["old_value"] = old_value
    r = rows(inputs, mask=mask, weight=weight, reduction=reduction, differentiable=differentiable)
    value, value_target = r.live(value), r.constant(value_target)
    loss = numerics.distance(value, value_target, kind)
    if clip_mode is None and clip_epsilon is None:
        return r.reduce(loss), {"value_clip_fraction": r.mean(torch.zeros_like(loss))}
    if clip_mode is None or clip_epsilon is None or old_value is None:
        raise ConfigError(
            f"clip_epsilon is {clip_epsilon}, clip_mode is {clip_mode!r} and old_value is "
            f"{'missing' if old_value is None else 'given'}; expected all three, or neither of "
            "the first two"
        )
    check.option("clip_mode", clip_mode, ("max", "replace"))
    old_value, radius = r.constant(old_value), r.scalar("clip_epsilon", clip_epsilon)
    low, high = old_value - radius, old_value + radius
    clipped = torch.minimum(torch.maximum(value, low), high)
    bounded = numerics.distance(clipped, value_target, kind)
    loss = torch.maximum(loss, bounded) if clip_mode == "max" else bounded
    outside = (value < low) | (value > high)
    return r.reduce(loss), {"value_clip_fraction": r.mean(outside.to(loss.dtype))}
