"""Rewards scaled by the deviation of the running discounted return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from .. import check, numerics, recurrence
from ..types import Scalar
from . import statistics
from .statistics import Stats


def init_return(
    num_envs: int, *, prior_count: float = 0.0, device: torch.device | None = None
) -> Stats:
    """Return fresh statistics of returns: `init` of a scalar, and a running return for each env.

    Args:
        num_envs: B.
        prior_count: see `init`.
        device: of the statistics.

    >>> sorted(init_return(2)), init_return(2)["discounted_return"]
    (['count', 'discounted_return', 'm2', 'mean'], tensor([0., 0.], dtype=torch.float64))
    """
    start = torch.zeros(num_envs, dtype=torch.float64, device=device)
    return {
        "discounted_return": start,
        **statistics.init((), prior_count=prior_count, device=device),
    }


def discounted_return_step(
    running: Tensor,
    reward: Tensor,
    done_before: Tensor,
    gamma: Scalar,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the running returns after one step.

        R_t = r_t + γ · where(d_{t−1}, 0, R_{t−1})

    The reset belongs to the row *after* the end, so the last reward of an episode is still part
    of it. A masked or non-finite reward is no step: it leaves where(d_{t−1}, 0, R_{t−1}).

    Args:
        running: R_{t−1}, floating ``[*B]`` (float64); the result has its dtype.
        reward: r_t, floating ``[*B]``.
        done_before: bool ``[*B]``, whether the previous row was a step that ended its episode,
            either way.
        gamma: γ, that of the algorithm.
        mask: bool ``[*B]``, False where the row only reset its environment.

    Raises:
        ShapeError: shapes or dtypes do not fit.

    >>> discounted_return_step(
    ...     torch.tensor([1.5, 1.5]), torch.ones(2), torch.tensor([False, True]), 0.5
    ... )
    tensor([1.7500, 1.0000])
    """
    check.same_shape(running=running, reward=reward, done_before=done_before, mask=mask)
    check.boolean(done_before=done_before, mask=mask)
    kept = torch.where(done_before, torch.zeros_like(running), running)
    moved = reward.to(running.dtype) + numerics.scalar_like(gamma, running) * kept
    return torch.where(_counts(reward, mask), moved, kept)


def discounted_return(
    running: Tensor,
    reward: Tensor,
    done: Tensor,
    gamma: Scalar,
    *,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the running returns of a whole rollout, as `discounted_return_step` row by row.

    Args:
        running: floating ``[*B]``, what came before; 0 where the last episode has ended.
        reward: floating ``[T, *B]``.
        done: bool ``[T, *B]``, terminated or truncated.
        gamma: γ, that of the algorithm.
        mask: bool ``[T, *B]``, False where the row only reset its environment; its done flag is
            not looked at.

    Returns:
        R ``[T, *B]``, and what the next rollout starts from ``[*B]``; both in the dtype of
        ``running``.

    Raises:
        ShapeError: shapes or dtypes do not fit.

    >>> done = torch.tensor([False, True, False, False])
    >>> discounted_return(torch.tensor(0.0), torch.ones(4), done, 0.5)
    (tensor([1.0000, 1.5000, 1.0000, 1.5000]), tensor(1.5000))
    """
    check.same_shape(reward=reward, done=done, mask=mask)
    check.boolean(done=done, mask=mask)
    check.shape("running", running, *reward.shape[1:])
    counts = _counts(reward, mask)
    rows = torch.where(counts, reward, torch.zeros_like(reward)).to(running.dtype)
    decay = torch.where(counts, numerics.scalar_like(gamma, rows), torch.ones_like(rows))
    ended = done if mask is None else done & mask
    cut = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]])
    returns = recurrence.linear(decay, rows, initial=running, cut=cut)
    return returns, torch.where(ended[-1], torch.zeros_like(running), returns[-1])


def _scaled_dtype(reward: Tensor) -> torch.dtype:
    """Return the reward's own dtype; float32 for integers, which a scaled reward is not."""
    return reward.dtype if reward.is_floating_point() else torch.float32


def _counts(reward: Tensor, mask: Tensor | None) -> Tensor:
    return reward.isfinite() if mask is None else reward.isfinite() & mask


def scale_reward(
    stats: Mapping[str, Tensor],
    reward: Tensor,
    *,
    epsilon: Scalar = 1e-8,
    clip: Scalar | None = 10.0,
) -> Tensor:
    """Return rewards in units of the deviation of the return, not centred.

        clip(r / √(var(R) + ε), −c, c)

    Args:
        stats: statistics of returns, left as they are.
        reward: floating ``[*B]``.
        epsilon: ε ≥ 0.
        clip: c > 0; None for no clipping.

    Source: Engstrom et al. 2020, section 3, "reward scaling".

    >>> scale_reward(
    ...     statistics.update(statistics.init(()), torch.tensor([1.0, 5.0])), torch.tensor([3.0])
    ... )
    tensor([1.5000])
    """
    return statistics.apply(stats, reward, epsilon=epsilon, clip=clip, center=False)


def scale_rollout(
    stats: Mapping[str, Tensor],
    reward: Tensor,
    done: Tensor,
    gamma: Scalar,
    *,
    mask: Tensor | None = None,
    update: Literal["step", "rollout"] = "step",
    epsilon: Scalar = 1e-8,
    clip: Scalar | None = 10.0,
) -> tuple[Tensor, Stats]:
    """Return the scaled rewards of a rollout, and the statistics of returns after it.

    Args:
        stats: from `init_return`.
        reward: floating ``[T, B]``.
        done: bool ``[T, B]``, terminated or truncated.
        gamma: γ, that of the algorithm.
        mask: bool ``[T, B]``, False where the row only reset its environment.
        update: ``"step"`` scales each row by statistics that know it already (Stable-Baselines3,
            gymnasium); ``"rollout"`` scales all rows by those from before.
        epsilon: ε ≥ 0.
        clip: c > 0; None for no clipping.

    Raises:
        ShapeError: shapes or dtypes do not fit.
        ConfigError: unknown ``update``.

    >>> reward, done = torch.tensor([[1.0, 3.0], [1.0, 1.0]]), torch.zeros(2, 2, dtype=torch.bool)
    >>> scale_rollout(init_return(2), reward, done, 0.0)[0]
    tensor([[1.0000, 3.0000],
            [1.1547, 1.1547]])
    """
    returns, last = discounted_return(stats["discounted_return"], reward, done, gamma, mask=mask)
    counts = _counts(reward, mask)
    if check.option("update", update, ("step", "rollout")) == "rollout":
        new = statistics.update(stats, returns, mask=counts)
        scaled = scale_reward(stats, reward, epsilon=epsilon, clip=clip)
    else:
        each = statistics.cumulative(stats, returns, mask=counts)
        new = {name: leaf[-1] for name, leaf in each.items()}
        scale = (statistics.variance(each) + numerics.scalar_like(epsilon, returns)).sqrt()
        scale = scale.reshape(scale.shape + (1,) * (reward.ndim - 1))
        scaled = statistics.clipped(reward.to(scale.dtype) / scale, clip).to(_scaled_dtype(reward))
    return scaled, {"discounted_return": last, **new}
