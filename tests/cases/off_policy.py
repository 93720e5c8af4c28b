"""Cases of the losses with critics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.cases.compare import number
from tests.cases.tensors import (
    Inputs,
    Results,
    ends,
    gradient,
    integer,
    optional_flag,
    optional_steps,
    real,
    scalar,
)
from torch import Tensor

import purerl as prl

EVERY_ACTION = 1e9
"""A clip of noise that never binds."""


def _critics(inputs: Inputs, prefix: str, row_dims: int = 1) -> Tensor:
    """Return ``[K, *B]``: an ensemble under one name, or two critics under two."""
    if f"{prefix}1" in inputs:
        return torch.stack([real(inputs, f"{prefix}1"), real(inputs, f"{prefix}2")])
    q = real(inputs, prefix)
    return q if q.ndim > row_dims else q.unsqueeze(0)


def _target_options(inputs: Inputs, reward: Tensor) -> dict[str, Any]:
    return {
        "terminated": ends(inputs, reward)[0],
        "gamma": scalar(inputs, "gamma", 0.99, reward),
        "steps": optional_steps(inputs),
    }


def _joint(inputs: Inputs, name: str, num_batch_dims: int = 1, *, leaf: bool = False) -> Tensor:
    """Return the log-probability of whole actions: parts, or a column, on the last axis summed."""
    log_prob = real(inputs, name, leaf=leaf)
    return prl.losses.joint_log_prob(log_prob, num_batch_dims=num_batch_dims)


def sac_target(inputs: Inputs) -> Results:
    results: Results = {}
    if "target" in inputs:
        target = real(inputs, "target")
    else:
        reward = real(inputs, "reward")
        target = prl.losses.sac_target(
            reward,
            _critics(inputs, "next_q"),
            _joint(inputs, "next_log_prob", reward.ndim),
            inputs["alpha"],
            **_target_options(inputs, reward),
        )
        results["target"] = target
    if "q1" in inputs or "q" in inputs:
        results["loss_q"] = prl.losses.sac_critic(_critics(inputs, "q"), target)[0]
    return results


def sac_actor(inputs: Inputs) -> Results:
    results: Results = {}
    if "pre_tanh" in inputs:
        results["critic_action"] = prl.distributions.tanh_normal_action(real(inputs, "pre_tanh"))
    if "log_prob" in inputs:
        # a column beside rows is refused by the loss; its rows are the numbers meant
        q, log_prob = _critics(inputs, "q"), real(inputs, "log_prob", leaf=True)
        joint = prl.losses.joint_log_prob(log_prob, num_batch_dims=q.ndim - 1)
        loss, metrics = prl.losses.sac_actor(joint, q, inputs["alpha"])
        rows, _ = prl.losses.sac_actor(joint, q, inputs["alpha"], reduction="none")
        results |= {
            "loss_policy": loss,
            "loss_per_sample": rows,
            "loss_per_sample_shape": list(rows.shape),
            "grad_log_prob": gradient(loss, log_prob),
            "entropy": metrics["entropy"],
        }
    return results


def sac_alpha(inputs: Inputs) -> Results:
    results: Results = {}
    target_entropy: Any = inputs.get("target_entropy")
    if "action_shape" in inputs:
        shapes = inputs["action_shape"]
        nested = bool(shapes) and isinstance(shapes[0], list)
        found = [prl.losses.sac_target_entropy(s) for s in (shapes if nested else [shapes])]
        results["target_entropy"] = found if nested else found[0]
        target_entropy = found[0] if target_entropy is None else target_entropy
    if "log_alpha" in inputs:
        log_prob = _joint(inputs, "log_prob")

        def losses(log_alpha: Tensor, form: Any) -> Tensor:
            return prl.losses.sac_alpha(log_alpha, log_prob, target_entropy, form=form)[0]

        results |= _temperature(inputs, losses)
    return results


def _temperature(inputs: Inputs, loss_of: Callable[[Tensor, Any], Tensor]) -> Results:
    """Return both forms of a temperature's loss, one for each entry of log alpha."""
    results: Results = {}
    for form in ("log", "alpha"):
        log_alpha = real(inputs, "log_alpha", leaf=True)
        loss = loss_of(log_alpha, form)
        results[f"loss_{form}_form"] = loss
        results[f"grad_log_alpha_{form}_form"] = gradient(loss.sum(), log_alpha)
    return results


