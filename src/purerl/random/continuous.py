"""Draws of floating numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ConfigError
from ..types import Key, Scalar
from . import arguments, special, threefry
from .keys import blocks, check_key, word32

_DTYPES = (torch.float32, torch.float64)
_INVERSE_ROOT = 0.7071067690849304


def uniform(
    key: Key,
    shape: Sequence[int] = (),
    *,
    dtype: torch.dtype = torch.float32,
    minval: Scalar = 0.0,
    maxval: Scalar = 1.0,
) -> Tensor:
    """Draw from [minval, maxval): u (maxval − minval) + minval, u a multiple of 2⁻²³ or 2⁻⁵².

    With other bounds than 0 and 1 rounding can return ``maxval`` itself. For maxval <= minval
    the result is ``minval`` throughout, as in jax.

    Args:
        key: int64 ``[2]``.
        shape: of the draw.
        dtype: float32 or float64.
        minval: a number, or a tensor that broadcasts to the shape.
        maxval: likewise.

    >>> from purerl import random
    >>> random.uniform(random.key(0), (2,))
    tensor([0.9477, 0.9786])
    """
    unit = _unit(key, arguments.count(shape), dtype).reshape(tuple(shape))
    if isinstance(minval, float) and isinstance(maxval, float) and (minval, maxval) == (0.0, 1.0):
        return unit
    lower = arguments.bound("minval", minval, shape, dtype, key.device)
    upper = arguments.bound("maxval", maxval, shape, dtype, key.device)
    return torch.maximum(lower, special.fused(unit, upper - lower, lower))


def normal(key: Key, shape: Sequence[int] = (), *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw from the standard normal: √2 erf⁻¹(u), u uniform in (−1, 1).

    Args:
        key: int64 ``[2]``.
        shape: of the draw.
        dtype: float32 or float64.

    >>> from purerl import random
    >>> random.normal(random.key(0), (2,))
    tensor([1.6226, 2.0253])
    """
    unit = _unit(key, arguments.count(shape), dtype)
    # from nextafter(−1, 0) to 1, which after rounding is a width of 2
    symmetric = unit.mul_(2.0).add_(torch.finfo(dtype).eps / 2 - 1.0)
    return special.normal_quantile(symmetric).reshape(tuple(shape))


def truncated_normal(
    key: Key,
    lower: Scalar,
    upper: Scalar,
    shape: Sequence[int] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw from the standard normal restricted to (lower, upper), both excluded.

        √2 erf⁻¹(u),   u uniform in [erf(lower/√2), erf(upper/√2))

    The deviation of the result is not 1: for (−2, 2) it is 0.8796. jax evaluates erf of constant
    bounds in compiled code otherwise than elsewhere; this is the draw of code not compiled.

    Args:
        key: int64 ``[2]``.
        lower: a number, or a tensor that broadcasts to the shape; may be −∞.
        upper: likewise; may be ∞.
        shape: of the draw; by default that of the bounds.
        dtype: float32 or float64.

    >>> from purerl import random
    >>> random.truncated_normal(random.key(0), -2.0, 2.0, (2,))
    tensor([1.4560, 1.7147])
    """
    if shape is None:
        shape = torch.broadcast_shapes(*(b.shape for b in (lower, upper) if isinstance(b, Tensor)))
    lower = arguments.bound("lower", lower, shape, dtype, key.device)
    upper = arguments.bound("upper", upper, shape, dtype, key.device)
    # as the reference compiles the division by √2: a product with the inverse, in the dtype
    inverse = _INVERSE_ROOT if dtype is torch.float32 else math.sqrt(0.5)
    edges = special.erf(lower * inverse), special.erf(upper * inverse)
    unit = uniform(key, shape, dtype=dtype, minval=edges[0], maxval=edges[1])
    draw = torch.where(unit.abs() == 1.0, unit * math.inf, special.normal_quantile(unit))
    infinity = torch.full_like(lower, math.inf)
    return draw.clamp(torch.nextafter(lower, infinity), torch.nextafter(upper, -infinity))


def exponential(
    key: Key, shape: Sequence[int] = (), *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draw from the exponential distribution of rate 1: −log(1 − u), u uniform in [0, 1).

    Args:
        key: int64 ``[2]``.
        shape: of the draw.
        dtype: float32 or float64.

    >>> from purerl import random
    >>> random.exponential(random.key(0), (2,))
    tensor([2.9501, 3.8434])
    """
    unit = _unit(key, arguments.count(shape), dtype)
    return unit.double().neg_().log1p_().neg_().to(dtype).reshape(tuple(shape))


def gumbel(key: Key, shape: Sequence[int] = (), *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw from the standard Gumbel: −log(−log u), u uniform in [tiny, 1).

    Args:
        key: int64 ``[2]``.
        shape: of the draw.
        dtype: float32 or float64.

    >>> from purerl import random
    >>> random.gumbel(random.key(0), (2,))
    tensor([2.9234, 3.8326])
    """
    unit = _unit(key, arguments.count(shape), dtype).clamp(min=torch.finfo(dtype).tiny)
    # the reference rounds the inner logarithm, which decides the draws near 0
    inner = unit.double().log_().to(dtype)
    return inner.double().neg_().log_().neg_().to(dtype).reshape(tuple(shape))


def orthogonal(
    key: Key,
    n: int,
    shape: Sequence[int] = (),
    m: int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw uniformly from the matrices [n, m] with orthonormal rows (n <= m) or columns.

    The Q of a normal matrix, its columns times the signs of the diagonal of R: without these it
    is not uniform. Source: Mezzadri, "How to generate random matrices from the classical compact
    groups", 2007.

    Args:
        key: int64 ``[2]``.
        n: rows.
        shape: of the batch of matrices.
        m: columns; by default n.
        dtype: float32 or float64.

    Returns:
        ``[*shape, n, m]``.

    >>> from purerl import random
    >>> random.orthogonal(random.key(0), 2)
    tensor([[ 0.9661,  0.2582],
            [-0.2582,  0.9661]])
    """
    m = n if m is None else m
    draw = normal(key, (*shape, max(n, m), min(n, m)), dtype=dtype)
    q, r = torch.linalg.qr(draw)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return q.mT if n < m else q


def _unit(key: Key, size: int, dtype: torch.dtype) -> Tensor:
    """Return uniform numbers in [0, 1) with as many random bits as the dtype has mantissa."""
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype is {dtype}, expected one of {_DTYPES}")
    check_key(key)
    if dtype is torch.float32:
        mantissa = word32(key, size).bitwise_right_shift_(9).bitwise_and_(2**23 - 1)
        return mantissa.to(dtype).mul_(2.0**-23)
    high, low = blocks(key, size)
    upper = threefry.unsigned(high).to(dtype).mul_(2.0**-32)
    lower = low.bitwise_right_shift_(12).bitwise_and_(2**20 - 1).to(dtype)
    return upper.add_(lower, alpha=2.0**-52)
