"""Q-learning, DDPG and TD3 against TorchRL's classes, with gradients, and where they differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tests.oracles.torchrl_losses import (
    ACTIONS,
    BY_HAND,
    DIMS,
    F64,
    GAMMA,
    ONLINE,
    ROWS,
    TARGET,
    Scaled,
    action_critic,
    actor_value,
    agree,
    close,
    critic,
    deterministic_actor,
    discrete_batch,
    drawn,
    keep_generator,
    leaf,
    load,
    members,
    parameter,
    policy,
    q_of,
    row_fields,
    set_members,
    transitions,
)
from torch import Tensor

from purerl import losses, random

pytestmark = BY_HAND
rl = pytest.fixture(scope="module")(load)
generator = pytest.fixture(autouse=True)(keep_generator)


def q_actor(rl: Any) -> Any:
    return rl.modules.QValueActor(
        Scaled(lambda s, x: s * x + x.flip(-1)), in_keys=["observation"], action_space="categorical"
    )


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("kind", "their_kind"), [("l2", "l2"), ("huber", "smooth_l1")])
def test_dqn_loss(rl: Any, double: bool, kind: Any, their_kind: str) -> None:
    data, action = discrete_batch()
    module = rl.objectives.DQNLoss(
        q_actor(rl), loss_function=their_kind, double_dqn=double, delay_value=True,
        action_space="categorical",
    )  # fmt: skip
    module.make_value_estimator(gamma=GAMMA)
    set_members(module, "value_network", (0.7,), (-1.1,))
    written = data.clone()
    theirs = module(written)["loss"]
    scale, following = parameter(0.7), data["next", "observation"]
    reward, terminated = row_fields(data)
    target = losses.dqn_target(
        reward, q_of(-1.1, following), terminated, gamma=GAMMA,
        next_q_select=q_of(0.7, following) if double else None,
    )  # fmt: skip
    ours, metrics = losses.dqn(q_of(scale, data["observation"]), action, target, kind=kind)
    agree(theirs, leaf(module.value_network_params), ours, scale)
    # the priority that it writes, into its input, is δ²
    close(metrics["priority"].square(), written["td_error"].squeeze(-1))


def test_weights_divide_by_their_sum_in_torchrl(rl: Any) -> None:
    weight = drawn(31, ROWS).exp()
    data, action = discrete_batch(priority_weight=weight)
    module = rl.objectives.DQNLoss(
        q_actor(rl), loss_function="l2", delay_value=True, action_space="categorical"
    )
    module.make_value_estimator(gamma=GAMMA)
    set_members(module, "value_network", (0.7,), (1.1,))
    theirs = module(data.clone())["loss"]
    reward, terminated = row_fields(data)
    target = losses.dqn_target(
        reward, q_of(1.1, data["next", "observation"]), terminated, gamma=GAMMA
    )
    q = q_of(0.7, data["observation"])
    options: Any = {"kind": "l2", "weight": weight}
    close(losses.dqn(q, action, target, weight_mode="normalized", **options)[0], theirs)
    close(losses.dqn(q, action, target, **options)[0], theirs * weight.mean())


def test_distributional_dqn_loss_in_float32_which_is_all_it_takes(rl: Any) -> None:
    num_atoms = 5
    support = torch.linspace(-2.0, 2.0, num_atoms)
    logits, following = (
        drawn(k, ROWS, ACTIONS, num_atoms).float().requires_grad_(k == 41) for k in (41, 42)
    )
    reward = drawn(6, ROWS).float()
    terminated = random.bernoulli(random.key(3), 0.3, (ROWS,))
    action = random.randint(random.key(22), (ROWS,), 0, ACTIONS)

    def network(scale: Tensor, x: Tensor) -> Tensor:
        # it wants [*B, atoms, actions] of log-probabilities
        return (scale.float() * x).log_softmax(-1).transpose(-1, -2)

    actor = rl.modules.DistributionalQValueActor(
        Scaled(network), support=support, in_keys=["observation"], action_space="categorical"
    )
    module = rl.objectives.DistributionalDQNLoss(actor, gamma=GAMMA, delay_value=True)
    set_members(module, "value_network", (0.75,), (1.25,))
    done = {"terminated": terminated.unsqueeze(-1), "done": terminated.unsqueeze(-1)}
    data = TensorDict(
        {
            "observation": logits.detach(),
            "action": action,
            "next": {"observation": following, "reward": reward.unsqueeze(-1), **done},
        },
        batch_size=[ROWS],
    )
    written = data.clone()
    theirs = module(written)["loss"]
    options: Any = {"v_min": -2.0, "v_max": 2.0}
    # it always selects by the online network
    target = losses.c51_target(
        reward, 1.25 * following, terminated, gamma=GAMMA, next_logits_select=0.75 * following,
        **options,
    )  # fmt: skip
    scale = torch.tensor(0.75, requires_grad=True)
    ours, metrics = losses.c51(scale * logits.detach(), action, target)
    their_leaf = leaf(module.value_network_params)
    close(ours, theirs, 1e-5)
    (wanted,), (found,) = torch.autograd.grad(theirs, their_leaf), torch.autograd.grad(ours, scale)
    close(found, wanted.reshape(()).float(), 1e-5)
    close(metrics["priority"], written["td_error"].squeeze(-1), 1e-5)
    wide = data.apply(lambda x: x.double() if x.is_floating_point() else x)
    with pytest.raises(RuntimeError, match="must have the same scalar type"):
        module(wide)


@pytest.mark.parametrize("kind", ["l2", "smooth_l1"])
def test_discrete_cql_loss_halves_the_distance_and_bootstraps_from_the_online_network(
    rl: Any, kind: str
) -> None:
    data, action = discrete_batch()
    module = rl.objectives.DiscreteCQLLoss(
        q_actor(rl), loss_function=kind, action_space="categorical"
    )
    module.make_value_estimator(gamma=GAMMA)
    set_members(module, "value_network", (0.7,), (1.1,))
    theirs = module(data.clone())
    scale = parameter(0.7)
    q = q_of(scale, data["observation"])
    reward, terminated = row_fields(data)
    # 0.7, not the 1.1 of its target network
    target = losses.dqn_target(
        reward, q_of(0.7, data["next", "observation"]), terminated, gamma=GAMMA
    )
    own: Any = "l2" if kind == "l2" else "huber"
    critic_loss, _ = losses.dqn(q, action, target, kind=own)
    agree(theirs["loss_qvalue"], leaf(module.value_network_params), 0.5 * critic_loss, scale)
    penalty, _ = losses.cql_discrete_penalty(q, action)
    agree(theirs["loss_cql"], leaf(module.value_network_params), penalty, scale)


@pytest.mark.parametrize("delay_actor", [False, True])
def test_ddpg_loss_which_bootstraps_from_the_online_actor_unless_told(
    rl: Any, delay_actor: bool
) -> None:
    data = transitions()
    module = rl.objectives.DDPGLoss(
        deterministic_actor(), action_critic(), loss_function="l2", delay_actor=delay_actor,
        delay_value=True,
    )  # fmt: skip
    module.make_value_estimator(gamma=GAMMA)
    set_members(module, "value_network", (0.7,), (1.1,))
    if delay_actor:
        leaf(module.target_actor_network_params).data.fill_(0.5)
    theirs = module(data.clone())
    following = data["next", "observation"]
    next_action = policy(0.5 if delay_actor else 0.8, following)
    reward, terminated = row_fields(data)
    next_q = critic(parameter(1.1), following, next_action).squeeze(-1)
    target = losses.ddpg_target(reward, next_q, terminated, gamma=GAMMA)
    scale, mu = parameter(0.7), parameter(0.8)
    q = critic(scale, data["observation"], data["action"]).squeeze(-1)
    ours, metrics = losses.ddpg_critic(q, target)
    agree(theirs["loss_value"], leaf(module.value_network_params), ours, scale)
    # what it calls an error is its square
    close(metrics["priority"].square(), theirs["td_error"])
    ours, _ = losses.ddpg_actor(actor_value(mu, data, 0.7))
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu)


def td3(rl: Any, name: str = "TD3Loss", bound: float = 1.0, **options: Any) -> Any:
    module = getattr(rl.objectives, name)(
        deterministic_actor(),
        action_critic(),
        bounds=(-bound, bound),
        loss_function="l2",
        **options,
    )
    module.make_value_estimator(gamma=GAMMA)
    set_members(module, "qvalue_network")
    leaf(module.target_actor_network_params).data.fill_(0.5)
    return module


@pytest.mark.parametrize("name", ["TD3Loss", "TD3BCLoss"])
def test_td3_losses(rl: Any, name: str) -> None:
    data = transitions()
    module = td3(rl, name, policy_noise=0.0)
    written = data.clone()
    theirs = module(written)
    following = data["next", "observation"]
    next_action = losses.td3_smoothed_action(
        policy(0.5, following), torch.zeros(ROWS, DIMS, dtype=F64)
    )
    reward, terminated = row_fields(data)
    next_q = members(parameter(*TARGET), following, next_action)
    target = losses.td3_target(reward, next_q, terminated, gamma=GAMMA)
    close(target, theirs["target_value"])
    scales, mu = parameter(*ONLINE), parameter(0.8)
    ours, metrics = losses.td3_critic(members(scales, data["observation"], data["action"]), target)
    agree(theirs["loss_qvalue"], leaf(module.qvalue_network_params), ours, scales)
    close(metrics["priority"].square(), written["td_error"])
    value = actor_value(mu, data, ONLINE[0])
    if name == "TD3Loss":
        ours, _ = losses.td3_actor(value.unsqueeze(0))
    else:
        ours, metrics = losses.td3_bc_actor(value, policy(mu, data["observation"]), data["action"])
        close(metrics["lambda"], theirs["lmbd"])
        close(metrics["loss_bc"], theirs["bc_loss"])
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu)


def test_the_smoothing_noise_of_torchrl_ignores_the_range_of_the_action(rl: Any) -> None:
    data = transitions()
    module = td3(rl, bound=2.0, policy_noise=0.2, noise_clip=0.5)
    state = torch.random.get_rng_state()
    theirs = module(data.clone())["target_value"]
    torch.random.set_rng_state(state)
    noise = torch.randn_like(data["action"])
    following = data["next", "observation"]
    reward, terminated = row_fields(data)

    def target(noise_scale: Any) -> Tensor:
        action = losses.td3_smoothed_action(
            policy(0.5, following), noise, low=-2.0, high=2.0, noise_scale=noise_scale
        )
        next_q = members(parameter(*TARGET), following, action)
        return losses.td3_target(reward, next_q, terminated, gamma=GAMMA)

    close(target("absolute"), theirs)
    assert not torch.allclose(target("half_range"), theirs)
