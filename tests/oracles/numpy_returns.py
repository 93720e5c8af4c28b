"""The definitions of the estimators as forward sums over one stream, in NumPy and float64.

purerl evaluates backward recurrences by scans; here each row's sum is written out from the row
on, so that nothing of the shape of the code is shared. Arguments are arrays ``[T]`` or ``[T, B]``
(run column by column), ``gamma`` and ``lmbda`` numbers or arrays of that shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def trajectory(
    seed: int, num_steps: int, num_envs: int = 3, *, end: float = 0.25, consistent: bool = False
) -> dict[str, Array]:
    """Return a random trajectory; ``consistent`` means v'_t = v_{t+1} inside episodes."""
    rng = np.random.default_rng(seed)
    shape = (num_steps, num_envs)
    names = ("reward", "value", "next_value", "log_prob", "behavior_log_prob")
    data: dict[str, Array] = {name: rng.normal(size=shape) for name in names}
    data["terminated"] = rng.random(shape) < end / 2
    data["truncated"] = rng.random(shape) < end / 2
    if consistent:
        done = data["terminated"] | data["truncated"]
        inside = np.concatenate([~done[:-1], np.zeros_like(done[:1])])
        shifted = np.concatenate([data["value"][1:], data["value"][:1]])
        data["next_value"] = np.where(inside, shifted, data["next_value"])
    return data


