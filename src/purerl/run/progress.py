"""How a run shows that it moves: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from .plan import Plan

_WINDOW = 10.0  # seconds over which the speed is measured


class Progress(Protocol):
    """Shows a run while it goes on."""

    def update(self, num_updates: int, return_mean: float) -> None:
        """Show that so many train steps are done, and the return so far (NaN for none)."""

    def close(self) -> None:
        """Show the last state and let go of the terminal."""


def make_progress(plan: Plan, enabled: bool, stream: TextIO | None = None) -> Progress:
    """Return the progress display that suits a stream, standard output by default."""
    if not enabled:
        return Silent()
    stream = sys.stdout if stream is None else stream
    say(stream, str(plan))
    if stream.isatty():
        try:
            return Live(plan, stream)
        except ImportError:  # rich comes with the extra `cli`
            pass
    return Lines(plan, stream)


class Silent:
    """Shows nothing."""

    def update(self, num_updates: int, return_mean: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Lines:
    """Prints a line every 5 s, or every 5 % of a run that takes longer, at most a minute apart."""

    def __init__(
        self, plan: Plan, stream: TextIO, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._plan, self._stream, self._clock = plan, stream, clock
        self._speed = Speed(plan, clock)
        self._start = self._told = clock()

    def update(self, num_updates: int, return_mean: float) -> None:
        """Print a line if one is due."""
        now = self._clock()
        self._speed.update(num_updates)
        whole_run = (now - self._start) / num_updates * self._plan.num_updates
        apart = min(max(5.0, 0.05 * whole_run), 60.0)
        if now - self._told < apart and num_updates < self._plan.num_updates:
            return
        self._told = now
        done = num_updates / self._plan.num_updates
        say(self._stream, f"{done:>5.0%}  " + "   ".join(self._speed.texts(return_mean)))

    def close(self) -> None:
        """Do nothing: every line is complete."""


class Live:
    """Draws a bar with rich."""

    def __init__(self, plan: Plan, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._speed = Speed(plan)
        style = {"steps": "default", "speed": "cyan", "return_": "bold green", "left": "magenta"}
        texts = [TextColumn(f"[{color}]{{task.fields[{name}]}}") for name, color in style.items()]
        self._progress = Progress(
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            *texts,
            console=Console(file=stream),
            refresh_per_second=5,
        )
        blank: dict[str, Any] = dict.fromkeys(style, "")
        self._task = self._progress.add_task("", total=plan.num_updates, **blank)
        self._progress.start()

    def update(self, num_updates: int, return_mean: float) -> None:
        """Move the bar."""
        self._speed.update(num_updates)
        names = ("steps", "speed", "return_", "left")
        texts: dict[str, Any] = dict(zip(names, self._speed.texts(return_mean), strict=True))
        self._progress.update(self._task, completed=num_updates, **texts)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._progress.stop()


class Speed:
    """Environment steps a second of all seeds together, and the time left, over a window."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.perf_counter) -> None:
        self._plan, self._clock = plan, clock
        self._marks = deque([(clock(), 0)])

    def update(self, num_updates: int) -> None:
        """Note that so many train steps are done now."""
        now = self._clock()
        self._marks.append((now, num_updates))
        while len(self._marks) > 2 and now - self._marks[1][0] > _WINDOW:
            self._marks.popleft()

    def texts(self, return_mean: float) -> tuple[str, str, str, str]:
        """Return steps done, speed, return and time left, for a person to read."""
        (first_time, first), (last_time, last) = self._marks[0], self._marks[-1]
        updates_per_second = (last - first) / max(last_time - first_time, 1e-9)
        plan = self._plan
        speed = updates_per_second * plan.steps_per_update * plan.num_seeds
        left = (plan.num_updates - last) / max(updates_per_second, 1e-9)
        total = f"{plan.total_steps:,}"
        return (
            f"{last * plan.steps_per_update:>{len(total)},}/{total} steps",
            f"{format_count(speed):>5} steps/s",
            f"return {format_number(return_mean):>7}",
            f"{format_duration(left)} left",
        )


def say(stream: TextIO, text: str) -> None:
    """Print a line; a closed pipe or a full disk behind it must not stop a run."""
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):
        return


def format_number(value: float) -> str:
    """Return a return with one decimal, a dash for NaN.

    >>> format_number(475.04), format_number(float("nan"))
    ('475.0', '–')
    """
    return "–" if math.isnan(value) else f"{value:,.1f}"


def format_count(value: float) -> str:
    """Return a number with three significant digits.

    >>> format_count(812.3), format_count(41_234), format_count(1_234_567)
    ('812', '41.2k', '1.23M')
    """
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * limit:
            return f"{value / limit:#.3g}{unit}".replace(".M", "M").replace(".k", "k")
    return f"{value:.0f}"


def format_duration(seconds: float) -> str:
    """Return seconds as minutes and seconds, with hours where there are any.

    >>> format_duration(83.4), format_duration(4000)
    ('1:23', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
