"""PPO on CartPole as a JAX program, from the papers' formulas and this discipline of keys alone.

init           key, params_key, reset_key = split(key, 3); environment i by split(reset_key, B)[i]
train step     key, collect_key, learn_key = split(key, 3)
rollout        step t: action_key, env_key = split(split(collect_key, T)[t])
               environment i: step_key, reset_key = split(split(env_key, B)[i])
actions        argmax(logits + gumbel(action_key, [B, 2]))
epoch e        order = permutation(split(learn_key, E)[e], T · B) of the rows t · B + i
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

Params = Any
Array = jax.Array

# the programs are small and run a few times: compiling them is what takes time
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@dataclass(frozen=True)
class World:
    """What a rollout depends on; apart from the rest, so that one compilation serves them all."""

    num_envs: int
    num_steps: int
    time_limit: int
    dtype: Any = jnp.float32


@dataclass(frozen=True)
class Settings:
    world: World
    num_epochs: int
    num_minibatches: int
    num_updates: int
    gamma: float = 0.99
    lmbda: float = 0.95
    clip_epsilon: float = 0.2
    value_clip: float | None = None
    value_coef: float = 0.25
    entropy_coef: float = 0.0
    normalize: str = "minibatch"
    ddof: int = 1
    time_limit_is_terminal: bool = False
    target_kl: float | None = None
    learning_rate: float = 3e-4
    max_grad_norm: float = 0.5
    clip_adds_1e_6: bool = False
    adam_epsilon: float = 1e-5
    mistake: str = ""
    """One known mistake, to show that the comparison would see it."""


class Twin(NamedTuple):
    params: Params
    first_moment: Array
    second_moment: Array
    count: Array
    physics: Array
    time: Array
    key: Array
    updates: Array


class Rollout(NamedTuple):
    observation: Array
    next_observation: Array
    action: Array
    log_prob: Array
    terminated: Array
    truncated: Array


def reset(key: Array, dtype: Any) -> Array:
    return jax.random.uniform(key, (4,), dtype, -0.05, 0.05)


def dynamics(state: Array, action: Array) -> tuple[Array, Array]:
    """Euler's step of the cart-pole of Barto, Sutton and Anderson (1983), without friction."""
    _, velocity, theta, omega = state
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(theta), jnp.cos(theta)
    push = (force + 0.05 * omega**2 * sin) / 1.1
    alpha = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    acceleration = push - 0.05 * alpha * cos / 1.1
    derivative = jnp.stack([velocity, acceleration, omega, alpha])
    state = state + 0.02 * derivative
    fallen = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * 2 * jnp.pi / 360)
    return state, fallen


def network(layers: Params, x: Array) -> Array:
    last = len(layers) - 1
    for i in range(last + 1):
        x = x @ layers[str(i)]["weight"].T + layers[str(i)]["bias"]
        x = jnp.tanh(x) if i < last else x
    return x


def actor(params: Params, observation: Array) -> Array:
    return jax.nn.log_softmax(network(params["network"]["actor"]["layers"], observation))


def critic(params: Params, observation: Array) -> Array:
    return network(params["network"]["critic"]["layers"], observation)[..., 0]


@partial(compiled, static_argnums=0)
def collect(world: World, twin: Twin, key: Array) -> tuple[Twin, Rollout]:
    def step(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Rollout]:
        physics, time = carry
        action_key, env_key = jax.random.split(key)
        log_probs = actor(twin.params, physics)
        noise = jax.random.gumbel(action_key, log_probs.shape, world.dtype)
        action = jnp.argmax(log_probs + noise, -1)
        reset_keys = jax.vmap(jax.random.split)(jax.random.split(env_key, world.num_envs))[:, 1]
        after, terminated = jax.vmap(dynamics)(physics, action)
        truncated = time + 1 >= world.time_limit
        done = terminated | truncated
        fresh = jax.vmap(partial(reset, dtype=world.dtype))(reset_keys)
        row = Rollout(
            observation=physics,
            next_observation=after,
            action=action,
            log_prob=jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0],
            terminated=terminated,
            truncated=truncated,
        )
        physics = jnp.where(done[:, None], fresh, after)
        return (physics, jnp.where(done, 0, time + 1)), row

    keys = jax.random.split(key, world.num_steps)
    (physics, time), rollout = jax.lax.scan(step, (twin.physics, twin.time), keys)
    return twin._replace(physics=physics, time=time), rollout


@partial(compiled, static_argnums=(1, 2))
def permutations(key: Array, num_epochs: int, num_rows: int) -> Array:
    keys = jax.random.split(key, num_epochs)
    return jax.vmap(lambda k: jax.random.permutation(k, num_rows))(keys)


