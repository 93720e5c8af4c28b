"""Laws of the distributions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from property_tests.strategies import rows
from torch import Tensor

from purerl import distributions, random

F64 = torch.float64
locations, scales = st.floats(-3, 3), st.floats(0.1, 3)


def number(value: float, *, leaf: bool = False) -> Tensor:
    return torch.tensor([value], dtype=F64, requires_grad=leaf)


def cdf(z: Tensor) -> Tensor:
    return torch.special.ndtr(z)


@given(locations, scales, st.floats(-0.95, 0.9), st.floats(0.02, 1.0), st.booleans())
def test_law_31_the_mass_of_an_interval(
    loc: float, scale: float, left: float, width: float, scaled: bool
) -> None:
    """Law 31: ∫ exp(log p) over (a1, a2) = Φ((atanh a2 − μ)/σ) − Φ((atanh a1 − μ)/σ), any box."""
    right = min(left + width, 0.999)
    low, high = (-3.0, 5.0) if scaled else (-1.0, 1.0)
    edges = torch.linspace(left, right, 4001, dtype=F64)
    middle = (edges[1:] + edges[:-1]) / 2
    u = torch.atanh(middle).unsqueeze(-1)
    density = distributions.tanh_normal_log_prob(
        u,
        torch.full_like(u, loc),
        torch.full_like(u, scale),
        low=low,
        high=high,
        density="env",
    ).exp()
    action = distributions.tanh_normal_action(torch.atanh(edges).unsqueeze(-1), low, high).squeeze(
        -1
    )
    mass = (density * action.diff()).sum()
    expected = cdf((edges[-1].atanh() - loc) / scale) - cdf((edges[0].atanh() - loc) / scale)
    torch.testing.assert_close(mass, expected, rtol=2e-3, atol=2e-4)


@given(st.floats(-20, 20), locations, scales)
def test_law_32_symmetry(u: float, loc: float, scale: float) -> None:
    """Law 32: log p(a; μ) = log p(−a; −μ)."""
    here = distributions.tanh_normal_log_prob(number(u), number(loc), number(scale))
    there = distributions.tanh_normal_log_prob(number(-u), number(-loc), number(scale))
    torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-12)


@given(st.floats(-20, 20, width=32), st.floats(-20, 20, width=32), st.floats(-20, 2, width=32))
def test_law_32_finite_in_float32_wherever_the_tanh_saturates(
    u: float, loc: float, log_scale: float
) -> None:
    """Law 32: finite value and gradient for abs(u), abs(μ) ≤ 20 and every predicted scale."""
    leaves = [torch.tensor([x], dtype=torch.float32, requires_grad=True) for x in (u, loc)]
    scale = torch.tensor([log_scale], dtype=torch.float32).exp()
    log_prob = distributions.tanh_normal_log_prob(leaves[0], leaves[1], scale)
    assert bool(log_prob.isfinite().all())
    gradients = torch.autograd.grad(log_prob, leaves)
    # (u − μ)/σ² overflows float32 by itself only beyond 3.4e38
    assert all(bool(g.isfinite().all()) for g in gradients)
    exact = distributions.tanh_normal_log_prob(
        *(leaf.detach().double() for leaf in leaves), scale.double()
    )
    spread = abs(u - loc) / math.exp(log_scale)
    tolerance = 1e-5 * (1 + spread * spread + abs(float(exact)))
    assert abs(float(log_prob.detach()) - float(exact)) <= tolerance


@given(st.floats(-3, 3), locations, scales)
def test_law_31_the_log_prob_is_the_change_of_variables(u: float, loc: float, scale: float) -> None:
    """log π = log N(u) − log(1 − tanh²u) per dimension, summed; its derivative by u is exact."""
    leaf = number(u, leaf=True)
    log_prob = distributions.tanh_normal_log_prob(leaf, number(loc), number(scale))
    normal = -0.5 * ((u - loc) / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi)
    expected = normal - math.log1p(-(math.tanh(u) ** 2))
    torch.testing.assert_close(
        log_prob.detach(), torch.tensor(expected, dtype=F64), rtol=1e-9, atol=1e-9
    )
    slope = -(u - loc) / scale**2 + 2 * math.tanh(u)
    torch.testing.assert_close(
        torch.autograd.grad(log_prob, leaf)[0], number(slope), rtol=1e-8, atol=1e-9
    )
    two = torch.tensor([u, -u], dtype=F64)
    both = distributions.tanh_normal_log_prob(
        two, torch.full_like(two, loc), torch.full_like(two, scale)
    )
    other = distributions.tanh_normal_log_prob(number(-u), number(loc), number(scale))
    torch.testing.assert_close(both, log_prob.detach() + other)


@given(st.integers(0, 2**32), locations, scales)
def test_law_32_a_sample_is_scored_as_its_pre_tanh(seed: int, loc: float, scale: float) -> None:
    """Law 32: `sample_and_log_prob` agrees with scoring the returned sample, bitwise."""
    sample = distributions.tanh_normal_sample_and_log_prob(
        random.key(seed), torch.full((3, 2), loc, dtype=F64), torch.full((3, 2), scale, dtype=F64)
    )
    again = distributions.tanh_normal_log_prob(
        sample.pre_tanh, torch.full((3, 2), loc, dtype=F64), torch.full((3, 2), scale, dtype=F64)
    )
    torch.testing.assert_close(sample.log_prob, again, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sample.action, sample.pre_tanh.tanh(), rtol=1e-14, atol=1e-15)


@given(rows("logits", "other"), st.floats(-50, 50), st.data())
def test_law_25_categorical_entropy_and_divergence(
    drawn: tuple[Tensor, ...], shift: float, data: st.DataObject
) -> None:
    """Law 25: 0 ≤ H ≤ log K; logits + c change nothing; KL(p, p) = 0 ≤ KL; legal actions only."""
    logits, other = drawn
    count = len(logits)
    legal = torch.tensor(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    legal[data.draw(st.integers(0, count - 1))] = True
    entropy = distributions.categorical_entropy(logits, legal)
    assert -1e-12 <= float(entropy) <= math.log(int(legal.sum())) + 1e-12
    uniform = distributions.categorical_entropy(torch.zeros_like(logits), legal)
    torch.testing.assert_close(uniform, torch.tensor(math.log(int(legal.sum())), dtype=F64))
    moved = distributions.categorical_entropy(logits + shift, legal)
    torch.testing.assert_close(moved, entropy, rtol=1e-9, atol=1e-9)
    garbage = torch.where(legal, logits, torch.nan)
    torch.testing.assert_close(distributions.categorical_entropy(garbage, legal), entropy)
    same = distributions.categorical_kl(logits, logits, legal)
    torch.testing.assert_close(same, torch.zeros((), dtype=F64), rtol=0, atol=1e-12)
    assert float(distributions.categorical_kl(logits, other, legal)) >= -1e-12
    log_p = distributions.categorical_log_probs(logits, legal)
    p = torch.softmax(torch.where(legal, logits, -math.inf), -1)
    torch.testing.assert_close(log_p[legal].exp(), p[legal])
    assert bool((log_p[~legal] == -math.inf).all())
    terms = torch.where(legal & (p > 0), p * p.log(), 0.0)
    torch.testing.assert_close(entropy, -terms.sum(), rtol=1e-9, atol=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.integers(0, 2**32), st.data())
def test_law_33_a_forbidden_action_is_never_drawn(
    logits: list[float], seed: int, data: st.DataObject
) -> None:
    """Law 33: p_k = 0 is never drawn, and counts over many keys lie in the multinomial band."""
    count = len(logits)
    legal = torch.tensor(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    legal[data.draw(st.integers(0, count - 1))] = True
    spread = torch.tensor(logits, dtype=torch.float32).expand(512, -1)
    drawn = distributions.categorical_sample(random.key(seed), spread, legal.expand(512, -1))
    counts = torch.bincount(drawn, minlength=count)
    assert int(counts[~legal].sum()) == 0
    p = torch.softmax(torch.where(legal, spread[0], -math.inf), -1)
    deviation = (counts / 512 - p).abs()
    # seven standard deviations: one in 10^11 for each number
    assert bool((deviation <= 7 * (p * (1 - p) / 512).sqrt() + 1e-6).all())


@given(rows("loc", "old_loc"), scales, scales)
def test_law_25_normal_divergence_and_entropy(
    drawn: tuple[Tensor, ...], scale: float, old_scale: float
) -> None:
    """KL(old || new) = log σ/σ_old + (σ_old² + (μ_old−μ)²)/2σ² − ½ ≥ 0; H = ½ log 2πeσ², summed."""
    loc, old_loc = drawn
    s, old = torch.full_like(loc, scale), torch.full_like(loc, old_scale)
    kl = distributions.independent(distributions.normal_kl(old_loc, old, loc, s))
    expected = (
        math.log(scale / old_scale) + (old_scale**2 + (old_loc - loc) ** 2) / (2 * scale**2) - 0.5
    ).sum()
    torch.testing.assert_close(kl, expected, rtol=1e-9, atol=1e-9)
    assert float(kl) >= -1e-12
    entropy = distributions.independent(distributions.normal_entropy(s))
    per_dimension = 0.5 * math.log(2 * math.pi * math.e * scale**2)
    torch.testing.assert_close(entropy, torch.tensor(len(loc) * per_dimension, dtype=F64))


@pytest.mark.parametrize("kind", ["exp", "tanh_range", "softplus", "biased_softplus"])
@given(raw=st.floats(-1e4, 1e4, width=32))
def test_a_scale_is_positive_and_finite_for_every_output(
    kind: distributions.ScaleMap, raw: float
) -> None:
    """σ(z) is finite, above 0, and does not fall with z."""
    z = torch.tensor([raw, raw + 1.0], dtype=torch.float32)
    sigma = distributions.scale_map(z, kind)
    assert bool(sigma.isfinite().all())
    assert bool((sigma > 0).all())
    assert float(sigma[1]) >= float(sigma[0])
