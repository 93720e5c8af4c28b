"""How a policy meets its environments: the one loop over time, for pure and for host environments.

What an algorithm does in it is an `Agent`; the rows that it yields are plain dicts of leaves
``[T, B, …]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import control, rollout, tree
from ..envs import Environment, HostEnvironment
from ..errors import ConfigError
from ..types import Key, Tree

Plain = dict[str, Any]


class Agent(NamedTuple):
    """What an algorithm does at every step of a rollout, under fixed parameters."""

    noise: Callable[[Key], Tree]
    """``action keys [T, 2] -> [T, B, …]``: the randomness of a whole rollout's actions."""
    see: Callable[[Plain, Tree], Plain]
    """``(statistics, observation) -> policy input``."""
    choose: Callable[[Plain, Tree], tuple[Plain, Tensor]]
    """``(policy input, noise) -> (fields of the row, what the environments get)``."""
    observe: Callable[[Plain, rollout.StepOutcome, Tensor | None], tuple[Plain, Plain, Plain]]
    """``(statistics, outcome, acts) -> (statistics, next policy input, fields of the row)``;
    ``acts`` ``[B]`` is False where the next step only resets, None where all act."""


def in_pure(
    agent: Agent,
    env: Environment,
    executor: control.Executor,
    s: Plain,
    keys: rollout.RolloutKeys,
) -> tuple[Plain, Plain]:
    """Step copies of a pure environment.

    Args:
        agent: the agent.
        env: the environment.
        executor: how the loop runs.
        s: a plain state with ``env_state``, ``observation`` and ``observation_stats``.
        keys: of the rollout.

    Returns:
        the state after, and the rows: the fields of the agent, ``input`` (what the policy saw)
        and ``observation`` (what it will see next).
    """
    step = rollout.step_batch(env)
    resets = rollout.reset_batch(env, keys.reset)

    def body(carry: Tree, x: Tree) -> tuple[Tree, Plain]:
        env_state, policy_input, stats = carry
        noise, step_key, reset = x
        chosen, sent = agent.choose(policy_input, noise)
        env_state, outcome = step(env_state, sent, step_key, reset)
        stats, after, row = agent.observe(stats, outcome, None)
        row |= chosen | {"input": policy_input, "observation": outcome.observation}
        return (env_state, after, stats), row

    first = s["observation_stats"]
    start = (s["env_state"], agent.see(first, s["observation"]), first)
    (env_state, _, stats), rows = executor.scan(
        body, start, (agent.noise(keys.action), keys.step, resets)
    )
    last = tree.index(rows["observation"], -1)
    return s | {"env_state": env_state, "observation": last, "observation_stats": stats}, rows


def in_host(
    make_agent: Callable[[Plain], Agent],
    update_stats: Callable[[Plain, Plain, Tree], Plain],
    host: HostEnvironment,
    s: Plain,
    action_keys: Key,
) -> tuple[Plain, Plain]:
    """Step one host environment with a population, member by member.

    Every leaf of state, keys and results has a leading member axis; the actions of all members
    are one vmapped call.

    Args:
        make_agent: the agent of a member's state.
        update_stats: ``(state, statistics, first observation) -> statistics``, called before the
            first step of a run, whose observations a fresh state has not seen.
        host: ``members · B`` environments, member by member, reset.
        s: plain states.
        action_keys: int64 ``[members, T, 2]``.

    Returns:
        the states after, and the rows as of `in_pure`, ``[members, T, B, …]``, with ``mask``:
        False for rows that are no transition.

    Raises:
        ConfigError: the number of environments does not fit.
        EnvError: an environment failed.
    """
    members, envs = s["episode"]["return_"].shape
    require_environments(host, members, envs)
    fixed = {name: s[name] for name in ("params", "spec", "hparams", "num_env_steps")}

    def see_first(s: Plain, observation: Tree) -> Plain:
        stats = s["observation_stats"]
        fresh = s["num_env_steps"] == 0
        stats = tree.where(fresh, update_stats(s, stats, observation), stats) if stats else stats
        return {"stats": stats, "policy_input": make_agent(s).see(stats, observation)}

    choose = torch.vmap(lambda s, policy_input, noise: make_agent(s).choose(policy_input, noise))
    observe = torch.vmap(lambda s, stats, *seen: make_agent(s).observe(stats, *seen))
    noise = torch.vmap(lambda s, keys: make_agent(s).noise(keys))(fixed, action_keys)
    seen = torch.vmap(see_first)(s, by_member(host.observation, members))
    stats, policy_input = seen["stats"], seen["policy_input"]
    rows = []
    leaves, rebuild = tree.flatten(noise)
    for step_leaves in zip(*(leaf.unbind(1) for leaf in leaves), strict=True):
        chosen, sent = choose(fixed, policy_input, rebuild(step_leaves))
        *taken, mask = host.step(sent.flatten(0, 1))
        outcome = rollout.StepOutcome(*(by_member(field, members) for field in taken))
        acts = by_member(host.acts, members)
        stats, after, row = observe(fixed, stats, outcome, acts)
        row |= chosen | {"input": policy_input, "observation": outcome.observation}
        rows.append(row | {"mask": by_member(mask, members)})
        policy_input = after
    s = s | {"observation": by_member(host.observation, members), "observation_stats": stats}
    return s, tree.map(lambda leaf: leaf.transpose(0, 1), tree.stack(rows))


def by_member(value: Tree, members: int) -> Tree:
    """Return leaves ``[members · B, …]`` as ``[members, B, …]``."""
    return tree.map(lambda leaf: leaf.unflatten(0, (members, -1)), rollout.plain(value))


def require_environments(host: HostEnvironment, members: int, envs: int) -> None:
    """Raise `ConfigError` unless a host has ``envs`` environments for each member."""
    if host.num_envs != members * envs:
        raise ConfigError(
            f"{host.name} has {host.num_envs} environments, expected {members * envs}: "
            f"{members} members with num_envs = {envs} each"
        )
