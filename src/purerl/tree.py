"""Functions on pytrees of tensors; the one door to optree and to TensorDict's internals.

TensorDict arithmetic (``td * 0.9``) runs ``_foreach`` kernels, which have no vmap rule, so
everything here maps over leaves.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import optree
import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection
from torch import Tensor

from .errors import ShapeError
from .types import Tree

T = TypeVar("T")

_NAMESPACE = "torch"  # the optree registry in which TensorDict and TensorClass are nodes


def flatten(tree: Tree) -> tuple[list[Tensor], Callable[[Sequence[Any]], Any]]:
    """Return the leaves of ``tree`` and the function that builds a like tree from new leaves.

    >>> leaves, rebuild = flatten({"b": torch.zeros(1), "a": torch.ones(1)})
    >>> rebuild([leaf + 1 for leaf in leaves])
    {'b': tensor([1.]), 'a': tensor([2.])}
    """
    leaves, spec = optree.tree_flatten(tree, namespace=_NAMESPACE)
    return leaves, spec.unflatten


def leaves(tree: Tree) -> list[Tensor]:
    """Return the leaves of ``tree`` in its own order.

    >>> leaves((torch.tensor(1), {"x": torch.tensor(2)}))
    [tensor(1), tensor(2)]
    """
    return optree.tree_leaves(tree, namespace=_NAMESPACE)


def paths(tree: Tree) -> list[str]:
    """Return the dotted key path of every leaf, in the order of `leaves`.

    >>> paths({"actor": [torch.zeros(1), torch.zeros(1)]})
    ['actor.0', 'actor.1']
    """
    if isinstance(tree, TensorDictBase) or is_tensor_collection(tree):
        tree = to_dict(tree)
    return [
        ".".join(str(entry) for entry in path)
        for path in optree.tree_paths(tree, namespace=_NAMESPACE)
    ]


def map(function: Callable[..., Any], tree: T, *rest: Tree) -> T:
    """Return the tree of ``function(leaf, *rest_leaves)`` over trees of equal structure.

    >>> map(torch.add, {"x": torch.tensor(1)}, {"x": torch.tensor(2)})
    {'x': tensor(3)}
    """
    mapped: Any = optree.tree_map(function, cast(Tree, tree), *rest, namespace=_NAMESPACE)
    return mapped


def to_dict(tree: Tree) -> dict[str, Any]:
    """Return a TensorDict or TensorClass as nested plain dicts over the same tensors.

    Hot bodies run on plain dicts: a TensorDict costs tens of microseconds each time it is built.

    >>> to_dict(TensorDict({"a": {"b": torch.tensor(1)}}))
    {'a': {'b': tensor(1)}}
    """
    mapping = tree if isinstance(tree, Mapping) else dict(tree.items())
    return {
        key: to_dict(value) if is_tensor_collection(value) or isinstance(value, Mapping) else value
        for key, value in mapping.items()
    }


def from_dict(mapping: Mapping[str, Any], batch_size: Sequence[int] = ()) -> TensorDict:
    """Return nested mappings of tensors as a TensorDict; the inverse of `to_dict`.

    >>> from_dict({"a": {"b": torch.tensor([1, 2])}}, (2,))["a"].batch_size
    torch.Size([2])
    """
    return TensorDict(
        {
            key: from_dict(value, batch_size) if isinstance(value, Mapping) else value
            for key, value in mapping.items()
        },
        batch_size=list(batch_size),
    )


def stack(trees: Sequence[T]) -> T:
    """Return one tree whose leaves are the stacked leaves of ``trees``, along a new axis 0.

    >>> stack([{"x": torch.tensor(1)}, {"x": torch.tensor(2)}])
    {'x': tensor([1, 2])}
    """
    stacked: Any = optree.tree_map(
        lambda *nodes: torch.stack(nodes),
        *cast(Sequence[Tree], trees),
        is_leaf=is_tensor_collection,
        namespace=_NAMESPACE,
    )
    return stacked


def index(tree: T, at: Any) -> T:
    """Return the tree of ``leaf[at]``; a TensorDict keeps the batch dimensions that remain.

    >>> index({"x": torch.arange(6).reshape(3, 2)}, 1)
    {'x': tensor([2, 3])}
    """

    def pick(node: Any) -> Any:
        if not is_tensor_collection(node):
            return node[at]
        if node.batch_dims:
            return node[at]
        return node.apply(lambda leaf: leaf[at], batch_size=[])

    picked: Any = optree.tree_map(
        pick, cast(Tree, tree), is_leaf=is_tensor_collection, namespace=_NAMESPACE
    )
    return picked


def owned(tree: T, like: Tensor) -> T:
    """Return a tree whose leaves are copies, one for each member where ``like`` is vmapped.

    A constant made inside ``torch.vmap`` comes out as one number that all members share.

    >>> owned({"x": torch.ones(2)}, torch.zeros(()))
    {'x': tensor([1., 1.])}
    """
    first = like.flatten()[0]
    always = first == first
    return map(lambda leaf: torch.where(always, leaf, leaf), tree)


def where(condition: Tensor, then: T, otherwise: T) -> T:
    """Return, leaf by leaf, ``then`` where the condition holds and ``otherwise`` elsewhere.

    Args:
        condition: bool ``[*B]``; a leaf has shape ``[*B, ...]`` and is selected row by row.
        then: tree of leaves ``[*B, ...]``.
        otherwise: tree of the same structure.

    >>> where(torch.tensor([True, False]), torch.ones(2, 2), torch.zeros(2, 2))
    tensor([[1., 1.],
            [0., 0.]])
    """

    def select(a: Tensor, b: Tensor) -> Tensor:
        extra = a.ndim - condition.ndim
        mask = condition.reshape(condition.shape + (1,) * extra) if extra else condition
        return torch.where(mask, a, b)

    return map(select, then, otherwise)


def global_norm(tree: Tree) -> Tensor:
    """Return the Euclidean norm of all leaves together, √(Σ x²), as a 0-d tensor.

    >>> global_norm({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])})
    tensor(5.)
    """
    squares = [leaf.square().sum() for leaf in leaves(tree)]
    return torch.stack(squares).sum().sqrt()


def all_finite(tree: Tree) -> Tensor:
    """Return a 0-d bool tensor: every floating leaf holds neither NaN nor infinity.

    >>> all_finite([torch.tensor([1.0, float("inf")])])
    tensor(False)
    """
    flags = [leaf.isfinite().all() for leaf in leaves(tree) if leaf.is_floating_point()]
    return torch.stack(flags).all() if flags else torch.tensor(True)


def equal(a: Tree, b: Tree) -> bool:
    """Return whether two trees have one structure and bitwise equal leaves (NaN equals NaN).

    Reads values, so it belongs in tests and on the host, not inside a step.

    >>> equal({"x": torch.tensor([float("nan")])}, {"x": torch.tensor([float("nan")])})
    True
    """
    if paths(a) != paths(b):
        return False
    return builtins.all(_equal_leaf(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def _equal_leaf(x: Tensor, y: Tensor) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    same = x == y
    if x.is_floating_point():
        same = same | (x.isnan() & y.isnan())
    return bool(same.all())


def clone(tree: T) -> T:
    """Return a copy of ``tree`` that shares no memory with it."""
    return map(torch.clone, tree)


def require_same_structure(name: str, tree: Tree, expected: Tree) -> None:
    """Raise `ShapeError` naming the first leaf of ``tree`` that differs from ``expected``."""
    found, wanted = (dict(zip(paths(t), leaves(t), strict=True)) for t in (tree, expected))
    for path in sorted(set(found) | set(wanted)):
        if path not in found:
            raise ShapeError(f"{name}.{path} is missing")
        if path not in wanted:
            raise ShapeError(f"{name}.{path} is not expected; known: {', '.join(wanted)}")
        have, want = found[path], wanted[path]
        if have.shape != want.shape or have.dtype != want.dtype:
            raise ShapeError(
                f"{name}.{path} is {have.dtype} {list(have.shape)}, "
                f"expected {want.dtype} {list(want.shape)}"
            )
