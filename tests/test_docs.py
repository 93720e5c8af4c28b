"""Generated pages are those that their programs write."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_table_of_presets_is_current() -> None:
    spec = importlib.util.spec_from_file_location("write_presets", DOCS / "write_presets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "presets.md").read_text() == module.page()
