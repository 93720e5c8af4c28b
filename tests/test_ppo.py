"""The PPO train step: members of a population, statistics, early stop, configuration."""

from __future__ import annotations

import dataclasses
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import purerl as prl
from purerl.errors import ConfigError, ShapeError

ENV = prl.envs.make("CartPole-v1")
SMALL = prl.ppo.Config(num_envs=4, num_steps=16, num_epochs=2, num_minibatches=2)


def population(config: prl.ppo.Config, env: prl.envs.Environment, num: int) -> prl.ppo.State:
    return torch.vmap(partial(prl.ppo.init, config, env))(prl.random.split(prl.random.key(0), num))


def test_member_i_of_a_population_is_the_solo_run_with_key_i() -> None:
    states = population(SMALL, ENV, 8)
    step = partial(prl.ppo.train_step, SMALL, ENV)
    solo = prl.ppo.init(SMALL, ENV, prl.random.split(prl.random.key(0), 8)[5])
    assert prl.tree.equal(states[5], solo)
    for number in range(3):
        states, _ = torch.vmap(step)(states)
        solo, _ = step(solo)
        member = states[5]
        if number == 0:  # the first rollout ran under bitwise equal parameters
            assert prl.tree.equal(member.env_state, solo.env_state)
            assert torch.equal(member.observation, solo.observation)
        assert torch.equal(member.key, solo.key)
        assert torch.equal(member.num_env_steps, solo.num_env_steps)
    for a, b in zip(prl.tree.leaves(states[5].params), prl.tree.leaves(solo.params), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_train_step_repeats_itself_and_leaves_its_state_untouched() -> None:
    state = prl.ppo.init(SMALL, ENV, prl.random.key(3))
    before = prl.tree.clone(state)
    generator = torch.get_rng_state()
    first, first_metrics = prl.ppo.train_step(SMALL, ENV, state)
    again, again_metrics = prl.ppo.train_step(SMALL, ENV, state)
    assert prl.tree.equal(state, before)
    assert prl.tree.equal(first, again)
    assert prl.tree.equal(first_metrics, again_metrics)
    assert torch.equal(torch.get_rng_state(), generator)


def test_after_the_kl_stop_no_parameter_moves() -> None:
    config = prl.ppo.Config(
        num_envs=4, num_steps=16, num_epochs=3, num_minibatches=2, target_kl=1e-12
    )
    state = prl.ppo.init(config, ENV, prl.random.key(0))
    once, metrics = prl.ppo.train_step(config, ENV, state)
    assert bool(metrics["opt", "stopped"])
    executed = int(metrics["opt", "num_updates"])
    assert 1 <= executed < 6
    steps = [
        leaf
        for path, leaf in zip(
            prl.tree.paths(once.optimizer), prl.tree.leaves(once.optimizer), strict=True
        )
        if path.rpartition(".")[2] in ("step", "count")
    ]
    assert steps
    assert all(int(leaf) == executed for leaf in steps)


@pytest.mark.parametrize(
    "options",
    [
        {"normalize_observation": True, "normalize_reward": True},
        {"normalize_observation": True, "normalize_update": "rollout"},
        {"value_clip_epsilon": 0.2, "value_clip_mode": "max", "dual_clip": 3.0},
        {"recompute_advantage": "epoch", "normalize_advantage": "rollout"},
        {"shared_trunk": True, "grad_clip_scope": "separate", "truncation": "terminal"},
        {"target_kl": 0.01, "kl_stop_place": "epoch_end", "dtype": "float64"},
    ],
)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_every_option_gives_a_finite_update(options: dict[str, object], env_id: str) -> None:
    config = prl.ppo.Config(num_envs=4, num_steps=8, num_epochs=2, num_minibatches=2, **options)
    env = prl.envs.make(env_id)
    state = prl.ppo.init(config, env, prl.random.key(0))
    new, metrics = prl.ppo.train_step(config, env, state)
    assert bool(prl.tree.all_finite(new.params))
    assert not prl.tree.equal(new.params, state.params)
    assert int(metrics["fault", "nonfinite_updates"]) == 0


def test_own_transitions_teach_as_the_rollout_does() -> None:
    state = prl.ppo.init(SMALL, ENV, prl.random.key(0))
    observation, env_state = state.observation, state.env_state
    rows = []
    for key in prl.random.split(prl.random.key(9), SMALL.num_steps):
        action, extras = prl.ppo.act(SMALL, state, observation, key)
        keys = prl.random.split(key, SMALL.num_envs)
        env_state, step = torch.vmap(prl.envs.auto_reset(ENV).step)(env_state, action, keys)
        row = {name: step.get(name) for name in ("reward", "terminated", "truncated")}
        rows.append(
            row
            | {"observation": observation, "next_observation": step.next_observation}
            | {name: extras[name] for name in ("action", "log_prob")}
        )
        observation = step.observation
    new, metrics = prl.ppo.update(SMALL, state, prl.tree.stack(rows))
    assert int(new.num_env_steps) == 64
    assert abs(float(metrics["stat", "ratio_mean"]) - 1.0) < 0.05
    with pytest.raises(ShapeError, match="the batch has no log_prob"):
        prl.ppo.update(SMALL, state, {k: v for k, v in rows[0].items() if k != "log_prob"})


def test_a_state_of_the_wrong_kind_is_told_the_cure() -> None:
    host = prl.envs.gymnasium("CartPole-v1", num_envs=4)
    states = population(SMALL, ENV, 2)
    with pytest.raises(ConfigError, match="call host_train_step"):
        prl.ppo.train_step(SMALL, host, states[0])  # type: ignore[arg-type]  # the point
    with pytest.raises(ShapeError, match=r"batch size \[2\], expected a solo state"):
        prl.ppo.train_step(SMALL, ENV, states)
    with pytest.raises(ShapeError, match=r"of one solo state by state\[None\]"):
        prl.ppo.host_train_step(SMALL, host, states[0])
    host.close()


def test_masked_rows_of_own_transitions_may_hold_anything() -> None:
    config = dataclasses.replace(SMALL, normalize_observation=True, normalize_reward=True)
    state = prl.ppo.init(config, ENV, prl.random.key(0))
    keys = prl.random.split(prl.random.key(4), 5)
    shape = (config.num_steps, config.num_envs)
    rows = {
        "observation": prl.random.normal(keys[0], (*shape, 4)),
        "action": prl.random.randint(keys[1], shape, 0, 2),
        "log_prob": -prl.random.uniform(keys[2], shape),
        "reward": prl.random.normal(keys[3], shape),
        "terminated": torch.zeros(shape, dtype=torch.bool),
        "truncated": torch.zeros(shape, dtype=torch.bool),
        "next_observation": prl.random.normal(keys[4], (*shape, 4)),
        "mask": torch.ones(shape, dtype=torch.bool),
    }
    rows["mask"][3, 1] = rows["mask"][7, 2] = False
    garbage = {name: value.clone() for name, value in rows.items()}
    for name in ("observation", "log_prob", "reward", "next_observation"):
        garbage[name][~rows["mask"]] = torch.nan
    expected, _ = prl.ppo.update(config, state, rows)
    found, metrics = prl.ppo.update(config, state, garbage)
    assert prl.tree.equal(found, expected)
    assert int(metrics["fault", "nonfinite_updates"]) == 0
    assert not prl.tree.equal(found.params, state.params)


def test_a_configuration_reports_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        prl.ppo.Config(gamma=1.5, num_envs=True, activation="tanhh")
    text = str(error.value)
    assert "gamma is 1.5, expected float in [0, 1]" in text
    assert "num_envs is True, expected int" in text
    assert "did you mean tanh?" in text
    with pytest.raises(ConfigError, match="did you mean learning_rate"):
        prl.ppo.Config(learning_rte=1.0)
    with pytest.raises(ConfigError, match="the nearest valid values are 4 or 8"):
        prl.ppo.Config(num_envs=4, num_steps=16, num_minibatches=6)


@pytest.mark.parametrize("name", ["cleanrl", "sb3", "purejaxrl", "torchrl", "purerl"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
def test_every_preset_is_a_valid_configuration(name: str, env_id: str) -> None:
    assert isinstance(prl.ppo.preset(name, env_id), prl.ppo.Config)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"normalize_observation": True, "normalize_reward": True}),
    ],
)
def test_a_population_learns_in_a_host_environment_and_counts_real_steps_only(
    mode: AutoresetMode, env_id: str, options: dict[str, bool]
) -> None:
    config = prl.ppo.Config(num_envs=2, num_steps=32, num_epochs=1, num_minibatches=2, **options)
    host = prl.envs.gymnasium(env_id, num_envs=6, autoreset_mode=mode)
    host.reset(prl.envs.environment_seeds(prl.random.key(1), 6))
    states = torch.vmap(partial(prl.ppo.init, config, host))(prl.random.split(prl.random.key(0), 3))
    before = prl.tree.clone(states)
    new, metrics = prl.ppo.host_train_step(config, host, states)
    assert prl.tree.equal(states, before)
    assert new.batch_size == (3,)
    assert bool(prl.tree.all_finite(new.params))
    ended = metrics["episode", "count"]
    expected = 64 - ended if mode is AutoresetMode.NEXT_STEP else torch.full((3,), 64)
    assert bool((new.num_env_steps >= expected).all())
    assert bool((new.num_env_steps <= 64).all())
    assert prl.tree.equal(prl.tree.index(new.observation, 0), host.observation[:2])
    with pytest.raises(ConfigError, match="expected 4: 2 members"):
        prl.ppo.host_train_step(config, host, states[:2])


