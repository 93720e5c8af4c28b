"""From command-line arguments to a configuration: every field of it is an option."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from .. import envs
from ..algos import ppo
from ..errors import ConfigError, EnvError, PurerlError, did_you_mean

ALGORITHMS: Mapping[str, Any] = MappingProxyType({"ppo": ppo})
"""The algorithms by the name that the command line knows them by."""

MISSING_TYRO = "the command line needs tyro and rich: pip install 'purerl[cli,plot]'"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is run, and how much of it."""

    env: str = "CartPole-v1"
    """Id of an environment; `purerl envs` lists them."""
    preset: str = "purerl"
    """Whose configuration to start from; the options below change single values of it."""
    backend: Literal["auto", "pure", "gymnasium"] = "auto"
    """Environments as pure functions in torch or from gymnasium; auto prefers pure ones."""
    seeds: int = 1
    """Members of the population, all trained at once."""
    steps: int = 0
    """Environment steps of each seed, rounded up to whole train steps; sets --total-steps too."""
    seed: int = 0
    """Seed of the key that everything random comes from."""
    evaluate_episodes: int = 10
    """Episodes of each seed on fresh environments at the end; 0 for none."""
    evaluate_every: int | None = None
    """Evaluate after every so many steps of each seed as well."""
    deterministic_evaluation: bool = True
    """Evaluate the policy's mode instead of its samples."""
    directory: Path | None = None
    """Where to write; default runs/<env>-<algorithm>-<time>. A directory that is not empty is left
    alone: the first free of <directory>-2, <directory>-3, … is taken."""
    threads: int = 1
    """Threads of torch; more than one helps large networks only."""
    progress: bool = True
    """Show how the run gets on."""


@dataclass(frozen=True)
class Command:
    """A parsed command to train."""

    algorithm: Any
    run: RunOptions
    config: Any


def parse_train(arguments: Sequence[str]) -> Command:
    """Return what ``purerl train`` is asked for.

    The preset and the environment are read first: they are the defaults of everything else.

    Raises:
        ConfigError: unknown algorithm, environment or preset, or a value out of range.
        SystemExit: of help (0), and of unknown or ill-typed options (2).
    """
    try:
        import tyro
    except ImportError as error:
        raise ConfigError(MISSING_TYRO) from error
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        name, arguments = "ppo", ["ppo", "--help"]
    if name not in ALGORITHMS:
        what = f"unknown algorithm {name}" if name else "the name of an algorithm is missing"
        raise ConfigError(f"{what}{did_you_mean(name, ALGORITHMS)}")
    algorithm = ALGORITHMS[name]
    run, config = _defaults(algorithm, arguments[1:])

    flat = tyro.conf.OmitArgPrefixes
    fields = [("run", flat[RunOptions]), ("config", flat[type(config)])]
    train_class: Any = dataclasses.make_dataclass("Train", fields, frozen=True, kw_only=True)
    parsed = tyro.cli(
        train_class,
        prog=f"purerl train {name}",
        description=f"Train {name.upper()} on an environment, several seeds at once.",
        args=arguments[1:],
        default=train_class(run=run, config=config),
        # a network is given in Python only, so its field is no option
        config=(tyro.conf.AvoidSubcommands, tyro.conf.SuppressFixed),
    )
    return Command(algorithm, parsed.run, parsed.config)


def is_pure(env_id: str, backend: str) -> bool:
    """Return whether an environment is to be a pure one.

    Raises:
        ConfigError: it is to be, and there is none of this id.
    """
    if backend == "pure":
        envs.make(env_id)
    return backend == "pure" or (backend == "auto" and env_id in envs.ENVIRONMENTS)


def make_host(env_id: str, num_envs: int) -> envs.HostEnvironment:
    """Return gymnasium environments of an id.

    Raises:
        ConfigError: the id is not registered.
        EnvError: it is, but cannot be made here, such as for want of a package.
    """
    try:
        return envs.gymnasium(env_id, num_envs, bounds="count")
    except PurerlError:
        raise
    except Exception as error:
        raise EnvError(f"{env_id} cannot be made: {error}") from error


def _defaults(algorithm: Any, arguments: Sequence[str]) -> tuple[RunOptions, Any]:
    """Return the defaults that the environment, the preset and the number of steps imply."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--env", "--preset", "--steps", "--backend"):
        reader.add_argument(option)
    given, _ = reader.parse_known_args(arguments)
    run = RunOptions()
    env_id = given.env or run.env
    if not is_pure(env_id, given.backend or run.backend):
        make_host(env_id, 1).close()  # says what is wrong with an unknown id
    config = algorithm.preset(given.preset or run.preset, env_id)
    if given.steps is not None and given.steps.isdecimal() and int(given.steps) > 0:
        config = dataclasses.replace(config, total_steps=int(given.steps))
    return dataclasses.replace(run, steps=config.total_steps), config
