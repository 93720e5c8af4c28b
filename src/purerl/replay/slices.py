"""Stretches of consecutive rows of one episode, for recurrent networks and model learning."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ..config import nearest_divisors
from ..errors import BufferError, ConfigError
from ..types import Key
from . import host
from .rows import field, require_column
from .sampler import Sampler
from .slots import Added, after, next_slots, put, steps_after, take, uniform_slots
from .state import Info, Layout, Plain, Spec


def slices(
    *,
    num_slices: int | None = None,
    slice_len: int | None = None,
    strict: bool = True,
    trajectory: str | None = None,
) -> Sampler:
    """Return a sampler of slices, which cross neither an episode end nor the write head.

    ``sample(state, key, batch_size)`` draws batch_size / slice_len slices and returns leaves
    ``[slice_len, num_slices, …]``, time first. Only the last row of a slice may be done.

    Strict slices are whole, and each possible one has the same probability. Otherwise a slice
    begins at any row, each with the same probability, and where its episode or the stored rows end
    early it is filled up by its last row, with ``info.mask`` False.

    Args:
        num_slices: slices of a batch; or
        slice_len: rows of a slice.
        strict: draw whole slices only.
        trajectory: an integer field that differs between neighbouring episodes; by default
            ``terminated | truncated`` says where one ends. Both are obeyed if both are there.

    Raises:
        ConfigError: not exactly one of num_slices and slice_len; from `ring`, fields are missing;
            from `Buffer.sample`, batch_size is no multiple.
        BufferError: from `Buffer.sample`, no stored episode has slice_len rows.

    A strict draw looks at one number of every row of the ring.

    >>> import purerl as prl
    >>> example = {"x": torch.tensor(0), "episode": torch.tensor(0)}
    >>> buffer = prl.replay.ring(8, example, sampler=slices(slice_len=2, trajectory="episode"))
    >>> rows = {"x": torch.arange(5), "episode": torch.tensor([0, 0, 0, 1, 1])}
    >>> batch, info = buffer.sample(buffer.add(buffer.init(), rows), prl.random.key(0), 6)
    >>> batch["x"]
    tensor([[3, 3, 0],
            [4, 4, 1]])
    """
    if (num_slices is None) == (slice_len is None):
        raise ConfigError("expected exactly one of num_slices and slice_len")
    name, size = ("slice_len", slice_len) if num_slices is None else ("num_slices", num_slices)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigError(f"{name} is {size!r}, expected an integer of at least 1")
    draw = _draw_whole if strict else _draw_padded

    def sizes(batch_size: int) -> tuple[int, int]:
        if batch_size % size:
            near = " or ".join(map(str, nearest_divisors(batch_size, size)))
            raise ConfigError(f"{name} is {size}, expected a divisor of {batch_size}: {near}")
        other = batch_size // size
        return (size, other) if num_slices is None else (other, size)

    return Sampler(
        draw=lambda layout, s, key, batch_size: draw(layout, s, key, *sizes(batch_size)),
        check=partial(_check, trajectory),
        specs=_specs,
        add=partial(_add, trajectory),
    )


def _check(trajectory: str | None, layout: Layout) -> None:
    if trajectory is None:
        require_column("slices", layout, "terminated", flag=True)
        require_column("slices", layout, "truncated", flag=True)
        return
    leaf = layout.example.get(trajectory)
    if not isinstance(leaf, Tensor) or leaf.ndim or leaf.is_floating_point():
        raise ConfigError(
            f"slices need the field {trajectory}, an integer []; "
            f"the example has {', '.join(layout.example)}"
        )


def _specs(layout: Layout) -> Plain:
    return {
        # how many rows of its episode were given, up to and with this one; 0 where a row is none
        "row_of_episode": Spec((layout.capacity,), torch.int64),
        # of the newest row of each environment
        "ended": Spec((layout.num_envs,), torch.bool),
        "trajectory": Spec((layout.num_envs,), torch.int64),
    }


def _add(trajectory: str | None, layout: Layout, s: Plain, added: Added) -> None:
    index, example, num_envs = s["index"], layout.example, layout.num_envs

    def steps(name: str) -> Tensor:
        return field(added.rows, name).reshape(-1, num_envs)

    before = take(
        index["row_of_episode"], next_slots(layout, s, num_envs, skip=-num_envs).numbers()
    )
    t = torch.arange(added.num_rows // num_envs, device=layout.device).unsqueeze(1)
    nowhere = torch.zeros((len(t), num_envs), dtype=torch.bool, device=layout.device)
    has_flags = "terminated" in example and "truncated" in example
    ended = steps("terminated") | steps("truncated") if has_flags else nowhere
    valid = steps("mask") if "mask" in example else ~nowhere
    joined = ~_previous(ended, index["ended"]) & _previous(valid, before > 0)
    if trajectory is not None:
        number = steps(trajectory).to(torch.int64)
        joined = joined & (number == _previous(number, index["trajectory"]))
        index["trajectory"].copy_(number[-1])
    index["ended"].copy_(ended[-1])
    last_begin = torch.where(joined, -1, t).cummax(0).values
    row = torch.where(last_begin >= 0, t - last_begin + 1, before + t + 1)
    row = torch.where(valid, row, 0).reshape(-1)
    put(added.slots, index["row_of_episode"], row[-added.slots.num_rows :])


def _previous(steps: Tensor, before: Tensor) -> Tensor:
    """Return row t − 1 at row t of ``[T, num_envs]``, and what was before at row 0."""
    return torch.cat([before.unsqueeze(0), steps[:-1]])


def _draw_whole(layout: Layout, s: Plain, key: Key, slice_len: int, num_slices: int) -> Info:
    # a slice is known by its last row: the row in which its episode has slice_len rows, or later
    ends = s["index"]["row_of_episode"] >= slice_len
    # but not where its first row was overwritten
    reach = min((slice_len - 1) * layout.num_envs, layout.capacity)
    oldest = s["cursor"] - s["num_rows"] + torch.arange(reach, device=layout.device)
    ends = ends.index_fill(0, oldest % layout.capacity, False)
    running = ends.cumsum(0)
    total = running[-1]
    if host.readable_at_once(layout.device) and not int(total):
        raise BufferError(
            f"cannot sample: slice_len is {slice_len}, expected no more rows than the longest "
            "stretch of one episode that is stored"
        )
    rank = uniform_slots(key, num_slices, total)
    last = torch.searchsorted(running, rank, right=True).clamp(max=layout.capacity - 1)
    back = torch.arange(slice_len, device=layout.device).unsqueeze(1) - (slice_len - 1)
    index = after(layout, last, back)
    chance = 1.0 / total.clamp(min=1).to(torch.float64)
    return _info(index, chance, (rank < total).expand(index.shape))


def _draw_padded(layout: Layout, s: Plain, key: Key, slice_len: int, num_slices: int) -> Info:
    total = s["num_rows"]
    first = uniform_slots(key, num_slices, total)
    ahead = torch.arange(slice_len, device=layout.device).unsqueeze(1)
    window = after(layout, first, ahead)
    row = take(s["index"]["row_of_episode"], window)
    # rows are counted through an episode, so this fails at its end, and for good
    mask = (row == row[0] + ahead) & (row[0] > 0) & (ahead <= steps_after(layout, s, first))
    kept = torch.minimum(ahead, mask.sum(0) - 1).clamp(min=0)
    index = after(layout, first, kept)
    return _info(index, 1.0 / total.clamp(min=1).to(torch.float64), mask & (first < total))


def _info(index: Tensor, chance: Tensor, mask: Tensor) -> Info:
    weight = torch.ones_like(index, dtype=torch.float64)
    return Info(index, weight * chance, weight, mask, {})
