"""Everything that a buffer is lies in its leaves: saved and loaded, it goes on to the bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, transitions

from purerl import random, replay, tree
from purerl.replay.state import plain

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "uniform": dict,
    "without_replacement": lambda: {"sampler": replay.without_replacement()},
    "slices": lambda: {"sampler": replay.slices(slice_len=2)},
    "prioritized": lambda: {"sampler": replay.prioritized(new_priority="historic_max")},
    "compact": lambda: {
        "storage": replay.compact(replay.tensor_storage(), num_final=3),
        "transform": replay.n_step(2),
    },
    "list": lambda: {"storage": replay.list_storage()},
}
each_part = pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())


def run(buffer: replay.Buffer, state: Any, turns: range) -> tuple[Any, list[Any]]:
    drawn = []
    for turn in turns:
        state = buffer.add(state, transitions(3, start=3 * turn, ends=0.1))
        key = random.fold_in(random.key(0), turn)
        batch, info = buffer.sample(state, key, 4)
        state = buffer.advance(state, info)
        if "largest_priority" in plain(state)["sampler"]:
            state = buffer.update_priority(state, info.index, random.uniform(key, (4,)))
        drawn.append((batch, info))
    return state, drawn


def loaded(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    file = io.BytesIO()
    torch.save(leaves, file)
    file.seek(0)
    found: list[torch.Tensor] = torch.load(file, weights_only=True)
    return found


@each_part
@pytest.mark.parametrize("saved_after", [1, 3, 4])
def test_a_loaded_state_goes_on_to_the_bit(
    parts: Callable[[], dict[str, Any]], saved_after: int
) -> None:
    buffer = replay.ring(10, EXAMPLE, **parts())
    whole, drawn = run(buffer, buffer.init(), range(6))
    state, before = run(buffer, buffer.init(), range(saved_after))
    leaves, rebuild = tree.flatten(state)
    state = rebuild(loaded(leaves))
    resumed, after = run(replay.ring(10, EXAMPLE, **parts()), state, range(saved_after, 6))
    assert tree.equal(resumed, whole)
    assert tree.equal(before + after, drawn)


@each_part
def test_a_fork_is_a_clone(parts: Callable[[], dict[str, Any]]) -> None:
    buffer = replay.ring(10, EXAMPLE, **parts())
    state, _ = run(buffer, buffer.init(), range(2))
    fork, kept = tree.clone(state), tree.clone(state)
    one, drawn = run(buffer, state, range(2, 5))
    assert tree.equal(fork, kept)
    two, again = run(buffer, fork, range(2, 5))
    assert tree.equal(one, two)
    assert tree.equal(drawn, again)


def test_the_middle_of_an_epoch_is_saved() -> None:
    buffer = replay.ring(9, EXAMPLE, sampler=replay.without_replacement())
    state = buffer.add(buffer.init(), transitions(9))
    seen = []
    for key in random.split(random.key(0), 3):
        leaves, rebuild = tree.flatten(state)
        state = rebuild(loaded(leaves))
        batch, info = buffer.sample(state, key, 3)
        state = buffer.advance(state, info)
        seen += batch["serial"].tolist()
    assert sorted(seen) == list(range(9))


def test_a_state_has_key_paths_of_its_own() -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized())
    paths = tree.paths(buffer.init())
    assert len(set(paths)) == len(paths)
    assert {"storage.serial", "index.leaf", "cursor", "num_rows", "hparams.beta"} <= set(paths)
