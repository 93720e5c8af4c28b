"""Many small buffers are one big one: every member is the solo buffer, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, environments, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError
from purerl.replay.state import plain

MEMBERS = 3
KEYS = random.split(random.key(5), MEMBERS)


def compact() -> replay.Storage:
    return replay.compact(replay.tensor_storage(), num_final=6)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "uniform": dict,
    "without_replacement": lambda: {"sampler": replay.without_replacement()},
    "drop_last": lambda: {"sampler": replay.without_replacement(drop_last=True)},
    "slices": lambda: {"sampler": replay.slices(slice_len=4), "num_envs": 4},
    "padded": lambda: {"sampler": replay.slices(num_slices=2, strict=False)},
    "prioritized": lambda: {"sampler": replay.prioritized()},
    "historic": lambda: {
        "sampler": replay.prioritized(new_priority="historic_max", normalize="batch")
    },
    "n_step": lambda: {"transform": replay.n_step(3), "num_envs": 2},
    "compact": lambda: {"storage": compact(), "num_envs": 2},
    "all": lambda: {
        "storage": compact(),
        "sampler": replay.prioritized(),
        "transform": replay.n_step(3),
        "num_envs": 4,
    },
}
each_part = pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())


def step(buffer: replay.Buffer, state: Any, rows: Any, key: Any, batch_size: int = 16) -> Any:
    """Add, draw, move on, and set priorities where there are some."""
    state = buffer.add(state, rows)
    batch, info = buffer.sample(state, key, batch_size)
    state = buffer.advance(state, info)
    if "leaf" in plain(state)["index"]:
        priority = random.uniform(random.fold_in(key, 1), (batch_size,))
        state = buffer.update_priority(state, info.index, priority)
    return state, batch, info


@each_part
def test_a_member_is_the_solo_buffer(parts: Callable[[], dict[str, Any]]) -> None:
    buffer = replay.ring(40, EXAMPLE, **parts())
    states = torch.vmap(lambda key: buffer.init(like=key))(KEYS)
    solo = [buffer.init() for _ in KEYS]
    memory = tree.leaves(states.storage)[0].data_ptr()
    for turn, size in enumerate((24, 12, 8, 32, 60)):
        keys = torch.vmap(lambda key, t=turn: random.fold_in(key, t))(KEYS)
        rows = [transitions(size, seed=10 * turn + i) for i in range(MEMBERS)]
        states, batch, info = torch.vmap(lambda *x: step(buffer, *x))(
            states, tree.stack(rows), keys
        )
        for i in range(MEMBERS):
            solo[i], one, known = step(buffer, solo[i], rows[i], keys[i])
            assert tree.equal(batch[i], one)
            assert tree.equal(tree.index(info, i), known)
            assert tree.equal(states[i], solo[i])
    assert tree.leaves(states.storage)[0].data_ptr() == memory
    cleared = torch.vmap(buffer.clear)(states)
    assert tree.equal(cleared[1], buffer.clear(solo[1]))


@each_part
def test_a_member_that_is_taken_out_goes_on_alone(parts: Callable[[], dict[str, Any]]) -> None:
    buffer = replay.ring(40, EXAMPLE, debug=True, **parts())
    states = torch.vmap(lambda key: buffer.init(like=key))(KEYS)
    num_envs = buffer.layout.num_envs
    rows = [environments(24 // num_envs, num_envs, seed=i) for i in range(MEMBERS)]
    more = environments(2, num_envs, start=24 // num_envs, seed=1)
    states = torch.vmap(buffer.add)(states, tree.stack(rows))
    others = tree.clone(states[torch.tensor([0, 2])])
    state, _, _ = step(buffer, states[1], more, KEYS[1])
    solo = buffer.add(buffer.init(), rows[1])
    solo, _, _ = step(buffer, solo, more, KEYS[1])
    assert tree.equal(state, solo)
    assert tree.equal(states[torch.tensor([0, 2])], others)
    with pytest.raises(BufferError, match="the state was donated"):
        buffer.add(states[1], more)


def test_members_of_nested_maps_have_memory_of_their_own() -> None:
    buffer = replay.ring(4, {"x": torch.zeros(())})
    keys = random.split(random.key(0), 6).reshape(2, 3, 2)
    states = torch.vmap(torch.vmap(lambda key: buffer.init(like=key)))(keys)
    rows = {"x": torch.arange(12.0).reshape(2, 3, 2)}
    states = torch.vmap(torch.vmap(buffer.add))(states, rows)
    assert torch.equal(states.storage["x"][..., :2], rows["x"])


def test_members_that_share_memory_are_refused() -> None:
    buffer = replay.ring(4, EXAMPLE, sampler=replay.prioritized())
    with pytest.raises(BufferError, match="gives all members one memory; pass init"):
        torch.vmap(lambda key: buffer.init())(KEYS)
    shared = buffer.add(buffer.init(), transitions(3)).expand(MEMBERS)
    rows = tree.stack([transitions(2)] * MEMBERS)
    index, priority = torch.zeros(MEMBERS, 1, dtype=torch.int64), torch.ones(MEMBERS, 1)
    for write in (
        lambda **kw: torch.vmap(lambda s, r: buffer.add(s, r, **kw))(shared, rows),
        lambda **kw: torch.vmap(lambda s: buffer.clear(s, **kw))(shared),
        lambda **kw: torch.vmap(lambda *x: buffer.update_priority(*x, **kw))(
            shared, index, priority
        ),
    ):
        with pytest.raises(BufferError, match="members share one memory, expected memory of"):
            write()
        write(copy=True)


def test_one_buffer_serves_many_draws() -> None:
    buffer = replay.ring(40, EXAMPLE, sampler=replay.prioritized(), transform=replay.n_step(2))
    state = buffer.add(buffer.init(), transitions(50))
    batch, info = torch.vmap(lambda key: buffer.sample(state, key, 8))(KEYS)
    for i, key in enumerate(KEYS):
        one, known = buffer.sample(state, key, 8)
        assert tree.equal(batch[i], one)
        assert tree.equal(tree.index(info, i), known)


def test_an_empty_member_is_masked_and_the_others_are_not() -> None:
    buffer = replay.ring(8, EXAMPLE)
    states = torch.stack([buffer.init(), buffer.add(buffer.init(), transitions(3))])
    _, info = torch.vmap(lambda s, k: buffer.sample(s, k, 4))(states, KEYS[:2])
    assert info.mask.tolist() == [[False] * 4, [True] * 4]
    assert bool(info.probability.isfinite().all())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drop_last", "all"])
def test_compiled_steps_are_the_eager_ones_in_the_same_memory(name: str) -> None:
    torch.compiler.reset()
    buffer = replay.ring(40, EXAMPLE, **PARTS[name]())
    mapped = torch.vmap(lambda *x: step(buffer, *x))
    compiled = torch.compile(mapped, backend="aot_eager", fullgraph=True, dynamic=False)
    eager, fast = (
        tree.to_dict(torch.vmap(lambda key: buffer.init(like=key))(KEYS)) for _ in range(2)
    )
    memory = [leaf.data_ptr() for leaf in tree.leaves(fast["storage"])]
    for turn in range(3):
        keys = torch.vmap(lambda key, t=turn: random.fold_in(key, t))(KEYS)
        rows = tree.stack([transitions(24, seed=10 * turn + i) for i in range(MEMBERS)])
        eager, batch, info = mapped(eager, rows, keys)
        fast, other, known = compiled(fast, rows, keys)
        assert tree.equal(other, batch)
        assert tree.equal(known, info)
        assert tree.equal(fast, eager)
    assert [leaf.data_ptr() for leaf in tree.leaves(fast["storage"])] == memory
