"""What a kind of function is: its arguments, its truth, its inputs and their simplifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .mistakes import Mistake

Inputs: TypeAlias = dict[str, Any]
"""NumPy arrays and numbers by the names of purerl's arguments."""
Outputs: TypeAlias = dict[str, Any]
"""NumPy arrays by name."""


@dataclass(frozen=True)
class Fixture:
    """An example small enough to be worked out by hand."""

    name: str
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]


@dataclass(frozen=True)
class Law:
    """Something that must hold on generated inputs: there the function equals the truth."""

    name: str
    generate: Callable[[np.random.Generator], Inputs]
    needs: tuple[str, ...] = ()
    """Optional arguments without which there is nothing to try."""


@dataclass(frozen=True)
class Kind:
    """A kind of function that can be checked."""

    name: str
    arguments: tuple[str, ...]
    optional: tuple[str, ...]
    """Arguments that a function may lack; then the inputs leave them at their neutral values."""
    neutral: Mapping[str, Callable[[Inputs], Any]]
    """What an optional argument is when it says nothing."""
    outputs: tuple[str, ...]
    """Names of what comes out, in order; a function may return only the first of them."""
    over_time: bool
    """Whether arrays have a time axis."""
    truth: Callable[[Inputs], Outputs]
    mistaken: Callable[[Mistake, Inputs], Outputs]
    fixtures: tuple[Fixture, ...]
    laws: tuple[Law, ...]
    mistakes: tuple[Mistake, ...]
    simpler: Callable[[Inputs], Iterator[Inputs]]
    """Inputs a little smaller or simpler, the boldest first."""
