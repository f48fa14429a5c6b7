"""Log of the preferences that a user stated, in the memory table. The records of current preferences are derived from it."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.exceptions import StoreError, logged_errors
from strands_manga_memory.language.preferences import Preference, canonical_value, slot_for_key, split_values
from strands_manga_memory.memory.partition import UserPartition, not_erased_since, repeat_until_written, unchanged
from strands_manga_memory.memory.preferences.statements import (
    LoggedChanges,
    PreferenceChange,
    Removal,
    SlotState,
    Statement,
    fold,
    latest_removals,
    message_digest,
)
from strands_manga_memory.memory.records import (
    CHANGES,
    DAY,
    ERASED,
    FORGOTTEN,
    RETENTION,
    RETRACTED,
    MemoryRecord,
    MemoryType,
    opened_body,
    place_of,
    record_of,
    sealed_unless_plain,
    skip_unreadable,
    type_range,
)
from strands_manga_memory.stores.codec import trusted
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Write
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 15
_MOST_WRITES = 90
_LONGEST_WAIT = 60.0
_NOTE_SECONDS = 90 * DAY
"""Seconds that a retraction or deletion is stored. All earlier sessions are finalized within this time."""
_MADE_BY_SESSIONS = (MemoryType.SUMMARY, MemoryType.EPISODE, MemoryType.PATTERN, MemoryType.WEEK, MemoryType.MONTH)
_SOURCES, SET = "sources", "set"
"""Names in the metadata of a preference: the messages of its values, and the value that the application set last."""


@dataclass(frozen=True)
class StoredRemovals:
    """Stored deletions of a user's memories. Messages from before a deletion must not restore the deleted memory.

    Attributes:
        preferences: Deleted preferences.
        notes: Times of retractions of messages (keys from ``note_id``), and of deletions of memories derived from sessions
            (keys from ``forgotten_id``).
    """

    preferences: tuple[Removal, ...] = ()
    notes: Mapping[str, float] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Removal, ...]:
        """Deletions of preferences and retractions of messages, the latest 200, in the order of their times."""
        retracted = [Removal(at, message=id_[len(RETRACTED) :]) for id_, at in self.notes.items() if id_.startswith(RETRACTED)]
        return latest_removals([*self.preferences, *retracted])


class PreferenceLog:
    """Log of a user's statements (preferences in messages), and the records with the resulting values.

    Each change is one transaction. Each subject, such as ``genre``, has a record with the value that results from its
    statements. Statements take effect in the order of message times, not of the writes. A value that the application sets by
    ``UserMemoryStore.prefer`` is stored in the record, not in the log. ``publish`` is a function that reports changes to live
    agents.
    """

    def __init__(
        self,
        partition: UserPartition,
        *,
        publish: Callable[..., None] | None = None,
        importance: float = RETENTION[MemoryType.PREFERENCE].importance,
    ) -> None:
        self._partition = partition
        self._publish = publish or (lambda **_: None)
        self._importance = importance

    @property
    def clock(self) -> Callable[[], float]:
        """Function that returns seconds since 1970."""
        return self._partition.clock

    def erased_at(self) -> float:
        """Return the time of the user's last erasure in seconds since 1970, or minus infinity if there was none."""
        return erased_at(self._partition.erased())

    def revision(self) -> str:
        """Return a token that changes whenever the user's memories change. It is empty before the first change."""
        return _revision_of(*self._marks())

    def removals(self) -> StoredRemovals:
        """Read the deletions of memories and retractions of messages of the user, in one query."""
        rows = self._partition.table.query(self._partition.owner.changes_partition, first=CHANGES, last=f"{RETRACTED}~")
        items = {str(row["memory_id"]): row for row in rows}
        deleted = self._logged(items.pop(CHANGES, None)).removals
        return StoredRemovals(deleted, {id_: float(row.get("at") or 0.0) for id_, row in items.items()})

    def admitted(self, statements: Sequence[Statement]) -> tuple[tuple[Statement, ...], Item | None]:
        """Return the given preferences that may still be stored, and the marker of the user's last erasure (None without one).

        Deleted preferences, preferences of retracted messages, and preferences from before the erasure are left out.
        """
        logged, _, erased = self._read(statements)
        return logged.admit(statements), erased

    def apply(self, change: PreferenceChange) -> Mapping[str, MemoryRecord | None]:
        """Store a change of the user's preferences, and publish it to new sessions and live agents.

        Statements that were deleted, retracted, or stated before an erasure are left out.

        Returns:
            The changed preference records, keyed by id. None means that the record was deleted.
        """
        if any(removal.message for removal in change.removals):
            # Before the write, too: no agent may show the statements, even if the table is unavailable.
            self._publish(removals=change.removals)
        return self._store(change)

    def _store(self, change: PreferenceChange) -> Mapping[str, MemoryRecord | None]:
        changed: dict[str, MemoryRecord | None] = {}
        for first in range(0, len(change.statements) or 1, _MOST_AT_ONCE):
            part = replace(change, statements=change.statements[first : first + _MOST_AT_ONCE])
            records, revisions = repeat_until_written(
                lambda part=part: self._attempt(part),  # type: ignore[misc]
                record=place_of(self._partition.owner, CHANGES),
            )
            changed |= records
            if revisions is not None:
                before, revision = revisions
                stated = None if change.record is None else self._base(change.record)
                self._publish(statements=[stated] if stated else [], removals=change.removals, before=before, revision=revision)
        return changed

    def apply_later(self, change: PreferenceChange, *, wait: float = 0.2) -> None:
        """Store and publish a change of the user's preferences in the background.

        If the table is unavailable, the change is tried again after ``wait`` seconds, then less often. Live agents learn of a
        retraction only after the table has stored it.
        """
        writer = shared_writer(None, self._partition.table)

        def attempt() -> None:
            with logged_errors(logger, "failed to store preferences"):
                try:
                    self._store(change)
                except StoreError as error:
                    logger.warning("error=<%s> | failed to store preferences, retrying", type(error).__name__)
                    again = min(_LONGEST_WAIT, 2 * wait)
                    writer.later(("preferences", uuid.uuid4().hex), wait, lambda: self.apply_later(change, wait=again))

        writer.submit(("preferences", self._partition.owner), attempt)

    def renew(self, *, is_removal: bool = False, drops_context: bool = False) -> None:
        """Notify live agents that memories other than preferences have changed.

        The preference log gets a new revision, a token by which agents notice the change. This works on an encrypted log
        without its key. The arguments are passed to ``HotProfile.publish``.
        """
        revision = uuid.uuid4().hex

        def attempt() -> tuple[str, str] | None:
            item, erased = self._marks()
            renewed = {**(item or self._item(LoggedChanges())), "revision": revision, "version": uuid.uuid4().hex}
            is_written = self._partition.table.put(renewed, when=unchanged(item))
            return (_revision_of(item, erased), _revision_of(renewed, erased)) if is_written else None

        before, written = repeat_until_written(attempt, record=place_of(self._partition.owner, CHANGES))
        self._publish(before=before, revision=written, is_removal=is_removal, drops_context=drops_context)

    def note_forgotten(self, memory_id: str, at: float) -> None:
        """Record that a memory derived from sessions was deleted at the time ``at``.

        When an earlier session is finalized, the memory is then not created again. Memories of other types are ignored.
        """
        if memory_id.partition("#")[0] in _MADE_BY_SESSIONS:
            self._partition.table.put(self._note(forgotten_id(memory_id), at))

    # Inside

    def _marks(self) -> tuple[Item | None, Item | None]:
        keys = (self._partition.owner.changes_partition, CHANGES), (self._partition.owner.partition, ERASED)
        found = self._partition.table.batch_get(keys)
        return found.get(keys[0]), found.get(keys[1])

    def _attempt(self, change: PreferenceChange) -> tuple[Mapping[str, MemoryRecord | None], tuple[str, str] | None] | None:
        """Write a change of preferences in one transaction. Return None if the preference log changed meanwhile.

        Otherwise, return the changed records, and the revisions of the log before and after the write. If there is nothing to
        write, there are no records, and None in place of the revisions.
        """
        table, owner = self._partition.table, self._partition.owner
        logged, item, erased = self._read(change.statements)
        after = logged.after(change)
        if after is None:
            return {}, None
        changed: dict[str, MemoryRecord | None] = {}
        written = self._item(after)
        writes = [Write(item=written, when=unchanged(item))]
        writes += [Write(item=self._note(f"{RETRACTED}{each.message}", each.at)) for each in change.removals if each.message]
        writes.append(not_erased_since(owner.partition, erased))
        if change.record or change.dropped or after.statements != logged.statements:
            stored = self._stored()
            changed = self._changed_records(stored, after.statements, change)
            for id_, record in list(changed.items())[:_MOST_WRITES]:
                when = Condition(equals={"version": stored[id_][0].get("version")}) if id_ in stored else ABSENT
                given = {"key": (owner.partition, id_)} if record is None else {"item": self._partition.item_of(record)}
                writes.append(Write(**given, when=when))
        revisions = _revision_of(item, erased), _revision_of(written, erased)
        return (changed, revisions) if table.transact(writes) else None

    def _read(self, statements: Iterable[Statement]) -> tuple[LoggedChanges, Item | None, Item | None]:
        """Read the user's preference log, and the retractions of the messages to which ``statements`` belong.

        Return the log, the table item that contains it, and the marker of the user's last erasure. Item and marker may be None.
        """
        owner = self._partition.owner
        changes, erased = (owner.changes_partition, CHANGES), (owner.partition, ERASED)
        notes = {(owner.changes_partition, note_id(each.message_id)) for each in statements if each.message_id}
        found = self._partition.table.batch_get([changes, erased, *notes])
        retractions = tuple(_retraction(found[key]) for key in notes & found.keys())
        item, marker = found.get(changes), found.get(erased)
        return replace(self._logged(item), erased_at=erased_at(marker), retractions=retractions), item, marker

    def _changed_records(
        self,
        stored: Mapping[str, tuple[Item, MemoryRecord | None]],
        statements: Sequence[Statement],
        change: PreferenceChange,
    ) -> dict[str, MemoryRecord | None]:
        """Return the preference records to write after a change of the log, keyed by id. None means a record to delete."""
        now = self._partition.clock()
        known = {id_: record for id_, (_, record) in stored.items() if record is not None and not record.expired(now)}
        records = {id_: record for id_, record in known.items() if id_ != change.dropped}
        if (new := change.record) is not None:
            records[new.memory_id] = _replaced(records.get(new.memory_id), new)
        bases = {id_: each for id_, record in records.items() if (each := self._base(record)) is not None}
        wanted: dict[str, MemoryRecord] = {}
        for slot, state in fold([*bases.values(), *statements]).items():
            id_ = self._id(slot, state.value)
            wanted[id_] = self._record(id_, slot, state, records.get(id_), statements)
        made = {id_ for id_, record in records.items() if _SOURCES in record.metadata} | bases.keys()
        gone = sorted(id_ for id_ in known | records if id_ not in wanted and (id_ in made or id_ == change.dropped))
        unreadable = {id_ for id_, (_, record) in stored.items() if record is None}
        written = {id_: each for id_, each in wanted.items() if each is not known.get(id_) and id_ not in unreadable}
        return {**dict.fromkeys(gone), **written}

    def _record(
        self, id_: str, slot: str, state: SlotState, known: MemoryRecord | None, statements: Sequence[Statement]
    ) -> MemoryRecord:
        """Return the preference record of a subject, such as ``genre``, with its current value.

        It is the stored record ``known`` if that has the value already, or else a new or changed record.
        """
        has_slot = not slot.startswith("~")
        if known is not None and (not has_slot or str(known.metadata.get("value") or "") == state.value):
            return known
        at = state.by.at
        first = known or MemoryRecord(
            memory_id=id_,
            type=MemoryType.PREFERENCE,
            content="",
            importance=self._importance,
            created_at=at,
            updated_at=at,
            version=0,
        )
        content = state.value
        metadata: dict[str, Any] = {"session_id": state.by.session_id, _SOURCES: {"": state.by.message_id or ""}}
        if has_slot:
            shown = str(first.metadata.get("preference_key") or slot)
            content = f"{shown}: {state.value}"
            metadata |= {"preference_key": shown, "value": state.value, _SOURCES: _sources(state.value, statements)}
        if (base := self._base(first)) is not None:
            metadata[SET] = {"value": base.preference.value, "at": base.at}
        return first.changed(content=content, metadata={**first.metadata, **metadata}, updated_at=at)

    def _base(self, record: MemoryRecord) -> Statement | None:
        """Return the value that ``UserMemoryStore.prefer`` set in a record, as a statement. None if it set no value."""
        slot, value = slot_and_value(record)
        given = record.metadata.get(SET)
        if isinstance(given, dict):
            value, at = str(given.get("value") or ""), float(given.get("at") or 0.0)
        elif _SOURCES in record.metadata:
            return None
        else:
            at = record.updated_at
        if not slot or not value or self._partition.salt.preference_id(slot) != record.memory_id:
            return None
        return Statement(Preference(slot, value), at, is_set=True)

    def _id(self, slot: str, value: str) -> str:
        salt = self._partition.salt
        return salt.statement_id(value) if slot.startswith("~") else salt.preference_id(slot)

    def _stored(self) -> dict[str, tuple[Item, MemoryRecord | None]]:
        """Return the user's stored preferences, keyed by id. Each is a table item and the decoded record.

        The record is None if it is unreadable.
        """
        first, last = type_range(MemoryType.PREFERENCE)
        owner, stored = self._partition.owner, dict[str, tuple[Item, MemoryRecord | None]]()
        for item in self._partition.table.query(owner.partition, first=first, last=last):
            id_ = str(item["memory_id"])
            stored[id_] = item, None
            with skip_unreadable(), trusted(place_of(owner, id_)):
                stored[id_] = item, record_of(item, owner, self._partition.codec)
        return stored

    def _logged(self, item: Item | None) -> LoggedChanges:
        """Decode the stored preference log. A missing log is empty. A damaged log raises ``CorruptRecordError``."""
        if item is None:
            return LoggedChanges()
        place = place_of(self._partition.owner, CHANGES)
        with trusted(place):
            body = opened_body(item, self._partition.codec, place)
            statements = tuple(Statement.of(row) for row in body["statements"])
            removals = tuple(Removal.of(row) for row in body["removals"])
            return LoggedChanges(statements, removals, str(item.get("revision") or ""))

    def _item(self, logged: LoggedChanges) -> Item:
        owner = self._partition.owner
        body = {"statements": [each.row for each in logged.statements], "removals": [each.row for each in logged.removals]}
        stored = sealed_unless_plain(body, self._partition.codec, place_of(owner, CHANGES))
        key = {"user_id": owner.changes_partition, "memory_id": CHANGES}
        return {**key, "revision": logged.revision, "version": uuid.uuid4().hex, **stored}

    def _note(self, id_: str, at: float) -> Item:
        expires_at = int(at + _NOTE_SECONDS)
        return {"user_id": self._partition.owner.changes_partition, "memory_id": id_, "at": at, "expires_at": expires_at}


