"""A ring holds the last rows in order, whatever the sizes in which they came."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tests.replay.transitions import EXAMPLE, stored_serials, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError, ConfigError, ShapeError

KEY = random.key(0)
SERIAL = {"serial": torch.tensor(0)}


def serials(*numbers: int) -> dict[str, torch.Tensor]:
    return {"serial": torch.tensor(numbers)}


@pytest.mark.parametrize("capacity", [1, 2, 5, 7, 8])
@pytest.mark.parametrize("sizes", [[1] * 20, [3, 1, 4, 1, 5, 9], [5, 5, 5], [40], [7, 7], [8, 1]])
def test_the_last_rows_stay_in_order(capacity: int, sizes: list[int]) -> None:
    buffer = replay.ring(capacity, SERIAL)
    state, model, given = buffer.init(), deque[int](maxlen=capacity), 0
    for size in sizes:
        state = buffer.add(state, {"serial": torch.arange(given, given + size)})
        model.extend(range(given, given + size))
        given += size
        assert stored_serials(state) == list(model)
        assert int(buffer.size(state)) == len(model)
        assert int(state.cursor) == given % capacity


@pytest.mark.parametrize("sizes", [[3, 4], [6, 5, 4], [13], [2, 17, 1]])
def test_a_batch_is_the_fold_of_its_rows(sizes: list[int]) -> None:
    samplers = [replay.uniform(), replay.slices(slice_len=2), replay.prioritized()]
    for sampler in samplers:
        buffer = replay.ring(6, EXAMPLE, sampler=sampler)
        rows = transitions(sum(sizes))
        single, batched = buffer.init(), buffer.init()
        for i in range(sum(sizes)):
            single = buffer.add(single, tree.index(rows, i))
        start = 0
        for size in sizes:
            part = slice(start, start + size)
            batched = buffer.add(batched, tree.map(lambda leaf, part=part: leaf[part], rows))
            start += size
        counts = ("version", "written")  # a batch is one write
        ours, theirs = (tree.to_dict(s) for s in (batched, single))
        assert tree.equal(
            {k: v for k, v in ours.items() if k not in counts},
            {k: v for k, v in theirs.items() if k not in counts},
        )


def test_leading_axes_are_flattened_time_first() -> None:
    buffer = replay.ring(12, SERIAL)
    state = buffer.add(buffer.init(), {"serial": torch.arange(6).reshape(3, 2)})
    assert stored_serials(state) == [0, 1, 2, 3, 4, 5]
    state = buffer.add(state, {"serial": torch.tensor(6)})
    assert stored_serials(state) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64],
    ids=str,
)
def test_rows_keep_their_dtype_and_bits(dtype: torch.dtype) -> None:
    x = random.randint(KEY, (5, 3, 2), 0, 2).to(dtype)
    buffer = replay.ring(5, {"x": x[0]})
    state = buffer.add(buffer.init(), {"x": x})
    batch, info = buffer.sample(state, KEY, 7)
    assert state.storage["x"].dtype == batch["x"].dtype == dtype
    assert torch.equal(batch["x"], x[info.index])


def test_memory_is_that_of_the_rows() -> None:
    example = {"pixels": torch.zeros(4, 4, dtype=torch.uint8), "flag": torch.tensor(False)}
    state = replay.ring(1000, example).init()
    memory = sum(leaf.untyped_storage().nbytes() for leaf in tree.leaves(state.storage))
    assert memory == 1000 * 17
    everything = sum(leaf.numel() * leaf.element_size() for leaf in tree.leaves(state))
    assert everything <= memory * 1.05


def test_rows_of_no_elements_and_nested_rows_are_rows() -> None:
    example = {"observation": {"a": torch.zeros(0), "b": torch.zeros(2, 1)}, "x": torch.zeros(())}
    buffer = replay.ring(3, example)
    batch = {"observation": {"b": torch.ones(4, 2, 1), "a": torch.zeros(4, 0)}, "x": torch.ones(4)}
    state = buffer.add(buffer.init(), batch)
    drawn, _ = buffer.sample(state, KEY, 5)
    assert drawn["observation", "a"].shape == (5, 0)
    assert torch.equal(drawn["observation", "b"], torch.ones(5, 2, 1))


def test_plain_dicts_and_tensordicts_are_the_same_state() -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized())
    rows = transitions(6)
    packed = buffer.add(buffer.init(), TensorDict(rows, batch_size=[6]))
    plain = buffer.add(tree.to_dict(buffer.init()), rows)
    assert isinstance(packed, replay.ReplayState)
    assert isinstance(plain, dict)
    assert tree.equal(tree.to_dict(packed), plain)
    (batch, info), (plain_batch, plain_info) = (
        buffer.sample(state, KEY, 3) for state in (packed, plain)
    )
    assert isinstance(batch, TensorDict)
    assert batch.batch_size == (3,)
    assert isinstance(plain_batch, dict)
    assert tree.equal(tree.to_dict(batch), plain_batch)
    assert tree.equal(info, plain_info)


def test_add_donates_its_memory_and_a_copy_does_not() -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized())
    first = buffer.add(buffer.init(), transitions(3))
    before = tree.clone(first)
    forked = buffer.add(first, transitions(2, start=3), copy=True)
    assert tree.equal(first, before)
    assert forked.storage["serial"].data_ptr() != first.storage["serial"].data_ptr()
    donated = buffer.add(first, transitions(2, start=3))
    assert donated.storage["serial"].data_ptr() == first.storage["serial"].data_ptr()
    assert tree.equal(donated, forked)


WRITES: dict[str, Callable[..., Any]] = {
    "add": lambda buffer, state, **kw: buffer.add(state, transitions(2, start=9), **kw),
    "update_priority": lambda buffer, state, **kw: buffer.update_priority(
        state, torch.tensor([1, 0]), torch.tensor([2.0, 5.0]), **kw
    ),
    "clear": lambda buffer, state, **kw: buffer.clear(state, **kw),
}
USES = WRITES | {"sample": lambda buffer, state: buffer.sample(state, KEY, 2)}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_debug_catches_use_after_donation(
    write: Callable[..., Any], use: Callable[..., Any]
) -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized(), debug=True)
    state = buffer.add(buffer.init(), transitions(3))
    view = tree.to_dict(state)
    after = write(buffer, state)
    for used_up in (state, view, tree.clone(state)):
        with pytest.raises(BufferError, match="donated: it is version 1, its memory is at 2"):
            use(buffer, used_up)
    if write is not WRITES["clear"]:
        use(buffer, after)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_copying_write_leaves_its_argument_usable(write: Callable[..., Any]) -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized(), debug=True)
    state = buffer.add(buffer.init(), transitions(3))
    before = tree.clone(state)
    copied = write(buffer, state, copy=True)
    assert tree.equal(state, before)
    assert tree.equal(write(buffer, state), copied)


def test_a_sample_is_a_function_of_the_state_and_the_key() -> None:
    for sampler in (replay.uniform(), replay.without_replacement(), replay.prioritized()):
        buffer = replay.ring(8, EXAMPLE, sampler=sampler)
        state = buffer.add(buffer.init(), transitions(8))
        before = tree.clone(state)
        one, two = (buffer.sample(state, KEY, 6) for _ in range(2))
        assert tree.equal(one, two)
        assert tree.equal(state, before)
        other, _ = buffer.sample(state, random.key(1), 6)
        assert not torch.equal(other["serial"], one[0]["serial"])


def test_a_sample_shares_no_memory_with_the_ring() -> None:
    buffer = replay.ring(4, EXAMPLE)
    state = buffer.add(buffer.init(), transitions(4))
    batch, info = buffer.sample(state, KEY, 3)
    before, kept = tree.clone(batch), tree.clone(info)
    buffer.add(state, transitions(4, start=100))
    assert tree.equal(batch, before)
    assert tree.equal(info, kept)


def test_what_was_added_is_copied() -> None:
    buffer = replay.ring(4, SERIAL)
    given = serials(1, 2)
    state = buffer.add(buffer.init(), given)
    given["serial"].fill_(9)
    assert stored_serials(state) == [1, 2]


def test_rows_come_in_without_their_gradient() -> None:
    buffer = replay.ring(2, {"x": torch.zeros(2)})
    x = torch.ones(1, 2, requires_grad=True)
    state = buffer.add(buffer.init(), {"x": 2 * x})
    assert not state.storage["x"].requires_grad

    def loss(w: torch.Tensor) -> tuple[torch.Tensor, Any]:
        new = buffer.add(state, {"x": w * torch.ones(1, 2)}, copy=True)
        return buffer.sample(new, KEY, 4)[0]["x"].sum() * w, new

    gradient, new = torch.func.grad(loss, has_aux=True)(torch.tensor(3.0))
    drawn = buffer.sample(new, KEY, 4)[0]["x"].sum()
    assert float(gradient) == float(drawn)


def test_clear_forgets_the_rows_and_keeps_the_numbers() -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized(beta=0.4))
    state = replay.with_hparams(buffer.add(buffer.init(), transitions(5)), {"beta": 0.7})
    state = buffer.clear(state)
    assert int(buffer.size(state)) == int(state.cursor) == 0
    assert float(state.hparams["beta"]) == 0.7
    with pytest.raises(BufferError, match="no row is stored"):
        buffer.sample(state, KEY, 1)
    again = buffer.add(state, transitions(2))
    fresh = buffer.add(buffer.init(), transitions(2))
    assert stored_serials(again) == stored_serials(fresh) == [0, 1]
    assert tree.equal(again.index, fresh.index)


def test_rows_that_are_no_transition_are_marked() -> None:
    example = {"x": torch.tensor(0), "mask": torch.tensor(False)}
    mask = torch.tensor([True, False, True, True])
    for sampler in (replay.uniform(), replay.without_replacement()):
        buffer = replay.ring(4, example, sampler=sampler)
        state = buffer.add(buffer.init(), {"x": torch.arange(4), "mask": mask})
        _, info = buffer.sample(state, KEY, 4)
        assert torch.equal(info.mask, mask[info.index])
        assert not bool(info.mask.all())


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"observation": torch.zeros(2, 3)}, r"batch\.reward is missing"),
        (
            {"observation": torch.zeros(2, 3), "reward": torch.zeros(2), "x": torch.zeros(2)},
            r"batch\.x is not expected; known: observation, reward",
        ),
        (
            {"observation": torch.zeros(2, 4), "reward": torch.zeros(2)},
            r"batch\.observation has shape \[2, 4\], expected \[\.\.\., 3\]",
        ),
        (
            {"observation": torch.zeros(()), "reward": torch.zeros(2)},
            r"batch\.observation has shape \[\], expected \[\.\.\., 3\]",
        ),
        (
            {"observation": torch.zeros(2, 3), "reward": torch.zeros(2, 1)},
            r"batch\.reward has leading shape \[2, 1\], expected \[2\] as batch\.observation",
        ),
        (
            {"observation": torch.zeros(2, 3), "reward": torch.zeros(2, dtype=torch.float64)},
            r"batch\.reward has dtype torch\.float64, expected torch\.float32",
        ),
        (
            {"observation": torch.zeros(2, 3), "reward": torch.zeros(2, device="meta")},
            r"batch\.reward is on meta, expected cpu",
        ),
        (
            {"observation": torch.zeros(2, 3), "reward": [0.0, 0.0]},
            r"batch\.reward is a list, expected a tensor",
        ),
        (
            {"observation": torch.zeros(0, 3), "reward": torch.zeros(0)},
            r"leading shape \[0\], expected at least one row",
        ),
        (torch.zeros(2), "batch is a Tensor, expected a TensorDict or dict"),
    ],
)
def test_a_batch_unlike_the_example_is_named(batch: Any, message: str) -> None:
    buffer = replay.ring(4, {"observation": torch.zeros(3), "reward": torch.zeros(())})
    state = buffer.init()
    before = tree.clone(state)
    with pytest.raises(ShapeError, match=message):
        buffer.add(state, batch)
    assert tree.equal(state, before)


def test_a_nested_leaf_is_named_by_its_path() -> None:
    buffer = replay.ring(4, {"observation": {"camera": torch.zeros(3)}})
    with pytest.raises(ShapeError, match=r"batch\.observation\.camera has dtype torch\.int64"):
        buffer.add(buffer.init(), {"observation": {"camera": torch.zeros(2, 3).long()}})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: replay.ring(0, SERIAL),
            r"capacity is 0, expected an integer in \[1, 2147",
        ),
        (lambda: replay.ring(2.0, SERIAL), r"capacity is 2\.0"),  # type: ignore[arg-type]
        (lambda: replay.ring(True, SERIAL), r"capacity is True"),
        (lambda: replay.ring(4, SERIAL, num_envs=5), r"num_envs is 5, expected .* \[1, 4\]"),
        (
            lambda: replay.ring(10, SERIAL, num_envs=4),
            r"capacity is 10, expected a multiple of num_envs = 4, such as 8",
        ),
        (lambda: replay.ring(4, {}), "example is empty"),
        (lambda: replay.ring(4, {"x": {"y": 1.0}}), r"example\.x\.y is a float, expected a tensor"),
        (
            lambda: replay.ring(4, {"mask": torch.zeros(())}),
            r"example\.mask is torch\.float32 \[\], expected torch\.bool \[\]",
        ),
        (
            lambda: replay.ring(4, SERIAL, transform=replay.n_step(2)),
            "n_step needs the field reward; the example has serial",
        ),
        (
            lambda: replay.ring(4, SERIAL, sampler=replay.slices(slice_len=2)),
            "slices needs the field terminated; the example has serial",
        ),
    ],
)
def test_a_ring_that_cannot_be_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_call_that_cannot_be_is_refused() -> None:
    buffer = replay.ring(4, SERIAL, num_envs=2)
    state = buffer.init()
    with pytest.raises(BufferError, match="cannot sample: no row is stored"):
        buffer.sample(state, KEY, 2)
    with pytest.raises(ConfigError, match="batch_size is 0, expected at least 1"):
        buffer.sample(buffer.add(state, serials(1, 2)), KEY, 0)
    with pytest.raises(ShapeError, match="batch has 3 rows, expected a multiple of num_envs = 2"):
        buffer.add(state, serials(1, 2, 3))
    with pytest.raises(ConfigError, match=r"update_priority needs the sampler replay\.prioritized"):
        buffer.update_priority(state, torch.tensor([0]), torch.tensor([1.0]))
    with pytest.raises(ConfigError, match="unknown hyperparameter beta"):
        replay.with_hparams(state, {"beta": 1.0})


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "replay.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), "replay.md", "exec"), names)
    assert names["rows"]["observation"].shape == (64, 256, 3)


def test_the_example_is_read_for_its_shape_only() -> None:
    example = {"x": torch.full((2,), torch.nan)}
    buffer = replay.ring(2, example)
    assert torch.equal(buffer.init().storage["x"], torch.zeros(2, 2))
    example["x"].fill_(1.0)
    assert torch.equal(buffer.init().storage["x"], torch.zeros(2, 2))
