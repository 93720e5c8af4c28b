"""A ring on memory-mapped files: larger than memory, and still there in the next process."""

from __future__ import annotations

import json
import math
import os
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from .. import check, tree
from ..errors import BufferError, ConfigError
from ..types import Tree
from . import host
from .rows import batch_rows
from .state import Layout, Spec
from .storage import Storage, read_rows, row_specs, write_rows

Mode = Literal["create", "read_write", "read_only"]

_MANIFEST = "ring.json"
_FORMAT = 1


def memmap_storage(directory: str | os.PathLike[str], mode: Mode = "create") -> Storage:
    """Return a storage of one memory-mapped file for each leaf.

    Everything that a write changes lives in the files, the cursor and what the sampler keeps for
    each row too: `Buffer.init` with another mode than "create" returns the ring as the last write
    left it, whatever became of the process. (Power loss is another matter: nothing waits for the
    disk.) Files are sparse; the disk is taken as rows come. One process writes at a time.

    ``ring.json`` says which file is which leaf; no file is trusted for its size.

    Args:
        directory: of the files.
        mode: "create" makes the directory, and refuses one that holds a ring; "read_write" and
            "read_only" open one. What another process writes later may show in a read-only ring.

    Raises:
        ConfigError: an unknown mode; from `ring`, an example that is not on the CPU.
        BufferError: from `Buffer.init`, the directory holds a ring, or none, or another one, or a
            file has another length. From writes, the ring is read-only.

    >>> import tempfile
    >>> import purerl as prl
    >>> example, directory = {"x": torch.tensor(0)}, tempfile.mkdtemp()
    >>> buffer = prl.replay.ring(4, example, storage=memmap_storage(directory))
    >>> _ = buffer.add(buffer.init(), {"x": torch.arange(6)})
    >>> again = prl.replay.ring(4, example, storage=memmap_storage(directory, "read_only"))
    >>> again.init().storage["x"]
    tensor([4, 5, 2, 3])
    """
    check.option("mode", mode, ("create", "read_write", "read_only"))
    return Storage(
        allocate=partial(_map, Path(directory), mode),
        specs=row_specs,
        rows=batch_rows,
        write=write_rows,
        read=read_rows,
        check=_check,
        read_only=mode == "read_only",
    )


def _check(layout: Layout) -> None:
    if layout.device.type != "cpu":
        raise ConfigError(f"example is on {layout.device}, expected cpu for memory-mapped rows")


def _map(directory: Path, mode: Mode, layout: Layout, specs: Tree, like: Tensor | None) -> Tree:
    if host.transformed():
        raise BufferError("init() of memory-mapped rows inside torch.vmap: one file has one ring")
    leaves: list[Any] = tree.leaves(specs)
    wanted: dict[str, Spec] = dict(zip(tree.paths(specs), leaves, strict=True))
    described = _describe(layout, wanted)
    files = {path: directory / f"{i:03}.bin" for i, path in enumerate(wanted)}
    if mode == "create":
        _create(directory, wanted, files)
    else:
        _require_same(directory, described)
        _require_lengths(wanted, files)
    shared = mode != "read_only"
    tensors = [_mapped(files[path], spec, shared) for path, spec in wanted.items()]
    if mode == "create":
        for spec, tensor in zip(wanted.values(), tensors, strict=True):
            if spec.fill:
                tensor.fill_(spec.fill)
        _write_manifest(directory, described)
    return tree.flatten(specs)[1](tensors)


def _bytes(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize


def _describe(layout: Layout, specs: dict[str, Spec]) -> dict[str, Any]:
    leaves = {path: [str(spec.dtype), list(spec.shape)] for path, spec in specs.items()}
    return {"format": _FORMAT, "num_envs": layout.num_envs, "leaves": leaves}


def _create(directory: Path, specs: dict[str, Spec], files: dict[str, Path]) -> None:
    if (directory / _MANIFEST).exists():
        raise BufferError(f"{directory} holds a ring, expected none; open it, or remove it first")
    directory.mkdir(parents=True, exist_ok=True)
    for path, spec in specs.items():
        with files[path].open("wb") as file:  # what an interrupted creation may have left is gone
            file.truncate(_bytes(spec))


def _write_manifest(directory: Path, described: dict[str, Any]) -> None:
    # last, and by a rename: a directory without it is no ring
    temporary = directory / f"{_MANIFEST}.new"
    temporary.write_text(json.dumps(described, indent=1))
    temporary.replace(directory / _MANIFEST)


def _require_same(directory: Path, described: dict[str, Any]) -> None:
    path = directory / _MANIFEST
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise BufferError(f"{directory} holds no ring, expected {_MANIFEST}") from None
    except ValueError as error:
        raise BufferError(f"{path} is not readable: {error}") from error
    if found == described:
        return
    if not isinstance(found, dict) or found.keys() != described.keys():
        raise BufferError(f"{path} does not describe a ring")
    for name in ("format", "num_envs"):
        if found[name] != described[name]:
            raise BufferError(f"{path}: {name} is {found[name]}, expected {described[name]}")
    have, want = found["leaves"], described["leaves"]
    for leaf in sorted({*have, *want}):
        if have.get(leaf) != want.get(leaf):
            raise BufferError(
                f"{path}: {leaf} is {_shown(have, leaf)}, expected {_shown(want, leaf)}"
            )
    raise BufferError(f"{path}: the leaves are in another order")


def _shown(leaves: dict[str, Any], leaf: str) -> str:
    return "{} {}".format(*leaves[leaf]) if leaf in leaves else "missing"


def _require_lengths(specs: dict[str, Spec], files: dict[str, Path]) -> None:
    # mapping would lengthen a short file with zeros
    for path, spec in specs.items():
        found = files[path].stat().st_size if files[path].exists() else None
        if found != _bytes(spec):
            raise BufferError(
                f"{files[path]} ({path}) has size {found}, expected {_bytes(spec)} bytes"
            )


def _mapped(file: Path, spec: Spec, shared: bool) -> Tensor:
    size = math.prod(spec.shape)
    if not size:
        return torch.empty(spec.shape, dtype=spec.dtype)
    flat = torch.from_file(str(file), shared=shared, size=size, dtype=spec.dtype)
    return flat.reshape(spec.shape)
