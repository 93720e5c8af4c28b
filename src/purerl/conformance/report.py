"""What came out of a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import PurerlError
from .mistakes import Mistake


class ConformanceError(PurerlError, AssertionError):
    """A function does not conform; the message is the report."""


@dataclass(frozen=True)
class Counterexample:
    """The smallest input found on which a function is wrong."""

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    found: Mapping[str, Any] | str
    """Outputs, or what it raised."""


@dataclass(frozen=True)
class Result:
    """One fixture or law, and whether it holds."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """What a function does right, and what it does instead where it does not."""

    kind: str
    function: str
    results: tuple[Result, ...]
    counterexample: Counterexample | None
    mistake: Mistake | None
    """The known mistake whose numbers were met on every input tried."""
    restrictions: tuple[str, ...] = ()
    """What could not be tried, since the function has no argument for it."""

    @property
    def passed(self) -> bool:
        """Whether every fixture and law holds."""
        return all(result.passed for result in self.results)

    def raise_if_failed(self) -> None:
        """Raise a `ConformanceError` with this report unless everything holds."""
        if not self.passed:
            raise ConformanceError(str(self))

    def __str__(self) -> str:
        verdict = "conforms" if self.passed else "does not conform"
        lines = [f"{self.function} as {self.kind}: {verdict}"]
        for result in self.results:
            mark = "ok  " if result.passed else "FAIL"
            lines.append(
                f"  {mark} {result.name}" + (f": {result.detail}" if result.detail else "")
            )
        lines += [f"  not tried: {what}" for what in self.restrictions]
        if self.counterexample is not None:
            lines += ["smallest input that fails:", *_fields(self.counterexample.inputs)]
            lines += ["expected:", *_fields(self.counterexample.expected)]
            found = self.counterexample.found
            lines += ["found:", *([f"  {found}"] if isinstance(found, str) else _fields(found))]
        if self.mistake is not None:
            lines.append(f"equals: {self.mistake.sentence} ({self.mistake.identifier})")
        elif not self.passed:
            lines.append("equals none of the known mistakes")
        return "\n".join(lines)


def _fields(values: Mapping[str, Any]) -> list[str]:
    return [f"  {name} = {_short(value)}" for name, value in values.items()]


def _short(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if value.dtype == bool:
        return str(value.astype(int).tolist())
    return str(_rounded(value.astype(np.float64).tolist()))


def _rounded(value: Any) -> Any:
    return [_rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.10g}")
