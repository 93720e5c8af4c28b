"""A tree of sums and of extremes over the leaves of a ring, in place and whole batches at a time.

A node has 32 children. All levels lie in one tensor, the leaves first, each level padded with
leaves of nothing to a multiple of 32, the last one of 32 nodes: so any capacity will do. A node
is always computed from its children, never by adding a difference, so it depends on the leaves
alone and not on their history: sums do not drift.

Children are added pairwise, so a sum over 2^k leaves is within k roundings, and is the same on
every device and under ``torch.vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

_CHILDREN = 32


class Level(NamedTuple):
    """Where a level lies in the tensor of nodes."""

    start: int
    size: int

    def of(self, nodes: Tensor) -> Tensor:
        """Return the nodes of this level by their parents, ``[size / 32, 32, …]``."""
        shape = (self.size // _CHILDREN, _CHILDREN, *nodes.shape[1:])
        return nodes.narrow(0, self.start, self.size).view(shape)


def levels(capacity: int) -> list[Level]:
    """Return the levels of a tree over ``capacity`` leaves, the leaves first.

    >>> levels(100)
    [Level(start=0, size=128), Level(start=128, size=32)]
    """
    found, start, size = [], 0, capacity
    while True:
        size = -(-size // _CHILDREN) * _CHILDREN
        found.append(Level(start, size))
        if size == _CHILDREN:
            return found
        start, size = start + size, size // _CHILDREN


def num_nodes(capacity: int) -> int:
    """Return the length of the tensor of all nodes."""
    last = levels(capacity)[-1]
    return last.start + last.size


def pairwise_sum(children: Tensor) -> Tensor:
    """Return Σ over axis 1 of ``[n, 32]``, in halves.

    >>> pairwise_sum(torch.ones(2, 32))
    tensor([32., 32.])
    """
    while children.shape[1] > 1:
        left, right = children.chunk(2, 1)
        children = left + right
    return children.squeeze(1)


def largest(children: Tensor) -> Tensor:
    """Return the maximum over axis 1 of ``[n, 32, …]``."""
    return children.amax(1)


def update(
    nodes: Tensor, capacity: int, slot: Tensor, leaf: Tensor, combine: Callable[[Tensor], Tensor]
) -> None:
    """Set leaves, and recompute the nodes above them, in place.

    Args:
        nodes: ``[num_nodes(capacity), …]``.
        capacity: the number of leaves.
        slot: int64 ``[B]``; a slot that comes twice has the same leaf both times.
        leaf: ``[B, …]``.
        combine: from children to their parent, `pairwise_sum` or `largest`.
    """
    nodes.index_put_((slot,), leaf)
    parent = slot
    for below, above in pairwise(levels(capacity)):
        children = below.of(nodes)
        if _CHILDREN * slot.numel() >= below.size:  # the whole level costs less than picking
            nodes.narrow(0, above.start, children.shape[0]).copy_(combine(children))
            continue
        parent = parent // _CHILDREN
        nodes.index_put_((parent + above.start,), combine(children.index_select(0, parent)))


def root(nodes: Tensor, capacity: int, combine: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum or the maximum of all leaves, ``[…]``."""
    return combine(levels(capacity)[-1].of(nodes))[0]


def find(nodes: Tensor, capacity: int, mass: Tensor) -> Tensor:
    """Return, for each mass, the first leaf at which the running sum of the leaves exceeds it.

    A leaf of 0 is never found while another is positive: where rounding takes a mass to the end
    of a node, its last positive child is the one.

    Args:
        nodes: ``[num_nodes(capacity)]`` of sums.
        capacity: the number of leaves.
        mass: ``[B]``, in [0, sum].

    Returns:
        int64 ``[B]``; 0 in a tree of zeros.
    """
    node = torch.zeros_like(mass, dtype=torch.int64)
    mass = mass.unsqueeze(1)
    for level in reversed(levels(capacity)):
        children = level.of(nodes).index_select(0, node)
        running = children.cumsum(1)
        exceeds = torch.searchsorted(running, mass, right=True)
        last_positive = torch.searchsorted(running, running.amax(1, keepdim=True))
        child = torch.minimum(exceeds, last_positive)
        before = (running - children).gather(1, child)
        mass = (mass - before).clamp(min=0)
        node = node * _CHILDREN + child.squeeze(1)
    return node
