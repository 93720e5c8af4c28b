"""Law 1 on real numbers: every rounding accounted for, in float64 and float32."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, target
from hypothesis import strategies as st
from property_tests.strategies import Trajectory, real_trajectories
from torch import Tensor

from purerl import returns

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
weights = st.floats(0.0, 1.0, width=32)


def bound(x: Trajectory, decay: Tensor, scale: Tensor, extra: float) -> Tensor:
    """u Σ_k (3k + 4 + 2b) (Π decay) s_{t+k} up to the first cut: the computed bound of law 1."""
    steps = len(scale)
    block = math.ceil(math.log2(max(steps, 2)))
    total = torch.zeros_like(scale)
    for t in range(steps):
        weight, alive = torch.ones_like(scale[0]), torch.ones_like(x.done[0])
        for k in range(t, steps):
            roundings = (3.0 + extra) * (k - t) + 4.0 + 2.0 * block + extra
            total[t] += torch.where(alive, roundings * weight * scale[k], 0.0)
            alive = alive & ~x.done[k]
            weight = weight * decay[k]
    return total


def by_definition(x: Trajectory, gamma: float, decay: Tensor, weight: Tensor) -> Tensor:
    """Σ_k (Π_{j<k} decay (1−d)) weight_k δ_k in float64, forward from every row."""
    wide = Trajectory(*(f.double() if f.is_floating_point() else f for f in x))
    ahead = torch.where(wide.terminated, 0.0, wide.next_value)
    delta = weight * (wide.reward + gamma * ahead - wide.value)
    total = torch.zeros_like(delta)
    for t in range(len(delta)):
        factor, alive = torch.ones_like(delta[0]), torch.ones_like(x.done[0])
        for k in range(t, len(delta)):
            total[t] += torch.where(alive, factor * delta[k], 0.0)
            alive = alive & ~x.done[k]
            factor = factor * decay[k]
    return total


def size(x: Trajectory, gamma: float) -> Tensor:
    ahead = torch.where(x.terminated, 0.0, x.next_value.abs().double())
    return x.reward.abs().double() + gamma * ahead + x.value.abs().double()


def within(error: Tensor, limit: Tensor) -> None:
    target(float((error / limit.clamp(min=1e-300)).max()))
    assert bool((error <= limit).all())


@pytest.mark.parametrize("dtype", UNIT)
@given(data=st.data(), gamma=weights, lmbda=weights)
def test_law_1_gae_is_its_definition_to_the_last_rounding(
    dtype: torch.dtype, data: st.DataObject, gamma: float, lmbda: float
) -> None:
    """Law 1: abs(A − Σ (γλ)^k δ) ≤ u Σ (3k + 4 + 2b) (γλ)^k s_{t+k}."""
    x = data.draw(real_trajectories(dtype))
    found = returns.gae(*x, gamma=gamma, lmbda=lmbda).advantage
    decay = torch.full_like(x.reward, gamma * lmbda, dtype=torch.float64)
    expected = by_definition(x, gamma, decay, torch.ones_like(decay))
    limit = UNIT[dtype] * bound(x, decay, size(x, gamma), 0.0)
    within((found.double() - expected).abs(), limit + UNIT[dtype] * expected.abs())


@pytest.mark.parametrize("dtype", UNIT)
@given(data=st.data(), gamma=weights, lmbda=weights)
def test_law_1_vtrace_is_its_definition_to_the_last_rounding(
    dtype: torch.dtype, data: st.DataObject, gamma: float, lmbda: float
) -> None:
    """Law 1 for V-trace: the traces are products of clipped ratios, each with an exp of its own."""
    x = data.draw(real_trajectories(dtype))
    log_ratio = data.draw(real_trajectories(dtype, magnitude=3.0, like=x)).reward
    result = returns.vtrace(log_ratio, torch.zeros_like(log_ratio), *x, gamma=gamma, lmbda=lmbda)
    ratio = log_ratio.double().exp()
    clipped = ratio.clamp(max=1.0)
    decay = gamma * lmbda * clipped
    expected = by_definition(x, gamma, decay, clipped)
    # an exp is right to an ulp, and its argument to half of one: abs(log ρ) u relative to ρ
    slack = 4.0 + float(log_ratio.abs().max())
    limit = UNIT[dtype] * bound(x, decay, clipped * size(x, gamma), slack)
    error = (result.value_target.double() - x.value.double() - expected).abs()
    within(error, limit + UNIT[dtype] * (expected.abs() + 2 * x.value.abs().double()))


@pytest.mark.parametrize("dtype", UNIT)
@given(data=st.data(), gamma=weights, lmbda=weights)
def test_law_1_the_lambda_return_is_its_definition_to_the_last_rounding(
    dtype: torch.dtype, data: st.DataObject, gamma: float, lmbda: float
) -> None:
    """G_t = r_t + γ ((1−λ) v' + λ G_{t+1}): the sum of γλ-discounted rows with v'(1−λ) in each."""
    x = data.draw(real_trajectories(dtype))
    found = returns.td_lambda(
        x.reward, x.next_value, x.terminated, x.truncated, gamma=gamma, lmbda=lmbda
    )
    steps = len(x.reward)
    last = x.done | (torch.arange(steps) == steps - 1)[:, None]
    # a row with share 1 of the bootstrap where the trace ends, (1 − λ) elsewhere
    one = torch.ones_like(x.reward, dtype=torch.float64)
    share = torch.where(last, one, one - lmbda)
    rows = x._replace(value=torch.zeros_like(x.value), next_value=x.next_value)
    decay = torch.full_like(x.reward, gamma * lmbda, dtype=torch.float64)
    ahead = torch.where(x.terminated, torch.zeros_like(one), x.next_value.double())
    flat = rows._replace(
        reward=x.reward.double() + gamma * share * ahead,
        next_value=torch.zeros_like(ahead),
        value=torch.zeros_like(ahead),
    )
    expected = by_definition(flat, 0.0, decay, torch.ones_like(decay))
    limit = UNIT[dtype] * bound(x, decay, size(rows, gamma), 1.0)
    within((found.double() - expected).abs(), limit + UNIT[dtype] * expected.abs())
