"""PPO presets as data: what each library does, by its own files, and what purerl recommends."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..errors import ConfigError, did_you_mean
from .ppo_config import Config

_Values = Mapping[str, Any]

CONTINUOUS = frozenset(
    {"Pendulum-v1", "MountainCarContinuous-v0", "LunarLanderContinuous-v3", "BipedalWalker-v3"}
)
"""Environments with a Box action space beside MuJoCo's, whose ids are known by their name."""

_MUJOCO = (
    "HalfCheetah",
    "Hopper",
    "Walker2d",
    "Ant",
    "Humanoid",
    "Swimmer",
    "Reacher",
    "Pusher",
    "InvertedPendulum",
    "InvertedDoublePendulum",
)


def is_continuous(env_id: str) -> bool:
    """Return whether an environment id is known to have continuous actions.

    >>> is_continuous("HalfCheetah-v5"), is_continuous("CartPole-v1")
    (True, False)
    """
    return env_id in CONTINUOUS or env_id.startswith(_MUJOCO) or env_id.startswith("probe/cont")


_CLEANRL: _Values = {
    "gamma": 0.99,
    "lmbda": 0.95,
    "clip_epsilon": 0.2,
    "value_coef": 0.25,
    "value_clip_epsilon": 0.2,
    "value_clip_mode": "max",
    "truncation": "terminal",
    "grad_clip_form": "torch",
}
_CLEANRL_DISCRETE: _Values = {
    **_CLEANRL,
    "num_envs": 4,
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "entropy_coef": 0.01,
    "total_steps": 500_000,
}
_CLEANRL_CONTINUOUS: _Values = {
    **_CLEANRL,
    "num_envs": 1,
    "num_steps": 2048,
    "num_epochs": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "entropy_coef": 0.0,
    "total_steps": 1_000_000,
    "normalize_observation": True,
    "normalize_reward": True,
}

_SB3: _Values = {
    "num_envs": 1,
    "num_steps": 2048,
    "num_epochs": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_end": None,
    "schedule_offset": 1,
    "value_coef": 0.5,
    "grad_clip_form": "torch",
}
_NORMALIZED: _Values = {"normalize_observation": True, "normalize_reward": True}
_LUNAR_LANDER: _Values = {
    "num_envs": 16,
    "num_steps": 1024,
    "num_epochs": 4,
    "num_minibatches": 256,
    "gamma": 0.999,
    "lmbda": 0.98,
    "entropy_coef": 0.01,
    "total_steps": 1_000_000,
}
_SB3_ZOO: Mapping[str, _Values] = {
    "CartPole-v1": {
        "num_envs": 8,
        "num_steps": 32,
        "num_epochs": 20,
        "num_minibatches": 1,
        "gamma": 0.98,
        "lmbda": 0.8,
        "learning_rate": 1e-3,
        "learning_rate_end": 0.0,
        "clip_epsilon_end": 0.0,
        "total_steps": 100_000,
    },
    "Acrobot-v1": {
        **_NORMALIZED,
        "num_envs": 16,
        "num_steps": 256,
        "num_epochs": 4,
        "num_minibatches": 64,
        "lmbda": 0.94,
        "total_steps": 1_000_000,
    },
    "Pendulum-v1": {
        "num_envs": 4,
        "num_steps": 1024,
        "num_minibatches": 64,
        "gamma": 0.9,
        "learning_rate": 1e-3,
        "total_steps": 100_000,
    },
    "MountainCar-v0": {
        **_NORMALIZED,
        "num_envs": 16,
        "num_steps": 16,
        "num_epochs": 4,
        "num_minibatches": 4,
        "lmbda": 0.98,
        "total_steps": 1_000_000,
    },
    "LunarLander-v3": _LUNAR_LANDER,
    "LunarLanderContinuous-v3": _LUNAR_LANDER,
    "BipedalWalker-v3": {
        **_NORMALIZED,
        "num_envs": 32,
        "num_steps": 2048,
        "num_minibatches": 1024,
        "gamma": 0.999,
        "clip_epsilon": 0.18,
        "total_steps": 5_000_000,
    },
}

