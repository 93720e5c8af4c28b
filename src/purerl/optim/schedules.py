"""Schedules: pure functions of a step count to a float64 number.

A count starts at 0 and may be any integer tensor or number; values come elementwise. A schedule
may hold 0-d tensors (leaves of ``hparams``), and then differs between members of a vmapped run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ..errors import ConfigError
from ..types import Scalar

Schedule: TypeAlias = Callable[[int | Tensor], Tensor]
"""``step -> value``, float64, shaped like the step."""


def constant(value: Scalar) -> Schedule:
    """Return the schedule that is ``value`` at every step.

    >>> constant(3e-4)(torch.tensor(7))
    tensor(0.0003, dtype=torch.float64)
    """
    return lambda step: _number(value, _count(step)).expand(_count(step).shape)


def linear(start: Scalar, end: Scalar, num_steps: int | Tensor, *, offset: int = 0) -> Schedule:
    """Return the line from ``start`` to ``end``, clamped at both.

        start + (end − start) · clip(k + offset, 0, N) / N

    Args:
        start: value at step 0 (offset 0).
        end: value from step N on.
        num_steps: N ≥ 1.
        offset: 0 begins at ``start`` (CleanRL, PureJaxRL); 1 lets the last of N steps be at
            ``end`` (Stable-Baselines3).

    Raises:
        ConfigError: N is below 1.

    >>> linear(1.0, 0.0, 4)(torch.arange(6))
    tensor([1.0000, 0.7500, 0.5000, 0.2500, 0.0000, 0.0000], dtype=torch.float64)
    """
    _require_steps(num_steps)
    return lambda step: _between(start, end, _progress(step, num_steps, offset))


def cosine(start: Scalar, end: Scalar, num_steps: int | Tensor, *, offset: int = 0) -> Schedule:
    """Return the half cosine from ``start`` to ``end``, clamped at both.

        end + (start − end) · ½ (1 + cos(π t)),   t = clip(k + offset, 0, N) / N

    Args:
        start: value at step 0 (offset 0).
        end: value from step N on.
        num_steps: N ≥ 1.
        offset: added to the step.

    Raises:
        ConfigError: N is below 1.

    Source: Loshchilov and Hutter 2017, equation 5, one period.

    >>> cosine(1.0, 0.0, 4)(torch.arange(5))
    tensor([1.0000, 0.8536, 0.5000, 0.1464, 0.0000], dtype=torch.float64)
    """
    _require_steps(num_steps)

    def schedule(step: int | Tensor) -> Tensor:
        progress = _progress(step, num_steps, offset)
        return _between(start, end, 0.5 * (1.0 - (math.pi * progress).cos()))

    return schedule


def piecewise(pieces: Sequence[Scalar | Schedule], boundaries: Sequence[int]) -> Schedule:
    """Return piece i at steps from boundary i−1 on and before boundary i.

    A piece that is a schedule counts from its own first step, so a warm-up and what follows are
    ``piecewise([linear(0.0, 1e-3, 100), cosine(1e-3, 0.0, 900)], [100])``.

    Args:
        pieces: numbers or schedules, one more than boundaries.
        boundaries: steps at which the next piece begins, increasing.

    Raises:
        ConfigError: another number of boundaries, or boundaries that do not increase.

    >>> piecewise([1.0, 0.1, 0.01], [2, 3])(torch.arange(5))
    tensor([1.0000, 1.0000, 0.1000, 0.0100, 0.0100], dtype=torch.float64)
    """
    if len(boundaries) != len(pieces) - 1:
        raise ConfigError(
            f"boundaries has {len(boundaries)} entries, expected {len(pieces) - 1}: "
            "one fewer than pieces"
        )
    if any(later <= earlier for earlier, later in itertools.pairwise(boundaries)):
        raise ConfigError(f"boundaries are {list(boundaries)}, expected increasing steps")
    schedules = [piece if callable(piece) else constant(piece) for piece in pieces]

    def schedule(step: int | Tensor) -> Tensor:
        count = _count(step)
        value = schedules[0](count)
        for begin, piece in zip(boundaries, schedules[1:], strict=True):
            value = torch.where(count >= begin, piece((count - begin).clamp(min=0)), value)
        return value

    return schedule


def staircase(schedule: Schedule, every: int | Tensor) -> Schedule:
    """Return the schedule of ⌊k / every⌋: it rests for ``every`` steps.

    With ``every`` = epochs · minibatches, a count of gradient steps gives a rate that moves once
    per update (PureJaxRL).

    Args:
        schedule: function of the number of rests.
        every: ≥ 1.

    Raises:
        ConfigError: ``every`` is below 1.

    >>> staircase(linear(1.0, 0.0, 2), 2)(torch.arange(5))
    tensor([1.0000, 1.0000, 0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    _require_steps(every, "every")
    return lambda step: schedule(torch.div(_count(step), every, rounding_mode="floor"))


def adaptive_kl(
    learning_rate: Scalar,
    kl: Tensor,
    target: Scalar,
    *,
    factor: Scalar = 1.5,
    floor: Scalar = 1e-5,
    cap: Scalar = 1e-2,
) -> Tensor:
    """Return the learning rate for the next update, moved by how far the policy just moved.

        KL > 2 · target:       max(lr / factor, floor)
        0 < KL < ½ · target:   min(lr · factor, cap)
        otherwise, NaN included:   lr

    The rate is state: keep it in float64 between updates.

    Args:
        learning_rate: the present rate.
        kl: exact divergence from the old policy to the new, 0-d.
        target: the wanted divergence, > 0.
        factor: > 1.
        floor: lowest rate that a decrease reaches.
        cap: highest rate that an increase reaches.

    Source: the adaptive schedule of rsl_rl, after Schulman et al. 2017, section 4.

    >>> adaptive_kl(3e-3, torch.tensor(0.05), target=0.01)
    tensor(0.0020, dtype=torch.float64)
    """
    divergence = kl.detach().to(torch.float64)
    rate, wanted, by, low, high = (
        _number(value, divergence) for value in (learning_rate, target, factor, floor, cap)
    )
    slower, faster = torch.maximum(rate / by, low), torch.minimum(rate * by, high)
    rate = torch.where((divergence > 0.0) & (divergence < 0.5 * wanted), faster, rate)
    return torch.where(divergence > 2.0 * wanted, slower, rate)


def _count(step: int | Tensor) -> Tensor:
    return step if isinstance(step, Tensor) else torch.tensor(step)


def _number(value: Scalar, reference: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64, device=reference.device)


def _progress(step: int | Tensor, num_steps: int | Tensor, offset: int) -> Tensor:
    moved = (_count(step) + offset).to(torch.float64) / num_steps
    return moved.clamp(0.0, 1.0)


def _between(start: Scalar, end: Scalar, progress: Tensor) -> Tensor:
    # lerp is exact at both ends, and constant where they are equal
    return torch.lerp(_number(start, progress), _number(end, progress), progress)


def _require_steps(num_steps: int | Tensor, name: str = "num_steps") -> None:
    if not isinstance(num_steps, Tensor) and num_steps < 1:
        raise ConfigError(f"{name} is {num_steps}, expected at least 1")
