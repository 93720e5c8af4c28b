"""The bookkeeping of PPO's learning: minibatches, schedules, the optimizer, metrics."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import losses, optim, tree
from .ppo_config import Config

Plain = dict[str, Any]

LOSSES = ("policy", "value", "entropy", "total")
"""The parts of the loss, in the order in which a minibatch reports them."""


def minibatches(config: Config, rows: Plain, order: Tensor) -> Plain:
    """Return rows in the given order, cut into ``[num_minibatches, size, …]``: one gather."""
    return tree.map(lambda leaf: leaf[order].unflatten(0, (config.num_minibatches, -1)), rows)


def kl_too_large(config: Config, s: Plain, approx_kl: Tensor) -> Tensor:
    """Return whether an update is stopped: k3 > target_kl · kl_stop_factor."""
    hp = s["hparams"]
    return approx_kl > hp["target_kl"] * hp["kl_stop_factor"]


def scheduled(config: Config, s: Plain, name: str, step: Tensor) -> Tensor:
    """Return a number under its linear schedule, at gradient step ``step`` of this update."""
    hp = s["hparams"]
    if f"{name}_end" not in hp:
        return hp[name]
    num_updates = math.ceil(config.total_steps / (config.num_envs * config.num_steps))
    count = s["num_updates"]
    if config.schedule_unit == "gradient_step":
        per_update = config.num_epochs * config.num_minibatches
        count, num_updates = count * per_update + step, num_updates * per_update
    # an integer divided by an integer would be rounded to float32
    share = ((count + config.schedule_offset).to(torch.float64) / num_updates).clamp(max=1.0)
    return hp[name] + (hp[f"{name}_end"] - hp[name]) * share


def make_optimizer(config: Config) -> optim.Optimizer:
    """Return clip, then Adam, skipping updates that are not finite."""
    steps = [optim.adam(config.learning_rate, epsilon=config.adam_epsilon)]
    if config.max_grad_norm is not None:
        clip = optim.clip_by_global_norm(
            config.max_grad_norm,
            form=config.grad_clip_form,
            per_group=config.grad_clip_scope == "separate",
        )
        steps.insert(0, clip)
    return optim.skip_nonfinite(optim.chain(*steps))


def summarize(config: Config, s: Plain, rows: Plain, metrics: Plain, end: Plain) -> Plain:
    """Return the metrics of an update: means over every executed minibatch of every epoch."""
    executed = metrics.pop("executed")
    weight = torch.where(executed, metrics.pop("num_rows"), 0).to(rows["value"].dtype)
    total = weight.sum().clamp(min=1)

    def mean(leaf: Tensor) -> Tensor:
        return torch.where(executed, leaf * weight, torch.zeros_like(weight)).sum() / total

    grad_norm, ratio_max = metrics.pop("grad_norm"), metrics.pop("ratio_max")
    loss = {name: mean(metrics.pop(f"loss_{name}")) for name in LOSSES}
    mask = rows.get("mask")
    stat = {name: mean(leaf) for name, leaf in metrics.items()} | {
        "ratio_max": torch.where(executed, ratio_max, 0.0).amax(),
        "explained_variance": losses.explained_variance(
            rows["value"], rows["value_target"], mask=mask
        ),
    }
    opt = {
        "grad_norm": mean(grad_norm),
        "learning_rate": scheduled(config, s, "learning_rate", torch.zeros_like(total)),
        "num_updates": executed.sum(),
        "stopped": end["stopped"],
    }
    fault = {"nonfinite_updates": end["optimizer"]["nonfinite"]}
    return {"loss": loss, "stat": stat, "opt": opt, "fault": fault}