_PUREJAXRL: _Values = {
    "gamma": 0.99,
    "lmbda": 0.95,
    "clip_epsilon": 0.2,
    "value_coef": 0.25,
    "value_clip_epsilon": 0.2,
    "value_clip_mode": "max",
    "advantage_ddof": 0,
    "truncation": "terminal",
    "num_epochs": 4,
}
_PUREJAXRL_DISCRETE: _Values = {
    **_PUREJAXRL,
    "num_envs": 4,
    "num_steps": 128,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "entropy_coef": 0.01,
    "total_steps": 500_000,
}
_PUREJAXRL_CONTINUOUS: _Values = {
    **_PUREJAXRL,
    "num_envs": 2048,
    "num_steps": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_end": None,
    "hidden_sizes": (256, 256),
    "total_steps": 50_000_000,
    "normalize_observation": True,
    "observation_clip": None,
    "normalize_reward": True,
    "reward_clip": None,
}

_TORCHRL: _Values = {
    "num_envs": 1,
    "num_steps": 2048,
    "num_epochs": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "schedule_unit": "gradient_step",
    "value_coef": 0.25,
    "max_grad_norm": None,
    "recompute_advantage": "epoch",
    "advantage_floor": 1e-6,
    "hidden_gain": 1.0,
    "actor_gain": 1.0,
    "critic_hidden_gain": 0.01,
    "critic_gain": 0.01,
    "continuous_policy": "tanh_normal",
    "total_steps": 1_000_000,
}

_PURERL: Mapping[str, _Values] = {
    "CartPole-v1": {
        "num_envs": 8,
        "num_steps": 32,
        "num_epochs": 10,
        "num_minibatches": 1,
        "gamma": 0.98,
        "lmbda": 0.8,
        "learning_rate": 1e-3,
        "total_steps": 150_000,
    },
    "Acrobot-v1": {
        **_NORMALIZED,
        "num_envs": 16,
        "num_steps": 128,
        "num_epochs": 4,
        "num_minibatches": 8,
        "learning_rate": 7e-4,
        "entropy_coef": 0.005,
        "total_steps": 300_000,
    },
    "Pendulum-v1": {
        "num_envs": 16,
        "num_steps": 128,
        "num_epochs": 10,
        "num_minibatches": 8,
        "gamma": 0.9,
        "learning_rate": 1e-3,
        "total_steps": 400_000,
    },
}

PRESETS: Mapping[str, tuple[_Values, _Values, Mapping[str, _Values]]] = MappingProxyType(
    {
        "cleanrl": (_CLEANRL_DISCRETE, _CLEANRL_CONTINUOUS, {}),
        "sb3": (_SB3, _SB3, _SB3_ZOO),
        "purejaxrl": (_PUREJAXRL_DISCRETE, _PUREJAXRL_CONTINUOUS, {}),
        "torchrl": (_TORCHRL, {**_TORCHRL, "normalize_observation": True}, {}),
        "purerl": ({}, _NORMALIZED, _PURERL),
    }
)
"""For each name: values for discrete actions, for continuous ones, and for single environments."""


def preset(name: str, env_id: str) -> Config:
    """Return the configuration that a library uses for an environment.

    Args:
        name: ``"cleanrl"``, ``"sb3"`` (with the values of its zoo where it has the environment),
            ``"purejaxrl"``, ``"torchrl"`` (its MuJoCo recipe) or ``"purerl"`` (our own).
        env_id: id of an environment; decides between discrete and continuous recipes.

    Raises:
        ConfigError: unknown name.

    Source: the files of the named libraries, read in 2026; where they differ is tabulated in
    ``docs/presets.md``. Observation wrappers that belong to an environment are not part of it.

    >>> preset("cleanrl", "CartPole-v1").num_minibatches
    4
    >>> preset("sb3", "CartPole-v1").lmbda
    0.8
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}{did_you_mean(name, PRESETS)}")
    discrete, continuous, by_environment = PRESETS[name]
    values = continuous if is_continuous(env_id) else discrete
    return Config(**{**values, **by_environment.get(env_id, {})})
