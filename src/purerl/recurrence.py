"""Linear recurrences along time without a Python step per row: the engine of every estimator.

The plain loop y_t = x_t + a_t y_{t+1} costs two kernel launches a row. Here rows are combined
instead: up to `_LOG_STEP_ROWS` rows by log-steps (Kogge and Stone 1973: after the step of shift
2^k every row has absorbed the 2^(k+1) rows that begin with it), more rows by blocks of `_BLOCK`,
whose first rows form a shorter recurrence of the same kind.

The choice depends on the number of rows alone, and every kernel is elementwise in the other
dimensions: a batch, a stack of its columns and ``vmap`` agree bit for bit. Log-steps associate
relative to the row, so within one regime rows appended after an end change no bit either.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import check, numerics
from .types import Scalar

_LOG_STEP_ROWS = 128
_BLOCK = 4
_SELECT = torch.ops.aten.threshold_backward.default


def linear(
    decay: Scalar,
    x: Tensor,
    *,
    initial: Tensor | None = None,
    cut: Tensor | None = None,
    reverse: bool = False,
    bounded: bool = True,
    dim: int = 0,
) -> Tensor:
    """Return y_t = x_t + where(cut_t, 0, decay_t · y_{t−1}) along ``dim``, from y_{−1} = initial.

    With ``reverse`` the recurrence runs backward: y_{t+1} in place of y_{t−1}, y_T = initial.
    Nothing crosses a cut, NaN and infinity included, neither in value nor in gradient.

    Args:
        decay: a number, 0-d, or floating, shaped like ``x``.
        x: floating ``[T, *B]`` (T along ``dim``); halves are accumulated in float32.
        initial: floating ``[*B]``, what enters at the open end; default 0.
        cut: bool, shaped like ``x``.
        reverse: run from the last row to the first.
        bounded: whether products of decays stay finite, as they do if none is above 1. False goes
            row by row, which forms no product. A number above 1 is never bounded.
        dim: the time dimension.

    Raises:
        ShapeError: shapes or dtypes do not fit, or there is no row.

    >>> linear(0.5, torch.ones(3), cut=torch.tensor([False, False, True]))
    tensor([1.0000, 1.5000, 1.0000])
    >>> linear(0.5, torch.ones(3), initial=torch.tensor(4.0), reverse=True)
    tensor([2.2500, 2.5000, 3.0000])
    """
    check.min_rank("x", x, 1)
    check.floating(x=x, initial=initial)
    check.same_shape(x=x, cut=cut)
    check.boolean(cut=cut)
    check.scalar_or_like(x, "x", decay=decay)

    def arrange(tensor: Tensor) -> Tensor:
        tensor = tensor.movedim(dim, 0)
        return tensor if reverse else tensor.flip(0)

    rows = arrange(x.to(numerics.compute_dtype(x.dtype)))
    if initial is not None:
        check.shape("initial", initial, *rows.shape[1:])
    bounded = bounded and (isinstance(decay, Tensor) or abs(decay) <= 1.0)
    per_row = isinstance(decay, Tensor) and decay.ndim > 0
    decay = numerics.scalar_like(decay, rows)
    gate = torch.ones_like(rows) if cut is None else open_where(~arrange(cut), rows.dtype)
    y = backward(arrange(decay) if per_row else decay, rows, gate, initial, bounded=bounded)
    return (y if reverse else y.flip(0)).movedim(0, dim).to(x.dtype)


def open_where(flag: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a gate: 1 where the flag holds and 0 elsewhere, in ``dtype``.

    By way of int8, whose conversion is vectorised (that of bool takes five times as long).
    """
    return flag.view(torch.int8).to(dtype)


def gated(value: Tensor, gate: Tensor, threshold: float = 0.0) -> Tensor:
    """Return ``value`` where ``gate`` > ``threshold`` and exactly 0 elsewhere, NaN or not.

    A selection, like ``where(gate > threshold, value, 0)``, by the kernel behind the gradient of
    relu: it is vectorised and takes a fifth of the time of ``where``, which reads a bool. It
    differentiates with respect to ``value``, once and again.

    >>> gated(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 0.0]))
    tensor([1., 0.])
    """
    selected: Tensor = _SELECT(value, gate, threshold)
    return selected


