"""Every loss and every target with inputs for it: the table that the contract tests run over."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import losses, random

F64 = torch.float64
ROWS, MEMBERS, SAMPLES, ACTIONS, ATOMS, DIMS = 7, 3, 5, 4, 6, 2

# the shape of each kind of input, and the axis of its rows
KINDS: dict[str, tuple[tuple[int, ...], int | None]] = {
    "row": ((ROWS,), 0),
    "flag": ((ROWS,), 0),
    "action": ((ROWS,), 0),
    "steps": ((ROWS,), 0),
    "members": ((MEMBERS, ROWS), 1),
    "events": ((ROWS, ACTIONS), 0),
    "legal": ((ROWS, ACTIONS), 0),
    "member events": ((MEMBERS, ROWS, ACTIONS), 1),
    "distributions": ((ROWS, ACTIONS, ATOMS), 0),
    "distribution": ((ROWS, ATOMS), 0),
    "probabilities": ((ROWS, ATOMS), 0),
    "samples": ((MEMBERS, SAMPLES, ROWS), 2),
    "sample": ((SAMPLES, ROWS), 1),
    "vector": ((ROWS, DIMS), 0),
    "scalar": ((), None),
    "subset": ((2,), None),
}


@dataclass(frozen=True)
class Entry:
    """A loss or target, the kinds of its inputs, its numbers, and what it learns."""

    name: str
    function: Callable[..., Any]
    kinds: Mapping[str, str]
    learns: tuple[str, ...] = ()
    hparams: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    in_part: tuple[str, ...] = ()
    """Inputs with a gradient that is not the derivative, as the loss holds a part constant."""
    separable: bool = True
    """Whether a row's loss depends on that row only."""

    def inputs(self, seed: int, dtype: torch.dtype = F64) -> dict[str, Tensor]:
        keys = random.split(random.key(seed), len(self.kinds))
        return {
            name: draw(kind, key, dtype)
            for (name, kind), key in zip(self.kinds.items(), keys, strict=True)
        }

    def __call__(self, inputs: Mapping[str, Any], **options: Any) -> Any:
        return self.function(**inputs, **(dict(self.hparams) | dict(self.options) | options))

    @property
    def floating(self) -> list[str]:
        integral = ("flag", "action", "steps", "legal", "subset")
        return [name for name, kind in self.kinds.items() if kind not in integral]

    @property
    def row_inputs(self) -> dict[str, int]:
        axes = {name: KINDS[kind][1] for name, kind in self.kinds.items()}
        return {name: axis for name, axis in axes.items() if axis is not None}

    def accepts(self, option: str) -> bool:
        return option in inspect.signature(self.function).parameters


def draw(kind: str, key: Tensor, dtype: torch.dtype) -> Tensor:
    shape, _ = KINDS[kind]
    match kind:
        case "flag":
            return random.bernoulli(key, 0.4, shape)
        case "legal":
            legal = random.bernoulli(key, 0.6, shape)
            return legal | (torch.arange(ACTIONS) == 1)
        case "action":
            return random.randint(key, shape, 0, ACTIONS)
        case "steps":
            return random.randint(key, shape, 1, 4)
        case "subset":
            return random.choice(key, MEMBERS, shape, replace=False)
        case "probabilities":
            return random.normal(key, shape, dtype=F64).softmax(-1).to(dtype)
        case _:
            return (0.7 * random.normal(key, shape, dtype=F64)).to(dtype)


def rows_of(inputs: Mapping[str, Tensor], entry: Entry, index: Tensor) -> dict[str, Tensor]:
    """Return the inputs of some rows only."""
    axes = entry.row_inputs
    return {
        name: x.index_select(axes[name], index) if name in axes else x for name, x in inputs.items()
    }


def filled(
    inputs: Mapping[str, Tensor], entry: Entry, keep: Tensor, value: float
) -> dict[str, Tensor]:
    """Return the inputs with ``value`` in all floating rows but those to keep."""
    result = dict(inputs)
    for name in entry.floating:
        if name in entry.row_inputs:
            result[name] = fill_rows(inputs[name], entry.row_inputs[name], keep, value)
    return result


def fill_rows(x: Tensor, axis: int, keep: Tensor, value: float) -> Tensor:
    shape = [1] * x.ndim
    shape[axis] = len(keep)
    return torch.where(keep.reshape(shape), x, torch.tensor(value, dtype=x.dtype))


RATIO = {"log_prob": "row", "old_log_prob": "row", "advantage": "row"}
VALUE = {"value": "row", "value_target": "row", "old_value": "row"}
ENSEMBLE = {"q": "members", "target": "row"}
ALPHA = {"log_alpha": "scalar", "log_prob": "row"}
MASKED_POLICY = {"logits": "events", "q": "member events", "alpha": "scalar"}

