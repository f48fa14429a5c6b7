"""What we know about the user: memories, preferences, roll-ups, and what is kept of sessions that ended."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.language.pii import PiiRule
    from strands_manga_memory.memory.finalizing import MemoryKeeper
    from strands_manga_memory.memory.pii.pii_policy import PiiPolicy
    from strands_manga_memory.memory.plugin import UserContext
    from strands_manga_memory.memory.preferences.cache import CachedContext, ProfileCache
    from strands_manga_memory.memory.preferences.learning import Learn
    from strands_manga_memory.memory.preferences.preference_sinks import (
        CallablePreferenceSink,
        KinesisPreferenceSink,
        PreferenceSignal,
        PreferenceSink,
        TablePreferenceSink,
    )
    from strands_manga_memory.memory.preferences.spool import PreferenceSpool
    from strands_manga_memory.memory.profile.profile_reader import ProfileReader
    from strands_manga_memory.memory.profile.profile_source import Profile, ProfileSource, TableProfileSource
    from strands_manga_memory.memory.recall.context import AgentContext
    from strands_manga_memory.memory.recall.ranking import RankingWeights
    from strands_manga_memory.memory.recall.user_query import extract_user_query
    from strands_manga_memory.memory.records.memory_records import MemoryRecord
    from strands_manga_memory.memory.records.retention import RETENTION, MemoryType, Retention
    from strands_manga_memory.memory.rollup import MemoryRollup
    from strands_manga_memory.memory.store import UserMemoryStore
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "finalizing": "MemoryKeeper",
            "pii.pii_policy": "PiiPolicy PiiRule",
            "plugin": "UserContext",
            "preferences.cache": "CachedContext ProfileCache",
            "preferences.learning": "Learn",
            "preferences.preference_sinks": (
                "CallablePreferenceSink KinesisPreferenceSink PreferenceSignal PreferenceSink TablePreferenceSink"
            ),
            "preferences.spool": "PreferenceSpool",
            "profile.profile_reader": "ProfileReader",
            "profile.profile_source": "Profile ProfileSource TableProfileSource",
            "recall.context": "AgentContext",
            "recall.ranking": "RankingWeights",
            "recall.user_query": "extract_user_query",
            "records.memory_records": "MemoryRecord",
            "records.retention": "MemoryType RETENTION Retention",
            "rollup": "MemoryRollup",
            "store": "UserMemoryStore",
        },
    )

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
    "PreferenceSignal",
    "PreferenceSink",
    "PreferenceSpool",
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
