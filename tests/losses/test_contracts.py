"""What every loss and every target must hold: one table, one test per contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.losses.table import (
    ALL_LOSSES,
    ALL_TARGETS,
    F64,
    LOSSES,
    ROWS,
    TARGETS,
    Entry,
    fill_rows,
    filled,
    rows_of,
)
from torch import Tensor

from purerl import losses, tree
from purerl.errors import ConfigError, ShapeError

NAN = float("nan")
MASK = torch.tensor([True, False, True, True, False, True, True])
NOT_SCALAR = {"priority", "gap"}
# compiling takes a second, so options of one function are left to the eager tests
ONE_PER_FUNCTION = [
    pytest.param(entry, id=name)
    for name, entry in {e.function.__name__: e for e in (*LOSSES, *TARGETS)}.items()
]


def leaves_of(inputs: dict[str, Tensor], names: Any) -> dict[str, Tensor]:
    """Return the inputs with the named ones as leaves that want a gradient."""
    return inputs | {name: inputs[name].clone().requires_grad_() for name in names}


def gradients(entry: Entry, inputs: dict[str, Tensor], **options: Any) -> tuple[Tensor, ...]:
    wanted = (*entry.learns, *entry.in_part)
    live = leaves_of(inputs, wanted)
    loss, _ = entry(live, **options)
    return torch.autograd.grad(loss.sum(), [live[name] for name in wanted])


def close(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    for a, e in zip(tree.leaves(actual), tree.leaves(expected), strict=True):
        atol = rtol * float(e.detach().abs().max())
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol)


def test_every_public_loss_and_target_is_in_the_table() -> None:
    returns_a_pair = {e.function.__name__ for e in LOSSES} | {"cql_lagrange"}
    targets = {e.function.__name__ for e in TARGETS}
    public = {name for name in vars(losses) if callable(getattr(losses, name)) and name.islower()}
    found = {n for n in public if "Metrics" in str(getattr(losses, n).__annotations__["return"])}
    assert found == returns_a_pair
    assert {name for name in public if name.endswith("_target")} == targets


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_law_30_the_gradient_is_the_derivative(entry: Entry) -> None:
    inputs = entry.inputs(3)

    def function(*learned: Tensor) -> Tensor:
        given = inputs | dict(zip(entry.learns, learned, strict=True))
        loss: Tensor = entry(given, mask=MASK, reduction="sum")[0]
        return loss

    wanted = tuple(inputs[name].clone().requires_grad_() for name in entry.learns)
    assert torch.autograd.gradcheck(function, wanted)
    tangents = tuple(torch.cos(3.0 * x).detach() for x in wanted)
    _, forward = torch.func.jvp(function, tuple(x.detach() for x in wanted), tangents)
    backward = torch.autograd.grad(function(*wanted), wanted)
    pairs = zip(backward, tangents, strict=True)
    close(forward, torch.stack([(g * t).sum() for g, t in pairs]).sum(), 1e-10)


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_law_28_what_the_theory_holds_constant_gets_exactly_no_gradient(entry: Entry) -> None:
    inputs = entry.inputs(0)
    constants = [n for n in entry.floating if n not in (*entry.learns, *entry.in_part)]
    live = leaves_of(inputs, entry.floating)
    weight = torch.linspace(0.5, 2.0, ROWS, dtype=F64)
    weight = weight.requires_grad_() if entry.accepts("weight") else weight
    loss, metrics = entry(live, weight=weight)
    assert loss.requires_grad
    assert not any(metric.requires_grad for metric in metrics.values())
    wanted = [live[name] for name in constants] + [weight]
    for gradient in torch.autograd.grad(loss.sum(), wanted, allow_unused=True):
        assert gradient is None or torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("value", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_law_17_masked_rows_reach_neither_value_nor_gradient_nor_metric(
    entry: Entry, value: float
) -> None:
    clean = filled(entry.inputs(1), entry, MASK, 0.0)
    dirty = filled(clean, entry, MASK, value)
    for name, kind in entry.kinds.items():
        if kind == "action":  # an index that would be out of range
            dirty[name] = torch.where(MASK, dirty[name], -9)
    weight = torch.where(MASK, torch.linspace(0.5, 2.0, ROWS, dtype=F64), NAN)
    zero_weight = torch.where(MASK, weight, 0.0)
    assert tree.equal(
        entry(dirty, mask=MASK, weight=weight), entry(clean, mask=MASK, weight=zero_weight)
    )
    dirty_gradients = gradients(entry, dirty, mask=MASK, weight=weight)
    clean_gradients = gradients(entry, clean, mask=MASK, weight=zero_weight)
    assert tree.equal(dirty_gradients, clean_gradients)
    for name, gradient in zip((*entry.learns, *entry.in_part), dirty_gradients, strict=True):
        assert bool(gradient.isfinite().all())
        if name in entry.row_inputs:
            at_masked = fill_rows(gradient, entry.row_inputs[name], ~MASK, 0.0)
            assert torch.equal(at_masked, torch.zeros_like(gradient))


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_a_mask_is_the_loss_of_the_rows_that_it_keeps(entry: Entry) -> None:
    inputs = entry.inputs(2)
    kept = rows_of(inputs, entry, MASK.nonzero().squeeze(1))
    for reduction in ("mean", "sum"):
        loss, metrics = entry(inputs, mask=MASK, reduction=reduction)
        own_loss, own_metrics = entry(kept, reduction=reduction)
        close(loss, own_loss)
        if "priority" in metrics:
            metrics["priority"] = metrics["priority"][MASK]
        close(metrics, own_metrics)


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_no_valid_row_is_a_loss_of_0_with_a_finite_gradient(entry: Entry) -> None:
    nothing = torch.zeros(ROWS, dtype=torch.bool)
    inputs = filled(entry.inputs(2), entry, nothing, NAN)
    loss, metrics = entry(inputs, mask=nothing)
    assert torch.equal(loss, torch.zeros_like(loss))
    assert all(bool(metric.isfinite().all()) for metric in metrics.values())
    assert all(bool(g.isfinite().all()) for g in gradients(entry, inputs, mask=nothing))


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_nan_in_a_row_that_counts_surfaces(entry: Entry) -> None:
    inputs = entry.inputs(4)
    for name, axis in entry.row_inputs.items():
        if name in entry.floating:
            bad = inputs | {name: fill_rows(inputs[name], axis, torch.arange(ROWS) != 2, NAN)}
            assert bool(entry(bad)[0].isnan()), name


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_reductions_and_weights_agree(entry: Entry) -> None:
    inputs = entry.inputs(5)
    weight = torch.linspace(0.25, 2.0, ROWS, dtype=F64)
    per_row, metrics = entry(inputs, reduction="none")
    assert per_row.shape == (ROWS,)
    close(entry(inputs)[0], per_row.mean())
    close(entry(inputs, reduction="sum")[0], per_row.sum())
    close(entry(inputs, weight=weight)[0], (weight * per_row).mean())
    close(entry(inputs, weight=weight, reduction="none")[0], weight * per_row)
    if entry.accepts("weight_mode"):
        own = entry(inputs, weight=weight, weight_mode="normalized")[0]
        close(own, (weight * per_row).sum() / weight.sum())
    for name, metric in metrics.items():
        assert (metric.ndim == 0) == (name not in NOT_SCALAR)
    with pytest.raises(ConfigError, match="reduction is 'average'"):
        entry(inputs, reduction="average")


@pytest.mark.parametrize("entry", ALL_LOSSES)
def test_law_24_a_batch_is_the_sum_of_its_minibatches_and_of_its_rows(entry: Entry) -> None:
    inputs = entry.inputs(6)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    close(entry(rows_of(inputs, entry, order))[0], entry(inputs)[0])
    if not entry.separable:
        return
    whole = gradients(entry, inputs)
    parts = [order[:2], order[2:5], order[5:]]
    minibatches = [rows_of(inputs, entry, part) for part in parts]
    total = sum(len(p) / ROWS * entry(b)[0] for p, b in zip(parts, minibatches, strict=True))
    close(total, entry(inputs)[0])
    by_rows, axes = [], entry.row_inputs
    in_dims = ({name: axes.get(name) for name in inputs},)

    def one_row(row: dict[str, Tensor]) -> Tensor:
        loss: Tensor = entry(row)[0]
        return loss

    per_row = torch.vmap(one_row, in_dims=in_dims)(inputs)
    close(per_row, entry(inputs, reduction="none")[0])
    live = leaves_of(inputs, entry.learns)
    mean = torch.vmap(one_row, in_dims=in_dims)(live).mean()
    by_rows = torch.autograd.grad(mean, [live[name] for name in entry.learns])
    close(by_rows, whole)


def members(entry: Entry, dtype: torch.dtype = F64) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the inputs of three members, and their numbers, which differ."""
    inputs = tree.stack([entry.inputs(seed, dtype) for seed in (7, 8, 9)])
    factors = torch.tensor([1.0, 1.05, 0.9], dtype=F64)
    return inputs, {name: value * factors for name, value in entry.hparams.items()}


