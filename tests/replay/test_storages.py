"""Rows in files outlive their process, and rows in a list may differ in length."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, stored_serials, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError, ConfigError, ShapeError

KEY = random.key(0)


def mapped(directory: Path, mode: Any = "create", capacity: int = 6, **parts: Any) -> Any:
    storage = replay.memmap_storage(directory, mode)
    return replay.ring(capacity, EXAMPLE, storage=storage, **parts)


SAMPLERS = {
    "uniform": lambda: replay.uniform(),
    "prioritized": lambda: replay.prioritized(),
    "slices": lambda: replay.slices(slice_len=2),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_a_ring_in_files_is_a_ring_in_memory(tmp_path: Path, sampler: Any) -> None:
    buffers = mapped(tmp_path, sampler=sampler()), replay.ring(6, EXAMPLE, sampler=sampler())
    states = [buffer.init() for buffer in buffers]
    for start, size in ((0, 4), (4, 5), (9, 13), (22, 1)):
        rows = transitions(size, start=start)
        states = [b.add(s, rows) for b, s in zip(buffers, states, strict=True)]
        assert tree.equal(states[0], states[1])
        drawn = [b.sample(s, KEY, 4) for b, s in zip(buffers, states, strict=True)]
        assert tree.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("mode", ["read_write", "read_only"])
def test_a_ring_in_files_is_opened_as_it_was_left(tmp_path: Path, mode: str) -> None:
    buffer = mapped(tmp_path, sampler=replay.prioritized())
    state = buffer.add(buffer.add(buffer.init(), transitions(4)), transitions(5, start=4))
    state = buffer.update_priority(state, torch.tensor([1, 3]), torch.tensor([0.0, 7.0]))
    again = mapped(tmp_path, mode, sampler=replay.prioritized())
    opened = again.init()
    assert tree.equal(opened, state)
    assert tree.equal(again.sample(opened, KEY, 5), buffer.sample(state, KEY, 5))


def test_a_ring_in_files_is_written_on_by_the_next_process(tmp_path: Path) -> None:
    program = """
import os, sys
from purerl import replay
from tests.replay.transitions import EXAMPLE, transitions
buffer = replay.ring(6, EXAMPLE, storage=replay.memmap_storage(sys.argv[1]))
buffer.add(buffer.init(), transitions(4))
os._exit(9)  # without a chance to tidy up
"""
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == 9
    buffer = mapped(tmp_path, "read_write")
    buffer.add(buffer.init(), transitions(4, start=4))
    assert stored_serials(mapped(tmp_path, "read_only").init()) == [2, 3, 4, 5, 6, 7]


def test_a_read_only_ring_is_not_written(tmp_path: Path) -> None:
    buffer = mapped(tmp_path, sampler=replay.prioritized())
    buffer.add(buffer.init(), transitions(4))
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    reader = mapped(tmp_path, "read_only", sampler=replay.prioritized())
    state = reader.init()
    for write in (
        lambda **kw: reader.add(state, transitions(1), **kw),
        lambda **kw: reader.clear(state, **kw),
        lambda **kw: reader.update_priority(state, torch.tensor([0]), torch.ones(1), **kw),
    ):
        with pytest.raises(BufferError, match="read-only, expected memmap_storage"):
            write()
        write(copy=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_files_have_the_bytes_of_their_rows_and_take_disk_as_rows_come(tmp_path: Path) -> None:
    """A ring of 16 GiB: larger than a small machine's memory, and its files are sparse."""
    example = {"x": torch.zeros(1024, dtype=torch.uint8)}
    capacity = 2**24
    storage = replay.memmap_storage(tmp_path)
    buffer = replay.ring(capacity, example, storage=storage)
    state = buffer.add(buffer.init(), {"x": torch.ones(3, 1024, dtype=torch.uint8)})
    sizes = [file.stat() for file in tmp_path.glob("*.bin")]
    assert sorted(s.st_size for s in sizes) == [24, capacity * 1024]
    assert sum(s.st_blocks * 512 for s in sizes) < 2**20
    batch, _ = buffer.sample(state, KEY, 8)
    assert bool((batch["x"] == 1).all())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.int64], ids=str)
