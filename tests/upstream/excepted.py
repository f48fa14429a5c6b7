"""Tests of Strands that cannot pass with our parts, each with the reason."""

from __future__ import annotations

_AGENT = "tests/strands/agent/test_agent.py"
_MANAGERS = "tests/strands/agent/test_conversation_manager.py"
_CONTEXT = "tests/strands/agent/test_agent_context_manager.py"
_REPOSITORY = "tests/strands/session/test_repository_session_manager.py"
_STORAGE = "tests/strands/storage"

EXCEPTED: dict[str, tuple[str, ...]] = {
    "asserts that an agent was given no session manager, and is given one here; Strands' FileSessionManager fails it as well": (
        f"{_AGENT}::test_session_id_without_session_manager",
        f"{_AGENT}::test_metadata_omits_session_id_without_manager",
        f"{_AGENT}::test_agent_metadata_has_no_session_id_without_manager",
    ),
    "asserts that the conversation manager is the default one of Strands, a SlidingWindowConversationManager": (
        f"{_CONTEXT}::TestContextManagerNone::test_default_preserves_sliding_window",
        f"{_CONTEXT}::TestContextManagerNone::test_explicit_none_preserves_sliding_window",
        f"{_CONTEXT}::TestContextManagerFalse::test_false_disables_context_management",
    ),
    "restores what a SlidingWindowConversationManager stored: no manager takes up the state of another class": (
        f"{_AGENT}::test_agent_restored_from_session_management",
        f"{_AGENT}::test_agent_restored_from_session_management_with_message",
        f"{_REPOSITORY}::test_initialize_restores_existing_agent",
        f"{_REPOSITORY}::test_fix_broken_tool_use_adds_missing_tool_results",
        f"{_REPOSITORY}::test_fix_broken_tool_use_extends_partial_tool_results",
        f"{_REPOSITORY}::test_fix_broken_tool_use_handles_multiple_orphaned_tools",
        "tests/strands/test_tracking_id_history_invariant.py::test_no_idless_messages_after_session_restore_repair",
    ),
    "expects a result that Strands wrote for a cut tool call in the history; ours completes the request, and stores none": (
        f"{_AGENT}::test_agent_fixes_orphaned_tool_use_on_new_prompt",
        f"{_AGENT}::test_agent_fixes_multiple_orphaned_tool_uses",
    ),
    "counts writes of the sliding window's state, which has a counter that ours has not": (
        f"{_REPOSITORY}::test_sync_agent_calls_update_when_conversation_manager_state_changed",
    ),
    "looks at the caller's list after the agent has worked: our history is a list of its own, and gives its messages ids": (
        f"{_MANAGERS}::test_apply_management",
        f"{_MANAGERS}::test_sliding_window_forces_user_message_start",
        f"{_MANAGERS}::test_sliding_window_happy_path_preserves_window_size",
        f"{_MANAGERS}::test_sliding_window_prefers_plain_user_message_over_tool_pair_fallback",
        f"{_MANAGERS}::test_sliding_window_tool_heavy_conversation_falls_back_to_tool_pair_boundary",
        f"{_MANAGERS}::test_window_size_zero_clears_all_messages_on_apply_management",
        f"{_MANAGERS}::test_window_size_zero_clears_all_messages_on_reduce_context",
        f"{_MANAGERS}::test_window_size_zero_clears_on_overflow",
        "tests/strands/agent/test_snapshot.py::test_snapshot_json_store_and_restore_into_new_agent",
    ),
    "asserts which messages a sliding window drops after an overflow; ours drops others": (
        f"{_AGENT}::test_agent__call__retry_with_reduced_context",
        f"{_AGENT}::test_agent__call__retry_with_overwritten_tool",
    ),
    "seeds two messages of the user in a row; ours sends them as one, as providers want it": (
        "tests/strands/multiagent/a2a/test_executor.py::test_single_agent_preserves_seeded_history",
    ),
    "runs turns of one agent at the same time (UNSAFE_REENTRANT), which TieredSessionManager refuses: no turn has an end": (
        f"{_AGENT}::test_agent_concurrent_call_succeeds_with_unsafe_reentrant_mode",
        f"{_AGENT}::test_agent_concurrent_invocation_mode_accepts_enum",
        f"{_AGENT}::test_agent_concurrent_invocation_mode_stores_value",
        f"{_AGENT}::test_idempotency_ignored_in_unsafe_reentrant",
    ),
    "asserts the private mark by which a storage says that it is a view; ours is one without, below the default prefix": (
        f"{_STORAGE}/test_in_memory_storage.py::TestInMemoryStorage::test_namespace_returns_scoped_instance",
        f"{_STORAGE}/test_storage.py::TestResolveNamespace::test_calls_namespace_method_when_available",
        f"{_STORAGE}/test_storage.py::TestResolveNamespace::test_returns_as_is_when_already_namespaced",
    ),
}
"""Names by reasons; a name without parameters stands for the test with all of them."""

LEFT_OUT = (
    *("bidi", "experimental/bidi", "models", "sandbox", "telemetry", "vended_interventions"),
    "vended_plugins/context_injector/test_integration.py",
)
"""What needs the packages of model providers, a microphone or a sandbox, and has no place for a
part of ours.
"""
