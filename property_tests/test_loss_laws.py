"""Laws of the policy-gradient losses and of what is reported beside them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st
from property_tests.strategies import rows
from torch import Tensor

from purerl import distributions, losses

F64 = torch.float64
clips = st.sampled_from([0.1, 0.2, 0.5])


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(loss, leaf)[0]


def surrogate_gradient(
    log_prob: Tensor, old: Tensor, advantage: Tensor, clip: float, dual: float | None = None
) -> Tensor:
    leaf = log_prob.clone().requires_grad_()
    loss, _ = losses.ppo_clip(leaf, old, advantage, clip_epsilon=clip, dual_clip=dual)
    return gradient(loss, leaf)


@given(rows("log_prob", "advantage"), clips)
def test_law_19_at_the_old_policy_the_gradient_is_that_of_a2c(
    drawn: tuple[Tensor, ...], clip: float
) -> None:
    """Law 19: at θ = θ_old, grad L_clip = −A / N, the A2C gradient, for every clip > 0."""
    log_prob, advantage = drawn
    found = surrogate_gradient(log_prob, log_prob, advantage, clip)
    leaf = log_prob.clone().requires_grad_()
    a2c = gradient(losses.a2c(leaf, advantage)[0], leaf)
    assert torch.equal(found, a2c)
    torch.testing.assert_close(found, -advantage / len(advantage))


@given(rows("log_ratio", "advantage"), clips, st.sampled_from([None, 2.0, 3.0]))
def test_law_20_the_dead_zone(drawn: tuple[Tensor, ...], clip: float, dual: float | None) -> None:
    """Law 20: 0 where A > 0, ρ > 1+c or A < 0, ρ < 1−c (dual: or ρ > dual), else −A ρ / N."""
    log_ratio, advantage = drawn
    ratio = log_ratio.exp()
    found = surrogate_gradient(log_ratio, torch.zeros_like(log_ratio), advantage, clip, dual)
    dead = ((advantage > 0) & (ratio > 1 + clip)) | ((advantage < 0) & (ratio < 1 - clip))
    if dual is not None:
        dead = dead | ((advantage < 0) & (ratio > dual))
    near = (ratio - (1 + clip)).abs().minimum((ratio - (1 - clip)).abs()) < 1e-9
    expected = torch.where(dead, 0.0, -advantage * ratio / len(ratio))
    assert torch.equal(found[dead & ~near], expected[dead & ~near])
    torch.testing.assert_close(found[~near], expected[~near], rtol=1e-12, atol=1e-15)


@given(rows("first", "second", "advantage"), clips)
def test_law_20_an_action_of_parts_is_clipped_by_its_joint_ratio(
    drawn: tuple[Tensor, ...], clip: float
) -> None:
    """Law 20 on heads: the loss of summed log-probabilities, not the sum of the heads' losses."""
    first, second, advantage = drawn
    parts = torch.stack([first, second], -1)
    joint = losses.joint_log_prob(parts)
    loss, _ = losses.ppo_clip(joint, torch.zeros_like(joint), advantage, clip_epsilon=clip)
    ratio = (first + second).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    expected = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-14)


@given(rows("log_ratio", "advantage"), clips)
def test_law_21_the_surrogate_is_pessimistic(drawn: tuple[Tensor, ...], clip: float) -> None:
    """Law 21: −L per row ≤ ρ A; clip = ∞ gives equality."""
    log_ratio, advantage = drawn
    old = torch.zeros_like(log_ratio)
    plain = log_ratio.exp() * advantage

    def per_row(epsilon: float, dual: float | None = None) -> Tensor:
        return -losses.ppo_clip(
            log_ratio, old, advantage, clip_epsilon=epsilon, dual_clip=dual, reduction="none"
        )[0]

    assert bool((per_row(clip) <= plain).all())
    assert torch.equal(per_row(math.inf), plain)
    raised = per_row(clip, 3.0)
    assert bool((raised >= per_row(clip)).all())
    assert torch.equal(raised[advantage >= 0], per_row(clip)[advantage >= 0])
    floor = torch.maximum(per_row(clip), 3.0 * advantage)
    torch.testing.assert_close(raised[advantage < 0], floor[advantage < 0])


