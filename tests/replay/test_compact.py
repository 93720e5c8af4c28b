"""Observations are stored once, and the successor of an ended row is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, FLAG, environments, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError, ConfigError

KEY = random.key(0)


def compact(num_final: int = 20, **parts: Any) -> replay.Buffer:
    storage = replay.compact(replay.tensor_storage(), num_final=num_final)
    return replay.ring(12, EXAMPLE, storage=storage, **parts)


PARTS: dict[str, Any] = {
    "uniform": dict,
    "n_step": lambda: {"transform": replay.n_step(3)},
    "slices": lambda: {"sampler": replay.slices(slice_len=2)},
    "prioritized": lambda: {"sampler": replay.prioritized()},
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("sizes", [[1] * 14, [4, 4, 4, 4], [2, 14], [3]])
def test_batches_are_those_of_a_ring_that_stores_both(
    parts: Any, num_envs: int, sizes: list[int]
) -> None:
    once = compact(num_envs=num_envs, debug=True, **parts())
    twice = replay.ring(12, EXAMPLE, num_envs=num_envs, **parts())
    rows = environments(sum(sizes), num_envs, seed=len(sizes))
    a, b, start = once.init(), twice.init(), 0
    for size in sizes:
        batch = tree.map(lambda leaf, s=start, n=size: leaf[s : s + n], rows)
        a, b, start = once.add(a, batch), twice.add(b, batch), start + size
        try:
            expected = twice.sample(b, KEY, 40)
        except BufferError:
            continue
        assert tree.equal(once.sample(a, KEY, 40), expected)


def test_the_observation_is_stored_once() -> None:
    example = EXAMPLE | {name: torch.zeros(100) for name in ("observation", "next_observation")}
    both = replay.ring(1000, example).init()
    storage = replay.compact(replay.tensor_storage(), num_final=20)
    once = replay.ring(1000, example, storage=storage).init()
    memory = [sum(leaf.nbytes for leaf in tree.leaves(s.storage)) for s in (both, once)]
    assert memory[1] < 0.56 * memory[0]


def test_a_row_whose_final_observation_is_forgotten_is_marked() -> None:
    buffer = compact(num_final=2)
    rows = transitions(8, ends=0.0)
    rows["truncated"] = torch.tensor([False, True, False, True, True, False, False, True])
    state = buffer.add(buffer.init(), rows)
    batch, info = buffer.sample(state, KEY, 200)
    # the ends of rows 4 and 7 are kept
    assert torch.equal(info.mask, ~((info.index == 1) | (info.index == 3)))
    kept = info.mask
    after = rows["next_observation"][info.index]
    assert torch.equal(batch["next_observation"][kept], after[kept])
    # one after the other gives the same
    single = buffer.init()
    for i in range(8):
        single = buffer.add(single, tree.index(rows, i))
    assert tree.equal(buffer.sample(single, KEY, 200)[1].mask, info.mask)


def test_an_n_step_row_is_whole_if_its_last_row_is() -> None:
    buffer = compact(num_final=1, transform=replay.n_step(2))
    rows = transitions(6, ends=0.0)
    rows["terminated"] = torch.tensor([False, True, False, False, True, False])
    _, info = buffer.sample(buffer.add(buffer.init(), rows), KEY, 100)
    assert torch.equal(info.mask, info.index > 1)


def test_rows_keep_their_fields_in_a_file(tmp_path: Path) -> None:
    def made(mode: Any) -> replay.Buffer:
        storage = replay.compact(replay.memmap_storage(tmp_path, mode), num_final=3)
        return replay.ring(12, EXAMPLE, storage=storage)

    buffer = made("create")
    rows = transitions(9)
    state = buffer.add(buffer.init(), rows)
    again = made("read_only")
    assert tree.equal(again.init(), state)
    batch, info = again.sample(again.init(), KEY, 50)
    assert list(batch.keys()) == list(EXAMPLE)
    after = rows["next_observation"][info.index]
    assert torch.equal(batch["next_observation"][info.mask], after[info.mask])


def test_debug_finds_rows_that_do_not_follow_each_other() -> None:
    buffer = compact(debug=True)
    rows = transitions(4, ends=0.0)
    broken = rows | {"observation": rows["observation"].clone()}
    broken["observation"][2] += 1
    message = r"batch\.observation\[{}\] is not the next_observation of the row before it"
    with pytest.raises(BufferError, match=message.format(2)):
        buffer.add(buffer.init(), broken)
    state = buffer.add(buffer.init(), rows)
    with pytest.raises(BufferError, match=message.format(0)):
        buffer.add(state, transitions(2, start=7))
    rows["observation"][1] = torch.nan  # a NaN that was announced is the same observation
    rows["next_observation"][0] = torch.nan
    buffer.add(buffer.init(), rows)


def test_rows_that_are_no_transition_need_not_follow() -> None:
    storage = replay.compact(replay.tensor_storage(), num_final=4)
    buffer = replay.ring(12, EXAMPLE | {"mask": FLAG}, storage=storage, debug=True)
    rows = transitions(5, ends=0.0) | {"mask": torch.tensor([True, True, False, True, True])}
    rows["truncated"] = torch.tensor([False, True, False, False, False])
    rows["observation"][2] = torch.nan
    rows["next_observation"][2] = torch.nan
    state = buffer.add(buffer.init(), rows)
    batch, info = buffer.sample(state, KEY, 60)
    assert torch.equal(info.mask, rows["mask"][info.index])
    after = rows["next_observation"][info.index]
    assert torch.equal(batch["next_observation"][info.mask], after[info.mask])


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            {"observation": torch.zeros(1), "terminated": FLAG, "truncated": FLAG},
            "needs the fields",
        ),
        (
            EXAMPLE | {"observation": torch.zeros(3)},
            r"example\.next_observation as\.observation is torch\.float32 \[2\], expected .* \[3\]",
        ),
        ({"observation": torch.zeros(1)}, "compact needs the field terminated"),
    ],
)
def test_an_example_that_does_not_fit_is_refused(example: Any, message: str) -> None:
    storage = replay.compact(replay.tensor_storage(), num_final=1)
    with pytest.raises((ConfigError, ValueError), match=message):
        replay.ring(4, example, storage=storage)


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_final is 0, expected an integer of at least 1"):
        replay.compact(replay.tensor_storage(), num_final=0)
    with pytest.raises(ConfigError, match="compact needs rows of tensors"):
        replay.compact(replay.list_storage(), num_final=1)
