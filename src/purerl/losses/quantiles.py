"""Q-learning over quantiles of returns (QR-DQN)."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check
from ..numerics import Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import CriticSum, bellman, gather_rows, target_rows
from .rows import event_rows
from .value_based import greedy, taken_action


def quantile_target(
    reward: Tensor,
    next_quantiles: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    next_quantiles_select: Tensor | None = None,
    next_action_mask: Tensor | None = None,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target quantiles of QR-DQN, a constant.

        y_j = r + γ^steps where(e, 0, θ'_j(s', a*)),   a* = argmax_a mean_j θ_select,j(s', a)

    Args:
        reward: floating ``[*B]``.
        next_quantiles: θ' ``[*B, A, K]`` of the target network; anything where terminated.
        terminated: bool ``[*B]``, e.
        gamma: discount; a number, 0-d or ``[*B]``.
        next_quantiles_select: ``[*B, A, any]``, which choose a* for double Q-learning.
        next_action_mask: bool ``[*B, A]``, True where legal.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Returns:
        y ``[*B, K]``.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Dabney et al. 2018 (arXiv:1710.10044), algorithm 1.

    >>> next_quantiles, alive = torch.tensor([[[0.0, 2.0], [1.0, 5.0]]]), torch.tensor([False])
    >>> quantile_target(torch.ones(1), next_quantiles, alive, gamma=0.5)
    tensor([[1.5000, 3.5000]])
    """
    chosen = next_quantiles if next_quantiles_select is None else next_quantiles_select
    r = target_rows(reward, terminated, next_quantiles, chosen, gamma=gamma, steps=steps, mask=mask)
    next_quantiles = r.events("next_quantiles", next_quantiles.detach(), 2)
    chosen = r.events("next_quantiles_select", chosen.detach(), 2)
    index, valid = greedy(chosen.mean(-1), next_action_mask)
    value = torch.where(valid.unsqueeze(-1), gather_rows(next_quantiles, index), torch.nan)
    y = bellman(r, reward, value, terminated, gamma=gamma, steps=steps)
    return r.events("target", y).to(r.result_dtype)


def quantile(
    quantiles: Tensor,
    action: Tensor,
    target: Tensor,
    *,
    kappa: Scalar = 1.0,
    divide_by_kappa: bool = False,
    reduction_over_source: CriticSum = "sum",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the quantile regression loss of QR-DQN.

        u_ij = sg(y_j) − θ_i(s, a),   τ_i = (2i + 1)/(2K),   i = 0 … K − 1
        L = mean Σ_i (1/K') Σ_j abs(τ_i − 1[u_ij < 0]) h(u_ij)
        h(u) = ½ u² if abs(u) ≤ κ else κ (abs(u) − ½ κ);   abs(u) for κ = 0

    Args:
        quantiles: θ, floating ``[*B, A, K]``.
        action: integer ``[*B]``, in ``[0, A)``.
        target: y ``[*B, K']``, from `quantile_target`; carries no gradient.
        kappa: κ ≥ 0.
        divide_by_kappa: divide h by κ > 0, as the paper does.
        reduction_over_source: ``"sum"`` over i (paper, rlax, SB3-contrib) or ``"mean"`` (TQC).
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``q_mean``, ``target_mean`` and ``priority`` ``[*B]``, the loss of the row.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Dabney et al. 2018 (arXiv:1710.10044), equation 10.

    >>> quantile(torch.zeros(1, 1, 2), torch.tensor([0]), torch.tensor([[1.0, 3.0]]))[0]
    tensor(1.5000)
    """
    check.option("reduction_over_source", reduction_over_source, ("sum", "mean"))
    r = event_rows(
        "target",
        target,
        quantiles,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    target = r.events("target", target.detach())
    theta = gather_rows(r.events("quantiles", quantiles, 2), taken_action(r, action))
    num = theta.shape[-1]
    tau = (torch.arange(num, dtype=theta.dtype, device=theta.device) + 0.5) / num
    u = target.unsqueeze(-2) - theta.unsqueeze(-1)
    width = r.scalar("kappa", kappa)
    tilt = (tau.unsqueeze(-1) - (u < 0).to(u.dtype)).abs()
    per_source = (tilt * _huber(u, width)).mean(-1)
    if divide_by_kappa:
        per_source = per_source / width
    loss = per_source.sum(-1) if reduction_over_source == "sum" else per_source.mean(-1)
    metrics = {"q_mean": r.mean(theta.mean(-1)), "target_mean": r.mean(target.mean(-1))}
    return r.reduce(loss), metrics | {"priority": r.per_row(loss)}


def _huber(u: Tensor, kappa: Tensor) -> Tensor:
    size = u.abs()
    bent = torch.where(size <= kappa, 0.5 * u.square(), kappa * (size - 0.5 * kappa))
    return torch.where(kappa > 0, bent, size)
