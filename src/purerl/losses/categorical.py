"""Q-learning over categorical distributions of returns (C51)."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import check
from ..errors import ShapeError
from ..numerics import Reduction, WeightMode
from ..types import Metrics, Scalar
from .bellman import bellman, gather_rows, target_rows
from .rows import Rows, event_rows, rows
from .value_based import greedy, taken_action


def c51_value(logits: Tensor, *, v_min: Scalar = -10.0, v_max: Scalar = 10.0) -> Tensor:
    """Return the mean Σ_k z_k p_k of a categorical distribution of returns.

        z_k = v_min + k Δ,  Δ = (v_max − v_min)/(K − 1),  k = 0 … K − 1

    Args:
        logits: floating ``[..., K]``, K ≥ 2 atoms.
        v_min: the lowest atom.
        v_max: the highest atom.

    Returns:
        ``[...]``.

    Raises:
        ShapeError: a wrong dtype, or fewer than two atoms.

    >>> c51_value(torch.tensor([[0.0, 0.0, 0.0]]), v_min=0.0, v_max=4.0)
    tensor([2.])
    """
    check.floating(logits=logits)
    check.min_rank("logits", logits, 1)
    r = rows({"logits": logits})
    value = (r.live(logits).softmax(-1) * atoms(r, logits.shape[-1], v_min, v_max)).sum(-1)
    return value.to(r.result_dtype)


def atoms(r: Rows, num_atoms: int, v_min: Scalar, v_max: Scalar) -> Tensor:
    """Return z ``[K]``."""
    if num_atoms < 2:
        raise ShapeError(f"logits have {num_atoms} atom(s) on the last axis, expected at least 2")
    low, high = r.scalar("v_min", v_min), r.scalar("v_max", v_max)
    place = torch.arange(num_atoms, dtype=low.dtype, device=low.device)
    return low + place * ((high - low) / (num_atoms - 1))


def c51_target(
    reward: Tensor,
    next_logits: Tensor,
    terminated: Tensor,
    *,
    gamma: Scalar = 0.99,
    v_min: Scalar = -10.0,
    v_max: Scalar = 10.0,
    next_logits_select: Tensor | None = None,
    next_action_mask: Tensor | None = None,
    steps: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the projected target distribution of categorical Q-learning, a constant.

        Tz_j = clip(r + γ^steps where(e, 0, z_j), v_min, v_max)
        m_k = Σ_j p'_j max(0, 1 − abs(Tz_j − z_k)/Δ),   p' = softmax(next_logits[a*])

    The mass of an atom is split linearly over its two neighbours; an exact hit keeps all of it.
    a* has the greatest mean (`c51_value`). A terminated row has all its mass at clip(r).

    Args:
        reward: floating ``[*B]``.
        next_logits: ``[*B, A, K]`` of the target network; anything where terminated.
        terminated: bool ``[*B]``, e.
        gamma: discount; a number, 0-d or ``[*B]``.
        v_min: the lowest atom.
        v_max: the highest atom.
        next_logits_select: ``[*B, A, K]``, which choose a* for double Q-learning (TorchRL's
            default); else next_logits do.
        next_action_mask: bool ``[*B, A]``, True where legal.
        steps: integer ``[*B]``, rows merged into this one.
        mask: bool ``[*B]``; an invalid row yields 0.

    Returns:
        m ``[*B, K]``.

    Raises:
        ShapeError: a shape or dtype differs.

    Source: Bellemare et al. 2017 (arXiv:1707.06887), equation 7 and algorithm 1.

    >>> next_logits, alive = torch.tensor([[[0.0, 1.0, 0.0]]]).log(), torch.tensor([False])
    >>> c51_target(torch.tensor([0.5]), next_logits, alive, gamma=1.0, v_min=-1.0, v_max=1.0)
    tensor([[0.0000, 0.5000, 0.5000]])
    """
    chosen = next_logits if next_logits_select is None else next_logits_select
    r = target_rows(reward, terminated, next_logits, chosen, gamma=gamma, steps=steps, mask=mask)
    next_logits = r.events("next_logits", next_logits.detach(), 2)
    chosen = r.events("next_logits_select", chosen.detach(), 2)
    check.same_shape(next_logits=next_logits, next_logits_select=chosen)
    z = atoms(r, next_logits.shape[-1], v_min, v_max)
    index, valid = greedy((chosen.softmax(-1) * z).sum(-1), next_action_mask)
    probs = gather_rows(next_logits, index).softmax(-1)
    probs = torch.where(valid.unsqueeze(-1), probs, torch.nan)
    # where terminated every atom moves to r, so that any distribution will do
    probs = torch.where(terminated.unsqueeze(-1), (z == z[0]).to(z.dtype), probs)
    moved = bellman(r, reward, z.expand_as(probs), terminated, gamma=gamma, steps=steps)
    return r.events("target", _project(moved, probs, z)).to(r.result_dtype)


def _project(moved: Tensor, probs: Tensor, z: Tensor) -> Tensor:
    """Return the mass that probabilities at ``moved`` ``[*B, K]`` leave on the atoms."""
    last = z.shape[0] - 1
    place = ((moved - z[0]) / (z[-1] - z[0]) * last).clamp(0.0, float(last))
    slots = torch.arange(last + 1, dtype=z.dtype, device=z.device)
    share = (1.0 - (place.unsqueeze(-1) - slots).abs()).clamp(min=0.0)
    return (probs.unsqueeze(-1) * share).sum(-2)


def c51(
    logits: Tensor,
    action: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    weight_mode: WeightMode = "mean",
    reduction: Reduction = "mean",
) -> tuple[Tensor, Metrics]:
    """Return the loss of categorical Q-learning, a cross-entropy.

        L = −mean Σ_k sg(m_k) log p_k(s, a)

    Args:
        logits: floating ``[*B, A, K]``.
        action: integer ``[*B]``, in ``[0, A)``.
        target: m ``[*B, K]``, from `c51_target`; carries no gradient.
        mask: bool ``[*B]``.
        weight: ``[*B]``, importance weights.
        weight_mode: how weights average; see `purerl.losses`.
        reduction: of the rows; see `purerl.losses`.

    Returns:
        the loss, and ``kl``, the mean of KL(m ‖ p), which is 0 at the optimum, and ``priority``
        ``[*B]``, the cross-entropy of the row.

    Raises:
        ShapeError: a shape or dtype differs.
        ConfigError: an unknown option.

    Source: Bellemare et al. 2017 (arXiv:1707.06887), section 4.

    >>> c51(torch.zeros(1, 2, 4), torch.tensor([0]), torch.tensor([[0.0, 0.5, 0.5, 0.0]]))[0]
    tensor(1.3863)
    """
    r = event_rows(
        "target",
        target,
        logits,
        mask=mask,
        weight=weight,
        weight_mode=weight_mode,
        reduction=reduction,
    )
    target = r.events("target", target.detach())
    chosen = gather_rows(r.events("logits", logits, 2), taken_action(r, action))
    check.same_shape(logits=chosen, target=target)
    log_p = chosen.log_softmax(-1)
    # no mass, no term: 0 · (−∞) would be NaN
    loss = -(target * log_p.masked_fill(target == 0, 0.0)).sum(-1)
    kl = loss.detach() + torch.special.xlogy(target, target).sum(-1)
    return r.reduce(loss), {"kl": r.mean(kl), "priority": r.per_row(loss)}