LOSSES = [
    Entry("ppo_clip", losses.ppo_clip, RATIO, ("log_prob",), {"clip_epsilon": 0.2}),
    Entry(
        "ppo_clip, dual",
        losses.ppo_clip,
        RATIO,
        ("log_prob",),
        {"clip_epsilon": 0.2, "dual_clip": 1.4},
    ),
    Entry(
        "ppo_clip, pair",
        losses.ppo_clip,
        RATIO,
        ("log_prob",),
        options={"clip_epsilon": (0.1, 0.3)},
    ),
    Entry(
        "ppo_kl_penalty",
        losses.ppo_kl_penalty,
        RATIO | {"kl": "row"},
        ("log_prob", "kl"),
        {"beta": 0.7},
    ),
    Entry("a2c", losses.a2c, {"log_prob": "row", "advantage": "row"}, ("log_prob",)),
    Entry("reinforce", losses.reinforce, {"log_prob": "row", "return_": "row"}, ("log_prob",)),
    Entry(
        "reinforce, mean",
        losses.reinforce,
        {"log_prob": "row", "return_": "row"},
        ("log_prob",),
        options={"baseline": "mean"},
        separable=False,
    ),
    Entry(
        "reinforce, value",
        losses.reinforce,
        {"log_prob": "row", "return_": "row", "baseline": "row"},
        ("log_prob",),
        options={"normalize": True},
        separable=False,
    ),
    Entry("value_loss", losses.value_loss, {"value": "row", "value_target": "row"}, ("value",)),
    Entry(
        "value_loss, huber",
        losses.value_loss,
        {"value": "row", "value_target": "row"},
        ("value",),
        options={"kind": "huber"},
    ),
    Entry(
        "value_loss, max",
        losses.value_loss,
        VALUE,
        ("value",),
        {"clip_epsilon": 0.3},
        {"clip_mode": "max"},
    ),
    Entry(
        "value_loss, replace",
        losses.value_loss,
        VALUE,
        ("value",),
        {"clip_epsilon": 0.5},
        {"clip_mode": "replace", "kind": "half_l2"},
    ),
    Entry("entropy_bonus", losses.entropy_bonus, {"entropy": "row"}, ("entropy",), {"coef": 0.1}),
    Entry("dqn", losses.dqn, {"q": "events", "action": "action", "target": "row"}, ("q",)),
    Entry(
        "c51",
        losses.c51,
        {"logits": "distributions", "action": "action", "target": "probabilities"},
        ("logits",),
    ),
    Entry(
        "quantile",
        losses.quantile,
        {"quantiles": "distributions", "action": "action", "target": "distribution"},
        ("quantiles",),
        {"kappa": 0.4},
        {"divide_by_kappa": True},
    ),
    Entry("ddpg_critic", losses.ddpg_critic, {"q": "row", "target": "row"}, ("q",)),
    Entry("ddpg_actor", losses.ddpg_actor, {"q": "row"}, ("q",)),
    Entry("td3_critic", losses.td3_critic, ENSEMBLE, ("q",)),
    Entry("td3_critic, l1", losses.td3_critic, ENSEMBLE, ("q",), options={"kind": "l1"}),
    Entry("td3_actor", losses.td3_actor, {"q": "members"}, ("q",)),
    Entry(
        "td3_actor, min",
        losses.td3_actor,
        {"q": "members"},
        ("q",),
        options={"critic_reduce": "min"},
    ),
    Entry(
        "td3_bc_actor",
        losses.td3_bc_actor,
        {"q": "row", "policy_action": "vector", "action": "vector"},
        ("policy_action",),
        {"alpha": 2.5},
        in_part=("q",),
        separable=False,
    ),
    Entry("sac_critic", losses.sac_critic, ENSEMBLE, ("q",), options={"critic_sum": "mean"}),
    Entry(
        "sac_actor",
        losses.sac_actor,
        {"log_prob": "row", "q": "members", "alpha": "scalar"},
        ("log_prob", "q"),
    ),
    Entry("sac_alpha, log", losses.sac_alpha, ALPHA, ("log_alpha",), {"target_entropy": -2.0}),
    Entry(
        "sac_alpha, alpha",
        losses.sac_alpha,
        ALPHA,
        ("log_alpha",),
        {"target_entropy": -2.0},
        {"form": "alpha"},
    ),
    Entry(
        "sac_discrete_critic",
        losses.sac_discrete_critic,
        {"q": "member events", "action": "action", "target": "row"},
        ("q",),
    ),
    Entry("sac_discrete_actor", losses.sac_discrete_actor, MASKED_POLICY, ("logits",)),
    Entry(
        "sac_discrete_actor, legal",
        losses.sac_discrete_actor,
        MASKED_POLICY | {"action_mask": "legal"},
        ("logits",),
        options={"critic_reduce": "mean"},
    ),
    Entry(
        "sac_discrete_alpha",
        losses.sac_discrete_alpha,
        {"log_alpha": "scalar", "logits": "events", "action_mask": "legal"},
        ("log_alpha",),
        {"target_entropy": 0.5},
    ),
    Entry("redq_critic", losses.redq_critic, ENSEMBLE, ("q",)),
    Entry(
        "redq_actor",
        losses.redq_actor,
        {"log_prob": "row", "q": "members", "alpha": "scalar"},
        ("log_prob", "q"),
    ),
    Entry(
        "cql_penalty",
        losses.cql_penalty,
        {"q_data": "members", "q_sampled": "samples", "log_prob": "sample"},
        ("q_data", "q_sampled"),
        {"temperature": 1.3, "min_q_weight": 0.6, "alpha_prime": 1.5, "threshold": 0.2},
    ),
    Entry(
        "cql_discrete_penalty",
        losses.cql_discrete_penalty,
        {"q": "events", "action": "action"},
        ("q",),
        {"min_q_weight": 0.6},
    ),
    Entry(
        "cql_bc_actor",
        losses.cql_bc_actor,
        {"log_prob": "row", "data_log_prob": "row", "alpha": "scalar"},
        ("log_prob", "data_log_prob"),
    ),
    Entry(
        "iql_value",
        losses.iql_value,
        {"value": "row", "q": "members"},
        ("value",),
        {"expectile": 0.8},
    ),
    Entry("iql_critic", losses.iql_critic, ENSEMBLE, ("q",)),
    Entry(
        "iql_actor",
        losses.iql_actor,
        {"log_prob": "row", "q": "members", "value": "row"},
        ("log_prob",),
        {"temperature": 3.0, "max_weight": 4.0},
    ),
]

