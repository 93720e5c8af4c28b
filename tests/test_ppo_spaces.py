"""PPO on every kind of space, and on data that is wrong or small."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from tensordict import TensorDict
from torch import Tensor

import purerl as prl
from purerl.algos.policy import action_spec, make_policy
from purerl.errors import ConfigError, EnvError

CONFIG = prl.ppo.Config(num_envs=8, num_steps=16, num_epochs=2, num_minibatches=2)
ONE_STEP = prl.envs.make("probe/one_step")


def trained(
    config: prl.ppo.Config, env: prl.envs.Environment, num: int = 3
) -> tuple[prl.ppo.State, TensorDict]:
    state = prl.ppo.init(config, env, prl.random.key(0))
    for _ in range(num):
        state, metrics = prl.ppo.train_step(config, env, state)
    assert bool(prl.tree.all_finite(state.params))
    return state, metrics


def paying(env: prl.envs.Environment, space: spaces.Space[Any], pay: Any) -> prl.envs.Environment:
    """Return one_step with another action space, paying ``pay(action)``."""

    def step(state: TensorDict, action: Tensor, key: Tensor) -> Any:
        state, outcome = env.step(state, action, key)
        outcome.reward = pay(action)
        return state, outcome

    return dataclasses.replace(env, step=step, action_space=space)


def test_a_multi_discrete_policy_learns_each_of_its_heads() -> None:
    target = torch.tensor([2, 0, 1])
    env = paying(
        ONE_STEP,
        spaces.MultiDiscrete([3, 2, 4]),
        lambda action: (action == target).to(torch.float32).sum(-1),
    )
    config = dataclasses.replace(CONFIG, learning_rate=1e-2, num_epochs=4)
    state, _ = trained(config, env, 40)
    action, extras = prl.ppo.act(
        config, state, torch.zeros(1, 1), prl.random.key(0), deterministic=True
    )
    assert action.tolist() == [[2, 0, 1]]
    assert extras["log_prob"].shape == (1,)


def masked_env() -> prl.envs.Environment:
    """Return two numbers and a mask that forbids action 2, which alone would pay."""

    def observed(like: Tensor) -> TensorDict:
        legal = torch.tensor([True, True, False]).expand(*like.shape, 3)
        value = torch.zeros(*like.shape, 2)
        return TensorDict({"value": value, "action_mask": legal}, batch_size=like.shape)

    def reset(key: Tensor) -> Any:
        state, observation = ONE_STEP.reset(key)
        return state, observed(observation[..., 0])

    def step(state: TensorDict, action: Tensor, key: Tensor) -> Any:
        state, outcome = ONE_STEP.step(state, action, key)
        seen = observed(outcome.reward)
        changed = prl.envs.Step(
            observation=seen,
            next_observation=seen,
            reward=(action == 2).to(torch.float32) + 0.5 * (action == 1),
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            batch_size=outcome.reward.shape,
        )
        return state, changed

    space = spaces.Dict({"value": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)})
    return dataclasses.replace(
        ONE_STEP, reset=reset, step=step, observation_space=space, action_space=spaces.Discrete(3)
    )


def test_a_forbidden_action_is_never_taken_however_well_it_would_pay() -> None:
    config = dataclasses.replace(CONFIG, mask_actions=True, learning_rate=1e-2)
    env = masked_env()
    state, metrics = trained(config, env, 30)
    assert float(metrics["episode", "return_mean"]) <= 0.5
    observation = env.reset(prl.random.key(0))[1]
    batch = prl.tree.map(lambda leaf: leaf.expand(64, *leaf.shape), prl.tree.to_dict(observation))
    actions, _ = prl.ppo.act(config, state, batch, prl.random.key(5))
    assert set(actions.tolist()) <= {0, 1}
    best, _ = prl.ppo.act(config, state, batch, prl.random.key(5), deterministic=True)
    assert best.unique().tolist() == [1]


@pytest.mark.parametrize(("num_envs", "num_steps"), [(1, 1), (1, 8), (8, 1)])
@pytest.mark.parametrize("env_id", ["probe/one_step", "CartPole-v1", "Pendulum-v1"])
def test_one_step_one_environment_and_all_done_batches_give_finite_updates(
    num_envs: int, num_steps: int, env_id: str
) -> None:
    config = prl.ppo.Config(num_envs=num_envs, num_steps=num_steps, num_epochs=1, num_minibatches=1)
    _, metrics = trained(config, prl.envs.make(env_id))
    assert int(metrics["fault", "nonfinite_updates"]) == 0


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_nan_from_a_pure_environment_moves_no_parameter_and_is_counted(what: str) -> None:
    def step(state: TensorDict, action: Tensor, key: Tensor) -> Any:
        state, outcome = ONE_STEP.step(state, action, key)
        if what == "reward":
            outcome.reward = outcome.reward * torch.nan
        else:
            outcome.terminated = ~outcome.terminated
            outcome.observation = outcome.next_observation = outcome.observation * torch.nan
        return state, outcome

    env = dataclasses.replace(ONE_STEP, step=step)
    state = prl.ppo.init(CONFIG, env, prl.random.key(0))
    new, metrics = prl.ppo.train_step(CONFIG, env, state)
    assert int(metrics["fault", "nonfinite_updates"]) == 4
    assert prl.tree.equal(new.params, state.params)


def test_a_garbage_successor_of_a_terminal_step_changes_nothing() -> None:
    def step(state: TensorDict, action: Tensor, key: Tensor) -> Any:
        state, outcome = ONE_STEP.step(state, action, key)
        outcome.next_observation = outcome.next_observation * torch.nan
        return state, outcome

    garbage = dataclasses.replace(ONE_STEP, step=step)
    clean_state, _ = trained(CONFIG, ONE_STEP)
    garbage_state, _ = trained(CONFIG, garbage)
    assert prl.tree.equal(clean_state.params, garbage_state.params)


class DictEnv(gym.Env[Any, Any]):
    """Shows a Dict, takes a pair of choices, ends every fifth step; may fail at step 37."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (2, 2), np.uint8), "speed": spaces.Box(-1.0, 1.0, (3,))}
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.total = fails, 0

    def _shown(self) -> Any:
        return {
            "image": np.full((2, 2), self.total % 256, np.uint8),
            "speed": np.zeros(3, np.float32),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        assert action.shape == (2,)
        self.total += 1
        if self.fails and self.total == 37:
            raise ValueError("lost the ball")
        return self._shown(), 1.0, self.total % 5 == 0, False, {}


def host_population(
    fails: bool,
) -> tuple[prl.ppo.Config, prl.envs.HostEnvironment, prl.ppo.State]:
    config = dataclasses.replace(CONFIG, num_envs=2)
    makers = [
        lambda i=i: prl.envs.Guarded(DictEnv(fails and i == 3), i)  # i is bound as a default
        for i in range(4)
    ]
    host = prl.envs.gymnasium(SyncVectorEnv(makers))
    host.reset([1, 2, 3, 4])
    keys = prl.random.split(prl.random.key(0))
    return config, host, torch.vmap(partial(prl.ppo.init, config, host))(keys)


def test_dict_observations_and_paired_choices_train_through_gymnasium() -> None:
    config, host, states = host_population(fails=False)
    for _ in range(2):
        states, metrics = prl.ppo.host_train_step(config, host, states)
    assert bool(prl.tree.all_finite(states.params))
    assert states.observation["image"].dtype == torch.uint8
    # one row in six only resets: five real steps an episode
    assert float(metrics["episode", "return_mean"].mean()) == 5.0


def test_an_environment_that_fails_at_step_37_leaves_the_state_from_before_whole() -> None:
    config, host, states = host_population(fails=True)
    before = prl.tree.clone(states)

    def run(states: prl.ppo.State) -> None:
        for _ in range(4):
            states, _ = prl.ppo.host_train_step(config, host, states)

    with pytest.raises(EnvError, match=r"environment 3, step \d+.*lost the ball") as error:
        run(states)
    assert isinstance(error.value.__cause__, ValueError)
    assert prl.tree.equal(states, before)


def test_a_space_that_ppo_cannot_use_is_refused_with_the_cure() -> None:
    env = dataclasses.replace(ONE_STEP, action_space=spaces.MultiBinary(3))
    with pytest.raises(ConfigError, match="flatten it with a gymnasium wrapper"):
        prl.ppo.init(CONFIG, env, prl.random.key(0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("space", "draw", "size"),
    [
        (spaces.Discrete(3), prl.random.gumbel, 3),
        (spaces.MultiDiscrete([3, 2]), prl.random.gumbel, 5),
        (spaces.Box(-1.0, 1.0, (2,)), prl.random.normal, 2),
    ],
)
@pytest.mark.parametrize("continuous", ["normal", "tanh_normal"])
def test_noise_is_drawn_in_the_precision_of_the_policy(
    space: spaces.Space[Any], draw: Any, size: int, dtype: Any, continuous: Any
) -> None:
    config = dataclasses.replace(CONFIG, dtype=dtype, continuous_policy=continuous)
    head = make_policy(config, {"action": action_spec(space)}, 4).head
    key = prl.random.key(0)
    wanted = draw(key, (5, size), dtype=getattr(torch, dtype))
    torch.testing.assert_close(head.noise(key, 5), wanted, rtol=0, atol=0)
