"""The one interface of all optimizers and gradient transforms, and how they walk over trees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .. import numerics, tree
from ..errors import ConfigError, ShapeError, did_you_mean
from ..types import Scalar, Tree

State: TypeAlias = dict[str, Any]
"""Nested dict of tensors of fixed shapes; ``{}`` where there is nothing to remember."""


class Optimizer(NamedTuple):
    """An optimizer, or a gradient transform, as two pure functions.

    ``update`` of an optimizer returns new parameters; that of a transform returns gradients in
    the same place, for the next part of a `chain`. Trees may be any pytree; parameters keep their
    structure, dtypes and devices, and integer leaves are left alone.
    """

    init: Callable[[Tree], State]
    """``params -> state``."""
    update: Callable[..., tuple[Tree, State]]
    """``(grads, state, params, **hparams) -> (params or grads, state)``."""
    hparams: tuple[str, ...]
    """Numbers that ``update`` takes by name in place of those it was built with."""
    is_transform: bool
    """Whether ``update`` returns gradients."""
    per_group: bool = False
    """Whether the top-level entries of the parameters are treated apart."""
    parts: tuple[Optimizer, ...] = ()
    """The parts of a `chain`."""


def make(
    init: Callable[[Tree], State],
    update: Callable[..., tuple[Tree, State]],
    *,
    hparams: Iterable[str] | None = None,
    is_transform: bool = False,
    per_group: bool = False,
    parts: tuple[Optimizer, ...] = (),
) -> Optimizer:
    """Return an `Optimizer` from functions over plain nested dicts.

    Args:
        init: ``plain params -> state``.
        update: ``(plain grads, state, plain params, **hparams)``.
        hparams: names that ``update`` takes; None reads its keyword-only arguments.
        is_transform: whether ``update`` returns gradients.
        per_group: whether top-level entries are treated apart.
        parts: the parts of a chain.
    """
    names = _keyword_only(update) if hparams is None else tuple(hparams)

    def init_plain(params: Tree) -> State:
        return init(plain(params))

    def update_plain(grads: Tree, state: Any, params: Tree, **values: Scalar) -> tuple[Tree, State]:
        for name in values:
            if name not in names:
                raise ConfigError(f"unknown hyperparameter {name}{did_you_mean(name, names)}")
        result, new_state = update(plain(grads), plain(state), plain(params), **values)
        packed = new_state if isinstance(state, dict) else like(state, new_state)
        return like(grads if is_transform else params, result), packed

    return Optimizer(init_plain, update_plain, names, is_transform, per_group, parts)


def _keyword_only(function: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def plain(value: Tree) -> Tree:
    """Return a TensorDict or TensorClass as nested dicts, any other tree as it is."""
    return value if isinstance(value, Tensor | dict | list | tuple) else tree.to_dict(value)


def like(original: Tree, value: Tree) -> Tree:
    """Return a plain tree in the containers of the ``original`` that `plain` made plain."""
    if isinstance(original, Tensor | dict | list | tuple):
        return value
    _, rebuild = tree.flatten(original)
    return rebuild(tree.leaves(value))


def aligned(name: str, other: Tree, params: Tree) -> list[Tensor]:
    """Return the leaves of ``other`` in the order of those of ``params``.

    Dicts keep the order of insertion, so two trees of equal structure may differ in it.

    Raises:
        ShapeError: the trees differ in structure or in the shape of a leaf.
    """
    try:
        pairs = tree.leaves(tree.map(_second_of_equal_shape, params, other))
    except (ValueError, TypeError) as error:
        _require_same_shapes(name, other, params)
        raise ShapeError(f"{name} has another structure than params: {error}") from error
    return pairs


def _second_of_equal_shape(first: Tensor, second: Tensor) -> Tensor:
    if first.shape != second.shape:
        raise ShapeError("shapes differ")
    return second


def _require_same_shapes(name: str, other: Tree, params: Tree) -> None:
    """Raise `ShapeError` naming the first leaf that is missing, unknown or of another shape."""
    dtypeless = tree.map(lambda leaf: leaf.to(torch.float64), [other, params])
    tree.require_same_structure(name, *dtypeless)


def leafwise(
    function: Callable[..., tuple[Tensor, ...]],
    params: Tree,
    grads: Sequence[Tensor],
    *slots: Sequence[Tensor],
) -> tuple[Tree, ...]:
    """Return the trees of new parameters and new slots, function(p, g, *slots) leaf by leaf.

    A leaf that is not floating is returned as it is, with its slots.
    """
    leaves, rebuild = tree.flatten(params)
    rows = [
        function(p, g, *rest) if p.is_floating_point() else (p, *rest)
        for p, g, *rest in zip(leaves, grads, *slots, strict=True)
    ]
    columns = zip(*rows, strict=True) if rows else [()] * (1 + len(slots))
    return tuple(rebuild(list(column)) for column in columns)


def zeros(params: Tree) -> Tree:
    """Return a tree of zeros in the dtypes to compute in."""
    return tree.map(lambda p: torch.zeros_like(p, dtype=numerics.compute_dtype(p.dtype)), params)


def count_like(params: Tree) -> Tensor:
    """Return an int64 zero on the device of the parameters."""
    leaves = tree.leaves(params)
    return torch.zeros((), dtype=torch.int64, device=leaves[0].device if leaves else None)


def widen(leaf: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return ``leaf`` in ``dtype``, or in the dtype to compute in."""
    dtype = numerics.compute_dtype(leaf.dtype) if dtype is None else dtype
    return leaf if leaf.dtype == dtype else leaf.to(dtype)


def scalars(*values: Scalar | None) -> Callable[[Tensor], tuple[Any, ...]]:
    """Return ``cast(reference)``: the values in its dtype, converted once for each dtype.

    Numbers (and None) stay as they are: a kernel takes them in its own precision.
    """
    known: dict[torch.dtype, tuple[Any, ...]] = {}

    def cast(reference: Tensor) -> tuple[Any, ...]:
        if reference.dtype not in known:
            known[reference.dtype] = tuple(
                numerics.scalar_like(value, reference) if isinstance(value, Tensor) else value
                for value in values
            )
        return known[reference.dtype]

    return cast


def double(value: Scalar, device: torch.device | None = None) -> Tensor:
    """Return a hyperparameter as a 0-d float64 tensor: a step's scalars are never rounded."""
    return torch.as_tensor(value, dtype=torch.float64, device=device)
