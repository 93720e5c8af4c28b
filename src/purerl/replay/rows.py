"""What comes into a buffer: checked against the example, flat, without gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import tree
from ..errors import ConfigError, ShapeError
from ..types import Tree
from .state import Layout, Plain


def example_rows(example: Tree) -> Plain:
    """Return an example as a plain dict of zeros.

    Raises:
        ConfigError: it holds anything but tensors, or none.
    """
    rows = tree.to_dict(nested(example, "example"))
    leaves = tree.leaves(rows)
    for path, leaf in zip(tree.paths(rows), leaves, strict=True):
        if not isinstance(leaf, Tensor):
            raise ConfigError(f"example.{path} is a {type(leaf).__name__}, expected a tensor")
    if not leaves:
        raise ConfigError("example is empty, expected at least one leaf")
    return tree.map(lambda leaf: torch.zeros_like(leaf), rows)


def nested(value: Tree, name: str) -> Plain:
    """Return a TensorDict, TensorClass or dict as a dict."""
    if isinstance(value, dict):
        return value
    if not hasattr(value, "items"):
        raise ShapeError(f"{name} is a {type(value).__name__}, expected a TensorDict or dict")
    return tree.to_dict(value)


def batch_rows(layout: Layout, batch: Tree) -> tuple[Plain, int]:
    """Return a batch ``[*N, …]`` as plain rows ``[n, …]``, n the product of N, and n.

    Raises:
        ShapeError: a leaf is missing, unknown, or of another shape, dtype or device.
    """
    leads: dict[str, torch.Size] = {}
    rows = _flat(batch, layout.example, "batch", leads)
    (first, lead), *others = leads.items()
    for path, other in others:
        if other != lead:
            raise ShapeError(
                f"{path} has leading shape {list(other)}, expected {list(lead)} as {first}"
            )
    count = math.prod(lead)
    if count == 0:
        raise ShapeError(f"batch has leading shape {list(lead)}, expected at least one row")
    if count % layout.num_envs:
        raise ShapeError(
            f"batch has {count} rows, expected a multiple of num_envs = {layout.num_envs}"
        )
    return rows, count


def _flat(batch: Any, example: Plain, path: str, leads: dict[str, torch.Size]) -> Plain:
    """Return the rows of a nested batch, and write the leading shape of each leaf to ``leads``."""
    batch = nested(batch, path)
    require_names(batch, example, path)
    rows: Plain = {}
    for name, wanted in example.items():
        where, found = f"{path}.{name}", batch[name]
        if isinstance(wanted, dict):
            rows[name] = _flat(found, wanted, where, leads)
            continue
        require_like(found, wanted, where)
        split = found.ndim - wanted.ndim
        if split < 0 or found.shape[split:] != wanted.shape:
            row = ", ".join(map(str, ("...", *wanted.shape)))
            raise ShapeError(f"{where} has shape {list(found.shape)}, expected [{row}]")
        leads[where] = lead = found.shape[:split]
        found = found.detach()
        rows[name] = found if split == 1 else found.reshape(math.prod(lead), *wanted.shape)
    return rows


def require_names(found: Plain, wanted: Plain, path: str) -> None:
    """Raise `ShapeError` naming an entry that is missing or unknown."""
    if found.keys() == wanted.keys():
        return
    for name in wanted:
        if name not in found:
            raise ShapeError(f"{path}.{name} is missing")
    for name in found:
        if name not in wanted:
            raise ShapeError(f"{path}.{name} is not expected; known: {', '.join(wanted)}")


def require_like(found: Any, wanted: Tensor, path: str) -> None:
    """Raise `ShapeError` unless a leaf is a tensor of the dtype and on the device of another."""
    if not isinstance(found, Tensor):
        raise ShapeError(f"{path} is a {type(found).__name__}, expected a tensor")
    if found.dtype != wanted.dtype:
        raise ShapeError(f"{path} has dtype {found.dtype}, expected {wanted.dtype}")
    if found.device != wanted.device:
        raise ShapeError(f"{path} is on {found.device}, expected {wanted.device}")


def newest(rows: Any, skipped: int) -> Any:
    """Return rows without the first ones."""
    if not skipped:
        return rows
    return rows[skipped:] if isinstance(rows, list) else tree.map(lambda leaf: leaf[skipped:], rows)


def field(rows: Plain | list[Plain], name: str) -> Tensor:
    """Return one field of rows, ``[n, …]``, also of a list of them."""
    if isinstance(rows, dict):
        return rows[name]
    return torch.stack([row[name] for row in rows])


def any_ring(layout: Layout) -> None:
    """Find nothing wrong with a ring."""


def require_column(part: str, layout: Layout, name: str, *, flag: bool) -> None:
    """Raise `ConfigError` unless the example has a field of one number, or one flag, a row."""
    leaf = layout.example.get(name)
    if not isinstance(leaf, Tensor):
        raise ConfigError(
            f"{part} needs the field {name}; the example has {', '.join(layout.example)}"
        )
    fits = leaf.dtype is torch.bool if flag else leaf.is_floating_point()
    if leaf.ndim or not fits:
        wanted = "torch.bool" if flag else "a floating dtype"
        raise ConfigError(
            f"example.{name} is {leaf.dtype} {list(leaf.shape)}, expected {wanted} []"
        )
