"""Whole PPO train steps against an independent JAX program on the same keys (contract C16)."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tests.oracles import ppo_twin as twin
from torch import Tensor

import purerl as prl
from purerl.envs.classic.cartpole import cartpole

TIME_LIMIT = 25  # short enough that episodes end both ways
UPDATES = 5
TOLERANCE = 1e-5  # of parameters in float32
BASE = prl.ppo.Config(
    num_envs=4, num_steps=64, num_epochs=3, num_minibatches=2, total_steps=40 * 256
)
CONFIGS = {
    "cleanrl": dataclasses.replace(
        prl.ppo.preset("cleanrl", "CartPole-v1"), num_steps=64, total_steps=40 * 256
    ),
    "plain": dataclasses.replace(
        BASE, normalize_advantage="rollout", advantage_ddof=0, entropy_coef=0.02, gamma=0.97
    ),
    "stopped": dataclasses.replace(BASE, target_kl=1e-3, learning_rate=3e-3, lmbda=0.8),
}


def settings(config: prl.ppo.Config, mistake: str = "") -> twin.Settings:
    """Say in the twin's words what a configuration of ours says."""
    assert config.max_grad_norm is not None
    world = twin.World(
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        time_limit=TIME_LIMIT,
        dtype=jnp.float64 if config.dtype == "float64" else jnp.float32,
    )
    return twin.Settings(
        world=world,
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        num_updates=config.total_steps // (config.num_envs * config.num_steps),
        gamma=config.gamma,
        lmbda=config.lmbda,
        clip_epsilon=config.clip_epsilon,
        value_clip=config.value_clip_epsilon,
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        normalize=config.normalize_advantage,
        ddof=config.advantage_ddof,
        time_limit_is_terminal=config.truncation == "terminal",
        target_kl=config.target_kl,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        clip_adds_1e_6=config.grad_clip_form == "torch",
        adam_epsilon=config.adam_epsilon,
        mistake=mistake,
    )


def precision(dtype: str) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = jax.enable_x64(dtype == "float64")
    return context


def environment(dtype: str) -> prl.envs.Environment:
    """Return CartPole, in float64 with observations that are not rounded to float32 as its own."""
    env = cartpole(max_episode_steps=TIME_LIMIT, dtype=getattr(torch, dtype))
    if dtype == "float32":
        return env

    def reset(key: Tensor) -> tuple[TensorDict, Tensor]:
        env_state, _ = env.reset(key)
        return env_state, env_state["physics"]

    def step(env_state: TensorDict, action: Tensor, key: Tensor) -> Any:
        env_state, outcome = env.step(env_state, action, key)
        exact = prl.envs.Step(
            observation=env_state["physics"],
            next_observation=env_state["physics"],
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            batch_size=outcome.batch_size,
        )
        return env_state, exact

    return dataclasses.replace(env, reset=reset, step=step)


def to_jax(value: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.numpy()), prl.tree.to_dict(value))


def begin(config: prl.ppo.Config, seed: int) -> tuple[prl.envs.Environment, prl.ppo.State]:
    env = environment(config.dtype)
    return env, prl.ppo.init(config, env, prl.random.key(seed))


def begin_twin(c: twin.Settings, state: prl.ppo.State, seed: int) -> twin.Twin:
    """Return the twin's state on the same parameters; all else comes from the key."""
    return twin.init(c.world, to_jax(state.params), jax.random.key_data(jax.random.key(seed)))


def observed_step(
    config: prl.ppo.Config, env: prl.envs.Environment, state: prl.ppo.State
) -> tuple[prl.ppo.State, Any, Tensor]:
    """Take a train step; also return the experience and the orders of rows that it used itself."""
    orders, experiences = [], []
    shape = (config.num_epochs, config.num_envs * config.num_steps)

    def scan(body: Any, carry: Any, xs: Any) -> tuple[Any, Any]:
        if isinstance(xs[0], Tensor) and xs[0].shape == shape:
            orders.append(xs[0])
        return prl.control.scan(body, carry, xs)

    def call(stage: Any, *args: Any) -> Any:
        results = stage(*args)
        experiences.extend(results[1:2] if len(results) == 3 else ())
        return results

    state, _ = prl.ppo.train_step(config, env, state, prl.control.Executor(scan, call))
    (order,), (experience,) = orders, experiences
    return state, experience, order


