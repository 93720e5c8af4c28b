"""Returns of n steps, as targets and as transitions for replay."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import check, recurrence
from ..errors import ConfigError
from ..types import Scalar
from .td import td1
from .window import TRACE, Window, following, window


class NStepTransition(NamedTuple):
    """n rows merged into one transition; all fields are shaped like the reward."""

    reward: Tensor
    """R = Σ_{k<steps} γ^k r_{t+k}."""
    steps: Tensor
    """int64, from 1 to n: bootstrap from the successor with γ^steps."""
    last_row: Tensor
    """int64, t + steps − 1: the row whose next observation is the successor."""
    terminated: Tensor
    """bool, of the last merged row."""
    truncated: Tensor
    """bool, of the last merged row."""


def n_step(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    n: int,
    gamma: Scalar = 0.99,
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> Tensor:
    """Return n-step targets, with fewer steps at the end of an episode or of the window.

        b_t = where(e_t, 0, v'_t)
        G¹_t = r_t + γ_t b_t;    Gⁿ_t = r_t + γ_t where(d_t or t = T−1, b_t, Gⁿ⁻¹_{t+1})

    Args:
        reward: floating ``[T, *B]``.
        next_value: ``[T, *B]``, v of the true successor.
        terminated: bool ``[T, *B]``, e.
        truncated: bool ``[T, *B]``; d is either flag.
        n: at least 1; from T on it is `td1`.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
        ConfigError: n is less than 1.

    Source: Sutton and Barto 2018, equation 7.1.

    >>> no = torch.zeros(3, dtype=torch.bool)
    >>> n_step(torch.ones(3), torch.full((3,), 4.0), no, no, n=2, gamma=0.5)
    tensor([2.5000, 2.5000, 3.0000])
    """
    _check_steps(n)
    inputs = {"reward": reward, "next_value": next_value}
    flags = (terminated, truncated, mask)
    w = window(inputs, *flags, dim=dim, differentiable=differentiable, gamma=gamma)
    if n >= w.gate.shape[0]:
        return td1(
            reward,
            next_value,
            terminated,
            truncated,
            gamma=gamma,
            mask=mask,
            differentiable=differentiable,
            dim=dim,
        )
    r, b, discount = w.rows(reward), w.bootstrap(w.rows(next_value)), w.coefficient(gamma)
    g = torch.addcmul(r, b, discount)
    for _ in range(n - 1):
        g = torch.addcmul(r, w.where_cut(b, following(g, b[-1:])), discount)
    return w.result(g)


def n_step_transition(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    n: int,
    gamma: Scalar = 0.99,
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> NStepTransition:
    """Return up to n rows merged into one transition for replay, for each row.

        n_t = rows from t to the first done, the end of the window or t + n − 1;
        R_t = Σ_{k<n_t} γ^k r_{t+k}

    ``td0(R, v(successor), terminated, gamma=γ, steps=n_t)`` is `n_step`.

    Args:
        reward: floating ``[T, *B]``.
        terminated: bool ``[T, *B]``.
        truncated: bool ``[T, *B]``.
        n: at least 1.
        gamma: discount; a number or 0-d.
        mask: bool ``[T, *B]``; an invalid row has reward 0 and one step.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
        ConfigError: n is less than 1.

    >>> no = torch.zeros(3, dtype=torch.bool)
    >>> merged = n_step_transition(torch.ones(3), no, no, n=2, gamma=0.5)
    >>> merged.reward, merged.steps, merged.last_row
    (tensor([1.5000, 1.5000, 1.0000]), tensor([2, 2, 1]), tensor([1, 2, 2]))
    """
    _check_steps(n)
    flags = (terminated, truncated, mask)
    w = window({"reward": reward}, *flags, dim=dim, differentiable=differentiable)
    if isinstance(gamma, Tensor):
        check.shape("gamma", gamma)
    r, discount = w.rows(reward), w.coefficient(gamma)
    merged, steps = r.clone(), torch.ones_like(r, dtype=torch.int64)
    goes_on = w.gate > TRACE
    for _ in range(min(n, r.shape[0]) - 1):
        later = recurrence.gated(following(merged, torch.zeros_like(r[:1])), w.gate)
        merged = torch.addcmul(r, later, discount)
        more = following(steps, torch.zeros_like(steps[:1]))
        steps = 1 + torch.where(goes_on, more, torch.zeros_like(more))
    steps = steps.movedim(0, dim)
    last_row = steps + _row_number(w) - 1
    return NStepTransition(
        reward=w.result(merged),
        steps=steps,
        last_row=last_row,
        terminated=terminated.gather(dim, last_row),
        truncated=truncated.gather(dim, last_row),
    )


def _check_steps(n: int) -> None:
    if n < 1:
        raise ConfigError(f"n is {n}, expected at least 1")


def _row_number(w: Window) -> Tensor:
    """Return t at row t, in the layout of the inputs, to be broadcast."""
    t = torch.arange(w.gate.shape[0], device=w.gate.device)
    return t.reshape(-1, *[1] * (w.gate.ndim - 1)).movedim(0, w.dim)
