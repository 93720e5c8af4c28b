"""Imports point down only, and randomness comes from keys only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "purerl"
LAYER = {
    **dict.fromkeys(["errors", "types", "check"], 0),
    **dict.fromkeys(["random", "tree", "numerics", "control", "recurrence", "config"], 1),
    **dict.fromkeys(["returns", "distributions", "losses"], 2),
    **dict.fromkeys(["optim", "networks", "normalize", "envs", "replay"], 3),
    **dict.fromkeys(["rollout", "algos"], 4),
    "run": 5,
    "conformance": 2.5,  # the kit for other people's code needs formulas only
}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imported_parts(path: Path) -> set[str]:
    """Names of the top-level parts of purerl that a file imports."""
    package = path.relative_to(SOURCE).parts[:-1]
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = package[: len(package) - (node.level - 1)]
        full = [*base, *(node.module.split(".") if node.module else [])]
        parts |= {full[0]} if full else {alias.name for alias in node.names}
    return parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_only(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for part in imported_parts(path) - {own}:
        assert LAYER[part] <= LAYER[own], f"{own} imports {part}"


def test_no_source_draws_from_a_global_generator() -> None:
    forbidden = re.compile(
        r"torch\.(manual_seed|rand|randn|randint|randperm|bernoulli|multinomial|normal)\("
        r"|np\.random\.(?!Generator|default_rng\(\w)|\.(uniform_|normal_|random_|bernoulli_|exponential_)\("
    )
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []
