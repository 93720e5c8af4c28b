"""Uniform draws are uniform, and an epoch has every row once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError
from purerl.replay.slots import uniform_slots

KEY = random.key(0)


def filled(capacity: int, rows: int, sampler: replay.Sampler) -> tuple[replay.Buffer, Any]:
    buffer = replay.ring(capacity, EXAMPLE, sampler=sampler)
    return buffer, buffer.add(buffer.init(), transitions(rows))


@pytest.mark.parametrize(("capacity", "rows"), [(7, 3), (7, 7), (7, 10), (1, 1)])
def test_every_stored_row_is_drawn_alike_and_no_other(capacity: int, rows: int) -> None:
    buffer, state = filled(capacity, rows, replay.uniform())
    draws = 20_000
    batch, info = buffer.sample(state, KEY, draws)
    stored = min(capacity, rows)
    counts = torch.bincount(batch["serial"] - (rows - stored), minlength=stored)
    p = 1 / stored
    # six standard deviations of a binomial count; the key is fixed
    assert len(counts) == stored
    assert bool(((counts - draws * p).abs() <= 6 * math.sqrt(draws * p * (1 - p))).all())
    assert torch.equal(info.probability, torch.full((draws,), p, dtype=torch.float64))
    assert torch.equal(info.weight, torch.ones(draws, dtype=torch.float64))
    assert bool(info.mask.all())
    assert torch.equal(state.storage["serial"][info.index], batch["serial"])


def test_draws_reach_every_row_of_a_large_ring() -> None:
    """A float32 in [0, 1) has no more than 2²⁴ values here, all even of these rows."""
    total = 2**25
    drawn = uniform_slots(KEY, 4000, torch.tensor(total))
    assert int(drawn.max()) < total
    odd = (drawn % 2).double().mean()
    assert abs(float(odd) - 0.5) < 6 * 0.5 / math.sqrt(4000)
    assert int(uniform_slots(KEY, 100, torch.tensor(2**31)).max()) < 2**31
    assert int(uniform_slots(KEY, 100, torch.tensor(0)).max()) == 0


def epochs(
    buffer: replay.Buffer, state: Any, batch_size: int, draws: int
) -> list[tuple[list[int], list[bool]]]:
    found = []
    for key in random.split(random.key(3), draws):
        batch, info = buffer.sample(state, key, batch_size)
        state = buffer.advance(state, info)
        found.append((batch["serial"].tolist(), info.mask.tolist()))
    return found


@pytest.mark.parametrize(("rows", "batch_size"), [(7, 3), (6, 3), (5, 5), (3, 8), (10, 1), (1, 1)])
def test_an_epoch_has_every_row_once(rows: int, batch_size: int) -> None:
    buffer, state = filled(10, rows, replay.without_replacement())
    per_epoch = math.ceil(rows / batch_size)
    drawn = epochs(buffer, state, batch_size, 3 * per_epoch)
    orders = []
    for epoch in range(3):
        part = drawn[epoch * per_epoch : (epoch + 1) * per_epoch]
        serial = [x for xs, ms in part for x, m in zip(xs, ms, strict=True) if m]
        assert sorted(serial) == list(range(rows))
        assert all(all(mask) for _, mask in part[:-1])
        assert sum(part[-1][1]) == rows - (per_epoch - 1) * batch_size
        assert all(0 <= x < rows for xs, _ in part for x in xs)
        orders.append(serial)
    assert rows < 5 or len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize(("rows", "batch_size"), [(7, 3), (6, 3), (5, 5), (10, 4)])
def test_the_last_short_batch_can_be_dropped(rows: int, batch_size: int) -> None:
    buffer, state = filled(10, rows, replay.without_replacement(drop_last=True))
    per_epoch = rows // batch_size
    drawn = epochs(buffer, state, batch_size, 3 * per_epoch)
    for epoch in range(3):
        part = drawn[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert all(all(mask) for _, mask in part)
        serial = [x for xs, _ in part for x in xs]
        assert len(set(serial)) == per_epoch * batch_size


def test_a_batch_that_never_fits_is_refused_where_the_last_one_is_dropped() -> None:
    buffer, state = filled(10, 3, replay.without_replacement(drop_last=True))
    with pytest.raises(BufferError, match="batch_size is 4, expected at most the 3 stored rows"):
        buffer.sample(state, KEY, 4)
    _, info = torch.vmap(lambda k: buffer.sample(state, k, 4))(random.split(KEY))
    assert not bool(info.mask.any())


def test_new_rows_begin_a_new_epoch() -> None:
    buffer, state = filled(6, 6, replay.without_replacement())
    _, info = buffer.sample(state, KEY, 4)
    state = buffer.add(buffer.advance(state, info), transitions(2, start=6))
    drawn = epochs(buffer, state, 3, 2)
    assert sorted(x for xs, _ in drawn for x in xs) == [2, 3, 4, 5, 6, 7]


def test_a_draw_moves_the_epoch_only_when_the_state_advances() -> None:
    buffer, state = filled(6, 6, replay.without_replacement())
    first, info = buffer.sample(state, KEY, 3)
    again, _ = buffer.sample(state, KEY, 3)
    assert tree.equal(first, again)
    following, _ = buffer.sample(buffer.advance(state, info), random.key(9), 3)
    assert not set(first["serial"].tolist()) & set(following["serial"].tolist())


def test_other_samplers_have_nothing_to_advance() -> None:
    buffer, state = filled(6, 6, replay.prioritized(new_priority="historic_max"))
    _, info = buffer.sample(state, KEY, 3)
    assert buffer.advance(state, info) is state


def test_orders_of_an_epoch_are_equally_likely() -> None:
    buffer, state = filled(4, 3, replay.without_replacement())
    draws = 6000
    keys = random.split(KEY, draws)
    batch, _ = torch.vmap(lambda key: buffer.sample(state, key, 3))(keys)
    order = (batch["serial"] * torch.tensor([9, 3, 1])).sum(-1)
    counts = order.unique(return_counts=True)[1]
    assert len(counts) == 6
    spread = 6 * math.sqrt(draws * (1 / 6) * (5 / 6))
    assert bool(((counts - draws / 6).abs() < spread).all())