FULL = prl.ppo.Config(
    num_envs=4,
    num_steps=16,
    num_epochs=4,
    num_minibatches=2,
    total_steps=640,
    clip_epsilon_end=0.1,
    dual_clip=1.01,
    value_clip_epsilon=0.2,
    value_clip_mode="max",
    advantage_floor=1e-6,
    entropy_coef=0.01,
    target_kl=1e3,
    max_grad_norm=0.1,
    observation_clip=1.0,
    reward_clip=1.0,
    normalize_observation=True,
    normalize_reward=True,
)
CHANGED = {
    "target_kl": 1e-9,
    "kl_stop_factor": 1e-15,
    "advantage_floor": 10.0,
    "learning_rate_end": 1.0,
    "dual_clip": 1.5,
}


@pytest.mark.parametrize(
    "name", sorted(prl.config.hparams(FULL, skip=prl.ppo._USED_BY_INIT)), ids=str
)
def test_every_leaf_of_hparams_is_what_the_train_step_reads(name: str) -> None:
    state = prl.ppo.init(FULL, ENV, prl.random.key(2))
    # a ratio far from 1 and a schedule under way, so that every number has a part to play
    state.params["network"]["actor"] = prl.tree.map(
        lambda leaf: 3.0 * leaf, state.params["network"]["actor"]
    )
    state.num_updates = state.num_updates + 3
    state.hparams["learning_rate"] = torch.tensor(3e-2, dtype=torch.float64)
    changed = state.clone()
    value = CHANGED.get(name, 0.5 * float(state.hparams[name]))
    changed.hparams[name] = torch.tensor(value, dtype=torch.float64)
    ours, _ = prl.ppo.train_step(FULL, ENV, state)
    theirs, _ = prl.ppo.train_step(FULL, ENV, changed)
    assert not prl.tree.equal(ours.params, theirs.params)


