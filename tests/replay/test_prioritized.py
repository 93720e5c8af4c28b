"""Rows are drawn in proportion to p^α, and weights undo it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, transitions
from torch import Tensor

from purerl import random, replay, tree
from purerl.errors import BufferError, ConfigError, ShapeError

F64 = torch.float64
KEY = random.key(0)


def ring(
    priority: list[float], capacity: int | None = None, **options: Any
) -> tuple[replay.Buffer, Any]:
    capacity = len(priority) if capacity is None else capacity
    buffer = replay.ring(capacity, EXAMPLE, sampler=replay.prioritized(**options))
    state = buffer.add(buffer.init(), transitions(len(priority)))
    index = torch.arange(len(priority))
    return buffer, buffer.update_priority(state, index, torch.tensor(priority, dtype=F64))


def leaf(buffer: replay.Buffer, state: Any) -> Tensor:
    found: Tensor = state.index["leaf"][: buffer.capacity]
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_probabilities_and_weights_are_those_of_the_paper(alpha: float, beta: float) -> None:
    priority = [0.5, 0.0, 2.0, 3.0, 1e-3, 7.0, 0.25]
    buffer, state = ring(priority, capacity=9, alpha=alpha, beta=beta)
    powers = [p**alpha if p else 0.0 for p in priority]
    probability = [p / math.fsum(powers) for p in powers]
    live = len(priority)
    largest = max((live * p) ** -beta for p in probability if p)
    _, info = buffer.sample(state, KEY, 400)
    assert {0, 2, 3, 5} <= set(info.index.tolist()) <= {0, 2, 3, 4, 5, 6}
    for index, p, w in zip(*(column.tolist() for column in info[:3]), strict=True):
        assert math.isclose(p, probability[index], rel_tol=1e-14)
        assert math.isclose(w, (live * probability[index]) ** -beta / largest, rel_tol=1e-13)
        assert 0.0 < w <= 1.0
    assert beta or bool((info.weight == 1.0).all())


def test_weights_may_be_those_of_the_batch() -> None:
    buffer, state = ring([1.0, 2.0, 4.0], alpha=1.0, beta=1.0, normalize="batch")
    _, info = buffer.sample(state, random.key(1), 2)
    smallest = min(info.index.tolist())
    expected = [2.0**smallest / 2.0**i for i in info.index.tolist()]
    assert info.weight.tolist() == expected
    assert max(expected) == 1.0


def test_draws_have_the_frequency_of_their_probability() -> None:
    priority = [0.0, 1.0, 3.0, 0.0, 6.0]
    buffer, state = ring(priority, alpha=1.0)
    draws = 20_000
    _, info = buffer.sample(state, KEY, draws)
    counts = torch.bincount(info.index, minlength=5)
    p = torch.tensor(priority) / 10
    assert bool(((counts - draws * p).abs() <= 6 * (draws * p * (1 - p)).sqrt()).all())


@pytest.mark.parametrize("capacity", [1, 3, 33, 100])
def test_a_grid_of_uniforms_is_transported_to_the_probabilities(capacity: int) -> None:
    priority = random.uniform(KEY, (capacity,), dtype=F64)
    buffer, state = ring(priority.tolist(), alpha=1.0)
    n = 1000
    grid = (torch.arange(n, dtype=F64) + 0.5) / n
    counts = torch.bincount(replay.index_from_uniform(buffer, state, grid), minlength=capacity)
    assert bool(((counts - n * priority / priority.sum()).abs() <= 1.0).all())


def test_the_ends_of_the_unit_interval_stay_in_range() -> None:
    buffer, state = ring([0.0, 0.1, 0.2, 0.7, 0.0, 0.0], capacity=8)
    ends = torch.tensor([0.0, 5e-324, 1 - 2**-53, 1.0], dtype=F64)
    assert replay.index_from_uniform(buffer, state, ends).tolist() == [1, 1, 3, 3]


def test_the_exponent_is_applied_once() -> None:
    buffer, state = ring([0.25, 4.0], alpha=0.6)
    expected = torch.tensor([0.25, 4.0], dtype=F64) ** 0.6
    assert torch.equal(leaf(buffer, state), expected)
    state = buffer.update_priority(state, torch.tensor([1]), torch.tensor([4.0]))
    assert torch.equal(leaf(buffer, state), expected)
    # a new row gets the largest raw priority, and the leaf that belongs to it
    state = buffer.add(state, transitions(1, start=2))
    assert torch.equal(leaf(buffer, state), expected[[1, 1]])


def test_a_new_row_gets_the_largest_live_priority() -> None:
    buffer, state = ring([1.0, 5.0], capacity=3, alpha=1.0)
    state = buffer.add(state, transitions(1, start=2))
    assert leaf(buffer, state).tolist() == [1.0, 5.0, 5.0]
    low = torch.tensor([2.0, 2.0])
    state = buffer.update_priority(state, torch.tensor([1, 2]), low)
    state = buffer.add(state, transitions(1, start=3))
    assert leaf(buffer, state).tolist() == [2.0, 2.0, 2.0]


def test_a_new_row_may_get_the_largest_priority_ever() -> None:
    buffer, state = ring([1.0, 5.0], capacity=3, alpha=1.0, new_priority="historic_max")
    state = buffer.update_priority(state, torch.tensor([1]), torch.tensor([2.0]))
    _, info = buffer.sample(state, KEY, 2)
    state = buffer.add(buffer.advance(state, info), transitions(1, start=2))
    assert leaf(buffer, state).tolist() == [1.0, 2.0, 5.0]
    state = buffer.add(buffer.clear(state), transitions(1))
    assert leaf(buffer, state).tolist() == [1.0, 0.0, 0.0]


def test_the_first_row_and_the_row_after_only_zeros_have_priority_1() -> None:
    buffer, state = ring([0.0], capacity=2, alpha=0.5)
    assert leaf(buffer, state).tolist() == [0.0, 0.0]
    state = buffer.add(state, transitions(1, start=1))
    assert leaf(buffer, state).tolist() == [0.0, 1.0]


def test_an_index_that_comes_twice_has_its_last_priority() -> None:
    for seed in range(5):
        buffer, state = ring([1.0] * 6, alpha=1.0)
        index = random.randint(random.key(seed), (50,), 0, 6)
        priority = random.uniform(random.key(seed + 100), (50,), dtype=F64)
        expected = [1.0] * 6
        for i, p in zip(index.tolist(), priority.tolist(), strict=True):
            expected[i] = p
        state = buffer.update_priority(state, index, priority)
        assert leaf(buffer, state).tolist() == expected


def test_an_empty_slot_never_gets_a_chance() -> None:
    buffer, state = ring([1.0, 1.0], capacity=4, alpha=1.0)
    state = buffer.update_priority(state, torch.tensor([3, 0]), torch.tensor([9.0, 2.0]))
    assert leaf(buffer, state).tolist() == [2.0, 1.0, 0.0, 0.0]


def test_rows_that_are_no_transition_are_never_drawn() -> None:
    example = {"x": torch.tensor(0), "mask": torch.tensor(False)}
    buffer = replay.ring(4, example, sampler=replay.prioritized())
    mask = torch.tensor([False, True, False, True, False])
    state = buffer.add(buffer.init(), {"x": torch.arange(5), "mask": mask})
    batch, info = buffer.sample(state, KEY, 100)
    assert set(batch["x"].tolist()) == {1, 3}
    assert bool(info.mask.all())


def test_nothing_is_drawn_where_every_priority_is_zero() -> None:
    buffer, state = ring([0.0, 0.0])
    with pytest.raises(BufferError, match="every priority is 0, expected a positive one"):
        buffer.sample(state, KEY, 3)
    states = torch.stack([state, ring([0.0, 2.0])[1]])
    _, info = torch.vmap(lambda s, k: buffer.sample(s, k, 3))(states, random.split(KEY))
    assert info.mask.tolist() == [[False] * 3, [True] * 3]
    assert info.weight.tolist() == [[0.0] * 3, [1.0] * 3]
    assert bool(info.probability.isfinite().all())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_priority_that_is_no_number_counts_as_0_and_debug_names_it(bad: float) -> None:
    index, priority = torch.tensor([0, 1]), torch.tensor([3.0, bad])
    buffer, state = ring([1.0, 1.0], alpha=1.0)
    assert leaf(buffer, buffer.update_priority(state, index, priority)).tolist() == [3.0, 0.0]
    strict = replay.ring(2, EXAMPLE, sampler=replay.prioritized(), debug=True)
    state = strict.add(strict.init(), transitions(2))
    before = tree.clone(state)
    with pytest.raises(BufferError, match=rf"priority\[1\] is {bad}, expected a finite number"):
        strict.update_priority(state, index, priority)
    with pytest.raises(BufferError, match=r"index\[0\] is 2, expected a slot in \[0, 2\)"):
        strict.update_priority(state, index + 2, torch.ones(2))
    assert tree.equal(state, before)


def test_beta_and_alpha_are_leaves() -> None:
    buffer, state = ring([1.0, 3.0], alpha=1.0, beta=0.0)
    later = replay.with_hparams(state, {"beta": torch.tensor(1.0), "alpha": 2.0})
    assert float(state.hparams["beta"]) == 0.0
    _, info = buffer.sample(later, random.key(1), 3)
    assert info.index.tolist() == [0, 1, 1]
    assert info.weight.tolist() == [1.0, 1 / 3, 1 / 3]
    later = buffer.update_priority(later, torch.tensor([1]), torch.tensor([3.0]))
    assert leaf(buffer, later).tolist() == [1.0, 9.0]


def test_a_sweep_may_have_one_alpha_and_beta_a_member() -> None:
    buffer, state = ring([1.0, 3.0])
    states = torch.stack([state, state, state])
    numbers = {"alpha": torch.tensor([0.0, 1.0, 2.0]), "beta": torch.tensor([0.5, 1.0, 0.0])}
    index, priority = torch.arange(2), torch.tensor([1.0, 3.0])

    def step(state: Any, numbers: Any, key: Tensor) -> Any:
        state = replay.with_hparams(state, numbers)
        state = buffer.update_priority(state, index, priority)
        return state.index["leaf"][:2], buffer.sample(state, key, 8)[1].weight

    leaves, weight = torch.vmap(step)(states, numbers, random.split(KEY, 3))
    assert leaves.tolist() == [[1.0, 1.0], [1.0, 3.0], [1.0, 9.0]]
    assert weight[0].tolist() == weight[2].tolist() == [1.0] * 8
    assert set(weight[1].tolist()) == {1.0, 1 / 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -0.1}, r"alpha is -0\.1, expected a number of at least 0"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"beta": 1.5}, r"beta is 1\.5, expected a number in \[0, 1\]"),
        ({"normalize": "bufer"}, "normalize is 'bufer'; did you mean buffer"),
        ({"new_priority": "max"}, "new_priority is 'max'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replay.prioritized(**options)


def test_arguments_that_do_not_fit_are_named() -> None:
    buffer, state = ring([1.0, 1.0])
    with pytest.raises(ShapeError, match=r"priority has shape \[2, 1\], expected \[2\] as index"):
        buffer.update_priority(state, torch.arange(2), torch.ones(2, 1))
    with pytest.raises(ShapeError, match=r"index has dtype torch\.float32, expected an integer"):
        buffer.update_priority(state, torch.ones(2), torch.ones(2))
    with pytest.raises(ShapeError, match=r"priority has dtype torch\.int64, expected a floating"):
        buffer.update_priority(state, torch.arange(2), torch.arange(2))
    plain = replay.ring(2, EXAMPLE)
    with pytest.raises(ConfigError, match="index_from_uniform needs the sampler"):
        replay.index_from_uniform(plain, plain.init(), torch.zeros(1, dtype=F64))
