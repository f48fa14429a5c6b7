"""What comes of a call while it goes on: the events of its stream, and word of how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Progress(NamedTuple):
    """What a server said of how far it is."""

    progress: float
    total: float | None
    message: str | None

    def told(self, redact: Callable[[str], str]) -> dict[str, Any]:
        """Return it as a stream tells it, its message redacted."""
        text = redact(self.message) if self.message else None
        return {"progress": self.progress, "total": self.total, "message": text}


class Events(Protocol):
    """The events of a stream until a deadline: ``Pump`` or ``Inline``."""

    async def next(self) -> Any:
        """Return the next event or ``END``; raise ``DeadlineError`` once the deadline has passed."""

    async def close(self) -> None:
        """Stop the stream."""
