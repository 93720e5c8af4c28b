"""Initial weights against jax.nn.initializers and jax.random, run live."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from purerl import networks, random


@pytest.mark.parametrize("init", ["lecun_normal", "lecun_uniform"])
def test_lecun_weights_are_those_of_jax(init: networks.Initialization) -> None:
    import jax

    layers = networks.mlp((7, 5, 3), init=init).init(random.key(2))["layers"]
    make: Any = getattr(jax.nn.initializers, init)(in_axis=-1, out_axis=-2)
    for i, key in enumerate(jax.random.split(jax.random.key(2), 2)):
        weight = layers[str(i), "weight"]
        wanted = np.array(make(key, tuple(weight.shape)))
        torch.testing.assert_close(weight, torch.from_numpy(wanted), rtol=1e-6, atol=1e-7)


def test_orthogonal_weights_are_those_of_jax() -> None:
    import jax

    layers = networks.mlp((7, 5, 9), gain=2.0, output_gain=3.0).init(random.key(2))["layers"]
    for i, key in enumerate(jax.random.split(jax.random.key(2), 2)):
        weight = layers[str(i), "weight"]
        rows, columns = weight.shape
        wanted = (2.0, 3.0)[i] * np.array(jax.random.orthogonal(key, rows, m=columns))
        torch.testing.assert_close(weight, torch.from_numpy(wanted), rtol=1e-5, atol=3e-6)
