"""Laws of the value estimators, exact on dyadic numbers unless a bound is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, note
from hypothesis import strategies as st
from property_tests.strategies import Trajectory, halves, trajectories
from torch import Tensor

from purerl import returns


def advantage(x: Trajectory, gamma: float, lmbda: float, **options: Any) -> Tensor:
    return returns.gae(*x, gamma=gamma, lmbda=lmbda, **options).advantage


def delta(x: Trajectory, gamma: float) -> Tensor:
    ahead = torch.where(x.terminated, torch.zeros_like(x.value), x.next_value)
    return x.reward + gamma * ahead - x.value


@given(trajectories(), halves, halves)
def test_law_1_gae_is_the_discounted_sum_of_the_errors_before_the_cut(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 1: A_t = Σ_k (γλ)^k Π_{j<k} (1 − d_{t+j}) δ_{t+k}, by a forward double sum."""
    error, steps = delta(x, gamma), len(x.reward)
    expected = torch.zeros_like(error)
    for t in range(steps):
        alive = torch.ones_like(error[0])
        for k in range(steps - t):
            expected[t] += (gamma * lmbda) ** k * alive * error[t + k]
            alive = alive * ~x.done[t + k]
    found = advantage(x, gamma, lmbda)
    note(f"{found} {expected}")
    assert torch.equal(found, expected)


@given(trajectories(), halves)
def test_law_2_without_a_trace_the_advantage_is_the_error(x: Trajectory, gamma: float) -> None:
    """Law 2: λ = 0 gives A_t = δ_t, bitwise."""
    assert torch.equal(advantage(x, gamma, 0.0), delta(x, gamma))


@given(trajectories(consistent=True), halves)
def test_law_3_a_full_trace_is_the_return_with_its_bootstrap(x: Trajectory, gamma: float) -> None:
    """Law 3: λ = 1 gives Σ γ^{k−t} r_k + γ^{e−t+1} (1 − e_e) v'_e − v_t up to the first done e."""
    steps, batch = x.reward.shape
    expected = torch.zeros_like(x.reward)
    for b in range(batch):
        for t in range(steps):
            end = next((k for k in range(t, steps) if x.done[k, b]), steps - 1)
            total = sum(gamma ** (k - t) * x.reward[k, b] for k in range(t, end + 1))
            if not x.terminated[end, b]:
                total += gamma ** (end - t + 1) * x.next_value[end, b]
            expected[t, b] = total - x.value[t, b]
    assert torch.equal(advantage(x, gamma, 1.0), expected)


@given(trajectories(), halves, halves, st.data())
def test_law_5_nothing_beyond_the_first_cut_reaches_back(
    x: Trajectory, gamma: float, lmbda: float, data: st.DataObject
) -> None:
    """Law 5: replacing what comes after a cut by NaN leaves A_t, bitwise."""
    t = data.draw(st.integers(0, len(x.reward) - 1))
    beyond = (x.done[t:].cumsum(0) - x.done[t:].long()) > 0
    beyond = torch.cat([torch.zeros(t, x.done.shape[1], dtype=torch.bool), beyond])
    nan = torch.full_like(x.reward, torch.nan)
    garbage = x._replace(
        reward=torch.where(beyond, nan, x.reward),
        value=torch.where(beyond, nan, x.value),
        next_value=torch.where(beyond | x.terminated, nan, x.next_value),
    )
    ours, theirs = advantage(x, gamma, lmbda), advantage(garbage, gamma, lmbda)
    assert torch.equal(ours[t], theirs[t])


@given(trajectories(), halves, halves, st.data())
def test_law_6_a_carry_is_the_only_channel_between_chunks(
    x: Trajectory, gamma: float, lmbda: float, data: st.DataObject
) -> None:
    """Law 6: A(x[0:c]; carry = A_c of the rest) = A(x)[0:c]."""
    c = data.draw(st.integers(1, len(x.reward)))
    whole = advantage(x, gamma, lmbda)
    carry = whole[c] if c < len(x.reward) else None
    head = Trajectory(*(field[:c] for field in x))
    assert torch.equal(advantage(head, gamma, lmbda, carry=carry), whole[:c])


