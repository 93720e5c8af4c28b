"""Slices stay inside one episode and behind the write head."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, FLAG, Rows, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError, ConfigError

KEY = random.key(0)


def marked(done: str, start: int = 0) -> Rows:
    """Return rows whose episodes end where the text has a letter: t(runcated), T(erminated)."""
    rows = transitions(len(done), start=start)
    rows["terminated"] = torch.tensor([c == "T" for c in done])
    rows["truncated"] = torch.tensor([c == "t" for c in done])
    return rows


def starts(buffer: replay.Buffer, state: Any, length: int, draws: int = 500) -> dict[int, int]:
    """Return how often each serial number was the first of a slice, after checking the slices."""
    batch, info = buffer.sample(state, KEY, draws * length)
    serial = batch["serial"]
    assert serial.shape == info.index.shape == (length, draws)
    num_envs = buffer.layout.num_envs
    ahead = torch.arange(length).unsqueeze(1) * num_envs
    assert torch.equal(serial, serial[0] + ahead)
    done = batch["terminated"] | batch["truncated"]
    assert not bool(done[:-1].any())
    assert bool(info.mask.all())
    values, counts = serial[0].unique(return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize(
    ("adds", "length", "expected"),
    [
        (["..T..t.."], 2, [0, 1, 3, 4, 6]),
        (["..T..t.."], 3, [0, 3]),
        (["..T..t.."], 1, [0, 1, 2, 3, 4, 5, 6, 7]),
        ([".", ".", "T", ".", ".", "t", ".", "."], 3, [0, 3]),
        (["........", "...."], 4, [4, 5, 6, 7, 8]),  # the head is in front of row 4
        (["........", "...."], 8, [4]),
        (["......T.", "T..."], 3, [4, 9]),
        (["....", "....", "....", "...."], 5, [8, 9, 10, 11]),
        (["T" * 8], 1, [0, 1, 2, 3, 4, 5, 6, 7]),
        (["............"], 3, [4, 5, 6, 7, 8, 9]),  # more rows than fit
        (["............", "T.."], 3, [7, 8, 9, 10]),
    ],
)
def test_slices_begin_where_a_whole_one_is_stored(
    adds: list[str], length: int, expected: list[int]
) -> None:
    buffer = replay.ring(8, EXAMPLE, sampler=replay.slices(slice_len=length))
    state, given = buffer.init(), 0
    for done in adds:
        state = buffer.add(state, marked(done, given))
        given += len(done)
    found = starts(buffer, state, length)
    assert sorted(found) == expected
    p = 1 / len(expected)
    spread = 6 * math.sqrt(500 * p * (1 - p))
    assert all(abs(count - 500 * p) <= spread for count in found.values())
    _, info = buffer.sample(state, KEY, length)
    assert torch.equal(info.probability, torch.full((length, 1), p, dtype=torch.float64))


def test_environments_are_apart() -> None:
    """Three environments, two steps a batch, in a ring of four steps: the first two are gone."""
    buffer = replay.ring(12, EXAMPLE, sampler=replay.slices(slice_len=3), num_envs=3)
    state = buffer.init()
    # the second environment ends at its step 3, the third at step 4
    for step, done in enumerate(["......", "....T.", "..t..."]):
        state = buffer.add(state, marked(done, 6 * step))
    # steps 2 … 5 are stored; the first environment may start in step 2 or 3
    assert sorted(starts(buffer, state, 3)) == [6, 8, 9]


def test_an_episode_goes_on_from_batch_to_batch() -> None:
    buffer = replay.ring(8, EXAMPLE, sampler=replay.slices(slice_len=4))
    state = buffer.init()
    for serial in range(4):
        state = buffer.add(state, marked(".", serial))
        if serial < 3:
            with pytest.raises(BufferError, match="slice_len is 4, expected no more rows than"):
                buffer.sample(state, KEY, 4)
    assert list(starts(buffer, state, 4)) == [0]
    state = buffer.add(buffer.clear(state), marked("...", 50))
    with pytest.raises(BufferError, match="slice_len is 4"):
        buffer.sample(state, KEY, 4)


def test_a_trajectory_number_ends_an_episode_as_well() -> None:
    example = EXAMPLE | {"episode": torch.tensor(0, dtype=torch.int32)}
    sampler = replay.slices(slice_len=2, trajectory="episode")
    buffer = replay.ring(8, example, sampler=sampler)
    number = torch.tensor([7, 7, 7, 3, 3, 3], dtype=torch.int32)
    state = buffer.add(buffer.init(), marked(".T....") | {"episode": number})
    state = buffer.add(state, marked("..", 6) | {"episode": number[:2]})
    assert sorted(starts(buffer, state, 2)) == [0, 3, 4, 6]


def test_rows_that_are_no_transition_are_in_no_slice() -> None:
    example = EXAMPLE | {"mask": FLAG}
    buffer = replay.ring(8, example, sampler=replay.slices(slice_len=2))
    mask = torch.tensor([True, True, False, True, True, True, False])
    state = buffer.add(buffer.init(), marked("..T...T") | {"mask": mask})
    state = buffer.add(state, marked(".", 7) | {"mask": torch.tensor([True])})
    assert sorted(starts(buffer, state, 2)) == [0, 3, 4]


@pytest.mark.parametrize("num_envs", [1, 2])
def test_padded_slices_begin_anywhere_and_say_where_they_end(num_envs: int) -> None:
    length, done = 3, "..T..t..TT......"
    sampler = replay.slices(slice_len=length, strict=False)
    buffer = replay.ring(12, EXAMPLE, sampler=sampler, num_envs=num_envs)
    state = buffer.add(buffer.init(), marked(done))
    draws = 4000
    batch, info = buffer.sample(state, KEY, draws * length)
    serial, mask = batch["serial"], info.mask
    counts = torch.bincount(serial[0] - 4, minlength=12)
    assert len(counts) == 12
    p = 1 / 12
    assert bool(((counts - draws * p).abs() <= 6 * math.sqrt(draws * p * (1 - p))).all())
    for first in range(4, 16):
        rows = [first]
        while len(rows) < length and done[rows[-1]] == "." and rows[-1] + num_envs < 16:
            rows.append(rows[-1] + num_envs)
        padding = length - len(rows)
        column = int((serial[0] == first).nonzero()[0])
        assert serial[:, column].tolist() == rows + rows[-1:] * padding
        assert mask[:, column].tolist() == [True] * len(rows) + [False] * padding


def test_a_batch_is_cut_by_number_or_by_length() -> None:
    rows = marked("." * 8)
    for sampler, shape in (
        (replay.slices(num_slices=3), (4, 3)),
        (replay.slices(slice_len=3), (3, 4)),
    ):
        buffer = replay.ring(8, EXAMPLE, sampler=sampler)
        state = buffer.add(buffer.init(), rows)
        batch, info = buffer.sample(state, KEY, 12)
        assert batch.batch_size == info.mask.shape == shape
        assert batch["observation"].shape == (*shape, 2)
        with pytest.raises(ConfigError, match="is 3, expected a divisor of 10: 2 or 5"):
            buffer.sample(state, KEY, 10)


def test_where_no_slice_is_whole_a_sweep_masks() -> None:
    buffer = replay.ring(8, EXAMPLE, sampler=replay.slices(slice_len=3))
    states = torch.stack([buffer.add(buffer.init(), marked(done)) for done in ("..T", "T.T")])
    _, info = torch.vmap(lambda s, k: buffer.sample(s, k, 6))(states, random.split(KEY))
    assert bool(info.mask[0].all())
    assert not bool(info.mask[1].any())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected exactly one of num_slices and slice_len"),
        ({"num_slices": 2, "slice_len": 2}, "expected exactly one"),
        ({"slice_len": 0}, "slice_len is 0, expected an integer of at least 1"),
        ({"num_slices": True}, "num_slices is True, expected an integer"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replay.slices(**options)


def test_a_trajectory_field_is_one_integer_a_row() -> None:
    sampler = replay.slices(slice_len=2, trajectory="reward")
    with pytest.raises(ConfigError, match=r"slices need the field reward, an integer \[\]"):
        replay.ring(4, EXAMPLE, sampler=sampler)


def test_slices_of_other_lengths_come_from_one_state() -> None:
    rows = marked("......T.")
    states = {}
    for length in (2, 5):
        buffer = replay.ring(8, EXAMPLE, sampler=replay.slices(slice_len=length))
        states[length] = buffer.add(buffer.init(), rows)
    assert tree.equal(states[2], states[5])
