"""Normal, scale maps and exploration; the other distributions have files of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import distributions as d
from purerl import random
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64
KEY = random.key(7)


def real(seed: int, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=dtype)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-12) -> None:
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


# The normal.


def test_normal_equals_torch_distributions_in_value_and_gradient() -> None:
    loc, other = real(1, 5, 3).requires_grad_(), real(2, 5, 3)
    scale, other_scale = real(3, 5, 3).exp().requires_grad_(), real(4, 5, 3).exp()
    value = real(5, 5, 3)
    theirs, theirs_q = torch.distributions.Normal(loc, scale), torch.distributions.Normal
    pairs = [
        (d.normal_log_prob(value, loc, scale), theirs.log_prob(value)),
        (d.normal_entropy(scale), theirs.entropy()),
        (
            d.normal_kl(loc, scale, other, other_scale),
            torch.distributions.kl_divergence(theirs, theirs_q(other, other_scale)),
        ),
    ]
    for ours, expected in pairs:
        close(ours, expected)
        inputs = [loc, scale]
        gradients = [
            torch.autograd.grad(x.sum(), inputs, retain_graph=True, allow_unused=True)
            for x in (ours, expected)
        ]
        for mine, wanted in zip(*gradients, strict=True):
            if wanted is not None and bool(wanted.any()):
                close(mine, wanted, 1e-10)


def test_normal_reference_values() -> None:
    one = torch.ones(1, dtype=F64)
    close(d.normal_entropy(one), torch.tensor([1.41893853320467], dtype=F64))
    kl = d.normal_kl(0 * one, one, one, 2 * one)
    close(kl, torch.tensor([math.log(2.0) + 2.0 / 8.0 - 0.5], dtype=F64))
    old, new = torch.zeros(1, 3, dtype=F64), torch.full((1, 3), 0.5, dtype=F64)
    scale = torch.full((1, 3), 0.8, dtype=F64)
    total = d.independent(d.normal_kl(old, torch.ones_like(scale), new, scale))
    close(total, torch.tensor([0.760256846057], dtype=F64), 1e-11)
    close(d.independent(d.normal_entropy(scale)), torch.tensor([3.58738494567], dtype=F64), 1e-11)


def test_normal_kl_is_zero_for_equal_and_never_negative_and_accurate_for_near_parameters() -> None:
    loc = real(1, 4000, dtype=torch.float32)
    scale = (5 * real(2, 4000, dtype=torch.float32)).exp()
    assert torch.equal(d.normal_kl(loc, scale, loc, scale), torch.zeros_like(loc))
    near = scale * (1 + 1e-3 * real(3, 4000, dtype=torch.float32))
    kl = d.normal_kl(loc, near, loc, scale)
    assert bool((kl >= 0).all())
    exact = d.normal_kl(loc.double(), near.double(), loc.double(), scale.double())
    # the quotient σ_p/σ_q is rounded once: an error of 2|l|u in ½(e^{2l} − 1) − l, l = log quotient
    bound = 6e-8 * (2 * (near.double() / scale.double()).log().abs() + 4 * exact) + 1e-14
    assert bool(((kl.double() - exact).abs() <= 2 * bound).all())


def test_normal_stays_finite_at_the_limits_of_the_scale_in_float32() -> None:
    raw = torch.tensor([-1e4, -20.0, 2.0, 1e4], requires_grad=True)
    scale = d.scale_map(raw)
    loc = torch.tensor([20.0, -20.0, 20.0, -20.0], requires_grad=True)
    value = -loc.detach()
    for out in (d.normal_log_prob(value, loc, scale), d.normal_kl(loc, scale, value, scale)):
        gradients = torch.autograd.grad(out.sum(), [loc, raw], retain_graph=True)
        assert all(bool(x.isfinite().all()) for x in (out, *gradients))


def test_normal_sample_is_reparametrised() -> None:
    loc, scale = torch.zeros(4, requires_grad=True), torch.ones(4, requires_grad=True)
    noise = random.normal(KEY, (4,), dtype=torch.float32)
    sample = d.normal_sample(KEY, loc, scale)
    assert torch.equal(sample, d.normal_from_noise(noise, loc, scale))
    to_loc, to_scale = torch.autograd.grad(sample.sum(), [loc, scale])
    assert torch.equal(to_loc, torch.ones(4))
    assert torch.equal(to_scale, noise)


def test_a_scale_may_lack_leading_axes_or_be_a_number_but_is_never_stretched() -> None:
    value, loc, scale = real(1, 6, 3), real(2, 6, 3), real(3, 3).exp()
    expected = d.normal_log_prob(value, loc, scale.expand(6, 3))
    assert torch.equal(d.normal_log_prob(value, loc, scale), expected)
    assert torch.equal(
        d.normal_log_prob(value, loc, 0.5),
        d.normal_log_prob(value, loc, 0.5 * torch.ones_like(loc)),
    )
    with pytest.raises(ShapeError, match=r"scale has shape \[6, 1\], expected \[6, 3\]"):
        d.normal_log_prob(value, loc, scale.sum().expand(6, 1))
    with pytest.raises(ShapeError, match=r"value has shape \[6\], expected \[6, 3\] as loc"):
        d.normal_log_prob(value[:, 0], loc, scale)
    with pytest.raises(ShapeError, match=r"scale has dtype torch.float32, expected torch.float64"):
        d.normal_log_prob(value, loc, scale.float())
    with pytest.raises(ShapeError, match="scale_q has shape"):
        d.normal_kl(loc, scale, value, scale[:2])


def test_a_float64_hyperparameter_does_not_widen_float32_data_under_vmap() -> None:
    scale = torch.tensor([0.5, 2.0], dtype=F64)
    loc = torch.zeros(3)
    calls = [
        lambda s: d.normal_log_prob(loc, loc, s),
        lambda s: d.normal_sample(KEY, loc, s),
        lambda s: d.tanh_normal_log_prob(loc, loc, s, low=-s, high=s, density="env"),
        lambda s: d.tanh_normal_action(loc, -s, s),
        lambda s: d.scale_map(loc, bounds=(-s, s)),
        lambda s: d.gaussian_exploration(KEY, loc, s, -s, s),
    ]
    for call in calls:
        out = torch.vmap(call)(scale)
        assert out.dtype is torch.float32
        assert torch.equal(out[1], call(2.0))


def test_independent_sums_the_event_axes() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.equal(d.independent(x), x.sum(-1))
    assert torch.equal(d.independent(x, 2), x.sum((1, 2)))
    assert torch.equal(d.independent(x, 0), x)
    with pytest.raises(ShapeError, match="expected at least 4"):
        d.independent(x, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precisions_are_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    loc, scale = real(1, 5, 4).to(dtype), real(2, 5, 4).exp().to(dtype)
    value = real(3, 5, 4).to(dtype)
    mask = value > -1.0
    mask[:, 0] = True
    functions = {
        "log_prob": d.normal_log_prob,
        "kl": lambda x, y, s: d.normal_kl(x, s, y, s),
        "entropy": lambda _x, _y, s: d.normal_entropy(s),
        "tanh": d.tanh_normal_log_prob,
        "action": lambda x, _y, _s: d.tanh_normal_action(x, -1.0, 1.0),
        "categorical": lambda x, y, _s: d.categorical_kl(x, y, mask),
        "masked entropy": lambda x, _y, _s: d.categorical_entropy(x, mask),
        "scale": lambda x, _y, _s: d.scale_map(x, "biased_softplus"),
    }
    for name, function in functions.items():
        out = function(value, loc, scale)
        wide = function(value.float(), loc.float(), scale.float())
        assert out.dtype is dtype, name
        assert torch.equal(out, wide.to(dtype)), name
    sample = d.tanh_normal_sample_and_log_prob(KEY, loc, scale)
    assert {x.dtype for x in sample} == {dtype}
    assert torch.equal(sample.log_prob, d.tanh_normal_log_prob(sample.pre_tanh, loc, scale))


# Scale maps.


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("exp", {}, 1.0),
        ("tanh_range", {}, math.exp(-1.5)),
        ("softplus", {}, math.log(2.0) + 0.001),
        ("biased_softplus", {}, 1.0),
        ("biased_softplus", {"floor": 0.01}, 1.0),
        ("biased_softplus", {"floor": 1e-8, "center": 0.3}, 0.3),
    ],
)
def test_scale_of_raw_zero(kind: d.ScaleMap, options: dict[str, Any], expected: float) -> None:
    out = d.scale_map(torch.zeros(2, dtype=F64), kind, **options)
    close(out, torch.full((2,), expected, dtype=F64))


def test_biased_softplus_has_the_bias_of_its_reference() -> None:
    z = real(1, 9)
    softplus = torch.nn.functional.softplus
    close(d.scale_map(z, "biased_softplus"), softplus(z + 0.37816456) + 0.1, 1e-7)
    close(d.scale_map(z, "biased_softplus", floor=0.01), softplus(z + 0.52545872) + 0.01, 1e-7)


def test_scale_maps_respect_their_bounds() -> None:
    z = torch.linspace(-60.0, 60.0, 101, dtype=F64, requires_grad=True)
    scale = d.scale_map(z, bounds=(-3.0, 1.0))
    close(scale, z.clamp(-3.0, 1.0).exp())
    (gradient,) = torch.autograd.grad(scale.sum(), z)
    outside = (z < -3.0) | (z > 1.0)
    assert torch.equal(gradient[outside], torch.zeros(int(outside.sum()), dtype=F64))
    z = z.detach()
    squashed = d.scale_map(z, "tanh_range", bounds=(-3.0, 1.0)).log()
    assert float(squashed.min()) >= -3.0 - 1e-15
    assert float(squashed.max()) <= 1.0 + 1e-15
    assert float(d.scale_map(z, "softplus").min()) >= 0.001
    assert float(d.scale_map(z, "biased_softplus", floor=0.2).min()) >= 0.2


def test_a_scale_map_refuses_names_and_options_that_it_does_not_use() -> None:
    z = torch.zeros(1)
    unknown: Any = "softpluss"
    with pytest.raises(ConfigError, match="kind is 'softpluss'; did you mean softplus"):
        d.scale_map(z, unknown)
    with pytest.raises(ConfigError, match=r"bounds is .* but kind 'softplus' takes floor"):
        d.scale_map(z, "softplus", bounds=(-1.0, 1.0))
    with pytest.raises(ConfigError, match=r"center is 0.1, expected above the floor 0.1"):
        d.scale_map(z, "biased_softplus", center=0.1)


# Exploration.


def test_epsilon_zero_is_greedy_and_epsilon_one_is_uniform_over_legal_actions() -> None:
    rows = 6000
    q = torch.tensor([1.0, 5.0, float("nan"), 2.0]).expand(rows, 4)
    mask = torch.tensor([True, True, False, True]).expand(rows, 4)
    greedy = torch.ones(rows, dtype=torch.int64)
    assert torch.equal(d.epsilon_greedy(KEY, q, 0.0, mask), greedy)
    counts = torch.bincount(d.epsilon_greedy(KEY, q, 1.0, mask), minlength=4)
    assert int(counts[2]) == 0
    # 2000 each, standard deviation √(6000 · 1/3 · 2/3) = 36.5: five of them
    assert bool(((counts[[0, 1, 3]] - 2000).abs() < 183).all())
    explored = d.epsilon_greedy(KEY, q, 0.3, mask) != greedy
    # probability 0.3 · 2/3 = 0.2, standard deviation √(6000 · 0.2 · 0.8) = 31
    assert abs(int(explored.sum()) - 1200) < 155


def test_epsilon_may_differ_by_row() -> None:
    q = torch.tensor([0.0, 0.0, 9.0]).expand(2000, 3)
    epsilon = torch.zeros(2000).index_fill(0, torch.arange(1000), 1.0)
    action = d.epsilon_greedy(KEY, q, epsilon)
    assert bool((action[1000:] == 2).all())
    assert 500 < int((action[:1000] != 2).sum()) < 820
    with pytest.raises(ShapeError, match="epsilon has shape"):
        d.epsilon_greedy(KEY, q, epsilon[:3])


def test_gaussian_exploration_is_centred_scaled_by_the_half_range_independent_and_clipped() -> None:
    rows = 20000
    low, high = torch.tensor([-1.0, -4.0]), torch.tensor([1.0, 4.0])
    action = torch.zeros(rows, 2)
    noisy = d.gaussian_exploration(KEY, action, 0.1, low, high)
    deviation = torch.tensor([0.1, 0.4])
    # standard errors: mean σ/√n, deviation σ/√(2n), correlation 1/√n; five of each
    assert bool((noisy.mean(0).abs() < 5 * deviation / rows**0.5).all())
    assert bool(((noisy.std(0) - deviation).abs() < 5 * deviation / (2 * rows) ** 0.5).all())
    assert abs(float(torch.corrcoef(noisy.T)[0, 1])) < 5 / rows**0.5
    wild = d.gaussian_exploration(KEY, action, 10.0, low, high)
    assert bool(((wild >= low) & (wild <= high)).all())
    assert bool((wild == high).any(0).all())


# What holds for all of them.


def test_distributions_neither_read_nor_write_the_global_generator() -> None:
    before = torch.get_rng_state()
    logits, mask = torch.zeros(3, 5), torch.ones(3, 5, dtype=torch.bool)
    draws: list[Callable[[Tensor], Any]] = [
        partial(d.normal_sample, loc=logits, scale=1.0),
        partial(d.categorical_sample, logits=logits, mask=mask),
        partial(d.multi_categorical_sample, logits=logits, nvec=(2, 3)),
        partial(d.tanh_normal_sample_and_log_prob, loc=logits, scale=1.0),
        partial(d.tanh_normal_entropy, loc=logits, scale=1.0, num_samples=2),
        partial(d.epsilon_greedy, q=logits, epsilon=0.5),
        partial(d.gaussian_exploration, action=logits, noise=1.0, low=-1.0, high=1.0),
    ]
    for draw in draws:
        first = draw(KEY)
        torch.manual_seed(3)
        second = draw(KEY)
        torch.set_rng_state(before)
        pairs = zip(first, second, strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(torch.get_rng_state(), before)


def test_everything_vmapped_and_compiled_into_one_graph_agrees_with_the_eager_loop() -> None:
    logits, other = (real(seed, 3, 4, 5, dtype=torch.float32) for seed in (1, 2))
    mask = logits[0] > -1.0
    mask[:, 0] = True
    action = torch.zeros(4, dtype=torch.int64)

    def everything(z: Tensor, w: Tensor) -> list[Tensor]:
        scale = d.scale_map(w)
        return [
            d.normal_log_prob(w, z, scale),
            d.normal_kl(z, scale, w, scale),
            d.tanh_normal_log_prob(w, z, scale, low=-2.0, high=2.0, density="env"),
            d.tanh_normal_log_prob_of_action(w.tanh(), z, scale),
            d.categorical_log_prob(action, z, mask),
            d.categorical_entropy(z, mask),
            d.categorical_kl(z, w, mask),
            d.categorical_from_gumbel(w, z, mask),
            d.multi_categorical_entropy(z, (2, 3)),
            *d.tanh_normal_from_noise(w, z, scale),
        ]

    compiled = torch.compile(torch.vmap(everything), backend="aot_eager", fullgraph=True)
    loop = [everything(z, w) for z, w in zip(logits, other, strict=True)]
    for row, *expected in zip(compiled(logits, other), *loop, strict=True):
        for a, b in zip(row, expected, strict=True):
            close(a, b, 1e-6) if a.is_floating_point() else torch.testing.assert_close(a, b)
