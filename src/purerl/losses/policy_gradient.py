"""Policy gradients without a trust region, the entropy bonus, and joint log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics, tree
from ..errors import ConfigError
from ..numerics import Reduction
from ..types import Metrics, Scalar, Tree
from .rows import rows
from .statistics import normalize_advantage

Baseline: TypeAlias = Literal["none", "mean"]


def joint_log_prob(log_prob: Tree, *, num_batch_dims: int = 1) -> Tensor:
    """Return the log-probability of a whole action, Σ over heads and event dimensions.

        log π(a) = Σ_heads Σ_dims log π_head(a_head)

    A ratio of policies is formed from this sum, once; clipping head by head is another objective.

    Args:
        log_prob: one floating ``[*B, ...]``, or a pytree of them, one leaf a head.
        num_batch_dims: how many leading dimensions are rows; all others are summed.

    Raises:
        ShapeError: a head has other rows than the first.

    >>> heads = {"move": torch.full((2, 3), -1.0), "jump": torch.full((2,), -0.5)}
    >>> joint_log_prob(heads)
    tensor([-3.5000, -3.5000])
    """
    heads = [_sum_events(leaf, num_batch_dims) for leaf in tree.leaves(log_prob)]
    check.same_shape(**dict(zip(tree.paths(log_prob), heads, strict=True)))
    total = heads[0]
    for head in heads[1:]:
        total = total + head
    return total


def _sum_events(leaf: Tensor, num_batch_dims: int) -> Tensor:
    check.min_rank("log_prob", leaf, num_batch_dims)
    return leaf.flatten(num_batch_dims).sum(-1) if leaf.ndim > num_batch_dims else leaf


def a2c(
    log_prob: Tensor,
    advantage: Tensor,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the policy gradient loss of an advantage actor-critic.

        L = −mean( log π(a) · sg(A) )

    Args:
        log_prob: floating ``[*B]``, of the stored action under the present parameters, joint.
        advantage: ``[*B]``; carries no gradient.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``advantage_mean``.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction.

    Source: Mnih et al. 2016 (arXiv:1602.01783), section 4.

    >>> a2c(torch.tensor([-0.5, -1.0]), torch.tensor([2.0, -1.0]))[0]
    tensor(0.)
    """
    inputs = {"log_prob": log_prob, "advantage": advantage}
    r = rows(inputs, mask=mask, weight=weight, reduction=reduction)
    advantage = r.constant(advantage)
    return r.reduce(-r.live(log_prob) * advantage), {"advantage_mean": r.mean(advantage)}


def reinforce(
    log_prob: Tensor,
    return_: Tensor,
    *,
    baseline: Tensor | Baseline = "none",
    normalize: bool = False,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the REINFORCE loss.

        L = −mean( log π(a) · sg(G − b) )

    Args:
        log_prob: floating ``[*B]``, of the *stored* action under the present parameters, joint.
        return_: G ``[*B]``, such as `returns.reward_to_go`; carries no gradient.
        baseline: b; ``"none"``, ``"mean"`` of the returns, or values ``[*B]``, which carry no
            gradient here: they learn by `value_loss`.
        normalize: give G − b mean 0 and unbiased standard deviation 1.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``return_mean`` and ``return_std`` (population).

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown baseline or reduction.

    Source: Williams 1992; Sutton and Barto 2018, section 13.4.

    >>> reinforce(torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 1.0]), baseline="mean")[0]
    tensor(-0.5000)
    """
    inputs = {"log_prob": log_prob, "return_": return_}
    if isinstance(baseline, Tensor):
        inputs["baseline"] = baseline
    r = rows(inputs, mask=mask, weight=weight, reduction=reduction)
    return_ = r.constant(return_)
    mean = numerics.masked_mean(return_, mask)
    if isinstance(baseline, Tensor):
        signal = return_ - r.constant(baseline)
    elif check.option("baseline", baseline, ("none", "mean")) == "mean":
        signal = return_ - mean
    else:
        signal = return_
    if normalize:
        signal = normalize_advantage(signal, mask=mask)
    std = numerics.masked_mean((return_ - mean).square(), mask).sqrt()
    metrics = {"return_mean": mean.to(r.result_dtype), "return_std": std.to(r.result_dtype)}
    return r.reduce(-r.live(log_prob) * signal), metrics


def entropy_bonus(
    entropy: Tensor | Mapping[str, Tensor],
    *,
    coef: Scalar | Mapping[str, Scalar] = 1.0,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the entropy bonus as a loss, to be added to the others.

        L = −Σ_h c_h mean H_h

    Args:
        entropy: H, floating ``[*B]``, summed over dimensions; or one entry a head.
        coef: c, one number, or one a head under the same names.
        mask: bool ``[*B]``.
        weight: ``[*B]``.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``entropy``, the mean of Σ_h H_h.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: unknown reduction, or coefficients of other heads.

    Source: Williams and Peng 1991; rlax ``entropy_loss`` has this sign.

    >>> entropy_bonus(torch.tensor([1.0, 3.0]), coef=0.5)[0]
    tensor(-1.)
    """
    heads = entropy if isinstance(entropy, Mapping) else {"entropy": entropy}
    coefs = coef if isinstance(coef, Mapping) else dict.fromkeys(heads, coef)
    if coefs.keys() != heads.keys():
        raise ConfigError(f"coef has heads {sorted(coefs)}, expected {sorted(heads)} as entropy")
    r = rows(heads, mask=mask, weight=weight, reduction=reduction)
    live = {name: r.live(head) for name, head in heads.items()}
    total = torch.stack([head.detach() for head in live.values()]).sum(0)
    bonus = torch.stack([r.scalar("coef", coefs[name]) * head for name, head in live.items()])
    return r.reduce(-bonus.sum(0)), {"entropy": r.mean(total)}
