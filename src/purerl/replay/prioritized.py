"""Rows drawn in proportion to their priorities, and the weights that undo the bias.

Schaul, Quan, Antonoglou and Silver 2016, "Prioritized experience replay", equations 1 and 3.4.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from .. import check, random
from ..errors import BufferError, ConfigError
from ..types import Key
from . import host, sum_tree
from .ring import Buffer
from .sampler import Sampler, nothing
from .slots import Added
from .state import Info, Layout, Plain, Spec, plain

Normalize = Literal["buffer", "batch"]
NewPriority = Literal["live_max", "historic_max"]


def prioritized(
    *,
    alpha: float = 0.6,
    beta: float = 0.4,
    normalize: Normalize = "buffer",
    new_priority: NewPriority = "live_max",
) -> Sampler:
    """Return a sampler that draws rows in proportion to a power of their priority.

        leaf_i = p_i^α;   P_i = leaf_i / Σ leaf
        w_i = (n P_i)^{−β} / max_j (n P_j)^{−β} = (min_j leaf_j / leaf_i)^β

    p is the raw priority of `Buffer.update_priority`, and α is applied to it once. A row of
    priority 0, or whose ``mask`` is False, is never drawn. α = 0 draws all others alike. The sum
    is float64 and exact within log₂(capacity) roundings after any history.

    Args:
        alpha: α ≥ 0; the leaf ``alpha`` of ``state.hparams``, which priorities set later obey.
        beta: β in [0, 1]; the leaf ``beta``: a schedule sets it by `with_hparams`.
        normalize: take the largest weight over the rows of positive priority in the buffer
            (Schaul et al.), or over the batch (cpprb, Dopamine).
        new_priority: what a new row gets: the largest raw priority in the buffer, or the largest
            ever given, which never decays (baselines, cpprb); 1 where there is none.

    Raises:
        ConfigError: a value out of range.

    >>> import purerl as prl
    >>> buffer = prl.replay.ring(
    ...     2, {"x": torch.tensor(0)}, sampler=prioritized(alpha=1.0, beta=1.0)
    ... )
    >>> state = buffer.add(buffer.init(), {"x": torch.arange(2)})
    >>> state = buffer.update_priority(state, torch.arange(2), torch.tensor([1.0, 3.0]))
    >>> _, info = buffer.sample(state, prl.random.key(1), 3)
    >>> info.index, info.probability, info.weight
    (tensor([0, 1, 1]), tensor([0.2500, 0.7500, 0.7500], dtype=torch.float64),
     tensor([1.0000, 0.3333, 0.3333], dtype=torch.float64))
    """
    if not alpha >= 0.0:
        raise ConfigError(f"alpha is {alpha}, expected a number of at least 0")
    if not 0.0 <= beta <= 1.0:
        raise ConfigError(f"beta is {beta}, expected a number in [0, 1]")
    check.option("normalize", normalize, ("buffer", "batch"))
    check.option("new_priority", new_priority, ("live_max", "historic_max"))
    historic = new_priority == "historic_max"
    return Sampler(
        draw=partial(_draw, normalize),
        specs=_specs,
        init=_init_historic if historic else nothing,
        add=_add,
        update_priority=_update,
        hparams={"alpha": alpha, "beta": beta},
    )


def index_from_uniform(buffer: Buffer, state: Any, uniform: Tensor) -> Tensor:
    """Return the slots that numbers in [0, 1) stand for, by the inverse of the running sum.

        the first slot whose running sum of leaves exceeds u · Σ leaf

    Args:
        buffer: a ring with a `prioritized` sampler.
        state: a solo state of it.
        uniform: float64 ``[B]``.

    Returns:
        int64 ``[B]``.

    Raises:
        ConfigError: the ring draws without priorities.

    >>> import purerl as prl
    >>> buffer = prl.replay.ring(3, {"x": torch.tensor(0)}, sampler=prioritized(alpha=1.0))
    >>> state = buffer.add(buffer.init(), {"x": torch.arange(3)})
    >>> state = buffer.update_priority(state, torch.arange(3), torch.tensor([0.0, 1.0, 3.0]))
    >>> index_from_uniform(buffer, state, torch.tensor([0.0, 0.2, 0.3], dtype=torch.float64))
    tensor([1, 1, 2])
    """
    s = plain(state)
    if "leaf" not in s["index"]:
        raise ConfigError("index_from_uniform needs the sampler replay.prioritized()")
    return sum_tree.find(s["index"]["leaf"], buffer.capacity, uniform * _total(buffer.layout, s))


def _specs(layout: Layout) -> Plain:
    size = sum_tree.num_nodes(layout.capacity)
    return {
        "leaf": Spec((size,), torch.float64),
        # the largest priority, and minus the smallest positive leaf
        "extreme": Spec((size, 2), torch.float64, -math.inf),
    }


def _init_historic(layout: Layout) -> Plain:
    return {"largest_priority": torch.zeros((), dtype=torch.float64, device=layout.device)}


def _total(layout: Layout, s: Plain) -> Tensor:
    return sum_tree.root(s["index"]["leaf"], layout.capacity, sum_tree.pairwise_sum)


def _extremes(layout: Layout, s: Plain) -> tuple[Tensor, Tensor]:
    """Return the largest priority and the smallest positive leaf."""
    root = sum_tree.root(s["index"]["extreme"], layout.capacity, sum_tree.largest)
    priority, minus_leaf = root.unbind(0)
    return priority, -minus_leaf


def _draw(normalize: Normalize, layout: Layout, s: Plain, key: Key, batch_size: int) -> Info:
    leaves, total = s["index"]["leaf"], _total(layout, s)
    if host.readable_at_once(layout.device) and not float(total) > 0.0:
        raise BufferError("cannot sample: every priority is 0, expected a positive one")
    uniform = random.uniform(key, (batch_size,), dtype=torch.float64)
    index = sum_tree.find(leaves, layout.capacity, uniform * total)
    leaf = leaves.index_select(0, index)
    drawn = leaf > 0
    one = torch.ones_like(leaf)
    smallest = leaf.amin() if normalize == "batch" else _extremes(layout, s)[1]
    weight = (smallest / torch.where(drawn, leaf, one)) ** s["hparams"]["beta"]
    return Info(
        index=index,
        probability=leaf / torch.where(total > 0, total, 1.0),
        weight=torch.where(drawn, weight, torch.zeros_like(weight)),
        mask=drawn,
        sampler={},
    )


def _add(layout: Layout, s: Plain, added: Added) -> None:
    if "largest_priority" in s["sampler"]:
        largest = s["sampler"]["largest_priority"]
    else:
        largest, _ = _extremes(layout, s)
    priority = torch.where(largest > 0, largest, 1.0).expand(added.slots.num_rows)
    if added.mask is not None:
        priority = torch.where(added.mask, priority, 0.0)
    _set(layout, s, added.slots.numbers(), priority)


def _update(layout: Layout, s: Plain, index: Tensor, priority: Tensor) -> Plain:
    slot, order = _last_of_each(index)
    priority = priority.to(torch.float64)[order]
    sensible = (priority > 0) & (priority < math.inf)
    stored = (slot >= 0) & (slot < s["num_rows"])
    priority = torch.where(sensible & stored, priority, 0.0)
    _set(layout, s, slot, priority)
    if "largest_priority" not in s["sampler"]:
        return s
    largest = torch.maximum(s["sampler"]["largest_priority"], priority.amax())
    return s | {"sampler": {"largest_priority": largest}}


def _last_of_each(index: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sorted slots, and for each of them the last place at which it was given.

    All entries of a slot then carry one value, so the order of writes within a kernel does not
    matter.
    """
    order = index.argsort(stable=True)
    slot = index[order]
    place = torch.arange(len(slot), device=slot.device)
    is_last = torch.cat([slot[1:] != slot[:-1], torch.ones_like(slot[:1], dtype=torch.bool)])
    last = torch.where(is_last, place, len(slot)).flip(0).cummin(0).values.flip(0)
    return slot, order[last]


def _set(layout: Layout, s: Plain, slot: Tensor, priority: Tensor) -> None:
    """Set priorities ≥ 0, in place."""
    leaf = torch.where(priority > 0, priority ** s["hparams"]["alpha"], 0.0)
    extreme = torch.stack((priority, torch.where(leaf > 0, -leaf, -math.inf)), -1)
    nodes, capacity = s["index"], layout.capacity
    sum_tree.update(nodes["leaf"], capacity, slot, leaf, sum_tree.pairwise_sum)
    sum_tree.update(nodes["extreme"], capacity, slot, extreme, sum_tree.largest)
