"""Q-learning by values, categories and quantiles: worked examples and properties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import losses, random, returns
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64
NAN, INF = float("nan"), float("inf")


def row(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=F64)


def flag(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def normal(seed: int, *shape: int) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=F64)


def close(actual: Tensor, expected: Any, rtol: float = 1e-12) -> None:
    expected = torch.as_tensor(expected, dtype=F64)
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


# DQN.

REWARD, TERMINATED = row(1, 0, 2), flag(0, 0, 1)
ONLINE = row([1, 5, 2], [3, 0, 1], [0, 0, 4])
EVALUATED = row([4, 2, 9], [7, 8, 1], [NAN, NAN, NAN])


def test_double_q_learning_selects_online_and_evaluates_by_the_target_network() -> None:
    options: Any = {"gamma": 0.9}
    target = losses.dqn_target(REWARD, EVALUATED, TERMINATED, next_q_select=ONLINE, **options)
    close(target, [2.8, 6.3, 2.0])
    close(losses.dqn_target(REWARD, EVALUATED, TERMINATED, **options), [9.1, 7.2, 2.0])
    q, action = row([1, 2, 0], [6, 0, 0], [0, 0, 2.5]), torch.tensor([1, 0, 2])
    squared, metrics = losses.dqn(q, action, target, kind="l2")
    close(squared, 0.98 / 3)
    close(losses.dqn(q, action, target)[0], 0.49 / 3)
    close(metrics["priority"], [0.8, 0.3, 0.5])
    close(metrics["td_error_max"], 0.8)
    close(metrics["td_error_abs_mean"], 1.6 / 3)
    close(metrics["q_mean"], 10.5 / 3)
    close(metrics["target_mean"], 11.1 / 3)


def test_illegal_actions_are_never_selected_whatever_they_are_worth() -> None:
    legal = flag(1, 0, 0, 0, 1, 1, 0, 0, 0).reshape(3, 3)
    next_q = row([4, NAN, INF], [9, 5, 5], [NAN, NAN, NAN])
    target = losses.dqn_target(REWARD, next_q, TERMINATED, gamma=0.5, next_action_mask=legal)
    assert torch.equal(target, row(3.0, 2.5, 2.0))
    # nothing is legal after the end; before it, the target owns up
    alive = torch.zeros(3, dtype=torch.bool)
    target = losses.dqn_target(REWARD, next_q, alive, gamma=0.5, next_action_mask=legal)
    assert target.isnan().tolist() == [False, False, True]


def test_a_choice_by_nan_is_not_hidden_behind_a_finite_value() -> None:
    online = row([1, NAN, 2], [3, 0, 1], [0, 0, 4])
    target = losses.dqn_target(REWARD, ONLINE, TERMINATED, next_q_select=online)
    assert target.isnan().tolist() == [True, False, False]


def test_of_equal_values_the_first_is_taken() -> None:
    next_q = row([[1, 2, 3, 4]])[0].expand(3, 4)
    select = row([0, 7, 7, 7], [5, 5, 5, 5], [0, 0, 9, 9])
    target = losses.dqn_target(REWARD * 0, next_q, flag(0, 0, 0), gamma=1.0, next_q_select=select)
    assert torch.equal(target, row(2, 1, 3))


def test_the_target_is_the_td0_return_of_the_best_value() -> None:
    reward, next_q = normal(1, 9), normal(2, 9, 4)
    end = random.bernoulli(random.key(3), 0.3, (9,))
    steps = random.randint(random.key(4), (9,), 1, 5)
    ours = losses.dqn_target(reward, next_q, end, gamma=0.97, steps=steps)
    close(ours, returns.td0(reward, next_q.amax(-1), end, gamma=0.97, steps=steps))
    transposed = losses.dqn_target(
        reward.reshape(3, 3), next_q.reshape(3, 3, 4), end.reshape(3, 3), gamma=0.97
    )
    assert transposed.shape == (3, 3)


def test_values_of_actions_are_gathered_under_any_number_of_members() -> None:
    q, action = normal(1, 2, 3, 5, 4), torch.tensor([3, 0, 1, 2, 2])
    found = losses.action_value(q, action)
    for i in range(5):
        assert torch.equal(found[:, :, i], q[:, :, i, action[i]])
    with pytest.raises(ShapeError, match=r"action has shape \[5, 1\], expected \[3, 5\]"):
        losses.action_value(q, action.unsqueeze(-1))
    with pytest.raises(ShapeError, match=r"action has dtype torch\.float32, expected an integer"):
        losses.action_value(q, action.float())


def test_only_the_action_taken_gets_a_gradient() -> None:
    q = normal(1, 3, 4).requires_grad_()
    loss, _ = losses.dqn(q, torch.tensor([3, 0, 1]), normal(2, 3), kind="l2")
    (slope,) = torch.autograd.grad(loss, q)
    assert slope.ne(0).nonzero().tolist() == [[0, 3], [1, 0], [2, 1]]


def test_messages_name_the_argument_and_the_rows() -> None:
    with pytest.raises(
        ShapeError, match=r"q has shape \[3\], expected \[\*B, any\] with \*B = \[3\]"
    ):
        losses.dqn(row(1, 2, 3), torch.tensor([0, 0, 0]), row(1, 2, 3))
    with pytest.raises(ShapeError, match=r"action has shape \[3, 1\], expected \[3\] as target"):
        losses.dqn(ONLINE, torch.tensor([[0], [0], [0]]), row(1, 2, 3))
    with pytest.raises(ShapeError, match=r"next_action_mask has shape \[3\], expected \[3, 3\]"):
        losses.dqn_target(REWARD, ONLINE, TERMINATED, next_action_mask=TERMINATED)
    with pytest.raises(ShapeError, match=r"terminated has dtype torch\.float64"):
        losses.dqn_target(REWARD, ONLINE, TERMINATED.double())
    with pytest.raises(ShapeError, match=r"steps has dtype torch\.float64, expected an integer"):
        losses.dqn_target(REWARD, ONLINE, TERMINATED, steps=REWARD)
    with pytest.raises(ConfigError, match="kind is 'hubert'; did you mean huber"):
        losses.dqn(ONLINE, torch.tensor([0, 0, 0]), row(1, 2, 3), kind="hubert")


# C51.


def test_an_atom_between_two_others_splits_its_mass_and_an_exact_hit_keeps_it() -> None:
    only = row([[0, 1, 0]]).log()
    options: Any = {"gamma": 1.0, "v_min": -1.0, "v_max": 1.0}
    for reward, mass in [(0.5, [0, 0.5, 0.5]), (1.0, [0, 0, 1]), (-0.25, [0.25, 0.75, 0])]:
        found = losses.c51_target(row(reward), only, flag(0), **options)
        assert torch.equal(found, row(mass))
    for reward, mass in [(9.0, [0, 0, 1]), (-9.0, [1, 0, 0]), (0.5, [0, 0.5, 0.5])]:
        garbage = torch.full((1, 1, 3), NAN, dtype=F64)
        found = losses.c51_target(row(reward), garbage, flag(1), **options)
        assert torch.equal(found, row(mass))


@pytest.mark.parametrize("num_atoms", [2, 21, 51, 101])
def test_the_projection_keeps_mass_and_inside_the_support_also_the_mean(num_atoms: int) -> None:
    reward, logits = normal(1, 8), normal(2, 8, 3, num_atoms)
    options: Any = {"v_min": -30.0, "v_max": 30.0}
    target = losses.c51_target(reward, logits, torch.zeros(8, dtype=torch.bool), **options)
    close(target.sum(-1), torch.ones(8, dtype=F64))
    assert bool((target >= 0).all())
    value = losses.c51_value(logits, **options)
    atoms = torch.linspace(-30.0, 30.0, num_atoms, dtype=F64)
    close(value, (logits.softmax(-1) * atoms).sum(-1))
    # with two atoms the ends move beyond the support and are clipped
    if num_atoms > 2:
        narrow = logits.detach().clone()
        narrow[..., [0, -1]] = -INF
        moved = losses.c51_target(reward * 0.1, narrow, torch.zeros(8, dtype=torch.bool), **options)
        best = losses.c51_value(narrow, **options).amax(-1)
        close((moved * atoms).sum(-1), 0.1 * reward + 0.99 * best, 1e-11)


def test_the_target_distribution_is_that_of_the_action_with_the_greatest_mean() -> None:
    safe, risky = row(0, 1, 0).log(), row(0.4, 0, 0.6).log()
    logits = torch.stack([safe, risky]).unsqueeze(0)
    options: Any = {"gamma": 1.0, "v_min": -1.0, "v_max": 1.0}
    close(losses.c51_target(row(0.0), logits, flag(0), **options), [[0.4, 0.0, 0.6]])
    illegal = flag(1, 0).unsqueeze(0)
    found = losses.c51_target(row(0.0), logits, flag(0), next_action_mask=illegal, **options)
    close(found, [[0.0, 1.0, 0.0]])
    # double: chosen by one network, evaluated by the other
    select = torch.stack([row(0, 0, 1), row(1, 0, 0)]).unsqueeze(0)
    found = losses.c51_target(row(0.0), logits, flag(0), next_logits_select=select, **options)
    close(found, [[0.0, 1.0, 0.0]])


def test_c51_is_a_cross_entropy_whose_excess_over_the_entropy_is_the_divergence() -> None:
    target = normal(1, 4, 6).softmax(-1)
    logits, action = normal(2, 4, 3, 6), torch.tensor([2, 0, 1, 1])
    loss, metrics = losses.c51(logits, action, target, reduction="none")
    chosen = logits[torch.arange(4), action].log_softmax(-1)
    close(loss, -(target * chosen).sum(-1))
    close(metrics["kl"], (target * (target.log() - chosen)).sum(-1).mean())
    assert torch.equal(metrics["priority"], loss)
    perfect = target.log().unsqueeze(1).expand(4, 3, 6)
    close(losses.c51(perfect, action, target)[1]["kl"] + 1.0, 1.0)


def test_an_atom_that_is_neither_likely_nor_wanted_costs_nothing() -> None:
    logits = row([[0, -INF, 0]]).requires_grad_()
    loss, _ = losses.c51(logits, torch.tensor([0]), row([0.5, 0, 0.5]))
    (slope,) = torch.autograd.grad(loss, logits)
    close(loss, math.log(2))
    assert torch.equal(slope, torch.zeros_like(slope))
    with pytest.raises(ShapeError, match=r"target has shape \[1, 4\], expected \[1, 3\] as logits"):
        losses.c51(logits, torch.tensor([0]), torch.ones(1, 4, dtype=F64))
    with pytest.raises(ShapeError, match="have 1 atom"):
        losses.c51_value(torch.zeros(3, 1))


# QR-DQN.


def test_the_quantile_loss_by_its_double_sum() -> None:
    theta, y = normal(1, 2, 5), normal(2, 2, 3)
    for kappa, divide, source in [(1.0, False, "sum"), (0.3, True, "mean"), (0.0, False, "sum")]:
        expected = torch.zeros(2, dtype=F64)
        for b in range(2):
            for i in range(5):
                tau = (2 * i + 1) / 10
                for j in range(3):
                    u = float(y[b, j] - theta[b, i])
                    h = abs(u)
                    if kappa > 0:
                        h = 0.5 * u * u if h <= kappa else kappa * (h - 0.5 * kappa)
                    h = h / kappa if divide else h
                    expected[b] += abs(tau - (u < 0)) * h / 3 / (5 if source == "mean" else 1)
        how: Any = source
        loss, metrics = losses.quantile(
            theta.unsqueeze(1),
            torch.tensor([0, 0]),
            y,
            kappa=kappa,
            divide_by_kappa=divide,
            reduction_over_source=how,
            reduction="none",
        )
        close(loss, expected)
        assert torch.equal(metrics["priority"], loss)
        close(metrics["q_mean"], theta.mean())
        close(metrics["target_mean"], y.mean())


def test_the_minimum_of_the_quantile_loss_is_at_the_quantiles() -> None:
    y = torch.arange(100, dtype=F64).unsqueeze(0)
    theta = row([12.4, 37.4, 62.4, 87.4]).reshape(1, 1, 4).requires_grad_()
    loss, _ = losses.quantile(theta, torch.tensor([0]), y, kappa=0.0)
    (slope,) = torch.autograd.grad(loss, theta)
    # of 100 equal masses, 13, 38, 63 and 88 lie below: within half a mass of 1/8, 3/8, 5/8, 7/8
    assert bool((slope.abs() <= 0.00501).all())


def test_quantile_targets_move_every_quantile_of_the_best_action() -> None:
    theta = row([[0, 2], [1, 5]])
    target = losses.quantile_target(row(1.0), theta, flag(0), gamma=0.5)
    assert torch.equal(target, row([1.5, 3.5]))
    select = row([[9, 9, 9], [0, 0, 0]])
    target = losses.quantile_target(
        row(1.0), theta, flag(0), gamma=0.5, next_quantiles_select=select
    )
    assert torch.equal(target, row([1.0, 2.0]))
    assert torch.equal(losses.quantile_target(row(1.0), theta * NAN, flag(1)), row([1.0, 1.0]))
