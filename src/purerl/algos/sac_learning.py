"""How SAC learns: gradient steps on batches from the replay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import control, losses, optim, random, replay, tree
from ..types import Key, Tree
from .inputs import Observer
from .sac_bookkeeping import make_buffer, make_optimizer, scheduled_beta, summarize
from .sac_config import Config
from .sac_networks import Networks, make_networks
from .sac_objectives import Objectives, make_objectives

Plain = dict[str, Any]


def learning_starts(config: Config) -> int:
    """Return how many environment steps come before the first gradient step."""
    return config.warmup_steps if config.learning_starts is None else config.learning_starts


def make_parts(config: Config, s: Plain) -> tuple[Networks, Observer, Objectives]:
    """Return networks, observer and objectives; ``spec`` and ``hparams`` are read."""
    observer = Observer(
        spec=s["spec"]["observation"],
        dtype=torch.float64 if config.dtype == "float64" else torch.float32,
        flat=config.actor_network is None and config.critic_network is None,
        mask_actions=config.mask_actions,
        normalized=config.normalize_observation,
        clip=s["hparams"].get("observation_clip"),
    )
    nets = make_networks(config, s["spec"], observer.size)
    return nets, observer, make_objectives(config, nets, s)


LEARNED = ("params", "target_params", "optimizer", "num_updates")
"""The entries of a state that a gradient step changes."""


def learn(
    config: Config, executor: control.Executor, taken: bool, s: Plain, key: Key
) -> tuple[Plain, Plain]:
    """Take num_gradient_steps on batches from the replay.

    update_key = split(key, num_gradient_steps)[g];   sample_key, next_key, policy_key =
    split(update_key, 3): the batch, the actions at s', the actions at s
    """
    if not taken:
        return s, summarize(s, None)
    nets, _, _ = make_parts(config, s)
    buffer = make_buffer(config, s["spec"], masked="mask" in s["replay"]["storage"])
    numbers = {"gamma": s["hparams"]["gamma"], "beta": scheduled_beta(config, s)}
    known = {name: numbers[name] for name in numbers if name in s["replay"]["hparams"]}
    ready = s["num_env_steps"] >= learning_starts(config)
    draw = torch.vmap(lambda k: draws(config, nets, k, config.batch_size))
    xs = draw(random.split(key, config.num_gradient_steps))

    def step(carry: Plain, x: Tree) -> tuple[Plain, Plain]:
        sample_key, next_noise, policy_noise = x
        rows, info = buffer.sample(carry["replay"], sample_key, config.batch_size)
        rows |= {"mask": info.mask}
        if config.prioritized:
            rows |= {"weight": info.weight}
        learned = {name: carry[name] for name in LEARNED}
        learned, metrics = gradient_step(config, s, ready, learned, rows, next_noise, policy_noise)
        stored, priority = carry["replay"], metrics.pop("priority")
        if config.prioritized:
            priority = torch.where(info.mask, priority + _PRIORITY_FLOOR, 0.0)
            stored = buffer.update_priority(stored, info.index, priority)
        return learned | {"replay": stored}, metrics

    start = {name: s[name] for name in LEARNED}
    start |= {"replay": replay.with_hparams(s["replay"], known)}
    end, metrics = executor.scan(step, start, xs)
    return s | end, summarize(s | end, metrics)


_PRIORITY_FLOOR = 1e-6
"""Added to every priority, so that no row is lost for ever (Schaul et al. 2016, section 3.3)."""


def draws(config: Config, nets: Networks, key: Key, size: int) -> tuple[Key, Tensor, Tensor]:
    """Return the sample key, the noise at s' ``[B, …]``, and at s ``[policy_updates, 2, B, …]``."""
    sample_key, next_key, policy_key = random.split(key, 3).unbind(0)
    policy_keys = random.split(policy_key, 2 * config.policy_updates)
    policy = torch.vmap(lambda k: nets.noise(k, size))(policy_keys)
    return sample_key, nets.noise(next_key, size), policy.unflatten(0, (-1, 2))


