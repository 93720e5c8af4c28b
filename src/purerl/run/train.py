"""The driver: a population trains, and one can watch."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import random, rollout, tree
from ..envs import Environment, HostEnvironment, environment_seeds
from ..errors import ConfigError
from ..types import Key
from .evaluate import evaluate
from .logging import Contained, Csv, JsonLines, Logger


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run leaves."""

    returns: Tensor
    """``[num_seeds]``: mean of each seed's last 100 completed training episodes."""
    evaluation: Tensor | None
    """``[num_seeds]``: mean return of the evaluation, None when there was none."""
    state: Any
    """The states, ``batch_size [num_seeds]``; ``state[i]`` is a complete solo state."""
    history: dict[str, Tensor]
    """Metrics by path ``[num_train_steps, num_seeds]``; ``env_steps`` ``[num_train_steps]``."""
    directory: Path | None
    timings: dict[str, float]
    """Seconds of ``train`` and ``evaluate``."""


def train(
    algorithm: Any,
    config: Any,
    env: Environment | HostEnvironment,
    *,
    key: Key,
    num_seeds: int = 1,
    total_steps: int,
    evaluate_episodes: int = 0,
    evaluation_env: Environment | None = None,
    deterministic_evaluation: bool = True,
    loggers: Sequence[Logger] = (),
    directory: Path | None = None,
    progress: bool = True,
) -> Result:
    """Train a population of seeds and return what it became.

        states = vmap(init)(split(key, num_seeds));   states, metrics = vmap(train_step)(states)

    Args:
        algorithm: a module with ``init``, ``train_step``, ``act``, ``steps_per_train_step``.
        config: its configuration; ``total_steps`` of it is set to the argument.
        env: a pure environment, or a host environment with num_seeds · config.num_envs
            environments, which is reset here by seeds from ``fold_in(key, 2)``.
        key: int64 ``[2]``; member i starts from ``split(key, num_seeds)[i]``.
        num_seeds: members of the population.
        total_steps: environment steps of each seed, rounded up to whole train steps.
        evaluate_episodes: episodes of each seed at the end, in a pure environment; 0 for none.
        evaluation_env: where to evaluate; None takes ``env``.
        deterministic_evaluation: modes instead of samples.
        loggers: get the metrics of every train step; a failing one is told once and left out.
        directory: an existing directory for ``metrics.jsonl`` and ``metrics.csv``.
        progress: print a line now and then.

    Raises:
        ConfigError: evaluation is asked for and there is no pure environment to do it in.
        EnvError: a host environment failed; what was logged is kept.
    """
    if evaluate_episodes and isinstance(env, HostEnvironment) and evaluation_env is None:
        raise ConfigError("a host environment trains: give evaluation_env to evaluate as well")
    config = dataclasses.replace(config, total_steps=total_steps)
    per_step = algorithm.steps_per_train_step(config)
    num_train_steps = math.ceil(total_steps / per_step)
    files: list[Logger] = []
    if directory is not None:
        files = [JsonLines(directory / "metrics.jsonl"), Csv(directory / "metrics.csv")]
    sinks = [Contained(logger) for logger in (*loggers, *files)]
    started = told = time.perf_counter()
    member_keys = random.split(key, num_seeds)
    states = torch.vmap(partial(algorithm.init, config, env))(member_keys)
    step: Callable[[Any], tuple[Any, Any]]
    if isinstance(env, HostEnvironment):
        env.reset(environment_seeds(random.fold_in(key, 2), env.num_envs))
        step = partial(algorithm.host_train_step, config, env)
    else:
        step = torch.vmap(partial(algorithm.train_step, config, env))
    history: list[dict[str, Tensor]] = []
    try:
        for number in range(1, num_train_steps + 1):
            states, metrics = step(states)
            row = dict(zip(tree.paths(metrics), tree.leaves(metrics), strict=True))
            history.append({name: leaf.cpu() for name, leaf in row.items()})
            plain = {name: leaf.tolist() for name, leaf in history[-1].items()}
            for sink in sinks:
                sink.write(number * per_step, plain)
            now = time.perf_counter()
            if progress and (now - told > 5 or number == num_train_steps):
                told = now
                _tell(number, num_train_steps, per_step, num_seeds, now - started, states)
    finally:
        for sink in sinks:
            sink.close()
    trained = time.perf_counter()
    evaluation = None
    if evaluation_env is None and isinstance(env, Environment):
        evaluation_env = env
    if evaluate_episodes and evaluation_env is not None:
        evaluation = evaluate(
            algorithm,
            config,
            evaluation_env,
            states,
            key=random.fold_in(key, 1),
            episodes=evaluate_episodes,
            deterministic=deterministic_evaluation,
        ).return_.mean(-1)
    stacked = {name: torch.stack([row[name] for row in history]) for name in history[0]}
    stacked["env_steps"] = per_step * torch.arange(1, num_train_steps + 1)
    return Result(
        returns=rollout.recent_return_mean(states.episode),
        evaluation=evaluation,
        state=states,
        history=stacked,
        directory=directory,
        timings={"train": trained - started, "evaluate": time.perf_counter() - trained},
    )


def _tell(
    number: int, total: int, per_step: int, num_seeds: int, seconds: float, states: Any
) -> None:
    """Print one line: steps, speed, return and time left."""
    speed = number * per_step * num_seeds / seconds
    left = seconds / number * (total - number)
    mean = rollout.recent_return_mean(states.episode).nanmean()
    print(
        f"{number * per_step:>9,} steps a seed  {100 * number / total:3.0f} %  "
        f"{speed:>9,.0f} steps/s  return {mean:8.1f}  {left:4.0f} s left",
        file=sys.stderr,
        flush=True,
    )
