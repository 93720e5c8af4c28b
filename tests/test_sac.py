"""The SAC train step: members of a population, warm-up, options, donation, replay, spaces."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import purerl as prl
from purerl.errors import ConfigError, ShapeError

PENDULUM, CARTPOLE = prl.envs.make("Pendulum-v1"), prl.envs.make("CartPole-v1")
SMALL = prl.sac.Config(
    num_envs=2,
    num_steps=2,
    buffer_size=64,
    batch_size=8,
    warmup_steps=12,
    hidden_sizes=(8, 8),
    total_steps=100,
)


def population(config: prl.sac.Config, env: prl.envs.Environment, num: int) -> prl.sac.State:
    return torch.vmap(partial(prl.sac.init, config, env))(prl.random.split(prl.random.key(0), num))


@pytest.mark.parametrize("env", [PENDULUM, CARTPOLE], ids=["continuous", "discrete"])
def test_member_i_of_a_population_is_the_solo_run_with_key_i(env: prl.envs.Environment) -> None:
    """Keys, environments and buffers bitwise through the warm-up; parameters by tolerance after."""
    states = population(SMALL, env, 4)
    step = partial(prl.sac.train_step, SMALL, env)
    solo = prl.sac.init(SMALL, env, prl.random.split(prl.random.key(0), 4)[2])
    assert prl.tree.equal(states[2], solo)
    for _ in range(3):
        states, _ = torch.vmap(step)(states)
        solo, _ = step(solo)
        assert prl.tree.equal(states[2].replay, solo.replay)
        assert prl.tree.equal(states[2].env_state, solo.env_state)
        assert torch.equal(states[2].key, solo.key)
    for _ in range(2):
        states, _ = torch.vmap(step)(states)
        solo, _ = step(solo)
    assert int(solo.num_updates) == 3
    for a, b in zip(prl.tree.leaves(states[2].params), prl.tree.leaves(solo.params), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_before_learning_starts_a_train_step_only_collects() -> None:
    learned, collected = (prl.sac.init(SMALL, PENDULUM, prl.random.key(1)) for _ in range(2))
    start = prl.tree.clone(learned.params)
    assert prl.sac.warm_up_train_steps(SMALL) == 2
    for _ in range(2):
        learned, metrics = prl.sac.train_step(SMALL, PENDULUM, learned)
        collected, _ = prl.sac.train_step(SMALL, PENDULUM, collected, learn=False)
        assert bool(metrics["loss", "critic"].isnan())
    assert prl.tree.equal(learned, collected)
    assert prl.tree.equal(learned.params, start)
    learned, metrics = prl.sac.train_step(SMALL, PENDULUM, learned)
    assert not prl.tree.equal(learned.params, start)
    assert int(metrics["opt", "num_updates"]) == 1


def test_warm_up_actions_are_uniform_over_the_whole_box() -> None:
    config = dataclasses.replace(SMALL, num_envs=64, num_steps=8, buffer_size=512, warmup_steps=512)
    state = prl.sac.init(config, PENDULUM, prl.random.key(0))
    state, _ = prl.sac.train_step(config, PENDULUM, state)
    action = state.replay["storage", "action"].flatten()
    counts = torch.histc(action, bins=8, min=-1.0, max=1.0)
    # 512 draws into 8 bins of 64: seven standard deviations are 52
    assert bool(((counts - 64.0).abs() < 52.0).all())
    assert float(action.min()) < -0.9
    assert float(action.max()) > 0.9


def test_a_train_step_repeats_itself_and_leaves_all_but_the_replay_untouched() -> None:
    state = prl.sac.init(SMALL, PENDULUM, prl.random.key(3))
    for _ in range(4):
        state, _ = prl.sac.train_step(SMALL, PENDULUM, state)
    twin, generator = prl.tree.clone(state), torch.get_rng_state()
    kept = {n: v for n, v in prl.tree.to_dict(prl.tree.clone(state)).items() if n != "replay"}
    first, _ = prl.sac.train_step(SMALL, PENDULUM, state)
    second, _ = prl.sac.train_step(SMALL, PENDULUM, twin)
    assert prl.tree.equal(first, second)
    after = {n: v for n, v in prl.tree.to_dict(state).items() if n != "replay"}
    assert prl.tree.equal(after, kept)
    assert torch.equal(torch.get_rng_state(), generator)


OPTIONS: list[dict[str, Any]] = [
    {"n_step": 3, "gamma": 0.9},
    {"prioritized": True},
    {"prioritized": True, "n_step": 2, "num_gradient_steps": 3},
    {"policy_delay": 2, "policy_updates": 2, "alpha_form": "alpha", "alpha_sample": "fresh"},
    {"order": "simultaneous", "critic_loss_kind": "half_l2", "critic_sum": "mean"},
    {"truncation": "drop", "critic_reduce_actor": "mean", "num_critics": 5},
    {"truncation": "terminal", "fixed_alpha": True, "alpha_init": 0.2},
    {"normalize_observation": True, "critic_layer_norm": True, "max_grad_norm": 0.5},
    {"density": "env", "scale_map": "tanh_range", "target_every": 2},
    {"alpha_low": 0.9, "alpha_high": 1.1, "dtype": "float64"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("env", [PENDULUM, CARTPOLE], ids=["continuous", "discrete"])
def test_every_option_gives_a_finite_update(
    options: dict[str, Any], env: prl.envs.Environment
) -> None:
    config = dataclasses.replace(SMALL, **options)
    state = prl.sac.init(config, env, prl.random.key(0))
    start = prl.tree.clone(state.params)
    for _ in range(5):
        state, metrics = prl.sac.train_step(config, env, state)
    assert bool(prl.tree.all_finite(state.params))
    assert not prl.tree.equal(state.params["actor"], start["actor"])
    assert not prl.tree.equal(state.params["critic"], start["critic"])
    assert int(metrics["fault", "nonfinite_updates"]) == 0
    if config.fixed_alpha:
        assert torch.equal(state.params["log_alpha"], start["log_alpha"])
    if config.alpha_low is not None:
        assert 0.9 - 1e-6 <= float(metrics["stat", "alpha"]) <= 1.1 + 1e-6


def transitions(**changes: Any) -> dict[str, Any]:
    keys = prl.random.split(prl.random.key(5), 4)
    flags = torch.tensor([False, True, False, False])
    return {
        "observation": prl.random.normal(keys[0], (4, 3)),
        "action": prl.random.uniform(keys[1], (4, 1), minval=-1.0, maxval=1.0),
        "reward": prl.random.normal(keys[2], (4,)),
        "terminated": flags,
        "truncated": torch.tensor([False, False, True, False]),
        "next_observation": prl.random.normal(keys[3], (4, 3)),
    } | changes


def updated(batch: dict[str, Any], **options: Any) -> prl.sac.State:
    config = dataclasses.replace(SMALL, **options)
    state = prl.sac.init(config, PENDULUM, prl.random.key(0))
    return prl.sac.update(config, state, batch)[0]


def test_a_nan_behind_a_termination_changes_nothing() -> None:
    rows = transitions()
    broken = rows["next_observation"].clone()
    broken[1] = torch.nan
    assert prl.tree.equal(updated(rows).params, updated(rows | {"next_observation": broken}).params)


def test_truncated_rows_bootstrap_and_terminated_rows_do_not() -> None:
    rows = transitions()
    moved = rows["next_observation"].clone()
    moved[2] += 1.0
    changed = rows | {"next_observation": moved}
    assert not prl.tree.equal(updated(rows).params, updated(changed).params)
    for option in ("terminal", "drop"):
        ours = updated(rows, truncation=option).params["critic"]
        theirs = updated(changed, truncation=option).params["critic"]
        assert prl.tree.equal(ours, theirs)


def test_masked_rows_teach_nothing() -> None:
    rows, mask = transitions(), torch.tensor([True, True, True, False])
    garbage = {n: v.clone() for n, v in rows.items()}
    for name in ("observation", "reward", "next_observation"):
        garbage[name][3] = torch.nan
    masked = updated(garbage | {"mask": mask}).params["critic"]
    assert bool(prl.tree.all_finite(masked))
    assert prl.tree.equal(masked, updated(rows | {"mask": mask}).params["critic"])


def test_an_update_leaves_the_replay_alone_and_names_a_missing_field() -> None:
    state = prl.sac.init(SMALL, PENDULUM, prl.random.key(0))
    before = prl.tree.clone(state)
    new, metrics = prl.sac.update(SMALL, state, transitions())
    assert prl.tree.equal(state, before)
    assert prl.tree.equal(new.replay, state.replay)
    assert metrics["stat", "priority"].shape == (4,)
    short = {n: v for n, v in transitions().items() if n != "next_observation"}
    with pytest.raises(ShapeError, match="the batch has no next_observation"):
        prl.sac.update(SMALL, state, short)
    with pytest.raises(ShapeError, match=r"action has shape \[3, 1\], expected \[4\] in front"):
        prl.sac.update(SMALL, state, transitions(action=torch.zeros(3, 1)))


FLOATS = [
    "gamma",
    "reward_scale",
    "tau",
    "target_entropy",
    "actor_learning_rate",
    "critic_learning_rate",
    "alpha_learning_rate",
    "adam_epsilon",
    "max_grad_norm",
    "observation_clip",
    "priority_beta",
    "priority_beta_end",
    "alpha_low",
    "alpha_high",
]


@pytest.mark.parametrize("name", FLOATS)
def test_every_leaf_of_hparams_is_what_the_train_step_reads(name: str) -> None:
    """A changed leaf changes what is learned, so a sweep over it is a sweep."""
    config = dataclasses.replace(
        SMALL,
        normalize_observation=True,
        observation_clip=0.5,
        prioritized=True,
        max_grad_norm=0.5,
        alpha_low=0.1 if name == "alpha_low" else None,
        alpha_high=10.0 if name == "alpha_high" else None,
    )
    state = prl.sac.init(config, PENDULUM, prl.random.key(0))
    assert name in state.hparams.keys()  # noqa: SIM118 – of a TensorDict
    other = prl.tree.clone(state)
    value = {"alpha_low": 5.0, "alpha_high": 0.2, "max_grad_norm": 1e-4, "observation_clip": 0.1}
    other.hparams[name] = torch.tensor(value.get(name, 0.5), dtype=torch.float64)
    for _ in range(6):
        state, _ = prl.sac.train_step(config, PENDULUM, state)
        other, _ = prl.sac.train_step(config, PENDULUM, other)
    compared = ("params", "target_params")
    assert any(not prl.tree.equal(getattr(state, part), getattr(other, part)) for part in compared)


def test_all_floats_of_the_configuration_are_leaves_or_used_by_init() -> None:
    state = prl.sac.init(
        dataclasses.replace(SMALL, max_grad_norm=1.0, alpha_low=0.1, alpha_high=2.0),
        PENDULUM,
        prl.random.key(0),
    )
    assert set(state.hparams.keys()) == set(FLOATS)


def test_act_is_greedy_or_sampled_and_inside_the_bounds() -> None:
    state = prl.sac.init(SMALL, PENDULUM, prl.random.key(0))
    observation = prl.random.normal(prl.random.key(1), (64, 3)) * 5
    greedy, extras = prl.sac.act(SMALL, state, observation, prl.random.key(2), True)
    again, _ = prl.sac.act(SMALL, state, observation, prl.random.key(3), True)
    sampled, unit = prl.sac.act(SMALL, state, observation, prl.random.key(2))
    assert torch.equal(greedy, again)
    assert not torch.equal(greedy, sampled)
    assert float(sampled.abs().max()) <= 2.0
    torch.testing.assert_close(sampled, 2.0 * unit["action"])
    torch.testing.assert_close(greedy, 2.0 * extras["action"])


@pytest.mark.parametrize("name", ["cleanrl", "sb3", "spinup", "torchrl", "brax", "purerl"])
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1", "HalfCheetah-v5"])
def test_every_preset_is_a_valid_configuration(name: str, env_id: str) -> None:
    assert isinstance(prl.sac.preset(name, env_id), prl.sac.Config)


def test_what_cannot_be_used_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="multiple of num_envs = 3, such as 63"):
        dataclasses.replace(SMALL, num_envs=3)
    with pytest.raises(ConfigError, match=r"alpha_low is 2\.0, expected at most alpha_high"):
        prl.sac.Config(alpha_low=2.0, alpha_high=1.0)
    with pytest.raises(ConfigError, match="unknown key batchsize; did you mean batch_size"):
        prl.sac.Config(batchsize=3)  # type: ignore[call-arg]  # the point of the test
    with pytest.raises(ConfigError, match="unknown preset spinnup; did you mean spinup"):
        prl.sac.preset("spinnup", "Pendulum-v1")
    wide = dataclasses.replace(PENDULUM, action_space=spaces.Box(-float("inf"), 1.0, (1,)))
    with pytest.raises(ConfigError, match="expected finite bounds"):
        prl.sac.init(SMALL, wide, prl.random.key(0))
    many = dataclasses.replace(PENDULUM, action_space=spaces.MultiDiscrete([2, 3]))
    with pytest.raises(ConfigError, match="expected Discrete or Box"):
        prl.sac.init(SMALL, many, prl.random.key(0))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_population_learns_in_a_host_environment_from_real_rows_only(mode: AutoresetMode) -> None:
    config = dataclasses.replace(SMALL, num_steps=3, warmup_steps=6)
    makers = [lambda: gym.make("Pendulum-v1", max_episode_steps=4)] * 4
    host = prl.envs.gymnasium(SyncVectorEnv(makers, autoreset_mode=mode))
    host.reset(prl.envs.environment_seeds(prl.random.key(9), 4))
    states = torch.vmap(partial(prl.sac.init, config, host))(prl.random.split(prl.random.key(0), 2))
    start = prl.tree.clone(states.params)
    for _ in range(4):
        states, metrics = prl.sac.host_train_step(config, host, states)
    host.close()
    stored = states.replay["storage"]
    rows = int(states.replay["num_rows"][0])
    real = stored["mask"][:, :rows]
    assert rows == 24
    assert int(states.num_env_steps[0]) == int(real[0].sum())
    assert bool(real.all()) == (mode is not AutoresetMode.NEXT_STEP)
    assert not prl.tree.equal(states.params, start)
    assert bool(metrics["loss", "critic"].isfinite().all())
    # inside an episode the successor of a row is the observation of the next
    before, after = stored["observation"][0, :rows], stored["next_observation"][0, :rows]
    goes_on = ~(stored["terminated"] | stored["truncated"])[0, :rows] & real[0]
    for env in range(2):
        ours, theirs = after[env::2][:-1], before[env::2][1:]
        torch.testing.assert_close(ours[goes_on[env::2][:-1]], theirs[goes_on[env::2][:-1]])


def test_the_driver_trains_and_evaluates_it_like_any_algorithm() -> None:
    result = prl.run.train(
        prl.sac,
        SMALL,
        PENDULUM,
        key=prl.random.key(0),
        num_seeds=2,
        total_steps=24,
        evaluate_episodes=1,
        progress=False,
    )
    assert result.evaluation is not None
    assert result.evaluation.shape == (2,)
    assert int(result.state.num_updates[0]) == 4
    assert bool(result.history["loss", "critic"][-1].isfinite().all())
