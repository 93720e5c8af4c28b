"""Cases of what surrounds the losses: optimizers, schedules, statistics, targets, environments."""

from __future__ import annotations

import io
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.cases.tensors import Inputs, Results, flag, real

from purerl import envs, losses, networks, normalize, optim, random, rollout, tree


def optimizer(inputs: Inputs) -> Results:
    if "first_gradient" in inputs:
        sizes = [_first_step(inputs["lr"], epsilon, inputs) for epsilon in _listed(inputs)]
        return {"step_size": sizes if isinstance(inputs["adam_eps"], list) else sizes[0]}
    gradients = {
        str(i): torch.tensor(g, dtype=torch.float64)
        for i, g in enumerate(inputs["gradient_tensors"])
    }
    clip = optim.clip_by_global_norm(inputs["max_grad_norm"])
    clipped, _ = clip.update(gradients, clip.init(gradients), gradients)
    return {"global_norm": tree.global_norm(gradients), "clipped_tensors": list(clipped.values())}


def _listed(inputs: Inputs) -> list[float]:
    value = inputs["adam_eps"]
    return value if isinstance(value, list) else [value]


def _first_step(lr: float, epsilon: float, inputs: Inputs) -> float:
    adam, weight = optim.adam(lr, epsilon=epsilon), torch.zeros((), dtype=torch.float64)
    moved, _ = adam.update(real(inputs, "first_gradient"), adam.init(weight), weight)
    return abs(float(moved))


def schedule(inputs: Inputs) -> Results:
    if "frames" in inputs:
        line = optim.linear(inputs["epsilon_start"], inputs["epsilon_end"], inputs["anneal_frames"])
        return {"epsilon": line(torch.tensor(inputs["frames"]))}
    line = optim.linear(inputs["lr"], 0.0, inputs["num_updates"])
    results: Results = {"lr_per_update": line(torch.arange(inputs["num_updates"]))}
    if "optimizer_step" in inputs:
        stairs = optim.staircase(line, inputs["epochs"] * inputs["minibatches"])
        results["lr_at_step"] = stairs(torch.tensor(inputs["optimizer_step"]))
    return results


def normalizer(inputs: Inputs) -> Results:
    if "accumulate_returns" in inputs or "return_mean" in inputs or "valid" in inputs:
        return _returns(inputs)
    if "batches" in inputs:
        return _batches(inputs)
    if "reset_observation" not in inputs:
        stats = normalize.update(normalize.init(()), real(inputs, "observation"))
    else:
        first = normalize.update(normalize.init(()), real(inputs, "reset_observation").reshape(1))
        stats = normalize.update(first, real(inputs, "observation"))
    return {"mean": stats["mean"], "var": normalize.variance(stats), "count": stats["count"]}


def _batches(inputs: Inputs) -> Results:
    stats = normalize.init((), prior_count=inputs.get("prior_count", 0.0))
    after: dict[str, list[Any]] = {"mean_after": [], "var_after": [], "count_after": []}
    for batch in inputs["batches"]:
        stats = normalize.update(stats, torch.tensor(batch, dtype=torch.float64))
        after["mean_after"].append(stats["mean"])
        after["var_after"].append(normalize.variance(stats))
        after["count_after"].append(stats["count"])
    return after


def _returns(inputs: Inputs) -> Results:
    reward = real(inputs, "reward")
    done = flag(inputs, "terminated", reward) | flag(inputs, "truncated", reward)
    mask = flag(inputs, "valid") if "valid" in inputs else None
    gamma = inputs["gamma"]
    discounted, _ = normalize.discounted_return(
        torch.zeros((), dtype=torch.float64), reward, done, gamma, mask=mask
    )
    columns = (None if mask is None else mask.unsqueeze(-1)), done.unsqueeze(-1)
    _, stats = normalize.scale_rollout(
        normalize.init_return(1), reward.unsqueeze(-1), columns[1], gamma, mask=columns[0]
    )
    return {
        "discounted_return": discounted,
        "return_mean": stats["mean"],
        "return_var": normalize.variance(stats),
        "count": stats["count"],
    }


