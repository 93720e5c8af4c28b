"""Actor-critics, Gaussian heads, Q-networks and ensembles."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import networks, random, tree
from purerl.errors import ConfigError, ShapeError

KEY = random.key(5)


def real(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=dtype)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-5) -> None:
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


# Actor-critic, Gaussian head, Q-networks.


def test_actor_and_critic_are_perceptrons_of_their_own() -> None:
    network = networks.actor_critic(4, 2, hidden_sizes=(8, 8), critic_gain=0.5)
    params = network.init(KEY)
    actor_key, critic_key = random.split(KEY).unbind(0)
    actor = networks.mlp((4, 8, 8, 2), output_gain=0.01)
    critic = networks.mlp((4, 8, 8, 1), gain=0.5)
    assert tree.equal(params["actor"], actor.init(actor_key))
    assert tree.equal(params["critic"], critic.init(critic_key))
    x = real(1, 3, 5, 4)
    output, value = network.apply(params, x)
    assert torch.equal(output, actor.apply(params["actor"], x))
    assert torch.equal(value, critic.apply(params["critic"], x)[..., 0])
    assert output.shape == (3, 5, 2)
    assert value.shape == (3, 5)


def test_a_shared_trunk_holds_the_hidden_layers() -> None:
    network = networks.actor_critic(4, 2, hidden_sizes=(8, 6), shared_trunk=True)
    params = network.init(KEY)
    assert set(params.keys()) == {"trunk", "actor", "critic"}
    trunk = networks.mlp((4, 8, 6), output_gain=math.sqrt(2.0), output_activation="tanh")
    assert tree.equal(params["trunk"], trunk.init(random.split(KEY, 3)[0]))
    x = real(1, 5, 4)
    features = trunk.apply(params["trunk"], x)
    output, value = network.apply(params, x)
    close(output, networks.mlp((6, 2)).apply(params["actor"], features))
    close(value, networks.mlp((6, 1)).apply(params["critic"], features)[:, 0])
    gain = params["actor", "layers", "0", "weight"].double().norm(dim=-1)
    torch.testing.assert_close(gain, torch.full_like(gain, 0.01), rtol=1e-5, atol=0.0)
    for options in ({"hidden_sizes": ()}, {"critic_gain": 1.0}):
        with pytest.raises(ConfigError, match="a shared trunk needs a hidden layer"):
            networks.actor_critic(4, 2, shared_trunk=True, **options)


def test_a_state_independent_scale_is_a_parameter() -> None:
    head = networks.gaussian_head(2, log_std_init=-0.5)
    params = head.init(KEY)
    assert torch.equal(params["log_std"], torch.full((2,), -0.5))
    out = real(1, 3, 2)
    loc, scale = head.apply(params, out)
    assert torch.equal(loc, out)
    close(scale, torch.full((3, 2), math.exp(-0.5)))
    unbounded = head.apply({"log_std": torch.tensor([5.0, -30.0])}, out)[1]
    close(unbounded[0].log(), torch.tensor([5.0, -30.0]))
    bounded = networks.gaussian_head(2, bounds=(-1.0, 1.0))
    close(
        bounded.apply({"log_std": torch.tensor([5.0, -30.0])}, out)[1][0].log(),
        torch.tensor([1.0, -1.0]),
    )


def test_a_predicted_scale_is_the_second_half_of_the_output() -> None:
    head = networks.gaussian_head(2, kind="predicted", scale_map="tanh_range")
    params = head.init(KEY)
    assert tree.leaves(params) == []
    out = real(1, 3, 4)
    loc, scale = head.apply(params, out)
    assert torch.equal(loc, out[:, :2])
    close(scale, (-5.0 + 3.5 * (out[:, 2:].tanh() + 1.0)).exp())
    clamped = networks.gaussian_head(2, kind="predicted").apply({}, 100 * out.sign())[1]
    assert set(clamped.log().round().flatten().tolist()) == {-20.0, 2.0}
    with pytest.raises(ShapeError, match="expected last axis 4"):
        head.apply(params, out[:, :2])


def test_a_gaussian_head_refuses_contradictions_at_once() -> None:
    unknown: Any = "state_dependent"
    with pytest.raises(ConfigError, match="kind is 'state_dependent'"):
        networks.gaussian_head(2, kind=unknown)
    with pytest.raises(ConfigError, match=r"bounds is .* but kind 'softplus' takes floor"):
        networks.gaussian_head(2, scale_map="softplus", bounds=(-1.0, 1.0))


def test_q_networks_value_one_action_or_all() -> None:
    observation, action = real(1, 5, 3), real(2, 5, 2)
    continuous = networks.q_network(3, 2, hidden_sizes=(8,))
    params = continuous.init(KEY)
    plain = networks.mlp((5, 8, 1), "relu", init="torch")
    assert tree.equal(params, plain.init(KEY))
    value = continuous.apply(params, observation, action)
    assert torch.equal(value, plain.apply(params, torch.cat([observation, action], -1))[:, 0])
    discrete = networks.q_network(3, 4, kind="discrete", hidden_sizes=(8,))
    assert discrete.apply(discrete.init(KEY), observation).shape == (5, 4)


# Ensembles.


def test_member_j_of_an_ensemble_equals_init_of_key_j() -> None:
    network = networks.q_network(3, 2, hidden_sizes=(8, 8), init="orthogonal")
    critics = networks.ensemble(network, 4)
    params = critics.init(KEY)
    assert params.batch_size == (4,)
    observation, action = real(1, 5, 3), real(2, 5, 2)
    values = critics.apply(params, observation, action)
    assert values.shape == (4, 5)
    assert torch.equal(critics.apply(tree.to_dict(params), observation, action), values)
    for j, key in enumerate(random.split(KEY, 4).unbind(0)):
        member = network.init(key)
        assert tree.equal(params[j], member)
        close(values[j], network.apply(member, observation, action))


def test_an_ensemble_of_one_is_the_plain_network() -> None:
    network = networks.mlp((3, 8, 2))
    single = networks.ensemble(network, 1)
    params, x = single.init(KEY), real(1, 5, 3)
    member = network.init(random.split(KEY, 1)[0])
    assert tree.equal(params[0], member)
    close(single.apply(params, x)[0], network.apply(member, x))
    with pytest.raises(ConfigError, match="n is 0"):
        networks.ensemble(network, 0)


def test_ensembles_nest_in_a_sweep() -> None:
    critics = networks.ensemble(networks.mlp((3, 8, 1)), 2)
    keys = random.split(KEY, 3)
    params = torch.vmap(critics.init)(keys)
    assert params.batch_size == (3, 2)
    x = real(1, 3, 5, 3)
    out = torch.vmap(critics.apply)(params, x)
    assert out.shape == (3, 2, 5, 1)
    for i in range(3):
        close(out[i], critics.apply(critics.init(keys[i]), x[i]))


def test_gradients_of_an_ensemble_do_not_mix_members() -> None:
    critics = networks.ensemble(networks.mlp((3, 8, 1)), 2)
    params, x = tree.to_dict(critics.init(KEY)), real(1, 5, 3)
    gradient = torch.func.grad(lambda p: critics.apply(p, x)[0].sum())(params)
    assert not any(bool(leaf[1].any()) for leaf in tree.leaves(gradient))
    assert any(bool(leaf[0].any()) for leaf in tree.leaves(gradient))
