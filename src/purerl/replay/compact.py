"""Observations stored once: the next one is that of the next row, or one that was kept aside."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from .. import tree
from ..errors import BufferError, ConfigError
from ..types import Tree
from . import host
from .rows import require_column
from .slots import Added, after, next_slots, put, steps_after, take
from .state import Layout, Plain, Spec
from .storage import Storage

_NEXT = "next_observation"


def compact(storage: Storage, *, num_final: int) -> Storage:
    """Return a storage that holds ``observation`` once, in about half the memory.

        next_observation_t = final observation t   where the episode ended in row t
                             the latest one        where t is the newest row of its environment
                             observation_{t+1}     otherwise

    The successor of an ended row is never the next stored row, which is a reset observation: the
    final observations of the last ``num_final`` ended rows are kept aside. A row whose final
    observation has been forgotten is no transition any more, and ``info.mask`` says so.

    Rows must follow each other in time: within an episode the next observation of a row is the
    observation of the following one. With ``debug`` that is checked.

    Args:
        storage: `tensor_storage` or `memmap_storage`.
        num_final: final observations to keep, at least 1; capacity over the usual length of an
            episode, and some. They take memory like rows.

    Raises:
        ConfigError: the storage is a list, num_final is less than 1; from `ring`, fields are
            missing.

    >>> import purerl as prl
    >>> flag, x = torch.tensor(False), torch.zeros(())
    >>> example = {"observation": x, "next_observation": x, "terminated": flag, "truncated": flag}
    >>> storage = compact(prl.replay.tensor_storage(), num_final=2)
    >>> buffer = prl.replay.ring(4, example, storage=storage)
    >>> no = torch.zeros(3, dtype=torch.bool)
    >>> rows = {
    ...     "observation": torch.tensor([0.0, 1.0, 7.0]),
    ...     "next_observation": torch.tensor([1.0, 2.0, 8.0]),
    ...     "terminated": no,
    ...     "truncated": torch.tensor([False, True, False]),
    ... }
    >>> batch, _ = buffer.sample(buffer.add(buffer.init(), rows), prl.random.key(0), 4)
    >>> batch["observation"], batch["next_observation"]
    (tensor([7., 7., 0., 1.]), tensor([8., 8., 1., 2.]))
    """
    if storage.ragged:
        raise ConfigError("compact needs rows of tensors, not list_storage()")
    if not isinstance(num_final, int) or isinstance(num_final, bool) or num_final < 1:
        raise ConfigError(f"num_final is {num_final!r}, expected an integer of at least 1")
    return storage._replace(
        specs=partial(_specs, num_final),
        write=partial(_write, num_final),
        read=partial(_read, num_final),
        check=partial(_check, storage),
    )


def _check(storage: Storage, layout: Layout) -> None:
    storage.check(layout)
    require_column("compact", layout, "terminated", flag=True)
    require_column("compact", layout, "truncated", flag=True)
    example = layout.example
    if "observation" not in example or _NEXT not in example:
        raise ConfigError(
            f"compact needs the fields observation and {_NEXT}; the example has "
            f"{', '.join(example)}"
        )
    pair = [{"observation": example[name]} for name in (_NEXT, "observation")]
    tree.require_same_structure(f"example.{_NEXT} as", *pair)


def _specs(num_final: int, layout: Layout) -> Tree:
    def spec(size: int, leaf: Tensor) -> Spec:
        return Spec((size, *leaf.shape), leaf.dtype)

    rows = {name: value for name, value in layout.example.items() if name != _NEXT}
    observation = layout.example["observation"]
    return {
        "rows": tree.map(partial(spec, layout.capacity), rows),
        # the place after the last one takes what is not to be kept
        "final": tree.map(partial(spec, num_final + 1), observation),
        "latest": tree.map(partial(spec, layout.num_envs), observation),
        # 1 + how many rows had ended before this one did; 0 where it did not
        "ended": Spec((layout.capacity,), torch.int64),
        "num_ended": Spec((), torch.int64),
    }


def _write(num_final: int, layout: Layout, s: Plain, added: Added) -> None:
    if layout.debug and host.readable():
        _require_joined(layout, s, added.rows)
    contents, rows, slots = s["storage"], added.kept, added.slots
    successor = rows[_NEXT]
    rows = {name: rows[name] for name in contents["rows"]}
    tree.map(partial(put, slots), contents["rows"], rows)
    done = rows["terminated"] | rows["truncated"]
    number = contents["num_ended"] + done.cumsum(0)
    put(slots, contents["ended"], torch.where(done, number, 0))
    # of more than num_final, the last: no place is written twice
    kept = done & (number > number[-1] - num_final)
    place = torch.where(kept, (number - 1) % num_final, num_final)
    tree.map(lambda leaf, new: leaf.index_put_((place,), new), contents["final"], successor)
    newest = layout.num_envs
    tree.map(lambda leaf, new: leaf.copy_(new[-newest:]), contents["latest"], successor)
    contents["num_ended"].copy_(number[-1])


def _read(
    num_final: int,
    layout: Layout,
    s: Plain,
    index: Tensor,
    fields: tuple[str, ...] | None = None,
) -> tuple[Plain, Tensor | None]:
    contents = s["storage"]
    names = tuple(layout.example) if fields is None else fields
    stored = {name: contents["rows"][name] for name in names if name != _NEXT}
    rows = tree.map(lambda leaf: take(leaf, index), stored)
    if _NEXT not in names:
        return rows, None
    number = take(contents["ended"], index)
    ended, newest = number > 0, steps_after(layout, s, index) == 0
    following = after(layout, index, 1)

    def successor(observation: Tensor, final: Tensor, latest: Tensor) -> Tensor:
        ordinary = take(observation, following)
        last = take(latest, index % layout.num_envs)
        kept = take(final, (number - 1) % num_final)
        return tree.where(ended, kept, tree.where(newest, last, ordinary))

    rows[_NEXT] = tree.map(
        successor, contents["rows"]["observation"], contents["final"], contents["latest"]
    )
    whole = ~ended | (number > contents["num_ended"] - num_final)
    return {name: rows[name] for name in names}, whole


def _require_joined(layout: Layout, s: Plain, rows: Plain) -> None:
    """Raise `BufferError` where an episode goes on with another observation than was announced."""
    contents, num_envs = s["storage"], layout.num_envs
    newest = next_slots(layout, s, num_envs, skip=-num_envs).numbers()
    done = rows["terminated"] | rows["truncated"]
    free = done | ~rows["mask"] if "mask" in rows else done
    free_before = (take(contents["ended"], newest) > 0) | (s["num_rows"] == 0)
    if "mask" in rows:
        free_before = free_before | ~take(contents["rows"]["mask"], newest)
    joined = ~torch.cat([free_before, free])[:-num_envs]
    if "mask" in rows:
        joined = joined & rows["mask"]

    def differs(latest: Tensor, announced: Tensor, observation: Tensor) -> Tensor:
        announced = torch.cat([latest, announced])[:-num_envs]
        same = (announced == observation) | (announced.isnan() & observation.isnan())
        return ~same.reshape(len(joined), -1).all(1)

    leaves = tree.map(differs, contents["latest"], rows[_NEXT], rows["observation"])
    wrong = joined & torch.stack(tree.leaves(leaves)).any(0)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise BufferError(
            f"batch.observation[{row}] is not the {_NEXT} of the row before it, "
            "expected the same observation where an episode goes on"
        )
