"""The rows of a loss: checked, in one dtype, with 0 in place of whatever stands on masked rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .. import check, numerics
from ..errors import ShapeError
from ..numerics import Reduction, WeightMode
from ..types import Scalar


class Rows(NamedTuple):
    """How tensors enter a loss, and how its rows leave it."""

    name: str
    """Of the argument that sets the shape, for messages."""
    shape: torch.Size
    """``[*B]``, of one number a row."""
    dtype: torch.dtype
    """In which to compute."""
    result_dtype: torch.dtype
    mask: Tensor | None
    weight: Tensor | None
    reduction: Reduction
    weight_mode: WeightMode

    def live(self, tensor: Tensor) -> Tensor:
        """Return ``[..., *B]`` in the dtype of computation, 0 on masked rows.

        Scrubbed before it is used, not after: NaN behind a ``where`` still gives NaN gradients.
        """
        tensor = tensor.to(self.dtype)
        if self.mask is None:
            return tensor
        return torch.where(self.mask, tensor, torch.zeros_like(tensor))

    def constant(self, tensor: Tensor) -> Tensor:
        """Return `live` without gradient."""
        return self.live(tensor.detach())

    def members(self, name: str, tensor: Tensor) -> Tensor:
        """Return `live` of one number a row from each member of an ensemble, ``[K, *B]``."""
        if tensor.ndim != len(self.shape) + 1 or tensor.shape[1:] != self.shape:
            raise ShapeError(
                f"{name} has shape {list(tensor.shape)}, expected [members, *B] with "
                f"*B = {list(self.shape)} as {self.name}"
            )
        check.floating(**{name: tensor})
        check.min_rank(name, tensor, 1)
        return self.live(tensor)

    def events(self, name: str, tensor: Tensor) -> Tensor:
        """Return ``[*B, A]``, several numbers a row, like `live`."""
        if tensor.ndim != len(self.shape) + 1 or tensor.shape[:-1] != self.shape:
            raise ShapeError(
                f"{name} has shape {list(tensor.shape)}, expected [*B, any] with "
                f"*B = {list(self.shape)} as {self.name}"
            )
        check.floating(**{name: tensor})
        check.min_rank(name, tensor, 1)
        tensor = tensor.to(self.dtype)
        if self.mask is None:
            return tensor
        return torch.where(self.mask.unsqueeze(-1), tensor, torch.zeros_like(tensor))

    def scalar(self, name: str, value: Scalar) -> Tensor:
        """Return a number or 0-d tensor in the dtype of computation, without gradient."""
        if isinstance(value, Tensor):
            check.shape(name, value)
            value = value.detach()
        return torch.as_tensor(value, dtype=self.dtype, device=self.device)

    @property
    def device(self) -> torch.device | None:
        """Of the mask, if there is one; numbers go where tensors are by themselves."""
        return None if self.mask is None else self.mask.device

    def reduce(self, loss: Tensor) -> Tensor:
        """Return the loss ``[*B]`` masked, weighted, reduced and rounded once."""
        reduced = numerics.reduce(
            loss,
            self.reduction,
            mask=self.mask,
            weight=self.weight,
            weight_mode=self.weight_mode,
        )
        return reduced.to(self.result_dtype)

    def mean(self, metric: Tensor) -> Tensor:
        """Return the mean of ``[*B]`` over the rows that count, without gradient."""
        return numerics.masked_mean(metric.detach(), self.mask)