def discrete_sac(inputs: Inputs) -> Results:
    results: Results = {}
    target_entropy: Any = inputs.get("target_entropy")
    if "weight" in inputs or "n" in inputs:
        count = inputs.get("n") or len(inputs["logits"][0])
        found = prl.losses.sac_discrete_target_entropy(count, scale=inputs.get("weight", 0.98))
        results["target_entropy"] = found
        target_entropy = found if target_entropy is None else target_entropy
    if "logits" not in inputs and "probs" not in inputs:
        return results
    given = "logits" in inputs
    logits = real(inputs, "logits") if given else real(inputs, "probs").log()
    logits.requires_grad_()
    legal = optional_flag(inputs, "mask")
    if "q1" in inputs or "q" in inputs:
        results |= _discrete_actor(inputs, logits, legal)
    next_q = "next_q" if "next_q1" in inputs or "next_q" in inputs else "q"
    if "reward" in inputs:
        reward, successor = real(inputs, "reward"), optional_flag(inputs, "next_action_mask")
        options = _target_options(inputs, reward)
        options["next_action_mask"] = legal if successor is None else successor
        q = _critics(inputs, next_q, 2)
        alpha = inputs.get("alpha", 0.0)
        results["target"] = prl.losses.sac_discrete_target(reward, q, logits, alpha, **options)
    if "log_alpha" in inputs:

        def losses(log_alpha: Tensor, form: Any) -> Tensor:
            return prl.losses.sac_discrete_alpha(
                log_alpha, logits, target_entropy, form=form, action_mask=legal
            )[0]

        results |= _temperature(inputs, losses)
    return results


def _discrete_actor(inputs: Inputs, logits: Tensor, legal: Tensor | None) -> Results:
    q, alpha = _critics(inputs, "q", 2), inputs.get("alpha", 0.0)
    loss, metrics = prl.losses.sac_discrete_actor(logits, q, alpha, action_mask=legal)
    rows, _ = prl.losses.sac_discrete_actor(logits, q, alpha, action_mask=legal, reduction="none")
    return {
        "value": -rows,
        "loss_policy": loss,
        "grad_logits": gradient(loss, logits),
        "entropy": metrics["entropy"],
    }


def redq(inputs: Inputs) -> Results:
    results: Results = {}
    target = real(inputs, "target") if "target" in inputs else None
    if "next_q" in inputs:
        reward, next_q = real(inputs, "reward"), real(inputs, "next_q")
        target = prl.losses.redq_target(
            reward,
            next_q,
            _joint(inputs, "next_log_prob"),
            inputs["alpha"],
            subset=torch.tensor(inputs.get("subset", list(range(len(next_q))))),
            **_target_options(inputs, reward),
        )
        results["target"] = target
    if "q" in inputs and target is not None:
        results["loss_q"] = prl.losses.redq_critic(real(inputs, "q"), target)[0]
    if "q" in inputs and "log_prob" in inputs:
        log_prob = _joint(inputs, "log_prob")
        loss, _ = prl.losses.redq_actor(log_prob, real(inputs, "q"), inputs["alpha"])
        results["loss_policy"] = loss
    return results


def td3(inputs: Inputs) -> Results:
    results: Results = {}
    if "noise" in inputs:
        results["smoothed_action"] = prl.losses.td3_smoothed_action(
            real(inputs, "next_action"),
            real(inputs, "noise"),
            low=real(inputs, "low", -1.0),
            high=real(inputs, "high", 1.0),
            policy_noise=inputs.get("policy_noise", 0.2),
            noise_clip=inputs.get("noise_clip", 0.5),
        )
    target = real(inputs, "target") if "target" in inputs else None
    if "next_q1" in inputs or "next_q" in inputs:
        reward = real(inputs, "reward")
        options = _target_options(inputs, reward)
        target = prl.losses.td3_target(reward, _critics(inputs, "next_q"), **options)
        results["target"] = target
    if target is not None and ("q1" in inputs or "q" in inputs):
        results["loss_q"] = prl.losses.td3_critic(_critics(inputs, "q"), target)[0]
    if "gradient_steps_per_call" in inputs:
        taken = sum(inputs["gradient_steps_per_call"])
        results["actor_updates"] = len(_due(taken, inputs["policy_delay"]))
    return results


def _due(num_steps: int, period: int) -> list[int]:
    """Return the steps, the first being 1, at which a periodic update takes what is new."""
    old, new = torch.zeros(()), torch.ones(())
    counts = range(1, num_steps + 1)
    return [
        k for k in counts if prl.optim.periodic_update(old, new, torch.tensor(k), period) == new
    ]


def ddpg(inputs: Inputs) -> Results:
    results: Results = {}
    if "actor_output" in inputs:
        actor_output = real(inputs, "actor_output")
        # exploration with given noise is target smoothing whose own clip never binds
        results["action"] = prl.losses.td3_smoothed_action(
            actor_output,
            real(inputs, "noise") if "noise" in inputs else torch.zeros_like(actor_output),
            low=real(inputs, "low", -1.0),
            high=real(inputs, "high", 1.0),
            policy_noise=inputs.get("exploration_noise", 0.1),
            noise_clip=EVERY_ACTION,
        )
    target = real(inputs, "target") if "target" in inputs else None
    if "next_q" in inputs:
        reward = real(inputs, "reward")
        options = _target_options(inputs, reward)
        target = prl.losses.ddpg_target(reward, real(inputs, "next_q"), **options)
        results["target"] = target
    if "q" in inputs and target is not None:
        results["loss_q"] = prl.losses.ddpg_critic(real(inputs, "q"), target)[0]
    return results


