"""Partition of one user in the memory table, changed by compare-and-set and guarded against writes from before an erasure."""

from __future__ import annotations

import hmac
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError
from strands_manga_memory.language.preferences import canonical_value
from strands_manga_memory.memory.records import (
    DAY,
    ERASED,
    INTERNAL,
    LEDGER,
    SHOWN_ATTRIBUTES,
    MemoryRecord,
    MemoryType,
    Owner,
    Uses,
    content_id,
    counted,
    episode_id,
    item_of,
    opened_body,
    place_of,
    preference_id,
    record_of,
    skip_unreadable,
    summary_id,
    type_range,
)
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table, Write

SALT = f"{INTERNAL}salt"

USUAL_SLOTS = frozenset(
    ("genre", "author", "format", "language", "budget", "style", "dislikes", "likes", "name", "home", "spoilers", "purchases")
)
"""Slots whose names reveal nothing about a user."""


class UserSalt:
    """Random salt of a user for the ids of preferences, stored encrypted with the memories.

    Only holders of the encryption key can derive an id from its slot. Key rotation re-encrypts the salt with the
    memories; an erasure deletes it. Without an encrypting codec, ids contain the slots in clear text.
    """

    def __init__(self, table: Table, owner: Owner, codec: Codec | None) -> None:
        self._table = table
        self._owner = owner
        self._codec = codec
        self._place = place_of(owner, SALT)
        self._salt: bytes | None = None

    def preference_id(self, key: str) -> str:
        """Return the id of the preference ``key``.

        Raises:
            ConflictError: The user's memories are being erased.
            CorruptRecordError: The salt is damaged.
            KeyMissingError: The encryption key of the salt is missing or destroyed.
        """
        codec = self._codec
        if codec is None or not codec.encrypts or key in USUAL_SLOTS:
            return preference_id(key)
        if self._salt is None:
            self._salt = self._read(codec) or self._made(codec)
        plain = " ".join(key.casefold().split())
        return f"{MemoryType.PREFERENCE}#~{hmac.digest(self._salt, plain.encode(), 'sha256').hex()[:32]}"

    def statement_id(self, statement: str) -> str:
        """Return the id of a statement without a slot. Raises the errors of ``preference_id``."""
        plain = canonical_value(statement)
        if self._codec is None or not self._codec.encrypts:
            return content_id(MemoryType.PREFERENCE, plain)
        return self.preference_id(f"~{plain}")

    def _made(self, codec: Codec) -> bytes:
        """Create the salt. If two writers do, the first one wins."""
        sealed = codec.encode(os.urandom(32), self._place)
        self._table.put({"user_id": self._owner.partition, "memory_id": SALT, "salt": sealed}, when=ABSENT)
        there = self._read(codec)
        if there is None:
            raise ConflictError(f"record={self._place!r} keeps changing; try again")
        return there

    def _read(self, codec: Codec) -> bytes | None:
        item = self._table.get(self._owner.partition, SALT)
        if item is None:
            return None
        with trusted(self._place):
            salt = codec.decode(item["salt"], self._place)
            if not isinstance(salt, bytes):
                raise TypeError("the salt must be bytes")
            return salt


logger = logging.getLogger(__name__)

_TRIES = 100
_LEDGER_SECONDS = 30 * DAY
_MOST_COUNTED = 40
"""Most memories that an entry of the ledger names, and that one request reads to count them."""
_random = random.Random()  # noqa: S311 - jitter; separate, so that it does not affect the application's random numbers


_Written = TypeVar("_Written")


