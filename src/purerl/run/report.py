"""What came out of a run, as a table for people and as a mapping for programs."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from torch import Tensor

from .progress import format_count, format_duration, format_number, say

if TYPE_CHECKING:
    from .train import Result


def summary(result: Result) -> dict[str, Any]:
    """Return the outcome of a run as JSON-ready values, None for NaN."""
    document: dict[str, Any] = {
        "algorithm": result.plan.algorithm,
        "env": result.plan.env,
        "num_seeds": result.plan.num_seeds,
        "env_steps": _steps(result),
        "complete": _steps(result) == result.plan.total_steps,
        "returns": _finite(result.returns),
        "returns_over_seeds": _aggregates(result.returns),
        "timings": {name: round(value, 3) for name, value in result.timings.items()},
        "steps_per_second": round(steps_per_second(result)),
    }
    if result.evaluation is not None and result.evaluated is not None:
        document["evaluation"] = _finite(result.evaluation)
        document["evaluation_over_seeds"] = _aggregates(result.evaluation)
        document["evaluation_std"] = _finite(_std(result.evaluated.return_))
        document["evaluation_episodes"] = result.evaluated.return_.shape[1]
        document["evaluation_length"] = _finite(result.evaluated.length.mean(1))
    return document


def show(result: Result, stream: TextIO | None = None) -> None:
    """Print the table of a run and how long it took.

    Args:
        result: of `train`.
        stream: standard output by default; on a terminal the table is drawn with rich if there.
    """
    stream = sys.stdout if stream is None else stream
    headers = ["seed", "return (last 100)"]
    columns = [result.returns]
    spreads: list[Tensor | None] = [None]
    if result.evaluation is not None and result.evaluated is not None:
        headers.append(f"evaluation ({result.evaluated.return_.shape[1]} episodes)")
        columns.append(result.evaluation)
        spreads.append(_std(result.evaluated.return_))
    rows = [
        [str(seed), *(_cell(c, s, seed) for c, s in zip(columns, spreads, strict=True))]
        for seed in range(result.plan.num_seeds)
    ]
    footer = []
    if result.plan.num_seeds > 1:
        by_column = [_aggregates(column) for column in columns]
        footer = [
            [name, *(_number(aggregates[name]) for aggregates in by_column)]
            for name in ("mean", "median", "IQM")
        ]
    steps = f"{_steps(result):,}"
    rows, footer = [[*row, steps] for row in rows], [[*row, ""] for row in footer]
    print_table([*headers, "steps"], rows, footer, stream)
    total = _steps(result) * result.plan.num_seeds
    say(
        stream,
        f"{total:,} environment steps in {format_duration(result.timings['train'])}, "
        f"{format_count(steps_per_second(result))} steps/s "
        f"({format_duration(result.timings['total'])} with everything)",
    )


def steps_per_second(result: Result) -> float:
    """Return environment steps a second, all seeds together, while training."""
    return _steps(result) * result.plan.num_seeds / max(result.timings["train"], 1e-9)


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half: ⌊n/4⌋ values cut at each end; NaN of none.

        Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
        Precipice", arXiv:2108.13264, where it is a trimmed mean with a share of 25 %

    >>> interquartile_mean([0.0, 10.0, 20.0, 1000.0])
    15.0
    """
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    return statistics.fmean(middle) if middle else math.nan


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    footer: Sequence[Sequence[str]],
    stream: TextIO,
    *,
    left: int = 0,
) -> None:
    """Print rows of text under headers, and a footer under a rule.

    The first ``left`` columns align to the left, the others, with numbers, to the right.
    """
    if stream.isatty():
        try:
            _print_rich(headers, rows, footer, stream, left)
        except ImportError:  # rich comes with the extra `cli`
            pass
        else:
            return
    widths = [max(map(len, column)) for column in zip(headers, *rows, *footer, strict=True)]
    rule = "  ".join("-" * width for width in widths)

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    lines = [line(headers), rule, *map(line, rows), *([rule] if footer else []), *map(line, footer)]
    say(stream, "\n".join(lines))


def _print_rich(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    footer: Sequence[Sequence[str]],
    stream: TextIO,
    left: int,
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, header in enumerate(headers):
        table.add_column(header, justify="left" if i < left else "right")
    for i, row in enumerate(rows):
        table.add_row(*row, end_section=i == len(rows) - 1)
    for row in footer:
        table.add_row(*row, style="bold")
    Console(file=stream).print(table)


def _steps(result: Result) -> int:
    return int(result.history["env_steps"][-1, 0])


def _std(values: Tensor) -> Tensor:
    """Return the standard deviation over episodes ``[num_seeds, episodes]``, as of a sample."""
    return values.std(1, correction=min(1, values.shape[1] - 1))


def _cell(column: Tensor, spread: Tensor | None, seed: int) -> str:
    text = format_number(float(column[seed]))
    return text if spread is None else f"{text} ± {format_number(float(spread[seed]))}"


def _number(value: float | None) -> str:
    return format_number(math.nan if value is None else value)


def _finite(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _aggregates(values: Tensor) -> dict[str, float | None]:
    """Return mean, median and interquartile mean over the seeds that have a number."""
    present = [value for value in values.tolist() if math.isfinite(value)]
    if not present:
        return {"mean": None, "median": None, "IQM": None}
    return {
        "mean": statistics.fmean(present),
        "median": statistics.median(present),
        "IQM": interquartile_mean(present),
    }
