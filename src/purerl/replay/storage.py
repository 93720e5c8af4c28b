"""Where the rows of a ring are kept, and how they get in and out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .. import tree
from ..errors import BufferError
from ..types import Tree
from . import host
from .rows import any_ring, batch_rows
from .slots import Added, put, take
from .state import Layout, Plain, Spec, each


class Read(Protocol):
    """How rows get out of a storage."""

    def __call__(
        self, layout: Layout, s: Plain, index: Tensor, fields: tuple[str, ...] | None = None
    ) -> tuple[Any, Tensor | None]:
        """Return the rows at an index, some fields or all, and which of them are whole."""


class Storage(NamedTuple):
    """A storage as functions; ``s`` is a plain state."""

    allocate: Callable[[Layout, Tree, Tensor | None], Tree]
    """``(layout, tree of specs, like) -> the memory``, filled."""
    specs: Callable[[Layout], Tree]
    """What it needs for its rows."""
    rows: Callable[[Layout, Tree], tuple[Any, int]]
    """``(layout, batch) -> (rows, how many)``, checked against the example."""
    write: Callable[[Layout, Plain, Added], None]
    """``(layout, s before, added)``: write to ``s["storage"]`` in place."""
    read: Read
    check: Callable[[Layout], None] = any_ring
    """Raise `ConfigError` if it cannot work on this ring."""
    copy: Callable[[Tree], Tree] = tree.clone
    read_only: bool = False
    ragged: bool = False
    """Whether rows are a list of items of any lengths instead of tensors ``[n, …]``."""


def tensor_storage() -> Storage:
    """Return a storage of one tensor ``[capacity, …]`` for each leaf, on the example's device."""
    return Storage(allocate, row_specs, batch_rows, write_rows, read_rows)


def allocate(layout: Layout, specs: Tree, like: Tensor | None) -> Tree:
    """Allocate memory; under ``torch.vmap`` each member its own, by a batched ``like``."""
    if like is None and host.transformed():
        raise BufferError(
            "init() inside torch.vmap gives all members one memory; "
            "pass init(like=key), a tensor that differs between the members"
        )
    return tree.map(partial(_filled, layout.device, like), specs)


def _filled(device: torch.device, like: Tensor | None, spec: Spec) -> Tensor:
    seed = torch.empty((), device=device) if like is None else like
    return seed.new_full(spec.shape, spec.fill, dtype=spec.dtype, device=device)


def row_specs(layout: Layout) -> Tree:
    """Return the specs of a ring of rows like the example."""
    return tree.map(lambda leaf: Spec((layout.capacity, *leaf.shape), leaf.dtype), layout.example)


def write_rows(layout: Layout, s: Plain, added: Added) -> None:
    """Write rows of tensors, one write a leaf."""
    each(partial(put, added.slots), s["storage"], added.kept)


def read_rows(
    layout: Layout, s: Plain, index: Tensor, fields: tuple[str, ...] | None = None
) -> tuple[Plain, None]:
    """Read rows of tensors, one gather a leaf."""
    contents = s["storage"]
    if fields is not None:
        contents = {name: contents[name] for name in fields}
    return each(lambda leaf: take(leaf, index), contents), None
