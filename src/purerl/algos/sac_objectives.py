"""What SAC minimises, for continuous and for discrete actions, in terms of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from .. import distributions, losses
from ..types import Metrics
from .sac_config import Config
from .sac_networks import Networks

Plain = dict[str, Any]


class Objectives(NamedTuple):
    """Target and losses of one kind of actions.

    A *batch* is a plain dict of rows: ``input``, ``next_input``, ``action``, ``reward``,
    ``terminated``, ``mask``, ``weight`` (or None) and, of merged rows, ``steps``.
    """

    target: Callable[[Plain, Plain, Tensor, Plain, Tensor], Tensor]
    """``(actor params, target critic params, α, batch, noise) -> y [B]``."""
    critic: Callable[[Plain, Plain, Tensor], tuple[Tensor, Metrics]]
    """``(critic params, batch, y) -> loss, metrics``."""
    actor: Callable[[Plain, Plain, Tensor, Plain, Tensor], tuple[Tensor, Metrics]]
    """``(actor params, critic params, α, batch, noise) -> loss, metrics``; the metric
    ``"policy"`` is what `alpha` takes: log-probabilities or logits."""
    alpha: Callable[[Tensor, Tensor, Plain], tuple[Tensor, Metrics]]
    """``(log α, policy, batch) -> loss, metrics``."""


def make_objectives(config: Config, nets: Networks, s: Plain) -> Objectives:
    """Return the objectives of a configuration; of the state ``spec`` and ``hparams`` are read."""
    return (_discrete if nets.discrete else _continuous)(config, nets, s)


def _continuous(config: Config, nets: Networks, s: Plain) -> Objectives:
    hp, box = s["hparams"], s["spec"]["action"]["box"]

    def drawn(outputs: tuple[Tensor, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unit action and its log-probability."""
        loc, scale = outputs
        low, high = box["low"].to(loc.dtype), box["high"].to(loc.dtype)
        sample = distributions.tanh_normal_from_noise(
            noise.to(loc.dtype), loc, scale, low=low, high=high, density=config.density
        )
        return sample.pre_tanh.tanh(), sample.log_prob

    def target(actor: Plain, critic: Plain, alpha: Tensor, batch: Plain, noise: Tensor) -> Tensor:
        action, log_prob = drawn(nets.actor(actor, batch["next_input"]), noise)
        return losses.sac_target(
            batch["reward"],
            nets.critic(critic, batch["next_input"], action),
            log_prob,
            alpha,
            batch["terminated"],
            gamma=hp["gamma"],
            critic_reduce=config.critic_reduce_target,
            steps=batch.get("steps"),
            mask=batch["mask"],
        )

    def critic(params: Plain, batch: Plain, y: Tensor) -> tuple[Tensor, Metrics]:
        q = nets.critic(params, batch["input"], batch["action"])
        return losses.sac_critic(
            q,
            y,
            kind=config.critic_loss_kind,
            critic_sum=config.critic_sum,
            mask=batch["mask"],
            weight=batch["weight"],
        )

    def actor(
        params: Plain, critic: Plain, alpha: Tensor, batch: Plain, noise: Tensor
    ) -> tuple[Tensor, Metrics]:
        action, log_prob = drawn(nets.actor(params, batch["input"]), noise)
        q = nets.critic(critic, batch["input"], action)
        loss, metrics = losses.sac_actor(
            log_prob, q, alpha, critic_reduce=config.critic_reduce_actor, mask=batch["mask"]
        )
        return loss, metrics | {"policy": log_prob.detach()}

    def alpha(log_alpha: Tensor, log_prob: Tensor, batch: Plain) -> tuple[Tensor, Metrics]:
        return losses.sac_alpha(
            log_alpha, log_prob, hp["target_entropy"], form=config.alpha_form, mask=batch["mask"]
        )

    return Objectives(target=target, critic=critic, actor=actor, alpha=alpha)


def _discrete(config: Config, nets: Networks, s: Plain) -> Objectives:
    hp = s["hparams"]

    def target(actor: Plain, critic: Plain, alpha: Tensor, batch: Plain, _noise: Tensor) -> Tensor:
        after = batch["next_input"]
        return losses.sac_discrete_target(
            batch["reward"],
            nets.critic(critic, after, batch["action"]),
            nets.actor(actor, after),
            alpha,
            batch["terminated"],
            gamma=hp["gamma"],
            critic_reduce=config.critic_reduce_target,
            next_action_mask=after.get("action_mask"),
            steps=batch.get("steps"),
            mask=batch["mask"],
        )

    def critic(params: Plain, batch: Plain, y: Tensor) -> tuple[Tensor, Metrics]:
        return losses.sac_discrete_critic(
            nets.critic(params, batch["input"], batch["action"]),
            batch["action"],
            y,
            kind=config.critic_loss_kind,
            critic_sum=config.critic_sum,
            mask=batch["mask"],
            weight=batch["weight"],
        )

    def actor(
        params: Plain, critic: Plain, alpha: Tensor, batch: Plain, _noise: Tensor
    ) -> tuple[Tensor, Metrics]:
        logits = nets.actor(params, batch["input"])
        loss, metrics = losses.sac_discrete_actor(
            logits,
            nets.critic(critic, batch["input"], batch["action"]),
            alpha,
            critic_reduce=config.critic_reduce_actor,
            action_mask=batch["input"].get("action_mask"),
            mask=batch["mask"],
        )
        return loss, metrics | {"policy": logits.detach()}

    def alpha(log_alpha: Tensor, logits: Tensor, batch: Plain) -> tuple[Tensor, Metrics]:
        return losses.sac_discrete_alpha(
            log_alpha,
            logits,
            hp["target_entropy"],
            form=config.alpha_form,
            action_mask=batch["input"].get("action_mask"),
            mask=batch["mask"],
        )

    return Objectives(target=target, critic=critic, actor=actor, alpha=alpha)
