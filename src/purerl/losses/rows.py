"""The rows of a loss: checked, in one dtype, with 0 in place of whatever stands on masked rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
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
    example: Tensor
    """``[*B]``, one number a row, in the dtype and on the device of computation."""
    result_dtype: torch.dtype
    mask: Tensor | None
    weight: Tensor | None
    reduction: Reduction
    weight_mode: WeightMode
    differentiable: bool = False
    """Whether what is held constant lets gradients through, for derivatives of whole updates."""

    def live(self, tensor: Tensor, num_dims: int = 0) -> Tensor:
        """Return ``[..., *B, ...]`` in the dtype of computation, 0 on masked rows.

        Scrubbed before it is used, not after: NaN behind a ``where`` still gives NaN gradients.
        ``num_dims`` counts the axes behind ``*B``.
        """
        tensor = tensor.to(self.example.dtype)
        if self.mask is None:
            return tensor
        return _scrub(tensor, self.mask.reshape(self.mask.shape + (1,) * num_dims))

    def constant(self, tensor: Tensor) -> Tensor:
        """Return `live` without gradient, unless asked for."""
        return self.live(tensor if self.differentiable else tensor.detach())

    def events(self, name: str, tensor: Tensor, num_dims: int = 1) -> Tensor:
        """Return `live` of several numbers a row, ``[*B, A]`` or with more axes."""
        batch = tensor.shape[: max(tensor.ndim - num_dims, 0)]
        self._require(name, tensor, f"[*B{', any' * num_dims}]", batch)
        return self.live(tensor, num_dims)

    def members(self, name: str, tensor: Tensor, num_dims: int = 0) -> Tensor:
        """Return `live` of the members of an ensemble, ``[K, *B]`` or with axes behind."""
        batch = tensor.shape[1 : max(tensor.ndim - num_dims, 1)]
        self._require(name, tensor, f"[members, *B{', any' * num_dims}]", batch)
        return self.live(tensor, num_dims)

    def scalar(self, name: str, value: Scalar) -> Tensor:
        """Return a number or 0-d tensor in the dtype of computation, without gradient as above."""
        if isinstance(value, Tensor):
            check.shape(name, value)
            value = value if self.differentiable else value.detach()
        return numerics.scalar_like(value, self.example)

    def reduce(self, loss: Tensor) -> Tensor:
        """Return the loss ``[*B]`` masked, weighted, reduced and rounded once."""
        return self.reduce_wide(loss).to(self.result_dtype)

    def reduce_wide(self, loss: Tensor) -> Tensor:
        """Return `reduce` in the dtype of computation."""
        return numerics.reduce(
            loss, self.reduction, mask=self.mask, weight=self.weight, weight_mode=self.weight_mode
        )

    def mean(self, metric: Tensor) -> Tensor:
        """Return the mean of ``[*B]`` over the rows that count, without gradient."""
        return numerics.masked_mean(metric.detach(), self.mask).to(self.result_dtype)

    def max(self, metric: Tensor) -> Tensor:
        """Return the largest of a ``[*B]`` ≥ 0 over the rows that count, without gradient."""
        return self.per_row(metric).amax()

    def per_row(self, metric: Tensor) -> Tensor:
        """Return a metric ``[*B]`` as it leaves, 0 on masked rows, without gradient."""
        return self.live(metric.detach()).to(self.result_dtype)

    def _require(self, name: str, tensor: Tensor, form: str, batch: torch.Size) -> None:
        check.floating(**{name: tensor})
        if tensor.ndim <= self.example.ndim or batch != self.example.shape:
            raise ShapeError(
                f"{name} has shape {list(tensor.shape)}, expected {form} with "
                f"*B = {list(self.example.shape)} as {self.name}"
            )
        check.min_rank(name, tensor, 1)


def rows(
    inputs: Mapping[str, Tensor],
    *others: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    weight_mode: WeightMode = "mean",
    differentiable: bool = False,
) -> Rows:
    """Check the arguments of a loss by name and return its `Rows`.

    Args:
        inputs: floating tensors ``[*B]``.
        others: tensors of other shapes that take part in the dtype.
        mask: bool ``[*B]``.
        weight: floating ``[*B]``.
        reduction: see `numerics.reduce`.
        weight_mode: see `numerics.reduce`.
        differentiable: whether `Rows.constant` and `Rows.scalar` let gradients through.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
        ConfigError: unknown reduction or weight mode.
    """
    (name, first), *_ = inputs.items()
    check.min_rank(name, first, 0)
    check.floating(**inputs, weight=weight)
    check.same_shape(**inputs, mask=mask, weight=weight)
    check.boolean(mask=mask)
    # all together, since under vmap a narrow batched tensor would not meet a wide one as expected
    result = reduce(torch.promote_types, (t.dtype for t in (*inputs.values(), *others)))
    dtype = numerics.compute_dtype(result)
    if weight is not None:
        weight = weight.detach().to(dtype)
        weight = weight if mask is None else _scrub(weight, mask)
    example = first.detach().to(dtype)
    return Rows(name, example, result, mask, weight, reduction, weight_mode, differentiable)


def event_rows(
    name: str,
    tensor: Tensor,
    *others: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    weight_mode: WeightMode,
    reduction: Reduction,
) -> Rows:
    """Return the `Rows` of a tensor ``[*B, A]``: those of its first column."""
    check.min_rank(name, tensor, 1)
    return rows(
        {f"the rows of {name}": tensor[..., 0]},
        *others,
        mask=mask,
        weight=weight,
        reduction=reduction,
        weight_mode=weight_mode,
    )


def _scrub(tensor: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, tensor, torch.zeros_like(tensor))
