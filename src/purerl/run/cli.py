"""The command ``purerl``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

import purerl

from .. import envs, random
from ..algos import ppo
from ..config import to_mapping
from ..errors import PurerlError, did_you_mean
from .plot import learning_curve
from .train import Result, train


class _Parser(argparse.ArgumentParser):
    """A parser that names the nearest valid option."""

    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            known = [option for action in self._actions for option in action.option_strings]
            wrong = message.removeprefix(prefix).split()[0]
            message = f"unknown option {wrong}{did_you_mean(wrong, known)}"
        self.exit(2, f"purerl: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"train": _train, "envs": _envs}
    if not given or given[0] in ("-h", "--help"):
        print("usage: purerl {train,envs} ...\n\n  purerl train ppo --help")
        return 0
    if given[0] not in commands:
        print(f"purerl: unknown command {given[0]}{did_you_mean(given[0], commands)}")
        return 2
    try:
        return commands[given[0]](given[1:])
    except PurerlError as error:
        print(f"purerl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("purerl: interrupted; what was logged is kept", file=sys.stderr)
        return 130


def _envs(_: Sequence[str]) -> int:
    print("\n".join(envs.ENVIRONMENTS))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="purerl train",
        description="Train a population of seeds and show what came of it.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("algorithm", choices=["ppo"])
    parser.add_argument("--env", required=True, help="id of an environment; see purerl envs")
    parser.add_argument(
        "--backend",
        choices=["auto", "pure", "gymnasium"],
        default="auto",
        help="auto takes the pure environment where there is one",
    )
    parser.add_argument("--preset", default="purerl", help="configuration to start from")
    parser.add_argument("--seeds", type=int, default=8, help="members of the population")
    parser.add_argument("--steps", type=int, default=150_000, help="environment steps a seed")
    parser.add_argument("--seed", type=int, default=0, help="of the key that all else comes from")
    parser.add_argument("--evaluate-episodes", type=int, default=10, help="greedy, at the end")
    parser.add_argument("--directory", type=Path, default=None, help="of the run")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--no-progress", action="store_true")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a value of the configuration, as JSON; may be repeated",
    )
    return parser


def _train(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.seeds < 1 or options.steps < 1:
        raise purerl.errors.ConfigError("--seeds and --steps must be at least 1")
    torch.set_num_threads(options.threads)
    values: dict[str, Any] = {}
    for pair in options.set:
        name, _, text = pair.partition("=")
        values[name.replace("-", "_")] = _value(text)
    config = dataclasses.replace(ppo.preset(options.preset, options.env), **values)
    env, evaluation_env = _environments(options, options.seeds * config.num_envs)
    directory = _fresh(options.directory or Path("runs") / f"{options.env}-{options.algorithm}")
    described = {name: str(value) for name, value in to_mapping(config).items()}
    about = {"version": purerl.__version__, "torch": torch.__version__, "seed": options.seed}
    (directory / "config.json").write_text(json.dumps(about | {"config": described}, indent=2))
    result = train(
        ppo,
        config,
        env,
        key=random.key(options.seed),
        num_seeds=options.seeds,
        total_steps=options.steps,
        evaluate_episodes=options.evaluate_episodes if evaluation_env else 0,
        evaluation_env=evaluation_env,
        directory=directory,
        progress=not options.no_progress,
    )
    _report(result, options.env, directory)
    return 0


def _environments(
    options: argparse.Namespace, num_envs: int
) -> tuple[envs.Environment | envs.HostEnvironment, envs.Environment | None]:
    """Return the environment to train in, and a pure one to evaluate in where there is one."""
    pure = options.backend == "pure" or options.env in envs.ENVIRONMENTS
    evaluation_env = envs.make(options.env) if pure else None
    if evaluation_env is not None and options.backend != "gymnasium":
        return evaluation_env, evaluation_env
    return envs.gymnasium(options.env, num_envs), evaluation_env


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _fresh(directory: Path) -> Path:
    """Make the directory, or with -2, -3, … behind its name the first that is free."""
    chosen, number = directory, 1
    while chosen.exists():
        number += 1
        chosen = directory.with_name(f"{directory.name}-{number}")
    chosen.mkdir(parents=True)
    return chosen


def _report(result: Result, env_id: str, directory: Path) -> None:
    """Print the table of seeds and write the picture."""
    print(f"\n{'seed':>6} {'last 100 episodes':>18} {'evaluation':>11}")
    columns = [result.returns]
    if result.evaluation is not None:
        columns.append(result.evaluation)
    for seed, row in enumerate(torch.stack(columns, 1).tolist()):
        print(f"{seed:>6} {row[0]:>18.1f}" + "".join(f" {value:>11.1f}" for value in row[1:]))
    means = [column.nanmean().item() for column in columns]
    print(f"{'mean':>6} {means[0]:>18.1f}" + "".join(f" {value:>11.1f}" for value in means[1:]))
    seconds = result.timings["train"]
    steps = int(result.history["env_steps"][-1]) * len(result.returns)
    print(f"\n{steps:,} environment steps in {seconds:.0f} s: {steps / seconds:,.0f} steps/s")
    title = f"PPO on {env_id}, {len(result.returns)} seeds"
    try:
        picture = learning_curve(
            result.history["env_steps"],
            result.history["episode.return_mean"],
            directory / "learning_curve.png",
            title=title,
        )
        print(f"{picture}")
    except PurerlError as error:
        print(f"purerl: {error}", file=sys.stderr)
    print(f"{directory / 'metrics.jsonl'}")
