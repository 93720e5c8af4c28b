"""Twin delayed deterministic policy gradients (TD3), and TD3+BC for fixed data."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics
from ..errors import ShapeError
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import CriticReduce, bellman, reduce_members, regression, target_rows
from .rows import rows

NoiseScale: TypeAlias = Literal["half_range", "absolute"]


def td3_smoothed_action(
    next_action: Tensor,
    noise: Tensor,
    *,
    low: Scalar = -1.0,
    high: Scalar = 1.0,
    policy_noise: Scalar = 0.2,
    noise_clip: Scalar = 0.5,
    noise_scale: NoiseScale = "half_range",
) -> Tensor:
    """Return the target actor's action with clipped noise, a constant.

        a' = clip( μ'(s') + clip(σ ε, −c, c) · s, low, high ),   s = ½ (high − low)

    Args:
        next_action: μ'(s'), floating ``[*B, D]``.
        noise: ε ``[*B, D]``, standard normal draws (`random.normal`), one for each row and
            dimension.
        low: lower bound, a number, 0-d or ``[D]``.
        high: upper bound, likewise.
        policy_noise: σ ≥ 0, in units of the half-range.
        noise_clip: c ≥ 0, likewise.
        noise_scale: ``"half_range"``, or ``"absolute"`` for s = 1 (TorchRL).

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown noise_scale.

    Source: Fujimoto et al. 2018 (arXiv:1802.09477), equation 14, in actions of range ±s.

    >>> td3_smoothed_action(torch.tensor([[0.1]]), torch.tensor([[10.0]]), low=-2.0, high=2.0)
    tensor([[1.1000]])
    """
    check.same_shape(next_action=next_action, noise=noise)
    r = rows({"next_action": next_action}, noise)
    action = r.constant(next_action)
    lower, upper = (_bound(n, b, action) for n, b in (("low", low), ("high", high)))
    sigma, limit = r.scalar("policy_noise", policy_noise), r.scalar("noise_clip", noise_clip)
    shift = torch.minimum(torch.maximum(sigma * r.constant(noise), -limit), limit)
    if check.option("noise_scale", noise_scale, ("half_range", "absolute")) == "half_range":
        shift = shift * (0.5 * (upper - lower))
    smoothed = torch.minimum(torch.maximum(action + shift, lower), upper)
    return smoothed.to(r.result_dtype)


def _bound(name: str, bound: Scalar, action: Tensor) -> Tensor:
    if isinstance(bound, Tensor) and bound.ndim and bound.shape != action.shape[-1:]:
        raise ShapeError(
            f"{name} has shape {list(bound.shape)}, expected [] or {list(action.shape[-1:])}"
        )
    return numerics.scalar_like(bound, action).detach()


def td3_target(
    reward: Tensor,
    next_q: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the clipped double Q-learning target of TD3, a constant.

        y = r + γ^steps where(e, 0, min_k Q'_k(s', a'))

    Args:
        reward: floating ``[*B]``.
        next_q: ``[K, *B]``, the target critics at `td3_smoothed_action`; anything where
            terminated.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Fujimoto et al. 2018 (arXiv:1802.09477), algorithm 1.

    >>> td3_target(torch.ones(1), torch.tensor([[4.0], [6.0]]), torch.tensor([False]), gamma=0.5)
    tensor([3.])
    """
    r = target_rows(reward, terminated, next_q, gamma=gamma, steps=steps, mask=mask)
    value = r.members("next_q", next_q.detach()).amin(0)
    return r.per_row(bellman(r, reward, value, terminated, gamma=gamma, steps=steps))


def td3_critic(
    q: Tensor,
    target: Tensor,
    *,
    kind: Distance = "l2",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the critics' loss of TD3, summed over the critics.

        L = Σ_k mean d(Q_k(s, a), sg(y))

    Args:
        q: floating ``[K, *B]``.
        target: y ``[*B]``; carries no gradient.
        kind: the distance d; ``"l2"`` has no factor ½ (`numerics.distance`).
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

    Source: Fujimoto et al. 2018 (arXiv:1802.09477), algorithm 1.

    >>> td3_critic(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0]))[0]
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
    loss, metrics = regression(r, q, r.constant(target), kind=kind)
    return loss, metrics | {"q_min_mean": r.mean(q.amin(0))}


def td3_actor(
    q: Tensor,
    *,
    critic_reduce: CriticReduce = "first",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of TD3.

        L = −mean Q_1(s, μ(s))

    Args:
        q: floating ``[K, *B]``, with gradient into the action; evaluate it under constant critic
            parameters. One critic is enough for ``"first"``.
        critic_reduce: ``"first"`` (paper), ``"mean"`` (rejax) or ``"min"`` over the critics.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``q_mean``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Fujimoto et al. 2018 (arXiv:1802.09477), algorithm 1.

    >>> td3_actor(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))[0]
    tensor(-2.)
    """
    check.min_rank("q", q, 1)
    r = rows({"a member of q": q[0]}, mask=mask, weight=weight, reduction=reduction)
    value = reduce_members(r.members("q", q), critic_reduce)
    return r.reduce(-value), {"q_mean": r.mean(value)}


def td3_bc_actor(
    q: Tensor,
    policy_action: Tensor,
    action: Tensor,
    *,
    alpha: Scalar = 2.5,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of TD3+BC: improve, and stay near the data.

        L = −λ mean Q_1(s, μ(s)) + mean (μ(s) − a)²,   λ = α / sg(mean abs(Q_1(s, μ(s))))

    Args:
        q: Q_1(s, μ(s)), floating ``[*B]``, with gradient into the action.
        policy_action: μ(s) ``[*B, D]``.
        action: a ``[*B, D]``, from the data; carries no gradient.
        alpha: α ≥ 0; 0 is behaviour cloning.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`. λ always averages over the rows that count,
            and is 0 where all their values are.

    Returns:
        the loss, and ``q_mean``, ``loss_bc`` (the second term) and ``lambda``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction.

    Source: Fujimoto and Gu 2021 (arXiv:2106.06860), equations 3-5.

    >>> q, zero = torch.tensor([1.0, -3.0]), torch.zeros(2, 1)
    >>> td3_bc_actor(q, zero, zero)[0]
    tensor(1.2500)
    """
    r = rows({"q": q}, policy_action, action, mask=mask, weight=weight, reduction=reduction)
    q, mean_of = r.live(q), r.events("policy_action", policy_action)
    data = r.events("action", action.detach())
    cloning = numerics.distance(mean_of, data).mean(-1)
    size = numerics.masked_mean(q.detach().abs(), mask)
    factor = numerics.divide_or_zero(r.scalar("alpha", alpha), size)
    metrics = {"q_mean": r.mean(q), "loss_bc": r.mean(cloning), "lambda": factor.to(r.result_dtype)}
    return r.reduce(cloning - factor * q), metrics
