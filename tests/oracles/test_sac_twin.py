"""Gradient steps of SAC against an independent JAX program on the same keys (contract C16)."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.oracles import sac_twin as twin
from tests.oracles.test_ppo_twin import distance, to_jax

import purerl as prl

PENDULUM = prl.envs.make("Pendulum-v1")
UPDATES, BATCH = 5, 32
RATES = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "alpha_learning_rate"), 1e-3)
BASE = prl.sac.Config(hidden_sizes=(16, 16), buffer_size=64, **RATES)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sequential": ({}, {}),
    "simultaneous": (
        {"order": "simultaneous", "alpha_form": "alpha", "density": "env"},
        {"simultaneous": True, "alpha_form": True, "environment_density": True},
    ),
    "delayed": (
        {"policy_delay": 2, "tau": 0.1, "gamma": 0.9},
        {"policy_delay": 2, "tau": 0.1, "gamma": 0.9},
    ),
}


def batch(number: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    keys = prl.random.split(prl.random.key(100 + number), 6)
    normal = [prl.random.normal(k, (BATCH, 3), dtype=dtype) for k in keys[:2]]
    return {
        "observation": normal[0],
        "action": prl.random.uniform(keys[2], (BATCH, 1), dtype=dtype, minval=-1.0, maxval=1.0),
        "reward": prl.random.normal(keys[3], (BATCH,), dtype=dtype),
        "terminated": prl.random.bernoulli(keys[4], 0.3, (BATCH,)),
        "truncated": prl.random.bernoulli(keys[5], 0.3, (BATCH,)),
        "next_observation": normal[1],
        "steps": prl.random.randint(keys[5], (BATCH,), 1, 4),
    }


def run(options: dict[str, Any], words: dict[str, Any], dtype: str, seed: int) -> tuple[Any, Any]:
    config = dataclasses.replace(BASE, dtype=dtype, **options)
    state = prl.sac.init(config, PENDULUM, prl.random.key(seed))
    c = twin.Settings(dtype=jnp.float64 if dtype == "float64" else jnp.float32, **words)
    key = jnp.asarray(state.key.numpy().astype(np.uint32))
    other = twin.init(to_jax(state.params), key)
    for number in range(UPDATES):
        rows = batch(number, getattr(torch, dtype))
        state, _ = prl.sac.update(config, state, rows)
        other = twin.update(c, other, to_jax(rows))
    assert np.array_equal(state.key.numpy(), np.asarray(other.key))
    assert int(state.num_updates) == int(other.updates)
    return state, other


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_five_updates_are_those_of_the_twin(name: str, dtype: str, seed: int) -> None:
    """C16: parameters, temperature and target critics to 1e-5 (float64: 1e-10)."""
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    with jax.enable_x64(dtype == "float64"):
        state, other = run(*CASES[name], dtype, seed)
        assert distance(to_jax(state.params), other.params) < tolerance
        assert distance(to_jax(state.target_params["critic"]), other.target) < tolerance


@pytest.mark.parametrize(
    "mistake", ["the change of variables forgotten", "the entropy outside the mask"]
)
def test_a_twin_with_a_known_mistake_does_not_agree(mistake: str) -> None:
    """A difference in one formula is far outside the tolerance."""
    state, other = run({}, {"mistake": mistake}, "float32", 0)
    assert distance(to_jax(state.params), other.params) > 1e-4


def test_actions_are_those_of_the_twin_by_key() -> None:
    """Discrete actions exactly, continuous ones to a rounding of the noise."""
    observation = prl.random.normal(prl.random.key(3), (64, 3))
    state = prl.sac.init(BASE, PENDULUM, prl.random.key(0))
    action, _ = prl.sac.act(BASE, state, observation, prl.random.key(5))
    noise = jax.random.normal(jax.random.key(5), (64, 1))
    params = to_jax(state.params["actor"])
    expected, _ = twin.draw(twin.Settings(), params, jnp.asarray(observation.numpy()), noise)
    np.testing.assert_allclose(action.numpy(), 2.0 * np.asarray(expected), rtol=1e-5, atol=1e-6)

    env = prl.envs.make("CartPole-v1")
    state = prl.sac.init(BASE, env, prl.random.key(0))
    observation = prl.random.normal(prl.random.key(4), (64, 4))
    action, _ = prl.sac.act(BASE, state, observation, prl.random.key(6))
    logits = twin.network(to_jax(state.params["actor"]), jnp.asarray(observation.numpy()))
    assert np.array_equal(action.numpy(), jax.random.categorical(jax.random.key(6), logits))
