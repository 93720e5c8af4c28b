"""Evaluation on fresh environments, with keys of its own and frozen statistics."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .. import random, rollout, tree
from ..envs import Environment
from ..errors import ConfigError
from ..types import Key, Tree


class Actor(Protocol):
    """An algorithm that can act."""

    def act(
        self, config: Any, state: Any, observation: Tree, key: Key, deterministic: bool = False
    ) -> tuple[Tensor, Any]:
        """Return actions, and what belongs to them."""


class Evaluation(NamedTuple):
    """Returns and lengths of complete episodes, ``[num_seeds, episodes]``."""

    return_: Tensor
    length: Tensor


def evaluate(
    algorithm: Actor,
    config: Any,
    env: Environment,
    states: Any,
    *,
    key: Key,
    episodes: int = 10,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> Evaluation:
    """Play one episode in each of ``episodes`` fresh environments for every member.

    Args:
        algorithm: a module with ``act``, such as `purerl.ppo`.
        config: its configuration.
        env: a pure environment.
        states: states ``[num_seeds]``; nothing in them changes.
        key: int64 ``[2]``.
        episodes: how many for each member.
        deterministic: take modes instead of samples.
        max_steps: bound on the length; None takes the environment's time limit.

    Raises:
        ConfigError: neither the environment nor ``max_steps`` bounds an episode.
    """
    limit = max_steps or env.max_episode_steps
    if limit is None:
        raise ConfigError(f"{env.name} has no time limit: give max_steps")
    env = env if env.base is None else env.base
    num_seeds = states.batch_size[0]
    reset_key, act_key = random.split(key).unbind(0)
    reset_keys = torch.vmap(lambda k: random.split(k, episodes))(random.split(reset_key, num_seeds))
    env_state, observation = rollout.reset_batch(env, reset_keys)

    def act(state: Any, observation: Tree, key: Key) -> Tensor:
        shown = rollout.packed(observation)
        return algorithm.act(config, state, shown, key, deterministic)[0]

    def step_one(env_state: Tree, action: Tensor, key: Key) -> tuple[Tree, Tree, Tensor, Tensor]:
        after, step = env.step(rollout.packed(env_state), action, key)
        done = step.terminated | step.truncated
        return rollout.plain(after), rollout.plain(step.observation), step.reward, done

    act_all, step_all = torch.vmap(act), torch.vmap(torch.vmap(step_one))
    split_all = torch.vmap(random.split)
    return_, length = torch.zeros(num_seeds, episodes), torch.zeros(num_seeds, episodes)
    running = torch.ones(num_seeds, episodes, dtype=torch.bool)
    keys = random.split(act_key, num_seeds)
    for number in range(limit):
        keys, now = split_all(keys).unbind(1)
        action = act_all(states, observation, now)
        env_keys = torch.vmap(lambda k: random.split(k, episodes))(now)
        env_state, observation, reward, done = step_all(env_state, action, env_keys)
        return_ = torch.where(running, return_ + reward, return_)
        length = length + running
        running = running & ~done
        if number % 16 == 15 and not bool(running.any()):  # a look costs a synchronisation
            break
    return Evaluation(*tree.map(lambda leaf: leaf.cpu(), (return_, length)))
