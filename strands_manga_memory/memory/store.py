"""Memory store of one user for Strands' ``MemoryManager``."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from strands.memory import ExtractionConfig, MemoryEntry, MemoryStore, SearchOptions

from strands_manga_memory.arguments import (
    Clock,
    Count,
    Finite,
    FiniteSeconds,
    PositiveInt,
    Share,
    Text,
    checked,
)
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, StoreError
from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act
from strands_manga_memory.language.preference_slots import Preference, slot_for_key
from strands_manga_memory.language.search import Embed
from strands_manga_memory.memory.hot_profile import HotProfile
from strands_manga_memory.memory.memory_reader import MemoryReader
from strands_manga_memory.memory.memory_search import MemoryQuery, checked_type, entries_of
from strands_manga_memory.memory.older_memories import delete_word_list
from strands_manga_memory.memory.partition import UserPartition, of_type
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.preference_log import (
    SET_VALUE,
    PreferenceLog,
    slot_and_value,
    slot_of,
)
from strands_manga_memory.memory.profile_service import (
    PreferenceOutbox,
    ProfileReader,
    ProfileSource,
)
from strands_manga_memory.memory.records import (
    DERIVED,
    EMPTY,
    INTERNAL,
    MAX_TOKENS,
    RETENTION,
    AgentContext,
    MemoryRecord,
    MemoryType,
    Owner,
    Retention,
    content_id,
    content_key,
    episodes_of,
    new_record,
    preference_id,
    question_id,
)
from strands_manga_memory.memory.statements import (
    PreferenceChange,
    Removal,
    Statement,
    message_digest,
)
from strands_manga_memory.scope import checked_id, encoded_id
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import USER_MEMORY, Table

logger = logging.getLogger(__name__)

_MAX_KEY_CHARACTERS = 200
_DESCRIPTION = (
    "What is known about this user from earlier conversations: preferences, feedback, and what was"
    " talked about."
)


class UserMemoryStore(MemoryStore):
    """Long-term memories of one user, stored in a table.

    Pass the store to Strands' ``MemoryManager(stores=[...])``. The manager searches the store, adds
    memories, offers tools, and adds search results to requests. A store belongs to one user,
    because ``search`` has no argument for the user.

    When an agent is built, the latest memories are read into the process, from the hot tier if
    possible. ``search`` uses these memories, so that model calls do not wait for the table. A
    search that these memories do not answer also reads older memories with the words of the query.
    ``recall`` always reads the table.

    Args:
        table: Table of the schema ``USER_MEMORY``, such as ``open_table(url, USER_MEMORY)``.
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user. None: a user without a tenant, separate from all tenants.
        clock: Function that returns seconds since 1970.
        name: Name of the store in the tools of the manager. Default ``user_memory``.
        description: Description of the store in the tools of the manager.
        max_search_results: Most results of a search. Default 5.
        writable: Whether the manager may add memories. Default True.
        extraction: Settings of Strands' automatic extraction. By default, it is off.
        retention: Retention and initial importance of each type of memory. Default ``RETENTION``.
        embed: Function that returns vectors of texts. By default, texts are compared by words.
        pii: Policy for personal data. Default ``PiiPolicy()``.
        codec: Codec of content and metadata. By default, they are stored in clear text.
        hot: Hot tier that caches the memories of active users.
        profile: Source of the user's profile, read at session start within 0.25 seconds.
        outbox: Sender of stated and retracted preferences to another service.

    Raises:
        ValueError: An argument is out of range, or the table has another schema.
    """

    @checked
    def __init__(
        self,
        table: Table,
        *,
        user_id: str,
        tenant: str | None = None,
        clock: Clock = time.time,
        name: str = "user_memory",
        description: str | None = _DESCRIPTION,
        max_search_results: PositiveInt | None = 5,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
        retention: Mapping[MemoryType, Retention] = RETENTION,
        embed: Embed | None = None,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        hot: HotStore | None = None,
        profile: ProfileSource | None = None,
        outbox: PreferenceOutbox | None = None,
    ) -> None:
        if (table.schema.partition, table.schema.sort) != (USER_MEMORY.partition, USER_MEMORY.sort):
            raise ValueError(
                f"table must have the schema USER_MEMORY, got {table.schema.name!r:.80}; use"
                " open_table(url, USER_MEMORY)"
            )
        if missing := sorted(set(MemoryType) - set(retention)):
            raise ValueError(f"retention must name every MemoryType, {missing} are missing")
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        self.owner = Owner(user_id, tenant)
        self.hot = None if hot is None else HotProfile(hot, self.owner, codec=codec)
        self.partition = UserPartition(table, self.owner, codec=codec, clock=clock)
        self._retention = {MemoryType(type_): rule for type_, rule in retention.items()}
        self.pii = (pii or PiiPolicy()).of_user(self.owner.partition)
        self.reader = MemoryReader(
            self.partition,
            hot=self.hot,
            profiles=ProfileReader.wrap(profile),
            retention=self._retention,
            embed=embed,
            pii=self.pii,
        )
        self.preference_log = PreferenceLog(
            self.partition,
            hot=self.hot,
            importance=self._retention[MemoryType.PREFERENCE].importance,
            send_later=None if outbox is None else outbox.send_later,
            on_change=self.reader.drop_snapshot,
        )

    def __repr__(self) -> str:
        return f"UserMemoryStore(user_id={self.owner.user_id!r}, tenant={self.owner.tenant!r})"

    # Strands' memory store interface

    async def initialize(self) -> None:
        """Read the user's memories into the process, when Strands' ``MemoryManager`` starts.

        If the table is unavailable, the agent starts without memories.

        Raises:
            KeyMissingError: The memories are encrypted, and their key is missing or destroyed.
        """
        try:
            await asyncio.to_thread(self.reader.start)
        except KeyMissingError:
            raise
        except StoreError as error:
            logger.warning(
                "error=<%s> | the user's memories could not be read, the agent starts without them",
                type(error).__name__,
            )

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return the memories most similar to ``query``, at most 800 tokens in total."""
        limit = (options or {}).get("max_search_results") or self.max_search_results
        return entries_of(await asyncio.to_thread(self.reader.search, query, limit))

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        """Store a memory from an extractor or a model, and return its ``memory_id``.

        A repeated call with the same content renews the expiry of the memory. ``metadata`` may
        contain ``memory_type`` and ``importance``. By default, a text that states a preference is
        stored as a preference, and any other text as a fact.
        """
        given = dict(metadata or {})
        is_preference = dialogue_act(content, "user") is DialogueAct.PREFERENCE
        type_ = given.pop("memory_type", None) or (
            MemoryType.PREFERENCE if is_preference else MemoryType.FACT
        )
        importance = given.pop("importance", None)
        record = await asyncio.to_thread(
            self.remember, content, type=type_, importance=importance, metadata=given
        )
        return {"memory_id": record.memory_id}

    # What users call

    @checked
    def remember(
        self,
        content: Text,
        *,
        type: MemoryType | str = MemoryType.FACT,  # noqa: A002 - the word of the field
        importance: Share | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryRecord:
        """Store a memory, or renew the expiry of a memory with the same content and type.

        Args:
            content: Text of the memory. The policy for personal data is applied, and the text is
                truncated to 4,000 characters.
            type: A ``MemoryType``. Default ``fact``.
            importance: From 0 to 1. Default: the importance of the type.
            metadata: Additional JSON values.

        Raises:
            ValueError: The content is empty, the type unknown, the importance out of range, or the
                metadata too large.
            PersonalDataError: The policy refuses the content.
            StoreUnavailableError: The table does not answer.
        """
        return self._remember(content, type, importance, metadata or {})

    @checked
    def prefer(
        self,
        key: Text,
        value: Text,
        *,
        importance: Share | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryRecord:
        """Store a preference of the user, and replace an earlier value of the same key.

        Args:
            key: Subject of the preference, such as ``genre``. Case is ignored, and common variants,
                such as ``favorite genres``, count as this key.
            value: Preferred value.
            importance: From 0 to 1. Default: the importance of preferences, usually 0.9.
            metadata: Additional JSON values.

        Raises:
            ValueError: Key or value are empty, or an argument is too long or out of range.
            PersonalDataError: The policy refuses the texts.
            CorruptRecordError: The user's preference log or the stored preference is damaged.
            StoreUnavailableError: The table is unavailable.
        """
        if len(key) > _MAX_KEY_CHARACTERS:
            limit = _MAX_KEY_CHARACTERS
            raise ValueError(f"key must have at most {limit} characters, got {len(key)}")
        now, worth = self.partition.clock(), self._importance(MemoryType.PREFERENCE, importance)
        name, value = _shown_name(self.pii.text(key)), self.pii.text(value)
        shown = " ".join(name.split())
        record = new_record(
            preference_id(slot_for_key(name)),
            worth,
            now,
            content=f"{shown}: {value}",
            metadata={
                **self.pii.metadata(metadata or {}),
                "preference_key": shown,
                "value": value,
                SET_VALUE: [value, now],
            },
        )
        changed = self.preference_log.apply(PreferenceChange(record=record))
        for each in changed.values():
            if each is not None and slot_of(each) == slot_of(record):
                return self.pii.opened_record(each)
        what = "the stored preference is damaged, so it is not replaced"
        raise CorruptRecordError(
            f"{what}; call forget({record.memory_id!r}) first", record=record.memory_id
        )

    @checked
    def record_feedback(
        self,
        content: Text,
        *,
        rating: Finite | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryRecord:
        """Store feedback on an answer or a purchase.

        Args:
            content: Text of the feedback.
            rating: Any finite number, stored as ``rating`` in the metadata. Default None.
            metadata: Additional JSON values.

        Raises:
            ValueError: The content is empty, or the metadata are too large.
            PersonalDataError: The policy refuses the content.
            StoreUnavailableError: The table does not answer.
        """
        extra = {} if rating is None else {"rating": rating}
        return self._remember(content, MemoryType.FEEDBACK, None, {**(metadata or {}), **extra})

    @checked
    def store_session_summary(
        self,
        session_id: str,
        summary: Text,
        *,
        topics: Sequence[str] = (),
        sentiment: Literal["positive", "neutral", "negative"] = "neutral",
        turn_count: Count = 0,
        open_questions: Sequence[str] = (),
    ) -> MemoryRecord:
        """Store or replace the summary of a session whose messages are stored elsewhere.

        Args:
            session_id: Id of the session.
            summary: Text of about two sentences.
            topics: Subjects of the session.
            sentiment: ``positive``, ``neutral`` or ``negative``. Default ``neutral``.
            turn_count: Number of turns.
            open_questions: Questions of the user that were not answered.

        Raises:
            ValueError: An argument is out of range.
            PersonalDataError: The policy refuses the texts.
            StoreUnavailableError: The table is unavailable.
        """
        metadata = {
            "session_id": checked_id("session_id", session_id),
            "topics": list(topics),
            "sentiment": sentiment,
            "turn_count": turn_count,
            "open_questions": list(open_questions),
            "ended_at": self.partition.clock(),
        }
        return self._remember(
            summary, MemoryType.SUMMARY, None, metadata, summary_name=encoded_id(session_id)
        )

    @checked
    def recall(
        self,
        *,
        type: MemoryType | str | None = None,  # noqa: A002 - the word of the field
        min_importance: Share = 0.0,
        limit: PositiveInt | None = 10,
        query: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        since: Finite | None = None,
        until: Finite | None = None,
    ) -> list[MemoryRecord]:
        """Read unexpired memories from the table.

        Memories that are similar to ``query``, important or recent come first. Preferences of a
        turn that just ended are included. ``access_count`` and ``accessed_at`` exclude this recall.
        All memories are read if ``limit`` is None, if ``query`` is compared by vectors, or if fewer
        than ``limit`` of the latest, most important and matching ones meet the conditions.

        Args:
            type: Type of the memories. Default: all types except those in ``DERIVED`` (stored
                messages, open questions, and weekly and monthly summaries).
            min_importance: Minimum importance of a memory.
            limit: Maximum number of results after the filters. None: no limit.
            query: Text to compare with the memories. Similar memories come first.
            metadata: Required metadata values, such as ``{"topics": "Uzumaki"}``.
            since: Start of a period, in seconds since 1970. The memory's session must have ended in
                the period. A memory without a session must have been last updated in it.
            until: End of the period, exclusive.

        Raises:
            ValueError: An argument is out of range.
            CorruptRecordError: A key is missing, or no encrypted memory can be decrypted.
            StoreUnavailableError: The table does not answer.
        """
        wanted = MemoryQuery(
            types=frozenset(MemoryType) - DERIVED if type is None else {checked_type(type)},
            min_importance=min_importance,
            metadata=metadata or {},
            since=-math.inf if since is None else since,
            until=math.inf if until is None else until,
        )
        return self.reader.recall(wanted, limit=limit, query=query)

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory with its access count, or None if it is missing or has expired.

        Raises:
            CorruptRecordError: The memory is damaged or cannot be decrypted.
        """
        record = self.partition.get(memory_id)
        return record and self.pii.opened_record(record)

    def forget(self, memory_id: str) -> bool:
        """Delete a memory and all memories derived from it. Return whether the memory existed.

        Live agents stop using the memory before their next model call. Messages from before the
        deletion do not create the memory again, but later messages may.

        Raises:
            ValueError: ``memory_id`` is not the id of a memory.
            CorruptRecordError: The memory is a preference, and the preference log is damaged.
        """
        if not isinstance(memory_id, str) or not memory_id or memory_id.startswith(INTERNAL):
            raise ValueError(f"memory_id must be the id of a memory, got {memory_id!r:.80}")
        now, record = self.partition.clock(), None
        if memory_id.startswith(f"{MemoryType.PREFERENCE}#"):
            with suppress(CorruptRecordError):  # a damaged record can still be deleted
                record = self.partition.get(memory_id)
        if record is None:
            if exists := self.partition.table.get(self.owner.partition, memory_id) is not None:
                self.preference_log.add_deletions({message_digest(memory_id): now})
            self._delete([memory_id])
            return exists
        removal = Removal.of_preference(*slot_and_value(record), max(now, record.updated_at))
        self.preference_log.apply(PreferenceChange(removals=[removal], dropped=memory_id))
        return True

    @checked
    def retract(
        self,
        message_id: Text,
        *,
        session_id: str | None = None,
        at: FiniteSeconds | None = None,
    ) -> int:
        """Delete the preferences that a message stated, for example after a redaction.

        Live agents stop using the preferences before their next model call. A service to which the
        ``outbox`` sends preferences gets a retraction.

        Args:
            message_id: ``tracking_id`` of the message. Later summaries leave out its turn.
            session_id: Session of the message. Its summary and stored messages are deleted. They
                are created again, without the message, after the end of the session.
            at: Time of the removal, in seconds since 1970. Preferences that the message stated
                later are kept. Default: now.

        Returns:
            Number of changed or deleted preference records, plus deleted session summaries. Other
            deleted data, such as message copies, are not counted.

        Raises:
            ValueError: ``message_id`` is empty, or ``at`` is not a valid time.
            StoreUnavailableError: The table is unavailable. The preferences are deleted later.
        """
        at = self.partition.clock() if at is None else at
        signals = self.preference_log.signals_of([Statement(Preference("", ""), at, message_id)])
        change = PreferenceChange(
            removals=[Removal(at, message=message_digest(message_id))],
            signals=[replace(each, retracted=True) for each in signals],
        )
        try:
            changed = self.preference_log.apply(change)
        except StoreError:
            self.preference_log.apply_later(change)
            raise
        if session_id is None:
            return len(changed)
        summaries = self.partition.load([of_type(MemoryType.SUMMARY)]).records.values()
        ids = [
            each.memory_id for each in summaries if each.metadata.get("session_id") == session_id
        ]
        if ids:
            self._delete(ids)
        return len(changed) + len(ids)

    def sources(self, memory_id: str) -> dict[str, MemoryRecord | str]:
        """Return the session summaries that a weekly or monthly summary was made from, keyed by id.

        A session summary that no longer exists has the value ``"expired"``.
        """
        rollup = self.partition.get(memory_id)
        covers = () if rollup is None else rollup.covers
        return {id_: self.get(id_) or "expired" for id_ in covers}

    @checked
    def build_agent_context(self, max_tokens: PositiveInt = MAX_TOKENS) -> str:
        """Return a short text about the user for an agent, with tags such as ``<b>`` escaped.

        Without memories, the text is ``No prior interaction history.``. If no memory fits into
        ``max_tokens``, the text is empty. Each call reads the table, so the text has the changes by
        other processes.

        Args:
            max_tokens: Maximum number of tokens. Default 800.

        Raises:
            ValueError: ``max_tokens`` is not a positive whole number.
            StoreUnavailableError: The table does not answer.
        """
        self.reader.read_changes()
        text = self.agent_context(max_tokens).text
        is_cut = text == EMPTY and self.agent_context(max(max_tokens, MAX_TOKENS)).text != EMPTY
        return "" if is_cut else text

    @checked
    def agent_context(self, max_tokens: PositiveInt = MAX_TOKENS) -> AgentContext:
        """Return two texts about the user: one for the system prompt, one for the messages."""
        return self.reader.context(max_tokens)

    # Inside

    def _remember(
        self,
        content: str,
        type_: MemoryType | str,
        importance: float | None,
        metadata: Mapping[str, Any],
        *,
        summary_name: str | None = None,
    ) -> MemoryRecord:
        """Store a memory, or renew the stored memory with the same content.

        With ``summary_name``, an encoded session id, replace the earlier summary of this session.
        """
        type_ = checked_type(type_)
        rule, worth = self._retention[type_], self._importance(type_, importance)
        text, extra = self.pii.text(content), self.pii.metadata(metadata)
        now, id_ = self.partition.clock(), content_id(type_, text)
        expires_at, is_summary = rule.expires_at(now), type_ == MemoryType.SUMMARY
        if is_summary:
            id_ = self.partition.id_of_summary(summary_name or f"~{content_key(text)}", expires_at)

        def learned(known: MemoryRecord | None) -> MemoryRecord:
            first = known or new_record(id_, worth, now)
            return replace(
                first,
                content=text,
                importance=worth,
                metadata={**first.metadata, **extra},
                updated_at=now,
                expires_at=expires_at,
            )

        if type_ in (MemoryType.FACT, MemoryType.FEEDBACK):
            # before the memory is stored, so that no stored memory is missing in the list
            self.partition.add_to_latest(id_)
        record = self.partition.update(id_, learned)
        assert record is not None  # noqa: S101 - an update without a guard always stores
        if is_summary and "ended_at" in record.metadata:
            self.partition.store_questions(record, self._retention[MemoryType.QUESTION])
        self.preference_log.notify_agents(drops_context=is_summary)
        if is_summary and record.version > 1:
            delete_word_list(self.partition)
        return self.pii.opened_record(record)

    def _importance(self, type_: MemoryType, given: float | None) -> float:
        rule = self._retention[type_]
        return rule.importance if given is None else float(given)

    def _delete(self, memory_ids: Sequence[str]) -> None:
        deleted = list(memory_ids)
        for id_ in memory_ids:
            if id_.startswith(f"{MemoryType.SUMMARY}#"):
                episodes = self.partition.ids(episodes_of(id_))
                deleted += [question_id(id_), *episodes, *self._rollups_of(id_)]
        self.partition.delete_many(deleted)
        self.preference_log.notify_agents(is_removal=True)
        delete_word_list(self.partition)

    def _rollups_of(self, summary_id: str) -> list[str]:
        types = MemoryType.WEEK, MemoryType.MONTH
        try:
            rollups = self.partition.load(map(of_type, types)).records
        except KeyMissingError:  # unreadable roll-ups may be derived from the summary
            return [id_ for type_ in types for id_ in self.partition.ids(type_)]
        return [id_ for id_, record in rollups.items() if summary_id in record.covers]


def _shown_name(key: str) -> str:
    """Return the standard key of a preference, such as ``genre`` for "favorite genres".

    Another spelling of a standard key, such as ``Genre``, is kept.
    """
    slot = slot_for_key(key)
    return key if slot == " ".join(key.casefold().split()) else slot