def run(entry: Entry) -> Any:
    def function(inputs: dict[str, Tensor], hparams: dict[str, Tensor], mask: Tensor) -> Any:
        return entry(inputs, **hparams, mask=mask)

    return function


@pytest.mark.parametrize("entry", [*ALL_LOSSES, *ALL_TARGETS])
def test_vmap_over_members_and_their_numbers_equals_each_alone(entry: Entry) -> None:
    inputs, hparams = members(entry)
    masks = torch.stack([MASK, ~MASK, torch.ones_like(MASK)])
    population = torch.vmap(run(entry))(inputs, hparams, masks)
    for m in range(3):
        own = {name: float(value[m]) for name, value in hparams.items()}
        alone = entry(tree.index(inputs, m), **own, mask=masks[m])
        close(tree.index(population, m), alone)


@pytest.mark.parametrize("entry", [*ALL_LOSSES, *ALL_TARGETS])
def test_float32_is_not_promoted_by_float64_numbers_under_vmap(entry: Entry) -> None:
    inputs, hparams = members(entry, torch.float32)
    result = torch.vmap(run(entry))(inputs, hparams, torch.stack([MASK] * 3))
    assert {leaf.dtype for leaf in tree.leaves(result)} == {torch.float32}


@pytest.mark.parametrize("entry", ONE_PER_FUNCTION)
def test_a_compiled_population_equals_an_eager_one_in_one_graph(entry: Entry) -> None:
    torch.compiler.reset()
    inputs, hparams = members(entry)
    masks = torch.stack([MASK, ~MASK, torch.ones_like(MASK)])
    eager = torch.vmap(run(entry))
    compiled = torch.compile(eager, backend="aot_eager", fullgraph=True, dynamic=False)
    close(compiled(inputs, hparams, masks), eager(inputs, hparams, masks))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("entry", [*ALL_LOSSES, *ALL_TARGETS])
