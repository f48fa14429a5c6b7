"""PreferenceSlots: a user's preferences in the memory table: a record for each slot, and one for each other statement."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from strands_manga_memory.language.preferences.slot_values import DISLIKES, TASTES, Preference, canonical, touched, values_of
from strands_manga_memory.memory.records.memory_records import MemoryRecord, preference_id
from strands_manga_memory.memory.records.partition import UserPartition
from strands_manga_memory.memory.records.retention import RETENTION, MemoryType
from strands_manga_memory.memory.records.unreadable import going_on
from strands_manga_memory.stores.table import Item

MOST_KEPT = 100
"""So many preferences that were heard are kept of a user; the oldest leave first. Those set by ``prefer`` are not counted."""

_SOURCES = "sources"


class PreferenceSlots:
    """Takes what a user says into the records of his preferences, and takes it back by the message that said it.

    Its ``guard`` is the erasure marker that was there when the work began; see ``UserPartition.update``.
    """

    def __init__(
        self,
        partition: UserPartition,
        *,
        importance: float = RETENTION[MemoryType.PREFERENCE].importance,
        guard: Item | str | None = "",
    ) -> None:
        self._partition = partition
        self._importance = importance
        self._guard = guard

    def learn(
        self,
        said: Preference,
        *,
        at: float,
        source: str,
        metadata: Mapping[str, Any],
        is_old: Callable[[MemoryRecord], bool] = lambda known: False,
    ) -> None:
        """Store a preference: it takes its slot, leaves ``dislikes`` if it is wanted, and enters it if it is not.

        A record that ``is_old`` says was changed by something later stays as it is; ``source`` is the message, or the summary,
        that says so.
        """
        if not said.slot:
            self._state(said.value, at, source, metadata)
            return
        if said.liked and self._was_taken_back(said, is_old):
            return
        for slot in dict.fromkeys((said.slot, DISLIKES) if said.liked else (DISLIKES, said.slot, *TASTES)):
            with going_on():
                self._change(slot, said, at, source, metadata, is_old)

    def _was_taken_back(self, said: Preference, is_old: Callable[[MemoryRecord], bool]) -> bool:
        known = None
        if said.slot != DISLIKES:
            with going_on():
                known = self._partition.get(preference_id(DISLIKES))
        if known is None or not is_old(known):
            return False
        return not set(map(canonical, values_of(said.value))).isdisjoint(map(canonical, values_of(_value(known))))

    def _change(
        self,
        slot: str,
        said: Preference,
        at: float,
        source: str,
        metadata: Mapping[str, Any],
        is_old: Callable[[MemoryRecord], bool],
    ) -> None:
        emptied = False
        memory_id = self._partition.salt.preference_id(slot)

        def changed(known: MemoryRecord | None) -> MemoryRecord | None:
            nonlocal emptied
            emptied = False
            if known is not None and is_old(known):
                return known
            before = "" if known is None else _value(known)
            after = touched({slot: before} if before else {}, said).get(slot, before)
            if after == before:
                return known
            if not after:
                emptied = True
                return known
            sources = {**_sources(known), **{canonical(value): source for value in values_of(said.value)}}
            kept = {name: sources[name] for name in map(canonical, values_of(after)) if name in sources}
            return preference_record(
                slot,
                after,
                memory_id=memory_id,
                now=at,
                known=known,
                importance=self._importance,
                metadata={**metadata, _SOURCES: kept},
            )

        stored = self._partition.update(memory_id, changed, guard=self._guard)
        if emptied and stored is not None:
            self._partition.delete(stored.memory_id)
        elif stored is not None and stored.created_at == at:  # it is new
            self._bound(self._partition.load(MemoryType.PREFERENCE).records)

    def _state(self, statement: str, at: float, source: str, metadata: Mapping[str, Any]) -> None:
        """Store a statement, under an id that says nothing of it, unless it is there."""
        there = self._partition.load(MemoryType.PREFERENCE).records
        if any(canonical(record.content) == canonical(statement) for record in there.values()):
            return
        record = MemoryRecord(
            memory_id=f"{MemoryType.PREFERENCE}#~{uuid.uuid4().hex}",
            type=MemoryType.PREFERENCE,
            content=statement,
            importance=self._importance,
            created_at=at,
            updated_at=at,
            metadata={**metadata, _SOURCES: {"": source}},
            version=0,
        )
        self._partition.update(record.memory_id, lambda known: record if known is None else known, guard=self._guard)
        self._bound({**there, record.memory_id: record})

    def _bound(self, there: Mapping[str, MemoryRecord]) -> None:
        """Let the oldest go of what was heard, if it is more than a user has."""
        heard = [each for each in there.values() if _SOURCES in each.metadata]
        surplus = len(heard) - MOST_KEPT
        if surplus > 0:
            oldest = sorted(heard, key=lambda each: (each.updated_at, each.memory_id))[:surplus]
            self._partition.delete_many(each.memory_id for each in oldest)

    def take_back(self, source: str, *, but: frozenset[str] = frozenset()) -> list[str]:
        """Remove what a message, or a summary, said, but what it still says; return the ids of the memories that changed."""
        gone: list[str] = []
        for id_, record in self._partition.load(MemoryType.PREFERENCE).records.items():
            if source in _sources(record).values():
                gone.append(id_)
                self._without(id_, source, but)
        return gone

    def _without(self, memory_id: str, source: str, but: frozenset[str]) -> None:
        emptied = False

        def changed(known: MemoryRecord | None) -> MemoryRecord | None:
            nonlocal emptied
            emptied = False
            if known is None:
                return None
            sources = _sources(known)
            said = {name for name, each in sources.items() if each == source and name not in but}
            if said == {""}:
                emptied = True
                return known
            kept = [value for value in values_of(_value(known)) if canonical(value) not in said]
            if not kept:
                emptied = True
                return known
            rest = {name: each for name, each in sources.items() if name not in said}
            return preference_record(
                str(known.metadata["key"]),
                ", ".join(kept),
                memory_id=memory_id,
                now=known.updated_at,
                known=known,
                importance=known.importance,
                metadata={_SOURCES: rest},
            )

        stored = self._partition.update(memory_id, changed, guard=self._guard)
        if emptied and stored is not None:
            self._partition.delete(memory_id)


def preference_record(
    key: str,
    value: str,
    *,
    memory_id: str,
    now: float,
    known: MemoryRecord | None,
    importance: float,
    metadata: Mapping[str, Any],
) -> MemoryRecord:
    """Return the record of a preference, on top of what is ``known`` of its key."""
    shown = " ".join(key.split())
    fields: dict[str, Any] = {
        "content": f"{shown}: {value}",
        "importance": importance,
        "updated_at": now,
        "metadata": {**({} if known is None else known.metadata), **metadata, "key": shown, "value": value},
    }
    if known is not None:
        return known.changed(**fields)
    return MemoryRecord(memory_id=memory_id, type=MemoryType.PREFERENCE, created_at=now, **fields)


def _value(record: MemoryRecord) -> str:
    return str(record.metadata.get("value") or "")


def _sources(record: MemoryRecord | None) -> dict[str, str]:
    found = None if record is None else record.metadata.get(_SOURCES)
    return {str(name): str(source) for name, source in found.items()} if isinstance(found, dict) else {}
