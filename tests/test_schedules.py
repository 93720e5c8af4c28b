"""Schedules by their closed forms, at both ends and beyond them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from purerl import optim
from purerl.errors import ConfigError

F64 = torch.float64


def exactly(actual: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=F64), rtol=1e-15, atol=1e-18)


def test_a_linear_rate_starts_at_its_first_value_and_stays_above_its_last() -> None:
    exactly(
        optim.linear(1e-3, 0.0, 5)(torch.arange(5)),
        [1e-3 * (1.0 - k / 5) for k in range(5)],  # CleanRL: 1.0 - update / num_updates
    )


def test_with_offset_1_the_last_update_is_at_the_last_value() -> None:
    exactly(
        optim.linear(1e-3, 0.0, 5, offset=1)(torch.arange(5)),
        [1e-3 * (1.0 - (k + 1) / 5) for k in range(5)],  # Stable-Baselines3: progress refreshed
    )


@pytest.mark.parametrize("make", [optim.linear, optim.cosine])
@pytest.mark.parametrize(("start", "end"), [(0.3, 0.1), (0.1, 0.7), (2.5e-4, 0.0)])
@pytest.mark.parametrize("offset", [0, 1])
def test_both_ends_are_exact_and_hold_beyond(
    make: Callable[..., optim.Schedule], start: float, end: float, offset: int
) -> None:
    schedule = make(start, end, 7, offset=offset)
    steps = torch.tensor([-3, -offset, 7 - offset, 8, 10**12])
    assert schedule(steps).tolist() == [start, start, end, end, end]


def test_a_rate_never_turns_negative_when_the_budget_is_overrun() -> None:
    rates = optim.linear(3e-4, 0.0, 1000, offset=1)(torch.arange(1500))
    assert (rates >= 0.0).all()
    assert (rates.diff() <= 0.0).all()


def test_cosine_is_half_a_period() -> None:
    expected = [0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * k / 10)) for k in range(11)]
    exactly(optim.cosine(1.0, 0.1, 10)(torch.arange(11)), expected)


def test_a_staircase_rests_for_every_steps() -> None:
    # PureJaxRL: lr (1 - floor(count / (epochs minibatches)) / num_updates)
    epochs, minibatches, updates = 2, 3, 4
    schedule = optim.staircase(optim.linear(1.0, 0.0, updates), epochs * minibatches)
    steps = range(epochs * minibatches * updates + 5)
    exactly(
        schedule(torch.arange(len(steps))),
        [1.0 - min(k // (epochs * minibatches), updates) / updates for k in steps],
    )


def test_pieces_begin_at_their_boundaries() -> None:
    schedule = optim.piecewise([3.0, 2.0, 1.0], [2, 5])
    exactly(schedule(torch.arange(7)), [3.0, 3.0, 2.0, 2.0, 2.0, 1.0, 1.0])


def test_a_piece_that_is_a_schedule_counts_from_its_own_first_step() -> None:
    schedule = optim.piecewise([optim.linear(0.0, 1.0, 4), optim.linear(1.0, 0.0, 2)], [4])
    exactly(schedule(torch.arange(8)), [0.0, 0.25, 0.5, 0.75, 1.0, 0.5, 0.0, 0.0])


SCHEDULES: list[optim.Schedule] = [
    optim.constant(0.1),
    optim.linear(1.0, 0.1, 10),
    optim.cosine(1.0, 0.1, 10),
    optim.piecewise([1.0, 0.1], [3]),
    optim.staircase(optim.linear(1.0, 0.1, 10), 3),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_value_is_float64_and_elementwise_in_the_step(schedule: optim.Schedule) -> None:
    steps = torch.arange(12)
    values = schedule(steps)
    assert values.dtype is F64
    assert torch.equal(values, torch.vmap(schedule)(steps))
    for k, step in enumerate(steps):
        assert schedule(step).shape == ()
        assert torch.equal(schedule(step), values[k])
        assert torch.equal(schedule(k), values[k])
    assert torch.equal(schedule(steps.int()), values)


def test_steps_beyond_the_precision_of_float32_are_told_apart() -> None:
    schedule = optim.linear(0.0, 2.0**25, 2**25)
    assert schedule(torch.tensor([2**24, 2**24 + 1])).diff().item() == 1.0


def test_members_of_a_population_have_schedules_of_their_own() -> None:
    starts = torch.tensor([1.0, 0.5], dtype=F64)
    ends, lengths = torch.tensor([0.0, 0.1], dtype=F64), torch.tensor([4, 8])

    def value(start: Tensor, end: Tensor, num_steps: Tensor) -> Tensor:
        return optim.linear(start, end, num_steps)(torch.tensor(3))

    values = torch.vmap(value)(starts, ends, lengths)
    for m in range(2):
        solo = optim.linear(float(starts[m]), float(ends[m]), int(lengths[m]))(3)
        assert torch.equal(values[m], solo)


@pytest.mark.parametrize("make", [optim.linear, optim.cosine])
def test_a_schedule_between_equal_values_is_bit_equal_to_the_constant(
    make: Callable[..., optim.Schedule],
) -> None:
    steps = torch.arange(20)
    assert torch.equal(make(3e-4, 3e-4, 13)(steps), optim.constant(3e-4)(steps))


def test_wrong_schedules_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_steps is 0, expected at least 1"):
        optim.linear(1.0, 0.0, 0)
    with pytest.raises(ConfigError, match="every is 0, expected at least 1"):
        optim.staircase(optim.constant(1.0), 0)
    with pytest.raises(ConfigError, match="boundaries has 2 entries, expected 1"):
        optim.piecewise([1.0, 2.0], [1, 2])
    with pytest.raises(ConfigError, match=r"boundaries are \[3, 3\], expected increasing"):
        optim.piecewise([1.0, 2.0, 3.0], [3, 3])


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (0.0201, 3e-3 / 1.5),
        (0.02, 3e-3),
        (0.01, 3e-3),
        (0.005, 3e-3),
        (0.0049, 3e-3 * 1.5),
        (0.0, 3e-3),
        (-1e-9, 3e-3),
        (math.nan, 3e-3),
        (math.inf, 3e-3 / 1.5),
    ],
)
def test_the_adaptive_rate_moves_only_outside_the_band(kl: float, expected: float) -> None:
    rate = optim.adaptive_kl(3e-3, torch.tensor(kl, dtype=F64), 0.01)
    assert float(rate) == expected


def test_the_adaptive_rate_stays_within_its_bounds() -> None:
    far, near = torch.tensor(1.0), torch.tensor(1e-4)
    low = high = torch.tensor(1e-3, dtype=F64)
    for _ in range(50):
        low, high = optim.adaptive_kl(low, far, 0.01), optim.adaptive_kl(high, near, 0.01)
    assert (float(low), float(high)) == (1e-5, 1e-2)


def test_the_adaptive_rate_carries_no_gradient_to_the_policy() -> None:
    kl = torch.tensor(1.0, requires_grad=True)
    assert not optim.adaptive_kl(1e-3, kl, 0.01).requires_grad