ROW_TARGET = {"reward": "row", "terminated": "flag", "steps": "steps"}
SOFT = {"next_log_prob": "row", "alpha": "scalar"}
GAMMA = {"gamma": 0.9}
SUPPORT = GAMMA | {"v_min": -1.0, "v_max": 1.5}

TARGETS = [
    Entry("dqn_target", losses.dqn_target, ROW_TARGET | {"next_q": "events"}, hparams=GAMMA),
    Entry(
        "dqn_target, double",
        losses.dqn_target,
        ROW_TARGET | {"next_q": "events", "next_q_select": "events", "next_action_mask": "legal"},
        hparams=GAMMA,
    ),
    Entry(
        "c51_target",
        losses.c51_target,
        ROW_TARGET | {"next_logits": "distributions"},
        hparams=SUPPORT,
    ),
    Entry(
        "c51_target, double",
        losses.c51_target,
        ROW_TARGET
        | {
            "next_logits": "distributions",
            "next_logits_select": "distributions",
            "next_action_mask": "legal",
        },
        hparams=SUPPORT,
    ),
    Entry(
        "quantile_target",
        losses.quantile_target,
        ROW_TARGET
        | {
            "next_quantiles": "distributions",
            "next_quantiles_select": "distributions",
            "next_action_mask": "legal",
        },
        hparams=GAMMA,
    ),
    Entry("ddpg_target", losses.ddpg_target, ROW_TARGET | {"next_q": "row"}, hparams=GAMMA),
    Entry("td3_target", losses.td3_target, ROW_TARGET | {"next_q": "members"}, hparams=GAMMA),
    Entry(
        "sac_target", losses.sac_target, ROW_TARGET | SOFT | {"next_q": "members"}, hparams=GAMMA
    ),
    Entry(
        "sac_discrete_target",
        losses.sac_discrete_target,
        ROW_TARGET
        | {
            "next_q": "member events",
            "next_logits": "events",
            "alpha": "scalar",
            "next_action_mask": "legal",
        },
        hparams=GAMMA,
    ),
    Entry(
        "redq_target",
        losses.redq_target,
        ROW_TARGET | SOFT | {"next_q": "members", "subset": "subset"},
        hparams=GAMMA,
    ),
    Entry("cql_target", losses.cql_target, ROW_TARGET | {"next_q": "samples"}, hparams=GAMMA),
    Entry("iql_target", losses.iql_target, ROW_TARGET | {"next_value": "row"}, hparams=GAMMA),
]

ALL_LOSSES = [pytest.param(entry, id=entry.name) for entry in LOSSES]
ALL_TARGETS = [pytest.param(entry, id=entry.name) for entry in TARGETS]
