"""Laws of replay, each by an oracle of another shape: laws 33 to 36 and 39."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from property_tests.strategies import flags, halves
from torch import Tensor

from purerl import random, replay, tree
from purerl.errors import BufferError
from purerl.replay import sum_tree

F64 = torch.float64
FLAG = torch.tensor(False)
EXAMPLE: dict[str, Any] = {
    "serial": torch.tensor(0),
    "observation": torch.zeros((), dtype=F64),
    "next_observation": torch.zeros((), dtype=F64),
    "reward": torch.zeros((), dtype=F64),
    "terminated": FLAG,
    "truncated": FLAG,
}
seeds = st.integers(0, 2**32 - 1).map(random.key)


class History(NamedTuple):
    """Steps of environments, ``[T, num_envs]``, and how many of them came at a time."""

    rows: dict[str, Tensor]
    sizes: list[int]
    capacity: int
    num_envs: int

    @property
    def stored(self) -> list[list[int]]:
        """The serial numbers that a ring holds in the end: those of each environment, in time."""
        steps = len(self.rows["serial"])
        first = max(steps - self.capacity // self.num_envs, 0)
        return self.rows["serial"][first:].T.tolist()

    def row(self, serial: int, name: str) -> Any:
        return self.rows[name].flatten()[serial].item()

    def done(self, serial: int) -> bool:
        return bool(self.row(serial, "terminated") or self.row(serial, "truncated"))

    def stretch(self, serial: int, length: int) -> list[int]:
        """The rows from this one to its episode's end, the newest row, or ``length`` rows."""
        column = next(column for column in self.stored if serial in column)
        found = [serial]
        for following in column[column.index(serial) + 1 :][: length - 1]:
            if self.done(found[-1]):
                break
            found.append(following)
        return found

    def fill(self, buffer: replay.Buffer) -> Any:
        state, start = buffer.init(), 0
        for size in self.sizes:
            part = slice(start, start + size)
            state = buffer.add(state, {k: v[part] for k, v in self.rows.items()})
            start += size
        return state


@st.composite
def histories(draw: st.DrawFn) -> History:
    num_envs = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    steps = sum(sizes)
    capacity = num_envs * draw(st.integers(1, 14))
    columns = [draw(flags(steps)) for _ in range(num_envs)]
    terminated, truncated = (torch.tensor([c[i] for c in columns]).T for i in range(2))
    serial = torch.arange(steps * num_envs).reshape(steps, num_envs)
    observation = serial.to(F64)
    after = torch.where(terminated | truncated, -1.0 - observation, observation + num_envs)
    reward = draw(st.lists(st.integers(-64, 64), min_size=serial.numel(), max_size=serial.numel()))
    rows = {
        "serial": serial,
        "observation": observation,
        "next_observation": after,
        "reward": torch.tensor(reward, dtype=F64).reshape(serial.shape) / 64,
        "terminated": terminated,
        "truncated": truncated,
    }
    return History(rows, sizes, capacity, num_envs)


def ring(x: History, **parts: Any) -> replay.Buffer:
    return replay.ring(x.capacity, EXAMPLE, num_envs=x.num_envs, **parts)


@given(histories(), seeds, st.integers(1, 20))
def test_law_35_draws_are_stored_rows_by_their_slot(x: History, key: Tensor, size: int) -> None:
    live = {serial for column in x.stored for serial in column}
    for sampler in (replay.uniform(), replay.without_replacement(), replay.prioritized()):
        buffer = ring(x, sampler=sampler)
        state = x.fill(buffer)
        batch, info = buffer.sample(state, key, size)
        again, more = buffer.sample(state, key, size)
        assert tree.equal(batch, again)
        assert tree.equal(info, more)
        assert set(batch["serial"].tolist()) <= live
        assert torch.equal(info.index, batch["serial"] % x.capacity)
        for name, column in x.rows.items():
            assert torch.equal(batch[name], column.flatten()[batch["serial"]])


