"""Collecting on-policy experience, from pure environments and from host environments.

*Experience* is a plain dict of leaves ``[T, B, …]``: ``input`` and ``next_input`` (what the
policy saw, and would see in the true successor), ``action``, ``log_prob``, ``reward`` (scaled, if
asked), ``terminated``, ``truncated`` and, from host environments, ``mask``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from .. import check, control, normalize, random, rollout, tree
from ..config import nearest_divisors
from ..envs import Environment, HostEnvironment
from ..errors import ConfigError, ShapeError
from ..types import Key, Tree
from . import interact
from .inputs import Observer, ObserverConfig, make_observer
from .interact import Agent
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


def make_agent(config: CollectConfig, s: Plain) -> Agent:
    """Return what a policy with an actor and a critic does in its environments."""
    policy, observer = parts(config, s)

    def noise(keys: Key) -> Tensor:
        return torch.vmap(lambda k: policy.head.noise(k, config.num_envs))(keys)

    def choose(policy_input: Plain, noise: Tree) -> tuple[Plain, Tensor]:
        outputs, _ = policy.actor_critic(s["params"], policy_input)
        action = policy.head.sample(outputs, noise, policy_input.get("action_mask"))
        return {"outputs": outputs, "action": action}, policy.head.to_environment(action)

    def observe(
        stats: Plain, outcome: rollout.StepOutcome, acts: Tensor | None
    ) -> tuple[Plain, Plain, Plain]:
        # into the statistics first, then normalised: the input of the next row and next_input
        # of this one are equal where no episode ended
        row: Plain = {}
        if observer.normalized and config.normalize_update == "step":
            stats = observer.update(stats, outcome.observation, acts)
        elif observer.normalized:
            row["seen"] = observer.features(outcome.observation)["observation"]
            row |= {} if acts is None else {"acts": acts}
        row |= {
            "next_input": observer.apply(stats, outcome.next_observation),
            "reward": outcome.reward,
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
        }
        return stats, observer.apply(stats, outcome.observation), row

    return Agent(noise=noise, see=observer.apply, choose=choose, observe=observe)


def collect(
    config: CollectConfig, env: Environment, executor: control.Executor, s: Plain, key: Key
) -> tuple[Plain, Plain, Plain]:
    """Run the policy for num_steps in num_envs copies of a pure environment.

    Returns:
        the state after, the experience, and the metrics of completed episodes.
    """
    keys = rollout.rollout_keys(key, config.num_steps, config.num_envs)
    s, rows = interact.in_pure(make_agent(config, s), env, executor, s, keys)
    return finish(config, s, rows)


def collect_from_host(
    config: CollectConfig, host: HostEnvironment, s: Plain, key: Key
) -> tuple[Plain, Plain, Plain]:
    """Run a population's policies in one host environment, member by member.

    Every leaf of state, key and results has a leading member axis. The actions are drawn from the
    keys that `collect` would draw from.
    """

    def action_keys(key: Key) -> Key:
        return rollout.rollout_keys(key, config.num_steps, config.num_envs).action

    def update_stats(s: Plain, stats: Plain, observation: Tree) -> Plain:
        return parts(config, s)[1].update(stats, observation)

    make = partial(make_agent, config)
    s, rows = interact.in_host(make, update_stats, host, s, torch.vmap(action_keys)(key))
    return torch.vmap(partial(finish, config))(s, rows)


def finish(config: CollectConfig, s: Plain, rows: Plain) -> tuple[Plain, Plain, Plain]:
    """Score the actions, account for the episodes, scale the rewards."""
    policy, _ = parts(config, s)
    rows = {name: value for name, value in rows.items() if name != "observation"}
    outputs, action_mask = rows.pop("outputs"), rows["input"].get("action_mask")
    rows["log_prob"] = policy.head.log_prob(outputs, rows["action"], action_mask)
    if "seen" in rows:
        acts = rows.pop("acts", None)
        seen = normalize.update(s["observation_stats"], rows.pop("seen"), mask=acts)
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


S = TypeVar("S")


def packed(kind: Callable[..., S], state: Plain, batch_size: Sequence[int] = ()) -> S:
    """Return a plain state as a TensorClass.

    Its numbers are copies: they are for users to write, and not into the state before.
    """
    state = state | {"hparams": tree.map(torch.clone, state["hparams"])}
    fields = {
        name: tree.from_dict(value, batch_size) if isinstance(value, dict) else value
        for name, value in state.items()
    }
    return kind(**fields, batch_size=list(batch_size))


def require_solo(state: Any, env: Any = None) -> None:
    """Raise an error with the cure unless a state is solo and the environment a pure one."""
    if isinstance(env, HostEnvironment):
        raise ConfigError(
            f"{env.name} is a host environment, which lives outside of the state: call "
            "host_train_step, with the states of a vmapped init"
        )
    if state.key.ndim != 1:
        raise ShapeError(
            f"the state has batch size {list(state.batch_size)}, expected a solo state: map over "
            "a population by torch.vmap, or take member i as states[i]"
        )


def require_population(states: Any) -> None:
    """Raise an error with the cure unless states have one member axis."""
    if states.key.ndim != 2:
        raise ShapeError(
            f"the state has batch size {list(states.batch_size)}, expected [num_members]: make "
            "states by torch.vmap(init), or of one solo state by state[None]"
        )


def require_divisible(rows: int, num_minibatches: int) -> None:
    """Raise `ConfigError` unless rows can be cut into minibatches without dropping any."""
    if rows % num_minibatches:
        nearest = " or ".join(map(str, nearest_divisors(rows, num_minibatches)))
        raise ConfigError(
            f"the batch has {rows} rows, which num_minibatches = {num_minibatches} does not "
            f"divide; the nearest valid values are {nearest}"
        )


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
    for name in ("terminated", "truncated", "mask"):
        if name in rows:
            check.boolean(**{name: rows[name]})
            check.same_shape(reward=rows["reward"], **{name: rows[name]})
    for name, value in rows.items():
        for leaf in tree.leaves(value):
            if leaf.shape[:2] != lead:
                raise ShapeError(
                    f"{name} has shape {list(leaf.shape)}, expected {list(lead)} in front as reward"
                )
    return rows
