"""Rows that say which row they are, so that a sample proves where it came from."""

from __future__ import annotations

from typing import Any

import torch

from purerl import random, tree

Rows = dict[str, Any]

FLAG = torch.tensor(False)
EXAMPLE: Rows = {
    "serial": torch.tensor(0),
    "observation": torch.zeros(2),
    "next_observation": torch.zeros(2),
    "reward": torch.zeros(()),
    "terminated": FLAG,
    "truncated": FLAG,
}


def transitions(count: int, *, start: int = 0, seed: int = 0, ends: float = 0.2) -> Rows:
    """Return ``count`` rows in time; row i has serial number start + i."""
    keys = random.split(random.fold_in(random.key(seed), start), 4)
    serial = torch.arange(start, start + count)
    terminated = random.bernoulli(keys[0], ends / 2, (count,))
    truncated = random.bernoulli(keys[1], ends / 2, (count,))
    # within an episode the next observation is that of the following row; at an end it is not
    after = torch.where(terminated | truncated, -1.0 - serial, serial + 1.0)
    return {
        "serial": serial,
        "observation": torch.stack([serial.float(), serial.float()], -1),
        "next_observation": torch.stack([after, after], -1),
        "reward": random.normal(keys[2], (count,)),
        "terminated": terminated,
        "truncated": truncated,
    }


def environments(count: int, num_envs: int, *, start: int = 0, seed: int = 0) -> Rows:
    """Return ``count`` steps of environments, ``[count, num_envs, …]``."""
    columns = [
        transitions(count, start=start, seed=100 * seed + e, ends=0.3) for e in range(num_envs)
    ]
    return tree.map(lambda *leaves: torch.stack(leaves, 1), *columns)


def joined(parts: list[Rows]) -> Rows:
    """Return rows one after the other."""
    return tree.map(lambda *leaves: torch.cat(leaves), *parts)


def stored_serials(state: Any) -> list[int]:
    """Return the serial numbers that a ring of tensors holds, the oldest first."""
    s = state if isinstance(state, dict) else tree.to_dict(state)
    capacity = len(s["storage"]["serial"])
    age = torch.arange(int(s["num_rows"]))
    slots = (s["cursor"] - s["num_rows"] + age) % capacity
    found: list[int] = s["storage"]["serial"][slots].tolist()
    return found