@dataclass
class PartitionContent:
    """Content of a partition: unexpired memories and the access counts of the ledger.

    ``unreadable`` lists ids of records that are damaged or of a later version; they are not changed. ``is_partial`` tells
    that there may be more records than were read. ``expired`` lists ids of records that the store has not deleted yet.
    """

    records: dict[str, MemoryRecord] = field(default_factory=dict)
    uses: dict[str, tuple[int, float]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    is_partial: bool = False
    expired: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Range:
    """Sort values of a query. With a limit, it returns only the attributes that texts and searches need."""

    first: str | None = None
    last: str | None = None
    limit: int | None = None
    highest_first: bool = True

    def read(self, table: Table, partition: str) -> Iterator[Item]:
        return table.query(
            partition,
            first=self.first,
            last=self.last,
            reverse=self.limit is not None and self.highest_first,
            limit=self.limit,
            attributes=None if self.limit is None else SHOWN_ATTRIBUTES,
        )


# The order of the types' names decides which types a range holds. Ids of summaries, questions and episodes begin with the time:
# at a limit, the oldest are left out.
_START = (
    _Range(f"{MemoryType.SUMMARY}#", f"{MemoryType.MONTH}$", 9),
    _Range(*type_range(MemoryType.PREFERENCE), 40),
    _Range(f"{MemoryType.QUESTION}#", f"{MemoryType.WEEK}$", 16),
)
"""At most 4 months and the latest 5 summaries or more; preferences; at most 7 weeks and the latest 9 open questions or more."""

_RECENT = (
    _Range(f"{MemoryType.PATTERN}#", f"{MemoryType.EPISODE}$", 24),
    _Range(f"{MemoryType.FACT}#", f"{MemoryType.FEEDBACK}$", 64, highest_first=False),
)
"""Latest episodes and patterns; facts before feedback."""


class UserPartition:
    """Partition of one user in the memory table.

    Without a codec, content and metadata are stored in clear text. Episodes are always encoded, for compression.
    """

    def __init__(
        self,
        table: Table,
        owner: Owner,
        *,
        codec: Codec | None,
        clock: Callable[[], float],
    ) -> None:
        self.table = table
        self.owner = owner
        self.codec = codec
        self.clock = clock
        self.salt = UserSalt(table, owner, codec)

    def load(self, type_: str | None = None, *, uses: bool = False) -> PartitionContent:
        """Read all memories, or those of a type, in one query; ``uses`` adds a query for the access counts of a type.

        Raises:
            CorruptRecordError: None of the encrypted records can be decrypted, so the key differs from theirs.
        """
        if type_ is None:
            return self._load([_Range()])
        return self._load([_Range(*type_range(type_)), *([_Range(LEDGER, f"{LEDGER}~")] if uses else [])])

    def load_context(self) -> PartitionContent:
        """Read summaries, preferences, roll-ups and the ledger in one query, without facts and episodes.

        Raises:
            CorruptRecordError: As in ``load``.
        """
        return self._load([_Range(f"{MemoryType.SUMMARY}#", f"{LEDGER}~")])

    def load_start(self) -> PartitionContent:
        """Read the memories of an agent's context in three queries of at most 65 records, without the sources of roll-ups.

        Raises:
            CorruptRecordError: As in ``load``.
        """
        return self._load(_START)

    def load_recent(self) -> PartitionContent:
        """Read other memories for searches in two queries: the latest 24 episodes, and 64 facts, or feedback after all facts.

        Raises:
            CorruptRecordError: As in ``load``.
        """
        return self._load(_RECENT)

    def _load(self, ranges: Iterable[_Range]) -> PartitionContent:
        loaded, used = PartitionContent(), Uses()
        sealed: set[str] = set()
        for each in ranges:
            items = list(each.read(self.table, self.owner.partition))
            loaded.is_partial |= len(items) == each.limit
            for item in items:
                sealed |= {str(item["memory_id"])} if "sealed" in item else set()
                with self._one_by_one(item, loaded.unreadable):
                    self._take(item, loaded, used)
        if self.codec is not None and self.codec.encrypts and sealed and sealed.issubset(loaded.unreadable):
            place = place_of(self.owner, min(sealed))
            what = f"record={place!r} is one of {len(sealed)} that are encrypted, and none of them opens"
            raise CorruptRecordError(f"{what}; is this their key?", record=place)
        loaded.uses = used.counts
        return loaded

    def _take(self, item: Item, loaded: PartitionContent, used: Uses) -> None:
        id_ = str(item["memory_id"])
        if id_.startswith(LEDGER):
            used.add(item)
        elif not id_.startswith(INTERNAL):
            record = record_of(item, self.owner, self.codec)
            if record.expired(self.clock()):
                loaded.expired.append(id_)
            else:
                loaded.records[id_] = record

    @contextmanager
    def _one_by_one(self, item: Item, unreadable: list[str]) -> Iterator[None]:
        """Record the id of an unreadable record and continue, unless only its key is missing."""
        name = place_of(self.owner, str(item["memory_id"]))
        with skip_unreadable():
            try:
                with trusted(name):
                    yield
            except CorruptRecordError:
                unreadable.append(str(item["memory_id"]))
                raise

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory, or None if it does not exist or has expired."""
        item = self.table.get(self.owner.partition, memory_id)
        record = None if item is None else record_of(item, self.owner, self.codec)
        return None if record is None or record.expired(self.clock()) else record

    def put(self, record: MemoryRecord) -> None:
        """Write a memory unconditionally; the last write wins."""
        self.table.put(self.item_of(record))

    def update(
        self, memory_id: str, change: Callable[[MemoryRecord | None], MemoryRecord | None], *, guard: Item | str | None = ""
    ) -> MemoryRecord | None:
        """Change a memory by compare-and-set; return the stored memory.

        Args:
            memory_id: Id of the memory.
            change: Returns the new memory for the current one (None if it does not exist or has expired). The same
                object or None means no change. Called again after a conflict. The version is set here.
            guard: Erasure marker at the start of the work, None if there was none. If the marker has changed, nothing
                is written. Default: no guard.

        Raises:
            ConflictError: Other writers keep changing the memory.
        """

        def attempt() -> tuple[MemoryRecord | None] | None:
            item = self.table.get(self.owner.partition, memory_id)
            stored = None if item is None else record_of(item, self.owner, self.codec)
            alive = None if stored is None or stored.expired(self.clock()) else stored
            wanted = change(alive)
            if wanted is None or wanted is alive:
                return (alive,)
            version = 1 if stored is None else stored.version + 1
            when = ABSENT if stored is None or item is None else Condition(equals={"version": item.get("version")})
            wanted = MemoryRecord(**{**_fields(wanted), "version": version})
            if self._written(self.item_of(wanted), when, guard):
                return (wanted,)
            if not isinstance(guard, str) and self.erased() != guard:
                logger.debug("the user was erased meanwhile, nothing is written")
                return (None,)
            return None

        return repeat_until_written(attempt, record=place_of(self.owner, memory_id))[0]

    def _written(self, item: Item, when: Condition, guard: Item | str | None) -> bool:
        if isinstance(guard, str):
            return self.table.put(item, when=when)
        return self.table.transact([Write(item=item, when=when), not_erased_since(self.owner.partition, guard)])

    def erased(self) -> Item | None:
        """Return the marker of the last erasure, or None."""
        return self.table.get(self.owner.partition, ERASED)

    def delete(self, memory_id: str) -> bool:
        """Delete a memory; return whether it existed."""
        there = self.table.get(self.owner.partition, memory_id) is not None
        self.table.delete(self.owner.partition, memory_id)
        return there

    def delete_many(self, ids: Iterable[str]) -> None:
        """Delete memories."""
        self.table.batch_write(deletes=[(self.owner.partition, id_) for id_ in ids])

    def ids(self, type_: str) -> list[str]:
        """Return the ids of all memories of a type, including expired ones."""
        first, last = type_range(type_)
        rows = self.table.query(self.owner.partition, first=first, last=last, attributes=[])
        return [str(row["memory_id"]) for row in rows]

    def id_of_summary(self, name: str) -> str:
        """Return the id of a summary with this name, or a new one. Reads the ids of all summaries."""
        known = (id_ for id_ in self.ids(MemoryType.SUMMARY) if id_.split("#", 2)[-1] == name)
        return next(known, summary_id(name, self.clock()))

    def episode_ids(self, summary_id: str) -> list[str]:
        """Return the ids of the episodes of a summary's session, in order."""
        first = episode_id(summary_id, 0).rsplit("#", 1)[0]
        rows = self.table.query(self.owner.partition, first=f"{first}#", last=f"{first}$", attributes=[])
        return [str(row["memory_id"]) for row in rows]

    def opened(self, item: Item, place: str) -> Any:
        """Decode the attributes of an item that ``sealed_unless_plain`` encoded."""
        return opened_body(item, self.codec, place)

    def item_of(self, record: MemoryRecord) -> Item:
        """Return the stored form of a record."""
        codec = self.codec
        if codec is None and record.type == MemoryType.EPISODE:
            codec = Codec()
        return item_of(record, self.owner, codec)

    # The ledger of recalls: an entry each, counted into the records now and then

    def note_uses(self, ids: Iterable[str], *, at: float | None = None) -> None:
        """Record recalls of memories in one write. Episodes are not counted, because each count would rewrite their texts.

        Args:
            ids: Ids of the memories, best first; the first 40 are recorded.
            at: Time of the recall in seconds since 1970. Nothing is written if the user was erased at that time or
                later. None: the caller knows that the user was not erased.
        """
        used = [id_ for id_ in dict.fromkeys(ids) if not id_.startswith(f"{MemoryType.EPISODE}#")][:_MOST_COUNTED]
        if not used:
            return
        now = self.clock()
        entry = {
            "user_id": self.owner.partition,
            "memory_id": f"{LEDGER}{int(now * 1000):015d}.{uuid.uuid4().hex[:8]}",
            "at": now,
            "used": used,
            "expires_at": int(now + _LEDGER_SECONDS),
        }
        if at is None:
            self.table.put(entry)
            return
        not_erased = Condition(absent=True, below={"at": at})
        self.table.transact([Write(item=entry), Write(key=(self.owner.partition, ERASED), when=not_erased, is_check=True)])

    def uses(self) -> dict[str, tuple[int, float]]:
        """Return the access counts since the records were written, and the last access times; one query."""
        return self._ledger()[1].counts

    def fold(self) -> int:
        """Add the ledger's entries to the records; return the number of added entries.

        Each entry is deleted before it is counted, and only one process succeeds in that, so no recall is counted twice.
        The counts of a process that stops between the two are lost: a transaction would cost twice as much.
        """
        rows, _ = self._ledger()
        used, folded = Uses(), 0
        for row in rows:
            if self.table.delete(self.owner.partition, row["memory_id"], when=Condition(equals={"at": row.get("at")})):
                used.add(row)
                folded += 1
        ids = list(used.counts)
        for start in range(0, len(ids), _MOST_COUNTED):
            keys = [(self.owner.partition, id_) for id_ in ids[start : start + _MOST_COUNTED]]
            for item in self.table.batch_get(keys).values():
                with skip_unreadable():
                    self._count(item, used)
        return folded

    def _ledger(self) -> tuple[list[Item], Uses]:
        rows, used = list[Item](), Uses()
        for row in self.table.query(self.owner.partition, first=LEDGER, last=f"{LEDGER}~"):
            with self._one_by_one(row, []):
                used.add(row)
                rows.append(row)
        return rows, used

    def _count(self, item: Item, used: Uses) -> None:
        """Add uses to a stored record, unless the record is deleted meanwhile."""
        found: Item | None = item

        def attempt() -> bool | None:
            nonlocal found
            if found is None:
                return False
            # The version stays, because the content does: roll-ups of the memory need not be written again.
            record = counted(record_of(found, self.owner, self.codec), used.counts)
            unchanged: Item = {name: found[name] for name in ("version", "access_count", "updated_at") if name in found}
            if self.table.put(self.item_of(record), when=Condition(equals=unchanged)):
                return True
            found = self.table.get(self.owner.partition, record.memory_id)
            return None

        repeat_until_written(attempt, record=place_of(self.owner, str(item["memory_id"])))


def repeat_until_written(attempt: Callable[[], _Written | None], *, record: str) -> _Written:
    """Repeat a compare-and-set, with growing pauses and jitter, until it succeeds.

    Args:
        attempt: Reads the record, and writes it if it has not changed. Returns None after a conflict.
        record: Name of the record, for the error.

    Raises:
        ConflictError: A hundred attempts failed.
    """
    for number in range(_TRIES):
        if (written := attempt()) is not None:
            return written
        time.sleep(_random.uniform(0.0, min(0.2, 0.001 * 2 ** min(number, 8))))
    raise ConflictError(f"record={record!r} keeps changing; try again")


def not_erased_since(partition: str, erased: Item | None) -> Write:
    """Return a condition check that fails if the user was erased after the marker ``erased`` was read."""
    unchanged = ABSENT if erased is None else Condition(equals={"mark": erased.get("mark")})
    return Write(key=(partition, ERASED), when=unchanged, is_check=True)


def _fields(record: MemoryRecord) -> Mapping[str, Any]:
    return {name: getattr(record, name) for name in MemoryRecord.__dataclass_fields__}
