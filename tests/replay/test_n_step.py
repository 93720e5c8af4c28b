"""Merged rows are those of the estimators, whatever the place in the ring."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, FLAG, joined, transitions

from purerl import random, replay, returns, tree
from purerl.errors import ConfigError

KEY = random.key(0)


def expected(rows: Any, n: int, gamma: float, num_envs: int) -> Any:
    """Return the merged rows of a window of time, by the estimators, with their last rows."""
    steps = tree.map(lambda leaf: leaf.unflatten(0, (-1, num_envs)), rows)
    merged = returns.n_step_transition(
        steps["reward"],
        steps["terminated"],
        steps["truncated"],
        n=n,
        gamma=gamma,
        mask=steps.get("mask"),
    )
    column = torch.arange(num_envs).expand_as(merged.last_row)
    last = merged.last_row * num_envs + column
    return tree.map(lambda leaf: leaf.flatten(0, 1), merged._replace(last_row=last))


@pytest.mark.parametrize("n", [1, 2, 3, 20])
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("count", [4, 10, 12, 18, 22, 40])
def test_merged_rows_end_with_the_episode_or_at_the_newest_row(
    n: int, num_envs: int, count: int
) -> None:
    gamma, capacity = 0.9, 12
    buffer = replay.ring(
        capacity, EXAMPLE, transform=replay.n_step(n, gamma=gamma), num_envs=num_envs
    )
    state, parts = buffer.init(), []
    for start in range(0, count, 2):
        parts.append(transitions(2, start=start, ends=0.3))
        state = buffer.add(state, parts[-1])
    stored = tree.map(lambda leaf: leaf[-capacity:], joined(parts))
    want = expected(stored, n, gamma, num_envs)
    batch, info = buffer.sample(state, KEY, 200)
    row = batch["serial"] - int(stored["serial"][0])
    assert len(row.unique()) == len(stored["serial"])
    assert torch.equal(info.index, (batch["serial"]) % capacity)
    for name in ("reward", "terminated", "truncated", "steps"):
        assert torch.equal(batch[name], getattr(want, name)[row]), name
    assert torch.equal(batch["observation"], stored["observation"][row])
    assert torch.equal(batch["next_observation"], stored["next_observation"][want.last_row[row]])
    power = torch.tensor(gamma) ** want.steps[row].float()
    assert torch.equal(batch["discount"], torch.where(batch["terminated"], 0.0, power))


def test_rows_that_are_no_transition_are_in_no_window() -> None:
    example = EXAMPLE | {"mask": FLAG}
    buffer = replay.ring(8, example, transform=replay.n_step(3, gamma=0.5))
    rows = transitions(6, ends=0.0) | {"mask": torch.tensor([True, True, False, True, True, True])}
    rows["reward"] = torch.tensor([1.0, 2.0, torch.nan, 4.0, 8.0, 16.0])
    batch, info = buffer.sample(buffer.add(buffer.init(), rows), KEY, 60)
    assert torch.equal(info.mask, rows["mask"][info.index])
    merged = dict(zip(info.index.tolist(), batch["reward"].tolist(), strict=True))
    assert [merged[i] for i in (0, 1, 3, 4, 5)] == [2.0, 2.0, 12.0, 16.0, 16.0]
    last = dict(zip(info.index.tolist(), batch["next_observation"][:, 0].tolist(), strict=True))
    assert [last[i] for i in (0, 1, 3, 4, 5)] == [2.0, 2.0, 6.0, 6.0, 6.0]


def test_gamma_is_a_leaf_and_may_differ_between_members() -> None:
    buffer = replay.ring(4, EXAMPLE, transform=replay.n_step(3, gamma=0.99))
    rows = transitions(3, ends=0.0) | {"reward": torch.ones(3)}
    state = buffer.add(buffer.init(), rows)
    assert float(state.hparams["gamma"]) == 0.99

    def first(gamma: torch.Tensor) -> Any:
        batch, info = buffer.sample(replay.with_hparams(state, {"gamma": gamma}), KEY, 8)
        return batch["reward"][info.index.argmin()], batch["discount"][info.index.argmin()]

    reward, discount = torch.vmap(first)(torch.tensor([0.0, 0.5, 1.0]))
    assert reward.tolist() == [1.0, 1.75, 3.0]
    assert discount.tolist() == [0.0, 0.125, 1.0]


def test_every_next_field_is_that_of_the_last_row() -> None:
    example = {name: EXAMPLE[name] for name in ("reward", "terminated", "truncated")}
    example |= {"next_mask": torch.zeros(2, dtype=torch.bool), "next_input": {"x": torch.tensor(0)}}
    buffer = replay.ring(4, example, transform=replay.n_step(2))
    no = torch.zeros(3, dtype=torch.bool)
    marks = torch.tensor([[True, False], [False, True], [True, True]])
    rows = {
        "reward": torch.ones(3),
        "terminated": no,
        "truncated": no,
        "next_mask": marks,
        "next_input": {"x": torch.arange(3)},
    }
    batch, info = buffer.sample(buffer.add(buffer.init(), rows), KEY, 20)
    last = (info.index + 1).clamp(max=2)
    assert torch.equal(batch["next_mask"], marks[last])
    assert torch.equal(batch["next_input", "x"], last)


def test_slices_and_priorities_merge_too() -> None:
    for sampler in (replay.prioritized(), replay.slices(slice_len=2, strict=False)):
        buffer = replay.ring(8, EXAMPLE, sampler=sampler, transform=replay.n_step(3, gamma=0.5))
        rows = transitions(8)
        state = buffer.add(buffer.init(), rows)
        batch, info = buffer.sample(state, KEY, 40)
        want = expected(rows, 3, 0.5, 1)
        assert batch["reward"].shape == info.index.shape
        assert torch.equal(batch["reward"], want.reward[info.index])
        after = rows["next_observation"][want.last_row]
        assert torch.equal(batch["next_observation"], after[info.index])


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (
            torch.zeros(1),
            r"example\.reward is torch\.float32 \[1\], expected a floating dtype \[\]",
        ),
        (torch.tensor(0), r"example\.reward is torch\.int64 \[\], expected a floating dtype"),
    ],
)
def test_fields_that_do_not_fit_are_refused(leaf: torch.Tensor, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replay.ring(4, EXAMPLE | {"reward": leaf}, transform=replay.n_step(2))


def test_n_is_at_least_1() -> None:
    with pytest.raises(ConfigError, match="n is 0, expected at least 1"):
        replay.n_step(0)
    with pytest.raises(ConfigError, match="a transform needs rows of tensors"):
        replay.ring(4, EXAMPLE, storage=replay.list_storage(), transform=replay.n_step(2))
