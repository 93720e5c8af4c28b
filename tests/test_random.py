"""Laws of keys and draws; the streams themselves are held to jax in tests/oracles."""

from __future__ import annotations

import random as python_random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from purerl import random
from purerl.errors import ConfigError, ShapeError
from purerl.random import threefry

KEY = random.key(7)
LOGITS = torch.linspace(-1.0, 2.0, 15).reshape(3, 5)
WEIGHT = LOGITS[0].softmax(0)
F64 = torch.float64

Draw = Callable[[Tensor], Tensor]
DRAWS: dict[str, Draw] = {
    "split": lambda k: random.split(k, 5),
    "fold_in": lambda k: random.fold_in(k, 3),
    "fold_in_tensor": lambda k: random.fold_in(k, k[1]),
    "bits": lambda k: random.bits(k, (3, 5)),
    "bits_64": lambda k: random.bits(k, (7,), width=64),
    "uniform": lambda k: random.uniform(k, (33,)),
    "uniform_bounds": lambda k: random.uniform(k, (33,), minval=-0.3, maxval=LOGITS[2, 4]),
    "uniform_64": lambda k: random.uniform(k, (33,), dtype=F64, minval=-0.3, maxval=0.5),
    "normal": lambda k: random.normal(k, (1001,)),
    "normal_64": lambda k: random.normal(k, (33,), dtype=F64),
    "truncated_normal": lambda k: random.truncated_normal(k, -2.0, 2.0, (3, 11)),
    "exponential": lambda k: random.exponential(k, (1001,)),
    "gumbel": lambda k: random.gumbel(k, (1001,)),
    "orthogonal": lambda k: random.orthogonal(k, 3, (), 5),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (9,)),
    "randint": lambda k: random.randint(k, (9,), 0, 10),
    "randint_tensor": lambda k: random.randint(k, (9,), k[0] % 3 - 3, 10),
    "categorical": lambda k: random.categorical(k, LOGITS, axis=0, shape=(2, 5)),
    "permutation": lambda k: random.permutation(k, 2000),
    "permutation_rows": lambda k: random.permutation(k, LOGITS, axis=1),
    "permutation_independent": lambda k: random.permutation(k, LOGITS, independent=True),
    "choice": lambda k: random.choice(k, LOGITS, (2, 2)),
    "choice_once": lambda k: random.choice(k, 9, (4,), replace=False),
    "choice_weighted": lambda k: random.choice(k, 5, (4,), p=WEIGHT),
    "choice_weighted_once": lambda k: random.choice(k, 5, (4,), replace=False, p=WEIGHT),
}
every_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())


def all_draws(key: Tensor) -> dict[str, Tensor]:
    return {name: draw(key) for name, draw in DRAWS.items()}


# One result, however it is computed.


@pytest.mark.parametrize("size", [1, 2, 33, 255, 256, 257])
@pytest.mark.parametrize("words", [(0, 0), (2**32 - 1, 2**32 - 1), (2**31, 1), (7, 0x9E3779B9)])
def test_few_blocks_in_python_are_those_of_the_kernels(words: tuple[int, int], size: int) -> None:
    key = torch.tensor(words)
    counts = [2**32 - 1 - i for i in range(size)]
    count = torch.tensor(counts).to(torch.int32)
    expected = threefry.block(threefry.words(key.unsqueeze(-2)), (None, count))
    found = threefry.block_in_python(words, counts)
    for packed, kernel in zip(found, expected, strict=True):
        assert torch.equal(threefry.unpacked(packed, size), threefry.unsigned(kernel))
    mapped = torch.vmap(lambda k: random.bits(k, (size,)))(key.unsqueeze(0))[0]
    assert torch.equal(random.bits(key, (size,)), mapped)


@every_draw
def test_draws_under_vmap_are_the_stacked_draws_of_each_key(draw: Draw) -> None:
    keys = random.split(KEY, 6).reshape(2, 3, 2)
    stacked = torch.stack([torch.stack([draw(key) for key in row]) for row in keys])
    assert torch.equal(torch.vmap(torch.vmap(draw))(keys), stacked)
    assert torch.equal(torch.vmap(draw, in_dims=1)(keys[0].T), stacked[0])


