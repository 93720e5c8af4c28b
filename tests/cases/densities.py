"""Cases of the distributions."""

from __future__ import annotations

from tests.cases.tensors import Inputs, Results, gradient, integer, optional_flag, real

import purerl as prl


def distribution_tanh_normal(inputs: Inputs) -> Results:
    loc = real(inputs, "loc")
    results: Results = {"mode": prl.distributions.tanh_normal_mode(loc)}
    if "pre_tanh" not in inputs:
        return results
    pre_tanh = real(inputs, "pre_tanh", leaf=True)
    # a flat list is a batch of one-dimensional actions
    flat = pre_tanh.ndim == 1
    u = pre_tanh.unsqueeze(-1) if flat else pre_tanh
    loc, scale = (
        (x.unsqueeze(-1) if flat and x.ndim else x).expand_as(u)
        for x in (loc, real(inputs, "scale"))
    )
    log_prob = prl.distributions.tanh_normal_log_prob(u, loc, scale)
    base = prl.distributions.normal_log_prob(u, loc, scale)
    results |= {
        "log_prob": log_prob,
        "grad_pre_tanh": gradient(log_prob.sum(), pre_tanh),
        "base_log_prob": prl.distributions.independent(base),
        "action": prl.distributions.tanh_normal_action(pre_tanh),
    }
    if "low" in inputs:
        low, high = real(inputs, "low"), real(inputs, "high")
        scaled = prl.distributions.tanh_normal_action(u, low, high)
        results["action_env"] = scaled.reshape(pre_tanh.shape)
        results["log_prob_env"] = prl.distributions.tanh_normal_log_prob(
            u, loc, scale, low=low, high=high, density="env"
        )
    return results


def distribution_normal(inputs: Inputs) -> Results:
    loc, scale = real(inputs, "loc"), real(inputs, "scale")
    wide = scale.expand_as(loc) if loc.ndim >= scale.ndim else scale
    entropy = prl.distributions.independent(prl.distributions.normal_entropy(wide))
    results: Results = {"entropy": entropy}
    if "action" in inputs:
        action = real(inputs, "action")
        # one policy for the whole batch, or one a row
        log_prob = prl.distributions.normal_log_prob(
            action, loc.expand_as(action), scale.expand_as(action)
        )
        results["log_prob"] = prl.distributions.independent(log_prob)
    if "old_loc" in inputs:
        old_loc, old_scale = real(inputs, "old_loc"), real(inputs, "old_scale").expand_as(loc)
        kl = prl.distributions.normal_kl(old_loc, old_scale, loc, wide)
        results["kl"] = prl.distributions.independent(kl)
    return results


def distribution_categorical(inputs: Inputs) -> Results:
    mask = optional_flag(inputs, "mask")
    logits = real(inputs, "logits") if "logits" in inputs else real(inputs, "probs").log()
    logits.requires_grad_()
    log_probs = prl.distributions.categorical_log_probs(logits, mask)
    results: Results = {
        "entropy": prl.distributions.categorical_entropy(logits, mask),
        "log_probs": log_probs,
        "probs": log_probs.exp(),
    }
    if "action" in inputs:
        action = integer(inputs, "action")
        log_prob = prl.distributions.categorical_log_prob(action, logits, mask)
        results["log_prob"] = log_prob
        results["grad_logits"] = gradient(log_prob.sum(), logits)
    if "other_probs" in inputs:
        other = real(inputs, "other_probs").log()
        results["kl"] = prl.distributions.categorical_kl(logits, other, mask)
    return results