def test_files_keep_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    example = {"x": torch.zeros(2, dtype=dtype), "none": torch.zeros(0), "y": torch.zeros(())}
    buffer = replay.ring(3, example, storage=replay.memmap_storage(tmp_path))
    x = random.randint(KEY, (3, 2), 0, 2).to(dtype)
    buffer.add(buffer.init(), {"x": x, "none": torch.zeros(3, 0), "y": torch.arange(3.0)})
    again = replay.ring(3, example, storage=replay.memmap_storage(tmp_path, "read_only")).init()
    assert torch.equal(again.storage["x"], x)
    assert again.storage["none"].shape == (3, 0)


def test_a_directory_that_is_no_such_ring_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BufferError, match=r"holds no ring, expected ring\.json"):
        mapped(tmp_path, "read_write").init()
    mapped(tmp_path).init()
    with pytest.raises(BufferError, match="holds a ring, expected none"):
        mapped(tmp_path).init()
    for parts, message in (
        ({"capacity": 7}, r"storage\.next_observation is torch\.float32 \[6, 2\], expected .* \[7"),
        ({"sampler": replay.prioritized()}, r"index\.extreme is missing, expected torch\.float64"),
        ({"num_envs": 2}, "num_envs is 1, expected 2"),
    ):
        with pytest.raises(BufferError, match=message):
            mapped(tmp_path, "read_write", **parts).init()
    manifest = tmp_path / "ring.json"
    described = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(described | {"format": 2}))
    with pytest.raises(BufferError, match="format is 2, expected 1"):
        mapped(tmp_path, "read_only").init()
    for text, message in (("{", "is not readable"), ("[]", "does not describe a ring")):
        manifest.write_text(text)
        with pytest.raises(BufferError, match=message):
            mapped(tmp_path, "read_only").init()


def test_a_file_of_another_length_is_refused_and_left_alone(tmp_path: Path) -> None:
    mapped(tmp_path).init()
    file = next(f for f in sorted(tmp_path.glob("*.bin")) if f.stat().st_size == 48)
    data = file.read_bytes()
    for wrong in (data[:40], data + b"\0"):
        file.write_bytes(wrong)
        with pytest.raises(BufferError, match=rf"has size {len(wrong)}, expected 48 bytes"):
            mapped(tmp_path, "read_write").init()
        assert file.read_bytes() == wrong
    file.unlink()
    with pytest.raises(BufferError, match="has size None, expected 48 bytes"):
        mapped(tmp_path, "read_only").init()


def test_an_interrupted_creation_is_no_ring_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "000.bin").write_bytes(b"\xff" * 1000)
    buffer = mapped(tmp_path)
    assert tree.equal(buffer.init(), replay.ring(6, EXAMPLE).init())


def test_files_are_for_one_ring_on_the_host(tmp_path: Path) -> None:
    buffer = mapped(tmp_path)
    with pytest.raises(BufferError, match=r"inside torch\.vmap: one file has one ring"):
        torch.vmap(lambda key: buffer.init(like=key))(random.split(KEY))
    with pytest.raises(ConfigError, match="mode is 'r'"):
        replay.memmap_storage(tmp_path, "r")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="example is on meta, expected cpu"):
        replay.ring(2, {"x": torch.zeros(1, device="meta")}, storage=buffer.storage)


def ragged(capacity: int = 4, **options: Any) -> replay.Buffer:
    example = {"tokens": torch.zeros(0, dtype=torch.int64), "meta": {"score": torch.zeros(())}}
    storage = replay.list_storage(options.pop("collate", None))
    return replay.ring(capacity, example, storage=storage, **options)


def item(length: int, score: float | None = None) -> dict[str, Any]:
    number = float(length) if score is None else score
    return {"tokens": torch.arange(length), "meta": {"score": torch.tensor(number)}}


def test_a_list_holds_rows_of_any_lengths() -> None:
    buffer = ragged(collate=list)
    given = [item(n) for n in range(6)]
    state = buffer.add(buffer.init(), given)
    assert int(buffer.size(state)) == 4
    rows, info = buffer.sample(state, KEY, 20)
    assert {len(row["tokens"]) for row in rows} == {2, 3, 4, 5}
    for row, slot in zip(rows, info.index.tolist(), strict=True):
        assert torch.equal(row["tokens"], torch.arange(int(row["meta"]["score"])))
        assert row is state["storage"][slot]
    given[5]["tokens"].fill_(-1)
    assert sorted(int(row["tokens"].sum()) for row in state["storage"]) == [1, 3, 6, 10]


