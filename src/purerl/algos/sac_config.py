"""The configuration of SAC: one frozen dataclass, checked whole when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .. import distributions, networks
from ..config import Fraction, NonNegative, NonNegativeInt, Positive, PositiveInt, strict
from ..losses import AlphaForm, CriticReduce, CriticSum


def _rules(config: Config) -> list[str]:
    """Return what is wrong between the fields of a configuration."""
    problems = []
    if config.buffer_size % config.num_envs:
        nearest = max(config.buffer_size // config.num_envs, 1) * config.num_envs
        problems.append(
            f"buffer_size is {config.buffer_size}, expected a multiple of num_envs = "
            f"{config.num_envs}, such as {nearest}"
        )
    if (config.log_scale_low is None) != (config.log_scale_high is None):
        problems.append("log_scale_low and log_scale_high go together: set both or neither")
    if config.num_envs * config.num_steps > config.buffer_size:
        problems.append(
            f"buffer_size is {config.buffer_size}, expected at least num_envs · num_steps = "
            f"{config.num_envs * config.num_steps}, the rows that one train step adds"
        )
    if config.n_step > 1 and config.buffer_size < config.num_envs * config.n_step:
        problems.append(
            f"buffer_size is {config.buffer_size}, expected at least num_envs · n_step = "
            f"{config.num_envs * config.n_step}"
        )
    low, high = config.alpha_low, config.alpha_high
    if low is not None and high is not None and low > high:
        problems.append(f"alpha_low is {low}, expected at most alpha_high = {high}")
    if config.critic_network is not None and config.critic_layer_norm:
        problems.append("critic_layer_norm shapes the built-in critic; critic_network replaces it")
    return problems


@strict(_rules)
@dataclass(frozen=True, kw_only=True)
class Config:
    """What a SAC run is made of; every float becomes a leaf of ``state.hparams`` at `init`.

    Groups: size of the program; replay; objective; temperature; optimisation; networks.
    """

    num_envs: PositiveInt = 1
    """Environments stepped together."""
    num_steps: PositiveInt = 1
    """Steps of each environment before the critics learn again (Stable-Baselines3's train_freq)."""
    num_gradient_steps: PositiveInt = 1
    """Gradient steps of a train step; over num_envs · num_steps it is the update-to-data ratio."""
    total_steps: PositiveInt = 1_000_000
    """Environment steps over which the schedule of priority_beta runs."""
    warmup_steps: NonNegativeInt = 5000
    """Environment steps with actions uniform over the action space."""
    learning_starts: NonNegativeInt | None = None
    """Environment steps before the first gradient step; None takes warmup_steps."""

    buffer_size: PositiveInt = 1_000_000
    """Transitions that the replay holds for each member of a sweep."""
    batch_size: PositiveInt = 256
    n_step: PositiveInt = 1
    """Rewards summed before the bootstrap, which is discounted by γ^n."""
    prioritized: bool = False
    priority_alpha: NonNegative = 0.6
    priority_beta: Fraction = 0.4
    priority_beta_end: Fraction = 1.0
    """Linear schedule of the importance exponent to this value."""

    gamma: Fraction = 0.99
    reward_scale: Positive = 1.0
    num_critics: PositiveInt = 2
    critic_reduce_target: CriticReduce = "min"
    critic_reduce_actor: CriticReduce = "min"
    critic_loss_kind: Literal["l2", "half_l2", "huber"] = "l2"
    critic_sum: CriticSum = "sum"
    truncation: Literal["bootstrap", "terminal", "drop"] = "bootstrap"
    """``"terminal"`` drops the value of the state where a time limit cut the episode, ``"drop"``
    the whole row."""
    tau: Fraction = 0.005
    target_every: PositiveInt = 1
    """Gradient steps between updates of the target critics."""
    policy_delay: PositiveInt = 1
    """Gradient steps of the critics between turns of the actor and the temperature."""
    policy_updates: PositiveInt = 1
    """Gradient steps of the actor and the temperature at each turn."""
    order: Literal["sequential", "simultaneous"] = "sequential"
    """Critics, actor, temperature, each under the parameters then current; or all under the old."""

    alpha_init: Positive = 1.0
    fixed_alpha: bool = False
    alpha_form: AlphaForm = "log"
    alpha_sample: Literal["actor", "fresh"] = "actor"
    """The temperature learns from the sample of the actor's step, or from a fresh one after it."""
    alpha_low: NonNegative | None = None
    alpha_high: Positive | None = None
    target_entropy: float | None = None
    """None: −D · target_entropy_scale for D action dimensions, log(number of discrete actions)
    times it."""
    target_entropy_scale: NonNegative | None = None
    """None: 1 for continuous actions, 0.98 for discrete ones."""
    density: distributions.Density = "unit"
    """Log-probabilities in the box [−1, 1] or in that of the environment."""

    actor_learning_rate: NonNegative = 3e-4
    critic_learning_rate: NonNegative = 3e-4
    alpha_learning_rate: NonNegative = 3e-4
    adam_epsilon: Positive = 1e-8
    max_grad_norm: Positive | None = None
    """Of the actor's and of the critics' gradient, each by itself."""

    actor_network: networks.Network | None = None
    """Your own: ``apply(params, observation) -> [*B, 2 · D]`` (discrete: ``[*B, A]``)."""
    critic_network: networks.Network | None = None
    """Your own critic: ``apply(params, observation, action) -> [*B]`` (discrete: ``(params,
    observation) -> [*B, A]``); num_critics copies are made."""
    hidden_sizes: tuple[PositiveInt, ...] = (256, 256)
    activation: networks.Activation = "relu"
    initialization: networks.Initialization = "torch"
    critic_layer_norm: bool = False
    scale_map: distributions.ScaleMap = "exp"
    log_scale_low: float | None = None
    """Bound of log σ for "exp" and "tanh_range"; None takes the default of the scale map."""
    log_scale_high: float | None = None
    scale_floor: Positive | None = None
    """Smallest σ of the two softplus maps."""
    mask_actions: bool = False
    """Observations are Dicts whose ``action_mask`` entry marks the legal actions."""
    dtype: Literal["float32", "float64"] = "float32"

    normalize_observation: bool = False
    """Normalise by running statistics when a batch is drawn; the replay holds raw observations."""
    observation_clip: Positive | None = 10.0
