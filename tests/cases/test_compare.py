"""The comparison follows the rules of the file, and can fail: on every number of every case."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.cases.compare import ATOL, answers, equal, number, plain, verdict
from tests.cases.test_cases import CASES, Case

WITH_WRONG = [(case, wrong) for case in CASES for wrong in case.get("wrong", [])]
GIVEN = {"id": "given", "expected": {"a": [1.0, 2.0]}, "rtol": 1e-6}
WRONG = {"value": {"a": [1.0, 3.0]}, "means": "off by one"}


def full(case: Case, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that has every key of a case; those it lacks hold no answer's value."""
    every = [case["expected"], *(wrong["value"] for wrong in case.get("wrong", []))]
    return {key: [[]] for one in every for key in one} | answer


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each number of a nested answer."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))
    else:
        yield path


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a nested answer with another value at one place."""
    value = copy.deepcopy(value)
    at(value, path[:-1])[path[-1]] = new
    return value


def test_a_number_may_be_off_by_both_tolerances_together() -> None:
    assert equal(100.0 + 1e-4 + 1e-9, 100.0, 1e-6, 1.1e-9)
    assert not equal(100.0 + 1e-4 + 2e-9, 100.0, 1e-6, 1e-9)
    assert equal(1e-9, 0.0, 1e-6, 1e-9)
    assert not equal(2e-9, 0.0, 1.0, 1e-9)
    assert not equal(-1.0, 1.0, 1e-6, 1e-9)


def test_the_tolerance_is_relative_to_what_is_expected() -> None:
    assert not equal(1.0, 0.0, 0.9, 0.0)
    assert equal(0.1, 1.0, 0.9, 1e-12)


def test_nan_matches_nan_only() -> None:
    assert equal(math.nan, math.nan, 0.0, 0.0)
    assert not equal(1.0, math.nan, math.inf, math.inf)
    assert not equal(math.nan, 1.0, math.inf, math.inf)
    assert not equal(math.inf, math.nan, 1.0, 1.0)


def test_infinity_matches_itself_only() -> None:
    assert equal(-math.inf, -math.inf, 0.0, 0.0)
    assert not equal(math.inf, -math.inf, 1.0, 1.0)
    assert not equal(math.inf, 1e300, 1.0, 1.0)
    assert not equal(1e300, math.inf, 1.0, 1.0)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([1.0], 1.0),
        (1.0, [1.0]),
        ([[1.0]], [1.0]),
        ([1.0, 1.0], [1.0]),
        ([1.0], [1.0, 1.0]),
        ([], [1.0]),
        ([1.0], []),
        (None, 1.0),
        ("1.0", 1.0),
        ({"a": 1.0}, 1.0),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}),
        ({"a": 1.0, "b": 1.0}, {"a": 1.0}),
        (1.0, {"a": 1.0}),
    ],
    ids=str,
)
def test_nesting_must_be_equal(result: Any, expected: Any) -> None:
    assert not equal(result, expected, 1.0, 1.0)


def test_what_stands_for_a_number_becomes_one() -> None:
    found = number({"a": ["nan", ["inf", "-inf"], 1.5]})
    assert equal(found, {"a": [math.nan, [math.inf, -math.inf], 1.5]}, 0.0, 0.0)
    with pytest.raises(KeyError):
        number(["infinity"])


def test_results_become_nested_lists() -> None:
    nested = {"a": [torch.tensor(1.0), (torch.tensor([2.0]), 3)], "b": torch.tensor(True)}
    assert plain(nested) == {"a": [1.0, [[2.0], 3]], "b": True}


def test_an_answer_needs_every_key_and_may_have_more() -> None:
    assert answers({"a": 1.0, "b": 2.0}, {"a": 1.0}, rtol=0.0, atol=0.0)
    assert not answers({"a": 1.0}, {"a": 1.0, "b": 1.0}, rtol=1.0, atol=1.0)


def test_an_alternative_is_a_whole_answer() -> None:
    case = GIVEN | {
        "expected": {"a": 1.0, "b": 1.0},
        "also_accept": [{"a": 2.0, "b": 2.0}],
    }
    assert verdict(case, {"a": 1.0, "b": 1.0}) == verdict(case, {"a": 2.0, "b": 2.0}) == ""
    assert "expected" in verdict(case, {"a": 1.0, "b": 2.0})


def test_a_trap_has_one_answer() -> None:
    case = GIVEN | {"expected": {"a": 1.0}, "also_accept": [{"a": 2.0}], "trap": True}
    assert verdict(case, {"a": 1.0}) == ""
    assert "expected" in verdict(case, {"a": 2.0})


def test_a_mistake_is_named_even_where_it_would_pass() -> None:
    assert "off by one" in verdict(GIVEN | {"wrong": [WRONG]}, {"a": [1.0, 3.0]})
    assert "off by one" in verdict(GIVEN | {"rtol": 1.0, "wrong": [WRONG]}, {"a": [1.0, 3.0]})


def test_a_key_that_only_a_mistake_has_must_be_there() -> None:
    wrong = {"value": {"b": 0.0}, "means": "nothing moves"}
    assert "no result for ['b']" in verdict(GIVEN | {"wrong": [wrong]}, {"a": [1.0, 2.0]})
    assert verdict(GIVEN | {"wrong": [wrong]}, {"a": [1.0, 2.0], "b": 1.0}) == ""


def test_the_absolute_tolerance_of_a_case_is_its_own() -> None:
    assert ATOL == 1e-9
    assert verdict(GIVEN, {"a": [1.0 + 1e-3, 2.0]}) != ""
    assert verdict(GIVEN | {"atol": 1e-2}, {"a": [1.0 + 1e-3, 2.0]}) == ""
    assert verdict(GIVEN | {"rtol": 0.0, "atol": 1e-12}, {"a": [1.0 + 1e-10, 2.0]}) != ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_number_of_every_case_counts(case: Case) -> None:
    right = full(case, case["expected"])
    assert verdict(case, number_of(right)) == ""
    for path in places(case["expected"]):
        value = number(at(case["expected"], path))
        off = 1.0 if math.isnan(value) or math.isinf(value) else value + 1e-3 * (1.0 + abs(value))
        for changed in (off, [value], None, -1e300 if math.isnan(value) else math.nan):
            assert verdict(case, number_of(replaced(right, path, changed))) != "", path


def number_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of the file as one that might have been found, None included."""
    return {key: _number_or_none(value) for key, value in answer.items()}


def _number_or_none(value: Any) -> Any:
    if isinstance(value, list):
        return [_number_or_none(item) for item in value]
    return number(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_key_of_every_case_counts(case: Case) -> None:
    right = number_of(full(case, case["expected"]))
    for key in case["expected"]:
        assert "no result" in verdict(case, {k: v for k, v in right.items() if k != key})


@pytest.mark.parametrize(
    ("case", "wrong"), WITH_WRONG, ids=lambda value: value.get("id") or value["means"]
)
def test_a_known_mistake_is_called_by_its_name(case: Case, wrong: dict[str, Any]) -> None:
    mistaken = number_of(full(case, case["expected"] | wrong["value"]))
    assert verdict(case, mistaken) == f"known mistake: {wrong['means']}"