def _revision_of(item: Item | None, erased: Item | None) -> str:
    """Return the revision of a preference log, a token that changes with the log and with an erasure of the user."""
    return f"{(item or {}).get('revision') or ''}{(erased or {}).get('mark') or ''}"


def erased_at(marker: Item | None) -> float:
    """Return the time of an erasure in seconds since 1970, or minus infinity without an erasure marker."""
    return -math.inf if marker is None else float(marker.get("at") or 0.0)


def _retraction(note: Item) -> Removal:
    return Removal(float(note.get("at") or 0.0), message=str(note["memory_id"]).removeprefix(RETRACTED))


def note_id(message_id: str) -> str:
    """Return the id of the table item that records the retraction of a message."""
    return f"{RETRACTED}{message_digest(message_id)}"


def forgotten_id(memory_id: str) -> str:
    """Return the id of the table item that records the deletion of a memory."""
    return f"{FORGOTTEN}{message_digest(memory_id)}"


def _replaced(known: MemoryRecord | None, new: MemoryRecord) -> MemoryRecord:
    """Return the stored preference ``known`` with the value of ``new``, a preference that the application has set.

    If ``known`` is None, return ``new``.
    """
    if known is None:
        return new
    metadata = {name: each for name, each in known.metadata.items() if name != _SOURCES}
    return known.changed(
        content=new.content,
        importance=new.importance,
        updated_at=new.updated_at,
        metadata={**metadata, **new.metadata},
    )


def slot_and_value(record: MemoryRecord) -> tuple[str, str]:
    """Return subject and value of a preference record. Without a subject, return an empty text and the whole content."""
    key, value = record.metadata.get("preference_key"), record.metadata.get("value")
    if isinstance(key, str) and key and isinstance(value, str):
        return slot_for_key(key), value
    return "", record.content


def _sources(value: str, statements: Sequence[Statement]) -> dict[str, str]:
    """Map each single value in ``value``, which may list several, to the id of the latest message that stated it."""
    ids = {canonical_value(one): each.message_id or "" for each in statements for one in split_values(each.preference.value)}
    return {name: ids[name] for name in map(canonical_value, split_values(value)) if name in ids}
