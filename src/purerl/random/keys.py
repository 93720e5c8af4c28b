"""Keys and the bits that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import check
from ..errors import ConfigError, ShapeError
from ..types import Key
from . import arguments, threefry

_WIDTHS = (8, 16, 32, 64)


def key(seed: int, *, device: torch.device | str | None = None) -> Key:
    """Return the key of a seed: the words (0, seed mod 2³²).

    The upper half of a 64-bit seed is dropped, as jax does in 32-bit mode: seeds that are equal
    modulo 2³² give equal keys, and −1 the key of 2³² − 1.

    Args:
        seed: any integer in [−2⁶³, 2⁶³).
        device: where the key, and all that is drawn from it, lives; the CPU by default.

    Raises:
        ConfigError: the seed is no integer in this range.

    >>> key(-1)
    tensor([         0, 4294967295])
    """
    number = arguments.integer("seed", seed, -(2**63), 2**63 - 1)
    return torch.tensor([0, number % 2**32], dtype=torch.int64, device=device or "cpu")


def split(key: Key, num: int = 2) -> Tensor:
    """Return ``num`` new keys: child i is the cipher's block for counter i.

    Child i does not depend on ``num``. Iterate with ``.unbind(0)``.

    Args:
        key: int64 ``[2]``.
        num: how many, at least 0.

    Returns:
        int64 ``[num, 2]``.

    >>> split(key(0))
    tensor([[1797259609, 2579123966],
            [ 928981903, 3453687069]])
    """
    check_key(key)
    (size,) = arguments.sizes((num,), "num")
    if threefry.runs_in_python(key, size):
        high, low = threefry.block_in_python(key.tolist(), range(size))
        return torch.stack((threefry.unpacked(high, size), threefry.unpacked(low, size)), -1)
    return threefry.join(*blocks(key, size))


def fold_in(key: Key, data: int | Tensor) -> Key:
    """Return a new key from a key and a number, as of a step: the block for that number.

    Args:
        key: int64 ``[2]``.
        data: an integer in [0, 2³²), or an integer tensor ``[]``, taken modulo 2³².

    Raises:
        ConfigError: a Python number that is no integer in this range.
        ShapeError: data is a tensor of another shape or dtype.

    >>> fold_in(key(3), 5)
    tensor([2464363587,  131619366])
    """
    check_key(key)
    if isinstance(data, Tensor):
        check.shape("data", data)
        check.integer(data=data)
    else:
        data = arguments.integer("data", data, 0, 2**32 - 1)
    if threefry.runs_in_python(key, 1):
        return torch.tensor(threefry.block_in_python(key.tolist(), [int(data) % 2**32]))
    count = torch.as_tensor(data, dtype=torch.int64, device=key.device).to(torch.int32)
    return threefry.join(*threefry.block(threefry.words(key), (None, count)))


def bits(key: Key, shape: Sequence[int] = (), *, width: int = 32) -> Tensor:
    """Draw ``width`` random bits for each element, as an unsigned number in [0, 2^width).

    Args:
        key: int64 ``[2]``.
        shape: of the draw.
        width: 8, 16, 32 or 64; 64 bits fill the int64, its sign included.

    Returns:
        int64 ``shape``.

    >>> bits(key(0), (2,))
    tensor([4070199207, 4202968722])
    """
    if width not in _WIDTHS:
        raise ConfigError(f"width is {width!r}, expected one of {_WIDTHS}")
    check_key(key)
    size = arguments.count(shape)
    if width == 64:
        high, low = blocks(key, size)
        return (high.to(torch.int64) << 32 | threefry.unsigned(low)).reshape(tuple(shape))
    if threefry.runs_in_python(key, size):
        first, second = threefry.block_in_python(key.tolist(), range(size))
        word = threefry.unpacked(first ^ second, size).reshape(tuple(shape))
    else:
        word = threefry.unsigned(word32(key, size)).reshape(tuple(shape))
    return word if width == 32 else word & (2**width - 1)


def check_key(key: Key) -> None:
    """Raise a `ShapeError` unless the key has the shape and the dtype of one key."""
    check.shape("key", key, 2)
    if key.dtype is not torch.int64:
        raise ShapeError(f"key has dtype {key.dtype}, expected torch.int64")


def blocks(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the two words of ``size`` elements, int32 ``[*B, size]``, by keys int64 ``[*B, 2]``.

    Element i is the cipher's block for counter i. The caller has checked the keys.
    """
    if keys.ndim == 1 and threefry.runs_in_python(keys, size):
        packed = threefry.block_in_python(keys.tolist(), range(size))
        high, low = (threefry.unpacked(words, size).to(torch.int32) for words in packed)
        return high, low
    key = threefry.words(keys.unsqueeze(-2))
    return threefry.block(key, threefry.counters(size, keys.device))


def word32(keys: Tensor, size: int) -> Tensor:
    """Return 32 random bits for each element, int32 ``[*B, size]``; see `blocks`."""
    high, low = blocks(keys, size)
    return high.bitwise_xor_(low)
