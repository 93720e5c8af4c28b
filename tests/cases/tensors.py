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


def flag(inputs: Inputs, name: str, like: Tensor | None = None) -> Tensor:
    """Return an input as a bool tensor; False everywhere if the case has none."""
    if name not in inputs:
        assert like is not None
        return torch.zeros_like(like, dtype=torch.bool)
    return torch.tensor(inputs[name], dtype=torch.bool)


def optional_flag(inputs: Inputs, name: str) -> Tensor | None:
    return flag(inputs, name) if name in inputs else None


def optional_steps(inputs: Inputs) -> Tensor | None:
    return torch.tensor(inputs["steps"]) if "steps" in inputs else None


def scalar(inputs: Inputs, name: str, default: float) -> Any:
    """Return a number, or the tensor of one number a step."""
    value = inputs.get(name, default)
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else value


def gradient(output: Tensor, leaf: Tensor) -> Tensor:
    """Return d output / d leaf, zero where nothing depends on it."""
    if not output.requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(output, leaf, allow_unused=True, retain_graph=True)
    return torch.zeros_like(leaf) if found is None else found
