"""Memory for Strands agents: durable sessions, limited histories, user memory and task state.

Public names are imported at their first use, so that importing the package imports no database
driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands_manga_memory.lazy_imports import lazy_names

if TYPE_CHECKING:
    from strands_manga_memory.assembly.facade import MangaMemory
    from strands_manga_memory.assembly.finalizer import SessionFinalizer
    from strands_manga_memory.assembly.settings import MangaMemorySettings, SettingsError
    from strands_manga_memory.conversation import (
        HistoryRecall,
        ImportanceWeightedConversationManager,
        TieredCompactionConversationManager,
        VerifiedSummarizingConversationManager,
        as_strategy,
    )
    from strands_manga_memory.exceptions import (
        ConflictError,
        CorruptRecordError,
        KeyMissingError,
        MangaMemoryError,
        PersonalDataError,
        StateError,
        StoreError,
        StoreRefusedError,
        StoreUnavailableError,
    )
    from strands_manga_memory.mcp import BreakerPolicy, GuardedMCPTools, guard_tool
    from strands_manga_memory.memory import PiiPolicy, UserMemoryStore
    from strands_manga_memory.prompt import InstructionFiles, PromptCacheMonitor
    from strands_manga_memory.scope import ConversationScope
    from strands_manga_memory.session import SessionSweeper, TieredSessionManager, TtlPolicy
    from strands_manga_memory.state import (
        DialogueSlot,
        Environment,
        EnvironmentSource,
        StateCoordinator,
    )
    from strands_manga_memory.stores import (
        SESSIONS,
        USER_MEMORY,
        AesGcmCipher,
        Codec,
        DynamoDBTable,
        HotStore,
        InMemoryHotStore,
        RedisHotStore,
        SQLiteTable,
        Table,
        TieredStorage,
        open_hot_store,
        open_table,
    )

__version__ = "0.3.0"

_NAMES = {
    "conversation": (
        "HistoryRecall ImportanceWeightedConversationManager TieredCompactionConversationManager "
        "VerifiedSummarizingConversationManager as_strategy"
    ),
    "exceptions": (
        "ConflictError CorruptRecordError KeyMissingError MangaMemoryError PersonalDataError "
        "StateError StoreError StoreRefusedError StoreUnavailableError"
    ),
    "assembly.facade": "MangaMemory",
    "assembly.finalizer": "SessionFinalizer",
    "mcp": "BreakerPolicy GuardedMCPTools guard_tool",
    "memory": "PiiPolicy UserMemoryStore",
    "prompt": "InstructionFiles PromptCacheMonitor",
    "scope": "ConversationScope",
    "session": "SessionSweeper TieredSessionManager TtlPolicy",
    "assembly.settings": "MangaMemorySettings SettingsError",
    "state": "DialogueSlot Environment EnvironmentSource StateCoordinator",
    "stores": (
        "AesGcmCipher Codec DynamoDBTable HotStore InMemoryHotStore RedisHotStore SESSIONS"
        " SQLiteTable Table TieredStorage USER_MEMORY open_hot_store open_table"
    ),
}

__all__ = [
    "SESSIONS",
    "USER_MEMORY",
    "AesGcmCipher",
    "BreakerPolicy",
    "Codec",
    "ConflictError",
    "ConversationScope",
    "CorruptRecordError",
    "DialogueSlot",
    "DynamoDBTable",
    "Environment",
    "EnvironmentSource",
    "GuardedMCPTools",
    "HistoryRecall",
    "HotStore",
    "ImportanceWeightedConversationManager",
    "InMemoryHotStore",
    "InstructionFiles",
    "KeyMissingError",
    "MangaMemory",
    "MangaMemoryError",
    "MangaMemorySettings",
    "PersonalDataError",
    "PiiPolicy",
    "PromptCacheMonitor",
    "RedisHotStore",
    "SQLiteTable",
    "SessionFinalizer",
    "SessionSweeper",
    "SettingsError",
    "StateCoordinator",
    "StateError",
    "StoreError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "Table",
    "TieredCompactionConversationManager",
    "TieredSessionManager",
    "TieredStorage",
    "TtlPolicy",
    "UserMemoryStore",
    "VerifiedSummarizingConversationManager",
    "as_strategy",
    "guard_tool",
    "open_hot_store",
    "open_table",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
