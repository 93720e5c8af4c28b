"""Mistakes of the density of a squashed Gaussian."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import distributions
from ...types import Scalar
from .mistake import Mistake


def _normal(pre_tanh: Tensor, loc: Tensor, scale: Scalar) -> Tensor:
    return distributions.independent(distributions.normal_log_prob(pre_tanh, loc, scale))


def _epsilon_in_the_log(pre_tanh: Tensor, loc: Tensor, scale: Scalar, **options: Any) -> Tensor:
    jacobian = (1.0 - pre_tanh.tanh().square() + 1e-6).log().sum(-1)
    found = _normal(pre_tanh, loc, scale) - jacobian
    if options.get("density") == "env":
        half = 0.5 * torch.as_tensor(options["high"] - options["low"], dtype=found.dtype)
        found = found - half.expand(pre_tanh.shape[-1]).log().sum()
    return found


def _no_jacobian(pre_tanh: Tensor, loc: Tensor, scale: Scalar, **options: Any) -> Tensor:
    del options
    return _normal(pre_tanh, loc, scale)


def _jacobian_of_the_mean(pre_tanh: Tensor, loc: Tensor, scale: Scalar, **options: Any) -> Tensor:
    right = distributions.tanh_normal_log_prob(pre_tanh, loc, scale, **options)
    return right / pre_tanh.shape[-1]


def _no_scale(pre_tanh: Tensor, loc: Tensor, scale: Scalar, **options: Any) -> Tensor:
    del options
    return distributions.tanh_normal_log_prob(pre_tanh, loc, scale)


def _twice(pre_tanh: Tensor, loc: Tensor, scale: Scalar, **options: Any) -> Tensor:
    return distributions.tanh_normal_log_prob(pre_tanh.tanh(), loc, scale, **options)


TANH_NORMAL_LOG_PROB = (
    Mistake("M36", "log(1 - a^2 + 1e-6) in place of the stable form", _epsilon_in_the_log),
    Mistake("M36b", "the change of variables is missing", _no_jacobian),
    Mistake("M37", "the density ignores the scale of the action", _no_scale),
    Mistake("M37b", "averaged over the dimensions of the action", _jacobian_of_the_mean),
    Mistake("M38", "the tanh is applied twice", _twice),
)
