"""A gradient step of SAC as a JAX program, from the papers' formulas and this discipline of keys.

update     key, _, learn_key = split(key, 3);   update_key = split(learn_key, 1)[0]
           _, next_key, policy_key = split(update_key, 3);   policy_keys = split(policy_key, 2)
noise      at s' normal(next_key, [B, D]), at s normal(policy_keys[0], [B, D])
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = Any
Array = jax.Array


@dataclass(frozen=True)
class Settings:
    gamma: float = 0.99
    tau: float = 0.005
    target_entropy: float = -1.0
    learning_rate: float = 1e-3
    adam_epsilon: float = 1e-8
    low: float = -2.0
    high: float = 2.0
    environment_density: bool = False
    alpha_form: bool = False
    simultaneous: bool = False
    policy_delay: int = 1
    dtype: Any = jnp.float32
    mistake: str = ""


class Twin(NamedTuple):
    params: Params
    target: Params
    moments: Params
    counts: Params
    updates: Array
    key: Array


def network(params: Params, x: Array) -> Array:
    layers = params["layers"]
    last = len(layers) - 1
    for i in range(last + 1):
        x = x @ layers[str(i)]["weight"].T + layers[str(i)]["bias"]
        x = jnp.maximum(x, 0.0) if i < last else x
    return x


def critics(params: Params, observation: Array, action: Array) -> Array:
    joined = jnp.concatenate([observation, action], -1)
    return jax.vmap(lambda p: network(p, joined)[:, 0])(params)


def draw(c: Settings, actor: Params, observation: Array, noise: Array) -> tuple[Array, Array]:
    """Appendix C of arXiv:1812.05905, with log(1 − tanh²u) in its stable form."""
    loc, log_scale = jnp.split(network(actor, observation), 2, -1)
    log_scale = jnp.clip(log_scale, -20.0, 2.0)
    u = loc + jnp.exp(log_scale) * noise
    normal = -0.5 * noise**2 - log_scale - 0.5 * jnp.log(2.0 * jnp.pi)
    if c.mistake == "the change of variables forgotten":
        return jnp.tanh(u), normal.sum(-1)
    log_det = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    if c.environment_density:
        log_det = log_det + jnp.log(0.5 * (c.high - c.low))
    return jnp.tanh(u), (normal - log_det).sum(-1)


def target(c: Settings, twin: Twin, rows: dict[str, Array], noise: Array) -> Array:
    """Equations 3 and 5."""
    alpha = jnp.exp(twin.params["log_alpha"])
    action, log_prob = draw(c, twin.params["actor"], rows["next_observation"], noise)
    q = critics(twin.target, rows["next_observation"], action).min(0)
    if c.mistake == "the entropy outside the mask":
        return rows["reward"] + c.gamma * (jnp.where(rows["terminated"], 0.0, q) - alpha * log_prob)
    soft = jnp.where(rows["terminated"], 0.0, q - alpha * log_prob)
    return rows["reward"] + c.gamma ** rows["steps"] * soft


def critic_loss(params: Params, rows: dict[str, Array], y: Array) -> Array:
    q = critics(params, rows["observation"], rows["action"])
    return ((q - y) ** 2).mean(1).sum()


def actor_loss(
    params: Params, c: Settings, critic: Params, log_alpha: Array, rows: Any, noise: Array
) -> tuple[Array, Array]:
    """Equation 7."""
    action, log_prob = draw(c, params, rows["observation"], noise)
    q = critics(critic, rows["observation"], action).min(0)
    return (jnp.exp(log_alpha) * log_prob - q).mean(), log_prob


def alpha_loss(log_alpha: Array, c: Settings, log_prob: Array) -> Array:
    """Equation 18, or linear in log α as its authors' code."""
    factor = jnp.exp(log_alpha) if c.alpha_form else log_alpha
    return -factor * (log_prob + c.target_entropy).mean()


def adam(c: Settings, twin: Twin, name: str, gradient: Params, moves: Array) -> Twin:
    """Algorithm 1 of arXiv:1412.6980 for one part of the parameters, or nothing."""
    first, second = twin.moments[name]
    count = twin.counts[name] + 1
    k = count.astype(c.dtype)
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, first, gradient)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g**2, second, gradient)

    def moved(p: Array, a: Array, b: Array) -> Array:
        a, b = a / (1.0 - 0.9**k), b / (1.0 - 0.999**k)
        return p - c.learning_rate * a / (jnp.sqrt(b) + c.adam_epsilon)

    new = twin._replace(
        params=twin.params | {name: jax.tree.map(moved, twin.params[name], m, v)},
        moments=twin.moments | {name: (m, v)},
        counts=twin.counts | {name: count},
    )
    return jax.tree.map(lambda a, b: jnp.where(moves, b, a), twin, new)


@partial(jax.jit, static_argnums=0)
def update(c: Settings, twin: Twin, rows: dict[str, Array]) -> Twin:
    key, _, learn_key = jax.random.split(twin.key, 3)
    _, next_key, policy_key = jax.random.split(jax.random.split(learn_key, 1)[0], 3)
    shape = rows["action"].shape
    next_noise = jax.random.normal(next_key, shape, c.dtype)
    noise = jax.random.normal(jax.random.split(policy_key, 2)[0], shape, c.dtype)
    old, always = twin.params, jnp.asarray(True)
    updates = twin.updates + 1
    turn = updates % c.policy_delay == 0
    y = target(c, twin, rows, next_noise)
    twin = adam(c, twin, "critic", jax.grad(critic_loss)(old["critic"], rows, y), always)
    judge = old["critic"] if c.simultaneous else twin.params["critic"]
    loss = jax.grad(actor_loss, has_aux=True)
    gradient, log_prob = loss(old["actor"], c, judge, old["log_alpha"], rows, noise)
    twin = adam(c, twin, "actor", gradient, turn)
    twin = adam(c, twin, "log_alpha", jax.grad(alpha_loss)(old["log_alpha"], c, log_prob), turn)
    moved = jax.tree.map(
        lambda t, p: (1.0 - c.tau) * t + c.tau * p, twin.target, twin.params["critic"]
    )
    return twin._replace(target=moved, updates=updates, key=key)


def init(params: Params, key: Array) -> Twin:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Twin(
        params=params,
        target=params["critic"],
        moments={name: (zeros[name], zeros[name]) for name in params},
        counts={name: jnp.zeros((), jnp.int32) for name in params},
        updates=jnp.zeros((), jnp.int32),
        key=key,
    )
