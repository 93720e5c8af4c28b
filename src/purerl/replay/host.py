"""What can be asked of the values of tensors, and where."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import BufferError

_functorch = torch._C._functorch


def transformed() -> bool:
    """Return whether the caller runs inside ``torch.vmap`` or another functional transform."""
    return not torch.compiler.is_compiling() and _functorch.peek_interpreter_stack() is not None


def readable() -> bool:
    """Return whether values can be read: outside ``torch.vmap`` and ``torch.compile``."""
    return not torch.compiler.is_compiling() and _functorch.peek_interpreter_stack() is None


def readable_at_once(device: torch.device) -> bool:
    """Return whether values can be read without waiting for a device."""
    return device.type == "cpu" and readable()


def require_own_memory(written: Tensor) -> None:
    """Raise `BufferError` if members of a sweep share the memory that a write would go to.

    ``torch.vmap`` writes in place into an expanded tensor without a word, every member over the
    others.
    """
    if not transformed():
        return
    while _functorch.is_batchedtensor(written):
        written = _functorch.get_unwrapped(written)
    axes = zip(written.stride(), written.shape, strict=True)
    if any(stride == 0 and size > 1 for stride, size in axes):
        raise BufferError(
            "state.written: members share one memory, expected memory of their own; "
            "make states by torch.vmap(lambda key: buffer.init(like=key))(keys)"
        )
