"""Event stream and progress of a running call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Progress(NamedTuple):
    """Progress that a server reported."""

    progress: float
    total: float | None
    message: str | None

    def as_json(self, redact: Callable[[str], str]) -> dict[str, Any]:
        """Return the progress as JSON, with its message redacted."""
        text = redact(self.message) if self.message else None
        return {"progress": self.progress, "total": self.total, "message": text}


class Events(Protocol):
    """Event stream with a deadline: ``Pump`` or ``Inline``."""

    async def next(self) -> Any:
        """Return the next event or ``END``; raise ``DeadlineError`` once the deadline has passed."""

    async def close(self) -> None:
        """Stop the stream."""
