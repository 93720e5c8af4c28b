"""Contracts on arguments: each failure names the argument, what was expected and what came.

The checks read shapes and dtypes only, never values, so they cost no synchronisation and hold
inside ``torch.vmap`` (where shapes are those of one member) and ``torch.compile`` (where they
run once, while tracing).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import ConfigError, ShapeError, did_you_mean


def same_shape(**tensors: Tensor | None) -> None:
    """Raise `ShapeError` unless all given tensors have the same shape; ``None`` is skipped.

    >>> import torch
    >>> same_shape(reward=torch.zeros(3), value=torch.zeros(3, 1))
    Traceback (most recent call last):
        ...
    purerl.errors.ShapeError: value has shape [3, 1], expected [3] as reward
    """
    present = [(name, tensor) for name, tensor in tensors.items() if tensor is not None]
    first_name, first = present[0]
    for name, tensor in present[1:]:
        if tensor.shape != first.shape:
            raise ShapeError(
                f"{name} has shape {list(tensor.shape)}, expected {list(first.shape)} "
                f"as {first_name}"
            )


def shape(name: str, tensor: Tensor, *expected: int | None) -> None:
    """Raise `ShapeError` unless ``tensor`` has the ``expected`` shape; ``None`` fits any size.

    >>> import torch
    >>> shape("key", torch.zeros(3), 2)
    Traceback (most recent call last):
        ...
    purerl.errors.ShapeError: key has shape [3], expected [2]
    """
    found = tensor.shape
    fits = len(found) == len(expected) and all(
        want is None or want == have for want, have in zip(expected, found, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in expected)
        raise ShapeError(f"{name} has shape {list(found)}, expected [{wanted}]")


def min_rank(name: str, tensor: Tensor, rank: int) -> None:
    """Raise `ShapeError` unless ``tensor`` has at least ``rank`` dimensions, none of size 0."""
    if tensor.ndim < rank:
        raise ShapeError(
            f"{name} has shape {list(tensor.shape)}, expected at least {rank} dimension(s)"
        )
    if 0 in tensor.shape:
        raise ShapeError(f"{name} has shape {list(tensor.shape)}, expected no dimension of size 0")


def floating(**tensors: Tensor | None) -> None:
    """Raise `ShapeError` unless every given tensor has a floating dtype; ``None`` is skipped."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_floating_point():
            raise ShapeError(f"{name} has dtype {tensor.dtype}, expected a floating dtype")


def boolean(**tensors: Tensor | None) -> None:
    """Raise `ShapeError` unless every given tensor is boolean; ``None`` is skipped.

    Flags and masks are booleans because ``where`` needs one: a float flag invites the
    multiplication that lets ``0 * nan`` through.
    """
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype is not torch.bool:
            raise ShapeError(f"{name} has dtype {tensor.dtype}, expected torch.bool")


def integer(**tensors: Tensor | None) -> None:
    """Raise `ShapeError` unless every given tensor has an integer dtype; ``None`` is skipped."""
    for name, tensor in tensors.items():
        if tensor is not None and (
            tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
        ):
            raise ShapeError(f"{name} has dtype {tensor.dtype}, expected an integer dtype")


def scalar_or_like(reference: Tensor, reference_name: str, **values: float | Tensor) -> None:
    """Raise `ShapeError` unless each value is a number, a 0-d tensor or shaped like ``reference``.

    >>> import torch
    >>> scalar_or_like(torch.zeros(4), "reward", gamma=torch.zeros(3))
    Traceback (most recent call last):
        ...
    purerl.errors.ShapeError: gamma has shape [3], expected [] or [4] as reward
    """
    for name, value in values.items():
        if isinstance(value, Tensor) and value.ndim and value.shape != reference.shape:
            raise ShapeError(
                f"{name} has shape {list(value.shape)}, expected [] or "
                f"{list(reference.shape)} as {reference_name}"
            )


def option(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``known``, else raise a `ConfigError` naming the nearest.

    >>> option("reduction", "means", ("mean", "sum"))
    Traceback (most recent call last):
        ...
    purerl.errors.ConfigError: reduction is 'means'; did you mean mean?
    """
    if value not in known:
        raise ConfigError(f"{name} is {value!r}{did_you_mean(value, known)}")
    return value
