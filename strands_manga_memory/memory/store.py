"""UserMemoryStore: what we know about a user, as a memory store of Strands."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from strands.memory import ExtractionConfig, MemoryEntry, MemoryStore, SearchOptions

from strands_manga_memory.exceptions import KeyMissingError, StoreError
from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.preferences.slot_values import slot_of
from strands_manga_memory.language.search.embedding import Embed
from strands_manga_memory.language.texts.tokens import estimated_tokens
from strands_manga_memory.memory.pii.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.preference_slots import PreferenceSlots, preference_record
from strands_manga_memory.memory.profile.profile_reader import ProfileReader
from strands_manga_memory.memory.profile.profile_source import ProfileSource
from strands_manga_memory.memory.recall.context import MOST_TOKENS, AgentContext, agent_context
from strands_manga_memory.memory.recall.memory_snapshot import Hit, Snapshot, entries_of
from strands_manga_memory.memory.recall.ranking import RankingWeights
from strands_manga_memory.memory.recall.wanted import Wanted, checked_importance, checked_type
from strands_manga_memory.memory.records.cleaning import Cleaning
from strands_manga_memory.memory.records.hot_copy import HotCopy, Looked
from strands_manga_memory.memory.records.memory_records import INTERNAL, MemoryRecord, Owner, content_id, episode_id
from strands_manga_memory.memory.records.partition import Loaded, UserPartition
from strands_manga_memory.memory.records.retention import RETENTION, MemoryType, Retention
from strands_manga_memory.memory.records.uses import counted
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import USER_MEMORY, Table
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import RECALL, measured

logger = logging.getLogger(__name__)

_DESCRIPTION = "What is known about this user from earlier conversations: preferences, feedback, and what was talked about."
_SEARCHED = Wanted(types=frozenset(MemoryType) - {MemoryType.WEEK, MemoryType.MONTH})
_PREFERENCES = Wanted(types=frozenset({MemoryType.PREFERENCE}))


class UserMemoryStore(MemoryStore):
    """One user's long-term memories in a table of the schema ``USER_MEMORY``.

    Give it to Strands' ``MemoryManager(stores=[...])``, which searches it, adds to it, offers it as tools and injects what it
    finds. The user is bound here, because ``search`` has no argument for it; another user needs another store.

    ``initialize`` (the manager calls it when the agent is built) reads the memories once, from the hot tier if they are there;
    ``search`` looks only at what was read then and what was added since, so that no model call waits for the table. ``recall``
    reads the table.

    Args:
        table: The table; ``open_table(url, USER_MEMORY)``.
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.
        clock: Seconds since 1970.
        name: Name of the store, for the manager's tools. Default ``user_memory``.
        description: What the tools say of it.
        max_search_results: Most results of a search. Default 5.
        writable: Whether the manager may add to it. Default True.
        extraction: Strands' automatic extraction. Default off.
        retention: How long each type is kept and how much it matters at first. Default ``RETENTION``.
        weights: How memories are ranked.
        embed: Vectors of texts, for similarity by meaning; default: similarity by words.
        pii: What becomes of personal data. Default: ``PiiPolicy()``.
        codec: Seals content and metadata, such as ``Codec(cipher=...)``; default: they are readable in the table.
        hot: A hot tier that holds a copy of them while the user is about, so that an agent's start reads no table.
        profile: Where another service keeps the user's profile; read at session start, within the 0.25 seconds of a
            ``ProfileReader`` if it is none, and never written.
        max_characters: Characters a memory is cut to. Default 4,000.
        count_tokens: Counts the tokens of a text, for ``build_agent_context``. Default an estimate by script, rather too high.

    Raises:
        ValueError: An argument is out of range, or the table has another schema.
    """

    def __init__(
        self,
        table: Table,
        *,
        user_id: str,
        tenant: str | None = None,
        clock: Callable[[], float] = time.time,
        name: str = "user_memory",
        description: str | None = _DESCRIPTION,
        max_search_results: int | None = 5,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
        retention: Mapping[MemoryType, Retention] = RETENTION,
        weights: RankingWeights | None = None,
        embed: Embed | None = None,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        hot: HotStore | None = None,
        profile: ProfileSource | None = None,
        max_characters: int = 4_000,
        count_tokens: Callable[[str], int] = estimated_tokens,
    ) -> None:
        names = (USER_MEMORY.partition, USER_MEMORY.sort)
        if (table.schema.partition, table.schema.sort) != names:
            raise ValueError(
                f"table must have the schema USER_MEMORY, got {table.schema.name!r:.80}; use open_table(url, USER_MEMORY)"
            )
        if max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, got {max_characters!r:.80}")
        if max_search_results is not None and max_search_results < 1:
            raise ValueError(f"max_search_results must be at least 1, got {max_search_results!r:.80}")
        missing = sorted(set(MemoryType) - set(retention))
        if missing:
            raise ValueError(f"retention must name every MemoryType, {missing} are missing")
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        self.owner = Owner(user_id, tenant)
        self._copy = None if hot is None else HotCopy(hot, self.owner, codec=codec)
        changed = {} if self._copy is None else {"changed": self._copy.drop}
        self.partition = UserPartition(table, self.owner, codec=codec, clock=clock, **changed)
        self._clock = clock
        self._retention = {MemoryType(type_): rule for type_, rule in retention.items()}
        self._weights = weights or RankingWeights()
        self._embed = embed
        self._pii = pii or PiiPolicy()
        self._profiles = ProfileReader.of(profile)
        self._cleaning = Cleaning(self._pii, self.owner.partition, max_characters)
        self._count_tokens = count_tokens
        self._writer = shared_writer(None, table)
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._is_fresh = False
        self._profile: Mapping[str, str] = {}

    # Strands' memory store interface

    async def initialize(self) -> None:
        """Read the user's memories once. A table that does not answer costs the agent its memories, not its start.

        Raises:
            KeyMissingError: The memories are encrypted, and their key was not given, or is destroyed.
        """
        if self._is_fresh:  # whoever told the agent about its user has read them for this very start
            self._is_fresh = False
            return
        try:
            await asyncio.to_thread(self._read)
        except KeyMissingError:
            raise
        except StoreError as error:
            logger.warning(
                "error=<%s> | the user's memories could not be read, the agent starts without them", type(error).__name__
            )

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return what has most to do with ``query``: entries of one line without markup, all together at most 800 tokens."""
        limit = (options or {}).get("max_search_results") or self.max_search_results
        return entries_of(await asyncio.to_thread(self.found, query, limit=limit), self._count_tokens)

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        """Store what an extractor found or a model wants remembered; the same content again changes nothing.

        ``metadata`` may hold ``memory_type`` and ``importance``. Without a type, what states a preference is a preference,
        everything else a fact.
        """
        given = dict(metadata or {})
        type_ = given.pop("memory_type", None) or _type_of(content)
        importance = given.pop("importance", None)
        record = await asyncio.to_thread(self.remember, content, type=type_, importance=importance, metadata=given)
        return {"memory_id": record.memory_id}

    # What users call

    def remember(
        self,
        content: str,
        *,
        type: MemoryType | str = MemoryType.FACT,  # noqa: A002 - the word of the field
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MemoryRecord:
        """Store a memory; the same content of the same type is one memory, which starts its time anew.

        Args:
            content: What to remember; personal data is treated by the policy, and it is cut to ``max_characters``.
            type: A ``MemoryType``. Default ``fact``.
            importance: From 0 to 1. Default that of the type.
            metadata: JSON values that go with it.

        Raises:
            ValueError: The content is empty, the type unknown, the importance out of range, or the metadata too large.
            PersonalDataError: The policy refuses the content.
            StoreUnavailableError: The table does not answer.
        """
        type_ = checked_type(type)
        if not isinstance(content, str) or not content.strip():
            raise ValueError(f"content must be a text that is not empty, got {content!r:.80}")
        rule = self._retention[type_]
        worth = rule.importance if importance is None else checked_importance("importance", importance)
        text, extra = self._cleaning.text(content), self._cleaning.metadata(metadata or {})
        now = self._clock()

        def learned(known: MemoryRecord | None) -> MemoryRecord:
            first = known or self._new(content_id(type_, text), type_, text, now)
            merged = {**first.metadata, **extra}
            return first.changed(importance=worth, metadata=merged, updated_at=now, expires_at=rule.expires_at(now))

        record = self.partition.update(content_id(type_, text), learned)
        assert record is not None  # noqa: S101 - an update without a guard always stores
        return self._noted(record)

    def prefer(
        self, key: str, value: str, *, importance: float | None = None, metadata: Mapping[str, Any] | None = None
    ) -> MemoryRecord:
        """Store what the user prefers: one record for each key, whatever its case; the last write wins.

        Args:
            key: What it is about, such as ``genre``; ``favorite genres`` is the same.
            value: What is preferred.
            importance: From 0 to 1. Default 0.9.
            metadata: JSON values that go with it.

        Raises:
            ValueError: Key or value are empty, the importance is out of range, or the metadata too large.
            PersonalDataError: The policy refuses them.
            StoreUnavailableError: The table does not answer.
        """
        for name, text in (("key", key), ("value", value)):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{name} must be a text that is not empty, got {text!r:.80}")
        if len(key) > 200:
            raise ValueError(f"key must have at most 200 characters, got {len(key)}")
        rule = self._retention[MemoryType.PREFERENCE]
        shown = _shown(self._cleaning.text(key))
        record = preference_record(
            shown,
            self._cleaning.text(value),
            memory_id=self.partition.salt.preference_id(slot_of(shown)),
            now=self._clock(),
            known=None,
            importance=rule.importance if importance is None else checked_importance("importance", importance),
            metadata=self._cleaning.metadata(metadata or {}),
        )
        known = self.partition.get(record.memory_id)
        if known is not None:
            record = known.changed(
                content=record.content,
                metadata={**known.metadata, **record.metadata},
                importance=record.importance,
                updated_at=record.updated_at,
            )
        self.partition.put(record)
        return self._noted(record)

    def record_feedback(
        self, content: str, *, rating: float | None = None, metadata: Mapping[str, Any] | None = None
    ) -> MemoryRecord:
        """Store what the user thought of an answer or a purchase; ``rating`` is any number. Raises as ``remember`` does."""
        extra = {**(metadata or {}), **({} if rating is None else {"rating": rating})}
        return self.remember(content, type=MemoryType.FEEDBACK, metadata=extra)

    def recall(
        self,
        *,
        type: MemoryType | str | None = None,  # noqa: A002 - the word of the field
        min_importance: float = 0.0,
        limit: int | None = 10,
        query: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[MemoryRecord]:
        """Return memories, the ones worth most first, read from the table now: one query for each MB.

        What has expired is left out. A filter never makes the result shorter than what exists. That they were recalled is
        noted by one write, in the background; ``access_count`` and ``last_accessed`` say how it was before.

        Args:
            type: Only memories of this type; by default all but episodes and roll-ups.
            min_importance: Only those of at least this importance.
            limit: Most to return; None for all.
            query: What they are to be similar to; what has nothing in common with it comes last.
            metadata: Only those with these values, such as ``{"topics": "Uzumaki"}`` or ``{"session_id": "s1"}``.
            since: Only those of a session that ended, or else learned, at that time or later, in seconds since 1970.
            until: Only those before that time.

        Raises:
            ValueError: An argument is out of range.
            CorruptRecordError: A record is damaged.
            StoreUnavailableError: The table does not answer.
        """
        type_ = None if type is None else checked_type(type)
        types = None if type_ is None else frozenset({type_})
        wanted = Wanted(
            types=types, min_importance=min_importance, metadata={} if metadata is None else metadata, since=since, until=until
        )
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, or None for all, got {limit!r:.80}")
        with measured(RECALL, operation="recall") as noted:
            snapshot = self._snapshot_of(self.partition.load(type_, uses=True))
            hits = snapshot.ranked(self._clock(), query=query, wanted=wanted)
            records = list({hit.record.memory_id: hit.record for hit in hits}.values())[:limit]
            noted.counts["records"] = len(records)
        self._note_uses(record.memory_id for record in records)
        return [self._cleaning.opened(snapshot.counted(record)) for record in records]

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory by its id, or None; a read, and a query of how often it was recalled."""
        return next(self._read_each([memory_id]))

    def forget(self, memory_id: str) -> bool:
        """Delete a memory, the episodes of its session, and the roll-ups made from it; tell whether it was there.

        Raises:
            ValueError: The id is no memory's.
        """
        if not memory_id or memory_id.startswith(INTERNAL):
            raise ValueError(f"memory_id must be the id of a memory, got {memory_id!r:.80}")
        there = self.partition.delete(memory_id)
        gone = [memory_id]
        if memory_id.startswith(f"{MemoryType.SUMMARY}#"):
            episode = episode_id(memory_id, 0).rsplit("#", 1)[0]
            gone += [id_ for id_ in self.partition.ids(MemoryType.EPISODE) if id_.rsplit("#", 1)[0] == episode]
            for type_ in (MemoryType.WEEK, MemoryType.MONTH):
                gone += self._rollups_of(memory_id, type_)
            self.partition.delete_many(gone[1:])
        for id_ in gone:
            self._show(id_, None)
        return there

    def take_back(self, message_id: str, *, session_id: str | None = None) -> int:
        """Delete the preferences that a message said, as a redaction wants it; return how many memories changed.

        Args:
            message_id: Its ``tracking_id``. Whoever finalizes its session leaves it out from now on.
            session_id: Its session, whose summary and episodes are deleted: they are made anew when it is finalized again.
        """
        self.partition.taken_back.note(message_id)
        changed = PreferenceSlots(self.partition).take_back(message_id)
        for id_ in changed:
            self._show(id_, self.partition.get(id_))
        summaries = {} if session_id is None else self.partition.load(MemoryType.SUMMARY).records
        made = [id_ for id_, record in summaries.items() if record.metadata.get("session_id") == session_id]
        return len(changed) + sum(map(self.forget, made))

    def _show(self, memory_id: str, record: MemoryRecord | None) -> None:
        """Let searches find a memory as it is now."""
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.remove(memory_id) if record is None else self._snapshot.put(record)

    def _rollups_of(self, memory_id: str, type_: MemoryType) -> list[str]:
        try:
            rollups = self.partition.load(type_).records
        except KeyMissingError:  # what nobody can read may have been made from it
            return self.partition.ids(type_)
        return [id_ for id_, record in rollups.items() if memory_id in record.listed("covers")]

    def sources(self, memory_id: str) -> dict[str, MemoryRecord | str]:
        """Return what a roll-up was made from: each summary, or ``"expired"`` if it is there no more."""
        rollup = self.partition.get(memory_id)
        covers = [] if rollup is None else rollup.listed("covers")
        return {id_: record or "expired" for id_, record in zip(covers, self._read_each(covers), strict=True)}

    def _read_each(self, ids: Sequence[str]) -> Iterator[MemoryRecord | None]:
        records = [self.partition.get(id_) for id_ in ids]
        uses = self.partition.uses() if any(records) else {}
        return (None if record is None else self._cleaning.opened(counted(record, uses)) for record in records)

    def build_agent_context(self, max_tokens: int = MOST_TOKENS) -> str:
        """Return what an agent should know of its user, short and escaped, or ``No prior interaction history.``.

        Reads the table only if nothing was read yet.

        Args:
            max_tokens: The budget. Default 800.

        Raises:
            ValueError: ``max_tokens`` is not above 0.
        """
        return self.agent_context(max_tokens).text

    def agent_context(self, max_tokens: int = MOST_TOKENS) -> AgentContext:
        """Return the same in two parts: preferences for the system side, history for the message side."""
        if not max_tokens > 0:
            raise ValueError(f"max_tokens must be above 0, got {max_tokens!r:.80}")
        snapshot, now = self._current(), self._clock()
        worth = {hit.record.memory_id: hit.score for hit in snapshot.ranked(now, wanted=_PREFERENCES)}
        records = [self._cleaning.opened(record) for record in list(snapshot.records.values()) if not record.expired(now)]
        return agent_context(
            records,
            now=now,
            profile=self._profile,
            ranked=lambda record: worth.get(record.memory_id, 0.0),
            max_tokens=max_tokens,
            count=self._count_tokens,
        )

    def found(self, query: str, *, limit: int | None = 5) -> list[Hit]:
        """Return the memories and passages that have most to do with ``query``, from what was read at session start."""
        with measured(RECALL, operation="search") as noted:
            hits = (
                self._current().ranked(self._clock(), query=query, wanted=_SEARCHED, limit=limit, matching=True)
                if query.strip()
                else []
            )
            noted.counts["records"] = len(hits)
        self._note_uses(hit.record.memory_id for hit in hits)
        return [Hit(hit.record, self._pii.opened(hit.content, place=self.owner.partition), hit.score) for hit in hits]

    def refresh(self) -> Loaded:
        """Read the user's memories, and the profile if there is a source, anew. One that fails costs only the profile."""
        return self._taken(self.partition.load())

    # Inside

    def _read(self) -> None:
        """Read the memories from the hot tier, or else from the table, and keep them in the hot tier then."""
        looked = Looked() if self._copy is None else self._copy.look()
        if looked.memories is not None:
            self._taken(looked.memories)
            return
        loaded = self.refresh()
        if self._copy is not None and looked.seen is not None:
            self._copy.keep(loaded, looked.seen)

    def _taken(self, loaded: Loaded) -> Loaded:
        profile = None if self._profiles is None else self._profiles.read(self.owner.user_id, tenant=self.owner.tenant)
        with self._lock:
            self._snapshot = self._snapshot_of(loaded)
            self._profile = {} if profile is None else profile.preferences
        if loaded.wants_folding:
            self._writer.submit(self.owner, self.partition.fold)
        return loaded

    def _current(self) -> Snapshot:
        with self._lock:
            snapshot = self._snapshot
        if snapshot is None:
            self._read()
            self._is_fresh = True
            return self._current()
        return snapshot

    def _snapshot_of(self, loaded: Loaded) -> Snapshot:
        return Snapshot(loaded, retention=self._retention, weights=self._weights, embed=self._embed)

    def _new(self, memory_id: str, type_: MemoryType, content: str, now: float) -> MemoryRecord:
        importance = self._retention[type_].importance
        return MemoryRecord(
            memory_id=memory_id, type=type_, content=content, importance=importance, created_at=now, updated_at=now, version=0
        )

    def _noted(self, record: MemoryRecord) -> MemoryRecord:
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.put(record)
        return self._cleaning.opened(record)

    def _note_uses(self, ids: Any) -> None:
        used = list(dict.fromkeys(ids))
        if not used:
            return
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.used(used, self._clock())
        self._writer.submit(self.owner, lambda: self._written_quietly(used))

    def _written_quietly(self, used: list[str]) -> None:
        try:
            self.partition.note_uses(used)
        except StoreError as error:
            logger.debug("error=<%s> | a recall was not noted", type(error).__name__)


def _type_of(content: str) -> MemoryType:
    return MemoryType.PREFERENCE if dialogue_act(content, "user") is DialogueAct.PREFERENCE else MemoryType.FACT


def _shown(key: str) -> str:
    """Return the name of a key's slot, or the key as it is written if that is its slot's name."""
    slot = slot_of(key)
    return key if slot == " ".join(key.casefold().split()) else slot
