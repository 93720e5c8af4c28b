"""The tree knows the sum and the extremes of its leaves, whatever happened before."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from purerl import random
from purerl.replay import sum_tree

F64 = torch.float64
CAPACITIES = [1, 2, 31, 32, 33, 100, 1000, 1024, 1025, 5000]


def built(leaves: Tensor) -> Tensor:
    nodes = torch.zeros(sum_tree.num_nodes(len(leaves)), dtype=F64)
    sum_tree.update(nodes, len(leaves), torch.arange(len(leaves)), leaves, sum_tree.pairwise_sum)
    return nodes


def positive(seed: int, count: int) -> Tensor:
    """Numbers from 1e-6 to 1e6, some 0."""
    exponent, gate = random.uniform(random.key(seed), (2, count), dtype=F64)
    return torch.where(gate < 0.2, torch.zeros_like(gate), 10.0 ** (12 * exponent - 6))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_levels_cover_the_leaves(capacity: int) -> None:
    levels = sum_tree.levels(capacity)
    assert levels[0].start == 0
    assert levels[0].size >= capacity
    assert levels[-1].size == 32
    for below, above in itertools.pairwise(levels):
        assert above.start == below.start + below.size
        assert above.size >= below.size // 32 > 0
    assert sum_tree.num_nodes(capacity) <= math.ceil(capacity * 33 / 32) + 32 * len(levels) + 32


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_root_is_the_sum_within_log2_of_the_capacity_roundings(capacity: int) -> None:
    leaves = positive(capacity, capacity)
    found = float(sum_tree.root(built(leaves), capacity, sum_tree.pairwise_sum))
    exact = math.fsum(leaves.tolist())
    assert abs(found - exact) <= math.ceil(math.log2(capacity)) * 2**-53 * exact


@pytest.mark.parametrize("capacity", [1, 33, 1000, 2500])
@pytest.mark.parametrize("batch", [1, 7, 300])
def test_nodes_depend_on_the_leaves_and_not_on_their_history(capacity: int, batch: int) -> None:
    """Every update leaves the very bits of a tree that is built from its leaves at once."""
    nodes, leaves = built(torch.zeros(capacity, dtype=F64)), torch.zeros(capacity, dtype=F64)
    for step in range(30):
        size = min(batch, capacity)
        slot = random.permutation(random.fold_in(random.key(1), step), capacity)[:size]
        new = positive(step, size)
        leaves[slot] = new
        sum_tree.update(nodes, capacity, slot, new, sum_tree.pairwise_sum)
        assert torch.equal(nodes, built(leaves))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_maximum_of_any_columns_is_exact(capacity: int) -> None:
    nodes = torch.full((sum_tree.num_nodes(capacity), 2), -math.inf, dtype=F64)
    leaves = random.normal(random.key(0), (capacity, 2), dtype=F64)
    for part in torch.arange(capacity).split(3):
        sum_tree.update(nodes, capacity, part, leaves[part], sum_tree.largest)
    assert torch.equal(sum_tree.root(nodes, capacity, sum_tree.largest), leaves.amax(0))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_find_is_the_first_leaf_whose_running_sum_exceeds(capacity: int) -> None:
    """On whole numbers every sum is exact, so a flat running sum is the answer."""
    leaves = random.randint(random.key(capacity), (capacity,), 0, 4).to(F64)
    leaves[-1] = 1.0
    running = leaves.cumsum(0)
    mass = torch.arange(int(running[-1]) * 2, dtype=F64) / 2
    expected = torch.searchsorted(running, mass, right=True)
    assert torch.equal(sum_tree.find(built(leaves), capacity, mass), expected)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_the_only_positive_leaf_is_always_found(capacity: int, where: str) -> None:
    leaves = torch.zeros(capacity, dtype=F64)
    only = {"first": 0, "middle": capacity // 2, "last": capacity - 1}[where]
    leaves[only] = 0.1
    nodes = built(leaves)
    mass = torch.tensor([0.0, 0.05, math.nextafter(0.1, 0.0), 0.1, 0.2], dtype=F64)
    assert sum_tree.find(nodes, capacity, mass).tolist() == [only] * 5


def test_a_leaf_of_zero_is_never_found_though_sums_round() -> None:
    """Masses at and around every running sum, where rounding may step over a leaf."""
    for seed in range(20):
        leaves = positive(seed, 700)
        nodes = built(leaves)
        total = sum_tree.root(nodes, 700, sum_tree.pairwise_sum)
        edge = leaves.cumsum(0)
        up, down = (torch.nextafter(edge, torch.tensor(x, dtype=F64)) for x in (math.inf, 0.0))
        mass = torch.cat([edge, up, down, total.reshape(1), torch.zeros(1, dtype=F64)])
        found = sum_tree.find(nodes, 700, mass.clamp(max=float(total)))
        assert bool((leaves[found] > 0).all())


def test_nothing_is_found_in_range_of_an_empty_tree() -> None:
    for capacity in CAPACITIES:
        nodes = built(torch.zeros(capacity, dtype=F64))
        assert sum_tree.find(nodes, capacity, torch.zeros(3, dtype=F64)).tolist() == [0, 0, 0]
