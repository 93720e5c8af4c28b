"""A mixture has exactly its share of each buffer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.replay.transitions import EXAMPLE, transitions

from purerl import random, replay, tree
from purerl.errors import BufferError, ConfigError, ShapeError

KEY = random.key(0)


def pair(
    first: replay.Sampler | None = None, second: replay.Sampler | None = None
) -> tuple[tuple[replay.Buffer, replay.Buffer], tuple[Any, Any]]:
    buffers = replay.ring(8, EXAMPLE, sampler=first), replay.ring(20, EXAMPLE, sampler=second)
    online = buffers[0].add(buffers[0].init(), transitions(8))
    offline = buffers[1].add(buffers[1].init(), transitions(15, start=100))
    return buffers, (online, offline)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0])
def test_a_batch_has_the_exact_fraction(fraction: float) -> None:
    buffers, states = pair()
    mixed = replay.mixture(*buffers, fraction)
    batch, info = mixed.sample(states, KEY, 20)
    own = round(fraction * 20)
    assert mixed.split(20) == (own, 20 - own)
    serial = batch["serial"]
    assert bool((serial[:own] < 8).all())
    assert bool((serial[own:] >= 100).all())
    assert torch.equal(torch.cat([serial[:own], serial[own:] - 100]), info.index)
    assert batch.batch_size == info.mask.shape == (20,)


def test_each_part_is_the_draw_of_its_buffer() -> None:
    buffers, states = pair(replay.prioritized(), replay.without_replacement())
    batch, info = replay.mixture(*buffers, 0.5).sample(states, KEY, 12)
    for i, part in enumerate((slice(0, 6), slice(6, 12))):
        key = random.split(KEY)[i]
        rows, one = buffers[i].sample(states[i], key, 6)
        assert tree.equal(tree.map(lambda leaf, part=part: leaf[part], batch), rows)
        for name in ("index", "probability", "weight", "mask"):
            assert torch.equal(getattr(info, name)[part], getattr(one, name))
        assert tree.equal(info.sampler[("first", "second")[i]], one.sampler)


def test_slices_are_joined_along_the_batch() -> None:
    samplers = [replay.slices(slice_len=2, strict=False) for _ in range(2)]
    buffers, states = pair(*samplers)
    batch, info = replay.mixture(*buffers, 0.5).sample(states, KEY, 12)
    assert batch.batch_size == info.index.shape == (2, 6)
    assert bool((batch["serial"][:, :3] < 8).all())
    assert bool((batch["serial"][:, 3:] >= 100).all())


def test_plain_states_give_plain_batches_and_members_draw_alone() -> None:
    buffers, states = pair()
    mixed = replay.mixture(*buffers, 0.5)
    plain = tuple(tree.to_dict(state) for state in states)
    batch, _ = mixed.sample(plain, KEY, 4)
    assert isinstance(batch, dict)
    assert tree.equal(tree.to_dict(mixed.sample(states, KEY, 4)[0]), batch)
    keys = random.split(KEY, 3)
    many, _ = torch.vmap(lambda k: mixed.sample(states, k, 4))(keys)
    for i, key in enumerate(keys):
        assert tree.equal(many[i], mixed.sample(states, key, 4)[0])


def test_what_does_not_fit_is_refused() -> None:
    buffers, states = pair()
    with pytest.raises(ConfigError, match=r"batch_size is 5, .* 0\.5 is a whole .* found 2\.5"):
        replay.mixture(*buffers, 0.5).sample(states, KEY, 5)
    with pytest.raises(ConfigError, match=r"fraction is 1\.5, expected a number in \[0, 1\]"):
        replay.mixture(*buffers, 1.5)
    with pytest.raises(BufferError, match="no row is stored"):
        replay.mixture(*buffers, 0.5).sample((states[0], buffers[1].init()), KEY, 4)
    other = replay.ring(4, EXAMPLE | {"reward": torch.zeros(2)})
    with pytest.raises(ShapeError, match=r"second\.example\.reward is torch\.float32 \[2\]"):
        replay.mixture(buffers[0], other, 0.5)
    listed = replay.ring(4, EXAMPLE, storage=replay.list_storage())
    with pytest.raises(ConfigError, match="mixture needs rows of tensors"):
        replay.mixture(buffers[0], listed, 0.5)