@given(trajectories(), halves, halves)
def test_law_7_a_truncation_is_a_termination_that_pays_out_its_bootstrap(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 7: (truncated, r, v') and (terminated, r + γ v', anything) give one advantage."""
    cut = x.truncated & ~x.terminated
    paid = x._replace(
        reward=torch.where(cut, x.reward + gamma * x.next_value, x.reward),
        next_value=torch.where(cut, torch.nan, x.next_value),
        terminated=x.terminated | cut,
    )
    assert torch.equal(advantage(x, gamma, lmbda), advantage(paid, gamma, lmbda))


@given(trajectories(), halves, halves, st.sampled_from([-2.0, 0.5, 4.0]))
def test_law_8_advantages_are_linear(
    x: Trajectory, gamma: float, lmbda: float, factor: float
) -> None:
    """Law 8: A(a r, a v, a v') = a A(r, v, v')."""
    scaled = x._replace(
        reward=factor * x.reward, value=factor * x.value, next_value=factor * x.next_value
    )
    assert torch.equal(advantage(scaled, gamma, lmbda), factor * advantage(x, gamma, lmbda))


@given(trajectories(), trajectories(), halves, halves)
def test_law_10_shaping_by_a_potential_changes_nothing(
    x: Trajectory, other: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 10: r + γ(1−e)P' − P, v − P, v' − P' leaves A."""
    steps = min(len(x.reward), len(other.reward))
    width = min(x.reward.shape[1], other.reward.shape[1])
    x = Trajectory(*(field[:steps, :width] for field in x))
    here, there = other.value[:steps, :width], other.next_value[:steps, :width]
    paid = torch.where(x.terminated, torch.zeros_like(there), there)
    shaped = x._replace(
        reward=x.reward + gamma * paid - here,
        value=x.value - here,
        next_value=x.next_value - there,
    )
    assert torch.equal(advantage(shaped, gamma, lmbda), advantage(x, gamma, lmbda))


@given(trajectories(), halves, halves)
def test_law_14_vtrace_on_policy_is_gae(x: Trajectory, gamma: float, lmbda: float) -> None:
    """Law 14: ρ = 1 and clips ≥ 1 give vs = v + A^λ."""
    log_prob = torch.zeros_like(x.reward)
    result = returns.vtrace(log_prob, log_prob, *x, gamma=gamma, lmbda=lmbda)
    assert torch.equal(result.value_target, x.value + advantage(x, gamma, lmbda))


@given(trajectories(), halves, halves)
def test_law_15_a_policy_that_never_acts_so_keeps_its_value(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 15: ρ = 0 gives vs = v."""
    never = torch.full_like(x.reward, -torch.inf)
    result = returns.vtrace(never, torch.zeros_like(never), *x, gamma=gamma, lmbda=lmbda)
    assert torch.equal(result.value_target, x.value)


@given(trajectories(), halves, halves)
def test_law_16_a_batch_is_the_stack_of_its_columns(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """Law 16: f on [T, B] = stack of f on [T] columns = vmap(f), bitwise."""
    whole = advantage(x, gamma, lmbda)
    columns = [
        advantage(Trajectory(*(field[:, b] for field in x)), gamma, lmbda)
        for b in range(x.reward.shape[1])
    ]
    mapped = torch.vmap(
        lambda *fields: advantage(Trajectory(*fields), gamma, lmbda), in_dims=1, out_dims=1
    )(*x)
    assert torch.equal(torch.stack(columns, 1), whole)
    assert torch.equal(mapped, whole)


@given(trajectories(), halves, halves, st.integers(1, 3))
def test_law_17_padding_changes_no_valid_row(
    x: Trajectory, gamma: float, lmbda: float, more: int
) -> None:
    """Law 17: appended invalid rows of NaN change nothing, and are 0 themselves."""
    steps, batch = x.reward.shape
    nan = torch.full((more, batch), torch.nan, dtype=torch.float64)
    off = torch.zeros(more, batch, dtype=torch.bool)
    padded = Trajectory(
        *(torch.cat([field, off if field.dtype is torch.bool else nan]) for field in x)
    )
    mask = torch.cat([~off.new_zeros(steps, batch), off])
    found = advantage(padded, gamma, lmbda, mask=mask)
    assert torch.equal(found[:steps], advantage(x, gamma, lmbda))
    assert torch.equal(found[steps:], torch.zeros_like(nan))


@given(trajectories(consistent=True), halves, halves)
def test_td_lambda_is_gae_plus_value_where_the_values_agree(
    x: Trajectory, gamma: float, lmbda: float
) -> None:
    """TD(λ) target = A + v if v'_t = v_{t+1} wherever no episode ends."""
    target = returns.td_lambda(
        x.reward, x.next_value, x.terminated, x.truncated, gamma=gamma, lmbda=lmbda
    )
    assert torch.equal(target, advantage(x, gamma, lmbda) + x.value)


@pytest.mark.parametrize("name", ["td0", "td1"])
@given(x=trajectories(), gamma=halves)
def test_td_0_and_td_1_are_the_ends_of_td_lambda(x: Trajectory, gamma: float, name: str) -> None:
    """TD(λ) with λ = 0 is TD(0), with λ = 1 is TD(1)."""
    fields = (x.reward, x.next_value, x.terminated, x.truncated)
    lmbda = 0.0 if name == "td0" else 1.0
    expected = returns.td_lambda(*fields, gamma=gamma, lmbda=lmbda)
    assert torch.equal(getattr(returns, name)(*fields, gamma=gamma), expected)


@given(trajectories(), halves)
def test_law_18_a_target_carries_no_gradient(x: Trajectory, gamma: float) -> None:
    """Law 18: ∂target/∂θ = 0 for every critic target."""
    leaf = x.next_value.clone().requires_grad_()
    result = returns.gae(*x._replace(next_value=leaf), gamma=gamma, lmbda=0.5)
    assert not result.value_target.requires_grad
