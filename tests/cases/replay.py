"""Cases of replay buffers."""

from __future__ import annotations

from typing import Any

import torch
from tests.cases.tensors import Inputs, Results, ends, integer, real
from torch import Tensor

import purerl as prl

KEY = prl.random.key(0)
MANY = 2**16
"""Draws by which every row that has a chance has come up."""


def replay_ring(inputs: Inputs) -> Results:
    if "observation" in inputs:
        return {"next_observation": _successors(inputs)}
    capacity = inputs["capacity"]
    buffer = prl.replay.ring(capacity, {"x": torch.tensor(0)})
    state = buffer.init()
    for batch in inputs["batches"]:
        state = buffer.add(state, {"x": torch.tensor(batch)})
    size = int(buffer.size(state))
    written = torch.arange(capacity) < size
    return {
        "storage": torch.where(written, state.storage["x"], -1),
        "cursor": state.cursor,
        "size": size,
        "full": int(size == capacity),
    }


def _successors(inputs: Inputs) -> Tensor:
    """Store observations once, in time, and read back every row's next observation."""
    observation, final = real(inputs, "observation"), real(inputs, "final_observation")
    terminated, truncated = ends(inputs, final.reshape(len(final), -1)[:, 0])
    count = len(final)
    if len(observation) == count:  # nothing was seen after the last step
        observation = torch.cat([observation, final[-1:]])
    done = (terminated | truncated).reshape(count, *[1] * (final.ndim - 1))
    rows = {
        "observation": observation,
        "next_observation": torch.cat([torch.where(done, final, observation[1:]), final[:1]]),
        "terminated": torch.cat([terminated, terminated[:1]]),
        "truncated": torch.cat([truncated, truncated[:1]]),
    }
    storage = prl.replay.compact(prl.replay.tensor_storage(), num_final=count + 1)
    buffer = prl.replay.ring(
        count + 1,
        prl.tree.index(rows, 0),
        storage=storage,
        sampler=prl.replay.without_replacement(),
        debug=True,
    )
    # the row of the last observation, of whose step nothing is known, is stored as well: the
    # first of a new episode may stand there
    return _every_row(buffer, buffer.add(buffer.init(), rows))["next_observation"][:count]


def _every_row(buffer: prl.replay.Buffer, state: Any) -> Any:
    """Return the rows of a full ring in the order of their slots."""
    batch, info = buffer.sample(state, KEY, buffer.capacity)
    return prl.tree.index(batch, info.index.argsort())


def replay_slice(inputs: Inputs) -> Results:
    length, size, capacity = (inputs[name] for name in ("slice_length", "size", "capacity"))
    trajectory = integer(inputs, "trajectory_id")[:size]
    terminated, truncated = (x[:size] for x in ends(inputs, trajectory))
    rows = {"trajectory_id": trajectory, "terminated": terminated, "truncated": truncated}
    cursor = inputs.get("cursor", size % capacity)
    if size == capacity:
        # rows in time: the oldest lies at the cursor, which other rows have brought there
        rows = prl.tree.map(lambda column: column.roll(-cursor), rows)
    sampler = prl.replay.slices(slice_len=length, trajectory="trajectory_id")
    buffer = prl.replay.ring(capacity, prl.tree.index(rows, 0), sampler=sampler)
    state = buffer.init()
    if size == capacity and cursor:
        forgotten = {
            "trajectory_id": torch.full((cursor,), -1),
            "terminated": torch.zeros(cursor, dtype=torch.bool),
            "truncated": torch.ones(cursor, dtype=torch.bool),
        }
        state = buffer.add(state, forgotten)
    try:
        _, info = buffer.sample(buffer.add(state, rows), KEY, MANY * length)
    except prl.errors.BufferError:  # no stretch of rows is long enough
        return {"valid_starts": []}
    return {"valid_starts": info.index[0].unique(sorted=True)}


def replay_nstep(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    terminated, truncated = ends(inputs, reward)
    rows = {
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "next_row": torch.arange(len(reward)),
    }
    buffer = prl.replay.ring(
        len(reward),
        prl.tree.index(rows, 0),
        sampler=prl.replay.without_replacement(),
        transform=prl.replay.n_step(inputs["n"], gamma=inputs["gamma"]),
    )
    merged = _every_row(buffer, buffer.add(buffer.init(), rows))
    return {
        "return": merged["reward"],
        "steps": merged["steps"],
        "next_index": merged["next_row"],
        "terminated": merged["terminated"].int(),
        "discount": merged["discount"],
    }


def replay_prioritized(inputs: Inputs) -> Results:
    priority = real(inputs, "priority")
    count = len(priority)
    sampler = prl.replay.prioritized(
        alpha=inputs["priority_alpha"], beta=inputs.get("importance_beta", 1.0)
    )
    buffer = prl.replay.ring(count, {"x": torch.tensor(0)}, sampler=sampler)
    state = buffer.add(buffer.init(), {"x": torch.arange(count)})
    state = buffer.update_priority(state, torch.arange(count), priority)
    _, info = buffer.sample(state, KEY, MANY)
    # a row that is never drawn has neither
    nothing = torch.zeros(count, dtype=torch.float64)
    results: Results = {
        "leaf": state.index["leaf"][:count],
        "sample_probability": nothing.index_put((info.index,), info.probability),
        "importance_weight": nothing.index_put((info.index,), info.weight),
    }
    if "uniform" in inputs:
        uniform = real(inputs, "uniform")
        results["index"] = prl.replay.index_from_uniform(buffer, state, uniform)
    return results
