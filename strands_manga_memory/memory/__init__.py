"""Long-term memory of a user: memories, preferences, roll-ups, and summaries of sessions that ended."""

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
