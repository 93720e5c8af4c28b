"""The numbers of a run, settled and checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from ..envs import Environment, HostEnvironment
from ..errors import ConfigError
from .algorithm import Algorithm, short_name


@dataclass(frozen=True)
class Plan:
    """What a run is going to do; steps are environment steps of each seed."""

    algorithm: str
    env: str
    backend: Literal["pure", "host"]
    num_seeds: int
    num_updates: int
    steps_per_update: int
    requested_steps: int

    @property
    def total_steps(self) -> int:
        """Steps of each seed, rounded up from the requested ones to whole train steps."""
        return self.num_updates * self.steps_per_update

    @property
    def title(self) -> str:
        """What a picture of the run is about."""
        return f"{self.algorithm.upper()} on {self.env}"

    def __str__(self) -> str:
        seeds = f"{self.num_seeds} seed{'s' if self.num_seeds > 1 else ''}"
        asked = f" ({self.requested_steps:,} asked for)"
        return (
            f"{self.algorithm} on {self.env} ({self.backend}): {seeds} × {self.total_steps:,} steps"
            f"{asked if self.requested_steps != self.total_steps else ''}, "
            f"{self.num_updates:,} train steps of {self.steps_per_update:,}"
        )


def make_plan(
    algorithm: Algorithm,
    config: Any,
    env: Environment | HostEnvironment,
    *,
    num_seeds: int,
    total_steps: int,
) -> Plan:
    """Return the plan of a run.

        num_updates = ⌈total_steps / steps_per_train_step⌉

    Raises:
        ConfigError: a count is not positive, or a host environment does not have
            num_seeds · config.num_envs environments.
    """
    for name, value in (("num_seeds", num_seeds), ("total_steps", total_steps)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}, expected a whole number")
        if value < 1:
            raise ConfigError(f"{name} is {value}, expected at least 1")
    if isinstance(env, HostEnvironment):
        needed = num_seeds * config.num_envs
        if env.num_envs != needed:
            raise ConfigError(
                f"the host environment {env.name} has {env.num_envs} environments, expected "
                f"num_seeds · config.num_envs = {num_seeds} · {config.num_envs} = {needed}; "
                f"make it with num_envs={needed}"
            )
    steps = algorithm.steps_per_train_step(config)
    return Plan(
        algorithm=short_name(algorithm),
        env=env.name,
        backend="host" if isinstance(env, HostEnvironment) else "pure",
        num_seeds=num_seeds,
        num_updates=math.ceil(total_steps / steps),
        steps_per_update=steps,
        requested_steps=total_steps,
    )
