"""Initial weights and biases of a layer, by key."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, random
from ..types import Key

Initialization: TypeAlias = Literal["orthogonal", "torch", "lecun_normal", "lecun_uniform"]

KINDS = ("orthogonal", "torch", "lecun_normal", "lecun_uniform")

# standard deviation of a standard normal truncated to [−2, 2]
_TRUNCATED_STD = 0.87962566103423978


def layer(
    key: Key,
    shape: tuple[int, ...],
    kind: Initialization,
    *,
    gain: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """Return the weight of a shape ``[out, in, …]`` and the bias ``[out]`` of one layer.

        "orthogonal"     gain · Q, Q with orthonormal rows or columns; bias 0
        "torch"          weight and bias U(−1/√fan_in, 1/√fan_in), as torch.nn.Linear and Conv2d;
                         weight_key, bias_key = split(key)
        "lecun_normal"   N(0, 1/fan_in) truncated at two deviations; bias 0
        "lecun_uniform"  U(−√(3/fan_in), √(3/fan_in)); bias 0

    The gain belongs to ``"orthogonal"``; the others fix their own scale.
    """
    check.option("init", kind, KINDS)
    fan_in = math.prod(shape[1:])
    bias = torch.zeros(shape[:1], dtype=dtype, device=key.device)
    match kind:
        case "orthogonal":
            weight = gain * random.orthogonal(key, shape[0], (), fan_in, dtype=dtype)
            weight = weight.reshape(shape)
        case "torch":
            weight_key, bias_key = random.split(key).unbind(0)
            bound = 1.0 / math.sqrt(fan_in)
            weight = symmetric_uniform(weight_key, shape, bound, dtype)
            bias = symmetric_uniform(bias_key, shape[:1], bound, dtype)
        case "lecun_normal":
            deviation = 1.0 / (math.sqrt(fan_in) * _TRUNCATED_STD)
            weight = deviation * random.truncated_normal(key, -2.0, 2.0, shape, dtype=dtype)
        case _:
            weight = symmetric_uniform(key, shape, math.sqrt(3.0 / fan_in), dtype)
    return {"weight": weight, "bias": bias}


def symmetric_uniform(key: Key, shape: tuple[int, ...], bound: float, dtype: torch.dtype) -> Tensor:
    """Return a draw from U(−bound, bound)."""
    return bound * random.uniform(key, shape, dtype=dtype, minval=-1.0, maxval=1.0)
