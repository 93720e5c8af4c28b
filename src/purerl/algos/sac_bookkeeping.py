"""The bookkeeping of SAC's learning: the buffer, optimizers, the schedule of β, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from .. import optim, replay, tree
from ..errors import ShapeError
from .sac_config import Config

Plain = dict[str, Any]


def make_buffer(config: Config, spec: Plain, *, masked: bool) -> replay.Buffer:
    """Return the replay buffer of a configuration.

    Args:
        config: the configuration.
        spec: a zero observation and the action spec.
        masked: whether rows carry a ``mask``, as those of host environments do.
    """
    ((kind, sizes),) = spec["action"].items()
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    action = torch.zeros((), dtype=torch.int64) if kind == "discrete" else sizes["low"].to(dtype)
    flag = torch.zeros((), dtype=torch.bool)
    example = {
        "observation": spec["observation"],
        "action": action,
        "reward": torch.zeros(()),
        "terminated": flag,
        "truncated": flag,
        "next_observation": spec["observation"],
    }
    example |= {"mask": flag} if masked else {}
    device = tree.leaves(spec["observation"])[0].device
    sampler = replay.uniform()
    if config.prioritized:
        sampler = replay.prioritized(alpha=config.priority_alpha, beta=config.priority_beta)
    return replay.ring(
        config.buffer_size,
        tree.map(lambda leaf: leaf.to(device), example),
        sampler=sampler,
        transform=replay.n_step(config.n_step, gamma=config.gamma) if config.n_step > 1 else None,
        num_envs=config.num_envs,
    )


def make_optimizer(config: Config, name: str) -> optim.Optimizer:
    """Return clip (not for the temperature), then Adam, skipping updates that are not finite."""
    rates = {
        "actor": config.actor_learning_rate,
        "critic": config.critic_learning_rate,
        "log_alpha": config.alpha_learning_rate,
    }
    steps = [optim.adam(rates[name], epsilon=config.adam_epsilon)]
    if config.max_grad_norm is not None and name != "log_alpha":
        steps.insert(0, optim.clip_by_global_norm(config.max_grad_norm))
    return optim.skip_nonfinite(optim.chain(*steps))


def scheduled_beta(config: Config, s: Plain) -> Tensor:
    """Return the importance exponent under its linear schedule over total_steps."""
    hp = s["hparams"]
    share = (s["num_env_steps"].to(torch.float64) / config.total_steps).clamp(max=1.0)
    return hp["priority_beta"] + (hp["priority_beta_end"] - hp["priority_beta"]) * share


_FIELDS = ("observation", "action", "reward", "terminated", "truncated", "next_observation")


def require_batch(batch: Mapping[str, Any] | TensorDict) -> Plain:
    """Return the fields of a user's batch ``[B, …]`` as a plain dict, or say what is wrong.

    Raises:
        ShapeError: a field is missing, or its leading axis is unlike that of the reward.
    """
    rows = tree.to_dict(batch)
    missing = [name for name in _FIELDS if name not in rows]
    if missing:
        raise ShapeError(f"the batch has no {', '.join(missing)}; it needs {_FIELDS}")
    size = rows["reward"].shape
    if len(size) != 1 or 0 in size:
        raise ShapeError(f"reward has shape {list(size)}, expected [B] with B ≥ 1")
    rows = {n: rows[n] for n in (*_FIELDS, "steps", "weight", "mask") if n in rows}
    for name, value in rows.items():
        for leaf in tree.leaves(value):
            if leaf.shape[:1] != size:
                raise ShapeError(
                    f"{name} has shape {list(leaf.shape)}, expected {list(size)} in front as reward"
                )
    return rows


_CRITIC = {
    "loss": {"critic": "loss_critic"},
    "stat": {n: n for n in ("q_min_mean", "target_mean", "td_error_abs_mean")},
    "opt": {"grad_norm_critic": "grad_norm_critic"},
}
_POLICY = {
    "loss": {"actor": "loss_actor", "alpha": "loss_log_alpha"},
    "stat": {n: n for n in ("entropy", "q_mean", "alpha")},
    "opt": {"grad_norm_actor": "grad_norm_actor"},
}


def summarize(s: Plain, metrics: Plain | None) -> Plain:
    """Return the metrics of a train step: means over the gradient steps that were taken.

    NaN where none was; None for a train step that only collects.
    """
    nothing = torch.full_like(s["params"]["log_alpha"], torch.nan)
    summary: Plain = {"loss": {}, "stat": {}, "opt": {}}
    for table, flag in ((_CRITIC, "ready"), (_POLICY, "turn")):
        for group, names in table.items():
            for name, source in names.items():
                value = nothing if metrics is None else _mean(metrics[source], metrics[flag])
                summary[group][name] = value
    nonfinite = [part["nonfinite"] for part in s["optimizer"].values()]
    summary["opt"]["num_updates"] = s["num_updates"]
    summary["fault"] = {"nonfinite_updates": torch.stack(nonfinite).sum()}
    return summary


def _mean(values: Tensor, taken: Tensor) -> Tensor:
    return torch.where(taken, values, torch.zeros_like(values)).sum() / taken.sum()
