"""Soft actor-critic as pure functions over one state that holds its own replay.

Read from top to bottom: the state, `init`, `act`, and a train step in two stages: *collect* a few
steps into the replay, *learn* from batches drawn out of it. `Config` and `preset` live in
``sac_config`` and ``sac_presets``; the losses by parameters in ``sac_objectives``.

    Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905
    Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from tensordict import TensorClass, TensorDict
from torch import Tensor

from .. import control, random, rollout, tree
from ..config import hparams
from ..envs import Environment, HostEnvironment
from ..types import Key, Tree
from . import interact
from .collect import collect_keys, packed, require_population, require_solo
from .inputs import observation_spec
from .policy import action_spec, require_bounded
from .sac_bookkeeping import make_buffer, make_optimizer, require_batch, summarize
from .sac_config import Config as Config
from .sac_learning import LEARNED, draws, gradient_step, learning_starts, make_parts
from .sac_learning import learn as learn_from_replay
from .sac_presets import preset as preset

Plain = dict[str, Any]


class State(TensorClass):
    """Everything a SAC run is, its replay included.

    `train_step` donates the replay: the memory of its rows is written in place, so the state from
    before a step is used up. Copy a state with `tree.clone` to fork a run.
    """

    params: TensorDict
    """``actor``, ``critic`` ``[K, …]`` and ``log_alpha``."""
    target_params: TensorDict
    """``critic`` ``[K, …]``."""
    optimizer: TensorDict
    """One for each of ``actor``, ``critic`` and ``log_alpha``."""
    hparams: TensorDict
    """Every float of the configuration as a 0-d leaf, and ``target_entropy``."""
    spec: TensorDict
    """A zero observation, and the action space as tensors; see `policy.action_spec`."""
    observation_stats: TensorDict
    """Running statistics; empty when observations are not normalised."""
    replay: TensorDict
    """The buffer's own state; see `purerl.replay`."""
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
    """Gradient steps of the critics so far, int64."""


_USED_BY_INIT = (
    *("alpha_init", "target_entropy", "target_entropy_scale", "priority_alpha"),
    *("log_scale_low", "log_scale_high", "scale_floor"),
)


