"""What an environment is: two pure functions over one environment, and its spaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorClass, TensorDict
from torch import Tensor

from .. import random, tree
from ..types import Key


class Step(TensorClass):
    """What one step of an environment shows."""

    observation: Tensor
    """What the policy sees next: the successor, or the first observation of the next episode."""
    next_observation: Tensor
    """The true successor, also where the episode ended."""
    reward: Tensor
    terminated: Tensor
    """The process ended: there is no value beyond it."""
    truncated: Tensor
    """The episode was cut for another reason, such as a time limit: the value goes on."""


@dataclass(frozen=True)
class Environment:
    """A pure environment: functions of *one* environment; ``torch.vmap`` makes a batch.

    The environments of this library are elementwise over leading batch axes as well.
    """

    name: str
    reset: Callable[[Key], tuple[TensorDict, Tensor]]
    """``key -> (env_state, observation)``."""
    step: Callable[[TensorDict, Tensor, Key], tuple[TensorDict, Step]]
    """``(env_state, action, key) -> (env_state, step)``; never resets by itself."""
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    max_episode_steps: int | None = None
    base: Environment | None = None
    """The environment beneath an automatic reset."""


def make_step(
    state: dict[str, Tensor],
    observation: Tensor,
    reward: Tensor,
    terminated: Tensor,
    time: Tensor,
    max_episode_steps: int | None,
) -> tuple[TensorDict, Step]:
    """Return the state and step of a transition, with the time limit applied.

        truncated = time + 1 ≥ max_episode_steps,   whether or not the step terminated

    Args:
        state: the new state's tensors, without the time.
        observation: of the new state, ``[*B, D]``.
        reward: ``[*B]``.
        terminated: bool ``[*B]``.
        time: int64 ``[*B]``, steps before this one.
        max_episode_steps: the limit, None for none.
    """
    time = time + 1
    if max_episode_steps is None:
        truncated = torch.zeros_like(terminated)
    else:
        truncated = time >= max_episode_steps
    new_state = TensorDict({**state, "time": time}, batch_size=time.shape)
    step = Step(
        observation=observation,
        next_observation=observation,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        batch_size=time.shape,
    )
    return new_state, step


def auto_reset(env: Environment) -> Environment:
    """Return an environment that begins a new episode in the step that ends one.

        step_key, reset_key = split(key);   observation = where(done, reset observation, s')

    Every reset is a fresh draw; ``next_observation`` stays the true successor s'.

    Args:
        env: a pure environment that does not reset by itself.

    >>> from purerl import envs
    >>> envs.auto_reset(envs.make("CartPole-v1")).base.name
    'CartPole-v1'
    """

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        step_key, reset_key = random.split(key).unbind(0)
        new_state, outcome = env.step(env_state, action, step_key)
        first_state, first_observation = env.reset(reset_key)
        done = outcome.terminated | outcome.truncated
        new_state = tree.where(done, first_state, new_state)
        outcome.observation = tree.where(done, first_observation, outcome.next_observation)
        return new_state, outcome

    return replace(env, step=step, base=env)
