"""From what an environment shows to what a policy sees: flat features, masks, normalisation.

A *policy input* is a plain dict: ``observation`` (features), and ``action_mask`` where the
environment says which actions are legal.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from .. import normalize, tree
from ..errors import ConfigError
from ..types import Tree

Input = dict[str, Any]
Stats = dict[str, Tensor]


class ObserverConfig(Protocol):
    """The fields of a configuration that say what the policy sees."""

    @property
    def network(self) -> Any: ...
    @property
    def mask_actions(self) -> bool: ...
    @property
    def normalize_observation(self) -> bool: ...
    @property
    def dtype(self) -> str: ...


def make_observer(config: ObserverConfig, s: Any) -> Observer:
    """Return the observer that a configuration and a state's spec and hparams describe."""
    return Observer(
        spec=s["spec"]["observation"],
        dtype=torch.float64 if config.dtype == "float64" else torch.float32,
        flat=config.network is None,
        mask_actions=config.mask_actions,
        normalized=config.normalize_observation,
        clip=s["hparams"].get("observation_clip"),
    )


class Observer(NamedTuple):
    """How a configuration turns observations into policy inputs."""

    spec: Tree
    """A zero observation of one environment: dtypes and ranks of the leaves."""
    dtype: torch.dtype
    flat: bool
    """Concatenate all leaves into one vector; False keeps the observation's own structure."""
    mask_actions: bool
    normalized: bool
    clip: Tensor | None

    @property
    def size(self) -> int:
        """Length of the flat features; of a custom network's tensor input, its last axis."""
        features = self.features(self.spec)["observation"]
        return int(features.shape[-1]) if isinstance(features, Tensor) else 0

    def features(self, observation: Tree) -> Input:
        """Return the raw policy input of observations ``[*B, …]``."""
        spec, action_mask = self.spec, None
        if self.mask_actions:
            _require_action_mask(spec)
            action_mask = observation["action_mask"].to(torch.bool)
            spec = {k: v for k, v in spec.items() if k != "action_mask"}
            observation = {k: v for k, v in observation.items() if k != "action_mask"}
        if self.flat:
            observation = _flatten(observation, spec, self.dtype)
        else:
            observation = tree.map(lambda leaf: leaf.to(self.dtype), observation)
        return {"observation": observation} | (
            {} if action_mask is None else {"action_mask": action_mask}
        )

    def init(self, observation: Tree | None) -> Stats:
        """Return statistics that know the first observations ``[B, …]``, if any; {} when off."""
        if not self.normalized:
            return {}
        like = self.features(self.spec)["observation"]
        stats = normalize.init(like.shape, device=like.device)
        return stats if observation is None else self.update(stats, observation)

    def update(self, stats: Stats, observation: Tree, mask: Tensor | None = None) -> Stats:
        """Return statistics that also know the observations ``[*B, …]``, but for masked ones."""
        if not self.normalized:
            return stats
        return normalize.update(stats, self.features(observation)["observation"], mask=mask)

    def apply(self, stats: Stats, observation: Tree, mask: Tensor | None = None) -> Input:
        """Return the policy input of observations ``[*B, …]`` under frozen statistics.

        Masked rows become 0: behind a network a mask comes too late, as its gradient multiplies
        a 0 by what the row holds.
        """
        policy_input = self.features(observation)
        if self.normalized:
            normal = normalize.apply(stats, policy_input["observation"], clip=self.clip)
            policy_input |= {"observation": normal}
        if mask is None:
            return policy_input
        features = policy_input["observation"]
        scrubbed = tree.where(mask, features, tree.map(torch.zeros_like, features))
        return policy_input | {"observation": scrubbed}


def _require_action_mask(spec: Tree) -> None:
    if isinstance(spec, Tensor) or "action_mask" not in spec or len(spec) == 1:
        raise ConfigError(
            "mask_actions needs a Dict of observations, one entry of which is action_mask"
        )


def observation_spec(space: spaces.Space[Any]) -> Tree:
    """Return a zero observation of a space, as a tensor or nested plain dict of tensors.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.

    Raises:
        ConfigError: a space of another kind.

    >>> observation_spec(spaces.Dict({"x": spaces.Box(0, 1, (2,))}))
    {'x': tensor([0., 0.])}
    """
    match space:
        case spaces.Dict():
            return {key: observation_spec(inner) for key, inner in space.items()}
        case spaces.Discrete():
            return torch.zeros((), dtype=torch.int64)
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return torch.zeros(space.shape, dtype=_torch_dtype(space.dtype))
        case _:
            raise ConfigError(
                f"observation space is {space}, expected Box, Discrete, MultiDiscrete, "
                "MultiBinary or a Dict of these; convert it with a gymnasium wrapper"
            )


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, dtype)).dtype


def _paired(observation: Tree, spec: Tree) -> list[tuple[Tensor, Tensor]]:
    """Return the leaves of an observation beside those of its spec, by name."""
    if isinstance(spec, Tensor):
        return [(observation, spec)]
    return [pair for name in sorted(spec) for pair in _paired(observation[name], spec[name])]


def _flatten(observation: Tree, spec: Tree, dtype: torch.dtype) -> Tensor:
    """Concatenate leaves ``[*B, *leaf]`` in sorted key order into features ``[*B, F]``."""
    flat = [
        leaf.reshape(*leaf.shape[: leaf.ndim - single.ndim], -1).to(dtype)
        for leaf, single in _paired(observation, spec)
    ]
    return flat[0] if len(flat) == 1 else torch.cat(flat, -1)
