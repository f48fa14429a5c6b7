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
    from strands_manga_memory.exceptions import (
        ConflictError,
        ContextBudgetError,
        CorruptRecordError,
        MangaMemoryError,
        StoreError,
        StoreUnavailableError,
    )
    from strands_manga_memory.facade import MangaMemory
    from strands_manga_memory.language import SlotExtractor
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
    from strands_manga_memory.scope import ConversationScope
    from strands_manga_memory.session import SessionStats, SessionSweeper, TieredSessionManager, TtlPolicy
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
    "exceptions": (
        "ConflictError",
        "ContextBudgetError",
        "CorruptRecordError",
        "MangaMemoryError",
        "StoreError",
        "StoreUnavailableError",
    ),
    "facade": ("MangaMemory",),
    "language": ("SlotExtractor",),
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
    "scope": ("ConversationScope",),
    "session": ("SessionStats", "SessionSweeper", "TieredSessionManager", "TtlPolicy"),
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
        "open_hot_store",
        "open_table",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "SESSIONS",
    "USER_MEMORY",
    "BreakerEvent",
    "BreakerMiddleware",
    "BreakerPolicy",
    "BudgetPlan",
    "CircuitBreaker",
    "Codec",
    "ConflictError",
    "ContextBudgetError",
    "ConversationScope",
    "CorruptRecordError",
    "DynamoDBTable",
    "GuardedMCPTools",
    "GuardedTool",
    "HistoryRecall",
    "HotStore",
    "ImportanceScorer",
    "ImportanceWeightedConversationManager",
    "InMemoryHotStore",
    "MangaMemory",
    "MangaMemoryError",
    "RedisHotStore",
    "SQLiteTable",
    "ServerSupervisor",
    "SessionStats",
    "SessionSweeper",
    "SharedBreakers",
    "SlotExtractor",
    "StoreError",
    "StoreUnavailableError",
    "Summary",
    "SummaryCache",
    "Table",
    "TieredCompactionConversationManager",
    "TieredSessionManager",
    "TokenCounter",
    "TtlPolicy",
    "VerifiedSummarizingConversationManager",
    "budget_plan",
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