def test_a_list_stacks_what_agrees_and_names_what_does_not() -> None:
    buffer = ragged()
    state = buffer.add(buffer.init(), [item(3, score) for score in (1.0, 2.0)])
    batch, info = buffer.sample(state, KEY, 5)
    assert batch["tokens"].shape == (5, 3)
    assert torch.equal(batch["meta"]["score"], info.index + 1.0)
    state = buffer.add(state, [item(2), item(2)])
    with pytest.raises(ShapeError, match=r"tokens of shapes \[2\], \[3\], expected one shape"):
        buffer.sample(state, KEY, 20)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_a_list_of_equal_rows_is_a_ring_of_tensors(sampler: Any) -> None:
    listed = replay.ring(6, EXAMPLE, storage=replay.list_storage(), sampler=sampler())
    tensors = replay.ring(6, EXAMPLE, sampler=sampler())
    a, b = listed.init(), tensors.init()
    for start, size in ((0, 4), (4, 5), (9, 13), (22, 1)):
        rows = transitions(size, start=start)
        a, b = listed.add(a, rows), tensors.add(b, rows)
        (batch, info), (other, more) = listed.sample(a, KEY, 4), tensors.sample(b, KEY, 4)
        assert tree.equal(batch, tree.to_dict(other))
        assert tree.equal(info, more)


def test_a_list_marks_rows_that_are_no_transition() -> None:
    example = {"x": torch.tensor(0), "mask": torch.tensor(False)}
    buffer = replay.ring(4, example, storage=replay.list_storage(collate=list))
    mask = torch.tensor([True, False, True])
    state = buffer.add(buffer.init(), {"x": torch.arange(3), "mask": mask})
    _, info = buffer.sample(state, KEY, 9)
    assert torch.equal(info.mask, mask[info.index])


def test_a_list_is_donated_or_copied_like_tensors() -> None:
    example = {"x": torch.zeros(0)}
    storage = replay.list_storage(collate=list)
    buffer = replay.ring(3, example, storage=storage, debug=True)
    state = buffer.add(buffer.init(), [{"x": torch.zeros(n)} for n in (1, 2)])
    forked = buffer.add(state, [{"x": torch.zeros(9)}], copy=True)
    assert [len(row["x"]) for row in state["storage"]] == [1, 2]
    after = buffer.add(state, [{"x": torch.zeros(9)}])
    assert tree.equal(after, forked)
    with pytest.raises(BufferError, match="the state was donated"):
        buffer.sample(state, KEY, 1)
    cleared = buffer.clear(after)
    assert cleared["storage"] == []
    assert int(buffer.size(cleared)) == 0


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([], "batch is empty, expected at least one row"),
        ([item(2), {"tokens": torch.arange(2)}], r"batch\[1\]\.meta is missing"),
        ([item(2) | {"tokens": torch.zeros(2)}], r"batch\[0\]\.tokens has dtype torch\.float32"),
        ([item(2) | {"tokens": torch.zeros(2, 1).long()}], r"shape \[2, 1\], expected 1 dimension"),
        ([item(2) | {"meta": {"score": 1.0}}], r"batch\[0\]\.meta\.score is a float, expected a"),
        ([item(2) | {"meta": 3}], r"batch\[0\]\.meta is a int, expected a TensorDict or dict"),
    ],
)
def test_an_item_unlike_the_example_is_named(batch: Any, message: str) -> None:
    buffer = ragged()
    with pytest.raises(ShapeError, match=message):
        buffer.add(buffer.init(), batch)


def test_a_list_is_for_the_host() -> None:
    buffer = ragged()
    with pytest.raises(BufferError, match="rows in a list live on the host"):
        torch.vmap(lambda key: buffer.init(like=key)["cursor"])(random.split(KEY))
    with pytest.raises(ConfigError, match="num_envs is 2, expected 1 for rows in a list"):
        ragged(num_envs=2)
