"""DDPG, TD3, SAC and REDQ: worked examples, laws 26 to 28."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import distributions, losses, random, returns
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64
NAN = float("nan")


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


def slopes(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


# DDPG and TD3.


def test_all_deterministic_targets_are_td0_returns_of_their_bootstrap() -> None:
    reward, q = normal(1, 9), normal(2, 3, 2, 9)
    end = random.bernoulli(random.key(3), 0.3, (9,))
    steps = random.randint(random.key(4), (9,), 1, 5)
    options: Any = {"gamma": 0.97, "steps": steps}
    td0 = {"gamma": 0.97, "steps": steps}
    close(
        losses.ddpg_target(reward, q[0, 0], end, **options),
        returns.td0(reward, q[0, 0], end, **td0),
    )
    close(
        losses.td3_target(reward, q[0], end, **options),
        returns.td0(reward, q[0].amin(0), end, **td0),
    )
    best = q.amin(0).amax(0)
    close(losses.cql_target(reward, q, end, **options), returns.td0(reward, best, end, **td0))
    close(
        losses.iql_target(reward, q[0, 0], end, gamma=0.5),
        returns.td0(reward, q[0, 0], end, gamma=0.5),
    )


def test_the_smoothing_noise_is_clipped_and_scaled_to_the_range_of_the_action() -> None:
    action, noise = row([0.1], [-0.3]), row([10.0], [-10.0])
    close(losses.td3_smoothed_action(action, noise, low=row(-2), high=row(2)), [[1.1], [-1.3]])
    absolute = losses.td3_smoothed_action(action, noise, low=-2.0, high=2.0, noise_scale="absolute")
    close(absolute, [[0.6], [-0.8]])
    # inside the clip, and stopped at each bound on its own
    small = losses.td3_smoothed_action(
        row([0.0, 0.95]), row([1.0, 2.0]), low=row(-1, -1), high=row(3, 1)
    )
    close(small, [[0.4, 1.0]])
    with pytest.raises(ShapeError, match=r"low has shape \[3\], expected \[\] or \[1\]"):
        losses.td3_smoothed_action(action, noise, low=torch.zeros(3))
    with pytest.raises(ShapeError, match=r"noise has shape \[1\], expected \[2, 1\]"):
        losses.td3_smoothed_action(action, noise[0])
    unknown: Any = "relative"
    with pytest.raises(ConfigError, match="noise_scale is 'relative'"):
        losses.td3_smoothed_action(action, noise, noise_scale=unknown)


def test_the_smoothed_action_is_a_constant_and_compiles_under_vmap() -> None:
    action, noise = normal(1, 3, 4, 2).requires_grad_(), normal(2, 3, 4, 2)
    sigma = row(0.1, 0.2, 0.3)

    def smooth(a: Tensor, e: Tensor, s: Tensor) -> Tensor:
        return losses.td3_smoothed_action(a, e, policy_noise=s, low=-0.5, high=0.5)

    together = torch.vmap(smooth)(action, noise, sigma)
    assert not together.requires_grad
    for m in range(3):
        assert torch.equal(together[m], smooth(action[m], noise[m], sigma[m]))
    compiled = torch.compile(torch.vmap(smooth), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(action, noise, sigma), together)
    halves = smooth(action.to(torch.bfloat16), noise.to(torch.bfloat16), torch.tensor(0.2))
    assert halves.dtype is torch.bfloat16


def test_the_critics_are_summed_and_the_priority_is_their_largest_error() -> None:
    q, target = row([1, 2], [4, 2]), row(3, 0)
    loss, metrics = losses.td3_critic(q, target, reduction="none")
    close(loss, [4 + 1, 4 + 4])
    close(metrics["priority"], [2, 2])
    close(metrics["q_min_mean"], 1.5)
    close(metrics["q_mean"], 9 / 4)
    mean, _ = losses.sac_critic(q, target, critic_sum="mean")
    close(mean, 13 / 4)
    huber, _ = losses.sac_critic(q, target, kind="huber", reduction="none")
    close(huber, [1.5 + 0.5, 1.5 + 1.5])


def test_the_actor_climbs_the_first_critic_or_as_told() -> None:
    q = row([1, 3], [0, 5])
    for how, expected in [("first", -2.0), ("mean", -2.25), ("min", -1.5)]:
        choice: Any = how
        close(losses.td3_actor(q, critic_reduce=choice)[0], expected)
    close(losses.ddpg_actor(q[0])[0], -2.0)
    choice = "max"
    with pytest.raises(ConfigError, match="critic_reduce is 'max'"):
        losses.td3_actor(q, critic_reduce=choice)


def test_td3_bc_weighs_by_the_constant_size_of_the_values() -> None:
    q, policy, data = row(1, -3), row([1, 0], [0, 0]), row([0, 0], [0, 2])
    live, action = q.clone().requires_grad_(), policy.clone().requires_grad_()
    loss, metrics = losses.td3_bc_actor(live, action, data)
    # lambda = 2.5 / 2; the cloning term averages (1, 0, 0, 4) over rows and dimensions
    close(loss, 1.25 + 1.25)
    close(metrics["lambda"], 1.25)
    close(metrics["loss_bc"], 1.25)
    by_q, by_action = slopes(loss, live, action)
    close(by_q, [-1.25 / 2] * 2)
    close(by_action, [[0.5, 0], [0, -1]])
    assert float(losses.td3_bc_actor(0 * q, policy, data)[1]["lambda"]) == 0.0
    mask = flag(1, 0)
    close(losses.td3_bc_actor(q, policy, data, mask=mask)[1]["lambda"], 2.5)


# SAC.


def test_the_entropy_term_sits_inside_the_mask_of_termination_and_truncation_bootstraps() -> None:
    q = row([5, 5], [5, 5])
    target = losses.sac_target(row(1, 1), q, row(-3, -3), 0.2, flag(1, 0))
    close(target, [1.0, 6.544])
    # reward 2, gamma 1/2, Q' = (3, 5), alpha 1/2, log pi = -1
    for end, expected in [(0, 3.75), (1, 2.0)]:
        target = losses.sac_target(row(2), row([3], [5]), row(-1), 0.5, flag(end), gamma=0.5)
        assert torch.equal(target, row(expected))


def test_a_terminal_successor_may_be_nan_everywhere() -> None:
    q = row([NAN, 2], [NAN, 3])
    target = losses.sac_target(row(1, 0.5), q, row(NAN, -1), 0.2, flag(1, 0), gamma=0.9)
    close(target, [1.0, 2.48])


def test_law_26_equal_critics_count_once_and_the_target_rises_with_each() -> None:
    reward, q, log_prob = normal(1, 9), normal(2, 3, 9), normal(3, 9)
    end = random.bernoulli(random.key(4), 0.3, (9,))

    def target(values: Tensor) -> Tensor:
        return losses.sac_target(reward, values, log_prob, 0.3, end, gamma=0.9)

    assert torch.equal(target(q[:1].expand(3, 9)), target(q[:1]))
    by_hand = reward + 0.9 * torch.where(end, 0.0, q.amin(0) - 0.3 * log_prob)
    close(target(q), by_hand)
    for k in range(3):
        raised = q.clone()
        raised[k] += 0.7
        assert bool((target(raised) >= target(q)).all())
    mean = losses.sac_target(reward, q, log_prob, 0.3, end, gamma=0.9, critic_reduce="mean")
    close(mean, reward + 0.9 * torch.where(end, 0.0, q.mean(0) - 0.3 * log_prob))


def test_a_column_against_a_row_never_makes_a_square() -> None:
    log_prob, q = row(1, 2, 3), row([10, 20, 60], [10, 20, 60])
    close(losses.sac_actor(log_prob, q, 1.0)[0], -28.0)
    assert losses.sac_actor(log_prob, q, 1.0, reduction="none")[0].shape == (3,)
    with pytest.raises(ShapeError, match=r"q has shape \[2, 3\], expected \[members, \*B\] with"):
        losses.sac_actor(log_prob.unsqueeze(-1), q, 1.0)
    with pytest.raises(ShapeError, match=r"next_log_prob has shape \[3, 1\], expected \[3\]"):
        losses.sac_target(log_prob, q, log_prob.unsqueeze(-1), 1.0, flag(0, 0, 0))
    with pytest.raises(ShapeError, match=r"alpha has shape \[1\], expected \[\]"):
        losses.sac_actor(log_prob, q, torch.ones(1))


def test_law_28_the_actor_holds_the_temperature_and_the_critic_its_target() -> None:
    log_alpha = torch.zeros((), dtype=F64, requires_grad=True)
    log_prob, q = normal(1, 4).requires_grad_(), normal(2, 2, 4).requires_grad_()
    loss, _ = losses.sac_actor(log_prob, q, log_alpha.exp())
    by_alpha, by_log_prob = slopes(loss, log_alpha, log_prob)
    assert float(by_alpha) == 0.0
    close(by_log_prob, [0.25] * 4)
    end = torch.zeros(4, dtype=torch.bool)
    target = losses.sac_target(normal(3, 4), q, log_prob, log_alpha.exp(), end)
    assert not target.requires_grad
    loss, _ = losses.sac_alpha(log_alpha, log_prob, -1.0)
    assert torch.equal(slopes(loss, log_prob)[0], torch.zeros(4, dtype=F64))


@pytest.mark.parametrize("log_alpha", [0.0, -1.6094379124341, -5.0])
def test_law_27_both_forms_of_the_temperature_loss(log_alpha: float) -> None:
    leaf = torch.tensor(log_alpha, dtype=F64, requires_grad=True)
    log_prob, excess = row(-1, -3), -4.0
    loss, metrics = losses.sac_alpha(leaf, log_prob, -2.0)
    close(loss, -log_alpha * excess)
    close(slopes(loss, leaf)[0], -excess)
    close(metrics["alpha"], math.exp(log_alpha))
    close(metrics["entropy"], 2.0)
    loss, _ = losses.sac_alpha(leaf, log_prob, -2.0, form="alpha")
    close(loss, -math.exp(log_alpha) * excess)
    close(slopes(loss, leaf)[0], -math.exp(log_alpha) * excess)


def test_law_27_alpha_rises_iff_the_entropy_is_below_its_target() -> None:
    leaf = torch.tensor(0.3, dtype=F64, requires_grad=True)
    for form in ("log", "alpha"):
        for entropy, sign in [(-2.5, -1.0), (-2.0, 0.0), (-1.5, 1.0)]:
            loss, _ = losses.sac_alpha(leaf, row(-entropy, -entropy), -2.0, form=form)
            assert torch.equal(slopes(loss, leaf)[0].sign(), torch.tensor(sign, dtype=F64))


def test_several_temperatures_have_one_loss_each() -> None:
    loss, _ = losses.sac_alpha(row(0.0, -1.6094379124341, -5.0), row(-1, -3), -2.0)
    close(loss, [0.0, -6.43775164973640, -20.0], 1e-12)
    with pytest.raises(ShapeError, match=r"log_alpha has shape \[2\], expected \[\] with"):
        losses.sac_alpha(row(0, 0), row(-1, -3), -2.0, reduction="none")
    unknown: Any = "exp"
    with pytest.raises(ConfigError, match="form is 'exp'"):
        losses.sac_alpha(row(0), row(-1), -2.0, form=unknown)


def test_each_bound_of_alpha_works_alone() -> None:
    log_alpha = row(-9, 0, 9)
    assert torch.equal(losses.project_log_alpha(log_alpha), log_alpha)
    close(losses.project_log_alpha(log_alpha, low=0.5), [math.log(0.5), 0, 9])
    close(losses.project_log_alpha(log_alpha, high=2.0), [-9, 0, math.log(2)])
    both = losses.project_log_alpha(log_alpha, low=torch.tensor(0.5), high=torch.tensor(2.0))
    close(both, [math.log(0.5), 0, math.log(2)], 1e-7)
    assert torch.equal(losses.project_log_alpha(log_alpha, low=0.0), log_alpha)


def test_target_entropies() -> None:
    shapes = [[2], [17], [2, 3], [6], []]
    assert [losses.sac_target_entropy(s) for s in shapes] == [-2.0, -17.0, -6.0, -6.0, -1.0]
    assert losses.sac_discrete_target_entropy(6) == pytest.approx(1.75592428, rel=1e-8)
    assert losses.sac_discrete_target_entropy(6, scale=0.5) == 0.5 * math.log(6)
    with pytest.raises(ConfigError, match="num_actions is 0, expected at least 1"):
        losses.sac_discrete_target_entropy(0)


# Discrete SAC.


def test_forbidden_actions_carry_no_probability_no_entropy_and_no_nan() -> None:
    legal = flag(1, 1, 0).unsqueeze(0)
    logits = torch.zeros(1, 3, dtype=F64, requires_grad=True)
    for forbidden in (5.0, NAN, math.inf):
        q = row([1, 3, forbidden]).expand(2, 1, 3)
        loss, metrics = losses.sac_discrete_actor(logits, q, 0.2, action_mask=legal)
        close(loss, -(2 + 0.2 * math.log(2)))
        close(slopes(loss, logits)[0], [[0.5, -0.5, 0.0]])
        close(metrics["entropy"], math.log(2))
        close(metrics["q_mean"], 2.0)


def test_the_next_value_is_an_expectation() -> None:
    q = row([1, 3]).expand(2, 1, 2)
    zero = torch.zeros(1, 2, dtype=F64)
    target = losses.sac_discrete_target(row(1), q, zero, 0.2, flag(0), gamma=0.9)
    close(target, [1 + 0.9 * (2 + 0.2 * math.log(2))])


def test_discrete_sac_is_the_enumeration_of_the_continuous_one() -> None:
    logits, q, alpha = normal(1, 5, 4), normal(2, 2, 5, 4), 0.3
    p, log_p = logits.softmax(-1), logits.log_softmax(-1)
    every = [
        losses.sac_actor(log_p[:, a], q[:, :, a], alpha, reduction="none")[0] for a in range(4)
    ]
    ours, _ = losses.sac_discrete_actor(logits, q, alpha, reduction="none")
    close(ours, (p * torch.stack(every, -1)).sum(-1))
    reward, end = normal(3, 5), flag(0, 1, 0, 0, 1)
    every = [losses.sac_target(reward, q[:, :, a], log_p[:, a], alpha, end) for a in range(4)]
    target = losses.sac_discrete_target(reward, q, logits, alpha, end)
    close(target, (p * torch.stack(every, -1)).sum(-1))
    log_alpha = torch.tensor(0.2, dtype=F64)
    every = [losses.sac_alpha(log_alpha, log_p[:, a], 1.1, reduction="none")[0] for a in range(4)]
    loss, metrics = losses.sac_discrete_alpha(log_alpha, logits, 1.1)
    close(loss, (p * torch.stack(every, -1)).sum(-1).mean())
    close(metrics["entropy"], distributions.categorical_entropy(logits).mean())


def test_the_discrete_temperature_is_still_when_the_entropy_is_as_wanted() -> None:
    log_alpha = torch.zeros((), dtype=F64, requires_grad=True)
    wanted = losses.sac_discrete_target_entropy(4, scale=1.0)
    loss, _ = losses.sac_discrete_alpha(log_alpha, torch.zeros(3, 4, dtype=F64), wanted)
    close(slopes(loss, log_alpha)[0] + 1.0, 1.0)


def test_the_discrete_critic_learns_the_action_taken_in_every_member() -> None:
    q, action, target = normal(1, 3, 5, 4), torch.tensor([0, 3, 1, 1, 2]), normal(2, 5)
    ours, metrics = losses.sac_discrete_critic(q, action, target, kind="huber")
    theirs, expected = losses.sac_critic(losses.action_value(q, action), target, kind="huber")
    assert torch.equal(ours, theirs)
    assert metrics.keys() == expected.keys()
    with pytest.raises(ShapeError, match=r"a member of q has shape \[5, 4\], expected \[5, 3\]"):
        losses.sac_discrete_actor(torch.zeros(5, 3, dtype=F64), q, 0.1)
    with pytest.raises(ShapeError, match=r"action_mask has shape \[5\], expected \[5, 4\]"):
        losses.sac_discrete_actor(q[0], q, 0.1, action_mask=target > 0)


# REDQ.


def test_the_target_takes_the_minimum_over_the_drawn_subset() -> None:
    next_q = row([5, 1], [2, 4], [-9, 0], [3, 2.5], [6, -7])
    subset = torch.tensor([1, 3])
    target = losses.redq_target(row(1, 0), next_q, row(-1, 0.5), 0.1, flag(0, 0), subset, gamma=0.9)
    close(target, [2.89, 2.205])
    with pytest.raises(ShapeError, match=r"subset has shape \[6\], expected at most 5 members"):
        losses.redq_target(
            row(1, 0), next_q, row(-1, 0.5), 0.1, flag(0, 0), torch.arange(6), gamma=0.9
        )
    with pytest.raises(ShapeError, match=r"subset has shape \[1, 2\], expected \[any\]"):
        losses.redq_target(row(1, 0), next_q, row(-1, 0.5), 0.1, flag(0, 0), subset.unsqueeze(0))


def test_all_critics_learn_and_their_mean_steers_the_actor() -> None:
    q, target = row([1, 2], [4, 2], [1, 2]), row(3, 0)
    loss, metrics = losses.redq_critic(q, target)
    close(loss, ((4 + 4) + (1 + 4) + (4 + 4)) / 2)
    close(metrics["q_std_across_critics"], math.sqrt(2.0) / 2)
    close(losses.redq_critic(q, target, critic_sum="mean")[0], 21 / 6)
    actor, metrics = losses.redq_actor(row(-1, -2), q, 0.5)
    close(actor, (-0.5 - 2 + -1 - 2) / 2)
    close(metrics["entropy"], 1.5)
