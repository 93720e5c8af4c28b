"""Whole PPO train steps against an independent JAX program on the same keys (contract C16)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.oracles import ppo_twin as twin

import purerl as prl
from purerl.algos.collect import collect, collect_keys
from purerl.envs.classic.cartpole import cartpole

TIME_LIMIT = 25  # short enough that episodes end both ways
UPDATES = 5
BASE = prl.ppo.Config(
    num_envs=4, num_steps=64, num_epochs=4, num_minibatches=4, total_steps=40 * 256
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
    return twin.Settings(
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        num_updates=config.total_steps // (config.num_envs * config.num_steps),
        time_limit=TIME_LIMIT,
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
        dtype=jnp.float64 if config.dtype == "float64" else jnp.float32,
        mistake=mistake,
    )


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    with jax.enable_x64(dtype == "float64"):
        yield


def to_jax(value: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.numpy()), prl.tree.to_dict(value))


def start(config: prl.ppo.Config, seed: int, mistake: str = "") -> tuple[Any, Any, Any, Any]:
    """Return environment, our state, the twin's settings and the twin's state."""
    env = cartpole(max_episode_steps=TIME_LIMIT, dtype=getattr(torch, config.dtype))
    state = prl.ppo.init(config, env, prl.random.key(seed))
    c = settings(config, mistake)
    return (
        env,
        state,
        c,
        twin.init(c, to_jax(state.params), jax.random.key_data(jax.random.key(seed))),
    )


def distance(ours: Any, theirs: Any) -> float:
    """Return the largest difference of parameters, relative to the largest parameter.

    Biases begin at 0 and are a few steps of Adam by now: relative to themselves they show the
    rounding of the weights beside them.
    """
    pairs = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max(), ours, theirs)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(theirs))
    return max(map(float, jax.tree.leaves(pairs))) / largest


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CONFIGS)
def test_five_train_steps_are_those_of_the_twin(name: str, dtype: str, seed: int) -> None:
    """C16: actions, flags and permutations exactly, parameters to 1e-5 (float64: 1e-10)."""
    config = dataclasses.replace(CONFIGS[name], dtype=dtype)
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    ended = {"terminated": 0, "truncated": 0}
    with precision(dtype):
        env, state, c, other = start(config, seed)
        for _ in range(UPDATES):
            plain = prl.tree.to_dict(state)
            _, collect_key, learn_key = collect_keys(plain["key"])
            _, rows, _ = collect(config, env, prl.control.eager, plain, collect_key)
            state, _ = prl.ppo.train_step(config, env, state)
            other, rollout, orders = twin.train_step(c, other)
            for field in ("action", "terminated", "truncated"):
                assert np.array_equal(rows[field].numpy(), getattr(rollout, field)), field
            keys = prl.random.split(learn_key, config.num_epochs)
            size = config.num_envs * config.num_steps
            ours = torch.stack([prl.random.permutation(key, size) for key in keys])
            assert np.array_equal(ours.numpy(), orders)
            assert np.array_equal(state.key.numpy(), np.asarray(other.key))
            assert np.array_equal(state.env_state["time"].numpy(), other.time)
            physics = torch.from_numpy(np.array(other.physics))
            torch.testing.assert_close(
                state.env_state["physics"], physics, rtol=tolerance, atol=tolerance
            )
            assert distance(to_jax(state.params), other.params) < tolerance
            for field in ended:
                ended[field] += int(rows[field].sum())
        count = state.optimizer["inner", "1", "count"]
        assert int(count) == int(other.count)
        assert int(count) > 0
    assert min(ended.values()) > 0, "an ending that never happened has not been compared"
    if name == "stopped":
        assert int(count) < UPDATES * config.num_epochs * config.num_minibatches


@pytest.mark.parametrize(
    "mistake",
    ["time limit as termination", "lambda forgotten", "Adam epsilon under the root"],
)
def test_a_twin_with_a_known_mistake_does_not_agree(mistake: str) -> None:
    """A difference in one formula is far outside the tolerance."""
    config = CONFIGS["plain"]
    env, state, c, other = start(config, 0, mistake)
    for _ in range(2):
        state, _ = prl.ppo.train_step(config, env, state)
        other, _, _ = twin.train_step(c, other)
    found = distance(to_jax(state.params), other.params)
    assert found > 1e-4
