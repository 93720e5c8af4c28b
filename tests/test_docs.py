"""Generated pages are those that their programs write."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def test_the_table_of_presets_is_current() -> None:
    spec = importlib.util.spec_from_file_location("write_presets", DOCS / "write_presets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "presets.md").read_text() == module.page()


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
        source = (DOCS.parent / file).read_text()
        assert not name or f"def {name}(" in source, f"{file}::{name}"


def test_the_report_that_the_page_shows_is_the_real_one() -> None:
    from tests.conformance import own_functions

    from purerl import conformance

    names = {"reward": "rewards", "value": "values", "next_value": "next_values", "lmbda": "lam"}
    report = conformance.check_gae(own_functions.cut_gae, arguments=names)
    assert str(report) in (DOCS / "conformance.md").read_text()


def test_the_examples_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "guide.md").read_text(), re.DOTALL)
    assert len(blocks) >= 9
    # a module of its own, since a TensorClass looks its caller's module up
    exec(compile("\n".join(blocks), "guide.md", "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out
