"""One user's records in a table: read whole, changed by compare-and-set, guarded against writes from before an erasure."""

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
    MemoryRecord,
    MemoryType,
    Owner,
    Uses,
    content_id,
    item_of,
    opened_body,
    place_of,
    preference_id,
    record_of,
    skip_unreadable,
    type_range,
)
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table, Write

SALT = f"{INTERNAL}salt"

USUAL_SLOTS = frozenset(
    ("genre", "author", "format", "language", "budget", "style", "dislikes", "likes", "name", "home", "spoilers", "purchases")
)
"""Slots whose names tell nothing of a user."""


class UserSalt:
    """A random value of each user, sealed beside his memories: with it the same key has the same id, for whoever can open it.

    It outlives the keys of the cipher, as it is sealed anew with the memories, and goes with them. Without a codec that
    encrypts, ids are the keys themselves.
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
            KeyMissingError: Its key was not given, or is destroyed.
        """
        codec = self._codec
        if codec is None or not codec.encrypts or key in USUAL_SLOTS:
            return preference_id(key)
        if self._salt is None:
            self._salt = self._read(codec) or self._made(codec)
        plain = " ".join(key.casefold().split())
        return f"{MemoryType.PREFERENCE}#~{hmac.digest(self._salt, plain.encode(), 'sha256').hex()[:32]}"

    def statement_id(self, statement: str) -> str:
        """Return the id of a statement that belongs to no slot; raise as ``preference_id`` does."""
        plain = canonical_value(statement)
        if self._codec is None or not self._codec.encrypts:
            return content_id(MemoryType.PREFERENCE, plain)
        return self.preference_id(f"~{plain}")

    def _made(self, codec: Codec) -> bytes:
        """Return a new salt; of two that are made at once the first."""
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
                raise TypeError("it is no salt")
            return salt


logger = logging.getLogger(__name__)

_TRIES = 100
_LEDGER_SECONDS = 30 * DAY
_FOLD_FROM = 200
_random = random.Random()  # noqa: S311 - jitter; of its own, so that nobody's seeded numbers change


_Written = TypeVar("_Written")


@dataclass
class Loaded:
    """What a partition holds: memories that have not expired, how often and when each was used, and the ledger's ids.

    ``erased`` is the marker that an erasure left; records that are ``unreadable`` are damaged, or of a later version, and
    stay.
    """

    records: dict[str, MemoryRecord] = field(default_factory=dict)
    uses: dict[str, tuple[int, float]] = field(default_factory=dict)
    ledger: list[str] = field(default_factory=list)
    erased: Item | None = None
    unreadable: list[str] = field(default_factory=list)

    @property
    def wants_folding(self) -> bool:
        """Whether the ledger has so many entries that they should be counted into the records."""
        return len(self.ledger) >= _FOLD_FROM


