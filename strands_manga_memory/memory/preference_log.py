"""Log of a user's stated preferences, and the preference records that result from the log."""

from __future__ import annotations

import logging
import math
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.language.preference_slots import (
    Preference,
    canonical_value,
    slot_for_key,
    split_values,
)
from strands_manga_memory.memory.hot_profile import PATIENCE, TTL, HotProfile, ProfileState
from strands_manga_memory.memory.partition import (
    UserPartition,
    not_erased_since,
    repeat_until_written,
    unchanged,
)
from strands_manga_memory.memory.records import (
    CHANGES,
    ERASED,
    RETENTION,
    MemoryRecord,
    MemoryType,
    Owner,
    new_record,
    opened_body,
    preference_id,
    record_of,
    sealed_unless_plain,
    skip_unreadable,
    storage_key_of,
    type_range,
)
from strands_manga_memory.memory.statements import (
    LOG,
    LoggedChanges,
    PreferenceChange,
    PreferenceSignal,
    Removal,
    SlotState,
    Statement,
    slot_states,
)
from strands_manga_memory.stores.codec import parsing
from strands_manga_memory.stores.table import Item, Write
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

_MAX_WRITES = 96
"""Most records that a change writes, as DynamoDB limits a transaction to 100 items."""
BUCKETS = 16
"""Number of partitions that list the users with pending signals."""
_MOST_DELETIONS = 1_000
"""Most deletions in a user's log, which is one item of the table. The latest are kept."""
_USUAL_SLOTS = frozenset(
    [
        "genre",
        "author",
        "format",
        "language",
        "budget",
        "style",
        "dislikes",
        "likes",
        "name",
        "home",
        "spoilers",
        "purchases",
    ]
)
"""Subjects of preferences whose names reveal nothing about a user."""
_SOURCES, SET_VALUE = "sources", "set"
"""Keys in a preference's metadata: ids of the messages that state it; value that ``prefer`` set."""


