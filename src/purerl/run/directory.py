"""The directory of a run: one run each, never written over.

config.json         what was run: configuration, sizes, key, versions, command
metrics.jsonl       one record for each train step
metrics.csv         the same as a table
summary.json        what came out
learning_curve.png  the picture of it
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import math
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ..types import Key
from .plan import Plan

CONFIG, METRICS, TABLE = "config.json", "metrics.jsonl", "metrics.csv"
SUMMARY, CURVE = "summary.json", "learning_curve.png"

_log = logging.getLogger("purerl")


def default_directory(env: str, algorithm: str) -> Path:
    """Return ``runs/<env>-<algorithm>-<timestamp>`` for now."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{env.replace('/', '-')}-{algorithm}-{stamp}"


def claim(directory: str | Path) -> Path:
    """Make a directory for one run and return it: the given path, or the first free ``path-N``.

    A path that does not exist or is empty is taken as it is; otherwise ``-2``, ``-3``, … is
    appended, so that no run writes over another, and the ``purerl`` log says so. The empty
    configuration file marks it as taken, also against a run that starts at the same moment.
    """
    path = Path(directory)
    if path.name in ("", ".."):  # of which no neighbour can be named
        path = path.resolve()
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    for candidate in itertools.chain([path], numbered):
        if any(candidate.iterdir()) if candidate.is_dir() else candidate.exists():
            continue
        candidate.mkdir(parents=True, exist_ok=True)
        try:
            (candidate / CONFIG).open("x").close()
        except FileExistsError:  # another run took it in between
            continue
        break
    if candidate != path:
        _log.warning("%s is not empty and stays as it is; this run writes to %s", path, candidate)
    return candidate


def write_config(directory: Path, plan: Plan, config: Any, key: Key) -> None:
    """Write everything that repeats the run."""
    document = {
        "algorithm": plan.algorithm,
        "env": plan.env,
        "backend": plan.backend,
        "num_seeds": plan.num_seeds,
        "num_updates": plan.num_updates,
        "total_steps": plan.total_steps,
        "requested_steps": plan.requested_steps,
        "key": key.tolist(),
        "config": _fields(config),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "device": str(key.device),
        "platform": platform.platform(),
    }
    (directory / CONFIG).write_text(_json(document))


def versions() -> dict[str, str]:
    """Return the versions of Python, of this library and of what its numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("purerl", "torch", "tensordict", "gymnasium", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a source tree
            found[name] = "unknown"
    return found


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Write what came out; a full disk costs the file, not the result."""
    try:
        (directory / SUMMARY).write_text(_json(summary))
    except OSError as error:
        _log.warning("%s was not written (%s)", directory / SUMMARY, error)


def read_config(directory: Path) -> dict[str, Any]:
    """Return the configuration document of a run directory, {} where there is none to read."""
    try:
        document = json.loads((directory / CONFIG).read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _fields(config: Any) -> Any:
    if not dataclasses.is_dataclass(config):
        return repr(config)
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _json(document: dict[str, Any]) -> str:
    # a network given as functions has no JSON; its description is better than no file
    return json.dumps(_written(document), indent=2, default=repr, allow_nan=False) + "\n"


def _written(value: Any) -> Any:
    """Return a document without infinity and NaN, which JSON does not have: they become words."""
    if isinstance(value, dict):
        return {name: _written(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_written(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
