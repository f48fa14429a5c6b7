"""What the package promises, and the tests that try it. ``python -m tests.probes.promises`` writes the table."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "strands_manga_memory" / "guide" / "promises.md"

_I, _P = "tests/integration", "tests/probes"
OTHERS: dict[str, tuple[str, ...]] = {
    "How long a conversation lives: fixed, sliding, by activity, or by tier and depth; looking refreshes nothing.": (
        f"{_I}/test_session_ttl.py::test_hybrid_by_tier_and_depth",
        f"{_I}/test_session_ttl.py::test_looking_refreshes_nothing",
    ),
    "A change outside is learned of also after an outage of the hot tier.": (
        f"{_I}/test_state.py::test_what_was_published_during_an_outage_is_learned_after_it",
    ),
    "Roll-ups by week and month keep within their tokens, with pointers to what they were made from.": (
        f"{_I}/test_finalizing.py::test_weeks_and_months_within_their_caps_with_pointers",
    ),
    "Conversation, task and environment are layers, and each lives as long as it should.": (
        f"{_I}/test_state.py::test_layers_come_back_under_every_session_manager",
        f"{_I}/test_state.py::test_task_execution_and_environment_are_never_stored",
    ),
    "An inferred slot satisfies no required one; phases follow from what happens.": (
        "tests/unit/state/test_layers.py::test_an_inferred_value_does_not_satisfy_a_required_slot",
        f"{_I}/test_state.py::test_the_phase_follows_from_what_happens",
    ),
    "Every request is valid for Bedrock, Anthropic, OpenAI and Gemini, whatever blocks the history holds.": (
        f"{_I}/test_provider_requests.py::test_any_history_gives_valid_requests_under_every_manager",
        f"{_I}/test_provider_requests.py::test_nothing_stands_beside_tool_results_with_all_parts_on",
    ),
    "The state is told in a few lines, for one call, and stays out of the history; tool steps record themselves.": (
        f"{_I}/test_state.py::test_three_turns_later_it_still_has_its_asin_and_the_history_stays_clean",
        f"{_I}/test_state.py::test_tool_calls_are_recorded_by_themselves",
    ),
    "Each tool has a breaker and a deadline; one sick tool never affects another.": (
        f"{_I}/test_mcp_scenarios.py::test_errors_of_a_tool_open_its_breaker_and_no_other",
        f"{_I}/test_mcp_scenarios.py::test_a_healthy_tool_answers_while_another_hangs",
    ),
    "One user's unknown orders open no breaker for the others.": (
        "tests/unit/mcp/test_one_user.py::test_five_unknown_orders_of_one_user_open_no_breaker",
    ),
    "When a breaker is open another tool answers, or the last good result of the same user, marked as stale.": (
        f"{_I}/test_mcp_scenarios.py::test_another_tool_answers_instead",
        f"{_I}/test_mcp_scenarios.py::test_an_answer_is_stale_rather_than_none",
        f"{_I}/test_mcp_agents.py::test_no_result_is_shared_between_users",
    ),
    "The cost model gives the published figures, and what the package itself takes.": (
        "tests/unit/ops/test_cost.py::test_the_paper_preset_gives_the_published_figures",
        f"{_I}/test_cost_measured.py::test_the_model_agrees_with_what_sessions_take",
    ),
    "Latencies are histograms with listed names and bounds.": (
        f"{_I}/test_telemetry.py::test_metrics_have_the_names_and_bounds_they_are_listed_with",
    ),
    "The hot tier is written every turn, the durable one every five, and neither delays the response.": (
        f"{_I}/test_session_roundtrips.py::test_one_round_trip_a_turn",
        f"{_I}/test_session_roundtrips.py::test_five_turns_are_flushed_together",
    ),
    "Preference signals leave in order, at least once, and none is lost while the stream throttles.": (
        f"{_I}/test_preferences.py::test_a_stream_that_throttles_gets_everything_in_order_later",
    ),
    "The conversation overrides the profile, slot by slot; a profile service that is down costs only the profile.": (
        f"{_I}/test_heard.py::test_the_conversation_overrides_the_profile_slot_by_slot",
        f"{_I}/test_after_a_turn.py::test_a_profile_service_that_is_down_costs_only_the_profile",
    ),
    "What a guardrail redacts is never heard.": (f"{_I}/test_heard.py::test_what_a_guardrail_redacts_is_never_heard",),
    "All that is told from memory shares 800 tokens.": (
        f"{_I}/test_heard.py::test_all_that_is_told_from_memory_shares_one_budget_and_is_data",
    ),
    "A summary comes after so many tokens or turns, after the response, and the last three turns stay whole.": (
        f"{_I}/test_summaries.py::test_after_so_many_turns_all_but_the_last_three_become_a_summary",
        f"{_I}/test_summaries.py::test_after_so_many_tokens_too",
        f"{_I}/test_summaries.py::test_the_response_does_not_wait_for_the_summary",
    ),
    "Summaries are written from raw turns, never from earlier summaries.": (
        f"{_I}/test_summaries.py::test_raw_turns_come_from_the_log_and_old_prose_is_written_anew_from_them",
    ),
    "An agent built for each request summarizes as often as a live one; another process uses what one has finished.": (
        f"{_I}/test_summary_runs.py::test_agent_for_each_request_summarizes_like_a_live_agent",
        "tests/faults/test_summary_runs_apart.py::test_run_that_a_process_finished_is_used_by_another",
    ),
    "What a summary lacks is asked for again, and then appended.": (
        f"{_I}/test_summaries.py::test_what_a_draft_lacks_is_asked_for_by_name_and_then_appended",
    ),
    "Entities are replaced by newer ones of their type and dropped on a change of subject.": (
        "tests/unit/state/test_layers.py::test_a_newer_entity_replaces_the_one_of_its_type",
        f"{_I}/test_state.py::test_a_change_of_subject_drops_what_was_spoken_of",
    ),
    "The prompt's prefix stays cached, and each drop of the hit rate has a cause.": (
        f"{_I}/test_state.py::test_the_prefix_is_the_same_byte_for_byte_over_fifty_turns",
        "tests/unit/prompt/test_cache_monitor.py::test_each_change_of_the_prefix_has_a_cause",
    ),
    "Every content block comes back.": (f"{_I}/test_session_restore.py::test_every_content_block_comes_back",),
    "A redacted message is in no tier, queue or log.": (
        f"{_I}/test_session_redaction.py::test_a_redacted_question",
        f"{_I}/test_session_redaction.py::test_while_a_tier_is_down",
    ),
    "A real overflow is answered, and a hopeless one raised.": (
        f"{_I}/test_compaction.py::test_a_real_overflow_is_answered_and_a_hopeless_one_raised",
    ),
    "Tool results are capped at 10,000 characters a message, the latest ones too, stay JSON and can be read in full.": (
        f"{_I}/test_large_recent_results.py::test_large_results_among_the_latest_messages_are_capped",
        f"{_I}/test_large_recent_results.py::test_capped_json_result_stays_json_and_can_be_read_in_full",
    ),
    "Compaction stops after three failures, not after runs that find nothing to do, and leaves pinned messages.": (
        f"{_I}/test_compaction.py::test_three_compactions_that_fail_stop_it",
        f"{_I}/test_large_recent_results.py::test_compaction_goes_on_after_runs_that_find_nothing_to_do",
        f"{_I}/test_compaction.py::test_the_latest_ten_and_pinned_messages_are_not_touched",
    ),
    "Compaction goes stage by stage, each only if it is needed.": (
        f"{_I}/test_compaction.py::test_later_stages_run_only_if_needed",
    ),
    "Instruction files are merged with their origin; links out of their folder and writable folders are refused.": (
        "tests/unit/prompt/test_instructions.py::test_files_are_merged_in_order_with_their_origin",
        "tests/unit/prompt/test_instructions.py::test_a_link_that_leads_out_of_its_folder_is_refused",
    ),
    "Personal data are found with a recall of .9 and a precision of .97, in English and Japanese.": (
        "tests/unit/memory/test_pii.py::test_recall_and_precision_of_the_further_kinds",
    ),
    "A warning comes at three quarters of the buffer.": (f"{_I}/test_summaries.py::test_a_warning_comes_at_three_quarters",),
    "A new goal archives the one before, and the caps hold; subtasks form no circle.": (
        "tests/unit/state/test_layers.py::test_a_new_goal_archives_the_one_before_and_the_caps_hold",
        "tests/unit/state/test_layers.py::test_a_circle_of_subtasks_is_refused_and_named",
    ),
    "A task keeps its last hundred steps, first in, first out.": (
        "tests/unit/state/test_layers.py::test_a_task_keeps_its_last_hundred_steps",
    ),
    "A bad value of a variable names it and what it takes.": (
        "tests/unit/test_settings.py::test_a_bad_value_names_its_variable_and_what_it_takes",
    ),
    "Five turns are one write, and no load of the event loop.": (
        f"{_I}/test_defects.py::test_defect_d1_five_turns_are_one_batch",
    ),
    "Compaction survives a restore exactly, pins included.": (
        f"{_I}/test_compaction.py::test_a_restart_restores_exactly",
        f"{_I}/test_defects.py::test_defect_4027_pins_survive_a_restore",
    ),
    "A huge result in the middle of a turn fits the window.": (
        f"{_I}/test_compaction.py::test_a_huge_result_in_the_middle_of_a_turn_fits_the_window",
    ),
    "A dead server is connected anew in mid-session; wrong arguments never count.": (
        f"{_I}/test_mcp_scenarios.py::test_a_server_killed_between_calls_is_connected_anew",
        f"{_I}/test_mcp_scenarios.py::test_wrong_arguments_never_count",
    ),
    "Users of Agent Squad never see each other.": (
        f"{_I}/test_squad.py::test_users_and_agents_share_neither_messages_nor_state",
    ),
    "Encrypted values are bound to their tenant and place, and read with the key they name.": (
        f"{_I}/test_encryption.py::test_a_record_is_refused_in_any_place_but_its_own",
        f"{_I}/test_encryption.py::test_new_values_have_the_new_key_and_old_ones_are_read_with_theirs",
    ),
    "Graph, Swarm, agents as tools and structured output keep working.": (
        f"{_I}/test_multi_agent.py::test_a_graph_goes_on_after_a_crash",
        f"{_I}/test_conversation_manager.py::test_structured_output_keeps_the_budget",
    ),
    "A quick start needs no keys; a doctor and an inspector say what is there.": (
        f"{_I}/test_doctor.py::test_a_deployment_in_order_passes",
        f"{_I}/test_cli.py::test_inspect_shows_tiers_window_entities_and_fates",
    ),
}
"""What other tests try: the promise, and where."""


def probes() -> dict[str, tuple[str, ...]]:
    """Return what the probes of this folder try, by the first line of their docstrings."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("test_probes_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                promise = (ast.get_docstring(node) or "").replace("\n", " ")
                assert promise, f"{node.name} says nothing of what it promises"
                assert promise not in found, f"{node.name} promises what another one does"
                found[promise] = (f"{_P}/{path.name}::{node.name}",)
    return found


def table() -> str:
    """Return the page of the guide."""
    lines = [
        "# What is promised, and what tries it",
        "",
        "Each promise has a test; those of `tests/probes` use the public API, on SQLite and on Valkey with DynamoDB.",
        "The table is written by `uv run python -m tests.probes.promises`, and a test compares it.",
        "",
        "| promise | tried by |",
        "|---|---|",
    ]
    lines += [
        f"| {promise} | {'<br>'.join(f'`{test}`' for test in tests)} |" for promise, tests in {**probes(), **OTHERS}.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
