"""Cases of environments that live outside the state, and of seeds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.cases.tensors import Inputs, Results

import purerl as prl

NUM_ENVS = 4
"""Environments of each run where a case names only runs."""


class Counted(gym.Env[Any, Any]):
    """Shows how many steps it took, and ends by a time limit after a fixed number of them."""

    observation_space = spaces.Box(0.0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length, self.count = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        shown = np.full(1, self.count, np.float32)
        return shown, 1.0, False, self.count == self.length, {}


def autoreset(inputs: Inputs) -> Results:
    mode, length = AutoresetMode[inputs["autoreset_mode"].upper()], inputs["episode_length"]
    host = prl.envs.gymnasium(SyncVectorEnv([lambda: Counted(length)], autoreset_mode=mode))
    host.reset([0])
    episode, lengths, steps = prl.rollout.episode_init(1), [], []
    for _ in range(inputs["num_steps"]):
        step = host.step(torch.zeros(1, dtype=torch.int64))
        done = step.terminated | step.truncated
        rows = (row.unsqueeze(0) for row in (step.reward, done, step.mask))
        episode, finished = prl.rollout.episode_update(episode, *rows)
        lengths += [finished["length_mean"]] if finished["count"] else []
        steps.append(step)
    mask = torch.cat([step.mask for step in steps])
    return {
        "valid": mask.int(),
        "real_transitions": mask.sum(),
        "finished_lengths": lengths,
        "observation": [step.observation[0, 0] for step in steps],
        "next_observation": [step.next_observation[0, 0] for step in steps],
    }


class StartsBetween(gym.Wrapper[Any, Any, Any, Any]):
    """Resets CartPole into a range of its own."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.options = {"low": low, "high": high}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=self.options)


def seeding(inputs: Inputs) -> Results:
    if "run_seeds" in inputs:
        return _runs(inputs["run_seeds"])
    seeds, bounds = (
        inputs["environment_seeds"],
        (inputs.get("low", -0.05), inputs.get("high", 0.05)),
    )
    vector = SyncVectorEnv(
        [lambda: StartsBetween(*bounds)] * len(seeds), autoreset_mode=AutoresetMode.SAME_STEP
    )
    host = prl.envs.gymnasium(vector)
    observation = host.reset(seeds)
    host.close()
    return {"first_state": observation[:, 0]}


def _runs(run_seeds: list[int]) -> Results:
    network = prl.networks.mlp((3, 4, 1))
    keys = [prl.random.key(seed) for seed in run_seeds]
    first = [tuple(network.init(key)["layers"]["0"]["weight"].flatten().tolist()) for key in keys]
    given = Counter(seed for key in keys for seed in prl.envs.environment_seeds(key, NUM_ENVS))
    return {
        "distinct_initialisations": len(set(first)),
        "shared_environment_seeds": sum(count > 1 for count in given.values()),
    }
