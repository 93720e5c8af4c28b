"""Where metrics go: JSONL, CSV, or anything with ``write`` and ``close``."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import ConfigError, did_you_mean

_log = logging.getLogger("purerl")


class Logger(Protocol):
    """Receives the metrics of every train step."""

    def write(self, step: int, metrics: Mapping[str, list[float]]) -> None:
        """Take the metrics after ``step`` environment steps of each seed, one number a seed."""

    def close(self) -> None:
        """Finish; called once, also when the run failed."""


class _LineFile:
    """A new file that gets whole lines, each on its way to the disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._torn = False

    def append(self, text: str) -> None:
        """Write lines; after a failed write, what is left of it ends on a line of its own."""
        data = memoryview((("\n" if self._torn else "") + text).encode())
        self._torn = True
        while data:
            data = data[self._file.write(data) :]
        self._torn = False

    def close(self) -> None:
        self._file.close()


class JsonlLogger:
    """Writes one JSON object a train step.

        {"env_steps": 512, "update": 2, "time": 0.31, "episode/return_mean": [21.5, null], …}

    ``env_steps`` counts the steps of each seed, ``update`` the records, ``time`` the seconds since
    the logger was made; every other entry is a list with one number a seed, null for NaN.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self._file = _LineFile(Path(path))
        self._clock, self._start, self._count = clock, clock(), 0

    def write(self, step: int, metrics: Mapping[str, list[float]]) -> None:
        """Append a record."""
        self._count += 1
        seconds = round(self._clock() - self._start, 4)
        record: dict[str, Any] = {"env_steps": step, "update": self._count, "time": seconds}
        record |= {
            name: [value if math.isfinite(value) else _nonfinite(value) for value in values]
            for name, values in metrics.items()
        }
        self._file.append(json.dumps(record, allow_nan=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _nonfinite(value: float) -> str | None:
    """Return what stands for a number that JSON has not; ``float`` reads the infinities back."""
    return None if math.isnan(value) else str(value)


class CsvLogger:
    """Writes one row for each train step and seed, NaN as an empty cell.

        env_steps,update,time,seed,episode/return_mean,…

    The first record fixes the columns.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self._file = _LineFile(Path(path))
        self._clock, self._start, self._count = clock, clock(), 0
        self._columns: list[str] = []

    def write(self, step: int, metrics: Mapping[str, list[float]]) -> None:
        """Append the rows of a record.

        Raises:
            ConfigError: a metric that the first record did not have.
        """
        self._count += 1
        head = [["env_steps", "update", "time", "seed", *metrics]] if not self._columns else []
        columns = self._columns or list(metrics)
        for name in metrics:
            if name not in columns:
                raise ConfigError(f"{name} is no column of the CSV{did_you_mean(name, columns)}")
        seconds = f"{self._clock() - self._start:.4f}"
        blank = [math.nan] * len(next(iter(metrics.values()), []))
        table = zip(*(metrics.get(name, blank) for name in columns), strict=True)
        rows = [
            [str(step), str(self._count), seconds, str(seed), *map(_cell, values)]
            for seed, values in enumerate(table)
        ]
        self._file.append("".join(",".join(row) + "\n" for row in head + rows))
        self._columns = columns

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cell(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


class Guarded:
    """Several loggers, none of which can stop a run.

    The first failure of a logger is reported on the ``purerl`` log with its cause, later ones are
    counted and reported when the run ends.
    """

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = list(loggers)
        self._dropped = [0] * len(self._loggers)

    def write(self, step: int, metrics: Mapping[str, list[float]]) -> None:
        """Write to every logger that can."""
        for i, logger in enumerate(self._loggers):
            try:
                # each its own copy: what one does to it is not what the next one gets
                logger.write(step, {name: list(values) for name, values in metrics.items()})
            except Exception as error:  # whatever a sink raises, training goes on
                if not self._dropped[i]:
                    _log.warning(
                        "%s failed at step %d (%s); training goes on without the record",
                        type(logger).__name__,
                        step,
                        _cause(error),
                    )
                self._dropped[i] += 1

    def close(self) -> None:
        """Close every logger, and report how many records were dropped."""
        for logger, dropped in zip(self._loggers, self._dropped, strict=True):
            if dropped:
                _log.warning("%s dropped %d record(s)", type(logger).__name__, dropped)
            try:
                logger.close()
            except Exception as error:
                _log.warning("%s failed to close (%s)", type(logger).__name__, _cause(error))


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of a `JsonlLogger`, with NaN for null; a torn line is passed over.

    Raises:
        ConfigError: the file is not there.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path} is not there, expected a file of metrics")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [record for record in map(_parse, lines) if record is not None]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:  # cut short by a full disk or a killed process
        return None
    if not isinstance(record, dict):
        return None
    return {name: _numbers(value) for name, value in record.items()}


def _numbers(value: Any) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    return [math.nan if item is None else float(item) for item in value]
