"""Log of a user's statements in the memory table, and the preference records derived from it."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.language.preferences import Preference, canonical_value, slot_for_key, split_values
from strands_manga_memory.memory.partition import UserPartition, not_erased_since, repeat_until_written
from strands_manga_memory.memory.preferences.statements import (
    Removal,
    SlotState,
    Statement,
    fold,
    latest_removals,
    merged,
    message_digest,
    valid,
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
    place_of,
    record_of,
    sealed_unless_plain,
    skip_unreadable,
    type_range,
)
from strands_manga_memory.stores.encoding.codec import trusted
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Write

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 15
_MOST_WRITES = 90
_NOTE_SECONDS = 30 * DAY
"""Seconds that a retraction is stored; longer than the time until any session is finalized."""
_FORGOTTEN_SECONDS = 90 * DAY
_MADE_BY_SESSIONS = (MemoryType.SUMMARY, MemoryType.EPISODE, MemoryType.PATTERN, MemoryType.WEEK, MemoryType.MONTH)
_SOURCES, _SET = "sources", "set"


@dataclass(frozen=True)
class LoggedChanges:
    """Content of the item ``~changes``.

    Attributes:
        statements: Statements of messages, in the order of their times.
        removals: Deleted preferences.
        revision: Changed by each change that live agents must read.
    """

    statements: tuple[Statement, ...] = ()
    removals: tuple[Removal, ...] = ()
    revision: str = ""


@dataclass(frozen=True)
class StoredRemovals:
    """Deletions that earlier messages must not undo.

    Attributes:
        preferences: Deleted preferences.
        retracted: Times of the retractions of messages, by ``note_id``.
        forgotten: Deletion times of derived memories, by ``forgotten_id``.
    """

    preferences: tuple[Removal, ...] = ()
    retracted: Mapping[str, float] = field(default_factory=dict)
    forgotten: Mapping[str, float] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Removal, ...]:
        """Removals of preferences and messages."""
        notes = [Removal(at, message=id_.removeprefix(RETRACTED)) for id_, at in self.retracted.items()]
        return latest_removals([*self.preferences, *notes])


@dataclass(frozen=True)
class _StoredPreferences:
    """Preference records with the stored value of their version attribute, and ids of unreadable ones."""

    records: dict[str, MemoryRecord] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _State:
    """Values that one attempt of a change has read."""

    item: Item | None
    logged: LoggedChanges
    erased: Item | None
    notes: Mapping[str, float]


@dataclass(frozen=True)
class CommittedChange:
    """Result of a change.

    Attributes:
        records: Preference records that changed, by id; None for a record that was deleted.
        revision: Revision of the log after the change; empty if nothing was written.
    """

    records: Mapping[str, MemoryRecord | None] = field(default_factory=dict)
    revision: str = ""


_Change = Callable[[_State], LoggedChanges | None]


class PreferenceLog:
    """Changes the preferences of a user, one transaction per change.

    The log of statements is authoritative: the record of a slot has the value that results from all statements of the
    slot in the order of their times, regardless of the order of writes. A value set by ``prefer`` is stored in the
    record itself.
    """

    def __init__(self, partition: UserPartition, *, importance: float = RETENTION[MemoryType.PREFERENCE].importance) -> None:
        self._partition = partition
        self._importance = importance

    def revision(self) -> str:
        """Return the current revision, which an erasure changes, too; empty before the first change."""
        owner = self._partition.owner
        keys = (owner.changes_partition, CHANGES), (owner.partition, ERASED)
        found = self._partition.table.batch_get(keys)
        return _revision(str(found.get(keys[0], {}).get("revision") or ""), found.get(keys[1]))

    def removals(self) -> StoredRemovals:
        """Return deletions and retractions, in one query."""
        deleted: tuple[Removal, ...] = ()
        retracted: dict[str, float] = {}
        forgotten: dict[str, float] = {}
        for row in self._partition.table.query(self._partition.owner.changes_partition, first=CHANGES, last=f"{RETRACTED}~"):
            id_ = str(row["memory_id"])
            if id_ == CHANGES:
                deleted = self._logged(row).removals
            else:
                (retracted if id_.startswith(RETRACTED) else forgotten)[id_] = float(row.get("at") or 0.0)
        return StoredRemovals(deleted, retracted, forgotten)

    def learn(self, statements: Sequence[Statement], *, guard: Item | str | None = "") -> None:
        """Add statements of messages, except those that were deleted, retracted, or made before the user was erased.

        Args:
            statements: The statements.
            guard: Erasure guard, as in ``UserPartition.update``.
        """
        for first in range(0, len(statements), _MOST_AT_ONCE):
            new = statements[first : first + _MOST_AT_ONCE]

            def added(state: _State, new: Sequence[Statement] = new) -> LoggedChanges | None:
                logged = state.logged
                kept = [each for each in valid(new, logged.removals) if not _is_over(each, state)]
                after = merged(logged.statements, kept)
                return None if after == logged.statements else replace(logged, statements=after)

            self._commit(added, messages=[each.message_id for each in new if each.message_id], guard=guard)

    def admitted(self, statements: Sequence[Statement]) -> tuple[tuple[Statement, ...], Item | None]:
        """Return the statements that may be stored, and the current erasure marker."""
        state = self._state([each.message_id for each in statements if each.message_id])
        return tuple(each for each in valid(statements, state.logged.removals) if not _is_over(each, state)), state.erased

    def set(self, record: MemoryRecord, slot: str) -> CommittedChange:
        """Set the value of a slot, overriding earlier statements."""
        at, value = record.updated_at, str(record.metadata["value"])
        extra = {**record.metadata, _SET: {"value": value, "at": at}}
        statement = Statement(Preference(slot, value), at, is_set=True)
        return self._commit(_renewed, base=(record.memory_id, replace(record, metadata=extra), statement))

    def forget(self, record: MemoryRecord, at: float) -> tuple[Removal, CommittedChange]:
        """Delete a preference and all its statements up to a time."""
        slot, value = _slot_and_value(record)
        removal = Removal.of_preference(slot, value, at)

        def removed(state: _State) -> LoggedChanges:
            removals = latest_removals([*state.logged.removals, removal])
            kept = valid(state.logged.statements, [removal])
            return LoggedChanges(kept, removals, uuid.uuid4().hex)

        return removal, self._commit(removed, dropped=record.memory_id)

    def retract(self, message_id: str, at: float) -> tuple[Removal, CommittedChange]:
        """Remove the statements of a message up to a time."""
        removal = Removal(at, message=message_digest(message_id))
        table, owner = self._partition.table, self._partition.owner
        note = {
            "user_id": owner.changes_partition,
            "memory_id": note_id(message_id),
            "at": at,
            "expires_at": int(at + _NOTE_SECONDS),
        }
        erased = self._partition.erased()
        if at <= erased_at(erased) or not table.transact([Write(item=note), not_erased_since(owner.partition, erased)]):
            return removal, CommittedChange()  # the erasure has removed the statements of the message

        def removed(state: _State) -> LoggedChanges | None:
            kept = valid(state.logged.statements, [removal])
            return None if kept == state.logged.statements else LoggedChanges(kept, state.logged.removals, uuid.uuid4().hex)

        return removal, self._commit(removed)

    def note_forgotten(self, memory_id: str, at: float) -> None:
        """Record the deletion of a derived memory, so that earlier sessions do not create it again."""
        if memory_id.partition("#")[0] in _MADE_BY_SESSIONS:
            owner, expires_at = self._partition.owner, int(at + _FORGOTTEN_SECONDS)
            note = {
                "user_id": owner.changes_partition,
                "memory_id": forgotten_id(memory_id),
                "at": at,
                "expires_at": expires_at,
            }
            self._partition.table.put(note)

    def renew(self) -> None:
        """Change only the revision, after a change of another record."""
        table, key = self._partition.table, (self._partition.owner.changes_partition, CHANGES)

        def attempt() -> bool | None:
            item = table.get(*key)
            base = self._item(LoggedChanges()) if item is None else dict(item)
            renewed = {**base, "revision": uuid.uuid4().hex, "version": _version(item) + 1}
            return table.put(renewed, when=_unchanged(item)) or None

        repeat_until_written(attempt, record=place_of(self._partition.owner, CHANGES))

    # Inside

    def _commit(
        self,
        change: _Change,
        *,
        messages: Iterable[str] = (),
        guard: Item | str | None = "",
        base: tuple[str, MemoryRecord, Statement] | None = None,
        dropped: str | None = None,
    ) -> CommittedChange:
        """Apply a change by compare-and-set on ``~changes``: a batch read, a query and a transaction."""
        table, owner = self._partition.table, self._partition.owner
        messages = list(messages)

        def attempt() -> CommittedChange | None:
            state = self._state(messages)
            if not isinstance(guard, str) and state.erased != guard:
                return CommittedChange()
            wanted = change(state)
            if wanted is None:
                return CommittedChange()
            writes, changed = self._projection(self._stored(), wanted, base, dropped)
            logged = self._item(wanted)
            logged["version"] = _version(state.item) + 1
            guarded = [Write(item=logged, when=_unchanged(state.item)), not_erased_since(owner.partition, state.erased)]
            if not table.transact([*guarded, *writes[:_MOST_WRITES]]):
                return None
            return CommittedChange(changed, _revision(wanted.revision, state.erased))

        return repeat_until_written(attempt, record=place_of(owner, CHANGES))

    def _state(self, messages: Iterable[str]) -> _State:
        owner = self._partition.owner
        changes, erased = (owner.changes_partition, CHANGES), (owner.partition, ERASED)
        noted = [(owner.changes_partition, note_id(each)) for each in dict.fromkeys(messages)]
        found = self._partition.table.batch_get([changes, erased, *noted])
        notes = {key[1]: float(row.get("at") or 0.0) for key in noted if (row := found.get(key)) is not None}
        item = found.get(changes)
        return _State(item, self._logged(item), found.get(erased), notes)

    def _projection(
        self,
        stored: _StoredPreferences,
        wanted: LoggedChanges,
        base: tuple[str, MemoryRecord, Statement] | None,
        dropped: str | None,
    ) -> tuple[list[Write], dict[str, MemoryRecord | None]]:
        """Return the writes that update the preference records to the state of the log."""
        records = {id_: record for id_, record in stored.records.items() if id_ != dropped}
        bases = {id_: each for id_, record in records.items() if (each := self._base(record)) is not None}
        if base is not None:
            bases[base[0]] = base[2]
        after = fold([*bases.values(), *wanted.statements])
        writes: dict[str, Write] = {}
        changed: dict[str, MemoryRecord | None] = {}
        for slot, slot_state in after.items():
            id_ = self._id(slot, slot_state.value)
            known = records.get(id_)
            record = self._record(id_, slot, slot_state, known, wanted.statements)
            if base is not None and id_ == base[0]:
                record = self._over(base[1], known, slot_state)
            if record is not known and record is not None and id_ not in stored.unreadable:
                writes[id_] = Write(item=self._partition.item_of(record), when=_of_version(id_, stored))
                changed[id_] = record
        there = {self._id(slot, each.value) for slot, each in after.items()}
        gone = [id_ for id_, record in records.items() if id_ not in there and (_SOURCES in record.metadata or id_ in bases)]
        for id_ in [*gone, *([dropped] if dropped in stored.records else [])]:
            writes[id_] = Write(key=(self._partition.owner.partition, id_), when=_of_version(id_, stored))
            changed[id_] = None
        return list(writes.values()), changed

    def _record(
        self, id_: str, slot: str, state: SlotState, known: MemoryRecord | None, statements: Sequence[Statement]
    ) -> MemoryRecord | None:
        """Return the record of a slot; the known one if it is equal."""
        if slot.startswith("~"):
            if known is not None:
                return known
            fields: dict[str, Any] = {"content": state.value}
            metadata: dict[str, Any] = {_SOURCES: {"": state.by.message_id or ""}}
        else:
            shown = slot if known is None else str(known.metadata.get("preference_key") or slot)
            if known is not None and str(known.metadata.get("value") or "") == state.value:
                return known
            fields = {"content": f"{shown}: {state.value}"}
            metadata = {"preference_key": shown, "value": state.value, _SOURCES: _sources(state.value, statements)}
        metadata["session_id"] = state.by.session_id
        if known is not None and (base := self._base(known)) is not None:
            metadata[_SET] = {"value": base.preference.value, "at": base.at}
        if known is not None:
            return known.changed(metadata={**known.metadata, **metadata}, updated_at=state.by.at, **fields)
        return MemoryRecord(
            memory_id=id_,
            type=MemoryType.PREFERENCE,
            importance=self._importance,
            created_at=state.by.at,
            updated_at=state.by.at,
            metadata=metadata,
            **fields,
        )

    def _over(self, new: MemoryRecord, known: MemoryRecord | None, state: SlotState) -> MemoryRecord:
        """Return the record of a value that was just set, based on the known one."""
        if known is not None:
            metadata = {name: each for name, each in known.metadata.items() if name != _SOURCES}
            fields = {"content": new.content, "importance": new.importance, "updated_at": new.updated_at}
            new = known.changed(metadata={**metadata, **new.metadata}, **fields)
        if state.value != new.metadata["value"]:  # a later message overrides it
            shown = new.metadata["preference_key"]
            metadata = {**new.metadata, "value": state.value, _SOURCES: {}}
            return replace(new, content=f"{shown}: {state.value}", updated_at=state.by.at, metadata=metadata)
        return new

    def _base(self, record: MemoryRecord) -> Statement | None:
        """Return the value of a record that was set directly and not stated in a message, or None."""
        slot, value = _slot_and_value(record)
        given = record.metadata.get(_SET)
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

    def _stored(self) -> _StoredPreferences:
        first, last = type_range(MemoryType.PREFERENCE)
        stored, unreadable = _StoredPreferences(), set[str]()
        for item in self._partition.table.query(self._partition.owner.partition, first=first, last=last):
            id_ = str(item["memory_id"])
            unreadable.add(id_)
            with skip_unreadable():
                with trusted(place_of(self._partition.owner, id_)):
                    record = record_of(item, self._partition.owner, self._partition.codec)
                unreadable.discard(id_)
                stored.versions[id_] = item.get("version")
                if not record.expired(self._partition.clock()):
                    stored.records[id_] = record
        return replace(stored, unreadable=frozenset(unreadable))

    def _logged(self, item: Item | None) -> LoggedChanges:
        """Return the content of ``~changes``; empty if the item is damaged."""
        if item is None:
            return LoggedChanges()
        place = place_of(self._partition.owner, CHANGES)
        with skip_unreadable(), trusted(place):
            body = self._partition.opened(item, place)
            statements = tuple(Statement.of(row) for row in body["statements"])
            return LoggedChanges(
                statements, tuple(Removal.of(row) for row in body["removals"]), str(item.get("revision") or "")
            )
        return LoggedChanges()

    def _item(self, logged: LoggedChanges) -> Item:
        owner = self._partition.owner
        body = {
            "statements": [each.row for each in logged.statements],
            "removals": [each.row for each in logged.removals],
        }
        stored = sealed_unless_plain(body, self._partition.codec, place_of(owner, CHANGES))
        return {"user_id": owner.changes_partition, "memory_id": CHANGES, "revision": logged.revision, **stored}


def _revision(logged: str, erased: Item | None) -> str:
    """Return the revision of a user's memories, composed of the log's revision and the last erasure."""
    return f"{logged}{'' if erased is None else erased.get('mark') or ''}"


def erased_at(marker: Item | None) -> float:
    """Return the time of an erasure in seconds since 1970; without a marker, before all times."""
    return -math.inf if marker is None else float(marker.get("at") or 0.0)


def note_id(message_id: str) -> str:
    """Return the id of the note on a retracted message."""
    return f"{RETRACTED}{message_digest(message_id)}"


def forgotten_id(memory_id: str) -> str:
    """Return the id of the note on a forgotten memory."""
    return f"{FORGOTTEN}{message_digest(memory_id)}"


def preference_record(
    key: str, value: str, *, memory_id: str, now: float, importance: float, metadata: Mapping[str, Any]
) -> MemoryRecord:
    """Return the record of a set preference."""
    shown = " ".join(key.split())
    return MemoryRecord(
        memory_id=memory_id,
        type=MemoryType.PREFERENCE,
        content=f"{shown}: {value}",
        importance=importance,
        created_at=now,
        updated_at=now,
        metadata={**metadata, "preference_key": shown, "value": value},
    )


def _renewed(state: _State) -> LoggedChanges:
    return replace(state.logged, revision=uuid.uuid4().hex)


def _is_over(statement: Statement, state: _State) -> bool:
    """Return whether a statement is older than an erasure or than the retraction of its message."""
    if statement.at <= erased_at(state.erased):
        return True
    retracted = None if statement.message_id is None else state.notes.get(note_id(statement.message_id))
    return retracted is not None and statement.at <= retracted


def _slot_and_value(record: MemoryRecord) -> tuple[str, str]:
    key, value = record.metadata.get("preference_key"), record.metadata.get("value")
    if isinstance(key, str) and key and isinstance(value, str):
        return slot_for_key(key), value
    return "", record.content


def _sources(value: str, statements: Sequence[Statement]) -> dict[str, str]:
    """Return the id of the latest message that stated each value."""
    ids = {canonical_value(one): each.message_id or "" for each in statements for one in split_values(each.preference.value)}
    return {name: ids[name] for name in map(canonical_value, split_values(value)) if name in ids}


def _version(item: Item | None) -> int:
    version = 0 if item is None else item.get("version")
    return version if isinstance(version, int) else 0


def _unchanged(item: Item | None) -> Condition:
    return ABSENT if item is None else Condition(equals={"version": item.get("version")})


def _of_version(id_: str, stored: _StoredPreferences) -> Condition:
    return Condition(equals={"version": stored.versions[id_]}) if id_ in stored.versions else ABSENT
