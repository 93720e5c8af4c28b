"""Laws of the losses with critics, of temperatures and of target networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from property_tests.strategies import rows
from torch import Tensor

from purerl import losses, optim
from purerl.errors import ShapeError

F64 = torch.float64
discounts = st.sampled_from([0.5, 0.9, 1.0])


def flags(like: Tensor, data: st.DataObject) -> Tensor:
    return torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(like), max_size=len(like))))


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(loss, leaf)[0]


@given(rows("reward", "q1", "q2", "log_prob"), st.floats(0, 2), discounts, st.data())
def test_law_26_the_soft_target(
    drawn: tuple[Tensor, ...], alpha: float, gamma: float, data: st.DataObject
) -> None:
    """Law 26: y = r + γ(1−e)(min_i Q_i − α log π), bitwise; a terminated row may hold NaN."""
    reward, q1, q2, log_prob = drawn
    terminated = flags(reward, data)
    nan = torch.full_like(reward, torch.nan)
    next_q = torch.stack([torch.where(terminated, nan, q) for q in (q1, q2)])
    found = losses.sac_target(
        reward, next_q, torch.where(terminated, nan, log_prob), alpha, terminated, gamma=gamma
    )
    soft = torch.minimum(q1, q2) - alpha * log_prob
    assert torch.equal(found, reward + gamma * torch.where(terminated, 0.0 * soft, soft))


@given(rows("reward", "q1", "q2", "log_prob", "more"), discounts, st.data())
def test_law_26_equal_critics_are_one_and_more_is_more(
    drawn: tuple[Tensor, ...], gamma: float, data: st.DataObject
) -> None:
    """Law 26: two equal critics count as one; y is non-decreasing in each Q."""
    reward, q1, q2, log_prob, more = drawn
    terminated = flags(reward, data)

    def target(*q: Tensor) -> Tensor:
        return losses.sac_target(reward, torch.stack(q), log_prob, 0.2, terminated, gamma=gamma)

    assert torch.equal(target(q1, q1), target(q1))
    assert bool((target(q1 + more.abs(), q2) >= target(q1, q2)).all())
    assert bool((target(q1, q2) <= torch.minimum(target(q1), target(q2))).all())


TARGETS: dict[str, Callable[..., Tensor]] = {
    "td3": lambda r, q, e, g, n: losses.td3_target(r, q, e, gamma=g, steps=n),
    "cql": lambda r, q, e, g, n: losses.cql_target(r, q.unsqueeze(1), e, gamma=g, steps=n),
    "ddpg": lambda r, q, e, g, n: losses.ddpg_target(r, q[0], e, gamma=g, steps=n),
    "iql": lambda r, q, e, g, n: losses.iql_target(r, q[0], e, gamma=g, steps=n),
    "dqn": lambda r, q, e, g, n: losses.dqn_target(r, q.T.contiguous(), e, gamma=g, steps=n),
    "sac": lambda r, q, e, g, n: losses.sac_target(r, q, 0 * r, 0.0, e, gamma=g, steps=n),
    "redq": lambda r, q, e, g, n: losses.redq_target(
        r, q, 0 * r, 0.0, e, torch.arange(len(q)), gamma=g, steps=n
    ),
}
BEST = {"dqn": lambda q: q.amax(0), "ddpg": lambda q: q[0], "iql": lambda q: q[0]}


@pytest.mark.parametrize("name", TARGETS)
@given(drawn=rows("reward", "q1", "q2"), gamma=discounts, data=st.data())
def test_laws_7_13_18_of_every_target(
    name: str, drawn: tuple[Tensor, ...], gamma: float, data: st.DataObject
) -> None:
    """y = r + γⁿ (1−e) Q', a constant: only termination stops it; γⁿ for n merged steps."""
    reward, q1, q2 = drawn
    terminated = flags(reward, data)
    count = len(reward)
    steps = torch.tensor(data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)))
    next_q = torch.stack([q1, q2]).requires_grad_()
    found = TARGETS[name](reward, next_q, terminated, gamma, steps)
    best = BEST.get(name, lambda q: q.amin(0))(next_q.detach())
    expected = reward + torch.where(terminated, 0.0, gamma ** steps.to(F64) * best)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    assert not found.requires_grad
    nan = torch.where(terminated, torch.nan, next_q.detach())
    assert torch.equal(TARGETS[name](reward, nan, terminated, gamma, steps), found)


