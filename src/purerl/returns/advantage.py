"""Generalised advantage estimation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import check, recurrence
from ..types import Scalar
from .window import window


class Advantage(NamedTuple):
    """What `gae` returns."""

    advantage: Tensor
    """A, shaped like the reward."""
    value_target: Tensor
    """A + v, the critic's target, shaped like the reward."""


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    lmbda: Scalar = 0.95,
    carry: Tensor | None = None,
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> Advantage:
    """Return generalised advantages and the critic's targets.

        δ_t = r_t + γ_t where(e_t, 0, v'_t) − v_t
        A_t = δ_t + γ_t λ_t where(d_t, 0, A_{t+1}),  A_T = carry;    value_target = A + v

    Args:
        reward: floating ``[T, *B]``.
        value: ``[T, *B]``, v of the state acted in.
        next_value: ``[T, *B]``, v of the true successor.
        terminated: bool ``[T, *B]``, e.
        truncated: bool ``[T, *B]``; d is either flag.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        lmbda: trace parameter, likewise; 0 gives δ, 1 bootstrapped Monte Carlo minus v.
        carry: ``[*B]``, the advantage of the first row beyond the window, which makes chunks
            equal to the whole; default 0.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.

    Source: Schulman et al. 2016 (arXiv:1506.02438), equations 11-16; a truncated row bootstraps
    and ends the sum.

    >>> reward, value, next_value = torch.tensor([[1.0, 0.0], [0.5, 0.25], [0.25, 1.0]])
    >>> terminated, truncated = torch.tensor([[False, False], [True, False]])
    >>> gae(reward, value, next_value, terminated, truncated, gamma=0.5, lmbda=0.5)
    Advantage(advantage=tensor([0.6250, 0.2500]), value_target=tensor([1.1250, 0.5000]))
    """
    inputs = {"reward": reward, "value": value, "next_value": next_value}
    flags = (terminated, truncated, mask)
    w = window(inputs, *flags, dim=dim, differentiable=differentiable, gamma=gamma, lmbda=lmbda)
    v = w.rows(value)
    if carry is not None:
        check.floating(carry=carry)
        check.shape("carry", carry, *v.shape[1:])
    target = torch.addcmul(w.rows(reward), w.bootstrap(w.rows(next_value)), w.coefficient(gamma))
    advantage = recurrence.backward(w.decay(gamma, lmbda), target - v, w.gate, carry)
    return Advantage(w.result(advantage), w.result(advantage + v))
