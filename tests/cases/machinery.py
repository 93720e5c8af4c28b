"""Cases of what surrounds the losses: optimizers, schedules, running statistics, targets."""

from __future__ import annotations

from typing import Any

import torch
from tests.cases.compare import number
from tests.cases.tensors import Inputs, Results, ends, integer, optional_flag, real
from torch import Tensor

import purerl as prl


def optimizer(inputs: Inputs) -> Results:
    results: Results = {}
    if "first_gradient" in inputs:
        results["step_size"] = _first_steps(inputs)
    if "gradients" in inputs:
        results["weight_path"] = _weight_path(inputs)
    if "gradient_tensors" in inputs:
        gradients = {
            str(i): torch.tensor(number(g), dtype=torch.float64)
            for i, g in enumerate(inputs["gradient_tensors"])
        }
        clip = prl.optim.clip_by_global_norm(inputs.get("max_grad_norm", float("inf")))
        clipped, state = clip.update(gradients, clip.init(gradients), gradients)
        results["global_norm"] = state["grad_norm"]
        results["clipped_tensors"] = list(clipped.values())
    return results


def _first_steps(inputs: Inputs) -> list[float] | float:
    """Return the length of Adam's first step, for each rate or each epsilon if there are many."""
    rates, epsilons = inputs["lr"], inputs.get("adam_eps", 1e-8)
    many = max(len(x) if isinstance(x, list) else 0 for x in (rates, epsilons))
    rates, epsilons = (x if isinstance(x, list) else [x] * max(many, 1) for x in (rates, epsilons))
    weight, gradient = torch.zeros((), dtype=torch.float64), real(inputs, "first_gradient")
    sizes = []
    for lr, epsilon in zip(rates, epsilons, strict=True):
        adam = prl.optim.adam(lr, epsilon=epsilon)
        sizes.append(abs(float(adam.update(gradient, adam.init(weight), weight)[0])))
    return sizes if many else sizes[0]


def _weight_path(inputs: Inputs) -> list[Tensor]:
    adam = prl.optim.adam(inputs["lr"], epsilon=inputs.get("adam_eps", 1e-8))
    if "max_grad_norm" in inputs:
        adam = prl.optim.chain(prl.optim.clip_by_global_norm(inputs["max_grad_norm"]), adam)
    weight, path = real(inputs, "weight"), []
    state = adam.init(weight)
    for gradient in inputs["gradients"]:
        given = torch.tensor(number(gradient), dtype=weight.dtype)
        weight, state = adam.update(given, state, weight)
        path.append(weight)
    return path


def schedule(inputs: Inputs) -> Results:
    results: Results = {}
    if "frames" in inputs:
        # however many optimiser steps follow
        line = prl.optim.linear(
            inputs["epsilon_start"], inputs["epsilon_end"], inputs["anneal_frames"]
        )
        results["epsilon"] = line(integer(inputs, "frames"))
    if "kl" in inputs:
        results["lr_per_update"] = _adapted(inputs)
    elif "num_updates" in inputs:
        line = prl.optim.linear(inputs["lr"], 0.0, inputs["num_updates"])
        results["lr_per_update"] = line(torch.arange(inputs["num_updates"]))
        if "optimizer_step" in inputs:
            stairs = prl.optim.staircase(
                line, inputs.get("epochs", 1) * inputs.get("minibatches", 1)
            )
            results["lr_at_step"] = stairs(integer(inputs, "optimizer_step"))
    return results


def _adapted(inputs: Inputs) -> list[Tensor]:
    """Return the rates of updates that each measure how far they moved the policy."""
    rate, path = real(inputs, "lr"), []
    for kl in real(inputs, "kl"):
        path.append(rate)
        rate = prl.optim.adaptive_kl(rate, kl, inputs["target_kl"])
    return path


def normalizer(inputs: Inputs) -> Results:
    if "reward" in inputs:
        return _returns(inputs)
    if "batches" in inputs:
        return _batches(inputs)
    observation, mask = real(inputs, "observation"), optional_flag(inputs, "mask", "valid")
    stats = _statistics(inputs, observation[0])
    if "reset_observation" in inputs:
        stats = prl.normalize.update(stats, real(inputs, "reset_observation").unsqueeze(0))
    return _summary(prl.normalize.update(stats, observation, mask=mask))


def _statistics(inputs: Inputs, row: Tensor) -> prl.normalize.Stats:
    return prl.normalize.init(row.shape, prior_count=inputs.get("prior_count", 0.0))


def _summary(stats: prl.normalize.Stats) -> Results:
    return {
        "mean": stats["mean"],
        "var": prl.normalize.variance(stats),
        "count": stats["count"],
    }


def _batches(inputs: Inputs) -> Results:
    batches = [torch.tensor(number(b), dtype=torch.float64) for b in inputs["batches"]]
    stats = _statistics(inputs, next(b for b in batches if len(b))[0])
    rows = []
    for batch in batches:
        stats = prl.normalize.update(stats, batch.reshape(-1, *stats["mean"].shape))
        rows.append(_summary(stats))
    return {f"{name}_after": [row[name] for row in rows] for name in rows[0]} | rows[-1]


def _returns(inputs: Inputs) -> Results:
    # the file has time last, the library first
    reward = real(inputs, "reward")
    terminated, truncated = ends(inputs, reward)
    mask, num_envs = optional_flag(inputs, "valid", "mask"), reward.reshape(-1, reward.shape[-1])

    def columns(rows: Tensor) -> Tensor:
        return rows.reshape(num_envs.shape).T

    prior = inputs.get("prior_count", 0.0)
    stats = prl.normalize.init_return(len(num_envs), prior_count=prior)
    done = columns(terminated | truncated)
    mask = None if mask is None else columns(mask)
    discounted, _ = prl.normalize.discounted_return(
        stats["discounted_return"], columns(reward), done, inputs["gamma"], mask=mask
    )
    _, stats = prl.normalize.scale_rollout(stats, columns(reward), done, inputs["gamma"], mask=mask)
    return {
        "discounted_return": discounted.T.reshape(reward.shape),
        "return_mean": stats["mean"],
        "return_var": prl.normalize.variance(stats),
        "count": stats["count"],
    }


def polyak(inputs: Inputs) -> Results:
    """Follow the online network at each call, or at each of a period, whatever the actor does."""
    target: Any = {
        "w": real(inputs, "target"),
        "buffers": {"m": real(inputs, "target_buffer", 0.0)},
    }
    buffer, period = real(inputs, "source_buffer", 0.0), inputs.get("target_frequency", 1)
    taus, path = inputs.get("tau", 1.0), []
    for i, source in enumerate(inputs["source"]):
        online = {"w": real({"w": source}, "w"), "buffers": {"m": buffer}}
        moved = prl.optim.polyak(target, online, taus[i] if isinstance(taus, list) else taus)
        target = prl.optim.periodic_update(target, moved, torch.tensor(i + 1), period)
        path.append(target["w"])
    return {"target_path": path, "target_buffer": target["buffers"]["m"]}
