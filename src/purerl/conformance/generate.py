"""Inputs for laws, structure first, and their simplifications."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kind import Inputs

_MAX_STEPS = 6


def numbers(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Return quarters between −4 and 4: short to print, exact in every precision."""
    return generator.integers(-16, 17, shape) / 4.0


def trajectory(
    generator: np.random.Generator,
    *,
    garbage: bool = False,
    terminations_only: bool = False,
    consistent: bool = False,
) -> Inputs:
    """Return rewards, values and flags ``[T]``; episodes end both ways, or not at all.

    Consistent values are those of one critic: the next value is that of the next row wherever no
    episode ends.
    """
    steps = int(generator.integers(1, _MAX_STEPS + 1))
    ends = generator.random(steps) < 0.4
    kind = generator.integers(0, 3, steps)
    terminated, truncated = ends & (kind != 1), ends & (kind != 0)
    if terminations_only:
        terminated, truncated = ends, np.zeros_like(ends)
    reward, value, next_value = (numbers(generator, steps) for _ in range(3))
    if consistent:
        goes_on = ~(terminated | truncated)[:-1]
        next_value[:-1] = np.where(goes_on, value[1:], next_value[:-1])
    if garbage:
        next_value = np.where(terminated, np.nan, next_value)
    return {
        "reward": reward,
        "value": value,
        "next_value": next_value,
        "terminated": terminated,
        "truncated": truncated,
    }


_PLAIN: dict[str, tuple[float, ...]] = {"scale": (1.0,), "mask": ()}
"""What the elements of an array may become, where 0 would be another question."""
_NUMBERS = ("gamma", "lmbda", "alpha")


def simpler_arrays(inputs: Inputs, *, rows: tuple[str, ...]) -> Iterator[Inputs]:
    """Yield fewer rows, then flags that are off, then numbers that are 0 or 1.

    Args:
        inputs: to simplify.
        rows: names of the arrays that share their first axis.
    """
    count = len(inputs[rows[0]]) if rows else 0
    for drop in range(count):
        if count > 1:
            keep = [i for i in range(count) if i != drop]
            yield inputs | {name: inputs[name][keep] for name in rows if name in inputs}
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and value.size:
            yield from _simpler_elements(inputs, name, value)
        elif name in _NUMBERS:
            for plain in (0.0, 1.0, 0.5):
                if value != plain and _rank(plain) < _rank(value):
                    yield inputs | {name: plain}


def _simpler_elements(inputs: Inputs, name: str, value: np.ndarray) -> Iterator[Inputs]:
    for index in np.ndindex(value.shape):
        flags = (False,) if value.dtype == bool else (0.0, 1.0)
        options = _PLAIN.get(name, flags)
        for plain in options:
            if _rank(plain) < _rank(value[index]):
                changed = value.copy()
                changed[index] = plain
                yield inputs | {name: changed}


def _rank(value: object) -> int:
    """How far a number is from simple: 0, then 1, then ½, then the rest."""
    simple = (0.0, 1.0, 0.5)
    number = float(value)  # type: ignore[arg-type]  # numbers and flags only
    return simple.index(number) if number in simple else len(simple)
