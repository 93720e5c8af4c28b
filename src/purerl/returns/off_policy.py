"""Returns of a policy other than the one that acted: V-trace, Retrace and relatives."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics, recurrence
from ..errors import ConfigError
from ..types import Scalar
from .window import Window, following, window

Trace: TypeAlias = Literal["retrace", "tree_backup", "importance", "q_lambda"]
PolicyBootstrap: TypeAlias = Literal["plain", "mixed"]

_TRACES = ("retrace", "tree_backup", "importance", "q_lambda")


class VTrace(NamedTuple):
    """What `vtrace` returns; all fields are shaped like the reward."""

    value_target: Tensor
    """vs, the critic's target."""
    advantage: Tensor
    """A, of the policy gradient, with its importance weight inside."""
    rho: Tensor
    """ρ = π / μ, not clipped."""


def vtrace(
    log_prob: Tensor,
    behavior_log_prob: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    lmbda: Scalar = 1.0,
    rho_clip: Scalar | None = 1.0,
    c_clip: Scalar | None = 1.0,
    pg_rho_clip: Scalar | Literal["rho_clip"] | None = "rho_clip",
    pg_bootstrap: PolicyBootstrap = "plain",
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> VTrace:
    """Return V-trace targets and the advantages of its policy gradient.

        ρ_t = exp(log π_t − log μ_t),  ρ̂ = min(ρ̄, ρ),  c_t = λ_t min(c̄, ρ_t)
        δ_t = ρ̂_t (r_t + γ_t where(e_t, 0, v'_t) − v_t)
        x_t = δ_t + γ_t c_t where(d_t, 0, x_{t+1}),  x_T = 0;    vs = v + x
        A_t = min(ρ̄_pg, ρ_t) (r_t + γ_t where(e_t, 0, vs⁺_t) − v_t)
        vs⁺_t = v'_t where the trace ends (d_t, or the last row), else vs_{t+1}

    Args:
        log_prob: floating ``[T, *B]``, log π of the *stored* action (joint, if it has parts).
        behavior_log_prob: ``[T, *B]``, log μ of it.
        reward: ``[T, *B]``.
        value: ``[T, *B]``, v of the state acted in.
        next_value: ``[T, *B]``, v of the true successor.
        terminated: bool ``[T, *B]``, e.
        truncated: bool ``[T, *B]``; d is either flag.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        lmbda: trace parameter, likewise.
        rho_clip: ρ̄, a number or 0-d; None clips nothing.
        c_clip: c̄, likewise.
        pg_rho_clip: ρ̄_pg, likewise; default that of ``rho_clip``.
        pg_bootstrap: ``"plain"`` as in the paper, or rlax's ``"mixed"``, which inside an episode
            takes λ_t vs_{t+1} + (1 − λ_t) v_{t+1} for vs⁺.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through, also into the log-probabilities.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
        ConfigError: unknown pg_bootstrap.

    Source: Espeholt et al. 2018 (arXiv:1802.01561), section 4.1 and remark 2; a truncated row
    bootstraps and ends the sum.

    >>> log_prob, reward = torch.tensor([4.0, 0.5]).log(), torch.tensor([0.0, 1.0])
    >>> value, next_value = torch.ones(2), torch.tensor([1.0, 2.0])
    >>> no = torch.zeros(2, dtype=torch.bool)
    >>> vtrace(log_prob, 0 * log_prob, reward, value, next_value, no, no, gamma=0.5)[:2]
    (tensor([0.7500, 1.5000]), tensor([-0.2500,  0.5000]))
    """
    check.option("pg_bootstrap", pg_bootstrap, ("plain", "mixed"))
    inputs = {"reward": reward, "value": value, "next_value": next_value}
    inputs |= {"log_prob": log_prob, "behavior_log_prob": behavior_log_prob}
    flags = (terminated, truncated, mask)
    w = window(inputs, *flags, dim=dim, differentiable=differentiable, gamma=gamma, lmbda=lmbda)
    r, v, successor = w.rows(reward), w.rows(value), w.rows(next_value)
    discount, trace = w.coefficient(gamma), w.coefficient(lmbda)
    rho = (w.rows(log_prob) - w.rows(behavior_log_prob)).exp()

    delta = torch.addcmul(r, w.bootstrap(successor), discount) - v
    decay = discount * trace * _clipped(w, "c_clip", rho, c_clip)
    x = _clipped(w, "rho_clip", rho, rho_clip) * delta
    # a product of weights above 1 may overflow
    bounded = isinstance(c_clip, int | float) and c_clip <= 1.0
    target = recurrence.backward(decay, x, w.gate, bounded=bounded) + v

    ahead = following(target, successor[-1:])
    if pg_bootstrap == "mixed":
        ahead = torch.lerp(following(v, successor[-1:]), ahead, trace)
    ahead = w.bootstrap(w.where_cut(successor, ahead))
    pg_clip = rho_clip if isinstance(pg_rho_clip, str) else pg_rho_clip
    pg_weight = _clipped(w, "pg_rho_clip", rho, pg_clip)
    advantage = pg_weight * (torch.addcmul(r, ahead, discount) - v)
    return VTrace(w.result(target), w.result(advantage), w.result(w.masked(rho)))


def retrace(
    reward: Tensor,
    q_value: Tensor,
    next_expected_value: Tensor,
    log_ratio: Tensor | None,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    lmbda: Scalar = 1.0,
    trace: Trace = "retrace",
    log_prob: Tensor | None = None,
    mask: Tensor | None = None,
    differentiable: bool = False,
    dim: int = 0,
) -> Tensor:
    """Return the target of Q(s_t, a_t) from a behaviour policy's trajectory.

        b_t = where(e_t, 0, Σ_a π(a|s'_t) Q(s'_t, a))
        G_t = r_t + γ_t b_t + γ_t where(d_t, 0, c_{t+1} (G_{t+1} − q_{t+1})),  c_T = 0

        trace  "retrace"      c = λ min(1, ρ)        ρ = exp(log_ratio) of the stored action
               "importance"   c = λ ρ
               "tree_backup"  c = λ π(a)
               "q_lambda"     c = λ

    Args:
        reward: floating ``[T, *B]``.
        q_value: ``[T, *B]``, q = Q of the state acted in and the stored action.
        next_expected_value: ``[T, *B]``, the expectation of Q at the true successor under π.
        log_ratio: ``[T, *B]``, log π − log μ of the stored action; None where the trace does not
            use it.
        terminated: bool ``[T, *B]``, e.
        truncated: bool ``[T, *B]``; d is either flag.
        gamma: discount; a number, 0-d or ``[T, *B]``.
        lmbda: trace parameter, likewise.
        trace: which coefficients.
        log_prob: ``[T, *B]``, log π of the stored action, for ``"tree_backup"``.
        mask: bool ``[T, *B]``, False where a row is no transition.
        differentiable: let gradients through.
        dim: the time dimension.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
        ConfigError: unknown trace, or the log-probability that it needs is missing.

    Source: Munos et al. 2016 (arXiv:1606.02647), equation 3 and table 1; the last row of a window
    and a truncated row bootstrap from the expectation.

    >>> reward, q_value, ahead = torch.tensor([[1.0, 1.0], [2.0, 2.0], [2.0, 4.0]])
    >>> no = torch.zeros(2, dtype=torch.bool)
    >>> retrace(reward, q_value, ahead, torch.zeros(2), no, no, gamma=0.5)
    tensor([2.5000, 3.0000])
    """
    given = {"retrace": log_ratio, "importance": log_ratio, "tree_backup": log_prob}
    inputs = {"reward": reward, "q_value": q_value, "next_expected_value": next_expected_value}
    inputs |= {} if log_ratio is None else {"log_ratio": log_ratio}
    inputs |= {} if log_prob is None else {"log_prob": log_prob}
    flags = (terminated, truncated, mask)
    w = window(inputs, *flags, dim=dim, differentiable=differentiable, gamma=gamma, lmbda=lmbda)
    q, discount = w.rows(q_value), w.coefficient(gamma)
    c = w.coefficient(lmbda)
    if check.option("trace", trace, _TRACES) != "q_lambda":
        log_weight = given[trace]
        if log_weight is None:
            name = "log_prob" if trace == "tree_backup" else "log_ratio"
            raise ConfigError(f"trace is {trace!r}, which needs {name}")
        weight = w.rows(log_weight).exp()
        c = c * (weight.clamp(max=1.0) if trace == "retrace" else weight)
    c = c.expand_as(q)
    b = w.bootstrap(w.rows(next_expected_value))
    error = torch.addcmul(w.rows(reward), b, discount) - q
    decay = discount * following(c, torch.zeros_like(c[:1]))
    bounded = trace != "importance"
    return w.result(recurrence.backward(decay, error, w.gate, bounded=bounded) + q)


def _clipped(w: Window, name: str, rho: Tensor, clip: Scalar | None) -> Tensor:
    """Return min(clip, ρ); NaN stays NaN."""
    if clip is None:
        return rho
    if isinstance(clip, Tensor):
        check.shape(name, clip)
    return torch.minimum(rho, numerics.scalar_like(clip, w.gate))
