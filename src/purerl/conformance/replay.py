"""The check of a ring buffer, against a deque."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .report import Counterexample, Report, Result

_HISTORIES = 60


def check_replay(
    make: Callable[[int], Any],
    *,
    add: Callable[[Any, np.ndarray], Any],
    contents: Callable[[Any], Any],
    sample: Callable[[Any, int], Any] | None = None,
) -> Report:
    """Check a replay buffer of numbers against ``deque(maxlen=capacity)``.

        contents = the last min(n, capacity) rows of everything added, in any order
        add(batch) = one add after the other;   a sample holds live rows only

    Args:
        make: ``capacity -> buffer``, empty.
        add: ``(buffer, rows [N]) -> buffer``, or None where the buffer is changed in place.
        contents: ``buffer -> rows``, the live ones, in any order.
        sample: ``(buffer, n) -> rows``; None does not try it.

    >>> report = check_replay(
    ...     lambda capacity: deque(maxlen=capacity),
    ...     add=lambda buffer, rows: buffer.extend(rows),
    ...     contents=list,
    ... )
    >>> report.passed
    True
    """
    results, failure = [], None
    rules = [("holds the last rows in full", False)]
    rules += [] if sample is None else [("samples live rows only", True)]
    for name, with_sample in rules:
        problem, history = _search(make, add, contents, sample if with_sample else None)
        results.append(Result(name, problem is None, problem or ""))
        if problem is not None and failure is None:
            failure = _counterexample(make, add, contents, *history)
    restrictions = ("sample",) if sample is None else ()
    return Report("replay", _name(make), tuple(results), failure, None, restrictions)


History = tuple[int, list[int]]
"""Capacity, and the number of rows of every add."""


def _search(
    make: Callable[[int], Any], add: Any, contents: Any, sample: Any
) -> tuple[str | None, History]:
    generator = np.random.default_rng(0)
    for number in range(_HISTORIES):
        capacity = int(generator.integers(1, 9))
        batches = generator.integers(1, 5 + 2 * (number % 5), int(generator.integers(1, 8)))
        history = capacity, [int(size) for size in batches]
        problem = _problem(make, add, contents, sample, history)
        if problem is not None:
            return _shrunk(make, add, contents, sample, history)
    return None, (1, [])


def _shrunk(
    make: Any, add: Any, contents: Any, sample: Any, history: History
) -> tuple[str | None, History]:
    """Return the smallest history that fails, dropping and shortening adds and the capacity."""
    capacity, batches = history
    candidates = [(capacity, batches[:i] + batches[i + 1 :]) for i in range(len(batches))]
    candidates += [
        (capacity, [*batches[:i], size - 1, *batches[i + 1 :]])
        for i, size in enumerate(batches)
        if size > 1
    ]
    candidates += [(capacity - 1, batches)] if capacity > 1 else []
    for smaller in candidates:
        if _problem(make, add, contents, sample, smaller) is not None:
            return _shrunk(make, add, contents, sample, smaller)
    return _problem(make, add, contents, sample, history), history


def _problem(make: Any, add: Any, contents: Any, sample: Any, history: History) -> str | None:
    capacity, batches = history
    try:
        buffer, model = _played(make, add, capacity, batches)
        if sorted(np.asarray(contents(buffer)).ravel().tolist()) != sorted(model):
            return "the contents differ from the last rows added"
        if sample is None or not model:
            return None
        drawn = {float(row) for _ in range(8) for row in np.asarray(sample(buffer, 16)).ravel()}
    except Exception as error:  # the buffer is the user's: whatever it raises is an answer
        return f"raised {type(error).__name__}: {error}"
    dead = drawn - set(model)
    return f"a row that is not there was drawn: {sorted(dead)[0]:g}" if dead else None


def _played(make: Any, add: Any, capacity: int, batches: list[int]) -> tuple[Any, deque[float]]:
    buffer, model, count = make(capacity), deque[float](maxlen=capacity), 0
    for size in batches:
        # serial numbers from 1, so that a row never written shows as 0
        rows = np.arange(count + 1, count + size + 1, dtype=np.float64)
        returned = add(buffer, rows.copy())
        buffer = buffer if returned is None else returned
        model.extend(rows.tolist())
        count += size
    return buffer, model


def _counterexample(
    make: Any, add: Any, contents: Any, capacity: int, batches: list[int]
) -> Counterexample:
    inputs = {"capacity": capacity, "rows of each add": batches}
    try:
        buffer, model = _played(make, add, capacity, batches)
        found: Any = {"contents": np.asarray(contents(buffer), dtype=np.float64).ravel()}
    except Exception as error:
        model = deque((float(i + 1) for i in range(sum(batches))), maxlen=capacity)
        found = f"{type(error).__name__}: {error}"
    return Counterexample(inputs, {"contents": np.array(model)}, found)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
