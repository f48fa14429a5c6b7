"""Memories of one user in the memory table, read by ranges of keys and changed by compare-and-set.

A deletion of all data of a user (erasure) leaves a marker in the table. A write that began before
the deletion finds the marker, and stores nothing. Each search or recall stores a record of the
access to its results. These records (the ledger) are later added to the access counts of the
memories.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pydantic import FiniteFloat, TypeAdapter

from strands_manga_memory.arguments import Clock
from strands_manga_memory.exceptions import ConflictError, CorruptRecordError
from strands_manga_memory.memory.records import (
    DAY,
    ERASED,
    INTERNAL,
    LATEST,
    LEDGER,
    SHOWN_ATTRIBUTES,
    MemoryRecord,
    MemoryType,
    Owner,
    Retention,
    item_of,
    question_record,
    record_of,
    skip_unreadable,
    storage_key_of,
    summary_id,
    type_range,
)
from strands_manga_memory.stores.codec import Codec, parsing
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table, Write

logger = logging.getLogger(__name__)

_TRIES = 100
_LEDGER_SECONDS = 30 * DAY
_SUMMARY_NAME = f"{INTERNAL}summary#"
"""Prefix of the ids of items that map the name of a summary to its id."""
_MAX_COUNTED = 40
"""Most memories of one recorded access."""
_random = random.Random()  # noqa: S311 - jitter; separate, so that it does not affect the application's random numbers


_Written = TypeVar("_Written")


@dataclass
class PartitionContent:
    """Memories of a user that were read from the memory table.

    Attributes:
        records: Memories that have not expired, keyed by id.
        unreadable: Ids of records that are damaged or have a newer schema. They stay in the table.
        is_partial: Whether the table may have more records than were read.
        expired: Ids of expired records that the store has not deleted yet.
        latest: Ids of the latest memories of the types fact and feedback, the latest first.
        since: All memories updated after this time (seconds since 1970) were read. 0 if all were
            read.
    """

    records: dict[str, MemoryRecord] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    is_partial: bool = False
    expired: list[str] = field(default_factory=list)
    latest: list[str] = field(default_factory=list)
    since: float = 0.0

    def add(self, more: PartitionContent) -> None:
        """Add the result of another query for the same user to this result."""
        self.records |= more.records
        self.unreadable += more.unreadable
        self.expired += more.expired
        self.is_partial |= more.is_partial
        self.since = max(self.since, more.since)


MAX_PREFERENCES = 40
"""Most preferences that a session start reads."""


@dataclass(frozen=True)
class Range:
    """Range of sort keys in the memory table, for a query.

    A query with a ``limit`` reads the items with the highest sort keys, or with the lowest if
    ``is_lowest`` is True.
    """

    first: str | None = None
    last: str | None = None
    limit: int | None = None
    attributes: Sequence[str] | None = None
    is_lowest: bool = False


def of_type(type_: str, limit: int | None = None) -> Range:
    """Return the range of a type's memories: all, or the ``limit`` memories with highest ids."""
    return Range(*type_range(type_), limit)


# Ids begin with the type, so a range holds the types whose names are between its bounds. At a
# limit, the lowest ids are left out. Ids of summaries, questions, roll-ups and episodes sort by
# time, so these lose the oldest.
START = (
    Range(f"{MemoryType.SUMMARY}#", f"{MemoryType.MONTH}$", 9, SHOWN_ATTRIBUTES),
    Range(*type_range(MemoryType.PREFERENCE), MAX_PREFERENCES, SHOWN_ATTRIBUTES),
    Range(f"{MemoryType.QUESTION}#", LATEST, 17, SHOWN_ATTRIBUTES),
)
"""Ranges of sort keys that a session start reads: at most 66 records.

At most 4 monthly and 7 weekly summaries exist, so the limits leave enough room for session
summaries and open questions. The last range ends with the list of the latest facts.
"""

_MAX_LATEST = 64
"""Most facts and feedback that searches read. The item ``LATEST`` lists their ids."""

