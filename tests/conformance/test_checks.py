"""The kit recognises right functions and every mistake that it ships."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.conformance import own_functions

from purerl import conformance, distributions, losses, returns
from purerl.conformance import KINDS, ConformanceError, Mistake
from purerl.errors import ConfigError

NAMES = {"reward": "rewards", "value": "values", "next_value": "next_values", "lmbda": "lam"}


def first(result: Any) -> Any:
    return result[0]


def clipped_value_loss(**options: Any) -> Any:
    mode = "max" if "clip_epsilon" in options else None
    return losses.value_loss(**options, clip_mode=mode)[0]


def density(**options: Any) -> Any:
    unit: Any = {"density": "env"} if "low" in options else {}
    return distributions.tanh_normal_log_prob(**options, **unit)


OURS: dict[str, Any] = {
    "gae": returns.gae,
    "vtrace": returns.vtrace,
    "td0": returns.td0,
    "td1": returns.td1,
    "td_lambda": returns.td_lambda,
    "n_step": returns.n_step,
    "reward_to_go": returns.reward_to_go,
    "ppo_loss": lambda **options: losses.ppo_clip(**options)[0],
    "value_loss": clipped_value_loss,
    "sac_target": losses.sac_target,
    "tanh_normal": density,
    "normalize_advantage": losses.normalize_advantage,
}


def every_option(kind: str) -> dict[str, str]:
    return {name: name for name in KINDS[kind].optional}


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_functions_conform(kind: str) -> None:
    report = conformance.check_function(
        kind, OURS[kind], framework="torch", arguments=every_option(kind)
    )
    report.raise_if_failed()
    assert report.passed
    assert report.mistake is None
    assert report.counterexample is None
    assert len(report.results) >= 2


def mistaken(kind: str, mistake: Mistake) -> Any:
    def function(**options: Any) -> Any:
        if kind == "value_loss":
            options["clip_mode"] = "max" if "clip_epsilon" in options else None
        if kind == "tanh_normal" and "low" in options:
            options["density"] = "env"
        result = mistake.function(**options)
        return result[0] if kind in ("ppo_loss", "value_loss") else result

    return function


ALL = [(name, mistake) for name, kind in KINDS.items() for mistake in kind.mistakes]


@pytest.mark.parametrize(
    ("kind", "mistake"), ALL, ids=[f"{name}-{mistake.identifier}" for name, mistake in ALL]
)
def test_every_mistake_is_called_by_its_name(kind: str, mistake: Mistake) -> None:
    report = conformance.check_function(
        kind, mistaken(kind, mistake), framework="torch", arguments=every_option(kind)
    )
    assert not report.passed
    assert report.mistake == mistake
    assert f"equals: {mistake.sentence}" in str(report)
    with pytest.raises(ConformanceError, match="does not conform"):
        report.raise_if_failed()


def test_a_function_with_its_own_names_and_layout_conforms() -> None:
    assert conformance.check_gae(own_functions.right_gae, arguments=NAMES).passed

    def batch_first(**inputs: Any) -> Any:
        turned = {k: v.T if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
        return own_functions.right_gae(**turned).T

    names = NAMES | {"truncated": "truncated"}
    assert conformance.check_gae(batch_first, arguments=names, time_axis=1).passed
    assert not conformance.check_gae(batch_first, arguments=names, time_axis=0).passed


def test_the_counterexample_is_minimal() -> None:
    report = conformance.check_gae(own_functions.cut_gae, arguments=NAMES)
    assert report.mistake is not None
    assert report.mistake.sentence == "truncation treated as termination"
    smallest = report.counterexample
    assert smallest is not None
    # one truncated step with a bootstrap of 1 and γ = 1: less would show no difference
    assert smallest.inputs["truncated"].tolist() == [True]
    assert smallest.inputs["terminated"].tolist() == [False]
    assert smallest.inputs["next_value"].tolist() == [1.0]
    assert smallest.inputs["reward"].tolist() == smallest.inputs["value"].tolist() == [0.0]
    assert smallest.expected["advantage"].tolist() == [smallest.inputs["gamma"]]
    assert not isinstance(smallest.found, str)
    assert smallest.found["advantage"].tolist() == [0.0]


def test_what_a_function_cannot_be_told_is_not_held_against_it() -> None:
    names = NAMES | {"terminated": "dones"}
    report = conformance.check_gae(own_functions.one_flag_gae, arguments=names)
    assert report.passed
    assert report.restrictions == ("truncated",)
    assert "not tried: truncated" in str(report)


def test_numbers_may_be_built_in() -> None:
    def built_in(
        rewards: Any, values: Any, next_values: Any, terminated: Any, truncated: Any
    ) -> Any:
        return own_functions.right_gae(
            rewards, values, next_values, terminated, truncated, 0.5, 0.75
        )

    names = {k: v for k, v in NAMES.items() if k != "lmbda"}
    fixed = {"gamma": 0.5, "lmbda": 0.75}
    assert conformance.check_gae(built_in, arguments=names, fixed=fixed).passed
    wrong = conformance.check_gae(built_in, arguments=names, fixed={"gamma": 0.9, "lmbda": 0.75})
    assert not wrong.passed


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda reward, next_value, terminated, truncated, gamma: 1 / 0, "raised ZeroDivision"),
        (lambda reward, next_value, terminated, truncated, gamma: reward[1:], "has shape"),
        (lambda reward, next_value, terminated, truncated, gamma: reward, "return differs"),
    ],
)
def test_what_a_function_raises_or_returns_is_reported(function: Any, said: str) -> None:
    report = conformance.check_returns(function, "td0")
    assert not report.passed
    assert any(said in result.detail for result in report.results)
    assert "smallest input that fails" in str(report)


def test_mistakes_in_the_question_are_errors_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="did you mean gae"):
        conformance.check_function("gaee", returns.gae)
    with pytest.raises(ConfigError, match="no argument rewrd; did you mean reward"):
        conformance.check_gae(returns.gae, arguments={"rewrd": "x"})
    with pytest.raises(ConfigError, match="has no parameter reward; did you mean rewards"):
        conformance.check_gae(own_functions.right_gae)
    with pytest.raises(ConfigError, match="no time axis"):
        conformance.check_ppo_loss(losses.ppo_clip, time_axis=0)


def test_float32_functions_are_held_to_float32() -> None:
    def single(**inputs: Any) -> Any:
        return returns.gae(**inputs)

    options: Any = {"framework": "torch", "arguments": {"truncated": "truncated"}}
    assert conformance.check_gae(single, dtype="float32", **options).passed


class Ring:
    """A ring buffer with a fault to choose."""

    def __init__(self, capacity: int, fault: str = "") -> None:
        self.rows, self.size, self.cursor, self.fault = np.zeros(capacity), 0, 0, fault

    def add(self, rows: np.ndarray) -> None:
        for row in rows:
            self.rows[self.cursor] = row
            room = len(self.rows) - (self.fault == "short" and len(self.rows) > 1)
            self.cursor = (self.cursor + 1) % room
            self.size = min(self.size + 1, room)

    def contents(self) -> np.ndarray:
        return self.rows[: self.size]

    def sample(self, n: int) -> np.ndarray:
        generator = np.random.default_rng(0)
        high = len(self.rows) if self.fault == "unwritten" else self.size
        return self.rows[generator.integers(0, high, n)]


@pytest.mark.parametrize("fault", ["", "short", "unwritten"])
def test_a_ring_buffer_is_a_deque(fault: str) -> None:
    report = conformance.check_replay(
        lambda capacity: Ring(capacity, fault),
        add=Ring.add,
        contents=Ring.contents,
        sample=Ring.sample,
    )
    assert report.passed == (fault == "")
    if fault == "short":
        assert report.counterexample is not None
        # two rows do not fit into a buffer for two
        assert report.counterexample.inputs["capacity"] == 2
        assert sum(report.counterexample.inputs["rows of each add"]) == 2
    if fault == "unwritten":
        assert "a row that is not there was drawn: 0" in str(report)


def test_the_fixture_fails_a_test_by_the_report(conformance: Any) -> None:
    conformance("gae", own_functions.right_gae, arguments=NAMES)
    with pytest.raises(pytest.fail.Exception, match="truncation treated as termination"):
        conformance("gae", own_functions.cut_gae, arguments=NAMES)


def test_tensors_with_a_graph_are_welcome() -> None:
    def with_graph(
        reward: Any, next_value: Any, terminated: Any, truncated: Any, gamma: Any
    ) -> Any:
        leaf = torch.ones((), requires_grad=True, dtype=reward.dtype)
        return leaf * returns.td0(reward, next_value, terminated, truncated, gamma=gamma)

    assert conformance.check_returns(with_graph, "td0", framework="torch").passed
