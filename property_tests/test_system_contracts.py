"""Contracts of whole train steps (C1–C14 of a functional design), on PPO."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import purerl as prl

# every example is a train step or more
few = settings(max_examples=5, deadline=None)
ENV = prl.envs.make("CartPole-v1")
CONFIG = prl.ppo.Config(
    num_envs=2,
    num_steps=8,
    num_epochs=2,
    num_minibatches=2,
    hidden_sizes=(8,),
    total_steps=1600,
    dtype="float64",
)
seeds = st.integers(0, 2**31)


def population(seed: int, num: int = 3, config: prl.ppo.Config = CONFIG) -> prl.ppo.State:
    init = partial(prl.ppo.init, config, ENV)
    return torch.vmap(init)(prl.random.split(prl.random.key(seed), num))


def step(states: prl.ppo.State) -> tuple[prl.ppo.State, object]:
    return torch.vmap(partial(prl.ppo.train_step, CONFIG, ENV))(states)


def close(first: prl.ppo.State, second: prl.ppo.State) -> None:
    for a, b in zip(prl.tree.leaves(first), prl.tree.leaves(second), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


@few
@given(seeds)
def test_c1_member_i_is_the_solo_run_with_key_i(seed: int) -> None:
    """C1: keys, environments and actions bitwise after the first rollout; float64 ≤ 1e-9 through
    the networks of two train steps."""
    states = population(seed)
    solo = prl.ppo.init(CONFIG, ENV, prl.random.split(prl.random.key(seed), 3)[1])
    assert prl.tree.equal(states[1], solo)
    for number in range(2):
        states, _ = step(states)
        solo, _ = prl.ppo.train_step(CONFIG, ENV, solo)
        if number == 0:
            assert prl.tree.equal(states[1].env_state, solo.env_state)
        assert torch.equal(states[1].key, solo.key)
    close(states[1], solo)


SWEPT = {
    "learning_rate": [1e-4, 1e-2, 0.0],
    "gamma": [0.9, 0.99, 1.0],
    "lmbda": [0.0, 0.5, 1.0],
    "clip_epsilon": [0.05, 0.2, 0.5],
    "entropy_coef": [0.0, 0.01, 0.1],
    "value_coef": [0.0, 0.5, 1.0],
    "max_grad_norm": [0.01, 0.5, 10.0],
}


@pytest.mark.parametrize("name", SWEPT)
def test_c2_a_sweep_over_a_number_is_the_runs_with_it(name: str) -> None:
    """C2: row i of a sweep over hyperparameters equals the single run with those values."""
    values = torch.tensor(SWEPT[name], dtype=torch.float64)
    states = torch.vmap(partial(prl.ppo.init, CONFIG, ENV), in_dims=0)(
        prl.random.key(3).expand(3, -1)
    )
    states.hparams[name] = values
    states, _ = step(states)
    for i, value in enumerate(SWEPT[name]):
        config = dataclasses.replace(CONFIG, **{name: value})
        solo = prl.ppo.init(config, ENV, prl.random.key(3))
        solo, _ = prl.ppo.train_step(config, ENV, solo)
        close(states[i], solo)


def test_c2_a_constant_schedule_is_no_schedule() -> None:
    """C2: scheduled and constant paths are bit-equal when the schedule is constant."""
    flat = dataclasses.replace(CONFIG, learning_rate_end=CONFIG.learning_rate)
    none = dataclasses.replace(CONFIG, learning_rate_end=None)
    runs = []
    for config in (flat, none):
        state = prl.ppo.init(config, ENV, prl.random.key(0))
        for _ in range(2):
            state, _ = prl.ppo.train_step(config, ENV, state)
        runs.append(state.params)
    assert prl.tree.equal(*runs)


@pytest.mark.parametrize("name", ["learning_rate", "gamma", "entropy_coef"])
def test_c5_the_gradient_through_a_train_step_is_its_derivative(name: str) -> None:
    """C5: d f(θ_{t+1}) / d hyperparameter against a central difference."""
    state = prl.ppo.init(CONFIG, ENV, prl.random.key(1))
    start = state.hparams[name].clone()

    def after(value: Tensor) -> Tensor:
        changed = prl.tree.clone(state)
        changed.hparams[name] = value
        new, _ = prl.ppo.train_step(CONFIG, ENV, changed)
        return sum((leaf.square().sum() for leaf in prl.tree.leaves(new.params)), torch.zeros(()))

    derivative = torch.func.grad(after)(start)
    h = 1e-5 * float(start) if name == "learning_rate" else 1e-6
    difference = (after(start + h) - after(start - h)) / (2 * h)
    torch.testing.assert_close(derivative, difference, rtol=2e-4, atol=1e-8)


@few
@given(seeds)
def test_c7_and_39_a_train_step_touches_nothing_and_repeats_itself(seed: int) -> None:
    """C7, law 39: inputs bit-equal before and after; calling twice gives the same answer."""
    state = prl.ppo.init(CONFIG, ENV, prl.random.key(seed))
    before, generator = prl.tree.clone(state), torch.get_rng_state()
    first, second = (prl.ppo.train_step(CONFIG, ENV, state)[0] for _ in range(2))
    assert prl.tree.equal(state, before)
    assert prl.tree.equal(first, second)
    assert torch.equal(torch.get_rng_state(), generator)


@few
@given(seeds)
def test_c8_a_fork_is_a_copy_and_the_original_lives_on(seed: int) -> None:
    """C8: two forks with the same configuration are identical; the original is unaffected."""
    state = prl.ppo.init(CONFIG, ENV, prl.random.key(seed))
    fork = prl.tree.clone(state)
    for leaf in prl.tree.leaves(fork.params):
        leaf.zero_()
    other = prl.tree.clone(state)
    grown, _ = prl.ppo.train_step(CONFIG, ENV, state)
    again, _ = prl.ppo.train_step(CONFIG, ENV, other)
    assert prl.tree.equal(grown, again)


def test_c9_exploiting_in_a_population_is_a_gather() -> None:
    """C9: gather(i) equals member i, now and a train step later."""
    states = population(5)
    states, _ = step(states)
    winners = prl.tree.index(states, torch.tensor([2, 0, 2]))
    assert prl.tree.equal(winners[0], states[2])
    assert prl.tree.equal(winners[2], states[2])
    forward, _ = step(states)
    gathered, _ = step(winners)
    assert prl.tree.equal(gathered[0], forward[2])
    assert prl.tree.equal(gathered[1], forward[0])


def test_c10_a_member_that_breaks_leaves_the_others_bitwise_alone() -> None:
    """C10: NaN injected in row 1: other rows bitwise unchanged, the broken row counted."""
    states = population(7)
    whole, _ = step(states)
    broken = prl.tree.clone(states)
    broken.env_state["physics"][1] = torch.nan
    broken.observation[1] = torch.nan
    after, metrics = step(broken)
    for i in (0, 2):
        assert prl.tree.equal(after[i], whole[i])
    assert prl.tree.equal(after[1].params, states[1].params)
    assert metrics["fault", "nonfinite_updates"].tolist()[1] > 0  # type: ignore[index]  # a TensorDict


def test_c12_a_batch_gradient_is_the_mean_of_the_gradients_of_its_rows() -> None:
    """C12: Σ per-sample gradients / B = batch gradient, through network, head and loss."""
    network = prl.networks.mlp((3, 8, 2), dtype=torch.float64)
    params = prl.tree.to_dict(network.init(prl.random.key(0)))
    keys = prl.random.split(prl.random.key(1), 3)
    observation = prl.random.normal(keys[0], (5, 3), dtype=torch.float64)
    action = prl.random.randint(keys[1], (5,), 0, 2)
    advantage = prl.random.normal(keys[2], (5,), dtype=torch.float64)

    def loss(params: object, o: Tensor, a: Tensor, adv: Tensor) -> Tensor:
        log_prob = prl.distributions.categorical_log_prob(a, network.apply(params, o))
        return prl.losses.ppo_clip(log_prob, log_prob.detach() - 0.1, adv)[0]

    whole = torch.func.grad(loss)(params, observation, action, advantage)

    def one(o: Tensor, a: Tensor, adv: Tensor) -> object:
        return torch.func.grad(loss)(params, o[None], a[None], adv[None])

    rows = torch.vmap(one)(observation, action, advantage)
    mean = prl.tree.map(lambda g: g.mean(0), rows)
    for a, b in zip(prl.tree.leaves(whole), prl.tree.leaves(mean), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@few
@given(seeds, st.integers(1, 4))
def test_c13_an_ensemble_is_its_members(seed: int, n: int) -> None:
    """C13: member j equals init(key_j); one member is the plain network; outputs are stacked."""
    network = prl.networks.q_network(3, 2, hidden_sizes=(8,), layer_norm=True)
    many, key = prl.networks.ensemble(network, n), prl.random.key(seed)
    params = many.init(key)
    observation = prl.random.normal(prl.random.fold_in(key, 1), (4, 3))
    action = prl.random.normal(prl.random.fold_in(key, 2), (4, 2))
    together = many.apply(params, observation, action)
    for j, member_key in enumerate(prl.random.split(key, n)):
        alone = network.init(member_key)
        assert prl.tree.equal(params[j], alone)
        torch.testing.assert_close(together[j], network.apply(alone, observation, action))


def test_c14_metrics_are_a_tree_of_constant_size() -> None:
    """C14: the metrics of K steps stack to [K]; nothing in the state grows."""
    state = prl.ppo.init(CONFIG, ENV, prl.random.key(0))
    sizes, rows = [], []
    for _ in range(3):
        state, metrics = prl.ppo.train_step(CONFIG, ENV, state)
        sizes.append([leaf.shape for leaf in prl.tree.leaves(state)])
        rows.append(metrics)
    assert sizes[0] == sizes[1] == sizes[2]
    stacked = prl.tree.stack(rows)
    assert stacked["loss", "policy"].shape == (3,)
    assert all(leaf.shape == (3,) for leaf in prl.tree.leaves(stacked))


def test_c6_components_draw_from_keys_of_their_own() -> None:
    """C6: what one component draws does not depend on what another does before it."""
    key = prl.random.key(0)
    first, second = prl.random.split(key)
    a = (prl.random.normal(first, (3,)), prl.random.permutation(second, 5))
    b = (prl.random.permutation(second, 5), prl.random.normal(first, (3,)))
    assert torch.equal(a[0], b[1])
    assert torch.equal(a[1], b[0])
    states = population(11)
    late = dataclasses.replace(CONFIG, num_epochs=1)
    once, _ = prl.ppo.train_step(late, ENV, states[0])
    twice, _ = prl.ppo.train_step(CONFIG, ENV, states[0])
    assert prl.tree.equal(once.env_state, twice.env_state)
    assert torch.equal(once.key, twice.key)