def gradient_step(
    config: Config,
    s: Plain,
    ready: Tensor,
    carry: Plain,
    rows: Plain,
    next_noise: Tensor,
    policy_noise: Tensor,
) -> tuple[Plain, Plain]:
    """Move critics, actor, temperature and target critics; nothing unless ready."""
    _, observer, objectives = make_parts(config, s)
    batch = _batch(config, s, observer, rows)
    old, target_params = carry["params"], carry["target_params"]
    count = carry["num_updates"] + ready
    turn = ready & (count % config.policy_delay == 0)
    alpha = old["log_alpha"].exp()
    y = objectives.target(old["actor"], target_params["critic"], alpha, batch, next_noise)
    critic, metrics = _moved(
        config, s, carry, "critic", ~ready, lambda p: objectives.critic(p, batch, y)
    )
    carry = carry | critic
    for noise in policy_noise.unbind(0):
        judge = old if config.order == "simultaneous" else carry["params"]
        carry, more = _policy_step(config, s, carry, judge["critic"], ~turn, batch, noise)
        metrics |= more
    due = ready & (count % config.target_every == 0)
    tau = torch.where(due, s["hparams"]["tau"], 0.0)
    moved = optim.polyak(target_params["critic"], carry["params"]["critic"], tau)
    metrics |= {"ready": ready, "turn": turn}
    return carry | {"target_params": {"critic": moved}, "num_updates": count}, metrics


def _policy_step(
    config: Config,
    s: Plain,
    carry: Plain,
    critic: Plain,
    skip: Tensor,
    batch: Plain,
    noise: Tensor,
) -> tuple[Plain, Plain]:
    """Move the actor, then the temperature, unless skipped."""
    _, _, objectives = make_parts(config, s)
    alpha = carry["params"]["log_alpha"].exp()
    actor, metrics = _moved(
        config,
        s,
        carry,
        "actor",
        skip,
        lambda p: objectives.actor(p, critic, alpha, batch, noise[0]),
    )
    carry = carry | actor
    policy = metrics.pop("policy")
    if config.fixed_alpha:
        return carry, metrics | {"alpha": alpha, "loss_log_alpha": torch.zeros_like(alpha)}
    if config.alpha_sample == "fresh":
        _, fresh = objectives.actor(carry["params"]["actor"], critic, alpha, batch, noise[1])
        policy = fresh["policy"]
    temperature, more = _moved(
        config, s, carry, "log_alpha", skip, lambda p: objectives.alpha(p, policy, batch)
    )
    hp, params = s["hparams"], temperature["params"]
    bounded = losses.project_log_alpha(
        params["log_alpha"], low=hp.get("alpha_low"), high=hp.get("alpha_high")
    )
    carry = carry | temperature | {"params": params | {"log_alpha": bounded}}
    more.pop("entropy")
    return carry, metrics | more


def _moved(
    config: Config, s: Plain, carry: Plain, name: str, skip: Tensor, loss: Any
) -> tuple[Plain, Plain]:
    """Return parameters and optimizer after a step of one part of them, and what it reports."""
    params, state = carry["params"], carry["optimizer"]

    def with_loss(p: Plain) -> tuple[Tensor, Plain]:
        value, metrics = loss(p)
        return value, metrics | {f"loss_{name}": value.detach()}

    gradient, metrics = torch.func.grad(with_loss, has_aux=True)(params[name])
    hp = s["hparams"]
    rate = "alpha" if name == "log_alpha" else name
    clip = (
        {}
        if name == "log_alpha" or "max_grad_norm" not in hp
        else {"max_grad_norm": hp["max_grad_norm"]}
    )
    new, after = make_optimizer(config, name).update(
        gradient,
        state[name],
        params[name],
        learning_rate=hp[f"{rate}_learning_rate"],
        epsilon=hp["adam_epsilon"],
        skip=skip,
        **clip,
    )
    metrics[f"grad_norm_{rate}"] = tree.global_norm(gradient)
    return {"params": params | {name: new}, "optimizer": state | {name: after}}, metrics


def _batch(config: Config, s: Plain, observer: Observer, rows: Plain) -> Plain:
    """Return drawn rows as what the objectives take: inputs normalised now, rewards scaled."""
    stats, mask = s["observation_stats"], rows.get("mask")
    reward = rows["reward"].to(observer.dtype)
    terminated, weight = rows["terminated"], rows.get("weight")
    if config.truncation == "terminal":
        terminated = terminated | rows["truncated"]
    if config.truncation == "drop":
        kept = (~rows["truncated"] | terminated).to(reward.dtype)
        weight = kept if weight is None else weight.to(reward.dtype) * kept
    batch = {
        "input": observer.apply(stats, rows["observation"], mask),
        "next_input": observer.apply(stats, rows["next_observation"], mask),
        "action": rows["action"],
        "reward": reward * s["hparams"]["reward_scale"].to(reward.dtype),
        "terminated": terminated,
        "mask": mask,
        "weight": None if weight is None else weight.to(reward.dtype),
    }
    return batch | ({"steps": rows["steps"]} if "steps" in rows else {})
