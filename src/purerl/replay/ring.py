"""A ring of rows as pure functions over its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import check, tree
from ..errors import BufferError, ConfigError
from ..types import Key, Tree
from . import host, rows
from .n_step import Transform
from .sampler import Sampler
from .slots import Added, next_slots
from .state import Info, Layout, Plain, Spec, like, pack, plain
from .storage import Storage, tensor_storage
from .uniform import uniform

_MAX_CAPACITY = 2**31


@dataclass(frozen=True, eq=False)
class Buffer:
    """A ring as functions of one state; made by `ring`.

    A state is a `ReplayState`, or its fields as a plain dict; answers come in the same form.
    ``torch.vmap`` maps all of them over states ``[S]``: S buffers then cost one batched write.

    **Donation.** `add`, `update_priority` and `clear` write into the memory of the state that
    they are given and return the new state over the same memory. The old state, and every view
    of it, is used up: it would show rows of the future. With ``copy=True`` they write into a
    copy. A buffer made with ``debug=True`` raises `BufferError` where a used-up state comes back,
    outside ``torch.vmap`` and ``torch.compile``.
    """

    layout: Layout
    storage: Storage
    sampler: Sampler
    transform: Transform | None

    @property
    def capacity(self) -> int:
        """Rows that the ring holds."""
        return self.layout.capacity

    def init(self, like: Tensor | None = None) -> Any:
        """Return the empty state; of a memory-mapped ring that is opened, what it holds.

        Args:
            like: under ``torch.vmap``, a tensor that differs between the members, such as the
                key of each: it gives each member a memory of its own.

        Raises:
            BufferError: inside ``torch.vmap`` without ``like``.
        """
        layout = self.layout
        memory = self.storage.allocate(layout, self._specs(), like)
        hparams = dict(self.sampler.hparams)
        if self.transform is not None:
            hparams |= self.transform.hparams
        numbers = {
            name: torch.tensor(float(value), dtype=torch.float64, device=layout.device)
            for name, value in hparams.items()
        }
        s = memory | {"sampler": self.sampler.init(layout), "hparams": numbers}
        s |= _counts(memory["written"].clone())
        return s if self.storage.ragged else pack(s)

    def add(self, state: Any, batch: Tree, *, copy: bool = False) -> Any:
        """Store rows over the oldest, and return the new state. Donates ``state``.

        Of more rows than fit, the last ``capacity`` stay, as if each had come by itself. A bool
        field ``mask`` of the example marks with False rows that are no transition: they take
        their place in time, but no slice or n-step window has them, and ``info.mask`` says so.

        Args:
            state: a solo state.
            batch: TensorDict or dict of leaves ``[*N, …]`` like the example, N any leading axes,
                time first; no axis at all is one row.
            copy: leave ``state`` as it is, and copy the whole memory.

        Raises:
            ShapeError: a leaf is missing, unknown, or of another shape, dtype or device.
            BufferError: the ring is read-only, or the state was donated (``debug``).
        """
        s, layout = self._to_write(state, copy), self.layout
        given, count = self.storage.rows(layout, batch)
        skipped = max(count - layout.capacity, 0)
        kept = rows.newest(given, skipped)
        slots = next_slots(layout, s, count - skipped, skip=skipped)
        mask = rows.field(kept, "mask") if "mask" in layout.example else None
        # first the sampler, which may have to look at rows that are about to go
        added = Added(given, count, kept, mask, slots)
        self.sampler.add(layout, s, added)
        self.storage.write(layout, s, added)
        return like(state, _written(s, _numbers_after(layout, s, count)))

    def sample(self, state: Any, key: Key, batch_size: int) -> tuple[Any, Info]:
        """Draw rows as the sampler says, copied out of the storage.

        Args:
            state: a solo state; it stays as it is.
            key: int64 ``[2]``.
            batch_size: rows to draw; of slices, the rows of all together.

        Returns:
            the rows ``[batch_size, …]`` (slices: ``[slice_len, num_slices, …]``, time first), a
            TensorDict for a `ReplayState`; and what is known of them.

        Raises:
            ConfigError: batch_size is less than 1, or no multiple of what slices need.
            BufferError: there is nothing to draw, or the state was donated (``debug``). Inside
                ``torch.vmap`` and ``torch.compile`` ``info.mask`` is False instead.
        """
        s, layout = plain(state), self.layout
        self._require_current(s)
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}, expected at least 1")
        if host.readable_at_once(layout.device) and not int(s["num_rows"]):
            raise BufferError("cannot sample: no row is stored, expected at least one")
        info = self.sampler.draw(layout, s, key, batch_size)
        if self.transform is None:
            batch, whole = self.storage.read(layout, s, info.index)
        else:
            batch, whole = self.transform.read(layout, s, self.storage.read, info.index)
        mask = info.mask if whole is None else info.mask & whole
        if "mask" in layout.example and not self.storage.ragged:
            mask = mask & batch["mask"]
        info = info._replace(mask=mask)
        if isinstance(state, dict):
            return batch, info
        return tree.from_dict(batch, info.index.shape), info

    def size(self, state: Any) -> Tensor:
        """Return how many rows are stored, int64 ``[]``."""
        return state["num_rows"] if isinstance(state, dict) else state.num_rows

    def advance(self, state: Any, info: Info) -> Any:
        """Return the state with the sampler where a draw has left it.

        Needed after each draw of `without_replacement`, the identity for other samplers.

        Args:
            state: the state that was drawn from; it stays as it is.
            info: of the draw.
        """
        if not info.sampler:
            return state
        return like(state, plain(state) | {"sampler": info.sampler})

    def update_priority(
        self, state: Any, index: Tensor, priority: Tensor, *, copy: bool = False
    ) -> Any:
        """Give rows new priorities, and return the new state. Donates ``state``.

        Of a slot that is given twice the last counts; a slot without a row stays without chance.

        Args:
            state: a solo state.
            index: int64 ``[B]``, slots, as of ``info.index``.
            priority: floating ``[B]``, raw: abs(δ) + ε ≥ 0, finite. The exponent α is applied
                once, here. NaN, infinity and negative numbers count as 0 (``debug`` raises).
            copy: leave ``state`` as it is, and copy the whole memory.

        Raises:
            ConfigError: the sampler draws without priorities.
            ShapeError: the shapes differ, or a dtype does not fit.
            BufferError: the ring is read-only; with ``debug``, a priority is not a finite number
                of at least 0, an index is no stored row, or the state was donated.
        """
        check.same_shape(index=index, priority=priority)
        check.integer(index=index)
        check.floating(priority=priority)
        s = self._to_write(state, copy)
        index, priority = index.reshape(-1), priority.detach().reshape(-1)
        if self.layout.debug and host.readable():
            _require_priorities(s, index, priority)
        s = self.sampler.update_priority(self.layout, s, index, priority)
        return like(state, _written(s, _numbers_after(self.layout, s, 0)))

    def clear(self, state: Any, *, copy: bool = False) -> Any:
        """Forget all rows, and return the new state. Donates ``state``.

        Args:
            state: a solo state; its hparams stay.
            copy: leave ``state`` as it is, and copy the whole memory.
        """
        s, layout = self._to_write(state, copy), self.layout
        tree.map(lambda spec, leaf: leaf.fill_(spec.fill), self._specs()["index"], s["index"])
        if self.storage.ragged:
            s["storage"].clear()
        numbers = torch.stack((*[torch.zeros_like(s["cursor"])] * 2, s["version"] + 1), -1)
        return like(state, _written(s | {"sampler": self.sampler.init(layout)}, numbers))

    def _specs(self) -> Plain:
        return {
            "storage": self.storage.specs(self.layout),
            "index": self.sampler.specs(self.layout),
            "written": Spec((3,), torch.int64),
        }

    def _to_write(self, state: Any, copy: bool) -> Plain:
        """Return a plain state whose memory may be written."""
        s = plain(state)
        self._require_current(s)
        if copy:
            memory = {name: s[name] for name in ("storage", "index", "written")}
            return s | self.storage.copy(memory)
        if self.storage.read_only:
            raise BufferError("the ring is read-only, expected memmap_storage(mode='read_write')")
        host.require_own_memory(s["written"])
        return s

    def _require_current(self, s: Plain) -> None:
        """Raise `BufferError` if the memory of a state has been written to since it was made."""
        if self.layout.debug and host.readable():
            version, written = int(s["version"]), int(s["written"][-1])
            if version != written:
                raise BufferError(
                    f"the state was donated: it is version {version}, its memory is at {written}; "
                    "go on with the state that the last add returned, or add with copy=True"
                )


def _counts(numbers: Tensor) -> Plain:
    return dict(zip(("cursor", "num_rows", "version"), numbers.unbind(-1), strict=True))


def _numbers_after(layout: Layout, s: Plain, count: int) -> Tensor:
    """Return cursor, num_rows and version after a write of ``count`` rows, int64 ``[3]``."""
    numbers = [s[name] for name in ("cursor", "num_rows", "version")]
    if host.readable_at_once(layout.device):  # on numbers, which spares seven small kernels
        cursor, num_rows, version = (int(number) for number in numbers)
        kept = min(num_rows + count, layout.capacity)
        return torch.tensor([(cursor + count) % layout.capacity, kept, version + 1])
    cursor, num_rows, version = numbers
    kept = (num_rows + count).clamp(max=layout.capacity)
    return torch.stack(((cursor + count) % layout.capacity, kept, version + 1), -1)


def _written(s: Plain, numbers: Tensor) -> Plain:
    """Return the state after a write, which its memory knows of too."""
    s["written"].copy_(numbers)
    return s | _counts(numbers)


def _require_priorities(s: Plain, index: Tensor, priority: Tensor) -> None:
    """Raise `BufferError` naming the first priority or index that makes no sense."""
    num_rows = int(s["num_rows"])
    fits = (priority >= 0) & priority.isfinite()
    stored = (index >= 0) & (index < num_rows)
    if not bool(fits.all()):
        first = int((~fits).nonzero()[0])
        raise BufferError(
            f"priority[{first}] is {float(priority[first])}, expected a finite number of at least 0"
        )
    if not bool(stored.all()):
        first = int((~stored).nonzero()[0])
        raise BufferError(
            f"index[{first}] is {int(index[first])}, expected a slot in [0, {num_rows})"
        )


def ring(
    capacity: int,
    example: Tree,
    *,
    storage: Storage | None = None,
    sampler: Sampler | None = None,
    transform: Transform | None = None,
    num_envs: int = 1,
    debug: bool = False,
) -> Buffer:
    """Return a replay buffer that holds the last ``capacity`` rows.

    Args:
        capacity: rows, from 1 to 2³¹, a multiple of num_envs.
        example: one row, a TensorDict or dict; its shapes, dtypes and device are those of the
            rows, its values do not matter.
        storage: `tensor_storage` by default, or `memmap_storage`, `list_storage`, `compact`.
        sampler: `uniform` by default, or `without_replacement`, `slices`, `prioritized`.
        transform: `n_step`, or None for rows as they are.
        num_envs: rows of one time step, so that row i goes on in row i + num_envs. Batches are
            then whole time steps, ``[T, num_envs, …]`` or ``[T · num_envs, …]``.
        debug: check values where they can be read: that no state is used after its donation, that
            priorities are numbers, that compact rows fit together. Each check waits for a device.

    Raises:
        ConfigError: a value out of range, or parts that do not work together.

    >>> import purerl as prl
    >>> example = {"observation": torch.zeros(3), "reward": torch.zeros(())}
    >>> buffer = ring(100, example)
    >>> state = buffer.init()
    >>> state = buffer.add(state, {"observation": torch.ones(8, 3), "reward": torch.ones(8)})
    >>> batch, info = buffer.sample(state, prl.random.key(0), 4)
    >>> batch["observation"].shape, int(buffer.size(state))
    (torch.Size([4, 3]), 8)
    """
    _require_count("capacity", capacity, _MAX_CAPACITY)
    _require_count("num_envs", num_envs, capacity)
    if capacity % num_envs:
        raise ConfigError(
            f"capacity is {capacity}, expected a multiple of num_envs = {num_envs}, "
            f"such as {capacity // num_envs * num_envs}"
        )
    storage = tensor_storage() if storage is None else storage
    sampler = uniform() if sampler is None else sampler
    row = rows.example_rows(example)
    layout = Layout(capacity, num_envs, row, tree.leaves(row)[0].device, debug)
    if storage.ragged and transform is not None:
        raise ConfigError("a transform needs rows of tensors, not list_storage()")
    if "mask" in layout.example:
        rows.require_column("mask", layout, "mask", flag=True)
    for part in (storage, sampler, transform):
        if part is not None:
            part.check(layout)
    return Buffer(layout, storage, sampler, transform)


def _require_count(name: str, value: int, limit: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise ConfigError(f"{name} is {value!r}, expected an integer in [1, {limit}]")
