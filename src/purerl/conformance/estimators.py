"""Kinds of value estimators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from .. import returns
from . import mistakes
from .generate import numbers, simpler_arrays, trajectory
from .kind import Fixture, Inputs, Kind, Law, Outputs
from .mistakes import Mistake

_ROWS = ("reward", "value", "next_value", "terminated", "truncated")
_LIMITS = ("truncated",)
_FLAGS: dict[str, Callable[[Inputs], Any]] = {
    "truncated": lambda inputs: np.zeros_like(inputs["terminated"])
}


def tensors(inputs: Inputs) -> dict[str, Any]:
    """Return NumPy inputs as float64 tensors; numbers stay as they are."""
    return {
        name: torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value
        for name, value in inputs.items()
    }


def arrays(names: tuple[str, ...], result: Any) -> Outputs:
    """Return the tensors of a result as NumPy arrays by name."""
    values = result if isinstance(result, tuple) else (result,)
    return {name: value.numpy() for name, value in zip(names, values, strict=False)}


def _law(
    name: str,
    extra: Callable[[np.random.Generator, Inputs], Inputs],
    needs: tuple[str, ...] = (),
    **options: bool,
) -> Law:
    def generate(generator: np.random.Generator) -> Inputs:
        inputs = trajectory(generator, **options)
        return extra(generator, inputs)

    return Law(name, generate, needs)


def _discounted(generator: np.random.Generator, inputs: Inputs) -> Inputs:
    pick = (0.5, 0.75, 0.9, 1.0)
    gamma, lmbda = (float(pick[i]) for i in generator.integers(0, len(pick), 2))
    # γ = λ would hide that they are exchanged
    return inputs | {"gamma": gamma, "lmbda": lmbda if lmbda != gamma else 0.25}


def _laws(
    extra: Callable[[np.random.Generator, Inputs], Inputs], *, values: bool
) -> tuple[Law, ...]:
    """Return the laws of an estimator; ``values``: whether it sees the values of both ends."""
    one_critic = (
        _law(
            "right with one critic's values and terminations",
            extra,
            terminations_only=True,
            consistent=True,
        ),
        _law("right with one critic's values and time limits", extra, _LIMITS, consistent=True),
    )
    return (one_critic if values else ()) + (
        _law("equals its definition where episodes only terminate", extra, terminations_only=True),
        _law("equals its definition where time limits cut episodes", extra, _LIMITS),
        _law("a value behind a termination may be NaN", extra, garbage=True),
    )


_TIME_LIMIT = {
    "reward": np.array([1.0, 1.0, 1.0, 1.0]),
    "value": np.array([2.0, 3.0, 4.0, 5.0]),
    "next_value": np.array([3.0, 10.0, 5.0, 6.0]),
    "terminated": np.zeros(4, bool),
    "truncated": np.array([False, True, False, False]),
    "gamma": 0.9,
    "lmbda": 0.5,
}
# last: 1 + 0.9·6 − 5 = 1.4;  then 1 + 4.5 − 4 + 0.45·1.4 = 2.13;  at the limit 1 + 9 − 3 = 7;
# first: 1 + 2.7 − 2 + 0.45·7 = 4.85
_GAE_FIXTURES = (
    Fixture(
        "a time limit keeps the value of the final observation",
        _TIME_LIMIT,
        {"advantage": np.array([4.85, 7.0, 2.13, 1.4])},
    ),
    Fixture(
        "of both flags on one step termination wins",
        _TIME_LIMIT | {"terminated": _TIME_LIMIT["truncated"]},
        {"advantage": np.array([0.8, -2.0, 2.13, 1.4])},
    ),
)


def _simpler(rows: tuple[str, ...], inputs: Inputs) -> Iterator[Inputs]:
    return simpler_arrays(inputs, rows=rows)


def _call(function: Callable[..., Any], names: tuple[str, ...], inputs: Inputs) -> Outputs:
    return arrays(names, function(**tensors(inputs)))


def _kind(
    name: str,
    function: Callable[..., Any],
    rows: tuple[str, ...],
    others: tuple[str, ...],
    outputs: tuple[str, ...],
    known: tuple[Mistake, ...],
    *,
    extra: Callable[[np.random.Generator, Inputs], Inputs] = _discounted,
    fixtures: tuple[Fixture, ...] = (),
) -> Kind:
    """Return the kind of an estimator whose arguments are named as purerl's function names them."""
    arguments = (*rows, *others)

    def only(inputs: Inputs) -> Inputs:
        return {key: inputs[key] for key in arguments}

    def trimmed(law: Law) -> Law:
        return Law(law.name, lambda generator: only(law.generate(generator)), law.needs)

    return Kind(
        name=name,
        arguments=tuple(a for a in arguments if a != "truncated"),
        optional=("truncated",),
        neutral=_FLAGS,
        outputs=outputs,
        over_time=True,
        truth=partial(_call, function, outputs),
        mistaken=lambda mistake, inputs: _call(mistake.function, outputs, inputs),
        fixtures=fixtures,
        laws=tuple(trimmed(law) for law in _laws(extra, values="value" in rows)),
        mistakes=known,
        simpler=partial(_simpler, rows),
    )


def _n_step(generator: np.random.Generator, inputs: Inputs) -> Inputs:
    return _discounted(generator, inputs) | {"n": int(generator.integers(2, 4))}


def _off_policy(generator: np.random.Generator, inputs: Inputs) -> Inputs:
    shape = inputs["reward"].shape
    logs = {name: numbers(generator, *shape) / 4 for name in ("log_prob", "behavior_log_prob")}
    return _discounted(generator, inputs) | logs


_NEEDS_ROLLING = ("M02", "M12")
"""Mistakes with discounts that change from step to step, which are not tried."""
_TARGET_ROWS = ("reward", "next_value", "terminated", "truncated")
GAE = _kind(
    "gae",
    returns.gae,
    _ROWS,
    ("gamma", "lmbda"),
    ("advantage", "value_target"),
    tuple(m for m in mistakes.GAE if m.identifier not in _NEEDS_ROLLING),
    fixtures=_GAE_FIXTURES,
)
VTRACE = _kind(
    "vtrace",
    returns.vtrace,
    ("log_prob", "behavior_log_prob", *_ROWS),
    ("gamma",),
    ("value_target", "advantage"),
    mistakes.VTRACE,
    extra=_off_policy,
)
RETURNS = {
    "td0": _kind("td0", returns.td0, _TARGET_ROWS, ("gamma",), ("return",), mistakes.TD0),
    "td1": _kind("td1", returns.td1, _TARGET_ROWS, ("gamma",), ("return",), mistakes.TD1),
    "td_lambda": _kind(
        "td_lambda",
        returns.td_lambda,
        _TARGET_ROWS,
        ("gamma", "lmbda"),
        ("return",),
        mistakes.TD_LAMBDA,
    ),
    "n_step": _kind(
        "n_step",
        returns.n_step,
        _TARGET_ROWS,
        ("gamma", "n"),
        ("return",),
        mistakes.N_STEP,
        extra=_n_step,
    ),
    "reward_to_go": _kind(
        "reward_to_go",
        returns.reward_to_go,
        ("reward", "terminated", "truncated"),
        ("gamma",),
        ("return",),
        mistakes.REWARD_TO_GO,
    ),
}
