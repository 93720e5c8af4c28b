"""PPO reaches the known value of each probe environment."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import purerl as prl

GAMMA, NUM_TRAIN_STEPS = 0.9, 200
CONFIG = prl.ppo.Config(
    num_envs=16,
    num_steps=8,
    num_epochs=4,
    num_minibatches=1,
    total_steps=128 * NUM_TRAIN_STEPS,
    gamma=GAMMA,
    learning_rate=5e-3,
    value_coef=0.5,
    hidden_sizes=(32,),
)


def learned(env: prl.envs.Environment) -> prl.ppo.State:
    state = prl.ppo.init(CONFIG, env, prl.random.key(0))
    step = partial(prl.ppo.train_step, CONFIG, env)
    for _ in range(NUM_TRAIN_STEPS):
        state, _ = step(state)
    return state


def value(state: prl.ppo.State, *shown: float) -> Tensor:
    observation = torch.tensor(shown)[:, None]
    return prl.ppo.act(CONFIG, state, observation, prl.random.key(1))[1]["value"]


@pytest.mark.parametrize(
    ("name", "shown", "expected"),
    [
        ("one_step", (0.0,), (1.0,)),
        ("observation_reward", (-1.0, 1.0), (-1.0, 1.0)),
        ("two_step", (0.0, 1.0), (GAMMA, 1.0)),
        ("action_reward", (0.0,), (1.0,)),
        ("observation_action_reward", (-1.0, 1.0), (1.0, 1.0)),
        ("termination_loop", (0.0, 1.0, 2.0), (1 + GAMMA + GAMMA**2, 1 + GAMMA, 1.0)),
        ("chain", (1.0, 2.0, 3.0), (GAMMA**2, GAMMA, 1.0)),
    ],
)
def test_ppo_learns_the_known_value(
    name: str, shown: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    state = learned(prl.envs.make(f"probe/{name}"))
    torch.testing.assert_close(value(state, *shown), torch.tensor(expected), rtol=0, atol=0.05)


@pytest.mark.parametrize("limit", [2, 5])
def test_a_time_limit_does_not_change_the_value_of_an_endless_reward(limit: int) -> None:
    state = learned(prl.envs.probe.truncation_loop(max_episode_steps=limit))
    expected = torch.tensor([1 / (1 - GAMMA)])
    torch.testing.assert_close(value(state, 0.0), expected, rtol=0, atol=0.05)


def test_a_continuous_policy_finds_the_best_action() -> None:
    state = learned(prl.envs.make("probe/continuous_target"))
    action, _ = prl.ppo.act(CONFIG, state, torch.zeros(1, 1), prl.random.key(0), deterministic=True)
    assert float(action) == pytest.approx(0.3, abs=0.05)
