"""Long-term memory of a user: preferences, facts, and summaries of earlier sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands_manga_memory.lazy_imports import lazy_names

if TYPE_CHECKING:
    from strands_manga_memory.language.pii import PiiRule
    from strands_manga_memory.language.preference_slots import Preference
    from strands_manga_memory.memory.finalizing import MemoryKeeper
    from strands_manga_memory.memory.memory_search import extract_user_query
    from strands_manga_memory.memory.pii_policy import PiiPolicy
    from strands_manga_memory.memory.plugin import Learn, UserContext
    from strands_manga_memory.memory.profile_cache import ProfileCache
    from strands_manga_memory.memory.profile_service import (
        CallablePreferenceSink,
        KinesisPreferenceSink,
        PreferenceOutbox,
        PreferenceSink,
        Profile,
        ProfileReader,
        ProfileSource,
        TablePreferenceSink,
        TableProfileSource,
    )
    from strands_manga_memory.memory.records import (
        RETENTION,
        AgentContext,
        MemoryRecord,
        MemoryType,
        Owner,
        Retention,
    )
    from strands_manga_memory.memory.statements import PreferenceSignal
    from strands_manga_memory.memory.store import UserMemoryStore

_NAMES = {
    ".language.pii": "PiiRule",
    ".language.preference_slots": "Preference",
    "finalizing": "MemoryKeeper",
    "memory_search": "extract_user_query",
    "pii_policy": "PiiPolicy",
    "plugin": "Learn UserContext",
    "profile_cache": "ProfileCache",
    "profile_service": (
        "CallablePreferenceSink KinesisPreferenceSink PreferenceOutbox PreferenceSink Profile"
        " ProfileReader ProfileSource TablePreferenceSink TableProfileSource"
    ),
    "records": "RETENTION AgentContext MemoryRecord MemoryType Owner Retention",
    "statements": "PreferenceSignal",
    "store": "UserMemoryStore",
}
"""Public names of each module, which is imported at the first use of one of its names."""

__all__ = [
    "RETENTION",
    "AgentContext",
    "CallablePreferenceSink",
    "KinesisPreferenceSink",
    "Learn",
    "MemoryKeeper",
    "MemoryRecord",
    "MemoryType",
    "Owner",
    "PiiPolicy",
    "PiiRule",
    "Preference",
    "PreferenceOutbox",
    "PreferenceSignal",
    "PreferenceSink",
    "Profile",
    "ProfileCache",
    "ProfileReader",
    "ProfileSource",
    "Retention",
    "TablePreferenceSink",
    "TableProfileSource",
    "UserContext",
    "UserMemoryStore",
    "extract_user_query",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
