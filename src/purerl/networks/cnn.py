"""Convolutional networks over images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from .mlp import Activation, activation_function, mlp
from .network import Network

Layout: TypeAlias = Literal["hwc", "chw"]


def cnn(
    image_shape: tuple[int, int, int],
    output_size: int,
    *,
    channels: Sequence[int] = (32, 64, 64),
    kernels: Sequence[int] = (8, 4, 3),
    strides: Sequence[int] = (4, 2, 1),
    hidden_sizes: Sequence[int] = (512,),
    activation: Activation = "relu",
    layout: Layout = "hwc",
    scale_bytes: bool = True,
    init: Initialization = "orthogonal",
    gain: float = math.sqrt(2.0),
    output_gain: float = 1.0,
    output_activation: Activation | None = None,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return convolutions without padding, then a perceptron over the flattened features.

    The defaults are those of Mnih et al. 2015, "Human-level control through deep reinforcement
    learning". Convolution i is ``params["convolutions"][str(i)]`` with ``weight``
    ``[out, in, k, k]`` and ``bias`` ``[out]``; the perceptron is ``params["head"]``. With
    ``keys = random.split(key, num_convolutions + 1)`` convolution i takes key i, the head the last.

    Args:
        image_shape: of one image, in the order of ``layout``.
        output_size: size of the output.
        channels: output channels of each convolution.
        kernels: side of each square kernel.
        strides: stride of each convolution.
        hidden_sizes: hidden layers of the head.
        activation: after every layer but the last.
        layout: images are ``[*B, H, W, C]`` (``"hwc"``, gymnasium's) or ``[*B, C, H, W]``.
        scale_bytes: divide uint8 images by 255; other dtypes are never scaled.
        init: as in `mlp`; fan-in counts channels and kernel.
        gain: as in `mlp`.
        output_gain: as in `mlp`.
        output_activation: as in `mlp`.
        dtype: of the parameters, and of uint8 images once converted.

    Returns:
        a network whose ``apply`` maps images to ``[*B, output_size]``.

    Raises:
        ConfigError: lengths differ, an unknown name, or an image smaller than a kernel.

    >>> network = cnn((84, 84, 4), 6)
    >>> image = torch.zeros(2, 84, 84, 4, dtype=torch.uint8)
    >>> network.apply(network.init(random.key(0)), image).shape
    torch.Size([2, 6])
    """
    check.option("init", init, initialization.KINDS)
    nonlinear = activation_function(activation)
    axes = (2, 0, 1) if check.option("layout", layout, ("hwc", "chw")) == "hwc" else (0, 1, 2)
    image_channels, *sides = (image_shape[axis] for axis in axes)
    height, width = _output_sides(sides, channels, kernels, strides)
    sizes = (image_channels, *channels)
    head = mlp(
        (sizes[-1] * height * width, *hidden_sizes, output_size),
        activation,
        init=init,
        gain=gain,
        output_gain=output_gain,
        output_activation=output_activation,
        dtype=dtype,
    )

    def init_params(key: Key) -> TensorDict:
        *keys, head_key = random.split(key, len(kernels) + 1).unbind(0)
        shapes = zip(sizes[1:], sizes[:-1], kernels, kernels, strict=True)
        convolutions = {
            str(i): initialization.layer(one, shape, init, gain=gain, dtype=dtype)
            for i, (one, shape) in enumerate(zip(keys, shapes, strict=True))
        }
        head_params = tree.to_dict(head.init(head_key))
        return tree.from_dict({"convolutions": convolutions, "head": head_params})

    def apply(params: Mapping[str, Any], image: Tensor) -> Tensor:
        x = _to_nchw(image, image_shape, axes)
        if image.dtype is torch.uint8:
            x = x.to(dtype) / 255.0 if scale_bytes else x.to(dtype)
        for i, stride in enumerate(strides):
            layer = params["convolutions"][str(i)]
            x = nonlinear(F.conv2d(x, layer["weight"], layer["bias"], stride))
        out: Tensor = head.apply(params["head"], x.flatten(1))
        return out.reshape(image.shape[:-3] + out.shape[1:])

    return Network(init_params, apply)


def _output_sides(
    sides: Sequence[int], channels: Sequence[int], kernels: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """Return height and width after all convolutions."""
    if not len(channels) == len(kernels) == len(strides):
        raise ConfigError(
            f"channels, kernels and strides have lengths {len(channels)}, {len(kernels)} and "
            f"{len(strides)}, expected the same"
        )
    left = list(sides)
    for kernel, stride in zip(kernels, strides, strict=True):
        left = [(side - kernel) // stride + 1 for side in left]
        if min(left) < 1:
            raise ConfigError(
                f"image of {sides[0]} x {sides[1]} is too small for kernels {tuple(kernels)} "
                f"with strides {tuple(strides)}"
            )
    return left


def _to_nchw(
    image: Tensor, image_shape: tuple[int, int, int], axes: tuple[int, int, int]
) -> Tensor:
    """Return images ``[*B, …]`` as ``[N, C, H, W]``."""
    if tuple(image.shape[-3:]) != tuple(image_shape):
        raise ShapeError(
            f"image has shape {list(image.shape)}, expected last axes {list(image_shape)}"
        )
    return image.reshape(-1, *image_shape).permute(0, *(axis + 1 for axis in axes))
