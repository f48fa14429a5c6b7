"""Keys: under which a conversation's records stand in a ``Table``. Pure."""

from __future__ import annotations

from strands_manga_memory.session.core.identity import Segment
from strands_manga_memory.stores.table import Key


def head_key(session: str, member: str) -> Key:
    """Return the key of the head."""
    return session, f"{member}#HEAD"


def segment_key(session: str, member: str, segment: Segment) -> Key:
    """Return the key of a segment of the log."""
    life, clock, writer, number = segment
    return session, f"{member}#LOG#{life}#{clock:012d}#{writer}#{number:08d}"


def log_range(member: str, life: str | None = None) -> tuple[str, str]:
    """Return the first and the last sort value of the log: of one life, or of all."""
    first = f"{member}#LOG#" if life is None else f"{member}#LOG#{life}#"
    return first, f"{first}\U0010ffff"
