"""Numeric cases from public bug reports: the right value comes out, and no known wrong one does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import (
    densities,
    environments,
    estimators,
    machinery,
    off_policy,
    on_policy,
    replay,
)
from tests.cases.compare import ATOL, answers, keys_of, verdict

Case = dict[str, Any]

FILE = json.loads((Path(__file__).parent / "cases.json").read_text())
CASES: list[Case] = FILE["cases"]

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
    "autoreset": environments.autoreset,
    "seeding": environments.seeding,
    "replay_ring": replay.replay_ring,
    "replay_slice": replay.replay_slice,
    "replay_nstep": replay.replay_nstep,
    "replay_prioritized": replay.replay_prioritized,
}

NOT_YET = {"checkpoint": "purerl.checkpoint"}
"""Areas without an adapter, and the missing module of the library that would answer them."""

SKIPPED: dict[tuple[str, str], str] = {}
"""Keys ``(case, key)`` that the library does not offer, each with the reason. There is none."""

ALTERNATIVES = {
    "ppo_loss-06": "a minibatch of one is normalised to 0, continuous with constant advantages",
}
"""Cases that are answered by another accepted convention, and which one."""

RUNNABLE = [case for case in CASES if case["area"] not in NOT_YET]


def found_for(case: Case) -> Mapping[str, Any]:
    """Return what the library answers to a case."""
    return AREAS[case["area"]](case["inputs"])


def offered(case: Case) -> Case:
    """Return a case without the keys that the library does not offer."""

    def kept(answer: Mapping[str, Any]) -> dict[str, Any]:
        return {key: v for key, v in answer.items() if (case["id"], key) not in SKIPPED}

    wrong = [entry | {"value": kept(entry["value"])} for entry in case.get("wrong", [])]
    return case | {
        "expected": kept(case["expected"]),
        "also_accept": [kept(answer) for answer in case.get("also_accept", [])],
        "wrong": [entry for entry in wrong if entry["value"]],
    }


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case["id"])
def test_the_right_value_comes_out_and_no_known_wrong_one(case: Case) -> None:
    assert verdict(offered(case), found_for(case)) == "", f"{case['title']} ({case['source']})"


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case["id"])
def test_which_of_the_accepted_conventions_is_followed_is_written_down(case: Case) -> None:
    tolerance = {"rtol": case["rtol"], "atol": case.get("atol", ATOL)}
    first = answers(found_for(case), offered(case)["expected"], **tolerance)
    assert first == (case["id"] not in ALTERNATIVES)


def test_every_area_has_an_adapter_or_is_named_as_missing() -> None:
    assert {case["area"] for case in CASES} == {*AREAS, *NOT_YET}
    assert not {*AREAS} & {*NOT_YET}


@pytest.mark.parametrize(("area", "module"), NOT_YET.items())
def test_what_is_named_as_missing_is_missing(area: str, module: str) -> None:
    message = f"{module} exists: write the adapter of the area {area} and take it out of NOT_YET"
    assert importlib.util.find_spec(module) is None, message


def test_every_skipped_key_is_one_of_a_case_and_has_a_reason() -> None:
    known = {(case["id"], key) for case in CASES for key in keys_of(case)}
    assert SKIPPED.keys() <= known
    assert all(SKIPPED.values())


def test_the_file_is_whole_and_keeps_to_its_own_words() -> None:
    assert len(CASES) == len({case["id"] for case in CASES}) == 83
    for case in CASES:
        assert case["area"] in FILE["_conventions"]
        assert {*case["inputs"], *keys_of(case)} <= FILE["_vocabulary"].keys(), case["id"]
        assert case["expected"]
        assert 0.0 < case["rtol"] <= 1e-5