@given(rows("value", "value_target", "old_value"), clips)
def test_law_21_the_clipped_value_loss_is_never_below_the_plain_one(
    drawn: tuple[Tensor, ...], clip: float
) -> None:
    """Law 21: "max" takes the larger error of each row; "replace" the clipped one alone."""
    value, target, old = drawn
    plain = losses.value_loss(value, target, reduction="none")[0]
    clipped = losses.value_loss(
        value, target, old, clip_epsilon=clip, clip_mode="max", reduction="none"
    )[0]
    moved = old + (value - old).clamp(-clip, clip)
    assert bool((clipped >= plain).all())
    torch.testing.assert_close(clipped, torch.maximum(plain, (moved - target) ** 2))


@given(rows("a", "b", "c"), st.floats(-8, 8))
def test_law_22_a_baseline_leaves_the_exact_gradient_alone(
    drawn: tuple[Tensor, ...], baseline: float
) -> None:
    """Law 22: Σ_a π(a) ∇ log π(a) (Q(a) − b) does not depend on b."""
    logits, q, _ = drawn

    def exact_gradient(values: Tensor) -> Tensor:
        leaf = logits.clone().requires_grad_()
        log_prob = distributions.categorical_log_prob(
            torch.arange(len(leaf)), leaf.expand(len(leaf), -1)
        )
        weights = torch.softmax(logits, -1)
        loss, _ = losses.a2c(log_prob, values, weight=weights, reduction="sum")
        return gradient(loss, leaf)

    torch.testing.assert_close(
        exact_gradient(q), exact_gradient(q - baseline), rtol=1e-9, atol=1e-11
    )


@given(rows("advantage"), st.integers(0, 1), st.sampled_from([0.5, 1.0, 8.0]), st.floats(-4, 4))
def test_law_23_normalised_advantages(
    drawn: tuple[Tensor, ...], ddof: int, factor: float, shift: float
) -> None:
    """Law 23: mean 0, deviation 1; unchanged by a A + b; constant or one row gives 0, never NaN."""
    (advantage,) = drawn
    found = losses.normalize_advantage(advantage, ddof=ddof, epsilon=0.0)
    assert bool(found.isfinite().all())
    if len(advantage) == 1 or bool((advantage == advantage[0]).all()):
        assert torch.equal(found, torch.zeros_like(found))
        return
    spread = float(advantage.std(correction=ddof))
    if spread < 1e-6:
        return
    torch.testing.assert_close(found.mean(), torch.zeros((), dtype=F64), rtol=0, atol=1e-8)
    torch.testing.assert_close(
        found.std(correction=ddof), torch.ones((), dtype=F64), rtol=1e-9, atol=0
    )
    moved = losses.normalize_advantage(factor * advantage + shift, ddof=ddof, epsilon=0.0)
    torch.testing.assert_close(moved, found, rtol=1e-6, atol=1e-8)


@given(rows("advantage", "garbage"))
def test_law_23_masked_rows_do_not_count(drawn: tuple[Tensor, ...]) -> None:
    """Law 23 and 17: statistics are those of the rows that count, whatever the others hold."""
    advantage, garbage = drawn
    mask = torch.cat(
        [torch.ones(len(advantage), dtype=torch.bool), torch.zeros_like(garbage).bool()]
    )
    padded = torch.cat([advantage, torch.where(garbage > 0, torch.nan, garbage)])
    before = padded.clone()
    found = losses.normalize_advantage(padded, mask=mask)
    torch.testing.assert_close(found[: len(advantage)], losses.normalize_advantage(advantage))
    torch.testing.assert_close(padded, before, rtol=0, atol=0, equal_nan=True)


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "ppo_clip": lambda x, a, _: losses.ppo_clip(x, torch.zeros_like(x), a)[0],
    "a2c": lambda x, a, _: losses.a2c(x, a)[0],
    "reinforce": lambda x, a, _: losses.reinforce(x, a)[0],
    "value_loss": lambda x, a, _: losses.value_loss(x, a)[0],
    "value_clip": lambda x, a, b: losses.value_loss(x, a, b, clip_epsilon=0.2, clip_mode="max")[0],
}


