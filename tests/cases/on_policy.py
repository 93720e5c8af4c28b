"""Cases of the policy-gradient losses and of what is reported beside them."""

from __future__ import annotations

from typing import Any

import torch
from tests.cases.compare import number
from tests.cases.tensors import Inputs, Results, gradient, optional_flag, real
from torch import Tensor

import purerl as prl


def ppo_loss(inputs: Inputs) -> Results:
    results: Results = {}
    if "advantage" in inputs:
        advantage = real(inputs, "advantage")
        if inputs.get("normalize_advantage"):
            mask = optional_flag(inputs, "mask", "valid")
            advantage = prl.losses.normalize_advantage(advantage, mask=mask)
            results["normalized_advantage"] = advantage
        if "log_prob" in inputs:
            results |= _surrogate(inputs, advantage)
    if "value_target" in inputs:
        results |= _value_loss(inputs)
    if "scale" in inputs or "entropy" in inputs:
        results |= _entropy_loss(inputs)
    return results


def _surrogate(inputs: Inputs, advantage: Tensor) -> Results:
    log_prob, old_log_prob = real(inputs, "log_prob", leaf=True), real(inputs, "old_log_prob")
    joint, old_joint = (_joint(x, advantage) for x in (log_prob, old_log_prob))
    bounds = number(inputs.get("clip_epsilon", 0.2))
    options: dict[str, Any] = {
        "clip_epsilon": tuple(bounds) if isinstance(bounds, list) else bounds,
        "dual_clip": inputs.get("dual_clip"),
        "mask": optional_flag(inputs, "mask", "valid"),
    }
    loss, _ = prl.losses.ppo_clip(joint, old_joint, advantage, **options)
    rows, _ = prl.losses.ppo_clip(joint, old_joint, advantage, **options, reduction="none")
    return {
        "ratio": (joint - old_joint).exp(),
        "loss_per_sample": rows,
        "loss_per_sample_shape": list(rows.shape),
        "loss_policy": loss,
        "grad_log_prob": gradient(loss, log_prob),
    }


def _joint(log_prob: Tensor, rows: Tensor) -> Tensor:
    """Return the log-probability of whole actions, whose parts lie on the last axis."""
    return prl.losses.joint_log_prob(log_prob, num_batch_dims=rows.ndim)


def _value_loss(inputs: Inputs) -> Results:
    value, clip = real(inputs, "value", leaf=True), inputs.get("clip_value")
    arguments = (
        value,
        real(inputs, "value_target"),
        real(inputs, "old_value") if "old_value" in inputs else None,
    )
    options: dict[str, Any] = {
        "clip_epsilon": clip,
        "clip_mode": None if clip is None else "max",
        "mask": optional_flag(inputs, "mask", "valid"),
    }
    loss, _ = prl.losses.value_loss(*arguments, **options)
    rows, _ = prl.losses.value_loss(*arguments, **options, reduction="none")
    return {
        "loss_value": loss,
        "loss_value_per_sample": rows,
        "grad_value": gradient(loss, value),
    }


def _entropy_loss(inputs: Inputs) -> Results:
    coef = inputs.get("entropy_coef", 1.0)
    if "scale" not in inputs:
        return {"loss_entropy": prl.losses.entropy_bonus(real(inputs, "entropy"), coef=coef)[0]}
    log_scale = real(inputs, "scale").log().requires_grad_()
    entropy = prl.distributions.independent(prl.distributions.normal_entropy(log_scale.exp()))
    loss, metrics = prl.losses.entropy_bonus(entropy, coef=coef)
    return {
        "entropy": metrics["entropy"],
        "loss_entropy": loss,
        "grad_log_scale": gradient(loss, log_scale),
    }


def ppo_metrics(inputs: Inputs) -> Results:
    if "log_ratio" in inputs:
        log_ratio = real(inputs, "log_ratio")
    else:
        log_ratio = real(inputs, "log_prob") - real(inputs, "old_log_prob")
    mask, bounds = optional_flag(inputs, "mask", "valid"), inputs.get("clip_epsilon", 0.2)
    bounds = tuple(bounds) if isinstance(bounds, list) else bounds
    return {
        "approx_kl_k1": prl.losses.approx_kl(log_ratio, kind="k1", mask=mask),
        "approx_kl_k3": prl.losses.approx_kl(log_ratio, kind="k3", mask=mask),
        "clip_fraction": prl.losses.clip_fraction(log_ratio, clip_epsilon=bounds, mask=mask),
        "ess_fraction": prl.losses.effective_sample_size(log_ratio, mask=mask),
    }


def a2c(inputs: Inputs) -> Results:
    log_prob, value = real(inputs, "log_prob", leaf=True), real(inputs, "value", leaf=True)
    target, mask = real(inputs, "value_target"), optional_flag(inputs, "mask", "valid")
    # the value's graph goes in: holding the advantage constant is up to the loss
    loss_policy, _ = prl.losses.a2c(_joint(log_prob, value), target - value, mask=mask)
    loss_value, _ = prl.losses.value_loss(value, target, mask=mask)
    total = loss_policy + inputs.get("value_coef", 1.0) * loss_value
    if "entropy" in inputs:
        coef = inputs.get("entropy_coef", 1.0)
        total = total + prl.losses.entropy_bonus(real(inputs, "entropy"), coef=coef)[0]
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
    if "records" in inputs:
        return {"logged": _logged(inputs["records"])}
    value, target = real(inputs, "value"), real(inputs, "value_target")
    mask = optional_flag(inputs, "mask", "valid")
    return {"explained_variance": prl.losses.explained_variance(value, target, mask=mask)}


def _logged(records: list[Inputs]) -> Results:
    """Return the mean of each key over the records that have it."""

    def mean(name: str) -> Tensor:
        mask = torch.tensor([name in record for record in records])
        values = torch.stack([real(record, name, "nan") for record in records])
        return prl.numerics.masked_mean(values, mask)

    return {name: mean(name) for name in dict.fromkeys(name for r in records for name in r)}


def masked_reduction(inputs: Inputs) -> Results:
    x, mask = real(inputs, "x"), optional_flag(inputs, "mask", "valid")
    results: Results = {"masked_mean": prl.numerics.masked_mean(x, mask)}
    if "weight" in inputs:
        weight = real(inputs, "weight")
        results |= {
            "weighted_mean": prl.numerics.reduce(
                x, mask=mask, weight=weight, weight_mode="normalized"
            ),
            "mean_of_weighted": prl.numerics.reduce(x, mask=mask, weight=weight),
        }
    return results
