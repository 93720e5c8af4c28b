"""Exploration around a greedy action: ε-greedy and additive Gaussian noise."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check, numerics, random
from ..types import Key, Scalar
from .categorical import categorical_mode, categorical_sample


def epsilon_greedy(key: Key, q: Tensor, epsilon: Scalar, mask: Tensor | None = None) -> Tensor:
    """Return a uniform legal action with probability ε, else the legal action of greatest value.

    Each row decides for itself. The uniform draw may hit the greedy action too.

    Args:
        key: int64 ``[2]``.
        q: floating ``[*B, A]``, action values.
        epsilon: in [0, 1], a number or ``[*B]``.
        mask: bool ``[*B, A]``, True where legal.

    Returns:
        int64 ``[*B]``.

    Raises:
        ShapeError: shapes differ, or a wrong dtype.

    >>> epsilon_greedy(random.key(0), torch.tensor([1.0, 3.0, 2.0]), 0.0)
    tensor(1)
    """
    greedy = categorical_mode(q, mask)
    check.scalar_or_like(greedy, "the rows of q", epsilon=epsilon)
    explore_key, action_key = random.split(key).unbind(0)
    uniform = random.uniform(explore_key, tuple(greedy.shape))
    arbitrary = categorical_sample(action_key, torch.zeros_like(q), mask)
    return torch.where(uniform < numerics.scalar_like(epsilon, uniform), arbitrary, greedy)


def gaussian_exploration(
    key: Key, action: Tensor, noise: Scalar, low: Scalar, high: Scalar
) -> Tensor:
    """Return clip(a + ½(high − low) N(0, noise²), low, high).

    The noise has mean 0 and is independent for every row and dimension.

    Args:
        key: int64 ``[2]``.
        action: floating ``[*B, D]``.
        noise: standard deviation in units of the half-range, ≥ 0.
        low: lower bound, a number or ``[D]``.
        high: upper bound, a number or ``[D]``.

    Returns:
        ``[*B, D]``, inside the bounds.

    >>> gaussian_exploration(random.key(0), torch.tensor([0.5, 9.0]), 0.0, -2.0, 2.0)
    tensor([0.5000, 2.0000])
    """
    check.floating(action=action)
    wide = action.to(numerics.compute_dtype(action.dtype))
    bottom, top = numerics.scalar_like(low, wide), numerics.scalar_like(high, wide)
    deviation = numerics.scalar_like(noise, wide) * (0.5 * (top - bottom))
    draw = random.normal(key, tuple(action.shape), dtype=wide.dtype)
    return torch.clamp(wide + deviation * draw, bottom, top).to(action.dtype)
