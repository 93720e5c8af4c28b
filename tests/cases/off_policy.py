"""Cases of the losses with critics."""

from __future__ import annotations

from typing import Any

import torch
from tests.cases.tensors import (
    Inputs,
    Results,
    flag,
    gradient,
    optional_flag,
    optional_steps,
    real,
    scalar,
)
from torch import Tensor

from purerl import distributions, losses, optim


def _critics(inputs: Inputs, prefix: str) -> Tensor:
    """Return ``[K, B]``: an ensemble under one name, or two critics under two."""
    if f"{prefix}1" in inputs:
        return torch.stack([real(inputs, f"{prefix}1"), real(inputs, f"{prefix}2")])
    q = real(inputs, prefix)
    return q if q.ndim > 1 else q.unsqueeze(0)


def _target_options(inputs: Inputs, reward: Tensor) -> dict[str, Any]:
    return {
        "terminated": flag(inputs, "terminated", reward),
        "gamma": scalar(inputs, "gamma", 0.99),
        "steps": optional_steps(inputs),
    }


def sac_target(inputs: Inputs) -> Results:
    results: Results = {}
    if "target" in inputs:
        target = real(inputs, "target")
    else:
        reward = real(inputs, "reward")
        target = losses.sac_target(
            reward,
            _critics(inputs, "next_q"),
            real(inputs, "next_log_prob"),
            inputs["alpha"],
            **_target_options(inputs, reward),
        )
        results["target"] = target
    if "q1" in inputs or "q" in inputs:
        results["loss_q"] = losses.sac_critic(_critics(inputs, "q"), target)[0]
    return results


def sac_actor(inputs: Inputs) -> Results:
    results: Results = {}
    if "pre_tanh" in inputs:
        results["critic_action"] = distributions.tanh_normal_action(real(inputs, "pre_tanh"))
    if "log_prob" in inputs:
        log_prob, q = real(inputs, "log_prob"), _critics(inputs, "q")
        # a column beside rows is refused by the loss; its rows are the numbers meant
        log_prob = losses.joint_log_prob(log_prob) if log_prob.ndim > 1 else log_prob
        results["loss_policy"] = losses.sac_actor(log_prob, q, inputs["alpha"])[0]
        per_sample, _ = losses.sac_actor(log_prob, q, inputs["alpha"], reduction="none")
        results["loss_per_sample_shape"] = list(per_sample.shape)
        results["loss_per_sample"] = per_sample
    return results


def sac_alpha(inputs: Inputs) -> Results:
    if "action_shape" in inputs:
        return {"target_entropy": [losses.sac_target_entropy(s) for s in inputs["action_shape"]]}
    log_alpha, log_prob = real(inputs, "log_alpha", leaf=True), real(inputs, "log_prob")
    log_prob = losses.joint_log_prob(log_prob) if log_prob.ndim > 1 else log_prob
    results: Results = {}
    for form in ("log", "alpha"):
        loss, _ = losses.sac_alpha(log_alpha, log_prob, inputs["target_entropy"], form=form)
        results[f"loss_{form}_form"] = loss
        results[f"grad_log_alpha_{form}_form"] = gradient(loss.sum(), log_alpha)
    return results


def discrete_sac(inputs: Inputs) -> Results:
    if "logits" not in inputs:
        count, weight = inputs["n"], inputs.get("weight", 0.98)
        return {"target_entropy": losses.sac_discrete_target_entropy(count, scale=weight)}
    logits, alpha = real(inputs, "logits", leaf=True), inputs.get("alpha", 0.0)
    legal = optional_flag(inputs, "mask")
    results: Results = {}
    if "q1" in inputs or "q" in inputs:
        q = _critics(inputs, "q")
        loss, _ = losses.sac_discrete_actor(logits, q, alpha, action_mask=legal)
        rows, _ = losses.sac_discrete_actor(logits, q, alpha, action_mask=legal, reduction="none")
        results |= {
            "value": -rows,
            "loss_policy": loss,
            "grad_logits": gradient(loss, logits),
        }
        if "reward" in inputs:
            reward = real(inputs, "reward")
            options = _target_options(inputs, reward) | {"next_action_mask": legal}
            results["target"] = losses.sac_discrete_target(reward, q, logits, alpha, **options)
    if "log_alpha" in inputs:
        log_alpha, wanted = real(inputs, "log_alpha", leaf=True), inputs["target_entropy"]
        for form in ("log", "alpha"):
            loss, _ = losses.sac_discrete_alpha(
                log_alpha, logits, wanted, form=form, action_mask=legal
            )
            results[f"loss_{form}_form"] = loss
            results[f"grad_log_alpha_{form}_form"] = gradient(loss.sum(), log_alpha)
    return results


def redq(inputs: Inputs) -> Results:
    reward, next_q = real(inputs, "reward"), real(inputs, "next_q")
    target = losses.redq_target(
        reward,
        next_q,
        real(inputs, "next_log_prob"),
        inputs["alpha"],
        subset=torch.tensor(inputs.get("subset", list(range(len(next_q))))),
        **_target_options(inputs, reward),
    )
    results: Results = {"target": target}
    if "q" in inputs:
        results["loss_q"] = losses.redq_critic(real(inputs, "q"), target)[0]
    if "log_prob" in inputs:
        q = real(inputs, "q")
        results["loss_policy"] = losses.redq_actor(real(inputs, "log_prob"), q, inputs["alpha"])[0]
    return results


