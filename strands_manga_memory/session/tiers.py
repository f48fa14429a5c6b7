"""Stores of a session manager, storage keys of conversations, and two lists in the durable tier.

The directory lists a user's sessions. The expiry index lists the times when a sweeper (background
job for expired conversations) must check a conversation.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from strands_manga_memory.arguments import Clock, PositiveInt, PositiveSeconds, checked
from strands_manga_memory.scope import ConversationScope, encoded_id
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import MALFORMED, Codec
from strands_manga_memory.stores.hot import DELETED, HotStore
from strands_manga_memory.stores.table import Condition, Item, Key, Table
from strands_manga_memory.stores.writer import Writer, shared_writer

logger = logging.getLogger(__name__)

Kind = Literal["A", "M"]
"""Kind of a conversation: ``A`` of an agent, ``M`` of an orchestrator (Graph or Swarm)."""

TOMBSTONE = "#TOMBSTONE"
"""Sort value of the item (tombstone) that deletes all conversations of a session or of a user."""

ENDED_BELOW = "incarnation"
"""Attribute of a session's or user's tombstone: incarnations with lower numbers are deleted."""

HOT = "hot"
"""Attribute of a head (record of a conversation): a process with a hot tier has written it."""


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """Storage key of the conversation of an agent, Graph or Swarm.

    Attributes:
        session: Storage id of the session, escaped.
        member: Kind and escaped id of the agent, Graph or Swarm, such as ``A:default`` for the
            agent ``default``.
    """

    session: str
    member: str

    @classmethod
    def of(cls, session: str, kind: Kind, id_: str) -> ConversationKey:
        """Return the storage key of the conversation of an agent (``A``), Graph or Swarm (``M``).

        ``session`` is the storage id of the session. ``id_`` is not escaped.
        """
        return cls(session, f"{kind}:{encoded_id(id_)}")

    @classmethod
    def parse(cls, name: str) -> ConversationKey:
        """Convert a conversation's name in the hot tier to its storage key.

        An example of a name is ``s1/A:default``: agent ``default`` in session ``s1``.
        """
        return cls(*name.rsplit("/", 1))

    @property
    def kind(self) -> Kind:
        """Kind of the conversation: ``A`` of an agent, ``M`` of a Graph or Swarm."""
        return "M" if self.member.startswith("M:") else "A"

    @property
    def name(self) -> str:
        """Name of the conversation in the hot tier.

        An example is ``s1/A:default``: agent ``default`` in session ``s1``.
        """
        return f"{self.session}/{self.member}"


def user_directory(user_id: str, tenant: str | None) -> str:
    """Return the table partition that lists the sessions of a user (the user's directory)."""
    return f"user/{encoded_id(tenant) if tenant else ''}:{encoded_id(user_id)}"


def directory_entry(session: str, ids: Mapping[str, Any]) -> Item | None:
    """Return the table item that lists a session for its user.

    None for a session without a user.
    """
    if not ids.get("user"):
        return None
    names = {name: ids.get(name) for name in ("session", "user", "tenant")}
    return {"session_id": user_directory(ids["user"], ids.get("tenant")), "sk": session, **names}


class StoredHead(NamedTuple):
    """Properties of a head (record of a conversation) in the durable tier.

    Attributes:
        member: Id of the agent, Graph or Swarm; None for a deleted or damaged conversation.
        is_damaged: Whether the head lacks the attribute ``state``, which every write sets.
        was_hot: Whether a process with a hot tier has written the head.
    """

    key: ConversationKey
    member: str | None
    is_damaged: bool
    was_hot: bool


def stored_heads(table: Table, session: str) -> list[StoredHead]:
    """Return the heads (conversation records) of a session, also those of deleted conversations."""
    rows = table.query(session, attributes=["state", "member", HOT])
    return [
        StoredHead(
            ConversationKey(session, sort.removesuffix("#HEAD")),
            row.get("member") or None,
            "state" not in row,
            bool(row.get(HOT)),
        )
        for row in rows
        if (sort := str(row["sk"])).endswith("#HEAD")
    ]


def put_group_tombstone(table: Table, partition: str, *, now: float, until: float) -> None:
    """Mark all conversations of a session or user as deleted, by one item (a tombstone).

    After this call, the caller must list the conversations, and delete their data. An earlier list
    may be incomplete, because other processes can begin conversations until the item is written.

    Args:
        table: The durable tier.
        partition: Partition of the session, or of the user's directory (list of sessions).
        now: The time in seconds since 1970.
        until: Time when the table may delete the tombstone, in seconds since 1970.
    """
    key = {"session_id": partition, "sk": TOMBSTONE}
    before = (table.get(partition, TOMBSTONE) or {}).get(ENDED_BELOW)
    incarnation = max(int(now), int(before) + 1 if isinstance(before, int | float) else 0)
    ended = {ENDED_BELOW: incarnation, "state": DELETED, table.schema.ttl: math.ceil(until)}
    table.put(key | ended)


BUCKETS = 16
"""Number of partitions of the expiry index."""

FIRST_CHECK_SECONDS = 1800.0
"""Seconds from a conversation's first write to the durable tier to its first check by a sweeper."""

_IDS = ("session", "user", "tenant", "member")


@dataclass(frozen=True)
class ExpiryEntry:
    """Entry of the expiry index: the time when a sweeper (background job) checks a conversation.

    Args:
        due: Time of the check, in seconds since 1970.
        ids: Unescaped ids: ``session``, ``user``, ``tenant`` and ``member`` (agent or
            orchestrator).
        claimed: Time when a sweeper's claim (reservation) of the entry ends, in seconds since 1970;
            0 without a claim.
    """

    key: ConversationKey
    due: int
    ids: Mapping[str, Any]
    claimed: float = 0.0

    @classmethod
    def of(cls, item: Item) -> ExpiryEntry:
        """Convert an item of the durable table to an entry of the expiry index.

        A damaged item raises an error of ``MALFORMED``, such as a ``KeyError``.
        """
        ids = {name: item.get(name) for name in _IDS}
        claimed = float(item.get("claimed") or 0.0)
        return cls(ConversationKey.parse(item["conversation"]), int(item["due"]), ids, claimed)

    @property
    def table_key(self) -> Key:
        """Key of the entry's item in the table."""
        name = self.key.name
        return f"expiry/{zlib.crc32(name.encode()) % BUCKETS:02d}", f"{self.due:013d}#{name}"

    def item(self, key: Key, **changes: Any) -> Item:
        """Convert the entry to a table item with the given key. ``changes`` replace attributes."""
        values = {"conversation": self.key.name, "due": self.due, "claimed": 0.0, **self.ids}
        return {"session_id": key[0], "sk": key[1], **values, **changes}


class ExpiryIndex:
    """Index in the durable tier of the times when sweepers must check conversations.

    A sweeper (background job) reads the entries whose time has come, and finishes their
    conversations if they have expired.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    @classmethod
    def items(
        cls, conversation_key: ConversationKey, ids: Mapping[str, Any], *, due: float
    ) -> list[Item]:
        """Return the two table items that list a conversation in the expiry index.

        ``ids`` are unescaped ids. ``due`` is the time of the next check by a sweeper (background
        job), in seconds since 1970.
        """
        known = {name: ids.get(name) for name in _IDS}
        entry = ExpiryEntry(conversation_key, math.ceil(due), known)
        return [entry.item(entry.table_key), entry.item(due_key(conversation_key))]

    def due(self, now: float, *, start: int = 0) -> Iterator[ExpiryEntry]:
        """Yield the entries of the conversations that a sweeper (background job) must check now.

        ``now`` is the time in seconds since 1970. ``start`` (0 to 15) is the first of the 16
        index partitions to read. With random numbers, simultaneous sweepers begin with different
        entries.
        """
        for number in range(start, start + BUCKETS):
            partition, last = f"expiry/{number % BUCKETS:02d}", f"{math.floor(now):013d}#~"
            for item in self._table.query(partition, last=last):
                try:
                    entry = ExpiryEntry.of(item)
                except MALFORMED as error:  # must not block the other entries
                    kind = type(error).__name__
                    logger.warning("error=<%s> | skipped a damaged entry of the expiry index", kind)
                    continue
                yield entry

    def claim(self, entry: ExpiryEntry, *, now: float, lease: float) -> bool:
        """Reserve a conversation for ``lease`` seconds, so that no other background job checks it.

        ``now`` is the time in seconds since 1970. Return False if another job was first.
        """
        item = entry.item(entry.table_key, claimed=now + lease)
        is_free = entry.claimed <= now
        return is_free and self._table.put(item, when=Condition(equals={"claimed": entry.claimed}))

    def postpone(self, entry: ExpiryEntry, *, due: float) -> None:
        """Move a conversation's entry in the index to a later time.

        The new time is ``due``, in seconds since 1970, but at least one second after the old time.
        """
        # The old entry is deleted last, so its key, which has its second, must differ from the new
        # key.
        later = self.items(entry.key, entry.ids, due=max(entry.due + 1, due))
        self._table.batch_write(puts=later)
        self._table.delete(*entry.table_key)

    def remove(self, conversation_key: ConversationKey) -> bool:
        """Remove a conversation from the index, and return whether the index had an entry of it.

        Sweepers (background jobs) then no longer check the conversation. The item of
        ``finalized_key`` is removed, too.
        """
        entry = self.entry_of(conversation_key)
        keys = [due_key(conversation_key), finalized_key(conversation_key)]
        self._table.batch_write(deletes=[*keys, *([entry.table_key] if entry else [])])
        return entry is not None

    def entry_of(self, conversation_key: ConversationKey) -> ExpiryEntry | None:
        """Return a conversation's entry in the expiry index; None if it is missing or damaged."""
        with suppress(*MALFORMED):
            return ExpiryEntry.of(self._table.get(*due_key(conversation_key)) or {})
        return None


def due_key(conversation_key: ConversationKey) -> Key:
    """Return the table key of the time when a sweeper (background job) checks a conversation."""
    return f"ended/{conversation_key.name}", "due"


def finalized_key(conversation_key: ConversationKey) -> Key:
    """Return the key of the table item with the last finalized version of a conversation.

    A finalizer, such as a summarizer, has processed this version of the conversation.
    """
    return f"ended/{conversation_key.name}", "finalized"


class ListedSession(NamedTuple):
    """Session in a user's directory (the list of the user's sessions).

    Args:
        has_hot_copies: Whether the session was deleted, and is listed only because a hot tier may
            still have copies of it.
    """

    scope: ConversationScope
    has_hot_copies: bool


def list_sessions(
    table: Table, user_id: str, tenant: str | None
) -> tuple[list[ListedSession], list[str]]:
    """Return a user's sessions, and the table keys of list entries that cannot be read.

    A damaged session id is restored from the entry's key or from the expiry index.
    """
    partition = user_directory(user_id, tenant)
    found: list[ListedSession] = []
    unreadable: list[str] = []

    def scope_of(row: Item) -> ConversationScope | None:
        for session in _possible_sessions(table, row):
            with suppress(ValueError):
                scope = ConversationScope(user_id, session, tenant=tenant)
                if scope.storage_session_id == row["sk"]:
                    return scope
        return None

    for row in table.query(partition):
        if row["sk"] == TOMBSTONE:
            continue
        if scope := scope_of(row):
            found.append(ListedSession(scope, row.get("state") == DELETED))
            continue
        unreadable.append(f"{partition}/{row['sk']}")
        logger.warning("skipped a damaged entry of a user's directory of sessions")
        logger.debug("record=<%s> | damaged entry of a directory", unreadable[-1])
    return found, unreadable


def _possible_sessions(table: Table, row: Item) -> Iterator[Any]:
    key = str(row["sk"])
    yield row.get("session")
    yield unquote(key.rpartition(":")[2])
    for head in stored_heads(table, key):
        if entry := ExpiryIndex(table).entry_of(head.key):
            yield entry.ids["session"]


def remove_listing(
    table: Table, session: str, ids: Mapping[str, Any], *, copies_until: float | None
) -> None:
    """Remove a deleted session from the list of its user's sessions.

    With ``copies_until``, the entry stays, marked as deleted, until this time (seconds since 1970),
    at which the session's copies in the hot tier have expired. ``ids`` are the unescaped ids
    ``session``, ``user`` and ``tenant``.
    """
    if (entry := directory_entry(session, ids)) is None:
        return
    if copies_until is None:
        table.delete(entry["session_id"], entry["sk"])
    else:
        table.put({**entry, "state": DELETED, table.schema.ttl: int(copies_until) + 1})


def is_in_hot(table: Table, session: str) -> bool:
    """Return whether a hot tier may have copies of a session.

    The result is True if any process with a hot tier has stored a conversation of the session.
    """
    return any(head.was_hot for head in stored_heads(table, session))


def hot_copy_warnings(
    table: Table, listed: Iterable[ListedSession], hot: HotStore | None
) -> list[str]:
    """Return a list with a warning if sessions may have copies in a hot tier that is not given.

    A deletion or export of a user's data misses such copies. A ``hot`` tier in the memory of the
    process counts as not given.
    """
    if hot is not None and hot.survives_process:
        return []
    if any(one.has_hot_copies or is_in_hot(table, one.scope.storage_session_id) for one in listed):
        return [
            "hot tier: sessions were kept in one that outlives its process, and none was given"
            " (MANGA_MEMORY_HOT_URL or --hot)"
        ]
    return []


Refresh = Literal["never", "turn"]


@checked
@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """Stores of a session manager, their background writer, and the settings for saving.

    Most fields are arguments of ``TieredSessionManager``.

    Raises:
        ValueError: A field is out of range, or there is neither a hot nor a durable tier.
    """

    hot: HotStore | None
    durable: Table | None
    writer: Writer
    codec: Codec
    clock: Clock
    ttl: TtlPolicy
    flush_every: PositiveInt = 5
    refresh: Refresh = "never"
    hot_deadline: PositiveSeconds = 0.05
    durable_deadline: PositiveSeconds = 2.0
    max_unsaved: PositiveInt = 10_000

    def __post_init__(self) -> None:
        if self.hot is None and self.durable is None:
            raise ValueError(
                "hot and durable are both None: pass a store or a URL, such as"
                " durable='sqlite:///sessions.sqlite3'"
            )

    @classmethod
    def of(
        cls,
        hot: HotStore | None,
        durable: Table | None,
        *,
        codec: Codec | None = None,
        ttl: TtlPolicy | None = None,
        **rules: Any,
    ) -> Tiers:
        """Combine a hot and a durable store, of which one may be None.

        A hot store in the memory of this process is used only without a durable store, because its
        content is lost when the process ends. ``rules`` are further attributes of ``Tiers``, such
        as ``clock``.
        """
        if hot is not None and durable is not None and not hot.survives_process:
            hot = None
        writer = shared_writer(hot, durable)
        return cls(
            hot=hot,
            durable=durable,
            writer=writer,
            codec=Codec() if codec is None else codec,
            ttl=TtlPolicy() if ttl is None else ttl,
            **rules,
        )

    def codec_of(self, *, is_tombstone: bool) -> Codec:
        """Return the codec that encodes and decodes a record.

        A tombstone (the empty record of a deleted or expired conversation) is never encrypted, so
        that a process without the encryption keys can read it.
        """
        return Codec() if is_tombstone else self.codec

    @property
    def store_names(self) -> str:
        """Names of the classes of the two stores, for a ``repr``."""
        stores = (getattr(store, "observes", store) for store in (self.hot, self.durable))
        hot, durable = (None if store is None else type(store).__name__ for store in stores)
        return f"hot={hot}, durable={durable}"
