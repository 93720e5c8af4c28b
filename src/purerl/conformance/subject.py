"""The user's function behind purerl's argument names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from ..errors import ConfigError, did_you_mean
from .kind import Inputs, Kind, Outputs

Framework: TypeAlias = Literal["numpy", "torch"]


@dataclass(frozen=True)
class Subject:
    """A function to be checked, and how to call it."""

    function: Callable[..., Any]
    kind: Kind
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Its names for purerl's arguments."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that are built into it, by purerl's names."""
    time_axis: int | None = None
    """None for inputs ``[T]``; else inputs ``[T, B]`` with time moved to this axis."""
    framework: Framework = "numpy"
    dtype: Literal["float32", "float64"] = "float64"
    select: Callable[[Any], Any] | None = None
    """From what it returns to the outputs, where they are not simply first."""

    def __post_init__(self) -> None:
        known = (*self.kind.arguments, *self.kind.optional)
        for name in (*self.arguments, *self.fixed):
            if name not in known:
                raise ConfigError(
                    f"{self.kind.name} has no argument {name}{did_you_mean(name, known)}"
                )
        if self.time_axis is not None and not self.kind.over_time:
            raise ConfigError(f"{self.kind.name} has no time axis")
        parameters = self._parameters()
        if parameters is None:
            return
        for name in self.kind.arguments:
            own = self.arguments.get(name, name)
            if name not in self.fixed and own not in parameters:
                raise ConfigError(
                    f"{self.name}({', '.join(parameters)}) has no parameter {own}"
                    f"{did_you_mean(own, parameters)}; say which one it is by "
                    f"arguments={{{name!r}: …}}, or fix its value by fixed={{{name!r}: …}}"
                )

    @property
    def name(self) -> str:
        """Name of the function in a report."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def knows(self, argument: str) -> bool:
        """Return whether an optional argument can be given."""
        parameters = self._parameters()
        own = self.arguments.get(argument, argument)
        return argument in self.arguments or (parameters is not None and own in parameters)

    def _parameters(self) -> tuple[str, ...] | None:
        """Names that can be given, or None where they cannot be known."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return None
        kinds = [p.kind for p in signature.parameters.values()]
        if inspect.Parameter.VAR_KEYWORD in kinds:
            return None
        return tuple(signature.parameters)

    def prepare(self, inputs: Inputs) -> Inputs:
        """Return inputs that the function can express: fixed numbers, neutral options."""
        prepared = dict(inputs)
        for name in self.kind.optional:
            if not self.knows(name) and name in prepared:
                prepared[name] = self.kind.neutral[name](prepared)
        return prepared | dict(self.fixed)

    def __call__(self, inputs: Inputs) -> Outputs:
        """Return the outputs for prepared inputs, time first.

        Raises:
            ChangedInputError: it wrote into an argument; the outputs come with the error.
        """
        given = {}
        for name, value in inputs.items():
            if name in self.fixed or (name in self.kind.optional and not self.knows(name)):
                continue
            given[self.arguments.get(name, name)] = self._sent(value)
        before = {name: _copy(value) for name, value in given.items()}
        returned = self.function(**given)
        outputs = self._received(returned)
        for name, value in given.items():
            if not _same(value, before[name]):
                raise ChangedInputError(name, outputs)
        return outputs

    def _sent(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        value = value.astype(self.dtype) if value.dtype.kind == "f" else value
        if self.time_axis is not None and value.ndim >= 2:
            value = np.moveaxis(value, 0, self.time_axis)
        value = np.ascontiguousarray(value)
        return torch.from_numpy(value.copy()) if self.framework == "torch" else value.copy()

    def _received(self, returned: Any) -> Outputs:
        if self.select is not None:
            returned = self.select(returned)
        names = self.kind.outputs
        if isinstance(returned, Mapping):
            found = {name: returned[name] for name in names if name in returned}
            if not found:
                raise ConfigError(f"{self.name} returned {sorted(returned)}, expected {names}")
        elif isinstance(returned, tuple | list):
            found = dict(zip(names, returned, strict=False))
        else:
            found = {names[0]: returned}
        return {name: self._array(value) for name, value in found.items()}

    def _array(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        value = np.asarray(value)
        if self.time_axis is not None and value.ndim >= 2:
            value = np.moveaxis(value, self.time_axis, 0)
        return value


class ChangedInputError(Exception):
    """The function wrote into one of its arguments."""

    def __init__(self, argument: str, outputs: Outputs) -> None:
        super().__init__(f"its argument {argument} was changed in place")
        self.outputs = outputs


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _same(now: Any, before: Any) -> bool:
    if isinstance(now, torch.Tensor | np.ndarray):
        return bool(np.array_equal(np.asarray(now), np.asarray(before), equal_nan=_floats(now)))
    return bool(now == before)


def _floats(value: Any) -> bool:
    return bool(np.asarray(value).dtype.kind == "f")
