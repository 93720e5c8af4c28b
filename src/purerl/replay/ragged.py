"""Rows of any lengths, as a list on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import tree
from ..errors import BufferError, ConfigError, ShapeError
from ..types import Tree
from . import host
from .rows import batch_rows, field, nested, require_like, require_names
from .slots import Added
from .state import Layout, Plain
from .storage import Storage, allocate

Collate = Callable[[list[Plain]], Any]


def list_storage(collate: Collate | None = None) -> Storage:
    """Return a storage that keeps each row by itself, so that leaves may differ in length.

    Rows are like the example in their entries, dtypes and numbers of axes. `Buffer.add` also takes
    a list of them; each is copied. The state is a plain dict whose ``storage`` is a list of rows,
    so everything runs on the host: not inside ``torch.vmap`` or ``torch.compile``.

    Args:
        collate: makes a batch of a list of rows (of slices, time first); by default they are
            stacked, for which the drawn ones must agree in shape. ``list`` returns them one by
            one; they are the buffer's own, not to be written.

    Raises:
        ShapeError: from `Buffer.sample`, drawn rows of different shapes cannot be stacked.
        BufferError: inside ``torch.vmap`` or ``torch.compile``.

    >>> import purerl as prl
    >>> example = {"tokens": torch.zeros(0, dtype=torch.int64)}
    >>> buffer = prl.replay.ring(4, example, storage=list_storage(collate=list))
    >>> state = buffer.add(buffer.init(), [{"tokens": torch.arange(n)} for n in (2, 3)])
    >>> [row["tokens"] for row in buffer.sample(state, prl.random.key(0), 2)[0]]
    [tensor([0, 1, 2]), tensor([0, 1, 2])]
    """
    return Storage(
        allocate=_allocate,
        specs=lambda layout: [],
        rows=_rows,
        write=_write,
        read=partial(_read, _stack if collate is None else collate),
        check=_check,
        copy=_copy,
        ragged=True,
    )


def _check(layout: Layout) -> None:
    if layout.num_envs != 1:
        raise ConfigError(f"num_envs is {layout.num_envs}, expected 1 for rows in a list")


def _allocate(layout: Layout, specs: Tree, like: Tensor | None) -> Tree:
    _require_host()
    return allocate(layout, specs, like)


def _require_host() -> None:
    if not host.readable():
        raise BufferError("rows in a list live on the host: not in torch.vmap or torch.compile")


def _copy(memory: Plain) -> Plain:
    # rows themselves are never written
    kept = list(memory["storage"])
    return tree.clone({**memory, "storage": []}) | {"storage": kept}


def _rows(layout: Layout, batch: Tree) -> tuple[list[Plain], int]:
    _require_host()
    if isinstance(batch, Sequence):
        rows = [_row(item, layout.example, f"batch[{i}]") for i, item in enumerate(batch)]
        if not rows:
            raise ShapeError("batch is empty, expected at least one row")
        return rows, len(rows)
    together, count = batch_rows(layout, batch)
    leaves, rebuild = tree.flatten(together)
    # one copy of the batch, of which each row is a view
    columns = [leaf.clone().unbind(0) for leaf in leaves]
    return [rebuild(row) for row in zip(*columns, strict=True)], count


def _row(found: Any, example: Plain, path: str) -> Plain:
    """Return a copy of one row, checked against the example but for its lengths."""
    found = nested(found, path)
    require_names(found, example, path)
    row: Plain = {}
    for name, wanted in example.items():
        where, leaf = f"{path}.{name}", found[name]
        if isinstance(wanted, dict):
            row[name] = _row(leaf, wanted, where)
            continue
        require_like(leaf, wanted, where)
        if leaf.ndim != wanted.ndim:
            raise ShapeError(
                f"{where} has shape {list(leaf.shape)}, expected {wanted.ndim} dimension(s)"
            )
        row[name] = leaf.detach().clone()
    return row


def _write(layout: Layout, s: Plain, added: Added) -> None:
    stored: list[Plain] = s["storage"]
    for slot, row in zip(added.slots.numbers().tolist(), added.kept, strict=True):
        while len(stored) <= slot:
            stored.append({})
        stored[slot] = row


def _read(
    collate: Collate,
    layout: Layout,
    s: Plain,
    index: Tensor,
    fields: tuple[str, ...] | None = None,
) -> tuple[Any, Tensor | None]:
    _require_host()
    stored: list[Plain] = s["storage"]
    rows = [stored[slot] for slot in index.reshape(-1).tolist()]
    mask = field(rows, "mask").reshape(index.shape) if "mask" in layout.example else None
    if fields is not None:
        rows = [{name: row[name] for name in fields} for row in rows]
    batch = collate(rows)
    if collate is _stack and index.ndim > 1:
        batch = tree.map(lambda leaf: leaf.reshape(index.shape + leaf.shape[1:]), batch)
    return batch, mask


def _stack(rows: list[Plain]) -> Plain:
    leaves = [tree.leaves(row) for row in rows]
    _, rebuild = tree.flatten(rows[0])
    columns = zip(tree.paths(rows[0]), zip(*leaves, strict=True), strict=True)
    return rebuild([_stack_leaf(path, column) for path, column in columns])


def _stack_leaf(path: str, column: tuple[Tensor, ...]) -> Tensor:
    try:
        return torch.stack(column)
    except RuntimeError as error:
        shapes = sorted({tuple(leaf.shape) for leaf in column})
        raise ShapeError(
            f"the drawn rows have {path} of shapes {', '.join(str(list(s)) for s in shapes)}, "
            "expected one shape; pass list_storage(collate=list), or a function that pads"
        ) from error
