"""A learning curve one can look at."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..errors import ConfigError


def learning_curve(env_steps: Tensor, return_: Tensor, path: Path, *, title: str) -> Path:
    """Draw returns over environment steps: mean bold, every seed thin, interquartile band.

    Args:
        env_steps: ``[N]``, steps of one seed.
        return_: ``[N, num_seeds]``, mean return of the episodes completed at each point; NaN
            where there was none, which carries the last value forward.
        path: of the picture; the ending says the format.
        title: above the picture.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("plots need matplotlib: pip install 'purerl[plot]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    filled = _smoothed(_carried_forward(return_))
    steps = env_steps.numpy()
    low, high = filled.nanquantile(0.25, 1), filled.nanquantile(0.75, 1)
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, filled.numpy(), color="#4c72b0", alpha=0.3, linewidth=0.8)
    axes.fill_between(steps, low.numpy(), high.numpy(), color="#4c72b0", alpha=0.2, linewidth=0)
    axes.plot(steps, filled.nanmean(1).numpy(), color="#1f3b70", linewidth=2.2, label="mean")
    axes.set(xlabel="environment steps of a seed", ylabel="episode return", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _carried_forward(values: Tensor) -> Tensor:
    """Return values ``[N, S]`` with each NaN replaced by the last number above it."""
    position = torch.arange(values.shape[0])[:, None].expand_as(values)
    last = torch.where(values.isnan(), 0, position).cummax(0).values
    return values.gather(0, last)


def _smoothed(values: Tensor) -> Tensor:
    """Return a running mean over about a fiftieth of the curve."""
    width = max(1, values.shape[0] // 50)
    windows = torch.cat([values[:1].expand(width - 1, -1), values]).unfold(0, width, 1)
    return windows.nanmean(-1)
