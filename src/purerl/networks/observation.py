"""Structured observations as flat features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from tensordict import is_tensor_collection
from torch import Tensor

from ..errors import ShapeError
from ..types import Tree


def flatten_observation(
    observation: Tree,
    event_ndims: int | Mapping[str, Any] = 1,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the leaves of a nested observation side by side, in sorted key order.

    Args:
        observation: a tensor, or a nested dict or TensorDict of leaves ``[*B, *event]``.
        event_ndims: number of event axes of every leaf, or a nested dict of them (0 for a
            scalar, 1 for a vector, 3 for an image); all other axes are the batch.
        dtype: of the result; integers and booleans are converted by value.

    Returns:
        ``[*B, F]``, F the number of elements of one observation.

    Raises:
        ShapeError: batch axes differ, or a leaf or its number of event axes is missing.

    >>> observation = {"speed": torch.tensor([3.0]), "position": torch.tensor([[1, 2]])}
    >>> flatten_observation(observation, {"speed": 0, "position": 1})
    tensor([[1., 2., 3.]])
    """
    flat: list[Tensor] = []
    for path, leaf, ndim in _leaves("observation", observation, event_ndims):
        batch = leaf.ndim - ndim
        if batch < 0 or (flat and leaf.shape[:batch] != flat[0].shape[:-1]):
            expected = list(flat[0].shape[:-1]) if flat else "a batch"
            raise ShapeError(
                f"{path} has shape {list(leaf.shape)}, expected {expected} and {ndim} event axes"
            )
        flat.append(leaf.reshape(*leaf.shape[:batch], -1).to(dtype))
    if not flat:
        raise ShapeError("observation has no leaves")
    return torch.cat(flat, -1)


def _leaves(path: str, node: Tree, event_ndims: Any) -> Iterator[tuple[str, Tensor, int]]:
    if not (isinstance(node, Mapping) or is_tensor_collection(node)):
        yield path, node, event_ndims
        return
    for key in sorted(node.keys()):
        below = event_ndims
        if not isinstance(event_ndims, int):
            if key not in event_ndims:
                raise ShapeError(f"event_ndims says nothing of {path}.{key}")
            below = event_ndims[key]
        yield from _leaves(f"{path}.{key}", node[key], below)