@dataclass(eq=False)
class PreferenceLog:
    """Log of a user's stated preferences, and the records with the resulting values.

    The log lists the preferences that the user stated in messages, and their removals. For each
    subject, such as ``genre``, a record in the memory table has the value that results from the
    log. A value that ``UserMemoryStore.prefer`` set is only in the record. Log and records are
    written in one transaction.

    Args:
        partition: Memories of the user in the memory table.
        hot: Record of the user in the hot tier (a fast shared store, such as Redis), where running
            agents read changes, or None.
        importance: Importance of the records.
        send_later: Function that sends the user's signals (reports of preferences) to another
            service in the background. None: there is no such service.
        on_change: Function to call after changes of the user's memories, except those that only add
            preferences from messages.
    """

    partition: UserPartition
    hot: HotProfile | None = None
    importance: float = RETENTION[MemoryType.PREFERENCE].importance
    send_later: Callable[[Owner], None] | None = None
    on_change: Callable[[], None] | None = None

    def read(self) -> LoggedChanges:
        """Read the preference log of the user."""
        return self.logged(*self.read_items())

    def read_items(self) -> tuple[Item | None, Item | None]:
        """Read the item of the log, and the marker of the last deletion of all data of the user."""
        keys = (
            (self.partition.owner.preference_log_partition, CHANGES),
            (self.partition.owner.partition, ERASED),
        )
        found = self.partition.table.batch_get(keys)
        return found.get(keys[0]), found.get(keys[1])

    def logged(self, item: Item | None, marker: Item | None) -> LoggedChanges:
        """Return the content of the log, given the result of ``read_items``."""
        storage_key, erased = storage_key_of(self.partition.owner, CHANGES), erased_at(marker)
        if item is None:
            return LoggedChanges(erased_at=erased)
        with parsing(storage_key):
            body = opened_body(item, self.partition.codec, storage_key)
            required = {name: body[name] for name in ("statements", "removals")}
            plain = {
                "revision": str(item.get("revision") or ""),
                "forgotten": item.get("forgotten", {}),
            }
            return LOG.validate_python({**body, **required, **plain, "erased_at": erased})

    def apply(self, change: PreferenceChange) -> Mapping[str, MemoryRecord | None]:
        """Store a change of the user's preferences, and publish it to the user's agents.

        The statements of the change (preferences that messages state) are added to the log. A
        statement is left out if the user retracted it, or if it is older than a deletion of all
        data of the user.

        Returns:
            The changed preference records, keyed by id; None for a deleted record.
        """
        if any(removal.message for removal in change.removals):
            # Before the write, too: no agent may show the statements, even if the table is
            # unavailable.
            self._publish(removals=change.removals)
        return self._store(change)

    def _store(self, change: PreferenceChange) -> Mapping[str, MemoryRecord | None]:
        storage_key = storage_key_of(self.partition.owner, CHANGES)
        changed, revisions = repeat_until_written(lambda: self._attempt(change), record=storage_key)
        if revisions is not None:
            stated = change.record and _set_value(change.record)
            self._publish(
                statements=[stated] if stated else (),
                removals=change.removals,
                revisions=revisions,
            )
            if revisions[0] != revisions[1] and self.on_change:
                self.on_change()
        if self.send_later is not None and change.signals:
            self.send_later(self.partition.owner)
        return changed

    def apply_later(self, change: PreferenceChange) -> None:
        """Store a change in the background; running agents see its preferences at once.

        If the table fails, the write is repeated.
        """
        # Queued first, because a hot tier in an outage delays the publishing.
        writer = shared_writer(None, self.partition.table)
        writer.repeat(self.partition.log_key, lambda: self._store(change))
        if change.statements:
            self._publish(statements=change.statements)

    def signals_of(self, statements: Iterable[Statement]) -> list[PreferenceSignal]:
        """Create the signals that report new statements of the user to another service.

        The result is empty if no service receives signals.
        """
        wanted = () if self.send_later is None else statements
        return [PreferenceSignal.from_statement(self.partition.owner, each) for each in wanted]

    def notify_agents(self, *, is_removal: bool = False, drops_context: bool = False) -> None:
        """Notify live agents that memories other than preferences have changed.

        Args:
            is_removal: Whether memories were removed. Agents then read their text about the user
                again.
            drops_context: Whether to delete the cached text about the user, so that the next
                session start makes it from the table.
        """
        try:
            revisions = self._replace_fields(lambda item: {"revision": uuid.uuid4().hex})
            self._publish(revisions=revisions, is_removal=is_removal, drops_context=drops_context)
        finally:
            if self.on_change:
                self.on_change()

    def add_deletions(self, deletions: Mapping[str, float]) -> None:
        """Record deletions of memories, so that earlier messages do not create them again.

        If the log is damaged, nothing is recorded, and no error is raised.

        Args:
            deletions: Time of each deletion, in seconds since 1970, keyed by the digest of the
                memory's id.
        """

        def add(item: Item) -> Item:
            known = item.get("forgotten", {})
            times = {**known, **{id_: max(at, known.get(id_, 0)) for id_, at in deletions.items()}}
            latest = sorted(times.items(), key=itemgetter(1))[-_MOST_DELETIONS:]
            return {"forgotten": dict(latest)}

        with suppress(CorruptRecordError):
            self._replace_fields(add)

    def _replace_fields(self, fields: Callable[[Item], Item]) -> tuple[str, str]:
        """Write unencrypted fields of the log. Return the revision of the log before and after.

        This needs no encryption key, so that memories can be deleted without the key.
        """
        storage_key = storage_key_of(self.partition.owner, CHANGES)

        def attempt() -> tuple[str, str] | None:
            item, erased = self.read_items()
            known = item or self._item(LoggedChanges())
            with parsing(storage_key):
                if known.keys().isdisjoint(("statements", "sealed")):
                    raise ValueError("it has no statements")
                renewed = {**known, **fields(known), "version": uuid.uuid4().hex}
            if not self.partition.table.put(renewed, when=unchanged(item)):
                return None
            return revision_of(item, erased), revision_of(renewed, erased)

        return repeat_until_written(attempt, record=storage_key)

    def erased_at(self) -> float:
        """Return the time of the last deletion of all data of the user, in seconds since 1970.

        Minus infinity without a deletion. With a damaged deletion marker, it is the current time,
        so that no statement from before the deletion is stored again.
        """
        try:
            return erased_at(self.partition.erased())
        except CorruptRecordError:
            return self.partition.clock()

    # Inside

    def _publish(
        self,
        *,
        statements: Sequence[Statement] = (),
        removals: Sequence[Removal] = (),
        revisions: tuple[str, str] = ("", ""),
        is_removal: bool = False,
        drops_context: bool = False,
    ) -> None:
        """Write a change to the user's record in the hot tier, where the user's agents read it.

        Waits at most 0.25 seconds. If the hot tier is unavailable, the change is written in the
        background.

        Args:
            statements: Preferences that the user has just stated, or that the application has set.
            removals: Deletions of a preference, or of all preferences that a message stated.
            revisions: Revisions of the log before and after the change. If the hot tier does not
                have the first one, it lacks another process's change: agents then read the table.
            is_removal: Whether further memories were removed, in addition to ``removals``.
            drops_context: Whether the next session start makes the text about the user again.
        """
        hot, until = self.hot, time.monotonic() + TTL
        if hot is None:
            return
        before, revision = revisions
        removes = is_removal or bool(removals)

        def changed(state: ProfileState) -> ProfileState | None:
            since = self.erased_at() if state.is_erased else -math.inf
            new = state.with_changes(statements, removals, since=since)
            if not (state.exists or new.statements or (removals and not state.is_erased)):
                return None
            if removes or drops_context:
                new = replace(new, context=None, removed="" if removes else state.removed)
            if revision != before:
                is_known = state.revision == before
                new = replace(new, revision=revision if is_known else uuid.uuid4().hex)
            return new

        def publish() -> None:
            if time.monotonic() < until:  # later, every older copy has expired
                hot.update(changed, drops=True)

        try:
            hot.health.call_in_thread(publish, PATIENCE)
        except StoreError as error:
            logger.warning(
                "error=<%s> | failed to publish a change of a user's memories, retrying",
                type(error).__name__,
            )
            # The table has the change, so the exit does not wait for the hot tier.
            hot.writer.repeat(("publish", hot.name), publish, is_needed=lambda: False)

    def _attempt(
        self, change: PreferenceChange
    ) -> tuple[Mapping[str, MemoryRecord | None], tuple[str, str] | None] | None:
        """Try to write a change of the preferences in one transaction.

        Returns:
            None after a conflict with another process. Otherwise, a pair: the changed records, and
            the log's revisions before and after the write (None if nothing had to be written).
        """
        table, owner = self.partition.table, self.partition.owner
        item, erased = self.read_items()
        logged = self.logged(item, erased)
        after = logged.with_change(change)
        if after is None:
            return {}, None
        changed: dict[str, MemoryRecord | None] = {}
        written = self._item(after)
        writes = [
            Write(item=written, when=unchanged(item)),
            not_erased_since(owner.partition, erased),
        ]
        bucket = bucket_of(owner)
        if change.signals and after.signals:
            entry = {"user_id": bucket, "memory_id": owner.partition, "owner": owner.ids}
            writes.append(Write(item=entry))
        elif logged.signals and not after.signals:
            writes.append(Write(key=(bucket, owner.partition)))
        if change.record or change.dropped or after.statements != logged.statements:
            stored = self._stored_preferences()
            changed = self._changed_records(stored, after.statements, change)
            for id_, record in list(changed.items())[:_MAX_WRITES]:
                when = unchanged(stored[id_][0] if id_ in stored else None)
                if record is None:
                    writes.append(Write(key=(owner.partition, id_), when=when))
                else:
                    writes.append(Write(item=self.partition.item_of(record), when=when))
        revisions = revision_of(item, erased), revision_of(written, erased)
        return (changed, revisions) if table.transact(writes) else None

    def _changed_records(
        self,
        stored: Mapping[str, tuple[Item, MemoryRecord | None]],
        statements: Sequence[Statement],
        change: PreferenceChange,
    ) -> dict[str, MemoryRecord | None]:
        """Return the preference records that a change writes (None: deletes), keyed by id."""
        now, dropped = self.partition.clock(), change.dropped
        known = {
            id_: record
            for id_, (_, record) in stored.items()
            if id_ != dropped and record is not None and not record.expired(now)
        }
        ids, records = {slot_of(record): id_ for id_, record in reversed(known.items())}, {**known}
        if (new := change.record) is not None:
            id_ = ids.setdefault(slot_of(new), self._new_id(slot_of(new)))
            records[id_] = _with_set_value(known.get(id_), replace(new, memory_id=id_))
        by_prefer = {id_: each for id_, record in records.items() if (each := _set_value(record))}
        stated = {id_ for id_, record in records.items() if _SOURCES in record.metadata}
        changed = dict[str, MemoryRecord | None].fromkeys(sorted({*stated, *by_prefer}))
        if dropped:
            changed[dropped] = None
        for slot, state in slot_states([*by_prefer.values(), *statements]).items():
            id_ = ids.get(slot) or self._new_id(slot)
            changed[id_] = self._record(id_, slot, state, records.get(id_), statements)
        unreadable = {id_ for id_, (_, record) in stored.items() if record is None} - {dropped}
        return {
            id_: record
            for id_, record in changed.items()
            if id_ not in unreadable and (record is None or record is not known.get(id_))
        }

    def _new_id(self, slot: str) -> str:
        # The id contains the subject, unless an encrypted subject may reveal something about the
        # user.
        codec = self.partition.codec
        if codec is not None and codec.encrypts and slot not in _USUAL_SLOTS:
            return f"{MemoryType.PREFERENCE}#~{uuid.uuid4().hex}"
        return f"{MemoryType.PREFERENCE}#{slot}" if slot.startswith("~") else preference_id(slot)

    def _record(
        self,
        id_: str,
        slot: str,
        state: SlotState,
        known: MemoryRecord | None,
        statements: Sequence[Statement],
    ) -> MemoryRecord:
        """Return the preference record of a subject, such as ``genre``, with its current value."""
        has_slot = not slot.startswith("~")
        if known is not None and (
            not has_slot or str(known.metadata.get("value") or "") == state.value
        ):
            return known
        at = state.statement.at
        first = known or new_record(id_, self.importance, at, version=0)
        content = state.value
        metadata: dict[str, Any] = {
            "session_id": state.statement.session_id,
            _SOURCES: {"": state.statement.message_id or ""},
        }
        if has_slot:
            shown = str(first.metadata.get("preference_key") or slot)
            content = f"{shown}: {state.value}"
            metadata |= {
                "preference_key": shown,
                "value": state.value,
                _SOURCES: _sources(state.value, statements),
            }
        if by_prefer := _set_value(first):
            kept = state.value if state.statement.is_set else by_prefer.preference.value
            metadata[SET_VALUE] = [kept, by_prefer.at]
        return first.changed(
            content=content, metadata={**first.metadata, **metadata}, updated_at=at
        )

    def _stored_preferences(self) -> dict[str, tuple[Item, MemoryRecord | None]]:
        """Return the item and the record (None if unreadable) of each preference, keyed by id."""
        first, last = type_range(MemoryType.PREFERENCE)
        owner, stored = self.partition.owner, dict[str, tuple[Item, MemoryRecord | None]]()
        for item in self.partition.table.query(owner.partition, first=first, last=last):
            id_ = str(item["memory_id"])
            stored[id_] = item, None
            with skip_unreadable(), parsing(storage_key_of(owner, id_)):
                record = record_of(item, owner, self.partition.codec)
                _set_value(record)  # may be damaged
                stored[id_] = item, record
        return stored

    def _item(self, logged: LoggedChanges) -> Item:
        owner = self.partition.owner
        body: dict[str, Any] = {"statements": [], "removals": []}
        body |= LOG.dump_python(
            logged,
            exclude={"revision", "forgotten", "erased_at"},
            exclude_defaults=True,
            mode="json",
        )
        stored = sealed_unless_plain(body, self.partition.codec, storage_key_of(owner, CHANGES))
        key: Item = {"user_id": owner.preference_log_partition, "memory_id": CHANGES}
        if logged.forgotten:  # not encrypted, so that a deletion needs no key
            key["forgotten"] = dict(logged.forgotten)
        if logged.signals:
            key["waiting"] = len(logged.signals)  # not encrypted, for the report of an erasure
        return {**key, "revision": logged.revision, "version": uuid.uuid4().hex, **stored}


