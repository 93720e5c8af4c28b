"""Threefry-2x32 with 20 rounds, the block cipher that `purerl.random` turns into draws.

Words are int32 tensors: their arithmetic wraps modulo 2³² like that of unsigned words, torch has
no arithmetic on uint32, and int64 is three times slower at size.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_UNSIGNED = 0xFFFFFFFF
_FEW = 256


def block(key: tuple[Tensor, Tensor], count: tuple[Tensor | None, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the two words that ``key`` makes of the 64-bit counter ``count``.

    Args:
        key: the high and the low word, int32, broadcastable with the counter.
        count: the high and the low word, int32 ``[*B]``; ``None`` as the high word means 0.
    """
    shifts, masks, parity, steps = _constants()
    key_high, key_low = key
    count_high, count_low = count
    schedule = (key_high, key_low, key_high ^ key_low ^ parity)
    low = count_low + key_low
    # the high word of the state is first read after the low word was added to it
    high = low + (key_high if count_high is None else key_high + count_high)
    for group in range(5):
        for turn in range(4):
            if group or turn:
                high.add_(low)
            which = 4 * (group % 2) + turn
            # rotate left: the shift to the right is arithmetic, so its sign bits are masked off;
            # the halves share no bit, so their sum is their union and takes the other shift along
            rotated = low >> shifts[which]
            rotated &= masks[which]
            rotated.add_(low, alpha=1 << _ROTATIONS[which])
            low = rotated.bitwise_xor_(high)
        high.add_(schedule[(group + 1) % 3])
        low.add_(schedule[(group + 2) % 3] + steps[group])
    return high, low


def runs_in_python(word: Tensor, size: int) -> bool:
    """Return whether `block_in_python` may stand in: few elements, of values in memory."""
    return (
        0 < size <= _FEW
        and not torch.compiler.is_compiling()
        and word.device.type == "cpu"
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
    )


def block_in_python(key: Sequence[int], counts: Iterable[int]) -> tuple[int, int]:
    """Return `block` for the low words of some counters, in the same bits; see `unpacked`.

    A hundred operations on small tensors take as many starts of a kernel. One integer of Python
    with a word in every 64 bits does the same in a tenth of the time.
    """
    packed = b"".join(count.to_bytes(8, "little") for count in counts)
    size, count = len(packed) // 8, int.from_bytes(packed, "little")
    ones = ((1 << 64 * size) - 1) // ((1 << 64) - 1)
    mask = ones * _UNSIGNED
    key_high, key_low = (word & _UNSIGNED for word in key)
    schedule = [word * ones for word in (key_high, key_low, key_high ^ key_low ^ _PARITY)]
    high, low = schedule[0], (schedule[1] + count) & mask
    for group in range(5):
        for rotation in _ROTATIONS[:4] if group % 2 == 0 else _ROTATIONS[4:]:
            high = (high + low) & mask
            low <<= rotation  # into the free half, from where the carry comes back
            low = ((low | low >> 32) & mask) ^ high
        high = (high + schedule[(group + 1) % 3]) & mask
        low = (low + schedule[(group + 2) % 3] + (group + 1) * ones) & mask
    return high, low


def unpacked(words: int, size: int) -> Tensor:
    """Return the words of one Python integer, int64 ``[size]`` in [0, 2³²)."""
    return torch.frombuffer(bytearray(words.to_bytes(8 * size, "little")), dtype=torch.int64)


def counters(size: int, device: torch.device) -> tuple[Tensor | None, Tensor]:
    """Return the words of the counters 0 … size − 1, each int32 ``[size]``."""
    count = torch.arange(size, dtype=torch.int64, device=device)
    high = (count >> 32).to(torch.int32) if size > _UNSIGNED else None
    return high, count.to(torch.int32)


def words(key: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and the low word of keys int64 ``[*B, 2]``, each int32 ``[*B]``."""
    high, low = key.to(torch.int32).unbind(-1)
    return high, low


def join(high: Tensor, low: Tensor) -> Tensor:
    """Return keys int64 ``[*B, 2]``, words in [0, 2³²), from their words int32 ``[*B]``."""
    return unsigned(torch.stack((high, low), -1))


def unsigned(word: Tensor) -> Tensor:
    """Return the words int32 ``[*B]`` read as unsigned, int64 ``[*B]`` in [0, 2³²)."""
    return word.to(torch.int64).bitwise_and_(_UNSIGNED)


def _constants() -> tuple[
    tuple[Tensor | int, ...], tuple[Tensor | int, ...], Tensor | int, tuple[Tensor | int, ...]
]:
    """Return the shifts and masks of the rotations, the parity and the steps of the schedule.

    Eagerly they are 0-d tensors, on the CPU for every device: an operation with a Python number
    takes twice the time, which is a third of a small draw. A compiler wants the numbers.
    """
    shifts = [32 - rotation for rotation in _ROTATIONS]
    masks = [(1 << rotation) - 1 for rotation in _ROTATIONS]
    numbers = [*shifts, *masks, _PARITY, 1, 2, 3, 4, 5]
    values: tuple[Tensor | int, ...] = tuple(numbers)
    if not torch.compiler.is_compiling():
        values = torch.tensor(numbers, dtype=torch.int32, device="cpu").unbind(0)
    return values[:8], values[8:16], values[16], values[17:]
