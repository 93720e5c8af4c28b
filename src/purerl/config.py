"""Configurations as frozen dataclasses that refuse typos, wrong types and values out of range.

A field's annotation is its whole contract: ``Annotated[float, Range(0, 1)]``, a ``Literal`` of
names, ``int | None``. `strict` reads it once per class and checks every instance against it.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import torch
from torch import Tensor

from .errors import ConfigError, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The closed interval a number must lie in; ``open_low`` excludes the lower end.

    >>> str(Range(0, 1)), str(Range(0, open_low=True))
    ('in [0, 1]', 'in (0, inf)')
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False

    def holds(self, value: float) -> bool:
        """Return whether ``value`` is a number inside the interval; NaN never is."""
        above = value > self.low if self.open_low else value >= self.low
        return above and value <= self.high

    def __str__(self) -> str:
        left = "(" if self.open_low or self.low == -math.inf else "["
        right = ")" if self.high == math.inf else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, math.inf, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]


def strict(
    rules: Callable[[Any], list[str]] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that checks each instance of a frozen, keyword-only dataclass.

    Every problem of one call is reported at once, in a single `ConfigError`: unknown names (with
    the nearest known one), wrong types (a bool is not an int, a string is not a number), values
    out of range, and whatever ``rules(config)`` finds between fields.

    Args:
        rules: function of a well-typed config that returns sentences, one for each problem.

    >>> @strict()
    ... @dataclass(frozen=True, kw_only=True)
    ... class Config:
    ...     gamma: Fraction = 0.99
    >>> Config(gama=0.9)
    Traceback (most recent call last):
        ...
    purerl.errors.ConfigError: unknown key gama; did you mean gamma?
    """

    def decorate(cls: type[T]) -> type[T]:
        plain_init: Any = cls.__init__
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # T is a dataclass by contract

        def checked_init(self: Any, **values: Any) -> None:
            unknown = [name for name in values if name not in names]
            if unknown:
                raise ConfigError(
                    "\n".join(f"unknown key {name}{did_you_mean(name, names)}" for name in unknown)
                )
            plain_init(self, **values)
            problems = field_problems(self)
            if not problems and rules is not None:
                problems = rules(self)
            if problems:
                raise ConfigError("\n".join(problems))

        cls.__init__ = checked_init  # type: ignore[method-assign]  # same keyword arguments, checked
        return cls

    return decorate


def field_problems(config: Any) -> list[str]:
    """Return one sentence for each field whose value does not fit its annotation."""
    hints = _hints(type(config))
    found = ((name, _misfit(getattr(config, name), hint)) for name, hint in hints.items())
    return [
        f"{name} is {getattr(config, name)!r}, expected {expected}"
        for name, expected in found
        if expected is not None
    ]


def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def _misfit(value: Any, hint: Any) -> str | None:
    """Return what was expected if ``value`` does not fit ``hint``, else None."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *limits = get_args(hint)
        wrong = _misfit(value, base)
        if wrong is not None:
            return f"{wrong} {limits[0]}" if limits else wrong
        return next(
            (f"{base.__name__} {limit}" for limit in limits if not limit.holds(value)), None
        )
    if origin is Literal:
        choices = get_args(hint)
        if value in choices:
            return None
        near = did_you_mean(str(value), [str(choice) for choice in choices])
        return f"one of {', '.join(map(str, choices))}{near if 'did' in near else ''}"
    if origin in (typing.Union, UnionType):
        misfits = [_misfit(value, option) for option in get_args(hint)]
        if None in misfits:
            return None
        return " or ".join(misfit for misfit in misfits if misfit is not None)
    if origin is tuple:
        inner = get_args(hint)[0]
        fits = isinstance(value, tuple) and all(_misfit(item, inner) is None for item in value)
        return None if fits else f"a tuple of {_misfit(object(), inner)}"
    return _misfit_of_class(value, hint)


def _misfit_of_class(value: Any, hint: Any) -> str | None:
    if hint is NoneType:
        return None if value is None else "None"
    if hint in (int, float):
        # a bool is an int to Python and a mistake to everybody else
        numbers = (int,) if hint is int else (int, float)
        fits = isinstance(value, numbers) and not isinstance(value, bool)
        return None if fits else str(hint.__name__)
    kind = get_origin(hint) or hint
    return None if isinstance(value, kind) else str(getattr(kind, "__name__", kind))


def hparams(config: Any, *, skip: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Return every number of a config as a 0-d float64 tensor, by field name.

    What shapes the program (integers, names, sizes) stays in the config; a number that may differ
    between the members of a sweep, or change between steps, is a leaf. Fields that are None have
    no leaf: their absence shapes the program.

    Args:
        config: a dataclass instance checked by `strict`.
        skip: names of numbers that are used up by ``init``.

    >>> @strict()
    ... @dataclass(frozen=True, kw_only=True)
    ... class Config:
    ...     gamma: Fraction = 0.99
    ...     target_kl: Positive | None = None
    >>> hparams(Config())
    {'gamma': tensor(0.9900, dtype=torch.float64)}
    """
    return {
        name: torch.tensor(float(getattr(config, name)), dtype=torch.float64)
        for name, hint in _hints(type(config)).items()
        if name not in skip and getattr(config, name) is not None and _is_number(hint)
    }


def _is_number(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return get_args(hint)[0] is float
    if get_origin(hint) in (typing.Union, UnionType):
        return any(_is_number(option) for option in get_args(hint))
    return hint is float


def nearest_divisors(total: int, wanted: int) -> tuple[int, ...]:
    """Return the divisors of ``total`` next below and above ``wanted``, for an error to name.

    >>> nearest_divisors(512, 6), nearest_divisors(512, 1000)
    ((4, 8), (512,))
    """
    divisors = [size for size in range(1, total + 1) if total % size == 0]
    below = [size for size in divisors if size <= wanted]
    above = [size for size in divisors if size > wanted]
    return tuple(below[-1:] + above[:1])


def to_mapping(config: Any) -> Mapping[str, Any]:
    """Return a config as a mapping of its field names to their values."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
