"""PPO, A2C and REINFORCE against TorchRL's classes, with gradients, and where they differ."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule
from tensordict.nn import ProbabilisticTensorDictSequential as Sequential
from tests.oracles.torchrl_losses import (
    BY_HAND,
    DIMS,
    F64,
    ROWS,
    Scaled,
    agree,
    close,
    drawn,
    keep_generator,
    leaf,
    load,
    parameter,
    state_critic,
    transitions,
)
from torch import Tensor

from purerl import losses

pytestmark = BY_HAND
rl = pytest.fixture(scope="module")(load)
generator = pytest.fixture(autouse=True)(keep_generator)


def normal_actor(rl: Any) -> Any:
    network = Scaled(lambda s, x: (s * x, torch.full_like(x, 0.6)), 0.8)
    return Sequential(
        TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=rl.modules.IndependentNormal,
            return_log_prob=True,
        ),
    )


def on_policy_batch() -> tuple[TensorDict, Tensor, Tensor, Tensor]:
    """Return a batch, a policy's parameter, and log π and entropy by purerl."""
    data = transitions(
        action_log_prob=drawn(11, ROWS) * 0.3 - 2.0,
        advantage=drawn(12, ROWS, 1),
        value_target=drawn(13, ROWS, 1),
        state_value=drawn(14, ROWS, 1) * 0.2,
    )
    scale = parameter(0.8)
    loc = scale * data["observation"]
    z = (data["action"] - loc) / 0.6
    log_prob = (-0.5 * z.square() - math.log(0.6) - 0.5 * math.log(2 * math.pi)).sum(-1)
    each = 0.5 + 0.5 * math.log(2 * math.pi) + math.log(0.6)
    return data, scale, log_prob, torch.full((ROWS,), DIMS * each, dtype=F64)


@pytest.mark.parametrize("epsilon", [0.25, (0.125, 0.5)])
def test_clip_ppo_loss(rl: Any, epsilon: Any) -> None:
    data, scale, log_prob, entropy = on_policy_batch()
    module = rl.objectives.ClipPPOLoss(
        normal_actor(rl), state_critic(), clip_epsilon=epsilon, entropy_coeff=0.5, critic_coeff=1.0,
        loss_critic_type="l2", clip_value=0.125, log_explained_variance=True,
    )  # fmt: skip
    theirs = module(data.clone())
    old = data["action_log_prob"]
    ours, metrics = losses.ppo_clip(
        log_prob, old, data["advantage"].squeeze(-1), clip_epsilon=epsilon
    )
    # it keeps log(1 ± ε) in float32
    agree(theirs["loss_objective"], leaf(module.actor_network_params), ours, scale, rtol=1e-7)
    same = {
        "clip_fraction": "clip_fraction",
        "approx_kl_k1": "kl_approx",
        "ratio_mean": "mean_ratio",
        "ratio_max": "max_ratio",
        "effective_sample_size": "ESS",
    }
    for name, their_name in same.items():
        close(metrics[name], theirs[their_name])
    bonus, entropy_metrics = losses.entropy_bonus(entropy, coef=0.5)
    close(bonus, theirs["loss_entropy"])
    close(entropy_metrics["entropy"], theirs["entropy"])
    weight = parameter(1.2)
    value = (weight * data["observation"].sum(-1, keepdim=True)).squeeze(-1)
    target, old_value = data["value_target"].squeeze(-1), data["state_value"].squeeze(-1)
    ours, metrics = losses.value_loss(value, target, old_value, clip_epsilon=0.125, clip_mode="max")
    agree(theirs["loss_critic"], leaf(module.critic_network_params), ours, weight)
    close(metrics["value_clip_fraction"], theirs["value_clip_fraction"])
    close(losses.explained_variance(value, target), theirs["explained_variance"].squeeze())


def test_normalised_advantages(rl: Any) -> None:
    data, _, log_prob, _ = on_policy_batch()
    module = rl.objectives.ClipPPOLoss(
        normal_actor(rl), None, clip_epsilon=0.25, entropy_bonus=False, normalize_advantage=True
    )
    theirs = module(data.clone())["loss_objective"]
    normal = losses.normalize_advantage(data["advantage"].squeeze(-1), floor=1e-6)
    ours, _ = losses.ppo_clip(log_prob, data["action_log_prob"], normal, clip_epsilon=0.25)
    close(ours, theirs, 1e-7)


