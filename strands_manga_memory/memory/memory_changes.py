"""Storing, replacing and deleting memories of a user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strands_manga_memory.arguments import filled
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.language.preferences import slot_for_key
from strands_manga_memory.memory.memory_search import checked_importance, checked_type
from strands_manga_memory.memory.partition import UserPartition
from strands_manga_memory.memory.pii_policy import PiiFilter
from strands_manga_memory.memory.preferences.preference_log import PreferenceLog
from strands_manga_memory.memory.preferences.preference_outbox import PreferenceOutbox
from strands_manga_memory.memory.records import (
    INTERNAL,
    MemoryRecord,
    MemoryType,
    Retention,
    content_id,
    content_key,
    question_id,
    question_record,
)

_MOST_KEY_CHARACTERS = 200


class MemoryChanges:
    """Changes of a user's memories in the table and in the hot tier.

    After a change of the table, the copies in the hot tier and the preferences in the outbox are updated. A live agent sees the
    change before its next model call. A removal is stored with its time, so that older messages do not restore the memory.

    Args:
        partition: Partition of the user in the memory table.
        retention: Retention of each type of memory.
        cleaning: Filter that removes personal data and truncates texts.
        clock: Function that returns seconds since 1970.
        shown: Function to call with the id and the new record of each changed memory. The record is None after a deletion.
        log: Log of the user's preferences.
        outbox: Outbox of preferences that are still to be sent to other systems, or None.
    """

    def __init__(
        self,
        partition: UserPartition,
        *,
        retention: Mapping[MemoryType, Retention],
        cleaning: PiiFilter,
        clock: Callable[[], float],
        shown: Callable[[str, MemoryRecord | None], None],
        log: PreferenceLog,
        outbox: PreferenceOutbox | None,
    ) -> None:
        self._partition = partition
        self._retention = retention
        self._cleaning = cleaning
        self._clock = clock
        self._shown = shown
        self._log = log
        self._outbox = outbox

    def remember(
        self,
        content: str,
        type_: MemoryType | str,
        importance: float | None,
        metadata: Mapping[str, Any],
        *,
        summary_name: str | None = None,
    ) -> MemoryRecord:
        """Store a memory. Renew the expiry of a memory with the same content, and replace a summary of the same name."""
        type_ = checked_type(type_)
        filled("content", content)
        rule = self._retention[type_]
        worth = rule.importance if importance is None else checked_importance("importance", importance)
        text, extra = self._cleaning.text(content), self._cleaning.metadata(metadata)
        now, id_ = self._clock(), content_id(type_, text)
        if type_ == MemoryType.SUMMARY:
            id_ = self._partition.id_of_summary(summary_name or f"~{content_key(text)}", rule.expires_at(now))

        def learned(known: MemoryRecord | None) -> MemoryRecord:
            first = known or MemoryRecord(
                memory_id=id_,
                type=type_,
                content=text,
                importance=worth,
                created_at=now,
                updated_at=now,
                version=0,
            )
            merged = {**first.metadata, **extra}
            content = first.content if summary_name is None else text
            fields: dict[str, Any] = {"content": content, "importance": worth, "metadata": merged, "updated_at": now}
            return first.changed(**fields, expires_at=rule.expires_at(now))

        record = self._partition.update(id_, learned)
        assert record is not None  # noqa: S101 - an update without a guard always stores
        if record.type == MemoryType.SUMMARY and "ended_at" in record.metadata:
            self._keep_questions(record)
        if record.type in (MemoryType.FACT, MemoryType.FEEDBACK):
            self._partition.note_latest(id_)
        self._log.renew()
        return self._noted(record)

    def _keep_questions(self, summary: MemoryRecord) -> None:
        questions = question_record(summary, self._retention[MemoryType.QUESTION])
        is_open = bool(questions.metadata["open_questions"])
        if is_open:
            self._partition.put(questions)
        else:
            self._partition.delete_many([questions.memory_id])
        self._shown(questions.memory_id, questions if is_open else None)

    def prefer(self, key: str, value: str, importance: float | None, metadata: Mapping[str, Any]) -> MemoryRecord:
        """Store a preference of the user, and replace that of the same key. The case of the key is ignored."""
        filled("key", key)
        filled("value", value)
        if len(key) > _MOST_KEY_CHARACTERS:
            raise ValueError(f"key must have at most {_MOST_KEY_CHARACTERS} characters, got {len(key)}")
        rule, now = self._retention[MemoryType.PREFERENCE], self._clock()
        name, value = _name_of(self._cleaning.text(key)), self._cleaning.text(value)
        shown = " ".join(name.split())
        record = MemoryRecord(
            memory_id=self._partition.salt.preference_id(slot_for_key(name)),
            type=MemoryType.PREFERENCE,
            content=f"{shown}: {value}",
            importance=rule.importance if importance is None else checked_importance("importance", importance),
            created_at=now,
            updated_at=now,
            metadata={**self._cleaning.metadata(metadata), "preference_key": shown, "value": value},
        )
        return self._noted(self._log.set(record))

    def forget(self, memory_id: str) -> bool:
        """Delete a memory and all memories derived from it. Return whether the memory existed.

        Earlier messages do not restore the memory. Later messages may create it again.
        """
        if not memory_id or memory_id.startswith(INTERNAL):
            raise ValueError(f"memory_id must be the id of a memory, got {memory_id!r:.80}")
        now = self._clock()
        record = self._preference(memory_id)
        if record is None:
            there = self._partition.delete(memory_id)
            if there:
                self._log.note_forgotten(memory_id, now)
            self._delete_derived(memory_id)
            self._log.renew(is_removal=True)
            return there
        removal = self._log.forget(record, now)
        self._shown(memory_id, None)
        if self._outbox is not None:
            self._outbox.drop(self._partition.owner, removal)
        return True

    def retract(self, message_id: str, session_id: str | None, at: float | None = None) -> int:
        """Delete a message's preferences up to ``at`` (default: now), and the session's summaries if a session is given.

        Return the number of preferences that changed or were deleted, plus the number of deleted session summaries.
        """
        at = self._clock() if at is None else at
        is_stored = False
        try:
            changed = self._log.retract(message_id, at)
            is_stored = True
        finally:  # the outbox retries if the table is unavailable
            if self._outbox is not None:
                self._outbox.retract(self._partition.owner, message_id, at=at, is_stored=is_stored)
        for id_, record in changed.items():
            self._shown(id_, record)
        summaries = {} if session_id is None else self._partition.load(MemoryType.SUMMARY).records
        made = [id_ for id_, record in summaries.items() if record.metadata.get("session_id") == session_id]
        for id_ in made:
            self._partition.delete(id_)
            self._delete_derived(id_)
        if made:
            self._log.renew(is_removal=True)
        return len(changed) + len(made)

    def _preference(self, memory_id: str) -> MemoryRecord | None:
        if not memory_id.startswith(f"{MemoryType.PREFERENCE}#"):
            return None
        try:
            return self._partition.get(memory_id)
        except CorruptRecordError:  # a damaged record can still be deleted
            return None

    def _delete_derived(self, memory_id: str) -> None:
        """Delete the memories derived from a summary: open questions, stored messages, and weekly and monthly summaries."""
        gone = [memory_id]
        if memory_id.startswith(f"{MemoryType.SUMMARY}#"):
            gone += [question_id(memory_id), *self._partition.episode_ids(memory_id)]
            for type_ in (MemoryType.WEEK, MemoryType.MONTH):
                gone += self._rollups_of(memory_id, type_)
            self._partition.delete_many(gone[1:])
        for id_ in gone:
            self._shown(id_, None)

    def _rollups_of(self, memory_id: str, type_: MemoryType) -> list[str]:
        try:
            rollups = self._partition.load(type_).records
        except KeyMissingError:  # unreadable roll-ups may be derived from the summary
            return self._partition.ids(type_)
        return [id_ for id_, record in rollups.items() if memory_id in record.covers]

    def _noted(self, record: MemoryRecord) -> MemoryRecord:
        self._shown(record.memory_id, record)
        return self._cleaning.opened(record)


def _name_of(key: str) -> str:
    """Return the subject that a preference key means: ``genre`` for ``favorite genres``. A key ``Genre`` keeps its case."""
    slot = slot_for_key(key)
    return key if slot == " ".join(key.casefold().split()) else slot
