"""What survives: sessions in a hot and a durable tier."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.session.basis.ttl import TtlPolicy
    from strands_manga_memory.session.manager import TieredSessionManager
    from strands_manga_memory.session.stats import SessionStats
    from strands_manga_memory.session.stored_session import StoredSession
    from strands_manga_memory.session.upkeep.sweeper import Finalizer, SessionSweeper
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "basis.ttl": "TtlPolicy",
            "manager": "TieredSessionManager",
            "stats": "SessionStats",
            "stored_session": "StoredSession",
            "upkeep.sweeper": "Finalizer SessionSweeper",
        },
    )

__all__ = ["Finalizer", "SessionStats", "SessionSweeper", "StoredSession", "TieredSessionManager", "TtlPolicy"]
