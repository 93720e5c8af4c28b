"""What an action space asks of a policy: noise, sample, log-probability, entropy, mode.

A `PolicyHead` turns the output of a network into a distribution over one action space. Noise is
separate from sampling, so that the noise of a whole rollout is one draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from gymnasium import spaces
from torch import Tensor

from .. import distributions, random
from ..errors import ConfigError
from ..types import Key

ContinuousPolicy: TypeAlias = Literal["normal", "tanh_normal"]


class PolicyHead(NamedTuple):
    """The distribution of one action space as functions of network outputs.

    The *raw* action is what the log-probability refers to: the index of a discrete action, the
    unclipped sample of a normal, the pre-tanh sample of a tanh-normal. ``to_environment`` makes
    of it what the environment gets.
    """

    noise: Callable[[Key, int], Tensor]
    """``(key, batch) -> [batch, …]``: the randomness of one action for each row."""
    sample: Callable[[Any, Tensor, Tensor | None], Tensor]
    """``(outputs, noise, action_mask) -> raw action``."""
    mode: Callable[[Any, Tensor | None], Tensor]
    """``(outputs, action_mask) -> raw action`` of deterministic behaviour."""
    log_prob: Callable[[Any, Tensor, Tensor | None], Tensor]
    """``(outputs, raw action, action_mask) -> [*B]``, joint over heads and dimensions."""
    entropy: Callable[[Any, Tensor | None], Tensor]
    """``(outputs, action_mask) -> [*B]``, joint; for tanh-normal that of the normal beneath."""
    to_environment: Callable[[Tensor], Tensor]
    """``raw action -> action``, inside the bounds of the space."""


def policy_head(
    action_space: spaces.Space[Any], *, continuous: ContinuousPolicy = "normal"
) -> PolicyHead:
    """Return the policy head of a Discrete, MultiDiscrete or Box action space.

    Args:
        action_space: the space of one environment.
        continuous: for a Box, ``"normal"`` (sampled actions are clipped into the box on their way
            to the environment, and scored unclipped) or ``"tanh_normal"`` (squashed into it).

    Raises:
        ConfigError: the space is of another kind, or an unbounded Box is to be squashed.
    """
    match action_space:
        case spaces.Discrete():
            return _categorical(int(action_space.n))
        case spaces.MultiDiscrete() if action_space.nvec.ndim == 1:
            return _multi_categorical(tuple(int(n) for n in action_space.nvec))
        case spaces.Box() if len(action_space.shape) == 1:
            if continuous == "tanh_normal":
                return _tanh_normal(action_space)
            return _normal(action_space)
        case _:
            raise ConfigError(
                f"action space is {action_space}, expected Discrete, MultiDiscrete with one axis "
                "or Box with one axis; flatten it with a gymnasium wrapper"
            )


def output_size(action_space: spaces.Space[Any]) -> int:
    """Return how many logits or means a policy network must put out for an action space."""
    match action_space:
        case spaces.Discrete():
            return int(action_space.n)
        case spaces.MultiDiscrete():
            return int(action_space.nvec.sum())
        case _:
            return int(action_space.shape[0]) if action_space.shape else 1


def _categorical(num_actions: int) -> PolicyHead:
    def noise(key: Key, batch: int) -> Tensor:
        return random.gumbel(key, (batch, num_actions))

    return PolicyHead(
        noise=noise,
        sample=lambda logits, gumbel, mask: distributions.categorical_from_gumbel(
            gumbel, logits, mask
        ),
        mode=distributions.categorical_mode,
        log_prob=lambda logits, action, mask: distributions.categorical_log_prob(
            action, logits, mask
        ),
        entropy=distributions.categorical_entropy,
        to_environment=lambda action: action,
    )


def _multi_categorical(nvec: tuple[int, ...]) -> PolicyHead:
    def noise(key: Key, batch: int) -> Tensor:
        return random.gumbel(key, (batch, sum(nvec)))

    return PolicyHead(
        noise=noise,
        sample=lambda logits, gumbel, mask: distributions.multi_categorical_from_gumbel(
            gumbel, logits, nvec, mask
        ),
        mode=lambda logits, mask: distributions.multi_categorical_mode(logits, nvec, mask),
        log_prob=lambda logits, action, mask: distributions.multi_categorical_log_prob(
            action, logits, nvec, mask
        ),
        entropy=lambda logits, mask: distributions.multi_categorical_entropy(logits, nvec, mask),
        to_environment=lambda action: action,
    )


def _bounds(space: spaces.Box, like: Tensor) -> tuple[Tensor, Tensor]:
    low = torch.as_tensor(space.low, dtype=like.dtype, device=like.device)
    high = torch.as_tensor(space.high, dtype=like.dtype, device=like.device)
    return low, high


def _normal(space: spaces.Box) -> PolicyHead:
    size = int(space.shape[0])

    def clip(raw: Tensor) -> Tensor:
        low, high = _bounds(space, raw)
        return torch.minimum(torch.maximum(raw, low), high)

    return PolicyHead(
        noise=lambda key, batch: random.normal(key, (batch, size)),
        sample=lambda outputs, noise, _mask: outputs[0] + outputs[1] * noise,
        mode=lambda outputs, _mask: outputs[0],
        log_prob=lambda outputs, raw, _mask: distributions.independent(
            distributions.normal_log_prob(raw, *outputs)
        ),
        entropy=lambda outputs, _mask: distributions.independent(
            distributions.normal_entropy(outputs[1]).expand_as(outputs[0])
        ),
        to_environment=clip,
    )


def _tanh_normal(space: spaces.Box) -> PolicyHead:
    if not space.is_bounded():
        raise ConfigError(f"a tanh-normal policy needs a bounded Box, the action space is {space}")
    base = _normal(space)

    def log_prob(outputs: Any, raw: Tensor, _mask: Tensor | None) -> Tensor:
        low, high = _bounds(space, raw)
        return distributions.tanh_normal_log_prob(raw, *outputs, low=low, high=high)

    def squash(raw: Tensor) -> Tensor:
        low, high = _bounds(space, raw)
        return distributions.tanh_normal_action(raw, low, high)

    return base._replace(log_prob=log_prob, to_environment=squash)
