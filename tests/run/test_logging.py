from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from purerl.errors import ConfigError
from purerl.run.logging import CsvLogger, JsonlLogger, read_jsonl


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def test_jsonl_has_one_strict_object_a_line_with_null_for_nan(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    logger = JsonlLogger(path, Clock())
    logger.write(512, {"episode/return_mean": [21.5, math.nan], "x": [math.inf, 1.0]})
    logger.write(1024, {"episode/return_mean": [30.0, 31.0], "x": [0.0, 1.0]})
    first, second = path.read_text().splitlines()  # whole lines before close
    logger.close()
    assert json.loads(first) == {
        "env_steps": 512,
        "update": 1,
        "time": 0.5,
        "episode/return_mean": [21.5, None],
        "x": ["inf", 1.0],
    }
    assert json.loads(second)["update"] == 2
    records = read_jsonl(path)
    assert math.isnan(records[0]["episode/return_mean"][1])
    assert records[0]["x"] == [math.inf, 1.0]


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    logger = JsonlLogger(path)
    logger.write(1, {"x": [1.0]})
    logger.close()
    with path.open("a") as file:
        file.write('{"env_steps": 2, "x": [2.\n')
        file.write('{"env_steps": 3, "x": [3.0]}\n')
    assert [record["env_steps"] for record in read_jsonl(path)] == [1, 3]


def test_a_full_disk_is_an_error_and_the_next_record_begins_a_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    logger = JsonlLogger(path)
    good = logger._file._file
    with open("/dev/full", "wb", buffering=0) as full:
        logger._file._file = full
        with pytest.raises(OSError, match="No space left"):
            logger.write(1, {"x": [1.0]})
    logger._file._file = good
    logger.write(2, {"x": [2.0]})
    logger.close()
    assert path.read_text().startswith("\n")
    assert [record["env_steps"] for record in read_jsonl(path)] == [2]


def test_csv_has_one_row_for_each_update_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    logger = CsvLogger(path, Clock())
    logger.write(64, {"a": [1.0, math.nan], "b": [0.1, 0.2]})
    logger.write(128, {"b": [0.3, 0.4]})
    with pytest.raises(ConfigError, match="bb is no column of the CSV"):
        logger.write(192, {"bb": [0.0, 0.0]})
    logger.close()
    assert path.read_text().splitlines() == [
        "env_steps,update,time,seed,a,b",
        "64,1,0.5000,0,1.0,0.1",
        "64,1,0.5000,1,,0.2",
        "128,2,1.0000,0,,0.3",
        "128,2,1.0000,1,,0.4",
    ]


def test_a_logger_writes_over_no_file(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text("precious")
    with pytest.raises(FileExistsError):
        JsonlLogger(tmp_path / "m.jsonl")


def test_metrics_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there, expected a file of metrics"):
        read_jsonl(tmp_path / "m.jsonl")
