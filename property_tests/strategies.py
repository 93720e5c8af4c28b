"""Strategies: structure first (lengths and endings of episodes), then numbers.

*Exact* numbers are k/64 in float64 with γ and λ in {0, ½, 1}: with at most 18 steps every sum and
product of the laws is representable, so algebra holds under ``torch.equal``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

MAX_STEPS = 18
MAX_BATCH = 3
halves = st.sampled_from([0.0, 0.5, 1.0])
ENDINGS = ("terminated", "truncated", "both")


class Trajectory(NamedTuple):
    """A window of experience, ``[T, B]``."""

    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    truncated: Tensor

    @property
    def done(self) -> Tensor:
        return self.terminated | self.truncated


@st.composite
def flags(draw: st.DrawFn, steps: int) -> tuple[list[bool], list[bool]]:
    """Draw the flags of one column: episode lengths, and how each ends; the last may be open."""
    terminated, truncated = [False] * steps, [False] * steps
    position = 0
    while position < steps:
        length = draw(st.integers(1, steps - position))
        position += length
        endings = ENDINGS if position < steps else ("open", *ENDINGS)
        ending = draw(st.sampled_from(endings))
        terminated[position - 1] = ending in ("terminated", "both")
        truncated[position - 1] = ending in ("truncated", "both")
    return terminated, truncated


def exact(*shape: int) -> st.SearchStrategy[Tensor]:
    """Dyadic rationals k/64 with abs(k) ≤ 1024, in float64."""
    count = 1
    for size in shape:
        count *= size
    numbers = st.lists(st.integers(-1024, 1024), min_size=count, max_size=count)
    return numbers.map(lambda ks: torch.tensor(ks, dtype=torch.float64).reshape(shape) / 64)


@st.composite
def trajectories(
    draw: st.DrawFn, *, consistent: bool = False, max_steps: int = MAX_STEPS
) -> Trajectory:
    """Draw an exact trajectory.

    Consistent: ``next_value[t] = value[t + 1]`` where row t ends no episode.
    """
    steps, batch = draw(st.integers(1, max_steps)), draw(st.integers(1, MAX_BATCH))
    columns = [draw(flags(steps)) for _ in range(batch)]
    terminated = torch.tensor([column[0] for column in columns]).T
    truncated = torch.tensor([column[1] for column in columns]).T
    reward, value, next_value = (draw(exact(steps, batch)) for _ in range(3))
    if consistent:
        follows = ~(terminated | truncated)[:-1]
        next_value[:-1] = torch.where(follows, value[1:], next_value[:-1])
    return Trajectory(reward, value, next_value, terminated, truncated)


@st.composite
def real_trajectories(
    draw: st.DrawFn,
    dtype: torch.dtype,
    *,
    magnitude: float = 1000.0,
    like: Trajectory | None = None,
    max_steps: int = MAX_STEPS,
) -> Trajectory:
    """Draw a trajectory of floats of a dtype, of given magnitude, or of the shape of another."""
    if like is None:
        like = draw(trajectories(max_steps=max_steps))
    shape, width = like.reward.shape, 32 if dtype is torch.float32 else 64
    numbers = st.floats(-magnitude, magnitude, width=width, allow_subnormal=False)
    count = like.reward.numel()
    fields = (
        torch.tensor(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=dtype)
        for _ in range(3)
    )
    return Trajectory(*(f.reshape(shape) for f in fields), like.terminated, like.truncated)


@st.composite
def rows(
    draw: st.DrawFn, *names: str, low: float = -4.0, high: float = 4.0, max_size: int = 12
) -> tuple[Tensor, ...]:
    """Draw as many float64 rows ``[B]`` as there are names, B from 1."""
    count = draw(st.integers(1, max_size))
    numbers = st.floats(low, high, allow_subnormal=False)
    return tuple(
        torch.tensor(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=torch.float64)
        for _ in names
    )
