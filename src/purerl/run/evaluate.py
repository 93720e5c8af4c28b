"""Playing a policy on fresh environments, with frozen statistics and keys of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import random, rollout, tree
from ..envs import Environment, HostEnvironment, environment_seeds
from ..errors import ConfigError, ShapeError
from ..types import Key, Tree
from .algorithm import Algorithm

UNLIMITED_MAX_STEPS = 30_000
"""Where evaluation ends an episode that nothing else ends; Atari's limit is 27,000 steps."""

_CHUNK = 32  # steps between two looks at whether all episodes are over


class EvaluateResult(NamedTuple):
    """Every evaluated episode, in float64."""

    return_: Tensor
    """Undiscounted, of the reward as the environment gave it, ``[num_seeds, episodes]``."""
    length: Tensor
    """Steps, ``[num_seeds, episodes]``."""


def evaluate(
    algorithm: Algorithm,
    config: Any,
    env: Environment | HostEnvironment | Callable[[int], HostEnvironment],
    states: Any,
    *,
    key: Key,
    episodes: int = 10,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> EvaluateResult:
    """Play one episode in each of ``num_seeds · episodes`` fresh environments.

    An episode counts up to its first end, or up to ``max_steps`` with what it earned so far. The
    states stay as they are: neither normalisation nor episode statistics move.

        reset_key, run_key = split(key);   step t draws from fold_in(run_key, t), member by member

    Args:
        algorithm: the module that made the states.
        config: its configuration.
        env: a pure environment; or a host environment with ``num_seeds · episodes`` environments
            that is fresh or may be reset; or a function that makes one of so many, which is closed
            in the end.
        states: states ``[num_seeds]``; of one member, ``states[i : i + 1]``.
        key: int64 ``[2]``.
        episodes: for each member, at least 1.
        deterministic: take the mode of the policy instead of a sample.
        max_steps: bound on an episode; None takes a pure environment's own limit, else 30,000 (a
            host environment applies its own).

    Raises:
        ConfigError: a count below 1, or a host environment of the wrong size.
        ShapeError: the states have no leading seeds axis.
    """
    if len(states.batch_size) != 1:
        raise ShapeError(
            f"states have batch size {list(states.batch_size)}, expected [num_seeds]; "
            "of one member, states[i : i + 1]"
        )
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}, expected at least 1")
    size = (int(states.batch_size[0]), episodes)
    policy = partial(_choose, algorithm, config, deterministic)
    with torch.no_grad():
        if isinstance(env, Environment):
            return _evaluate_pure(policy, env, states, key, size, max_steps)
        if isinstance(env, HostEnvironment):
            return _evaluate_host(policy, env, states, key, size, max_steps)
        host = env(size[0] * size[1])
        try:
            return _evaluate_host(policy, host, states, key, size, max_steps)
        finally:
            host.close()


Policy = Callable[[Any, Tree, Key], Tensor]
"""``(solo state, observation [episodes, …], key) -> action [episodes, …]``."""

Carry = dict[str, Any]


def _choose(
    algorithm: Algorithm, config: Any, deterministic: bool, state: Any, observation: Tree, key: Key
) -> Tensor:
    return algorithm.act(config, state, rollout.packed(observation), key, deterministic)[0]


def _limit(own: int | None, asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise ConfigError(f"max_steps is {asked}, expected at least 1")
    return asked or own or UNLIMITED_MAX_STEPS


def _evaluate_pure(
    policy: Policy,
    env: Environment,
    states: Any,
    key: Key,
    size: tuple[int, int],
    max_steps: int | None,
) -> EvaluateResult:
    num_seeds, episodes = size
    reset_key, run_key = random.split(key).unbind(0)
    reset_keys = random.split(reset_key, num_seeds * episodes).unflatten(0, size)
    env_state, observation = rollout.reset_batch(env, reset_keys)
    zero = torch.zeros(size, dtype=torch.float64, device=key.device)
    carry = {
        "env_state": env_state,
        "observation": observation,
        "return_": zero,
        "length": zero.clone(),
        "running": torch.ones_like(zero, dtype=torch.bool),
    }
    chunk = torch.vmap(partial(_play, policy, rollout.step_batch(env)), in_dims=(0, 0, 1))
    limit = _limit(env.max_episode_steps, max_steps)
    for first in range(0, limit, _CHUNK):
        # one vmap for a chunk of steps: entering it costs more than a step does
        times = torch.arange(first, min(first + _CHUNK, limit), device=key.device)
        carry = chunk(states, carry, _member_keys(run_key, times, num_seeds))
        if not carry["running"].any():
            break
    return EvaluateResult(carry["return_"], carry["length"])


def _member_keys(run_key: Key, times: Tensor, num_seeds: int) -> Key:
    """Return the key of every step and member, ``[steps, num_seeds, 2]``."""
    step_keys = torch.vmap(partial(random.fold_in, run_key))(times)
    return torch.vmap(lambda k: random.split(k, num_seeds))(step_keys)


def _play(
    policy: Policy, step: Any, state: Any, carry: dict[str, Any], keys: Key
) -> dict[str, Any]:
    """Play one member for a few steps ``[steps, 2]``; an episode that is over stands still."""
    episodes = carry["running"].shape[0]
    for key in keys.unbind(0):
        act_key, env_key = random.split(key).unbind(0)
        action = policy(state, carry["observation"], act_key)
        here = (carry["env_state"], carry["observation"])
        env_state, outcome = step(here[0], action, random.split(env_key, episodes), here)
        carry = _account(carry, outcome.reward, outcome.terminated | outcome.truncated)
        carry |= {"env_state": env_state, "observation": outcome.observation}
    return carry


def _account(carry: Carry, reward: Tensor, done: Tensor) -> Carry:
    running = carry["running"]
    reward = torch.where(running, reward.to(torch.float64), 0.0)
    return carry | {
        "return_": carry["return_"] + reward,
        "length": carry["length"] + running.to(torch.float64),
        "running": running & ~done,
    }


def _evaluate_host(
    policy: Policy,
    host: HostEnvironment,
    states: Any,
    key: Key,
    size: tuple[int, int],
    max_steps: int | None,
) -> EvaluateResult:
    num_seeds, episodes = size
    if host.num_envs != num_seeds * episodes:
        raise ConfigError(
            f"the host environment {host.name} has {host.num_envs} environments, expected "
            f"num_seeds · episodes = {num_seeds} · {episodes} = {num_seeds * episodes}"
        )
    reset_key, run_key = random.split(key).unbind(0)
    observation = host.reset(environment_seeds(reset_key, host.num_envs))
    zero = torch.zeros(host.num_envs, dtype=torch.float64)
    carry: Carry = {"return_": zero, "length": zero, "running": zero == 0}
    act = torch.vmap(policy)
    for time in range(_limit(None, max_steps)):
        step_key = _member_keys(run_key, torch.tensor([time], device=key.device), num_seeds)[0]
        seen = tree.map(
            lambda leaf: leaf.to(key.device).unflatten(0, size), rollout.plain(observation)
        )
        outcome = host.step(act(states, seen, step_key).flatten(0, 1).cpu())
        observation = outcome.observation
        carry = _account(
            carry, outcome.reward.cpu(), (outcome.terminated | outcome.truncated).cpu()
        )
        if not carry["running"].any():
            break
    return EvaluateResult(carry["return_"].unflatten(0, size), carry["length"].unflatten(0, size))
