"""Storage of agents' sessions in a hot tier (a cache) and a durable tier (a database table)."""

from strands_manga_memory.session.agent_conversation import SessionStats
from strands_manga_memory.session.session_log import HistoryPage
from strands_manga_memory.session.session_sweeper import (
    EndedConversation,
    Finalizer,
    SessionSweeper,
)
from strands_manga_memory.session.stored_session import StoredSession
from strands_manga_memory.session.tiered_manager import TieredSessionManager
from strands_manga_memory.session.ttl import TtlPolicy

__all__ = [
    "EndedConversation",
    "Finalizer",
    "HistoryPage",
    "SessionStats",
    "SessionSweeper",
    "StoredSession",
    "TieredSessionManager",
    "TtlPolicy",
]
