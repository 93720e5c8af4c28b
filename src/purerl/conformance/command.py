"""The command ``purerl conformance module:function --kind gae``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import ConfigError, did_you_mean
from .checks import KINDS, check_function


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see purerl conformance --help")


def main(arguments: Sequence[str]) -> int:
    """Check a function by its import path, print the report, and return 0 if it conforms.

    Raises:
        ConfigError: nothing can be imported there, or a wrong option.
    """
    parser = _Parser(
        prog="purerl conformance",
        allow_abbrev=False,
        description="Say whether a function is right, and if not, which known mistake it is.",
    )
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="looked up from here")
    parser.add_argument("--kind", required=True, help=f"one of {', '.join(KINDS)}")
    parser.add_argument(
        "--arguments",
        type=_pairs,
        default={},
        metavar="NAME=YOURS,...",
        help="your names for purerl's arguments, such as reward=rewards",
    )
    parser.add_argument(
        "--fixed",
        type=_pairs,
        default={},
        metavar="NAME=NUMBER,...",
        help="numbers built into the function, such as gamma=0.99",
    )
    parser.add_argument("--time-axis", type=int, help="give [T, B] with time on this axis")
    parser.add_argument("--framework", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--rtol", type=float, help="relative tolerance")
    options = parser.parse_args(arguments)
    report = check_function(
        options.kind,
        _imported(options.function),
        arguments=options.arguments,
        fixed={name: float(value) for name, value in options.fixed.items()},
        time_axis=options.time_axis,
        framework=options.framework,
        dtype=options.dtype,
        rtol=options.rtol,
    )
    print(report)
    return 0 if report.passed else 1


def _pairs(text: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in text.split(",") if item]
    if any(not middle or not last for _, middle, last in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE,NAME=VALUE")
    return {first.strip(): last.strip() for first, _, last in pairs}


def _imported(path: str) -> Callable[..., Any]:
    """Return the function at ``module:name``, modules of the working directory included."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{path} is not MODULE:FUNCTION, such as my_package.returns:gae")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"cannot import {module_name} from {here}: {error}") from error
    finally:
        sys.path.remove(here)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{module_name} has no {name}{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{path} is a {type(found).__name__}, expected a function")
    function: Callable[..., Any] = found
    return function
