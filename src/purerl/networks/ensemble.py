"""Ensembles: one network over stacked parameters."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, is_tensor_collection

from .. import random, tree
from ..errors import ConfigError
from ..types import Key, Tree
from .network import Network


def ensemble(network: Network, n: int) -> Network:
    """Return n independent copies of a network that see the same inputs.

        keys = random.split(key, n);   member j of ``init(key)`` equals ``network.init(keys[j])``

    Nothing is shared between members; with n = 1 the one member is the plain network.

    Args:
        network: the network of one member.
        n: number of members K, at least 1.

    Returns:
        a network with parameters ``[K, …]`` whose ``apply`` stacks the outputs: ``[K, *B, …]``.

    Raises:
        ConfigError: n is below 1.

    >>> from purerl.networks import mlp
    >>> critics = ensemble(mlp((3, 8, 1)), 2)
    >>> critics.apply(critics.init(random.key(0)), torch.zeros(5, 3)).shape
    torch.Size([2, 5, 1])
    """
    if n < 1:
        raise ConfigError(f"n is {n}, expected at least 1")

    def init(key: Key) -> TensorDict:
        # one by one, not by vmap: a batched QR may round differently from a single one
        members = [tree.to_dict(network.init(one)) for one in random.split(key, n).unbind(0)]
        return tree.from_dict(tree.stack(members), (n,))

    def apply(params: Tree, *inputs: Tree) -> Any:
        plain = tree.to_dict(params) if is_tensor_collection(params) else params
        in_dims = (0,) + (None,) * len(inputs)
        return torch.vmap(network.apply, in_dims=in_dims)(plain, *inputs)

    return Network(init, apply)