def test_one_key_serves_a_batch_of_parameters() -> None:
    draws: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: random.uniform(KEY, (5,), minval=x[0], maxval=x[1]),
        lambda x: random.truncated_normal(KEY, x[0], x[1], (5,)),
        lambda x: random.bernoulli(KEY, x.sigmoid()),
        lambda x: random.randint(KEY, (5,), x[0].long(), 9),
        lambda x: random.categorical(KEY, x),
        lambda x: random.permutation(KEY, x),
        lambda x: random.choice(KEY, x, (2,)),
        lambda x: random.choice(KEY, 5, (7,), p=x.softmax(0)),
        lambda x: random.choice(KEY, 5, (2,), replace=False, p=x.softmax(0)),
    )
    for draw in draws:
        assert torch.equal(torch.vmap(draw)(LOGITS), torch.stack([draw(row) for row in LOGITS]))


@every_draw
def test_draws_are_pure(draw: Draw) -> None:
    key = KEY.clone()
    arguments = LOGITS.clone(), WEIGHT.clone()
    first = draw(key)
    state = torch.get_rng_state(), np.random.get_state()[1].copy(), python_random.getstate()
    assert torch.equal(draw(key), first)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.array_equal(np.random.get_state()[1], state[1])
    assert python_random.getstate() == state[2]
    assert torch.equal(key, KEY)
    assert torch.equal(LOGITS, arguments[0])
    assert torch.equal(WEIGHT, arguments[1])


def test_draws_do_not_depend_on_global_state() -> None:
    before = all_draws(KEY)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        default = torch.get_default_dtype()
        torch.set_default_dtype(F64)
        try:
            after = all_draws(KEY)
        finally:
            torch.set_default_dtype(default)
    for name, draw in before.items():
        assert torch.equal(draw, after[name]), name


def test_draws_are_made_on_the_device_of_the_key() -> None:
    key = KEY.to("meta")
    for name in ("split", "fold_in", "bits", "uniform", "uniform_64", "normal", "gumbel"):
        assert DRAWS[name](key).device.type == "meta", name
    for name in ("truncated_normal", "bernoulli", "randint", "permutation", "choice_once"):
        assert DRAWS[name](key).device.type == "meta", name
    assert random.key(0, device="meta").device.type == "meta"


def test_compiled_draws_are_equal() -> None:
    def draws(key: Tensor) -> dict[str, Tensor]:
        # fmt: off
        names = (
            "split", "bits_64", "uniform_bounds", "normal", "exponential", "bernoulli",
            "categorical", "choice_weighted",
        )
        # fmt: on
        return {name: DRAWS[name](key) for name in names}

    compiled = torch.compile(draws, backend="aot_eager", fullgraph=True)
    for name, draw in compiled(KEY).items():
        assert torch.equal(draw, DRAWS[name](KEY)), name


def test_compiled_draws_under_vmap_are_equal() -> None:
    def draws(key: Tensor) -> dict[str, Tensor]:
        # fmt: off
        names = (
            "fold_in_tensor", "truncated_normal", "gumbel", "randint_tensor", "permutation_rows",
        )
        # fmt: on
        return {name: DRAWS[name](key) for name in names}

    keys = random.split(KEY, 3)
    compiled = torch.compile(torch.vmap(draws), backend="aot_eager", fullgraph=True)
    for name, draw in compiled(keys).items():
        assert torch.equal(draw, torch.vmap(DRAWS[name])(keys)), name


def test_a_draw_compiled_to_machine_code_is_equal() -> None:
    # the default threshold repeats each round in the next ones, which takes ten times as long
    compiled = torch.compile(
        lambda key: random.normal(key, (33,)),
        fullgraph=True,
        options={"realize_opcount_threshold": 8},
    )
    assert torch.equal(compiled(KEY), random.normal(KEY, (33,)))


# Independence.


def test_an_element_depends_on_its_key_and_its_place_alone() -> None:
    draws: tuple[Callable[..., Tensor], ...] = (
        random.bits,
        random.uniform,
        random.normal,
        random.exponential,
        random.gumbel,
    )
    for draw in draws:
        long = draw(KEY, (1000,))
        assert torch.equal(draw(KEY, (7,)), long[:7])
        assert torch.equal(draw(KEY, (10, 2, 50)), long.reshape(10, 2, 50))
        assert torch.equal(draw(KEY, ()), long[0])
        assert draw(KEY, (0, 3)).shape == (0, 3)
    assert torch.equal(random.split(KEY, 3), random.split(KEY, 100)[:3])
    assert torch.equal(random.randint(KEY, (4,), 0, 9), random.randint(KEY, (99,), 0, 9)[:4])


