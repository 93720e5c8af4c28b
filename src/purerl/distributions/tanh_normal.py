"""The normal squashed by tanh into bounds; the event axis is last and summed.

    u ~ N(μ, σ),   a = low + ½(high − low)(tanh u + 1)

What is kept and scored is the sample *before* tanh: tanh rounds to ±1 from about u = 9 on in
float32, and no inverse brings back what that lost.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics, random
from ..errors import ConfigError, ShapeError
from ..types import Key, Scalar
from .normal import log_density, normal_from_noise, standardize, widen

Density: TypeAlias = Literal["unit", "env"]


class TanhNormalSample(NamedTuple):
    """A sample of a tanh-normal and what is needed to score it again."""

    action: Tensor
    """Inside [low, high], ``[*B, D]``."""
    log_prob: Tensor
    """Joint over the dimensions, ``[*B]``."""
    pre_tanh: Tensor
    """u, the sample before tanh, ``[*B, D]``: keep it beside the action."""


def tanh_normal_sample_and_log_prob(
    key: Key,
    loc: Tensor,
    scale: Scalar,
    *,
    low: Scalar = -1.0,
    high: Scalar = 1.0,
    density: Density = "unit",
) -> TanhNormalSample:
    """Draw a reparametrised sample and its log-probability; tanh is never inverted.

    Args:
        key: int64 ``[2]``.
        loc: floating ``[*B, D]``.
        scale: positive; ``[*B, D]``, the trailing axes of it, or a number.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.
        density: see `tanh_normal_log_prob`.

    >>> sample = tanh_normal_sample_and_log_prob(random.key(0), torch.zeros(1), 0.01, high=3.0)
    >>> bool(sample.log_prob == tanh_normal_log_prob(sample.pre_tanh, torch.zeros(1), 0.01))
    True
    """
    noise = random.normal(key, tuple(loc.shape), dtype=numerics.compute_dtype(loc.dtype))
    return tanh_normal_from_noise(noise, loc, scale, low=low, high=high, density=density)


def tanh_normal_from_noise(
    noise: Tensor,
    loc: Tensor,
    scale: Scalar,
    *,
    low: Scalar = -1.0,
    high: Scalar = 1.0,
    density: Density = "unit",
) -> TanhNormalSample:
    """Return the sample u = μ + σ ε for given standard normal noise ε, and its log-probability.

    The value equals `tanh_normal_log_prob` of the returned ``pre_tanh`` bit for bit. Its gradient
    is that of the reparametrised sample: (u − μ)/σ is the noise and depends on no parameter.

    Args:
        noise: floating ``[*B, D]``.
        loc: floating ``[*B, D]``.
        scale: positive; ``[*B, D]``, the trailing axes of it, or a number.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.
        density: see `tanh_normal_log_prob`.

    Raises:
        ShapeError: shapes or dtypes that do not fit.
        ConfigError: unknown density, or low not below high.

    >>> tanh_normal_from_noise(torch.zeros(1), torch.zeros(1), 1.0, low=0.0, high=4.0).action
    tensor([2.])
    """
    pre_tanh = normal_from_noise(noise, loc, scale)
    # Differentiating (u − μ)/σ instead would leave the difference of two equal terms of size 1/σ:
    # rounding noise where σ is small beside μ.
    standard = standardize(pre_tanh, loc, scale).detach()
    log_prob = _squashed(log_density(standard, loc, scale), pre_tanh, low, high, density)
    return TanhNormalSample(tanh_normal_action(pre_tanh, low, high), log_prob, pre_tanh)


def tanh_normal_log_prob(
    pre_tanh: Tensor,
    loc: Tensor,
    scale: Scalar,
    *,
    low: Scalar = -1.0,
    high: Scalar = 1.0,
    density: Density = "unit",
) -> Tensor:
    """Return the log-probability of the action that belongs to a pre-tanh sample u.

        log π = Σ_d log N(u_d; μ_d, σ_d) − Σ_d 2(log 2 − u_d − softplus(−2u_d))   ["unit"]
                − Σ_d log ½(high_d − low_d)                                       ["env"]

    Args:
        pre_tanh: floating ``[*B, D]``.
        loc: floating ``[*B, D]``.
        scale: positive; ``[*B, D]``, the trailing axes of it, or a number.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.
        density: ``"unit"`` measures in [−1, 1] coordinates (Stable-Baselines3, brax, tianshou),
            ``"env"`` in those of the bounds (CleanRL, TorchRL); a target entropy must match.

    Raises:
        ShapeError: shapes or dtypes that do not fit.
        ConfigError: unknown density, or low not below high.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C. Implementations that add 1e-6
    inside log(1 − tanh²) saturate at 13.8 per dimension; this form is exact for every u.

    >>> tanh_normal_log_prob(torch.tensor([[0.0], [40.0]]), torch.zeros(2, 1), 1.0)
    tensor([  -0.9189, -722.3052])
    """
    base = log_density(standardize(pre_tanh, loc, scale), loc, scale)
    return _squashed(base, pre_tanh, low, high, density)


def tanh_normal_log_prob_of_action(
    action: Tensor,
    loc: Tensor,
    scale: Scalar,
    *,
    low: Scalar = -1.0,
    high: Scalar = 1.0,
    density: Density = "unit",
) -> Tensor:
    """Return the log-probability of a bare action, for data that came without pre-tanh samples.

        u = ½(log(1 + a₁) − log(1 − a₁)),   a₁ = clip((a − ½(low + high)) / ½(high − low))

    The clip is to the largest magnitude below 1 of the action's dtype (1 − 2⁻²⁴ in float32, where
    abs(u) = 8.66): an action on a bound or beyond is scored there, with no gradient to the action.
    Wherever a pre-tanh sample exists, score that.

    Args:
        action: floating ``[*B, D]``.
        loc: floating ``[*B, D]``.
        scale: positive; ``[*B, D]``, the trailing axes of it, or a number.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.
        density: see `tanh_normal_log_prob`.

    Raises:
        ShapeError: shapes or dtypes that do not fit.
        ConfigError: unknown density, or low not below high.

    >>> tanh_normal_log_prob_of_action(torch.tensor([[0.0], [1.0]]), torch.zeros(2, 1), 1.0)
    tensor([ -0.9189, -22.5119])
    """
    check.same_shape(loc=loc, action=action)
    mean, sigma = widen(loc, scale)
    wide = action.to(mean.dtype)
    center, half_range = _center_and_half_range(low, high, wide)
    limit = 1.0 - 0.5 * torch.finfo(action.dtype).eps
    unit = ((wide - center) / half_range).clamp(-limit, limit)
    # not atanh: the backward of this form subtracts 1 ∓ a exactly, that of atanh rounds a² first
    pre_tanh = 0.5 * (unit.log1p() - (-unit).log1p())
    base = log_density(standardize(pre_tanh, mean, sigma), mean, sigma)
    return _squashed(base, pre_tanh, low, high, density).to(action.dtype)


def tanh_normal_action(pre_tanh: Tensor, low: Scalar = -1.0, high: Scalar = 1.0) -> Tensor:
    """Return low + ½(high − low)(tanh u + 1), never outside the bounds by a rounding.

    Args:
        pre_tanh: floating ``[*B, D]``.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.

    Raises:
        ConfigError: low is not below high.

    >>> tanh_normal_action(torch.tensor([-40.0, 0.0, 40.0]), low=-2.0, high=4.0)
    tensor([-2.,  1.,  4.])
    """
    check.floating(pre_tanh=pre_tanh)
    wide = pre_tanh.to(numerics.compute_dtype(pre_tanh.dtype))
    center, half_range = _center_and_half_range(low, high, wide)
    # Around the centre, so that small actions keep their digits.
    action = (center + half_range * wide.tanh()).to(pre_tanh.dtype)
    bounds = (numerics.scalar_like(bound, pre_tanh) for bound in (low, high))
    return torch.clamp(action, *bounds)


def tanh_normal_mode(loc: Tensor, low: Scalar = -1.0, high: Scalar = 1.0) -> Tensor:
    """Return tanh(μ) mapped to the bounds: the "deterministic action".

    It is the median of the distribution, not the mode of its density, which can have two.

    Args:
        loc: floating ``[*B, D]``.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.

    >>> tanh_normal_mode(torch.zeros(1), low=0.0, high=4.0)
    tensor([2.])
    """
    return tanh_normal_action(loc, low, high)


def tanh_normal_entropy(
    key: Key,
    loc: Tensor,
    scale: Scalar,
    *,
    num_samples: int = 1,
    low: Scalar = -1.0,
    high: Scalar = 1.0,
    density: Density = "unit",
) -> Tensor:
    """Estimate H = −E[log π] by the mean over reparametrised samples; there is no closed form.

    The entropy of the normal beneath is another quantity (rlax ``squashed_gaussian`` gives it).

    Args:
        key: int64 ``[2]``.
        loc: floating ``[*B, D]``.
        scale: positive; ``[*B, D]``, the trailing axes of it, or a number.
        num_samples: samples per row, at least 1.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.
        density: see `tanh_normal_log_prob`.

    Returns:
        ``[*B]``, in nats.

    >>> tanh_normal_entropy(random.key(0), torch.zeros(1), 10.0, num_samples=1000) < 0.0
    tensor(True)
    """
    if num_samples < 1:
        raise ConfigError(f"num_samples is {num_samples}, expected at least 1")
    repeated = loc.expand(num_samples, *loc.shape)
    sample = tanh_normal_sample_and_log_prob(
        key, repeated, scale, low=low, high=high, density=density
    )
    return -sample.log_prob.mean(0)


def _squashed(
    base_log_prob: Tensor, pre_tanh: Tensor, low: Scalar, high: Scalar, density: Density
) -> Tensor:
    """Return Σ_d of the base log-densities minus the log-determinants of the squashing."""
    check.min_rank("pre_tanh", pre_tanh, 1)
    log_det = numerics.log_det_tanh(pre_tanh.to(base_log_prob.dtype))
    if check.option("density", density, ("unit", "env")) == "env":
        log_det = log_det + _center_and_half_range(low, high, log_det)[1].log()
    return (base_log_prob - log_det).sum(-1).to(pre_tanh.dtype)


def _center_and_half_range(low: Scalar, high: Scalar, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return ½(low + high) and ½(high − low), each 0-d or ``[D]``."""
    for name, bound in (("low", low), ("high", high)):
        if isinstance(bound, Tensor) and bound.ndim and bound.shape != like.shape[-1:]:
            raise ShapeError(
                f"{name} has shape {list(bound.shape)}, expected [] or {list(like.shape[-1:])}"
            )
    if isinstance(low, int | float) and isinstance(high, int | float) and not low < high:
        raise ConfigError(f"low is {low}, expected below high, which is {high}")
    bottom, top = numerics.scalar_like(low, like), numerics.scalar_like(high, like)
    half_range = 0.5 * (top - bottom)
    return bottom + half_range, half_range
