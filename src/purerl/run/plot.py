"""Learning curves: the mean bold, every seed thin, the middle half as a band."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tensordict import TensorDict

from ..errors import ConfigError, did_you_mean
from . import directory as run_directory
from .logging import read_jsonl
from .loop import RECENT_RETURN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_log = logging.getLogger("purerl")

_COLORS = ("#2563a8", "#d9622b", "#2f8f5b", "#8a4fa3", "#b8860b", "#c23b5a", "#3f8f9f", "#6b6b6b")
_LABELS = {
    RECENT_RETURN: "episode return (mean of the last 100)",
    "episode/return_mean": "episode return",
}


class Curve(NamedTuple):
    """One run's line in a picture."""

    label: str
    env_steps: NDArray[np.int64]
    """``[num_updates]``, steps of each seed."""
    value: NDArray[np.float64]
    """``[num_updates, num_seeds]``, NaN where there is nothing to show yet."""


def learning_curve(
    runs: TensorDict | str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    title: str | None = None,
    metric: str = RECENT_RETURN,
) -> Path:
    """Draw a metric of one or several runs over environment steps, and return the picture's path.

    A value that is missing after the first one, where no episode completed, is carried forward.

    Args:
        runs: a history of `train`, a run directory, or several run directories.
        path: of the picture; its ending chooses the format.
        title: None takes it from the run directories, as far as they agree.
        metric: slashed name of a metric.

    Raises:
        ConfigError: matplotlib is not installed, or there is nothing to draw.
    """
    if isinstance(runs, TensorDict):
        curves = [curve_of_history(runs, metric)]
    else:
        folders = [runs] if isinstance(runs, (str, Path)) else runs
        curves = [curve_of_directory(Path(folder), metric) for folder in folders]
        title = title if title is not None else common_title([Path(folder) for folder in folders])
    if not curves:
        raise ConfigError("runs is empty, expected at least one run directory")
    draw(curves, Path(path), title or "", _LABELS.get(metric, metric))
    return Path(path)


def save_learning_curve(history: TensorDict, path: Path, *, title: str) -> None:
    """Draw a run's learning curve; what hinders the drawing is reported, not raised."""
    try:
        learning_curve(history, path, title=title)
    except (ConfigError, OSError) as error:
        _log.warning("%s was not drawn (%s)", path, error)


def curve_of_history(history: TensorDict, metric: str = RECENT_RETURN) -> Curve:
    """Return a metric of a history as a curve."""
    known = [
        "/".join(name) if isinstance(name, tuple) else name for name in history.keys(True, True)
    ]
    _require(metric, known, "the history")
    value = history[tuple(metric.split("/"))].to("cpu").double().numpy()
    return Curve("", history["env_steps"][:, 0].numpy(), value)


def curve_of_directory(folder: Path, metric: str = RECENT_RETURN) -> Curve:
    """Return a metric of the records in a run directory as a curve."""
    path = folder / run_directory.METRICS
    records = read_jsonl(path)
    _require(metric, {name for record in records for name in record}, str(path))
    records = [record for record in records if metric in record]
    try:
        steps = np.array([record["env_steps"] for record in records], dtype=np.int64)
        value = np.array([record[metric] for record in records], float)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{path} is no file of metrics: {type(error).__name__} {error}") from None
    if value.ndim != 2:
        raise ConfigError(f"{path}: {metric} is not one number for each seed")
    return Curve(folder.name, steps, value)


def common_title(folders: Sequence[Path]) -> str:
    """Return "ALGORITHM on environment" as far as the run directories agree."""
    documents = [run_directory.read_config(folder) for folder in folders]
    algorithms = {str(document.get("algorithm", "")).upper() for document in documents}
    envs = {str(document.get("env", "")) for document in documents}
    parts = [next(iter(names)) for names in (algorithms, envs) if len(names) == 1]
    return " on ".join(part for part in parts if part)


def _require(metric: str, known: Any, where: str) -> None:
    if metric not in known:
        names = [name for name in known if "/" in name]
        raise ConfigError(f"{where} has no metric {metric}{did_you_mean(metric, names)}")


def carried_forward(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values ``[num_updates, num_seeds]`` with each NaN replaced by the last number before.

    >>> carried_forward(np.array([[np.nan], [1.0], [np.nan], [3.0]]))[:, 0]
    array([nan,  1.,  1.,  3.])
    """
    rows = np.arange(len(value))[:, None]
    last = np.maximum.accumulate(np.where(np.isnan(value), 0, rows), axis=0)
    return np.take_along_axis(value, last, axis=0)


def draw(curves: Sequence[Curve], path: Path, title: str, label: str) -> None:
    """Draw curves into a picture file.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: pip install 'purerl[plot]'") from error
    # a Figure of its own, without pyplot: no global state, no display
    figure = Figure(figsize=(8, 4.8), dpi=160, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    for i, curve in enumerate(curves):
        _draw_curve(axes, curve, _COLORS[i % len(_COLORS)], alone=len(curves) == 1)
    _dress(axes, title, label)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_curve(axes: Axes, curve: Curve, color: str, *, alone: bool) -> None:
    value = carried_forward(curve.value)
    started = ~np.isnan(value).all(axis=1)
    steps, value = curve.env_steps[started], value[started]
    num_seeds = value.shape[1]
    if not len(steps):
        return
    if num_seeds > 1:
        low, high = np.nanpercentile(value, [25, 75], axis=1)
        axes.fill_between(
            steps,
            low,
            high,
            color=color,
            alpha=0.18,
            linewidth=0,
            label="middle half of the seeds" if alone else None,
        )
        axes.plot(steps, value, color=color, alpha=0.35, linewidth=0.8)
    seeds = f"{num_seeds} seeds" if num_seeds > 1 else "1 seed"
    name = f"mean of {seeds}" if alone else f"{curve.label} ({seeds})"
    axes.plot(
        steps,
        np.nanmean(value, axis=1),
        color=color,
        linewidth=2.4,
        label=name,
        solid_capstyle="round",
    )


def _dress(axes: Axes, title: str, label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    ink, faint = "#333333", "#e6e6e6"
    axes.set_title(title, loc="left", fontsize=14, fontweight="bold", color=ink, pad=12)
    axes.set_xlabel("environment steps per seed", fontsize=11, color=ink)
    axes.set_ylabel(label, fontsize=11, color=ink)
    axes.grid(color=faint, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(faint)
    axes.tick_params(colors=ink, length=0, labelsize=10)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_steps(x)))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=10, labelcolor=ink, loc="best")


def format_steps(steps: float) -> str:
    """Return a tick of the step axis.

    >>> format_steps(0), format_steps(25_000), format_steps(1_500_000)
    ('0', '25k', '1.5M')
    """
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= limit:
            return f"{steps / limit:g}{unit}"
    return f"{steps:g}"