def test_kl_penalty_loss_whose_gradient_torchrl_takes_at_the_next_beta(rl: Any) -> None:
    from torch.distributions import Independent, Normal, kl_divergence

    data, scale, log_prob, _ = on_policy_batch()
    data["loc"], data["scale"] = 0.7 * data["observation"], torch.full_like(data["action"], 0.5)
    module = rl.objectives.KLPENPPOLoss(
        normal_actor(rl), None, beta=0.5, dtarg=0.01, entropy_bonus=False
    )
    theirs = module(data.clone())
    old = Independent(Normal(data["loc"], data["scale"]), 1)
    new = Independent(Normal(scale * data["observation"], torch.full_like(data["loc"], 0.6)), 1)

    def penalised(beta: float) -> tuple[Tensor, Any]:
        return losses.ppo_kl_penalty(
            log_prob,
            data["action_log_prob"],
            data["advantage"].squeeze(-1),
            kl_divergence(old, new),
            beta=beta,
        )

    ours, metrics = penalised(0.5)
    close(ours, theirs["loss_objective"])
    close(metrics["kl"], theirs["kl"].mean())
    # evaluating it has moved the coefficient, in place: its value is that of the old one, its
    # gradient that of the new one
    assert float(module.beta) == float(losses.ppo_kl_beta_update(0.5, metrics["kl"])) == 1.0
    (wanted,) = torch.autograd.grad(theirs["loss_objective"], leaf(module.actor_network_params))
    (right,) = torch.autograd.grad(ours, scale, retain_graph=True)
    (found,) = torch.autograd.grad(penalised(1.0)[0], scale)
    close(found.reshape(-1), wanted)
    assert not torch.allclose(right.reshape(-1), wanted)


def test_a2c_and_reinforce_losses(rl: Any) -> None:
    data, scale, log_prob, _ = on_policy_batch()
    advantage, target = data["advantage"].squeeze(-1), data["value_target"].squeeze(-1)
    weight = parameter(1.2)
    value = (weight * data["observation"].sum(-1, keepdim=True)).squeeze(-1)
    critic_loss, _ = losses.value_loss(value, target, kind="huber")

    a2c = rl.objectives.A2CLoss(normal_actor(rl), state_critic(), entropy_bonus=False)
    theirs = a2c(data.clone())
    ours, _ = losses.a2c(log_prob, advantage)
    agree(theirs["loss_objective"], leaf(a2c.actor_network_params), ours, scale)
    agree(theirs["loss_critic"], leaf(a2c.critic_network_params), critic_loss, weight)

    reinforce = rl.objectives.ReinforceLoss(normal_actor(rl), state_critic())
    theirs = reinforce(data.clone())
    ours, _ = losses.reinforce(log_prob, advantage)
    agree(theirs["loss_actor"], leaf(reinforce.actor_network_params), ours, scale)
    agree(theirs["loss_value"], leaf(reinforce.critic_network_params), critic_loss, weight)


def test_the_gradient_of_an_overflowing_ratio_is_nan_in_torchrl(rl: Any) -> None:
    data, scale, log_prob, _ = on_policy_batch()
    data["action_log_prob"] = torch.full((ROWS,), -2000.0, dtype=F64)
    data["advantage"] = data["advantage"].abs()
    module = rl.objectives.ClipPPOLoss(
        normal_actor(rl), None, clip_epsilon=0.25, entropy_bonus=False
    )
    theirs = module(data.clone())["loss_objective"]
    ours, _ = losses.ppo_clip(
        log_prob, data["action_log_prob"], data["advantage"].squeeze(-1), clip_epsilon=0.25
    )
    close(ours, theirs, 1e-7)
    (bad,) = torch.autograd.grad(theirs, leaf(module.actor_network_params))
    (good,) = torch.autograd.grad(ours, scale)
    assert bool(bad.isnan().all())
    assert torch.equal(good, torch.zeros_like(good))
