"""Cases of the value estimators. Time is the last axis of the file's arrays."""

from __future__ import annotations

from typing import Any

from tests.cases.tensors import Inputs, Results, ends, gradient, optional_flag, real, scalar
from torch import Tensor

import purerl as prl


def gae(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    advantage, value_target = prl.returns.gae(
        reward,
        real(inputs, "value"),
        real(inputs, "next_value"),
        *ends(inputs, reward),
        gamma=scalar(inputs, "gamma", 0.99, reward),
        lmbda=scalar(inputs, "lmbda", 0.95, reward),
        **_layout(inputs),
    )
    return {"advantage": advantage, "value_target": value_target}


def vtrace(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    result = prl.returns.vtrace(
        _joint(inputs, "log_prob", reward),
        _joint(inputs, "old_log_prob", reward),
        reward,
        real(inputs, "value"),
        real(inputs, "next_value"),
        *ends(inputs, reward),
        gamma=scalar(inputs, "gamma", 0.99, reward),
        lmbda=scalar(inputs, "lmbda", 1.0, reward),
        rho_clip=scalar(inputs, "rho_clip", 1.0, reward),
        c_clip=scalar(inputs, "c_clip", 1.0, reward),
        **_layout(inputs),
    )
    return {"vs": result.value_target, "advantage": result.advantage, "ratio": result.rho}


def td_lambda(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    target = prl.returns.td_lambda(
        reward,
        real(inputs, "next_value"),
        *ends(inputs, reward),
        gamma=scalar(inputs, "gamma", 0.99, reward),
        lmbda=scalar(inputs, "lmbda", 0.95, reward),
        **_layout(inputs),
    )
    return {"return": target}


def nstep(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    target = prl.returns.n_step(
        reward,
        real(inputs, "next_value"),
        *ends(inputs, reward),
        n=inputs["n"],
        gamma=scalar(inputs, "gamma", 0.99, reward),
        **_layout(inputs),
    )
    return {"return": target}


def reward_to_go(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    gamma = scalar(inputs, "gamma", 0.99, reward)
    found = prl.returns.reward_to_go(reward, *ends(inputs, reward), gamma=gamma, **_layout(inputs))
    return {"return": found}


def reinforce(inputs: Inputs) -> Results:
    log_prob = real(inputs, "log_prob", leaf=True)
    found = reward_to_go(inputs) if "reward" in inputs else {"return": real(inputs, "return")}
    return_ = found["return"]
    joint = log_prob
    if log_prob.ndim > return_.ndim:
        joint = prl.losses.joint_log_prob(log_prob, num_batch_dims=return_.ndim)
    baseline: Any = real(inputs, "baseline").expand_as(return_) if "baseline" in inputs else "none"
    mask = optional_flag(inputs, "mask", "valid")
    loss, _ = prl.losses.reinforce(joint, return_, baseline=baseline, mask=mask)
    rows, _ = prl.losses.reinforce(joint, return_, baseline=baseline, mask=mask, reduction="none")
    return found | {
        "loss_policy": loss,
        "loss_per_sample": rows,
        "grad_log_prob": gradient(loss, log_prob),
    }


def _layout(inputs: Inputs) -> dict[str, Any]:
    return {"dim": -1, "mask": optional_flag(inputs, "mask", "valid")}


def _joint(inputs: Inputs, name: str, reward: Tensor) -> Tensor:
    log_prob = real(inputs, name)
    return prl.losses.joint_log_prob(log_prob, num_batch_dims=reward.ndim)
