"""The pure classic-control tasks take gymnasium's steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from purerl import envs, random, tree

IDS = [env_id for env_id in envs.ENVIRONMENTS if not env_id.startswith("probe/")]


def translated(env_id: str, state: Any, time: int) -> TensorDict:
    physics = torch.as_tensor(np.array(state, np.float64))
    clock = torch.tensor(time)
    if env_id == "Pendulum-v1":
        return TensorDict({"theta": physics[0], "theta_dot": physics[1], "time": clock})
    return TensorDict({"physics": physics, "time": clock})


def physics_of(env_id: str, state: TensorDict) -> torch.Tensor:
    if env_id == "Pendulum-v1":
        return torch.stack([state["theta"], state["theta_dot"]])
    return state["physics"]


@pytest.mark.parametrize("env_id", IDS)
def test_2000_random_steps_equal_those_of_gymnasium(env_id: str) -> None:
    env, reference = envs.make(env_id, dtype=torch.float64), gymnasium.make(env_id)
    reference.action_space.seed(1)
    key, time, ends = random.key(0), 0, 0
    reference.reset(seed=0)
    for _ in range(2000):
        before = translated(env_id, reference.unwrapped.state, time)
        action = reference.action_space.sample()
        observation, reward, terminated, truncated, _ = reference.step(action)
        after, step = env.step(before, torch.as_tensor(action), key)
        physics = torch.as_tensor(np.array(reference.unwrapped.state, np.float64))
        torch.testing.assert_close(physics_of(env_id, after), physics, rtol=0, atol=1e-6)
        torch.testing.assert_close(
            step.next_observation, torch.as_tensor(observation), rtol=0, atol=1e-6
        )
        assert abs(float(step.reward) - float(reward)) <= 1e-6
        assert (bool(step.terminated), bool(step.truncated)) == (terminated, truncated)
        time += 1
        if terminated or truncated:
            time, ends = 0, ends + 1
            reference.reset()
    assert ends > 0
    reference.close()


@pytest.mark.parametrize("env_id", IDS)
def test_environment_i_of_a_batch_is_the_solo_environment_with_key_i(env_id: str) -> None:
    env = envs.auto_reset(envs.make(env_id))
    keys = random.split(random.key(3), 5)
    states, _ = torch.vmap(env.reset)(keys)
    solo, _ = env.reset(keys[2])
    action = torch.zeros(5, *env.action_space.shape)
    for _ in range(3):
        states, steps = torch.vmap(env.step)(states, action, keys)
        solo, step = env.step(solo, action[2], keys[2])
    assert tree.equal(states[2], solo)
    assert tree.equal(steps[2], step)


def test_a_time_limit_reached_on_the_terminating_step_sets_both_flags() -> None:
    env = envs.cartpole(max_episode_steps=1)
    state = TensorDict({"physics": torch.tensor([2.4, 1.0, 0.0, 0.0]), "time": torch.tensor(0)})
    _, step = env.step(state, torch.tensor(1), random.key(0))
    assert bool(step.terminated)
    assert bool(step.truncated)


def test_auto_reset_keeps_the_true_successor_and_draws_a_fresh_episode() -> None:
    env = envs.auto_reset(envs.cartpole(max_episode_steps=1))
    state, _ = env.reset(random.key(0))
    key = random.key(1)
    new_state, step = env.step(state, torch.tensor(1), key)
    raw_state, raw = env.base.step(state, torch.tensor(1), key)
    _, first = env.base.reset(random.split(key)[1])
    assert torch.equal(step.next_observation, raw.next_observation)
    assert torch.equal(step.observation, first)
    assert int(new_state["time"]) == 0
    assert int(raw_state["time"]) == 1


@pytest.mark.parametrize("env_id", IDS)
def test_a_step_leaves_its_inputs_untouched_and_repeats_itself(env_id: str) -> None:
    env = envs.auto_reset(envs.make(env_id))
    state, _ = env.reset(random.key(0))
    before = tree.clone(state)
    action = torch.zeros(env.action_space.shape)
    first, again = (env.step(state, action, random.key(5)) for _ in range(2))
    assert tree.equal(state, before)
    assert tree.equal(first[0], again[0])
    assert tree.equal(first[1], again[1])
