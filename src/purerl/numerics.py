"""Numerical tricks in one place, each with the reason that it exists."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from . import check
from .types import Scalar

Reduction: TypeAlias = Literal["mean", "sum", "none"]
WeightMode: TypeAlias = Literal["mean", "normalized"]
Distance: TypeAlias = Literal["l2", "half_l2", "huber", "l1"]

_LOG_2 = math.log(2.0)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: float32 for half precisions, else ``dtype`` itself.

    bfloat16 has 8 bits of mantissa, so a recursion of a few dozen steps would lose everything;
    inputs are widened once and the result is rounded once.

    >>> compute_dtype(torch.bfloat16), compute_dtype(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def scalar_like(value: Scalar, reference: Tensor) -> Tensor:
    """Return ``value`` as a tensor of the dtype and device of ``reference``.

    Hyperparameters are float64 leaves. Outside ``vmap`` a 0-d tensor never widens the result,
    but inside ``vmap`` functions such as ``torch.where`` and ``torch.maximum`` see a batched
    tensor and would promote float32 data to float64: so every number is cast where it meets data.

    >>> scalar_like(0.5, torch.zeros(3)).dtype
    torch.float32
    """
    return torch.as_tensor(value, dtype=reference.dtype, device=reference.device)


def log_det_tanh(pre_tanh: Tensor) -> Tensor:
    """Return log(1 − tanh²(u)) = 2(log 2 − u − softplus(−2u)), finite for every finite u.

    The direct form is log(0) from abs(u) ≈ 9 on in float32; adding an epsilon inside the logarithm
    keeps it finite but saturates it at log(epsilon) and kills its gradient.

    >>> log_det_tanh(torch.tensor([0.0, 40.0]))
    tensor([  0.0000, -78.6137])
    """
    # log(1 - tanh^2) is even in u; evaluating at abs(u) keeps softplus in its accurate branch.
    magnitude = pre_tanh.abs()
    return 2.0 * (_LOG_2 - magnitude - F.softplus(-2.0 * magnitude))


def masked_mean(value: Tensor, mask: Tensor | None) -> Tensor:
    """Return Σ where(mask, value, 0) / max(Σ mask, 1); without a mask, the plain mean.

    ``where`` instead of a product because ``0 * nan`` is ``nan``; the floor of one makes the
    mean of nothing 0 instead of NaN.

    >>> masked_mean(torch.tensor([1.0, float("nan")]), torch.tensor([True, False]))
    tensor(1.)
    """
    if mask is None:
        return value.mean()
    count = mask.sum().clamp(min=1)
    # a half would overflow before it is divided
    wide = value.to(compute_dtype(value.dtype))
    return (torch.where(mask, wide, torch.zeros_like(wide)).sum() / count).to(value.dtype)


def reduce(
    loss: Tensor,
    reduction: Reduction = "mean",
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
) -> Tensor:
    """Reduce a per-row loss ℓ of shape ``[*B]`` under an optional mask m and weight w.

        "mean"              Σ m w ℓ / max(Σ m, 1)
        "mean", normalized  Σ m w ℓ / Σ m w            (TorchRL's convention; 0 if Σ m w = 0)
        "sum"               Σ m w ℓ
        "none"              where(m, w ℓ, 0), shape [*B]

    Args:
        loss: floating ``[*B]``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        mask: bool ``[*B]``; rows that are False count nowhere, whatever they hold.
        weight: floating ``[*B]``, importance weights.
        weight_mode: ``"mean"`` divides by the number of rows (Schaul et al. 2016),
            ``"normalized"`` by the sum of the weights.

    Raises:
        ShapeError: mask or weight is not shaped like the loss.
        ConfigError: unknown reduction or weight mode.

    >>> reduce(torch.tensor([2.0, 4.0]), weight=torch.tensor([1.0, 0.5]))
    tensor(2.)
    >>> reduce(torch.tensor([2.0, 4.0]), weight=torch.tensor([1.0, 0.5]), weight_mode="normalized")
    tensor(2.6667)
    """
    check.same_shape(loss=loss, mask=mask, weight=weight)
    check.boolean(mask=mask)
    check.option("weight_mode", weight_mode, ("mean", "normalized"))
    if weight is not None:
        loss = loss * weight
    if check.option("reduction", reduction, ("mean", "sum", "none")) == "mean":
        if weight is not None and weight_mode == "normalized":
            total = weight if mask is None else torch.where(mask, weight, 0.0)
            kept = loss if mask is None else torch.where(mask, loss, 0.0)
            return divide_or_zero(kept.sum(), total.sum())
        return masked_mean(loss, mask)
    if mask is not None:
        loss = torch.where(mask, loss, torch.zeros_like(loss))
    return loss.sum() if reduction == "sum" else loss


def divide_or_zero(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return numerator / denominator, and 0 with zero gradient where the denominator is 0.

    The denominator is replaced *before* the division: ``where(d == 0, 0, n / d)`` alone has the
    right value and a NaN gradient.

    >>> divide_or_zero(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.0]))
    tensor([0.5000, 0.0000])
    """
    empty = denominator == 0
    safe = torch.where(empty, torch.ones_like(denominator), denominator)
    return torch.where(empty, torch.zeros_like(numerator), numerator / safe)


def distance(prediction: Tensor, target: Tensor, kind: Distance = "l2") -> Tensor:
    """Return the elementwise distance of prediction and target, e = prediction − target.

        "l2"       e²             no ½ (TorchRL ``l2``, ``mse_loss``)
        "half_l2"  ½ e²           (rlax ``l2_loss``, Stable-Baselines3 SAC)
        "huber"    ½ e² if |e| ≤ 1 else |e| − ½     (``smooth_l1_loss``)
        "l1"       |e|

    Args:
        prediction: floating ``[*B]``.
        target: floating ``[*B]``.
        kind: which of the four.

    Raises:
        ShapeError: the two shapes differ.
        ConfigError: unknown kind.

    >>> distance(torch.tensor([3.0]), torch.tensor([1.0]), "huber")
    tensor([1.5000])
    """
    check.same_shape(prediction=prediction, target=target)
    error = prediction - target
    match check.option("kind", kind, ("l2", "half_l2", "huber", "l1")):
        case "l2":
            return error.square()
        case "half_l2":
            return 0.5 * error.square()
        case "huber":
            magnitude = error.abs()
            return torch.where(magnitude <= 1.0, 0.5 * error.square(), magnitude - 0.5)
        case _:
            return error.abs()


def safe_increment(count: Tensor) -> Tensor:
    """Return ``count + 1``, saturating at the dtype's maximum instead of wrapping to negative.

    >>> int(safe_increment(torch.tensor(2**63 - 1))) == 2**63 - 1
    True
    """
    maximum = torch.iinfo(count.dtype).max
    return torch.where(count < maximum, count + 1, count)
