"""Mutants of distributions, optimizers, statistics, schedules and keys."""

from __future__ import annotations

from typing import Any

import torch
from property_tests.mutants.gallery import Mutant
from torch import Tensor

from purerl import distributions, normalize, optim, random, rollout, tree
from purerl.conformance import mistakes

DENSITY, OPTIM = "test_distribution_laws", "test_optimizer_laws"
MASS = f"{DENSITY}::test_law_31_the_mass_of_an_interval"
CHANGE = f"{DENSITY}::test_law_31_the_log_prob_is_the_change_of_variables"
FINITE = f"{DENSITY}::test_law_32_finite_in_float32_wherever_the_tanh_saturates"
CATEGORICAL = f"{DENSITY}::test_law_25_categorical_entropy_and_divergence"
NORMAL = f"{DENSITY}::test_law_25_normal_divergence_and_entropy"
FORBIDDEN = f"{DENSITY}::test_law_33_a_forbidden_action_is_never_drawn"
ADAM = f"{OPTIM}::test_law_37_adam_is_its_algorithm"
LATE = f"{OPTIM}::test_law_37_late_steps_are_counted"
CLIP = f"{OPTIM}::test_law_37_clipping_by_the_global_norm"
SKIP = f"{OPTIM}::test_law_37_an_update_that_is_not_finite_is_skipped"
SCHEDULE = f"{OPTIM}::test_schedules_are_their_closed_forms"
POLYAK = "test_critic_laws::test_law_29_polyak"
PERIODIC = "test_critic_laws::test_law_29_a_periodic_copy_happens_at_every_nth_call"
KEYS = "test_random_laws::test_law_38_children_are_distinct"
ORDERS = "test_random_laws::test_law_38_a_permutation_is_one"
BITS = "test_random_laws::test_law_38_same_key_same_bits_and_members_of_a_batch_are_alone[normal]"
STATISTICS = "test_state_machines::TestRunningStatistics"
DISCOUNTED = "test_state_machines::TestDiscountedReturn"
EPISODES = "test_state_machines::TestEpisodes"

_DENSITY_KILLERS = {
    "M36": (FINITE,),
    "M36b": (CHANGE, MASS),
    "M37": (MASS,),
    "M37b": (CHANGE,),
    "M38": (CHANGE,),
}


def _averaged(x: Tensor, num_event_dims: int = 1) -> Tensor:
    return x.mean(-1)


def _illegal_too(logits: Tensor, mask: Any = None) -> Tensor:
    return distributions.categorical_entropy(logits)


def _draws_anything(key: Tensor, logits: Tensor, mask: Any = None) -> Tensor:
    return distributions.categorical_sample(key, logits)


