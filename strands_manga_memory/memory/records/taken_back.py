"""TakenBack: which messages were redacted, so that nothing is made of them any more, whatever a log says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from strands_manga_memory.memory.records.memory_records import TAKEN_BACK, Owner
from strands_manga_memory.memory.records.retention import DAY
from strands_manga_memory.stores.table import Table

_SECONDS = 30 * DAY
"""How long a note is kept: longer than any session that is still to be finalized."""


class TakenBack:
    """Notes in a user's part of the memory table."""

    def __init__(self, table: Table, owner: Owner, clock: Callable[[], float]) -> None:
        self._table, self._owner, self._clock = table, owner, clock

    def note(self, message_id: str) -> None:
        """Note that a message was redacted, by its ``tracking_id``."""
        expires_at = int(self._clock() + _SECONDS)
        self._table.put({"user_id": self._owner.partition, "memory_id": note_id(message_id), "expires_at": expires_at})

    def notes(self) -> frozenset[str]:
        """Return the ids of all notes; see ``note_id``."""
        rows = self._table.query(self._owner.partition, first=TAKEN_BACK, last=f"{TAKEN_BACK}~", attributes=[])
        return frozenset(str(row["memory_id"]) for row in rows)


def note_id(message_id: str) -> str:
    """Return the id of the note on a message, whatever its ``tracking_id`` is."""
    return f"{TAKEN_BACK}{hashlib.blake2b(message_id.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"
