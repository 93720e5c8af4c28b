"""How a result is compared with a case: the rules that the file states under ``_format``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
ATOL = 1e-9


def number(value: Any) -> Any:
    """Return numbers of the file, nested or not, with NaN and infinity for what stands for them."""
    if isinstance(value, list):
        return [number(item) for item in value]
    if isinstance(value, Mapping):
        return {name: number(item) for name, item in value.items()}
    return SPECIAL[value] if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Return a result as nested lists of numbers."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def equal(result: Any, expected: Any, rtol: float, atol: float) -> bool:
    """Return whether nesting is equal and abs(r − e) ≤ atol + rtol · abs(e) for every number."""
    if isinstance(expected, list):
        return (
            isinstance(result, list)
            and len(result) == len(expected)
            and all(equal(r, e, rtol, atol) for r, e in zip(result, expected, strict=True))
        )
    if isinstance(expected, Mapping):
        return (
            isinstance(result, Mapping)
            and result.keys() == expected.keys()
            and all(equal(result[name], e, rtol, atol) for name, e in expected.items())
        )
    if not isinstance(result, int | float):
        return False
    if math.isnan(expected) or math.isnan(result):
        return math.isnan(expected) and math.isnan(result)
    if math.isinf(expected) or math.isinf(result):
        return bool(result == expected)
    return bool(abs(result - expected) <= atol + rtol * abs(expected))


def answers(
    found: Mapping[str, Any], wanted: Mapping[str, Any], *, rtol: float, atol: float
) -> bool:
    """Return whether every key of an answer matches what was found."""
    return all(
        key in found and equal(plain(found[key]), number(value), rtol, atol)
        for key, value in wanted.items()
    )


def keys_of(case: Mapping[str, Any]) -> set[str]:
    """Return every key that some answer to a case has, right or wrong."""
    wrong = [entry["value"] for entry in case.get("wrong", [])]
    return set().union(case["expected"], *case.get("also_accept", []), *wrong)


def verdict(case: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return ``""`` if a case is answered rightly, else what is wrong with the answer.

    It must have every key, be one of the right answers as a whole (the first one, if the case is
    a trap), and be none of the known mistakes.
    """
    tolerance = {"rtol": case["rtol"], "atol": case.get("atol", ATOL)}
    missing = keys_of(case) - found.keys()
    if missing:
        return f"no result for {sorted(missing)}"
    # a mistake first: its explanation says more than the numbers
    for wrong in case.get("wrong", []):
        if answers(found, wrong["value"], **tolerance):
            return f"known mistake: {wrong['means']}"
    others = [] if case.get("trap") else case.get("also_accept", [])
    if any(answers(found, right, **tolerance) for right in [case["expected"], *others]):
        return ""
    shown = {key: plain(found[key]) for key in sorted(keys_of(case))}
    return f"expected {case['expected']}, found {shown}"
