"""Deep Q-learning over discrete actions, plain and double, with masks of legal actions."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check
from ..errors import ShapeError
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import bellman, gather, regression, target_rows
from .rows import Rows, rows


def action_value(q: Tensor, action: Tensor) -> Tensor:
    """Return the values of the actions taken, Q(s, a).

    Args:
        q: ``[*E, *B, A]``, any number of member axes in front.
        action: integer ``[*B]``, in ``[0, A)``.

    Returns:
        ``[*E, *B]``.

    Raises:
        ShapeError: the rows differ, or the action is no integer.

    >>> action_value(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0]))
    tensor([2., 3.])
    """
    check.min_rank("q", q, action.ndim + 1)
    check.integer(action=action)
    found = q.shape[q.ndim - 1 - action.ndim : -1]
    if found != action.shape:
        raise ShapeError(
            f"action has shape {list(action.shape)}, expected {list(found)} as the rows of q "
            f"{list(q.shape)}"
        )
    return gather(q, action)


def dqn_target(
    reward: Tensor,
    next_q: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    next_q_select: Tensor | None = None,
    next_action_mask: Tensor | None = None,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target of (double) Q-learning, a constant.

        a* = argmax_a Q_select(s', a),  Q_select = Q' or, for double Q-learning, the online Q
        y = r + γ^steps where(e, 0, Q'(s', a*))

    Args:
        reward: floating ``[*B]``.
        next_q: Q'(s', ·) of the target network, ``[*B, A]``; anything where terminated.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        next_q_select: ``[*B, A]``, the online network's Q(s', ·), for double Q-learning.
        next_action_mask: bool ``[*B, A]``, True where legal; of equals the first is taken. Where
            no action is legal and the row bootstraps, the target is NaN.
        steps: integer ``[*B]``, rows merged into this one (`returns.n_step_transition`).
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Mnih et al. 2015; van Hasselt et al. 2016 (arXiv:1509.06461), equation 4.

    >>> next_q, online = torch.tensor([[4.0, 2.0, 9.0]]), torch.tensor([[1.0, 5.0, 2.0]])
    >>> alive = torch.tensor([False])
    >>> dqn_target(torch.ones(1), next_q, alive, gamma=0.5, next_q_select=online)
    tensor([2.])
    """
    chosen = next_q if next_q_select is None else next_q_select
    r = target_rows(reward, terminated, next_q, chosen, gamma=gamma, steps=steps, mask=mask)
    next_q = r.events("next_q", next_q.detach())
    chosen = r.events("next_q_select", chosen.detach())
    index, valid = greedy(chosen, next_action_mask)
    value = torch.where(valid, gather(next_q, index), torch.nan)
    y = bellman(r, reward, value, terminated, gamma=gamma, steps=steps)
    return r.per_row(y)


def greedy(q: Tensor, legal: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the best legal action ``[*B]`` of q ``[*B, A]``, and whether the row has one.

    It has none if no action is legal or if a legal one is NaN, which no choice may hide.
    """
    check.boolean(next_action_mask=legal)
    check.same_shape(next_q=q, next_action_mask=legal)
    if legal is not None:
        q = q.masked_fill(~legal, -torch.inf)
    best, index = q.max(-1)
    return index, best > -torch.inf


def dqn(
    q: Tensor,
    action: Tensor,
    target: Tensor,
    *,
    kind: Distance = "huber",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the Q-learning loss.

        L = mean d(Q(s, a), sg(y))

    Args:
        q: Q(s, ·), floating ``[*B, A]``.
        action: integer ``[*B]``, in ``[0, A)``.
        target: y ``[*B]``, from `dqn_target`; carries no gradient.
        kind: the distance d; ``"huber"`` (Stable-Baselines3) or ``"l2"`` (CleanRL, TorchRL,
            PureJaxRL).
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``q_mean``, ``target_mean``, ``td_error_abs_mean``, ``td_error_max`` and
        ``priority`` ``[*B]`` = abs(Q − y).

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Mnih et al. 2015; weights: Schaul et al. 2016 (arXiv:1511.05952).

    >>> dqn(torch.tensor([[1.0, 2.0]]), torch.tensor([1]), torch.tensor([4.0]))[0]
    tensor(1.5000)
    """
    r = rows(
        {"target": target},
        q,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    taken = gather(r.events("q", q), taken_action(r, action))
    return regression(r, taken.unsqueeze(0), r.constant(target), kind=kind)


def taken_action(r: Rows, action: Tensor) -> Tensor:
    """Return the actions ``[*B]`` of a loss, 0 on masked rows, where any number may stand."""
    check.integer(action=action)
    if action.shape != r.example.shape:
        raise ShapeError(
            f"action has shape {list(action.shape)}, expected {list(r.example.shape)} as {r.name}"
        )
    return action if r.mask is None else torch.where(r.mask, action, torch.zeros_like(action))
