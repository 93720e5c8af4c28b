"""Networks with the outputs that algorithms ask for: actor-critics, Gaussian heads, Q-networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from tensordict import TensorDict
from torch import Tensor

from .. import check, distributions, random, tree
from ..errors import ConfigError
from ..types import Key
from .initialization import Initialization
from .mlp import Activation, mlp, require_features
from .network import Network

ScaleKind: TypeAlias = Literal["state_independent", "predicted"]
QKind: TypeAlias = Literal["continuous", "discrete"]


def actor_critic(
    observation_size: int,
    output_size: int,
    *,
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Activation = "tanh",
    shared_trunk: bool = False,
    init: Initialization = "orthogonal",
    gain: float = math.sqrt(2.0),
    actor_output_gain: float = 0.01,
    critic_gain: float | None = None,
    critic_output_gain: float = 1.0,
    layer_norm: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return a policy network and a value network, apart or on one trunk.

        apart    actor, critic keys = split(key, 2);   params: actor, critic
        shared   trunk, actor, critic keys = split(key, 3);   params: trunk, actor, critic;
                 the trunk holds the hidden layers, actor and critic one linear layer each

    Each part is an `mlp`; the defaults are the usual ones of PPO (√2, 0.01, 1).

    Args:
        observation_size: features of an observation.
        output_size: logits or means (and raw scales) of the policy.
        hidden_sizes: hidden layers.
        activation: of the hidden layers.
        shared_trunk: one trunk for both.
        init: as in `mlp`.
        gain: of the hidden layers, for ``"orthogonal"``.
        actor_output_gain: of the policy's last layer, for ``"orthogonal"``.
        critic_gain: of the critic's own hidden layers; None takes ``gain``.
        critic_output_gain: of the critic's last layer, for ``"orthogonal"``.
        layer_norm: as in `mlp`.
        dtype: of the parameters.

    Returns:
        a network whose ``apply`` maps ``[*B, observation_size]`` to
        ``(actor_output [*B, output_size], value [*B])``.

    Raises:
        ConfigError: a shared trunk without hidden layers or with ``critic_gain``, or an unknown
            name.

    >>> network = actor_critic(4, 2)
    >>> output, value = network.apply(network.init(random.key(0)), torch.zeros(3, 4))
    >>> output.shape, value.shape
    (torch.Size([3, 2]), torch.Size([3]))
    """
    sizes = (observation_size, *hidden_sizes)
    make = partial(mlp, activation=activation, init=init, gain=gain, dtype=dtype)
    if not shared_trunk:
        make = partial(make, layer_norm=layer_norm)
        actor = make((*sizes, output_size), output_gain=actor_output_gain)
        own_gain = gain if critic_gain is None else critic_gain
        critic = make((*sizes, 1), gain=own_gain, output_gain=critic_output_gain)
        return _joined({"actor": actor, "critic": critic})
    if not hidden_sizes or critic_gain is not None:
        raise ConfigError(
            f"hidden_sizes is {hidden_sizes} and critic_gain {critic_gain}: a shared trunk "
            "needs a hidden layer, and leaves the critic none of its own"
        )
    trunk = make(sizes, output_gain=gain, output_activation=activation, layer_norm=layer_norm)
    actor = make((sizes[-1], output_size), output_gain=actor_output_gain)
    critic = make((sizes[-1], 1), output_gain=critic_output_gain)
    return _joined({"trunk": trunk, "actor": actor, "critic": critic})


def _joined(parts: Mapping[str, Network]) -> Network:
    """Return actor and critic, on their trunk if there is one, as one network."""

    def init(key: Key) -> TensorDict:
        keys = random.split(key, len(parts)).unbind(0)
        named = zip(parts.items(), keys, strict=True)
        return tree.from_dict({name: tree.to_dict(part.init(one)) for (name, part), one in named})

    def apply(params: Mapping[str, Any], observation: Tensor) -> tuple[Tensor, Tensor]:
        features = observation
        if "trunk" in parts:
            features = parts["trunk"].apply(params["trunk"], observation)
        output: Tensor = parts["actor"].apply(params["actor"], features)
        value: Tensor = parts["critic"].apply(params["critic"], features)
        return output, value.squeeze(-1)

    return Network(init, apply)


