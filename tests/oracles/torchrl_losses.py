"""What the comparisons with TorchRL's loss classes share.

Its classes own networks, so the networks here are products of one parameter with functions of the
data: the members of an ensemble are set by hand, since the classes re-draw them.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule
from tensordict.nn import ProbabilisticTensorDictSequential as Sequential
from torch import Tensor, nn

from purerl import random

F64 = torch.float64
ROWS, DIMS, ACTIONS = 12, 2, 3
GAMMA = 63 / 64  # exact in the float32 that TorchRL keeps it in
# TorchRL's word on target networks that a test sets by hand
BY_HAND = pytest.mark.filterwarnings("ignore:No target network updater")
ONLINE, TARGET = (0.7, 1.3), (1.1, 0.9)  # the parameters of the two critics and of their targets


def load() -> Any:
    """Import TorchRL's objectives and modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ("torchrl.objectives", "torchrl.modules")
        objectives, modules = (importlib.import_module(name) for name in names)
    return SimpleNamespace(objectives=objectives, modules=modules)


def keep_generator() -> Iterator[None]:
    """Leave the global generator, which TorchRL draws from, as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def drawn(seed: int, *shape: int) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=F64)


def close(actual: Tensor, expected: Any, rtol: float = 1e-12) -> None:
    expected = torch.as_tensor(expected, dtype=actual.dtype).detach()
    atol = rtol * float(expected.abs().max())
    torch.testing.assert_close(actual.detach(), expected, rtol=rtol, atol=atol)


def transitions(**fields: Tensor) -> TensorDict:
    """Return rows in TorchRL's layout."""
    terminated = random.bernoulli(random.key(3), 0.3, (ROWS, 1))
    truncated = random.bernoulli(random.key(4), 0.3, (ROWS, 1))
    data = {
        "observation": drawn(1, ROWS, DIMS),
        "action": drawn(2, ROWS, DIMS).tanh(),
        "next": {
            "observation": drawn(5, ROWS, DIMS),
            "reward": drawn(6, ROWS, 1),
            "terminated": terminated,
            "done": terminated | truncated,
        },
    }
    return TensorDict(data | fields, batch_size=[ROWS])


class Scaled(nn.Module):
    """A parameter times a function of the inputs."""

    def __init__(self, function: Any, value: float = 1.0) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.tensor([value], dtype=F64))

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self.scale, *inputs)


class Given(torch.distributions.Distribution):
    """A "distribution" whose sample is its location: what the classes draw is known."""

    arg_constraints = {}  # noqa: RUF012 - torch's interface
    has_rsample = True

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc.expand(*sample_shape, *self.loc.shape)

    sample = rsample
    mean = mode = deterministic_sample = property(lambda self: self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        return log_prob_of(value)


def log_prob_of(action: Tensor) -> Tensor:
    return -action.square().sum(-1) - 0.3 * action.sum(-1)


def policy(scale: Any, observation: Tensor) -> Tensor:
    return (scale * observation).tanh()


def critic(scale: Tensor, observation: Tensor, action: Tensor) -> Tensor:
    q = scale * (observation * action).sum(-1, keepdim=True) + observation[..., :1]
    return q + scale.square() * action[..., 1:]


def stochastic_actor(value: float = 0.8) -> Any:
    return Sequential(
        TensorDictModule(Scaled(policy, value), in_keys=["observation"], out_keys=["loc"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc"], out_keys=["action"], distribution_class=Given, return_log_prob=True
        ),
    )


def deterministic_actor(value: float = 0.8) -> TensorDictModule:
    return TensorDictModule(Scaled(policy, value), in_keys=["observation"], out_keys=["action"])


def action_critic() -> TensorDictModule:
    return TensorDictModule(
        Scaled(critic), in_keys=["observation", "action"], out_keys=["state_action_value"]
    )


def leaf(params: Any) -> Tensor:
    """Return the only parameter of a network of a loss module."""
    items = params.items(include_nested=True, leaves_only=True)
    (found,) = (x for key, x in items if (key if isinstance(key, str) else key[-1]) == "scale")
    return found


def set_members(module: Any, name: str, online: Any = ONLINE, target: Any = TARGET) -> Tensor:
    """Write the parameters of an ensemble and of its target; return the former."""
    learned = leaf(getattr(module, f"{name}_params"))
    for params, values in [
        (learned, online),
        (leaf(getattr(module, f"target_{name}_params")), target),
    ]:
        params.data.copy_(torch.tensor(values, dtype=F64).reshape(params.shape))
    return learned


def members(scales: Tensor, observation: Tensor, action: Tensor) -> Tensor:
    """Return Q_k(s, a) ``[K, *B]``."""
    return torch.stack([critic(s, observation, action).squeeze(-1) for s in scales])


def agree(theirs: Tensor, their_leaf: Tensor, ours: Tensor, our_leaf: Tensor, **tol: Any) -> None:
    """Compare two losses and their derivatives by a parameter."""
    close(ours, theirs, **tol)
    (wanted,) = torch.autograd.grad(theirs, their_leaf, retain_graph=True)
    (found,) = torch.autograd.grad(ours, our_leaf, retain_graph=True)
    close(found.reshape(-1), wanted.reshape(-1), **tol)


def parameter(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64).reshape(-1, 1).requires_grad_()


def row_fields(data: TensorDict) -> tuple[Tensor, Tensor]:
    return data["next", "reward"].squeeze(-1), data["next", "terminated"].squeeze(-1)


def state_critic(value: float = 1.2) -> TensorDictModule:
    network = Scaled(lambda s, x: s * x.sum(-1, keepdim=True), value)
    return TensorDictModule(network, in_keys=["observation"], out_keys=["state_value"])


def discrete_batch(**fields: Tensor) -> tuple[TensorDict, Tensor]:
    data = transitions(
        observation=drawn(21, ROWS, ACTIONS),
        action=random.randint(random.key(22), (ROWS,), 0, ACTIONS),
        **fields,
    )
    data["next", "observation"] = drawn(23, ROWS, ACTIONS)
    return data, data["action"]


def q_of(scale: Any, x: Tensor) -> Tensor:
    return scale * x + x.flip(-1)


def categorical_actor(distribution: Any, **more: str) -> Any:
    """Return a policy whose distribution takes logits and, by other names, entries of the data."""
    return Sequential(
        TensorDictModule(
            Scaled(lambda s, x: s * x, 0.8), in_keys=["observation"], out_keys=["logits"]
        ),
        ProbabilisticTensorDictModule(
            in_keys={"logits": "logits", **more},
            out_keys=["action"],
            distribution_class=distribution,
        ),
    )


def values_critic(name: str = "action_value") -> TensorDictModule:
    return TensorDictModule(Scaled(q_of), in_keys=["observation"], out_keys=[name])


def soft(rl: Any, name: str, **options: Any) -> Any:
    module = getattr(rl.objectives, name)(
        stochastic_actor(), action_critic(), loss_function="l2", target_entropy=-1.5, **options
    )
    module.make_value_estimator(gamma=GAMMA)
    module.log_alpha.data.fill_(-0.5)
    return module


def actor_value(scale: Any, data: TensorDict, member: float) -> Tensor:
    """Return Q(s, μ(s)) of a critic's parameter."""
    action = policy(scale, data["observation"])
    return critic(torch.tensor([member], dtype=F64), data["observation"], action).squeeze(-1)
