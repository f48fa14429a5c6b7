"""Uses: how often each memory was recalled, and when last, from the ledger's entries. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strands_manga_memory.memory.records.memory_records import MemoryRecord
from strands_manga_memory.stores.table import Item


@dataclass
class Uses:
    """How often each memory was recalled, and when last."""

    counts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, entry: Item) -> None:
        """Add an entry of the ledger.

        Raises:
            ValueError: It does not say what was used.
        """
        at, used = float(entry.get("at") or 0.0), entry.get("used") or ()
        if not (isinstance(used, list | tuple) and all(isinstance(id_, str) for id_ in used) and math.isfinite(at)):
            raise ValueError("it does not say what was used")
        for id_ in used:
            count, latest = self.counts.get(id_, (0, 0.0))
            self.counts[id_] = count + 1, max(latest, at)


def counted(record: MemoryRecord, uses: Mapping[str, tuple[int, float]]) -> MemoryRecord:
    """Return a memory with the recalls that the ledger has and its record has not."""
    count, at = uses.get(record.memory_id, (0, 0.0))
    return replace(record, access_count=record.access_count + count, last_accessed=max(record.last_accessed, at))
