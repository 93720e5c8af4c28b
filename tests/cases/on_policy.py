"""Cases of the policy-gradient losses and of what is reported beside them."""

from __future__ import annotations

from typing import Any

import torch
from tests.cases.tensors import (
    Inputs,
    Results,
    gradient,
    optional_flag,
    real,
)
from torch import Tensor

from purerl import distributions, losses, numerics


def ppo_loss(inputs: Inputs) -> Results:
    results: Results = {}
    if "advantage" in inputs and inputs.get("normalize_advantage"):
        advantage = losses.normalize_advantage(real(inputs, "advantage"))
        results["normalized_advantage"] = advantage
    elif "advantage" in inputs:
        advantage = real(inputs, "advantage")
    if "log_prob" in inputs:
        results |= _surrogate(inputs, advantage)
    if "value_target" in inputs:
        results |= _value_loss(inputs)
    if "scale" in inputs:
        results |= _entropy_loss(inputs)
    return results


def _surrogate(inputs: Inputs, advantage: Tensor) -> Results:
    log_prob, old_log_prob = real(inputs, "log_prob", leaf=True), real(inputs, "old_log_prob")
    joint, old_joint = log_prob, old_log_prob
    if log_prob.ndim > advantage.ndim:
        joint, old_joint = losses.joint_log_prob(joint), losses.joint_log_prob(old_joint)
    bounds = inputs.get("clip_epsilon", 0.2)
    options: dict[str, Any] = {
        "clip_epsilon": tuple(bounds) if isinstance(bounds, list) else bounds,
        "dual_clip": inputs.get("dual_clip"),
        "mask": optional_flag(inputs, "mask"),
    }
    loss, _ = losses.ppo_clip(joint, old_joint, advantage, **options)
    per_sample, _ = losses.ppo_clip(joint, old_joint, advantage, **options, reduction="none")
    return {
        "ratio": (joint - old_joint).exp(),
        "loss_per_sample": per_sample,
        "loss_policy": loss,
        "grad_log_prob": gradient(loss, log_prob),
    }


def _value_loss(inputs: Inputs) -> Results:
    value, clip = real(inputs, "value", leaf=True), inputs.get("clip_value")
    loss, _ = losses.value_loss(
        value,
        real(inputs, "value_target"),
        real(inputs, "old_value") if "old_value" in inputs else None,
        clip_epsilon=clip,
        clip_mode=None if clip is None else "max",
    )
    return {"loss_value": loss, "grad_value": gradient(loss, value)}


def _entropy_loss(inputs: Inputs) -> Results:
    log_scale = real(inputs, "scale").log().requires_grad_()
    entropy = distributions.independent(distributions.normal_entropy(log_scale.exp()))
    loss, _ = losses.entropy_bonus(entropy, coef=inputs.get("entropy_coef", 1.0))
    return {"loss_entropy": loss, "grad_log_scale": gradient(loss, log_scale)}


def ppo_metrics(inputs: Inputs) -> Results:
    log_ratio, mask = real(inputs, "log_ratio"), optional_flag(inputs, "mask")
    effective = losses.effective_sample_size(log_ratio, mask=mask)
    return {
        "approx_kl_k1": losses.approx_kl(log_ratio, kind="k1", mask=mask),
        "approx_kl_k3": losses.approx_kl(log_ratio, kind="k3", mask=mask),
        "clip_fraction": losses.clip_fraction(
            log_ratio, clip_epsilon=inputs.get("clip_epsilon", 0.2), mask=mask
        ),
        "ess_fraction": effective / (log_ratio.numel() if mask is None else mask.sum()),
    }


def a2c(inputs: Inputs) -> Results:
    log_prob, value = real(inputs, "log_prob", leaf=True), real(inputs, "value", leaf=True)
    target = real(inputs, "value_target")
    loss_policy, _ = losses.a2c(log_prob, target - value)
    loss_value, _ = losses.value_loss(value, target)
    total = loss_policy + inputs.get("value_coef", 1.0) * loss_value
    if "entropy" in inputs:
        entropy = real(inputs, "entropy").expand_as(log_prob)
        total = total + losses.entropy_bonus(entropy, coef=inputs.get("entropy_coef", 1.0))[0]
    return {
        "advantage": (target - value).detach(),
        "loss_policy": loss_policy,
        "grad_log_prob": gradient(loss_policy, log_prob),
        "grad_value_from_policy": gradient(loss_policy, value),
        "loss_value": loss_value,
        "grad_value_from_value": gradient(loss_value, value),
        "loss_total": total,
    }


def metrics(inputs: Inputs) -> Results:
    value, target = real(inputs, "value"), real(inputs, "value_target")
    return {"explained_variance": losses.explained_variance(value, target)}


def masked_reduction(inputs: Inputs) -> Results:
    x = real(inputs, "x")
    if "mask" in inputs:
        mask = optional_flag(inputs, "mask")
        return {"masked_mean": numerics.masked_mean(torch.where(mask, x, torch.nan), mask)}
    # IQL's actor with advantages of 0 is the plain mean of −log_prob, under both kinds of weights
    weight, zeros = real(inputs, "weight"), torch.zeros_like(x)
    normalized, _ = losses.iql_actor(
        -x, zeros.unsqueeze(0), zeros, weight=weight, weight_mode="normalized"
    )
    mean, _ = losses.iql_actor(-x, zeros.unsqueeze(0), zeros, weight=weight)
    return {"weighted_mean": normalized, "mean_of_weighted": mean}
