"""Soft actor-critic for continuous actions; for its temperature see `sac_alpha`."""

from __future__ import annotations

from torch import Tensor

from .. import check
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import CriticReduce, CriticSum, bellman, reduce_members, regression, target_rows
from .rows import rows


def sac_target(
    reward: Tensor,
    next_q: Tensor,
    next_log_prob: Tensor,
    alpha: Scalar,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    critic_reduce: CriticReduce = "min",
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the entropy-regularised target of soft actor-critic, a constant.

        y = r + γ^steps where(e, 0, min_k Q'_k(s', a') − α log π(a'|s')),   a' ~ π(s')

    The entropy term stands inside the mask of termination.

    Args:
        reward: floating ``[*B]``.
        next_q: ``[K, *B]``, the target critics at a'; anything where terminated.
        next_log_prob: ``[*B]``, joint, of a' under the present policy; likewise.
        alpha: α, a number or 0-d; carries no gradient.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        critic_reduce: over the critics.
        steps: integer ``[*B]``, rows merged into this one (`returns.n_step_transition`).
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown critic_reduce.

    Source: Haarnoja et al. 2018 (arXiv:1812.05905), equations 3 and 5.

    >>> import torch
    >>> reward, next_q, alive = torch.tensor([2.0]), torch.tensor([[3.0], [5.0]]), torch.zeros(1)
    >>> sac_target(reward, next_q, torch.tensor([-1.0]), 0.5, alive.bool(), gamma=0.5)
    tensor([3.7500])
    """
    check.same_shape(reward=reward, next_log_prob=next_log_prob)
    check.floating(next_log_prob=next_log_prob)
    r = target_rows(reward, terminated, next_q, next_log_prob, gamma=gamma, steps=steps, mask=mask)
    value = reduce_members(r.members("next_q", next_q.detach()), critic_reduce)
    value = value - r.scalar("alpha", alpha) * r.constant(next_log_prob)
    return r.per_row(bellman(r, reward, value, terminated, gamma=gamma, steps=steps))


def sac_critic(
    q: Tensor,
    target: Tensor,
    *,
    kind: Distance = "l2",
    critic_sum: CriticSum = "sum",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the critics' loss of soft actor-critic.

        L = Σ_k mean d(Q_k(s, a), sg(y))

    Args:
        q: floating ``[K, *B]``.
        target: y ``[*B]``; carries no gradient.
        kind: the distance d; ``"l2"`` has no factor ½, Stable-Baselines3's ``"half_l2"`` has.
        critic_sum: ``"sum"`` over the critics or ``"mean"``, a factor 1/K.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``q_mean``, ``q_min_mean``, ``target_mean``, ``td_error_abs_mean``,
        ``td_error_max`` and ``priority`` ``[*B]`` = max_k abs(Q_k − y).

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Haarnoja et al. 2018 (arXiv:1812.05905), equation 5, without its ½.

    >>> import torch
    >>> sac_critic(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0]))[0]
    tensor(5.)
    """
    r = rows(
        {"target": target},
        q,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    q = r.members("q", q)
    loss, metrics = regression(r, q, r.constant(target), kind=kind, critic_sum=critic_sum)
    return loss, metrics | {"q_min_mean": r.mean(q.amin(0))}


def sac_actor(
    log_prob: Tensor,
    q: Tensor,
    alpha: Scalar,
    *,
    critic_reduce: CriticReduce = "min",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of soft actor-critic.

        L = mean( sg(α) log π(ã|s) − min_k Q_k(s, ã) ),   ã reparametrised

    Args:
        log_prob: floating ``[*B]``, joint, of ã.
        q: ``[K, *B]``, with gradient into ã; evaluate it under constant critic parameters.
        alpha: α, a number or 0-d; carries no gradient.
        critic_reduce: over the critics.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``entropy``, −mean log π, and ``q_mean`` of the reduced values.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Haarnoja et al. 2018 (arXiv:1812.05905), equation 7.

    >>> import torch
    >>> sac_actor(torch.tensor([-1.0]), torch.tensor([[3.0], [2.0]]), 0.5)[0]
    tensor(-2.5000)
    """
    r = rows({"log_prob": log_prob}, q, mask=mask, weight=weight, reduction=reduction)
    log_prob = r.live(log_prob)
    value = reduce_members(r.members("q", q), critic_reduce)
    loss = r.scalar("alpha", alpha) * log_prob - value
    return r.reduce(loss), {"entropy": r.mean(-log_prob), "q_mean": r.mean(value)}
