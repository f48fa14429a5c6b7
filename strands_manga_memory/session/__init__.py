"""What survives: sessions in a hot and a durable tier."""

from strands_manga_memory.session.manager import TieredSessionManager
from strands_manga_memory.session.stats import SessionStats
from strands_manga_memory.session.sweeper import Finalizer, SessionSweeper
from strands_manga_memory.session.ttl import TtlPolicy

__all__ = ["Finalizer", "SessionStats", "SessionSweeper", "TieredSessionManager", "TtlPolicy"]
