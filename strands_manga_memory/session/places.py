"""Places of conversations in the stores, the directory of a user's sessions, and the expiry index."""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from strands_manga_memory.scope import ConversationScope, encoded_id
from strands_manga_memory.session.protocol.durable_tier import HOT
from strands_manga_memory.stores.hot import DELETED, HotStore
from strands_manga_memory.stores.table import Condition, Item, Key, Table

logger = logging.getLogger(__name__)

Kind = Literal["A", "M"]
"""An agent's conversation, or the state of a Graph or Swarm."""

TOMBSTONE = "#TOMBSTONE"
"""Sort value of the tombstone of a session or user; its partition is the session, or the user's directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation is kept: the storage id of its session, and its kind and id there, both escaped."""

    session: str
    member: str

    @classmethod
    def of(cls, session: str, kind: Kind, id_: str) -> Place:
        """Return the place of an agent or orchestrator, named by its own id."""
        return cls(session, f"{kind}:{encoded_id(id_)}")

    @classmethod
    def named(cls, conversation: str) -> Place:
        """Return the place of a conversation, by its name in the hot tier."""
        return cls(*conversation.rsplit("/", 1))

    @property
    def conversation(self) -> str:
        """Escaped name in the hot tier. No session id holds a slash, so no two places share one."""
        return f"{self.session}/{self.member}"


