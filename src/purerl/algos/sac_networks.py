"""The networks of SAC, and how an action goes from the actor to the critics and the environment.

The *unit action* is what the replay holds and the critics see: of a box, the squashed sample in
[−1, 1]; of a discrete space, its index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import distributions, losses, networks, random, tree
from ..errors import ConfigError
from ..types import Key
from .sac_config import Config

Plain = dict[str, Any]


class Networks(NamedTuple):
    """Actor, critics and actions as functions of parameters and policy input."""

    discrete: bool
    init: Callable[[Key], Plain]
    """``key -> {"actor", "critic", "log_alpha"}``."""
    actor: Callable[[Any, Any], Any]
    """``(params, input) -> logits [*B, A], or (loc, scale) [*B, D]``."""
    critic: Callable[[Any, Any, Tensor], Tensor]
    """``(params, input, unit action) -> [K, *B]``; discrete, of all actions: ``[K, *B, A]``."""
    noise: Callable[[Key, int], Tensor]
    """``(key, batch) -> [batch, …]``: the randomness of one action for each row."""
    warm_up: Callable[[Any, Tensor, Tensor | None], Tensor]
    """``(outputs, noise, action_mask) -> unit action``, uniform over the legal part of the space:
    the noise of `sample` taken to its own distribution function."""
    sample: Callable[[Any, Tensor, Tensor | None], Tensor]
    """``(outputs, noise, action_mask) -> unit action``."""
    mode: Callable[[Any, Tensor | None], Tensor]
    """``(outputs, action_mask) -> unit action`` of deterministic behaviour."""
    to_environment: Callable[[Tensor], Tensor]
    target_entropy: float
    """What the rule gives for this action space."""


def make_networks(config: Config, spec: Plain, observation_size: int) -> Networks:
    """Return the networks that a configuration and a spec describe.

    Args:
        config: sizes and initialisation.
        spec: with the entry ``action``, from `policy.action_spec`.
        observation_size: F, length of the features that the networks see.

    Raises:
        ConfigError: an action space that SAC cannot use.
    """
    ((kind, sizes),) = spec["action"].items()
    match kind:
        case "discrete":
            return _discrete(config, int(sizes.shape[-1]), observation_size)
        case "box":
            return _continuous(config, sizes["low"], sizes["high"], observation_size)
        case _:
            raise ConfigError(f"action space is {kind}, expected Discrete or Box")


def _dtype(config: Config) -> torch.dtype:
    return torch.float64 if config.dtype == "float64" else torch.float32


def _initializer(
    config: Config, actor: networks.Network, critic: networks.Network
) -> Callable[[Key], Plain]:
    """Return ``init``: actor and critic keys = split(key, 2)."""

    def init(key: Key) -> Plain:
        actor_key, critic_key = random.split(key).unbind(0)
        params = {
            "actor": tree.to_dict(actor.init(actor_key)),
            "critic": tree.to_dict(critic.init(critic_key)),
            "log_alpha": torch.tensor(config.alpha_init, dtype=torch.float64).log(),
        }
        return tree.map(lambda leaf: leaf.to(device=key.device, dtype=_dtype(config)), params)

    return init


def _actor_network(config: Config, observation_size: int, output_size: int) -> networks.Network:
    return config.actor_network or networks.mlp(
        (observation_size, *config.hidden_sizes, output_size),
        config.activation,
        init=config.initialization,
    )


def _critics(
    config: Config, observation_size: int, action_size: int, kind: networks.QKind
) -> networks.Network:
    member = config.critic_network or networks.q_network(
        observation_size,
        action_size,
        kind=kind,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        init=config.initialization,
        layer_norm=config.critic_layer_norm,
    )
    return networks.ensemble(member, config.num_critics)


def _continuous(config: Config, low: Tensor, high: Tensor, observation_size: int) -> Networks:
    size = int(low.shape[-1])
    actor = _actor_network(config, observation_size, 2 * size)
    critic = _critics(config, observation_size, size, "continuous")
    low_log, high_log = config.log_scale_low, config.log_scale_high
    bounds = None if low_log is None or high_log is None else (low_log, high_log)
    gaussian = networks.gaussian_head(
        size,
        kind="predicted",
        scale_map=config.scale_map,
        bounds=bounds,
        floor=config.scale_floor,
    )

    def to_environment(unit: Tensor) -> Tensor:
        bottom, top = low.to(unit.dtype), high.to(unit.dtype)
        scaled = bottom + 0.5 * (top - bottom) * (unit + 1.0)
        return torch.minimum(torch.maximum(scaled, bottom), top)

    scale = 1.0 if config.target_entropy_scale is None else config.target_entropy_scale
    return Networks(
        discrete=False,
        init=_initializer(config, actor, critic),
        actor=lambda params, x: gaussian.apply({}, actor.apply(params, x["observation"])),
        critic=lambda params, x, action: critic.apply(params, x["observation"], action),
        noise=lambda key, batch: random.normal(key, (batch, size), dtype=_dtype(config)),
        # 2 Φ(ε) − 1 of a normal ε
        warm_up=lambda outputs, noise, _mask: torch.erf(noise * 0.5**0.5).to(outputs[0].dtype),
        sample=lambda outputs, noise, _mask: (outputs[0] + outputs[1] * noise).tanh(),
        mode=lambda outputs, _mask: outputs[0].tanh(),
        to_environment=to_environment,
        target_entropy=scale * losses.sac_target_entropy((size,)),
    )


def _discrete(config: Config, num_actions: int, observation_size: int) -> Networks:
    actor = _actor_network(config, observation_size, num_actions)
    critic = _critics(config, observation_size, num_actions, "discrete")
    scale = 0.98 if config.target_entropy_scale is None else config.target_entropy_scale
    return Networks(
        discrete=True,
        init=_initializer(config, actor, critic),
        actor=lambda params, x: actor.apply(params, x["observation"]),
        critic=lambda params, x, _action: critic.apply(params, x["observation"]),
        noise=lambda key, batch: random.gumbel(key, (batch, num_actions)),
        warm_up=lambda outputs, noise, mask: distributions.categorical_from_gumbel(
            noise, torch.zeros_like(outputs), mask
        ),
        sample=lambda outputs, noise, mask: distributions.categorical_from_gumbel(
            noise, outputs, mask
        ),
        mode=distributions.categorical_mode,
        to_environment=lambda unit: unit,
        target_entropy=losses.sac_discrete_target_entropy(num_actions, scale=scale),
    )
