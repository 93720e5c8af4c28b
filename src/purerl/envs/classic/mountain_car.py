"""MountainCar-v0 and MountainCarContinuous-v0: drive an underpowered car up a hill.

Source: gymnasium ``classic_control/mountain_car.py`` and ``continuous_mountain_car.py``.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from ... import random
from ...types import Key
from ..core import Environment, Step, make_step

MIN_POSITION, MAX_POSITION, MAX_SPEED, GRAVITY = -1.2, 0.6, 0.07, 0.0025

_SPACE = spaces.Box(
    np.array([MIN_POSITION, -MAX_SPEED], np.float32),
    np.array([MAX_POSITION, MAX_SPEED], np.float32),
)


def _drive(position: Tensor, velocity: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
    """Return position and velocity after a push; the left wall stops the car."""
    velocity = velocity + push - GRAVITY * (3.0 * position).cos()
    velocity = velocity.clamp(-MAX_SPEED, MAX_SPEED)
    position = (position + velocity).clamp(MIN_POSITION, MAX_POSITION)
    stopped = (position <= MIN_POSITION) & (velocity < 0)
    return position, torch.where(stopped, torch.zeros_like(velocity), velocity)


def _reset(key: Key, dtype: torch.dtype) -> tuple[TensorDict, Tensor]:
    position = random.uniform(key, (), dtype=dtype, minval=-0.6, maxval=-0.4)
    physics = torch.stack([position, torch.zeros_like(position)], -1)
    time = torch.zeros((), dtype=torch.int64, device=key.device)
    return TensorDict({"physics": physics, "time": time}), physics.to(torch.float32)


def mountain_car(
    *, max_episode_steps: int | None = 200, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return MountainCar-v0: push left, not at all, or right.

        v' = clip(v + 0.001 (a − 1) − 0.0025 cos 3x, ±0.07);  x' = clip(x + v', −1.2, 0.6)
        terminated: x' ≥ 0.5 and v' ≥ 0;   reward −1 on every step

    Args:
        max_episode_steps: time limit; None for none.
        dtype: of state and reward; observations are float32 like gymnasium's.
    """

    def reset(key: Key) -> tuple[TensorDict, Tensor]:
        return _reset(key, dtype)

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        del key  # the dynamics are deterministic
        position, velocity = env_state["physics"].unbind(-1)
        position, velocity = _drive(position, velocity, 0.001 * (action.to(dtype) - 1.0))
        physics = torch.stack([position, velocity], -1)
        return make_step(
            {"physics": physics},
            physics.to(torch.float32),
            -torch.ones_like(position),
            (position >= 0.5) & (velocity >= 0),
            env_state["time"],
            max_episode_steps,
        )

    return Environment(
        name="MountainCar-v0",
        reset=reset,
        step=step,
        observation_space=_SPACE,
        action_space=spaces.Discrete(3),
        max_episode_steps=max_episode_steps,
    )


def mountain_car_continuous(
    *, max_episode_steps: int | None = 999, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return MountainCarContinuous-v0: one force in [−1, 1].

        v' = clip(v + 0.0015 clip(a, ±1) − 0.0025 cos 3x, ±0.07);  x' = clip(x + v', −1.2, 0.6)
        terminated: x' ≥ 0.45 and v' ≥ 0;   reward = −0.1 a² (unclipped) + 100 if terminated

    Args:
        max_episode_steps: time limit; None for none.
        dtype: of state and reward; like gymnasium, the state is rounded to float32 after a step.
    """

    def reset(key: Key) -> tuple[TensorDict, Tensor]:
        return _reset(key, dtype)

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        del key  # the dynamics are deterministic
        position, velocity = env_state["physics"].unbind(-1)
        force = action[..., 0].to(dtype)
        position, velocity = _drive(position, velocity, 0.0015 * force.clamp(-1.0, 1.0))
        terminated = (position >= 0.45) & (velocity >= 0)
        observation = torch.stack([position, velocity], -1).to(torch.float32)
        return make_step(
            {"physics": observation.to(dtype)},
            observation,
            100.0 * terminated.to(dtype) - 0.1 * force.square(),
            terminated,
            env_state["time"],
            max_episode_steps,
        )

    return Environment(
        name="MountainCarContinuous-v0",
        reset=reset,
        step=step,
        observation_space=_SPACE,
        action_space=spaces.Box(-1.0, 1.0, (1,)),
        max_episode_steps=max_episode_steps,
    )
