"""Keys and draws against jax.random, run live in its default settings and in its 64-bit mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.extend.random import threefry_2x32

from purerl import random
from purerl.errors import ConfigError
from purerl.random import special, threefry

# fmt: off
SEEDS = (
    0, 1, 2, 42, 12345, -1, -2, -98765, -(2**31), -(2**31) - 1, -(2**32) - 3, -(2**63),
    2**31 - 1, 2**31, 2**31 + 5, 2**32 - 1, 2**32, 2**32 + 7, 2**40 + 3, 2**63 - 1,
)
# fmt: on
SHAPES = ((), (1,), (7,), (3, 5), (1000,))
FEW_SHAPES = ((), (7,), (3, 5))
F64, F64_JAX = torch.float64, jnp.float64
INF = math.inf

Draws = Callable[[Any], list[Any]]
Pairs = list[tuple[np.ndarray, np.ndarray]]


def both(ours: Draws, theirs: Draws, *, compiled: bool = True) -> Pairs:
    """Return the draws of all seeds, stacked; theirs compiled, which is faster to run in all."""
    draws = [ours(random.key(seed)) for seed in SEEDS]
    theirs = jax.jit(theirs) if compiled else theirs
    # by its words, as 64-bit mode would keep the upper half of a seed
    words = [jnp.asarray(random.key(seed).numpy().astype(np.uint32)) for seed in SEEDS]
    others = [theirs(jax.random.wrap_key_data(word)) for word in words]
    pairs = [
        (torch.stack(mine).numpy(), np.stack(other))
        for mine, other in zip(zip(*draws, strict=True), zip(*others, strict=True), strict=True)
    ]
    for mine, other in pairs:
        assert mine.shape == other.shape
        # integers are int64 here and 32 bits wide there
        assert mine.dtype == other.dtype or (mine.dtype == np.int64 and other.dtype.kind in "iu")
    return pairs


def equal(ours: Draws, theirs: Draws) -> None:
    for drawn, wanted in both(ours, theirs):
        np.testing.assert_array_equal(drawn, wanted.astype(drawn.dtype))


def close(ours: Draws, theirs: Draws, tolerance: float) -> None:
    for drawn, wanted in both(ours, theirs):
        np.testing.assert_allclose(drawn, wanted, rtol=tolerance, atol=tolerance)


def units(drawn: np.ndarray, wanted: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Return the distance in units in the last place, of the floor for numbers below it."""
    magnitude = np.maximum(np.abs(wanted), wanted.dtype.type(floor))
    return np.abs(drawn.astype(np.float64) - wanted) / np.spacing(magnitude)


def key_data(keys: Any) -> Any:
    return jax.random.key_data(keys)


# Keys and bits.


def test_keys_are_equal_for_any_seed_of_64_bits() -> None:
    for seed in SEEDS:
        np.testing.assert_array_equal(
            random.key(seed).numpy(), np.asarray(key_data(jax.random.key(seed)))
        )
    for seed in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            jax.random.key(seed)
        with pytest.raises(ConfigError):
            random.key(seed)


def test_children_and_folded_keys_are_equal() -> None:
    numbers, data = (0, 1, 2, 3, 100), (0, 1, 77, 2**31, 2**32 - 1)
    equal(
        lambda k: [random.split(k, num) for num in numbers],
        lambda k: [key_data(jax.random.split(k, num)) for num in numbers],
    )
    equal(
        lambda k: [random.fold_in(k, number) for number in data],
        lambda k: [key_data(jax.random.fold_in(k, number)) for number in data],
    )
    # of arrays both take the value modulo 2**32
    signed = (-1, -(2**31), 2**31 - 1)
    equal(
        lambda k: [random.fold_in(k, torch.tensor(number)) for number in signed],
        lambda k: [key_data(jax.random.fold_in(k, jnp.int32(number))) for number in signed],
    )


