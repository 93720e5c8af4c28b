"""Kinds of losses, targets and densities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import distributions, losses
from . import mistakes
from .estimators import arrays, tensors
from .generate import numbers, simpler_arrays
from .kind import Fixture, Inputs, Kind, Law, Outputs


def _rows(generator: np.random.Generator, *names: str) -> Inputs:
    count = int(generator.integers(1, 6))
    return {name: numbers(generator, count) for name in names}


def _loss(function: Callable[..., Any], names: tuple[str, ...], inputs: Inputs) -> Outputs:
    result = function(**tensors(inputs))
    return arrays(names, result[0] if isinstance(result, tuple) else result)


# ρ = 1.5 and ½ beside A = ±1 under ε = 0.2: −1.2, 1.5, −0.5, 0.8 with mean 0.15
_CORNERS = Fixture(
    "the four corners of the clipped surrogate",
    {
        "log_prob": np.log([1.5, 1.5, 0.5, 0.5]),
        "old_log_prob": np.zeros(4),
        "advantage": np.array([1.0, -1.0, 1.0, -1.0]),
        "clip_epsilon": 0.2,
    },
    {"loss": np.array(0.15)},
)


def _surrogate(dual: bool, generator: np.random.Generator) -> Inputs:
    inputs = _rows(generator, "log_prob", "old_log_prob", "advantage")
    inputs |= {name: inputs[name] / 2 for name in ("log_prob", "old_log_prob")}
    inputs["clip_epsilon"] = float(generator.choice([0.1, 0.2, 0.5]))
    return inputs | ({"dual_clip": 3.0} if dual else {})


def _broken(generator: np.random.Generator) -> Inputs:
    inputs = _surrogate(False, generator)
    inputs["log_prob"][0] = np.nan
    return inputs


def _ppo_truth(function: Callable[..., Any], inputs: Inputs) -> Outputs:
    return _loss(function, ("loss",), inputs)


PPO_LOSS = Kind(
    name="ppo_loss",
    arguments=("log_prob", "old_log_prob", "advantage", "clip_epsilon"),
    optional=("dual_clip",),
    neutral={"dual_clip": lambda inputs: None},
    outputs=("loss",),
    over_time=False,
    truth=partial(_ppo_truth, losses.ppo_clip),
    mistaken=lambda mistake, inputs: _ppo_truth(mistake.function, inputs),
    fixtures=(_CORNERS,),
    laws=(
        Law("equals -mean min(ratio A, clipped ratio A)", partial(_surrogate, False)),
        Law(
            "a dual clip bounds negative advantages only", partial(_surrogate, True), ("dual_clip",)
        ),
        Law("a NaN that counts is seen", _broken),
    ),
    mistakes=mistakes.PPO_CLIP,
    simpler=lambda inputs: simpler_arrays(inputs, rows=("log_prob", "old_log_prob", "advantage")),
)


def _value_truth(function: Callable[..., Any], inputs: Inputs) -> Outputs:
    mode = None if inputs.get("clip_epsilon") is None else "max"
    return _loss(partial(function, clip_mode=mode), ("loss",), inputs)


def _value(clip: bool, generator: np.random.Generator) -> Inputs:
    inputs = _rows(generator, "value", "value_target")
    if clip:
        inputs |= {"old_value": numbers(generator, len(inputs["value"])), "clip_epsilon": 0.25}
    return inputs


VALUE_LOSS = Kind(
    name="value_loss",
    arguments=("value", "value_target"),
    optional=("old_value", "clip_epsilon"),
    neutral={"old_value": lambda inputs: None, "clip_epsilon": lambda inputs: None},
    outputs=("loss",),
    over_time=False,
    truth=partial(_value_truth, losses.value_loss),
    mistaken=lambda mistake, inputs: _value_truth(mistake.function, inputs),
    fixtures=(),
    laws=(
        Law("equals the mean squared error", partial(_value, False)),
        Law(
            "clipping takes the larger error of each row",
            partial(_value, True),
            ("old_value", "clip_epsilon"),
        ),
    ),
    mistakes=mistakes.VALUE_LOSS,
    simpler=lambda inputs: simpler_arrays(
        inputs,
        rows=tuple(n for n in ("value", "value_target", "old_value") if inputs.get(n) is not None),
    ),
)


def _soft(generator: np.random.Generator, *, garbage: bool = False) -> Inputs:
    inputs = _rows(generator, "reward", "next_log_prob")
    count = len(inputs["reward"])
    terminated = generator.random(count) < 0.5
    next_q = numbers(generator, 2, count)
    if garbage:
        next_q = np.where(terminated, np.nan, next_q)
        inputs["next_log_prob"] = np.where(terminated, np.nan, inputs["next_log_prob"])
    numbers_ = {"alpha": float(generator.choice([0.25, 0.5])), "gamma": 0.75}
    return inputs | {"next_q": next_q, "terminated": terminated} | numbers_


def _simpler_soft(inputs: Inputs) -> Any:
    yield from simpler_arrays(inputs, rows=())
    count = len(inputs["reward"])
    for drop in range(count if count > 1 else 0):
        keep = [i for i in range(count) if i != drop]
        rows = {n: inputs[n][keep] for n in ("reward", "next_log_prob", "terminated")}
        yield inputs | rows | {"next_q": inputs["next_q"][:, keep]}


SAC_TARGET = Kind(
    name="sac_target",
    arguments=("reward", "next_q", "next_log_prob", "alpha", "terminated", "gamma"),
    optional=(),
    neutral={},
    outputs=("target",),
    over_time=False,
    truth=lambda inputs: _loss(losses.sac_target, ("target",), inputs),
    mistaken=lambda mistake, inputs: _loss(mistake.function, ("target",), inputs),
    fixtures=(
        # 1 + 0.99 (5 + 0.2 · 3) = 6.544, and 1 where the episode has terminated
        Fixture(
            "the entropy term stands inside the terminal mask",
            {
                "reward": np.ones(2),
                "next_q": np.full((2, 2), 5.0),
                "next_log_prob": np.full(2, -3.0),
                "alpha": 0.2,
                "terminated": np.array([True, False]),
                "gamma": 0.99,
            },
            {"target": np.array([1.0, 6.544])},
        ),
    ),
    laws=(
        Law("equals r + gamma (1 - e) (min Q - alpha log pi)", _soft),
        Law("a terminal successor may be NaN everywhere", partial(_soft, garbage=True)),
    ),
    # the kit compares numbers, and a gradient is none
    mistakes=tuple(m for m in mistakes.SAC_TARGET if m.identifier != "M28"),
    simpler=_simpler_soft,
)


def _squashed(scaled: bool, far: float, generator: np.random.Generator) -> Inputs:
    shape = (int(generator.integers(1, 4)), 2)
    inputs: Inputs = {
        "pre_tanh": numbers(generator, *shape) * far,
        "loc": numbers(generator, *shape) / 4,
        "scale": generator.choice([0.5, 1.0, 2.0], shape),
    }
    return inputs | ({"low": -2.0, "high": 4.0} if scaled else {})


def _density(function: Callable[..., Any], inputs: Inputs) -> Outputs:
    """Return log-densities: in environment units if bounds are given."""
    given = {name: value for name, value in inputs.items() if value is not None}
    unit = {} if "low" not in given else {"density": "env"}
    return arrays(("log_prob",), function(**tensors(given), **unit))


TANH_NORMAL = Kind(
    name="tanh_normal",
    arguments=("pre_tanh", "loc", "scale"),
    optional=("low", "high"),
    neutral={"low": lambda inputs: None, "high": lambda inputs: None},
    outputs=("log_prob",),
    over_time=False,
    truth=partial(_density, distributions.tanh_normal_log_prob),
    mistaken=lambda mistake, inputs: _density(mistake.function, inputs),
    fixtures=(),
    laws=(
        Law(
            "equals the change of variables, summed over dimensions", partial(_squashed, False, 0.5)
        ),
        Law(
            "a scaled action counts its half range", partial(_squashed, True, 0.5), ("low", "high")
        ),
        Law("exact where the tanh saturates", partial(_squashed, False, 5.0)),
    ),
    mistakes=mistakes.TANH_NORMAL_LOG_PROB,
    simpler=lambda inputs: simpler_arrays(inputs, rows=("pre_tanh", "loc", "scale")),
)


def _advantages(masked: bool, generator: np.random.Generator) -> Inputs:
    inputs = _rows(generator, "advantage")
    if masked:
        mask = generator.random(len(inputs["advantage"])) < 0.7
        mask[0] = True
        inputs["advantage"] = np.where(mask, inputs["advantage"], np.nan)
        inputs["mask"] = mask
    return inputs


def _normalized(function: Callable[..., Any], inputs: Inputs) -> Outputs:
    given = {name: value for name, value in inputs.items() if value is not None}
    return arrays(("advantage",), function(**tensors(given)))


NORMALIZE_ADVANTAGE = Kind(
    name="normalize_advantage",
    arguments=("advantage",),
    optional=("mask",),
    neutral={"mask": lambda inputs: None},
    outputs=("advantage",),
    over_time=False,
    truth=partial(_normalized, losses.normalize_advantage),
    mistaken=lambda mistake, inputs: _normalized(mistake.function, inputs),
    fixtures=(
        Fixture(
            "a single advantage is not NaN",
            {"advantage": np.array([3.0])},
            {"advantage": np.array([0.0])},
        ),
    ),
    laws=(
        Law("mean 0 and unbiased deviation 1", partial(_advantages, False)),
        Law("masked rows do not count", partial(_advantages, True), ("mask",)),
    ),
    mistakes=mistakes.NORMALIZE_ADVANTAGE,
    simpler=lambda inputs: simpler_arrays(
        inputs, rows=("advantage", "mask") if inputs.get("mask") is not None else ("advantage",)
    ),
)
