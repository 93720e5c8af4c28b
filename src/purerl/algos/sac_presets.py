"""SAC presets as data: what each library does, by its own files, and what purerl recommends."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..errors import ConfigError, did_you_mean
from .ppo_presets import is_continuous
from .sac_config import Config

_Values = Mapping[str, Any]

_CLEANRL: _Values = {
    "critic_learning_rate": 1e-3,
    "alpha_learning_rate": 1e-3,
    "policy_delay": 2,
    "policy_updates": 2,
    "alpha_form": "alpha",
    "alpha_sample": "fresh",
    "density": "env",
    "scale_map": "tanh_range",
}
_CLEANRL_DISCRETE: _Values = {
    "batch_size": 64,
    "warmup_steps": 20_000,
    "num_steps": 4,
    "target_every": 8000,
    "tau": 1.0,
    "target_entropy_scale": 0.89,
    "alpha_form": "alpha",
    "adam_epsilon": 1e-4,
    "total_steps": 5_000_000,
}
_SB3: _Values = {"warmup_steps": 100, "critic_loss_kind": "half_l2"}
_SB3_ZOO: Mapping[str, _Values] = {
    "Pendulum-v1": {
        **dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 1e-3),
        "alpha_learning_rate": 1e-3,
        "total_steps": 20_000,
    },
    "MountainCarContinuous-v0": {
        "buffer_size": 50_000,
        "batch_size": 512,
        "alpha_init": 0.1,
        "fixed_alpha": True,
        "num_steps": 32,
        "num_gradient_steps": 32,
        "gamma": 0.9999,
        "tau": 0.01,
        "warmup_steps": 0,
        "hidden_sizes": (64, 64),
        "total_steps": 50_000,
    },
    "HalfCheetah-v5": {"warmup_steps": 10_000},
    "Hopper-v5": {"warmup_steps": 10_000},
    "Walker2d-v5": {"warmup_steps": 10_000},
    "Ant-v5": {"warmup_steps": 10_000},
}
_SPINUP: _Values = {
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "alpha_init": 0.2,
    "fixed_alpha": True,
    "batch_size": 100,
    "warmup_steps": 10_000,
    "learning_starts": 1000,
    "num_steps": 50,
    "num_gradient_steps": 50,
}
_TORCHRL: _Values = {
    "num_envs": 8,
    "num_steps": 125,
    "num_gradient_steps": 1000,
    "warmup_steps": 25_000,
    "density": "env",
    "scale_map": "biased_softplus",
    "scale_floor": 0.1,
}
_TORCHRL_DISCRETE: _Values = {
    "num_steps": 500,
    "num_gradient_steps": 500,
    "warmup_steps": 1000,
    "target_entropy_scale": 0.2,
    "total_steps": 25_000,
}
_BRAX: _Values = {
    "actor_learning_rate": 1e-4,
    "critic_learning_rate": 1e-4,
    "gamma": 0.9,
    "warmup_steps": 0,
    "critic_loss_kind": "half_l2",
    "critic_sum": "mean",
    "target_entropy_scale": 0.5,
    "alpha_form": "alpha",
    "truncation": "drop",
    "order": "simultaneous",
    "scale_map": "softplus",
    "initialization": "lecun_uniform",
    "normalize_observation": True,
}
_RATES = ("actor_learning_rate", "critic_learning_rate", "alpha_learning_rate")
_PURERL: Mapping[str, _Values] = {
    "Pendulum-v1": {
        **dict.fromkeys(_RATES, 1e-3),
        "warmup_steps": 500,
        "buffer_size": 50_000,
        "total_steps": 20_000,
    },
    "CartPole-v1": {
        **dict.fromkeys(_RATES, 1e-3),
        "num_envs": 4,
        "num_gradient_steps": 2,
        "warmup_steps": 1000,
        "buffer_size": 100_000,
        "hidden_sizes": (64, 64),
        "target_entropy_scale": 0.2,
        "total_steps": 100_000,
    },
}

PRESETS: Mapping[str, tuple[_Values, _Values, Mapping[str, _Values]]] = MappingProxyType(
    {
        "cleanrl": (_CLEANRL_DISCRETE, _CLEANRL, {}),
        "sb3": (_SB3, _SB3, _SB3_ZOO),
        "spinup": (_SPINUP, _SPINUP, {}),
        "torchrl": (_TORCHRL_DISCRETE, _TORCHRL, {}),
        "brax": (_BRAX, _BRAX, {}),
        "purerl": ({}, {}, _PURERL),
    }
)
"""For each name: values for discrete actions, for continuous ones, and for single environments."""


def preset(name: str, env_id: str) -> Config:
    """Return the configuration that a library uses for an environment.

    Args:
        name: ``"cleanrl"``, ``"sb3"`` (with the values of its zoo where it has the environment,
            without its state-dependent exploration), ``"spinup"``, ``"torchrl"`` (its recipes),
            ``"brax"`` (its signature's defaults) or ``"purerl"`` (our own).
        env_id: id of an environment; decides between discrete and continuous recipes.

    Raises:
        ConfigError: unknown name.

    Source: the files of the named libraries, read in 2026.

    >>> preset("sb3", "Pendulum-v1").critic_learning_rate
    0.001
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}{did_you_mean(name, PRESETS)}")
    discrete, continuous, by_environment = PRESETS[name]
    values = continuous if is_continuous(env_id) else discrete
    return Config(**{**values, **by_environment.get(env_id, {})})