@given(rows("log_prob"), st.floats(-2, 2), st.floats(-4, 4), st.sampled_from(["log", "alpha"]))
def test_law_27_the_temperature(
    drawn: tuple[Tensor, ...], log_alpha: float, wanted: float, form: losses.AlphaForm
) -> None:
    """Law 27: ∂J/∂log α = −(mean log π + H̄), times α in the alpha form; α rises iff H < H̄."""
    (log_prob,) = drawn
    leaf = torch.tensor(log_alpha, dtype=F64, requires_grad=True)
    loss, _ = losses.sac_alpha(leaf, log_prob, wanted, form=form)
    slope = gradient(loss, leaf)
    excess = log_prob.mean() + wanted
    factor = leaf.detach().exp() if form == "alpha" else 1.0
    torch.testing.assert_close(slope, -excess * factor, rtol=1e-9, atol=1e-12)
    entropy = -log_prob.mean()
    if abs(float(excess)) > 1e-9:
        assert (float(-slope) > 0) == (float(entropy) < wanted)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_law_27_the_entropy_aimed_at_counts_the_elements_of_an_action(shape: list[int]) -> None:
    """H̄ = −D for D elements of one action; a share of log n for n discrete actions."""
    elements = len(list(itertools.product(*(range(size) for size in shape))))
    assert losses.sac_target_entropy(shape) == -elements
    discrete = losses.sac_discrete_target_entropy(elements + 1)
    greatest = float(torch.tensor(float(elements + 1), dtype=F64).log())
    assert 0.0 < discrete < greatest + 1e-12


@given(rows("log_prob", "q1", "q2", "target"), st.floats(0.01, 2))
def test_law_28_no_gradient_leaves_its_own_network(drawn: tuple[Tensor, ...], alpha: float) -> None:
    """Law 28: critic loss → target, actor loss → α, alpha loss → actor: exactly nothing."""
    log_prob, q1, q2, target = (x.clone().requires_grad_() for x in drawn)
    q = torch.stack([q1, q2])
    critic_loss, _ = losses.sac_critic(q, target)
    assert torch.autograd.grad(critic_loss, target, allow_unused=True)[0] is None
    log_alpha = torch.tensor(alpha, dtype=F64).log().requires_grad_()
    actor_loss, _ = losses.sac_actor(log_prob, q, log_alpha.exp())
    assert torch.autograd.grad(actor_loss, log_alpha, allow_unused=True)[0] is None
    alpha_loss, _ = losses.sac_alpha(log_alpha, log_prob, -1.0)
    assert torch.autograd.grad(alpha_loss, log_prob, allow_unused=True)[0] is None


@given(rows("q1", "q2", "target"))
def test_law_18_the_critic_regresses_every_member_to_a_constant(
    drawn: tuple[Tensor, ...],
) -> None:
    """L = Σ_k mean (Q_k − y)², gradient 2 (Q_k − y) / N for each member."""
    q = torch.stack(drawn[:2]).requires_grad_()
    loss, metrics = losses.sac_critic(q, drawn[2])
    error = q.detach() - drawn[2]
    torch.testing.assert_close(loss, (error**2).mean(1).sum())
    torch.testing.assert_close(gradient(loss, q), 2 * error / error.shape[1])
    torch.testing.assert_close(metrics["priority"], error.abs().amax(0))


@given(rows("target", "online"), st.sampled_from([0.0, 0.005, 0.5, 1.0]), st.integers(1, 5))
def test_law_29_polyak(drawn: tuple[Tensor, ...], tau: float, n: int) -> None:
    """Law 29: (1−τ)ⁿ t + (1−(1−τ)ⁿ) s after n steps; between both; τ = 0 and 1 bitwise."""
    start, online = drawn
    target = {"w": start, "buffers": {"mean": start}}
    source = {"w": online, "buffers": {"mean": online}}
    for _ in range(n):
        target = optim.polyak(target, source, tau)
    if tau in (0.0, 1.0):
        assert torch.equal(target["w"], online if tau else start)
    keep = (1 - tau) ** n
    torch.testing.assert_close(target["w"], keep * start + (1 - keep) * online)
    low, high = torch.minimum(start, online), torch.maximum(start, online)
    slack = 1e-14 * (low.abs() + high.abs())
    assert bool(((target["w"] >= low - slack) & (target["w"] <= high + slack)).all())
    assert torch.equal(target["buffers"]["mean"], online)


