"""Rows drawn alike: independently, or each once in an epoch."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from .. import random
from ..errors import BufferError
from ..types import Key
from . import host
from .sampler import Sampler
from .slots import uniform_slots
from .state import Info, Layout, Plain


def uniform() -> Sampler:
    """Return a sampler that draws every stored row with the same probability, with replacement.

        index = floor(num_rows · bits(key, [batch_size]) / 2³²)

    The bits are those of `random.bits`; each row's probability is off by less than
    num_rows / 2³² of itself.

    >>> import purerl as prl
    >>> buffer = prl.replay.ring(8, {"x": torch.tensor(0)}, sampler=uniform())
    >>> state = buffer.add(buffer.init(), {"x": torch.arange(5)})
    >>> buffer.sample(state, prl.random.key(0), 4)[0]["x"]
    tensor([4, 4, 1, 2])
    """
    return Sampler(_draw)


def _draw(layout: Layout, s: Plain, key: Key, batch_size: int) -> Info:
    total = s["num_rows"]
    return alike(uniform_slots(key, batch_size, total), total, {})


def alike(index: Tensor, total: Tensor, sampler: Plain) -> Info:
    """Return what is known of rows that had the same chance."""
    weight = torch.ones_like(index, dtype=torch.float64)
    # the draw from nothing is 0, which is not below 0
    return Info(index, weight / total.clamp(min=1), weight, index < total, sampler)


def without_replacement(*, drop_last: bool = False) -> Sampler:
    """Return a sampler that goes through the stored rows in epochs, each row once in an epoch.

    An epoch is a fresh permutation of the rows that are stored when it begins: at the first
    draw, at the first draw after rows were added, and when the last one is used up. The position
    in it moves only by ``state = buffer.advance(state, info)``: a draw itself changes nothing.
    The key is used where an epoch begins.

    At the end of an epoch fewer than ``batch_size`` rows are left. Sizes are static, so the batch
    is filled up by a row again, with ``info.mask`` False.

    Args:
        drop_last: begin the next epoch instead.

    Under ``torch.vmap`` and ``torch.compile`` each draw pays for a permutation of the capacity.

    >>> import purerl as prl
    >>> buffer = prl.replay.ring(8, {"x": torch.tensor(0)}, sampler=without_replacement())
    >>> state = buffer.add(buffer.init(), {"x": torch.arange(5)})
    >>> for key in prl.random.split(prl.random.key(0)):
    ...     batch, info = buffer.sample(state, key, 3)
    ...     state = buffer.advance(state, info)
    ...     print(batch["x"], info.mask)
    tensor([2, 0, 3]) tensor([True, True, True])
    tensor([4, 1, 1]) tensor([ True,  True, False])
    """
    return Sampler(partial(_draw_next, drop_last), init=_before_the_first_epoch)


def _before_the_first_epoch(layout: Layout) -> Plain:
    order = torch.arange(layout.capacity, device=layout.device)
    return {"order": order, "position": order.new_zeros(()), "epoch": order.new_full((), -1)}


def _draw_next(drop_last: bool, layout: Layout, s: Plain, key: Key, batch_size: int) -> Info:
    total, before = s["num_rows"], s["sampler"]
    position, needed = before["position"], batch_size if drop_last else 1
    over = (before["epoch"] != s["version"]) | (position + needed > total)
    if drop_last and host.readable_at_once(layout.device) and int(total) < batch_size:
        raise BufferError(
            f"batch_size is {batch_size}, expected at most the {int(total)} stored rows "
            "where the last batch of an epoch is dropped"
        )
    if host.readable_at_once(layout.device):
        order = _shuffled(key, layout, total) if over else before["order"]
    else:
        order = torch.where(over, _shuffled(key, layout, total), before["order"])
    position = torch.where(over, 0, position)
    rank = position + torch.arange(batch_size, device=layout.device)
    index = order.index_select(0, torch.minimum(rank, total - 1).clamp(min=0))
    after = {"order": order, "position": position + batch_size, "epoch": s["version"]}
    mask = rank < total
    if drop_last:
        mask = mask & (position + batch_size <= total)
    return alike(index, total, after)._replace(mask=mask)


def _shuffled(key: Key, layout: Layout, total: Tensor) -> Tensor:
    """Return the slots in a random order, those that hold a row first, int64 ``[capacity]``."""
    slots = torch.arange(layout.capacity, device=layout.device)
    # 63 random bits: ties, which would favour the order of the slots, do not happen
    sort_key = random.bits(key, (layout.capacity,), width=64) >> 1
    last = torch.iinfo(torch.int64).max
    return torch.where(slots < total, sort_key, last).argsort(stable=True)
