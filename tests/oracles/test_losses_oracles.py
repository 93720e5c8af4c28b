"""Every loss and target against its definition in NumPy, and against rlax, run live."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tests.losses.table import ALL_LOSSES, ALL_TARGETS, Entry
from tests.oracles import numpy_losses as definition
from torch import Tensor

from purerl import losses, random

SEEDS = range(20, 25)


def arrays(inputs: dict[str, Any]) -> dict[str, Any]:
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}


def close(actual: torch.Tensor, expected: Any, rtol: float = 1e-12) -> None:
    wanted = torch.from_numpy(np.array(expected))
    assert actual.dtype == wanted.dtype
    atol = rtol * float(wanted.abs().max())
    torch.testing.assert_close(actual.detach(), wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("entry", [*ALL_LOSSES, *ALL_TARGETS])
def test_each_row_equals_its_definition(entry: Entry, seed: int) -> None:
    inputs = entry.inputs(seed)
    oracle = getattr(definition, entry.function.__name__)
    expected = oracle(**arrays(inputs), **entry.hparams, **entry.options)
    if entry.accepts("reduction"):
        close(entry(inputs, reduction="none")[0], expected)
    else:
        close(entry(inputs), expected)


def test_normalised_advantages_equal_their_definition() -> None:
    rng = np.random.default_rng(0)
    advantage = rng.normal(size=301) + 3.0
    for ddof in (0, 1):
        ours = losses.normalize_advantage(torch.from_numpy(advantage), ddof=ddof)
        close(ours, definition.normalized(advantage, ddof))


# rlax: one row, or one stream [T], at a time; errors are target − prediction, and its discount is
# γ where the process goes on and 0 where it terminated.


@pytest.fixture(scope="module")
def rlax() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use what jax deprecates
        return importlib.import_module("rlax")


@pytest.fixture
def jax() -> Iterator[Any]:
    """Double precision, for this test only."""
    module = importlib.import_module("jax")
    with warnings.catch_warnings(), module.enable_x64(True):
        warnings.simplefilter("ignore")
        yield module


ROWS, ACTIONS, ATOMS = 17, 4, 7


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    keys = random.split(random.key(31), len(shapes))
    return [random.normal(k, s, dtype=torch.float64) for k, s in zip(keys, shapes, strict=True)]


def flags() -> tuple[Tensor, Tensor]:
    """Return terminations, and the discounts that rlax takes."""
    end = random.bernoulli(random.key(5), 0.3, (ROWS,))
    return end, 0.97 * (~end).double()


ACTION = random.randint(random.key(6), (ROWS,), 0, ACTIONS)


def agree_with_gradient(
    jax: Any, ours: Callable[[Tensor], Tensor], theirs: Callable[[Any], Any], x: Tensor
) -> None:
    value, gradient = jax.value_and_grad(theirs)(x.numpy())
    leaf = x.clone().requires_grad_()
    loss = ours(leaf)
    close(loss, value)
    close(torch.autograd.grad(loss, leaf)[0], gradient)


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_rlax_agrees_on_the_clipped_surrogate(rlax: Any, jax: Any, epsilon: float) -> None:
    log_prob, old, advantage = drawn((ROWS,), (ROWS,), (ROWS,))

    def ours(x: Tensor) -> Tensor:
        return losses.ppo_clip(0.3 * x, 0.3 * old, advantage, clip_epsilon=epsilon)[0]

    def theirs(x: Any) -> Any:
        ratio = jax.numpy.exp(0.3 * x - 0.3 * old.numpy())
        return rlax.clipped_surrogate_pg_loss(ratio, advantage.numpy(), epsilon)

    agree_with_gradient(jax, ours, theirs, log_prob)


def test_rlax_agrees_on_policy_gradients_and_entropy(rlax: Any, jax: Any) -> None:
    logits, advantage, spread = drawn((ROWS, ACTIONS), (ROWS,), (ROWS,))
    weight = spread.exp()

    def a2c(x: Tensor) -> Tensor:
        log_prob = losses.action_value(x.log_softmax(-1), ACTION)
        return losses.a2c(log_prob, advantage, weight=weight)[0]

    def theirs(x: Any) -> Any:
        arrays = (ACTION.numpy(), advantage.numpy(), weight.numpy())
        return rlax.policy_gradient_loss(x, *arrays)

    agree_with_gradient(jax, a2c, theirs, logits)

    def reinforce(x: Tensor) -> Tensor:
        log_prob = losses.action_value(x.log_softmax(-1), ACTION)
        return losses.reinforce(log_prob, advantage, weight=weight)[0]

    agree_with_gradient(jax, reinforce, theirs, logits)

    def bonus(x: Tensor) -> Tensor:
        entropy = -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)
        return losses.entropy_bonus(entropy, weight=weight)[0]

    agree_with_gradient(jax, bonus, lambda x: rlax.entropy_loss(x, weight.numpy()), logits)


def test_rlax_agrees_on_all_actions_gradients(rlax: Any, jax: Any) -> None:
    logits, q = drawn((ROWS, ACTIONS), (ROWS, ACTIONS))
    leaf = logits.clone().requires_grad_()
    loss, _ = losses.sac_discrete_actor(leaf, q.unsqueeze(0), 0.0)
    theirs = jax.grad(lambda x: rlax.qpg_loss(x, q.numpy()))(logits.numpy())
    close(torch.autograd.grad(loss, leaf)[0], theirs)


@pytest.mark.parametrize("double", [False, True])
def test_rlax_agrees_on_q_learning(rlax: Any, jax: Any, double: bool) -> None:
    q, next_q, select, reward = drawn(*[(ROWS, ACTIONS)] * 3, (ROWS,))
    end, discount = flags()
    target = losses.dqn_target(
        reward, next_q, end, gamma=0.97, next_q_select=select if double else None
    )
    arrays = (ACTION.numpy(), reward.numpy(), discount.numpy(), next_q.numpy())
    arrays = (*arrays, select.numpy()) if double else arrays
    error = jax.vmap(rlax.double_q_learning if double else rlax.q_learning)
    close(target - losses.action_value(q, ACTION), error(q.numpy(), *arrays))
    for kind, loss in [("half_l2", rlax.l2_loss), ("huber", rlax.huber_loss)]:
        how: Any = kind
        agree_with_gradient(
            jax,
            lambda x, how=how: losses.dqn(x, ACTION, target, kind=how)[0],
            lambda x, loss=loss: loss(error(x, *arrays)).mean(),
            q,
        )


@pytest.mark.parametrize("double", [False, True])
def test_rlax_agrees_on_categorical_q_learning(rlax: Any, jax: Any, double: bool) -> None:
    logits, following, select, reward = drawn(
        (ROWS, ACTIONS, ATOMS), (ROWS, ACTIONS, ATOMS), (ROWS, ACTIONS, ATOMS), (ROWS,)
    )
    end, discount = flags()
    options: Any = {"v_min": -2.0, "v_max": 1.0}
    z = np.linspace(-2.0, 1.0, ATOMS)
    target = losses.c51_target(
        reward,
        following,
        end,
        gamma=0.97,
        next_logits_select=select if double else None,
        **options,
    )
    arrays = (ACTION.numpy(), reward.numpy(), discount.numpy(), z, following.numpy())
    if double:
        # it chooses by values, not by distributions
        arrays = (*arrays, losses.c51_value(select, **options).numpy())
    own = rlax.categorical_double_q_learning if double else rlax.categorical_q_learning
    axes = (None, 0, 0, 0, 0, None, *[0] * (len(arrays) - 4))
    theirs = jax.vmap(own, in_axes=axes)
    agree_with_gradient(
        jax,
        lambda x: losses.c51(x, ACTION, target)[0],
        lambda x: theirs(z, x, *arrays).mean(),
        logits,
    )
    # the projection alone
    best = losses.c51_value(select if double else following, **options).argmax(-1)
    probs = following[torch.arange(ROWS), best].softmax(-1).numpy()
    moved = reward.numpy()[:, None] + discount.numpy()[:, None] * z
    close(target, jax.vmap(rlax.categorical_l2_project, (0, 0, None))(moved, probs, z))


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_rlax_agrees_on_quantile_q_learning(rlax: Any, jax: Any, kappa: float) -> None:
    quantiles, following, select, reward = drawn(
        (ROWS, ACTIONS, ATOMS), (ROWS, ACTIONS, ATOMS), (ROWS, ACTIONS, ATOMS), (ROWS,)
    )
    end, discount = flags()
    target = losses.quantile_target(
        reward, following, end, gamma=0.97, next_quantiles_select=select
    )
    tau = (np.arange(ATOMS) + 0.5) / ATOMS
    first = [x.transpose(1, 2).numpy() for x in (select, following)]  # quantiles come first there
    axes = (0, None, 0, 0, 0, 0, 0, None)

    def theirs(x: Any) -> Any:
        own = jax.vmap(rlax.quantile_q_learning, in_axes=axes)
        arrays = (tau, ACTION.numpy(), reward.numpy(), discount.numpy(), *first)
        return own(x.swapaxes(1, 2), *arrays, kappa).mean()

    agree_with_gradient(
        jax, lambda x: losses.quantile(x, ACTION, target, kappa=kappa)[0], theirs, quantiles
    )


def test_rlax_agrees_on_the_targets_of_actor_critics(rlax: Any, jax: Any) -> None:
    reward, next_q, log_prob, logits, values = drawn(
        (ROWS,), (2, ROWS), (ROWS,), (ROWS, ACTIONS), (2, ROWS, ACTIONS)
    )
    end, discount = flags()
    zero = np.zeros(ROWS)
    error = jax.vmap(rlax.td_learning)
    arrays = (reward.numpy(), discount.numpy())
    low = next_q.amin(0)
    close(losses.td3_target(reward, next_q, end, gamma=0.97), error(zero, *arrays, low.numpy()))
    soft = (low - 0.3 * log_prob).numpy()
    close(
        losses.sac_target(reward, next_q, log_prob, 0.3, end, gamma=0.97),
        error(zero, *arrays, soft),
    )
    close(
        losses.sac_discrete_target(reward, values, logits, 0.3, end, gamma=0.97),
        jax.vmap(rlax.expected_sarsa)(
            np.zeros((ROWS, ACTIONS)),
            ACTION.numpy(),
            *arrays,
            (values.amin(0) - 0.3 * logits.log_softmax(-1)).numpy(),
            logits.softmax(-1).numpy(),
        ),
    )


def test_rlax_agrees_on_deterministic_policy_gradients_and_expectiles(rlax: Any, jax: Any) -> None:
    action, slope, value, q = drawn((ROWS, 2), (2,), (ROWS,), (ROWS,))
    leaf = action.clone().requires_grad_()
    loss, _ = losses.ddpg_actor(leaf @ slope, reduction="sum")
    theirs = jax.grad(lambda x: jax.vmap(rlax.dpg_loss, (0, None))(x, slope.numpy()).sum())(
        action.numpy()
    )
    close(torch.autograd.grad(loss, leaf)[0], theirs)
    agree_with_gradient(
        jax,
        lambda x: losses.iql_value(x, q.unsqueeze(0), expectile=0.8)[0],
        lambda x: rlax.expectile_loss(x, q.numpy(), 0.8).mean(),
        value,
    )


@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_rlax_has_no_gradient_where_a_ratio_overflows(
    rlax: Any, jax: Any, advantage: float
) -> None:
    """At A = 0 its ``fmin`` also drops the NaN of ∞ · 0 from the value, not from the gradient."""
    gain, far = np.array([advantage]), np.array([800.0])

    def theirs(x: Any) -> Any:
        return rlax.clipped_surrogate_pg_loss(jax.numpy.exp(x), gain, 0.2)

    value, gradient = jax.value_and_grad(theirs)(far)
    assert bool(np.isnan(gradient).all())
    leaf = torch.from_numpy(far).requires_grad_()
    loss, _ = losses.ppo_clip(leaf, torch.zeros_like(leaf), torch.from_numpy(gain))
    close(loss, value)
    assert torch.autograd.grad(loss, leaf)[0].tolist() == [0.0]
