"""Cases of the distributions."""

from __future__ import annotations

import torch
from tests.cases.tensors import Inputs, Results, gradient, optional_flag, real

from purerl import distributions


def distribution_tanh_normal(inputs: Inputs) -> Results:
    pre_tanh = real(inputs, "pre_tanh", leaf=True)
    loc, scale = real(inputs, "loc"), real(inputs, "scale")
    results: Results = {"mode": distributions.tanh_normal_mode(loc)}
    # a flat list is a batch of one-dimensional actions
    u = pre_tanh if pre_tanh.ndim > 1 else pre_tanh.unsqueeze(-1)
    loc, scale = loc.expand_as(u), scale.expand_as(u)
    log_prob = distributions.tanh_normal_log_prob(u, loc, scale)
    action = distributions.tanh_normal_action(pre_tanh)
    results |= {
        "log_prob": log_prob,
        "grad_pre_tanh": gradient(log_prob.sum(), pre_tanh),
        "base_log_prob": distributions.independent(distributions.normal_log_prob(u, loc, scale)),
        "action": action,
    }
    if "low" in inputs:
        low, high = real(inputs, "low"), real(inputs, "high")
        scaled = distributions.tanh_normal_action(u, low, high)
        results["action_env"] = scaled.reshape(pre_tanh.shape)
        results["log_prob_env"] = distributions.tanh_normal_log_prob(
            u, loc, scale, low=low, high=high, density="env"
        )
    return results


def distribution_normal(inputs: Inputs) -> Results:
    loc, scale = real(inputs, "loc"), real(inputs, "scale")
    entropy = distributions.independent(distributions.normal_entropy(scale.expand_as(loc)))
    results: Results = {"entropy": entropy}
    if "action" in inputs:
        action = real(inputs, "action")
        log_prob = distributions.normal_log_prob(action, loc.expand_as(action), scale)
        results["log_prob"] = distributions.independent(log_prob)
    if "old_loc" in inputs:
        kl = distributions.normal_kl(real(inputs, "old_loc"), real(inputs, "old_scale"), loc, scale)
        results["kl"] = distributions.independent(kl)
    return results


def distribution_categorical(inputs: Inputs) -> Results:
    mask = optional_flag(inputs, "mask")
    given = "logits" in inputs
    logits = real(inputs, "logits", leaf=True) if given else real(inputs, "probs").log()
    results: Results = {
        "entropy": distributions.categorical_entropy(logits, mask),
        "log_probs": distributions.categorical_log_probs(logits, mask),
        "probs": distributions.categorical_log_probs(logits, mask).exp(),
    }
    if "action" in inputs:
        log_prob = distributions.categorical_log_prob(torch.tensor(inputs["action"]), logits, mask)
        results["log_prob"] = log_prob
        if given:
            results["grad_logits"] = gradient(log_prob.sum(), logits)
    if "other_probs" in inputs:
        other = real(inputs, "other_probs").log()
        results["kl"] = distributions.categorical_kl(logits, other, mask)
    return results
