"""SAC and REDQ against TorchRL's classes, with gradients, and where they differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.oracles.torchrl_losses import (
    ACTIONS,
    BY_HAND,
    F64,
    GAMMA,
    ONLINE,
    ROWS,
    TARGET,
    agree,
    categorical_actor,
    close,
    discrete_batch,
    keep_generator,
    leaf,
    load,
    log_prob_of,
    members,
    parameter,
    policy,
    q_of,
    row_fields,
    set_members,
    soft,
    transitions,
    values_critic,
)

from purerl import losses, random

NAN = float("nan")
pytestmark = BY_HAND
rl = pytest.fixture(scope="module")(load)
generator = pytest.fixture(autouse=True)(keep_generator)


def test_sac_loss(rl: Any) -> None:
    data = transitions()
    module = soft(rl, "SACLoss")
    scales = set_members(module, "qvalue_network")
    written = data.clone()
    theirs = module(written)
    alpha = theirs["alpha"].double()
    following, mu = data["next", "observation"], parameter(0.8)
    next_action = policy(mu, following)
    reward, terminated = row_fields(data)
    next_q = members(parameter(*TARGET), following, next_action)
    target = losses.sac_target(
        reward, next_q, log_prob_of(next_action), alpha, terminated, gamma=GAMMA
    )
    own_scales = parameter(*ONLINE)
    ours, metrics = losses.sac_critic(
        members(own_scales, data["observation"], data["action"]), target
    )
    agree(theirs["loss_qvalue"], scales, ours, own_scales, rtol=1e-6)
    # here, unlike in its other classes, the priority is abs(δ)
    close(metrics["priority"], written["td_error"], 1e-6)
    action = policy(mu, data["observation"])
    log_prob = log_prob_of(action)
    q = members(own_scales.detach(), data["observation"], action)
    ours, metrics = losses.sac_actor(log_prob, q, alpha)
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu)
    close(metrics["entropy"], theirs["entropy"])
    log_alpha = torch.tensor(-0.5, dtype=F64, requires_grad=True)
    ours, _ = losses.sac_alpha(log_alpha, log_prob, -1.5)
    close(ours, theirs["loss_alpha"])
    (wanted,) = torch.autograd.grad(theirs["loss_alpha"], module.log_alpha)
    close(torch.autograd.grad(ours, log_alpha)[0], wanted, 1e-6)


def test_a_terminal_nan_reaches_the_loss_of_torchrl(rl: Any) -> None:
    data = transitions()
    reward, terminated = row_fields(data)
    data["next", "observation"][terminated] = NAN
    module = soft(rl, "SACLoss")
    set_members(module, "qvalue_network")
    assert bool(module(data.clone())["loss_qvalue"].isnan())
    following = data["next", "observation"]
    action = policy(0.8, following)
    next_q = members(parameter(*TARGET), following, action)
    target = losses.sac_target(reward, next_q, log_prob_of(action), 0.6, terminated)
    assert bool(target.isfinite().all())


def test_redq_loss_averages_over_critics_and_takes_the_alpha_form(rl: Any) -> None:
    num, online, target_scales = 4, (0.7, 1.3, 0.4, 1.0), (1.1, 0.9, 1.4, 0.6)
    data = transitions()
    module = soft(rl, "REDQLoss", num_qvalue_nets=num, sub_sample_len=2)
    scales = set_members(module, "qvalue_network", online, target_scales)
    leaf(module.target_actor_network_params).data.fill_(0.8)
    state = torch.random.get_rng_state()
    theirs = module(data.clone())
    torch.random.set_rng_state(state)
    subset = torch.randperm(num)[:2]
    alpha = theirs["alpha"].double()
    following, mu = data["next", "observation"], parameter(0.8)
    next_action = policy(mu, following)
    reward, terminated = row_fields(data)
    target = losses.redq_target(
        reward, members(parameter(*target_scales), following, next_action),
        log_prob_of(next_action), alpha, terminated, subset, gamma=GAMMA,
    )  # fmt: skip
    own_scales = parameter(*online)
    ours, _ = losses.redq_critic(
        members(own_scales, data["observation"], data["action"]), target, critic_sum="mean"
    )
    agree(theirs["loss_qvalue"], scales, ours, own_scales, rtol=1e-6)
    action = policy(mu, data["observation"])
    q = members(own_scales.detach(), data["observation"], action)
    ours, _ = losses.redq_actor(log_prob_of(action), q, alpha)
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu, rtol=1e-6)
    log_alpha = torch.tensor(-0.5, dtype=F64, requires_grad=True)
    # it also averages over the samples at s'
    both = torch.cat([log_prob_of(action), log_prob_of(next_action)])
    ours, _ = losses.sac_alpha(log_alpha, both, -1.5, form="alpha")
    (wanted,) = torch.autograd.grad(theirs["loss_alpha"], module.log_alpha)
    close(ours, theirs["loss_alpha"], 1e-6)
    close(torch.autograd.grad(ours, log_alpha)[0], wanted, 1e-6)


def discrete_sac(rl: Any, actor: Any) -> Any:
    module = rl.objectives.DiscreteSACLoss(
        actor, values_critic(), action_space="categorical", num_actions=ACTIONS, loss_function="l2",
        target_entropy=0.5,
    )  # fmt: skip
    module.make_value_estimator(gamma=GAMMA)
    module.log_alpha.data.fill_(-0.5)
    set_members(module, "qvalue_network")
    return module


def test_discrete_sac_loss(rl: Any) -> None:
    data, action = discrete_batch()
    module = discrete_sac(rl, categorical_actor(torch.distributions.Categorical))
    written = data.clone()
    theirs = module(written)
    alpha, mu, scales = theirs["alpha"].double(), parameter(0.8), parameter(*ONLINE)
    following = data["next", "observation"]
    reward, terminated = row_fields(data)
    target = losses.sac_discrete_target(
        reward, torch.stack([q_of(s, following) for s in TARGET]), 0.8 * following, alpha,
        terminated, gamma=GAMMA,
    )  # fmt: skip
    q = torch.stack([q_of(s, data["observation"]) for s in scales])
    ours, metrics = losses.sac_discrete_critic(q, action, target)
    agree(theirs["loss_qvalue"], leaf(module.qvalue_network_params), ours, scales, rtol=1e-6)
    close(metrics["priority"], written["td_error"], 1e-6)
    logits = mu * data["observation"]
    ours, metrics = losses.sac_discrete_actor(logits, q, alpha)
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu)
    close(metrics["entropy"], theirs["entropy"])
    log_alpha = torch.tensor(-0.5, dtype=F64, requires_grad=True)
    ours, _ = losses.sac_discrete_alpha(log_alpha, logits, 0.5)
    close(ours, theirs["loss_alpha"])


def test_a_mask_of_actions_turns_torchrls_discrete_actor_loss_into_nan(rl: Any) -> None:
    legal = random.bernoulli(random.key(51), 0.5, (ROWS, ACTIONS)) | (torch.arange(ACTIONS) == 1)
    data, _ = discrete_batch(action_mask=legal)
    data["next", "action_mask"] = legal
    actor = categorical_actor(rl.modules.MaskedCategorical, mask="action_mask")
    module = discrete_sac(rl, actor)
    assert bool(module.actor_loss(data.clone())[0].isnan())
    mu = parameter(0.8)
    q = torch.stack([q_of(s, data["observation"]) for s in ONLINE])
    ours, _ = losses.sac_discrete_actor(mu * data["observation"], q, 0.6, action_mask=legal)
    assert bool(ours.isfinite())
    assert bool(torch.autograd.grad(ours, mu)[0].isfinite().all())
