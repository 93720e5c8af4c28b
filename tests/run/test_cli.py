from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import purerl as prl
from purerl.errors import EnvError
from purerl.run.cli import main
from purerl.run.options import parse_train

SMALL = ["--num-envs", "2", "--num-steps", "16", "--num-epochs", "1", "--num-minibatches", "1"]


def status(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as stop:  # how the option parser leaves
        return int(stop.code or 0)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["trian"], "unknown command trian; did you mean train?"),
        (["train"], "the name of an algorithm is missing; known: ppo"),
        (["train", "pppo"], "unknown algorithm pppo; did you mean ppo?"),
        (["train", "ppo", "--env", "CartPol-v1"], "did you mean CartPole-v1?"),
        (["train", "ppo", "--env=CartPol-v1", "--backend=pure"], "did you mean CartPole-v1?"),
        (["train", "ppo", "--preset", "cleanlr"], "unknown preset cleanlr; did you mean cleanrl?"),
        (["train", "ppo", "--sedes", "3"], "--seeds INT"),
        (["train", "ppo", "--learning-rte", "3"], "--learning-rate FLOAT"),
        (["train", "ppo", "--gamma", "1.5"], "gamma is 1.5, expected float in [0, 1]"),
        (["train", "ppo", "--num-minibatches", "7"], "the nearest valid values are 4 or 8"),
        (["train", "ppo", "--activation", "tan"], "tanh"),
        (["train", "ppo", "--seeds", "0", "--directory", os.devnull], "num_seeds is 0"),
        (["plot"], "DIR"),
        (["plot", "no-such-run"], "metrics.jsonl is not there"),
        (["plot", "x", "--ouput", "y"], "unknown option --ouput; did you mean --output?"),
        (["envs", "--all"], "unknown option --all"),
    ],
)
def test_a_mistake_ends_with_2_and_the_nearest_name(
    arguments: list[str], answer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status(arguments) == 2
    printed = capfd.readouterr()
    assert answer in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ([], "purerl train ppo --env CartPole-v1"),
        (["--help"], "purerl plot DIR..."),
        (["--version"], prl.__version__),
        (["envs"], "MountainCarContinuous-v0"),
        (["train", "ppo", "--help"], "--learning-rate FLOAT"),
        (["plot", "--help"], "--output"),
    ],
)
def test_help_ends_with_0(
    arguments: list[str], answer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status(arguments) == 0
    assert answer in capfd.readouterr().out


def test_every_field_of_the_config_is_an_option_over_the_preset() -> None:
    arguments = ["ppo", "--preset", "cleanrl", "--learning-rate", "0.1", "--hidden-sizes", "8", "9"]
    command = parse_train([*arguments, "--learning-rate-end", "None", "--shared-trunk"])
    expected = prl.ppo.preset("cleanrl", "CartPole-v1")
    assert command.config.hidden_sizes == (8, 9)
    assert command.config.learning_rate == 0.1
    assert command.config.learning_rate_end is None
    assert command.config.shared_trunk
    assert command.config.num_minibatches == expected.num_minibatches
    assert command.run.steps == command.config.total_steps == expected.total_steps


def test_steps_are_the_budget_and_the_horizon_of_the_schedules() -> None:
    command = parse_train(["ppo", "--steps", "3000"])
    assert (command.run.steps, command.config.total_steps) == (3000, 3000)
    command = parse_train(["ppo", "--steps", "3000", "--total-steps", "9000"])
    assert (command.run.steps, command.config.total_steps) == (3000, 9000)


def test_train_leaves_a_table_a_picture_and_files_and_plot_draws_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    arguments = ["train", "ppo", "--seeds", "2", "--steps", "100", "--directory"]
    small = [*SMALL, "--evaluate-episodes", "1", "--threads", str(threads)]
    assert main([*arguments, str(tmp_path / "run"), *small]) == 0
    printed = capsys.readouterr().out
    assert "2 seeds × 128 steps (100 asked for), 4 train steps of 32" in printed
    assert "return (last 100)  evaluation (1 episodes)" in printed
    assert f"files in {tmp_path / 'run'}" in printed
    assert main([*arguments, str(tmp_path / "run"), *small, "--no-progress"]) == 0
    printed = capsys.readouterr().out
    assert f"files in {tmp_path / 'run-2'}" in printed
    assert "train steps" not in printed
    both = [str(tmp_path / "run"), str(tmp_path / "run-2")]
    assert main(["plot", *both, "--output", str(tmp_path / "both.png")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'both.png'}\n"
    assert (tmp_path / "both.png").exists()


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert status(["train", "ppo"]) == 2
    assert "pip install 'purerl[cli,plot]'" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (tmp_path / "metrics.jsonl").write_text('{"env_steps": 1, "episode/recent_return_mean": [1]}')
    assert status(["plot", str(tmp_path)]) == 2
    assert "pip install 'purerl[plot]'" in capfd.readouterr().err


def test_a_failing_environment_ends_with_1_and_what_was_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain_step = prl.envs.HostEnvironment.step
    calls = iter(range(100))

    def step(host: prl.envs.HostEnvironment, action: torch.Tensor) -> prl.envs.HostStep:
        if next(calls) == 20:
            raise EnvError("CartPole-v1 failed in step, environment 1, step 20")
        return plain_step(host, action)

    monkeypatch.setattr(prl.envs.HostEnvironment, "step", step)
    arguments = ["train", "ppo", "--backend", "gymnasium", "--steps", "64", *SMALL]
    threads = ["--threads", str(torch.get_num_threads())]
    assert main([*arguments, *threads, "--directory", str(tmp_path / "run")]) == 1
    first, second = capfd.readouterr().err.splitlines()
    assert first == "purerl: CartPole-v1 failed in step, environment 1, step 20"
    assert second.startswith("The run ended after 1 of 2 train steps, 32 environment steps")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1


def test_train_goes_through_gymnasium_with_its_own_evaluation(tmp_path: Path) -> None:
    arguments = ["train", "ppo", "--backend", "gymnasium", "--seeds", "2", "--steps", "64"]
    small = [*SMALL, "--evaluate-episodes", "1", "--threads", str(torch.get_num_threads())]
    assert main([*arguments, *small, "--directory", str(tmp_path / "run"), "--no-progress"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["backend"] == "host"
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["env_steps"] == 64
    assert all(value > 5 for value in last["evaluation/return_mean"])


PURERL = [sys.executable, "-c", "import sys; from purerl.run.cli import main; sys.exit(main())"]


def test_ctrl_c_ends_with_130_and_everything_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = ["train", "ppo", "--steps", "10000000", "--directory", str(folder), *SMALL]
    process = subprocess.Popen(
        [*PURERL, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and process.poll() is None:
        assert time.monotonic() < deadline, "no record was written"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] is False
    last = json.loads(metrics.read_text().splitlines()[-1])
    assert last["env_steps"] == summary["env_steps"]
    assert (folder / "learning_curve.png").exists()


def test_a_reader_that_leaves_does_not_stop_the_command(tmp_path: Path) -> None:
    command = ["train", "ppo", "--steps", "64", "--directory", str(tmp_path / "run"), *SMALL]
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [*PURERL, *command], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120
    )
    os.close(writing)
    assert "Traceback" not in process.stderr
    assert (tmp_path / "run" / "summary.json").exists()
