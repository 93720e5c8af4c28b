"""Soft actor-critic for discrete actions: expectations over all actions, no sample.

Illegal actions, marked False in a mask, have probability 0 and reach neither value nor gradient,
whatever their logits and values hold.
"""

from __future__ import annotations

from torch import Tensor

from .. import check, distributions
from ..numerics import Distance, Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import CriticReduce, CriticSum, bellman, gather, reduce_members, target_rows
from .rows import Rows, event_rows, rows
from .sac import sac_critic
from .temperature import AlphaForm, alpha_loss
from .value_based import taken_action


def sac_discrete_target(
    reward: Tensor,
    next_q: Tensor,
    next_logits: Tensor,
    alpha: Scalar,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    critic_reduce: CriticReduce = "min",
    next_action_mask: Tensor | None = None,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target of discrete soft actor-critic, a constant.

        V(s') = Σ_a where(π(a|s') > 0, π (min_k Q'_k(s', a) − α log π), 0)
        y = r + γ^steps where(e, 0, V(s'))

    Args:
        reward: floating ``[*B]``.
        next_q: ``[K, *B, A]``, of the target critics; anything where terminated.
        next_logits: ``[*B, A]``, of the present policy; likewise.
        alpha: α, a number or 0-d; carries no gradient.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        critic_reduce: over the critics.
        next_action_mask: bool ``[*B, A]``, True where legal.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown critic_reduce.

    Source: Christodoulou 2019 (arXiv:1910.07207), equations 10 and 12.

    >>> import torch
    >>> reward, next_q, alive = torch.ones(1), torch.tensor([[[1.0, 3.0]]]), torch.tensor([False])
    >>> sac_discrete_target(reward, next_q, torch.zeros(1, 2), 0.0, alive, gamma=0.5)
    tensor([2.])
    """
    r = target_rows(reward, terminated, next_q, next_logits, gamma=gamma, steps=steps, mask=mask)
    logits = r.events("next_logits", next_logits.detach())
    q = reduce_members(_members(r, "next_q", next_q.detach(), logits), critic_reduce)
    legal = _legal("next_action_mask", next_action_mask, logits)
    value = _soft_value(q, logits, r.scalar("alpha", alpha), legal)
    return r.per_row(bellman(r, reward, value, terminated, gamma=gamma, steps=steps))


def _members(r: Rows, name: str, q: Tensor, logits: Tensor) -> Tensor:
    """Return live ``[K, *B, A]``."""
    q = r.members(name, q, 1)
    check.same_shape(**{"the logits": logits, f"a member of {name}": q[0]})
    return q


def _legal(name: str, action_mask: Tensor | None, logits: Tensor) -> Tensor | None:
    """Return the mask of legal actions after checks under its own name."""
    check.boolean(**{name: action_mask})
    check.same_shape(**{"the logits": logits, name: action_mask})
    return action_mask


def _soft_value(q: Tensor, logits: Tensor, alpha: Tensor, legal: Tensor | None) -> Tensor:
    """Return Σ_a π (q − α log π) over the actions that π can take, ``[*B]``."""
    log_p = distributions.categorical_log_probs(logits, legal)
    return distributions.categorical_expectation(q - alpha * log_p, logits, legal)


def sac_discrete_critic(
    q: Tensor,
    action: Tensor,
    target: Tensor,
    *,
    kind: Distance = "l2",
    critic_sum: CriticSum = "sum",
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the critics' loss of discrete soft actor-critic.

        L = Σ_k mean d(Q_k(s, ·)[a], sg(y))

    Args:
        q: floating ``[K, *B, A]``.
        action: a, integer ``[*B]``, in ``[0, A)``.
        target: y ``[*B]``; carries no gradient.
        kind: the distance d; ``"l2"`` has no factor ½.
        critic_sum: ``"sum"`` over the critics or ``"mean"``, a factor 1/K.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and the metrics of `sac_critic`.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Christodoulou 2019 (arXiv:1910.07207), equation 4.

    >>> import torch
    >>> sac_discrete_critic(torch.tensor([[[1.0, 2.0]]]), torch.tensor([1]), torch.tensor([4.0]))[0]
    tensor(4.)
    """
    r = rows({"target": target}, q, mask=mask)
    taken = gather(r.members("q", q, 1), taken_action(r, action)).to(q.dtype)
    return sac_critic(
        taken,
        target,
        kind=kind,
        critic_sum=critic_sum,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )


def sac_discrete_actor(
    logits: Tensor,
    q: Tensor,
    alpha: Scalar,
    *,
    critic_reduce: CriticReduce = "min",
    action_mask: Tensor | None = None,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of discrete soft actor-critic.

        L = mean Σ_a where(π > 0, π (sg(α) log π − sg(min_k Q_k(s, a))), 0)

    Args:
        logits: floating ``[*B, A]``.
        q: ``[K, *B, A]``; carries no gradient.
        alpha: α, a number or 0-d; carries no gradient.
        critic_reduce: over the critics.
        action_mask: bool ``[*B, A]``, True where legal.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``entropy`` and ``q_mean``, the mean of Σ_a π min_k Q_k.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Christodoulou 2019 (arXiv:1910.07207), equation 13.

    >>> import torch
    >>> sac_discrete_actor(torch.zeros(1, 2), torch.tensor([[[1.0, 3.0]]]), 0.0)[0]
    tensor(-2.)
    """
    r = event_rows(
        "logits", logits, q, mask=mask, weight=weight, weight_mode="mean", reduction=reduction
    )
    logits = r.events("logits", logits)
    legal = _legal("action_mask", action_mask, logits)
    value = reduce_members(_members(r, "q", q.detach(), logits), critic_reduce)
    loss = -_soft_value(value, logits, r.scalar("alpha", alpha), legal)
    constant = logits.detach()
    metrics = {
        "entropy": r.mean(distributions.categorical_entropy(constant, legal)),
        "q_mean": r.mean(distributions.categorical_expectation(value, constant, legal)),
    }
    return r.reduce(loss), metrics


def sac_discrete_alpha(
    log_alpha: Tensor,
    logits: Tensor,
    target_entropy: Scalar,
    *,
    form: AlphaForm = "log",
    action_mask: Tensor | None = None,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the temperature's loss of discrete soft actor-critic.

        "log"    L = −log_alpha · mean sg( Σ_a where(π > 0, π log π, 0) + H̄ )
        "alpha"  L = −exp(log_alpha) · mean sg( … )

    Args:
        log_alpha: log α, floating 0-d; or any shape, one loss an entry, if the rows are reduced.
        logits: floating ``[*B, A]``; carries no gradient.
        target_entropy: H̄ > 0, the entropy wanted: `sac_discrete_target_entropy`.
        form: both are in use; Adam hides most of the factor α.
        action_mask: bool ``[*B, A]``, True where legal.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, shaped like log_alpha, and ``alpha`` and ``entropy``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Christodoulou 2019 (arXiv:1910.07207), equation 11.

    >>> import torch
    >>> sac_discrete_alpha(torch.tensor(-1.0), torch.zeros(1, 2), 1.0)[0]
    tensor(0.3069)
    """
    r = event_rows(
        "logits",
        logits,
        log_alpha,
        mask=mask,
        weight=weight,
        weight_mode="mean",
        reduction=reduction,
    )
    logits = r.events("logits", logits.detach())
    legal = _legal("action_mask", action_mask, logits)
    entropy = r.live(distributions.categorical_entropy(logits, legal))
    return alpha_loss(r, log_alpha, entropy, target_entropy, form)
