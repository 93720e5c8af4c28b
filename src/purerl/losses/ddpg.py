"""Deep deterministic policy gradients (DDPG)."""

from __future__ import annotations

from torch import Tensor

from .. import check
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import bellman, regression, target_rows
from .rows import rows


def ddpg_target(
    reward: Tensor,
    next_q: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target of DDPG, a constant.

        y = r + γ^steps where(e, 0, Q'(s', μ'(s')))

    Args:
        reward: floating ``[*B]``.
        next_q: ``[*B]``, the target critic at the target actor's action; anything where
            terminated.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        steps: integer ``[*B]``, rows merged into this one (`returns.n_step_transition`).
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Lillicrap et al. 2016 (arXiv:1509.02971), algorithm 1. TorchRL's class bootstraps from
    the online actor unless ``delay_actor``.

    >>> import torch
    >>> ddpg_target(torch.ones(2), torch.full((2,), 4.0), torch.tensor([True, False]), gamma=0.5)
    tensor([1., 3.])
    """
    check.same_shape(reward=reward, next_q=next_q)
    check.floating(next_q=next_q)
    r = target_rows(reward, terminated, next_q, gamma=gamma, steps=steps, mask=mask)
    y = bellman(r, reward, r.constant(next_q), terminated, gamma=gamma, steps=steps)
    return r.per_row(y)


def ddpg_critic(
    q: Tensor,
    target: Tensor,
    *,
    kind: Distance = "l2",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the critic's loss of DDPG.

        L = mean d(Q(s, a), sg(y))

    Args:
        q: Q(s, a), floating ``[*B]``.
        target: y ``[*B]``; carries no gradient.
        kind: the distance d; ``"l2"`` has no factor ½ (`numerics.distance`).
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

    Source: Lillicrap et al. 2016 (arXiv:1509.02971), algorithm 1.

    >>> import torch
    >>> ddpg_critic(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0]))[0]
    tensor(2.)
    """
    inputs = {"target": target, "q": q}
    r = rows(inputs, mask=mask, weight=weight, weight_mode=weight_mode, reduction=reduction)
    return regression(r, r.live(q).unsqueeze(0), r.constant(target), kind=kind)


def ddpg_actor(
    q: Tensor,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of DDPG.

        L = −mean Q(s, μ(s))

    Args:
        q: floating ``[*B]``, with gradient into the action; evaluate it under constant critic
            parameters.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``q_mean``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction.

    Source: Silver et al. 2014, theorem 1; Lillicrap et al. 2016 (arXiv:1509.02971).

    >>> import torch
    >>> ddpg_actor(torch.tensor([1.0, 3.0]))[0]
    tensor(-2.)
    """
    r = rows({"q": q}, mask=mask, weight=weight, reduction=reduction)
    q = r.live(q)
    return r.reduce(-q), {"q_mean": r.mean(q)}
