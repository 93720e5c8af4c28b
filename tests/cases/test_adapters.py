"""Adapters read the file's words, not its cases: the next case of a kind must not be misread."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases.compare import verdict
from tests.cases.derived import DERIVED
from tests.cases.test_cases import AREAS


@pytest.mark.parametrize(
    ("area", "inputs", "expected"),
    [(area, inputs, expected) for area, _, inputs, expected in DERIVED],
    ids=[f"{area}: {title}" for area, title, *_ in DERIVED],
)
def test_the_words_of_the_file_are_understood(
    area: str, inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    case = {"expected": expected, "rtol": 1e-6 if area == "seeding" else 1e-9, "atol": 1e-12}
    assert verdict(case, AREAS[area](inputs)) == ""
