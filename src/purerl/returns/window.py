"""A window of experience as the estimators work on it: checked, time first, in one dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .. import check, numerics, recurrence
from ..errors import ShapeError
from ..types import Scalar

# what a gate must exceed
BOOTSTRAP = -1.0  # for a row to bootstrap from its next value
TRACE = 0.0  # for a row to read the row behind it


class Window(NamedTuple):
    """The flags of a window as one gate, and the way into and out of its layout."""

    gate: Tensor
    """``[T, *B]``: 1 where the trace goes on, 0 where it is cut, −1 where nothing follows."""
    valid: Tensor | None
    """``[T, *B]``: 1 where a row is valid, 0 elsewhere."""
    dtype: torch.dtype
    """Of the inputs; that of ``gate`` is the dtype of computation."""
    dim: int
    differentiable: bool

    def rows(self, tensor: Tensor) -> Tensor:
        """Return a floating input time first, in the dtype of computation, 0 on invalid rows."""
        tensor = _time_first(self._constant(tensor), self.dim)
        return self.masked(tensor.to(self.gate.dtype))

    def masked(self, rows: Tensor) -> Tensor:
        """Return ``rows`` with 0 on invalid rows, whatever they hold."""
        return rows if self.valid is None else recurrence.gated(rows, self.valid)

    def coefficient(self, value: Scalar) -> Tensor:
        """Return a number or 0-d tensor as 0-d, and one value a row like other rows."""
        if isinstance(value, Tensor) and value.ndim:
            return self.rows(value)
        return self._constant(numerics.scalar_like(value, self.gate))

    def decay(self, gamma: Scalar, lmbda: Scalar) -> Tensor:
        """Return γλ, which is rounded to the dtype of computation once if neither is per row."""
        if any(isinstance(value, Tensor) and value.ndim for value in (gamma, lmbda)):
            return self.coefficient(gamma) * self.coefficient(lmbda)
        # under vmap, float32 and float64 scalars promote by their hidden ranks
        gamma, lmbda = (
            value.to(torch.float64) if isinstance(value, Tensor) else value
            for value in (gamma, lmbda)
        )
        return self.coefficient(gamma * lmbda)

    def bootstrap(self, next_value: Tensor) -> Tensor:
        """Return b = where(e, 0, v')."""
        return recurrence.gated(next_value, self.gate, BOOTSTRAP)

    def where_cut(self, then: Tensor, otherwise: Tensor) -> Tensor:
        """Return ``then`` on rows whose trace is cut and ``otherwise`` on the others."""
        return torch.where(self.gate <= TRACE, then, otherwise)

    def result(self, rows: Tensor) -> Tensor:
        """Return ``rows`` in the layout and dtype of the inputs, a constant or not."""
        rows = rows if self.dim == 0 else rows.movedim(0, self.dim)
        # forward-mode tangents do not show as `requires_grad`, so the result is detached as well
        return (rows if self.differentiable else rows.detach()).to(self.dtype)

    def _constant(self, tensor: Tensor) -> Tensor:
        # without a graph behind it, which would be built in vain
        return tensor.detach() if tensor.requires_grad and not self.differentiable else tensor


def window(
    inputs: Mapping[str, Tensor],
    terminated: Tensor,
    truncated: Tensor,
    mask: Tensor | None = None,
    *,
    dim: int = 0,
    differentiable: bool = False,
    cut_end: bool = False,
    **coefficients: Scalar,
) -> Window:
    """Check the arguments of an estimator by name and return its `Window`.

    Args:
        inputs: floating tensors of one shape and dtype, the reward first.
        terminated: bool, shaped like them.
        truncated: bool, shaped like them.
        mask: bool, shaped like them.
        dim: the time dimension.
        differentiable: whether `Window.rows` lets gradients through.
        cut_end: count the last row as truncated, which changes no definition without a carry and
            lets it bootstrap like any other end, to the bit.
        coefficients: numbers, 0-d tensors, or tensors shaped like the reward.

    Raises:
        ShapeError: a shape or dtype differs, or there is no row.
    """
    (name, reward), *others = inputs.items()
    check.min_rank(name, reward, 1)
    check.floating(**inputs)
    check.same_shape(**inputs, terminated=terminated, truncated=truncated, mask=mask)
    check.boolean(terminated=terminated, truncated=truncated, mask=mask)
    check.scalar_or_like(reward, name, **coefficients)
    for other, tensor in others:
        if tensor.dtype != reward.dtype:
            raise ShapeError(f"{other} has dtype {tensor.dtype}, expected {reward.dtype} as {name}")
    dtype = numerics.compute_dtype(reward.dtype)
    terminated, truncated = _time_first(terminated, dim), _time_first(truncated, dim)
    valid = None
    if mask is not None:
        mask = _time_first(mask, dim)
        terminated = terminated | ~mask
        truncated = truncated | following(~mask, torch.zeros_like(mask[:1]))
        valid = recurrence.open_where(mask, dtype)
    if cut_end:
        truncated = torch.cat([truncated[:-1], torch.ones_like(truncated[:1])])
    # in int8, whose arithmetic and conversion are vectorised, unlike those of bool
    open_ = (~(terminated | truncated)).view(torch.int8)
    gate = (open_ - terminated.view(torch.int8)).to(dtype)
    return Window(gate, valid, reward.dtype, dim, differentiable)


def following(rows: Tensor, last: Tensor) -> Tensor:
    """Return row t + 1 at row t, and ``last`` ``[1, *B]`` at the last row."""
    return torch.cat([rows[1:], last])


def _time_first(tensor: Tensor, dim: int) -> Tensor:
    return tensor if dim == 0 else tensor.movedim(dim, 0)
