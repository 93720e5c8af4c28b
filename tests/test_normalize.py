"""Running statistics against the statistics of everything seen, and reward scaling step by step."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from purerl import normalize, random, tree
from purerl.errors import ConfigError, ShapeError

F64 = torch.float64


def draw(seed: int, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=F64).to(dtype)


def close(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol)


def moments(rows: Tensor) -> tuple[int, Tensor, Tensor]:
    return rows.shape[0], rows.mean(0), rows.var(0, correction=0)


def known(stats: Any, rows: Tensor, rtol: float = 1e-12) -> None:
    count, mean, var = moments(rows.to(F64))
    assert int(stats["count"]) == count
    close(stats["mean"], mean, rtol)
    close(normalize.variance(stats), var, rtol)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 2**31))
@example([0, 0, 1], 0)
def test_batches_of_any_sizes_give_the_statistics_of_their_concatenation(
    sizes: list[int], seed: int
) -> None:
    rows = 3.0 + 2.0 * draw(seed, sum(sizes), 2)
    stats = normalize.init((2,))
    for batch in rows.split(sizes):
        stats = normalize.update(stats, batch)
    if sum(sizes):
        known(stats, rows)
    else:
        assert tree.equal(stats, normalize.init((2,)))


def test_every_batch_axis_is_a_row() -> None:
    x = draw(1, 4, 5, 3)
    flat = normalize.update(normalize.init((3,)), x.reshape(20, 3))
    assert tree.equal(normalize.update(normalize.init((3,)), x), flat)
    single = normalize.update(normalize.init((3,)), x[0, 0])
    close(single["mean"], x[0, 0])
    assert int(single["count"]) == 1


def test_merging_is_associative_and_symmetric() -> None:
    a, b, c = (
        normalize.update(normalize.init((2,)), (s + 1) * draw(s, n, 2) + s)
        for s, n in enumerate([3, 50, 1])
    )
    left = normalize.merge(normalize.merge(a, b), c)
    right = normalize.merge(a, normalize.merge(b, c))
    for name in left:
        close(left[name], right[name])
        close(normalize.merge(a, b)[name], normalize.merge(b, a)[name])


def test_nothing_is_the_identity_of_merging() -> None:
    stats, empty = normalize.update(normalize.init((2,)), draw(1, 9, 2)), normalize.init((2,))
    assert tree.equal(normalize.merge(stats, empty), stats)
    assert tree.equal(normalize.merge(empty, stats), stats)
    assert tree.equal(normalize.update(stats, torch.zeros(0, 2)), stats)
    nothing = torch.zeros(4, dtype=torch.bool)
    assert tree.equal(normalize.update(stats, draw(2, 4, 2), mask=nothing), stats)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_masked_and_nonfinite_rows_change_no_bit(bad: float) -> None:
    rows = draw(1, 6, 2)
    mask = torch.tensor([True, False, True, True, True, True])
    dirty = rows.clone()
    dirty[1], dirty[4, 1] = torch.nan, bad
    stats = normalize.update(normalize.init((2,)), dirty, mask=mask)
    keep = torch.tensor([True, False, True, True, False, True])
    clean = torch.where(keep[:, None], rows, 0.0)
    assert tree.equal(stats, normalize.update(normalize.init((2,)), clean, mask=keep))
    known(stats, rows[keep])


def test_statistics_of_nothing_are_mean_0_and_variance_1() -> None:
    stats = normalize.init((3,))
    assert stats["count"].dtype is torch.int64
    assert torch.equal(normalize.variance(stats), torch.ones(3, dtype=F64))
    assert torch.equal(normalize.variance(stats, ddof=1), torch.ones(3, dtype=F64))
    x = draw(1, 5, 3).clamp(-5.0, 5.0)
    close(normalize.apply(stats, x, epsilon=0.0), x)


def test_one_observation_is_normalized_to_zero_whatever_ddof() -> None:
    stats = normalize.update(normalize.init((2,)), draw(1, 1, 2))
    for ddof in (0, 1):
        assert torch.equal(
            normalize.apply(stats, draw(1, 1, 2), ddof=ddof), torch.zeros(1, 2, dtype=F64)
        )


def test_a_prior_weighs_as_observations_of_mean_0_and_variance_1() -> None:
    # as if n0 observations had been seen: mean Σx/(n0+n), second moment (n0 + Σx²)/(n0+n)
    prior, x = 1e-4, torch.tensor([2.0, 4.0], dtype=F64)
    stats = normalize.update(normalize.init((), prior_count=prior), x)
    n = prior + 2
    mean = x.sum() / n
    assert float(stats["count"]) == n
    close(stats["mean"], mean)
    close(normalize.variance(stats), (prior + x.square().sum()) / n - mean.square())


def test_ddof_1_is_the_unbiased_variance() -> None:
    rows = draw(1, 7, 2)
    stats = normalize.update(normalize.init((2,)), rows)
    close(normalize.variance(stats, ddof=1), rows.var(0, correction=1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_narrow_inputs_are_summed_in_float64(dtype: torch.dtype) -> None:
    # 4097 values of a spread of 1 around 200: sums in a half precision would lose the spread
    rows = (200.0 + draw(1, 4097)).to(dtype)
    known(normalize.update(normalize.init(()), rows), rows)


def test_a_large_mean_costs_no_digits_of_the_variance() -> None:
    rows = 1e6 + draw(1, 1000)
    stats = normalize.init(())
    for batch in rows.split(10):
        stats = normalize.update(stats, batch)
    known(stats, rows, rtol=1e-9)  # 1e6 · 2⁻⁵³ relative to a spread of 1


def test_statistics_can_be_kept_in_float32() -> None:
    stats = normalize.update(normalize.init((2,), dtype=torch.float32), draw(1, 8, 2))
    assert stats["mean"].dtype is torch.float32
    known(tree.map(lambda leaf: leaf.double(), stats), draw(1, 8, 2), rtol=1e-6)


# apply


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, F64])
def test_apply_is_the_standard_score_rounded_once(dtype: torch.dtype) -> None:
    stats = normalize.update(normalize.init((2,)), 5.0 + 3.0 * draw(1, 50, 2))
    x = (5.0 + 3.0 * draw(2, 7, 4, 2)).to(dtype)
    score = (x.to(F64) - stats["mean"]) / (normalize.variance(stats) + 1e-8).sqrt()
    result = normalize.apply(stats, x)
    assert result.dtype is dtype
    assert torch.equal(result, score.to(dtype))


def test_apply_clips_centers_and_softens_as_asked() -> None:
    stats = normalize.update(normalize.init(()), torch.tensor([1.0, 3.0]))  # mean 2, variance 1
    x = torch.tensor([2.0, 4.0, 102.0], dtype=F64)
    close(normalize.apply(stats, x, epsilon=0.0), torch.tensor([0.0, 2.0, 10.0], dtype=F64))
    close(
        normalize.apply(stats, x, epsilon=0.0, clip=None),
        torch.tensor([0.0, 2.0, 100.0], dtype=F64),
    )
    close(
        normalize.apply(stats, x, epsilon=3.0, clip=torch.tensor(5.0), center=False),
        torch.tensor([1.0, 2.0, 5.0], dtype=F64),
    )


def test_apply_leaves_statistics_alone_and_shows_nan() -> None:
    stats = normalize.update(normalize.init(()), draw(1, 5))
    before = tree.clone(stats)
    assert normalize.apply(stats, torch.tensor([torch.nan])).isnan().all()
    normalize.update(stats, draw(2, 5))
    assert tree.equal(stats, before)


def test_shapes_that_do_not_fit_are_named() -> None:
    stats = normalize.init((3,))
    with pytest.raises(ShapeError, match=r"batch has shape \[4, 2\], expected \[\.\.\., 3\]"):
        normalize.update(stats, torch.zeros(4, 2))
    with pytest.raises(ShapeError, match=r"x has shape \[2\]"):
        normalize.apply(stats, torch.zeros(2))
    with pytest.raises(ShapeError, match=r"mask has shape \[4, 1\], expected \[4\]"):
        normalize.update(stats, torch.zeros(4, 3), mask=torch.ones(4, 1, dtype=torch.bool))
    with pytest.raises(ShapeError, match="mask has dtype"):
        normalize.update(stats, torch.zeros(4, 3), mask=torch.ones(4))
    with pytest.raises(ShapeError, match="x has dtype"):
        normalize.apply(stats, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ShapeError, match="second has shape"):
        normalize.merge(stats, normalize.init((2,)))
    with pytest.raises(ConfigError, match=r"prior_count is -1\.0"):
        normalize.init((3,), prior_count=-1.0)


def test_cumulative_statistics_are_those_of_one_update_after_the_other() -> None:
    batch = 50.0 + draw(1, 6, 4, 2)
    batch[2, 1, 0] = torch.nan
    mask = torch.ones(6, 4, dtype=torch.bool)
    mask[3], mask[5, 2] = False, False
    for stats in (
        normalize.init((2,)),
        normalize.init((2,), prior_count=0.5),
        normalize.update(normalize.init((2,)), draw(2, 9, 2)),
    ):
        each = normalize.cumulative(stats, batch, mask=mask)
        for t in range(6):
            stats = normalize.update(stats, batch[t], mask=mask[t])
            for name in stats:
                close(each[name][t], stats[name])
        assert each["count"].dtype is stats["count"].dtype


def test_a_population_has_statistics_of_its_members() -> None:
    batch, mask = draw(1, 3, 8, 2, dtype=torch.float32), draw(2, 3, 8) > 0.0
    stats = tree.stack([normalize.init((2,))] * 3)
    stats = torch.vmap(lambda s, b, m: normalize.update(s, b, mask=m))(stats, batch, mask)
    x = torch.vmap(normalize.apply)(stats, batch)
    assert x.dtype is torch.float32
    for m in range(3):
        solo = normalize.update(normalize.init((2,)), batch[m], mask=mask[m])
        for name in solo:
            close(stats[name][m], solo[name])
        close(x[m], normalize.apply(solo, batch[m]), rtol=1e-6)


# Rewards.


def flags(*rows: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def test_the_last_reward_of_an_episode_belongs_to_it() -> None:
    returns, last = normalize.discounted_return(
        torch.zeros((), dtype=F64), torch.ones(4), flags(0, 1, 0, 0), 0.5
    )
    assert returns.tolist() == [1.0, 1.5, 1.0, 1.5]
    assert float(last) == 1.5


def test_a_rollout_of_returns_equals_the_steps_and_resumes_anywhere() -> None:
    reward, done = draw(1, 40, 3), draw(2, 40, 3) > 1.0
    mask, gamma = draw(3, 40, 3) > -1.0, torch.tensor(0.97, dtype=F64)
    reward = torch.where(mask, reward, torch.nan)
    reward[7, 1] = torch.inf
    running, before = torch.zeros(3, dtype=F64), torch.zeros(3, dtype=torch.bool)
    steps = []
    for t in range(40):
        running = normalize.discounted_return_step(running, reward[t], before, gamma, mask=mask[t])
        before = done[t] & mask[t]
        steps.append(running)
    whole, last = normalize.discounted_return(
        torch.zeros(3, dtype=F64), reward, done, gamma, mask=mask
    )
    close(whole, torch.stack(steps))
    close(last, torch.where(before, 0.0, running))
    part, middle = normalize.discounted_return(
        torch.zeros(3, dtype=F64), reward[:17], done[:17], gamma, mask=mask[:17]
    )
    rest, end = normalize.discounted_return(middle, reward[17:], done[17:], gamma, mask=mask[17:])
    close(torch.cat([part, rest]), whole)
    close(end, last)


def test_a_dummy_row_enters_neither_the_return_nor_the_statistics() -> None:
    reward, done = torch.tensor([2.0, -1.0, torch.nan, 0.5, 1.0]), flags(0, 1, 1, 0, 0)
    mask = flags(1, 1, 0, 1, 1)
    real, _ = normalize.discounted_return(torch.zeros((), dtype=F64), reward[mask], done[mask], 0.5)
    for update in ("step", "rollout"):
        _, stats = normalize.scale_rollout(
            normalize.init_return(1),
            reward[:, None],
            done[:, None],
            0.5,
            mask=mask[:, None],
            update=update,
        )
        known(stats, real)


def sb3_scaling(reward: Tensor, done: Tensor, gamma: float) -> Tensor:
    """Return scaled rewards as a loop over everything seen so far, for each row anew."""
    running, seen, scaled = torch.zeros(reward.shape[1], dtype=F64), [], []
    for r, d in zip(reward, done, strict=True):
        running = running * gamma + r
        seen.append(running)
        sigma = (torch.stack(seen).var(correction=0) + 1e-8).sqrt()
        scaled.append((r / sigma).clamp(-10.0, 10.0))
        running = torch.where(d, 0.0, running)
    return torch.stack(scaled)


def test_by_step_each_reward_is_scaled_by_what_is_known_with_it() -> None:
    reward, done = 3.0 * draw(1, 30, 4), draw(2, 30, 4) > 1.0
    expected = sb3_scaling(reward, done, 0.9)
    scaled, stats = normalize.scale_rollout(normalize.init_return(4), reward, done, 0.9)
    close(scaled, expected)
    first, middle = normalize.scale_rollout(normalize.init_return(4), reward[:11], done[:11], 0.9)
    second, end = normalize.scale_rollout(middle, reward[11:], done[11:], 0.9)
    close(torch.cat([first, second]), expected)
    for name in stats:
        close(end[name], stats[name])


def test_by_rollout_rewards_are_scaled_by_what_was_known_before() -> None:
    reward, done = 3.0 * draw(1, 30, 4), draw(2, 30, 4) > 1.0
    start = normalize.init_return(4)
    _, stats = normalize.scale_rollout(start, reward, done, 0.9, update="rollout")
    again, _ = normalize.scale_rollout(stats, reward, done, 0.9, update="rollout")
    close(again, normalize.scale_reward(stats, reward))
    _, by_step = normalize.scale_rollout(start, reward, done, 0.9)
    for name in stats:
        close(stats[name], by_step[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("update", ["step", "rollout"])
def test_scaled_rewards_keep_their_dtype_and_nan_stays_visible(
    dtype: torch.dtype, update: Literal["step", "rollout"]
) -> None:
    reward, done = draw(1, 5, 2, dtype=dtype), torch.zeros(5, 2, dtype=torch.bool)
    reward[1, 0] = torch.nan
    scaled, stats = normalize.scale_rollout(
        normalize.init_return(2), reward, done, 0.9, update=update
    )
    assert scaled.dtype is dtype
    assert scaled.isnan().sum() == 1
    assert all(leaf.isfinite().all() for leaf in stats.values())
    assert stats["mean"].dtype is F64
    assert int(stats["count"]) == 9


def test_integer_rewards_are_scaled_as_the_numbers_that_they_are() -> None:
    reward, done = torch.tensor([[1], [2], [3], [4]]), torch.zeros(4, 1, dtype=torch.bool)
    found, _ = normalize.scale_rollout(normalize.init_return(1), reward, done, 0.9)
    expected, _ = normalize.scale_rollout(normalize.init_return(1), reward.float(), done, 0.9)
    assert torch.equal(found, expected)


def test_members_scale_rewards_as_they_would_alone() -> None:
    reward, done = draw(1, 3, 10, 4, dtype=torch.float32), draw(2, 3, 10, 4) > 1.0
    gammas = torch.tensor([0.0, 0.9, 1.0], dtype=F64)
    stats = tree.stack([normalize.init_return(4)] * 3)
    scaled, after = torch.vmap(normalize.scale_rollout)(stats, reward, done, gammas)
    for m in range(3):
        solo, solo_after = normalize.scale_rollout(
            normalize.init_return(4), reward[m], done[m], float(gammas[m])
        )
        close(scaled[m], solo, rtol=1e-6)
        for name in solo_after:
            close(after[name][m], solo_after[name])


def test_wrong_reward_arguments_are_refused() -> None:
    reward, done = torch.ones(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"done has shape \[3\], expected \[3, 2\] as reward"):
        normalize.discounted_return(torch.zeros(2), reward, done[:, 0], 0.9)
    with pytest.raises(ShapeError, match=r"running has shape \[3\], expected \[2\]"):
        normalize.discounted_return(torch.zeros(3), reward, done, 0.9)
    with pytest.raises(ShapeError, match="done_before has dtype"):
        normalize.discounted_return_step(reward[0], reward[0], reward[0], 0.9)
    with pytest.raises(ConfigError, match="update is 'steps'; did you mean step"):
        normalize.scale_rollout(normalize.init_return(2), reward, done, 0.9, update="steps")
