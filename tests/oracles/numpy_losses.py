"""The definitions of losses and targets, row by row in plain floats: NumPy and `math`, no torch.

A function takes what purerl's of the same name takes, as float64 arrays, and returns the losses of
the rows before any reduction, or the targets. The surrogates are written as the textbook has them,
with ratios and both branches; sums over members, actions, atoms and samples are loops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def distance(x: float, y: float, kind: str) -> float:
    e = abs(x - y)
    return {
        "l2": e * e,
        "half_l2": 0.5 * e * e,
        "huber": 0.5 * e * e if e <= 1.0 else e - 0.5,
        "l1": e,
    }[kind]


def log_softmax(z: Array, legal: Array | None = None) -> list[float]:
    """Return log-probabilities, −∞ where illegal."""
    rows = [k for k in range(len(z)) if legal is None or legal[k]]
    top = max(z[k] for k in rows)
    total = math.log(sum(math.exp(z[k] - top) for k in rows)) + top
    return [float(z[k]) - total if k in rows else -math.inf for k in range(len(z))]


def log_sum_exp(terms: list[float]) -> float:
    top = max(terms)
    return top + math.log(sum(math.exp(t - top) for t in terms))


def _per_row(n: int, function: Any) -> Array:
    return np.array([function(b) for b in range(n)])


# Policy gradients.


def ppo_clip(
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    clip_epsilon: Any = 0.2,
    dual_clip: float | None = None,
) -> Array:
    below, above = clip_epsilon if isinstance(clip_epsilon, tuple) else (clip_epsilon,) * 2

    def one(b: int) -> float:
        ratio, a = math.exp(log_prob[b] - old_log_prob[b]), advantage[b]
        clipped = min(max(ratio, 1.0 - below), 1.0 + above)
        objective = min(ratio * a, clipped * a)
        if dual_clip is not None and a < 0:
            objective = max(objective, dual_clip * a)
        return -objective

    return _per_row(len(advantage), one)


def ppo_kl_penalty(
    log_prob: Array, old_log_prob: Array, advantage: Array, kl: Array, beta: float
) -> Array:
    return _per_row(
        len(kl),
        lambda b: -math.exp(log_prob[b] - old_log_prob[b]) * advantage[b] + beta * kl[b],
    )


def a2c(log_prob: Array, advantage: Array) -> Array:
    return _per_row(len(log_prob), lambda b: -log_prob[b] * advantage[b])


def normalized(x: Array, ddof: int = 1, epsilon: float = 1e-8) -> Array:
    mean = sum(x) / len(x)
    variance = sum((y - mean) ** 2 for y in x) / max(len(x) - ddof, 1)
    return np.array([(y - mean) / (math.sqrt(variance) + epsilon) for y in x])


def reinforce(
    log_prob: Array, return_: Array, baseline: Any = "none", normalize: bool = False
) -> Array:
    signal = return_ - 0.0
    if isinstance(baseline, str):
        signal = signal - (sum(return_) / len(return_) if baseline == "mean" else 0.0)
    else:
        signal = signal - baseline
    return a2c(log_prob, normalized(signal) if normalize else signal)


def value_loss(
    value: Array,
    value_target: Array,
    old_value: Array | None = None,
    clip_epsilon: float = math.inf,
    clip_mode: str | None = None,
    kind: str = "l2",
) -> Array:
    def one(b: int) -> float:
        plain = distance(value[b], value_target[b], kind)
        if clip_mode is None or old_value is None:
            return plain
        moved = min(max(value[b] - old_value[b], -clip_epsilon), clip_epsilon)
        clipped = distance(old_value[b] + moved, value_target[b], kind)
        return max(plain, clipped) if clip_mode == "max" else clipped

    return _per_row(len(value), one)


def entropy_bonus(entropy: Array, coef: float = 1.0) -> Array:
    return _per_row(len(entropy), lambda b: -coef * entropy[b])


# Targets.


def _target(reward: Array, terminated: Array, steps: Array, gamma: float, bootstrap: Any) -> Array:
    def one(b: int) -> float:
        if terminated[b]:
            return float(reward[b])
        return float(reward[b] + gamma ** int(steps[b]) * bootstrap(b))

    return _per_row(len(reward), one)


def _best(q: Any, legal: Array | None) -> int:
    actions = [a for a in range(len(q)) if legal is None or legal[a]]
    return max(actions, key=lambda a: (q[a], -a))


def dqn_target(
    reward: Array,
    next_q: Array,
    terminated: Array,
    steps: Array,
    gamma: float,
    next_q_select: Array | None = None,
    next_action_mask: Array | None = None,
) -> Array:
    select = next_q if next_q_select is None else next_q_select
    legal = [None] * len(reward) if next_action_mask is None else next_action_mask
    return _target(
        reward, terminated, steps, gamma, lambda b: next_q[b, _best(select[b], legal[b])]
    )


def ddpg_target(
    reward: Array, next_q: Array, terminated: Array, steps: Array, gamma: float
) -> Array:
    return _target(reward, terminated, steps, gamma, lambda b: next_q[b])


def iql_target(
    reward: Array, next_value: Array, terminated: Array, steps: Array, gamma: float
) -> Array:
    return ddpg_target(reward, next_value, terminated, steps, gamma)


def td3_target(
    reward: Array, next_q: Array, terminated: Array, steps: Array, gamma: float
) -> Array:
    return _target(reward, terminated, steps, gamma, lambda b: min(next_q[:, b]))


def cql_target(
    reward: Array, next_q: Array, terminated: Array, steps: Array, gamma: float
) -> Array:
    num_samples = next_q.shape[1]
    return _target(
        reward,
        terminated,
        steps,
        gamma,
        lambda b: max(min(next_q[:, s, b]) for s in range(num_samples)),
    )


def sac_target(
    reward: Array,
    next_q: Array,
    next_log_prob: Array,
    alpha: float,
    terminated: Array,
    steps: Array,
    gamma: float,
) -> Array:
    return _target(
        reward, terminated, steps, gamma, lambda b: min(next_q[:, b]) - alpha * next_log_prob[b]
    )


def redq_target(
    reward: Array,
    next_q: Array,
    next_log_prob: Array,
    alpha: float,
    terminated: Array,
    steps: Array,
    gamma: float,
    subset: Array,
) -> Array:
    return _target(
        reward,
        terminated,
        steps,
        gamma,
        lambda b: min(next_q[k, b] for k in subset) - alpha * next_log_prob[b],
    )


def _soft_value(q: Array, logits: Array, alpha: float, legal: Array | None) -> float:
    total = 0.0
    for a, log_p in enumerate(log_softmax(logits, legal)):
        if log_p > -math.inf:
            total += math.exp(log_p) * (min(q[:, a]) - alpha * log_p)
    return total


def sac_discrete_target(
    reward: Array,
    next_q: Array,
    next_logits: Array,
    alpha: float,
    terminated: Array,
    steps: Array,
    gamma: float,
    next_action_mask: Array,
) -> Array:
    return _target(
        reward,
        terminated,
        steps,
        gamma,
        lambda b: _soft_value(next_q[:, b], next_logits[b], alpha, next_action_mask[b]),
    )


def c51_target(
    reward: Array,
    next_logits: Array,
    terminated: Array,
    steps: Array,
    gamma: float,
    v_min: float,
    v_max: float,
    next_logits_select: Array | None = None,
    next_action_mask: Array | None = None,
) -> Array:
    """Share each atom's mass by floor and ceiling of its position: the paper's algorithm 1."""
    n, num_actions, num_atoms = next_logits.shape
    width = (v_max - v_min) / (num_atoms - 1)
    atoms = [v_min + k * width for k in range(num_atoms)]
    select = next_logits if next_logits_select is None else next_logits_select
    result = np.zeros((n, num_atoms))
    for b in range(n):
        means = [
            sum(z * math.exp(p) for z, p in zip(atoms, log_softmax(select[b, a]), strict=True))
            for a in range(num_actions)
        ]
        best = _best(means, None if next_action_mask is None else next_action_mask[b])
        for z, log_p in zip(atoms, log_softmax(next_logits[b, best]), strict=True):
            moved = reward[b] + (0.0 if terminated[b] else gamma ** int(steps[b]) * z)
            place = (min(max(moved, v_min), v_max) - v_min) / width
            low = min(math.floor(place), num_atoms - 2)
            result[b, low] += math.exp(log_p) * (low + 1 - place)
            result[b, low + 1] += math.exp(log_p) * (place - low)
    return result


def quantile_target(
    reward: Array,
    next_quantiles: Array,
    terminated: Array,
    steps: Array,
    gamma: float,
    next_quantiles_select: Array,
    next_action_mask: Array,
) -> Array:
    columns = []
    for j in range(next_quantiles.shape[2]):

        def bootstrap(b: int, j: int = j) -> float:
            means = [sum(row) / len(row) for row in next_quantiles_select[b]]
            return float(next_quantiles[b, _best(means, next_action_mask[b]), j])

        columns.append(_target(reward, terminated, steps, gamma, bootstrap))
    return np.stack(columns, -1)


# Values.


def dqn(q: Array, action: Array, target: Array, kind: str = "huber") -> Array:
    return _per_row(len(target), lambda b: distance(q[b, action[b]], target[b], kind))


def c51(logits: Array, action: Array, target: Array) -> Array:
    def one(b: int) -> float:
        log_p = log_softmax(logits[b, action[b]])
        return -sum(m * p for m, p in zip(target[b], log_p, strict=True))

    return _per_row(len(target), one)


def quantile(
    quantiles: Array,
    action: Array,
    target: Array,
    kappa: float = 1.0,
    divide_by_kappa: bool = False,
) -> Array:
    def one(b: int) -> float:
        theta, total = quantiles[b, action[b]], 0.0
        for i, value in enumerate(theta):
            tau = (2 * i + 1) / (2 * len(theta))
            for y in target[b]:
                u = y - value
                h = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                total += abs(tau - (1.0 if u < 0 else 0.0)) * h / len(target[b])
        return total / kappa if divide_by_kappa else total

    return _per_row(len(target), one)


# Actors and critics.


def ensemble_critic(q: Array, target: Array, kind: str = "l2", critic_sum: str = "sum") -> Array:
    share = 1.0 / len(q) if critic_sum == "mean" else 1.0
    return _per_row(
        len(target), lambda b: share * sum(distance(x, target[b], kind) for x in q[:, b])
    )


td3_critic = sac_critic = redq_critic = iql_critic = ensemble_critic


def ddpg_critic(q: Array, target: Array, kind: str = "l2") -> Array:
    return ensemble_critic(q[None], target, kind)


def ddpg_actor(q: Array) -> Array:
    return _per_row(len(q), lambda b: -q[b])


def td3_actor(q: Array, critic_reduce: str = "first") -> Array:
    return _per_row(q.shape[1], lambda b: -(min(q[:, b]) if critic_reduce == "min" else q[0, b]))


def td3_bc_actor(q: Array, policy_action: Array, action: Array, alpha: float = 2.5) -> Array:
    factor = alpha / (sum(abs(x) for x in q) / len(q))

    def one(b: int) -> float:
        errors = [(x - y) ** 2 for x, y in zip(policy_action[b], action[b], strict=True)]
        return -factor * q[b] + sum(errors) / len(errors)

    return _per_row(len(q), one)


def sac_actor(log_prob: Array, q: Array, alpha: float) -> Array:
    return _per_row(len(log_prob), lambda b: alpha * log_prob[b] - min(q[:, b]))


def redq_actor(log_prob: Array, q: Array, alpha: float) -> Array:
    return _per_row(len(log_prob), lambda b: alpha * log_prob[b] - sum(q[:, b]) / len(q))


def sac_alpha(log_alpha: float, log_prob: Array, target_entropy: float, form: str = "log") -> Array:
    factor = float(log_alpha) if form == "log" else math.exp(log_alpha)
    return _per_row(len(log_prob), lambda b: -factor * (log_prob[b] + target_entropy))


def sac_discrete_critic(q: Array, action: Array, target: Array) -> Array:
    taken = np.array([[q[k, b, action[b]] for b in range(len(target))] for k in range(len(q))])
    return ensemble_critic(taken, target)


def sac_discrete_actor(
    logits: Array,
    q: Array,
    alpha: float,
    action_mask: Array | None = None,
    critic_reduce: str = "min",
) -> Array:
    if critic_reduce == "mean":
        q = (sum(q) / len(q))[None]

    def one(b: int) -> float:
        legal = None if action_mask is None else action_mask[b]
        return -_soft_value(q[:, b], logits[b], alpha, legal)

    return _per_row(len(logits), one)


def sac_discrete_alpha(
    log_alpha: float, logits: Array, target_entropy: float, action_mask: Array
) -> Array:
    def negentropy(b: int) -> float:
        log_p = [p for p in log_softmax(logits[b], action_mask[b]) if p > -math.inf]
        return sum(math.exp(p) * p for p in log_p)

    return _per_row(len(logits), lambda b: -float(log_alpha) * (negentropy(b) + target_entropy))


# Offline.


def cql_penalty(
    q_data: Array,
    q_sampled: Array,
    log_prob: Array,
    temperature: float = 1.0,
    min_q_weight: float = 1.0,
    alpha_prime: float = 1.0,
    threshold: float = 0.0,
) -> Array:
    def one(b: int) -> float:
        total = 0.0
        for k in range(len(q_data)):
            terms = [
                q_sampled[k, s, b] / temperature - log_prob[s, b] for s in range(len(log_prob))
            ]
            total += temperature * log_sum_exp(terms) - q_data[k, b] - threshold
        return alpha_prime * min_q_weight * total

    return _per_row(q_data.shape[1], one)


def cql_discrete_penalty(q: Array, action: Array, min_q_weight: float = 1.0) -> Array:
    return _per_row(
        len(action), lambda b: min_q_weight * (log_sum_exp(list(q[b])) - q[b, action[b]])
    )


def cql_bc_actor(log_prob: Array, data_log_prob: Array, alpha: float) -> Array:
    return _per_row(len(log_prob), lambda b: alpha * log_prob[b] - data_log_prob[b])


def iql_value(value: Array, q: Array, expectile: float) -> Array:
    def one(b: int) -> float:
        d = min(q[:, b]) - value[b]
        return (expectile if d > 0 else 1.0 - expectile) * d * d

    return _per_row(len(value), one)


def iql_actor(
    log_prob: Array, q: Array, value: Array, temperature: float, max_weight: float
) -> Array:
    def one(b: int) -> float:
        weight = min(math.exp(temperature * (min(q[:, b]) - value[b])), max_weight)
        return -weight * log_prob[b]

    return _per_row(len(value), one)
