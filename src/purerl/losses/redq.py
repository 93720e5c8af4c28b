"""REDQ: soft actor-critic with many critics, of which the target sees a random few."""

from __future__ import annotations

from torch import Tensor

from .. import check
from ..errors import ShapeError
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import CriticSum
from .rows import rows
from .sac import sac_actor, sac_critic, sac_target


def redq_target(
    reward: Tensor,
    next_q: Tensor,
    next_log_prob: Tensor,
    alpha: Scalar,
    terminated: Tensor,
    subset: Tensor,
    *,
    gamma: Scalar = 0.99,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target of REDQ, a constant.

        y = r + γ^steps where(e, 0, min_{k ∈ M} Q'_k(s', a') − α log π(a'|s'))

    Args:
        reward: floating ``[*B]``.
        next_q: ``[K, *B]``, all target critics at a' ~ π(s'); anything where terminated.
        next_log_prob: ``[*B]``, joint, of a' under the present policy; likewise.
        alpha: α, a number or 0-d; carries no gradient.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        subset: M, integer ``[M]``, distinct members, drawn anew for each update:
            ``random.choice(key, K, (2,), replace=False)``.
        gamma: discount; a number, 0-d or ``[*B]``.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Chen et al. 2021 (arXiv:2101.05982), algorithm 1.

    >>> import torch
    >>> next_q, zero = torch.tensor([[5.0], [2.0], [-9.0]]), torch.zeros(1)
    >>> redq_target(zero, next_q, zero, 0.1, zero.bool(), torch.tensor([0, 1]), gamma=0.5)
    tensor([1.])
    """
    check.integer(subset=subset)
    check.shape("subset", subset, None)
    check.min_rank("subset", subset, 1)
    check.min_rank("next_q", next_q, 1)
    if subset.shape[0] > next_q.shape[0]:
        raise ShapeError(
            f"subset has shape {list(subset.shape)}, expected at most {next_q.shape[0]} members "
            "as next_q"
        )
    drawn = next_q.detach()[subset]
    return sac_target(
        reward, drawn, next_log_prob, alpha, terminated, gamma=gamma, steps=steps, mask=mask
    )


def redq_critic(
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
    """Return the critics' loss of REDQ: all K learn, whichever made the target.

        L = Σ_k mean d(Q_k(s, a), sg(y))

    Args:
        q: floating ``[K, *B]``.
        target: y ``[*B]``; carries no gradient.
        kind: the distance d; ``"l2"`` has no factor ½.
        critic_sum: ``"sum"`` over the critics, or ``"mean"`` (TorchRL), a factor 1/K.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, the metrics of `sac_critic`, and ``q_std_across_critics``, the mean over the rows
        of the population's deviation over k.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Chen et al. 2021 (arXiv:2101.05982), algorithm 1.

    >>> import torch
    >>> redq_critic(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0]))[0]
    tensor(5.)
    """
    loss, metrics = sac_critic(
        q,
        target,
        kind=kind,
        critic_sum=critic_sum,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    r = rows({"target": target}, q, mask=mask)
    spread = r.members("q", q.detach()).std(0, correction=0)
    return loss, metrics | {"q_std_across_critics": r.mean(spread)}


def redq_actor(
    log_prob: Tensor,
    q: Tensor,
    alpha: Scalar,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of REDQ, against the mean of all critics.

        L = mean( sg(α) log π(ã|s) − mean_k Q_k(s, ã) ),   ã reparametrised

    Args:
        log_prob: floating ``[*B]``, joint, of ã.
        q: ``[K, *B]``, with gradient into ã; evaluate it under constant critic parameters.
        alpha: α, a number or 0-d; carries no gradient.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``entropy``, −mean log π, and ``q_mean``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction.

    Source: Chen et al. 2021 (arXiv:2101.05982), algorithm 1. The temperature learns by `sac_alpha`.

    >>> import torch
    >>> redq_actor(torch.tensor([-1.0]), torch.tensor([[3.0], [1.0]]), 0.5)[0]
    tensor(-2.5000)
    """
    return sac_actor(
        log_prob, q, alpha, critic_reduce="mean", mask=mask, weight=weight, reduction=reduction
    )
