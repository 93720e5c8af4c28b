"""Collecting experience: the bulk draws of a rollout, automatic resets, episode statistics.

The key discipline of a rollout of T steps in B environments, which a program in another
framework can repeat:

    step_keys = split(key, T);  action_key, env_key = split(step_keys[t])
    env_keys  = split(env_key, B);  step_key, reset_key = split(env_keys[i])

All draws of a rollout are made in bulk before its first step, and are the same bits that a
step-by-step program would draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import random, recurrence, tree
from .envs import Environment
from .types import Key, Tree

RECENT_EPISODES = 100
"""How many completed episodes the ring of episode statistics remembers."""


class RolloutKeys(NamedTuple):
    """The keys of a rollout: one for each step's actions, and two for each environment step."""

    action: Key
    """``[T, 2]``."""
    step: Key
    """``[T, B, 2]``."""
    reset: Key
    """``[T, B, 2]``."""


def rollout_keys(key: Key, num_steps: int, num_envs: int) -> RolloutKeys:
    """Return all keys of a rollout by the module's discipline.

    Args:
        key: int64 ``[2]``.
        num_steps: T.
        num_envs: B.
    """
    split = torch.vmap(random.split)
    action_key, env_key = split(random.split(key, num_steps)).unbind(1)
    env_keys = torch.vmap(lambda k: random.split(k, num_envs))(env_key)
    step_key, reset_key = torch.vmap(split)(env_keys).unbind(2)
    return RolloutKeys(action=action_key, step=step_key, reset=reset_key)


class StepOutcome(NamedTuple):
    """What a batch of environments returns, as plain trees of leaves ``[B, …]``."""

    observation: Tree
    next_observation: Tree
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


def plain(value: Tree) -> Tree:
    """Return a TensorDict or TensorClass as nested dicts, anything else as it is."""
    return value if isinstance(value, Tensor) else tree.to_dict(value)


def packed(value: Tree) -> Tree:
    """Return nested dicts as a TensorDict, anything else as it is; the inverse of `plain`."""
    return tree.from_dict(value) if isinstance(value, dict) else value


def reset_batch(env: Environment, keys: Key) -> tuple[Tree, Tree]:
    """Reset one environment for each key; plain trees of environment states and observations.

    Args:
        env: a pure environment.
        keys: int64 ``[*B, 2]`` with one or two batch axes.
    """

    def reset(key: Key) -> tuple[Tree, Tree]:
        env_state, observation = env.reset(key)
        return plain(env_state), plain(observation)

    for _ in range(keys.ndim - 1):
        reset = torch.vmap(reset)
    return reset(keys)


def step_batch(
    env: Environment,
) -> Callable[[Tree, Tensor, Key, tuple[Tree, Tree]], tuple[Tree, StepOutcome]]:
    """Return ``step(env_state, action, key, resets)`` for a batch of automatically reset copies.

    ``resets`` are the environment states and observations that finished environments continue
    from, drawn beforehand by `reset_batch`. The successor that was reached is kept in
    ``next_observation``.
    """
    env = env if env.base is None else env.base

    def step_one(env_state: Tree, action: Tensor, key: Key) -> tuple[Tree, StepOutcome]:
        new_state, step = env.step(packed(env_state), action, key)
        after = plain(step.next_observation)
        return plain(new_state), StepOutcome(
            after, after, step.reward, step.terminated, step.truncated
        )

    step_all = torch.vmap(step_one)

    def step(
        env_state: Tree, action: Tensor, key: Key, resets: tuple[Tree, Tree]
    ) -> tuple[Tree, StepOutcome]:
        env_state, outcome = step_all(env_state, action, key)
        done = outcome.terminated | outcome.truncated
        env_state = tree.where(done, resets[0], env_state)
        observation = tree.where(done, resets[1], outcome.next_observation)
        return env_state, outcome._replace(observation=observation)

    return step


def episode_init(num_envs: int) -> dict[str, Tensor]:
    """Return empty episode statistics of B environments; constant in memory however long the run.

    ``return_`` and ``length`` ``[B]`` run within the episode at hand; ``recent_return`` and
    ``recent_length`` are a ring of the last 100 completed episodes in order of completion, NaN
    where there is none yet; ``count`` is the number of completed episodes.
    """
    return {
        "return_": torch.zeros(num_envs),
        "length": torch.zeros(num_envs),
        "recent_return": torch.full((RECENT_EPISODES,), torch.nan),
        "recent_length": torch.full((RECENT_EPISODES,), torch.nan),
        "count": torch.zeros((), dtype=torch.int64),
    }


def episode_update(
    episode: dict[str, Tensor], reward: Tensor, done: Tensor, mask: Tensor | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Account for a rollout: new statistics, and the metrics of the episodes that it completed.

        R_t = r_t + where(d_{t−1}, 0, R_{t−1}),  R_{−1} from the statistics;   completed where d_t

    Args:
        episode: statistics from `episode_init`.
        reward: floating ``[T, B]``, as the environment gave it.
        done: bool ``[T, B]``, terminated or truncated.
        mask: bool ``[T, B]``, False for rows that are no transition.

    Returns:
        the statistics, and, 0-d, ``return_mean`` and ``length_mean`` of the episodes that this
        rollout completed (NaN if none), their ``count``, and ``recent_return_mean`` of the last
        100 completed ones, whenever that was.
    """
    reward = reward.to(episode["return_"].dtype)
    real = torch.ones_like(reward) if mask is None else mask.to(reward.dtype)
    reward = reward if mask is None else torch.where(mask, reward, torch.zeros_like(reward))
    done = done if mask is None else done & mask
    cut = torch.cat([torch.zeros_like(done[:1]), done[:-1]])
    return_ = recurrence.linear(1.0, reward, initial=episode["return_"], cut=cut)
    length = recurrence.linear(1.0, real, initial=episode["length"], cut=cut)
    count = done.sum()
    updated = {
        "return_": torch.where(done[-1], torch.zeros_like(return_[-1]), return_[-1]),
        "length": torch.where(done[-1], torch.zeros_like(length[-1]), length[-1]),
        "recent_return": _push(episode["recent_return"], episode["count"], return_, done),
        "recent_length": _push(episode["recent_length"], episode["count"], length, done),
        "count": episode["count"] + count,
    }
    metrics = {
        "return_mean": torch.where(done, return_, 0.0).sum() / count,
        "length_mean": torch.where(done, length, 0.0).sum() / count,
        "count": count,
        "recent_return_mean": recent_return_mean(updated),
    }
    return updated, metrics


def _push(ring: Tensor, count: Tensor, values: Tensor, done: Tensor) -> Tensor:
    """Write the values where done into the ring, in order; of too many, the last ones stay."""
    size = ring.shape[0]
    flat_done, flat_values = done.flatten(), values.flatten()
    order = flat_done.cumsum(0)
    # scattering twice into one slot has no defined winner, so older values go to a spare slot
    kept = flat_done & (order > order[-1] - size)
    slot = torch.where(kept, (count + order - 1) % size, size)
    spare = torch.cat([ring, ring[:1]])
    return spare.scatter(0, slot, flat_values.to(ring.dtype))[:size]


def recent_return_mean(episode: Any) -> Tensor:
    """Return the mean return of the last 100 completed episodes; NaN if there is none.

    >>> import torch
    >>> statistics, _ = episode_update(
    ...     episode_init(1), torch.ones(4, 1), torch.tensor([[False], [True], [False], [True]])
    ... )
    >>> recent_return_mean(statistics)
    tensor(2.)
    """
    return episode["recent_return"].nanmean(-1)
