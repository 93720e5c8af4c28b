"""From the lists of a case to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tests.cases.compare import number
from torch import Tensor

Inputs = Mapping[str, Any]
Results = dict[str, Any]


def real(inputs: Inputs, name: str, default: Any = None, *, leaf: bool = False) -> Tensor:
    """Return an input as a floating tensor, float64 unless the case says float32."""
    dtype = torch.float32 if inputs.get("dtype") == "float32" else torch.float64
    value = torch.tensor(number(inputs.get(name, default)), dtype=dtype)
    return value.requires_grad_() if leaf else value


def integer(inputs: Inputs, name: str) -> Tensor:
    """Return an input as an int64 tensor."""
    return torch.tensor(inputs[name], dtype=torch.int64)


def flag(inputs: Inputs, name: str, like: Tensor) -> Tensor:
    """Return an input as a bool tensor; False everywhere if the case has none."""
    if name not in inputs:
        return torch.zeros_like(like, dtype=torch.bool)
    return torch.tensor(inputs[name], dtype=torch.bool)


def ends(inputs: Inputs, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Return terminated and truncated; an end of which only ``done`` is known has no value."""
    terminated, truncated = flag(inputs, "terminated", reward), flag(inputs, "truncated", reward)
    return terminated | (flag(inputs, "done", reward) & ~truncated), truncated


def optional_flag(inputs: Inputs, *names: str) -> Tensor | None:
    """Return the first of the inputs that the case has as a bool tensor."""
    given = [torch.tensor(inputs[name], dtype=torch.bool) for name in names if name in inputs]
    return given[0] if given else None


def optional_steps(inputs: Inputs) -> Tensor | None:
    """Return the number of steps merged into each row."""
    return integer(inputs, "steps") if "steps" in inputs else None


def scalar(inputs: Inputs, name: str, default: float, like: Tensor) -> Any:
    """Return a number, or one number a step shaped like the rewards."""
    if isinstance(inputs.get(name), list):
        return real(inputs, name).expand_as(like)
    return number(inputs.get(name, default))


def gradient(output: Tensor, leaf: Tensor) -> Tensor:
    """Return d output / d leaf, zero where nothing depends on it."""
    if not output.requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(output, leaf, allow_unused=True, retain_graph=True)
    return torch.zeros_like(leaf) if found is None else found
