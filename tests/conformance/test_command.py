"""The command ``purerl conformance``."""

from __future__ import annotations

from pathlib import Path

import pytest

from purerl.run.cli import main

NAMES = "reward=rewards,value=values,next_value=next_values,lmbda=lam"


def run(path: str, *options: str, kind: str = "gae") -> int:
    return main(["conformance", path, "--kind", kind, *options])


@pytest.fixture(autouse=True)
def beside_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)


def test_it_tells_right_from_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("own_functions:right_gae", "--arguments", NAMES) == 0
    assert "right_gae as gae: conforms" in capsys.readouterr().out
    assert run("own_functions:cut_gae", "--arguments", NAMES) == 1
    assert "equals: truncation treated as termination" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("own_functions:right_gae", [], "arguments={'reward'"),
        ("own_functions:right_gaee", [], "did you mean right_gae?"),
        ("own_functions:NOT_A_FUNCTION", [], "is a int, expected a function"),
        ("nowhere_at_all:f", [], "cannot import nowhere_at_all"),
        ("own_functions", [], "is not MODULE:FUNCTION"),
        ("own_functions:right_gae", ["--arguments", "reward"], "is not NAME=VALUE"),
        ("own_functions:right_gae", ["--argument", "x=y"], "unrecognized arguments"),
    ],
)
def test_a_wrong_question_is_answered_with_its_cure(
    path: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path, *options) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_kind_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("own_functions:right_gae", kind="gea") == 2
    assert "did you mean gae?" in capsys.readouterr().err
