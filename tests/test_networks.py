"""Perceptrons, convolutional networks and structured observations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from purerl import networks, random, tree
from purerl.errors import ConfigError, ShapeError

KEY = random.key(5)
INITS: tuple[networks.Initialization, ...] = (
    "orthogonal",
    "torch",
    "lecun_normal",
    "lecun_uniform",
)


def real(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=dtype)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-5) -> None:
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


# The perceptron.


@pytest.mark.parametrize(
    ("activation", "module"),
    [
        ("tanh", nn.Tanh),
        ("relu", nn.ReLU),
        ("silu", nn.SiLU),
        ("gelu", nn.GELU),
        ("elu", nn.ELU),
        ("identity", nn.Identity),
    ],
)
def test_mlp_equals_sequential_with_the_same_weights(
    activation: networks.Activation, module: type[nn.Module]
) -> None:
    network = networks.mlp((4, 8, 8, 3), activation, init="torch", layer_norm=True)
    params = network.init(KEY)
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate([(4, 8), (8, 8), (8, 3)]):
        linear = nn.Linear(inputs, outputs)
        linear.load_state_dict(dict(params["layers", str(i)].items()))
        layers += [linear, nn.LayerNorm(8), module()] if i < 2 else [linear]
    x = real(1, 2, 5, 4)
    assert torch.equal(network.apply(params, x), nn.Sequential(*layers)(x))
    assert torch.equal(network.apply(tree.to_dict(params), x), network.apply(params, x))
    assert network.apply(params, x[0, 0]).shape == (3,)


def test_mlp_output_activation_and_dtype() -> None:
    network = networks.mlp((3, 4, 2), output_activation="tanh", dtype=torch.float64)
    params = network.init(KEY)
    out = network.apply(params, 100 * real(1, 9, 3, dtype=torch.float64))
    assert out.dtype is torch.float64
    assert float(out.abs().max()) <= 1.0
    assert {leaf.dtype for leaf in tree.leaves(params)} == {torch.float64}


def test_orthogonal_layers_have_their_gain_and_no_bias() -> None:
    params = networks.mlp((6, 16, 16, 3), gain=1.5, output_gain=0.01).init(KEY)
    for name, gain in [("0", 1.5), ("1", 1.5), ("2", 0.01)]:
        weight = params["layers", name, "weight"].double()
        rows, columns = weight.shape
        gram = weight @ weight.T if rows <= columns else weight.T @ weight
        identity = torch.eye(min(rows, columns), dtype=torch.float64)
        torch.testing.assert_close(gram / gain**2, identity, rtol=0.0, atol=1e-5)
        assert torch.equal(params["layers", name, "bias"], torch.zeros(rows))


@pytest.mark.parametrize(
    ("init", "bound", "deviation"),
    [
        ("torch", 1.0, math.sqrt(1 / 3)),
        ("lecun_normal", 2.0 / 0.87962566, 1.0),
        ("lecun_uniform", math.sqrt(3.0), 1.0),
    ],
)
def test_other_inits_have_their_range_and_deviation(
    init: networks.Initialization, bound: float, deviation: float
) -> None:
    """Both in units of 1/√fan_in."""
    fan_in = 100
    layer = networks.mlp((fan_in, 300), init=init).init(KEY)["layers", "0"]
    weight = layer["weight"] * math.sqrt(fan_in)
    n = weight.numel()
    assert float(weight.abs().max()) <= bound * (1 + 1e-6)
    assert abs(float(weight.mean())) < 5 * deviation / math.sqrt(n)
    # the variance of a square is at most 2σ⁴ for these
    assert abs(float(weight.square().mean()) - deviation**2) < 5 * deviation**2 * math.sqrt(2 / n)
    bias = layer["bias"]
    if init == "torch":
        assert 0.5 / math.sqrt(fan_in) < float(bias.abs().max()) <= 1 / math.sqrt(fan_in)
    else:
        assert torch.equal(bias, torch.zeros(300))


def test_every_layer_has_a_key_of_its_own() -> None:
    params = networks.mlp((5, 5, 5, 5), output_gain=2.0, gain=2.0).init(KEY)
    for i, key in enumerate(random.split(KEY, 3).unbind(0)):
        expected = 2.0 * random.orthogonal(key, 5, (), 5, dtype=torch.float32)
        assert torch.equal(params["layers", str(i), "weight"], expected)
    first, second = (params["layers", i, "weight"] for i in "01")
    assert not torch.equal(first, second)


@pytest.mark.parametrize("init", INITS)
def test_same_key_same_params_and_vmapped_init_equals_the_loop(
    init: networks.Initialization,
) -> None:
    network = networks.mlp((4, 6, 2), init=init, layer_norm=True)
    assert tree.equal(network.init(KEY), network.init(KEY))
    keys = random.split(KEY, 3)
    batched = torch.vmap(network.init)(keys)
    assert batched.batch_size == (3,)
    for i in range(3):
        single = network.init(keys[i])
        for a, b in zip(tree.leaves(batched[i]), tree.leaves(single), strict=True):
            close(a, b)


def test_vmap_over_stacked_params_equals_the_loop_in_value_and_gradient() -> None:
    network = networks.mlp((4, 16, 3))
    keys = random.split(KEY, 5)
    stacked = tree.to_dict(torch.vmap(network.init)(keys))
    x = real(1, 5, 7, 4)

    def loss(params: Any, observation: Tensor) -> Tensor:
        return network.apply(params, observation).square().mean()

    outputs = torch.vmap(network.apply)(stacked, x)
    gradients = torch.vmap(torch.func.grad(loss))(stacked, x)
    for i in range(5):
        member = tree.index(stacked, i)
        close(outputs[i], network.apply(member, x[i]))
        single = torch.func.grad(loss)(member, x[i])
        for a, b in zip(tree.leaves(tree.index(gradients, i)), tree.leaves(single), strict=True):
            close(a, b)


def test_mlp_mistakes_are_named() -> None:
    unknown: Any = "tahn"
    with pytest.raises(ConfigError, match="activation is 'tahn'; did you mean tanh"):
        networks.mlp((2, 2), unknown)
    unknown = "ortogonal"
    with pytest.raises(ConfigError, match="init is 'ortogonal'; did you mean orthogonal"):
        networks.mlp((2, 2), init=unknown)
    with pytest.raises(ConfigError, match="expected \\(input, \\*hidden, output\\)"):
        networks.mlp((2,))
    network = networks.mlp((3, 2))
    with pytest.raises(ShapeError, match=r"observation has shape \[5, 4\], expected last axis 3"):
        network.apply(network.init(KEY), torch.zeros(5, 4))


# Images.


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_cnn_equals_a_module_with_the_same_weights(layout: networks.Layout) -> None:
    shape = (20, 16, 3) if layout == "hwc" else (3, 20, 16)
    network = networks.cnn(
        shape,
        5,
        channels=(4, 6),
        kernels=(4, 3),
        strides=(2, 1),
        hidden_sizes=(7,),
        layout=layout,
        init="torch",
    )
    params = network.init(KEY)
    image = (255 * random.uniform(KEY, (2, 3, *shape))).to(torch.uint8)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 4, 2),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 7 * 5, 7),
        nn.ReLU(),
        nn.Linear(7, 5),
    )
    convolutions, dense = params["convolutions"], params["head", "layers"]
    weights = {0: convolutions["0"], 2: convolutions["1"], 5: dense["0"], 7: dense["1"]}
    for i, layer in weights.items():
        module[i].load_state_dict(dict(layer.items()))
    nchw = image.flatten(0, 1).float() / 255
    nchw = nchw.permute(0, 3, 1, 2) if layout == "hwc" else nchw
    close(network.apply(params, image), module(nchw).reshape(2, 3, 5), 1e-6)
    assert network.apply(params, image[0, 0]).shape == (5,)


def test_only_bytes_are_scaled_and_only_when_asked() -> None:
    image = (255 * random.uniform(KEY, (2, 12, 12, 1))).to(torch.uint8)
    options: dict[str, Any] = {"channels": (2,), "kernels": (3,), "strides": (2,)}
    scaled = networks.cnn((12, 12, 1), 3, **options)
    raw = networks.cnn((12, 12, 1), 3, scale_bytes=False, **options)
    params = scaled.init(KEY)
    assert torch.equal(scaled.apply(params, image.float() / 255), scaled.apply(params, image))
    assert torch.equal(raw.apply(params, image.float()), raw.apply(params, image))
    assert torch.equal(raw.apply(params, image.float()), scaled.apply(params, image.float()))


def test_cnn_vmap_over_stacked_params_equals_the_loop() -> None:
    network = networks.cnn((12, 12, 2), 3, channels=(4,), kernels=(3,), strides=(2,))
    keys = random.split(KEY, 3)
    stacked = tree.to_dict(torch.vmap(network.init)(keys))
    image = random.uniform(KEY, (3, 5, 12, 12, 2))
    out = torch.vmap(network.apply)(stacked, image)
    for i in range(3):
        close(out[i], network.apply(tree.index(stacked, i), image[i]))


def test_cnn_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"image of 8 x 8 is too small for kernels \(8, 4, 3\)"):
        networks.cnn((8, 8, 3), 2)
    with pytest.raises(ConfigError, match="lengths 1, 3 and 3, expected the same"):
        networks.cnn((84, 84, 3), 2, channels=(32,))
    unknown: Any = "nhwc"
    with pytest.raises(ConfigError, match="layout is 'nhwc'; did you mean hwc"):
        networks.cnn((84, 84, 3), 2, layout=unknown)
    network = networks.cnn((12, 12, 2), 3, channels=(4,), kernels=(3,), strides=(2,))
    with pytest.raises(ShapeError, match=r"expected last axes \[12, 12, 2\]"):
        network.apply(network.init(KEY), torch.zeros(2, 12, 12))


# Structured observations.


def test_leaves_are_joined_in_sorted_key_order() -> None:
    observation = {
        "z": torch.arange(6.0).reshape(2, 3),
        "a": {"y": torch.tensor([[True], [False]]), "b": torch.tensor([[7, 8], [9, 10]])},
    }
    expected = torch.tensor([[7.0, 8.0, 1.0, 0.0, 1.0, 2.0], [9.0, 10.0, 0.0, 3.0, 4.0, 5.0]])
    assert torch.equal(networks.flatten_observation(observation), expected)
    as_tensordict = TensorDict(observation, batch_size=[2])
    assert torch.equal(networks.flatten_observation(as_tensordict), expected)
    network = networks.mlp((6, 4))
    features = networks.flatten_observation(observation)
    assert network.apply(network.init(KEY), features).shape == (2, 4)


def test_event_axes_may_differ_by_leaf() -> None:
    observation = {"count": torch.tensor([3, 4]), "image": torch.arange(8.0).reshape(2, 2, 2, 1)}
    flat = networks.flatten_observation(observation, {"count": 0, "image": 3}, dtype=torch.float64)
    expected = torch.tensor([[3.0, 0.0, 1.0, 2.0, 3.0], [4.0, 4.0, 5.0, 6.0, 7.0]])
    assert torch.equal(flat, expected.double())
    single = tree.map(lambda leaf: leaf[0], observation)
    alone = networks.flatten_observation(single, {"count": 0, "image": 3})
    assert torch.equal(alone, expected[0])
    assert torch.equal(networks.flatten_observation(torch.ones(2, 3)), torch.ones(2, 3))


def test_observations_that_do_not_fit_are_named() -> None:
    observation = {"a": torch.zeros(2, 3), "b": torch.zeros(4, 1)}
    with pytest.raises(ShapeError, match=r"observation.b has shape \[4, 1\], expected \[2\]"):
        networks.flatten_observation(observation)
    with pytest.raises(ShapeError, match=r"event_ndims says nothing of observation.b"):
        networks.flatten_observation(observation, {"a": 1})
    with pytest.raises(ShapeError, match="no leaves"):
        networks.flatten_observation({})


def test_initialisation_uses_no_global_generator() -> None:
    before = torch.get_rng_state()
    for init in INITS:
        networks.actor_critic(3, 2, init=init).init(KEY)
    networks.ensemble(networks.q_network(3, 2), 2).init(KEY)
    networks.cnn((84, 84, 1), 2, hidden_sizes=()).init(KEY)
    assert torch.equal(torch.get_rng_state(), before)
