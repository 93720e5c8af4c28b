"""Contracts on the arguments of draws."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from ..errors import ConfigError, ShapeError
from ..types import Scalar


def integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """Return the value as an int, or raise a `ConfigError` unless it is one in [low, high].

    >>> integer("seed", 0.5, 0, 9)
    Traceback (most recent call last):
        ...
    purerl.errors.ConfigError: seed is 0.5, expected an integer in [0, 9]
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise ConfigError(f"{name} is {value!r}, expected an integer in [{low}, {high}]")
    return number


def sizes(shape: Sequence[int], name: str = "shape") -> tuple[int, ...]:
    """Return the shape as a tuple, or raise a `ShapeError` unless it is a sequence of sizes.

    >>> sizes((2, -1))
    Traceback (most recent call last):
        ...
    purerl.errors.ShapeError: shape is (2, -1), expected a sequence of sizes >= 0
    """
    if not isinstance(shape, Sequence) or any(size < 0 for size in shape):
        raise ShapeError(f"{name} is {shape}, expected a sequence of sizes >= 0")
    return tuple(shape)


def count(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape, or raise a `ShapeError` as `sizes` does."""
    return math.prod(sizes(shape))


def axis_of(name: str, tensor: Tensor, axis: int) -> int:
    """Return the axis counted from the front, or raise a `ShapeError` if there is none such."""
    if not -tensor.ndim <= axis < tensor.ndim:
        raise ShapeError(f"{name} has shape {list(tensor.shape)}, expected an axis {axis}")
    return axis % tensor.ndim


def broadcasts(name: str, shape: Sequence[int], target: Sequence[int]) -> None:
    """Raise a `ShapeError` unless the shape broadcasts to the target."""
    fits = len(shape) <= len(target) and all(
        size in (1, want) for size, want in zip(reversed(shape), reversed(target), strict=False)
    )
    if not fits:
        raise ShapeError(f"{name} has shape {list(shape)}, expected to broadcast to {list(target)}")


def bound(
    name: str, value: Scalar, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return a bound as a constant tensor that broadcasts to the shape."""
    if isinstance(value, Tensor):
        broadcasts(name, value.shape, shape)
        value = value.detach()
    return torch.as_tensor(value, dtype=dtype, device=device)
