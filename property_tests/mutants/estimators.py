"""Mutants of the estimators: the mistakes that the conformance kit ships, and who sees them."""

from __future__ import annotations

from property_tests.mutants.gallery import Mutant

from purerl.conformance import mistakes

LAWS, MORE = "test_estimator_laws", "test_estimator_identities"
LAW_1 = f"{LAWS}::test_law_1_gae_is_the_discounted_sum_of_the_errors_before_the_cut"
LAW_2 = f"{LAWS}::test_law_2_without_a_trace_the_advantage_is_the_error"
LAW_3 = f"{LAWS}::test_law_3_a_full_trace_is_the_return_with_its_bootstrap"
LAW_4 = f"{MORE}::test_law_4_a_window_splits_at_a_done"
LAW_5 = f"{LAWS}::test_law_5_nothing_beyond_the_first_cut_reaches_back"
LAW_5_VTRACE = f"{MORE}::test_law_5_vtrace_reads_nothing_beyond_a_cut"
LAW_7 = f"{LAWS}::test_law_7_a_truncation_is_a_termination_that_pays_out_its_bootstrap"
LAW_12 = f"{MORE}::test_law_12_gae_is_a_mixture_of_n_step_advantages"
LAW_13 = f"{MORE}::test_law_13_n_steps_are_one_step_and_then_fewer"
LAW_13_ENDS = f"{MORE}::test_law_13_the_ends_of_n_step"
LAW_13_MERGED = f"{MORE}::test_law_13_merged_transitions_bootstrap_to_the_same_return"
LAW_14 = f"{MORE}::test_law_14_vtrace_on_policy_has_the_advantage_of_its_own_target"
LAW_15 = f"{MORE}::test_law_15_without_clips_the_products_of_ratios_weigh_the_errors"
LAW_16 = f"{MORE}::test_law_16_every_kind_of_number_and_every_time_axis_gives_one_answer"
ROLLING = f"{MORE}::test_each_row_is_discounted_by_its_own_numbers"
LAMBDA = f"{LAWS}::test_td_lambda_is_gae_plus_value_where_the_values_agree"

_GAE_KILLERS: dict[str, tuple[str, ...]] = {
    "M01": (LAW_1, LAW_3, LAW_7),
    "M02": (ROLLING, LAW_16),
    "M03": (LAW_4, LAW_5),
    "M05": (LAW_5, LAW_7),
    "M06": (LAW_1, LAW_4),
    "M07": (LAW_1, LAW_5, LAW_7),
    "M08": (LAW_5, LAW_7),
    "M09": (LAW_1, LAW_3),
    "M09b": (LAW_1, LAW_2),
    "M10": (LAW_1, LAW_12),
    "M11": (LAW_1, LAW_2),
    "M12": (ROLLING,),
}
_OTHERS = {
    "td_lambda": (mistakes.TD_LAMBDA, {"M04": (LAMBDA,), "M03": (LAMBDA, LAW_4)}),
    "n_step": (
        mistakes.N_STEP,
        {
            "M15": (LAW_13, LAW_4),
            "M16": (LAW_13, LAW_13_ENDS, LAW_13_MERGED),
            "M01": (LAW_13, LAW_13_ENDS),
        },
    ),
    "reward_to_go": (mistakes.REWARD_TO_GO, {"M17": (LAW_4,)}),
    "vtrace": (
        mistakes.VTRACE,
        {"M13": (LAW_14, LAW_5_VTRACE), "M14": (LAW_15,), "M01": (LAW_15,)},
    ),
}
MUTANTS = tuple(
    Mutant(m.identifier, m.sentence, "returns.gae", m.function, _GAE_KILLERS[m.identifier])
    for m in mistakes.GAE
) + tuple(
    Mutant(m.identifier, m.sentence, f"returns.{name}", m.function, killers[m.identifier])
    for name, (group, killers) in _OTHERS.items()
    for m in group
)
