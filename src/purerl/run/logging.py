"""Loggers: metrics of every train step to JSON lines and CSV."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TextIO


class Logger(Protocol):
    """Where metrics go; ``metrics`` holds a list with one number for each seed."""

    def write(self, env_steps: int, metrics: Mapping[str, Sequence[float]]) -> None:
        """Keep the metrics of one train step."""

    def close(self) -> None:
        """Finish."""


class JsonLines:
    """One JSON object a train step; NaN and infinities become null."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, env_steps: int, metrics: Mapping[str, Sequence[float]]) -> None:
        """Append one line."""
        values = {
            name: [value if math.isfinite(value) else None for value in row]
            for name, row in metrics.items()
        }
        self._file.write(json.dumps({"env_steps": env_steps, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Csv:
    """One row for each train step and seed; the columns are those of the first step."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._names: list[str] | None = None

    def write(self, env_steps: int, metrics: Mapping[str, Sequence[float]]) -> None:
        """Append a row for each seed."""
        if self._names is None:
            self._names = list(metrics)
            self._writer.writerow(["env_steps", "seed", *self._names])
        for seed, row in enumerate(zip(*(metrics[name] for name in self._names), strict=True)):
            self._writer.writerow([env_steps, seed, *row])
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Contained:
    """A logger whose failure is told once and never stops a run."""

    def __init__(self, logger: Logger) -> None:
        self._logger: Logger | None = logger

    def write(self, env_steps: int, metrics: Mapping[str, Sequence[float]]) -> None:
        """Write, unless the logger has failed before."""
        if self._logger is None:
            return
        try:
            self._logger.write(env_steps, metrics)
        except Exception as error:  # whatever a logger does, training goes on
            name = type(self._logger).__name__
            warnings.warn(f"{name} failed and is off from now on: {error!r}", stacklevel=2)
            self._logger = None

    def close(self) -> None:
        """Close, if it still works."""
        if self._logger is not None:
            self._logger.close()