_RECENT = Range(f"{MemoryType.PATTERN}#", f"{MemoryType.EPISODE}$", 24, SHOWN_ATTRIBUTES)
"""Range of sort keys that searches read, besides the latest facts and feedback."""

_MIN_RECALLED = 8
"""Least number of memories of each type that a recall reads. Usual: twice its limit."""

_MAX_FINALIZED, _MAX_FINALIZED_OF_AGE = 128, 32
"""Numbers of session summaries that finalizing reads at first.
The first is for the latest sessions, the second for those old enough for a roll-up.
"""

MAX_COVERED = 400
"""Most sessions that a weekly or monthly summary lists."""

_UNLISTED = Range(f"{MemoryType.FACT}#", f"{MemoryType.FEEDBACK}$", _MAX_LATEST)
"""Range of facts and feedback, read if the list of the latest ones is missing."""

_ACCESS = TypeAdapter(tuple[FiniteFloat, list[str]])
"""Check of the time and the memory ids of a recorded access."""


@dataclass(eq=False)
class UserPartition:
    """Access to the memories of one user in the memory table.

    Without a codec, content and metadata are stored in clear text; the messages of a session are
    compressed, but not encrypted.

    Attributes:
        guard: Transaction check from ``not_erased_since``, or None. With a check, ``update`` writes
            nothing if all data of the user were deleted after the check was made.
    """

    table: Table
    owner: Owner
    codec: Codec | None
    clock: Clock
    guard: Write | None = None

    @property
    def log_key(self) -> tuple[str, Owner]:
        """Key of the background work that writes the user's preference log."""
        return "preferences", self.owner

    def load(
        self, ranges: Iterable[Range] = (Range(),), ids: Sequence[str] = (), *, are_all: bool = True
    ) -> PartitionContent:
        """Read the memories in ranges of sort keys, and the memories with the given ids.

        By default, all memories of the user are read. ``are_all=False``: the table has older
        memories than ``ids``. The result is then partial.

        Raises:
            CorruptRecordError: No encrypted record can be decrypted, probably because of a wrong
                key.
        """
        loaded, sealed, partition = PartitionContent(), set[str](), self.owner.partition
        named = self.table.batch_get([(partition, id_) for id_ in ids]) if ids else {}
        groups = [(list(named.values()), not are_all)]
        for each in ranges:
            found = self.table.query(
                partition,
                first=each.first,
                last=each.last,
                reverse=each.limit is not None and not each.is_lowest,
                limit=each.limit,
                attributes=each.attributes,
            )
            items = list(found)
            groups.append((items, len(items) == each.limit))
        for items, is_limited in groups:
            for item in items:
                self._add_item(item, loaded)
            sealed |= {str(item["memory_id"]) for item in items if "sealed" in item}
            if is_limited:
                read = (loaded.records.get(str(item["memory_id"])) for item in items)
                oldest = min((record.updated_at for record in read if record), default=0.0)
                loaded.since, loaded.is_partial = max(loaded.since, oldest), True
        is_encrypted = self.codec is not None and self.codec.encrypts
        if is_encrypted and sealed and sealed.issubset(loaded.unreadable):
            key = storage_key_of(self.owner, min(sealed))
            what = f"record={key!r} is one of {len(sealed)} that are encrypted, and none of them"
            raise CorruptRecordError(f"{what} opens; is this their key?", record=key)
        return loaded

    def _add_item(self, item: Item, loaded: PartitionContent) -> None:
        id_ = str(item["memory_id"])
        if id_ == LATEST:
            loaded.latest = _latest_of(item)
        if id_.startswith(INTERNAL):
            return
        with skip_unreadable():
            record = record_of(item, self.owner, self.codec)
            if record.expired(self.clock()):
                loaded.expired.append(id_)
            else:
                loaded.records[id_] = record
            return
        loaded.unreadable.append(id_)

    def load_context(self, ages: Mapping[MemoryType, float]) -> PartitionContent:
        """Read the summaries that are needed to make memories from an ended conversation.

        These are all weekly and monthly summaries, the latest session summaries (usually over 120),
        and older ones: up to 400 that no weekly summary includes yet, and up to 400 that no monthly
        summary includes yet. The result also has ids of expired memories.

        Args:
            ages: Minimum age, in seconds, of sessions in a weekly or monthly summary, keyed by its
                type.

        Raises:
            CorruptRecordError: No encrypted record can be decrypted, probably because of a wrong
                key.
        """
        first, last = f"{MemoryType.SUMMARY}#", f"{MemoryType.MONTH}$"
        rollups = Range(f"{MemoryType.QUESTION}#", f"{MemoryType.WEEK}$")
        loaded = self.load([Range(first, last, _MAX_FINALIZED), rollups])
        if not loaded.is_partial:
            return loaded
        for type_, age in ages.items():
            records = loaded.records.values()
            covered = {id_ for each in records if each.type == type_ for id_ in each.covers}
            for limit in (_MAX_FINALIZED_OF_AGE, MAX_COVERED):
                older = self.load([Range(first, summary_id("", self.clock() - age), limit)])
                if not older.is_partial or min(older.records, default="") in covered:
                    break
            loaded.add(older)
        oldest = self.load([Range(first, last, _MAX_FINALIZED_OF_AGE, is_lowest=True)])
        loaded.expired += oldest.expired
        return loaded

    def load_recent(self, latest: Sequence[str]) -> PartitionContent:
        """Read the latest messages, patterns, facts and feedback, which a session start leaves out.

        At most 88 records are read, in two requests. ``latest`` are the ids of the facts and
        feedback to read, from ``PartitionContent.latest``.

        Raises:
            CorruptRecordError: The records are encrypted, and none of them can be decrypted.
        """
        ranges = [_RECENT] if latest else [_RECENT, _UNLISTED]
        return self.load(ranges, latest, are_all=len(latest) < _MAX_LATEST)

    def load_latest(self, types: Collection[MemoryType], count: int) -> PartitionContent:
        """Read the latest memories of the given types, for a recall of at most ``count`` memories.

        More than ``count`` memories are read, because the recall ranks and filters them.

        Raises:
            CorruptRecordError: No encrypted record can be decrypted.
        """
        limit = max(_MIN_RECALLED, 2 * count)
        latest = _latest_of(self.table.get(self.owner.partition, LATEST))
        listed = [id_ for id_ in latest if id_.partition("#")[0] in types]
        in_list = {MemoryType.FACT, MemoryType.FEEDBACK} if latest else set[MemoryType]()
        limits = dict.fromkeys(set(types) - in_list, limit)
        if MemoryType.PREFERENCE in limits:
            limits[MemoryType.PREFERENCE] = max(limit, MAX_PREFERENCES)
        ranges = [of_type(type_, most) for type_, most in limits.items()]
        are_all = len(latest) < _MAX_LATEST and len(listed) <= limit
        return self.load(ranges, listed[:limit], are_all=are_all)

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory, or None if it does not exist or has expired."""
        return self._open(self.table.get(self.owner.partition, memory_id))

    def _open(self, item: Item | None) -> MemoryRecord | None:
        record = None if item is None else record_of(item, self.owner, self.codec)
        return None if record is None or record.expired(self.clock()) else record

    def update(
        self,
        memory_id: str,
        change: Callable[[MemoryRecord | None], MemoryRecord | None],
        *,
        is_access: bool = False,
    ) -> MemoryRecord | None:
        """Change a memory by compare-and-set, and return the memory that is stored afterwards.

        The result is None if there is no memory. It is also None, and nothing is written, if the
        attribute ``guard`` shows that all data of the user were deleted meanwhile.

        Args:
            memory_id: Id of the memory.
            change: Function from the current memory (None if missing or expired) to the new memory,
                called again after a conflict. None or the same object means no change. The version
                is set automatically.
            is_access: Whether the change only counts accesses. The version then stays, so that
                weekly and monthly summaries of the memory need not be written again.

        Raises:
            ConflictError: Other writers keep changing the memory.
        """

        def attempt() -> tuple[MemoryRecord | None] | None:
            item, guard = self.table.get(self.owner.partition, memory_id), self.guard
            known = self._open(item)
            wanted = change(known)
            if wanted is None or wanted is known:
                return (known,)
            version = 0 if item is None else item.get("version", 1)
            wanted = replace(wanted, version=version + (not is_access))
            new, when = self.item_of(wanted), unchanged(item)
            if (
                self.table.put(new, when=when)
                if guard is None
                else self.table.transact([Write(item=new, when=when), guard])
            ):
                return (wanted,)
            if guard is not None and not_erased_since(self.owner.partition, self.erased()) != guard:
                logger.debug("the user was erased meanwhile, nothing is written")
                return (None,)
            return None

        return repeat_until_written(attempt, record=storage_key_of(self.owner, memory_id))[0]

    def erased(self) -> Item | None:
        """Return the marker of the last deletion of all the user's data, or None."""
        return self.table.get(self.owner.partition, ERASED)

    def delete_many(self, ids: Iterable[str]) -> None:
        """Delete the memories of the user with the given ids."""
        self.table.batch_write(deletes=[(self.owner.partition, id_) for id_ in ids])

    def ids(self, prefix: str) -> list[str]:
        """Return the user's record ids that begin with ``prefix#``, also of expired records."""
        first, last = type_range(prefix)
        rows = self.table.query(self.owner.partition, first=first, last=last, attributes=[])
        return [str(row["memory_id"]) for row in rows]

    def id_of_summary(self, name: str, expires_at: int | None) -> str:
        """Return the id of a session summary, the same for all versions of the summary.

        The first call for a name makes the id and stores it. Each call sets the expiry of the
        stored id.

        Args:
            name: Encoded id of the session. For a summary without a session, a digest of its text.
            expires_at: Expiry time in seconds since 1970. None: the stored id does not expire.
        """
        stored = self._key(f"{_SUMMARY_NAME}{name}")
        stored |= {} if expires_at is None else {"expires_at": expires_at}
        known = self.table.get(self.owner.partition, stored["memory_id"])
        with parsing(storage_key_of(self.owner, stored["memory_id"])):
            id_ = summary_id(name, self.clock()) if known is None else str(known["summary_id"])
        if not self.table.put(
            {**stored, "summary_id": id_}, when=ABSENT if known is None else None
        ):
            return self.id_of_summary(name, expires_at)  # another writer made an id meanwhile
        return id_

    def add_to_latest(self, *memory_ids: str) -> None:
        """Add ids to the stored list of the user's latest 64 facts and feedback, for searches."""

        def attempt() -> bool | None:
            item = self.table.get(self.owner.partition, LATEST)
            known = _latest_of(item)
            if not known:  # the list is new or damaged
                known = [*self.ids(MemoryType.FACT), *self.ids(MemoryType.FEEDBACK)]
            ids = list(dict.fromkeys([*memory_ids, *known]))[:_MAX_LATEST]
            listed = {**self._key(LATEST), "latest": ids, "version": uuid.uuid4().hex}
            return self.table.put(listed, when=unchanged(item)) or None

        repeat_until_written(attempt, record=storage_key_of(self.owner, LATEST))

    def store_questions(self, summary: MemoryRecord, rule: Retention) -> None:
        """Store the open questions of a session summary in a separate record.

        Without open questions, the record from an earlier version of the summary is deleted.
        ``rule``: retention of questions.
        """
        questions = question_record(summary, rule)
        if questions.metadata["open_questions"]:
            self.update(questions.memory_id, lambda known: questions)
        elif summary.version > 1:
            self.delete_many([questions.memory_id])

    def item_of(self, record: MemoryRecord) -> Item:
        """Convert a memory to its item in the memory table."""
        return item_of(record, self.owner, self.codec)

    def _key(self, memory_id: str) -> Item:
        return {"user_id": self.owner.partition, "memory_id": memory_id}

    # Each access is first stored as one entry of a ledger. ``count_accesses`` adds the entries to
    # the access counts of the memories.

    def record_access(self, ids: Sequence[str], *, at: float | None = None) -> None:
        """Record an access to memories, which ``count_accesses`` later adds to their access counts.

        Args:
            ids: Ids of the memories, best first. Only the first 40 are recorded.
            at: Time of the access in seconds since 1970. Nothing is written if all data of the user
                were deleted at that time or later. Default: now.
        """
        at = self.clock() if at is None else at
        entry = {
            **self._key(f"{LEDGER}{int(at * 1000):015d}.{uuid.uuid4().hex[:8]}"),
            "at": at,
            "used": list(ids[:_MAX_COUNTED]),
            "expires_at": int(at + _LEDGER_SECONDS),
        }
        not_erased = Condition(absent=True, below={"at": at})
        self.table.transact(
            [
                Write(item=entry),
                Write(key=(self.owner.partition, ERASED), when=not_erased, is_check=True),
            ]
        )

    def count_accesses(self) -> int:
        """Add recorded accesses to the memories' access counts, and return the number of accesses.

        The record of an access is deleted before the access is counted. So no access is counted
        twice, but an access is lost if the process stops in between.
        """
        times, folded = defaultdict[str, list[float]](list), 0
        for row in list(self.table.query(self.owner.partition, first=LEDGER, last=f"{LEDGER}~")):
            id_ = row["memory_id"]
            with skip_unreadable(), parsing(storage_key_of(self.owner, id_)):
                at, used = _ACCESS.validate_python((row["at"], row["used"]))  # damaged ones stay
                same = Condition(equals={"at": row["at"]})
                if self.table.delete(self.owner.partition, id_, when=same):
                    folded += 1
                    for each in used:
                        times[each].append(at)
        for id_, found in times.items():
            with skip_unreadable():
                self.update(id_, partial(_with_accesses, found), is_access=True)
        return folded