def test_own_rows_that_do_not_divide_are_refused_with_the_nearest_numbers() -> None:
    state = prl.ppo.init(SMALL, ENV, prl.random.key(0))
    rows = {
        "observation": torch.zeros(3, 3, 4),
        "action": torch.zeros(3, 3, dtype=torch.int64),
        "log_prob": torch.zeros(3, 3),
        "reward": torch.zeros(3, 3),
        "terminated": torch.zeros(3, 3, dtype=torch.bool),
        "truncated": torch.zeros(3, 3, dtype=torch.bool),
        "next_observation": torch.zeros(3, 3, 4),
    }
    with pytest.raises(ConfigError, match="the nearest valid values are 1 or 3"):
        prl.ppo.update(SMALL, state, rows)
    with pytest.raises(ShapeError, match="terminated has dtype"):
        prl.ppo.update(SMALL, state, rows | {"terminated": torch.zeros(3, 3)})


def test_a_number_of_one_member_is_its_own() -> None:
    """Writing one member's number leaves the others, and the states from before, as they were."""
    first = population(SMALL, ENV, 3)
    second, _ = torch.vmap(partial(prl.ppo.train_step, SMALL, ENV))(first)
    second.hparams["learning_rate"][0] = 1.0
    assert second.hparams["learning_rate"].tolist()[1:] == [3e-4, 3e-4]
    first.hparams["gamma"][1] = 0.5
    assert first.hparams["gamma"].tolist() == [0.99, 0.5, 0.99]
    assert second.hparams["gamma"].tolist() == [0.99] * 3
    solo = prl.ppo.init(SMALL, ENV, prl.random.key(0))
    new, _ = prl.ppo.train_step(SMALL, ENV, solo)
    new.hparams["gamma"].fill_(0.1)
    assert float(solo.hparams["gamma"]) == 0.99


