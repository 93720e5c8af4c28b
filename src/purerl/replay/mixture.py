"""Batches of which an exact part comes from each of two buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .. import random, tree
from ..errors import ConfigError
from ..types import Key
from .ring import Buffer
from .state import Info, plain


@dataclass(frozen=True, eq=False)
class Mixture:
    """Two buffers that are drawn from together; made by `mixture`."""

    first: Buffer
    second: Buffer
    fraction: float

    def split(self, batch_size: int) -> tuple[int, int]:
        """Return how many rows of a batch come from each buffer.

        Raises:
            ConfigError: fraction · batch_size is not a whole number.
        """
        wanted = self.fraction * batch_size
        count = round(wanted)
        if abs(wanted - count) > 1e-9 * batch_size:
            raise ConfigError(
                f"batch_size is {batch_size}, expected one of which {self.fraction:g} is a whole "
                f"number of rows, found {wanted:g}"
            )
        return count, batch_size - count

    def sample(self, states: tuple[Any, Any], key: Key, batch_size: int) -> tuple[Any, Info]:
        """Draw rows of both buffers, those of the first one first.

            first_key, second_key = split(key)

        Args:
            states: a solo state of each; they stay as they are.
            key: int64 ``[2]``.
            batch_size: rows to draw.

        Returns:
            the rows, joined along the last axis of ``info.index``, and what is known of them:
            ``index`` counts in the row's own buffer, ``sampler`` is a dict of ``first`` and
            ``second``.

        Raises:
            ConfigError: the fraction of batch_size is not a whole number.
            BufferError: a buffer has nothing to draw.
        """
        sizes = self.split(batch_size)
        keys = random.split(key).unbind(0)
        parts = zip((self.first, self.second), states, keys, sizes, strict=True)
        drawn = [b.sample(plain(state), k, size) for b, state, k, size in parts if size]
        if len(drawn) == 1:
            batch, info = drawn[0]
            samplers = [info.sampler, {}] if sizes[0] else [{}, info.sampler]
        else:
            samplers = [info.sampler for _, info in drawn]
            (batch, info), (other, more) = drawn
            axis = info.index.ndim - 1
            batch = tree.map(lambda *leaves: torch.cat(leaves, axis), batch, other)
            info = tree.map(
                lambda *leaves: torch.cat(leaves, axis),
                info._replace(sampler={}),
                more._replace(sampler={}),
            )
        info = info._replace(sampler=dict(zip(("first", "second"), samplers, strict=True)))
        if isinstance(states[0], dict):
            return batch, info
        return tree.from_dict(batch, info.index.shape), info


def mixture(first: Buffer, second: Buffer, fraction: float) -> Mixture:
    """Return a mixture whose batches are exactly ``fraction`` rows of the first buffer.

    Half of recorded and half of own experience is the scheme of Ball, Smith, Kostrikov and Levine
    2023, "Efficient online reinforcement learning with offline data".

    Args:
        first: a ring of tensors.
        second: another one, with rows of the same structure.
        fraction: in [0, 1]; of every batch_size it must make a whole number.

    Raises:
        ConfigError: fraction is out of range, or a ring is a list.
        ShapeError: the examples differ.

    >>> import purerl as prl
    >>> online, offline = (prl.replay.ring(4, {"x": torch.tensor(0)}) for _ in range(2))
    >>> states = (
    ...     online.add(online.init(), {"x": torch.arange(4)}),
    ...     offline.add(offline.init(), {"x": torch.arange(10, 14)}),
    ... )
    >>> mixture(online, offline, 0.25).sample(states, prl.random.key(0), 8)[0]["x"]
    tensor([ 3,  0, 10, 10, 12, 11, 10, 10])
    """
    if not 0.0 <= fraction <= 1.0:
        raise ConfigError(f"fraction is {fraction}, expected a number in [0, 1]")
    if first.storage.ragged or second.storage.ragged:
        raise ConfigError("mixture needs rows of tensors, not list_storage()")
    tree.require_same_structure("second.example", second.layout.example, first.layout.example)
    return Mixture(first, second, fraction)
