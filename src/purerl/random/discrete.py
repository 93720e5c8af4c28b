"""Draws of truth values, integers and orders."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import check
from ..errors import ConfigError, ShapeError
from ..types import Key, Scalar
from . import arguments
from .continuous import gumbel, uniform
from .keys import check_key, split, word32
from .threefry import unsigned

_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def bernoulli(key: Key, p: Scalar = 0.5, shape: Sequence[int] | None = None) -> Tensor:
    """Draw True with probability p: u < p, u uniform in [0, 1) of the dtype of p.

    Args:
        key: int64 ``[2]``.
        p: a number (then u is float32), or a float32 or float64 tensor that broadcasts to the
            shape.
        shape: of the draw; by default that of p.

    Returns:
        bool ``shape``.

    >>> from purerl import random
    >>> random.bernoulli(random.key(0), 0.7, (4,))
    tensor([False, False,  True,  True])
    """
    probability = p if isinstance(p, Tensor) else torch.tensor(p, dtype=torch.float32)
    check.floating(p=probability)
    shape = probability.shape if shape is None else shape
    limit = arguments.bound("p", probability, shape, probability.dtype, key.device)
    return uniform(key, shape, dtype=limit.dtype) < limit


def randint(
    key: Key,
    shape: Sequence[int],
    minval: int | Tensor,
    maxval: int | Tensor,
    *,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Draw integers from [minval, maxval), as ``jax.random.randint`` does for int32.

        span = maxval − minval,   h and l 32 random bits each
        minval + ((h mod span) (2³² mod span) + l mod span) mod span    (span <= 2¹⁶)
        minval + l mod span                                             (otherwise)

    Above 2¹⁶ the remainder favours small numbers by up to a share span/2³² of their probability.
    For maxval <= minval the result is ``minval`` throughout, as in jax.

    Args:
        key: int64 ``[2]``.
        shape: of the draw.
        minval: an integer, or an integer tensor that broadcasts to the shape.
        maxval: likewise. Bounds lie in the range of the dtype (of int32 for int64), or one
            above its end; tensors are clamped there.
        dtype: an integer dtype; int64 changes the dtype of the result only.

    Raises:
        ConfigError: a Python bound out of range, or a dtype that is not an integer's.

    >>> from purerl import random
    >>> random.randint(random.key(3), (4,), 0, 10)
    tensor([5, 9, 5, 4])
    """
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype is {dtype}, expected one of {_DTYPES}")
    check_key(key)
    size = arguments.count(shape)
    start, span, factor = _interval(minval, maxval, shape, dtype, key.device)
    children = split(key)
    if isinstance(factor, int) and factor == 0:
        remainder = unsigned(word32(children[1], size)).reshape(tuple(shape)) % span
    else:
        words = unsigned(word32(children, size)).reshape((2, *shape))
        remainder = (words[0] % span * factor + words[1] % span) % span
    return (start + remainder).to(dtype)


