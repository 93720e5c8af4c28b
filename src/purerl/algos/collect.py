"""Collecting on-policy experience, from pure environments and from host environments.

*Experience* is a plain dict of leaves ``[T, B, …]``: ``input`` and ``next_input`` (what the
policy saw, and would see in the true successor), ``action``, ``log_prob``, ``reward`` (scaled, if
asked), ``terminated``, ``truncated`` and, from host environments, ``mask``.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from .. import control, normalize, random, rollout, tree
from ..envs import Environment, HostEnvironment
from ..errors import ConfigError, ShapeError
from ..types import Key, Tree
from .inputs import Observer, ObserverConfig, make_observer
from .policy import NetworkConfig, Policy, make_policy

Plain = dict[str, Any]


class CollectConfig(ObserverConfig, NetworkConfig, Protocol):
    """The fields of a configuration that shape a rollout."""

    @property
    def num_envs(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def normalize_reward(self) -> bool: ...
    @property
    def normalize_update(self) -> Literal["step", "rollout"]: ...


def parts(config: CollectConfig, s: Plain) -> tuple[Policy, Observer]:
    """Return the policy and the observer that a configuration and a state describe.

    Of the state, ``spec`` and ``hparams`` are read.
    """
    observer = make_observer(config, s)
    return make_policy(config, s["spec"], observer.size), observer


def collect(
    config: CollectConfig, env: Environment, executor: control.Executor, s: Plain, key: Key
) -> tuple[Plain, Plain, Plain]:
    """Run the policy for num_steps in num_envs copies of a pure environment.

    Returns:
        the state after, the experience, and the metrics of completed episodes.
    """
    policy, observer = parts(config, s)
    step = rollout.step_batch(env)
    keys = rollout.rollout_keys(key, config.num_steps, config.num_envs)
    noise = torch.vmap(lambda k: policy.head.noise(k, config.num_envs))(keys.action)
    resets = rollout.reset_batch(env, keys.reset)
    params, first_stats = s["params"], s["observation_stats"]

    def body(carry: Tree, x: Tree) -> tuple[Tree, Plain]:
        env_state, policy_input, stats = carry
        noise, step_key, reset = x
        outputs, action, sent = choose(policy, params, policy_input, noise)
        env_state, outcome = step(env_state, sent, step_key, reset)
        row = observe(config, observer, stats, outcome)
        row |= {"input": policy_input, "outputs": outputs, "action": action}
        stats, policy_input = row.pop("stats"), row.pop("policy_input")
        row["observation"] = outcome.observation
        return (env_state, policy_input, stats), row

    start = (s["env_state"], observer.apply(first_stats, s["observation"]), first_stats)
    (env_state, _, stats), rows = executor.scan(body, start, (noise, keys.step, resets))
    last = tree.index(rows.pop("observation"), -1)
    s = s | {"env_state": env_state, "observation": last, "observation_stats": stats}
    return finish(config, policy, observer, s, rows)


def choose(
    policy: Policy, params: Plain, policy_input: Plain, noise: Tensor
) -> tuple[Any, Tensor, Tensor]:
    """Return the outputs of the policy, the raw action, and what the environment gets."""
    outputs, _ = policy.actor_critic(params, policy_input)
    action = policy.head.sample(outputs, noise, policy_input.get("action_mask"))
    return outputs, action, policy.head.to_environment(action)


def observe(
    config: CollectConfig, observer: Observer, stats: Plain, outcome: rollout.StepOutcome
) -> Plain:
    """Return the row of a step, with the next policy input and the statistics that made it.

    The step's observations enter the statistics first and are normalised then, so the input of
    the next row and ``next_input`` of this one are equal where no episode ended.
    """
    row: Plain = {}
    if observer.normalized:
        if config.normalize_update == "step":
            stats = observer.update(stats, outcome.observation)
        else:
            row["seen"] = observer.features(outcome.observation)["observation"]
    return row | {
        "stats": stats,
        "policy_input": observer.apply(stats, outcome.observation),
        "next_input": observer.apply(stats, outcome.next_observation),
        "reward": outcome.reward,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
    }


def collect_from_host(
    config: CollectConfig, host: HostEnvironment, s: Plain, key: Key
) -> tuple[Plain, Plain, Plain]:
    """Run a population's policies in one host environment, member by member.

    Every leaf of state, key and results has a leading member axis. The actions of all members are
    one vmapped call, drawn from the keys that `collect` would draw from.
    """
    members, envs = key.shape[0], config.num_envs
    if host.num_envs != members * envs:
        raise ConfigError(
            f"{host.name} has {host.num_envs} environments, expected {members * envs}: "
            f"{members} members with num_envs = {envs} each"
        )
    fixed = {name: s[name] for name in ("params", "spec", "hparams")}

    def act_noise(fixed: Plain, key: Key) -> Tensor:
        policy, _ = parts(config, fixed)
        keys = rollout.rollout_keys(key, config.num_steps, envs).action
        return torch.vmap(lambda k: policy.head.noise(k, envs))(keys)

    def act(fixed: Plain, policy_input: Plain, noise: Tensor) -> Any:
        policy, _ = parts(config, fixed)
        return choose(policy, fixed["params"], policy_input, noise)

    def see_first(s: Plain, observation: Tree) -> Plain:
        _, observer = parts(config, s)
        stats = s["observation_stats"]
        fresh = s["num_env_steps"] == 0
        stats = tree.where(fresh, observer.update(stats, observation), stats) if stats else stats
        return {"stats": stats, "policy_input": observer.apply(stats, observation)}

    def observe_one(fixed: Plain, stats: Plain, outcome: rollout.StepOutcome) -> Plain:
        return observe(config, parts(config, fixed)[1], stats, outcome)

    def by_member(value: Tree) -> Tree:
        return tree.map(lambda leaf: leaf.unflatten(0, (members, envs)), rollout.plain(value))

    act_all, observe_all = torch.vmap(act), torch.vmap(observe_one)
    noise = torch.vmap(act_noise)(fixed, key)
    seen = torch.vmap(see_first)(s, by_member(host.observation))
    stats, policy_input = seen["stats"], seen["policy_input"]
    rows = []
    for step_noise in noise.unbind(1):
        outputs, action, sent = act_all(fixed, policy_input, step_noise)
        *taken, mask = host.step(sent.flatten(0, 1))
        outcome = rollout.StepOutcome(*(by_member(field) for field in taken))
        row = observe_all(fixed, stats, outcome)
        row |= {"input": policy_input, "outputs": outputs, "action": action}
        stats, policy_input = row.pop("stats"), row.pop("policy_input")
        rows.append(row | {"mask": by_member(mask)})
    s = s | {"observation": by_member(host.observation), "observation_stats": stats}

    def finish_one(s: Plain, rows: Plain) -> tuple[Plain, Plain, Plain]:
        return finish(config, *parts(config, s), s, rows)

    stacked = tree.map(lambda leaf: leaf.transpose(0, 1), tree.stack(rows))
    return torch.vmap(finish_one)(s, stacked)


def finish(
    config: CollectConfig, policy: Policy, observer: Observer, s: Plain, rows: Plain
) -> tuple[Plain, Plain, Plain]:
    """Score the actions, account for the episodes, scale the rewards."""
    outputs, action_mask = rows.pop("outputs"), rows["input"].get("action_mask")
    rows["log_prob"] = policy.head.log_prob(outputs, rows["action"], action_mask)
    if "seen" in rows:
        seen = normalize.update(s["observation_stats"], rows.pop("seen"))
        s = s | {"observation_stats": seen}
    return account(config, s, rows)


def account(config: CollectConfig, s: Plain, rows: Plain) -> tuple[Plain, Plain, Plain]:
    """Count steps and episodes by the raw rewards, then scale them for learning if asked."""
    reward, mask = rows["reward"], rows.get("mask")
    done = rows["terminated"] | rows["truncated"]
    episode, metrics = rollout.episode_update(s["episode"], reward, done, mask)
    steps = torch.as_tensor(reward.numel()) if mask is None else mask.sum()
    s = s | {"episode": episode, "num_env_steps": s["num_env_steps"] + steps}
    if config.normalize_reward:
        scaled, stats = normalize.scale_rollout(
            s["reward_stats"],
            reward,
            done,
            s["hparams"]["gamma"],
            mask=mask,
            update=config.normalize_update,
            clip=s["hparams"].get("reward_clip"),
        )
        s, rows = s | {"reward_stats": stats}, rows | {"reward": scaled}
    return s, rows, metrics


def reward_stats_init(config: CollectConfig) -> Plain:
    """Return fresh statistics of discounted returns; {} when rewards are not scaled."""
    return dict(normalize.init_return(config.num_envs)) if config.normalize_reward else {}


def collect_keys(key: Key) -> tuple[Key, Key, Key]:
    """Return ``key, collect_key, learn_key = split(key, 3)``."""
    key, collect_key, learn_key = random.split(key, 3).unbind(0)
    return key, collect_key, learn_key


_TRANSITION = (
    "observation",
    "action",
    "log_prob",
    "reward",
    "terminated",
    "truncated",
    "next_observation",
)


def require_transitions(batch: Any) -> Plain:
    """Return the fields of a user's batch ``[T, B, …]`` as a plain dict, or say what is wrong.

    Args:
        batch: a mapping or TensorDict with the transition fields, ``mask`` being optional.

    Raises:
        ShapeError: a field is missing, or its leading axes are unlike those of the reward.
    """
    rows = tree.to_dict(batch)
    missing = [name for name in _TRANSITION if name not in rows]
    if missing:
        raise ShapeError(f"the batch has no {', '.join(missing)}; it needs {_TRANSITION}")
    rows = {name: rows[name] for name in (*_TRANSITION, "mask") if name in rows}
    lead = rows["reward"].shape
    if len(lead) != 2 or 0 in lead:
        raise ShapeError(f"reward has shape {list(lead)}, expected [T, B] with T, B ≥ 1")
    for name, value in rows.items():
        for leaf in tree.leaves(value):
            if leaf.shape[:2] != lead:
                raise ShapeError(
                    f"{name} has shape {list(leaf.shape)}, expected {list(lead)} in front as reward"
                )
    return rows
