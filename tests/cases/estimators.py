"""Cases of the value estimators. Time is the last axis of the file's arrays."""

from __future__ import annotations

from tests.cases.tensors import Inputs, Results, flag, gradient, real, scalar

from purerl import losses, returns


def gae(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    advantage, value_target = returns.gae(
        reward,
        real(inputs, "value"),
        real(inputs, "next_value"),
        flag(inputs, "terminated", reward),
        flag(inputs, "truncated", reward),
        gamma=scalar(inputs, "gamma", 0.99),
        lmbda=scalar(inputs, "lmbda", 0.95),
        dim=-1,
    )
    return {"advantage": advantage, "value_target": value_target}


def vtrace(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    result = returns.vtrace(
        real(inputs, "log_prob"),
        real(inputs, "old_log_prob"),
        reward,
        real(inputs, "value"),
        real(inputs, "next_value"),
        flag(inputs, "terminated", reward),
        flag(inputs, "truncated", reward),
        gamma=scalar(inputs, "gamma", 0.99),
        lmbda=scalar(inputs, "lmbda", 1.0),
        rho_clip=inputs.get("rho_clip", 1.0),
        c_clip=inputs.get("c_clip", 1.0),
        dim=-1,
    )
    return {"vs": result.value_target, "advantage": result.advantage}


def td_lambda(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    target = returns.td_lambda(
        reward,
        real(inputs, "next_value"),
        flag(inputs, "terminated", reward),
        flag(inputs, "truncated", reward),
        gamma=scalar(inputs, "gamma", 0.99),
        lmbda=scalar(inputs, "lmbda", 0.95),
        dim=-1,
    )
    return {"return": target}


def nstep(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    target = returns.n_step(
        reward,
        real(inputs, "next_value"),
        flag(inputs, "terminated", reward),
        flag(inputs, "truncated", reward),
        n=inputs["n"],
        gamma=scalar(inputs, "gamma", 0.99),
        dim=-1,
    )
    return {"return": target}


def reward_to_go(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    ended = "done" if "done" in inputs else "terminated"
    terminated, truncated = flag(inputs, ended, reward), flag(inputs, "truncated", reward)
    gamma = scalar(inputs, "gamma", 0.99)
    return {"return": returns.reward_to_go(reward, terminated, truncated, gamma=gamma, dim=-1)}


def reinforce(inputs: Inputs) -> Results:
    log_prob = real(inputs, "log_prob", leaf=True)
    found = reward_to_go(inputs) if "reward" in inputs else {"return": real(inputs, "return")}
    baseline = real(inputs, "baseline") if "baseline" in inputs else "none"
    loss, _ = losses.reinforce(log_prob, found["return"], baseline=baseline)
    return found | {"loss_policy": loss, "grad_log_prob": gradient(loss, log_prob)}
