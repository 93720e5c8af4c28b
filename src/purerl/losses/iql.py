"""Learning from a fixed data set without queries outside it: IQL, for any kind of action.

With discrete actions, q and log_prob are those of the action in the data (`action_value`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .ddpg import ddpg_target
from .rows import rows
from .td3 import td3_critic


def iql_value(
    value: Tensor,
    q: Tensor,
    *,
    expectile: Scalar = 0.7,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the expectile regression loss of the state value.

        L = mean abs(τ − 1[δ < 0]) δ²,   δ = sg(min_k Q'_k(s, a)) − V(s)

    Args:
        value: V(s), floating ``[*B]``.
        q: ``[K, *B]``, the target critics at the action in the data; carries no gradient.
        expectile: τ in (0, 1); 0.5 gives half the squared error, TorchRL's class default.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``advantage_mean``, the mean of δ.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Kostrikov et al. 2022 (arXiv:2110.06169), equation 5.

    >>> iql_value(torch.zeros(2), torch.tensor([[2.0, -2.0]]), expectile=0.9, reduction="none")[0]
    tensor([3.6000, 0.4000])
    """
    r = rows(
        {"value": value},
        q,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    difference = r.members("q", q.detach()).amin(0) - r.live(value)
    tau = r.scalar("expectile", expectile)
    tilt = torch.where(difference < 0, 1.0 - tau, tau)
    return r.reduce(tilt * difference.square()), {"advantage_mean": r.mean(difference)}


def iql_target(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target of the critics of IQL, a constant.

        y = r + γ^steps where(e, 0, V(s'))

    Args:
        reward: floating ``[*B]``.
        next_value: V(s') ``[*B]``; anything where terminated.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Kostrikov et al. 2022 (arXiv:2110.06169), equation 6.

    >>> iql_target(torch.ones(2), torch.full((2,), 4.0), torch.tensor([True, False]), gamma=0.5)
    tensor([1., 3.])
    """
    check.same_shape(reward=reward, next_value=next_value)
    return ddpg_target(reward, next_value, terminated, gamma=gamma, steps=steps, mask=mask)


def iql_critic(
    q: Tensor,
    target: Tensor,
    *,
    kind: Distance = "l2",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the critics' loss of IQL, summed over the critics.

        L = Σ_k mean d(Q_k(s, a), sg(y))

    Args:
        q: floating ``[K, *B]``.
        target: y ``[*B]``; carries no gradient.
        kind: the distance d; ``"l2"`` has no factor ½.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and the metrics of `td3_critic`.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Kostrikov et al. 2022 (arXiv:2110.06169), equation 6.

    >>> iql_critic(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0]))[0]
    tensor(5.)
    """
    return td3_critic(
        q,
        target,
        kind=kind,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )


def iql_actor(
    log_prob: Tensor,
    q: Tensor,
    value: Tensor,
    *,
    temperature: Scalar = 3.0,
    max_weight: Scalar = 100.0,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of IQL, advantage-weighted regression.

        L = −mean sg( min( exp(β (min_k Q'_k(s, a) − V(s))), w_max ) ) log π(a|s)

    Args:
        log_prob: floating ``[*B]``, joint, of the action in the data.
        q: ``[K, *B]``, the target critics at that action; carries no gradient.
        value: V(s) ``[*B]``; carries no gradient.
        temperature: β ≥ 0, an inverse temperature; TorchRL's class default is 1.
        max_weight: w_max > 0.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``advantage_mean``, ``weight_mean`` and ``weight_clip_fraction``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Kostrikov et al. 2022 (arXiv:2110.06169), equation 7.

    >>> iql_actor(torch.tensor([-1.0]), torch.tensor([[9.0]]), torch.tensor([0.0]))[0]
    tensor(100.)
    """
    inputs = {"log_prob": log_prob, "value": value}
    r = rows(inputs, q, mask=mask, weight=weight, weight_mode=weight_mode, reduction=reduction)
    advantage = r.members("q", q.detach()).amin(0) - r.constant(value)
    exponent = r.scalar("temperature", temperature) * advantage
    largest = r.scalar("max_weight", max_weight)
    # exp may overflow to ∞, which the bound takes down again: a constant needs no gradient
    imitation = torch.minimum(exponent.exp(), largest)
    metrics = {
        "advantage_mean": r.mean(advantage),
        "weight_mean": r.mean(imitation),
        "weight_clip_fraction": r.mean((exponent.exp() > largest).to(exponent.dtype)),
    }
    return r.reduce(-imitation * r.live(log_prob)), metrics