def td3(inputs: Inputs) -> Results:
    results: Results = {}
    if "noise" in inputs:
        results["smoothed_action"] = losses.td3_smoothed_action(
            real(inputs, "next_action"),
            real(inputs, "noise"),
            low=real(inputs, "low", -1.0),
            high=real(inputs, "high", 1.0),
            policy_noise=inputs.get("policy_noise", 0.2),
            noise_clip=inputs.get("noise_clip", 0.5),
        )
    if "next_q1" in inputs or "next_q" in inputs:
        reward = real(inputs, "reward")
        options = _target_options(inputs, reward)
        results["target"] = losses.td3_target(reward, _critics(inputs, "next_q"), **options)
    if "gradient_steps_per_call" in inputs:
        results["actor_updates"] = _copies(
            sum(inputs["gradient_steps_per_call"]), inputs["policy_delay"]
        )
    return results


def _copies(steps: int, period: int) -> int:
    return len(_due(range(1, steps + 1), period))


def _due(steps: range, period: int) -> list[int]:
    """Return the steps at which a periodic update takes what is new."""
    old, new = torch.zeros(()), torch.ones(())
    return [s for s in steps if optim.periodic_update(old, new, torch.tensor(s), period) == new]


def ddpg(inputs: Inputs) -> Results:
    results: Results = {}
    if "actor_output" in inputs:
        # exploration with given noise is target smoothing whose own clip never binds
        results["action"] = losses.td3_smoothed_action(
            real(inputs, "actor_output"),
            real(inputs, "noise"),
            low=real(inputs, "low"),
            high=real(inputs, "high"),
            policy_noise=inputs.get("exploration_noise", 0.1),
            noise_clip=1e9,
        )
    if "next_q" in inputs:
        reward = real(inputs, "reward")
        options = _target_options(inputs, reward)
        results["target"] = losses.ddpg_target(reward, real(inputs, "next_q"), **options)
        if "q" in inputs:
            results["loss_q"] = losses.ddpg_critic(real(inputs, "q"), results["target"])[0]
    return results


def dqn(inputs: Inputs) -> Results:
    if "target_frequency" in inputs:
        steps = range(1, inputs["total_steps"] + 1)
        return {"target_update_steps": _due(steps, inputs["target_frequency"])}
    reward = real(inputs, "reward")
    select = real(inputs, "next_q_online") if inputs.get("double_dqn") else None
    target = losses.dqn_target(
        reward,
        real(inputs, "next_q_target"),
        next_q_select=select,
        next_action_mask=optional_flag(inputs, "next_action_mask"),
        **_target_options(inputs, reward),
    )
    results: Results = {"target": target}
    if "q" in inputs:
        q, action = real(inputs, "q"), torch.tensor(inputs["action"])
        results["td_error"] = losses.action_value(q, action) - target
        results["loss_mse"] = losses.dqn(q, action, target, kind="l2")[0]
        results["loss_huber"] = losses.dqn(q, action, target, kind="huber")[0]
    return results


def cql(inputs: Inputs) -> Results:
    weight = inputs.get("min_q_weight", 1.0)
    if "q_data" not in inputs:
        q = real(inputs, "q", leaf=True)
        action = torch.tensor(inputs["action"])
        gap, _ = losses.cql_discrete_penalty(q, action, min_q_weight=weight)
        return {"cql_gap": gap, "grad_q": gradient(gap, q)}
    names = ("q_random", "q_policy", "q_next_policy")
    densities = ("random_log_prob", "policy_log_prob", "next_policy_log_prob")
    leaves = {name: real(inputs, name, leaf=True) for name in (*names, "q_data") if name in inputs}
    sampled = torch.cat([leaves[name] for name in names if name in inputs], -1)
    log_prob = torch.cat([real(inputs, name) for name in densities if name in inputs], -1)
    gap, _ = losses.cql_penalty(
        leaves["q_data"].unsqueeze(0),
        sampled.T.unsqueeze(0),
        log_prob.T,
        temperature=inputs.get("temperature", 1.0),
        min_q_weight=weight,
    )
    return {"cql_gap": gap} | {f"grad_{name}": gradient(gap, leaf) for name, leaf in leaves.items()}


def iql(inputs: Inputs) -> Results:
    results: Results = {}
    value = real(inputs, "value", leaf=True) if "value" in inputs else None
    if value is not None and ("q1" in inputs or "q" in inputs):
        q = _critics(inputs, "q")
        if "expectile" in inputs:
            loss, _ = losses.iql_value(value, q, expectile=inputs["expectile"])
            rows, _ = losses.iql_value(value, q, expectile=inputs["expectile"], reduction="none")
            results |= {
                "loss_value_per_sample": rows,
                "loss_value": loss,
                "grad_value": gradient(loss, value),
            }
        if "log_prob" in inputs:
            log_prob = real(inputs, "log_prob", leaf=True)
            options = {"temperature": inputs["beta"], "max_weight": inputs.get("max_weight", 100.0)}
            loss, _ = losses.iql_actor(log_prob, q, value.detach(), **options)
            rows, _ = losses.iql_actor(log_prob, q, value.detach(), **options, reduction="none")
            results |= {
                "actor_weight": -gradient(rows.sum(), log_prob),
                "loss_policy": loss,
                "grad_log_prob": gradient(loss, log_prob),
            }
    if "next_value" in inputs:
        reward = real(inputs, "reward")
        options = _target_options(inputs, reward)
        results["target"] = losses.iql_target(reward, real(inputs, "next_value"), **options)
    return results
