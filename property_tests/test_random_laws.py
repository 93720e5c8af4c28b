"""Laws of keys and draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purerl import random

seeds = st.integers(-(2**63), 2**63 - 1)

DRAWS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "bits": random.bits,
    "uniform": lambda key, shape: random.uniform(key, shape),
    "normal": lambda key, shape: random.normal(key, shape),
    "randint": lambda key, shape: random.randint(key, shape, 0, 7),
    "bernoulli": lambda key, shape: random.bernoulli(key, 0.3, shape),
    "gumbel": lambda key, shape: random.gumbel(key, shape),
    "exponential": lambda key, shape: random.exponential(key, shape),
    "permutation": lambda key, shape: random.permutation(key, 1 + sum(shape)),
}


@pytest.mark.parametrize("name", DRAWS)
@given(seed=seeds, size=st.integers(1, 9))
def test_law_38_same_key_same_bits_and_members_of_a_batch_are_alone(
    name: str, seed: int, size: int
) -> None:
    """Law 38: same key same bits; vmap over keys = stack of single draws; no global generator."""
    draw, key = DRAWS[name], random.key(seed)
    generator = torch.get_rng_state()
    once = draw(key, (size,))
    torch.manual_seed(seed % 1000)
    assert torch.equal(draw(key, (size,)), once)
    torch.set_rng_state(generator)
    keys = random.split(key, 3)
    mapped = torch.vmap(lambda k: draw(k, (size,)))(keys)
    assert torch.equal(mapped, torch.stack([draw(k, (size,)) for k in keys]))
    assert torch.equal(torch.get_rng_state(), generator)


@given(seeds, st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_law_38_children_are_distinct(seed: int, num: int, data: int) -> None:
    """Law 38: children of a split, and of fold_in, differ from each other and from the parent."""
    key = random.key(seed)
    # as in JAX, fold_in(key, i) is child i of a split: two names for one family
    children = [key, *random.split(key, num)]
    assert len({tuple(child.tolist()) for child in children}) == len(children)
    cousins = random.split(children[1], num)
    assert not any(torch.equal(cousins[0], child) for child in children)
    folded = [random.fold_in(key, (data + i) % 2**32) for i in range(3)]
    assert len({tuple(child.tolist()) for child in [key, *folded]}) == 4


@given(seeds, st.integers(1, 20))
def test_law_38_a_permutation_is_one(seed: int, size: int) -> None:
    """Every number once; two keys of one parent give their own orders."""
    key = random.key(seed)
    orders = [random.permutation(k, size) for k in random.split(key, 4)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(size))
    if size > 12:
        assert len({tuple(order.tolist()) for order in orders}) > 1


@given(seeds, st.floats(-100, 100), st.floats(0.01, 100))
def test_draws_stay_inside_their_bounds(seed: int, low: float, width: float) -> None:
    """uniform ∈ [low, high), also after rounding."""
    high = low + width
    drawn = random.uniform(random.key(seed), (64,), minval=low, maxval=high)
    assert bool(((drawn >= torch.tensor(low)) & (drawn <= torch.tensor(high))).all())
