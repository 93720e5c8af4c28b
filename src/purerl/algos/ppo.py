"""Proximal policy optimisation as pure functions over one state.

Read from top to bottom: the state, `init`, `act`, and a train step in three stages: *collect*
experience, *prepare* advantages, *learn* over minibatches. `Config` and `preset` live in
``ppo_config`` and ``ppo_presets``.

    Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from tensordict import TensorClass, TensorDict
from torch import Tensor

from .. import control, losses, numerics, random, returns, rollout, tree
from ..config import hparams
from ..envs import Environment, HostEnvironment
from ..types import Key, Tree
from .collect import (
    account,
    collect,
    collect_from_host,
    collect_keys,
    packed,
    parts,
    require_divisible,
    require_population,
    require_solo,
    require_transitions,
    reward_stats_init,
)
from .inputs import observation_spec
from .policy import action_spec, require_bounded
from .ppo_bookkeeping import (
    LOSSES,
    kl_too_large,
    make_optimizer,
    minibatches,
    scheduled,
    summarize,
)
from .ppo_config import Config as Config
from .ppo_presets import preset as preset

Plain = dict[str, Any]
"""A state, parameters or rows as nested plain dicts: what the stages work on."""


class State(TensorClass):
    """Everything a PPO run is: the value that `init` makes and `train_step` maps to the next."""

    params: TensorDict
    """``actor``, ``critic`` (and ``trunk``, ``scale``)."""
    optimizer: TensorDict
    hparams: TensorDict
    """Every float of the configuration as a 0-d leaf."""
    spec: TensorDict
    """A zero observation, and the action space as tensors; see `policy.action_spec`."""
    observation_stats: TensorDict
    """Running statistics; empty when observations are not normalised."""
    reward_stats: TensorDict
    """Running discounted returns and their statistics; empty when rewards are not scaled."""
    env_state: TensorDict
    """State of the environments ``[num_envs]``; empty for host environments."""
    observation: Tensor
    """What the policy sees next, ``[num_envs, …]``; a TensorDict for Dict observations."""
    episode: TensorDict
    """Statistics of completed episodes; see `rollout.episode_init`."""
    key: Tensor
    num_env_steps: Tensor
    """Environment steps so far, int64."""
    num_updates: Tensor
    """Train steps so far, int64."""


_USED_BY_INIT = ("hidden_gain", "actor_gain", "critic_gain", "critic_hidden_gain", "log_std_init")


def init(config: Config, env: Environment | HostEnvironment, key: Key) -> State:
    """Return the state of a fresh run: new parameters, reset environments, empty statistics.

        key, params_key, reset_key = split(key, 3);   environment i resets by split(reset_key)[i]

    Args:
        config: the configuration.
        env: a pure environment, or a host environment, whose own state stays outside.
        key: int64 ``[2]``.

    Raises:
        ConfigError: an action or observation space that PPO cannot use.

    >>> import purerl as prl
    >>> config = prl.ppo.Config(num_envs=2, num_steps=8, num_minibatches=4)
    >>> state = prl.ppo.init(config, prl.envs.make("CartPole-v1"), prl.random.key(0))
    >>> state.observation.shape, float(state.hparams["gamma"])
    (torch.Size([2, 4]), 0.99)
    """
    key, params_key, reset_key = random.split(key, 3).unbind(0)
    spec = {
        "observation": observation_spec(env.observation_space),
        "action": action_spec(env.action_space),
    }
    if config.continuous_policy == "tanh_normal":
        require_bounded(spec)
    spec = tree.map(lambda leaf: leaf.to(key.device), spec)
    env_state: Plain = {}
    if isinstance(env, Environment):
        env_state, observation = rollout.reset_batch(env, random.split(reset_key, config.num_envs))
    else:  # the first host_train_step shows the real observations
        observation = tree.map(
            lambda leaf: leaf.expand(config.num_envs, *leaf.shape).clone(), spec["observation"]
        )
    hp = hparams(config, skip=_USED_BY_INIT)
    policy, observer = parts(config, {"spec": spec, "hparams": hp})
    params = policy.init(params_key)
    state = {
        "params": params,
        "optimizer": make_optimizer(config).init(params),
        "hparams": hp,
        "spec": spec,
        "observation_stats": observer.init(observation if env_state else None),
        "reward_stats": reward_stats_init(config),
        "env_state": env_state,
        "observation": observation,
        "episode": rollout.episode_init(config.num_envs),
        "key": key,
        "num_env_steps": torch.zeros((), dtype=torch.int64),
        "num_updates": torch.zeros((), dtype=torch.int64),
    }
    return packed(State, tree.owned(tree.map(lambda leaf: leaf.to(key.device), state), key))


def act(
    config: Config, state: State, observation: Tree, key: Key, deterministic: bool = False
) -> tuple[Tensor, Plain]:
    """Choose actions for a batch of observations; the state stays as it is.

        a ~ π(· | s)   or, deterministic, the mode of π

    Args:
        config: the configuration.
        state: a solo state.
        observation: ``[B, …]``, a tensor, or a dict or TensorDict of them.
        key: int64 ``[2]``.
        deterministic: take the mode instead of a sample.

    Returns:
        the action for the environment ``[B, …]``, inside the bounds of its space, and the
        transition fields to keep beside it: ``action`` (the policy's own: of a continuous policy
        the sample before clipping or tanh), ``log_prob`` and ``value``, both ``[B]``.
    """
    s = tree.to_dict(state)
    policy, observer = parts(config, s)
    policy_input = observer.apply(s["observation_stats"], rollout.plain(observation))
    outputs, value = policy.actor_critic(s["params"], policy_input)
    mask = policy_input.get("action_mask")
    if deterministic:
        action = policy.head.mode(outputs, mask)
    else:
        action = policy.head.sample(outputs, policy.head.noise(key, value.shape[0]), mask)
    log_prob = policy.head.log_prob(outputs, action, mask)
    extras = {"action": action, "log_prob": log_prob, "value": value}
    return policy.head.to_environment(action), extras


def train_step(
    config: Config, env: Environment, state: State, executor: control.Executor = control.eager
) -> tuple[State, TensorDict]:
    """Collect a rollout in a pure environment and learn from it.

        key, collect_key, learn_key = split(key, 3)

    Args:
        config: the configuration that the state was made by.
        env: the pure environment that the state was made by; resets are automatic.
        state: a solo state; ``torch.vmap`` maps over many.
        executor: how the stages run.

    Returns:
        the next state, and metrics as nested 0-d tensors: ``loss``, ``stat``, ``opt``, ``episode``
        and ``fault``.
    """
    require_solo(state, env)
    s = tree.to_dict(state)
    key, collect_key, learn_key = collect_keys(s["key"])
    s, experience, episode = executor.call(partial(collect, config, env, executor), s, collect_key)
    s, metrics = executor.call(partial(_learn, config, executor), s, experience, learn_key)
    metrics |= {"episode": episode}
    return packed(State, {**s, "key": key}), tree.from_dict(metrics)


def update(
    config: Config, state: State, batch: TensorDict, executor: control.Executor = control.eager
) -> tuple[State, TensorDict]:
    """Learn from your own transitions, collected with `act` under this very state.

    Args:
        config: the configuration.
        state: a solo state.
        batch: TensorDict (or dict) of leaves ``[T, B, …]``: ``observation``, ``action`` and
            ``log_prob`` (from the extras of `act`), ``reward``, ``terminated``, ``truncated`` and
            ``next_observation`` (the true successor); optionally ``mask``, False for rows that
            are no transition.
        executor: how the stages run.

    Returns:
        the next state, whose statistics and counters know the batch, and metrics.

    Raises:
        ShapeError: a field is missing, or its leading axes are unlike those of the reward.
    """
    require_solo(state)
    s = tree.to_dict(state)
    rows = require_transitions(batch)
    require_divisible(rows["reward"].numel(), config.num_minibatches)
    key, _, learn_key = collect_keys(s["key"])
    _, observer = parts(config, s)
    seen, mask, after = s["observation_stats"], rows.get("mask"), rows.pop("next_observation")
    rows["input"] = observer.apply(seen, rows.pop("observation"), mask)
    rows["next_input"] = observer.apply(seen, after, mask)
    s, experience, episode = account(config, s, rows)
    s, metrics = _learn(config, executor, s, experience, learn_key)
    s["observation_stats"] = observer.update(seen, after, mask)
    metrics |= {"episode": episode}
    return packed(State, {**s, "key": key}), tree.from_dict(metrics)


def host_train_step(
    config: Config, host: HostEnvironment, states: State
) -> tuple[State, TensorDict]:
    """Collect a rollout in a host environment for a population, and update every member.

    If an environment fails, ``states`` is still whole.

    Args:
        config: the configuration.
        host: ``num_members · config.num_envs`` environments, member by member, reset.
        states: states ``[num_members]`` made by a vmapped `init`.

    Returns:
        the next states, and metrics with leaves ``[num_members]``.

    Raises:
        ConfigError: the number of environments does not fit.
        EnvError: an environment failed.
    """
    require_population(states)
    s = tree.to_dict(states)
    key, collect_key, learn_key = torch.vmap(collect_keys)(s["key"])
    s, experience, episode = collect_from_host(config, host, s, collect_key)
    learn = torch.vmap(partial(_learn, config, control.eager))
    s, metrics = learn(s, experience, learn_key)
    metrics |= {"episode": episode}
    return packed(State, s | {"key": key}, key.shape[:1]), tree.from_dict(metrics, key.shape[:1])


def steps_per_train_step(config: Config) -> int:
    """Return how many environment steps one train step takes: num_envs · num_steps.

    >>> steps_per_train_step(Config(num_envs=4, num_steps=128))
    512
    """
    return config.num_envs * config.num_steps


def _learn(
    config: Config, executor: control.Executor, s: Plain, experience: Plain, key: Key
) -> tuple[Plain, Plain]:
    """Run num_epochs passes of minibatch steps over a rollout ``[T, B, …]``.

    epoch_keys = split(key, num_epochs);   the order of epoch e is permutation(epoch_keys[e], T·B)
    """
    prepare = partial(_prepare, config, s)
    learner = partial(_minibatch_step, config, s)
    first = prepare(s["params"], experience)
    counts = torch.arange(config.num_minibatches, device=key.device)
    orders = torch.vmap(lambda k: random.permutation(k, first["log_prob"].numel()))(
        random.split(key, config.num_epochs)
    )

    def epoch(carry: Plain, x: Tree) -> tuple[Plain, Plain]:
        order, number = x
        again = config.recompute_advantage == "epoch"
        rows = prepare(carry["params"], experience) if again else first
        steps = number * config.num_minibatches + counts
        carry, metrics = executor.scan(learner, carry, (minibatches(config, rows, order), steps))
        if config.target_kl is not None and config.kl_stop_place == "epoch_end":
            carry["stopped"] = carry["stopped"] | kl_too_large(config, s, metrics["approx_kl"][-1])
        return carry, metrics

    running = torch.zeros((), dtype=torch.bool, device=key.device)
    start = {"params": s["params"], "optimizer": s["optimizer"], "stopped": running}
    end, metrics = executor.scan(epoch, start, (orders, torch.arange(config.num_epochs)))
    summary = summarize(config, s, first, metrics, end)
    learned = {name: end[name] for name in ("params", "optimizer")}
    return s | learned | {"num_updates": s["num_updates"] + 1}, summary


def _prepare(config: Config, s: Plain, params: Plain, experience: Plain) -> Plain:
    """Return the flat rows ``[T·B, …]`` to learn from: advantages and value targets joined in."""
    (policy, _), hp = parts(config, s), s["hparams"]
    _, value = policy.actor_critic(params, experience["input"])
    _, next_value = policy.actor_critic(params, experience["next_input"])
    terminated, truncated = experience["terminated"], experience["truncated"]
    if config.truncation == "terminal":
        terminated = terminated | truncated
    mask = experience.get("mask")
    reward, numbers = experience["reward"].to(value.dtype), {n: hp[n] for n in ("gamma", "lmbda")}
    flags = {"terminated": terminated, "truncated": truncated, "mask": mask}
    advantage, value_target = returns.gae(
        reward, value, next_value, **flags, **numbers, differentiable=True
    )
    rows = {name: experience[name] for name in ("input", "action", "log_prob")}
    rows |= {"value": value, "value_target": value_target, "advantage": advantage}
    if mask is not None:
        rows["mask"] = mask
    rows = tree.map(lambda leaf: leaf.flatten(0, 1), rows)
    if config.normalize_advantage == "rollout":
        rows["advantage"] = _normalize(config, hp, rows["advantage"], rows.get("mask"))
    return rows


def _normalize(config: Config, hp: Plain, advantage: Tensor, mask: Tensor | None) -> Tensor:
    return losses.normalize_advantage(
        advantage, mask=mask, ddof=config.advantage_ddof, floor=hp.get("advantage_floor")
    )


def _loss(
    config: Config, s: Plain, clip_epsilon: Tensor, params: Plain, rows: Plain
) -> tuple[Tensor, Plain]:
    """Return policy loss + value_coef · value loss − entropy_coef · entropy, and its parts."""
    (policy, _), hp = parts(config, s), s["hparams"]
    mask, action_mask = rows.get("mask"), rows["input"].get("action_mask")
    outputs, value = policy.actor_critic(params, rows["input"])
    log_prob = policy.head.log_prob(outputs, rows["action"], action_mask)
    advantage = rows["advantage"]
    if config.normalize_advantage == "minibatch":
        advantage = _normalize(config, hp, advantage, mask)
    policy_loss, policy_metrics = losses.ppo_clip(
        log_prob,
        rows["log_prob"],
        advantage,
        clip_epsilon=clip_epsilon,
        dual_clip=hp.get("dual_clip"),
        mask=mask,
        differentiable=True,
    )
    value_loss, value_metrics = losses.value_loss(
        value,
        rows["value_target"],
        rows["value"],
        clip_epsilon=hp.get("value_clip_epsilon"),
        clip_mode=config.value_clip_mode,
        kind=config.value_loss_kind,
        mask=mask,
        differentiable=True,
    )
    entropy_loss, entropy_metrics = losses.entropy_bonus(
        policy.head.entropy(outputs, action_mask), mask=mask
    )
    total = policy_loss + numerics.scalar_like(hp["value_coef"], value_loss) * value_loss
    total = total + numerics.scalar_like(hp["entropy_coef"], entropy_loss) * entropy_loss
    terms = zip(LOSSES, (policy_loss, value_loss, entropy_loss, total), strict=True)
    metrics = {f"loss_{name}": term.detach() for name, term in terms}
    return total, metrics | policy_metrics | value_metrics | entropy_metrics


def _minibatch_step(config: Config, s: Plain, carry: Plain, x: Tree) -> tuple[Plain, Plain]:
    """Take one gradient step, unless the run of epochs has been stopped or the KL says stop."""
    rows, step = x
    clip_epsilon = scheduled(config, s, "clip_epsilon", step)
    loss = partial(_loss, config, s, clip_epsilon)
    gradient, metrics = torch.func.grad(loss, has_aux=True)(carry["params"], rows)
    stopped = carry["stopped"]
    if config.target_kl is not None and config.kl_stop_place == "minibatch_before_step":
        stopped = stopped | kl_too_large(config, s, metrics["approx_kl"])
    clip = s["hparams"].get("max_grad_norm")
    params, optimizer = make_optimizer(config).update(
        gradient,
        carry["optimizer"],
        carry["params"],
        learning_rate=scheduled(config, s, "learning_rate", step),
        epsilon=s["hparams"]["adam_epsilon"],
        skip=stopped,
        **({} if clip is None else {"max_grad_norm": clip}),
    )
    live = rows.get("mask", torch.ones_like(rows["log_prob"], dtype=torch.bool))
    metrics |= {"grad_norm": tree.global_norm(gradient), "num_rows": live.sum()}
    metrics["executed"] = ~stopped
    return {"params": params, "optimizer": optimizer, "stopped": stopped}, metrics
