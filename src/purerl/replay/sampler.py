"""What a sampler is: which rows are drawn, and what has to be kept for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from ..errors import ConfigError
from ..types import Key, Tree
from .rows import any_ring
from .slots import Added
from .state import Info, Layout, Plain


def nothing(layout: Layout) -> Plain:
    """Keep nothing."""
    return {}


def _ignore(layout: Layout, s: Plain, added: Added) -> None:
    pass


def _no_priority(layout: Layout, s: Plain, index: Tensor, priority: Tensor) -> Plain:
    raise ConfigError("update_priority needs the sampler replay.prioritized()")


class Sampler(NamedTuple):
    """A sampler as functions; ``s`` is a plain state."""

    draw: Callable[[Layout, Plain, Key, int], Info]
    """``(layout, s, key, batch_size) -> info``."""
    check: Callable[[Layout], None] = any_ring
    """Raise `ConfigError` if it cannot work on this ring."""
    specs: Callable[[Layout], Tree] = nothing
    """Memory with an entry for each row."""
    init: Callable[[Layout], Plain] = nothing
    """What it remembers between draws."""
    add: Callable[[Layout, Plain, Added], None] = _ignore
    """``(layout, s before, added)``: write to ``s["index"]`` in place."""
    update_priority: Callable[[Layout, Plain, Tensor, Tensor], Plain] = _no_priority
    """``(layout, s, index, priority) -> s``, in place where it has an entry for each row."""
    hparams: Mapping[str, float] = {}
