"""Adam, AdamW, SGD and RMSprop, equal to those of ``torch.optim`` step for step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import numerics
from ..types import Scalar, Tree
from . import optimizer as base
from .optimizer import Optimizer, State


def adam(
    learning_rate: Scalar,
    *,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.999,
    epsilon: Scalar = 1e-8,
) -> Optimizer:
    """Return Adam.

        k ← k+1;  m ← β₁ m + (1−β₁) g;  v ← β₂ v + (1−β₂) g²
        θ ← θ − lr · (m / (1−β₁ᵏ)) / (√(v / (1−β₂ᵏ)) + ε)

    Args:
        learning_rate: ≥ 0.
        beta1: in [0, 1).
        beta2: in [0, 1).
        epsilon: ≥ 0, outside the root.

    State: ``count``, ``first_moment``, ``second_moment``; moments of half-precision parameters
    are float32. Hyperparameters: the four arguments.

    Source: Kingma and Ba 2015, algorithm 1, in the form of ``torch.optim.Adam``.

    >>> optimizer, params = adam(0.1), {"w": torch.tensor([1.0, 1.0])}
    >>> params, state = optimizer.update(
    ...     {"w": torch.tensor([5.0, 0.0])}, optimizer.init(params), params
    ... )
    >>> params["w"], state["count"]
    (tensor([0.9000, 1.0000]), tensor(1))
    """

    def update(
        grads: Tree,
        state: State,
        params: Tree,
        *,
        learning_rate: Scalar = learning_rate,
        beta1: Scalar = beta1,
        beta2: Scalar = beta2,
        epsilon: Scalar = epsilon,
    ) -> tuple[Tree, State]:
        return _adam_update(grads, state, params, learning_rate, beta1, beta2, epsilon, None)

    return base.make(_moments, update)


def adamw(
    learning_rate: Scalar,
    *,
    weight_decay: Scalar = 1e-2,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.999,
    epsilon: Scalar = 1e-8,
) -> Optimizer:
    """Return Adam with decoupled weight decay: θ ← θ (1 − lr · λ) before Adam's step.

    Args:
        learning_rate: ≥ 0.
        weight_decay: λ ≥ 0.
        beta1: in [0, 1).
        beta2: in [0, 1).
        epsilon: ≥ 0, outside the root.

    State: as `adam`. Hyperparameters: the five arguments.

    Source: Loshchilov and Hutter 2019, in the form of ``torch.optim.AdamW``.

    >>> optimizer, params = adamw(0.1, weight_decay=0.5), {"w": torch.tensor([2.0])}
    >>> optimizer.update({"w": torch.zeros(1)}, optimizer.init(params), params)[0]
    {'w': tensor([1.9000])}
    """

    def update(
        grads: Tree,
        state: State,
        params: Tree,
        *,
        learning_rate: Scalar = learning_rate,
        weight_decay: Scalar = weight_decay,
        beta1: Scalar = beta1,
        beta2: Scalar = beta2,
        epsilon: Scalar = epsilon,
    ) -> tuple[Tree, State]:
        return _adam_update(
            grads, state, params, learning_rate, beta1, beta2, epsilon, weight_decay
        )

    return base.make(_moments, update)


def _moments(params: Tree) -> State:
    return {
        "count": base.count_like(params),
        "first_moment": base.zeros(params),
        "second_moment": base.zeros(params),
    }


def _adam_update(
    grads: Tree,
    state: State,
    params: Tree,
    learning_rate: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    weight_decay: Scalar | None,
) -> tuple[Tree, State]:
    count = numerics.safe_increment(state["count"])
    device = count.device
    rate = base.double(learning_rate, device)
    # lr · (m/c₁) / (√(v/c₂) + ε) = (lr · √c₂/c₁) · m / (√v + ε√c₂): one division of leaves
    first_correction, second_correction = (1.0 - _pair(beta1, beta2, device) ** count).unbind()
    root = second_correction.sqrt()
    step = rate * root / first_correction
    keep = None if weight_decay is None else 1.0 - rate * weight_decay
    cast = base.scalars(1.0 - beta1, 1.0 - beta2, -step, root * epsilon, keep)

    def leaf(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first_weight, second_weight, minus_step, floor, kept = cast(m)
        g, wide = base.widen(g, m.dtype), base.widen(p, m.dtype)
        m = torch.lerp(m, g, first_weight)
        v = torch.lerp(v, g * g, second_weight)
        wide = wide if kept is None else wide * kept
        wide = torch.addcmul(wide, m / (v.sqrt() + floor), minus_step)
        return base.widen(wide, p.dtype), m, v

    new_params, first, second = base.leafwise(
        leaf,
        params,
        base.aligned("grads", grads, params),
        base.aligned("state.first_moment", state["first_moment"], params),
        base.aligned("state.second_moment", state["second_moment"], params),
    )
    return new_params, {"count": count, "first_moment": first, "second_moment": second}


def _pair(first: Scalar, second: Scalar, device: torch.device) -> Tensor:
    """Return two hyperparameters as float64 ``[2]``, so that both take one operation."""
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return torch.stack([base.double(first, device), base.double(second, device)])
    return torch.tensor([first, second], dtype=torch.float64, device=device)


def sgd(
    learning_rate: Scalar,
    *,
    momentum: Scalar = 0.0,
    dampening: Scalar = 0.0,
    nesterov: bool = False,
) -> Optimizer:
    """Return stochastic gradient descent.

        b ← g at the first step, then μ b + (1 − dampening) g
        θ ← θ − lr · b,  or  θ − lr · (g + μ b) with nesterov;   without momentum, θ − lr · g

    Args:
        learning_rate: ≥ 0.
        momentum: μ ≥ 0; the number 0 keeps no buffer.
        dampening: usually in [0, 1].
        nesterov: look ahead along the buffer.

    State: ``count`` and ``momentum_buffer``; ``{}`` without momentum. Hyperparameters:
    learning_rate; with momentum also momentum and dampening.

    Source: ``torch.optim.SGD``, whose buffer starts at the first gradient, undamped.

    >>> optimizer, params = sgd(0.5), {"w": torch.tensor([1.0])}
    >>> optimizer.update({"w": torch.tensor([1.0])}, optimizer.init(params), params)
    ({'w': tensor([0.5000])}, {})
    """

    def plain_update(
        grads: Tree, state: State, params: Tree, *, learning_rate: Scalar = learning_rate
    ) -> tuple[Tree, State]:
        cast = base.scalars(learning_rate)

        def leaf(p: Tensor, g: Tensor) -> tuple[Tensor]:
            wide = base.widen(p)
            (rate,) = cast(wide)
            return (base.widen(wide - rate * base.widen(g, wide.dtype), p.dtype),)

        (new_params,) = base.leafwise(leaf, params, base.aligned("grads", grads, params))
        return new_params, state

    def momentum_update(
        grads: Tree,
        state: State,
        params: Tree,
        *,
        learning_rate: Scalar = learning_rate,
        momentum: Scalar = momentum,
        dampening: Scalar = dampening,
    ) -> tuple[Tree, State]:
        first = state["count"] == 0
        undamped = 1.0 - base.double(dampening, first.device)
        cast = base.scalars(
            learning_rate, momentum, torch.where(first, torch.ones_like(undamped), undamped)
        )

        def leaf(p: Tensor, g: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            rate, mu, weight = cast(b)
            g, wide = base.widen(g, b.dtype), base.widen(p, b.dtype)
            b = mu * b + weight * g
            direction = g + mu * b if nesterov else b
            return base.widen(wide - rate * direction, p.dtype), b

        buffers = base.aligned("state.momentum_buffer", state["momentum_buffer"], params)
        new_params, new_buffers = base.leafwise(
            leaf, params, base.aligned("grads", grads, params), buffers
        )
        count = numerics.safe_increment(state["count"])
        return new_params, {"count": count, "momentum_buffer": new_buffers}

    if not isinstance(momentum, Tensor) and momentum == 0.0:
        return base.make(lambda params: {}, plain_update)
    return base.make(
        lambda params: {"count": base.count_like(params), "momentum_buffer": base.zeros(params)},
        momentum_update,
    )


def rmsprop(
    learning_rate: Scalar,
    *,
    decay: Scalar = 0.99,
    epsilon: Scalar = 1e-8,
    eps_inside_sqrt: bool = False,
    centered: bool = False,
) -> Optimizer:
    """Return RMSprop.

        v ← α v + (1−α) g²;   θ ← θ − lr · g / (√v + ε)

    Args:
        learning_rate: ≥ 0.
        decay: α in [0, 1).
        epsilon: ≥ 0.
        eps_inside_sqrt: √(v + ε), as TensorFlow and optax have it.
        centered: subtract the square of a running mean of g from v.

    State: ``second_moment``, and ``first_moment`` if centered. Hyperparameters: learning_rate,
    decay, epsilon.

    Source: Tieleman and Hinton 2012, lecture 6.5, in the form of ``torch.optim.RMSprop``.

    >>> optimizer, params = rmsprop(0.1, decay=0.75), {"w": torch.tensor([1.0])}
    >>> optimizer.update({"w": torch.tensor([3.0])}, optimizer.init(params), params)[0]
    {'w': tensor([0.8000])}
    """

    def init(params: Tree) -> State:
        state: dict[str, Any] = {"second_moment": base.zeros(params)}
        return state | ({"first_moment": base.zeros(params)} if centered else {})

    def update(
        grads: Tree,
        state: State,
        params: Tree,
        *,
        learning_rate: Scalar = learning_rate,
        decay: Scalar = decay,
        epsilon: Scalar = epsilon,
    ) -> tuple[Tree, State]:
        cast = base.scalars(learning_rate, 1.0 - decay, epsilon)

        def leaf(p: Tensor, g: Tensor, v: Tensor, *mean: Tensor) -> tuple[Tensor, ...]:
            rate, weight, floor = cast(v)
            g, wide = base.widen(g, v.dtype), base.widen(p, v.dtype)
            v = torch.lerp(v, g * g, weight)
            mean = tuple(torch.lerp(m, g, weight) for m in mean)
            square = v - mean[0] * mean[0] if mean else v
            scale = (square + floor).sqrt() if eps_inside_sqrt else square.sqrt() + floor
            return base.widen(wide - rate * (g / scale), p.dtype), v, *mean

        names = ["second_moment", "first_moment"] if centered else ["second_moment"]
        slots = [base.aligned(f"state.{name}", state[name], params) for name in names]
        aligned = base.aligned("grads", grads, params)
        new_params, *new_slots = base.leafwise(leaf, params, aligned, *slots)
        return new_params, dict(zip(names, new_slots, strict=True))

    return base.make(init, update)