def dqn(inputs: Inputs) -> Results:
    results: Results = {}
    if "target_frequency" in inputs:
        # how often the network trains has no say in it
        due = _due(inputs["total_steps"], inputs["target_frequency"])
        results["target_update_steps"] = due
    target = real(inputs, "target") if "target" in inputs else None
    if "next_q_target" in inputs:
        reward = real(inputs, "reward")
        target = prl.losses.dqn_target(
            reward,
            real(inputs, "next_q_target"),
            next_q_select=real(inputs, "next_q_online") if inputs.get("double_dqn") else None,
            next_action_mask=optional_flag(inputs, "next_action_mask", "mask"),
            **_target_options(inputs, reward),
        )
        results["target"] = target
    if "q" in inputs and target is not None:
        q, action = real(inputs, "q"), integer(inputs, "action")
        results |= {
            "td_error": prl.losses.action_value(q, action) - target,
            "loss_mse": prl.losses.dqn(q, action, target, kind="l2")[0],
            "loss_huber": prl.losses.dqn(q, action, target, kind="huber")[0],
        }
    return results


def cql(inputs: Inputs) -> Results:
    weight = inputs.get("min_q_weight", 1.0)
    if "q_data" not in inputs:
        q, legal = real(inputs, "q", leaf=True), optional_flag(inputs, "mask")
        gap, _ = prl.losses.cql_discrete_penalty(
            q, integer(inputs, "action"), min_q_weight=weight, action_mask=legal
        )
        return {"cql_gap": gap, "grad_q": gradient(gap, q)}
    sources = {
        "q_random": "random_log_prob",
        "q_policy": "policy_log_prob",
        "q_next_policy": "next_policy_log_prob",
    }
    present = [name for name in sources if name in inputs]
    leaves = {name: real(inputs, name, leaf=True) for name in (*present, "q_data")}
    sampled = torch.cat([leaves[name] for name in present], -1)
    log_prob = torch.cat([real(inputs, sources[name]) for name in present], -1)
    gap, _ = prl.losses.cql_penalty(
        leaves["q_data"].unsqueeze(0),
        sampled.T.unsqueeze(0),
        log_prob.T,
        temperature=inputs.get("temperature", 1.0),
        min_q_weight=weight,
    )
    return {"cql_gap": gap} | {f"grad_{name}": gradient(gap, leaf) for name, leaf in leaves.items()}


def iql(inputs: Inputs) -> Results:
    results: Results = {}
    if "value" in inputs and ("q1" in inputs or "q" in inputs):
        results |= _iql_value(inputs)
        if "beta" in inputs:
            results |= _iql_actor(inputs)
    target = real(inputs, "target") if "target" in inputs else None
    if "next_value" in inputs:
        reward = real(inputs, "reward")
        options = _target_options(inputs, reward)
        target = prl.losses.iql_target(reward, real(inputs, "next_value"), **options)
        results["target"] = target
    if target is not None and ("q1" in inputs or "q" in inputs):
        results["loss_q"] = prl.losses.iql_critic(_critics(inputs, "q"), target)[0]
    return results


def _iql_value(inputs: Inputs) -> Results:
    value, q = real(inputs, "value", leaf=True), _critics(inputs, "q")
    expectile = inputs.get("expectile", 0.7)
    loss, _ = prl.losses.iql_value(value, q, expectile=expectile)
    rows, _ = prl.losses.iql_value(value, q, expectile=expectile, reduction="none")
    return {
        "loss_value_per_sample": rows,
        "loss_value": loss,
        "grad_value": gradient(loss, value),
    }


def _iql_actor(inputs: Inputs) -> Results:
    value, q = real(inputs, "value"), _critics(inputs, "q")
    options = {
        "temperature": inputs["beta"],
        "max_weight": number(inputs.get("max_weight", 100.0)),
    }
    # the weights are those of the log-probabilities, whatever these are
    probe = torch.zeros_like(value).requires_grad_()
    rows, _ = prl.losses.iql_actor(probe, q, value, **options, reduction="none")
    results: Results = {"actor_weight": -gradient(rows.sum(), probe)}
    if "log_prob" in inputs:
        log_prob = real(inputs, "log_prob", leaf=True)
        joint = prl.losses.joint_log_prob(log_prob)
        loss, _ = prl.losses.iql_actor(joint, q, value, **options)
        results |= {"loss_policy": loss, "grad_log_prob": gradient(loss, log_prob)}
    return results