def _interval(
    minval: int | Tensor,
    maxval: int | Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[int | Tensor, int | Tensor, int | Tensor]:
    """Return start, span and factor of `randint`: numbers if both bounds are, else tensors."""
    limits = torch.iinfo(torch.int32 if dtype is torch.int64 else dtype)
    first, end = limits.min, limits.max + 1
    if not isinstance(minval, Tensor) and not isinstance(maxval, Tensor):
        start = arguments.integer("minval", minval, first, end)
        span = max(arguments.integer("maxval", maxval, first, end) - start, 1)
        return start, span, 2**32 % span if span <= 2**16 else 0
    for name, value in (("minval", minval), ("maxval", maxval)):
        if isinstance(value, Tensor):
            check.integer(**{name: value})
        else:
            arguments.integer(name, value, first, end)
    low = arguments.bound("minval", minval, shape, torch.int64, device).clamp(first, end)
    high = arguments.bound("maxval", maxval, shape, torch.int64, device).clamp(first, end)
    spans = (high - low).clamp(min=1)
    return low, spans, torch.where(spans <= 2**16, 2**32 % spans, 0)


def categorical(
    key: Key, logits: Tensor, *, axis: int = -1, shape: Sequence[int] | None = None
) -> Tensor:
    """Draw a class: argmax_k(logits_k + Gumbel_k), for probabilities softmax(logits).

    Args:
        key: int64 ``[2]``.
        logits: float32 or float64; −∞ for a class that is never drawn.
        axis: the axis of the classes.
        shape: of the draw; ends in a shape that the logits without the axis broadcast to, which
            is the default. Axes before that draw anew for the same logits.

    Returns:
        int64 ``shape``.

    >>> from purerl import random
    >>> random.categorical(random.key(0), torch.zeros(3), shape=(4,))
    tensor([1, 1, 2, 1])
    """
    check.floating(logits=logits)
    axis = arguments.axis_of("logits", logits, axis) - logits.ndim
    batch = list(logits.shape)
    num_classes = batch.pop(axis)
    shape = batch if shape is None else shape
    arguments.broadcasts("logits", batch, shape)
    noise_shape = list(shape)
    noise_shape.insert(len(noise_shape) + axis + 1, num_classes)
    noise = gumbel(key, noise_shape, dtype=logits.dtype)
    return (noise + logits.detach()).argmax(axis)


def permutation(key: Key, x: int | Tensor, *, axis: int = 0, independent: bool = False) -> Tensor:
    """Permute the elements, or the slices along an axis, of x; or the numbers 0 … x − 1.

    Elements are sorted by random 32-bit keys, a second time by fresh ones from 1626 elements on
    and a third from 2642246 on, against ties.

    Args:
        key: int64 ``[2]``.
        x: a tensor ``[..., n, ...]``, or an integer n >= 0 for ``arange(n)``.
        axis: the axis to permute.
        independent: permute each vector along the axis by itself.

    Returns:
        Shaped and typed as x; int64 ``[n]`` for an integer.

    >>> from purerl import random
    >>> random.permutation(random.key(0), 5)
    tensor([0, 1, 4, 3, 2])
    """
    check_key(key)
    if not isinstance(x, Tensor):
        return _order(key, (arguments.integer("x", x, 0, 2**63 - 1),), 0)
    axis = arguments.axis_of("x", x, axis)
    if independent or x.ndim == 1:
        return x.gather(axis, _order(key, x.shape, axis))
    return x.index_select(axis, _order(key, (x.shape[axis],), 0))


def _order(key: Key, shape: Sequence[int], axis: int) -> Tensor:
    """Return the index along the axis that permutes each vector of a shape, int64 ``shape``."""
    size = math.prod(shape)
    rounds = math.ceil(3.0 * math.log(max(size, 1)) / math.log(2**32 - 1))
    index = None
    for _ in range(rounds):
        key, subkey = split(key).unbind(0)
        # flipping the sign bit makes the order of int32 that of unsigned numbers
        sort_key = word32(subkey, size).bitwise_xor_(-(2**31)).reshape(tuple(shape))
        order = sort_key.argsort(stable=True, dim=axis)
        index = order if index is None else index.gather(axis, order)
    # without a round there is at most one element
    return torch.zeros(shape, dtype=torch.int64, device=key.device) if index is None else index


def choice(
    key: Key,
    a: int | Tensor,
    shape: Sequence[int] = (),
    *,
    replace: bool = True,
    p: Tensor | None = None,
) -> Tensor:
    """Draw rows of a, or numbers of 0 … a − 1, with or without replacement.

    Uniform draws are those of `randint` and `permutation`. With probabilities p, draws with
    replacement invert their cumulated sum, others take the largest log p + Gumbel.

    Args:
        key: int64 ``[2]``.
        a: a tensor ``[n, ...]``, or an integer n for ``arange(n)``.
        shape: of the draw.
        replace: whether one row can be drawn more than once.
        p: float32 or float64 ``[n]``, summing to anything but 0; by default uniform. Without
            replacement at least as many are positive as are drawn.

    Returns:
        ``[*shape, ...]`` as a; int64 ``shape`` for an integer.

    Raises:
        ShapeError: draws from no rows, or without replacement more than there are rows.

    >>> from purerl import random
    >>> random.choice(random.key(0), 5, (3,), replace=False)
    tensor([0, 1, 4])
    """
    if isinstance(a, Tensor):
        arguments.axis_of("a", a, 0)
        size = a.shape[0]
    else:
        size = arguments.integer("a", a, 0, 2**31)
    draws = arguments.count(shape)
    if draws > (draws * size if replace else size):
        raise ShapeError(f"shape is {tuple(shape)}, expected at most {size} draws from {size} rows")
    if p is None and replace:
        index = randint(key, shape, 0, size)
    elif p is None:
        index = permutation(key, size)[:draws].reshape(tuple(shape))
    else:
        check.shape("p", p, size)
        check.floating(p=p)
        index = _weighted(key, p.detach(), shape, replace)
    return a[index] if isinstance(a, Tensor) else index


def _weighted(key: Key, p: Tensor, shape: Sequence[int], replace: bool) -> Tensor:
    """Return rows drawn with probabilities proportional to p, int64 ``shape``."""
    if replace:
        cumulated = p.cumsum(0)
        level = cumulated[-1] * (1.0 - uniform(key, shape, dtype=p.dtype))
        return torch.searchsorted(cumulated, level)
    score = p.log() + gumbel(key, (len(p),), dtype=p.dtype)
    order = score.sort(descending=True, stable=True).indices
    return order[: math.prod(shape)].reshape(tuple(shape))
