"""Modules as networks: values, initialisation by key, buffers, no global generator."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from purerl import networks, random, tree
from purerl.errors import ConfigError

KEY = random.key(3)


def real(seed: int, *shape: int) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=torch.float32)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-5) -> None:
    atol = rtol * float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


class TwoHeads(nn.Module):
    """Mean and value, a log-scale that is a constant, and a table that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 8)
        self.mean, self.value = nn.Linear(8, 2), nn.Linear(8, 1)
        self.log_scale = nn.Parameter(torch.full((2,), -0.5))
        self.table: Tensor
        self.register_buffer("table", torch.arange(2.0))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(observation).tanh()
        return self.mean(hidden) + self.log_scale + self.table, self.value(hidden).squeeze(-1)


def test_a_module_equals_itself_with_the_same_tensors() -> None:
    network = networks.from_module(TwoHeads)
    params = network.init(KEY)
    module = TwoHeads()
    module.load_state_dict(
        {**dict(params["parameters"].items()), **dict(params["buffers"].items())}
    )
    x = real(1, 5, 3)
    for got, wanted in zip(network.apply(params, x), module(x), strict=True):
        assert torch.equal(got, wanted)
    for got, wanted in zip(network.apply(tree.to_dict(params), x), module(x), strict=True):
        assert torch.equal(got, wanted)


def test_random_parameters_are_drawn_by_key_and_constants_are_kept() -> None:
    network = networks.from_module(TwoHeads)
    params = network.init(KEY)
    assert tree.equal(params, network.init(KEY))
    other = network.init(random.key(4))
    for name in ("body.weight", "body.bias", "mean.weight", "mean.bias", "value.bias"):
        assert not torch.equal(params["parameters"][name], other["parameters"][name])
    assert torch.equal(params["parameters"]["log_scale"], torch.full((2,), -0.5))
    assert torch.equal(params["buffers"]["table"], torch.arange(2.0))
    body = params["parameters"]["body.weight"]
    bound = 1 / math.sqrt(3)
    assert 0.7 * bound < float(body.abs().max()) <= bound
    bias = params["parameters"]["value.bias"]
    assert float(bias.abs()) <= 1 / math.sqrt(8)


def test_norms_start_at_one_and_zero_and_buffers_at_the_constants_of_the_module() -> None:
    params = networks.from_module(with_batch_norm).init(KEY)
    assert torch.equal(params["parameters"]["1.weight"], torch.ones(8))
    assert torch.equal(params["parameters"]["1.bias"], torch.zeros(8))
    assert torch.equal(params["buffers"]["1.running_mean"], torch.zeros(8))
    assert torch.equal(params["buffers"]["1.running_var"], torch.ones(8))
    assert params["buffers"]["1.num_batches_tracked"].item() == 0


def test_apply_evaluates_and_changes_nothing_while_apply_with_buffers_returns_new_buffers() -> None:
    network = networks.from_module(with_batch_norm)
    params, x = network.init(KEY), 2 + 3 * real(1, 64, 3)
    before = tree.clone(params)
    module = with_batch_norm()
    module.load_state_dict(
        {**dict(params["parameters"].items()), **dict(params["buffers"].items())}
    )

    module.eval()
    assert torch.equal(network.apply(params, x), module(x))
    assert tree.equal(params, before)

    module.train()
    output, updated = networks.apply_with_buffers(network, params, x)
    close(output, module(x), 1e-6)
    assert tree.equal(params, before)
    assert tree.equal(updated["parameters"], params["parameters"])
    for name, buffer in module.named_buffers():
        close(updated["buffers"][name].double(), buffer.double(), 1e-6)
    assert updated["buffers"]["1.num_batches_tracked"].item() == 1
    assert not torch.equal(network.apply(updated, x), network.apply(params, x))


def test_gradients_reach_the_parameters_and_vmap_over_stacked_params_equals_the_loop() -> None:
    network = networks.from_module(with_batch_norm)
    keys = random.split(KEY, 3)
    stacked = tree.to_dict(torch.vmap(network.init)(keys))
    x = real(1, 3, 16, 3)
    out = torch.vmap(network.apply)(stacked, x)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], row: Tensor) -> Tensor:
        params = {"parameters": parameters, "buffers": buffers}
        return networks.apply_with_buffers(network, params, row)[0].square().mean()

    gradient = torch.vmap(torch.func.grad(loss))(stacked["parameters"], stacked["buffers"], x)
    for i in range(3):
        single = tree.to_dict(network.init(keys[i]))
        close(out[i], network.apply(single, x[i]))
        wanted = torch.func.grad(loss)(single["parameters"], single["buffers"], x[i])
        for name, leaf in wanted.items():
            scale = float(leaf.abs().max())
            # a bias before a batch norm has gradient 0: only rounding remains of it
            atol = 1e-4 * scale + 1e-7
            torch.testing.assert_close(gradient[name][i], leaf, rtol=1e-4, atol=atol)


