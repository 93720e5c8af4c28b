"""The normal distribution, elementwise; `independent` sums the event axes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import check, numerics, random
from ..errors import ShapeError
from ..types import Key, Scalar

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def normal_sample(key: Key, loc: Tensor, scale: Scalar) -> Tensor:
    """Return μ + σ ε with ε ~ N(0, 1): a sample through which gradients reach μ and σ.

    Args:
        key: int64 ``[2]``.
        loc: floating ``[*B]``.
        scale: positive; ``[*B]``, the trailing axes of it, or a number.

    >>> normal_sample(random.key(0), torch.tensor([3.0]), 1e-9)
    tensor([3.])
    """
    noise = random.normal(key, tuple(loc.shape), dtype=numerics.compute_dtype(loc.dtype))
    return normal_from_noise(noise, loc, scale)


def normal_from_noise(noise: Tensor, loc: Tensor, scale: Scalar) -> Tensor:
    """Return μ + σ ε for given standard normal noise ε.

    Args:
        noise: floating ``[*B]``.
        loc: floating ``[*B]``.
        scale: positive; ``[*B]``, the trailing axes of it, or a number.

    Raises:
        ShapeError: shapes or dtypes that do not fit.

    >>> normal_from_noise(torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0.5]))
    tensor([2.])
    """
    check.same_shape(loc=loc, noise=noise)
    wide, sigma = widen(loc, scale)
    return (wide + sigma * noise.to(wide.dtype)).to(loc.dtype)


def normal_log_prob(value: Tensor, loc: Tensor, scale: Scalar) -> Tensor:
    """Return the log-density of each element.

        log p(x) = −½((x − μ)/σ)² − log σ − ½ log 2π

    Args:
        value: floating ``[*B]``.
        loc: floating ``[*B]``.
        scale: positive; ``[*B]``, the trailing axes of it, or a number.

    Raises:
        ShapeError: shapes or dtypes that do not fit.

    >>> normal_log_prob(torch.tensor([0.0, 1.0]), torch.zeros(2), torch.ones(2))
    tensor([-0.9189, -1.4189])
    """
    return log_density(standardize(value, loc, scale), loc, scale).to(value.dtype)


def standardize(value: Tensor, loc: Tensor, scale: Scalar) -> Tensor:
    """Return (x − μ)/σ in the dtype to compute in."""
    check.same_shape(loc=loc, value=value)
    wide, sigma = widen(loc, scale)
    return (value.to(wide.dtype) - wide) / sigma


def log_density(standard: Tensor, loc: Tensor, scale: Scalar) -> Tensor:
    """Return −½z² − log σ − ½ log 2π for standardised values z."""
    _, sigma = widen(loc, scale)
    return -0.5 * standard.square() - sigma.log() - _HALF_LOG_TWO_PI


def normal_entropy(scale: Tensor) -> Tensor:
    """Return H = ½ + ½ log 2π + log σ of each element (nats; 1.41893853 at σ = 1).

    Args:
        scale: positive, floating, any shape.

    >>> normal_entropy(torch.ones(1))
    tensor([1.4189])
    """
    check.floating(scale=scale)
    wide = scale.to(numerics.compute_dtype(scale.dtype))
    return (0.5 + _HALF_LOG_TWO_PI + wide.log()).to(scale.dtype)


def normal_kl(loc_p: Tensor, scale_p: Scalar, loc_q: Tensor, scale_q: Scalar) -> Tensor:
    """Return the divergence from p to q of each element.

        KL(p‖q) = log(σ_q/σ_p) + (σ_p² + (μ_p − μ_q)²)/(2σ_q²) − ½

    Never negative, exactly 0 for equal parameters, and accurate between near ones.

    Args:
        loc_p: floating ``[*B]``.
        scale_p: positive; ``[*B]``, the trailing axes of it, or a number.
        loc_q: floating ``[*B]``.
        scale_q: like ``scale_p``.

    Raises:
        ShapeError: shapes or dtypes that do not fit.

    >>> normal_kl(torch.zeros(1), torch.ones(1), torch.ones(1), torch.tensor([2.0]))
    tensor([0.4431])
    """
    check.same_shape(loc_p=loc_p, loc_q=loc_q)
    mean_p, sigma_p = widen(loc_p, scale_p, "scale_p")
    mean_q, sigma_q = widen(loc_q, scale_q, "scale_q")
    # With l = log(σ_p/σ_q) the scale part is ½(e^{2l} − 1) − l; expm1 keeps its digits where the
    # two are close, and the floor removes the last rounding below zero.
    log_ratio = (sigma_p / sigma_q).log()
    scale_part = (0.5 * torch.expm1(2.0 * log_ratio) - log_ratio).clamp(min=0.0)
    return (scale_part + 0.5 * ((mean_p - mean_q) / sigma_q).square()).to(loc_p.dtype)


def independent(x: Tensor, num_event_dims: int = 1) -> Tensor:
    """Return ``x`` summed over its last axes: the log-probability or entropy of a whole event.

    Args:
        x: floating ``[*B, *E]``.
        num_event_dims: how many axes E there are; 0 changes nothing.

    Raises:
        ShapeError: ``x`` has fewer axes.

    >>> independent(torch.ones(2, 3))
    tensor([3., 3.])
    """
    if x.ndim < num_event_dims:
        raise ShapeError(
            f"x has shape {list(x.shape)}, expected at least {num_event_dims} dimension(s)"
        )
    return x.sum(tuple(range(-num_event_dims, 0))) if num_event_dims else x


def widen(loc: Tensor, scale: Scalar, name: str = "scale") -> tuple[Tensor, Tensor]:
    """Return location and scale in the dtype to compute in, once shapes and dtypes are checked.

    A scale may lack leading axes (a state-independent one is ``[D]`` beside ``[N, D]``), but no
    axis is stretched.
    """
    check.floating(loc=loc)
    wide = loc.to(numerics.compute_dtype(loc.dtype))
    if not isinstance(scale, Tensor) or scale.ndim == 0:
        return wide, numerics.scalar_like(scale, wide)
    if scale.ndim > loc.ndim or scale.shape != loc.shape[loc.ndim - scale.ndim :]:
        raise ShapeError(
            f"{name} has shape {list(scale.shape)}, expected {list(loc.shape)} as its loc, "
            "or the trailing axes of it"
        )
    if scale.dtype != loc.dtype:
        raise ShapeError(f"{name} has dtype {scale.dtype}, expected {loc.dtype} as its loc")
    return wide, scale.to(wide.dtype)