@pytest.mark.parametrize("shape", FEW_SHAPES)
def test_bits_are_equal_in_every_width(shape: tuple[int, ...]) -> None:
    widths = (8, 16, 32)
    equal(
        lambda k: [random.bits(k, shape, width=width) for width in widths],
        lambda k: [jax.random.bits(k, shape, f"uint{width}") for width in widths],
    )


def test_blocks_are_equal_for_counters_beyond_32_bits() -> None:
    key, high, low = random.bits(random.key(1), (3, 500)).unbind(0)
    first, second, count_high, count_low = (
        word.to(torch.int32) for word in (key[0], key[1], high, low)
    )
    block = threefry.block((first, second), (count_high, count_low))
    count = jnp.asarray(torch.cat((high, low)).numpy().astype(np.uint32))
    pair = jnp.asarray(key[:2].numpy().astype(np.uint32))
    np.testing.assert_array_equal(
        threefry.unsigned(torch.cat(block)).numpy(), np.asarray(threefry_2x32(pair, count))
    )


# Floating numbers.


@pytest.mark.parametrize("shape", SHAPES)
def test_uniform_numbers_are_equal_for_any_bounds(shape: tuple[int, ...]) -> None:
    equal(lambda k: [random.uniform(k, shape)], lambda k: [jax.random.uniform(k, shape)])
    # the last two have no inside, and a width that swallows the lower bound
    bounds = ((-1.0, 1.0), (0.1, 0.7), (-3.0, 7.0), (5.0, 2.0), (-1e-8, 1e6))
    equal(
        lambda k: [random.uniform(k, shape, minval=low, maxval=high) for low, high in bounds],
        lambda k: [jax.random.uniform(k, shape, minval=low, maxval=high) for low, high in bounds],
    )


