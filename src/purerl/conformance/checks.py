"""The checks: one function for each kind of function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from .. import check
from .estimators import GAE, RETURNS, VTRACE
from .examine import examine
from .kind import Kind
from .objectives import NORMALIZE_ADVANTAGE, PPO_LOSS, SAC_TARGET, TANH_NORMAL, VALUE_LOSS
from .report import Report
from .subject import Framework, Subject

ReturnKind: TypeAlias = Literal["td0", "td1", "td_lambda", "n_step", "reward_to_go"]
Function: TypeAlias = Callable[..., Any]

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        GAE,
        VTRACE,
        *RETURNS.values(),
        PPO_LOSS,
        VALUE_LOSS,
        SAC_TARGET,
        TANH_NORMAL,
        NORMALIZE_ADVANTAGE,
    )
}
"""Every kind of function that `check_function` knows."""


def check_function(
    kind: str,
    function: Function,
    *,
    arguments: Mapping[str, str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    time_axis: int | None = None,
    framework: Framework = "numpy",
    dtype: Literal["float32", "float64"] = "float64",
    select: Function | None = None,
    rtol: float | None = None,
) -> Report:
    """Run the fixtures and laws of a kind against a function and report what holds.

    The function is called by keyword, and is told from the truth by its numbers alone. The truth
    is purerl's own function in float64; a report never speaks of style or speed.

    Args:
        kind: a name in `KINDS`.
        function: yours, of NumPy arrays or tensors; what it returns may be arrays of NumPy, torch
            or JAX, a tuple of them, or a mapping with purerl's names.
        arguments: your names for purerl's arguments, ``{"reward": "rewards"}``; names that are
            the same need not be said.
        fixed: numbers that are built into your function, by purerl's names.
        time_axis: None for inputs ``[T]``; an axis for inputs ``[T, B]`` with time moved there.
        framework: what the function wants.
        dtype: of the floating inputs.
        select: from what the function returns to the outputs of the kind, where they do not come
            first.
        rtol: relative tolerance; None takes 1e-9 in float64 and 1e-4 in float32.

    Raises:
        ConfigError: an unknown kind or argument, or a parameter that the function lacks.

    >>> def my_td0(reward, next_value, terminated, truncated, gamma):
    ...     return reward + gamma * next_value * (1 - (terminated | truncated))
    >>> report = check_function("td0", my_td0)
    >>> report.passed, report.mistake.sentence
    (False, 'truncation treated as termination')
    """
    known = KINDS[check.option("kind", kind, tuple(KINDS))]
    subject = Subject(
        function=function,
        kind=known,
        arguments=arguments or {},
        fixed=fixed or {},
        time_axis=time_axis,
        framework=framework,
        dtype=dtype,
        select=select,
    )
    return examine(subject, rtol=rtol)


def check_returns(
    function: Function,
    kind: ReturnKind,
    *,
    arguments: Mapping[str, str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    time_axis: int | None = None,
    framework: Framework = "numpy",
    dtype: Literal["float32", "float64"] = "float64",
    select: Function | None = None,
    rtol: float | None = None,
) -> Report:
    """Check a function like one of `purerl.returns`; options as of `check_function`.

    Args:
        function: of ``reward, next_value, terminated, truncated`` and ``gamma``, with ``lmbda``
            or ``n`` where the kind has it; reward-to-go takes no ``next_value``.
        kind: which return.
        arguments: see `check_function`.
        fixed: see `check_function`.
        time_axis: see `check_function`.
        framework: see `check_function`.
        dtype: see `check_function`.
        select: see `check_function`.
        rtol: see `check_function`.

    >>> from purerl import returns
    >>> check_returns(returns.td_lambda, "td_lambda", framework="torch").passed
    True
    """
    check.option("kind", kind, tuple(RETURNS))
    return check_function(
        kind,
        function,
        arguments=arguments,
        fixed=fixed,
        time_axis=time_axis,
        framework=framework,
        dtype=dtype,
        select=select,
        rtol=rtol,
    )


class Check(Protocol):
    """A check of one kind of function."""

    def __call__(
        self,
        function: Function,
        *,
        arguments: Mapping[str, str] | None = None,
        fixed: Mapping[str, Any] | None = None,
        time_axis: int | None = None,
        framework: Framework = "numpy",
        dtype: Literal["float32", "float64"] = "float64",
        select: Function | None = None,
        rtol: float | None = None,
    ) -> Report:
        """Return the report of a function; arguments as of `check_function`."""


def _check(kind: str, what: str, example: str = "") -> Check:
    """Return `check_function` for one kind, as a function with a name and a docstring."""

    def check_kind(
        function: Function,
        *,
        arguments: Mapping[str, str] | None = None,
        fixed: Mapping[str, Any] | None = None,
        time_axis: int | None = None,
        framework: Framework = "numpy",
        dtype: Literal["float32", "float64"] = "float64",
        select: Function | None = None,
        rtol: float | None = None,
    ) -> Report:
        return check_function(
            kind,
            function,
            arguments=arguments,
            fixed=fixed,
            time_axis=time_axis,
            framework=framework,
            dtype=dtype,
            select=select,
            rtol=rtol,
        )

    check_kind.__name__ = check_kind.__qualname__ = f"check_{kind}"
    check_kind.__doc__ = f"""Check a function like `{what}`; options as of `check_function`.

    >>> from purerl import {what.partition(".")[0]}
    >>> check_{kind}({example or what}, framework="torch").passed
    True
    """
    return check_kind


check_gae = _check("gae", "returns.gae")
check_vtrace = _check("vtrace", "returns.vtrace")
check_ppo_loss = _check("ppo_loss", "losses.ppo_clip")
check_value_loss = _check(
    "value_loss",
    "losses.value_loss",
    "lambda value, value_target: losses.value_loss(value, value_target)",
)
check_sac_target = _check("sac_target", "losses.sac_target")
check_tanh_normal = _check(
    "tanh_normal",
    "distributions.tanh_normal_log_prob",
    "lambda pre_tanh, loc, scale: distributions.tanh_normal_log_prob(pre_tanh, loc, scale)",
)
check_normalize_advantage = _check("normalize_advantage", "losses.normalize_advantage")
