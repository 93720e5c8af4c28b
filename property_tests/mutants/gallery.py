"""The gallery: every historic bug as a patch of one public function, and the laws that see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A wrong function in the place of a right one."""

    identifier: str
    sentence: str
    target: str
    """``module.name`` below ``purerl``."""
    function: Callable[..., Any]
    killers: tuple[str, ...]
    """Laws, as ``module::test`` below ``property_tests`` (``[param]`` where parametrised)."""
