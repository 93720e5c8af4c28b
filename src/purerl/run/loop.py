"""The loop of a run: step, evaluate, log, show, until done or told to stop."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import random, rollout
from ..errors import ConfigError, EnvError
from ..types import Key
from .evaluate import EvaluateResult
from .history import History, flat_metrics
from .logging import Guarded
from .plan import Plan
from .progress import Progress, format_number

RECENT_RETURN = "episode/recent_return_mean"
"""The metric that the loop adds: the mean return of each seed's last 100 episodes."""


class Timings:
    """Seconds by name, each the sum of its spans."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("init", "train", "evaluate", "log"), 0.0)
        self._start = time.perf_counter()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Add the time of a block to ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def until_now(self) -> dict[str, float]:
        """Return the sums, and as ``total`` the time since the start."""
        return {**self.seconds, "total": time.perf_counter() - self._start}


@dataclass(frozen=True)
class Evaluator:
    """When and how a run evaluates its states."""

    play: Callable[[Any, Key], EvaluateResult]
    key: Key
    every: int | None

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ConfigError(f"evaluate_every is {self.every}, expected at least 1 or None")

    def due(self, plan: Plan, number: int) -> bool:
        """Return whether the train step passed a multiple of ``every`` environment steps."""
        if self.every is None:
            return False
        now = number * plan.steps_per_update
        return now // self.every > (now - plan.steps_per_update) // self.every


@dataclass
class Loop:
    """What a run works with."""

    plan: Plan
    step: Callable[[Any], tuple[Any, Any]]
    evaluator: Evaluator | None
    stop: Callable[[], bool] | None
    sinks: Guarded
    bar: Progress
    timings: Timings
    history: History = field(default_factory=History)
    evaluation_error: EnvError | None = None

    def run(self, states: Any) -> tuple[Any, EvaluateResult | None]:
        """Return the last states and the last evaluation."""
        evaluated = None
        for number in range(1, self.plan.num_updates + 1):
            with self.timings.span("train"):
                states, metrics = self.step(states)
                self.history.add(number * self.plan.steps_per_update, self._row(states, metrics))
            last = number == self.plan.num_updates or (self.stop is not None and self.stop())
            if self.evaluator is not None and (last or self.evaluator.due(self.plan, number)):
                with self.timings.span("evaluate"):
                    evaluated = self._evaluated(self.evaluator, states, number)
            with self.timings.span("log"):
                self.sinks.write(self.history.env_steps[-1], self.history.latest)
                self.bar.update(number, _mean(self.history.latest[RECENT_RETURN]))
            if last:
                break
        return states, evaluated

    def _row(self, states: Any, metrics: Any) -> dict[str, Tensor]:
        recent = rollout.recent_return_mean(states.episode)
        row = {**flat_metrics(metrics), RECENT_RETURN: recent}
        if self.evaluator is not None:  # a constant set of names, so that a table has columns
            row |= dict.fromkeys(_EVALUATION, torch.full_like(recent, math.nan))
        return row

    def _evaluated(self, evaluator: Evaluator, states: Any, number: int) -> EvaluateResult | None:
        """Return an evaluation, or None if its environments failed: what was learned is kept."""
        try:
            return self._evaluate(evaluator, states, number)
        except EnvError as error:
            self.evaluation_error = error
            return None

    def _evaluate(self, evaluator: Evaluator, states: Any, number: int) -> EvaluateResult:
        evaluated = evaluator.play(states, random.fold_in(evaluator.key, number))
        means = (episodes.mean(1) for episodes in evaluated)
        self.history.amend(dict(zip(_EVALUATION, means, strict=True)))
        return evaluated

    @contextmanager
    def explained(self, directory: Path | None) -> Iterator[None]:
        """Tell whatever ends the run early what had been reached."""
        try:
            yield
        except BaseException as error:
            error.add_note(self._reached(directory))
            raise

    def _reached(self, directory: Path | None) -> str:
        done, plan = len(self.history.env_steps), self.plan
        note = (
            f"The run ended after {done:,} of {plan.num_updates:,} train steps, "
            f"{done * plan.steps_per_update:,} environment steps of each seed"
        )
        if done:
            returns = ", ".join(map(format_number, self.history.latest[RECENT_RETURN]))
            note += f"; mean return of the last 100 episodes by seed: {returns}"
        return note if directory is None else f"{note}; its logs are whole in {directory}"


_EVALUATION = ("evaluation/return_mean", "evaluation/length_mean")


def _mean(values: list[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    return statistics.fmean(present) if present else math.nan
