"""Mutants of the losses, their targets and their statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from property_tests.mutants.gallery import Mutant
from torch import Tensor

from purerl import losses
from purerl.conformance import mistakes

LAWS, CRITIC = "test_loss_laws", "test_critic_laws"
LAW_19 = f"{LAWS}::test_law_19_at_the_old_policy_the_gradient_is_that_of_a2c"
LAW_20 = f"{LAWS}::test_law_20_the_dead_zone"
LAW_20_JOINT = f"{LAWS}::test_law_20_an_action_of_parts_is_clipped_by_its_joint_ratio"
LAW_21 = f"{LAWS}::test_law_21_the_surrogate_is_pessimistic"
LAW_21_VALUE = f"{LAWS}::test_law_21_the_clipped_value_loss_is_never_below_the_plain_one"
LAW_23 = f"{LAWS}::test_law_23_normalised_advantages"
LAW_23_MASK = f"{LAWS}::test_law_23_masked_rows_do_not_count"
LAW_25 = f"{LAWS}::test_law_25_the_estimators_of_divergence"
LAW_25_PENALTY = f"{LAWS}::test_law_25_the_penalised_surrogate_adds_the_divergence"
LAW_26 = f"{CRITIC}::test_law_26_the_soft_target"
LAW_26_MEMBERS = f"{CRITIC}::test_law_26_equal_critics_are_one_and_more_is_more"
LAW_27 = f"{CRITIC}::test_law_27_the_temperature"
LAW_27_TARGET = f"{CRITIC}::test_law_27_the_entropy_aimed_at_counts_the_elements_of_an_action"
LAW_28 = f"{CRITIC}::test_law_28_no_gradient_leaves_its_own_network"
LAW_30 = f"{LAWS}::test_law_30_the_entropy_bonus_rewards_entropy"
NAN = f"{LAWS}::test_a_nan_that_counts_is_seen"
COLUMN = f"{CRITIC}::test_contract_a_column_beside_rows_is_refused"
EXPECTILE = f"{CRITIC}::test_the_expectile_weighs_underestimates_by_tau"
GAP = f"{CRITIC}::test_the_conservative_gap_counts_every_sample_once"
SMOOTHING = f"{CRITIC}::test_smoothing_noise_is_clipped_in_units_of_the_half_range"


def every_target(name: str) -> str:
    return f"{CRITIC}::test_laws_7_13_18_of_every_target[{name}]"


_SHIPPED: dict[str, tuple[tuple[mistakes.Mistake, ...], dict[str, tuple[str, ...]]]] = {
    "ppo_clip": (
        mistakes.PPO_CLIP,
        {
            "M19": (LAW_20, LAW_19),
            "M21": (LAW_21,),
            "M21b": (LAW_20, LAW_21),
            "M22": (LAW_20, LAW_21),
            "M23": (NAN,),
        },
    ),
    "normalize_advantage": (
        mistakes.NORMALIZE_ADVANTAGE,
        {"M18": (LAW_23_MASK,), "M24": (LAW_23,), "M25": (LAW_23_MASK,)},
    ),
    "value_loss": (mistakes.VALUE_LOSS, {"M26": (COLUMN,), "M27": (LAW_21_VALUE,)}),
    "sac_target": (
        mistakes.SAC_TARGET,
        {
            "M32": (LAW_26,),
            "M32b": (LAW_26,),
            "M32c": (LAW_26,),
            "M33": (LAW_26, LAW_26_MEMBERS),
            "M33b": (LAW_26, LAW_26_MEMBERS),
            "M08": (LAW_26,),
            "M07": (LAW_26, every_target("sac")),
            "M28": (every_target("sac"),),
        },
    ),
}


def _clip_per_head(log_prob: Any, **options: Any) -> Tensor:
    return log_prob.clamp(-0.1, 0.1).sum(-1)


def _k1_for_k3(log_ratio: Tensor, **options: Any) -> Tensor:
    return -log_ratio.mean()


def _entropy_penalty(entropy: Any, **options: Any) -> Any:
    loss, metrics = losses.entropy_bonus(entropy, **options)
    return -loss, metrics


def _against_the_new(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, kl: Tensor, **options: Any
) -> Any:
    return losses.ppo_kl_penalty(log_prob, old_log_prob, advantage, 0.0 * kl, **options)


def _wrong_way(log_alpha: Tensor, *args: Any, **options: Any) -> Any:
    loss, metrics = losses.sac_alpha(log_alpha, *args, **options)
    return -loss, metrics


def _with_the_batch(action_shape: Any) -> float:
    return -float(action_shape[0])


def _temperature_learns_too(log_prob: Tensor, q: Tensor, alpha: Any, **options: Any) -> Any:
    return (alpha * log_prob - q.amin(0)).mean(), {}


def _actor_learns_too(log_alpha: Tensor, log_prob: Tensor, target: Any, **options: Any) -> Any:
    return -log_alpha * (log_prob + target).mean(), {}


def _shared_noise(next_action: Tensor, noise: Tensor, **options: Any) -> Tensor:
    return losses.td3_smoothed_action(next_action, noise[:1].expand_as(noise), **options)


def _unscaled_noise(next_action: Tensor, noise: Tensor, **options: Any) -> Tensor:
    return losses.td3_smoothed_action(next_action, noise, noise_scale="absolute", **options)


def _one_of_three(q_data: Tensor, q_sampled: Tensor, log_prob: Tensor, **options: Any) -> Any:
    doubled = torch.cat([q_sampled, q_sampled[:, :1]], 1)
    return losses.cql_penalty(q_data, doubled, torch.cat([log_prob, log_prob[:1]]), **options)


def _divided_density(q_data: Tensor, q_sampled: Tensor, log_prob: Tensor, **options: Any) -> Any:
    return losses.cql_penalty(
        q_data, q_sampled, log_prob, temperature_scales_density=True, **options
    )


def _reversed_expectile(value: Tensor, q: Tensor, *, expectile: float, **options: Any) -> Any:
    return losses.iql_value(value, q, expectile=1.0 - expectile, **options)


def _gamma_once(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def target(*args: Any, steps: Any = None, **options: Any) -> Tensor:
        return right(*args, **options)

    return target


def _target_learns(reward: Tensor, next_q: Tensor, terminated: Tensor, **options: Any) -> Tensor:
    steps = options.get("steps", torch.ones_like(terminated, dtype=torch.int64))
    ahead = torch.where(terminated, torch.zeros_like(reward), next_q.amin(0))
    return reward + options["gamma"] ** steps * ahead


_OURS = tuple(
    Mutant(m.identifier, m.sentence, f"losses.{name}", m.function, killers[m.identifier])
    for name, (group, killers) in _SHIPPED.items()
    for m in group
)
MUTANTS = (
    *_OURS,
    Mutant(
        "M20",
        "every head is clipped by itself",
        "losses.joint_log_prob",
        _clip_per_head,
        (LAW_20_JOINT,),
    ),
    Mutant("M29", "k1 is reported as k3", "losses.approx_kl", _k1_for_k3, (LAW_25,)),
    Mutant(
        "M30", "entropy with the wrong sign", "losses.entropy_bonus", _entropy_penalty, (LAW_30,)
    ),
    Mutant(
        "M31",
        "the divergence is taken from the new policy to itself",
        "losses.ppo_kl_penalty",
        _against_the_new,
        (LAW_25_PENALTY,),
    ),
    Mutant("M34", "the temperature moves the wrong way", "losses.sac_alpha", _wrong_way, (LAW_27,)),
    Mutant(
        "M34b",
        "the entropy aimed at counts one axis of the action",
        "losses.sac_target_entropy",
        _with_the_batch,
        (LAW_27_TARGET,),
    ),
    Mutant(
        "M35",
        "the actor's loss moves the temperature",
        "losses.sac_actor",
        _temperature_learns_too,
        (LAW_28,),
    ),
    Mutant(
        "M35b",
        "the temperature's loss moves the actor",
        "losses.sac_alpha",
        _actor_learns_too,
        (LAW_28,),
    ),
    Mutant(
        "M39",
        "one noise for the whole batch",
        "losses.td3_smoothed_action",
        _shared_noise,
        (SMOOTHING,),
    ),
    Mutant(
        "M39b",
        "noise in units of the environment",
        "losses.td3_smoothed_action",
        _unscaled_noise,
        (SMOOTHING,),
    ),
    Mutant(
        "M40", "a sample counts twice in the logsumexp", "losses.cql_penalty", _one_of_three, (GAP,)
    ),
    Mutant(
        "M40b",
        "the temperature divides the densities",
        "losses.cql_penalty",
        _divided_density,
        (GAP,),
    ),
    Mutant(
        "M41", "the expectile is reversed", "losses.iql_value", _reversed_expectile, (EXPECTILE,)
    ),
    Mutant(
        "M16b",
        "merged steps are discounted by gamma once",
        "losses.td3_target",
        _gamma_once(losses.td3_target),
        (every_target("td3"),),
    ),
    Mutant(
        "M28b",
        "the target carries a gradient",
        "losses.td3_target",
        _target_learns,
        (every_target("td3"),),
    ),
)