def _with_accesses(times: Sequence[float], known: MemoryRecord | None) -> MemoryRecord | None:
    return known and replace(
        known,
        access_count=known.access_count + len(times),
        accessed_at=max(known.accessed_at, *times),
    )


def repeat_until_written(attempt: Callable[[], _Written | None], *, record: str) -> _Written:
    """Repeat a compare-and-set of a record until it succeeds, with growing random pauses.

    Args:
        attempt: Function that reads the record and writes it if it has not changed. It returns None
            after a conflict.
        record: Name of the record for the error message.

    Raises:
        ConflictError: A hundred attempts failed.
    """
    for number in range(_TRIES):
        if (written := attempt()) is not None:
            return written
        time.sleep(_random.uniform(0.0, min(0.2, 0.001 * 2 ** min(number, 8))))
    raise ConflictError(f"record={record!r} keeps changing; try again")


def not_erased_since(partition: str, erased: Item | None) -> Write:
    """Return a transaction check that fails if all data of a user were deleted since a read.

    ``erased`` is the deletion marker that was read, or None. ``partition`` is the user's storage
    key.
    """
    unchanged = ABSENT if erased is None else Condition(equals={"mark": erased.get("mark")})
    return Write(key=(partition, ERASED), when=unchanged, is_check=True)


def unchanged(item: Item | None) -> Condition:
    """Return a write condition that fails if a record has changed since it was read.

    ``item`` is the record as it was read, or None.
    """
    if item is None:
        return ABSENT
    # A count of accesses changes no version.
    return Condition(equals={name: item.get(name) for name in ("version", "access_count")})


def _latest_of(item: Item | None) -> list[str]:
    found = (item or {}).get("latest")
    return [id_ for id_ in found if isinstance(id_, str)] if isinstance(found, list) else []