def test_halves_are_computed_in_float32_and_rounded_once(entry: Entry, dtype: torch.dtype) -> None:
    inputs = entry.inputs(1, dtype)
    wide = {k: x.float() if x.is_floating_point() else x for k, x in inputs.items()}
    rounded = tree.map(lambda leaf: leaf.to(dtype), entry(wide, mask=MASK))
    assert tree.equal(entry(inputs, mask=MASK), rounded)


@pytest.mark.parametrize("entry", [*ALL_LOSSES, *ALL_TARGETS])
def test_inputs_stay_as_they_are_and_a_second_call_answers_the_same(entry: Entry) -> None:
    inputs = entry.inputs(1)
    before = tree.clone(inputs)
    first, second = entry(inputs, mask=MASK), entry(inputs, mask=MASK)
    assert tree.equal(inputs, before)
    assert tree.equal(first, second)


@pytest.mark.parametrize("entry", [*ALL_LOSSES, *ALL_TARGETS])
def test_a_column_beside_rows_is_refused(entry: Entry) -> None:
    inputs = entry.inputs(1)
    for name in entry.row_inputs:
        if len(entry.row_inputs) > 1:
            with pytest.raises(ShapeError, match="has shape"):
                entry(inputs | {name: inputs[name].unsqueeze(-1)})
    with pytest.raises(ShapeError, match="mask has shape"):
        entry(inputs, mask=MASK.unsqueeze(-1))
    with pytest.raises(ShapeError, match="mask has dtype"):
        entry(inputs, mask=MASK.double())


@pytest.mark.parametrize("entry", ALL_TARGETS)
def test_law_18_targets_are_constants(entry: Entry) -> None:
    live = leaves_of(entry.inputs(0), entry.floating)
    assert not entry(live).requires_grad


@pytest.mark.parametrize("entry", ALL_TARGETS)
def test_law_26_what_follows_a_termination_may_hold_anything(entry: Entry) -> None:
    inputs = entry.inputs(1)
    end = inputs["terminated"]
    assert bool(end.any() & ~end.all())
    spoiled = dict(inputs)
    for name, axis in entry.row_inputs.items():
        if name.startswith("next_") and name in entry.floating:
            spoiled[name] = fill_rows(inputs[name], axis, ~end, NAN)
        elif name == "next_action_mask":
            spoiled[name] = inputs[name] & ~end.unsqueeze(-1)
    assert torch.equal(entry(spoiled), entry(inputs))
    alive = inputs | {"terminated": torch.zeros_like(end)}
    assert not torch.equal(entry(alive), entry(inputs))


@pytest.mark.parametrize("entry", ALL_TARGETS)
def test_masked_rows_of_a_target_are_0(entry: Entry) -> None:
    inputs = entry.inputs(1)
    target = entry(filled(inputs, entry, MASK, NAN), mask=MASK)
    assert torch.equal(target[~MASK], torch.zeros_like(target[~MASK]))
    assert torch.equal(target[MASK], entry(inputs)[MASK])


@pytest.mark.parametrize("entry", ALL_TARGETS)
def test_nan_in_a_live_row_of_a_target_surfaces(entry: Entry) -> None:
    inputs = entry.inputs(4) | {"terminated": torch.zeros(ROWS, dtype=torch.bool)}
    inputs.pop("steps")
    for name, axis in entry.row_inputs.items():
        if name in entry.floating:
            bad = inputs | {name: fill_rows(inputs[name], axis, torch.arange(ROWS) != 2, NAN)}
            found = entry(bad).isnan().reshape(ROWS, -1)
            assert bool(found[2].all()), name
            assert not bool(found[torch.arange(ROWS) != 2].any())


@pytest.mark.parametrize("entry", ALL_TARGETS)
def test_merged_steps_discount_by_their_power(entry: Entry) -> None:
    inputs = entry.inputs(1)
    steps = inputs.pop("steps")
    powers = torch.tensor(0.9, dtype=F64) ** steps
    assert torch.equal(entry(inputs, steps=steps), entry(inputs, gamma=powers))
    assert torch.equal(entry(inputs, steps=torch.ones_like(steps)), entry(inputs))
