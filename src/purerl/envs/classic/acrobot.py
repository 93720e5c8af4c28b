"""Acrobot-v1: swing a two-link arm above its hinge.

Source: gymnasium ``classic_control/acrobot.py`` ("book" dynamics); Sutton 1996.
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

GRAVITY, SECONDS = 9.8, 0.2
MAX_SPEED_1, MAX_SPEED_2 = 4 * math.pi, 9 * math.pi

_Physics = tuple[Tensor, Tensor, Tensor, Tensor]


def _derivative(physics: _Physics, torque: Tensor) -> _Physics:
    """Return the time derivative of (θ1, θ2, θ̇1, θ̇2) for unit lengths, masses and inertias."""
    theta1, theta2, dtheta1, dtheta2 = physics
    cos2, sin2 = theta2.cos(), theta2.sin()
    d1 = 0.25 + (1.25 + cos2) + 2.0
    d2 = 0.25 + 0.5 * cos2 + 1.0
    phi2 = 0.5 * GRAVITY * (theta1 + theta2 - math.pi / 2).cos()
    phi1 = (
        -0.5 * dtheta2.square() * sin2
        - dtheta2 * dtheta1 * sin2
        + 1.5 * GRAVITY * (theta1 - math.pi / 2).cos()
        + phi2
    )
    acc2 = (torque + d2 / d1 * phi1 - 0.5 * dtheta1.square() * sin2 - phi2) / (
        1.25 - d2.square() / d1
    )
    acc1 = -(d2 * acc2 + phi1) / d1
    return dtheta1, dtheta2, acc1, acc2


def _moved(physics: _Physics, slope: _Physics, seconds: float) -> _Physics:
    a, b, c, d = (x + seconds * k for x, k in zip(physics, slope, strict=True))
    return a, b, c, d


def _runge_kutta(physics: _Physics, torque: Tensor) -> _Physics:
    """Return the state after one classical fourth-order step under constant torque."""
    k1 = _derivative(physics, torque)
    k2 = _derivative(_moved(physics, k1, SECONDS / 2), torque)
    k3 = _derivative(_moved(physics, k2, SECONDS / 2), torque)
    k4 = _derivative(_moved(physics, k3, SECONDS), torque)
    a, b, c, d = (
        x + SECONDS / 6.0 * (s1 + 2 * s2 + 2 * s3 + s4)
        for x, s1, s2, s3, s4 in zip(physics, k1, k2, k3, k4, strict=True)
    )
    return a, b, c, d


def _wrap(angle: Tensor) -> Tensor:
    """Return the angle in [−π, π]; the two ends stay as they are."""
    turns = torch.ceil((angle.abs() - math.pi) / (2 * math.pi)).clamp(min=0.0)
    return angle - angle.sign() * turns * (2 * math.pi)


def acrobot(
    *, max_episode_steps: int | None = 500, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return Acrobot-v1: torque −1, 0 or 1 on the joint between the links.

        terminated: −cos θ1 − cos(θ1 + θ2) > 1;   reward −1, and 0 on the step that ends

    Args:
        max_episode_steps: time limit; None for none.
        dtype: of state and reward; observations are float32 like gymnasium's.
    """

    def observe(theta1: Tensor, theta2: Tensor, dtheta1: Tensor, dtheta2: Tensor) -> Tensor:
        parts = [theta1.cos(), theta1.sin(), theta2.cos(), theta2.sin(), dtheta1, dtheta2]
        return torch.stack(parts, -1).to(torch.float32)

    def reset(key: Key) -> tuple[TensorDict, Tensor]:
        physics = random.uniform(key, (4,), minval=-0.1, maxval=0.1).to(dtype)
        time = torch.zeros((), dtype=torch.int64, device=key.device)
        return TensorDict({"physics": physics, "time": time}), observe(*physics.unbind(-1))

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        del key  # the dynamics are deterministic
        theta1, theta2, dtheta1, dtheta2 = env_state["physics"].unbind(-1)
        torque = action.to(dtype) - 1.0
        theta1, theta2, dtheta1, dtheta2 = _runge_kutta((theta1, theta2, dtheta1, dtheta2), torque)
        theta1, theta2 = _wrap(theta1), _wrap(theta2)
        dtheta1 = dtheta1.clamp(-MAX_SPEED_1, MAX_SPEED_1)
        dtheta2 = dtheta2.clamp(-MAX_SPEED_2, MAX_SPEED_2)
        terminated = -theta1.cos() - (theta1 + theta2).cos() > 1.0
        return make_step(
            {"physics": torch.stack([theta1, theta2, dtheta1, dtheta2], -1)},
            observe(theta1, theta2, dtheta1, dtheta2),
            terminated.to(dtype) - 1.0,
            terminated,
            env_state["time"],
            max_episode_steps,
        )

    high = np.array([1.0, 1.0, 1.0, 1.0, MAX_SPEED_1, MAX_SPEED_2], np.float32)
    return Environment(
        name="Acrobot-v1",
        reset=reset,
        step=step,
        observation_space=spaces.Box(-high, high),
        action_space=spaces.Discrete(3),
        max_episode_steps=max_episode_steps,
    )
