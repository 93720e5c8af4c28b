"""Distributions against distrax and jax.random, run live."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from purerl import distributions as d
from purerl import random

F64 = torch.float64


@pytest.fixture(scope="module")
def distrax() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use what jax deprecates
        return importlib.import_module("distrax")


@pytest.fixture
def jnp() -> Iterator[Any]:
    """jax.numpy in double precision, for this test only."""
    import jax

    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        yield jax.numpy


def real(seed: int, *shape: int) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=F64)


def close(actual: Tensor, expected: Any, rtol: float = 1e-12) -> None:
    wanted = torch.from_numpy(np.array(expected))
    torch.testing.assert_close(actual, wanted, rtol=rtol, atol=rtol * float(wanted.abs().max()))


def test_normal_equals_distrax(distrax: ModuleType, jnp: Any) -> None:
    value, loc, other = real(1, 5, 3), real(2, 5, 3), real(3, 5, 3)
    scale, other_scale = real(4, 5, 3).exp(), real(5, 5, 3).exp()
    p = distrax.MultivariateNormalDiag(jnp.asarray(loc.numpy()), jnp.asarray(scale.numpy()))
    q = distrax.MultivariateNormalDiag(jnp.asarray(other.numpy()), jnp.asarray(other_scale.numpy()))
    log_prob = d.independent(d.normal_log_prob(value, loc, scale))
    close(log_prob, p.log_prob(jnp.asarray(value.numpy())))
    close(d.independent(d.normal_entropy(scale)), p.entropy())
    close(d.independent(d.normal_kl(loc, scale, other, other_scale)), p.kl_divergence(q))


def squashed(distrax: ModuleType, jnp: Any, loc: Any, scale: Any, low: Any, high: Any) -> Any:
    half = 0.5 * (high - low)
    affine = distrax.Block(distrax.ScalarAffine(low + half, half), 1)
    chain = distrax.Chain([affine, distrax.Block(distrax.Tanh(), 1)])
    return distrax.Transformed(distrax.MultivariateNormalDiag(loc, scale), chain)


def test_tanh_normal_equals_distrax_in_value_and_gradient(distrax: ModuleType, jnp: Any) -> None:
    import jax

    loc, scale = real(1, 6, 2), (0.5 * real(2, 6, 2)).exp()
    low, high = torch.tensor([-2.0, 0.5], dtype=F64), torch.tensor([2.0, 3.0], dtype=F64)
    u = real(3, 6, 2)
    action = d.tanh_normal_action(u, low, high)
    bounds = (jnp.asarray(low.numpy()), jnp.asarray(high.numpy()))
    score = jnp.asarray(action.numpy())

    def theirs(mu: Any, sigma: Any) -> Any:
        return squashed(distrax, jnp, mu, sigma, *bounds).log_prob(score)

    parameters = (jnp.asarray(loc.numpy()), jnp.asarray(scale.numpy()))
    loc.requires_grad_()
    scale.requires_grad_()
    ours = d.tanh_normal_log_prob(u, loc, scale, low=low, high=high, density="env")
    close(ours.detach(), theirs(*parameters), 1e-11)
    slopes = torch.autograd.grad(ours.sum(), [loc, scale])
    expected = jax.grad(lambda mu, sigma: theirs(mu, sigma).sum(), argnums=(0, 1))(*parameters)
    for mine, wanted in zip(slopes, expected, strict=True):
        close(mine, wanted, 1e-11)


def test_the_log_determinant_of_tanh_equals_distrax_for_every_u(
    distrax: ModuleType, jnp: Any
) -> None:
    u = torch.linspace(-60.0, 60.0, 4001, dtype=F64)[:, None]
    log_det = d.normal_log_prob(u, 0 * u, 1.0)[:, 0] - d.tanh_normal_log_prob(u, 0 * u, 1.0)
    theirs = distrax.Tanh().forward_log_det_jacobian(jnp.asarray(u[:, 0].numpy()))
    close(log_det, theirs, 1e-13)


def test_a_sample_of_distrax_gets_the_log_probability_that_distrax_gave_it(
    distrax: ModuleType, jnp: Any
) -> None:
    import jax

    loc, scale = real(1, 50, 2), (0.3 * real(2, 50, 2)).exp()
    parameters = (jnp.asarray(loc.numpy()), jnp.asarray(scale.numpy()))
    one = jnp.ones(2)
    theirs = squashed(distrax, jnp, *parameters, -one, one)
    action, log_prob = theirs.sample_and_log_prob(seed=jax.random.key(0))
    ours = d.tanh_normal_log_prob_of_action(torch.from_numpy(np.array(action)), loc, scale)
    close(ours, log_prob, 1e-8)


def test_categorical_equals_distrax_in_value_and_gradient(distrax: ModuleType, jnp: Any) -> None:
    import jax

    logits, other = 3 * real(1, 6, 4), 3 * real(2, 6, 4)
    mask = torch.tensor([True, True, False, True]).expand(6, 4)
    action = torch.tensor([0, 1, 3, 0, 1, 3])
    z, w = (
        jnp.where(jnp.asarray(mask.numpy()), jnp.asarray(x.numpy()), -jnp.inf)
        for x in (logits, other)
    )
    p, q = distrax.Categorical(logits=z), distrax.Categorical(logits=w)
    close(d.categorical_log_prob(action, logits, mask), p.log_prob(jnp.asarray(action.numpy())))
    close(d.categorical_entropy(logits, mask), p.entropy())
    close(d.categorical_kl(logits, other, mask), p.kl_divergence(q), 1e-11)
    assert np.array_equal(d.categorical_mode(logits, mask).numpy(), np.array(p.mode()))
    logits.requires_grad_()
    (slope,) = torch.autograd.grad(d.categorical_entropy(logits, mask).sum(), logits)
    theirs = jax.grad(lambda x: distrax.Categorical(logits=x).entropy().sum())(z)
    close(slope, theirs, 1e-11)


def test_given_gumbel_noise_of_jax_the_draw_is_that_of_jax() -> None:
    import jax

    logits = (2 * real(1, 40, 5)).float()
    key = jax.random.key(4)
    noise = torch.from_numpy(np.array(jax.random.gumbel(key, (40, 5))))
    theirs = np.array(jax.random.categorical(key, logits.numpy()))
    assert np.array_equal(d.categorical_from_gumbel(noise, logits).numpy(), theirs)


def test_categorical_draws_the_stream_of_jax_random() -> None:
    import jax

    logits = (2 * real(1, 40, 5)).float()
    for seed in range(20):
        ours = d.categorical_sample(random.key(seed), logits)
        theirs = jax.random.categorical(jax.random.key(seed), logits.numpy())
        assert np.array_equal(ours.numpy(), np.array(theirs))


def test_masked_categorical_draws_the_stream_of_jax_random() -> None:
    import jax

    logits = (2 * real(1, 40, 5)).float()
    mask = logits > -1.0
    mask[:, 2] = True
    masked = torch.where(mask, logits, float("-inf")).numpy()
    for seed in range(5):
        ours = d.categorical_sample(random.key(seed), logits, mask)
        theirs = jax.random.categorical(jax.random.key(seed), masked)
        assert np.array_equal(ours.numpy(), np.array(theirs))


def test_epsilon_greedy_has_the_probabilities_of_distrax(distrax: ModuleType) -> None:
    n, epsilon = 20000, 0.4
    q = torch.tensor([0.3, 2.0, -1.0, 0.7])
    theirs = distrax.EpsilonGreedy(q.numpy(), epsilon).probs
    p = torch.from_numpy(np.array(theirs)).double()
    counts = torch.bincount(d.epsilon_greedy(random.key(3), q.expand(n, 4), epsilon), minlength=4)
    assert bool(((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt()).all())


def test_normal_samples_are_those_of_jax_random() -> None:
    import jax

    loc, scale = real(1, 30).float(), real(2, 30).exp().float()
    ours = d.normal_sample(random.key(5), loc, scale)
    noise = torch.from_numpy(np.array(jax.random.normal(jax.random.key(5), (30,))))
    torch.testing.assert_close(ours, loc + scale * noise, rtol=1e-6, atol=1e-6)