def gaussian_head(
    action_size: int,
    *,
    kind: ScaleKind = "state_independent",
    log_std_init: float = 0.0,
    scale_map: distributions.ScaleMap = "exp",
    bounds: tuple[float, float] | None = None,
    floor: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return the head that makes location and scale of a Gaussian from an actor's output.

        "state_independent"   loc = output,        scale = scale_map(params["log_std"])
        "predicted"           loc, raw = output,   scale = scale_map(raw)

    Args:
        action_size: dimensions D of an action.
        kind: a parameter of its own, or the second half of the actor's output.
        log_std_init: initial value of the parameter, before the scale map: 0
            (Stable-Baselines3, CleanRL, skrl), −0.5 (Spinning Up, tianshou), −2 (tuned MuJoCo).
        scale_map: see `distributions.scale_map`.
        bounds: of log σ; None takes the default of the scale map, and for a state-independent
            ``"exp"`` none at all, as in every library that has it.
        floor: of σ, for the two softplus maps; None takes their default.
        dtype: of the parameter.

    Returns:
        a network whose ``apply`` maps ``[*B, D]`` (predicted: ``[*B, 2D]``) to ``(loc, scale)``,
        both ``[*B, D]``. Predicted scales have no parameters.

    Raises:
        ConfigError: an unknown name, or an option that the scale map does not use.

    >>> head = gaussian_head(2, log_std_init=-0.5)
    >>> head.apply(head.init(random.key(0)), torch.zeros(1, 2))
    (tensor([[0., 0.]]), tensor([[0.6065, 0.6065]]))
    """
    independent = (
        check.option("kind", kind, ("state_independent", "predicted")) == "state_independent"
    )
    if independent and scale_map == "exp" and bounds is None:
        bounds = (-math.inf, math.inf)
    to_scale = partial(distributions.scale_map, kind=scale_map, bounds=bounds, floor=floor)
    to_scale(torch.zeros(()))  # contradictory options fail here, not at the first use
    input_size = action_size if independent else 2 * action_size

    def init(key: Key) -> TensorDict:
        if not independent:
            return tree.from_dict({})
        log_std = torch.full((action_size,), log_std_init, dtype=dtype, device=key.device)
        return tree.from_dict({"log_std": log_std})

    def apply(params: Mapping[str, Any], actor_output: Tensor) -> tuple[Tensor, Tensor]:
        require_features(actor_output, input_size)
        if independent:
            return actor_output, to_scale(params["log_std"]).expand_as(actor_output)
        loc, raw = actor_output.split(action_size, -1)
        return loc, to_scale(raw)

    return Network(init, apply)


def q_network(
    observation_size: int,
    action_size: int,
    *,
    kind: QKind = "continuous",
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    init: Initialization = "torch",
    gain: float = math.sqrt(2.0),
    output_gain: float = 1.0,
    layer_norm: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return an action-value network, Q(s, a) or Q(s, ·).

    Args:
        observation_size: features of an observation.
        action_size: dimensions of a continuous action, or number of discrete ones.
        kind: ``"continuous"`` concatenates observation and action: ``apply(params, observation,
            action) -> [*B]``; ``"discrete"`` values every action: ``apply(params, observation) ->
            [*B, action_size]``.
        hidden_sizes: hidden layers.
        activation: of the hidden layers.
        init: as in `mlp`.
        gain: as in `mlp`.
        output_gain: as in `mlp`.
        layer_norm: as in `mlp`.
        dtype: of the parameters.

    Raises:
        ConfigError: an unknown name.

    >>> critic = q_network(3, 2)
    >>> critic.apply(critic.init(random.key(0)), torch.zeros(5, 3), torch.zeros(5, 2)).shape
    torch.Size([5])
    """
    make = partial(
        mlp,
        activation=activation,
        init=init,
        gain=gain,
        output_gain=output_gain,
        layer_norm=layer_norm,
        dtype=dtype,
    )
    if check.option("kind", kind, ("continuous", "discrete")) == "discrete":
        return make((observation_size, *hidden_sizes, action_size))
    network = make((observation_size + action_size, *hidden_sizes, 1))

    def apply(params: Mapping[str, Any], observation: Tensor, action: Tensor) -> Tensor:
        require_features(observation, observation_size)
        value: Tensor = network.apply(params, torch.cat([observation, action], -1))
        return value.squeeze(-1)

    return Network(network.init, apply)
