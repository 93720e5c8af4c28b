"""Small cases of what the file's words allow and none of its cases has, answered by hand.

Each entry is an area, what the case shows, its inputs and its answer, in the form of the file.
"""

from __future__ import annotations

import math
from typing import Any

LOG_2 = math.log(2.0)

DERIVED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "gae",
        "one discount a step serves every trajectory; an invalid row ends the row before it",
        {
            "reward": [[1.0, 1.0], [1.0, 1.0]],
            "value": [[0.0, 0.0], [0.0, 0.0]],
            "next_value": [[2.0, 4.0], [2.0, 4.0]],
            "valid": [[1, 1], [1, 0]],
            "gamma": [0.5, 0.25],
            "lmbda": [0.5, 0.0],
        },
        # δ = 1 + ½·2 = 2 and 1 + ¼·4 = 2; the first A is 2 + ½·½·2 where the row behind is valid
        {"advantage": [[2.5, 2.0], [2.0, 0.0]]},
    ),
    (
        "gae",
        "what is known to be done but not truncated has no value beyond it",
        {
            "reward": [1.0, 1.0],
            "value": [0.0, 0.0],
            "next_value": [8.0, 8.0],
            "done": [1, 1],
            "truncated": [0, 1],
            "gamma": 0.5,
            "lmbda": 0.5,
        },
        {"advantage": [1.0, 5.0]},
    ),
    (
        "vtrace",
        "no threshold, and parts of an action on the last axis: ρ = ½·4 = 2",
        {
            "reward": [1.0],
            "value": [1.0],
            "next_value": [4.0],
            "gamma": 0.5,
            "log_prob": [[-LOG_2, 2 * LOG_2]],
            "old_log_prob": [[0.0, 0.0]],
            "rho_clip": "inf",
            "c_clip": "inf",
        },
        # ρ (r + γ v' − v) = 2 · (1 + 2 − 1)
        {"vs": [5.0], "advantage": [4.0], "ratio": [2.0]},
    ),
    (
        "reinforce",
        "one baseline for all rows, and returns that are given",
        {"log_prob": [-1.0, -2.0], "return": [3.0, 5.0], "baseline": 1.0},
        # −½(−1·2 − 2·4)
        {"loss_policy": 5.0, "loss_per_sample": [2.0, 8.0], "grad_log_prob": [-1.0, -2.0]},
    ),
    (
        "ppo_loss",
        "another bound on each side: ratio 2 meets 1 + ½, ratio ½ meets 1 − ¼",
        {
            "log_prob": [LOG_2, -LOG_2],
            "old_log_prob": [0.0, 0.0],
            "advantage": [1.0, -1.0],
            "clip_epsilon": [0.25, 0.5],
        },
        {"loss_per_sample": [-1.5, 0.75], "loss_per_sample_shape": [2], "loss_policy": -0.375},
    ),
    (
        "ppo_loss",
        "rows that do not count reach neither loss nor gradient, NaN or not",
        {
            "log_prob": [0.0, "nan"],
            "old_log_prob": [0.0, 0.0],
            "advantage": [2.0, "nan"],
            "mask": [1, 0],
        },
        {"loss_policy": -2.0, "grad_log_prob": [-2.0, 0.0]},
    ),
    (
        "ppo_loss",
        "a batch of policies has the mean of their entropies, ½ log 2πe + log σ each",
        {"scale": [[1.0], [4.0]], "entropy_coef": 2.0},
        {
            "entropy": 0.5 * math.log(2 * math.pi * math.e) + LOG_2,
            "loss_entropy": -math.log(2 * math.pi * math.e) - 2 * LOG_2,
            "grad_log_scale": [[-1.0], [-1.0]],
        },
    ),
    (
        "ppo_metrics",
        "ratios 1 and 3: 16 / 10 / 2 of the sample are in effect, one of two is clipped",
        {"log_prob": [0.0, math.log(3.0)], "old_log_prob": [0.0, 0.0], "clip_epsilon": 0.5},
        {"ess_fraction": 0.8, "clip_fraction": 0.5, "approx_kl_k1": -0.5 * math.log(3.0)},
    ),
    (
        "a2c",
        "the total weighs its parts: 1 + ½ · 4 − ¼ · 2",
        {
            "log_prob": [-0.5],
            "value": [0.0],
            "value_target": [2.0],
            "entropy": 2.0,
            "value_coef": 0.5,
            "entropy_coef": 0.25,
        },
        {"loss_policy": 1.0, "loss_value": 4.0, "loss_total": 2.5},
    ),
    (
        "metrics",
        "what is logged is the mean over the records that have it",
        {"records": [{"a": 1.0, "b": 2.0}, {"a": 3.0}]},
        {"logged": {"a": 2.0, "b": 2.0}},
    ),
    (
        "masked_reduction",
        "nothing valid is 0, and nothing invalid is looked at",
        {"x": ["nan", "inf"], "mask": [0, 0]},
        {"masked_mean": 0.0},
    ),
    (
        "sac_target",
        "rows of n steps bootstrap with γⁿ; the critics' losses add up without a factor ½",
        {
            "reward": [1.0, 1.0],
            "terminated": [0, 0],
            "gamma": 0.5,
            "steps": [1, 3],
            "alpha": 1.0,
            "next_q1": [7.0, 7.0],
            "next_q2": [9.0, 9.0],
            "next_log_prob": [-1.0, -1.0],
            "q1": [5.0, 2.0],
            "q2": [4.0, 4.0],
        },
        # 1 + ½ · 8 and 1 + ⅛ · 8; ½(0 + 0) + ½(1 + 4)
        {"target": [5.0, 2.0], "loss_q": 2.5},
    ),
    (
        "sac_alpha",
        "the automatic target of a shape serves the loss: m = mean(−1, 3) − 6",
        {"action_shape": [2, 3], "log_alpha": 0.5, "log_prob": [[-1.0, 0.0], [1.0, 2.0]]},
        {"target_entropy": -6.0, "loss_log_form": 2.5, "grad_log_alpha_log_form": 5.0},
    ),
    (
        "discrete_sac",
        "an even policy over 2 of 4: m = −log 2 + ½ log 4 = 0",
        {
            "probs": [[0.5, 0.5, 0.0, 0.0]],
            "n": 4,
            "weight": 0.5,
            "log_alpha": 1.0,
        },
        {"target_entropy": LOG_2, "loss_log_form": 0.0, "loss_alpha_form": 0.0},
    ),
    (
        "redq",
        "every member learns, drawn or not",
        {
            "reward": [1.0],
            "terminated": [0],
            "gamma": 0.5,
            "alpha": 0.0,
            "next_q": [[4.0], [2.0], [0.0]],
            "subset": [0, 1],
            "next_log_prob": [-1.0],
            "q": [[2.0], [3.0], [0.0]],
            "log_prob": [1.0],
        },
        # (2 − 2)² + (3 − 2)² + (0 − 2)²; the actor takes the mean of all
        {"target": [2.0], "loss_q": 5.0, "loss_policy": -5.0 / 3.0},
    ),
    (
        "td3",
        "an actor's clock runs through calls of different length: 7 steps, every third",
        {"gradient_steps_per_call": [2, 0, 4, 1], "policy_delay": 3},
        {"actor_updates": 2},
    ),
    (
        "dqn",
        "neither network may choose what is forbidden",
        {
            "reward": [0.0, 0.0],
            "terminated": [0, 0],
            "gamma": 0.5,
            "next_q_target": [[8.0, 4.0], [8.0, 4.0]],
            "next_q_online": [[1.0, 0.0], [1.0, 0.0]],
            "next_action_mask": [[1, 1], [0, 1]],
            "double_dqn": 1,
        },
        {"target": [4.0, 2.0]},
    ),
    (
        "cql",
        "densities of 2^−½, values of 0, T = 2 and w = 3: 3(2 log(2 · 2^½) − 1)",
        {
            "q_random": [[0.0]],
            "random_log_prob": [[-LOG_2 / 2]],
            "q_policy": [[0.0]],
            "policy_log_prob": [[-LOG_2 / 2]],
            "q_data": [1.0],
            "temperature": 2.0,
            "min_q_weight": 3.0,
        },
        # log(2 · 2^½) = 1.5 log 2, half of it from each sample
        {"cql_gap": 3.0 * (3.0 * LOG_2 - 1.0), "grad_q_data": [-3.0], "grad_q_random": [[1.5]]},
    ),
    (
        "iql",
        "weights without an actor at hand, and targets of n steps",
        {
            "q1": [1.0],
            "q2": [2.0],
            "value": [1.0],
            "beta": 3.0,
            "reward": [1.0],
            "next_value": [8.0],
            "terminated": [0],
            "gamma": 0.5,
            "steps": [2],
        },
        {"actor_weight": [1.0], "target": [3.0]},
    ),
    (
        "distribution_tanh_normal",
        "a location for each action of a batch",
        {"loc": [0.0, 1.0], "scale": [1.0, 1.0], "pre_tanh": [0.0, 1.0]},
        {"base_log_prob": [-0.5 * math.log(2 * math.pi)] * 2, "mode": [0.0, math.tanh(1.0)]},
    ),
    (
        "distribution_normal",
        "a policy a row: each row has its own entropy and divergence",
        {
            "loc": [[0.0], [1.0]],
            "scale": [[1.0], [1.0]],
            "old_loc": [[0.0], [0.0]],
            "old_scale": [[1.0], [1.0]],
            "action": [[0.0], [1.0]],
        },
        {"kl": [0.0, 0.5], "log_prob": [-0.5 * math.log(2 * math.pi)] * 2},
    ),
    (
        "distribution_categorical",
        "a divergence is infinite where the second forbids what the first does",
        {"probs": [0.5, 0.5], "other_probs": [1.0, 0.0], "action": 0},
        {"kl": "inf", "log_prob": -LOG_2},
    ),
    (
        "optimizer",
        "Adam's first step is as long as the rate, and a gradient of zero still moves the weight",
        # bias-corrected in the second step: m = 0.09/0.19 g, v = 0.000999/0.001999 g²
        {"weight": 1.0, "gradients": [4.0, 0.0], "lr": 0.5, "adam_eps": 0.0},
        {"weight_path": [0.5, 0.5 - 0.5 * (0.09 / 0.19) / math.sqrt(0.000999 / 0.001999)]},
    ),
    (
        "schedule",
        "a rate is adapted to what the update before it measured",
        {"lr": 1e-3, "kl": [0.05, 0.001, 0.01, 0.05], "target_kl": 0.01},
        {"lr_per_update": [1e-3, 1e-3 / 1.5, 1e-3, 1e-3]},
    ),
    (
        "schedule",
        "past the end nothing turns negative",
        {"lr": 1.0, "num_updates": 2, "optimizer_step": [5, 6, 7], "epochs": 3, "minibatches": 1},
        {"lr_at_step": [0.5, 0.0, 0.0]},
    ),
    (
        "normalizer",
        "vectors, one of which is no observation",
        {"reset_observation": [1.0, 0.0], "observation": [[3.0, 4.0], [9.0, 9.0]], "mask": [1, 0]},
        {"mean": [2.0, 2.0], "var": [1.0, 4.0], "count": 2},
    ),
    (
        "normalizer",
        "an empty batch changes nothing",
        {"batches": [[], [1.0, 3.0], []]},
        {"mean_after": [0.0, 2.0, 2.0], "var_after": [1.0, 1.0, 1.0], "count_after": [0, 2, 2]},
    ),
    (
        "normalizer",
        "each trajectory has a running return of its own",
        {"reward": [[1.0, 1.0], [2.0, 2.0]], "truncated": [[0, 0], [1, 0]], "gamma": 0.5},
        {"discounted_return": [[1.0, 1.5], [2.0, 2.0]], "return_mean": 1.625, "count": 4},
    ),
    (
        "polyak",
        "a hard copy at every second update, the first being number 1",
        {"target": 0.0, "source": [1.0, 2.0, 3.0, 4.0], "target_frequency": 2},
        {"target_path": [0.0, 2.0, 2.0, 4.0]},
    ),
    (
        "polyak",
        "a rate of its own for each call",
        {"target": 0.0, "source": [4.0, 4.0], "tau": [0.25, 1.0]},
        {"target_path": [1.0, 4.0]},
    ),
    (
        "autoreset",
        "a reset inside the last step wastes none, and hides no final observation",
        {"autoreset_mode": "same_step", "episode_length": 2, "num_steps": 5},
        {
            "valid": [1, 1, 1, 1, 1],
            "finished_lengths": [2, 2],
            "observation": [1.0, 0.0, 1.0, 0.0, 1.0],
            "next_observation": [1.0, 2.0, 1.0, 2.0, 1.0],
        },
    ),
    (
        "autoreset",
        "more episodes than statistics remember",
        {"autoreset_mode": "next_step", "episode_length": 1, "num_steps": 250},
        {"real_transitions": 125, "finished_lengths": [1] * 125},
    ),
    (
        "seeding",
        "a wider range stretches the draw of seeding-01 by the same factor",
        {"environment_seeds": [0], "low": -0.1, "high": 0.1},
        {"first_state": [2 * 0.0136961687321]},
    ),
    (
        "seeding",
        "no two environments of two runs share a seed, though their run seeds are neighbours",
        {"run_seeds": [0, 1]},
        {"shared_environment_seeds": 0, "distinct_initialisations": 2},
    ),
    (
        "replay_slice",
        "a full buffer is read from the cursor on, around its end, to a row that is done",
        {
            "trajectory_id": [5, 5, 4, 4, 5],
            "done": [1, 0, 0, 0, 0],
            "slice_length": 2,
            "size": 5,
            "capacity": 5,
            "cursor": 2,
        },
        # in time: 4 4 5 5 5 at 2 3 4 0 1, and position 0 is done
        {"valid_starts": [2, 4]},
    ),
    (
        "replay_slice",
        "no stretch is long enough",
        {"trajectory_id": [0, 1], "slice_length": 2, "size": 2, "capacity": 4, "cursor": 2},
        {"valid_starts": []},
    ),
    (
        "replay_ring",
        "a batch that laps the buffer leaves what one row at a time would",
        {"capacity": 3, "batches": [[0], [1, 2, 3, 4]]},
        {"storage": [3, 4, 2], "cursor": 2, "size": 3, "full": 1},
    ),
    (
        "replay_ring",
        "nothing follows the last step, whose final observation is known",
        {
            "observation": [0.0, 1.0],
            "terminated": [0, 1],
            "truncated": [0, 0],
            "final_observation": [0.0, 7.0],
        },
        {"next_observation": [1.0, 7.0]},
    ),
    (
        "replay_nstep",
        "a time limit ends the window and keeps its bootstrap",
        {
            "reward": [1.0, 1.0, 1.0],
            "terminated": [0, 0, 0],
            "truncated": [0, 1, 0],
            "gamma": 0.5,
            "n": 3,
        },
        {
            "return": [1.5, 1.0, 1.0],
            "steps": [2, 1, 1],
            "next_index": [1, 1, 2],
            "terminated": [0, 0, 0],
            "discount": [0.25, 0.5, 0.5],
        },
    ),
    (
        "replay_prioritized",
        "a row of small priority has its probability, and the largest weight",
        {"priority": [1.0, 255.0], "priority_alpha": 1.0, "importance_beta": 1.0},
        {
            "sample_probability": [1.0 / 256.0, 255.0 / 256.0],
            "importance_weight": [1.0, 1.0 / 255.0],
        },
    ),
]
