"""Laws of the optimizers, transforms and schedules."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from property_tests.strategies import rows
from torch import Tensor

from purerl import optim, tree

F64 = torch.float64
rates = st.sampled_from([0.0, 1e-3, 0.1])


@given(rows("params", "g1", "g2"), rates, st.sampled_from([1e-8, 1e-3, 0.5]))
def test_law_37_adam_is_its_algorithm(
    drawn: tuple[Tensor, ...], rate: float, epsilon: float
) -> None:
    """Law 37: θ − lr · m̂ / (√v̂ + ε), both corrected; the first step is −lr g / (abs g + ε)."""
    start, *gradients = drawn
    adam = optim.adam(rate, epsilon=epsilon)
    params, state = {"w": start}, adam.init({"w": start})
    m = v = torch.zeros_like(start)
    expected = start
    for k, g in enumerate(gradients, 1):
        params, state = adam.update({"w": g}, state, params)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + epsilon)
        expected = expected - rate * step
        torch.testing.assert_close(params["w"], expected, rtol=1e-10, atol=1e-12)
        if k == 1:
            first = start - rate * g / (g.abs() + epsilon)
            torch.testing.assert_close(params["w"], first, rtol=1e-10, atol=1e-12)
    if rate == 0.0:
        assert torch.equal(params["w"], start)


@given(rows("params", "gradient"), st.sampled_from([0.25, 8.0, 1024.0]))
def test_law_37_adam_without_epsilon_knows_no_scale(
    drawn: tuple[Tensor, ...], factor: float
) -> None:
    """Law 37: ε = 0 makes Adam invariant to g → c g."""
    start, gradient = drawn
    gradient = torch.where(gradient.abs() < 1e-3, 1.0, gradient)
    adam = optim.adam(0.1, epsilon=0.0)
    one, _ = adam.update(gradient, adam.init(start), start)
    other, _ = adam.update(factor * gradient, adam.init(start), start)
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@given(st.integers(0, 2**40))
def test_law_37_late_steps_are_counted(count: int) -> None:
    """The bias corrections of step k + 1 hold at any k: the count is a whole number."""
    adam = optim.adam(1.0, epsilon=0.0)
    params = torch.zeros(1, dtype=F64)
    state = adam.init(params)
    state["count"] = torch.tensor(count)
    state["first_moment"] = torch.ones(1, dtype=F64)
    state["second_moment"] = torch.ones(1, dtype=F64)
    moved, after = adam.update(torch.ones(1, dtype=F64), state, params)
    assert int(after["count"]) == count + 1
    m = 1.0 / -math.expm1((count + 1) * math.log(0.9))
    v = 1.0 / -math.expm1((count + 1) * math.log(0.999))
    torch.testing.assert_close(
        moved, torch.tensor([-m / math.sqrt(v)], dtype=F64), rtol=1e-9, atol=0
    )


@given(rows("a", "b"), st.sampled_from([0.1, 1.0, 5.0]))
def test_law_37_clipping_by_the_global_norm(drawn: tuple[Tensor, ...], limit: float) -> None:
    """Law 37: one norm over all leaves; norm ≤ c, direction kept, idempotent, zero stays zero."""
    gradient = {"actor": drawn[0], "critic": {"w": drawn[1]}}
    clip = optim.clip_by_global_norm(limit)
    clipped, _ = clip.update(gradient, clip.init(gradient), gradient)
    norm = math.sqrt(float(sum((g * g).sum() for g in drawn)))
    factor = min(1.0, limit / norm) if norm > 0 else 1.0
    torch.testing.assert_close(clipped["actor"], factor * drawn[0], rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(clipped["critic"]["w"], factor * drawn[1], rtol=1e-12, atol=1e-15)
    assert float(tree.global_norm(clipped)) <= limit * (1 + 1e-12)
    again, _ = clip.update(clipped, clip.init(gradient), gradient)
    torch.testing.assert_close(again["actor"], clipped["actor"], rtol=1e-12, atol=0)
    zeros = tree.map(torch.zeros_like, gradient)
    assert tree.equal(clip.update(zeros, clip.init(zeros), zeros)[0], zeros)


@given(rows("params", "gradient"), st.sampled_from([torch.nan, torch.inf, None]))
def test_law_37_an_update_that_is_not_finite_is_skipped(
    drawn: tuple[Tensor, ...], fault: float | None
) -> None:
    """Law 37: a NaN leaf leaves parameters and inner state bit-equal and the counter + 1."""
    params, gradient = {"w": drawn[0]}, {"w": drawn[1].clone()}
    inner = optim.adam(0.1)
    optimizer = optim.skip_nonfinite(inner)
    state = optimizer.init(params)
    if fault is not None:
        gradient["w"][0] = fault
    moved, after = optimizer.update(gradient, state, params)
    assert int(after["nonfinite"]) == (fault is not None)
    if fault is None:
        plain, plain_state = inner.update(gradient, state["inner"], params)
        assert tree.equal([moved, after["inner"]], [plain, plain_state])
    else:
        assert tree.equal([moved, after["inner"]], [params, state["inner"]])


@given(
    st.floats(-4, 4), st.floats(-4, 4), st.integers(1, 50), st.integers(0, 80), st.integers(0, 1)
)
def test_schedules_are_their_closed_forms(
    start: float, end: float, num_steps: int, k: int, offset: int
) -> None:
    """linear(k) = start + (end − start) min(k + offset, N) / N; at offset 0 it begins whole."""
    step = torch.tensor(k)
    line = optim.linear(start, end, num_steps, offset=offset)
    share = min(k + offset, num_steps) / num_steps
    expected = torch.tensor(start + (end - start) * share, dtype=F64)
    torch.testing.assert_close(line(step), expected, rtol=1e-12, atol=1e-12)
    stairs = optim.staircase(line, 3)
    assert torch.equal(stairs(step), line(step // 3))
    low, high = sorted((start, end))
    assert low - 1e-12 <= float(line(step)) <= high + 1e-12


@pytest.mark.parametrize("make", [optim.adam, optim.adamw, optim.sgd, optim.rmsprop])
@given(drawn=rows("params", "gradient"))
def test_law_37_and_39_an_update_is_pure_and_keeps_what_it_gets(
    make: object, drawn: tuple[Tensor, ...]
) -> None:
    """Laws 37 and 39: structure, dtypes and inputs stay; twice the same; lr = 0 changes no bit."""
    params = {"w": drawn[0], "n": torch.tensor(3)}
    gradient = {"w": drawn[1], "n": torch.tensor(0)}
    assert callable(make)
    optimizer = make(0.1)
    state = optimizer.init(params)
    before = tree.clone([params, gradient, state])
    first = optimizer.update(gradient, state, params)
    second = optimizer.update(gradient, state, params)
    assert tree.equal(list(first), list(second))
    assert tree.equal([params, gradient, state], before)
    assert first[0]["n"] is params["n"] or torch.equal(first[0]["n"], params["n"])
    assert first[0]["w"].dtype is F64
    still, _ = optimizer.update(gradient, state, params, learning_rate=0.0)
    assert torch.equal(still["w"], params["w"])
