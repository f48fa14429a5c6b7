"""MemoryChanges: stores, replaces and deletes the memories of one user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strands_manga_memory.arguments import filled
from strands_manga_memory.exceptions import KeyMissingError
from strands_manga_memory.language.preferences.slot_values import slot_of
from strands_manga_memory.memory.preferences.preference_slots import PreferenceSlots, preference_record
from strands_manga_memory.memory.recall.wanted import checked_importance, checked_type
from strands_manga_memory.memory.records.cleaning import Cleaning
from strands_manga_memory.memory.records.memory_records import INTERNAL, MemoryRecord, content_id, episode_id
from strands_manga_memory.memory.records.partition import UserPartition
from strands_manga_memory.memory.records.retention import MemoryType, Retention

_MOST_KEY_CHARACTERS = 200


class MemoryChanges:
    """What is stored and deleted; of each memory that changed ``shown`` is told the id, and how it is now or None."""

    def __init__(
        self,
        partition: UserPartition,
        *,
        retention: Mapping[MemoryType, Retention],
        cleaning: Cleaning,
        clock: Callable[[], float],
        shown: Callable[[str, MemoryRecord | None], None],
    ) -> None:
        self._partition = partition
        self._retention = retention
        self._cleaning = cleaning
        self._clock = clock
        self._shown = shown

    def remember(
        self, content: str, type_: MemoryType | str, importance: float | None, metadata: Mapping[str, Any]
    ) -> MemoryRecord:
        """Store a memory; the same content of the same type is one memory, which starts its time anew."""
        type_ = checked_type(type_)
        filled("content", content)
        rule = self._retention[type_]
        worth = rule.importance if importance is None else checked_importance("importance", importance)
        text, extra = self._cleaning.text(content), self._cleaning.metadata(metadata)
        now = self._clock()

        def learned(known: MemoryRecord | None) -> MemoryRecord:
            first = known or MemoryRecord(
                memory_id=content_id(type_, text),
                type=type_,
                content=text,
                importance=worth,
                created_at=now,
                updated_at=now,
                version=0,
            )
            merged = {**first.metadata, **extra}
            return first.changed(importance=worth, metadata=merged, updated_at=now, expires_at=rule.expires_at(now))

        record = self._partition.update(content_id(type_, text), learned)
        assert record is not None  # noqa: S101 - an update without a guard always stores
        return self._noted(record)

    def prefer(self, key: str, value: str, importance: float | None, metadata: Mapping[str, Any]) -> MemoryRecord:
        """Store what the user prefers: one record for each key, whatever its case; the last write wins."""
        filled("key", key)
        filled("value", value)
        if len(key) > _MOST_KEY_CHARACTERS:
            raise ValueError(f"key must have at most {_MOST_KEY_CHARACTERS} characters, got {len(key)}")
        rule = self._retention[MemoryType.PREFERENCE]
        shown = _name_of(self._cleaning.text(key))
        record = preference_record(
            shown,
            self._cleaning.text(value),
            memory_id=self._partition.salt.preference_id(slot_of(shown)),
            now=self._clock(),
            known=None,
            importance=rule.importance if importance is None else checked_importance("importance", importance),
            metadata=self._cleaning.metadata(metadata),
        )
        known = self._partition.get(record.memory_id)
        if known is not None:
            record = known.changed(
                content=record.content,
                metadata={**known.metadata, **record.metadata},
                importance=record.importance,
                updated_at=record.updated_at,
            )
        self._partition.put(record)
        return self._noted(record)

    def forget(self, memory_id: str) -> bool:
        """Delete a memory, the episodes of its session, and the roll-ups made from it; tell whether it was there."""
        if not memory_id or memory_id.startswith(INTERNAL):
            raise ValueError(f"memory_id must be the id of a memory, got {memory_id!r:.80}")
        there = self._partition.delete(memory_id)
        gone = [memory_id]
        if memory_id.startswith(f"{MemoryType.SUMMARY}#"):
            episode = episode_id(memory_id, 0).rsplit("#", 1)[0]
            gone += [id_ for id_ in self._partition.ids(MemoryType.EPISODE) if id_.rsplit("#", 1)[0] == episode]
            for type_ in (MemoryType.WEEK, MemoryType.MONTH):
                gone += self._rollups_of(memory_id, type_)
            self._partition.delete_many(gone[1:])
        for id_ in gone:
            self._shown(id_, None)
        return there

    def take_back(self, message_id: str, session_id: str | None) -> int:
        """Delete the preferences that a message said, and what was made of its session; return how many memories changed."""
        self._partition.taken_back.note(message_id)
        changed = PreferenceSlots(self._partition).take_back(message_id)
        for id_ in changed:
            self._shown(id_, self._partition.get(id_))
        summaries = {} if session_id is None else self._partition.load(MemoryType.SUMMARY).records
        made = [id_ for id_, record in summaries.items() if record.metadata.get("session_id") == session_id]
        return len(changed) + sum(map(self.forget, made))

    def _rollups_of(self, memory_id: str, type_: MemoryType) -> list[str]:
        try:
            rollups = self._partition.load(type_).records
        except KeyMissingError:  # what nobody can read may have been made from it
            return self._partition.ids(type_)
        return [id_ for id_, record in rollups.items() if memory_id in record.listed("covers")]

    def _noted(self, record: MemoryRecord) -> MemoryRecord:
        self._shown(record.memory_id, record)
        return self._cleaning.opened(record)


def _name_of(key: str) -> str:
    """Return the name of a key's slot, or the key as it is written if that is its slot's name."""
    slot = slot_of(key)
    return key if slot == " ".join(key.casefold().split()) else slot
