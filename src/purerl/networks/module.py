"""Any ``torch.nn.Module`` as a network of pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torch.func import functional_call

from .. import random, tree
from ..errors import ConfigError
from ..types import Key
from . import initialization
from .network import Network

InitializeParameter: TypeAlias = Callable[[Key, str, Tensor], Tensor]
"""``(key, name, constructed) -> initial value`` of one parameter."""

_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)

MSG_SAME_MODULE = (
    "module_factory returned the same module twice, expected a new one each time: "
    "pass a function that constructs it, such as `lambda: MyModule(4, 2)`"
)
MSG_DROPOUT = (
    "module {name!r} is a {kind} with p = {p}, which draws from the global generator: "
    "set p = 0, or leave it out"
)
MSG_RANDOM_BUFFER = (
    "buffer {name!r} is drawn from the global generator, so no key could reproduce it: "
    "draw it from a torch.Generator of its own, or make it a parameter"
)


@dataclass(frozen=True)
class ModuleApply:
    """The ``apply`` of a network made by `from_module`."""

    __name__: ClassVar[str] = "apply"  # vmap falls back to repr(), which does not compile
    evaluating: nn.Module
    """Structure only, in evaluation mode: its tensors are replaced in every call."""
    training: nn.Module
    """The same in training mode."""

    def __call__(self, params: Mapping[str, Any], *inputs: Any) -> Any:
        """Return the module's output in evaluation mode."""
        return _call(self.evaluating, params, inputs)[0]

    def with_buffers(self, params: Mapping[str, Any], *inputs: Any) -> tuple[Any, dict[str, Any]]:
        """Return the module's output in training mode, and its new buffers."""
        return _call(self.training, params, inputs)


def _call(
    module: nn.Module, params: Mapping[str, Any], inputs: tuple[Any, ...]
) -> tuple[Any, dict[str, Any]]:
    # copies: a module writes its buffers in place
    buffers = {name: buffer.clone() for name, buffer in params["buffers"].items()}
    tensors = {**dict(params["parameters"].items()), **buffers}
    output = functional_call(module, tensors, inputs)
    return output, {name: tensors[name] for name in buffers}


def from_module(
    module_factory: Callable[[], nn.Module], *, initialize: InitializeParameter | None = None
) -> Network:
    """Return a module as a network, through ``torch.func.functional_call``.

    ``params["parameters"]`` and ``params["buffers"]`` hold the tensors under the module's own
    dotted names. ``apply(params, *inputs)`` runs in evaluation mode and changes nothing;
    `apply_with_buffers` runs in training mode and returns new buffers.

    Initialisation: the module is constructed twice, here and never again, in a scope that seeds
    the CPU generator and restores it. What both constructions agree on is a constant (the ones and
    zeros of a norm, a zero bias, pretrained weights, buffers) and is kept. A parameter in which
    they differ is random, and ``init`` draws it anew from the key of its own,
    ``random.split(key, num_parameters)[i]`` in the module's order:

        U(−1/√fan_in, 1/√fan_in), fan_in = size / shape[0]; a bias takes that of its weight

    This is ``torch.nn.Linear``'s and ``Conv2d``'s distribution. Random initialisers that the
    constructor calls itself (orthogonal, embeddings) are *not* reproduced: pass ``initialize``.

    Args:
        module_factory: constructs the module, a new one each time, on the CPU.
        initialize: ``(key, name, constructed) -> value`` for every parameter that is random,
            instead of the rule above; a function of the key alone.

    Raises:
        ConfigError: the factory returns one module twice, the module has dropout (which draws
            from the global generator), or a buffer is random.

    >>> network = from_module(lambda: nn.Linear(3, 2))
    >>> network.apply(network.init(random.key(0)), torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """
    first, second = _construct(module_factory, 0), _construct(module_factory, 1)
    if first is second:
        raise ConfigError(MSG_SAME_MODULE)
    _require_no_randomness(first, second)
    drawn = _differing(dict(first.named_parameters()), dict(second.named_parameters()))
    initialize = initialize or _uniform_by_fan_in(first)

    def init(key: Key) -> TensorDict:
        constructed = {name: p.detach() for name, p in first.named_parameters()}
        keys = random.split(key, max(len(constructed), 1)).unbind(0)
        parameters = {
            name: initialize(one, name, value) if name in drawn else value.to(key.device).clone()
            for one, (name, value) in zip(keys, constructed.items(), strict=False)
        }
        buffers = {name: b.to(key.device).clone() for name, b in first.named_buffers()}
        return tree.from_dict({"parameters": parameters, "buffers": buffers})

    return Network(init, ModuleApply(first.eval(), second.train()))


def apply_with_buffers(
    network: Network, params: Mapping[str, Any], *inputs: Any
) -> tuple[Any, TensorDict]:
    """Apply a network made by `from_module` in training mode.

    Args:
        network: from `from_module`.
        params: its parameters and buffers; they stay as they are.
        inputs: the module's inputs.

    Returns:
        the output, and params with the same parameters and the buffers that the call left (those
        of batch normalisation, for one).

    Raises:
        ConfigError: the network was not made by `from_module`.

    >>> network = from_module(lambda: nn.BatchNorm1d(1))
    >>> _, params = apply_with_buffers(network, network.init(random.key(0)), torch.ones(4, 1))
    >>> params["buffers", "running_mean"]
    tensor([0.1000])
    """
    if not isinstance(network.apply, ModuleApply):
        raise ConfigError("network was not made by from_module, so it has no buffers")
    output, buffers = network.apply.with_buffers(params, *inputs)
    parameters = dict(params["parameters"].items())
    return output, tree.from_dict({"parameters": parameters, "buffers": buffers})


def _construct(module_factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a module built under a seeded CPU generator, which is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return module_factory()


def _differing(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> set[str]:
    return {name for name in first if not tree.equal(first[name], second[name])}


def _require_no_randomness(first: nn.Module, second: nn.Module) -> None:
    for name, module in first.named_modules():
        p = 0.0
        if isinstance(module, _DROPOUTS):
            p = module.p
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            p = module.dropout
        if p:
            kind = type(module).__name__
            raise ConfigError(MSG_DROPOUT.format(name=name, kind=kind, p=p))
    for name in _differing(dict(first.named_buffers()), dict(second.named_buffers())):
        raise ConfigError(MSG_RANDOM_BUFFER.format(name=name))


def _uniform_by_fan_in(module: nn.Module) -> InitializeParameter:
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}

    def initialize(key: Key, name: str, constructed: Tensor) -> Tensor:
        shape = shapes[name]
        fan_shape = shape
        if len(shape) < 2:  # a bias belongs to the weight beside it
            fan_shape = shapes.get(name.removesuffix("bias") + "weight", shape)
        fan_in = math.prod(fan_shape[1:] if len(fan_shape) > 1 else fan_shape)
        bound = 1.0 / math.sqrt(max(fan_in, 1))
        return initialization.symmetric_uniform(key, shape, bound, constructed.dtype)

    return initialize
