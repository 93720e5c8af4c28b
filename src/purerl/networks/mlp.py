"""Multilayer perceptrons and the activations that networks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from .. import check, random, tree
from ..errors import ConfigError, ShapeError
from ..types import Key
from . import initialization
from .initialization import Initialization
from .network import Network

Activation: TypeAlias = Literal["tanh", "relu", "silu", "gelu", "elu", "identity"]


def _identity(x: Tensor) -> Tensor:
    return x


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "elu": F.elu,
    "identity": _identity,
}


def activation_function(name: Activation) -> Callable[[Tensor], Tensor]:
    """Return the elementwise function of a name, or raise a `ConfigError` naming the nearest."""
    return _ACTIVATIONS[check.option("activation", name, tuple(_ACTIVATIONS))]


def mlp(
    sizes: Sequence[int],
    activation: Activation = "tanh",
    *,
    init: Initialization = "orthogonal",
    gain: float = math.sqrt(2.0),
    output_gain: float = 1.0,
    output_activation: Activation | None = None,
    layer_norm: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return a multilayer perceptron.

        x_0 = observation;   x_{i+1} = activation(W_i x_i + b_i);   the last layer is linear

    Layer i is ``params["layers"][str(i)]`` with ``weight`` ``[out, in]`` and ``bias`` ``[out]``,
    as in ``torch.nn.Linear``, and is initialised by key ``random.split(key, num_layers)[i]``.

    Args:
        sizes: ``(input, *hidden, output)``.
        activation: after every layer but the last.
        init: ``"orthogonal"`` (gains below, biases 0), ``"torch"`` (as ``torch.nn.Linear``),
            ``"lecun_normal"`` or ``"lecun_uniform"`` (biases 0).
        gain: of the hidden layers, for ``"orthogonal"``.
        output_gain: of the last layer, for ``"orthogonal"``.
        output_activation: after the last layer.
        layer_norm: normalise before each hidden activation, with learned scale and shift in
            ``params["norms"]``.
        dtype: of the parameters.

    Returns:
        a network whose ``apply`` maps ``[*B, input]`` to ``[*B, output]``.

    Raises:
        ConfigError: fewer than two sizes, or an unknown name.

    >>> network = mlp((3, 16, 2))
    >>> params = network.init(random.key(0))
    >>> params["layers", "0", "weight"].shape, network.apply(params, torch.zeros(5, 3)).shape
    (torch.Size([16, 3]), torch.Size([5, 2]))
    """
    check.option("init", init, initialization.KINDS)
    sizes = tuple(sizes)
    if len(sizes) < 2 or min(sizes) < 1:
        raise ConfigError(f"sizes is {sizes}, expected (input, *hidden, output), all positive")
    num_layers = len(sizes) - 1
    hidden = activation_function(activation)
    last = activation_function(output_activation or "identity")
    gains = [gain] * (num_layers - 1) + [output_gain]

    def init_params(key: Key) -> TensorDict:
        shapes = zip(sizes[1:], sizes[:-1], gains, strict=True)
        layers = {
            str(i): initialization.layer(one, (outputs, inputs), init, gain=g, dtype=dtype)
            for i, (one, (outputs, inputs, g)) in enumerate(
                zip(random.split(key, num_layers).unbind(0), shapes, strict=True)
            )
        }
        params: dict[str, Any] = {"layers": layers}
        if layer_norm:
            hidden_biases = [layer["bias"] for layer in layers.values()][:-1]
            params["norms"] = {str(i): _init_norm(bias) for i, bias in enumerate(hidden_biases)}
        return tree.from_dict(params)

    def apply(params: Mapping[str, Any], observation: Tensor) -> Tensor:
        require_features(observation, sizes[0])
        x = observation
        for i in range(num_layers):
            layer = params["layers"][str(i)]
            x = F.linear(x, layer["weight"], layer["bias"])
            if layer_norm and i < num_layers - 1:
                norm = params["norms"][str(i)]
                x = F.layer_norm(x, x.shape[-1:], norm["weight"], norm["bias"])
            x = hidden(x) if i < num_layers - 1 else last(x)
        return x

    return Network(init_params, apply)


def _init_norm(like: Tensor) -> dict[str, Tensor]:
    return {"weight": torch.ones_like(like), "bias": torch.zeros_like(like)}


def require_features(observation: Tensor, size: int) -> None:
    """Raise `ShapeError` unless the last axis of an observation has the size of the input."""
    if observation.ndim < 1 or observation.shape[-1] != size:
        raise ShapeError(
            f"observation has shape {list(observation.shape)}, expected last axis {size}"
        )
