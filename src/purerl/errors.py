"""The errors that purerl raises: each names the argument or leaf, what was expected, what came."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PurerlError(Exception):
    """Base of every error that purerl raises on purpose."""


class ShapeError(PurerlError, ValueError):
    """A tensor has the wrong shape, rank, dtype or device."""


class ConfigError(PurerlError, ValueError):
    """A configuration value is unknown, of the wrong type, out of range or contradictory."""


class EnvError(PurerlError, RuntimeError):
    """An environment broke its contract, crashed or died."""


class BufferError(PurerlError, RuntimeError):
    """A replay buffer was used before it could answer, or after it was donated."""


class CheckpointError(PurerlError, RuntimeError):
    """A checkpoint is corrupt, incomplete or does not fit."""


class RunDirBusy(PurerlError, RuntimeError):  # noqa: N818 - a state of the directory, not a mistake
    """Another process is writing to this run directory."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known name nearest to ``name``, or the full list.

    >>> did_you_mean("learning_rte", ["gamma", "learning_rate"])
    '; did you mean learning_rate?'
    """
    options = sorted(known)
    folded = {option.lower(): option for option in options}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]}?" if near else f"; known: {', '.join(options)}"
