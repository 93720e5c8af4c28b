"""Categorical and multi-categorical distributions: values, masks, laws 25 and 33."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from purerl import distributions as d
from purerl import random
from purerl.errors import ShapeError

F64 = torch.float64
KEY = random.key(11)
NAN, INF = float("nan"), float("inf")

LEGAL = torch.tensor([[True, True, False, True], [False, True, True, False]])
ACTION = torch.tensor([3, 1])


def real(seed: int, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=dtype)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-12) -> None:
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (result,) = torch.autograd.grad(function(x).sum(), x)
    return result


MASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "log_prob": lambda z: d.categorical_log_prob(ACTION, z, LEGAL),
    "entropy": lambda z: d.categorical_entropy(z, LEGAL),
    "kl from": lambda z: d.categorical_kl(z, real(9, 2, 4), LEGAL),
    "kl to": lambda z: d.categorical_kl(real(9, 2, 4), z, LEGAL),
    "expectation": lambda z: d.categorical_expectation(real(9, 2, 4), z, LEGAL),
}


def test_categorical_equals_torch_distributions() -> None:
    logits, other = 3 * real(1, 5, 4), 3 * real(2, 5, 4)
    theirs, theirs_q = (torch.distributions.Categorical(logits=z) for z in (logits, other))
    action = torch.tensor([0, 1, 2, 3, 0])
    close(d.categorical_log_prob(action, logits), theirs.log_prob(action))
    close(d.categorical_entropy(logits), theirs.entropy())
    close(d.categorical_kl(logits, other), torch.distributions.kl_divergence(theirs, theirs_q))
    close(d.categorical_log_probs(logits).exp(), theirs.probs)
    assert torch.equal(d.categorical_mode(logits), theirs.mode)


def test_a_masked_categorical_is_the_categorical_over_the_legal_actions() -> None:
    logits, other, value = real(1, 2, 4), real(2, 2, 4), real(3, 2, 4)
    for row in range(2):
        legal = LEGAL[row]
        z, w, f = logits[row][legal], other[row][legal], value[row][legal]
        position = int(legal[: int(ACTION[row])].sum())
        mine = logits[row], LEGAL[row]
        close(d.categorical_entropy(*mine), torch.distributions.Categorical(logits=z).entropy())
        close(d.categorical_log_prob(ACTION[row], *mine), z.log_softmax(-1)[position])
        close(
            d.categorical_kl(logits[row], other[row], legal),
            torch.distributions.kl_divergence(
                torch.distributions.Categorical(logits=z), torch.distributions.Categorical(logits=w)
            ),
        )
        expectation = d.categorical_expectation(value[row], *mine)
        close(expectation, (z.softmax(-1) * f).sum())
        assert int(d.categorical_mode(*mine)) == int(legal.nonzero()[z.argmax()])


@pytest.mark.parametrize("garbage", [NAN, INF, -INF, 1e30])
@pytest.mark.parametrize("name", MASKED)
def test_what_stands_at_illegal_logits_reaches_neither_value_nor_gradient(
    name: str, garbage: float
) -> None:
    clean = real(1, 2, 4)
    dirty = torch.where(LEGAL, clean, garbage)
    function = MASKED[name]
    assert torch.equal(function(dirty), function(clean))
    assert torch.equal(gradient(function, dirty), gradient(function, clean))
    assert torch.equal(gradient(function, dirty)[~LEGAL], torch.zeros(3, dtype=F64))
    noise = random.gumbel(KEY, (2, 4), dtype=F64)
    assert torch.equal(
        d.categorical_from_gumbel(noise, dirty, LEGAL),
        d.categorical_from_gumbel(noise, clean, LEGAL),
    )
    assert torch.equal(d.categorical_mode(dirty, LEGAL), d.categorical_mode(clean, LEGAL))


@pytest.mark.parametrize("garbage", [NAN, INF, -INF])
def test_a_function_may_hold_anything_at_illegal_actions(garbage: float) -> None:
    logits, value = real(1, 2, 4), real(2, 2, 4)

    def expectation(f: Tensor) -> Tensor:
        return d.categorical_expectation(f, logits, LEGAL)

    dirty = torch.where(LEGAL, value, garbage)
    assert torch.equal(expectation(dirty), expectation(value))
    assert torch.equal(gradient(expectation, dirty), gradient(expectation, value))


def test_an_illegal_action_scores_minus_infinity_with_a_finite_gradient() -> None:
    logits = real(1, 2, 4)
    illegal = torch.tensor([2, 0])
    assert torch.equal(
        d.categorical_log_prob(illegal, logits, LEGAL), torch.full((2,), -INF, dtype=F64)
    )
    assert torch.equal(d.categorical_log_probs(logits, LEGAL).exp() == 0, ~LEGAL)
    slope = gradient(lambda z: d.categorical_log_prob(illegal, z, LEGAL), logits)
    assert bool(slope.isfinite().all())


def test_one_legal_action_has_no_entropy_and_probability_one() -> None:
    mask = torch.tensor([[False, True, False]])
    logits = torch.tensor([[NAN, -1e4, INF]])
    only = torch.tensor([1])
    assert torch.equal(d.categorical_entropy(logits, mask), torch.zeros(1))
    assert torch.equal(d.categorical_log_prob(only, logits, mask), torch.zeros(1))
    assert torch.equal(d.categorical_sample(KEY, logits, mask), only)
    for function in (
        lambda z: d.categorical_entropy(z, mask),
        lambda z: d.categorical_log_prob(only, z, mask),
    ):
        assert torch.equal(gradient(function, logits), torch.zeros(1, 3))


def test_a_row_without_a_legal_action_is_uniform_without_gradient_and_marked_invalid() -> None:
    mask = torch.stack([LEGAL[0], torch.zeros(4, dtype=torch.bool)])
    logits = torch.stack([real(1, 4), torch.full((4,), NAN, dtype=F64)])
    action = torch.tensor([0, 2])
    assert torch.equal(d.categorical_valid(mask), torch.tensor([True, False]))
    log_prob = d.categorical_log_prob(action, logits, mask)
    entropy = d.categorical_entropy(logits, mask)
    close(log_prob[1], torch.tensor(-math.log(4.0), dtype=F64))
    close(entropy[1], torch.tensor(math.log(4.0), dtype=F64))
    assert torch.equal(entropy[:1], d.categorical_entropy(logits[:1], mask[:1]))
    assert torch.equal(d.categorical_kl(logits, logits, mask), torch.zeros(2, dtype=F64))
    slope = gradient(
        lambda z: d.categorical_entropy(z, mask) + d.categorical_log_prob(action, z, mask), logits
    )
    assert torch.equal(slope[1], torch.zeros(4, dtype=F64))
    assert bool(slope.isfinite().all())


def test_extreme_logits_are_scored_exactly() -> None:
    logits = torch.tensor([1000.0, 0.0, -1000.0])
    assert d.categorical_log_probs(logits).tolist() == [0.0, -1000.0, -2000.0]
    assert d.categorical_entropy(logits).item() == 0.0
    slope = gradient(lambda z: d.categorical_log_prob(torch.tensor(1), z), logits)
    assert slope.tolist() == [-1.0, 1.0, 0.0]
    for scale in (1e4, 1e30):
        z = scale * real(1, 6, 5, dtype=torch.float32)
        for function in (d.categorical_entropy, lambda x: d.categorical_kl(x, x.flip(0))):
            assert bool(function(z).isfinite().all())
            assert bool(gradient(function, z).isfinite().all())


def test_zero_probability_adds_nothing_and_an_excluding_q_gives_infinity() -> None:
    p = torch.tensor([0.5, 0.5, 0.0], dtype=F64).log()
    q = torch.tensor([0.25, 0.5, 0.25], dtype=F64).log()
    close(d.categorical_kl(p, q), torch.tensor(0.5 * math.log(2.0), dtype=F64))
    close(d.categorical_entropy(p), torch.tensor(math.log(2.0), dtype=F64))
    assert bool(gradient(d.categorical_entropy, p).isfinite().all())
    assert d.categorical_kl(q, p).item() == INF


def test_law_25_entropy_lies_between_zero_and_log_k_and_ignores_a_common_shift() -> None:
    logits = 4 * real(1, 500, 6)
    entropy = d.categorical_entropy(logits)
    assert bool(((entropy >= 0) & (entropy <= math.log(6.0) * (1 + 1e-15))).all())
    close(
        d.categorical_entropy(torch.full((6,), 3.0, dtype=F64)),
        torch.tensor(math.log(6.0), dtype=F64),
    )
    close(d.categorical_entropy(logits + 100.0), entropy, 1e-11)
    action = torch.zeros(500, dtype=torch.int64)
    close(
        d.categorical_log_prob(action, logits - 50.0), d.categorical_log_prob(action, logits), 1e-11
    )


def test_law_25_kl_is_zero_at_equality_never_negative_and_accurate_between_near_policies() -> None:
    p = 3 * real(1, 2000, 6, dtype=torch.float32)
    assert torch.equal(d.categorical_kl(p, p), torch.zeros(2000))
    for step in (1e-1, 1e-3, 1e-5):
        q = p + step * real(2, 2000, 6, dtype=torch.float32)
        kl = d.categorical_kl(p, q)
        exact = d.categorical_kl(p.double(), q.double())
        assert bool((kl >= 0).all())
        # log-probabilities carry an error of a few u·|z|, felt only in proportion to the step
        assert float((kl - exact).abs().max()) <= 1e-5 * step + 1e-13
    naive = (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum(-1)
    assert float((naive - exact).abs().max()) > 1e-8, "the textbook sum would do as well"


def test_kl_has_the_gradient_of_the_textbook_sum() -> None:
    p, q = real(1, 7, 5), real(2, 7, 5)

    def textbook(a: Tensor, b: Tensor) -> Tensor:
        return (a.softmax(-1) * (a.log_softmax(-1) - b.log_softmax(-1))).sum(-1)

    close(gradient(lambda z: d.categorical_kl(z, q), p), gradient(lambda z: textbook(z, q), p))
    close(gradient(lambda z: d.categorical_kl(p, z), q), gradient(lambda z: textbook(p, z), q))
    leaf = p.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: d.categorical_kl(z, q), (leaf,))


def within_multinomial_band(counts: Tensor, p: Tensor) -> bool:
    """Whether every count is within five standard deviations of its mean, √(n p (1 − p))."""
    n = counts.sum()
    return bool(((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt() + 1e-9).all())


def test_law_33_counts_over_draws_follow_the_probabilities_and_zero_is_never_drawn() -> None:
    n = 20000
    p = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=F64)
    logits = p.log().float().expand(n, 5)
    bulk = d.categorical_from_gumbel(random.gumbel(KEY, (n, 5), dtype=torch.float32), logits)
    assert within_multinomial_band(torch.bincount(bulk, minlength=5), p)
    keys = random.split(KEY, n)
    by_key = torch.vmap(d.categorical_sample)(keys, logits)
    assert within_multinomial_band(torch.bincount(by_key, minlength=5), p)
    assert int((bulk == 4).sum() + (by_key == 4).sum()) == 0
    mask = torch.tensor([True, True, False, True, False]).expand(n, 5)
    masked = torch.where(mask[0], p, 0.0)
    drawn = d.categorical_sample(KEY, logits, mask)
    assert within_multinomial_band(torch.bincount(drawn, minlength=5), masked / masked.sum())


def test_a_bulk_draw_of_noise_is_the_stream_of_single_draws() -> None:
    keys, logits = random.split(KEY, 6), real(1, 6, 4, dtype=torch.float32)
    noise = torch.vmap(lambda k: random.gumbel(k, (4,), dtype=torch.float32))(keys)
    single = [d.categorical_sample(k, z) for k, z in zip(keys, logits, strict=True)]
    assert torch.equal(d.categorical_from_gumbel(noise, logits), torch.stack(single))


def test_vmap_over_rows_equals_the_batch() -> None:
    logits, other = real(1, 2, 4), real(2, 2, 4)
    close(torch.vmap(d.categorical_entropy)(logits, LEGAL), d.categorical_entropy(logits, LEGAL))
    close(
        torch.vmap(d.categorical_kl)(logits, other, LEGAL),
        d.categorical_kl(logits, other, LEGAL),
    )
    close(
        torch.vmap(d.categorical_log_prob)(ACTION, logits, LEGAL),
        d.categorical_log_prob(ACTION, logits, LEGAL),
    )
    per_row = torch.vmap(torch.func.grad(d.categorical_entropy))(logits, LEGAL)
    close(per_row, gradient(lambda z: d.categorical_entropy(z, LEGAL), logits))


def test_categorical_gradients_pass_finite_differences() -> None:
    for function in MASKED.values():
        z = real(1, 2, 4).requires_grad_()
        assert torch.autograd.gradcheck(function, (z,))


def test_categorical_contracts_name_the_argument() -> None:
    logits = torch.zeros(3, 4)
    with pytest.raises(ShapeError, match=r"action has shape \[3, 1\], expected \[3\]"):
        d.categorical_log_prob(torch.zeros(3, 1, dtype=torch.int64), logits)
    with pytest.raises(ShapeError, match=r"action has dtype torch.float32, expected an integer"):
        d.categorical_log_prob(torch.zeros(3), logits)
    with pytest.raises(ShapeError, match=r"mask has shape \[4\], expected \[3, 4\] as logits"):
        d.categorical_entropy(logits, torch.ones(4, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"mask has dtype torch.float32, expected torch.bool"):
        d.categorical_entropy(logits, torch.ones(3, 4))
    with pytest.raises(ShapeError, match="logits_q has shape"):
        d.categorical_kl(logits, logits[:2])
    with pytest.raises(ShapeError, match=r"logits has dtype torch.int64, expected a floating"):
        d.categorical_mode(torch.zeros(3, dtype=torch.int64))


# Several heads.

NVEC = (2, 4, 3)


def test_heads_add_up_to_the_joint_distribution() -> None:
    logits, other = real(1, 5, 9), real(2, 5, 9)
    action = torch.tensor([[0, 3, 1], [1, 0, 2], [0, 0, 0], [1, 2, 1], [0, 1, 2]])
    p, q = (
        [torch.distributions.Categorical(logits=z) for z in x.split(NVEC, -1)]
        for x in (logits, other)
    )
    scores = torch.stack([one.log_prob(a) for one, a in zip(p, action.unbind(-1), strict=True)], -1)
    entropies = torch.stack([one.entropy() for one in p], -1)
    kl = torch.stack(
        [torch.distributions.kl_divergence(a, b) for a, b in zip(p, q, strict=True)], -1
    )
    close(d.multi_categorical_log_prob(action, logits, NVEC), scores.sum(-1))
    close(d.multi_categorical_log_prob(action, logits, NVEC, per_head=True), scores)
    close(d.multi_categorical_entropy(logits, NVEC), entropies.sum(-1))
    close(d.multi_categorical_entropy(logits, NVEC, per_head=True), entropies)
    close(d.multi_categorical_kl(logits, other, NVEC), kl.sum(-1))
    close(d.multi_categorical_kl(logits, other, NVEC, per_head=True), kl)
    modes = torch.stack([one.mode for one in p], -1)
    assert torch.equal(d.multi_categorical_mode(logits, NVEC), modes)


def test_every_head_obeys_its_part_of_the_mask() -> None:
    n = 4000
    mask = torch.tensor([True, True, False, True, False, True, False, False, True]).expand(n, 9)
    logits = torch.where(mask, 0.0, NAN)
    drawn = d.multi_categorical_sample(KEY, logits, NVEC, mask)
    assert {int(x) for x in drawn[:, 0]} == {0, 1}
    assert {int(x) for x in drawn[:, 1]} == {1, 3}
    assert {int(x) for x in drawn[:, 2]} == {2}
    assert within_multinomial_band(torch.bincount(drawn[:, 0]), torch.tensor([0.5, 0.5]))
    log_prob = d.multi_categorical_log_prob(drawn, logits, NVEC, mask)
    close(log_prob, torch.full((n,), 2 * math.log(0.5)), 1e-6)
    entropy = d.multi_categorical_entropy(logits, NVEC, mask)
    close(entropy, torch.full((n,), 2 * math.log(2.0)), 1e-6)
    assert torch.equal(d.multi_categorical_mode(logits, NVEC, mask)[0], torch.tensor([0, 1, 2]))


def test_heads_are_drawn_from_one_block_of_noise() -> None:
    logits = real(1, 3, 9, dtype=torch.float32)
    noise = random.gumbel(KEY, (3, 9), dtype=torch.float32)
    drawn = d.multi_categorical_sample(KEY, logits, NVEC)
    assert torch.equal(drawn, d.multi_categorical_from_gumbel(noise, logits, NVEC))
    heads = zip(noise.split(NVEC, -1), logits.split(NVEC, -1), strict=True)
    assert torch.equal(drawn, torch.stack([d.categorical_from_gumbel(*h) for h in heads], -1))


def test_heads_must_fill_the_last_axis() -> None:
    with pytest.raises(ShapeError, match=r"logits has shape \[8\], expected last axis 9"):
        d.multi_categorical_entropy(torch.zeros(8), NVEC)
    with pytest.raises(ShapeError, match=r"action has shape \[2\], expected \[3\]"):
        d.multi_categorical_log_prob(torch.zeros(2, dtype=torch.int64), torch.zeros(9), NVEC)
    with pytest.raises(ShapeError, match="mask has shape"):
        d.multi_categorical_mode(torch.zeros(9), NVEC, torch.ones(8, dtype=torch.bool))
