"""A whole SAC update against one assembled from TorchRL's SACLoss, SoftUpdate and torch's Adam."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule
from tensordict.nn import ProbabilisticTensorDictSequential as Sequential
from tests.oracles.torchrl_losses import BY_HAND, keep_generator, load
from torch import Tensor, nn

import purerl as prl

pytestmark = BY_HAND
rl = pytest.fixture(scope="module")(load)
generator = pytest.fixture(autouse=True)(keep_generator)
F64 = torch.float64
ROWS, GAMMA, TAU, RATE = 16, 63 / 64, 0.01, 1e-3
CONFIG = prl.sac.Config(
    hidden_sizes=(8, 8),
    buffer_size=64,
    dtype="float64",
    gamma=GAMMA,
    tau=TAU,
    order="simultaneous",  # one sum of losses, one backward pass
    actor_learning_rate=RATE,
    critic_learning_rate=RATE,
    alpha_learning_rate=RATE,
    target_entropy=-1.5,
)


class Squashed(torch.distributions.Distribution):
    """A tanh-normal whose noise is given: draws are those of purerl's keys."""

    arg_constraints = {}  # noqa: RUF012 - torch's interface
    has_rsample = True
    noise: list[Tensor] = []  # noqa: RUF012 - what the next draws use, in order

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = loc, scale
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        self.pre_tanh = self.loc + self.scale * Squashed.noise.pop(0)
        return self.pre_tanh.tanh()

    sample = rsample

    def log_prob(self, value: Tensor) -> Tensor:
        u = self.pre_tanh
        normal = torch.distributions.Normal(self.loc, self.scale).log_prob(u)
        return (normal - torch.log1p(-u.tanh().square())).sum(-1)


def layers(sizes: tuple[int, ...]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs, dtype=F64), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = layers((3, 8, 8, 2))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        loc, raw = self.network(observation).chunk(2, -1)
        return loc, raw.clamp(-20.0, 2.0).exp()


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = layers((4, 8, 8, 1))

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        return self.network(torch.cat([observation, action], -1))


def loss_module(rl: Any) -> Any:
    actor = Sequential(
        TensorDictModule(Actor(), in_keys=["observation"], out_keys=["loc", "scale"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=Squashed,
            return_log_prob=True,
        ),
    )
    critic = TensorDictModule(
        Critic(), in_keys=["observation", "action"], out_keys=["state_action_value"]
    )
    module = rl.objectives.SACLoss(actor, critic, loss_function="l2", target_entropy=-1.5)
    module.make_value_estimator(gamma=GAMMA)
    module.log_alpha.data = module.log_alpha.data.to(F64)  # it begins in float32
    return module


def write(theirs: Any, ours: Any) -> None:
    """Copy our layers into TorchRL's, whose names count the activations too."""
    leaves = theirs.items(include_nested=True, leaves_only=True)
    for name, leaf in leaves:
        number, kind = int(name[-2]) // 2, name[-1]
        leaf.data.copy_(ours["layers", str(number), kind])


def read(theirs: Any) -> dict[str, Tensor]:
    leaves = theirs.items(include_nested=True, leaves_only=True)
    return {f"{int(name[-2]) // 2}.{name[-1]}": leaf.detach().clone() for name, leaf in leaves}


def batch(number: int) -> dict[str, Tensor]:
    keys = prl.random.split(prl.random.key(number), 6)
    return {
        "observation": prl.random.normal(keys[0], (ROWS, 3), dtype=F64),
        "action": prl.random.uniform(keys[1], (ROWS, 1), dtype=F64, minval=-1.0, maxval=1.0),
        "reward": prl.random.normal(keys[2], (ROWS,), dtype=F64),
        "terminated": prl.random.bernoulli(keys[3], 0.3, (ROWS,)),
        "truncated": prl.random.bernoulli(keys[4], 0.3, (ROWS,)),
        "next_observation": prl.random.normal(keys[5], (ROWS, 3), dtype=F64),
    }


def noises(state: prl.sac.State) -> tuple[Tensor, Tensor]:
    """Return the noise of the coming update at s' and at s, by its discipline of keys."""
    learn_key = prl.random.split(state.key, 3)[2]
    _, next_key, policy_key = prl.random.split(prl.random.split(learn_key, 1)[0], 3)
    policy = prl.random.split(policy_key, 2)[0]
    return tuple(prl.random.normal(k, (ROWS, 1), dtype=F64) for k in (next_key, policy))  # type: ignore[return-value]  # two of them


def test_three_updates_are_those_of_sac_loss_soft_update_and_adam(rl: Any) -> None:
    """Float64, 1e-9: parameters, temperature and target critics."""
    env = prl.envs.make("Pendulum-v1")
    state = prl.sac.init(CONFIG, env, prl.random.key(0))
    module = loss_module(rl)
    write(module.actor_network_params, state.params["actor"])
    write(module.qvalue_network_params, state.params["critic"])
    write(module.target_qvalue_network_params, state.params["critic"])
    updater = rl.objectives.SoftUpdate(module, tau=TAU)
    groups = [
        list(module.actor_network_params.values(True, True)),
        list(module.qvalue_network_params.values(True, True)),
        [module.log_alpha],
    ]
    optimizers = [torch.optim.Adam(group, lr=RATE, eps=1e-8) for group in groups]
    for number in range(3):
        rows = batch(number)
        at_next, at_here = noises(state)
        # in the order in which SACLoss draws
        Squashed.noise = [at_next, at_here]
        data = TensorDict(
            {
                "observation": rows["observation"],
                "action": rows["action"],
                "next": {
                    "observation": rows["next_observation"],
                    "reward": rows["reward"].unsqueeze(-1),
                    "terminated": rows["terminated"].unsqueeze(-1),
                    "done": (rows["terminated"] | rows["truncated"]).unsqueeze(-1),
                },
            },
            batch_size=[ROWS],
        )
        losses = module(data)
        total = losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]
        for optimizer in optimizers:
            optimizer.zero_grad()
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
        updater.step()
        assert Squashed.noise == []
        state, metrics = prl.sac.update(CONFIG, state, rows)
        torch.testing.assert_close(
            metrics["loss", "critic"], losses["loss_qvalue"].detach(), rtol=1e-9, atol=1e-9
        )
    compare(state.params["actor"], read(module.actor_network_params))
    compare(state.params["critic"], read(module.qvalue_network_params))
    compare(state.target_params["critic"], read(module.target_qvalue_network_params))
    torch.testing.assert_close(
        state.params["log_alpha"], module.log_alpha.detach().reshape(()), rtol=0, atol=1e-9
    )


def compare(ours: Any, theirs: dict[str, Tensor]) -> None:
    for name, leaf in theirs.items():
        number, kind = name.split(".")
        torch.testing.assert_close(ours["layers", number, kind], leaf, rtol=1e-9, atol=1e-9)


def test_the_comparison_sees_another_order_of_updates(rl: Any) -> None:
    """Sequential updates judge the actor by critics that have moved already."""
    env = prl.envs.make("Pendulum-v1")
    other = dataclasses.replace(CONFIG, order="sequential")
    runs = []
    for config in (CONFIG, other):
        state = prl.sac.init(config, env, prl.random.key(0))
        state, _ = prl.sac.update(config, state, batch(0))
        runs.append(state.params["actor"])
    assert not prl.tree.equal(*runs)
