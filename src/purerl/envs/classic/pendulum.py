"""Pendulum-v1: swing a pendulum up and hold it.

Source: gymnasium ``classic_control/pendulum.py``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from ... import random
from ...types import Key
from ..core import Environment, Step, make_step

MAX_SPEED, MAX_TORQUE, SECONDS = 8.0, 2.0, 0.05


def pendulum(
    *,
    max_episode_steps: int | None = 200,
    gravity: float = 10.0,
    dtype: torch.dtype = torch.float32,
) -> Environment:
    """Return Pendulum-v1; the cost is that of the state before the step.

        cost = norm(θ)² + 0.1 θ̇² + 0.001 u²;  norm(x) = ((x + π) mod 2π) − π
        θ̇' = clip(θ̇ + (3g/2 sin θ + 3u) dt, −8, 8);  θ' = θ + θ̇' dt;  reward = −cost

    Args:
        max_episode_steps: time limit; None for none. The process itself never terminates.
        gravity: g.
        dtype: of state and reward; observations are float32 like gymnasium's.
    """

    def observe(theta: Tensor, theta_dot: Tensor) -> Tensor:
        return torch.stack([theta.cos(), theta.sin(), theta_dot], -1).to(torch.float32)

    def reset(key: Key) -> tuple[TensorDict, Tensor]:
        unit = random.uniform(key, (2,), dtype=dtype, minval=-1.0, maxval=1.0)
        theta, theta_dot = unit[..., 0] * math.pi, unit[..., 1]
        time = torch.zeros((), dtype=torch.int64, device=key.device)
        state = {"theta": theta, "theta_dot": theta_dot, "time": time}
        return TensorDict(state), observe(theta, theta_dot)

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        del key  # the dynamics are deterministic
        theta, theta_dot = env_state["theta"], env_state["theta_dot"]
        torque = action[..., 0].to(dtype).clamp(-MAX_TORQUE, MAX_TORQUE)
        angle = torch.remainder(theta + math.pi, 2 * math.pi) - math.pi
        cost = angle.square() + 0.1 * theta_dot.square() + 0.001 * torque.square()
        acceleration = 1.5 * gravity * theta.sin() + 3.0 * torque
        theta_dot = (theta_dot + acceleration * SECONDS).clamp(-MAX_SPEED, MAX_SPEED)
        theta = theta + theta_dot * SECONDS
        return make_step(
            {"theta": theta, "theta_dot": theta_dot},
            observe(theta, theta_dot),
            -cost,
            torch.zeros_like(theta, dtype=torch.bool),
            env_state["time"],
            max_episode_steps,
        )

    high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
    return Environment(
        name="Pendulum-v1",
        reset=reset,
        step=step,
        observation_space=spaces.Box(-high, high),
        action_space=spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,)),
        max_episode_steps=max_episode_steps,
    )
