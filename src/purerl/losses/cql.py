"""Learning from a fixed data set by conservative values: CQL."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check
from ..numerics import Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import bellman, gather, target_rows
from .rows import Rows, event_rows, rows
from .value_based import taken_action

_LARGEST_MULTIPLIER = 1e6


def cql_target(
    reward: Tensor,
    next_q: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the target of CQL without an entropy term, a constant.

        y = r + γ^steps where(e, 0, max_s min_k Q'_k(s', a'_s))

    With one sample this is the deterministic backup, with several the max-Q backup. Where the
    entropy is wanted, use `sac_target`.

    Args:
        reward: floating ``[*B]``.
        next_q: ``[K, S, *B]``, the target critics at S actions a'_s ~ π(s'); anything where
            terminated.
        terminated: bool ``[*B]``, e. A truncated row bootstraps.
        gamma: discount; a number, 0-d or ``[*B]``.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Kumar et al. 2020 (arXiv:2006.04779), appendix F, and its authors' code.

    >>> next_q = torch.tensor([[[4.0], [9.0]], [[6.0], [2.0]]])
    >>> cql_target(torch.ones(1), next_q, torch.tensor([False]), gamma=0.5)
    tensor([3.])
    """
    r = target_rows(reward, terminated, next_q, gamma=gamma, steps=steps, mask=mask)
    value = _samples(r, "next_q", next_q.detach()).amin(0).amax(0)
    return r.per_row(bellman(r, reward, value, terminated, gamma=gamma, steps=steps))


def cql_penalty(
    q_data: Tensor,
    q_sampled: Tensor,
    log_prob: Tensor | None,
    *,
    temperature: Scalar = 1.0,
    min_q_weight: Scalar = 1.0,
    temperature_scales_density: bool = False,
    alpha_prime: Scalar = 1.0,
    threshold: Scalar = 0.0,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the conservative penalty on continuous critics, to be added to their loss.

        gap_k = mean( T · logsumexp_i( Q_k(s, a_i)/T − log p(a_i) ) − Q_k(s, a) )
        L = Σ_k α' w (gap_k − threshold)

    The samples are usually S uniform in the box, S from π(s) and S from π(s'), joined along their
    axis: 3·S entries of one logsumexp, which estimates T log ∫ exp(Q/T) up to a constant. The
    temperature divides the values only.

    Args:
        q_data: Q_k(s, a), floating ``[K, *B]``, at the action in the data.
        q_sampled: Q_k(s, a_i) ``[K, S, *B]``. The actions should carry no gradient to the actor.
        log_prob: log p(a_i) ``[S, *B]``, of the density that a_i was drawn from, all in the same
            coordinates (`cql_uniform_log_prob`); carries no gradient. None leaves it out.
        temperature: T > 0.
        min_q_weight: w ≥ 0.
        temperature_scales_density: divide log p by T as well, as the authors' code and TorchRL
            do; the same at T = 1.
        alpha_prime: α' of the Lagrangian form (`cql_alpha_prime`), else 1; carries no gradient.
        threshold: of the Lagrangian form, else 0.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``gap`` ``[K]`` for `cql_lagrange`, ``gap_mean``, ``q_data_mean`` and
        ``q_sampled_mean``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Kumar et al. 2020 (arXiv:2006.04779), equation 4 and appendix F. TorchRL takes one
    logsumexp over 3 entries for each of the S repeats and averages; the same at S = 1.

    >>> q, uniform = torch.zeros(1, 2, 1), torch.full((2, 1), 0.5).log()
    >>> cql_penalty(q[:, 0], q, uniform)[0]
    tensor(1.3863)
    """
    check.min_rank("q_data", q_data, 1)
    densities = [] if log_prob is None else [log_prob]
    r = rows(
        {"a member of q_data": q_data[0]},
        q_sampled,
        *densities,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    data, sampled = r.live(q_data), _samples(r, "q_sampled", q_sampled)
    check.shape("q_sampled", q_sampled, data.shape[0], None, *data.shape[1:])
    t, scale = r.scalar("temperature", temperature), r.scalar("min_q_weight", min_q_weight)
    exponent = sampled / t
    if log_prob is not None:
        log_p = r.members("log_prob", log_prob.detach())
        check.shape("log_prob", log_prob, *sampled.shape[1:])
        exponent = exponent - (log_p / t if temperature_scales_density else log_p)
    gap = t * exponent.logsumexp(1) - data
    scale = scale * r.scalar("alpha_prime", alpha_prime)
    loss = (scale * (gap - r.scalar("threshold", threshold))).sum(0)
    gaps = torch.stack([r.mean(member) for member in gap.unbind(0)])
    return r.reduce(loss), {
        "gap": gaps,
        "gap_mean": gaps.mean(),
        "q_data_mean": r.mean(data.mean(0)),
        "q_sampled_mean": r.mean(sampled.mean((0, 1))),
    }


def _samples(r: Rows, name: str, q: Tensor) -> Tensor:
    """Return live ``[K, S, *B]``."""
    check.min_rank(name, q, 2)
    return r.members(name, q.flatten(0, 1)).unflatten(0, q.shape[:2])


def cql_uniform_log_prob(low: Tensor, high: Tensor) -> Tensor:
    """Return the log-density of uniform actions in a box, −Σ_d log(high_d − low_d).

    In the coordinates of the bounds: −D log 2 for the unit box. All densities of a penalty must
    use the same.

    Args:
        low: floating ``[D]``.
        high: ``[D]``.

    Raises:
        ShapeError: shapes differ.

    >>> cql_uniform_log_prob(torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 2.0]))
    tensor(-2.0794)
    """
    check.floating(low=low, high=high)
    check.same_shape(low=low, high=high)
    check.min_rank("low", low, 1)
    return -(high - low).log().sum(-1)


def cql_discrete_penalty(
    q: Tensor,
    action: Tensor,
    *,
    min_q_weight: Scalar = 1.0,
    action_mask: Tensor | None = None,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the conservative penalty on discrete values, to be added to the loss of `dqn`.

        L = w · mean( logsumexp_a Q(s, ·) − Q(s, a) );   its gradient is w (softmax(Q) − onehot(a))

    Args:
        q: Q(s, ·), floating ``[*B, A]``.
        action: a, integer ``[*B]``, in ``[0, A)``.
        min_q_weight: w ≥ 0.
        action_mask: bool ``[*B, A]``, True where legal; others stay out of the sum.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``gap_mean`` and ``q_data_mean``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Kumar et al. 2020 (arXiv:2006.04779), equation 4, CQL(H).

    >>> cql_discrete_penalty(torch.zeros(1, 4), torch.tensor([2]))[0]
    tensor(1.3863)
    """
    r = event_rows("q", q, mask=mask, weight=weight, weight_mode=weight_mode, reduction=reduction)
    q = r.events("q", q)
    data = gather(q, taken_action(r, action))
    check.boolean(action_mask=action_mask)
    check.same_shape(q=q, action_mask=action_mask)
    legal = q if action_mask is None else q.masked_fill(~action_mask, -torch.inf)
    gap = legal.logsumexp(-1) - data
    loss = r.scalar("min_q_weight", min_q_weight) * gap
    return r.reduce(loss), {"gap_mean": r.mean(gap), "q_data_mean": r.mean(data)}


