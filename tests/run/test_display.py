"""Progress, table and picture."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.run import counting

import purerl as prl
from purerl import run
from purerl.errors import ConfigError
from purerl.run.plan import Plan
from purerl.run.plot import Curve, draw
from purerl.run.progress import Lines, Live, Silent, make_progress
from purerl.run.report import interquartile_mean, print_table

PLAN = Plan("ppo", "CartPole-v1", "pure", 8, 600, 256, 150_000)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of_a_run(seconds: float) -> list[str]:
    stream, clock = io.StringIO(), Clock()
    progress = Lines(PLAN, stream, clock)
    for number in range(1, PLAN.num_updates + 1):
        clock.now = seconds * number / PLAN.num_updates
        progress.update(number, 100.0)
    progress.close()
    return stream.getvalue().splitlines()


def test_plain_progress_is_a_line_every_five_seconds_and_the_last_one() -> None:
    lines = lines_of_a_run(60.0)
    assert len(lines) == 12
    assert lines[5] == ("  50%   76,800/153,600 steps   20.5k steps/s   return   100.0   0:30 left")
    assert lines[-1].startswith(" 100%  153,600/153,600 steps")


@pytest.mark.parametrize(("seconds", "most"), [(0.5, 1), (600.0, 25), (7200.0, 125)])
def test_plain_progress_never_floods(seconds: float, most: int) -> None:
    assert 1 <= len(lines_of_a_run(seconds)) <= most


def test_progress_suits_the_stream() -> None:
    assert isinstance(make_progress(PLAN, False), Silent)
    plain = io.StringIO()
    assert isinstance(make_progress(PLAN, True, plain), Lines)
    assert plain.getvalue().startswith("ppo on CartPole-v1 (pure): 8 seeds × 153,600 steps")
    terminal = Terminal()
    live = make_progress(PLAN, True, terminal)
    assert isinstance(live, Live)
    live.update(600, math.nan)
    live.close()
    assert "153,600/153,600 steps" in terminal.getvalue()
    assert "return       –" in terminal.getvalue()


def test_progress_into_a_closed_stream_stops_nothing() -> None:
    stream = io.StringIO()
    progress = Lines(PLAN, stream)
    stream.close()
    progress.update(600, 1.0)


def test_the_interquartile_mean_cuts_a_quarter_at_each_end() -> None:
    # eight values: two are cut at each end, (2 + 3 + 4 + 5) / 4 remains
    assert interquartile_mean([7.0, 0.0, 1.0, 5.0, 2.0, 3.0, 4.0, 6.0]) == 3.5
    assert interquartile_mean([1.0, 5.0]) == 3.0
    assert math.isnan(interquartile_mean([]))


def test_the_table_is_aligned_text_or_a_rich_table() -> None:
    stream, terminal = io.StringIO(), Terminal()
    arguments = (["seed", "return"], [["0", "475.0"], ["1", "–"]], [["mean", "475.0"]])
    print_table(*arguments, stream)
    assert stream.getvalue().splitlines() == [
        "seed  return",
        "----  ------",
        "   0   475.0",
        "   1       –",
        "----  ------",
        "mean   475.0",
    ]
    print_table(*arguments, terminal)
    assert "475.0" in terminal.getvalue()
    assert "----" not in terminal.getvalue()


def test_the_report_names_every_seed_and_the_aggregates() -> None:
    result = run.train(
        counting,
        counting.Config(),
        prl.envs.make("CartPole-v1"),
        key=prl.random.key(0),
        num_seeds=4,
        total_steps=16,
        evaluate_episodes=2,
        progress=False,
    )
    stream = io.StringIO()
    run.show(result, stream)
    lines = stream.getvalue().splitlines()
    assert lines[0].split("  ")[-1] == "steps"
    assert [line.split()[0] for line in lines[2:6]] == ["0", "1", "2", "3"]
    assert [line.split()[0] for line in lines[7:10]] == ["mean", "median", "IQM"]
    assert f"{float(result.returns.mean()):.1f}" in lines[7]
    assert lines[-1].startswith("64 environment steps in 0:00, ")


def history() -> torch.Tensor:
    value = torch.linspace(10, 400, 50)[:, None] + torch.randn(
        50, 8, generator=torch.Generator().manual_seed(0)
    )
    value[:3] = torch.nan
    value[20, 2] = torch.nan
    return prl.tree.from_dict(
        {
            "env_steps": 256 * torch.arange(1, 51)[:, None].expand(50, 8).clone(),
            "episode": {"recent_return_mean": value},
        },
        [50, 8],
    )


def test_a_picture_is_drawn_with_gaps_and_nothing_at_all(tmp_path: Path) -> None:
    path = run.learning_curve(history(), tmp_path / "new" / "curve.png", title="PPO on CartPole-v1")
    assert path.read_bytes().startswith(b"\x89PNG")
    empty = Curve("empty", np.arange(3), np.full((3, 2), np.nan))
    draw([empty], tmp_path / "empty.png", "nothing completed", "episode return")
    assert (tmp_path / "empty.png").exists()


def test_a_picture_of_several_directories_and_of_another_metric(tmp_path: Path) -> None:
    folders = []
    for seed in range(2):
        result = run.train(
            counting,
            counting.Config(),
            prl.envs.make("CartPole-v1"),
            key=prl.random.key(seed),
            num_seeds=1 + seed,
            total_steps=80,
            directory=tmp_path / "run",
            progress=False,
        )
        assert result.directory is not None
        folders.append(result.directory)
    for metric in ("episode/recent_return_mean", "loss/policy"):
        path = run.learning_curve(folders, tmp_path / "both.svg", metric=metric)
        text = path.read_text()
        assert "<svg" in text
    with pytest.raises(ConfigError, match="did you mean loss/policy"):
        run.learning_curve(folders[0], tmp_path / "x.png", metric="loss/polcy")
    with pytest.raises(ConfigError, match="expected at least one run directory"):
        run.learning_curve([], tmp_path / "x.png")
