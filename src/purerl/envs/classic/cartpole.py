"""CartPole-v1: balance a pole on a cart.

Source: gymnasium ``classic_control/cartpole.py``; Barto, Sutton and Anderson 1983.
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

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5
TOTAL_MASS, POLE_MOMENT = CART_MASS + POLE_MASS, POLE_MASS * HALF_LENGTH
FORCE, SECONDS = 10.0, 0.02
ANGLE_LIMIT, POSITION_LIMIT = 12 * 2 * math.pi / 360, 2.4


def cartpole(
    *,
    max_episode_steps: int | None = 500,
    sutton_barto_reward: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Environment:
    """Return CartPole-v1 with explicit Euler integration by the velocities before the step.

        temp = (F + m l θ̇² sin θ) / M;  θ̈ = (g sin θ − cos θ temp) / (l (4/3 − m cos² θ / M))
        ẍ = temp − m l θ̈ cos θ / M;  reward 1, also on the step that ends

    Args:
        max_episode_steps: time limit; None for none.
        sutton_barto_reward: reward 0, and −1 on termination.
        dtype: of state and reward; observations are float32 like gymnasium's.
    """

    def reset(key: Key) -> tuple[TensorDict, Tensor]:
        state = random.uniform(key, (4,), dtype=dtype, minval=-0.05, maxval=0.05)
        time = torch.zeros((), dtype=torch.int64, device=key.device)
        return TensorDict({"physics": state, "time": time}), state.to(torch.float32)

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        del key  # the dynamics are deterministic
        x, x_dot, theta, theta_dot = env_state["physics"].unbind(-1)
        force = (action.to(dtype) * 2.0 - 1.0) * FORCE
        cos, sin = theta.cos(), theta.sin()
        temp = (force + POLE_MOMENT * theta_dot.square() * sin) / TOTAL_MASS
        theta_acc = (GRAVITY * sin - cos * temp) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos.square() / TOTAL_MASS)
        )
        x_acc = temp - POLE_MOMENT * theta_acc * cos / TOTAL_MASS
        x = x + SECONDS * x_dot
        theta = theta + SECONDS * theta_dot
        physics = torch.stack(
            [x, x_dot + SECONDS * x_acc, theta, theta_dot + SECONDS * theta_acc], -1
        )
        terminated = (x.abs() > POSITION_LIMIT) | (theta.abs() > ANGLE_LIMIT)
        reward = -terminated.to(dtype) if sutton_barto_reward else torch.ones_like(x)
        return make_step(
            {"physics": physics},
            physics.to(torch.float32),
            reward,
            terminated,
            env_state["time"],
            max_episode_steps,
        )

    high = np.array([POSITION_LIMIT * 2, np.inf, ANGLE_LIMIT * 2, np.inf], np.float32)
    return Environment(
        name="CartPole-v1",
        reset=reset,
        step=step,
        observation_space=spaces.Box(-high, high),
        action_space=spaces.Discrete(2),
        max_episode_steps=max_episode_steps,
    )
