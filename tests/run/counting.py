"""A tiny algorithm for the driver's tests: it plays action 0 and learns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorClass, TensorDict
from torch import Tensor

from purerl import random, rollout, tree
from purerl.envs import Environment, HostEnvironment
from purerl.types import Key, Tree


@dataclass(frozen=True)
class Config:
    num_envs: int = 2
    num_steps: int = 4


class State(TensorClass):
    episode: TensorDict
    key: Tensor
    num_updates: Tensor


def init(config: Config, env: Environment | HostEnvironment, key: Key) -> State:
    return State(
        episode=tree.from_dict(rollout.episode_init(config.num_envs)),
        key=key,
        num_updates=torch.zeros((), dtype=torch.int64),
        batch_size=[],
    )


def act(
    config: Config, state: State, observation: Tree, key: Key, deterministic: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    return torch.zeros(observation.shape[0], dtype=torch.int64), {}


def train_step(config: Config, env: Environment, state: State) -> tuple[State, TensorDict]:
    """Complete an episode of four uniform rewards in each environment."""
    key, draw = random.split(state.key).unbind(0)
    reward = random.uniform(draw, (config.num_steps, config.num_envs))
    done = torch.zeros_like(reward, dtype=torch.bool)
    done[-1] = True
    return _next(state, key, reward, done)


def host_train_step(
    config: Config, host: HostEnvironment, states: State
) -> tuple[State, TensorDict]:
    num_seeds = states.batch_size[0]
    action = torch.zeros(host.num_envs, dtype=torch.int64)
    steps = [host.step(action) for _ in range(config.num_steps)]

    def stacked(name: str) -> Tensor:
        rows = torch.stack([getattr(step, name) for step in steps])
        return rows.unflatten(1, (num_seeds, config.num_envs))

    done = stacked("terminated") | stacked("truncated")
    step = torch.vmap(_next, in_dims=(0, 0, 1, 1))
    return step(states, states.key, stacked("reward"), done)


def _next(state: State, key: Key, reward: Tensor, done: Tensor) -> tuple[State, TensorDict]:
    episode, metrics = rollout.episode_update(tree.to_dict(state.episode), reward, done)
    number = state.num_updates + 1
    after = State(episode=tree.from_dict(episode), key=key, num_updates=number, batch_size=[])
    return after, tree.from_dict({"episode": metrics, "loss": {"policy": 1.0 / number}})


def steps_per_train_step(config: Any) -> int:
    return int(config.num_envs * config.num_steps)