def test_uniform_numbers_are_equal_for_bounds_by_element() -> None:
    low, high = np.float32([-3.0, 0.1, 2.0]), np.float32([[4.0], [0.2]])
    ours = {"minval": torch.from_numpy(low), "maxval": torch.from_numpy(high)}
    equal(
        lambda k: [random.uniform(k, (2, 3), **ours)],
        lambda k: [jax.random.uniform(k, (2, 3), minval=low, maxval=high)],
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_normal_exponential_and_gumbel_numbers_are_within_two_units(
    shape: tuple[int, ...],
) -> None:
    normal, exponential, gumbel = both(
        lambda k: [draw(k, shape) for draw in (random.normal, random.exponential, random.gumbel)],
        lambda k: [
            draw(k, shape)
            for draw in (jax.random.normal, jax.random.exponential, jax.random.gumbel)
        ],
    )
    assert units(*normal).max() <= 2
    assert units(*exponential).max() <= 2
    # near 0 a Gumbel number is the difference of rounded numbers near 1
    assert units(*gumbel, floor=1.0).max() <= 2


def test_normal_numbers_are_within_two_units_for_every_uniform_number() -> None:
    unit = np.arange(2**23, dtype=np.float32) * np.float32(2.0**-23)
    symmetric = unit * np.float32(2.0) + np.nextafter(np.float32(-1.0), np.float32(0.0))
    wanted = jax.jit(lambda u: np.float32(math.sqrt(2.0)) * jax.lax.erf_inv(u))(symmetric)
    drawn = special.normal_quantile(torch.from_numpy(symmetric)).numpy()
    distance = units(drawn, np.asarray(wanted))
    # the reference's own roundings add up to a third unit in about 20 of 8 million
    assert distance.max() <= 3
    assert (distance > 2).mean() < 1e-5


def test_truncated_normal_numbers_are_within_two_units() -> None:
    bounds = ((-2.0, 2.0), (-INF, INF), (0.3, 1.1), (-1.0, INF), (2.5, 4.0), (-6.0, -5.6))
    for shape in ((7,), (1000,)):
        pairs = both(
            lambda k, shape=shape: [
                random.truncated_normal(k, low, high, shape) for low, high in bounds
            ],
            lambda k, shape=shape: [
                jax.random.truncated_normal(k, low, high, shape) for low, high in bounds
            ],
            # a compiler knows constant bounds, and evaluates erf of them in another way
            compiled=False,
        )
        for pair in pairs:
            assert units(*pair).max() <= 2


def test_truncated_normal_numbers_take_their_shape_from_the_bounds() -> None:
    low, high = np.float32([-3.0, 0.1, 2.0]), np.float32([[4.0], [2.5]])
    (pair,) = both(
        lambda k: [random.truncated_normal(k, torch.from_numpy(low), torch.from_numpy(high))],
        lambda k: [jax.random.truncated_normal(k, low, high)],
        compiled=False,
    )
    assert units(*pair).max() <= 2


def test_orthogonal_matrices_agree() -> None:
    for n, m, shape in ((3, 3, ()), (2, 5, (3,)), (64, 8, ())):
        close(
            lambda k, n=n, m=m, shape=shape: [random.orthogonal(k, n, shape, m)],
            lambda k, n=n, m=m, shape=shape: [jax.random.orthogonal(k, n, shape, m=m)],
            1e-6,
        )


# float64, in jax's 64-bit mode.


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shape", FEW_SHAPES)
def test_bits_and_uniform_numbers_of_64_bits_are_equal(shape: tuple[int, ...]) -> None:
    bounds = ((0.0, 1.0), (-1.0, 1.0), (0.1, 0.7), (-0.3, 0.5), (5.0, 2.0))
    equal(
        lambda k: [random.bits(k, shape, width=64)],
        lambda k: [jax.random.bits(k, shape, "uint64").view("int64")],
    )
    equal(
        lambda k: [random.uniform(k, shape, dtype=F64, minval=a, maxval=b) for a, b in bounds],
        lambda k: [jax.random.uniform(k, shape, F64_JAX, minval=a, maxval=b) for a, b in bounds],
    )


@pytest.mark.usefixtures("x64")
def test_other_numbers_of_64_bits_agree() -> None:
    # the reference's log1p errs by up to 100 units
    shape, names = (3, 50), ("normal", "exponential", "gumbel")
    close(
        lambda k: [
            random.truncated_normal(k, -2.0, 0.5, shape, dtype=F64),
            *(getattr(random, name)(k, shape, dtype=F64) for name in names),
        ],
        lambda k: [
            jax.random.truncated_normal(k, -2.0, 0.5, shape, F64_JAX),
            *(getattr(jax.random, name)(k, shape, F64_JAX) for name in names),
        ],
        1e-13,
    )
    close(
        lambda k: [random.orthogonal(k, 4, (2,), 6, dtype=F64)],
        lambda k: [jax.random.orthogonal(k, 4, (2,), F64_JAX, 6)],
        1e-12,
    )
    logits = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
    equal(
        lambda k: [random.categorical(k, torch.from_numpy(logits))],
        lambda k: [jax.random.categorical(k, logits)],
    )


# Truth values, integers and orders.


@pytest.mark.parametrize("shape", SHAPES)
def test_integers_are_equal_for_any_bounds(shape: tuple[int, ...]) -> None:
    # fmt: off
    bounds = (
        (0, 2), (0, 10), (3, 1000), (-5, 100_000), (0, 2**16), (0, 2**16 + 1), (5, 5), (7, 3),
        (-(2**31), 2**31 - 1), (2**31 - 3, 2**31 - 1),
    )
    # fmt: on
    equal(
        lambda k: [random.randint(k, shape, low, high) for low, high in bounds],
        lambda k: [jax.random.randint(k, shape, low, high) for low, high in bounds],
    )


def test_integers_are_equal_for_bounds_by_element_and_every_dtype() -> None:
    low, high = np.int32([-300, 0, 5]), np.int32([[400], [70_000]])
    ours = torch.from_numpy(low), torch.from_numpy(high)
    dtypes = {"int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8}
    equal(
        lambda k: [random.randint(k, (2, 3), *ours, dtype=dtype) for dtype in dtypes.values()],
        lambda k: [jax.random.randint(k, (2, 3), low, high, name) for name in dtypes],
    )


@pytest.mark.usefixtures("x64")
def test_integers_reach_the_end_of_the_range() -> None:
    # an end of 2**31 is beyond int32, so jax takes it in 64-bit mode only
    starts = (0, -(2**31), 2**31 - 2)
    equal(
        lambda k: [random.randint(k, (50,), low, 2**31, dtype=torch.int32) for low in starts],
        lambda k: [jax.random.randint(k, (50,), low, 2**31, "int32") for low in starts],
    )


@pytest.mark.parametrize("shape", FEW_SHAPES)
def test_truth_values_are_equal(shape: tuple[int, ...]) -> None:
    probabilities = (0.0, 0.1, 0.5, 0.999, 1.0)
    by_element = np.linspace(0.0, 1.0, 5, dtype=np.float32)
    equal(
        lambda k: [
            random.bernoulli(k, torch.from_numpy(by_element)),
            *(random.bernoulli(k, p, shape) for p in probabilities),
        ],
        lambda k: [
            jax.random.bernoulli(k, by_element),
            *(jax.random.bernoulli(k, p, shape) for p in probabilities),
        ],
    )


@pytest.mark.parametrize("shape", FEW_SHAPES)
def test_classes_are_equal_along_any_axis(shape: tuple[int, ...]) -> None:
    logits = np.array(jax.random.normal(jax.random.key(3), (*shape, 5)))
    logits[..., 1] = -INF
    axes = range(-1, len(shape))
    equal(
        lambda k: [random.categorical(k, torch.from_numpy(logits), axis=axis) for axis in axes],
        lambda k: [jax.random.categorical(k, logits, axis) for axis in axes],
    )


def test_classes_are_equal_for_wider_shapes() -> None:
    logits = np.array(jax.random.normal(jax.random.key(4), (4, 1, 3)))
    wider = ((-1, (4, 6)), (-1, (2, 4, 6)), (0, (5, 1, 3)), (1, (7, 4, 3)))
    equal(
        lambda k: [
            random.categorical(k, torch.from_numpy(logits), axis=axis, shape=shape)
            for axis, shape in wider
        ],
        lambda k: [jax.random.categorical(k, logits, axis, shape) for axis, shape in wider],
    )


def test_permutations_are_equal() -> None:
    sizes = (0, 1, 2, 7, 1000, 1625, 1626)
    equal(
        lambda k: [random.permutation(k, size) for size in sizes],
        lambda k: [jax.random.permutation(k, size) for size in sizes],
    )


@pytest.mark.parametrize("shape", [(9,), (3, 5), (50, 40)])
def test_permutations_are_equal_along_any_axis(shape: tuple[int, ...]) -> None:
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    cases = [(axis, independent) for axis in (0, -1) for independent in (False, True)]
    equal(
        lambda k: [
            random.permutation(k, torch.from_numpy(x), axis=axis, independent=independent)
            for axis, independent in cases
        ],
        lambda k: [jax.random.permutation(k, x, *case) for case in cases],
    )


def test_choices_are_equal() -> None:
    rows = np.arange(18, dtype=np.float32).reshape(9, 2)
    weight = np.float32([0.1, 0.0, 0.3, 0.2, 0.05, 0.1, 0.15, 0.02, 0.08])
    shapes, replaces = ((), (2, 4)), (True, False)
    equal(
        lambda k: [
            random.choice(k, a, shape, replace=replace, p=p)
            for a in (9, torch.from_numpy(rows))
            for p in (None, torch.from_numpy(weight))
            for shape in shapes
            for replace in replaces
        ],
        lambda k: [
            jax.random.choice(k, a, shape, replace, p)
            for a in (9, rows)
            for p in (None, weight)
            for shape in shapes
            for replace in replaces
        ],
    )


def test_draws_of_one_key_are_equal_without_vmap() -> None:
    for seed in (3, -(2**31)):
        ours, theirs = (
            (
                library.uniform(key, (5,)),
                library.randint(key, (), 0, 6),
                library.permutation(key, 11),
                library.bernoulli(key),
            )
            for library, key in ((random, random.key(seed)), (jax.random, jax.random.key(seed)))
        )
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine.numpy(), np.asarray(other))
