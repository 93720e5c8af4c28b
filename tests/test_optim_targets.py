"""Target parameters: polyak averaging and periodic copies."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tests.optim_cases import F64, Tree, close, draw, make_tree

from purerl import optim, tree
from purerl.errors import ShapeError


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_polyak_with_tau_0_changes_nothing_and_with_tau_1_copies(dtype: torch.dtype) -> None:
    target, online = make_tree(1, dtype), make_tree(2, dtype)
    for zero, one in [(0.0, 1.0), (torch.tensor(0.0, dtype=F64), torch.tensor(1.0, dtype=F64))]:
        assert tree.equal(optim.polyak(target, online, zero), target)
        assert tree.equal(optim.polyak(target, online, one), online)


def test_polyak_approaches_a_fixed_source_geometrically() -> None:
    target, online, tau = make_tree(1), make_tree(2), 0.05
    moving = target
    for _ in range(40):
        moving = optim.polyak(moving, online, tau)
    kept = (1.0 - tau) ** 40
    close(moving, tree.map(lambda t, s: kept * t + (1.0 - kept) * s, target, online))


def test_polyak_stays_between_target_and_source() -> None:
    target, online = draw(1, 1000, dtype=torch.float32), draw(2, 1000, dtype=torch.float32)
    for tau in (0.005, 0.3, 0.5, 0.7, 0.995):
        moved = optim.polyak(target, online, tau)
        assert (torch.minimum(target, online) <= moved).all()
        assert (moved <= torch.maximum(target, online)).all()


def test_polyak_treats_buffers_as_asked_and_always_copies_integers() -> None:
    def net(value: float, count: int) -> Tree:
        buffers = {"mean": torch.tensor([value]), "count": torch.tensor(count)}
        return {"critic": {"parameters": {"w": torch.tensor([value])}, "buffers": buffers}}

    target, online = net(0.0, 1), net(4.0, 5)
    for buffers, mean in [("copy", 4.0), ("polyak", 1.0), ("keep", 0.0)]:
        moved = optim.polyak(target, online, 0.25, buffers=buffers)["critic"]
        assert float(moved["parameters"]["w"]) == 1.0
        assert float(moved["buffers"]["mean"]) == mean
        assert int(moved["buffers"]["count"]) == 5
    packed = optim.polyak(tree.from_dict(target), tree.from_dict(online), 0.25)
    assert isinstance(packed, TensorDict)
    assert tree.equal(tree.to_dict(packed), optim.polyak(target, online, 0.25))


def test_polyak_of_half_precision_rounds_once() -> None:
    target, online = draw(1, 64).bfloat16(), draw(2, 64).bfloat16()
    expected = optim.polyak(target.float(), online.float(), 0.1).bfloat16()
    assert torch.equal(optim.polyak(target, online, 0.1), expected)


def test_polyak_takes_a_rate_for_each_member() -> None:
    target, online = draw(1, 3, 4, dtype=torch.float32), draw(2, 3, 4, dtype=torch.float32)
    taus = torch.tensor([0.0, 0.25, 1.0], dtype=F64)
    moved = torch.vmap(optim.polyak)(target, online, taus)
    assert moved.dtype is torch.float32
    for m in range(3):
        assert torch.equal(moved[m], optim.polyak(target[m], online[m], taus[m]))


def test_periodic_update_copies_at_every_nth_call_and_at_no_other() -> None:
    target, online = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    copied = [
        k
        for k in range(13)
        if float(optim.periodic_update(target, online, torch.tensor(k), 4)["w"]) == 1.0
    ]
    assert copied == [4, 8, 12]


def test_target_updates_refuse_another_structure() -> None:
    with pytest.raises(ShapeError, match=r"online\.b is not expected"):
        optim.polyak({"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}, 0.5)
    with pytest.raises(ShapeError, match=r"online\.a is .*\[2\], expected .*\[1\]"):
        optim.periodic_update({"a": torch.zeros(1)}, {"a": torch.zeros(2)}, torch.tensor(1), 1)
