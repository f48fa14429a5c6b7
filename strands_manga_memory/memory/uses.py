"""Uses: how often each memory was recalled, by the ledger's entries. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from strands_manga_memory.stores.table import Item


@dataclass
class Uses:
    """How often each memory was recalled, and when last."""

    counts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, entry: Item) -> None:
        """Add an entry of the ledger."""
        at, used = float(entry.get("at") or 0.0), entry.get("used") or ()
        if not (isinstance(used, list | tuple) and all(isinstance(id_, str) for id_ in used) and math.isfinite(at)):
            raise ValueError("it does not say what was used")
        for id_ in used:
            count, latest = self.counts.get(id_, (0, 0.0))
            self.counts[id_] = count + 1, max(latest, at)