def backward(
    decay: Tensor,
    x: Tensor,
    gate: Tensor,
    initial: Tensor | None = None,
    *,
    bounded: bool = True,
) -> Tensor:
    """Return y_t = x_t + where(gate_t > 0, decay_t · y_{t+1}, 0), y_T = initial, time first.

    Args:
        decay: 0-d or ``[T, *B]``, of the dtype of ``x``.
        x: float32 or float64 ``[T, *B]``.
        gate: ``[T, *B]``, of the dtype of ``x``, free of NaN.
        initial: floating ``[*B]``; default 0.
        bounded: see `linear`.

    >>> backward(torch.tensor(0.5), torch.ones(3), torch.tensor([1.0, 0.0, 1.0]))
    tensor([1.5000, 1.0000, 1.0000])
    """
    num_rows = x.shape[0]
    if num_rows == 1 and initial is None:
        return x.clone()  # no step below would copy the argument
    x, gate = x.contiguous(), gate.contiguous()
    if decay.ndim:
        decay = gated(decay.contiguous(), gate)
    if not bounded:
        return _row_by_row(decay, x, gate, initial)
    if initial is not None:
        # one more row, which nothing follows
        x = torch.cat([x, initial.to(x.dtype).unsqueeze(0)])
        gate = _extended(gate, 1)
        decay = _extended(decay, 1) if decay.ndim else decay
    return _scan(decay, x, gate)[:num_rows]


def _row_by_row(decay: Tensor, x: Tensor, gate: Tensor, initial: Tensor | None) -> Tensor:
    y = torch.zeros_like(x[0]) if initial is None else initial.to(x.dtype)
    decays = decay.unbind(0) if decay.ndim else (decay,) * x.shape[0]
    rows = []
    for x_t, decay_t, gate_t in reversed(list(zip(x, decays, gate, strict=True))):
        y = torch.addcmul(x_t, gated(y, gate_t), decay_t)
        rows.append(y)
    return torch.stack(rows[::-1])


def _scan(decay: Tensor, x: Tensor, gate: Tensor) -> Tensor:
    return (_log_steps if x.shape[0] <= _LOG_STEP_ROWS else _blocks)(decay, x, gate)


def _log_steps(decay: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    """Let every row absorb the row 1, 2, 4, … behind it, unless a closed gate lies between."""
    num_rows = y.shape[0]
    # the last row is closed, so that what `roll` wraps around never passes
    gate = _extended(gate[:-1], 1)
    shift = 1
    while shift < num_rows:
        y = torch.addcmul(y, gated(y.roll(-shift, 0), gate), decay)
        if 2 * shift < num_rows:
            later = decay.roll(-shift, 0) if decay.ndim else decay
            decay = _joined(decay, later, gate)
            gate = torch.minimum(gate, gate.roll(-shift, 0))
        shift *= 2
    return y


def _blocks(decay: Tensor, x: Tensor, gate: Tensor) -> Tensor:
    """Solve the recurrence of the blocks' first rows, then run through all blocks at once."""
    num_rows = x.shape[0]
    xs, gates = _in_blocks(x), _in_blocks(gate)
    decays = _in_blocks(decay) if decay.ndim else (decay,) * _BLOCK

    first, reach, passable = xs[-1], decays[-1], gates[-1]
    for k in reversed(range(_BLOCK - 1)):
        first = torch.addcmul(xs[k], gated(first, gates[k]), decays[k])
        reach = _joined(decays[k], reach, gates[k])
        passable = torch.minimum(gates[k], passable)
    first = _scan(reach, first, passable)

    y = _extended(first[1:], 1)
    rows = [first]
    for k in reversed(range(1, _BLOCK)):
        y = torch.addcmul(xs[k], gated(y, gates[k]), decays[k])
        rows.insert(1, y)
    return torch.stack(rows, 1).flatten(0, 1)[:num_rows]


def _joined(decay: Tensor, later: Tensor, gate: Tensor) -> Tensor:
    """Return the decay over two stretches of rows; garbage behind a closed gate stays there."""
    return decay * (gated(later, gate) if decay.ndim else later)


def _in_blocks(rows: Tensor) -> tuple[Tensor, ...]:
    """Return row k of every block, for each k, with rows of zeros after the last."""
    rows = _extended(rows, -rows.shape[0] % _BLOCK)
    return rows.view(-1, _BLOCK, *rows.shape[1:]).unbind(1)


def _extended(rows: Tensor, num_more: int) -> Tensor:
    """Append rows of zeros."""
    if not num_more:
        return rows
    return torch.constant_pad_nd(rows, [0, 0] * (rows.ndim - 1) + [0, num_more])
