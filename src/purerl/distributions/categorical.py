"""The categorical distribution over the last axis, with masks of legal actions.

Illegal actions have probability exactly 0 and reach neither value nor gradient, whatever their
logits hold. A row without any legal action cannot raise without a synchronisation: it behaves as
the uniform distribution over all actions, without gradient; `categorical_valid` finds such rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check, numerics, random
from ..types import Key

_NEVER = float("-inf")


def categorical_sample(key: Key, logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Draw argmax_k(z_k + Gumbel_k), the stream of ``jax.random.categorical``.

    Args:
        key: int64 ``[2]``.
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal; illegal actions are never drawn.

    Returns:
        int64 ``[*B]``.

    >>> categorical_sample(random.key(0), torch.zeros(3), torch.tensor([False, True, False]))
    tensor(1)
    """
    dtype = numerics.compute_dtype(logits.dtype)
    noise = random.gumbel(key, tuple(logits.shape), dtype=dtype)
    return categorical_from_gumbel(noise, logits, mask)


def categorical_from_gumbel(noise: Tensor, logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return argmax_k(z_k + noise_k) for given Gumbel noise; see `categorical_sample`.

    Args:
        noise: floating ``[*B, A]``, from `random.gumbel`.
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal.

    Raises:
        ShapeError: shapes differ, or a wrong dtype.

    >>> categorical_from_gumbel(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]))
    tensor(1)
    """
    check.same_shape(logits=logits, noise=noise)
    masked = masked_logits(logits, mask)
    return (masked + noise.to(masked.dtype)).argmax(-1)


def categorical_log_prob(action: Tensor, logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return log p(action) = log_softmax(z)[action], z_k = where(legal_k, logits_k, −∞).

    Args:
        action: integer ``[*B]``, in ``[0, A)``.
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal; an illegal action scores −∞.

    Raises:
        ShapeError: shapes differ, or a wrong dtype.

    >>> categorical_log_prob(torch.tensor(0), torch.ones(3), torch.tensor([True, True, False]))
    tensor(-0.6931)
    """
    check.integer(action=action)
    check.shape("action", action, *logits.shape[:-1])
    log_probs = _log_softmax(logits, mask)
    picked = log_probs.gather(-1, action.to(torch.int64).unsqueeze(-1)).squeeze(-1)
    return picked.to(logits.dtype)


def categorical_log_probs(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return log p of every action, −∞ where illegal.

    Args:
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal.

    >>> categorical_log_probs(torch.zeros(3), torch.tensor([True, True, False]))
    tensor([-0.6931, -0.6931,    -inf])
    """
    return _log_softmax(logits, mask).to(logits.dtype)


def categorical_entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return H = −Σ_k where(p_k > 0, p_k log p_k, 0), over legal actions only.

    Args:
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal; one legal action gives 0.

    Returns:
        ``[*B]``, in nats, from 0 to log(number of legal actions).

    >>> categorical_entropy(torch.ones(3), torch.tensor([True, True, False]))
    tensor(0.6931)
    """
    log_p = _log_softmax(logits, mask)
    p, log_p = _support(log_p)
    return -(p * log_p).sum(-1).to(logits.dtype)


def categorical_kl(logits_p: Tensor, logits_q: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return KL(p‖q) = Σ_k where(p_k > 0, p_k (log p_k − log q_k), 0).

    Never negative, exactly 0 for equal logits, and accurate between near ones; ∞ where q excludes
    what p does not.

    Args:
        logits_p: floating ``[*B, A]``.
        logits_q: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal, for both.

    Raises:
        ShapeError: shapes differ, or a wrong dtype.

    >>> categorical_kl(torch.tensor([0.5, 0.5, 0.0]).log(), torch.tensor([0.25, 0.5, 0.25]).log())
    tensor(0.3466)
    """
    check.same_shape(logits_p=logits_p, logits_q=logits_q)
    log_p, log_q = _log_softmax(logits_p, mask), _log_softmax(logits_q, mask)
    # Since Σp = Σq = 1, Σ p x = Σ p (x + e^{−x} − 1) + Σ_{p = 0} q with x = log p − log q. Each
    # term is positive and flat at x = 0, so the rounding of log p does not swamp a small KL. A
    # subnormal p counts as 0: e^{−x} could overflow there.
    p = log_p.exp()
    inside = p >= torch.finfo(p.dtype).tiny
    difference = log_p.masked_fill(~inside, 0.0) - log_q.masked_fill(~inside, 0.0)
    excess = (difference + torch.expm1(-difference)).clamp(min=0.0)
    outside = log_q.exp().masked_fill(inside, 0.0)
    return (p * excess + outside).sum(-1).to(logits_p.dtype)


def categorical_expectation(value: Tensor, logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return E_p[f] = Σ_k where(p_k > 0, p_k f_k, 0); f may hold anything where p is 0.

    Args:
        value: floating ``[*B, A]``, f of every action.
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal.

    Raises:
        ShapeError: shapes differ, or a wrong dtype.

    >>> mask = torch.tensor([True, True, False])
    >>> categorical_expectation(torch.tensor([1.0, 3.0, float("nan")]), torch.zeros(3), mask)
    tensor(2.)
    """
    check.same_shape(logits=logits, value=value)
    p = _log_softmax(logits, mask).exp()
    return (p * value.to(p.dtype).masked_fill(p == 0, 0.0)).sum(-1).to(logits.dtype)


def categorical_mode(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the most probable legal action, int64 ``[*B]``; of equals the first.

    Args:
        logits: floating ``[*B, A]``.
        mask: bool ``[*B, A]``, True where legal.

    >>> categorical_mode(torch.tensor([1.0, 5.0, 5.0]), torch.tensor([True, False, True]))
    tensor(2)
    """
    return masked_logits(logits, mask).argmax(-1)


def categorical_valid(mask: Tensor) -> Tensor:
    """Return, as bool ``[*B]``, which rows have a legal action at all.

    Args:
        mask: bool ``[*B, A]``, True where legal.

    >>> categorical_valid(torch.tensor([[True, False], [False, False]]))
    tensor([ True, False])
    """
    check.boolean(mask=mask)
    return mask.any(-1)


def masked_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return logits in the dtype to compute in, −∞ where illegal, 0 in rows with no legal action.

    Not a large negative constant in place of −∞: that leaves illegal actions a finite
    log-probability, and fails beside extreme logits.
    """
    check.floating(logits=logits)
    check.min_rank("logits", logits, 1)
    wide = logits.to(numerics.compute_dtype(logits.dtype))
    if mask is None:
        return wide
    check.boolean(mask=mask)
    check.same_shape(logits=logits, mask=mask)
    none_legal = ~mask.any(-1, keepdim=True)
    return wide.masked_fill(~mask, _NEVER).masked_fill(none_legal, 0.0)


def _log_softmax(logits: Tensor, mask: Tensor | None) -> Tensor:
    return masked_logits(logits, mask).log_softmax(-1)


def _support(log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return p, and log p with 0 in place of −∞.

    The replacement comes before the product: the gradient of ``p · log p`` where p = 0 would be
    0 · ∞ even under a ``where`` around it.
    """
    p = log_p.exp()
    return p, log_p.masked_fill(p == 0, 0.0)
