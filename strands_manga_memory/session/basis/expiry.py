"""ExpiryIndex: when to look at which conversation of the durable tier, so that ended ones are found without a scan.

An entry is written once, with a conversation's first flush, and moved by whoever looks: it says when to look next, the head
says what is true. So a flush costs nothing for it, and a conversation is found even if its hot copy is gone, its head has
been deleted by the table's own TTL, and nobody swept for days. The user's directory could not do that: it is found by the
user, and most users do not come back.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.stores.table import Condition, Item, Key, Table

logger = logging.getLogger(__name__)

BUCKETS = 16
"""Partitions the entries are spread over. No session id holds a slash, so none is a session's."""

FIRST_LOOK = 1800.0
"""Seconds after the first flush at which a conversation is first looked at."""

_IDS = ("session", "user", "tenant", "member")


@dataclass(frozen=True)
class Entry:
    """When to look at a conversation, its original ids, and until when somebody does just that."""

    place: Place
    due: int
    ids: Mapping[str, Any]
    claimed: float = 0.0


class ExpiryIndex:
    """The entries of all conversations in a table.

    Args:
        table: The durable tier.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    @classmethod
    def items(cls, place: Place, ids: Mapping[str, Any], *, due: float) -> list[Item]:
        """Return the records that enter a conversation: its entry, and a note where that is, so that an erasure finds it."""
        entry = Entry(place, math.ceil(due), {name: ids.get(name) for name in _IDS})
        partition, sort = due_key(place)
        return [cls._item(entry), {"session_id": partition, "sk": sort, "due": entry.due}]

    def due(self, now: float, *, start: int = 0) -> Iterator[Entry]:
        """Yield the entries whose time has come, from bucket ``start`` on."""
        for number in range(start, start + BUCKETS):
            for item in self._table.query(f"expiry/{number % BUCKETS:02d}", last=f"{math.floor(now):013d}#~"):
                due, _, name = str(item["sk"]).partition("#")
                try:
                    place, claimed = Place.named(name), float(item.get("claimed") or 0.0)
                    entry = Entry(place, int(due), {id_: item.get(id_) for id_ in _IDS}, claimed)
                except (ValueError, TypeError) as error:  # it must not keep the others from being looked at
                    logger.warning("error=<%s> | an entry of the expiry index makes no sense, it is left", type(error).__name__)
                    continue
                yield entry

    def claim(self, entry: Entry, *, now: float, lease: float) -> bool:
        """Take an entry for ``lease`` seconds; False if someone else has it."""
        if entry.claimed > now:
            return False
        item = self._item(entry) | {"claimed": now + lease}
        return self._table.put(item, when=Condition(equals={"claimed": entry.claimed}))

    def move(self, entry: Entry, *, due: float) -> None:
        """Look again at ``due``, at the earliest a second after its present time."""
        self._table.batch_write(puts=self.items(entry.place, entry.ids, due=max(entry.due + 1, due)))
        self.remove(entry)

    def remove(self, entry: Entry) -> None:
        """Forget a conversation that is there no more."""
        self._table.delete(*self._key(entry))

    def entry_of(self, place: Place) -> Entry | None:
        """Return the entry of a conversation, or None if it has none."""
        item = self._table.get(*due_key(place))
        return None if item is None else Entry(place, int(item["due"]), {})

    @classmethod
    def _item(cls, entry: Entry) -> Item:
        partition, sort = cls._key(entry)
        return {"session_id": partition, "sk": sort, **entry.ids, "claimed": entry.claimed}

    @staticmethod
    def _key(entry: Entry) -> tuple[str, str]:
        name = entry.place.conversation
        return f"expiry/{zlib.crc32(name.encode()) % BUCKETS:02d}", f"{entry.due:013d}#{name}"


def due_key(place: Place) -> Key:
    """Return the key of the record that says where the index has a conversation."""
    return f"ended/{place.conversation}", "due"


def finalized_key(place: Place) -> Key:
    """Return the key of the record that says which version of a conversation was finalized."""
    return f"ended/{place.conversation}", "finalized"