def test_the_dtype_and_the_shape_of_a_draw_change_no_other_draw() -> None:
    def program(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        first, second = random.split(KEY).unbind(0)
        random.normal(first, shape, dtype=dtype)
        return random.uniform(second, (9,))

    expected = program((3,), torch.float32)
    assert torch.equal(program((1000, 2), torch.float32), expected)
    assert torch.equal(program((3,), F64), expected)


def test_a_draw_in_bulk_equals_the_draws_of_a_loop() -> None:
    num_steps, num_envs, size = 5, 3, 7
    bulk = torch.vmap(torch.vmap(lambda k: random.normal(k, (size,))))(
        torch.vmap(lambda k: random.split(k, num_envs))(random.split(KEY, num_steps))
    )
    for step, step_key in enumerate(random.split(KEY, num_steps)):
        for env, env_key in enumerate(random.split(step_key, num_envs)):
            assert torch.equal(bulk[step, env], random.normal(env_key, (size,)))


def test_children_are_distinct_from_each_other_and_the_parent() -> None:
    count = 100_000
    children = random.split(KEY, count)
    folded = torch.vmap(random.fold_in, in_dims=(None, 0))(KEY, torch.arange(count))
    # a fold takes the same counters through the same cipher
    assert torch.equal(children, folded)
    assert children.shape == (count, 2)
    assert bool(((children >= 0) & (children < 2**32)).all())
    family = torch.cat((KEY[None], children))
    assert len(family.unique(dim=0)) == count + 1
    # two words of 32 bits: each word alone has about n²/2³³ pairs of equals
    for word in children.unbind(1):
        assert abs(count - len(word.unique()) - count**2 / 2**33) < 10


def test_seeds_that_differ_in_32_bits_give_distinct_streams() -> None:
    seeds = [0, 1, 2, 2**31, 2**32 - 1]
    draws = torch.stack([random.bits(random.key(seed), (4,)) for seed in seeds])
    assert len(draws.unique()) == 20
    assert torch.equal(random.key(-1), random.key(2**32 - 1))
    assert torch.equal(random.key(2**32 + 5), random.key(5))


# Edges.


def test_bounds_without_an_inside_return_the_lower_bound() -> None:
    assert torch.equal(random.uniform(KEY, (9,), minval=2.0, maxval=2.0), torch.full((9,), 2.0))
    assert torch.equal(random.uniform(KEY, (9,), minval=2.0, maxval=-1.0), torch.full((9,), 2.0))
    for high in (5, 2, torch.tensor(5), torch.tensor([2])):
        assert torch.equal(random.randint(KEY, (9,), 5, high), torch.full((9,), 5))


def test_bounds_as_tensors_give_the_draws_of_numbers() -> None:
    zero, ten = torch.tensor(0, dtype=torch.int16), torch.tensor([10, 10])
    assert torch.equal(random.randint(KEY, (3, 2), zero, ten), random.randint(KEY, (3, 2), 0, 10))
    low, high = torch.tensor(-0.3), torch.tensor(0.7, dtype=F64)
    assert torch.equal(
        random.uniform(KEY, (3,), minval=low, maxval=high),
        random.uniform(KEY, (3,), minval=-0.3, maxval=0.7),
    )
    assert torch.equal(
        random.bernoulli(KEY, torch.full((9,), 0.3)), random.bernoulli(KEY, 0.3, (9,))
    )


def test_integers_cover_the_whole_range_of_their_dtype() -> None:
    for dtype in (torch.int8, torch.uint8):
        limits = torch.iinfo(dtype)
        draw = random.randint(KEY, (5000,), limits.min, limits.max + 1, dtype=dtype)
        assert draw.dtype == dtype
        assert len(draw.unique()) == 256
    draw = random.randint(KEY, (5000,), -(2**31), 2**31)
    assert int(draw.min()) < -(2**31) + 2**22
    assert int(draw.max()) > 2**31 - 2**22


def test_draws_carry_no_gradient() -> None:
    bound = torch.tensor(0.5, requires_grad=True)
    logits = LOGITS.clone().requires_grad_()
    draws = (
        random.uniform(KEY, (3,), minval=bound, maxval=1.0),
        random.truncated_normal(KEY, bound, 2.0, (3,)),
        random.bernoulli(KEY, bound),
        random.categorical(KEY, logits),
        random.choice(KEY, 5, (2,), p=logits[0].softmax(0)),
        random.choice(KEY, 5, (2,), p=logits[0].softmax(0), replace=False),
    )
    assert not any(draw.requires_grad for draw in draws)


def test_gradients_pass_to_what_is_permuted_or_chosen() -> None:
    x = torch.arange(4.0, requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    (gradient,) = torch.autograd.grad((weight * random.permutation(KEY, x)).sum(), x)
    assert torch.equal(gradient[random.permutation(KEY, 4)], weight)

    def loss(mean: Tensor, key: Tensor) -> Tensor:
        return ((mean + random.normal(key, (3,))) ** 2).sum()

    keys = random.split(KEY, 4)
    gradients = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(torch.tensor(1.0), keys)
    for key, found in zip(keys, gradients, strict=True):
        torch.testing.assert_close(found, 2.0 * (1.0 + random.normal(key, (3,))).sum())


# Errors.


@every_draw
def test_a_wrong_key_is_named(draw: Draw) -> None:
    for key, message in (
        (torch.zeros(3, dtype=torch.int64), r"key has shape \[3\], expected \[2\]"),
        (random.split(KEY), r"key has shape \[2, 2\], expected \[2\]"),
        (torch.zeros(2), "key has dtype torch.float32, expected torch.int64"),
        (torch.zeros(2, dtype=torch.int32), "key has dtype torch.int32, expected torch.int64"),
    ):
        with pytest.raises(ShapeError, match=message):
            draw(key)
        if key.ndim == 1:
            with pytest.raises(ShapeError, match=message):
                torch.vmap(draw)(key.expand(4, -1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random.bits(KEY, (2, -1)), r"shape is \(2, -1\)"),
        (lambda: random.normal(KEY, 3), "shape is 3"),
        (lambda: random.split(KEY, -1), r"num is \(-1,\)"),
        (lambda: random.fold_in(KEY, torch.zeros(3, dtype=torch.int64)), r"data has shape \[3\]"),
        (lambda: random.fold_in(KEY, torch.tensor(0.5)), "data has dtype torch.float32"),
        (lambda: random.uniform(KEY, (3,), minval=torch.zeros(2)), r"minval has shape \[2\]"),
        (lambda: random.truncated_normal(KEY, torch.zeros(2), 1.0, (3,)), "lower has shape"),
        (lambda: random.bernoulli(KEY, torch.zeros(3), (2,)), r"p has shape \[3\]"),
        (lambda: random.bernoulli(KEY, torch.tensor(1)), "p has dtype torch.int64"),
        (lambda: random.randint(KEY, (3,), torch.zeros(3), 5), "minval has dtype torch.float32"),
        (lambda: random.categorical(KEY, LOGITS, shape=(4,)), r"logits has shape \[3\]"),
        (lambda: random.categorical(KEY, LOGITS, axis=2), "expected an axis 2"),
        (lambda: random.categorical(KEY, LOGITS.long()), "logits has dtype torch.int64"),
        (lambda: random.permutation(KEY, torch.tensor(3)), "expected an axis 0"),
        (lambda: random.choice(KEY, 3, (4,), replace=False), "at most 3 draws from 3 rows"),
        (lambda: random.choice(KEY, 0, (1,)), "at most 0 draws from 0 rows"),
        (lambda: random.choice(KEY, 4, (1,), p=WEIGHT), r"p has shape \[5\], expected \[4\]"),
    ],
)
def test_a_wrong_shape_or_dtype_of_a_tensor_is_named(
    call: Callable[[], Tensor], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random.key(2**63), "seed is 9223372036854775808"),
        (lambda: random.key(0.5), "seed is 0.5, expected an integer"),
        (lambda: random.fold_in(KEY, -1), "data is -1"),
        (lambda: random.bits(KEY, width=12), "width is 12"),
        (lambda: random.uniform(KEY, dtype=torch.bfloat16), "dtype is torch.bfloat16"),
        (lambda: random.normal(KEY, dtype=torch.int64), "dtype is torch.int64"),
        (lambda: random.truncated_normal(KEY, 0.0, 1.0, dtype=torch.float16), "dtype is"),
        (lambda: random.randint(KEY, (3,), 0, 5, dtype=torch.float32), "dtype is torch.float32"),
        (lambda: random.randint(KEY, (3,), 0, 2**31 + 1), "maxval is 2147483649"),
        (lambda: random.randint(KEY, (3,), -129, 5, dtype=torch.int8), "minval is -129"),
        (lambda: random.permutation(KEY, -1), "x is -1"),
    ],
)
def test_a_wrong_number_or_option_is_named(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
