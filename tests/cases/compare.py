"""How a result is compared with a case: the rules that the file states under ``_format``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def number(value: Any) -> Any:
    """Return a value of the file with the strings that stand for NaN and infinity replaced."""
    if isinstance(value, list):
        return [number(item) for item in value]
    return SPECIAL.get(value, value) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Return a result as nested lists of numbers."""
    if isinstance(value, Tensor):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def equal(result: Any, expected: Any, rtol: float, atol: float) -> bool:
    """Return whether nesting is equal and abs(r − e) ≤ atol + rtol · abs(e) for every number."""
    if isinstance(expected, list) or isinstance(result, list):
        return (
            isinstance(expected, list)
            and isinstance(result, list)
            and len(result) == len(expected)
            and all(equal(r, e, rtol, atol) for r, e in zip(result, expected, strict=True))
        )
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


def verdict(case: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return ``""`` if a case is answered rightly, else what the answer looks like."""
    tolerance = {"rtol": case["rtol"], "atol": case.get("atol", 1e-9)}
    right = [case["expected"], *case.get("also_accept", [])]
    if any(answers(found, answer, **tolerance) for answer in right):
        return ""
    for wrong in case.get("wrong", []):
        if answers(found, wrong["value"], **tolerance):
            return f"known mistake: {wrong['means']}"
    return f"expected {case['expected']}, found { {k: plain(v) for k, v in found.items()} }"
