"""The suite can tell every historic bug from the truth: each mutant fails the laws named for it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import unittest
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from property_tests.mutants import estimators, losses, machinery
from property_tests.mutants.gallery import Mutant

MUTANTS = (*estimators.MUTANTS, *losses.MUTANTS, *machinery.MUTANTS)
ALIVE_ELSEWHERE = {"M42", "M44", "M45", "M46", "M47", "M48", "M55", "M56"}
"""Entries of the gallery about replay and checkpoints."""


@pytest.fixture(autouse=True)
def without_shrinking() -> Iterator[None]:
    """A mutant needs one counterexample, not the smallest."""
    profile = settings(
        max_examples=200,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    before = settings.get_current_profile_name()
    settings.register_profile("mutants", profile)
    settings.load_profile("mutants")
    yield
    settings.load_profile(before)


@cache
def laws_of(module_name: str) -> ModuleType:
    """Return a module of laws, loaded anew: what runs beside this has settings of its own."""
    file = Path(__file__).parent.parent / f"{module_name}.py"
    spec = importlib.util.spec_from_file_location(f"property_tests.mutated_{module_name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def law(name: str) -> Callable[[], Any]:
    """Return a law as a function without arguments that raises if the law does not hold."""
    module_name, _, test_name = name.partition("::")
    test_name, _, parameter = test_name.removesuffix("]").partition("[")
    module = laws_of(module_name)
    found: Any = getattr(module, test_name)
    if isinstance(found, type) and issubclass(found, unittest.TestCase):
        machine = found("runTest")
        return machine.runTest
    return (lambda: found(name=parameter)) if parameter else found


def test_ids_are_unique_and_the_gallery_is_whole() -> None:
    """Every entry of the gallery that touches what exists is here, 40 at least."""
    pairs = [(mutant.identifier, mutant.target) for mutant in MUTANTS]
    assert len(pairs) == len(set(pairs))
    entries = {mutant.identifier[:3] for mutant in MUTANTS}
    assert entries == {f"M{i:02}" for i in range(1, 57)} - ALIVE_ELSEWHERE
    assert len(entries) >= 40


CASES = [(mutant, killer) for mutant in MUTANTS for killer in mutant.killers]


@pytest.mark.parametrize(
    ("mutant", "killer"),
    CASES,
    ids=[f"{mutant.identifier}-{mutant.target}-{killer}" for mutant, killer in CASES],
)
def test_the_law_kills_the_mutant(
    mutant: Mutant, killer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_name, _, name = mutant.target.rpartition(".")
    module = importlib.import_module(f"purerl.{module_name}")
    check = law(killer)
    mutated = _calling_the_original(module, name, mutant.function)
    monkeypatch.setattr(module, name, mutated)
    with pytest.raises(BaseException) as failure:  # noqa: PT011 – any failure of a check; see below
        check()
    assert all(isinstance(one, FAILURES) for one in _leaves(failure.value)), failure.value


FAILURES = (AssertionError, pytest.fail.Exception)
"""A mutant must be seen by a check, not by a crash of its own."""


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


def _calling_the_original(module: Any, name: str, function: Callable[..., Any]) -> Any:
    """Let a mutant that calls the function it stands in for reach the right one."""
    original, inside = getattr(module, name), [False]

    def mutated(*args: Any, **options: Any) -> Any:
        if inside[0]:
            return original(*args, **options)
        inside[0] = True
        try:
            return function(*args, **options)
        finally:
            inside[0] = False

    return mutated