def cql_alpha_prime(log_alpha_prime: Tensor) -> Tensor:
    """Return the multiplier of the Lagrangian form, α' = clip(exp(log α'), 0, 10⁶).

    Args:
        log_alpha_prime: floating, any shape.

    >>> cql_alpha_prime(torch.tensor([0.0, 99.0]))
    tensor([1.0000e+00, 1.0000e+06])
    """
    check.floating(log_alpha_prime=log_alpha_prime)
    return log_alpha_prime.exp().clamp(max=_LARGEST_MULTIPLIER)


def cql_lagrange(
    log_alpha_prime: Tensor,
    gap: Tensor,
    *,
    threshold: Scalar,
    min_q_weight: Scalar = 1.0,
) -> tuple[Tensor, Metrics]:
    """Return the loss of the multiplier in the Lagrangian form of CQL.

        L = −½ Σ_k α' w (gap_k − threshold),   α' = clip(exp(log α'), 0, 10⁶)

    α' rises while the gaps exceed the threshold. The critics' side is `cql_penalty` with the same
    threshold and ``alpha_prime=cql_alpha_prime(log_alpha_prime)``.

    Args:
        log_alpha_prime: log α', floating 0-d.
        gap: ``[K]``, of `cql_penalty`; carries no gradient.
        threshold: the gap wanted.
        min_q_weight: w ≥ 0.

    Returns:
        the loss, and ``alpha_prime``.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Kumar et al. 2020 (arXiv:2006.04779), equation 30, and its authors' code, which takes
    α' (w gap_k − threshold).

    >>> cql_lagrange(torch.tensor(0.0), torch.tensor([3.0, 5.0]), threshold=1.0)[0]
    tensor(-3.)
    """
    check.floating(log_alpha_prime=log_alpha_prime)
    check.shape("log_alpha_prime", log_alpha_prime)
    check.shape("gap", gap, None)
    r = rows({"gap": gap}, log_alpha_prime)
    alpha_prime = cql_alpha_prime(log_alpha_prime.to(r.example.dtype))
    excess = (r.constant(gap) - r.scalar("threshold", threshold)).sum()
    loss = -0.5 * alpha_prime * r.scalar("min_q_weight", min_q_weight) * excess
    return loss.to(r.result_dtype), {"alpha_prime": alpha_prime.detach().to(r.result_dtype)}


def cql_bc_actor(
    log_prob: Tensor,
    data_log_prob: Tensor,
    alpha: Scalar,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the actor's loss of the first ``bc_steps`` of CQL: behaviour cloning with entropy.

        L = mean( sg(α) log π(ã|s) − log π(a|s) )

    Args:
        log_prob: floating ``[*B]``, joint, of a reparametrised sample ã.
        data_log_prob: ``[*B]``, joint, of the action in the data.
        alpha: α, a number or 0-d; carries no gradient.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``entropy``, −mean log π(ã|s).

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction.

    Source: the authors' code for Kumar et al. 2020 (arXiv:2006.04779).

    >>> cql_bc_actor(torch.tensor([-1.0]), torch.tensor([-3.0]), 0.5)[0]
    tensor(2.5000)
    """
    inputs = {"log_prob": log_prob, "data_log_prob": data_log_prob}
    r = rows(inputs, mask=mask, weight=weight, reduction=reduction)
    log_prob = r.live(log_prob)
    loss = r.scalar("alpha", alpha) * log_prob - r.live(data_log_prob)
    return r.reduce(loss), {"entropy": r.mean(-log_prob)}
