"""Storage of agents' sessions in a hot tier (a cache) and a durable tier (a database table)."""

from strands_manga_memory.session.session_sweeper import EndedConversation, Finalizer, SessionSweeper
from strands_manga_memory.session.stored_session import HistoryPage, SessionStats, StoredSession
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
