"""Promises of the package, and their tests.
``python -m tests.probes.promises`` writes the page of the guide.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "strands_manga_memory" / "guide" / "promises.md"

_I, _P, _U = "tests/integration", "tests/probes", "tests/unit"

GROUPS: dict[str, tuple[str, ...]] = {
    "Context window": (
        "test_the_history_keeps_to_its_budget",
        "test_what_weighs_most_stays_longest",
        "test_a_history_can_be_capped_in_turns",
        "test_a_request_is_planned_part_by_part",
        "test_at_turn_fifty_the_context_is_small",
        "test_a_real_overflow_is_answered",
        "test_one_huge_result_bricks_no_session",
        "test_compaction_begins_by_the_window",
        "test_a_pin_survives_a_restore",
        "test_what_left_the_window_is_found",
        "test_a_cached_prefix_stays_and_drops_are_explained",
        "test_instruction_files_are_merged_and_guarded",
    ),
    "Summaries": (
        "test_a_summary_comes_after_twenty_turns_or_eight_thousand_tokens",
        "test_what_a_summary_lacks_is_appended",
        "test_summaries_are_made_from_what_was_said",
        "test_a_buffer_warns_before_it_is_full",
    ),
    "Sessions": (
        "test_a_process_that_knows_nothing_goes_on",
        "test_every_block_and_state_come_back",
        "test_a_session_that_broke_in_a_tool_goes_on",
        "test_two_workers_lose_nothing",
        "test_two_devices_agree",
        "test_the_tiers_are_written_off_the_response",
        "test_turns_are_durable_with_all_that_belongs_to_them",
        "test_metadata_stand_beside_the_conversation",
        "test_a_conversation_has_statistics",
        "test_a_conversation_lives_by_its_policy",
        "test_a_disconnect_begins_a_grace",
        "test_a_human_takes_over",
        "test_a_quick_start_needs_nothing",
    ),
    "User memory": (
        "test_another_device_sees_what_was_said",
        "test_what_is_taken_back_goes",
        "test_a_profile_is_read_and_gives_way_to_what_is_said",
        "test_signals_leave_in_order_and_none_is_lost",
        "test_a_session_is_handed_off_once",
        "test_many_workers_make_one_summary",
        "test_weeks_and_months_are_rolled_up",
        "test_the_context_is_short_readable_and_read_once",
        "test_the_long_term_context_is_short",
        "test_memories_are_searched_by_similarity",
        "test_recall_filters_and_ranks",
        "test_recall_filters_by_metadata_and_counts_uses",
        "test_nothing_is_remembered_twice",
        "test_each_type_has_its_retention_and_a_producer",
        "test_what_has_expired_is_not_told",
        "test_records_are_readable_by_their_published_names",
        "test_indexes_are_read_with_plain_boto3",
    ),
    "Task state": (
        "test_the_state_has_three_layers",
        "test_each_layer_lives_as_long_as_it_should",
        "test_entities_survive_and_are_told",
        "test_entities_are_checked_replaced_and_dropped",
        "test_goals_are_archived_small_and_within_caps",
        "test_what_was_tried_is_kept_for_the_task",
        "test_a_cart_update_reaches_the_next_model_call",
        "test_a_human_gets_all_he_needs",
    ),
    "Tools": (
        "test_a_sick_tool_says_so",
        "test_a_sick_tool_is_fallen_back_from",
        "test_a_tool_that_hangs_ends",
        "test_health_goes_from_healthy_over_degraded_to_unavailable",
    ),
    "Privacy and deletion": (
        "test_a_user_is_exported_and_forgotten",
        "test_a_redaction_of_the_log_reaches_both_tiers",
        "test_a_redaction_reaches_everything",
        "test_personal_data_stay_out",
        "test_personal_data_are_found",
        "test_memories_are_encrypted_and_tenants_apart",
        "test_remembered_text_is_data",
        "test_tool_results_stay_out_of_memories",
    ),
    "Multi-agent": (
        "test_squad_keeps_users_apart",
        "test_graphs_swarms_and_structured_output_go_on",
    ),
    "Operation": (
        "test_settings_come_from_variables",
        "test_a_process_tells_what_its_layer_takes",
        "test_the_process_knows_its_latencies",
        "test_an_operator_sees_a_conversation",
        "test_how_long_to_keep_a_conversation_follows_from_returns",
        "test_the_cost_model_gives_the_published_figures",
    ),
}
"""Probes by topic, in the order of the page."""

FURTHER: dict[str, tuple[str, ...]] = {
    "test_a_conversation_lives_by_its_policy": (
        f"{_I}/test_session_ttl.py::test_looking_refreshes_nothing",
    ),
    "test_a_cart_update_reaches_the_next_model_call": (
        f"{_I}/test_state.py::test_what_was_published_during_an_outage_is_learned_after_it",
        f"{_I}/test_state.py::test_three_turns_later_it_still_has_its_asin_and_the_history_stays_clean",
    ),
    "test_weeks_and_months_are_rolled_up": (
        f"{_I}/test_finalizing.py::test_weeks_and_months_within_their_caps_with_pointers",
    ),
    "test_each_layer_lives_as_long_as_it_should": (
        f"{_I}/test_state.py::test_state_comes_back_under_every_session_manager",
        f"{_I}/test_state.py::test_task_execution_and_environment_are_never_stored",
    ),
    "test_the_state_has_three_layers": (
        f"{_I}/test_state.py::test_tool_calls_are_recorded_by_themselves",
    ),
    "test_a_sick_tool_says_so": (
        f"{_I}/test_mcp_scenarios.py::test_errors_of_a_tool_open_its_breaker_and_no_other",
        f"{_I}/test_mcp_scenarios.py::test_a_healthy_tool_answers_while_another_hangs",
    ),
    "test_a_sick_tool_is_fallen_back_from": (
        f"{_I}/test_mcp_scenarios.py::test_another_tool_answers_instead",
        f"{_I}/test_mcp_scenarios.py::test_an_answer_is_stale_rather_than_none",
        f"{_I}/test_mcp_agents.py::test_no_result_is_shared_between_users",
    ),
    "test_a_tool_that_hangs_ends": (
        f"{_I}/test_mcp_scenarios.py::test_wrong_arguments_never_count",
    ),
    "test_the_cost_model_gives_the_published_figures": (
        f"{_U}/ops/test_cost.py::test_the_paper_preset_gives_the_published_figures",
        f"{_I}/test_cost_measured.py::test_the_model_agrees_with_what_sessions_take",
    ),
    "test_a_process_tells_what_its_layer_takes": (
        f"{_I}/test_telemetry.py::test_metrics_have_the_names_and_bounds_they_are_listed_with",
    ),
    "test_the_tiers_are_written_off_the_response": (
        f"{_I}/test_session_roundtrips.py::test_one_round_trip_a_turn",
        f"{_I}/test_session_roundtrips.py::test_five_turns_are_flushed_together",
    ),
    "test_signals_leave_in_order_and_none_is_lost": (
        f"{_I}/test_preferences.py::test_a_stream_that_throttles_gets_everything_in_order_later",
    ),
    "test_a_profile_is_read_and_gives_way_to_what_is_said": (
        f"{_I}/test_heard.py::test_the_conversation_overrides_the_profile_slot_by_slot",
        f"{_I}/test_after_a_turn.py::test_a_profile_service_that_is_down_costs_only_the_profile",
    ),
    "test_a_redaction_reaches_everything": (
        f"{_I}/test_heard.py::test_what_a_guardrail_redacts_is_never_heard",
    ),
    "test_the_long_term_context_is_short": (
        f"{_I}/test_heard.py::test_all_that_is_told_from_memory_shares_one_budget_and_is_data",
    ),
    "test_a_summary_comes_after_twenty_turns_or_eight_thousand_tokens": (
        f"{_I}/test_summaries.py::test_after_so_many_turns_all_but_the_last_three_become_a_summary",
        f"{_I}/test_summaries.py::test_after_so_many_tokens_too",
        f"{_I}/test_summaries.py::test_the_response_does_not_wait_for_the_summary",
    ),
    "test_summaries_are_made_from_what_was_said": (
        f"{_I}/test_summaries.py::test_raw_turns_come_from_the_log_and_old_prose_is_written_anew_from_them",
    ),
    "test_what_a_summary_lacks_is_appended": (
        f"{_I}/test_summaries.py::test_what_a_draft_lacks_is_asked_for_by_name_and_then_appended",
    ),
    "test_a_buffer_warns_before_it_is_full": (
        f"{_I}/test_summaries.py::test_a_warning_comes_at_three_quarters",
    ),
    "test_entities_are_checked_replaced_and_dropped": (
        f"{_U}/state/test_state_parts.py::test_a_newer_entity_replaces_the_one_of_its_type",
        f"{_I}/test_state.py::test_a_change_of_subject_drops_what_was_spoken_of",
    ),
    "test_a_cached_prefix_stays_and_drops_are_explained": (
        f"{_I}/test_state.py::test_the_prefix_is_the_same_byte_for_byte_over_fifty_turns",
        f"{_U}/prompt/test_cache_monitor.py::test_each_change_of_the_prefix_has_a_cause",
    ),
    "test_every_block_and_state_come_back": (
        f"{_I}/test_session_restore.py::test_every_content_block_comes_back",
    ),
    "test_a_redaction_of_the_log_reaches_both_tiers": (
        f"{_I}/test_session_redaction.py::test_a_redacted_question",
        f"{_I}/test_session_redaction.py::test_while_a_tier_is_down",
    ),
    "test_a_real_overflow_is_answered": (
        f"{_I}/test_compaction.py::test_a_real_overflow_is_answered_and_a_hopeless_one_raised",
    ),
    "test_instruction_files_are_merged_and_guarded": (
        f"{_U}/prompt/test_instructions.py::test_files_are_merged_in_order_with_their_origin",
        f"{_U}/prompt/test_instructions.py::test_a_link_that_leads_out_of_its_folder_is_refused",
    ),
    "test_personal_data_are_found": (
        f"{_U}/memory/test_pii.py::test_recall_and_precision_of_the_further_kinds",
    ),
    "test_what_was_tried_is_kept_for_the_task": (
        f"{_U}/state/test_state_parts.py::test_a_task_keeps_its_last_hundred_steps",
    ),
    "test_goals_are_archived_small_and_within_caps": (
        f"{_U}/state/test_state_parts.py::test_a_new_goal_archives_the_one_before_and_the_caps_hold",
        f"{_U}/state/test_state_parts.py::test_a_circle_of_subtasks_is_refused_and_named",
    ),
    "test_settings_come_from_variables": (
        f"{_U}/test_settings.py::test_a_bad_value_names_its_variable_and_what_it_takes",
    ),
    "test_a_pin_survives_a_restore": (f"{_I}/test_compaction.py::test_a_restart_restores_exactly",),
    "test_squad_keeps_users_apart": (
        f"{_I}/test_squad.py::test_users_and_agents_share_neither_messages_nor_state",
    ),
    "test_memories_are_encrypted_and_tenants_apart": (
        f"{_I}/test_encryption.py::test_a_record_is_refused_in_any_place_but_its_own",
        f"{_I}/test_encryption.py::test_new_values_have_the_new_key_and_old_ones_are_read_with_theirs",
    ),
    "test_graphs_swarms_and_structured_output_go_on": (
        f"{_I}/test_multi_agent.py::test_a_graph_goes_on_after_a_crash",
        f"{_I}/test_conversation_manager.py::test_structured_output_keeps_the_budget",
    ),
    "test_a_quick_start_needs_nothing": (
        f"{_I}/test_doctor.py::test_a_deployment_in_order_passes",
    ),
    "test_an_operator_sees_a_conversation": (
        f"{_I}/test_cli.py::test_inspect_shows_tiers_window_entities_and_outcomes",
    ),
}
"""Further tests of the promise of a probe."""

OTHERS: dict[str, dict[str, tuple[str, ...]]] = {
    "Context window": {
        "Every request is valid for Bedrock, Anthropic, OpenAI and Gemini, for any content blocks.": (
            f"{_I}/test_provider_requests.py::test_any_history_gives_valid_requests_under_every_manager",
            f"{_I}/test_provider_requests.py::test_nothing_stands_beside_tool_results_with_all_parts_on",
        ),
        "With compaction, tool results are capped at 10,000 characters a message, stay valid JSON and can be read in full.": (
            f"{_I}/test_large_recent_results.py::test_large_results_among_the_latest_messages_are_capped",
            f"{_I}/test_large_recent_results.py::test_capped_json_result_stays_json_and_can_be_read_in_full",
        ),
        "A huge result in the middle of a turn fits the window.": (
            f"{_I}/test_compaction.py::test_a_huge_result_in_the_middle_of_a_turn_fits_the_window",
        ),
        "Compaction runs stage by stage, each stage only if it is needed.": (
            f"{_I}/test_compaction.py::test_later_stages_run_only_if_needed",
        ),
        "Compaction stops after three failures, continues after runs without work, and keeps pinned messages.": (
            f"{_I}/test_compaction.py::test_three_compactions_that_fail_stop_it",
            f"{_I}/test_large_recent_results.py::test_compaction_goes_on_after_runs_that_find_nothing_to_do",
            f"{_I}/test_compaction.py::test_the_latest_ten_and_pinned_messages_are_not_touched",
        ),
    },
    "Summaries": {
        "An agent built for each request summarizes as often as a live one, and processes share finished summaries.": (
            f"{_I}/test_summary_runs.py::test_agent_for_each_request_summarizes_like_a_live_agent",
            "tests/faults/test_summary_runs_apart.py::test_run_that_a_process_finished_is_used_by_another",
        )
    },
    "Sessions": {
        "A fork has the history and state of its turn, also while its source is written. A rewind reaches live agents.": (
            f"{_I}/test_session_forks.py::test_fork_is_a_session_with_the_history_and_state_of_its_turn",
            f"{_I}/test_session_forks.py::test_fork_of_a_session_that_another_process_writes",
            f"{_I}/test_session_forks.py::test_live_agent_has_the_shortened_history_at_its_next_turn",
        )
    },
    "Task state": {
        "An inferred slot does not satisfy a required one, and the phase follows from the events.": (
            f"{_U}/state/test_state_parts.py::test_an_inferred_value_does_not_satisfy_a_required_slot",
            f"{_I}/test_state.py::test_the_phase_follows_from_what_happens",
        )
    },
    "Tools": {
        "Unknown orders of one user open no breaker for other users.": (
            f"{_U}/mcp/test_one_user.py::test_five_unknown_orders_of_one_user_open_no_breaker",
        ),
        "A dead server is reconnected in the middle of a session.": (
            f"{_I}/test_mcp_scenarios.py::test_a_server_killed_between_calls_is_connected_anew",
        ),
    },
}
"""Promises without a probe, by topic."""


def probes() -> dict[str, tuple[str, str]]:
    """Return the promise and the file of each probe by the name of its test."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_probes_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                promise = (ast.get_docstring(node) or "").replace("\n", " ")
                assert promise, f"{node.name} has no docstring"
                assert node.name not in found, f"two probes are named {node.name}"
                found[node.name] = promise, f"{_P}/{path.name}"
    return found


def promises() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the promises with their tests, by topic."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    known = probes()
    for topic, names in GROUPS.items():
        found[topic] = {}
        for name in names:
            promise, path = known[name]
            found[topic][promise] = (f"{path}::{name}", *FURTHER.get(name, ()))
        found[topic] |= OTHERS.get(topic, {})
    return found


def table() -> str:
    """Build the page of the guide."""
    lines = [
        "# Promises",
        "",
        (
            "Every promise has tests. Those of `tests/probes` use the public API only, on SQLite"
            " and on Valkey with DynamoDB."
        ),
        "`uv run python -m tests.probes.promises` writes this page, and a test compares it.",
    ]
    for topic, tested in promises().items():
        lines += ["", f"## {topic}", "", "| promise | tests |", "|---|---|"]
        for promise, tests in tested.items():
            files = dict.fromkeys(test.partition("::")[0] for test in tests)
            links = ", ".join(
                f"[{Path(file).stem.removeprefix('test_')}](../../{file})" for file in files
            )
            lines.append(f"| {promise} | {links} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
