"""The command ``purerl``: train, plot, envs, conformance."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from .. import envs, random
from ..conformance import command as conformance
from ..errors import ConfigError, PurerlError, did_you_mean
from . import directory as run_directory
from . import report
from .algorithm import short_name
from .options import Command, is_pure, make_host, parse_train
from .plot import learning_curve
from .progress import say
from .train import Result, train

HELP = """\
purerl: reinforcement learning as pure functions in PyTorch

  purerl train ppo --env CartPole-v1 --seeds 8 --steps 150000
  purerl train ppo --help               every option, with the defaults of --env and --preset
  purerl plot DIR... [--output PATH]    learning curves of one or several runs
  purerl envs                           the environments
  purerl conformance MODULE:FUNCTION --kind gae
                                        is your own function right, and if not, what is wrong
  purerl --version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 success; 1 an environment or the system failed; 2 a mistake in what was asked for;
    130 stopped by Ctrl-C, with everything written that was reached.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _dispatch(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has left; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted; what was logged is kept", 130)
    except ConfigError as error:
        return _fail(_message(error), 2)
    except (PurerlError, OSError) as error:
        return _fail(_message(error), 1)
    return status


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "plot": _plot,
        "envs": _envs,
        "conformance": conformance.main,
    }
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if name == "--version":
        versions = run_directory.versions()
        print(f"purerl {versions['purerl']} (torch {versions['torch']})")
        return 0
    if name not in commands:
        raise ConfigError(f"unknown command {name}{did_you_mean(name, commands)}")
    return commands[name](arguments[1:])


def _train(arguments: list[str]) -> int:
    command = parse_train(arguments)
    if command.run.threads < 1:
        raise ConfigError(f"threads is {command.run.threads}, expected at least 1")
    torch.set_num_threads(command.run.threads)
    with _interruptible() as interrupted:
        result = _run(command, interrupted)
    print()
    report.show(result)
    print(f"files in {result.directory}{os.sep}")
    if result.evaluation_error is not None:
        return _fail(f"the evaluation failed: {result.evaluation_error}", 1)
    return 130 if interrupted() else 0


def _run(command: Command, interrupted: Callable[[], bool]) -> Result:
    options = command.run
    asked = options.directory or run_directory.default_directory(
        options.env, short_name(command.algorithm)
    )
    with ExitStack() as stack:
        env: envs.Environment | envs.HostEnvironment
        if is_pure(options.env, options.backend):
            env = envs.make(options.env)
        else:
            env = make_host(options.env, options.seeds * command.config.num_envs)
            stack.callback(env.close)
        return train(
            command.algorithm,
            command.config,
            env,
            key=random.key(options.seed),
            num_seeds=options.seeds,
            total_steps=options.steps,
            evaluate_episodes=options.evaluate_episodes,
            evaluate_every=options.evaluate_every,
            deterministic_evaluation=options.deterministic_evaluation,
            make_env=partial(make_host, options.env),
            directory=asked,
            progress=options.progress,
            stop=interrupted,
        )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed; a second one stops at once."""
    pressed = False

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        say(sys.stderr, "\nstopping after this train step; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like any other, with the nearest option."""

    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            wrong = message.removeprefix(prefix).split()[0]
            known = [option for action in self._actions for option in action.option_strings]
            message = f"unknown option {wrong}{did_you_mean(wrong, known)}"
        raise ConfigError(message)


def _plot(arguments: list[str]) -> int:
    parser = _Parser(prog="purerl plot", allow_abbrev=False, description="Draw learning curves.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="of runs")
    parser.add_argument("--output", type=Path, help="the picture (default: into the first DIR)")
    parser.add_argument("--metric", help="instead of the return, such as stat/entropy")
    parser.add_argument("--title")
    options = parser.parse_args(arguments)
    first: Path = options.directories[0]
    name = "comparison.png" if len(options.directories) > 1 else run_directory.CURVE
    metric = {} if options.metric is None else {"metric": options.metric}
    output = options.output or first / name
    print(learning_curve(options.directories, output, title=options.title, **metric))
    return 0


def _envs(arguments: list[str]) -> int:
    _Parser(prog="purerl envs", description="List the environments.").parse_args(arguments)
    rows = []
    for env_id in envs.ENVIRONMENTS:
        env = envs.make(env_id)
        limit = "–" if env.max_episode_steps is None else str(env.max_episode_steps)
        rows.append([env_id, _space(env.observation_space), _space(env.action_space), limit])
    headers = ["environment", "observation", "action", "time limit"]
    report.print_table(headers, rows, [], sys.stdout, left=3)
    print("\nThese are pure functions in torch; any other id is looked up in gymnasium.")
    return 0


def _space(space: object) -> str:
    """Return a space in a few characters: its kind and its shape or size."""
    size = getattr(space, "n", None)
    return f"{type(space).__name__}({size or ', '.join(map(str, getattr(space, 'shape', ())))})"


def _message(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def _fail(message: str, status: int) -> int:
    say(sys.stderr, f"purerl: {message}")
    return status
