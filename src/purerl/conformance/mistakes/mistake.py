"""What a known mistake is: a wrong implementation with a name and one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Mistake(NamedTuple):
    """A mistake that has been made in public, as a function in the place of the right one."""

    identifier: str
    """Its number in the gallery of mistakes."""
    sentence: str
    """What is wrong, to be read after "equals:"."""
    function: Callable[..., Any]
    """Wrong, with the signature of the function of purerl that it stands in for."""
