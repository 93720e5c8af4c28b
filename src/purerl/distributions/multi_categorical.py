"""Several categorical heads: logits side by side on the last axis, one action index per head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .. import check, numerics, random
from ..errors import ShapeError
from ..types import Key
from .categorical import (
    categorical_entropy,
    categorical_from_gumbel,
    categorical_kl,
    categorical_log_prob,
    categorical_mode,
)


def multi_categorical_sample(
    key: Key, logits: Tensor, nvec: Sequence[int], mask: Tensor | None = None
) -> Tensor:
    """Draw every head by argmax_k(z_k + Gumbel_k), from one draw of noise for all of them.

    Args:
        key: int64 ``[2]``.
        logits: floating ``[*B, Σ nvec]``.
        nvec: number of actions of each of the H heads.
        mask: bool ``[*B, Σ nvec]``, True where legal.

    Returns:
        int64 ``[*B, H]``.

    >>> legal = torch.tensor([True, False, False, False, True])
    >>> multi_categorical_sample(random.key(0), torch.zeros(5), (2, 3), legal)
    tensor([0, 2])
    """
    dtype = numerics.compute_dtype(logits.dtype)
    noise = random.gumbel(key, tuple(logits.shape), dtype=dtype)
    return multi_categorical_from_gumbel(noise, logits, nvec, mask)


def multi_categorical_from_gumbel(
    noise: Tensor, logits: Tensor, nvec: Sequence[int], mask: Tensor | None = None
) -> Tensor:
    """Return argmax_k(z_k + noise_k) of every head for given Gumbel noise.

    Args:
        noise: floating ``[*B, Σ nvec]``, from `random.gumbel`.
        logits: floating ``[*B, Σ nvec]``.
        nvec: number of actions of each of the H heads.
        mask: bool ``[*B, Σ nvec]``, True where legal.

    Returns:
        int64 ``[*B, H]``.

    Raises:
        ShapeError: shapes differ, or the last axis is not Σ nvec.

    >>> multi_categorical_from_gumbel(torch.zeros(5), torch.arange(5.0), (2, 3))
    tensor([1, 2])
    """
    check.same_shape(logits=logits, noise=noise)
    return _per_head(categorical_from_gumbel, (noise, logits), nvec, mask)


def multi_categorical_log_prob(
    action: Tensor,
    logits: Tensor,
    nvec: Sequence[int],
    mask: Tensor | None = None,
    *,
    per_head: bool = False,
) -> Tensor:
    """Return the joint log-probability Σ_h log p_h(action_h): the one that a ratio is made of.

    Args:
        action: integer ``[*B, H]``.
        logits: floating ``[*B, Σ nvec]``.
        nvec: number of actions of each of the H heads.
        mask: bool ``[*B, Σ nvec]``, True where legal.
        per_head: return ``[*B, H]`` instead of the sum.

    Raises:
        ShapeError: shapes differ, or the last axis is not Σ nvec.

    >>> multi_categorical_log_prob(torch.tensor([0, 1]), torch.zeros(4), (2, 2))
    tensor(-1.3863)
    """
    check.shape("action", action, *logits.shape[:-1], len(nvec))
    heads = _split("logits", logits, nvec)
    masks = _split_mask(mask, nvec)
    scores = [
        categorical_log_prob(one, z, legal)
        for one, z, legal in zip(action.unbind(-1), heads, masks, strict=True)
    ]
    return _joint(torch.stack(scores, -1), per_head)


def multi_categorical_entropy(
    logits: Tensor,
    nvec: Sequence[int],
    mask: Tensor | None = None,
    *,
    per_head: bool = False,
) -> Tensor:
    """Return the joint entropy Σ_h H_h over legal actions.

    Args:
        logits: floating ``[*B, Σ nvec]``.
        nvec: number of actions of each of the H heads.
        mask: bool ``[*B, Σ nvec]``, True where legal.
        per_head: return ``[*B, H]`` instead of the sum.

    Raises:
        ShapeError: shapes differ, or the last axis is not Σ nvec.

    >>> multi_categorical_entropy(torch.zeros(4), (2, 2), per_head=True)
    tensor([0.6931, 0.6931])
    """
    return _joint(_per_head(categorical_entropy, (logits,), nvec, mask), per_head)


def multi_categorical_kl(
    logits_p: Tensor,
    logits_q: Tensor,
    nvec: Sequence[int],
    mask: Tensor | None = None,
    *,
    per_head: bool = False,
) -> Tensor:
    """Return the joint divergence Σ_h KL(p_h‖q_h).

    Args:
        logits_p: floating ``[*B, Σ nvec]``.
        logits_q: floating ``[*B, Σ nvec]``.
        nvec: number of actions of each of the H heads.
        mask: bool ``[*B, Σ nvec]``, True where legal, for both.
        per_head: return ``[*B, H]`` instead of the sum.

    Raises:
        ShapeError: shapes differ, or the last axis is not Σ nvec.

    >>> p, q = torch.tensor([0.5, 0.5, 0.5, 0.5]).log(), torch.tensor([0.5, 0.5, 0.2, 0.8]).log()
    >>> multi_categorical_kl(p, q, (2, 2))
    tensor(0.2231)
    """
    check.same_shape(logits_p=logits_p, logits_q=logits_q)
    return _joint(_per_head(categorical_kl, (logits_p, logits_q), nvec, mask), per_head)


def multi_categorical_mode(
    logits: Tensor, nvec: Sequence[int], mask: Tensor | None = None
) -> Tensor:
    """Return the most probable legal action of every head, int64 ``[*B, H]``.

    Args:
        logits: floating ``[*B, Σ nvec]``.
        nvec: number of actions of each of the H heads.
        mask: bool ``[*B, Σ nvec]``, True where legal.

    >>> multi_categorical_mode(torch.tensor([0.0, 1.0, 5.0, 2.0, 3.0]), (2, 3))
    tensor([1, 0])
    """
    return _per_head(categorical_mode, (logits,), nvec, mask)


def _per_head(
    function: Callable[..., Tensor],
    tensors: tuple[Tensor, ...],
    nvec: Sequence[int],
    mask: Tensor | None,
) -> Tensor:
    """Return ``function(*tensors_h, mask_h)`` of every head h, stacked on the last axis."""
    parts = [_split("logits", tensor, nvec) for tensor in tensors]
    heads = zip(*parts, _split_mask(mask, nvec), strict=True)
    return torch.stack([function(*head) for head in heads], -1)


def _split(name: str, tensor: Tensor, nvec: Sequence[int]) -> tuple[Tensor, ...]:
    check.min_rank(name, tensor, 1)
    if tensor.shape[-1] != sum(nvec):
        raise ShapeError(
            f"{name} has shape {list(tensor.shape)}, expected last axis {sum(nvec)}, "
            f"the sum of nvec = {list(nvec)}"
        )
    return tensor.split(list(nvec), -1)


def _split_mask(mask: Tensor | None, nvec: Sequence[int]) -> Sequence[Tensor | None]:
    return [None] * len(nvec) if mask is None else _split("mask", mask, nvec)


def _joint(x: Tensor, per_head: bool) -> Tensor:
    return x if per_head else x.sum(-1)