def test_modules_form_ensembles_and_a_module_without_buffers_has_none() -> None:
    network = networks.from_module(lambda: nn.Linear(3, 2))
    assert tree.leaves(network.init(KEY)["buffers"]) == []
    critics = networks.ensemble(network, 3)
    params, x = critics.init(KEY), real(1, 5, 3)
    values = critics.apply(params, x)
    assert values.shape == (3, 5, 2)
    for j, key in enumerate(random.split(KEY, 3).unbind(0)):
        close(values[j], network.apply(network.init(key), x))


def test_tied_weights_stay_tied() -> None:
    def tied() -> nn.Module:
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second.weight = first.weight
        return nn.Sequential(first, second)

    network = networks.from_module(tied)
    params, x = network.init(KEY), real(1, 5, 4)
    weight = params["parameters"]["0.weight"]
    assert set(params["parameters"].keys()) == {"0.weight", "0.bias", "1.bias"}
    first, second = params["parameters"]["0.bias"], params["parameters"]["1.bias"]
    expected = (x @ weight.T + first) @ weight.T + second
    close(network.apply(params, x), expected)


def test_an_initializer_of_your_own_sees_key_name_and_constructed_value() -> None:
    seen = []

    def orthogonal(key: Tensor, name: str, constructed: Tensor) -> Tensor:
        seen.append(name)
        if constructed.ndim < 2:
            return torch.zeros_like(constructed)
        return random.orthogonal(key, constructed.shape[0], (), constructed.shape[1])

    network = networks.from_module(with_batch_norm, initialize=orthogonal)
    params = network.init(KEY)
    assert seen == ["0.weight", "0.bias", "3.weight", "3.bias"]
    weight = params["parameters"]["3.weight"]
    torch.testing.assert_close(weight @ weight.T, torch.eye(2), rtol=0.0, atol=1e-6)
    assert torch.equal(params["parameters"]["3.bias"], torch.zeros(2))
    assert torch.equal(params["parameters"]["1.weight"], torch.ones(8))


def test_weights_that_the_factory_does_not_randomise_are_kept() -> None:
    pretrained = nn.Linear(3, 2)
    network = networks.from_module(lambda: copy.deepcopy(pretrained))
    x = real(1, 4, 3)
    close(network.apply(network.init(KEY), x), pretrained(x).detach(), 1e-6)


def test_no_global_generator_is_changed_or_matters() -> None:
    before = torch.get_rng_state()
    network = networks.from_module(with_batch_norm)
    params = network.init(KEY)
    network.apply(params, real(1, 5, 3))
    networks.apply_with_buffers(network, params, real(1, 5, 3))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12345)
    again = networks.from_module(with_batch_norm).init(KEY)
    torch.set_rng_state(before)
    assert tree.equal(again, params)


def test_what_would_need_the_global_generator_is_refused() -> None:
    class RandomFeatures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("omega", torch.randn(3, 3))

    with pytest.raises(ConfigError, match="buffer 'omega' is drawn from the global generator"):
        networks.from_module(RandomFeatures)
    with pytest.raises(ConfigError, match=r"module '1' is a Dropout with p = 0.1"):
        networks.from_module(lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    with pytest.raises(ConfigError, match=r"is a MultiheadAttention with p = 0.2"):
        networks.from_module(lambda: nn.MultiheadAttention(4, 2, dropout=0.2))
    networks.from_module(lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)))
    module = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="returned the same module twice"):
        networks.from_module(lambda: module)
    plain = networks.mlp((2, 2))
    with pytest.raises(ConfigError, match="not made by from_module"):
        networks.apply_with_buffers(plain, plain.init(KEY), torch.zeros(1, 2))


def test_a_sweep_of_modules_and_ensembles_compiles_into_one_graph() -> None:
    module = networks.from_module(with_batch_norm)
    critics = networks.ensemble(networks.q_network(3, 2, hidden_sizes=(8,)), 2)
    keys = random.split(KEY, 3)
    inits = {"m": module.init, "q": critics.init}
    params = {name: tree.to_dict(torch.vmap(init)(keys)) for name, init in inits.items()}

    def everything(p: dict[str, dict[str, Tensor]], x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return module.apply(p["m"], x), critics.apply(p["q"], x, a)

    swept = torch.vmap(everything)
    compiled = torch.compile(swept, backend="aot_eager", fullgraph=True)
    args = (params, real(1, 3, 5, 3), real(2, 3, 5, 2))
    for got, wanted in zip(compiled(*args), swept(*args), strict=True):
        close(got, wanted)
