"""The public names are those of a list, so that every change of them is deliberate.

After a deliberate change: ``python tests/test_public_surface.py`` writes the list anew.
"""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "purerl"
LIST = Path(__file__).with_name("public_surface.txt")
MODULES = [
    "check",
    "config",
    "conformance",
    "control",
    "distributions",
    "envs",
    "errors",
    "losses",
    "networks",
    "normalize",
    "numerics",
    "optim",
    "random",
    "recurrence",
    "returns",
    "rollout",
    "run",
    "tree",
    "types",
    "algos/ppo",
    "algos/sac",
    "replay",
]


def public_names(module: str) -> list[str]:
    """Names that a module defines or re-exports in the form ``import x as x``."""
    package = SOURCE / module / "__init__.py"
    path = package if package.exists() else SOURCE / f"{module}.py"
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ImportFrom(names=aliases):
                names |= {alias.name for alias in aliases if alias.asname == alias.name}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    label = module.rpartition("/")[2]
    return [f"{label}.{name}" for name in sorted(names) if not name.startswith("_")]


def surface() -> str:
    return "\n".join(line for module in MODULES for line in public_names(module)) + "\n"


def test_the_public_names_are_those_of_the_list() -> None:
    listed, found = set(LIST.read_text().split()), set(surface().split())
    assert found - listed == set(), "new public names; see the top of this file"
    assert listed - found == set(), "public names that are gone; see the top of this file"


if __name__ == "__main__":
    LIST.write_text(surface())