def by_column(estimator: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of streams ``[T]`` take ``[T, B]``."""

    def run(*args: Any, **options: Any) -> Any:
        reward = np.asarray(options["reward"])
        options = {k: v if v is None else np.asarray(v) for k, v in options.items()}
        if reward.ndim == 1:
            return estimator(**options)
        columns = []
        for b in range(reward.shape[1]):
            own = {k: v[..., b] if v is not None and v.ndim else v for k, v in options.items()}
            columns.append(estimator(**own))
        if isinstance(columns[0], tuple):
            return tuple(np.stack(field, 1) for field in zip(*columns, strict=True))
        return np.stack(columns, 1)

    return run


def _per_step(value: Any, num_steps: int) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (num_steps,))


def _last(t: int, done: Array, mask: Array) -> int:
    """Return the last row of the stretch that begins with t."""
    while not done[t] and t + 1 < len(done) and mask[t + 1]:
        t += 1
    return t


def _stretches(terminated: Array, truncated: Array, mask: Array | None) -> list[range]:
    """Return for each row the rows of its sum; none for an invalid row."""
    done = terminated | truncated
    mask = np.ones_like(done) if mask is None else mask
    return [range(t, _last(t, done, mask) + 1) if mask[t] else range(0) for t in range(len(done))]


@by_column
def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Any,
    lmbda: Any,
    carry: float = 0.0,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    g, lam = _per_step(gamma, len(reward)), _per_step(lmbda, len(reward))
    advantage, target = np.zeros(len(reward)), np.zeros(len(reward))
    for t, rows in enumerate(_stretches(terminated, truncated, mask)):
        if not rows:
            continue
        weight = 1.0
        for k in rows:
            bootstrap = 0.0 if terminated[k] else g[k] * next_value[k]
            advantage[t] += weight * (reward[k] + bootstrap - value[k])
            weight *= g[k] * lam[k]
        if rows[-1] == len(reward) - 1 and not (terminated[-1] or truncated[-1]):
            advantage[t] += weight * carry
        target[t] = advantage[t] + value[t]
    return advantage, target


@by_column
def td0(
    reward: Array,
    next_value: Array,
    terminated: Array,
    gamma: Any,
    steps: Array | None = None,
    mask: Array | None = None,
) -> Array:
    g = _per_step(gamma, len(reward))
    target = np.zeros(len(reward))
    for t in range(len(reward)):
        if mask is None or mask[t]:
            discount = g[t] if steps is None else g[t] ** steps[t]
            target[t] = reward[t] + (0.0 if terminated[t] else discount * next_value[t])
    return target


@by_column
def td_lambda(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Any,
    lmbda: Any,
    mask: Array | None = None,
) -> Array:
    g, lam = _per_step(gamma, len(reward)), _per_step(lmbda, len(reward))
    target = np.zeros(len(reward))
    for t, rows in enumerate(_stretches(terminated, truncated, mask)):
        weight = 1.0
        for k in rows:
            share = 1.0 if k == rows[-1] else 1.0 - lam[k]  # the last row bootstraps in full
            bootstrap = 0.0 if terminated[k] else share * next_value[k]
            target[t] += weight * (reward[k] + g[k] * bootstrap)
            weight *= g[k] * lam[k]
    return target


@by_column
def n_step(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Any,
    n: int,
    mask: Array | None = None,
) -> Array:
    g = _per_step(gamma, len(reward))
    target = np.zeros(len(reward))
    for t, rows in enumerate(_stretches(terminated, truncated, mask)):
        weight = 1.0
        for k in rows[: int(n)]:
            target[t] += weight * reward[k]
            weight *= g[k]
        if rows and not terminated[rows[: int(n)][-1]]:
            target[t] += weight * next_value[rows[: int(n)][-1]]
    return target


def td1(**inputs: Any) -> Any:
    return n_step(**inputs, n=len(inputs["reward"]))


@by_column
def reward_to_go(
    reward: Array, terminated: Array, truncated: Array, gamma: Any, mask: Array | None = None
) -> Array:
    g = _per_step(gamma, len(reward))
    target = np.zeros(len(reward))
    for t, rows in enumerate(_stretches(terminated, truncated, mask)):
        target[t] = sum(np.prod(g[t:k]) * reward[k] for k in rows)
    return target


@by_column
def vtrace(
    log_prob: Array,
    behavior_log_prob: Array,
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Any,
    lmbda: Any = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    pg_rho_clip: float = 1.0,
    mixed: bool = False,
    mask: Array | None = None,
) -> tuple[Array, Array, Array]:
    g, lam = _per_step(gamma, len(reward)), _per_step(lmbda, len(reward))
    target, advantage, rho = np.zeros((3, len(reward)))
    stretches = _stretches(terminated, truncated, mask)
    for t, rows in enumerate(stretches):
        weight = 1.0
        for k in rows:
            ratio = np.exp(log_prob[k] - behavior_log_prob[k])
            bootstrap = 0.0 if terminated[k] else g[k] * next_value[k]
            target[t] += weight * min(ratio, rho_clip) * (reward[k] + bootstrap - value[k])
            weight *= g[k] * lam[k] * min(ratio, c_clip)
        target[t] += value[t] if rows else 0.0
    for t, rows in enumerate(stretches):
        if rows:
            rho[t] = np.exp(log_prob[t] - behavior_log_prob[t])
            ahead = next_value[t]
            if len(rows) > 1:
                share = lam[t] if mixed else 1.0
                ahead = share * target[t + 1] + (1.0 - share) * value[t + 1]
            bootstrap = 0.0 if terminated[t] else g[t] * ahead
            advantage[t] = min(rho[t], pg_rho_clip) * (reward[t] + bootstrap - value[t])
    return target, advantage, rho


@by_column
def retrace(
    reward: Array,
    q_value: Array,
    next_expected_value: Array,
    trace_weight: Array,
    terminated: Array,
    truncated: Array,
    gamma: Any,
    lmbda: Any = 1.0,
    mask: Array | None = None,
) -> Array:
    """G = q + Σ_k (Π_{t<i≤k} γ_{i−1} c_i) (r_k + γ b_k − q_k), the form of the paper."""
    g, c = _per_step(gamma, len(reward)), _per_step(lmbda, len(reward)) * trace_weight
    target = np.zeros(len(reward))
    for t, rows in enumerate(_stretches(terminated, truncated, mask)):
        weight = 1.0
        for k in rows:
            weight *= 1.0 if k == t else g[k - 1] * c[k]
            bootstrap = 0.0 if terminated[k] else g[k] * next_expected_value[k]
            target[t] += weight * (reward[k] + bootstrap - q_value[k])
        target[t] += q_value[t] if rows else 0.0
    return target
