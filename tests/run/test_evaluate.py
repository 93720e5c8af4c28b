from __future__ import annotations

import pytest
import torch
from tests.run import counting
from torch import Tensor

import purerl as prl
from purerl import random, run
from purerl.envs import Step
from purerl.errors import ConfigError, ShapeError

ENV = prl.envs.make("CartPole-v1")
PPO = prl.ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1)
KEY = random.key(3)


def ppo_states(num_seeds: int, config: prl.ppo.Config = PPO) -> prl.ppo.State:
    keys = random.split(random.key(0), num_seeds)
    return torch.vmap(lambda k: prl.ppo.init(config, ENV, k))(keys)


def by_hand(state: prl.ppo.State, num_seeds: int, member: int, episodes: int) -> Tensor:
    """Returns of one member's episodes by plain loops over the documented keys."""
    reset_key, run_key = random.split(KEY).unbind(0)
    reset_keys = random.split(reset_key, num_seeds * episodes).unflatten(0, (num_seeds, episodes))
    started = [ENV.reset(k) for k in reset_keys[member].unbind(0)]
    env_states = [pair[0] for pair in started]
    observations = [pair[1] for pair in started]
    totals, running = [0.0] * episodes, [True] * episodes
    for time in range(500):
        member_key = random.split(random.fold_in(run_key, time), num_seeds)[member]
        act_key, env_key = random.split(member_key).unbind(0)
        action, _ = prl.ppo.act(PPO, state, torch.stack(observations), act_key)
        for i, k in enumerate(random.split(env_key, episodes).unbind(0)):
            if running[i]:
                env_states[i], step = ENV.step(env_states[i], action[i], k)
                observations[i] = step.observation
                totals[i] += float(step.reward)
                running[i] = not bool(step.terminated | step.truncated)
        if not any(running):
            break
    return torch.tensor(totals, dtype=torch.float64)


def test_sampled_evaluation_equals_plain_loops() -> None:
    states = ppo_states(2)
    found = run.evaluate(prl.ppo, PPO, ENV, states, key=KEY, episodes=3, deterministic=False)
    assert torch.equal(found.return_[1], by_hand(states[1], 2, 1, 3))
    assert torch.equal(found.length, found.return_)  # CartPole pays 1 a step


def test_evaluation_changes_no_state_and_repeats_with_its_key() -> None:
    config = prl.ppo.Config(
        num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, normalize_observation=True
    )
    states = ppo_states(2, config)
    before = prl.tree.clone(states)
    first = run.evaluate(prl.ppo, config, ENV, states, key=KEY, episodes=2)
    again = run.evaluate(prl.ppo, config, ENV, states, key=KEY, episodes=2)
    other = run.evaluate(prl.ppo, config, ENV, states, key=random.key(4), episodes=2)
    assert prl.tree.equal(states, before)
    assert torch.equal(first.return_, again.return_)
    assert not torch.equal(first.return_, other.return_)


def test_episodes_end_at_max_steps_with_what_they_earned() -> None:
    found = run.evaluate(prl.ppo, PPO, ENV, ppo_states(2), key=KEY, episodes=2, max_steps=5)
    assert torch.equal(found.return_, torch.full((2, 2), 5.0, dtype=torch.float64))


def test_what_happens_after_the_end_of_an_episode_does_not_count() -> None:
    """An environment that ends after three steps and pays NaN beyond."""

    def step(env_state: Tensor, action: Tensor, key: Tensor) -> tuple[Tensor, Step]:
        new_state, outcome = ENV.step(env_state, action, key)
        late = new_state["time"] > 3
        outcome.reward = torch.where(late, torch.nan, outcome.reward)
        outcome.terminated = new_state["time"] >= 3
        return new_state, outcome

    env = prl.envs.Environment("short", ENV.reset, step, ENV.observation_space, ENV.action_space)
    found = run.evaluate(prl.ppo, PPO, env, ppo_states(1), key=KEY, episodes=2)
    assert found.return_.tolist() == found.length.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_a_host_environment_is_evaluated_alike_in_every_autoreset_mode(mode: str) -> None:
    from gymnasium.vector import AutoresetMode

    states = torch.vmap(lambda k: counting.init(counting.Config(), ENV, k))(random.split(KEY, 2))
    host = prl.envs.gymnasium("CartPole-v1", 6, autoreset_mode=AutoresetMode[mode])
    found = run.evaluate(counting, counting.Config(), host, states, key=KEY, episodes=3)
    host.close()
    made = run.evaluate(
        counting,
        counting.Config(),
        lambda num_envs: prl.envs.gymnasium("CartPole-v1", num_envs),
        states,
        key=KEY,
        episodes=3,
    )
    assert found.return_.shape == (2, 3)
    assert torch.equal(found.return_, made.return_)
    assert torch.equal(found.return_, found.length)


def test_mistakes_are_told() -> None:
    states = ppo_states(2)
    with pytest.raises(ShapeError, match=r"expected \[num_seeds\]; of one member, states"):
        run.evaluate(prl.ppo, PPO, ENV, states[0], key=KEY)
    with pytest.raises(ConfigError, match="episodes is 0"):
        run.evaluate(prl.ppo, PPO, ENV, states, key=KEY, episodes=0)
    with pytest.raises(ConfigError, match="max_steps is 0"):
        run.evaluate(prl.ppo, PPO, ENV, states, key=KEY, max_steps=0)
    host = prl.envs.gymnasium("CartPole-v1", 3)
    with pytest.raises(ConfigError, match=r"num_seeds · episodes = 2 · 10 = 20"):
        run.evaluate(prl.ppo, PPO, host, states, key=KEY)
    host.close()
