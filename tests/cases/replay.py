"""Cases of replay buffers."""

from __future__ import annotations

import torch
from tests.cases.tensors import Inputs, Results, flag, real

from purerl import random, replay, tree

KEY = random.key(0)


def replay_ring(inputs: Inputs) -> Results:
    if "observation" in inputs:
        return {"next_observation": _successors(inputs)}
    capacity = inputs["capacity"]
    buffer = replay.ring(capacity, {"x": torch.tensor(0)})
    state = buffer.init()
    for batch in inputs["batches"]:
        state = buffer.add(state, {"x": torch.tensor(batch)})
    storage = [-1] * capacity
    for slot in range(int(buffer.size(state))):
        storage[slot] = int(state.storage["x"][slot])
    size = int(buffer.size(state))
    return {
        "storage": storage,
        "cursor": state.cursor,
        "size": size,
        "full": int(size == capacity),
    }


def _successors(inputs: Inputs) -> torch.Tensor:
    """Store observations once, in time, and read back every row's next observation."""
    observation, final = real(inputs, "observation"), real(inputs, "final_observation")
    terminated, truncated = flag(inputs, "terminated"), flag(inputs, "truncated")
    count = len(terminated)
    announced = torch.where(terminated | truncated, final, observation[1 : count + 1])
    rows = {
        "observation": observation[:count],
        "next_observation": announced,
        "terminated": terminated,
        "truncated": truncated,
    }
    storage = replay.compact(replay.tensor_storage(), num_final=count)
    # the row of the observation that follows is stored as well: the first of a new episode
    after = {"observation": observation[count:], "next_observation": observation[count:] + 1}
    after |= {name: torch.zeros(1, dtype=torch.bool) for name in ("terminated", "truncated")}
    buffer = replay.ring(2 * count, tree.index(rows, 0), storage=storage, debug=True)
    state = buffer.add(buffer.add(buffer.init(), rows), after)
    batch, info = buffer.sample(state, KEY, 64)
    found = {int(i): x for i, x in zip(info.index, batch["next_observation"], strict=True)}
    return torch.stack([found[i] for i in range(count)])


def replay_slice(inputs: Inputs) -> Results:
    length = inputs["slice_length"]
    trajectory = torch.tensor(inputs["trajectory_id"])
    sampler = replay.slices(slice_len=length, trajectory="trajectory_id")
    buffer = replay.ring(inputs["capacity"], {"trajectory_id": torch.tensor(0)}, sampler=sampler)
    state = buffer.add(buffer.init(), {"trajectory_id": trajectory[: inputs["size"]]})
    _, info = buffer.sample(state, KEY, 64 * length)
    return {"valid_starts": sorted(set(info.index[0].tolist()))}


def replay_nstep(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    rows = {
        "reward": reward,
        "terminated": flag(inputs, "terminated"),
        "truncated": flag(inputs, "truncated"),
        "next_observation": torch.arange(len(reward)),
    }
    merge = replay.n_step(inputs["n"], gamma=inputs["gamma"])
    buffer = replay.ring(len(reward), tree.index(rows, 0), transform=merge)
    batch, info = buffer.sample(buffer.add(buffer.init(), rows), KEY, 64)
    found = {int(i): row for row, i in enumerate(info.index)}
    merged = tree.index(batch, torch.tensor([found[i] for i in range(len(reward))]))
    return {
        "return": merged["reward"],
        "steps": merged["steps"],
        "next_index": merged["next_observation"],
        "terminated": merged["terminated"].int(),
        "discount": merged["discount"],
    }


def replay_prioritized(inputs: Inputs) -> Results:
    priority = real(inputs, "priority")
    count = len(priority)
    sampler = replay.prioritized(
        alpha=inputs["priority_alpha"], beta=inputs.get("importance_beta", 1.0)
    )
    buffer = replay.ring(count, {"x": torch.tensor(0)}, sampler=sampler)
    state = buffer.add(buffer.init(), {"x": torch.arange(count)})
    state = buffer.update_priority(state, torch.arange(count), priority)
    leaf = state.index["leaf"][:count]
    _, info = buffer.sample(state, KEY, 64)
    probability, weight = torch.zeros(count), torch.zeros(count)
    probability = probability.double().index_put((info.index,), info.probability)
    weight = weight.double().index_put((info.index,), info.weight)
    results = {"leaf": leaf, "sample_probability": probability, "importance_weight": weight}
    if "uniform" in inputs:
        results["index"] = replay.index_from_uniform(buffer, state, real(inputs, "uniform"))
    return results
