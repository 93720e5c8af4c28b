"""CQL and IQL: worked examples, enumeration and limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import losses, random
from purerl.errors import ShapeError

F64 = torch.float64


def row(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=F64)


def normal(seed: int, *shape: int) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=F64)


def close(actual: Tensor, expected: Any, rtol: float = 1e-12) -> None:
    expected = torch.as_tensor(expected, dtype=F64)
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def slope(loss: Tensor, leaf: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, leaf)
    return found


# CQL.


def test_the_gap_subtracts_the_value_of_the_action_in_the_data() -> None:
    q, action = row([1, 2, 3], [0, -1, 4]).requires_grad_(), torch.tensor([1, 2])
    loss, metrics = losses.cql_discrete_penalty(q, action)
    close(loss, 0.716175427292, 1e-11)
    close(metrics["gap_mean"], loss)
    close(metrics["q_data_mean"], 3.0)
    one_hot = row([0, 1, 0], [0, 0, 1])
    close(slope(loss, q), (q.softmax(-1) - one_hot) / 2)
    scaled, _ = losses.cql_discrete_penalty(q, action, min_q_weight=0.5)
    close(scaled, 0.5 * loss)


def test_illegal_actions_stay_out_of_the_discrete_gap() -> None:
    legal = torch.tensor([[True, True, False]])
    q = row([1, 2, math.nan])
    loss, _ = losses.cql_discrete_penalty(q.reshape(1, 3), torch.tensor([1]), action_mask=legal)
    close(loss, math.log(math.exp(1) + math.exp(2)) - 2)


def sources() -> tuple[Tensor, Tensor, Tensor]:
    """Return the data's value, the sampled values and their log-densities, of one state."""
    q_data = row([1.1])
    sampled = row(1.0, 2.0, 1.5, 0.5, 0.8, 1.2).reshape(1, 6, 1)
    log_prob = row(math.log(0.5), math.log(0.5), -0.2, -1.0, -0.5, 0.3).reshape(6, 1)
    return q_data, sampled, log_prob


def test_the_temperature_divides_the_values_and_not_the_densities_unless_asked() -> None:
    q_data, sampled, log_prob = sources()
    loss, metrics = losses.cql_penalty(q_data, sampled, log_prob, temperature=2.0)
    close(loss, 4.74842106439, 1e-11)
    close(metrics["gap"], [4.74842106439], 1e-11)
    close(metrics["q_data_mean"], 1.1)
    close(metrics["q_sampled_mean"], 7 / 6)
    scaled, _ = losses.cql_penalty(
        q_data, sampled, log_prob, temperature=2.0, temperature_scales_density=True
    )
    close(scaled, 4.19467092693, 1e-11)
    # at T = 1 the two are one
    both = [
        losses.cql_penalty(q_data, sampled, log_prob, temperature_scales_density=flag)[0]
        for flag in (False, True)
    ]
    assert torch.equal(*both)


def test_one_logsumexp_holds_all_samples_of_a_state() -> None:
    q_data, sampled, log_prob = normal(1, 2, 5), normal(2, 2, 9, 5), normal(3, 9, 5)
    loss, metrics = losses.cql_penalty(q_data, sampled, log_prob, reduction="none")
    expected = torch.zeros(5, dtype=F64)
    for k in range(2):
        for b in range(5):
            total = sum(math.exp(sampled[k, i, b] - log_prob[i, b]) for i in range(9))
            expected[b] += math.log(total) - float(q_data[k, b])
    close(loss, expected)
    close(metrics["gap"].sum(), expected.mean())
    close(metrics["gap_mean"], expected.mean() / 2)
    without, _ = losses.cql_penalty(q_data, sampled, None, reduction="none")
    close(without, (sampled.logsumexp(1) - q_data).sum(0))
    for bad in (log_prob[:8], log_prob[:, :4], log_prob.unsqueeze(0)):
        with pytest.raises(ShapeError, match="log_prob has shape"):
            losses.cql_penalty(q_data, sampled, bad)
    with pytest.raises(
        ShapeError, match=r"q_sampled has shape \[2, 9, 5\], expected \[1, any, 5\]"
    ):
        losses.cql_penalty(q_data[:1], sampled, log_prob)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_by_enumeration_the_importance_weights_make_the_gap_an_integral(temperature: float) -> None:
    # Over a grid of N uniform actions, (1/N) Σ f(a_i)/p is the midpoint rule for the integral of f,
    # exact to 1/N². Here Q(a) = a² in [-2, 2].
    num, log_p = 4000, losses.cql_uniform_log_prob(row(-2), row(2))
    actions = (torch.arange(num, dtype=F64) + 0.5) / num * 4 - 2
    q = actions.square().reshape(1, num, 1)
    gap, _ = losses.cql_penalty(row([0.0]), q, log_p.expand(num, 1), temperature=temperature)
    integral = torch.trapezoid(
        (torch.linspace(-2, 2, 40001, dtype=F64).square() / temperature).exp(), dx=1e-4
    )
    close(gap - temperature * math.log(num), temperature * integral.log(), 1e-6)


def test_the_density_of_a_uniform_action_is_that_of_its_box() -> None:
    close(
        losses.cql_uniform_log_prob(-torch.ones(3, dtype=F64), torch.ones(3, dtype=F64)),
        -3 * math.log(2),
    )
    close(losses.cql_uniform_log_prob(row(0, -2), row(1, 2)), -math.log(4))