@given(st.integers(1, 6), st.integers(1, 40))
def test_law_29_a_periodic_copy_happens_at_every_nth_call(period: int, calls: int) -> None:
    """Copies at calls N, 2N, 3N, … of the whole run and at no other."""
    old, new = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    copies = [
        k
        for k in range(calls + 1)
        if bool(optim.periodic_update(old, new, torch.tensor(k), period)["w"])
    ]
    assert copies == list(range(period, calls + 1, period))


@given(rows("value", "q"), st.floats(0.05, 0.95))
def test_the_expectile_weighs_underestimates_by_tau(
    drawn: tuple[Tensor, ...], expectile: float
) -> None:
    """IQL: weight τ where Q > V, 1 − τ elsewhere, so a larger τ pulls V up."""
    value, q = drawn
    leaf = value.clone().requires_grad_()
    loss, _ = losses.iql_value(leaf, q.unsqueeze(0), expectile=expectile, reduction="sum")
    error = q - value
    weight = torch.where(error > 0, torch.full_like(error, expectile), 1 - expectile)
    torch.testing.assert_close(loss, (weight * error**2).sum())
    torch.testing.assert_close(gradient(loss, leaf), -2 * weight * error)


@given(rows("q_data"), st.integers(1, 4), st.data())
def test_the_conservative_gap_counts_every_sample_once(
    drawn: tuple[Tensor, ...], samples: int, data: st.DataObject
) -> None:
    """gap = T logsumexp_i(Q_i/T − log p_i) − Q; over all samples, densities not divided by T."""
    (q_data,) = drawn
    batch = len(q_data)
    count = samples * batch
    numbers = st.lists(st.floats(-4, 4), min_size=count, max_size=count)
    q, log_prob = (
        torch.tensor(data.draw(numbers), dtype=F64).reshape(samples, batch) for _ in range(2)
    )
    for temperature in (1.0, 2.0):
        found, _ = losses.cql_penalty(
            q_data.unsqueeze(0), q.unsqueeze(0), log_prob, temperature=temperature
        )
        inside = sum((q[i] / temperature - log_prob[i]).exp() for i in range(samples))
        assert isinstance(inside, Tensor)
        expected = (temperature * inside.log() - q_data).mean()
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@given(rows("a", "b"))
def test_contract_a_column_beside_rows_is_refused(drawn: tuple[Tensor, ...]) -> None:
    """[B] against [B, 1] never becomes [B, B] in silence."""
    a, b = drawn
    for call in (
        lambda: losses.value_loss(a, b.unsqueeze(-1)),
        lambda: losses.a2c(a, b.unsqueeze(-1)),
        lambda: losses.ppo_clip(a, a, b.unsqueeze(-1)),
        lambda: losses.sac_critic(a.unsqueeze(0), b.unsqueeze(-1)),
        lambda: losses.sac_actor(a.unsqueeze(-1), b.unsqueeze(0), 0.1),
    ):
        with pytest.raises(ShapeError):
            call()


@given(st.data(), st.floats(-1.0, 1.0), st.sampled_from([0.1, 0.5]))
def test_smoothing_noise_is_clipped_in_units_of_the_half_range(
    data: st.DataObject, action: float, scale: float
) -> None:
    """a' = clip(a + clip(ε σ h, ±c h), low, high), each row and dimension with noise of its own."""
    noise = torch.tensor(
        data.draw(st.lists(st.floats(-9, 9), min_size=6, max_size=6)), dtype=F64
    ).reshape(3, 2)
    low, high = torch.tensor([-2.0, 0.0], dtype=F64), torch.tensor([2.0, 1.0], dtype=F64)
    half = (high - low) / 2
    start = torch.full((3, 2), action, dtype=F64)
    found = losses.td3_smoothed_action(
        start, noise, low=low, high=high, policy_noise=scale, noise_clip=0.5
    )
    moved = start + (noise * scale * half).clamp(-0.5 * half, 0.5 * half)
    torch.testing.assert_close(found, moved.clamp(low, high), rtol=1e-14, atol=1e-14)