def polyak(inputs: Inputs) -> Results:
    target = {"w": real(inputs, "target"), "buffers": {"m": real(inputs, "target_buffer", 0.0)}}
    buffer, taus = real(inputs, "source_buffer", 0.0), inputs["tau"]
    path = []
    for i, source in enumerate(inputs["source"]):
        online = {"w": torch.tensor(source, dtype=torch.float64), "buffers": {"m": buffer}}
        tau = taus[i] if isinstance(taus, list) else taus
        target = optim.polyak(target, online, tau)
        path.append(target["w"])
    return {"target_path": path, "target_buffer": target["buffers"]["m"]}


class Counted(gym.Env[Any, Any]):
    """Ends by a time limit after a fixed number of steps."""

    observation_space = spaces.Box(0.0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length, self.count = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        shown = np.full(1, self.count, np.float32)
        return shown, 1.0, False, self.count == self.length, {}


def autoreset(inputs: Inputs) -> Results:
    mode = AutoresetMode[inputs["autoreset_mode"].upper()]
    length = inputs["episode_length"]
    vector = SyncVectorEnv([lambda: Counted(length)], autoreset_mode=mode)
    host = envs.gymnasium(vector)
    host.reset([0])
    steps = [host.step(torch.zeros(1, dtype=torch.int64)) for _ in range(inputs["num_steps"])]
    mask, reward, done = (
        torch.stack(column)
        for column in (
            [s.mask for s in steps],
            [s.reward for s in steps],
            [s.terminated | s.truncated for s in steps],
        )
    )
    episode, _ = rollout.episode_update(rollout.episode_init(1), reward, done, mask)
    finished = episode["recent_length"][: int(episode["count"])]
    return {
        "valid": mask.flatten().int(),
        "real_transitions": int(mask.sum()),
        "finished_lengths": finished,
    }


def seeding(inputs: Inputs) -> Results:
    if "run_seeds" in inputs:
        network = networks.mlp((3, 4, 1))
        first = [network.init(random.key(s))["layers", "0", "weight"] for s in inputs["run_seeds"]]
        envs_of_runs = [envs.environment_seeds(random.key(s), 4) for s in inputs["run_seeds"]]
        flat = [seed for seeds in envs_of_runs for seed in seeds]
        return {
            "distinct_initialisations": len({tuple(w.flatten().tolist()) for w in first}),
            "shared_environment_seeds": len(flat) - len(set(flat)),
        }
    seeds = inputs["environment_seeds"]
    host = envs.gymnasium("CartPole-v1", num_envs=len(seeds))
    observation = host.reset(seeds)
    host.close()
    return {"first_state": observation[:, 0]}


def checkpoint(inputs: Inputs) -> Results:
    """Train, save, load into nothing that was there before, and train on."""
    if "weight" in inputs:
        return {"weight_path": _weight_path(inputs)}
    log_alpha = {"log_alpha": real(inputs, "log_alpha")}
    adam = optim.adam(inputs["lr"], epsilon=inputs["adam_eps"])
    log_alpha, state = _reloaded((log_alpha, adam.init(log_alpha)))
    leaf = log_alpha["log_alpha"].requires_grad_()
    loss, _ = losses.sac_alpha(leaf, real(inputs, "log_prob"), inputs["target_entropy"])
    (gradient,) = torch.autograd.grad(loss, leaf)
    moved, _ = adam.update({"log_alpha": gradient}, state, {"log_alpha": leaf.detach()})
    return {"log_alpha_after": moved["log_alpha"]}


def _weight_path(inputs: Inputs) -> list[torch.Tensor]:
    weight, path = real(inputs, "weight"), []
    adam = optim.adam(inputs["lr"], epsilon=inputs["adam_eps"])
    state = adam.init(weight)
    for i, gradient in enumerate(inputs["gradients"]):
        if i == inputs["save_after"]:
            weight, state = _reloaded((weight, state))
        weight, state = adam.update(torch.tensor(gradient, dtype=torch.float64), state, weight)
        path.append(weight)
    return path


def _reloaded(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
