"""The recurrence against the plain loop: values, cuts, gradients, transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import recurrence, returns
from purerl.errors import ShapeError

F64 = torch.float64
NAN = float("nan")

# around the sizes at which the evaluation changes: log-steps to 128 rows, then blocks of 4
LENGTHS = [1, 2, 3, 4, 5, 8, 17, 127, 128, 129, 130, 131, 132, 133, 515, 700]


def loop(decay: Tensor, x: Tensor, initial: Tensor | None, cut: Tensor, reverse: bool) -> Tensor:
    """Return the definition, row by row; ``decay`` is shaped like x or 0-d."""
    rows: list[Tensor] = [torch.empty(0)] * len(x)
    y = torch.zeros_like(x[0]) if initial is None else initial
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        a = decay[t] if decay.ndim else decay
        y = x[t] + torch.where(cut[t], torch.zeros_like(y), a * y)
        rows[t] = y
    return torch.stack(rows)


def draw(num_rows: int, *shape: int, end: float = 0.1, dtype: torch.dtype = F64) -> Any:
    g = torch.Generator().manual_seed(num_rows)
    x = torch.randn(num_rows, *shape, generator=g, dtype=dtype)
    cut = torch.rand(num_rows, *shape, generator=g) < end
    decay = torch.rand(num_rows, *shape, generator=g, dtype=dtype)
    return x, cut, decay


def test_products_of_decays_that_overflow_reach_nothing_that_is_zero() -> None:
    """A product of decays above 1 would overflow, and then meet a 0: row by row it never forms."""
    x = torch.zeros(200)
    x[0] = 1.0
    found = recurrence.linear(10.0, x, reverse=True)
    assert torch.equal(found, x)
    decay = torch.full((200,), 10.0)
    assert torch.equal(recurrence.linear(decay, x, reverse=True, bounded=False), x)
    once = recurrence.linear(0.5, torch.ones(9), reverse=True)
    again = recurrence.linear(0.5, torch.ones(9), reverse=True, bounded=False)
    torch.testing.assert_close(once, again)
    weight = torch.full((64,), 5.0)
    zeros, off = torch.zeros(64), torch.zeros(64, dtype=torch.bool)
    reward = zeros.clone()
    reward[3] = 1.0
    result = returns.vtrace(
        weight, zeros, reward, zeros, zeros, off, off, gamma=1.0, rho_clip=None, c_clip=None
    )
    assert torch.equal(result.value_target[4:], zeros[4:])
    assert bool(result.value_target.isfinite().all())
    target = returns.retrace(reward, zeros, zeros, weight, off, off, gamma=0.9, trace="importance")
    assert bool(target.isfinite().all())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("num_rows", LENGTHS)
def test_equals_the_loop_at_every_size(num_rows: int, reverse: bool) -> None:
    x, cut, decay = draw(num_rows, 3)
    start = torch.tensor([1.0, -2.0, 3.0], dtype=F64)
    for a in (torch.tensor(0.97, dtype=F64), decay, -decay):
        for initial in (None, start):
            expected = loop(a, x, initial, cut, reverse)
            found = recurrence.linear(a, x, initial=initial, cut=cut, reverse=reverse)
            torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("num_rows", [9, 128, 200, 700])
def test_is_exact_where_every_sum_is_representable(num_rows: int) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(-64, 65, (num_rows, 4), generator=g).to(F64) / 64
    cut = torch.arange(num_rows)[:, None] % torch.tensor([7, 8, 9, 10]) == 0
    for decay in (0.0, 0.5, 1.0):
        a = torch.tensor(decay, dtype=F64)
        for reverse in (False, True):
            expected = loop(a, x, None, cut, reverse)
            assert torch.equal(recurrence.linear(decay, x, cut=cut, reverse=reverse), expected)
    without = torch.zeros_like(cut)
    assert torch.equal(
        recurrence.linear(1.0, x), loop(torch.ones((), dtype=F64), x, None, without, False)
    )


@pytest.mark.parametrize("num_rows", [12, 128, 300])
@pytest.mark.parametrize("garbage", [NAN, float("inf"), -float("inf")])
def test_nothing_crosses_a_cut_in_value_or_gradient(num_rows: int, garbage: float) -> None:
    x, cut, decay = draw(num_rows, 3, end=0.0)
    cut[num_rows // 2] = True
    initial = torch.zeros(3, dtype=F64)

    end = num_rows // 2

    def run(fill: float, *, per_row: bool) -> list[Tensor]:
        behind = torch.arange(num_rows)[:, None] > end
        rows = x.masked_fill(behind, fill).requires_grad_()
        a = decay.masked_fill(behind, fill) if per_row else torch.tensor(0.9, dtype=F64)
        if per_row:
            a[end] = fill  # the decay of a row that is cut is not used
        a.requires_grad_()
        y = recurrence.linear(a, rows, initial=initial + fill, cut=cut, reverse=True)[: end + 1]
        of_decay, of_rows = torch.autograd.grad(y.square().sum(), (a, rows))
        # garbage has a derivative of its own; what stands before the cut is clean
        return [y, of_rows[: end + 1], *([of_decay[: end + 1]] if per_row else [])]

    for per_row in (False, True):
        pairs = zip(run(garbage, per_row=per_row), run(0.0, per_row=per_row), strict=True)
        assert all(torch.equal(found, clean) for found, clean in pairs)


@pytest.mark.parametrize("num_rows", [12, 300])
def test_closed_rows_keep_their_garbage_from_the_gradient_of_the_decay(num_rows: int) -> None:
    x, cut, _ = draw(num_rows, 2, end=0.0)
    cut[num_rows // 2 :] = True

    def gradient(fill: float) -> Tensor:
        behind = torch.arange(num_rows)[:, None] > num_rows // 2
        decay = torch.tensor(0.9, dtype=F64, requires_grad=True)
        rows = x.masked_fill(behind, fill)
        y = recurrence.linear(decay, rows, cut=cut, reverse=True)
        return torch.autograd.grad(torch.where(behind, 0.0, y).sum(), decay)[0]

    assert torch.equal(gradient(NAN), gradient(0.0))
    assert float(gradient(0.0)) != 0.0


@pytest.mark.parametrize("num_rows", [12, 300])
def test_nan_reaches_every_row_up_to_the_cut(num_rows: int) -> None:
    x, cut, _ = draw(num_rows, end=0.0)
    cut[2] = True
    x[num_rows - 1] = NAN
    y = recurrence.linear(0.9, x, cut=cut, reverse=True)
    assert y[:3].isfinite().all()
    assert y[3:].isnan().all()


@pytest.mark.parametrize("num_rows", [50, 128, 300])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_batch_columns_and_vmap_agree_bit_for_bit(num_rows: int, dtype: torch.dtype) -> None:
    x, cut, decay = draw(num_rows, 37, dtype=dtype)
    for a in (torch.tensor(0.97, dtype=dtype), decay):
        axis = 1 if a.ndim else None

        def run(a: Tensor, x: Tensor, cut: Tensor) -> Tensor:
            return recurrence.linear(a, x, cut=cut, reverse=True)

        batch = run(a, x, cut)
        columns = [run(a[:, b] if a.ndim else a, x[:, b], cut[:, b]) for b in range(37)]
        assert torch.equal(batch, torch.stack(columns, 1))
        assert torch.equal(batch, torch.vmap(run, (axis, 1, 1), 1)(a, x, cut))
        order = torch.arange(36, -1, -1)
        permuted = run(a[:, order] if a.ndim else a, x[:, order], cut[:, order])
        assert torch.equal(batch[:, order], permuted)


def test_number_scalar_and_mapped_decay_agree_bit_for_bit() -> None:
    x, cut, _ = draw(300, 5, dtype=torch.float32)
    number = recurrence.linear(0.9405, x, cut=cut)
    scalar = torch.tensor(0.9405, dtype=F64)
    assert torch.equal(number, recurrence.linear(scalar, x, cut=cut))
    mapped = torch.vmap(lambda a: recurrence.linear(a, x, cut=cut))(
        torch.stack([scalar, scalar / 2])
    )
    assert mapped.dtype == torch.float32
    assert torch.equal(mapped[0], number)
    assert torch.equal(mapped[1], recurrence.linear(0.9405 / 2, x, cut=cut))


@pytest.mark.parametrize(("num_rows", "more"), [(40, 3), (100, 28), (300, 5)])
def test_rows_behind_an_end_change_no_bit(num_rows: int, more: int) -> None:
    x, cut, decay = draw(num_rows + more, 4)
    cut[num_rows - 1] = True
    x[num_rows:] = NAN
    decay[num_rows:] = NAN
    for a in (torch.tensor(0.97, dtype=F64), decay):
        own = a[:num_rows] if a.ndim else a
        alone = recurrence.linear(own, x[:num_rows], cut=cut[:num_rows], reverse=True)
        found = recurrence.linear(a, x, cut=cut, reverse=True)
        assert torch.equal(found[:num_rows], alone)


@pytest.mark.parametrize("num_rows", [6, 140])
def test_gradients_equal_those_of_the_loop(num_rows: int) -> None:
    x, cut, decay = draw(num_rows, 2)
    initial = torch.ones(2, dtype=F64)
    weight = torch.linspace(-1, 1, num_rows, dtype=F64)[:, None]
    for a in (torch.tensor(0.9, dtype=F64), torch.zeros((), dtype=F64), decay):

        def scalar(f: Any, *args: Tensor) -> Tensor:
            return (weight * f(*args)).square().sum()

        def ours(a: Tensor, x: Tensor, initial: Tensor) -> Tensor:
            y = recurrence.linear(a, x, initial=initial, cut=cut, reverse=True)
            return scalar(lambda: y)

        def theirs(a: Tensor, x: Tensor, initial: Tensor) -> Tensor:
            return scalar(loop, a, x, initial, cut, True)

        args, tangents = (a, x, initial), tuple(torch.ones_like(t) for t in (a, x, initial))
        pairs = zip(
            torch.func.grad(ours, (0, 1, 2))(*args),
            torch.func.grad(theirs, (0, 1, 2))(*args),
            strict=True,
        )
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        found = torch.func.jvp(ours, args, tangents)
        expected = torch.func.jvp(theirs, args, tangents)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_second_derivatives_are_right() -> None:
    x, cut, decay = draw(6, 2)
    inputs = (decay.requires_grad_(), x.requires_grad_())

    def run(a: Tensor, x: Tensor) -> Tensor:
        return recurrence.linear(a, x, cut=cut).square()

    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("num_rows", [7, 140])
def test_compiled_equals_eager(num_rows: int) -> None:
    x, cut, _ = draw(num_rows, 2)

    def run(a: Tensor, x: Tensor, cut: Tensor) -> Tensor:
        return recurrence.linear(a, x, cut=cut, reverse=True)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=False)
    a = torch.tensor(0.9, dtype=F64)
    torch.testing.assert_close(compiled(a, x, cut), run(a, x, cut), rtol=1e-13, atol=1e-13)


def test_any_dimension_can_be_time() -> None:
    x, cut, decay = draw(150, 3, 2)
    expected = recurrence.linear(decay, x, cut=cut, initial=x[0])
    for dim in (1, 2, -1, -2):
        moved = [t.movedim(0, dim) for t in (decay, x, cut)]
        found = recurrence.linear(moved[0], moved[1], cut=moved[2], initial=x[0], dim=dim)
        assert torch.equal(found.movedim(dim, 0), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_accumulated_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    x, cut, _ = draw(140, 3)
    x = x.to(dtype)
    found = recurrence.linear(0.99, x, cut=cut)
    assert found.dtype == dtype
    assert torch.equal(found, recurrence.linear(0.99, x.float(), cut=cut).to(dtype))


def test_inputs_are_left_alone() -> None:
    x, cut, decay = draw(140, 3)
    before = [t.clone() for t in (x, cut, decay)]
    recurrence.linear(decay, x, cut=cut, initial=x[0], reverse=True)
    assert all(torch.equal(a, b) for a, b in zip((x, cut, decay), before, strict=True))


def test_gated_is_a_selection() -> None:
    value = torch.tensor([1.0, NAN, float("inf"), -2.0, NAN])
    gate = torch.tensor([1.0, 0.0, -1.0, 0.5, 1.0])
    found = recurrence.gated(value, gate)
    assert found[:4].tolist() == [1.0, 0.0, 0.0, -2.0]
    assert found[4].isnan()
    assert recurrence.gated(value, gate, -1.0)[1].isnan()


def test_errors_name_the_argument() -> None:
    x = torch.zeros(4, 2)
    with pytest.raises(ShapeError, match=r"x has shape \[0, 2\], expected no dimension of size 0"):
        recurrence.linear(0.5, x[:0])
    with pytest.raises(ShapeError, match=r"cut has shape \[4\], expected \[4, 2\] as x"):
        recurrence.linear(0.5, x, cut=torch.zeros(4, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"cut has dtype torch.float32, expected torch.bool"):
        recurrence.linear(0.5, x, cut=x)
    with pytest.raises(ShapeError, match=r"initial has shape \[1\], expected \[2\]"):
        recurrence.linear(0.5, x, initial=torch.zeros(1))
    with pytest.raises(ShapeError, match=r"decay has shape \[4\], expected \[\] or \[4, 2\] as x"):
        recurrence.linear(torch.zeros(4), x)
    with pytest.raises(ShapeError, match=r"x has dtype torch.int64, expected a floating dtype"):
        recurrence.linear(0.5, x.long())