def init(config: Config, env: Environment | HostEnvironment, key: Key) -> State:
    """Return the state of a fresh run: new parameters, reset environments, an empty replay.

        key, params_key, reset_key = split(key, 3);   environment i resets by split(reset_key)[i]

    Args:
        config: the configuration.
        env: a pure environment, or a host environment, whose own state stays outside.
        key: int64 ``[2]``.

    Raises:
        ConfigError: an action or observation space that SAC cannot use.

    >>> import purerl as prl
    >>> config = prl.sac.Config(hidden_sizes=(8,), buffer_size=100, warmup_steps=10)
    >>> state = prl.sac.init(config, prl.envs.make("Pendulum-v1"), prl.random.key(0))
    >>> state.observation.shape, float(state.hparams["target_entropy"])
    (torch.Size([1, 3]), -1.0)
    """
    key, params_key, reset_key = random.split(key, 3).unbind(0)
    spec = {
        "observation": observation_spec(env.observation_space),
        "action": action_spec(env.action_space),
    }
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
    nets, observer, _ = make_parts(config, {"spec": spec, "hparams": hp})
    wanted = nets.target_entropy if config.target_entropy is None else config.target_entropy
    hp["target_entropy"] = torch.tensor(wanted, dtype=torch.float64)
    params = nets.init(params_key)
    buffer = make_buffer(config, spec, masked=not env_state)
    state = {
        "params": params,
        "target_params": {"critic": tree.clone(params["critic"])},
        "optimizer": {name: make_optimizer(config, name).init(params[name]) for name in params},
        "hparams": hp,
        "spec": spec,
        "observation_stats": observer.init(observation if env_state else None),
        "replay": tree.to_dict(buffer.init(like=key)),
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

        a ~ π(· | s)   or, deterministic, tanh(μ) and the most probable discrete action

    Args:
        config: the configuration.
        state: a solo state.
        observation: ``[B, …]``, a tensor, or a dict or TensorDict of them.
        key: int64 ``[2]``.
        deterministic: take the mode instead of a sample.

    Returns:
        the action for the environment ``[B, …]``, and ``{"action": …}``: the unit action that
        belongs into a batch for `update`.
    """
    s = tree.to_dict(state)
    nets, observer, _ = make_parts(config, s)
    policy_input = observer.apply(s["observation_stats"], rollout.plain(observation))
    outputs = nets.actor(s["params"]["actor"], policy_input)
    mask = policy_input.get("action_mask")
    if deterministic:
        unit = nets.mode(outputs, mask)
    else:
        batch = tree.leaves(policy_input)[0].shape[0]
        unit = nets.sample(outputs, nets.noise(key, batch), mask)
    return nets.to_environment(unit), {"action": unit}


def train_step(
    config: Config,
    env: Environment,
    state: State,
    executor: control.Executor = control.eager,
    *,
    learn: bool = True,
) -> tuple[State, TensorDict]:
    """Take num_steps in a pure environment, store them, and take num_gradient_steps.

        key, collect_key, learn_key = split(key, 3)

    Donates ``state``; see `State`. Gradient steps before learning_starts change nothing.

    Args:
        config: the configuration that the state was made by.
        env: the pure environment that the state was made by; resets are automatic.
        state: a solo state; ``torch.vmap`` maps over many.
        executor: how the stages run.
        learn: False only collects; to the bit what happens before learning_starts, in less time.

    Returns:
        the next state, and metrics as nested 0-d tensors: ``loss``, ``stat``, ``opt``, ``episode``
        and ``fault``.
    """
    require_solo(state, env)
    s = tree.to_dict(state)
    key, collect_key, learn_key = collect_keys(s["key"])
    keys = rollout.rollout_keys(collect_key, config.num_steps, config.num_envs)
    before = s["observation"]
    s, rows = interact.in_pure(_agent(config, s), env, executor, s, keys)
    s, episode = _store(config, s, before, rows)
    s, metrics = executor.call(partial(learn_from_replay, config, executor, learn), s, learn_key)
    metrics |= {"episode": episode}
    return packed(State, {**s, "key": key}), tree.from_dict(metrics)


def host_train_step(
    config: Config, host: HostEnvironment, states: State, *, learn: bool = True
) -> tuple[State, TensorDict]:
    """Take num_steps in a host environment for a population, and update every member.

    Donates ``states`` once the environments have answered: if one fails, they are still whole.

    Args:
        config: the configuration.
        host: ``num_members · config.num_envs`` environments, member by member, reset.
        states: states ``[num_members]`` made by a vmapped `init`.
        learn: as in `train_step`.

    Returns:
        the next states, and metrics with leaves ``[num_members]``.

    Raises:
        ConfigError: the number of environments does not fit.
        EnvError: an environment failed.
    """
    require_population(states)
    s = tree.to_dict(states)
    key, collect_key, learn_key = torch.vmap(collect_keys)(s["key"])
    interact.require_environments(host, key.shape[0], config.num_envs)

    def action_keys(key: Key) -> Key:
        return rollout.rollout_keys(key, config.num_steps, config.num_envs).action

    def update_stats(s: Plain, stats: Plain, observation: Tree) -> Plain:
        return make_parts(config, s)[1].update(stats, observation)

    before = interact.by_member(rollout.plain(host.observation), key.shape[0])
    make_agent = partial(_agent, config)
    s, rows = interact.in_host(
        make_agent, update_stats, host, s, torch.vmap(action_keys)(collect_key)
    )
    s, episode = torch.vmap(partial(_store, config))(s, before, rows)
    s, metrics = torch.vmap(partial(learn_from_replay, config, control.eager, learn))(s, learn_key)
    metrics |= {"episode": episode}
    return packed(State, s | {"key": key}, key.shape[:1]), tree.from_dict(metrics, key.shape[:1])


def update(
    config: Config, state: State, batch: Mapping[str, Any] | TensorDict
) -> tuple[State, TensorDict]:
    """Take one gradient step on your own transitions; the replay stays as it is.

        key, _, learn_key = split(key, 3);   noise as of the first gradient step of a train step

    Args:
        config: the configuration.
        state: a solo state.
        batch: rows ``[B, …]``: ``observation``, ``action`` (from the extras of `act`), ``reward``,
            ``terminated``, ``truncated`` and ``next_observation``; optionally ``steps`` of merged
            rows, ``weight``, and ``mask``.

    Returns:
        the next state, and metrics, among them ``("stat", "priority")`` ``[B]``.

    Raises:
        ShapeError: a field is missing, or its leading axis is unlike that of the reward.
    """
    require_solo(state)
    s = tree.to_dict(state)
    rows = require_batch(batch)
    key, _, learn_key = collect_keys(s["key"])
    size = rows["reward"].shape[0]
    nets, _, _ = make_parts(config, s)
    _, next_noise, policy_noise = draws(config, nets, random.split(learn_key, 1)[0], size)
    ready = torch.ones((), dtype=torch.bool, device=key.device)
    carry = {name: s[name] for name in LEARNED}
    carry, metrics = gradient_step(config, s, ready, carry, rows, next_noise, policy_noise)
    priority = metrics.pop("priority")
    summary = summarize(s | carry, tree.map(lambda leaf: leaf.unsqueeze(0), metrics))
    summary["stat"] |= {"priority": priority}
    return packed(State, s | carry | {"key": key}), tree.from_dict(summary)


def steps_per_train_step(config: Config) -> int:
    """Return how many environment steps one train step takes: num_envs · num_steps.

    >>> steps_per_train_step(Config(num_envs=4, num_steps=2))
    8
    """
    return config.num_envs * config.num_steps


def warm_up_train_steps(config: Config) -> int:
    """Return how many train steps come before learning_starts, where nothing is learned.

    >>> warm_up_train_steps(Config(num_envs=4, num_steps=2, warmup_steps=100))
    12
    """
    # the last of them would reach learning_starts with its own steps
    return max(0, -(-learning_starts(config) // steps_per_train_step(config)) - 1)


def _agent(config: Config, s: Plain) -> interact.Agent:
    """Return what SAC does in its environments: at first uniform actions, then its policy's."""
    nets, observer, _ = make_parts(config, s)

    def noise(keys: Key) -> Tree:
        taken = torch.arange(config.num_steps, device=keys.device) * config.num_envs
        return {
            "action": torch.vmap(lambda k: nets.noise(k, config.num_envs))(keys),
            "warm_up": s["num_env_steps"] + taken < config.warmup_steps,
        }

    def choose(policy_input: Plain, noise: Tree) -> tuple[Plain, Tensor]:
        outputs = nets.actor(s["params"]["actor"], policy_input)
        mask = policy_input.get("action_mask")
        uniform = nets.warm_up(outputs, noise["action"], mask)
        unit = nets.sample(outputs, noise["action"], mask)
        unit = torch.where(noise["warm_up"], uniform, unit)
        return {"action": unit}, nets.to_environment(unit)

    def observe(
        stats: Plain, outcome: rollout.StepOutcome, acts: Tensor | None
    ) -> tuple[Plain, Plain, Plain]:
        stats = observer.update(stats, outcome.observation, acts)
        row = {
            "next_observation": outcome.next_observation,
            "reward": outcome.reward.to(torch.float32),
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
        }
        return stats, observer.apply(stats, outcome.observation), row

    return interact.Agent(noise=noise, see=observer.apply, choose=choose, observe=observe)


def _store(config: Config, s: Plain, first: Tree, rows: Plain) -> tuple[Plain, Plain]:
    """Put the rows of a rollout ``[T, B, …]`` into the replay, and count steps and episodes."""
    before = tree.map(
        lambda start, after: torch.cat([start.unsqueeze(0), after[:-1]]), first, rows["observation"]
    )
    transitions = {name: value for name, value in rows.items() if name != "input"}
    transitions |= {"observation": before}
    mask = rows.get("mask")
    buffer = make_buffer(config, s["spec"], masked=mask is not None)
    done = rows["terminated"] | rows["truncated"]
    episode, metrics = rollout.episode_update(s["episode"], rows["reward"], done, mask)
    steps = torch.as_tensor(done.numel()) if mask is None else mask.sum()
    s = s | {"replay": buffer.add(s["replay"], transitions)}
    return s | {"episode": episode, "num_env_steps": s["num_env_steps"] + steps}, metrics