def bucket_of(owner: Owner) -> str:
    """Return the partition key of a user's list, one of 16 lists of users with unsent signals.

    A signal reports a preference to another service. A hash of the user selects the list.
    """
    return f"spool/{zlib.crc32(owner.partition.encode()) % BUCKETS:02d}"


def revision_of(item: Item | None, erased: Item | None) -> str:
    """Return the revision of a user's preference log, a text to compare with an earlier one.

    If the revision has changed, agents read the memories again. A deletion of all data changes it,
    too. The arguments are the two values that ``read_items`` returns.
    """
    return f"{(item or {}).get('revision') or ''}{(erased or {}).get('mark') or ''}"


def erased_at(marker: Item | None) -> float:
    """Return the time of a deletion of all data of a user, in seconds since 1970.

    ``marker`` is the record of the deletion. Without one, the result is minus infinity.

    Raises:
        CorruptRecordError: The marker is damaged.
    """
    if marker is None:
        return -math.inf
    with parsing(f"{marker['user_id']}/{marker['memory_id']}"):
        return float(marker["at"])


def slot_and_value(record: MemoryRecord) -> tuple[str, str]:
    """Return the subject and the value of a preference record, such as ``genre`` and ``horror``.

    Without a subject, the result is an empty text and the record's whole content.
    """
    key, value = record.key_and_value
    return key and slot_for_key(key), value


