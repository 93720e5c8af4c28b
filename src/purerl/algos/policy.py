"""What an action space asks of a policy: noise, sample, log-probability, entropy, mode.

A `PolicyHead` turns the output of a network into a distribution over one action space. Noise is
separate from sampling, so that the noise of a whole rollout is one draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import torch
from gymnasium import spaces
from torch import Tensor

from .. import distributions, networks, random, tree
from ..errors import ConfigError
from ..types import Key

ContinuousPolicy: TypeAlias = Literal["normal", "tanh_normal"]


class NetworkConfig(Protocol):
    """The fields of a configuration that a policy is built from."""

    @property
    def network(self) -> networks.Network | None: ...
    @property
    def hidden_sizes(self) -> tuple[int, ...]: ...
    @property
    def activation(self) -> networks.Activation: ...
    @property
    def shared_trunk(self) -> bool: ...
    @property
    def initialization(self) -> networks.Initialization: ...
    @property
    def hidden_gain(self) -> float: ...
    @property
    def actor_gain(self) -> float: ...
    @property
    def critic_gain(self) -> float: ...
    @property
    def critic_hidden_gain(self) -> float | None: ...
    @property
    def continuous_policy(self) -> ContinuousPolicy: ...
    @property
    def scale(self) -> networks.ScaleKind: ...
    @property
    def log_std_init(self) -> float: ...
    @property
    def dtype(self) -> str: ...


class Policy(NamedTuple):
    """Actor and critic as functions of parameters and policy input."""

    init: Callable[[Key], dict[str, Any]]
    actor_critic: Callable[[Any, Any], tuple[Any, Tensor]]
    """``(params, input) -> (outputs of the head's distribution, value [*B])``."""
    head: PolicyHead


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


def action_spec(action_space: spaces.Space[Any]) -> dict[str, Any]:
    """Return an action space as tensors, so that a state can carry it.

    The kind is the only key and the sizes are shapes, so a program reads both from the structure
    of the state; the bounds of a box are leaves like any others.

        Discrete(n)         {"discrete": [n]}
        MultiDiscrete       {"multi_discrete": {"0": [n_0], "1": [n_1], ...}}
        Box                 {"box": {"low": [D], "high": [D]}}

    Args:
        action_space: the space of one environment.

    Raises:
        ConfigError: the space is of another kind.

    >>> action_spec(spaces.Box(-2.0, 2.0, (1,)))
    {'box': {'low': tensor([-2.]), 'high': tensor([2.])}}
    """
    match action_space:
        case spaces.Discrete():
            return {"discrete": torch.zeros(int(action_space.n))}
        case spaces.MultiDiscrete() if action_space.nvec.ndim == 1:
            heads = {str(i): torch.zeros(int(n)) for i, n in enumerate(action_space.nvec)}
            return {"multi_discrete": heads}
        case spaces.Box() if len(action_space.shape) == 1:
            low, high = torch.as_tensor(action_space.low), torch.as_tensor(action_space.high)
            return {"box": {"low": low.clone(), "high": high.clone()}}
        case _:
            raise ConfigError(
                f"action space is {action_space}, expected Discrete, MultiDiscrete with one axis "
                "or Box with one axis; flatten it with a gymnasium wrapper"
            )


def require_bounded(spec: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a box has no bounds to squash actions into."""
    box = spec["action"].get("box")
    if box is not None and not bool((box["high"] - box["low"]).isfinite().all()):
        raise ConfigError(
            f"the action space is a Box from {box['low'].tolist()} to {box['high'].tolist()}, "
            "expected finite bounds: actions are squashed into them; rescale with "
            "gymnasium.wrappers.RescaleAction"
        )


def output_size(spec: Mapping[str, Any]) -> int:
    """Return how many logits or means a policy network puts out for an action spec.

    >>> output_size(action_spec(spaces.MultiDiscrete([3, 2])))
    5
    """
    ((kind, sizes),) = spec.items()
    if kind == "multi_discrete":
        return sum(_nvec(sizes))
    return int((sizes["low"] if kind == "box" else sizes).shape[-1])


def _nvec(heads: Mapping[str, Tensor]) -> tuple[int, ...]:
    return tuple(heads[str(i)].shape[-1] for i in range(len(heads)))


def policy_head(
    spec: Mapping[str, Any],
    *,
    continuous: ContinuousPolicy = "normal",
    dtype: torch.dtype = torch.float32,
) -> PolicyHead:
    """Return the policy head of an action spec.

    Args:
        spec: from `action_spec`, as it came or as a leaf of a state.
        continuous: for a box, ``"normal"`` (sampled actions are clipped into the box on their way
            to the environment, and scored unclipped) or ``"tanh_normal"`` (squashed into it).
        dtype: of the noise.
    """
    ((kind, sizes),) = spec.items()
    if kind == "discrete":
        return _categorical(int(sizes.shape[-1]), dtype)
    if kind == "multi_discrete":
        return _multi_categorical(_nvec(sizes), dtype)
    make = _tanh_normal if continuous == "tanh_normal" else _normal
    return make(sizes["low"], sizes["high"], dtype)


def _categorical(num_actions: int, dtype: torch.dtype) -> PolicyHead:
    def noise(key: Key, batch: int) -> Tensor:
        return random.gumbel(key, (batch, num_actions), dtype=dtype)

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


def _multi_categorical(nvec: tuple[int, ...], dtype: torch.dtype) -> PolicyHead:
    def noise(key: Key, batch: int) -> Tensor:
        return random.gumbel(key, (batch, sum(nvec)), dtype=dtype)

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


def _normal(low: Tensor, high: Tensor, dtype: torch.dtype) -> PolicyHead:
    size = int(low.shape[-1])

    def clip(raw: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(raw, low.to(raw.dtype)), high.to(raw.dtype))

    return PolicyHead(
        noise=lambda key, batch: random.normal(key, (batch, size), dtype=dtype),
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


def _tanh_normal(low: Tensor, high: Tensor, dtype: torch.dtype) -> PolicyHead:
    return _normal(low, high, dtype)._replace(
        log_prob=lambda outputs, raw, _mask: distributions.tanh_normal_log_prob(raw, *outputs),
        to_environment=lambda raw: distributions.tanh_normal_action(
            raw, low.to(raw.dtype), high.to(raw.dtype)
        ),
    )


def make_policy(config: NetworkConfig, spec: Mapping[str, Any], observation_size: int) -> Policy:
    """Return the policy that a configuration and a spec describe.

    Args:
        config: sizes and initialisation of the network, kind of continuous policy.
        spec: with the entry ``action``, from `action_spec`.
        observation_size: F, length of the features that the network sees.
    """
    action = spec["action"]
    size = output_size(action)
    gaussian = None
    if "box" in action:
        gaussian = networks.gaussian_head(size, kind=config.scale, log_std_init=config.log_std_init)
        size = 2 * size if config.scale == "predicted" else size
    network = config.network or networks.actor_critic(
        observation_size,
        size,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        shared_trunk=config.shared_trunk,
        init=config.initialization,
        gain=config.hidden_gain,
        actor_output_gain=config.actor_gain,
        critic_gain=config.critic_hidden_gain,
        critic_output_gain=config.critic_gain,
    )
    dtype = torch.float64 if config.dtype == "float64" else torch.float32

    def init(key: Key) -> dict[str, Any]:
        network_key, scale_key = random.split(key).unbind(0)
        params = {"network": tree.to_dict(network.init(network_key))}
        if gaussian is not None:
            params["scale"] = tree.to_dict(gaussian.init(scale_key))
        return tree.map(lambda leaf: leaf.to(dtype), params)

    def actor_critic(params: Any, policy_input: Any) -> tuple[Any, Tensor]:
        output, value = network.apply(params["network"], policy_input["observation"])
        if gaussian is not None:
            output = gaussian.apply(params["scale"], output)
        return output, value

    head = policy_head(action, continuous=config.continuous_policy, dtype=dtype)
    return Policy(init=init, actor_critic=actor_critic, head=head)
