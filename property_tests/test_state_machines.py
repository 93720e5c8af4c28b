"""What remembers, against simple models over whole histories."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from purerl import normalize, optim, rollout, tree

F64 = torch.float64
numbers = st.floats(-100, 100, allow_subnormal=False)


class RunningStatistics(RuleBasedStateMachine):
    """`normalize.update` and `merge` against the list of everything seen."""

    def __init__(self) -> None:
        super().__init__()
        self.stats, self.seen = normalize.init(()), list[float]()
        self.aside, self.aside_seen = normalize.init(()), list[float]()

    @rule(batch=st.lists(numbers, max_size=5))
    def update(self, batch: list[float]) -> None:
        self.stats = normalize.update(self.stats, torch.tensor(batch, dtype=F64))
        self.seen += batch

    @rule(batch=st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=5))
    def update_masked(self, batch: list[tuple[float, bool]]) -> None:
        values = torch.tensor([x if real else math.nan for x, real in batch], dtype=F64)
        mask = torch.tensor([real for _, real in batch])
        self.stats = normalize.update(self.stats, values, mask=mask)
        self.seen += [x for x, real in batch if real]

    @rule(batch=st.lists(numbers, min_size=1, max_size=5))
    def update_aside(self, batch: list[float]) -> None:
        self.aside = normalize.update(self.aside, torch.tensor(batch, dtype=F64))
        self.aside_seen += batch

    @rule()
    def merge(self) -> None:
        self.stats = normalize.merge(self.stats, self.aside)
        self.seen += self.aside_seen
        self.aside, self.aside_seen = normalize.init(()), []

    @invariant()
    def agrees(self) -> None:
        assert int(self.stats["count"]) == len(self.seen)
        if self.seen:
            mean, variance = statistics.fmean(self.seen), statistics.pvariance(self.seen)
            assert math.isclose(float(self.stats["mean"]), mean, rel_tol=1e-9, abs_tol=1e-9)
            found = float(normalize.variance(self.stats))
            assert math.isclose(found, variance, rel_tol=1e-7, abs_tol=1e-7)


class Episodes(RuleBasedStateMachine):
    """`rollout.episode_update` against the last 100 episodes counted one by one."""

    @initialize(envs=st.integers(1, 3))
    def start(self, envs: int) -> None:
        self.envs = envs
        self.episode = rollout.episode_init(envs)
        self.returns, self.lengths = [0.0] * envs, [0] * envs
        self.recent: deque[tuple[float, int]] = deque(maxlen=rollout.RECENT_EPISODES)
        self.count = 0

    @rule(data=st.data(), steps=st.integers(1, 60), often=st.sampled_from([0.1, 0.6, 1.0]))
    def roll(self, data: Any, steps: int, often: float) -> None:
        size = steps * self.envs
        rows = data.draw(
            st.lists(
                st.tuples(st.integers(-8, 8), st.floats(0, 1), st.integers(0, 9)),
                min_size=size,
                max_size=size,
            )
        )
        reward = torch.tensor([float(r) for r, _, _ in rows]).reshape(steps, self.envs)
        done = torch.tensor([u < often for _, u, _ in rows]).reshape(steps, self.envs)
        mask = torch.tensor([m > 0 for _, _, m in rows]).reshape(steps, self.envs)
        garbage = torch.where(mask, reward, torch.nan)
        self.episode, metrics = rollout.episode_update(self.episode, garbage, done, mask)
        finished = 0
        for t in range(steps):
            for b in range(self.envs):
                if not mask[t, b]:
                    continue
                self.returns[b] += float(reward[t, b])
                self.lengths[b] += 1
                if done[t, b]:
                    self.recent.append((self.returns[b], self.lengths[b]))
                    self.returns[b], self.lengths[b] = 0.0, 0
                    finished += 1
        self.count += finished
        assert int(metrics["count"]) == finished

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "episode"):
            return
        assert int(self.episode["count"]) == self.count
        assert self.episode["return_"].tolist() == self.returns
        assert self.episode["length"].tolist() == self.lengths
        kept = self.episode["recent_return"]
        assert sorted(kept[~kept.isnan()].tolist()) == sorted(r for r, _ in self.recent)
        lengths = self.episode["recent_length"]
        assert sorted(lengths[~lengths.isnan()].tolist()) == sorted(n for _, n in self.recent)


class DiscountedReturn(RuleBasedStateMachine):
    """`normalize.discounted_return` against a loop, rollout by rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.running, self.model, self.fresh = torch.zeros((), dtype=F64), 0.0, True

    @rule(rows=st.lists(st.tuples(numbers, st.booleans(), st.booleans()), min_size=1, max_size=8))
    def roll(self, rows: list[tuple[float, bool, bool]]) -> None:
        reward = torch.tensor([r for r, _, _ in rows], dtype=F64)
        done = torch.tensor([d for _, d, _ in rows])
        real = torch.tensor([m for _, _, m in rows])
        found, self.running = normalize.discounted_return(
            self.running, torch.where(real, reward, torch.nan), done, 0.5, mask=real
        )
        for t, (r, d, m) in enumerate(rows):
            if not m:
                continue
            self.model = 0.5 * self.model + r
            assert math.isclose(float(found[t]), self.model, rel_tol=1e-12, abs_tol=1e-12)
            if d:
                self.model = 0.0
        assert math.isclose(float(self.running), self.model, rel_tol=1e-12, abs_tol=1e-12)


class Skipping(RuleBasedStateMachine):
    """`skip_nonfinite` against its inner optimizer on the finite gradients alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = optim.adam(0.1)
        self.optimizer = optim.skip_nonfinite(self.inner)
        self.params: Tensor = torch.ones(2, dtype=F64)
        self.model: Tensor = self.params
        self.state, self.inner_state = self.optimizer.init(self.params), self.inner.init(self.model)
        self.faults = 0

    @rule(g=st.tuples(numbers, numbers), skip=st.booleans())
    def update(self, g: tuple[float, float], skip: bool) -> None:
        gradient = torch.tensor(g, dtype=F64)
        self.params, self.state = self.optimizer.update(
            gradient, self.state, self.params, skip=torch.tensor(skip)
        )
        if not skip:
            self.model, self.inner_state = self.inner.update(gradient, self.inner_state, self.model)

    @rule(fault=st.sampled_from([math.nan, math.inf, -math.inf]))
    def break_down(self, fault: float) -> None:
        gradient = torch.tensor([1.0, fault], dtype=F64)
        self.params, self.state = self.optimizer.update(gradient, self.state, self.params)
        self.faults += 1

    @invariant()
    def agrees(self) -> None:
        assert torch.equal(self.params, self.model)
        assert tree.equal(self.state["inner"], self.inner_state)
        assert int(self.state["nonfinite"]) == self.faults


MACHINE = settings(max_examples=30, stateful_step_count=20, deadline=None)
for machine in (RunningStatistics, Episodes, DiscountedReturn, Skipping):
    machine.TestCase.settings = MACHINE
TestRunningStatistics = RunningStatistics.TestCase
TestEpisodes = Episodes.TestCase
TestDiscountedReturn = DiscountedReturn.TestCase
TestSkipping = Skipping.TestCase
