"""Names for the values that travel through purerl."""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import Tensor

Scalar: TypeAlias = float | Tensor
"""A number, or a 0-d tensor of one (a leaf of ``state.hparams``)."""

Tree: TypeAlias = Any
"""A pytree of tensors: a tensor, dict, list, tuple, TensorDict or TensorClass, nested at will."""

Key: TypeAlias = Tensor
"""A random key: int64 ``[2]`` holding two 32-bit words; see `purerl.random`."""

Metrics: TypeAlias = dict[str, Tensor]
"""Detached tensors by name, as returned beside a loss."""
