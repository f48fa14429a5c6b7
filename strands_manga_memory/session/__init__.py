"""What survives: sessions in a hot and a durable tier."""

from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.session.manager import TieredSessionManager
from strands_manga_memory.session.stats import SessionStats
from strands_manga_memory.session.stored_session import StoredSession
from strands_manga_memory.session.upkeep.sweeper import Finalizer, SessionSweeper

__all__ = ["Finalizer", "SessionStats", "SessionSweeper", "StoredSession", "TieredSessionManager", "TtlPolicy"]
