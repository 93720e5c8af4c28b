"""Environments by the ids that gymnasium knows them by."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import torch

from ..errors import ConfigError, did_you_mean
from . import probe
from .classic import acrobot, cartpole, mountain_car, mountain_car_continuous, pendulum
from .core import Environment


class Factory(Protocol):
    """Makes an environment with its own time limit, or another one."""

    def __call__(
        self, *, max_episode_steps: int | None = ..., dtype: torch.dtype = ...
    ) -> Environment:
        """Return the environment."""


ENVIRONMENTS: Mapping[str, Factory] = MappingProxyType(
    {
        "CartPole-v1": cartpole,
        "Acrobot-v1": acrobot,
        "MountainCar-v0": mountain_car,
        "MountainCarContinuous-v0": mountain_car_continuous,
        "Pendulum-v1": pendulum,
        "probe/one_step": probe.one_step,
        "probe/observation_reward": probe.observation_reward,
        "probe/two_step": probe.two_step,
        "probe/action_reward": probe.action_reward,
        "probe/observation_action_reward": probe.observation_action_reward,
        "probe/truncation_loop": probe.truncation_loop,
        "probe/termination_loop": probe.termination_loop,
        "probe/continuous_target": probe.continuous_target,
        "probe/counter": probe.counter,
        "probe/chain": probe.chain,
    }
)
"""The pure environments by id."""


def make(env_id: str, *, dtype: torch.dtype = torch.float32) -> Environment:
    """Return the pure environment of an id; the functions in `purerl.envs` take options.

    Args:
        env_id: one of `ENVIRONMENTS`.
        dtype: of its state and reward.

    Raises:
        ConfigError: there is no pure environment of this id.

    >>> make("CartPole-v1").max_episode_steps
    500
    >>> make("CartPol-v1")
    Traceback (most recent call last):
        ...
    purerl.errors.ConfigError: unknown environment CartPol-v1; did you mean CartPole-v1?
    """
    if env_id not in ENVIRONMENTS:
        raise ConfigError(f"unknown environment {env_id}{did_you_mean(env_id, ENVIRONMENTS)}")
    return ENVIRONMENTS[env_id](dtype=dtype)