@given(histories(), st.integers(1, 12), st.booleans())
def test_law_35_an_epoch_has_each_live_row_once(x: History, size: int, drop_last: bool) -> None:
    buffer = ring(x, sampler=replay.without_replacement(drop_last=drop_last))
    state = x.fill(buffer)
    live = sorted(serial for column in x.stored for serial in column)
    assume(not drop_last or size <= len(live))
    batches = len(live) // size if drop_last else math.ceil(len(live) / size)
    for epoch in range(2):
        seen: list[int] = []
        for key in random.split(random.key(epoch), batches):
            batch, info = buffer.sample(state, key, size)
            state = buffer.advance(state, info)
            seen += batch["serial"][info.mask].tolist()
        assert len(set(seen)) == len(seen) == (batches * size if drop_last else len(live))
        assert set(seen) <= set(live)


@given(histories(), seeds, st.integers(1, 6))
def test_law_35_whole_slices_are_stretches_of_one_episode(
    x: History, key: Tensor, length: int
) -> None:
    buffer = ring(x, sampler=replay.slices(slice_len=length))
    state = x.fill(buffer)
    live = [serial for column in x.stored for serial in column]
    possible = [serial for serial in live if len(x.stretch(serial, length)) == length]
    if not possible:
        try:
            buffer.sample(state, key, length)
        except BufferError:
            return
        raise AssertionError("a slice of nothing")
    batch, info = buffer.sample(state, key, 40 * length)
    for column in batch["serial"].T.tolist():
        assert column[0] in possible
        assert column == x.stretch(column[0], length)
    assert bool(info.mask.all())
    assert bool((info.probability == 1 / len(possible)).all())


@given(histories(), seeds, st.integers(1, 6))
def test_law_35_padded_slices_are_cut_and_marked(x: History, key: Tensor, length: int) -> None:
    buffer = ring(x, sampler=replay.slices(slice_len=length, strict=False))
    batch, info = buffer.sample(x.fill(buffer), key, 20 * length)
    for column, mask in zip(batch["serial"].T.tolist(), info.mask.T.tolist(), strict=True):
        rows = x.stretch(column[0], length)
        padding = length - len(rows)
        assert column == rows + rows[-1:] * padding
        assert mask == [True] * len(rows) + [False] * padding


@given(histories(), seeds, st.integers(1, 6), halves)
def test_law_13_n_step_rows_are_sums_over_their_stretch(
    x: History, key: Tensor, n: int, gamma: float
) -> None:
    """R = Σ γ^k r, the last row's successor and flags, and γ^steps: exact on dyadic numbers."""
    buffer = ring(x, transform=replay.n_step(n, gamma=gamma))
    batch, _ = buffer.sample(x.fill(buffer), key, 20)
    for i, serial in enumerate(batch["serial"].tolist()):
        rows = x.stretch(serial, n)
        exact = sum(
            Fraction(gamma) ** k * Fraction(x.row(row, "reward")) for k, row in enumerate(rows)
        )
        assert Fraction(batch["reward"][i].item()) == exact
        assert int(batch["steps"][i]) == len(rows)
        for name in ("next_observation", "terminated", "truncated"):
            assert batch[name][i].item() == x.row(rows[-1], name)
        assert batch["observation"][i].item() == x.row(serial, "observation")
        ended = x.row(rows[-1], "terminated")
        assert batch["discount"][i].item() == (0.0 if ended else gamma ** len(rows))


@given(histories(), seeds, st.integers(1, 30))
def test_law_35_a_successor_is_never_the_next_stored_row_of_another_episode(
    x: History, key: Tensor, num_final: int
) -> None:
    """Observations stored once: the successor is the row's own, or the row is marked as lost."""
    storage = replay.compact(replay.tensor_storage(), num_final=num_final)
    buffer = ring(x, storage=storage)
    batch, info = buffer.sample(x.fill(buffer), key, 30)
    own = x.rows["next_observation"].flatten()[batch["serial"]]
    assert torch.equal(batch["next_observation"][info.mask], own[info.mask])
    ended = [s for step in x.rows["serial"].tolist() for s in step if x.done(s)]
    lost = set(ended[:-num_final])
    for serial, kept in zip(batch["serial"].tolist(), info.mask.tolist(), strict=True):
        assert kept or serial in lost
        assert not kept or serial not in lost


