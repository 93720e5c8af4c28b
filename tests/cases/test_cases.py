"""Numeric cases from public bug reports: the right value comes out, and no known wrong one does."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import densities, estimators, machinery, off_policy, on_policy, replay
from tests.cases.compare import answers, equal, number, verdict

FILE = json.loads((Path(__file__).parent / "cases.json").read_text())
CASES = FILE["cases"]

AREAS: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "gae": estimators.gae,
    "vtrace": estimators.vtrace,
    "td_lambda": estimators.td_lambda,
    "nstep": estimators.nstep,
    "reward_to_go": estimators.reward_to_go,
    "reinforce": estimators.reinforce,
    "ppo_loss": on_policy.ppo_loss,
    "ppo_metrics": on_policy.ppo_metrics,
    "a2c": on_policy.a2c,
    "metrics": on_policy.metrics,
    "masked_reduction": on_policy.masked_reduction,
    "sac_target": off_policy.sac_target,
    "sac_actor": off_policy.sac_actor,
    "sac_alpha": off_policy.sac_alpha,
    "discrete_sac": off_policy.discrete_sac,
    "redq": off_policy.redq,
    "td3": off_policy.td3,
    "ddpg": off_policy.ddpg,
    "dqn": off_policy.dqn,
    "cql": off_policy.cql,
    "iql": off_policy.iql,
    "distribution_tanh_normal": densities.distribution_tanh_normal,
    "distribution_normal": densities.distribution_normal,
    "distribution_categorical": densities.distribution_categorical,
    "optimizer": machinery.optimizer,
    "schedule": machinery.schedule,
    "normalizer": machinery.normalizer,
    "polyak": machinery.polyak,
    "autoreset": machinery.autoreset,
    "seeding": machinery.seeding,
    "checkpoint": machinery.checkpoint,
    "replay_ring": replay.replay_ring,
    "replay_slice": replay.replay_slice,
    "replay_nstep": replay.replay_nstep,
    "replay_prioritized": replay.replay_prioritized,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_right_value_comes_out_and_no_known_wrong_one(case: dict[str, Any]) -> None:
    found = AREAS[case["area"]](case["inputs"])
    assert verdict(case, found) == "", f"{case['title']} ({case['source']})"


@pytest.mark.parametrize(
    ("case", "wrong"),
    [(case, wrong) for case in CASES for wrong in case.get("wrong", [])],
    ids=lambda value: value.get("id") or value["means"],
)
def test_a_known_mistake_is_told_from_the_truth(
    case: dict[str, Any], wrong: dict[str, Any]
) -> None:
    mistaken = {key: number(value) for key, value in wrong["value"].items()}
    found = dict(AREAS[case["area"]](case["inputs"])) | mistaken
    assert verdict(case, found) != ""


def test_every_case_has_an_adapter() -> None:
    assert {case["area"] for case in CASES} == {*AREAS}


def test_the_comparison_follows_the_rules_of_the_file() -> None:
    assert equal([1.0, math.nan], [1.0 + 1e-7, math.nan], 1e-6, 0.0)
    assert not equal([1.0], [1.0 + 1e-5], 1e-6, 1e-9)
    assert not equal([1.0], 1.0, 1.0, 1.0)
    assert not equal(1.0, math.nan, 1.0, 1.0)
    assert not equal(math.nan, 1.0, 1.0, 1.0)
    assert not equal(math.inf, 1e300, 1.0, 1.0)
    assert equal(-math.inf, -math.inf, 0.0, 0.0)
    assert not answers({"a": 1.0}, {"a": 1.0, "b": 1.0}, rtol=1.0, atol=1.0)


def test_an_answer_is_whole() -> None:
    case = copy.deepcopy(next(case for case in CASES if case["id"] == "gae-01"))
    right = case["expected"]
    assert verdict(case, right) == ""
    assert "known mistake: a time limit" in verdict(case, right | case["wrong"][1]["value"])
    assert "expected" in verdict(case, right | {"value_target": [0.0]})
