"""PPO's objective against rlax and TorchRL on the same tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from purerl import losses, random


def tensors(rows: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    keys = random.split(random.key(7), 3)
    log_prob, old, advantage = (random.normal(k, (rows,), dtype=torch.float64) for k in keys)
    return 0.5 * log_prob, 0.5 * old, advantage


# rlax and its own dependencies warn about their use of jax
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.5])
def test_the_clipped_surrogate_and_its_gradient_equal_those_of_rlax(epsilon: float) -> None:
    import jax
    import jax.numpy as jnp
    import rlax

    log_prob, old, advantage = tensors()

    def theirs(new: object) -> object:
        ratio = jnp.exp(new - jnp.asarray(old.numpy(), jnp.float32))
        return rlax.clipped_surrogate_pg_loss(
            ratio, jnp.asarray(advantage.numpy(), jnp.float32), epsilon
        )

    value, gradient = jax.value_and_grad(theirs)(jnp.asarray(log_prob.numpy(), jnp.float32))
    leaf = log_prob.float().requires_grad_()
    ours, _ = losses.ppo_clip(leaf, old.float(), advantage.float(), clip_epsilon=epsilon)
    (our_gradient,) = torch.autograd.grad(ours, leaf)
    np.testing.assert_allclose(ours.detach().numpy(), np.asarray(value), rtol=1e-5)
    np.testing.assert_allclose(our_gradient.numpy(), np.asarray(gradient), rtol=1e-4, atol=1e-7)


def test_the_loss_and_the_gradient_of_the_location_equal_those_of_torchrl() -> None:
    from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule
    from tensordict.nn import ProbabilisticTensorDictSequential as Sequential
    from torchrl.objectives import ClipPPOLoss

    loc = torch.zeros(1, dtype=torch.float64)
    actor_net, critic_net = torch.nn.Linear(1, 1).double(), torch.nn.Linear(1, 1).double()
    with torch.no_grad():
        actor_net.weight.fill_(0.3)
        actor_net.bias.copy_(loc)

    class WithScale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = actor_net

        def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
            mean = self.net(observation)
            return mean, torch.ones_like(mean)

    actor = Sequential(
        TensorDictModule(WithScale(), in_keys=["observation"], out_keys=["loc", "scale"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=torch.distributions.Normal,
            return_log_prob=True,
        ),
    )
    critic = TensorDictModule(critic_net, in_keys=["observation"], out_keys=["state_value"])
    module = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_bonus=False, critic_coeff=None)
    keys = random.split(random.key(1), 4)
    observation, action, old, advantage = (
        random.normal(k, (32, 1), dtype=torch.float64) for k in keys
    )
    old = -0.5 * action.square() - 0.5 * math.log(2 * math.pi) + 0.3 * old
    batch = TensorDict(
        {
            "observation": observation,
            "action": action,
            "action_log_prob": old,
            "advantage": advantage,
            "value_target": advantage,
        },
        batch_size=[32, 1],
    )
    theirs = module(batch.clone())["loss_objective"]
    mean = (0.3 * observation).requires_grad_()
    log_prob = -0.5 * (action - mean).square() - 0.5 * math.log(2 * math.pi)
    ours, _ = losses.ppo_clip(
        log_prob.squeeze(-1), old.squeeze(-1), advantage.squeeze(-1), clip_epsilon=0.2
    )
    # ClipPPOLoss keeps its clip bounds in float32, whatever the data
    torch.testing.assert_close(ours, theirs.mean(), rtol=1e-7, atol=0)
    theirs.mean().backward()
    gradients = {
        name: leaf.grad
        for name, leaf in module.actor_network_params.flatten_keys(".").items()
        if leaf.grad is not None
    }
    weight = next(grad for name, grad in gradients.items() if name.endswith("weight"))
    (by_mean,) = torch.autograd.grad(ours, mean)
    torch.testing.assert_close((by_mean * observation).sum(), weight.sum(), rtol=1e-7, atol=1e-9)
