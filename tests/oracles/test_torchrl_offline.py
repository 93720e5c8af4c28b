"""CQL and IQL against TorchRL's classes, with gradients, and where they differ."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tests.oracles.torchrl_losses import (
    BY_HAND,
    DIMS,
    F64,
    GAMMA,
    ONLINE,
    ROWS,
    TARGET,
    Scaled,
    action_critic,
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
    state_critic,
    stochastic_actor,
    transitions,
    values_critic,
)
from torch import Tensor

from purerl import losses

pytestmark = BY_HAND
rl = pytest.fixture(scope="module")(load)
generator = pytest.fixture(autouse=True)(keep_generator)


def blind_critic() -> TensorDictModule:
    """Return a critic that ignores the action, so that it does not matter which were drawn."""
    network = Scaled(lambda s, x, a: s * x.sum(-1, keepdim=True) + 0.0 * a[..., :1])
    return TensorDictModule(
        network, in_keys=["observation", "action"], out_keys=["state_action_value"]
    )


def cql(rl: Any, critic_network: Any, **options: Any) -> Any:
    module = rl.objectives.CQLLoss(
        stochastic_actor(), critic_network, loss_function="l2", target_entropy=-1.5, **options
    )
    module.make_value_estimator(gamma=GAMMA)
    module.log_alpha.data.fill_(-0.5)
    set_members(module, "qvalue_network")
    return module


def cql_sources(data: TensorDict, scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q of the data, of one sample of each source, and the samples' log-densities.

    TorchRL scores the actions of π(s') at s', where the formula and the authors' code stay at s.
    """
    x, following = data["observation"], data["next", "observation"]
    here, after = (torch.stack([s * y.sum(-1) for s in scales]) for y in (x, following))
    ones = torch.ones(DIMS, dtype=F64)
    box = losses.cql_uniform_log_prob(-ones, ones).expand(ROWS)
    log_prob = [box, *(log_prob_of(policy(0.8, y)) for y in (x, following))]
    return here, torch.stack([here, here, after], 1), torch.stack(log_prob)


@pytest.mark.parametrize("num_random", [1, 4])
def test_cql_loss_sums_3_samples_at_a_time(rl: Any, num_random: int) -> None:
    data = transitions()
    module = cql(rl, blind_critic(), num_random=num_random, min_q_weight=0.5, temperature=2.0)
    theirs = module(data.clone())
    scales = parameter(*ONLINE)
    here, sampled, log_prob = cql_sources(data, scales)
    copies = [x.repeat_interleave(num_random, dim) for x, dim in ((sampled, 1), (log_prob, 0))]
    ours, _ = losses.cql_penalty(
        here, *copies, temperature=2.0, min_q_weight=0.5, temperature_scales_density=True
    )
    # all samples of a source are equal here, so one logsumexp over all is larger by T log(num)
    expected = ours - 0.5 * 2.0 * 2 * math.log(num_random)
    agree(theirs["loss_cql"], leaf(module.qvalue_network_params), expected, scales)


def test_the_rows_of_torchrls_cql_loss_are_those_of_a_square(rl: Any) -> None:
    data = transitions()
    module = cql(rl, blind_critic(), num_random=1, reduction="none", scalar_output_mode="exclude")
    rows = module(data.clone())["loss_cql"]
    ours, _ = losses.cql_penalty(*cql_sources(data, parameter(*ONLINE)), reduction="none")
    close(ours.mean(), rows.mean())
    assert not torch.allclose(ours, rows)


def test_the_other_terms_of_cql_loss(rl: Any) -> None:
    data = transitions()
    module = cql(rl, action_critic(), num_random=1)
    theirs = module(data.clone())
    following, mu, scales = data["next", "observation"], parameter(0.8), parameter(*ONLINE)
    reward, terminated = row_fields(data)
    next_q = members(parameter(*TARGET), following, policy(mu, following))
    target = losses.cql_target(reward, next_q.unsqueeze(1), terminated, gamma=GAMMA)
    q = members(scales, data["observation"], data["action"])
    ours, _ = losses.sac_critic(q, target)
    agree(theirs["loss_qvalue"], leaf(module.qvalue_network_params), ours, scales)
    alpha = theirs["alpha"].double()
    action = policy(mu, data["observation"])
    log_prob = log_prob_of(action)
    q = members(scales.detach(), data["observation"], action)
    ours, _ = losses.sac_actor(log_prob, q, alpha)
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu)
    close(theirs["loss_alpha"], losses.sac_alpha(module.log_alpha.double(), log_prob, -1.5)[0])
    data_log_prob = log_prob_of(data["action"])
    ours, _ = losses.cql_bc_actor(log_prob, data_log_prob, alpha)
    close(ours, theirs["loss_actor_bc"])