def test_a_box_without_bounds_cannot_be_squashed_into() -> None:
    env = dataclasses.replace(
        prl.envs.make("Pendulum-v1"), action_space=spaces.Box(-np.inf, np.inf, (1,))
    )
    config = dataclasses.replace(SMALL, continuous_policy="tanh_normal")
    with pytest.raises(ConfigError, match="expected finite bounds"):
        prl.ppo.init(config, env, prl.random.key(0))
    with pytest.raises(ConfigError, match="one entry of which is action_mask"):
        prl.ppo.init(dataclasses.replace(SMALL, mask_actions=True), ENV, prl.random.key(0))


def test_a_dict_of_observations_has_no_order() -> None:
    space = spaces.Dict({"pos": spaces.Box(-9, 9, (2,)), "vel": spaces.Box(-9, 9, (2,))})

    def reset(key: prl.types.Key) -> tuple[object, object]:
        return ENV.reset(key)[0], {"vel": torch.ones(2), "pos": torch.zeros(2)}

    env = dataclasses.replace(ENV, observation_space=space, reset=reset)
    state = prl.ppo.init(SMALL, env, prl.random.key(0))
    pos, vel = torch.zeros(1, 2), torch.ones(1, 2)
    values = [
        prl.ppo.act(SMALL, state, observation, prl.random.key(1))[1]["value"]
        for observation in ({"pos": pos, "vel": vel}, {"vel": vel, "pos": pos})
    ]
    assert torch.equal(*values)


class TwoSteps(gym.Env[object, object]):
    """Shows its step and ends at the second."""

    observation_space = spaces.Box(-9, 9, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict]:
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time >= 2, False, {}


@pytest.mark.parametrize("update", ["step", "rollout"])
def test_statistics_are_those_of_what_is_acted_on_in_every_autoreset_mode(update: str) -> None:
    """The same transitions give the same statistics: 20 of them, observed 0 and 1 in turn."""
    seen = []
    for mode, num_steps in (
        (AutoresetMode.SAME_STEP, 20),
        (AutoresetMode.DISABLED, 20),
        (AutoresetMode.NEXT_STEP, 30),
    ):
        config = prl.ppo.Config(
            num_envs=1,
            num_steps=num_steps,
            num_minibatches=1,
            num_epochs=1,
            normalize_observation=True,
            normalize_update=update,
        )
        host = prl.envs.gymnasium(SyncVectorEnv([TwoSteps], autoreset_mode=mode))
        host.reset([0])
        states = torch.vmap(partial(prl.ppo.init, config, host))(prl.random.key(0)[None])
        states, _ = prl.ppo.host_train_step(config, host, states)
        assert int(states.num_env_steps) == 20
        seen.append(
            (int(states.observation_stats["count"]), float(states.observation_stats["mean"]))
        )
    assert seen[0] == seen[1] == seen[2]
    assert seen[0] == (21, 10 / 21)