@given(rows("x", "a", "b"), st.sampled_from(sorted(LOSSES)), st.data())
def test_law_24_a_batch_is_its_minibatches_in_any_order(
    drawn: tuple[Tensor, ...], name: str, data: st.DataObject
) -> None:
    """Law 24: L(perm) = L, and Σ_m n_m/N · grad L(batch_m) = grad L(batch)."""
    x, a, b = drawn
    loss, size = LOSSES[name], len(x)
    order = torch.tensor(data.draw(st.permutations(range(size))))
    cut = data.draw(st.integers(0, size))
    whole = x.clone().requires_grad_()
    whole_gradient = gradient(loss(whole, a, b), whole)
    torch.testing.assert_close(loss(x[order], a[order], b[order]), loss(x, a, b))
    total = torch.zeros_like(x)
    for part in (order[:cut], order[cut:]):
        if len(part):
            leaf = x[part].requires_grad_()
            share = len(part) / size * gradient(loss(leaf, a[part], b[part]), leaf)
            total = total.index_add(0, part, share)
    torch.testing.assert_close(total, whole_gradient)


@given(rows("log_ratio"))
def test_law_25_the_estimators_of_divergence(drawn: tuple[Tensor, ...]) -> None:
    """Law 25: k1 = −mean log ρ; k3 = mean(ρ − 1 − log ρ) ≥ 0, bitwise never below."""
    (log_ratio,) = drawn
    k1 = losses.approx_kl(log_ratio, kind="k1")
    k3 = losses.approx_kl(log_ratio, kind="k3")
    torch.testing.assert_close(k1, -log_ratio.mean())
    assert float(k3) >= 0.0
    torch.testing.assert_close(k3, (log_ratio.exp() - 1 - log_ratio).mean(), rtol=1e-9, atol=1e-12)


@given(rows("log_prob", "advantage", "kl"), st.floats(0, 4))
def test_law_25_the_penalised_surrogate_adds_the_divergence(
    drawn: tuple[Tensor, ...], beta: float
) -> None:
    """L = −mean(ρ A) + β mean KL: the penalty grows with the divergence from the old policy."""
    log_prob, advantage, kl = drawn
    kl = kl.abs().requires_grad_()
    loss, _ = losses.ppo_kl_penalty(log_prob, torch.zeros_like(log_prob), advantage, kl, beta=beta)
    expected = -(log_prob.exp() * advantage).mean() + beta * kl.mean()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient(loss, kl), torch.full_like(kl, beta / len(kl)))


@given(rows("entropy"), st.floats(0.0, 2.0))
def test_law_30_the_entropy_bonus_rewards_entropy(drawn: tuple[Tensor, ...], coef: float) -> None:
    """L = −coef · mean H, with gradient −coef / N for every row."""
    leaf = drawn[0].clone().requires_grad_()
    loss, _ = losses.entropy_bonus(leaf, coef=coef)
    torch.testing.assert_close(loss, -coef * leaf.mean())
    torch.testing.assert_close(gradient(loss, leaf), torch.full_like(leaf, -coef / len(leaf)))


@given(rows("log_ratio", "advantage"))
def test_a_nan_that_counts_is_seen(drawn: tuple[Tensor, ...]) -> None:
    """A NaN in a row that counts reaches the loss: no minimum hides it."""
    log_ratio, advantage = drawn
    broken = torch.cat([log_ratio, torch.tensor([torch.nan], dtype=F64)])
    more = torch.cat([advantage, torch.ones(1, dtype=F64)])
    for sign in (1.0, -1.0):
        loss, _ = losses.ppo_clip(broken, torch.zeros_like(broken), sign * more)
        assert bool(loss.isnan())