def directory_key(session: str, ids: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a session's entry in its user's directory; None if the session has no user.

    No session id holds a slash, so the directory's partition is never a session's.
    """
    if not ids.get("user"):
        return None
    tenant = encoded_id(ids["tenant"]) if ids.get("tenant") else ""
    return f"user/{tenant}:{encoded_id(ids['user'])}", session


def directory_entry(session: str, ids: Mapping[str, Any]) -> Item | None:
    """Return a session's entry in its user's directory; None if the session has no user."""
    key = directory_key(session, ids)
    if key is None:
        return None
    return {"session_id": key[0], "sk": key[1], **{name: ids.get(name) for name in ("session", "user", "tenant")}}


def members(table: Table, session: str) -> Iterator[Place]:
    """Yield the places of the conversations that a table has of a session, damaged ones too."""
    for row in table.query(session, attributes=[]):
        if str(row["sk"]).endswith("#HEAD"):
            yield Place(session, str(row["sk"]).removesuffix("#HEAD"))


def member_ids(table: Table, session: str) -> Iterator[tuple[Kind, str]]:
    """Yield the kinds and original ids of a session's agents and orchestrators in a table, without deleted ones."""
    for row in table.query(session, attributes=["member"]):
        if str(row["sk"]).endswith("#HEAD") and row.get("member"):
            yield ("M" if str(row["sk"]).startswith("M:") else "A"), str(row["member"])


def tombstone_key(partition: str) -> Key:
    """Return the key of the tombstone of a session, or of the user whose directory has this partition value."""
    return partition, TOMBSTONE


BUCKETS = 16
"""Partitions the entries are spread over. No session id holds a slash, so none is a session's."""

FIRST_LOOK = 1800.0
"""Seconds after the first flush at which a conversation is first looked at."""

_IDS = ("session", "user", "tenant", "member")


@dataclass(frozen=True)
class ExpiryEntry:
    """Entry of the expiry index: when a sweeper checks a conversation, its original ids, and the lease of a sweeper."""

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
        entry = ExpiryEntry(place, math.ceil(due), {name: ids.get(name) for name in _IDS})
        partition, sort = due_key(place)
        return [cls._item(entry), {"session_id": partition, "sk": sort, "due": entry.due}]

    def due(self, now: float, *, start: int = 0) -> Iterator[ExpiryEntry]:
        """Yield the due entries, from bucket ``start`` on."""
        for number in range(start, start + BUCKETS):
            for item in self._table.query(f"expiry/{number % BUCKETS:02d}", last=f"{math.floor(now):013d}#~"):
                due, _, name = str(item["sk"]).partition("#")
                try:
                    place, claimed = Place.named(name), float(item.get("claimed") or 0.0)
                    entry = ExpiryEntry(place, int(due), {id_: item.get(id_) for id_ in _IDS}, claimed)
                except (ValueError, TypeError) as error:  # it must not keep the others from being looked at
                    logger.warning("error=<%s> | an entry of the expiry index makes no sense, it is left", type(error).__name__)
                    continue
                yield entry

    def claim(self, entry: ExpiryEntry, *, now: float, lease: float) -> bool:
        """Take an entry for ``lease`` seconds; False if someone else has it."""
        if entry.claimed > now:
            return False
        item = self._item(entry) | {"claimed": now + lease}
        return self._table.put(item, when=Condition(equals={"claimed": entry.claimed}))

    def move(self, entry: ExpiryEntry, *, due: float) -> None:
        """Postpone an entry to ``due``, at least by one second."""
        self._table.batch_write(puts=self.items(entry.place, entry.ids, due=max(entry.due + 1, due)))
        self.remove(entry)

    def remove(self, entry: ExpiryEntry) -> None:
        """Remove the entry of a conversation that no longer exists."""
        self._table.delete(*self._key(entry))

    def entry_of(self, place: Place) -> ExpiryEntry | None:
        """Return the entry of a conversation, or None if it has none."""
        item = self._table.get(*due_key(place))
        return None if item is None else ExpiryEntry(place, int(item["due"]), {})

    @classmethod
    def _item(cls, entry: ExpiryEntry) -> Item:
        partition, sort = cls._key(entry)
        return {"session_id": partition, "sk": sort, **entry.ids, "claimed": entry.claimed}

    @staticmethod
    def _key(entry: ExpiryEntry) -> tuple[str, str]:
        name = entry.place.conversation
        return f"expiry/{zlib.crc32(name.encode()) % BUCKETS:02d}", f"{entry.due:013d}#{name}"


def due_key(place: Place) -> Key:
    """Return the key of the record with the place of a conversation in the index."""
    return f"ended/{place.conversation}", "due"


def finalized_key(place: Place) -> Key:
    """Return the key of the record with the finalized version of a conversation."""
    return f"ended/{place.conversation}", "finalized"


@dataclass(frozen=True)
class ListedSession:
    """A listed session. It ``waits`` if it was deleted while the hot tier, which may have a copy, did not answer."""

    scope: ConversationScope
    waits: bool


def listings(table: Table, user_id: str, tenant: str | None) -> tuple[list[ListedSession], list[str]]:
    """Return the sessions of a user, and the names of entries without a session."""
    key = directory_key("", {"user": user_id, "tenant": tenant})
    assert key is not None  # noqa: S101 - there is a user
    found: list[ListedSession] = []
    unreadable: list[str] = []
    for row in table.query(key[0]):
        if row["sk"] == TOMBSTONE:
            continue
        with suppress(ValueError):  # its own ids may be damaged: that it is where this user's session is says whose it is
            scope = ConversationScope(user_id, row.get("session"), tenant=tenant)  # type: ignore[arg-type]
            if scope.storage_session_id == row["sk"]:
                found.append(ListedSession(scope, row.get("state") == DELETED))
                continue
        unreadable.append(f"{key[0]}/{row['sk']}")
        logger.warning("an entry of a directory makes no sense, it is left")
        logger.debug("record=<%s> | an entry of a directory makes no sense", unreadable[-1])
    return found, unreadable


def unlist(table: Table, session: str, ids: Mapping[str, Any], *, waits_until: float | None) -> None:
    """Remove a deleted session from the directory, or list it as waiting until its last hot copies have expired."""
    entry = directory_entry(session, ids)
    if entry is not None and waits_until is not None:
        table.put({**entry, "state": DELETED, table.schema.ttl: int(waits_until) + 1})
    elif entry is not None:
        table.delete(entry["session_id"], entry["sk"])


def is_in_hot(table: Table, session: str) -> bool:
    """Whether a hot tier may have copies of a session."""
    return any(row.get(HOT) for row in table.query(session, attributes=[HOT]))


def unseen_copies(table: Table, listed: Iterable[ListedSession], hot: HotStore | None) -> list[str]:
    """Return the reason why possible copies of sessions in a hot tier cannot be checked; empty without such copies."""
    if hot is not None and hot.survives_process:
        return []
    if any(one.waits or is_in_hot(table, one.scope.storage_session_id) for one in listed):
        return [
            "hot tier: sessions were kept in one that outlives its process, and none was given (MANGA_MEMORY_HOT_URL or --hot)"
        ]
    return []