class UserPartition:
    """One user's part of the memory table; after each change of a memory ``changed`` is called, to drop copies of it.

    Content and metadata are stored readable without a codec. Episodes are always sealed, to be compressed.
    """

    def __init__(
        self,
        table: Table,
        owner: Owner,
        *,
        codec: Codec | None,
        clock: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.table = table
        self.owner = owner
        self.codec = codec
        self.clock = clock
        self.note_change = changed
        self.salt = UserSalt(table, owner, codec)

    def load(self, type_: str | None = None, *, uses: bool = False) -> Loaded:
        """Read all memories, or those of a type, by one query; with ``uses``, of a type's too, by another.

        Raises:
            CorruptRecordError: Records are encrypted, and not one of them can be opened: the key is another one of that name.
        """
        ranges = [(None, None)] if type_ is None else [type_range(type_), *([(LEDGER, f"{LEDGER}~")] if uses else [])]
        loaded, used = Loaded(), Uses()
        sealed: set[str] = set()
        items = (item for first, last in ranges for item in self.table.query(self.owner.partition, first=first, last=last))
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

    def _take(self, item: Item, loaded: Loaded, used: Uses) -> None:
        id_ = str(item["memory_id"])
        if id_.startswith(LEDGER):
            loaded.ledger.append(id_)
            used.add(item)
        elif id_ == ERASED:
            loaded.erased = item
        elif not id_.startswith(INTERNAL):
            record = record_of(item, self.owner, self.codec)
            if not record.expired(self.clock()):
                loaded.records[id_] = record

    @contextmanager
    def _one_by_one(self, item: Item, unreadable: list[str]) -> Iterator[None]:
        """Note a record that cannot be read, and go on with the others, unless it only lacks its key."""
        name = place_of(self.owner, str(item["memory_id"]))
        with skip_unreadable():
            try:
                with trusted(name):
                    yield
            except CorruptRecordError:
                unreadable.append(str(item["memory_id"]))
                raise

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory, or None; an expired one counts as none."""
        item = self.table.get(self.owner.partition, memory_id)
        record = None if item is None else record_of(item, self.owner, self.codec)
        return None if record is None or record.expired(self.clock()) else record

    def put(self, record: MemoryRecord) -> None:
        """Write a memory whatever is there: the last write wins."""
        self.table.put(self.item_of(record))
        self.note_change()

    def update(
        self, memory_id: str, change: Callable[[MemoryRecord | None], MemoryRecord | None], *, guard: Item | str | None = ""
    ) -> MemoryRecord | None:
        """Change a memory by compare-and-set; return what is stored then.

        Args:
            memory_id: Its id.
            change: From what is there (None: nothing, or something expired) to what shall be; the same object, or None:
                leave it. Called again when someone else was faster. The version is set here.
            guard: The erasure marker that was there when the work began, None if there was none: if another one is there
                now, the work is from before an erasure and nothing is written. By default there is no guard.

        Raises:
            ConflictError: Others keep changing it.
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
                self.note_change()
                return (wanted,)
            if not isinstance(guard, str) and self.erased() != guard:
                logger.debug("the memories were erased meanwhile, nothing of before is written")
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
        """Delete a memory; tell whether it was there."""
        there = self.table.get(self.owner.partition, memory_id) is not None
        self.table.delete(self.owner.partition, memory_id)
        self.note_change()
        return there

    def delete_many(self, ids: Iterable[str]) -> None:
        """Delete memories."""
        self.table.batch_write(deletes=[(self.owner.partition, id_) for id_ in ids])
        self.note_change()

    def ids(self, type_: str) -> list[str]:
        """Return the ids of a type's memories, expired ones too."""
        first, last = type_range(type_)
        rows = self.table.query(self.owner.partition, first=first, last=last, attributes=[])
        return [str(row["memory_id"]) for row in rows]

    def opened(self, item: Item, place: str) -> Any:
        """Return the attributes of an item that ``sealed_unless_plain`` made."""
        return opened_body(item, self.codec, place)

    def item_of(self, record: MemoryRecord) -> Item:
        """Return a record as it is stored."""
        codec = self.codec
        if codec is None and record.type == MemoryType.EPISODE:
            codec = Codec()
        return item_of(record, self.owner, codec)

    # The ledger of recalls: an entry each, counted into the records now and then

    def note_uses(self, ids: Iterable[str], *, at: float | None = None) -> None:
        """Note that memories were recalled, by one write whatever their number.

        Args:
            ids: Ids of the memories.
            at: Time of the recall, in seconds since 1970: nothing is written if the user was erased then or later. None: the
                caller knows that the user was not erased.
        """
        used = sorted(set(ids))
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
        """Return how often each memory was recalled since its record was written, and when last; one query."""
        used = Uses()
        for item in self.table.query(self.owner.partition, first=LEDGER, last=f"{LEDGER}~"):
            with self._one_by_one(item, []):
                used.add(item)
        return used.counts

    def fold(self) -> int:
        """Count the ledger's entries into the records; return how many there were.

        Each entry is counted by whoever deletes it, so two who fold count nothing twice; one who dies loses some counts.
        """
        used, entries = Uses(), 0
        for item in list(self.table.query(self.owner.partition, first=LEDGER, last=f"{LEDGER}~")):
            with self._one_by_one(item, []):
                entry = Uses()
                entry.add(item)
                if self.table.delete(self.owner.partition, item["memory_id"], when=Condition(equals={"at": item.get("at")})):
                    entries += 1
                    used.add(item)
        for id_, (count, latest) in used.counts.items():
            self._count(id_, count, latest)
        return entries

    def _count(self, memory_id: str, count: int, latest: float) -> None:
        def counted(record: MemoryRecord | None) -> MemoryRecord | None:
            if record is None:
                return None
            return record.changed(access_count=record.access_count + count, last_accessed=max(record.last_accessed, latest))

        try:
            with skip_unreadable():
                self.update(memory_id, counted)
        except ConflictError as error:
            logger.debug("error=<%s> | the uses of a memory were not counted", type(error).__name__)


def repeat_until_written(attempt: Callable[[], _Written | None], *, record: str) -> _Written:
    """Repeat a compare-and-set, after growing pauses with jitter, until no other writer was faster.

    Args:
        attempt: Reads, and writes if nothing changed since. Returns None if another writer was faster.
        record: Name of the record, for the error.

    Raises:
        ConflictError: Other writers were faster a hundred times.
    """
    for number in range(_TRIES):
        if (written := attempt()) is not None:
            return written
        time.sleep(_random.uniform(0.0, min(0.2, 0.001 * 2 ** min(number, 8))))
    raise ConflictError(f"record={record!r} keeps changing; try again")


def not_erased_since(partition: str, erased: Item | None) -> Write:
    """Return the check that fails if the user was erased since the marker ``erased`` was read."""
    unchanged = ABSENT if erased is None else Condition(equals={"mark": erased.get("mark")})
    return Write(key=(partition, ERASED), when=unchanged, is_check=True)


def _fields(record: MemoryRecord) -> Mapping[str, Any]:
    return {name: getattr(record, name) for name in MemoryRecord.__dataclass_fields__}
