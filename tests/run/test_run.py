"""The driver and the command: results, logs, pictures, answers to mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

import purerl as prl
from purerl import run
from purerl.run import cli

ENV = prl.envs.make("CartPole-v1")
CONFIG = prl.ppo.Config(num_envs=2, num_steps=32, num_epochs=1, num_minibatches=1)


class Broken:
    def write(self, env_steps: int, metrics: object) -> None:
        raise OSError("no space left on device")

    def close(self) -> None:
        raise AssertionError


def test_a_run_gives_returns_history_and_files_and_a_failing_logger_changes_nothing(
    tmp_path: Path,
) -> None:
    key = prl.random.key(0)
    quiet = run.train(prl.ppo, CONFIG, ENV, key=key, num_seeds=3, total_steps=200, progress=False)
    with pytest.warns(UserWarning, match="Broken failed and is off"):
        logged = run.train(
            prl.ppo,
            CONFIG,
            ENV,
            key=key,
            num_seeds=3,
            total_steps=200,
            evaluate_episodes=2,
            loggers=[Broken()],
            directory=tmp_path,
            progress=False,
        )
    assert prl.tree.equal(quiet.state, logged.state)
    assert quiet.returns.shape == (3,)
    assert logged.evaluation is not None
    assert logged.evaluation.shape == (3,)
    assert logged.history["env_steps"].tolist() == [64, 128, 192, 256]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["env_steps"] for line in lines] == [64, 128, 192, 256]
    with (tmp_path / "metrics.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + 4 * 3


def test_evaluation_changes_nothing_and_counts_whole_episodes() -> None:
    states = torch.vmap(lambda k: prl.ppo.init(CONFIG, ENV, k))(
        prl.random.split(prl.random.key(0), 2)
    )
    before = prl.tree.clone(states)
    result = run.evaluate(prl.ppo, CONFIG, ENV, states, key=prl.random.key(1), episodes=3)
    assert prl.tree.equal(states, before)
    assert torch.equal(result.return_, result.length)  # CartPole pays 1 a step
    assert bool((result.length > 1).all())


def test_the_command_trains_and_leaves_a_table_a_picture_and_its_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "ppo", "--env", "CartPole-v1", "--seeds", "2", "--steps", "600"]
    target = tmp_path / "run"
    assert cli.main([*arguments, "--directory", str(target), "--evaluate-episodes", "1"]) == 0
    assert "last 100 episodes" in capsys.readouterr().out
    assert (target / "learning_curve.png").stat().st_size > 10_000
    assert (target / "config.json").exists()
    assert cli.main([*arguments, "--directory", str(target), "--evaluate-episodes", "0"]) == 0
    assert (tmp_path / "run-2" / "metrics.jsonl").exists()


def test_the_command_trains_through_gymnasium(tmp_path: Path) -> None:
    arguments = ["train", "ppo", "--env", "CartPole-v1", "--backend", "gymnasium", "--seeds", "2"]
    target = tmp_path / "run"
    assert cli.main([*arguments, "--steps", "300", "--directory", str(target)]) == 0
    lines = [json.loads(line) for line in (target / "metrics.jsonl").read_text().splitlines()]
    assert len(lines[0]["episode.return_mean"]) == 2


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["trian"], "did you mean train?"),
        (["train", "ppo", "--env", "CartPol-v1"], "did you mean CartPole-v1?"),
        (["train", "ppo", "--env", "CartPole-v1", "--preset", "cleanlr"], "did you mean cleanrl?"),
        (["train", "ppo", "--env", "CartPole-v1", "--sedes", "3"], "did you mean --seeds?"),
        (
            ["train", "ppo", "--env", "CartPole-v1", "--set", "learning_rte=1"],
            "did you mean learning_rate?",
        ),
    ],
)
def test_a_mistake_is_answered_with_the_nearest_name(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(arguments)
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    assert status == 2
    assert answer in printed.out + printed.err
