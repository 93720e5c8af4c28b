"""PPO, A2C, REINFORCE, value regression and their statistics: worked examples and laws 19 to 25."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import distributions, losses, random, returns
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64
NAN, INF = float("nan"), float("inf")
ROWS = 257


def row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def drawn(seed: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    keys = random.split(random.key(seed), 3)
    a, b, c = (random.normal(k, (ROWS,), dtype=F64) for k in keys)
    return 0.4 * a, 0.4 * b, c


def close(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected, dtype=F64)
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual.to(F64), expected, rtol=rtol, atol=atol)


def gradient(loss_of: Any, x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss_of(leaf), leaf)
    return found


# The clipped surrogate.


def test_the_four_corners_of_the_surrogate_and_their_gradients() -> None:
    log_prob, advantage = row(1.5, 1.5, 0.5, 0.5).log(), row(1, -1, 1, -1)

    def loss_of(x: Tensor, reduction: Any = "mean") -> Tensor:
        return losses.ppo_clip(x, torch.zeros_like(x), advantage, reduction=reduction)[0]

    close(loss_of(log_prob, "none"), [-1.2, 1.5, -0.5, 0.8])
    close(loss_of(log_prob), 0.15)
    close(gradient(loss_of, log_prob), [0.0, 0.375, -0.125, 0.0])


def test_the_single_branch_is_the_textbook_minimum() -> None:
    log_prob, old, advantage = drawn()
    ratio = (log_prob - old).exp()
    textbook = -torch.minimum(ratio * advantage, ratio.clamp(0.75, 1.5) * advantage)
    ours, _ = losses.ppo_clip(log_prob, old, advantage, clip_epsilon=(0.25, 0.5), reduction="none")
    close(ours, textbook)


def test_an_action_of_several_parts_has_one_ratio() -> None:
    log_prob = torch.tensor([[0.15, 0.15], [math.log(1.5), -math.log(1.5)]], dtype=F64)
    joint = losses.joint_log_prob(log_prob)
    loss, metrics = losses.ppo_clip(joint, torch.zeros(2, dtype=F64), row(1, 1), reduction="none")
    close(loss, [-1.2, -1.0])
    close(metrics["ratio_max"], math.exp(0.3))
    heads = {"a": log_prob[:, 0], "b": log_prob[:, 1:], "c": torch.ones(2, 3, 2, dtype=F64)}
    close(losses.joint_log_prob(heads), joint + 6.0)
    close(losses.joint_log_prob(log_prob, num_batch_dims=2), log_prob)
    with pytest.raises(ShapeError, match=r"b has shape \[3\], expected \[2\] as a"):
        losses.joint_log_prob({"a": torch.ones(2), "b": torch.ones(3, 1)})


def test_the_dual_clip_bounds_negative_advantages_only() -> None:
    log_prob, old, advantage = drawn()
    far = log_prob + 1.0
    plain, _ = losses.ppo_clip(far, old, advantage, reduction="none")
    dual, _ = losses.ppo_clip(far, old, advantage, dual_clip=2.0, reduction="none")
    negative = advantage < 0
    assert torch.equal(plain[~negative], dual[~negative])
    bound = (-2.0 * advantage)[negative]
    close(dual[negative], torch.minimum(plain[negative], bound))
    loss, _ = losses.ppo_clip(
        row(1.1, 5.0).log(), row(0, 0), row(2, -2), dual_clip=3.0, reduction="none"
    )
    close(loss, [-2.2, 6.0])
    with pytest.raises(ConfigError, match=r"dual_clip is 1\.0, expected more than 1"):
        losses.ppo_clip(log_prob, old, advantage, dual_clip=1.0)


def test_law_19_at_ratio_1_the_gradient_is_that_of_a2c() -> None:
    log_prob, _, advantage = drawn()
    for epsilon in (1e-3, 0.2, INF):
        ppo = gradient(
            lambda x, e=epsilon: losses.ppo_clip(x, log_prob, advantage, clip_epsilon=e)[0],
            log_prob,
        )
        close(ppo, gradient(lambda x: losses.a2c(x, advantage)[0], log_prob))


@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_law_20_the_dead_zone_is_exactly_dead_and_the_rest_exactly_alive(
    dual_clip: float | None,
) -> None:
    log_prob, old, advantage = drawn()

    def loss_of(x: Tensor) -> Tensor:
        return losses.ppo_clip(x, old, advantage, clip_epsilon=0.25, dual_clip=dual_clip)[0]

    found = gradient(loss_of, log_prob)
    ratio = (log_prob - old).exp()
    dead = ((advantage > 0) & (ratio > 1.25)) | ((advantage < 0) & (ratio < 0.75))
    if dual_clip is not None:
        capped = (advantage < 0) & (ratio > dual_clip)
        assert bool(capped.any())
        dead = dead | capped
    assert bool(dead.any() & ~dead.all())
    assert torch.equal(found[dead], torch.zeros_like(found[dead]))
    close(found[~dead], (-advantage * ratio / ROWS)[~dead])


def test_law_21_the_surrogate_is_pessimistic_and_without_a_bound_exact() -> None:
    log_prob, old, advantage = drawn()
    exact = -advantage * (log_prob - old).exp()
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        loss, _ = losses.ppo_clip(log_prob, old, advantage, clip_epsilon=epsilon, reduction="none")
        assert bool((loss >= exact).all())
    loss, _ = losses.ppo_clip(log_prob, old, advantage, clip_epsilon=INF, reduction="none")
    assert torch.equal(loss, exact)


def test_a_huge_ratio_on_the_clipped_side_has_a_finite_value_and_no_gradient() -> None:
    far = torch.tensor([500.0, -500.0])
    sign = torch.tensor([1.0, -1.0])

    def loss_of(x: Tensor) -> Tensor:
        return losses.ppo_clip(x, torch.zeros(2), sign, reduction="sum")[0]

    close(loss_of(far), -1.2 + 0.8, 1e-6)
    assert torch.equal(gradient(loss_of, far), torch.zeros(2))
    # the unbounded side does overflow, and says so
    assert not bool(loss_of(-far).isfinite())


def test_an_action_that_became_impossible_has_a_finite_loss_and_gradient() -> None:
    never = row(-INF, -INF)

    def loss_of(x: Tensor) -> Tensor:
        return losses.ppo_clip(x, row(0, 0), row(1, -1), reduction="sum")[0]

    close(loss_of(never), 0.8)
    assert torch.equal(gradient(loss_of, never), row(0, 0))


def test_a_column_against_a_row_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match=r"advantage has shape \[3, 1\], expected \[3\]"):
        losses.ppo_clip(torch.zeros(3), torch.zeros(3), torch.zeros(3, 1))
    with pytest.raises(ShapeError, match=r"advantage has dtype torch\.int64, expected a floating"):
        losses.ppo_clip(torch.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"log_prob has shape \[0\], expected no dimension"):
        losses.ppo_clip(*(torch.zeros(0) for _ in range(3)))


def test_the_metrics_of_a_surrogate() -> None:
    log_ratio = row(0.0, 0.3, -0.3, 0.05)
    _, metrics = losses.ppo_clip(log_ratio, torch.zeros(4, dtype=F64), row(1, 1, 1, 1))
    ratio = log_ratio.exp()
    close(metrics["clip_fraction"], 0.5)
    close(metrics["ratio_mean"], ratio.mean())
    close(metrics["ratio_max"], ratio.max())
    close(metrics["approx_kl"], (ratio - 1 - log_ratio).mean())
    close(metrics["approx_kl_k1"], -log_ratio.mean())
    close(metrics["effective_sample_size"], ratio.sum() ** 2 / (4 * ratio.square().sum()))


def test_mixed_precision_is_promoted_alike_outside_and_inside_vmap() -> None:
    log_prob, old, advantage = drawn()
    mixed = (log_prob.float(), old, advantage.to(torch.bfloat16))
    loss, _ = losses.ppo_clip(*mixed)
    batched, _ = torch.vmap(losses.ppo_clip)(*(x.unsqueeze(0) for x in mixed))
    assert loss.dtype == batched.dtype == F64
    close(batched[0], loss)


# The KL penalty.


def test_the_penalised_surrogate_adds_beta_times_the_mean_divergence() -> None:
    log_prob, old, advantage = drawn()
    kl = log_prob.square()
    loss, metrics = losses.ppo_kl_penalty(log_prob, old, advantage, kl, beta=0.5)
    vanilla, _ = losses.ppo_clip(log_prob, old, advantage, clip_epsilon=INF)
    close(loss, vanilla + 0.5 * kl.mean())
    close(metrics["kl"], kl.mean())
    close(metrics["kl_beta"], 0.5)


def test_the_penalty_pulls_towards_the_stored_policy() -> None:
    old_loc, scale = row(0.3, -0.2), torch.ones(2, dtype=F64)

    def loss_of(loc: Tensor) -> Tensor:
        kl = distributions.normal_kl(old_loc, scale, loc, scale)
        return losses.ppo_kl_penalty(row(0, 0), row(0, 0), row(0, 0), kl, beta=2.0)[0]

    # the gradient of (loc - old)^2 / 2, times beta, over two rows
    close(gradient(loss_of, row(1.3, 1.8)), [1.0, 2.0])


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.016, 2.0), (0.015, 1.0), (0.0067, 1.0), (0.0066, 0.5), (NAN, 1.0)]
)
def test_beta_doubles_above_the_band_and_halves_below(kl: float, factor: float) -> None:
    beta = torch.tensor(0.3, dtype=F64)
    after = losses.ppo_kl_beta_update(beta, torch.tensor(kl), target=0.01)
    assert after.dtype == F64
    close(after, 0.3 * factor)
    number = losses.ppo_kl_beta_update(0.3, torch.tensor(kl, dtype=F64), increment=3.0)
    close(number, 0.3 * (3.0 if factor == 2.0 else factor))


def test_members_adapt_their_own_beta() -> None:
    after = torch.vmap(losses.ppo_kl_beta_update)(row(1, 1, 1), row(0.1, 0.01, 0.001))
    assert torch.equal(after, row(2.0, 1.0, 0.5))


# A2C and REINFORCE.


def test_the_policy_term_of_a2c_sends_no_gradient_into_the_critic() -> None:
    log_prob, value, target = row(-0.5, -1.2, -2.0), row(1.0, 0.5, 2.0), row(2.0, 0.0, 2.5)
    live = value.clone().requires_grad_()
    loss, metrics = losses.a2c(log_prob.requires_grad_(), target - live)
    close(loss, 0.3)
    close(metrics["advantage_mean"], 1 / 3)
    by_log_prob, by_value = torch.autograd.grad(loss, [log_prob, live], allow_unused=True)
    close(by_log_prob, [-1 / 3, 1 / 6, -1 / 6])
    assert by_value is None
    critic, _ = losses.value_loss(live, target)
    close(critic, 0.5)
    close(torch.autograd.grad(critic, live)[0], [-2 / 3, 1 / 3, -1 / 3])


def test_reinforce_pairs_every_log_probability_with_its_own_return() -> None:
    ended = torch.tensor([False, False, True])
    gain = returns.reward_to_go(row(2, 3, 2), ended, torch.zeros_like(ended), gamma=0.5)
    log_prob = row(-0.1, -2.0, -0.7)

    def loss_of(x: Tensor) -> Tensor:
        return losses.reinforce(x, gain)[0]

    close(loss_of(log_prob), 98 / 30)
    close(gradient(loss_of, log_prob), [-4 / 3, -4 / 3, -2 / 3])


def test_baselines_of_reinforce() -> None:
    log_prob, gain, value = row(-1, -2, -3), row(4, 1, 1), row(1, 1, 0)
    loss, metrics = losses.reinforce(log_prob, gain, baseline="mean")
    close(loss, (2 - 2 - 3) / 3)
    close(metrics["return_mean"], 2.0)
    close(metrics["return_std"], math.sqrt(2.0))
    close(losses.reinforce(log_prob, gain, baseline=value)[0], (3 + 0 + 3) / 3)
    # G - b = (3, 0, 1), whose unbiased deviation is sqrt(7/3)
    normal = (row(3, 0, 1) - 4 / 3) / (math.sqrt(7 / 3) + 1e-8)
    loss, _ = losses.reinforce(log_prob, gain, baseline=value, normalize=True, reduction="none")
    close(loss, -log_prob * normal)
    unknown: Any = "average"
    with pytest.raises(ConfigError, match="baseline is 'average'; known: mean, none"):
        losses.reinforce(log_prob, gain, baseline=unknown)


def test_law_22_a_baseline_of_the_state_leaves_the_exact_gradient_alone() -> None:
    logits, gain = random.normal(random.key(1), (5,), dtype=F64), row(1, 4, -2, 0, 3)
    p = logits.softmax(-1)

    def expected(x: Tensor, baseline: float) -> Tensor:
        log_probs = x.log_softmax(-1)
        return losses.a2c(log_probs, gain - baseline, weight=p, reduction="sum")[0]

    plain = gradient(lambda x: expected(x, 0.0), logits)
    close(gradient(lambda x: expected(x, 7.0), logits), plain)


# Entropy.


def test_the_entropy_bonus_sums_over_dimensions_and_enters_the_gradient() -> None:
    def loss_of(log_scale: Tensor) -> Tensor:
        entropy = distributions.independent(distributions.normal_entropy(log_scale.exp()), 1)
        return losses.entropy_bonus(entropy.unsqueeze(0), coef=0.01)[0]

    log_scale = torch.zeros(3, dtype=F64)
    close(loss_of(log_scale), -0.01 * 3 * 0.5 * (1 + math.log(2 * math.pi)))
    close(gradient(loss_of, log_scale), [-0.01] * 3)


def test_each_head_may_have_its_own_coefficient() -> None:
    heads = {"move": row(1, 3), "jump": row(0.5, 0.5)}
    loss, metrics = losses.entropy_bonus(heads, coef={"move": 0.1, "jump": 1.0})
    close(loss, -(0.2 + 0.5))
    close(metrics["entropy"], 2.5)
    close(losses.entropy_bonus(heads, coef=2.0)[0], -5.0)
    with pytest.raises(
        ConfigError, match=r"coef has heads \['move'\], expected \['jump', 'move'\]"
    ):
        losses.entropy_bonus(heads, coef={"move": 1.0})


# Value regression.


def test_clipping_by_max_keeps_the_larger_error_and_by_replace_the_clipped_one() -> None:
    value, target, old = row(1.0, 1.0), row(1.5, 0.9), row(0.0, 0.0)

    def loss_of(x: Tensor, mode: Any = "max") -> Tensor:
        return losses.value_loss(x, target, old, clip_epsilon=0.2, clip_mode=mode)[0]

    close(loss_of(value), 1.09)
    assert torch.equal(gradient(loss_of, value), row(0, 0))
    close(loss_of(value, "replace"), 1.09)
    close(losses.value_loss(value, target)[0], 0.13)


def test_law_21_max_is_above_the_plain_loss_and_replace_may_be_below() -> None:
    value, old, target = drawn()
    options: Any = {"clip_epsilon": 0.1, "reduction": "none"}
    plain, _ = losses.value_loss(value, target, reduction="none")
    top, metrics = losses.value_loss(value, target, old, clip_mode="max", **options)
    replaced, _ = losses.value_loss(value, target, old, clip_mode="replace", **options)
    assert bool((top >= plain).all())
    assert bool((replaced < plain).any())
    assert torch.equal(top, torch.maximum(plain, replaced))
    inside = (value - old).abs() <= 0.1
    assert torch.equal(replaced[inside], plain[inside])
    close(metrics["value_clip_fraction"], 1.0 - inside.double().mean())


@pytest.mark.parametrize(
    ("kind", "expected"), [("l2", 9.0), ("half_l2", 4.5), ("huber", 2.5), ("l1", 3.0)]
)
def test_distances_of_an_error_of_3(kind: Any, expected: float) -> None:
    close(losses.value_loss(row(1.0), row(4.0), kind=kind)[0], expected)


@pytest.mark.parametrize(
    "options",
    [
        {"clip_epsilon": 0.2},
        {"clip_mode": "max"},
        {"clip_epsilon": 0.2, "clip_mode": "max", "old_value": None},
    ],
)
def test_half_of_a_value_clip_is_refused_not_ignored(options: dict[str, Any]) -> None:
    given = {"old_value": row(0.0)} | options
    with pytest.raises(ConfigError, match="expected all three, or neither of the first two"):
        losses.value_loss(row(1.0), row(1.0), **given)


# Statistics.


def test_law_23_normalised_advantages_have_mean_0_and_deviation_1() -> None:
    _, _, advantage = drawn()
    for ddof in (0, 1):
        ours = losses.normalize_advantage(advantage, ddof=ddof, epsilon=0.0)
        close(ours.mean() + 1.0, 1.0)
        close(ours.std(correction=ddof), 1.0)
        moved = losses.normalize_advantage(3.0 * advantage - 5.0, ddof=ddof, epsilon=0.0)
        close(moved, ours)
    close(losses.normalize_advantage(row(0, 1, 2), ddof=0), row(-1, 0, 1) * math.sqrt(1.5), 1e-7)
    close(losses.normalize_advantage(row(1, 3)), row(-1, 1) / math.sqrt(2.0), 1e-7)


def test_law_23_masked_rows_do_not_count() -> None:
    _, _, advantage = drawn()
    mask = torch.arange(ROWS) % 3 > 0
    spoiled = torch.where(mask, advantage, NAN)
    ours = losses.normalize_advantage(spoiled, mask=mask)
    close(ours[mask], losses.normalize_advantage(advantage[mask]))
    assert torch.equal(ours[~mask], torch.zeros_like(ours[~mask]))


@pytest.mark.parametrize("epsilon", [1e-8, 0.0])
@pytest.mark.parametrize("value", [0.1, 3.0, -1e8, 0.0])
def test_law_23_equal_advantages_become_exactly_0_with_a_finite_gradient(
    value: float, epsilon: float
) -> None:
    for n in (1, 2, 3, 10):
        x = torch.full((n,), value, dtype=F64)
        zeros = torch.zeros_like(x)
        assert torch.equal(losses.normalize_advantage(x, epsilon=epsilon), zeros)
        every_other = torch.arange(n) % 2 == 0
        masked = torch.where(every_other, x, 7.0)
        ours = losses.normalize_advantage(masked, mask=every_other, epsilon=epsilon)
        assert torch.equal(ours, zeros)
        slope = gradient(lambda y: losses.normalize_advantage(y, epsilon=epsilon).square().sum(), x)
        assert torch.equal(slope, zeros)


def test_a_single_row_is_zero_or_kept() -> None:
    assert torch.equal(losses.normalize_advantage(row(3.0)), row(0.0))
    assert torch.equal(losses.normalize_advantage(row(3.0), singleton="keep"), row(3.0))
    mask = torch.tensor([False, True])
    kept = losses.normalize_advantage(row(NAN, 3.0), mask=mask, singleton="keep")
    assert torch.equal(kept, row(0.0, 3.0))


def test_a_floor_under_the_deviation_replaces_the_epsilon() -> None:
    advantage = row(1.0, 2.0, 3.0)
    close(losses.normalize_advantage(advantage, floor=1e-6), row(-1, 0, 1))
    close(losses.normalize_advantage(advantage, floor=4.0), row(-0.25, 0, 0.25))


def test_excluded_dimensions_have_statistics_of_their_own() -> None:
    advantage = random.normal(random.key(3), (4, 3, 5), dtype=F64)
    mask = random.bernoulli(random.key(4), 0.7, (4, 3, 5))
    for dims in ((1,), (-2,)):
        ours = losses.normalize_advantage(advantage, mask=mask, exclude_dims=dims)
        for agent in range(3):
            alone = losses.normalize_advantage(advantage[:, agent], mask=mask[:, agent])
            close(ours[:, agent], alone)
    ours = losses.normalize_advantage(advantage, exclude_dims=(2, 0))
    close(ours[1, :, 4], losses.normalize_advantage(advantage[1, :, 4]))


def test_normalising_far_from_0_loses_nothing_to_cancellation() -> None:
    _, _, advantage = drawn()
    near = losses.normalize_advantage(advantage)
    far = losses.normalize_advantage(advantage + 2.0**20)
    close(far, near, 1e-9)


def test_both_branches_of_the_surrogate_use_the_normalised_advantage() -> None:
    normal = losses.normalize_advantage(row(1, 3))
    loss, _ = losses.ppo_clip(row(1.5, 1.5).log(), row(0, 0), normal)
    close(loss, (1.5 - 1.2) / (2 * math.sqrt(2.0)), 1e-7)


def test_law_25_k3_is_never_negative_and_k1_may_be() -> None:
    close(losses.approx_kl(row(0.5, -0.1)), 0.076779344368, 1e-11)
    close(losses.approx_kl(row(0.5, -0.1), kind="k1"), -0.2)
    close(losses.approx_kl(row(0.2, -0.2)), math.cosh(0.2) - 1)
    tiny = torch.cat([2.0 ** torch.arange(-60.0, 5.0), -(2.0 ** torch.arange(-60.0, 5.0))])
    for x in (tiny, tiny.double()):
        each = torch.stack([losses.approx_kl(one.unsqueeze(0)) for one in x])
        assert bool((each >= 0).all())


def test_law_25_by_enumeration_k1_and_k3_have_the_divergence_as_their_mean() -> None:
    old, new = (random.normal(random.key(k), (6,), dtype=F64).log_softmax(-1) for k in (1, 2))
    exact = distributions.categorical_kl(old, new)
    for kind in ("k1", "k3"):
        each = torch.stack([losses.approx_kl(r.unsqueeze(0), kind=kind) for r in new - old])
        close((old.exp() * each).sum(), exact, 1e-11)


def test_the_clip_fraction_is_a_share_of_rows_and_knows_both_bounds() -> None:
    log_ratio = row(0.0, 0.3, -0.3, 0.05)
    close(losses.clip_fraction(log_ratio), 0.5)
    close(losses.clip_fraction(log_ratio, clip_epsilon=(0.1, 0.5)), 0.25)
    close(losses.clip_fraction(log_ratio, clip_epsilon=(5.0, INF)), 0.0)


def test_the_effective_sample_size_survives_ratios_that_overflow() -> None:
    close(losses.effective_sample_size(row(1, 3).log()), 0.8)
    close(losses.effective_sample_size(row(1, 3).log() + 5000.0), 0.8, 1e-9)
    mask = torch.tensor([True, True, False])
    close(losses.effective_sample_size(row(0, math.log(3), 900), mask=mask), 0.8)
    close(losses.effective_sample_size(row(-900, -900, 0), mask=mask), 1.0)


def test_explained_variance_divides_by_the_variance_of_the_targets() -> None:
    close(losses.explained_variance(row(1, 1, 3, 3), row(1, 2, 3, 4)), 0.8)
    mask = torch.tensor([True, True, True, True, False])
    close(losses.explained_variance(row(1, 1, 3, 3, NAN), row(1, 2, 3, 4, 9), mask=mask), 0.8)
    shift = 2.0**30
    close(losses.explained_variance(row(1, 1, 3, 3) + shift, row(1, 2, 3, 4) + shift), 0.8)


@pytest.mark.parametrize("constant", [2.0, 0.1, 1e9 + 0.1])
def test_constant_targets_leave_the_explained_variance_undefined_never_infinite(
    constant: float,
) -> None:
    for n in (1, 2, 3, 7):
        target = torch.full((n,), constant, dtype=F64)
        assert bool(losses.explained_variance(torch.arange(n, dtype=F64), target).isnan())