def test_the_multiplier_of_torchrls_cql_learns_but_scales_nothing(rl: Any) -> None:
    data, found = transitions(), []
    sources = cql_sources(data, parameter(*ONLINE))
    plain, _ = losses.cql_penalty(*sources)
    for log_alpha_prime in (0.0, 2.0):
        module = cql(rl, blind_critic(), num_random=1, with_lagrange=True, lagrange_thresh=0.5)
        module.log_alpha_prime.data.fill_(log_alpha_prime)
        theirs = module(data.clone())
        found.append(theirs["loss_cql"])
        logs = torch.tensor(log_alpha_prime, dtype=F64)
        alpha_prime = losses.cql_alpha_prime(logs)
        ours, metrics = losses.cql_penalty(*sources, alpha_prime=alpha_prime, threshold=0.5)
        close(ours, math.exp(log_alpha_prime) * (plain - 1.0))
        dual, _ = losses.cql_lagrange(logs, metrics["gap"], threshold=0.5)
        close(dual, theirs["loss_alpha_prime"].squeeze(), 1e-6)
    assert torch.equal(*found)


def iql(rl: Any, name: str, actor: Any, critic_network: Any, value: Any, **options: Any) -> Any:
    module = getattr(rl.objectives, name)(
        actor, critic_network, value, loss_function="l2", expectile=0.75, temperature=2.0, **options
    )
    module.make_value_estimator(gamma=GAMMA)
    set_members(module, "qvalue_network")
    return module


def test_iql_loss(rl: Any) -> None:
    data = transitions()
    module = iql(rl, "IQLLoss", stochastic_actor(), action_critic(), state_critic(0.4))
    theirs = module(data.clone())
    scales, weight = parameter(*ONLINE), parameter(0.4)
    x, following = data["observation"], data["next", "observation"]
    target_q = members(parameter(*TARGET), x, data["action"])
    value = (weight * x.sum(-1, keepdim=True)).squeeze(-1)
    ours, _ = losses.iql_value(value, target_q, expectile=0.75)
    agree(theirs["loss_value"], leaf(module.value_network_params), ours, weight)
    reward, terminated = row_fields(data)
    target = losses.iql_target(reward, 0.4 * following.sum(-1), terminated, gamma=GAMMA)
    ours, _ = losses.iql_critic(members(scales, x, data["action"]), target)
    agree(theirs["loss_qvalue"], leaf(module.qvalue_network_params), ours, scales)
    # the log-probability of the action in the data depends on no parameter of this policy
    ours, _ = losses.iql_actor(log_prob_of(data["action"]), target_q, value, temperature=2.0)
    close(ours, theirs["loss_actor"])


def test_discrete_iql_loss(rl: Any) -> None:
    data, action = discrete_batch()
    module = iql(
        rl,
        "DiscreteIQLLoss",
        categorical_actor(torch.distributions.Categorical),
        values_critic("state_action_value"),
        state_critic(0.4),
        action_space="categorical",
    )
    theirs = module(data.clone())
    mu, scales, weight = parameter(0.8), parameter(*ONLINE), parameter(0.4)
    x, following = data["observation"], data["next", "observation"]
    target_q = losses.action_value(torch.stack([q_of(s, x) for s in TARGET]), action)
    value = (weight * x.sum(-1, keepdim=True)).squeeze(-1)
    ours, _ = losses.iql_value(value, target_q, expectile=0.75)
    agree(theirs["loss_value"], leaf(module.value_network_params), ours, weight)
    reward, terminated = row_fields(data)
    target = losses.iql_target(reward, 0.4 * following.sum(-1), terminated, gamma=GAMMA)
    q = losses.action_value(torch.stack([q_of(s, x) for s in scales]), action)
    ours, _ = losses.iql_critic(q, target)
    agree(theirs["loss_qvalue"], leaf(module.qvalue_network_params), ours, scales)
    log_prob = losses.action_value((mu * x).log_softmax(-1), action)
    ours, _ = losses.iql_actor(log_prob, target_q, value, temperature=2.0)
    agree(theirs["loss_actor"], leaf(module.actor_network_params), ours, mu)


@pytest.mark.parametrize("name", ["IQLLoss", "REDQLoss", "SACLoss"])
def test_merged_steps_reach_the_target_of_sac_and_are_lost_in_iql_and_redq(
    rl: Any, name: str
) -> None:
    data = transitions()
    if name == "IQLLoss":
        module = iql(rl, name, stochastic_actor(), action_critic(), state_critic(0.4))
    else:
        module = soft(rl, name, **({"num_qvalue_nets": 2} if name == "REDQLoss" else {}))
        set_members(module, "qvalue_network")
    state = torch.random.get_rng_state()
    plain = module(data.clone())["loss_qvalue"]
    data["steps_to_next_obs"] = torch.full((ROWS, 1), 3)
    torch.random.set_rng_state(state)
    merged = module(data.clone())["loss_qvalue"]
    assert torch.equal(plain, merged) == (name != "SACLoss")
