"""Places in a ring: what comes next, what comes before, and how rows get in and out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import random
from ..types import Key
from . import host
from .state import Layout, Plain


class Slots(NamedTuple):
    """The slots start, start + 1, … of a write, modulo the capacity."""

    capacity: int
    num_rows: int
    start: int | Tensor
    """A number where the host may read it: then a write is one or two copies of blocks."""
    device: torch.device

    def numbers(self) -> Tensor:
        """Return the slots, int64 ``[num_rows]``."""
        return (self.start + torch.arange(self.num_rows, device=self.device)) % self.capacity


class Added(NamedTuple):
    """Rows on their way into a ring."""

    rows: Any
    """All that were given."""
    num_rows: int
    kept: Any
    """Those that no later one of the same batch overwrites."""
    mask: Tensor | None
    """bool, False where a kept row is no transition."""
    slots: Slots
    """Of the kept rows."""


def next_slots(layout: Layout, s: Plain, count: int, *, skip: int = 0) -> Slots:
    """Return the ``count`` slots that come ``skip`` behind the cursor."""
    cursor = s["cursor"]
    start = int(cursor) if host.readable_at_once(layout.device) else cursor
    return Slots(layout.capacity, count, (start + skip) % layout.capacity, layout.device)


def put(slots: Slots, leaf: Tensor, rows: Tensor) -> None:
    """Write rows ``[num_rows, …]`` into a leaf ``[capacity, …]``, in place."""
    if isinstance(slots.start, Tensor):
        leaf.index_put_((slots.numbers(),), rows)
        return
    over = slots.start + slots.num_rows - slots.capacity
    if over <= 0:
        leaf.narrow(0, slots.start, slots.num_rows).copy_(rows)
        return
    leaf[slots.start :].copy_(rows[:-over])
    leaf[:over].copy_(rows[-over:])


def take(leaf: Tensor, index: Tensor) -> Tensor:
    """Return the rows of a leaf ``[capacity, …]`` at an index of any shape, copied."""
    # copies whole rows, where indexing goes element by element
    rows = leaf.index_select(0, index.reshape(-1))
    return rows if index.ndim == 1 else rows.reshape(index.shape + leaf.shape[1:])


def uniform_slots(key: Key, count: int, total: Tensor) -> Tensor:
    """Draw int64 ``[count]`` from [0, total), and 0 of nothing: floor(total · bits / 2³²).

    One call of the cipher, and a bias below total / 2³², where a float32 would leave out rows of
    a large buffer.
    """
    return (random.bits(key, (count,)) * total) >> 32


def steps_after(layout: Layout, s: Plain, index: Tensor) -> Tensor:
    """Return how many later rows of its environment are stored behind each row."""
    capacity = layout.capacity
    # how many rows are newer than this one: the newest lies just before the cursor
    newer = (s["cursor"] - 1 - index) % capacity
    return newer // layout.num_envs


def after(layout: Layout, index: Tensor, steps: Tensor | int) -> Tensor:
    """Return the slots of the rows that many time steps later."""
    return (index + steps * layout.num_envs) % layout.capacity
