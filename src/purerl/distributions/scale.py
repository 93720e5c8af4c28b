"""Maps from what a network puts out to a positive scale."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import check, numerics
from ..errors import ConfigError
from ..types import Scalar

ScaleMap: TypeAlias = Literal["exp", "tanh_range", "softplus", "biased_softplus"]
Bounds: TypeAlias = tuple[Scalar, Scalar]

_OPTIONS: dict[str, tuple[str, ...]] = {
    "exp": ("bounds",),
    "tanh_range": ("bounds",),
    "softplus": ("floor",),
    "biased_softplus": ("floor", "center"),
}


def scale_map(
    raw: Tensor,
    kind: ScaleMap = "exp",
    *,
    bounds: Bounds | None = None,
    floor: float | None = None,
    center: float | None = None,
) -> Tensor:
    """Return the scale σ(z) of raw outputs z.

        "exp"              exp(clip(z, low, high))                       σ(0) = 1
        "tanh_range"       exp(low + ½(high − low)(tanh z + 1))          σ(0) = 0.22313016
        "softplus"         log(1 + e^z) + floor                          σ(0) = 0.69414718
        "biased_softplus"  log(1 + e^{z + b}) + floor, b = log(e^{center − floor} − 1)
                                                                         σ(0) = center

    The hard clip has zero gradient outside its bounds; this is kept for parity.

    Args:
        raw: floating, any shape.
        kind: ``"exp"`` (Stable-Baselines3, Spinning Up, skrl), ``"tanh_range"`` (CleanRL),
            ``"softplus"`` (brax, Stoix) or ``"biased_softplus"`` (TorchRL).
        bounds: (low, high) of log σ; default (−20, 2) for ``"exp"``, (−5, 2) for ``"tanh_range"``.
        floor: smallest σ; default 0.001 for ``"softplus"``, 0.1 for ``"biased_softplus"``.
        center: σ at z = 0 of ``"biased_softplus"``, above the floor; default 1.

    Raises:
        ConfigError: unknown kind, or an option that the kind does not use.

    >>> scale_map(torch.zeros(1), "tanh_range"), scale_map(torch.zeros(1), "biased_softplus")
    (tensor([0.2231]), tensor([1.]))
    """
    check.floating(raw=raw)
    given = {"bounds": bounds, "floor": floor, "center": center}
    used = _OPTIONS[check.option("kind", kind, tuple(_OPTIONS))]
    for name, value in given.items():
        if value is not None and name not in used:
            raise ConfigError(f"{name} is {value!r}, but kind {kind!r} takes {' and '.join(used)}")
    z = raw.to(numerics.compute_dtype(raw.dtype))
    match kind:
        case "exp":
            sigma = _exp(z, bounds or (-20.0, 2.0))
        case "tanh_range":
            sigma = _tanh_range(z, bounds or (-5.0, 2.0))
        case "softplus":
            sigma = F.softplus(z) + (1e-3 if floor is None else floor)
        case _:
            sigma = _biased_softplus(
                z, 0.1 if floor is None else floor, 1.0 if center is None else center
            )
    return sigma.to(raw.dtype)


def _exp(z: Tensor, bounds: Bounds) -> Tensor:
    low, high = (numerics.scalar_like(bound, z) for bound in bounds)
    return torch.clamp(z, low, high).exp()


def _tanh_range(z: Tensor, bounds: Bounds) -> Tensor:
    low, high = (numerics.scalar_like(bound, z) for bound in bounds)
    return (low + 0.5 * (high - low) * (z.tanh() + 1.0)).exp()


def _biased_softplus(z: Tensor, floor: float, center: float) -> Tensor:
    if not center > floor:
        raise ConfigError(f"center is {center}, expected above the floor {floor}")
    return F.softplus(z + math.log(math.expm1(center - floor))) + floor
