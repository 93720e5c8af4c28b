"""Returns of one critic: TD(0), TD(1), TD(λ) and reward-to-go."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, recurrence
from ..errors import ConfigError
from ..types import Scalar
from .window import window

Bootstrap: TypeAlias = Literal["none", "cut"]


def td0(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor | None = None,
    *,
    gamma: Scalar = 0.99,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
    differentiable: bool = False,
) -> Tensor:
    """Return the one-step target G = r + γ^steps where(e, 0, v').

    Args:
        reward: floating ``[N]`` or any shape; rows are independent.
        next_value: like reward, v of the true successor.
        terminated: bool, like reward, e.
        truncated: bool, like reward; changes nothing, as truncated rows bootstrap.
        gamma: discount; a number, 0-d or like reward.
        steps: integer, like reward, rows that were merged into this one (`n_step_transition`);
            default 1.
        mask: bool, like reward; an invalid row yields 0.
        differentiable: let gradients through.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.

    Source: Sutton and Barto 2018, equation 6.2 and section 7.1.

    >>> td0(torch.ones(2), torch.full((2,), 8.0), torch.tensor([True, False]), gamma=0.5)
    tensor([1., 5.])
    """
    inputs = {"reward": reward, "next_value": next_value}
    flags = (terminated, terminated if truncated is None else truncated, mask)
    w = window(inputs, *flags, differentiable=differentiable, gamma=gamma)
    discount = w.coefficient(gamma)
    if steps is not None:
        check.same_shape(reward=reward, steps=steps)
        check.integer(steps=steps)
        # masked, because γ to the power of garbage may be infinite
        discount = w.masked(discount ** steps.to(discount.dtype))
    return w.result(torch.addcmul(w.rows(reward), w.bootstrap(w.rows(next_value)), discount))


def td1(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> Tensor:
    """Return Monte Carlo returns that bootstrap at truncations and at the end of the window.

        G_t = r_t + γ_t where(d_t, where(e_t, 0, v'_t), G_{t+1}),  G_T = v'_{T−1}

    Args:
        reward: floating ``[T, *B]``.
        next_value: ``[T, *B]``, v of the true successor.
        terminated: bool ``[T, *B]``, e.
        truncated: bool ``[T, *B]``; d is either flag.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.

    Source: Sutton and Barto 2018, section 12.1, at λ = 1.

    >>> no, yes = torch.tensor([False, False]), torch.tensor([True, False])
    >>> td1(torch.ones(2), torch.tensor([4.0, 8.0]), no, yes, gamma=0.5)
    tensor([3., 5.])
    """
    inputs = {"reward": reward, "next_value": next_value}
    flags = (terminated, truncated, mask)
    w = window(inputs, *flags, dim=dim, differentiable=differentiable, cut_end=True, gamma=gamma)
    b, discount = w.bootstrap(w.rows(next_value)), w.coefficient(gamma)
    x = torch.addcmul(w.rows(reward), w.where_cut(b, torch.zeros_like(b)), discount)
    return w.result(recurrence.backward(discount, x, w.gate))


def td_lambda(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    lmbda: Scalar = 0.95,
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> Tensor:
    """Return the λ-return: `td0` at λ = 0, `td1` at λ = 1.

        b_t = where(e_t, 0, v'_t)
        G_t = r_t + γ_t ((1 − λ_t) b_t + λ_t where(d_t, b_t, G_{t+1})),  G_T = v'_{T−1}

    It equals advantage + value of `gae` where v'_t = v_{t+1} inside episodes, and differs from
    it where the two come from different critics.

    Args:
        reward: floating ``[T, *B]``.
        next_value: ``[T, *B]``, v of the true successor.
        terminated: bool ``[T, *B]``, e.
        truncated: bool ``[T, *B]``; d is either flag.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        lmbda: trace parameter, likewise.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.

    Source: Sutton and Barto 2018, section 12.1.

    >>> no, yes = torch.tensor([False, False]), torch.tensor([False, True])
    >>> td_lambda(torch.ones(2), torch.tensor([4.0, 8.0]), no, yes, gamma=0.5, lmbda=0.5)
    tensor([3.2500, 5.0000])
    """
    inputs = {"reward": reward, "next_value": next_value}
    flags = (terminated, truncated, mask)
    w = window(
        inputs,
        *flags,
        dim=dim,
        differentiable=differentiable,
        cut_end=True,
        gamma=gamma,
        lmbda=lmbda,
    )
    b = w.bootstrap(w.rows(next_value))
    mixed = w.where_cut(b, w.coefficient(1.0 - lmbda) * b)
    x = torch.addcmul(w.rows(reward), mixed, w.coefficient(gamma))
    return w.result(recurrence.backward(w.decay(gamma, lmbda), x, w.gate))


def reward_to_go(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    next_value: Tensor | None = None,
    bootstrap: Bootstrap = "none",
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> Tensor:
    """Return discounted sums of rewards to the end of the episode or of the window.

        "none"   G_t = r_t + γ_t where(d_t, 0, G_{t+1}),  G_T = 0
        "cut"    `td1`: where an episode was cut, v' stands for the rest

    ``"none"`` (TorchRL's ``reward2go``) counts nothing behind a truncation or the end of the
    window, which is a bias; ``"cut"`` is what Spinning Up calls reward-to-go.

    Args:
        reward: floating ``[T, *B]``.
        terminated: bool ``[T, *B]``.
        truncated: bool ``[T, *B]``; d is either flag.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        next_value: ``[T, *B]``, v of the true successor; for ``"cut"`` only.
        bootstrap: ``"none"`` or ``"cut"``.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
        ConfigError: next_value is missing, or given and not used.

    >>> end = torch.tensor([False, True, False])
    >>> reward_to_go(torch.ones(3), torch.zeros_like(end), end, gamma=0.5)
    tensor([1.5000, 1.0000, 1.0000])
    """
    if check.option("bootstrap", bootstrap, ("none", "cut")) == "cut":
        if next_value is None:
            raise ConfigError("bootstrap is 'cut', which needs next_value")
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
    if next_value is not None:
        raise ConfigError("next_value is given, but bootstrap is 'none'; did you mean 'cut'?")
    flags = (terminated, truncated, mask)
    w = window({"reward": reward}, *flags, dim=dim, differentiable=differentiable, gamma=gamma)
    return w.result(recurrence.backward(w.coefficient(gamma), w.rows(reward), w.gate))
