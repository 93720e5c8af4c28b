"""Gradient transforms: clipping by a joint norm, and element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from .. import check, numerics, tree
from ..errors import ConfigError
from ..types import Scalar, Tree
from . import optimizer as base
from .optimizer import Optimizer, State

ClipForm: TypeAlias = Literal["exact", "torch"]

MSG_GROUPS = "per_group=True needs a dict of groups at the top, got {kind}"


def clip_by_global_norm(
    max_norm: Scalar, *, form: ClipForm = "exact", per_group: bool = False
) -> Optimizer:
    """Return a transform that scales all gradients by one factor if their joint norm is too large.

        n = √(Σ g²);   "exact": g · c / max(n, c)   "torch": g · min(1, c / (n + 1e-6))

    A norm below c changes nothing, zero stays zero, and the direction is kept; a non-finite
    gradient is not hidden.

    Args:
        max_norm: c > 0; infinity only measures.
        form: ``"torch"`` is that of ``torch.nn.utils.clip_grad_norm_``, slightly below c.
        per_group: clip each top-level entry of the gradients by its own norm.

    State: ``grad_norm``, the joint norm of all gradients before clipping. Hyperparameter:
    max_grad_norm.

    Raises:
        ConfigError: c is not positive, an unknown form, or groups of something that is no dict.

    Source: Pascanu et al. 2013, algorithm 1.

    >>> clip, grads = clip_by_global_norm(1.0), {"w": torch.tensor([6.0, 8.0])}
    >>> clip.update(grads, clip.init(grads), grads)
    ({'w': tensor([0.6000, 0.8000])}, {'grad_norm': tensor(10.)})
    """
    check.option("form", form, ("exact", "torch"))
    _require_positive("max_norm", max_norm)

    def update(
        grads: Tree, state: State, params: Tree, *, max_grad_norm: Scalar = max_norm
    ) -> tuple[Tree, State]:
        apart = groups(grads) if per_group else {"": grads}
        norms = {name: _norm(group) for name, group in apart.items()}
        clipped = {
            name: _scale(group, _factor(norms[name], max_grad_norm, form))
            for name, group in apart.items()
        }
        total = _joint_norm(list(norms.values()))
        return (clipped if per_group else clipped[""]), {"grad_norm": total}

    def init(params: Tree) -> State:
        return {"grad_norm": torch.zeros_like(_norm(groups(params) if per_group else params))}

    return base.make(init, update, is_transform=True, per_group=per_group)


def groups(grads: Tree) -> dict[str, Tree]:
    """Return the top-level entries, or raise a `ConfigError` if there are none."""
    if not isinstance(grads, dict):
        raise ConfigError(MSG_GROUPS.format(kind=type(grads).__name__))
    return grads


def _norm(grads: Tree) -> Tensor:
    leaves = [leaf for leaf in tree.leaves(grads) if leaf.is_floating_point()]
    return _joint_norm([torch.linalg.vector_norm(base.widen(leaf)) for leaf in leaves])


def _joint_norm(norms: Sequence[Tensor]) -> Tensor:
    if len(norms) == 1:
        return norms[0]
    return torch.linalg.vector_norm(torch.stack(list(norms))) if norms else torch.zeros(())


def _factor(norm: Tensor, max_norm: Scalar, form: ClipForm) -> Tensor:
    limit = numerics.scalar_like(max_norm, norm)
    if form == "torch":
        return (limit / (norm + 1e-6)).clamp(max=1.0)
    # an infinite limit, which means no clipping, would give ∞/∞
    limit = limit.clamp(max=torch.finfo(norm.dtype).max)
    return limit / torch.maximum(norm, limit)


def _scale(grads: Tree, factor: Tensor) -> Tree:
    cast = base.scalars(factor)

    def scale(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf
        wide = base.widen(leaf)
        return base.widen(wide * cast(wide)[0], leaf.dtype)

    return tree.map(scale, grads)


def _require_positive(name: str, value: Scalar) -> None:
    if not isinstance(value, Tensor) and not value > 0.0:
        raise ConfigError(f"{name} is {value}, expected a number above 0")


def clip(max_value: Scalar) -> Optimizer:
    """Return a transform that clips each gradient element to [−c, c].

    It changes the direction; `clip_by_global_norm` keeps it.

    Args:
        max_value: c > 0.

    State: ``{}``. Hyperparameter: max_grad_value.

    Raises:
        ConfigError: c is not positive.

    >>> clip(1.0).update(torch.tensor([0.5, -3.0]), {}, torch.zeros(2))
    (tensor([ 0.5000, -1.0000]), {})
    """
    _require_positive("max_value", max_value)

    def update(
        grads: Tree, state: State, params: Tree, *, max_grad_value: Scalar = max_value
    ) -> tuple[Tree, State]:
        def leaf(g: Tensor) -> Tensor:
            if not g.is_floating_point():
                return g
            limit = numerics.scalar_like(max_grad_value, g)
            return torch.clamp(g, -limit, limit)

        return tree.map(leaf, grads), state

    return base.make(lambda params: {}, update, is_transform=True)
