"""The state of a replay buffer, and what its parts know of its shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorClass, TensorDict
from torch import Tensor

from .. import tree
from ..errors import ConfigError, did_you_mean
from ..types import Scalar, Tree

Plain = dict[str, Any]


class ReplayState(TensorClass):
    """Everything a replay buffer is, as leaves.

    ``storage``, ``index`` and ``written`` are memory that `Buffer.add` and its like write in
    place; the rest is new with every call. Every function takes the fields as a plain dict too,
    and then answers in plain dicts, which spares a hot loop the containers.
    """

    storage: TensorDict
    """The rows, ``[capacity, …]``."""
    index: TensorDict
    """What the sampler keeps for each row: priorities, lengths of episodes."""
    written: Tensor
    """int64 ``[3]``: cursor, num_rows and version of the last write to this memory."""
    cursor: Tensor
    """int64, where the next row goes."""
    num_rows: Tensor
    """int64, rows that can be drawn."""
    version: Tensor
    """int64, writes so far; below that in ``written``, the state was donated."""
    sampler: TensorDict
    """What the sampler remembers between draws: the order of an epoch."""
    hparams: TensorDict
    """Numbers that may change between calls; see `with_hparams`."""


class Info(NamedTuple):
    """What is known of the rows of a sample; every field but ``sampler`` has one entry a row."""

    index: Tensor  # type: ignore[assignment]  # the method of a tuple is not missed
    """int64, the slot of each row."""
    probability: Tensor
    """float64, of drawing this row at each draw."""
    weight: Tensor
    """float64, importance weight; 1 unless rows are drawn by priority."""
    mask: Tensor
    """bool, False where the row is none: padding, or there was nothing to draw."""
    sampler: Plain
    """What the sampler remembers after this draw; see `Buffer.advance`."""


@dataclass(frozen=True)
class Spec:
    """A piece of memory to allocate."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    fill: float = 0


class Layout(NamedTuple):
    """The static shape of a ring."""

    capacity: int
    num_envs: int
    """Rows of one time step; the successor of row i is row i + num_envs."""
    example: Plain
    device: torch.device
    debug: bool


def plain(value: Tree) -> Plain:
    """Return a state, batch or example as nested plain dicts over the same tensors."""
    return value if isinstance(value, dict) else tree.to_dict(value)


def each(function: Callable[..., Any], rows: Plain, *others: Plain) -> Plain:
    """Return `tree.map` of nested plain dicts, by name, in a fraction of its time."""
    return {
        name: each(function, leaf, *(other[name] for other in others))
        if isinstance(leaf, dict)
        else function(leaf, *(other[name] for other in others))
        for name, leaf in rows.items()
    }


def pack(s: Plain, batch_size: Sequence[int] = ()) -> ReplayState:
    """Return a plain state as a `ReplayState`."""
    fields = {
        name: tree.from_dict(value, batch_size) if isinstance(value, dict) else value
        for name, value in s.items()
    }
    return ReplayState(**fields, batch_size=list(batch_size))


def like(original: Tree, s: Plain) -> Any:
    """Return a plain state in the container of the one that it came from."""
    return s if isinstance(original, dict) else pack(s, original.batch_size)


def with_hparams(state: Any, values: Mapping[str, Scalar]) -> Any:
    """Return a state with other numbers, such as the β of a schedule or the γ of a sweep.

    Args:
        state: a solo state; it stays as it is, and shares its memory with the result.
        values: numbers or 0-d tensors by the name of a leaf of ``state.hparams``.

    Raises:
        ConfigError: a name that this buffer has no use for.

    >>> import purerl as prl
    >>> sampler = prl.replay.prioritized(beta=0.4)
    >>> buffer = prl.replay.ring(4, {"reward": torch.zeros(())}, sampler=sampler)
    >>> with_hparams(buffer.init(), {"beta": 1.0}).hparams["beta"]
    tensor(1., dtype=torch.float64)
    """
    s = plain(state)
    known = s["hparams"]
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown hyperparameter {name}{did_you_mean(name, known)}")
    changed = {
        name: torch.as_tensor(value, dtype=known[name].dtype, device=known[name].device)
        for name, value in values.items()
    }
    return like(state, s | {"hparams": known | changed})
