"""Long-term memory of a user: memories, preferences, roll-ups, and summaries of sessions that ended."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strands_manga_memory.language.pii import PiiRule
    from strands_manga_memory.memory.finalizing import MemoryKeeper, MemoryRollup
    from strands_manga_memory.memory.memory_context import AgentContext
    from strands_manga_memory.memory.memory_search import RankingWeights, extract_user_query
    from strands_manga_memory.memory.pii_policy import PiiPolicy
    from strands_manga_memory.memory.plugin import Learn, UserContext
    from strands_manga_memory.memory.preferences.preference_outbox import (
        CallablePreferenceSink,
        KinesisPreferenceSink,
        PreferenceOutbox,
        PreferenceSignal,
        PreferenceSink,
        TablePreferenceSink,
    )
    from strands_manga_memory.memory.preferences.profile_cache import CachedContext, ProfileCache
    from strands_manga_memory.memory.profiles import Profile, ProfileReader, ProfileSource, TableProfileSource
    from strands_manga_memory.memory.records import RETENTION, MemoryRecord, MemoryType, Retention
    from strands_manga_memory.memory.store import UserMemoryStore

_MODULES = {
    "AgentContext": "memory.memory_context",
    "CachedContext": "memory.preferences.profile_cache",
    "CallablePreferenceSink": "memory.preferences.preference_outbox",
    "KinesisPreferenceSink": "memory.preferences.preference_outbox",
    "Learn": "memory.plugin",
    "MemoryKeeper": "memory.finalizing",
    "MemoryRecord": "memory.records",
    "MemoryRollup": "memory.finalizing",
    "MemoryType": "memory.records",
    "PiiPolicy": "memory.pii_policy",
    "PiiRule": "language.pii",
    "PreferenceOutbox": "memory.preferences.preference_outbox",
    "PreferenceSignal": "memory.preferences.preference_outbox",
    "PreferenceSink": "memory.preferences.preference_outbox",
    "Profile": "memory.profiles",
    "ProfileCache": "memory.preferences.profile_cache",
    "ProfileReader": "memory.profiles",
    "ProfileSource": "memory.profiles",
    "RETENTION": "memory.records",
    "RankingWeights": "memory.memory_search",
    "Retention": "memory.records",
    "TablePreferenceSink": "memory.preferences.preference_outbox",
    "TableProfileSource": "memory.profiles",
    "UserContext": "memory.plugin",
    "UserMemoryStore": "memory.store",
    "extract_user_query": "memory.memory_search",
}
"""The module of each name: imported at the name's first use, so that an agent without memories starts sooner."""

__all__ = [
    "RETENTION",
    "AgentContext",
    "CachedContext",
    "CallablePreferenceSink",
    "KinesisPreferenceSink",
    "Learn",
    "MemoryKeeper",
    "MemoryRecord",
    "MemoryRollup",
    "MemoryType",
    "PiiPolicy",
    "PiiRule",
    "PreferenceOutbox",
    "PreferenceSignal",
    "PreferenceSink",
    "Profile",
    "ProfileCache",
    "ProfileReader",
    "ProfileSource",
    "RankingWeights",
    "Retention",
    "TablePreferenceSink",
    "TableProfileSource",
    "UserContext",
    "UserMemoryStore",
    "extract_user_query",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"strands_manga_memory.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
