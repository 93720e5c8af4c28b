"""How a function is examined: fixtures, laws, the smallest failure, the mistake it equals."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import PurerlError
from .kind import Inputs, Kind, Law, Outputs
from .mistakes import Mistake
from .report import Counterexample, Report, Result
from .subject import ChangedInputError, Subject

EXAMPLES = 40
"""Generated inputs for each law."""
_SHRINKS = 400


def examine(subject: Subject, *, rtol: float | None = None) -> Report:
    """Return the report of a function.

    Args:
        subject: the function and how to call it.
        rtol: relative tolerance; None takes 1e-9 in float64 and 1e-4 in float32.
    """
    kind = subject.kind
    tolerance = rtol or (1e-9 if subject.dtype == "float64" else 1e-4)
    tried: list[tuple[Inputs, Outputs]] = []
    results, failure = [], None
    for fixture in kind.fixtures:
        inputs = _batched(subject, dict(fixture.inputs))
        if not _expressible(subject, inputs):
            continue
        problem = _problem(subject, inputs, tolerance, tried)
        results.append(Result(fixture.name, problem is None, problem or ""))
        failure = failure or (inputs if problem else None)
    for law in kind.laws:
        if not all(subject.knows(name) for name in law.needs):
            continue
        inputs, problem = _search(subject, law, tolerance, tried)
        results.append(Result(law.name, problem is None, problem or ""))
        failure = failure or (inputs if problem else None)
    mistake = None if failure is None else _matching(kind, tried, tolerance)
    if failure is not None and mistake is None:
        # letting NaN through may come on top of another mistake
        finite = [pair for pair in tried if _finite(pair[0])]
        wrong = any(not _right(kind, pair, tolerance) for pair in finite)
        mistake = _matching(kind, finite, tolerance) if wrong else None
    return Report(
        kind=kind.name,
        function=subject.name,
        results=tuple(results),
        counterexample=None if failure is None else _smallest(subject, failure, tolerance),
        mistake=mistake,
        restrictions=tuple(name for name in kind.optional if not subject.knows(name)),
    )


def _batched(subject: Subject, inputs: Inputs) -> Inputs:
    """Return a fixture ``[T]`` as one column ``[T, 1]`` if the function wants batches."""
    if subject.time_axis is None:
        return inputs
    return {
        name: value[:, None] if isinstance(value, np.ndarray) and value.ndim == 1 else value
        for name, value in inputs.items()
    }


def _expressible(subject: Subject, inputs: Inputs) -> bool:
    """Return whether preparing the inputs leaves them as they are."""
    prepared = subject.prepare(inputs)
    return all(
        np.array_equal(prepared[name], value, equal_nan=_floats(value))
        for name, value in inputs.items()
    )


def _floats(value: Any) -> bool:
    return np.asarray(value).dtype.kind == "f"


def _search(
    subject: Subject, law: Law, tolerance: float, tried: list[tuple[Inputs, Outputs]]
) -> tuple[Inputs, str | None]:
    # a law's inputs depend on its name alone, not on what was tried before
    generator = np.random.default_rng(zlib.crc32(f"{subject.kind.name} {law.name}".encode()))
    inputs: Inputs = {}
    for _ in range(EXAMPLES):
        inputs = subject.prepare(_batched(subject, law.generate(generator)))
        problem = _problem(subject, inputs, tolerance, tried)
        if problem is not None:
            return inputs, problem
    return inputs, None


def _problem(
    subject: Subject,
    inputs: Inputs,
    tolerance: float,
    tried: list[tuple[Inputs, Outputs]] | None = None,
) -> str | None:
    """Return what is wrong on an input, in a few words, or None."""
    expected = subject.kind.truth(inputs)
    try:
        found = subject(inputs)
    except ChangedInputError as error:
        if tried is not None:
            tried.append((inputs, error.outputs))
        return str(error)
    except PurerlError:
        raise
    except Exception as error:  # the function is the user's: whatever it raises is an answer
        return f"raised {type(error).__name__}: {error}"
    if tried is not None:
        tried.append((inputs, found))
    for name, value in found.items():
        if value.shape != expected[name].shape:
            return f"{name} has shape {list(value.shape)}, expected {list(expected[name].shape)}"
        if not _close(value, expected[name], tolerance):
            return f"{name} differs"
    return None


def _close(found: Any, expected: Any, tolerance: float) -> bool:
    scale = float(np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected)))
    return bool(
        np.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    )


def _smallest(subject: Subject, inputs: Inputs, tolerance: float) -> Counterexample:
    """Return the smallest input found that still fails, one simplification after the other."""
    budget = _SHRINKS
    shrinking = True
    while shrinking and budget > 0:
        shrinking = False
        for simpler in _candidates(subject, inputs):
            budget -= 1
            if _problem(subject, simpler, tolerance) is not None:
                inputs, shrinking = simpler, True
                break
            if budget <= 0:
                break
    try:
        found: Outputs | str = subject(inputs)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return Counterexample(inputs, subject.kind.truth(inputs), found)


def _candidates(subject: Subject, inputs: Inputs) -> Iterator[Inputs]:
    for simpler in subject.kind.simpler(inputs):
        yield subject.prepare(simpler)


def _matching(kind: Kind, tried: list[tuple[Inputs, Outputs]], tolerance: float) -> Mistake | None:
    """Return the mistake whose numbers are the function's on every input tried."""
    return next(
        (
            mistake
            for mistake in kind.mistakes
            if tried and all(_equals(kind, mistake, pair, tolerance) for pair in tried)
        ),
        None,
    )


def _equals(kind: Kind, mistake: Mistake, pair: tuple[Inputs, Outputs], tolerance: float) -> bool:
    inputs, found = pair
    return _same(found, kind.mistaken(mistake, inputs), tolerance)


def _finite(inputs: Inputs) -> bool:
    arrays = (value for value in inputs.values() if isinstance(value, np.ndarray))
    return all(bool(np.isfinite(value).all()) for value in arrays)


def _right(kind: Kind, pair: tuple[Inputs, Outputs], tolerance: float) -> bool:
    inputs, found = pair
    return _same(found, kind.truth(inputs), tolerance)


def _same(found: Outputs, other: Outputs, tolerance: float) -> bool:
    return all(
        value.shape == other[name].shape and _close(value, other[name], tolerance)
        for name, value in found.items()
    )