def advantages(c: Settings, params: Params, r: Rollout) -> tuple[Array, Array, Array]:
    """Generalised advantage estimation: equation 16 of arXiv:1506.02438, by a reverse scan."""
    value, next_value = critic(params, r.observation), critic(params, r.next_observation)
    terminal = r.terminated | r.truncated if c.time_limit_is_terminal else r.terminated
    if c.mistake == "time limit as termination":
        terminal = r.terminated | r.truncated
    delta = 1.0 + c.gamma * jnp.where(terminal, 0.0, next_value) - value
    done = r.terminated | r.truncated
    decay = c.gamma if c.mistake == "lambda forgotten" else c.gamma * c.lmbda

    def backward(following: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        error, ends = x
        advantage = error + decay * jnp.where(ends, 0.0, following)
        return advantage, advantage

    _, advantage = jax.lax.scan(backward, jnp.zeros_like(delta[0]), (delta, done), reverse=True)
    return advantage, advantage + value, value


def normalized(c: Settings, advantage: Array) -> Array:
    return (advantage - advantage.mean()) / (advantage.std(ddof=c.ddof) + 1e-8)


def loss(c: Settings, params: Params, rows: dict[str, Array]) -> tuple[Array, Array]:
    """Equation 9 of arXiv:1707.06347, with the clipped value loss of its authors' code."""
    log_probs, value = actor(params, rows["observation"]), critic(params, rows["observation"])
    log_prob = jnp.take_along_axis(log_probs, rows["action"][:, None], 1)[:, 0]
    advantage = rows["advantage"]
    if c.normalize == "minibatch":
        advantage = normalized(c, advantage)
    log_ratio = log_prob - rows["log_prob"]
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - c.clip_epsilon, 1.0 + c.clip_epsilon)
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    error = (value - rows["value_target"]) ** 2
    if c.value_clip is not None:
        moved = jnp.clip(value - rows["value"], -c.value_clip, c.value_clip)
        error = jnp.maximum(error, (rows["value"] + moved - rows["value_target"]) ** 2)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    total = -surrogate + c.value_coef * error.mean() - c.entropy_coef * entropy
    return total, (ratio - 1.0 - log_ratio).mean()


def adam(c: Settings, twin: Twin, gradient: Array, rate: Array) -> Twin:
    """Algorithm 1 of arXiv:1412.6980, after a clip of the norm; all parameters are one vector."""
    norm = jnp.sqrt((gradient**2).sum())
    offset = 1e-6 if c.clip_adds_1e_6 else 0.0
    gradient = gradient * jnp.minimum(1.0, c.max_grad_norm / (norm + offset))
    count = twin.count + 1
    k = count.astype(rate.dtype)
    first = 0.9 * twin.first_moment + 0.1 * gradient
    second = 0.999 * twin.second_moment + 0.001 * gradient**2
    m, v = first / (1.0 - 0.9**k), second / (1.0 - 0.999**k)
    if c.mistake == "Adam epsilon under the root":
        step = m / jnp.sqrt(v + c.adam_epsilon)
    else:
        step = m / (jnp.sqrt(v) + c.adam_epsilon)
    params = twin.params - rate * step
    return twin._replace(params=params, first_moment=first, second_moment=second, count=count)


@partial(compiled, static_argnums=0)
def learn(c: Settings, twin: Twin, r: Rollout, orders: Array) -> Twin:
    advantage, value_target, value = advantages(c, twin.params, r)
    if c.normalize == "rollout":
        advantage = normalized(c, advantage)
    rows = {
        "observation": r.observation,
        "action": r.action,
        "log_prob": r.log_prob,
        "advantage": advantage,
        "value_target": value_target,
        "value": value,
    }
    rows = {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}
    rate = c.learning_rate * (1.0 - twin.updates.astype(c.world.dtype) / c.num_updates)

    flat, as_tree = ravel_pytree(twin.params)

    def objective(flat: Array, batch: dict[str, Array]) -> tuple[Array, Array]:
        return loss(c, as_tree(flat), batch)

    def minibatch(carry: tuple[Twin, Array], index: Array) -> tuple[tuple[Twin, Array], None]:
        twin, stopped = carry
        batch = {name: x[index] for name, x in rows.items()}
        gradient, kl = jax.grad(objective, has_aux=True)(twin.params, batch)
        if c.target_kl is not None:
            stopped = stopped | (kl > 1.5 * c.target_kl)
        new = adam(c, twin, gradient, rate)
        return (jax.tree.map(lambda a, b: jnp.where(stopped, a, b), twin, new), stopped), None

    batches = orders.reshape(c.num_epochs * c.num_minibatches, -1)
    start = (twin._replace(params=flat), jnp.asarray(False))
    (twin, _), _ = jax.lax.scan(minibatch, start, batches)
    return twin._replace(params=as_tree(twin.params), updates=twin.updates + 1)


def train_step(c: Settings, twin: Twin) -> tuple[Twin, Rollout, Array]:
    key, collect_key, learn_key = jax.random.split(twin.key, 3)
    twin, rollout = collect(c.world, twin, collect_key)
    orders = permutations(learn_key, c.num_epochs, c.world.num_envs * c.world.num_steps)
    twin = learn(c, twin, rollout, orders)
    return twin._replace(key=key), rollout, orders


@partial(compiled, static_argnums=0)
def init(world: World, params: Params, key: Array) -> Twin:
    """Start from given parameters; the key that would have made them is spent all the same."""
    key, _, reset_key = jax.random.split(key, 3)
    keys = jax.random.split(reset_key, world.num_envs)
    zeros = jnp.zeros_like(ravel_pytree(params)[0])
    return Twin(
        params=params,
        first_moment=zeros,
        second_moment=zeros,
        count=jnp.zeros((), jnp.int32),
        physics=jax.vmap(partial(reset, dtype=world.dtype))(keys),
        time=jnp.zeros(world.num_envs, jnp.int32),
        key=key,
        updates=jnp.zeros((), jnp.int32),
    )
