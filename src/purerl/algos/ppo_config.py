"""The configuration of PPO: one frozen dataclass, checked whole when it is built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from .. import networks
from ..config import (
    Fraction,
    NonNegative,
    Positive,
    PositiveInt,
    Range,
    nearest_divisors,
    strict,
)
from .policy import ContinuousPolicy

_SQRT_2 = math.sqrt(2.0)


def _rules(config: Config) -> list[str]:
    """Return what is wrong between the fields of a configuration."""
    rows = config.num_envs * config.num_steps
    problems = []
    if rows % config.num_minibatches:
        nearest = " or ".join(map(str, nearest_divisors(rows, config.num_minibatches)))
        problems.append(
            f"num_minibatches is {config.num_minibatches}, which does not divide num_envs · "
            f"num_steps = {config.num_envs} · {config.num_steps} = {rows} rows; "
            f"the nearest valid values are {nearest}"
        )
    if (config.value_clip_epsilon is None) != (config.value_clip_mode is None):
        problems.append("value_clip_epsilon and value_clip_mode go together: set both or neither")
    return problems


@strict(_rules)
@dataclass(frozen=True, kw_only=True)
class Config:
    """What a PPO run is made of; every float becomes a leaf of ``state.hparams`` at `init`.

    Groups: size of the program; objective; optimisation; policy and network; normalisation.
    """

    num_envs: PositiveInt = 1
    """Environments stepped together."""
    num_steps: PositiveInt = 2048
    """Steps of each environment in one rollout."""
    num_epochs: PositiveInt = 10
    """Passes over a rollout, each in a fresh order."""
    num_minibatches: PositiveInt = 32
    """Minibatches of an epoch; must divide num_envs · num_steps."""
    total_steps: PositiveInt = 1_000_000
    """Environment steps over which the schedules run."""

    gamma: Fraction = 0.99
    lmbda: Fraction = 0.95
    clip_epsilon: NonNegative = 0.2
    clip_epsilon_end: NonNegative | None = None
    """Linear schedule of clip_epsilon to this value; None keeps it constant."""
    dual_clip: Annotated[float, Range(1, open_low=True)] | None = None
    value_coef: NonNegative = 0.25
    value_loss_kind: Literal["l2", "half_l2", "huber"] = "l2"
    value_clip_epsilon: Positive | None = None
    value_clip_mode: Literal["max", "replace"] | None = None
    entropy_coef: NonNegative = 0.0
    normalize_advantage: Literal["minibatch", "rollout", "none"] = "minibatch"
    advantage_ddof: Literal[0, 1] = 1
    advantage_floor: Positive | None = None
    """Divide by max(std, floor), as TorchRL does, instead of std + 1e-8."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """``"terminal"`` drops the value of the state where a time limit cut the episode."""
    recompute_advantage: Literal["once", "epoch"] = "once"
    target_kl: Positive | None = None
    kl_stop_factor: Positive = 1.5
    kl_stop_place: Literal["minibatch_before_step", "epoch_end"] = "minibatch_before_step"

    learning_rate: NonNegative = 3e-4
    learning_rate_end: NonNegative | None = 0.0
    """Linear schedule of learning_rate to this value; None keeps it constant."""
    schedule_unit: Literal["update", "gradient_step"] = "update"
    schedule_offset: Literal[0, 1] = 0
    """0 starts at learning_rate (CleanRL), 1 ends at learning_rate_end (Stable-Baselines3)."""
    max_grad_norm: Positive | None = 0.5
    grad_clip_scope: Literal["joint", "separate"] = "joint"
    """One norm over actor and critic together, or one norm each."""
    grad_clip_form: Literal["exact", "torch"] = "exact"
    adam_epsilon: Positive = 1e-5

    network: networks.Network | None = None
    """Your own: ``apply(params, observation) -> (actor output, value)``; replaces the fields
    down to critic_hidden_gain."""
    hidden_sizes: tuple[PositiveInt, ...] = (64, 64)
    activation: networks.Activation = "tanh"
    shared_trunk: bool = False
    initialization: networks.Initialization = "orthogonal"
    hidden_gain: Positive = _SQRT_2
    actor_gain: Positive = 0.01
    critic_gain: Positive = 1.0
    critic_hidden_gain: Positive | None = None
    """Gain of the critic's hidden layers; None takes hidden_gain."""
    continuous_policy: ContinuousPolicy = "normal"
    scale: Literal["state_independent", "predicted"] = "state_independent"
    log_std_init: float = 0.0
    mask_actions: bool = False
    """Observations are Dicts whose ``action_mask`` entry marks the legal actions."""
    dtype: Literal["float32", "float64"] = "float32"

    normalize_observation: bool = False
    observation_clip: Positive | None = 10.0
    normalize_reward: bool = False
    reward_clip: Positive | None = 10.0
    normalize_update: Literal["step", "rollout"] = "step"
    """Statistics move with every step, or rest during a rollout and move once after it."""