def slot_of(record: MemoryRecord) -> str:
    """Return a preference record's subject, such as ``genre``, or a digest if it has none."""
    return slot_and_value(record)[0] or Statement(Preference("", record.content), 0.0).slot


def _set_value(record: MemoryRecord) -> Statement | None:
    slot, value = slot_and_value(record)
    default = ["", 0.0] if _SOURCES in record.metadata else [value, record.updated_at]
    text, at = record.metadata.get(SET_VALUE, default)
    return Statement(Preference(slot, str(text)), float(at), is_set=True) if text and slot else None


def _with_set_value(known: MemoryRecord | None, new: MemoryRecord) -> MemoryRecord:
    """Return a preference record with a new value that ``UserMemoryStore.prefer`` set.

    Metadata of ``known``, the stored record, are kept, except the messages with its old value.
    """
    if known is None:
        return new
    metadata = {name: each for name, each in known.metadata.items() if name != _SOURCES}
    fields = {"content": new.content, "importance": new.importance, "updated_at": new.updated_at}
    return known.changed(**fields, metadata={**metadata, **new.metadata})


def _sources(value: str, statements: Sequence[Statement]) -> dict[str, str]:
    """Map each value of a preference to the id of the latest message that states the value."""
    ids = {
        canonical_value(one): each.message_id or ""
        for each in statements
        for one in split_values(each.preference.value)
    }
    return {name: ids[name] for name in map(canonical_value, split_values(value)) if name in ids}