def test_the_lagrangian_form_scales_the_penalty_and_steers_its_multiplier() -> None:
    q_data, sampled, log_prob = normal(1, 2, 5), normal(2, 2, 9, 5), normal(3, 9, 5)
    plain, metrics = losses.cql_penalty(q_data, sampled, log_prob)
    gap = metrics["gap"]
    log_alpha_prime = torch.tensor(0.4, dtype=F64, requires_grad=True)
    alpha_prime = losses.cql_alpha_prime(log_alpha_prime)
    options: Any = {"min_q_weight": 0.5, "threshold": 1.0}
    critic, _ = losses.cql_penalty(q_data, sampled, log_prob, alpha_prime=alpha_prime, **options)
    close(critic, math.exp(0.4) * 0.5 * (plain - 2.0))
    assert not critic.requires_grad
    dual, metrics = losses.cql_lagrange(log_alpha_prime, gap.requires_grad_(), **options)
    close(dual, -0.5 * critic)
    close(metrics["alpha_prime"], math.exp(0.4))
    # descending it, the multiplier rises while the gaps exceed the threshold
    assert float(slope(dual, log_alpha_prime)) < 0
    calm, _ = losses.cql_lagrange(log_alpha_prime, gap, threshold=1e3)
    assert float(slope(calm, log_alpha_prime)) > 0
    assert not torch.autograd.grad(
        losses.cql_lagrange(log_alpha_prime, gap, **options)[0], gap, allow_unused=True
    )[0]


def test_the_multiplier_is_bounded() -> None:
    huge = torch.tensor(50.0, dtype=F64, requires_grad=True)
    loss, metrics = losses.cql_lagrange(huge, row(3), threshold=1.0)
    assert float(metrics["alpha_prime"]) == 1e6
    assert float(slope(loss, huge)) == 0.0


def test_members_have_their_own_multipliers() -> None:
    logs, gaps = row(0.0, 1.0, -1.0), normal(1, 3, 2)
    losses_of, _ = torch.vmap(lambda a, g: losses.cql_lagrange(a, g, threshold=0.5))(logs, gaps)
    for m in range(3):
        close(losses_of[m], losses.cql_lagrange(logs[m], gaps[m], threshold=0.5)[0])


def test_the_max_q_backup_takes_the_best_of_the_pessimistic_values() -> None:
    next_q = row([[4], [9]], [[6], [2]])
    end = torch.tensor([False])
    assert torch.equal(losses.cql_target(row(1), next_q, end, gamma=0.5), row(3))
    assert torch.equal(losses.cql_target(row(1), next_q[:, :1], end, gamma=0.5), row(3))


def test_the_first_phase_of_the_actor_clones_the_data() -> None:
    loss, metrics = losses.cql_bc_actor(row(-1, -2), row(-3, -1), 0.5)
    close(loss, (-0.5 + 3 - 1 + 1) / 2)
    close(metrics["entropy"], 1.5)


# IQL.


def test_underestimates_weigh_tau_and_overestimates_1_minus_tau() -> None:
    q, value = row([2, 0], [3, 1]), row(1, 1).requires_grad_()
    per_row, metrics = losses.iql_value(value, q, expectile=0.7, reduction="none")
    close(per_row, [0.7, 0.3])
    close(metrics["advantage_mean"], 0.0)
    loss, _ = losses.iql_value(value, q, expectile=0.7)
    close(slope(loss, value), [-0.7, 0.3])
    close(losses.iql_value(row(0, 0), row([2, -2]), expectile=0.9, reduction="none")[0], [3.6, 0.4])


def test_the_expectile_is_the_mean_at_one_half_and_rises_with_tau() -> None:
    data = normal(1, 50)

    def minimiser(tau: float) -> float:
        low, high = float(data.min()), float(data.max())
        for _ in range(60):
            middle = torch.full((50,), (low + high) / 2, dtype=F64, requires_grad=True)
            loss, _ = losses.iql_value(middle, data.unsqueeze(0), expectile=tau)
            low, high = (
                ((low + high) / 2, high)
                if float(slope(loss, middle).sum()) < 0
                else (low, (low + high) / 2)
            )
        return low

    found = [minimiser(tau) for tau in (0.1, 0.5, 0.7, 0.95)]
    assert found == sorted(found)
    close(torch.tensor(found[1], dtype=F64), data.mean(), 1e-9)
    half, _ = losses.iql_value(data, data.unsqueeze(0) + 2.0, expectile=0.5)
    close(half, 2.0)


def test_advantage_weights_are_capped_and_constant() -> None:
    q, value = row([0.5, 2, -1], [0.5, 3, 0]), torch.zeros(3, dtype=F64)
    log_prob = row(-1, -0.5, -2).requires_grad_()
    loss, metrics = losses.iql_actor(log_prob, q, value)
    weights = row(math.exp(1.5), 100.0, math.exp(-3.0))
    close(loss, (weights * row(1, 0.5, 2)).mean())
    close(slope(loss, log_prob), -weights / 3)
    close(metrics["weight_mean"], weights.mean())
    close(metrics["weight_clip_fraction"], 1 / 3)
    close(metrics["advantage_mean"], 0.5)


def test_an_exploding_weight_is_capped_not_infinite() -> None:
    loss, _ = losses.iql_actor(torch.tensor([-1.0]), torch.tensor([[1e4]]), torch.tensor([0.0]))
    assert float(loss) == 100.0


def test_discrete_actions_are_gathered_first() -> None:
    q, action = normal(1, 2, 4, 3), torch.tensor([2, 0, 1, 1])
    value, taken = normal(2, 4), losses.action_value(q, action)
    close(losses.iql_value(value, taken)[1]["advantage_mean"], (taken.amin(0) - value).mean())
    loss, _ = losses.iql_critic(taken, value)
    close(loss, (taken - value).square().sum(0).mean())
