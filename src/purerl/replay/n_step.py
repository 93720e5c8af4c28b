"""Transitions of n steps, merged when they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .. import numerics, returns
from ..errors import ConfigError
from .rows import require_column
from .slots import after, steps_after
from .state import Layout, Plain
from .storage import Read


class Transform(NamedTuple):
    """How drawn rows become a batch; ``s`` is a plain state."""

    read: Callable[[Layout, Plain, Read, Tensor], tuple[Plain, Tensor | None]]
    """``(layout, s, read, index) -> (batch, which rows are whole)``."""
    check: Callable[[Layout], None]
    """Raise `ConfigError` if it cannot work on this ring."""
    hparams: Mapping[str, float]


def n_step(n: int, *, gamma: float = 0.99) -> Transform:
    """Return a transform that merges each drawn row with up to n − 1 rows that follow it.

        n_t = rows from t to the first done, the newest row or t + n − 1
        reward = Σ_{k<n_t} γ^k r_{t+k};   discount = where(terminated, 0, γ^{n_t})

    ``terminated``, ``truncated`` and every field ``next_…`` are those of the last merged row,
    ``steps`` is n_t. A window crosses neither an episode end nor the write head. Bootstrap with
    ``steps`` (the losses take it) or with ``discount``, never with γ.

    Args:
        n: at least 1.
        gamma: γ, which becomes the leaf ``gamma`` of ``state.hparams``.

    Raises:
        ConfigError: n is less than 1; from `ring`, fields are missing.

    Source: `returns.n_step_transition`.

    >>> import purerl as prl
    >>> example = {
    ...     "reward": torch.zeros(()),
    ...     "terminated": torch.tensor(False),
    ...     "truncated": torch.tensor(False),
    ... }
    >>> buffer = prl.replay.ring(4, example, transform=n_step(3, gamma=0.5))
    >>> no = torch.zeros(4, dtype=torch.bool)
    >>> rows = {"reward": torch.ones(4), "terminated": no, "truncated": no}
    >>> batch, info = buffer.sample(buffer.add(buffer.init(), rows), prl.random.key(3), 3)
    >>> info.index, batch["reward"], batch["discount"]
    (tensor([0, 3, 2]), tensor([1.7500, 1.0000, 1.5000]), tensor([0.1250, 0.5000, 0.2500]))
    """
    if n < 1:
        raise ConfigError(f"n is {n}, expected at least 1")
    return Transform(partial(_read, n), _check, {"gamma": gamma})


def _check(layout: Layout) -> None:
    require_column("n_step", layout, "reward", flag=False)
    require_column("n_step", layout, "terminated", flag=True)
    require_column("n_step", layout, "truncated", flag=True)


def _read(
    n: int, layout: Layout, s: Plain, read: Read, index: Tensor
) -> tuple[Plain, Tensor | None]:
    example, gamma = layout.example, s["hparams"]["gamma"]
    ahead = torch.arange(n, device=index.device).reshape(n, *[1] * index.ndim)
    window = after(layout, index, ahead)
    names = ("reward", "terminated", "truncated", *(["mask"] if "mask" in example else []))
    rows, _ = read(layout, s, window, names)
    mask = ahead <= steps_after(layout, s, index)
    if "mask" in example:
        mask = mask & rows.pop("mask")
    merged = returns.n_step_transition(**rows, n=n, gamma=gamma, mask=mask)
    reward, steps, last_row, terminated, truncated = (column[0] for column in merged)
    discount = numerics.scalar_like(gamma, reward) ** steps.to(reward.dtype)
    later = tuple(name for name in example if name.startswith("next_"))
    batch, _ = read(layout, s, index, tuple(name for name in example if name not in later))
    batch |= {
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "steps": steps,
        "discount": torch.where(terminated, torch.zeros_like(discount), discount),
    }
    if not later:
        return batch, None
    last = window.gather(0, last_row.unsqueeze(0)).squeeze(0)
    successor, whole = read(layout, s, last, later)
    return batch | successor, whole
