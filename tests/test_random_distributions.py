"""Draws have the distributions that they name, in bands of five deviations around them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from purerl import random

KEY = random.key(7)
WEIGHT = torch.linspace(-1.0, -0.4, 5).softmax(0)
F64 = torch.float64


def near(values: Tensor, expected: float) -> None:
    values = values.double()
    band = 5.0 * float(values.std()) / math.sqrt(values.numel())
    assert abs(float(values.mean()) - expected) <= band


def uniform_over(values: Tensor, num_classes: int) -> None:
    """Hold Pearson's statistic of classes 0 … n − 1 to five deviations around its mean."""
    counts = torch.bincount(values.flatten(), minlength=num_classes).double()
    assert len(counts) == num_classes
    expected = values.numel() / num_classes
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = num_classes - 1
    assert abs(statistic - freedom) < 5.0 * math.sqrt(2.0 * freedom)


def test_floating_numbers_have_their_moments() -> None:
    shape = (100_000,)
    uniform = random.uniform(KEY, shape, minval=-1.0, maxval=3.0)
    near(uniform, 1.0)
    near((uniform - 1.0) ** 2, 16.0 / 12.0)
    uniform_over((random.uniform(KEY, shape) * 64).long(), 64)
    for dtype in (torch.float32, F64):
        normal = random.normal(KEY, shape, dtype=dtype)
        assert normal.dtype == dtype
        for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
            near(normal**power, moment)
        quantile = torch.special.ndtr(normal.double())
        uniform_over((quantile * 64).long(), 64)
    near(random.exponential(KEY, shape), 1.0)
    near(random.exponential(KEY, shape) ** 2, 2.0)
    gumbel = random.gumbel(KEY, shape)
    near(gumbel, 0.5772156649015329)
    near((gumbel - gumbel.mean()) ** 2, math.pi**2 / 6.0)


def test_truncated_normal_numbers_have_their_moments_and_stay_inside() -> None:
    draw = random.truncated_normal(KEY, -2.0, 2.0, (100_000,))
    near(draw, 0.0)
    near(draw**2, 0.87962566103423978**2)
    assert bool((draw.abs() < 2.0).all())
    # so narrow that most draws would round to a bound
    narrow = random.truncated_normal(KEY, 1.0, 1.0 + 5e-7, (1000,))
    assert bool(((narrow > 1.0) & (narrow < 1.0 + 5e-7)).all())
    unbounded = random.truncated_normal(KEY, -math.inf, math.inf, (100_000,))
    near(unbounded**2, 1.0)
    assert bool(unbounded.isfinite().all())


def test_integers_truth_values_and_classes_have_their_frequencies() -> None:
    shape = (100_000,)
    uniform_over(random.randint(KEY, shape, -3, 94) + 3, 97)
    uniform_over(random.randint(KEY, shape, 0, 2**32 - 2**31) >> 24, 128)
    uniform_over(random.bits(KEY, shape) >> 24, 256)
    for p in (0.001, 0.3):
        near(random.bernoulli(KEY, p, shape), p)
    logits = torch.tensor([0.0, 1.0, -math.inf, 2.0])
    classes = random.categorical(KEY, logits, shape=shape)
    chosen = random.choice(KEY, 4, shape, p=3.0 * logits.softmax(0))
    for index, p in enumerate(logits.softmax(0).tolist()):
        for drawn in (classes, chosen):
            near(drawn == index, p)


def test_orders_are_uniform_and_complete() -> None:
    keys = random.split(KEY, 24_000)
    orders = torch.vmap(lambda k: random.permutation(k, 4))(keys)
    assert torch.equal(orders.sort(1).values, torch.arange(4).expand(24_000, 4))
    codes = orders @ torch.tensor([64, 16, 4, 1])
    uniform_over(codes.unique(return_inverse=True)[1], 24)
    long = random.permutation(KEY, 5000)
    assert torch.equal(long.sort().values, torch.arange(5000))
    first = torch.vmap(lambda k: random.choice(k, 5, (2,), replace=False, p=WEIGHT)[0])(keys)
    for index, p in enumerate(WEIGHT.tolist()):
        near(first == index, p)


def test_rows_stay_whole_unless_permuted_independently() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    rows = random.permutation(KEY, x)
    assert torch.equal(rows[:, 1:] - rows[:, :1], torch.tensor([[1.0, 2.0]]).expand(4, 2))
    apart = random.permutation(KEY, x, independent=True)
    assert torch.equal(apart.sort(0).values, x)
    assert not torch.equal(apart[:, 1] - apart[:, 0], torch.ones(4))
    picked = random.choice(KEY, x, (3,), replace=False)
    assert len(picked.unique(dim=0)) == 3
    assert random.choice(KEY, x, (2, 5)).shape == (2, 5, 3)
    assert random.choice(KEY, x, (0,)).shape == (0, 3)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 6), (6, 3), (1, 1)])
def test_orthogonal_matrices_are_orthonormal(n: int, m: int) -> None:
    matrix = random.orthogonal(KEY, n, (5, 2), m, dtype=F64)
    assert matrix.shape == (5, 2, n, m)
    product = matrix @ matrix.mT if n <= m else matrix.mT @ matrix
    torch.testing.assert_close(product, torch.eye(min(n, m), dtype=F64).expand_as(product))


def test_orthogonal_matrices_are_uniform() -> None:
    # without the sign of R the diagonal of Q would lean to one side
    matrix = random.orthogonal(KEY, 2, (10_000,))
    for entry in matrix.flatten(1).unbind(1):
        near(entry, 0.0)
    near(torch.linalg.det(matrix), 0.0)