priorities = st.lists(
    st.one_of(st.just(0.0), st.sampled_from([1e-9, 1.0, 3.0]), st.floats(1e-6, 1e6)),
    min_size=1,
    max_size=70,
).filter(any)


def prioritized(
    priority: list[float], spare: int = 0, **options: float
) -> tuple[replay.Buffer, Any]:
    count = len(priority)
    sampler = replay.prioritized(**options)  # type: ignore[arg-type]
    buffer = replay.ring(count + spare, {"serial": torch.tensor(0)}, sampler=sampler)
    state = buffer.add(buffer.init(), {"serial": torch.arange(count)})
    value = torch.tensor(priority, dtype=F64)
    return buffer, buffer.update_priority(state, torch.arange(count), value)


@given(priorities, seeds, st.sampled_from([0.0, 0.5, 0.6, 1.0, 2.0]), st.integers(0, 40))
def test_law_36_probabilities_are_shares_of_the_power(
    priority: list[float], key: Tensor, alpha: float, spare: int
) -> None:
    buffer, state = prioritized(priority, spare, alpha=alpha)
    powers = [p**alpha if p > 0 else 0.0 for p in priority]
    _, info = buffer.sample(state, key, 30)
    for slot, probability in zip(info.index.tolist(), info.probability.tolist(), strict=True):
        assert priority[slot] > 0
        assert math.isclose(probability, powers[slot] / math.fsum(powers), rel_tol=1e-13)


@given(priorities, seeds)
def test_law_36_exponent_0_is_uniform_over_positive_priorities(
    priority: list[float], key: Tensor
) -> None:
    buffer, state = prioritized(priority, alpha=0.0)
    positive = sum(p > 0 for p in priority)
    _, info = buffer.sample(state, key, 30)
    assert bool((info.probability == 1 / positive).all())
    assert bool((info.weight == 1.0).all())


@given(priorities, st.floats(0.0, 1.0), seeds)
def test_law_36_weights_are_at_most_1_and_undo_the_bias(
    priority: list[float], beta: float, key: Tensor
) -> None:
    """w in (0, 1], reached by the rarest row; b = 0 gives 1; b = 1 makes Σ P w f · max = mean f."""
    buffer, state = prioritized(priority, alpha=1.0, beta=beta)
    live = [p for p in priority if p > 0]
    total = math.fsum(live)
    _, info = buffer.sample(state, key, 30)
    for slot, weight in zip(info.index.tolist(), info.weight.tolist(), strict=True):
        assert 0.0 < weight <= 1.0
        assert math.isclose(weight, (min(live) / priority[slot]) ** beta, rel_tol=1e-12)
        assert beta > 0 or weight == 1.0
    unbiased = replay.with_hparams(state, {"beta": 1.0})
    _, info = buffer.sample(unbiased, key, 30)
    n = len(live)
    largest = total / (n * min(live))
    for p, weight in zip(info.probability.tolist(), info.weight.tolist(), strict=True):
        assert math.isclose(p * weight * largest, 1 / n, rel_tol=1e-12)


@given(priorities, st.integers(0, 40), st.data())
def test_law_36_a_zero_priority_is_never_drawn(
    priority: list[float], spare: int, data: st.DataObject
) -> None:
    buffer, state = prioritized(priority, spare, alpha=1.0)
    running = torch.tensor(priority, dtype=F64).cumsum(0)
    edges = running / running[-1]
    near = [torch.nextafter(edges, torch.tensor(end, dtype=F64)) for end in (0.0, 2.0)]
    ends = torch.tensor([0.0, 5e-324, 1 - 2**-53, data.draw(st.floats(0, 1, exclude_max=True))])
    uniform = torch.cat([edges, *near, ends.to(F64)]).clamp(max=1 - 2**-53)
    index = replay.index_from_uniform(buffer, state, uniform)
    assert all(priority[slot] > 0 for slot in index.tolist())


