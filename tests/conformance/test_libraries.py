"""What the kit says about real libraries; `docs/conformance.md` repeats it in words."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from purerl import conformance


def column(x: Any) -> Any:
    """``[T]`` as TorchRL's ``[T, 1]``; numbers stay as they are."""
    return x.unsqueeze(-1) if isinstance(x, torch.Tensor) else x


@pytest.mark.parametrize(
    "name", ["generalized_advantage_estimate", "vec_generalized_advantage_estimate"]
)
def test_torchrl_gae_keeps_truncation_apart_but_lets_nan_through(name: str) -> None:
    """TorchRL multiplies by (1 − terminated): NaN behind a termination reaches the advantage."""
    functional = pytest.importorskip("torchrl.objectives.value.functional")

    def gae(
        reward: Any,
        value: Any,
        next_value: Any,
        terminated: Any,
        truncated: Any,
        gamma: Any,
        lmbda: Any,
    ) -> Any:
        inputs = (value, next_value, reward, terminated | truncated, terminated)
        found = getattr(functional, name)(gamma, lmbda, *map(column, inputs))
        return tuple(x.squeeze(-1) for x in found)

    report = conformance.check_gae(gae, framework="torch", rtol=1e-5)
    by_name = {result.name: result.passed for result in report.results}
    assert by_name["equals its definition where time limits cut episodes"]
    assert by_name["a time limit keeps the value of the final observation"]
    assert not by_name["a value behind a termination may be NaN"]


def test_torchrl_td_lambda_is_the_same() -> None:
    functional = pytest.importorskip("torchrl.objectives.value.functional")

    def td_lambda(
        reward: Any, next_value: Any, terminated: Any, truncated: Any, gamma: Any, lmbda: Any
    ) -> Any:
        inputs = (next_value, reward, terminated | truncated, terminated)
        found = functional.td_lambda_return_estimate(gamma, lmbda, *map(column, inputs))
        return found.squeeze(-1)

    report = conformance.check_returns(td_lambda, "td_lambda", framework="torch", rtol=1e-5)
    failed = [result.name for result in report.results if not result.passed]
    assert failed in ([], ["a value behind a termination may be NaN"])


def sb3_gae(
    reward: Any, value: Any, next_value: Any, terminated: Any, gamma: Any, lmbda: Any
) -> Any:
    """Stable-Baselines3's rollout buffer, which sees one flag, and the next row's value."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import RolloutBuffer

    steps = len(reward)
    box = spaces.Box(-1, 1, (1,))
    buffer = RolloutBuffer(steps, box, box, gae_lambda=lmbda, gamma=gamma)
    buffer.rewards[:, 0], buffer.values[:, 0] = reward, value
    buffer.episode_starts[1:, 0] = terminated[:-1]
    last = torch.tensor([next_value[-1]], dtype=torch.float32)
    buffer.compute_returns_and_advantage(last, np.array(terminated[-1:]))
    return buffer.advantages[:, 0].astype(np.float64), buffer.returns[:, 0].astype(np.float64)


def test_stable_baselines3_reads_the_next_value_from_the_next_row() -> None:
    """Right on consistent values; it has no place for the value of a final observation."""
    pytest.importorskip("stable_baselines3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = conformance.check_gae(sb3_gae, rtol=1e-4)
    assert not report.passed
    assert report.restrictions == ("truncated",)
    assert report.mistake is not None
    assert report.mistake.identifier == "M05"


def test_stable_baselines3_squashed_gaussian_adds_an_epsilon_in_the_log() -> None:
    distributions = pytest.importorskip("stable_baselines3.common.distributions")

    def log_prob(pre_tanh: Any, loc: Any, scale: Any) -> Any:
        squashed = distributions.SquashedDiagGaussianDistribution(pre_tanh.shape[-1])
        squashed.distribution = torch.distributions.Normal(loc, scale)
        return squashed.log_prob(pre_tanh.tanh(), gaussian_actions=pre_tanh)

    report = conformance.check_tanh_normal(log_prob, framework="torch")
    assert report.mistake is not None
    assert report.mistake.identifier == "M36"


@pytest.fixture
def rlax() -> Any:
    jax = pytest.importorskip("jax")
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        yield pytest.importorskip("rlax")


def test_rlax_conforms_where_its_one_discount_can_say_it(rlax: Any) -> None:
    """One discount per step says termination; a cut inside a sequence it cannot say."""

    def gae(
        reward: Any, value: Any, next_value: Any, terminated: Any, gamma: Any, lmbda: Any
    ) -> Any:
        discount = np.where(terminated, 0.0, gamma)
        values = np.append(value, next_value[-1])
        return rlax.truncated_generalized_advantage_estimation(reward, discount, lmbda, values)

    report = conformance.check_gae(gae)
    # it takes T + 1 values and so reads the next value from the next row
    assert report.mistake is not None
    assert report.mistake.identifier == "M05"

    def lambda_returns(
        reward: Any, next_value: Any, terminated: Any, gamma: Any, lmbda: Any
    ) -> Any:
        ahead = np.where(terminated, 0.0, next_value)
        return rlax.lambda_returns(reward, np.where(terminated, 0.0, gamma), ahead, lmbda)

    assert conformance.check_returns(lambda_returns, "td_lambda").passed