def _adam(rule: str) -> Any:
    def adam(learning_rate: Any, *, epsilon: float = 1e-8) -> optim.Optimizer:
        def init(params: Any) -> Any:
            zeros = tree.map(torch.zeros_like, params)
            return {"count": torch.tensor(0), "first_moment": zeros, "second_moment": zeros}

        def update(gradient: Any, state: Any, params: Any, **options: Any) -> Any:
            rate = options.get("learning_rate", learning_rate)
            count = state["count"] + 1
            if rule == "float32 count":
                count = (state["count"].float() + 1).long()
            m = tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["first_moment"], gradient)
            v = tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, state["second_moment"], gradient)
            first, second = (
                (1.0, 1.0)
                if rule == "no correction"
                else (1 - 0.9 ** count.double(), 1 - 0.999 ** count.double())
            )

            def moved(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
                if rule == "root":
                    return p - rate * (a / first) / (b / second + epsilon).sqrt()
                return p - rate * (a / first) / ((b / second).sqrt() + epsilon)

            new = tree.map(moved, params, m, v)
            return new, {"count": count, "first_moment": m, "second_moment": v}

        return optim.Optimizer(init, update, ("learning_rate",), False)

    return adam


def _transform(rule: Any) -> Any:
    def clip(max_norm: float, **options: Any) -> optim.Optimizer:
        def update(gradient: Any, state: Any, params: Any) -> Any:
            return tree.map(lambda g: rule(g, max_norm), gradient), state

        return optim.Optimizer(lambda params: {}, update, (), True)

    return clip


def _by_its_own_norm(g: Tensor, limit: float) -> Tensor:
    return g * (limit / g.norm().clamp(min=1e-30)).clamp(max=1.0)


def _never_skips(inner: optim.Optimizer) -> optim.Optimizer:
    def init(params: Any) -> Any:
        return {"nonfinite": torch.tensor(0), "inner": inner.init(params)}

    def update(gradient: Any, state: Any, params: Any, **options: Any) -> Any:
        new, after = inner.update(gradient, state["inner"], params)
        return new, {"nonfinite": state["nonfinite"], "inner": after}

    return optim.Optimizer(init, update, (), False)


def _advanced(start: Any, end: Any, num_steps: Any, *, offset: int = 0) -> Any:
    return optim.linear(start, end, num_steps, offset=offset + 1)


def _endless(start: Any, end: Any, num_steps: Any, *, offset: int = 0) -> Any:
    return lambda step: torch.as_tensor(
        start + (end - start) * (step.double() + offset) / num_steps
    )


def _reversed_tau(target: Any, online: Any, tau: float, **options: Any) -> Any:
    return optim.polyak(target, online, 1.0 - tau, **options)


def _without_buffers(target: Any, online: Any, tau: float, **options: Any) -> Any:
    return optim.polyak(target, online, tau, buffers="keep")


def _one_late(target: Any, online: Any, step: Any, period: Any) -> Any:
    return optim.periodic_update(target, online, step, period + 1)


def _padding_counts(stats: Any, batch: Tensor, *, mask: Any = None) -> Any:
    return normalize.update(stats, batch.nan_to_num(nan=0.0))


def _dummy_counts(running: Any, reward: Tensor, done: Any, gamma: Any, *, mask: Any = None) -> Any:
    return normalize.discounted_return(running, reward.nan_to_num(nan=0.0), done, gamma)


def _no_restart(running: Any, reward: Tensor, done: Any, gamma: Any, *, mask: Any = None) -> Any:
    return normalize.discounted_return(running, reward, torch.zeros_like(done), gamma, mask=mask)


def _resets_count(episode: Any, reward: Tensor, done: Any, mask: Any = None) -> Any:
    return rollout.episode_update(episode, reward.nan_to_num(nan=0.0), done)


def _constant_key(key: Tensor, num: int = 2) -> Tensor:
    return random.split(random.key(0), num)


def _one_child(key: Tensor, num: int = 2) -> Tensor:
    return random.split(key, 1).expand(num, 2)


def _global_normal(key: Tensor, shape: Any = (), **options: Any) -> Tensor:
    return torch.randn(shape)


def _same_order(key: Tensor, x: Any, **options: Any) -> Tensor:
    return torch.arange(x)


MUTANTS = tuple(
    Mutant(
        m.identifier,
        m.sentence,
        "distributions.tanh_normal_log_prob",
        m.function,
        _DENSITY_KILLERS[m.identifier],
    )
    for m in mistakes.TANH_NORMAL_LOG_PROB
) + tuple(
    Mutant(identifier, sentence, target, function, killers)
    for identifier, sentence, target, function, killers in (
        ("M30b", "averaged over dimensions", "distributions.independent", _averaged, (NORMAL,)),
        (
            "M30c",
            "entropy over illegal actions",
            "distributions.categorical_entropy",
            _illegal_too,
            (CATEGORICAL,),
        ),
        (
            "M30d",
            "the mask of actions is ignored",
            "distributions.categorical_sample",
            _draws_anything,
            (FORBIDDEN,),
        ),
        ("M51", "epsilon under the root", "optim.adam", _adam("root"), (ADAM,)),
        ("M51b", "no bias correction", "optim.adam", _adam("no correction"), (ADAM,)),
        ("M51c", "the count is a float32", "optim.adam", _adam("float32 count"), (LATE,)),
        (
            "M52",
            "every tensor is clipped by its own norm",
            "optim.clip_by_global_norm",
            _transform(_by_its_own_norm),
            (CLIP,),
        ),
        (
            "M52b",
            "every element is clipped",
            "optim.clip_by_global_norm",
            _transform(lambda g, limit: g.clamp(-limit, limit)),
            (CLIP,),
        ),
        ("M52c", "NaN reaches the parameters", "optim.skip_nonfinite", _never_skips, (SKIP,)),
        ("M54", "the schedule advances before the update", "optim.linear", _advanced, (SCHEDULE,)),
        ("M54b", "the rate becomes negative", "optim.linear", _endless, (SCHEDULE,)),
        ("M43", "tau is reversed", "optim.polyak", _reversed_tau, (POLYAK,)),
        ("M43b", "buffers are skipped", "optim.polyak", _without_buffers, (POLYAK,)),
        ("M43c", "the period is N + 1", "optim.periodic_update", _one_late, (PERIODIC,)),
        (
            "M50",
            "masked rows enter the statistics",
            "normalize.update",
            _padding_counts,
            (STATISTICS,),
        ),
        (
            "M49",
            "the dummy reward of a reset is counted",
            "normalize.discounted_return",
            _dummy_counts,
            (DISCOUNTED,),
        ),
        (
            "M49b",
            "the return is not restarted at an end",
            "normalize.discounted_return",
            _no_restart,
            (DISCOUNTED,),
        ),
        (
            "M49c",
            "reset rows count in the episode",
            "rollout.episode_update",
            _resets_count,
            (EPISODES,),
        ),
        ("M53", "one key for all seeds", "random.split", _constant_key, (KEYS,)),
        ("M53b", "a key is used twice", "random.split", _one_child, (KEYS,)),
        ("M53c", "every epoch has the same order", "random.permutation", _same_order, (ORDERS,)),
        ("M53d", "draws from the global generator", "random.normal", _global_normal, (BITS,)),
    )
)