@given(st.lists(st.integers(0, 8), min_size=1, max_size=70).filter(any), st.integers(0, 40))
def test_law_36_the_slot_of_a_uniform_is_that_of_the_running_sum(
    priority: list[int], spare: int
) -> None:
    """On whole numbers, where sums are exact: the first slot whose running sum exceeds u Σ."""
    buffer, state = prioritized([float(p) for p in priority], spare, alpha=1.0)
    total = sum(priority)
    expected = [slot for slot, p in enumerate(priority) for _ in range(2 * p)]
    mass = torch.arange(2 * total, dtype=F64) / 2
    nodes = state.index["leaf"]
    assert sum_tree.find(nodes, buffer.capacity, mass).tolist() == expected
    # at the middle of each half no rounding of u · Σ matters
    uniform = (mass + 0.25) / total
    assert replay.index_from_uniform(buffer, state, uniform).tolist() == expected


@given(priorities, st.integers(1, 200))
def test_law_33_a_grid_is_transported_to_the_probabilities(priority: list[float], n: int) -> None:
    buffer, state = prioritized(priority, alpha=1.0)
    grid = (torch.arange(n, dtype=F64) + 0.5) / n
    index = replay.index_from_uniform(buffer, state, grid)
    counts = torch.bincount(index, minlength=len(priority)).tolist()
    total = math.fsum(priority)
    for count, p in zip(counts, priority, strict=True):
        assert abs(count - n * p / total) <= 1 + 1e-9


updates = st.lists(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 1e-8, 0.1, 1 / 3, 1.0, 1e7])),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=30,
)


@given(st.integers(1, 3000), updates)
def test_law_36_the_tree_has_no_memory_of_its_history(capacity: int, history: Any) -> None:
    """Any capacity: nodes are the very bits of a tree built from its leaves at once."""
    nodes = torch.zeros(sum_tree.num_nodes(capacity), dtype=F64)
    leaves = torch.zeros(capacity, dtype=F64)
    for batch in history:
        by_slot = {slot % capacity: value for slot, value in batch}
        slot = torch.tensor(list(by_slot))
        leaf = torch.tensor(list(by_slot.values()), dtype=F64)
        sum_tree.update(nodes, capacity, slot, leaf, sum_tree.pairwise_sum)
        leaves[slot] = leaf
    fresh = torch.zeros_like(nodes)
    sum_tree.update(fresh, capacity, torch.arange(capacity), leaves, sum_tree.pairwise_sum)
    assert torch.equal(nodes, fresh)
    total = float(sum_tree.root(nodes, capacity, sum_tree.pairwise_sum))
    exact = math.fsum(leaves.tolist())
    assert abs(total - exact) <= math.ceil(math.log2(capacity)) * 2**-53 * exact


@given(histories(), st.integers(1, 12), seeds)
def test_law_39_members_of_a_sweep_are_solo_buffers(x: History, size: int, key: Tensor) -> None:
    keys = random.split(key)
    parts: dict[str, Any] = {
        "sampler": replay.prioritized(),
        "transform": replay.n_step(2),
        "storage": replay.compact(replay.tensor_storage(), num_final=40),
    }
    buffer = ring(x, **parts)
    shifted = x.rows | {"reward": x.rows["reward"] + 1.0}
    members = [x, x._replace(rows=shifted)]
    states, start = torch.vmap(lambda k: buffer.init(like=k))(keys), 0
    for count in x.sizes:
        batches = [
            {k: v[start : start + count] for k, v in member.rows.items()} for member in members
        ]
        states = torch.vmap(buffer.add)(states, tree.stack(batches))
        start += count
    batch, info = torch.vmap(lambda s, k: buffer.sample(s, k, size))(states, keys)
    for i, member in enumerate(members):
        solo = member.fill(buffer)
        assert tree.equal(states[i], solo)
        one, known = buffer.sample(solo, keys[i], size)
        assert tree.equal(batch[i], one)
        assert tree.equal(tree.index(info, i), known)
