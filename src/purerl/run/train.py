"""The driver: one loop for every algorithm, pure or host environments, any number of seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from .. import random, rollout
from ..envs import Environment, HostEnvironment, environment_seeds
from ..errors import ConfigError, EnvError
from ..types import Key
from . import directory as run_directory
from . import report
from .algorithm import Algorithm
from .evaluate import EvaluateResult, evaluate
from .logging import CsvLogger, Guarded, JsonlLogger, Logger
from .loop import Evaluator, Loop, Timings
from .plan import Plan, make_plan
from .plot import save_learning_curve
from .progress import make_progress

# Folded into the run's key. Folding in i gives the key of member i, so these are out of its reach.
_EVALUATION, _HOST = 0xFFFF_FFFF, 0xFFFF_FFFE


@dataclass(frozen=True)
class Result:
    """What came out of a run."""

    returns: Tensor
    """Mean return of each seed's last 100 completed training episodes ``[num_seeds]``, NaN where
    none completed."""
    evaluation: Tensor | None
    """Mean return of each seed's evaluated episodes ``[num_seeds]``; None without evaluation."""
    state: Any
    """States of all seeds, ``batch_size [num_seeds]``; ``state[i]`` is a whole solo state."""
    history: TensorDict
    """Metrics after every train step ``[num_updates, num_seeds]`` on the CPU, and ``env_steps``."""
    directory: Path | None
    """Where the files are; it may differ from the one asked for."""
    timings: dict[str, float]
    """Seconds: ``init``, ``train``, ``evaluate``, ``log``, and ``total``."""
    plan: Plan
    """What was to be done, with the number of steps rounded to whole train steps."""
    evaluated: EvaluateResult | None = None
    """Every episode of the last evaluation."""
    evaluation_error: EnvError | None = None
    """What an environment of the last evaluation that failed had to say."""


def train(
    algorithm: Algorithm,
    config: Any,
    env: Environment | HostEnvironment,
    *,
    key: Key,
    total_steps: int,
    num_seeds: int = 1,
    evaluate_episodes: int = 0,
    evaluate_every: int | None = None,
    deterministic_evaluation: bool = True,
    make_env: Callable[[int], HostEnvironment] | None = None,
    loggers: Sequence[Logger] = (),
    directory: str | Path | None = None,
    progress: bool = True,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Train several seeds at once and return what came out.

        states = vmap(init)(split(key, num_seeds));   states, metrics = vmap(train_step)(states)

    Member i of a pure environment's run is the run of ``split(key, num_seeds)[i]`` alone: bit for
    bit until a network's products round differently in a batch, and then as two roundings of one
    program part, slowly at first and wholly after thousands of steps.

    Args:
        algorithm: a module such as ``purerl.ppo``.
        config: its configuration; schedules follow ``config.total_steps``, whatever
            ``total_steps`` is.
        env: a pure environment, or a host environment with ``num_seeds · config.num_envs``
            environments, which is reset and stays open.
        key: int64 ``[2]``.
        total_steps: environment steps of each seed, rounded up to whole train steps.
        num_seeds: members of the population.
        evaluate_episodes: episodes of each evaluation for each seed; 0 for no evaluation.
        evaluate_every: evaluate after every so many steps of each seed; None only at the end.
        deterministic_evaluation: take the policy's mode when evaluating.
        make_env: ``num_envs -> host environment``, for evaluation in a host environment.
        loggers: receive the metrics of every train step, and are closed in the end. One that
            fails is reported once on the ``purerl`` log and does not stop the run.
        directory: of the files listed in `directory`; None writes none. If it exists and is not
            empty, the first free of ``directory-2``, ``directory-3``, … is taken.
        progress: show a bar on a terminal, or a line now and then elsewhere.
        stop: asked after every train step; True ends the run there.

    Raises:
        ConfigError: a count out of range, a host environment of the wrong size, or evaluation in
            a host environment without ``make_env``.
        EnvError: an environment failed in training. Like any exception that ends a run, it
            carries a note with the steps done and the returns so far, and all that was logged is
            on disk. A failed evaluation is told in ``evaluation_error`` of the result instead, as
            what was learned is worth keeping.
    """
    plan = make_plan(algorithm, config, env, num_seeds=num_seeds, total_steps=total_steps)
    timings = Timings()
    evaluator = None
    if evaluate_episodes or evaluate_every is not None:
        fresh = _evaluation_env(env, make_env)
        if evaluate_episodes < 1:
            raise ConfigError(f"evaluate_episodes is {evaluate_episodes}, expected at least 1")

        def play(states: Any, key: Key) -> EvaluateResult:
            greedy, count = deterministic_evaluation, evaluate_episodes
            return evaluate(
                algorithm, config, fresh, states, key=key, episodes=count, deterministic=greedy
            )

        evaluator = Evaluator(play, random.fold_in(key, _EVALUATION), evaluate_every)
    folder, files = _open(directory, plan, config, key)
    with (
        closing(Guarded([*loggers, *files])) as sinks,
        closing(make_progress(plan, progress)) as bar,
    ):
        with timings.span("init"):
            states, step = _start(algorithm, config, env, key, num_seeds)
        loop = Loop(plan, step, evaluator, stop, sinks, bar, timings)
        with loop.explained(folder):
            states, evaluated = loop.run(states)
    result = Result(
        returns=rollout.recent_return_mean(states.episode),
        evaluation=None if evaluated is None else evaluated.return_.mean(1),
        state=states,
        history=loop.history.stacked(),
        directory=folder,
        timings=timings.until_now(),
        plan=plan,
        evaluated=evaluated,
        evaluation_error=loop.evaluation_error,
    )
    if folder is not None:
        run_directory.write_summary(folder, report.summary(result))
        save_learning_curve(result.history, folder / run_directory.CURVE, title=plan.title)
    return result


def _start(
    algorithm: Algorithm,
    config: Any,
    env: Environment | HostEnvironment,
    key: Key,
    num_seeds: int,
) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
    """Return the fresh states of all seeds, and the function that steps them."""
    states = torch.vmap(partial(algorithm.init, config, env))(random.split(key, num_seeds))
    if isinstance(env, Environment):
        return states, torch.vmap(partial(algorithm.train_step, config, env))
    env.reset(environment_seeds(random.fold_in(key, _HOST), env.num_envs))
    return states, partial(algorithm.host_train_step, config, env)


def _evaluation_env(
    env: Environment | HostEnvironment, make_env: Callable[[int], HostEnvironment] | None
) -> Environment | Callable[[int], HostEnvironment]:
    if isinstance(env, Environment):
        return env
    if make_env is None:
        raise ConfigError(
            f"evaluation in the host environment {env.name} needs fresh environments: give "
            "make_env, a function from num_envs to a host environment"
        )
    return make_env


def _open(
    directory: str | Path | None, plan: Plan, config: Any, key: Key
) -> tuple[Path | None, list[Logger]]:
    """Return the directory that the run may write into, and the loggers of its files."""
    if directory is None:
        return None, []
    folder = run_directory.claim(directory)
    run_directory.write_config(folder, plan, config, key)
    jsonl = JsonlLogger(folder / run_directory.METRICS)
    return folder, [jsonl, CsvLogger(folder / run_directory.TABLE)]
