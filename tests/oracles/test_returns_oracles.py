"""Every estimator against forward sums in NumPy, and against rlax and TorchRL, run live."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles import numpy_returns as definition
from tests.oracles.numpy_returns import Array, trajectory
from torch import Tensor

from purerl import returns

# one step; a few; the last length of log-steps; blocks, with and without a remainder
LENGTHS = [1, 7, 128, 132, 203]
CRITIC = ("reward", "next_value", "terminated", "truncated")
ADVANTAGE = ("reward", "value", "next_value", "terminated", "truncated")
VTRACE = ("log_prob", "behavior_log_prob", *ADVANTAGE)


def tensors(inputs: dict[str, Any]) -> dict[str, Any]:
    return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}


def pick(data: dict[str, Array], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: data[name] for name in names}


def close(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    assert torch.is_tensor(actual) == (not isinstance(expected, tuple))
    if isinstance(expected, tuple):
        for a, b in zip(actual, expected, strict=True):
            close(a, b, rtol)
        return
    wanted = torch.from_numpy(np.array(expected))
    assert actual.dtype == wanted.dtype
    torch.testing.assert_close(actual, wanted, rtol=rtol, atol=rtol * float(wanted.abs().max()))


# The definitions.


def coefficients(kind: str, num_steps: int) -> dict[str, Any]:
    if kind == "number":
        return {"gamma": 0.99, "lmbda": 0.95}
    rng = np.random.default_rng(5)
    shape = (num_steps, 3) if kind == "per step" else ()
    return {
        "gamma": np.asarray(rng.uniform(0.5, 1.0, shape)),
        "lmbda": np.asarray(rng.uniform(0.0, 1.0, shape)),
    }


@pytest.fixture(params=["number", "0-d", "per step"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "masked"])
def masked(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=LENGTHS)
def data(request: pytest.FixtureRequest, masked: bool) -> dict[str, Any]:
    found: dict[str, Any] = trajectory(request.param, request.param)
    found["mask"] = np.random.default_rng(1).random(found["reward"].shape) < 0.9 if masked else None
    return found


def test_gae_equals_its_definition(data: dict[str, Any], kind: str) -> None:
    inputs = pick(data, (*ADVANTAGE, "mask")) | coefficients(kind, len(data["reward"]))
    close(returns.gae(**tensors(inputs)), definition.gae(**inputs))


def test_gae_with_a_carry_equals_its_definition(data: dict[str, Any]) -> None:
    inputs = pick(data, (*ADVANTAGE, "mask")) | {"gamma": 0.99, "lmbda": 0.95}
    carry = np.array([1.0, -2.0, 3.0])
    close(returns.gae(**tensors(inputs | {"carry": carry})), definition.gae(**inputs, carry=carry))


def test_td_estimators_equal_their_definitions(data: dict[str, Any], kind: str) -> None:
    inputs = pick(data, (*CRITIC, "mask"))
    given = coefficients(kind, len(data["reward"]))
    discount = {"gamma": given["gamma"]}
    close(returns.td_lambda(**tensors(inputs | given)), definition.td_lambda(**inputs, **given))
    close(returns.td1(**tensors(inputs | discount)), definition.td1(**inputs, **discount))
    for n in (1, 2, 5):
        close(
            returns.n_step(**tensors(inputs | discount), n=n),
            definition.n_step(**inputs, **discount, n=n),
        )
    own = inputs | discount
    del own["truncated"]
    close(returns.td0(**tensors(own)), definition.td0(**own))
    own = inputs | discount
    del own["next_value"]
    close(returns.reward_to_go(**tensors(own)), definition.reward_to_go(**own))


def test_merged_transitions_bootstrap_to_n_step(data: dict[str, Any]) -> None:
    inputs = tensors(pick(data, ("reward", "terminated", "truncated", "mask")))
    next_value = torch.from_numpy(data["next_value"])
    for n in (1, 3, 300):
        merged = returns.n_step_transition(**inputs, n=n, gamma=0.9)
        target = returns.td0(
            merged.reward,
            next_value.gather(0, merged.last_row),
            merged.terminated,
            gamma=0.9,
            steps=merged.steps,
            mask=inputs["mask"],
        )
        plain = pick(data, (*CRITIC, "mask")) | {"gamma": 0.9, "n": n}
        close(target, definition.n_step(**plain))


@pytest.mark.parametrize("mixed", [False, True])
def test_vtrace_equals_its_definition(data: dict[str, Any], kind: str, mixed: bool) -> None:
    inputs = pick(data, (*VTRACE, "mask")) | coefficients(kind, len(data["reward"]))
    clips = {"rho_clip": 1.5, "c_clip": 0.9, "pg_rho_clip": 1.2}
    ours = returns.vtrace(**tensors(inputs), **clips, pg_bootstrap="mixed" if mixed else "plain")
    close(ours, definition.vtrace(**inputs, **clips, mixed=mixed))


@pytest.mark.parametrize("trace", ["retrace", "tree_backup", "importance", "q_lambda"])
def test_retrace_equals_its_definition(
    data: dict[str, Any], kind: str, trace: returns.Trace
) -> None:
    log_ratio, log_prob = 0.5 * data["log_prob"], -np.abs(data["behavior_log_prob"])
    weight = {
        "retrace": np.minimum(1.0, np.exp(log_ratio)),
        "tree_backup": np.exp(log_prob),
        "importance": np.exp(log_ratio),
        "q_lambda": np.ones_like(log_ratio),
    }[trace]
    inputs = pick(data, ("reward", "terminated", "truncated", "mask"))
    inputs |= {"q_value": data["value"], "next_expected_value": data["next_value"]}
    inputs |= coefficients(kind, len(data["reward"]))
    logs = tensors({"log_ratio": log_ratio, "log_prob": log_prob})
    close(
        returns.retrace(**tensors(inputs), **logs, trace=trace),
        definition.retrace(**inputs, trace_weight=weight),
    )


# rlax knows one stream and one discount: a row that ends an episode gets discount 0, and where it
# was cut its reward pays the bootstrap out.


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


def paid_out(data: dict[str, Array], gamma: float) -> tuple[Array, Array]:
    """Return rewards and discounts of a trajectory as rlax can represent them."""
    cut = data["truncated"] & ~data["terminated"]
    done = data["truncated"] | data["terminated"]
    reward = data["reward"] + np.where(cut, gamma * data["next_value"], 0.0)
    return reward, np.where(done, 0.0, gamma)


@pytest.mark.parametrize("num_steps", [1, 7, 132])
def test_rlax_agrees_on_gae_and_lambda_returns(rlax: Any, jax: Any, num_steps: int) -> None:
    data = trajectory(num_steps, num_steps, consistent=True)
    reward, discount = paid_out(data, 0.99)
    over_columns = {"in_axes": (1, 1, None, 1), "out_axes": 1}
    values = np.concatenate([data["value"], data["next_value"][-1:]])
    gae = jax.vmap(rlax.truncated_generalized_advantage_estimation, **over_columns)
    own = tensors(pick(data, ADVANTAGE))
    advantage, target = returns.gae(**own, gamma=0.99, lmbda=0.9)
    close(advantage, gae(reward, discount, 0.9, values))

    own = tensors(pick(data, CRITIC))
    over_columns = {"in_axes": (1, 1, 1, None), "out_axes": 1}
    returns_of = jax.vmap(rlax.lambda_returns, **over_columns)
    theirs = returns_of(reward, discount, data["next_value"], 0.9)
    close(returns.td_lambda(**own, gamma=0.99, lmbda=0.9), theirs)
    close(target, theirs)
    theirs = returns_of(reward, discount, data["next_value"], 1.0)
    close(returns.td1(**own, gamma=0.99), theirs)
    for n in (1, 3):
        steps = jax.vmap(lambda r, d, v, n=n: rlax.n_step_bootstrapped_returns(r, d, v, n), 1, 1)
        if n <= num_steps:
            # rlax bootstraps the tail from the window's last value, discounted as it stands
            close(
                returns.n_step(**own, n=n, gamma=0.99), steps(reward, discount, data["next_value"])
            )


@pytest.mark.parametrize("num_steps", [1, 7, 132])
def test_rlax_agrees_on_vtrace(rlax: Any, jax: Any, num_steps: int) -> None:
    data = trajectory(num_steps, num_steps)
    reward, discount = paid_out(data, 0.99)
    rho = np.exp(data["log_prob"] - data["behavior_log_prob"])
    own = tensors(pick(data, VTRACE))
    arrays = (data["value"], data["next_value"], reward, discount, rho)
    for lmbda in (1.0, 0.9):

        def theirs(*args: Any, lmbda: float = lmbda) -> Any:
            return rlax.vtrace_td_error_and_advantage(*args, lmbda, 1.5, 1.2)

        expected = jax.vmap(theirs, in_axes=1, out_axes=1)(*arrays)
        clips = {"rho_clip": 1.5, "c_clip": 1.0, "pg_rho_clip": 1.2}
        ours = returns.vtrace(**own, gamma=0.99, lmbda=lmbda, pg_bootstrap="mixed", **clips)
        close(ours.value_target, expected.errors + data["value"])
        close(ours.advantage, expected.pg_advantage)


@pytest.mark.parametrize("num_steps", [2, 7, 132])
def test_rlax_agrees_on_retrace(rlax: Any, jax: Any, num_steps: int) -> None:
    data = trajectory(num_steps, num_steps)
    reward, discount = paid_out(data, 0.99)
    q, log_ratio = data["value"], data["log_prob"]
    theirs = jax.vmap(rlax.retrace_continuous, (1, 1, 1, 1, 1, 1, None), 1)
    # the coefficients belong to the destination of a step, so the first of ours is not used
    error = theirs(q, q[1:], data["next_value"], reward, discount, log_ratio[1:], 0.9)
    own = tensors(pick(data, ("reward", "terminated", "truncated")))
    own |= tensors({"q_value": q, "next_expected_value": data["next_value"]})
    ours = returns.retrace(**own, log_ratio=torch.from_numpy(log_ratio), gamma=0.99, lmbda=0.9)
    close(ours, error + q)


# TorchRL keeps time on the last axis but one. It multiplies a number gamma with integer flags,
# which rounds it to float32: so gammas here are exact in float32. Its reward-to-go filters with
# powers of gamma down to 1e-7 only, hence the tolerance there.


@pytest.fixture(scope="module")
def torchrl() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("torchrl.objectives.value.functional")


def their_layout(data: dict[str, Array]) -> dict[str, Tensor]:
    found = {k: v.movedim(0, 1).unsqueeze(-1) for k, v in tensors(data).items()}
    return found | {"done": found["terminated"] | found["truncated"]}


@pytest.mark.parametrize("num_steps", [1, 7, 132])
@pytest.mark.parametrize(("gamma", "lmbda"), [(63 / 64, 15 / 16), (1.0, 1.0), (0.5, 0.0)])
def test_torchrl_agrees(torchrl: Any, num_steps: int, gamma: float, lmbda: float) -> None:
    x = their_layout(trajectory(num_steps, num_steps))
    values = {"state_value": x["value"], "next_state_value": x["next_value"]}
    flags = {"done": x["done"], "terminated": x["terminated"]}
    critic = {k: x[k] for k in CRITIC}
    options: dict[str, Any] = {"gamma": gamma, "dim": -2}

    def agree(actual: Tensor, expected: Tensor, rtol: float = 1e-12) -> None:
        close(actual, expected.numpy(), rtol)

    theirs = torchrl.generalized_advantage_estimate(
        gamma, lmbda, **values, reward=x["reward"], **flags
    )
    ours = returns.gae(**{k: x[k] for k in ADVANTAGE}, lmbda=lmbda, **options)
    for field, expected in zip(ours, theirs, strict=True):
        agree(field, expected)

    bootstrap = {"next_state_value": x["next_value"], "reward": x["reward"], **flags}
    expected = torchrl.td_lambda_return_estimate(gamma, lmbda, **bootstrap)
    agree(returns.td_lambda(**critic, lmbda=lmbda, **options), expected)
    agree(returns.td1(**critic, **options), torchrl.td1_return_estimate(gamma, **bootstrap))
    expected = torchrl.td0_return_estimate(
        gamma, x["next_value"], x["reward"], terminated=x["terminated"]
    )
    agree(returns.td0(x["reward"], x["next_value"], x["terminated"], gamma=gamma), expected)
    own = {k: x[k] for k in ("reward", "terminated", "truncated")}
    expected = torchrl.reward2go(x["reward"], x["done"], gamma)
    agree(returns.reward_to_go(**own, **options), expected, 1e-6)


@pytest.mark.parametrize("num_steps", [1, 7, 132])
def test_torchrl_agrees_on_vtrace(torchrl: Any, num_steps: int) -> None:
    x = their_layout(trajectory(num_steps, num_steps))
    advantage, target = torchrl.vtrace_advantage_estimate(
        63 / 64,
        log_pi=x["log_prob"],
        log_mu=x["behavior_log_prob"],
        state_value=x["value"],
        next_state_value=x["next_value"],
        reward=x["reward"],
        done=x["done"],
        terminated=x["terminated"],
        rho_thresh=1.5,
        c_thresh=0.875,
    )
    own = {k: x[k] for k in VTRACE}
    ours = returns.vtrace(**own, gamma=63 / 64, rho_clip=1.5, c_clip=0.875, dim=-2)
    close(ours.value_target, target.numpy())
    close(ours.advantage, advantage.numpy())


def test_torchrl_agrees_on_discounts_per_step(torchrl: Any) -> None:
    x = their_layout(trajectory(0, 40))
    rng = np.random.default_rng(0)
    gamma, lmbda = (torch.from_numpy(rng.uniform(0.5, 1.0, x["reward"].shape)) for _ in range(2))
    critic = {k: x[k] for k in CRITIC}
    expected = torchrl.td_lambda_return_estimate(
        gamma,
        lmbda,
        next_state_value=x["next_value"],
        reward=x["reward"],
        done=x["done"],
        terminated=x["terminated"],
        rolling_gamma=True,
    )
    ours = returns.td_lambda(**critic, gamma=gamma, lmbda=lmbda, dim=-2)
    close(ours, expected.numpy())
