"""Replay buffers against plain Python models over whole histories: laws 34, 35 and 36.

The model is a ``deque(maxlen=capacity)`` of rows with their serial numbers, and a NumPy array of
priorities. Whatever was done, in whatever sizes, the ring holds what the model holds.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from purerl import random, replay, tree
from purerl.errors import BufferError
from purerl.replay import sum_tree

F64 = torch.float64
FLAG = torch.tensor(False)
EXAMPLE = {
    "serial": torch.tensor(0),
    "pixel": torch.zeros(2, dtype=torch.uint8),
    "terminated": FLAG,
    "truncated": FLAG,
}
ALPHA, BETA = 0.6, 0.4


class Row(NamedTuple):
    serial: int
    terminated: bool
    truncated: bool

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


capacities = st.one_of(st.sampled_from([1, 2, 3]), st.integers(1, 40), st.integers(1, 1000))
flags = st.sampled_from([(False, False)] * 4 + [(True, False), (False, True), (True, True)])


class Ring(RuleBasedStateMachine):
    """A ring with some sampler and storage, and its model."""

    sampler: Callable[[], replay.Sampler]

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self.turn = 0
        self.directory: tempfile.TemporaryDirectory[str] | None = None

    @initialize(
        capacity=capacities,
        storage=st.sampled_from(["tensor", "memmap", "list"]),
        plain=st.booleans(),
    )
    def make(self, capacity: int, storage: str, plain: bool) -> None:
        self.capacity, self.kind = capacity, storage
        self.model: deque[Row] = deque(maxlen=capacity)
        self.slots: list[Row | None] = [None] * capacity
        self.priority = np.zeros(capacity)
        self.cursor = 0
        if storage == "memmap":
            self.directory = tempfile.TemporaryDirectory()
        self.buffer = self.ring("create")
        self.state = self.buffer.init()
        if plain and storage != "list":
            self.state = tree.to_dict(self.state)

    def ring(self, mode: Any) -> replay.Buffer:
        storage = {"tensor": replay.tensor_storage, "list": replay.list_storage}.get(self.kind)
        if storage is None:
            assert self.directory is not None
            held = replay.memmap_storage(self.directory.name, mode)
        else:
            held = storage()
        sampler = type(self).sampler()
        return replay.ring(self.capacity, EXAMPLE, storage=held, sampler=sampler, debug=True)

    def teardown(self) -> None:
        if self.directory is not None:
            self.directory.cleanup()

    def key(self) -> torch.Tensor:
        self.turn += 1
        return random.fold_in(random.key(0), self.turn)

    def field(self, name: str) -> Any:
        return self.state[name] if isinstance(self.state, dict) else getattr(self.state, name)

    @rule(ended=flags)
    def add_one(self, ended: tuple[bool, bool]) -> None:
        self.add_rows([ended], single=True)

    @rule(ended=st.lists(flags, min_size=1, max_size=12), repeats=st.sampled_from([1, 1, 1, 7, 90]))
    def add_many(self, ended: list[tuple[bool, bool]], repeats: int) -> None:
        self.add_rows(ended * repeats, single=False)

    def add_rows(self, ended: list[tuple[bool, bool]], *, single: bool) -> None:
        rows = [Row(self.given + i, *pair) for i, pair in enumerate(ended)]
        self.given += len(rows)
        batch = {
            "serial": torch.tensor([row.serial for row in rows]),
            "pixel": torch.tensor([[row.serial % 256, 255] for row in rows], dtype=torch.uint8),
            "terminated": torch.tensor([row.terminated for row in rows]),
            "truncated": torch.tensor([row.truncated for row in rows]),
        }
        self.state = self.buffer.add(self.state, tree.index(batch, 0) if single else batch)
        new = self.priority.max() if self.priority.max() > 0 else 1.0
        for row in rows:
            self.model.append(row)
            self.slots[self.cursor], self.priority[self.cursor] = row, new
            self.cursor = (self.cursor + 1) % self.capacity

    @rule()
    def clear(self) -> None:
        self.state = self.buffer.clear(self.state)
        self.model.clear()
        self.slots = [None] * self.capacity
        self.priority[:] = 0.0
        self.cursor = 0

    @rule()
    def save_and_load(self) -> None:
        leaves, rebuild = tree.flatten(self.state)
        file = io.BytesIO()
        torch.save([leaf.clone() for leaf in leaves], file)
        file.seek(0)
        loaded = rebuild(torch.load(file, weights_only=True))
        assert tree.equal(loaded, self.state)
        if self.kind != "memmap":
            self.buffer, self.state = self.ring("create"), loaded

    @precondition(lambda self: self.kind == "memmap")
    @rule()
    def reopen(self) -> None:
        before = self.state
        self.buffer = self.ring("read_write")
        opened = self.buffer.init()
        for name in ("storage", "index", "written", "cursor", "num_rows", "version"):
            assert tree.equal(getattr(opened, name), self.field(name))
        self.state = tree.to_dict(opened) if isinstance(before, dict) else opened

    @rule()
    def copy(self) -> None:
        before = tree.clone(self.state)
        row = {name: torch.zeros_like(leaf) for name, leaf in EXAMPLE.items()}
        other = self.buffer.add(self.state, row, copy=True)
        assert tree.equal(self.state, before)
        assert int(self.buffer.size(other)) == min(len(self.model) + 1, self.capacity)

    @rule(batch_size=st.integers(1, 12))
    def sample(self, batch_size: int) -> None:
        key = self.key()
        if not self.drawable(batch_size):
            try:
                self.buffer.sample(self.state, key, batch_size)
            except BufferError:
                return
            raise AssertionError("drew from nothing")
        batch, info = self.buffer.sample(self.state, key, batch_size)
        again, more = self.buffer.sample(self.state, key, batch_size)
        assert tree.equal(batch, again)
        assert tree.equal(info, more)
        for slot, serial, pixel in zip(
            info.index.flatten().tolist(),
            batch["serial"].flatten().tolist(),
            batch["pixel"].reshape(-1, 2).tolist(),
            strict=True,
        ):
            row = self.slots[slot]
            assert row is not None
            assert row.serial == serial
            assert pixel == [serial % 256, 255]
        self.check_draw(batch, info)

    def drawable(self, batch_size: int) -> bool:
        return len(self.model) > 0

    def check_draw(self, batch: Any, info: replay.Info) -> None:
        assert bool(info.mask.all())

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "state"):
            return
        size = int(self.buffer.size(self.state))
        assert size == len(self.model)
        assert int(self.field("cursor")) == self.cursor
        oldest_first = [(self.cursor - size + age) % self.capacity for age in range(size)]
        assert [self.slots[slot] for slot in oldest_first] == list(self.model)
        storage = self.field("storage")
        if self.kind == "list":
            serials = [int(row["serial"]) for row in storage]
        else:
            serials = storage["serial"].tolist()
        assert [serials[slot] for slot in oldest_first] == [row.serial for row in self.model]


class UniformRing(Ring):
    sampler = staticmethod(replay.uniform)


class EpochRing(Ring):
    """Every row once in an epoch, whatever the sizes of the batches."""

    sampler = staticmethod(replay.without_replacement)

    def __init__(self) -> None:
        super().__init__()
        self.left: set[int] = set()

    def add_rows(self, ended: list[tuple[bool, bool]], *, single: bool) -> None:
        super().add_rows(ended, single=single)
        self.left = set()

    @rule()
    def clear(self) -> None:
        super().clear()
        self.left = set()

    @precondition(lambda self: self.kind == "memmap")
    @rule()
    def reopen(self) -> None:
        super().reopen()
        self.left = set()

    def check_draw(self, batch: Any, info: replay.Info) -> None:
        if not self.left:
            self.left = {row.serial for row in self.model}
        serials = batch["serial"][info.mask].tolist()
        assert len(set(serials)) == len(serials) == min(len(info.mask), len(self.left))
        assert set(serials) <= self.left
        self.left -= set(serials)
        self.state = self.buffer.advance(self.state, info)


class SliceRing(Ring):
    """Slices are consecutive rows of one episode, and there are as many as the model counts."""

    sampler = staticmethod(lambda: replay.slices(slice_len=2))

    def possible(self) -> set[int]:
        rows = list(self.model)
        return {first.serial for first, _ in pairwise(rows) if not first.done}

    @rule(batch_size=st.integers(1, 6))
    def sample(self, batch_size: int) -> None:
        super().sample(2 * batch_size)

    def drawable(self, batch_size: int) -> bool:
        return len(self.possible()) > 0

    def check_draw(self, batch: Any, info: replay.Info) -> None:
        possible = self.possible()
        first, second = batch["serial"]
        assert torch.equal(second, first + 1)
        assert set(first.tolist()) <= possible
        assert bool((info.probability == 1 / len(possible)).all())
        assert bool(info.mask.all())


class PriorityRing(Ring):
    """Law 36 against a list of priorities, after any history."""

    sampler = staticmethod(lambda: replay.prioritized(alpha=ALPHA, beta=BETA))

    @precondition(lambda self: len(self.model) > 0)
    @rule(data=st.data())
    def set_priority(self, data: st.DataObject) -> None:
        entries = data.draw(
            st.lists(
                st.tuples(
                    st.integers(0, len(self.model) - 1),
                    st.sampled_from([0.0, 1e-6, 0.3, 1.0, 7.5, 1e6]),
                ),
                min_size=1,
                max_size=20,
            )
        )
        for slot, p in entries:
            self.priority[slot] = p
        index = torch.tensor([slot for slot, _ in entries])
        priority = torch.tensor([p for _, p in entries], dtype=F64)
        self.state = self.buffer.update_priority(self.state, index, priority)

    def drawable(self, batch_size: int) -> bool:
        return bool((self.priority > 0).any())

    def leaves(self) -> torch.Tensor:
        p = torch.from_numpy(self.priority)
        return torch.where(p > 0, p**ALPHA, 0.0)

    def check_draw(self, batch: Any, info: replay.Info) -> None:
        leaves = self.leaves()
        drawn = leaves[info.index]
        assert bool((drawn > 0).all())
        assert bool(info.mask.all())
        total = math.fsum(leaves.tolist())
        torch.testing.assert_close(info.probability, drawn / total, rtol=1e-14, atol=0.0)
        expected = (leaves[leaves > 0].min() / drawn) ** BETA
        torch.testing.assert_close(info.weight, expected, rtol=1e-14, atol=0.0)
        assert bool((info.weight <= 1.0).all())

    @invariant()
    def knows_every_priority_and_their_sum(self) -> None:
        if not hasattr(self, "state"):
            return
        leaves, nodes = self.leaves(), self.field("index")["leaf"]
        assert torch.equal(nodes[: self.capacity], leaves)
        total = float(sum_tree.root(nodes, self.capacity, sum_tree.pairwise_sum))
        exact = math.fsum(leaves.tolist())
        assert abs(total - exact) <= math.ceil(math.log2(self.capacity)) * 2**-53 * exact
        # the very bits of a tree that is built from these leaves: no history, no drift
        fresh = torch.zeros_like(nodes)
        sum_tree.update(
            fresh,
            self.capacity,
            torch.arange(self.capacity),
            leaves,
            sum_tree.pairwise_sum,
        )
        assert torch.equal(nodes, fresh)


# every invariant is checked after each of the steps of a history
histories = settings(max_examples=max(settings().max_examples // 4, 5), stateful_step_count=40)
TestUniformRing = UniformRing.TestCase
TestUniformRing.settings = histories
TestEpochRing = EpochRing.TestCase
TestEpochRing.settings = histories
TestSliceRing = SliceRing.TestCase
TestSliceRing.settings = histories
TestPriorityRing = PriorityRing.TestCase
TestPriorityRing.settings = histories
