"""Laws of PPO's objective and of what stands beside it."""

from __future__ import annotations

import pytest
import torch

from purerl import losses, random
from purerl.errors import ShapeError

ROWS = 257


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    keys = random.split(random.key(11), 3)
    a, b, c = (random.normal(k, (ROWS,), dtype=torch.float64) for k in keys)
    return 0.4 * a, 0.4 * b, c


def test_the_single_branch_is_the_textbook_minimum() -> None:
    log_prob, old, advantage = drawn()
    ratio = (log_prob - old).exp()
    textbook = -torch.minimum(ratio * advantage, ratio.clamp(0.75, 1.5) * advantage)
    ours, _ = losses.ppo_clip(log_prob, old, advantage, clip_epsilon=(0.25, 0.5), reduction="none")
    torch.testing.assert_close(ours, textbook, rtol=1e-12, atol=0)


def test_the_gradient_is_zero_in_the_dead_zone_and_minus_advantage_times_ratio_elsewhere() -> None:
    log_prob, old, advantage = drawn()
    leaf = log_prob.clone().requires_grad_()
    loss, _ = losses.ppo_clip(leaf, old, advantage, clip_epsilon=0.25)
    (gradient,) = torch.autograd.grad(loss, leaf)
    ratio = (log_prob - old).exp()
    dead = ((advantage > 0) & (ratio > 1.25)) | ((advantage < 0) & (ratio < 0.75))
    assert bool(dead.any())
    assert torch.equal(gradient[dead], torch.zeros_like(gradient[dead]))
    torch.testing.assert_close(
        gradient[~dead], (-advantage * ratio / ROWS)[~dead], rtol=1e-12, atol=0
    )


def test_the_dual_clip_bounds_negative_advantages_only() -> None:
    log_prob, old, advantage = drawn()
    far = log_prob + 3.0
    plain, _ = losses.ppo_clip(far, old, advantage, reduction="none")
    dual, _ = losses.ppo_clip(far, old, advantage, dual_clip=2.0, reduction="none")
    negative = advantage < 0
    assert torch.equal(plain[~negative], dual[~negative])
    expected = torch.minimum(plain, -2.0 * advantage)[negative]
    torch.testing.assert_close(dual[negative], expected, rtol=1e-12, atol=0)


def test_a_huge_ratio_on_the_clipped_side_has_a_finite_value_and_no_gradient() -> None:
    leaf = torch.tensor([500.0], requires_grad=True)
    loss, _ = losses.ppo_clip(leaf, torch.zeros(1), torch.ones(1))
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert float(loss.detach()) == pytest.approx(-1.2)
    assert float(gradient) == 0.0


def test_masked_rows_reach_neither_value_nor_gradient_and_live_nan_surfaces() -> None:
    log_prob, old, advantage = drawn()
    mask = torch.ones(ROWS, dtype=torch.bool)
    mask[:7] = False
    bad = torch.where(mask, advantage, torch.nan)
    leaf = torch.where(mask, log_prob, torch.inf).requires_grad_()
    loss, _ = losses.ppo_clip(leaf, old, bad, mask=mask)
    clean, _ = losses.ppo_clip(log_prob[7:], old[7:], advantage[7:])
    torch.testing.assert_close(loss, clean, rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(gradient[:7], torch.zeros(7, dtype=torch.float64))
    assert bool(gradient.isfinite().all())
    assert bool(losses.ppo_clip(log_prob, old, bad)[0].isnan())


def test_a_column_against_a_row_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match=r"advantage has shape \[3, 1\], expected \[3\]"):
        losses.ppo_clip(torch.zeros(3), torch.zeros(3), torch.zeros(3, 1))


@pytest.mark.parametrize(("mode", "expected"), [(None, 1.0), ("max", 2.25), ("replace", 2.25)])
def test_the_value_loss_of_the_worked_example(mode: str | None, expected: float) -> None:
    # V_old = 0, V = 1, R = 2, c = 1/2: d(V, R) = 1 and d(V_c, R) = (1/2 - 2)^2 = 2.25
    epsilon = None if mode is None else 0.5
    loss, _ = losses.value_loss(
        torch.ones(1), torch.full((1,), 2.0), torch.zeros(1), clip_epsilon=epsilon, clip_mode=mode
    )
    assert float(loss) == expected


def test_normalised_advantages_have_mean_0_and_deviation_1_and_ignore_masked_rows() -> None:
    _, _, advantage = drawn()
    mask = torch.arange(ROWS) % 3 > 0
    spoiled = torch.where(mask, advantage, torch.nan)
    ours = losses.normalize_advantage(spoiled, mask=mask)
    kept = advantage[mask]
    expected = (kept - kept.mean()) / (kept.std() + 1e-8)
    torch.testing.assert_close(ours[mask], expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(losses.normalize_advantage(torch.full((5,), 3.0)), torch.zeros(5))
