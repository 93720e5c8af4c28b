from __future__ import annotations

import csv
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.run import counting

import purerl as prl
from purerl import run
from purerl.errors import ConfigError, EnvError

ENV = prl.envs.make("CartPole-v1")
PPO = prl.ppo.Config(num_envs=2, num_steps=32, num_epochs=1, num_minibatches=1)
COUNTING = counting.Config()
KEY = prl.random.key(7)

train_ppo = partial(run.train, prl.ppo, PPO, ENV, progress=False)
train_counting = partial(run.train, counting, COUNTING, ENV, progress=False)


class Recorder:
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.metrics: list[dict[str, list[float]]] = []
        self.closed = 0

    def write(self, step: int, metrics: Any) -> None:
        self.steps.append(step)
        self.metrics.append(dict(metrics))

    def close(self) -> None:
        self.closed += 1


class Broken:
    def write(self, step: int, metrics: Any) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_member_of_a_run_is_the_loop_of_train_steps_from_its_own_key() -> None:
    result = train_ppo(key=KEY, num_seeds=3, total_steps=192)
    state = prl.ppo.init(PPO, ENV, prl.random.split(KEY, 3)[1])
    for _ in range(3):
        state, _metrics = prl.ppo.train_step(PPO, ENV, state)
    assert torch.equal(result.state[1].key, state.key)
    torch.testing.assert_close(
        prl.tree.leaves(result.state[1].params), prl.tree.leaves(state.params), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("num_seeds", [1, 3])
def test_a_result_has_a_row_for_every_seed_and_train_step(num_seeds: int) -> None:
    result = train_ppo(key=KEY, num_seeds=num_seeds, total_steps=130, evaluate_episodes=2)
    assert result.plan.total_steps == 192  # rounded up to three train steps of 64
    assert "3 train steps of 64" in str(result.plan)
    assert "(130 asked for)" in str(result.plan)
    assert result.returns.shape == result.state.batch_size == (num_seeds,)
    assert result.evaluation is not None
    assert result.evaluation.shape == (num_seeds,)
    assert result.history.batch_size == (3, num_seeds)
    assert result.history["env_steps"][:, 0].tolist() == [64, 128, 192]
    assert result.history["episode", "count"].dtype is torch.int64
    assert result.history["loss", "policy"].isfinite().all()
    assert set(result.timings) == {"init", "train", "evaluate", "log", "total"}


def test_returns_are_the_mean_of_the_last_100_episodes() -> None:
    result = train_counting(key=KEY, num_seeds=2, total_steps=8 * 80)
    per_update = result.history["episode", "return_mean"].double()  # two episodes an update
    torch.testing.assert_close(result.returns.double(), per_update[-50:].mean(0))


def test_returns_are_nan_where_no_episode_completed() -> None:
    config = prl.ppo.Config(num_envs=1, num_steps=4, num_epochs=1, num_minibatches=1)
    result = run.train(prl.ppo, config, ENV, key=KEY, num_seeds=2, total_steps=4, progress=False)
    assert result.returns.isnan().all()


def test_logging_evaluation_and_files_change_nothing_in_training(tmp_path: Path) -> None:
    plain = train_ppo(key=KEY, num_seeds=2, total_steps=192)
    busy = train_ppo(
        key=KEY,
        num_seeds=2,
        total_steps=192,
        evaluate_episodes=1,
        evaluate_every=64,
        loggers=[Recorder(), Recorder(), Broken()],
        directory=tmp_path / "run",
    )
    assert prl.tree.equal(plain.state, busy.state)


def test_a_run_leaves_global_state_alone() -> None:
    before = (torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled())
    train_ppo(key=KEY, total_steps=64, evaluate_episodes=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.is_grad_enabled())


def test_loggers_get_one_number_a_seed_after_every_train_step_and_are_closed() -> None:
    recorder = Recorder()
    train_counting(key=KEY, num_seeds=3, total_steps=24, loggers=[recorder])
    assert recorder.steps == [8, 16, 24]
    assert recorder.metrics[1]["loss/policy"] == [0.5, 0.5, 0.5]
    assert recorder.closed == 1
    assert all(len(values) == 3 for row in recorder.metrics for values in row.values())


def test_a_failing_logger_is_reported_once_and_does_not_stop_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    with caplog.at_level(logging.WARNING, "purerl"):
        train_counting(key=KEY, total_steps=40, loggers=[Broken(), recorder])
    assert recorder.steps == [8, 16, 24, 32, 40]
    first, dropped, closing = (record.getMessage() for record in caplog.records)
    assert first.startswith("Broken failed at step 8 (OSError: [Errno 28]")
    assert dropped == "Broken dropped 5 record(s)"
    assert "failed to close" in closing


def test_evaluations_come_at_their_multiples_and_at_the_end() -> None:
    recorder = Recorder()
    result = train_counting(
        key=KEY, total_steps=40, evaluate_episodes=3, evaluate_every=12, loggers=[recorder]
    )
    values = torch.tensor([row["evaluation/return_mean"][0] for row in recorder.metrics])
    assert values.isfinite().tolist() == [False, True, True, False, True]  # 16, 24, and the end
    assert result.evaluation is not None
    assert result.evaluation.tolist() == recorder.metrics[-1]["evaluation/return_mean"]
    assert result.evaluated is not None
    assert result.evaluated.return_.shape == (1, 3)


def test_stop_ends_a_run_after_the_train_step_at_hand() -> None:
    answers = iter([False, True])
    result = train_counting(
        key=KEY, total_steps=80, stop=lambda: next(answers), evaluate_episodes=1
    )
    assert result.history["env_steps"][:, 0].tolist() == [8, 16]
    assert result.evaluation is not None
    assert result.plan.num_updates == 10


class FailsAtThree:
    """The counting algorithm with an environment that breaks in the third train step."""

    __name__ = "failing"
    init = staticmethod(counting.init)
    act = staticmethod(counting.act)
    host_train_step = staticmethod(counting.host_train_step)
    steps_per_train_step = staticmethod(counting.steps_per_train_step)

    def __init__(self, error: BaseException) -> None:
        self.error, self.calls = error, 0

    def train_step(self, config: Any, env: Any, state: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise self.error
        return counting.train_step(config, env, state)


@pytest.mark.parametrize("error", [EnvError("CartPole-v1 failed"), KeyboardInterrupt()])
def test_a_failure_carries_what_was_reached_and_the_logs_are_whole(
    error: BaseException, tmp_path: Path
) -> None:
    recorder = Recorder()
    with pytest.raises(type(error)) as caught:
        run.train(
            FailsAtThree(error),
            COUNTING,
            ENV,
            key=KEY,
            num_seeds=2,
            total_steps=80,
            loggers=[recorder],
            directory=tmp_path / "run",
            progress=False,
        )
    (note,) = caught.value.__notes__
    assert note.startswith("The run ended after 2 of 10 train steps, 16 environment steps of each")
    assert "mean return of the last 100 episodes by seed: " in note
    assert str(tmp_path / "run") in note
    assert recorder.closed == 1
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["env_steps"] for line in lines] == [8, 16]


def test_a_failed_evaluation_does_not_cost_what_was_learned(tmp_path: Path) -> None:
    def broken(num_envs: int) -> prl.envs.HostEnvironment:
        raise EnvError("no screen")

    host = prl.envs.gymnasium("CartPole-v1", num_envs=2)
    result = run.train(
        counting,
        COUNTING,
        host,
        key=KEY,
        total_steps=8,
        evaluate_episodes=1,
        make_env=broken,
        directory=tmp_path / "run",
        progress=False,
    )
    host.close()
    assert str(result.evaluation_error) == "no screen"
    assert result.evaluation is None
    assert result.state is not None
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_host_run_steps_all_seeds_in_one_environment() -> None:
    host = prl.envs.gymnasium("CartPole-v1", num_envs=6)
    result = run.train(
        counting,
        COUNTING,
        host,
        key=KEY,
        num_seeds=3,
        total_steps=80,
        evaluate_episodes=2,
        make_env=lambda num_envs: prl.envs.gymnasium("CartPole-v1", num_envs),
        progress=False,
    )
    host.close()
    assert result.plan.backend == "host"
    assert result.history.batch_size == (10, 3)
    # always pushing left ends an episode after about ten steps
    assert ((result.returns > 7) & (result.returns < 12)).all()
    assert result.evaluation is not None
    assert ((result.evaluation > 7) & (result.evaluation < 12)).all()
    again = prl.envs.gymnasium("CartPole-v1", num_envs=6)
    repeated = run.train(
        counting, COUNTING, again, key=KEY, num_seeds=3, total_steps=80, progress=False
    )
    again.close()
    assert torch.equal(result.returns, repeated.returns)


def test_a_host_environment_of_the_wrong_size_is_told_the_right_one() -> None:
    host = prl.envs.gymnasium("CartPole-v1", num_envs=4)
    with pytest.raises(ConfigError, match=r"num_seeds · config.num_envs = 3 · 2 = 6; make it"):
        run.train(counting, COUNTING, host, key=KEY, num_seeds=3, total_steps=8)
    with pytest.raises(ConfigError, match="give make_env"):
        run.train(
            counting, COUNTING, host, key=KEY, num_seeds=2, total_steps=8, evaluate_episodes=1
        )
    host.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_seeds": 0}, "num_seeds is 0, expected at least 1"),
        ({"total_steps": 0}, "total_steps is 0, expected at least 1"),
        ({"evaluate_every": 8}, "evaluate_episodes is 0, expected at least 1"),
        ({"evaluate_every": 0, "evaluate_episodes": 1}, "evaluate_every is 0"),
    ],
)
def test_wrong_counts_are_told_before_anything_starts(
    wrong: dict[str, int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        train_counting(**{"key": KEY, "total_steps": 8, "directory": tmp_path / "run", **wrong})
    assert not (tmp_path / "run").exists()


def test_a_run_directory_holds_config_metrics_table_picture_and_summary(tmp_path: Path) -> None:
    result = train_ppo(
        key=KEY, num_seeds=2, total_steps=128, evaluate_episodes=2, directory=tmp_path / "run"
    )
    folder = result.directory
    assert folder == tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "metrics.csv",
        "summary.json",
        "learning_curve.png",
    }
    config = json.loads((folder / "config.json").read_text())
    assert config["config"]["num_envs"] == 2
    assert config["versions"]["torch"] == torch.__version__
    assert config["total_steps"] == 128
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] is True
    assert summary["evaluation"] == pytest.approx(result.evaluation.tolist())
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["env_steps"], row["seed"]) for row in rows] == [
        ("64", "0"),
        ("64", "1"),
        ("128", "0"),
        ("128", "1"),
    ]
    policy = result.history["loss", "policy"].double().flatten().tolist()
    assert [float(row["loss/policy"]) for row in rows] == policy


def test_a_run_never_writes_into_a_directory_that_is_not_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = train_counting(key=KEY, total_steps=8, directory=tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    second = train_counting(key=KEY, total_steps=16, directory=tmp_path / "run")
    third = train_counting(key=KEY, total_steps=8, directory=tmp_path / "run")
    assert [result.directory for result in (first, second, third)] == [
        tmp_path / "run",
        tmp_path / "run-2",
        tmp_path / "run-3",
    ]
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert caplog.messages[-1] == (
        f"{tmp_path / 'run'} is not empty and stays as it is; "
        f"this run writes to {tmp_path / 'run-3'}"
    )