def distance(ours: Any, theirs: Any) -> float:
    """Return the largest difference of parameters, relative to the largest parameter.

    In float32 a parameter near 0 shows the rounding of the others when measured by itself: Adam
    divides a gradient that is little but rounding by its own size.
    """
    pairs = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max(), ours, theirs)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(theirs))
    return max(map(float, jax.tree.leaves(pairs))) / largest


def assert_same_parameters(ours: Any, theirs: Any, dtype: str) -> None:
    """float32: 1e-5 of the largest parameter; float64: 1e-10 of each parameter by itself."""
    assert distance(ours, theirs) < TOLERANCE
    if dtype == "float64":
        for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert mine.dtype == other.dtype == np.float64
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=0)


def assert_same_physics(ours: Tensor, theirs: Any) -> None:
    """One unit of rounding a step, at the size of the largest quantities, for a whole episode."""
    mine, other = ours.numpy(), np.asarray(theirs)
    assert mine.dtype == other.dtype
    np.testing.assert_allclose(mine, other, rtol=0, atol=TIME_LIMIT * np.finfo(mine.dtype).eps)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CONFIGS)
def test_five_train_steps_are_those_of_the_twin(name: str, dtype: str, seed: int) -> None:
    """C16: the composition of collect, GAE, loss, clip, Adam and schedule is the papers'.

    Actions, flags, permutations, keys and counts exactly, every state that was passed through to
    one rounding a step, parameters to 1e-5, in float64 (nothing in float32) to 1e-10.
    """
    config = dataclasses.replace(CONFIGS[name], dtype=dtype)
    ended = {"terminated": 0, "truncated": 0}
    with precision(dtype):
        env, state = begin(config, seed)
        c = settings(config)
        other = begin_twin(c, state, seed)
        for _ in range(UPDATES):
            state, rows, order = observed_step(config, env, state)
            other, rollout, orders = twin.train_step(c, other)
            for field in ("action", "terminated", "truncated"):
                assert np.array_equal(rows[field].numpy(), getattr(rollout, field)), field
            assert np.array_equal(order.numpy(), orders)
            assert np.array_equal(state.key.numpy(), np.asarray(other.key))
            assert np.array_equal(state.env_state["time"].numpy(), other.time)
            assert_same_physics(rows["input"]["observation"], rollout.observation)
            assert_same_physics(rows["next_input"]["observation"], rollout.next_observation)
            assert_same_physics(state.env_state["physics"], other.physics)
            assert_same_parameters(to_jax(state.params), other.params, dtype)
            for field in ended:
                ended[field] += int(rows[field].sum())
        count = state.optimizer["inner", "1", "count"]
        assert int(count) == int(other.count)
        assert int(count) > 0
    assert min(ended.values()) > 0, "an ending that never happened has not been compared"
    if name == "stopped":
        assert int(count) < UPDATES * config.num_epochs * config.num_minibatches


@pytest.fixture(scope="module")
def ends() -> tuple[prl.ppo.State, prl.ppo.State]:
    """Return the state before and after the train steps of a comparison, in float64."""
    config = dataclasses.replace(CONFIGS["stopped"], dtype="float64")
    env, first = begin(config, 0)
    state = first
    for _ in range(UPDATES):
        state, _ = prl.ppo.train_step(config, env, state)
    return first, state


MISTAKES = ("time limit as termination", "lambda forgotten", "Adam epsilon under the root")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_twin_with_a_known_mistake_does_not_agree(
    mistake: str, ends: tuple[prl.ppo.State, prl.ppo.State]
) -> None:
    """The comparison can fail: one wrong formula is outside the tolerance of either precision.

    In float64, where rounding is no part of the difference.
    """
    first, last = ends
    c = settings(dataclasses.replace(CONFIGS["stopped"], dtype="float64"), mistake)
    with precision("float64"):
        other = begin_twin(c, first, 0)
        for _ in range(UPDATES):
            other, _, _ = twin.train_step(c, other)
        ours = to_jax(last.params)
        assert distance(ours, other.params) > 10 * TOLERANCE
        with pytest.raises(AssertionError):
            assert_same_parameters(ours, other.params, "float64")
