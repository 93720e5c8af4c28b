"""The tanh-normal: reference values, laws 31 and 32, bounds, gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from purerl import distributions as d
from purerl import random
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64
KEY = random.key(13)


def real(seed: int, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=dtype)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-12) -> None:
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def column(*values: float, dtype: torch.dtype = F64) -> Tensor:
    return torch.tensor(values, dtype=dtype)[:, None]


@pytest.mark.parametrize(("dtype", "rtol"), [(F64, 1e-8), (torch.float32, 2e-7)])
def test_reference_values(dtype: torch.dtype, rtol: float) -> None:
    u = column(0.0, 1.0, 3.0, 8.0, 15.0, 40.0, dtype=dtype)
    expected = torch.tensor(
        [-0.91893853, -0.55137687, -0.80028152, -18.30523267, -84.80523289, -722.30523289],
        dtype=dtype,
    )
    for sign in (1.0, -1.0):
        out = d.tanh_normal_log_prob(sign * u, torch.zeros_like(u), 1.0)
        torch.testing.assert_close(out, expected, rtol=rtol, atol=2e-7)


def test_value_and_gradient_are_right_in_float32_where_tanh_saturates() -> None:
    u = column(7.0, 10.0, 20.0, -20.0, dtype=torch.float32).requires_grad_()
    log_prob = d.tanh_normal_log_prob(u, torch.zeros_like(u), 1.0)
    expected = torch.tensor([-12.8052312313, -32.3052328902, -162.305232894, -162.305232894])
    torch.testing.assert_close(log_prob, expected, rtol=2e-7, atol=0.0)
    (slope,) = torch.autograd.grad(log_prob.sum(), u)
    wanted = column(-5.00000332611, -8.00000000824, -18.0, 18.0, dtype=torch.float32)
    torch.testing.assert_close(slope, wanted, rtol=2e-7, atol=0.0)


def test_a_narrow_saturated_sample_is_scored_before_squashing() -> None:
    u = column(12.0, dtype=torch.float32)
    log_prob = d.tanh_normal_log_prob(u, torch.full_like(u, 12.0), 0.1)
    torch.testing.assert_close(log_prob, torch.tensor([23.9973521987]), rtol=1e-6, atol=0.0)
    assert d.tanh_normal_action(u).item() == 1.0


def test_env_density_differs_by_the_log_of_the_half_range() -> None:
    u, zero = column(0.5, 0.3), column(0.0, 0.0)
    unit = d.tanh_normal_log_prob(u, zero, 1.0, low=-2.0, high=2.0)
    env = d.tanh_normal_log_prob(u, zero, 1.0, low=-2.0, high=2.0, density="env")
    close(unit, torch.tensor([-0.803709519288, -0.875256993353], dtype=F64), 1e-11)
    close(env, torch.tensor([-1.49685669985, -1.56840417391], dtype=F64), 1e-11)
    close(d.tanh_normal_action(u, -2.0, 2.0), column(0.92423431452, 0.582625224903), 1e-11)
    low, high = torch.tensor([-1.0, 0.0], dtype=F64), torch.tensor([3.0, 6.0], dtype=F64)
    pair = real(1, 6, 2)
    shift = d.tanh_normal_log_prob(pair, -pair, 0.7) - d.tanh_normal_log_prob(
        pair, -pair, 0.7, low=low, high=high, density="env"
    )
    close(shift, torch.full((6,), math.log(2.0) + math.log(3.0), dtype=F64), 1e-9)


@pytest.mark.parametrize("density", ["unit", "env"])
@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (0.7, 0.4), (-1.5, 0.9), (0.3, 2.5)])
def test_law_31_mass_of_an_interval(mu: float, sigma: float, density: d.Density) -> None:
    """∫ exp(log p) over (a1, a2) = Φ((atanh a2 − μ)/σ) − Φ((atanh a1 − μ)/σ)."""
    low, high = (-1.0, 1.0) if density == "unit" else (-0.5, 3.0)
    half, center = 0.5 * (high - low), 0.5 * (high + low)
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(60))
    for a1, a2 in [(-0.9, 0.9), (-0.3, 0.2), (0.5, 0.95)]:
        unit = 0.5 * (a2 - a1) * nodes + 0.5 * (a1 + a2)
        action = (center + half * unit)[:, None]
        log_p = d.tanh_normal_log_prob_of_action(
            action, torch.full_like(action, mu), sigma, low=low, high=high, density=density
        )
        mass = 0.5 * (a2 - a1) * (half if density == "env" else 1.0) * (weights * log_p.exp()).sum()
        edges = (torch.tensor([a1, a2], dtype=F64).atanh() - mu) / sigma
        below, above = torch.special.ndtr(edges)
        assert abs(float(mass - (above - below))) < 1e-9


@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (0.7, 0.4), (-1.5, 2.0)])
def test_law_31_the_whole_mass_is_one(mu: float, sigma: float) -> None:
    # a = tanh(t), da = dt / cosh² t: the trapezoid rule on a smooth decaying integrand is exact
    t = torch.linspace(-18.0, 18.0, 4001, dtype=F64)
    log_p = d.tanh_normal_log_prob(t[:, None], torch.full((4001, 1), mu, dtype=F64), sigma)
    mass = torch.trapezoid(log_p.exp() / t.cosh().square(), t)
    assert abs(float(mass) - 1.0) < 1e-12


def test_law_32_symmetry() -> None:
    u, mu, sigma = 3 * real(1, 200, 2), 2 * real(2, 200, 2), real(3, 200, 2).exp()
    close(d.tanh_normal_log_prob(u, mu, sigma), d.tanh_normal_log_prob(-u, -mu, sigma))
    action = u.tanh()
    close(
        d.tanh_normal_log_prob_of_action(action, mu, sigma),
        d.tanh_normal_log_prob_of_action(-action, -mu, sigma),
    )


def every_kind_of_action(dtype: torch.dtype) -> Tensor:
    """Zero, subnormals, everything between, and the 2000 floats nearest to one; both signs."""
    info = torch.finfo(dtype)
    below_one = 1.0 - 0.5 * info.eps * torch.arange(1, 2001, dtype=dtype)
    assert bool((below_one[:-1] > below_one[1:]).all())
    tiny = torch.tensor([0.0, info.smallest_normal / 2, info.tiny, info.eps], dtype=dtype)
    positive = torch.cat([tiny, torch.logspace(-30.0, -0.001, 200, dtype=dtype), below_one])
    return torch.cat([positive, -positive])[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("log_scale", [-20.0, -5.0, 0.0, 2.0])
def test_law_32_finite_for_every_representable_action(dtype: torch.dtype, log_scale: float) -> None:
    actions = every_kind_of_action(dtype)
    for mu in (-20.0, -1.0, 0.0, 20.0):
        action = actions.clone().requires_grad_()
        loc = torch.full_like(actions, mu).requires_grad_()
        raw = torch.full_like(actions, log_scale).requires_grad_()
        log_prob = d.tanh_normal_log_prob_of_action(action, loc, d.scale_map(raw))
        gradients = torch.autograd.grad(log_prob.sum(), [action, loc, raw])
        assert all(bool(x.isfinite().all()) for x in (log_prob, *gradients))


def test_the_score_of_a_bare_action_is_right_up_to_the_bound() -> None:
    """Against float64 on the same float32 actions, value and gradient."""
    narrow = every_kind_of_action(torch.float32)
    results = []
    for dtype in (torch.float32, F64):
        action = narrow.to(dtype).requires_grad_()
        mu = torch.full_like(action, 0.5)
        log_prob = d.tanh_normal_log_prob_of_action(action, mu, 1.0)
        (slope,) = torch.autograd.grad(log_prob.sum(), action)
        results.append((log_prob.double(), slope.double()))
    (value, slope), (exact_value, exact_slope) = results
    torch.testing.assert_close(value, exact_value, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slope, exact_slope, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
def test_an_action_on_or_beyond_the_bound_is_scored_at_the_clip_point(dtype: torch.dtype) -> None:
    one = torch.ones(1, dtype=dtype)
    inside = torch.nextafter(one, torch.zeros(1, dtype=dtype))
    for sign in (1.0, -1.0):
        for outside in (one, 1.5 * one):
            action = (sign * outside).requires_grad_()
            log_prob = d.tanh_normal_log_prob_of_action(action, 0 * one, 1.0)
            expected = d.tanh_normal_log_prob_of_action(sign * inside, 0 * one, 1.0)
            assert torch.equal(log_prob, expected)
            (slope,) = torch.autograd.grad(log_prob, action)
            assert slope.item() == 0.0


def test_law_32_a_sample_scores_as_its_pre_tanh_and_as_its_action() -> None:
    loc, scale = real(1, 300, 3), (0.3 * real(2, 300, 3)).exp()
    low, high = torch.tensor([-2.0, 0.0, 5.0], dtype=F64), torch.tensor([2.0, 1.0, 6.0], dtype=F64)
    bounds = {"low": low, "high": high}
    for density in ("unit", "env"):
        sample = d.tanh_normal_sample_and_log_prob(KEY, loc, scale, **bounds, density=density)
        score = d.tanh_normal_log_prob(sample.pre_tanh, loc, scale, **bounds, density=density)
        assert torch.equal(sample.log_prob, score)
        assert torch.equal(sample.action, d.tanh_normal_action(sample.pre_tanh, low, high))
        safe = (sample.pre_tanh.abs() < 3.0).all(-1)
        by_action = d.tanh_normal_log_prob_of_action(
            sample.action, loc, scale, **bounds, density=density
        )
        assert int(safe.sum()) > 200
        torch.testing.assert_close(by_action[safe], sample.log_prob[safe], rtol=1e-9, atol=1e-9)


def test_float32_samples_score_bitwise_as_their_pre_tanh_at_every_scale() -> None:
    loc = 20 * real(1, 500, 2, dtype=torch.float32).tanh()
    scale = d.scale_map(20 * real(2, 500, 2, dtype=torch.float32))
    sample = d.tanh_normal_sample_and_log_prob(KEY, loc, scale)
    assert torch.equal(sample.log_prob, d.tanh_normal_log_prob(sample.pre_tanh, loc, scale))
    assert bool(sample.log_prob.isfinite().all())


@pytest.mark.parametrize("log_scale", [-20.0, -8.0, 0.0, 2.0])
def test_the_reparametrised_gradient_is_right_in_float32_at_every_scale(log_scale: float) -> None:
    """d log π/d log σ = −1 + 2 tanh(u) σ ε and d log π/dμ = 2 tanh(u), for each dimension."""
    loc = torch.linspace(-3.0, 3.0, 400)[:, None].requires_grad_()
    raw = torch.full((400, 1), log_scale, requires_grad=True)
    noise = real(1, 400, 1, dtype=torch.float32)
    sample = d.tanh_normal_from_noise(noise, loc, d.scale_map(raw))
    to_loc, to_raw = torch.autograd.grad(sample.log_prob.sum(), [loc, raw])
    deviation = math.exp(log_scale) * noise
    twice = 2.0 * (loc.detach() + deviation).tanh()
    torch.testing.assert_close(to_loc, twice, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(to_raw, twice * deviation - 1.0, rtol=1e-5, atol=1e-5)


def test_gradients_pass_finite_differences() -> None:
    u, mu = real(1, 4, 2).requires_grad_(), real(2, 4, 2).requires_grad_()
    sigma = real(3, 4, 2).exp().requires_grad_()
    noise = real(4, 4, 2)
    check = torch.autograd.gradcheck
    assert check(d.tanh_normal_log_prob, (u, mu, sigma))
    action = u.detach().tanh().requires_grad_()
    assert check(d.tanh_normal_log_prob_of_action, (action, mu, sigma))
    assert check(lambda m, s: tuple(d.tanh_normal_from_noise(noise, m, s)), (mu, sigma))
    assert torch.autograd.gradgradcheck(d.tanh_normal_log_prob, (u, mu, sigma))


def test_no_action_leaves_its_bounds() -> None:
    u = torch.cat([torch.linspace(-30.0, 30.0, 2001), torch.tensor([1e30, -1e30])])[:, None]
    for low, high in [(-0.1, 0.3), (0.1, 0.7), (-1.0, 1.0), (-3e3, 1e-3), (1e6, 1e6 + 1.0)]:
        for dtype in (torch.float32, F64, torch.bfloat16):
            action = d.tanh_normal_action(u.to(dtype), low, high)
            bottom, top = torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype)
            assert bool(((action >= bottom) & (action <= top)).all())
            ends = torch.stack([top, bottom])
            rounding = torch.finfo(dtype).eps * max(abs(low), abs(high))
            torch.testing.assert_close(action[-2:, 0], ends, rtol=0.0, atol=rounding)


def test_small_actions_keep_their_digits() -> None:
    u = column(1e-12, -3e-9, dtype=torch.float32)
    torch.testing.assert_close(d.tanh_normal_action(u, -2.0, 2.0), 2 * u, rtol=1e-6, atol=0.0)


def test_the_mode_is_the_squashed_location() -> None:
    loc = column(-2.0, 0.0, 1.0)
    expected = 1.0 + 3.0 * loc.tanh()
    close(d.tanh_normal_mode(loc, low=-2.0, high=4.0), expected)


def test_the_entropy_estimate_converges_to_the_entropy() -> None:
    mu, sigma = 0.4, 0.8
    t = torch.linspace(-12.0, 12.0, 4001, dtype=F64)
    log_p = d.tanh_normal_log_prob(t[:, None], torch.full((4001, 1), mu, dtype=F64), sigma)
    density = torch.distributions.Normal(mu, sigma).log_prob(t).exp()
    entropy = -torch.trapezoid(density * log_p, t)
    variance = torch.trapezoid(density * (log_p + entropy).square(), t)
    n = 20000
    loc = torch.full((2, 1), mu, dtype=F64)
    estimate = d.tanh_normal_entropy(KEY, loc, sigma, num_samples=n)
    assert estimate.shape == (2,)
    assert bool(((estimate - entropy).abs() < 5 * (variance / n).sqrt()).all())
    env = d.tanh_normal_entropy(KEY, loc, sigma, num_samples=n, low=-3.0, high=3.0, density="env")
    close(env - estimate, torch.full((2,), math.log(3.0), dtype=F64), 1e-9)


def test_vmap_over_keys_is_the_stack_of_single_draws() -> None:
    keys = random.split(KEY, 4)
    loc, scale = real(1, 4, 3, dtype=torch.float32), real(2, 4, 3, dtype=torch.float32).exp()
    batched = torch.vmap(d.tanh_normal_sample_and_log_prob)(keys, loc, scale)
    for row in range(4):
        single = d.tanh_normal_sample_and_log_prob(keys[row], loc[row], scale[row])
        for a, b in zip(batched, single, strict=True):
            torch.testing.assert_close(a[row], b, rtol=1e-6, atol=1e-6)


def test_contracts_name_the_argument() -> None:
    u = torch.zeros(3, 2)
    unknown: Any = "enw"
    with pytest.raises(ConfigError, match="density is 'enw'; did you mean env"):
        d.tanh_normal_log_prob(u, u, 1.0, density=unknown)
    with pytest.raises(ConfigError, match=r"low is 1.0, expected below high, which is -1.0"):
        d.tanh_normal_action(u, 1.0, -1.0)
    with pytest.raises(ShapeError, match=r"low has shape \[3\], expected \[\] or \[2\]"):
        d.tanh_normal_action(u, torch.zeros(3), 1.0)
    with pytest.raises(ShapeError, match=r"value has shape \[3\], expected \[3, 2\] as loc"):
        d.tanh_normal_log_prob(u[:, 0], u, 1.0)
    with pytest.raises(ConfigError, match="num_samples is 0"):
        d.tanh_normal_entropy(KEY, u, 1.0, num_samples=0)
