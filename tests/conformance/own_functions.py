"""Functions as a user would have them, some right and some wrong, for the command to find."""

from __future__ import annotations

from typing import Any

import numpy as np

NOT_A_FUNCTION = 3


def right_gae(
    rewards: Any,
    values: Any,
    next_values: Any,
    terminated: Any,
    truncated: Any,
    gamma: Any,
    lam: Any,
) -> Any:
    advantage = np.zeros_like(rewards)
    last = np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        ahead = np.where(terminated[t], 0.0, next_values[t])
        delta = rewards[t] + gamma * ahead - values[t]
        last = delta + gamma * lam * np.where(terminated[t] | truncated[t], 0.0, last)
        advantage[t] = last
    return advantage


def cut_gae(
    rewards: Any,
    values: Any,
    next_values: Any,
    terminated: Any,
    truncated: Any,
    gamma: Any,
    lam: Any,
) -> Any:
    done = terminated | truncated
    return right_gae(rewards, values, next_values, done, done, gamma, lam)


def one_flag_gae(
    rewards: Any, values: Any, next_values: Any, dones: Any, gamma: Any, lam: Any
) -> Any:
    return right_gae(rewards, values, next_values, dones, np.zeros_like(dones), gamma, lam)
