"""The memory layer for Strands agents: what the model sees now, what survives a restart.

The names below are loaded when they are first used, so importing the package imports no driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strands_manga_memory.conversation import (
        BudgetPlan,
        HistoryRecall,
        ImportanceScorer,
        ImportanceWeightedConversationManager,
        Summary,
        SummaryCache,
        TieredCompactionConversationManager,
        TokenCounter,
        VerifiedSummarizingConversationManager,
        budget_plan,
    )
    from strands_manga_memory.erasure import ErasureReport, export_user, forget_user
    from strands_manga_memory.exceptions import (
        ConflictError,
        ContextBudgetError,
        CorruptRecordError,
        MangaMemoryError,
        PersonalDataError,
        StateError,
        StoreError,
        StoreUnavailableError,
    )
    from strands_manga_memory.facade import MangaMemory
    from strands_manga_memory.finalizer import SessionFinalizer
    from strands_manga_memory.language import SessionSummarizer, SessionSummary, SlotExtractor
    from strands_manga_memory.mcp import (
        BreakerEvent,
        BreakerMiddleware,
        BreakerPolicy,
        CircuitBreaker,
        GuardedMCPTools,
        GuardedTool,
        ServerSupervisor,
        SharedBreakers,
        guard_tool,
    )
    from strands_manga_memory.memory import (
        RETENTION,
        CallablePreferenceSink,
        KinesisPreferenceSink,
        MemoryRecord,
        MemoryRollup,
        MemoryType,
        PiiPolicy,
        PiiRule,
        PreferenceSignal,
        PreferenceSink,
        PreferenceSpool,
        Profile,
        ProfileCache,
        ProfileSource,
        RankingWeights,
        Retention,
        TablePreferenceSink,
        TableProfileSource,
        UserContext,
        UserMemoryStore,
    )
    from strands_manga_memory.scope import ConversationScope
    from strands_manga_memory.session import SessionStats, SessionSweeper, TieredSessionManager, TtlPolicy
    from strands_manga_memory.settings import MangaMemorySettings
    from strands_manga_memory.state import (
        CallableEnvironmentSource,
        DialogueSlot,
        Environment,
        EnvironmentChanges,
        EnvironmentSource,
        Escalation,
        InstructionFiles,
        Phase,
        PromptCacheMonitor,
        StableTexts,
        StateCoordinator,
        TableEnvironmentSource,
        coordinator_of,
        export_for_human,
    )
    from strands_manga_memory.stats import MemoryStats
    from strands_manga_memory.stores import (
        SESSIONS,
        USER_MEMORY,
        Codec,
        DynamoDBTable,
        HotStore,
        InMemoryHotStore,
        RedisHotStore,
        SQLiteTable,
        Table,
        cloudformation_yaml,
        open_hot_store,
        open_table,
    )

__version__ = "0.1.0"

_HOME = {
    "conversation": (
        "BudgetPlan",
        "HistoryRecall",
        "ImportanceScorer",
        "ImportanceWeightedConversationManager",
        "Summary",
        "SummaryCache",
        "TieredCompactionConversationManager",
        "TokenCounter",
        "VerifiedSummarizingConversationManager",
        "budget_plan",
    ),
    "erasure": ("ErasureReport", "export_user", "forget_user"),
    "exceptions": (
        "ConflictError",
        "ContextBudgetError",
        "CorruptRecordError",
        "MangaMemoryError",
        "PersonalDataError",
        "StateError",
        "StoreError",
        "StoreUnavailableError",
    ),
    "facade": ("MangaMemory",),
    "finalizer": ("SessionFinalizer",),
    "language": ("SessionSummarizer", "SessionSummary", "SlotExtractor"),
    "mcp": (
        "BreakerEvent",
        "BreakerMiddleware",
        "BreakerPolicy",
        "CircuitBreaker",
        "GuardedMCPTools",
        "GuardedTool",
        "ServerSupervisor",
        "SharedBreakers",
        "guard_tool",
    ),
    "memory": (
        "CallablePreferenceSink",
        "KinesisPreferenceSink",
        "MemoryRecord",
        "MemoryRollup",
        "MemoryType",
        "PiiPolicy",
        "PiiRule",
        "PreferenceSignal",
        "PreferenceSink",
        "PreferenceSpool",
        "Profile",
        "ProfileCache",
        "ProfileSource",
        "RETENTION",
        "RankingWeights",
        "Retention",
        "TablePreferenceSink",
        "TableProfileSource",
        "UserContext",
        "UserMemoryStore",
    ),
    "scope": ("ConversationScope",),
    "session": ("SessionStats", "SessionSweeper", "TieredSessionManager", "TtlPolicy"),
    "settings": ("MangaMemorySettings",),
    "state": (
        "CallableEnvironmentSource",
        "DialogueSlot",
        "Environment",
        "EnvironmentChanges",
        "EnvironmentSource",
        "Escalation",
        "InstructionFiles",
        "Phase",
        "PromptCacheMonitor",
        "StableTexts",
        "StateCoordinator",
        "TableEnvironmentSource",
        "coordinator_of",
        "export_for_human",
    ),
    "stats": ("MemoryStats",),
    "stores": (
        "Codec",
        "DynamoDBTable",
        "HotStore",
        "InMemoryHotStore",
        "RedisHotStore",
        "SESSIONS",
        "SQLiteTable",
        "Table",
        "USER_MEMORY",
        "cloudformation_yaml",
        "open_hot_store",
        "open_table",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "RETENTION",
    "SESSIONS",
    "USER_MEMORY",
    "BreakerEvent",
    "BreakerMiddleware",
    "BreakerPolicy",
    "BudgetPlan",
    "CallableEnvironmentSource",
    "CallablePreferenceSink",
    "CircuitBreaker",
    "Codec",
    "ConflictError",
    "ContextBudgetError",
    "ConversationScope",
    "CorruptRecordError",
    "DialogueSlot",
    "DynamoDBTable",
    "Environment",
    "EnvironmentChanges",
    "EnvironmentSource",
    "ErasureReport",
    "Escalation",
    "GuardedMCPTools",
    "GuardedTool",
    "HistoryRecall",
    "HotStore",
    "ImportanceScorer",
    "ImportanceWeightedConversationManager",
    "InMemoryHotStore",
    "InstructionFiles",
    "KinesisPreferenceSink",
    "MangaMemory",
    "MangaMemoryError",
    "MangaMemorySettings",
    "MemoryRecord",
    "MemoryRollup",
    "MemoryStats",
    "MemoryType",
    "PersonalDataError",
    "Phase",
    "PiiPolicy",
    "PiiRule",
    "PreferenceSignal",
    "PreferenceSink",
    "PreferenceSpool",
    "Profile",
    "ProfileCache",
    "ProfileSource",
    "PromptCacheMonitor",
    "RankingWeights",
    "RedisHotStore",
    "Retention",
    "SQLiteTable",
    "ServerSupervisor",
    "SessionFinalizer",
    "SessionStats",
    "SessionSummarizer",
    "SessionSummary",
    "SessionSweeper",
    "SharedBreakers",
    "SlotExtractor",
    "StableTexts",
    "StateCoordinator",
    "StateError",
    "StoreError",
    "StoreUnavailableError",
    "Summary",
    "SummaryCache",
    "Table",
    "TableEnvironmentSource",
    "TablePreferenceSink",
    "TableProfileSource",
    "TieredCompactionConversationManager",
    "TieredSessionManager",
    "TokenCounter",
    "TtlPolicy",
    "UserContext",
    "UserMemoryStore",
    "VerifiedSummarizingConversationManager",
    "budget_plan",
    "cloudformation_yaml",
    "coordinator_of",
    "export_for_human",
    "export_user",
    "forget_user",
    "guard_tool",
    "open_hot_store",
    "open_table",
]


def __getattr__(name: str) -> Any:
    """Load a name from its module when it is first used."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names there are, loaded or not."""
    return sorted([*globals(), *__all__])
