"""UserMemoryStore: what we know about a user, as a memory store of Strands."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from strands.memory import ExtractionConfig, MemoryEntry, MemoryStore, SearchOptions

from strands_manga_memory.exceptions import KeyMissingError, StoreError
from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act
from strands_manga_memory.language.search import Embed
from strands_manga_memory.memory.memory_changes import MemoryChanges
from strands_manga_memory.memory.memory_context import MOST_TOKENS, AgentContext
from strands_manga_memory.memory.memory_reader import MemoryReader, Ranking
from strands_manga_memory.memory.memory_search import Hit, RankingWeights, entries_of
from strands_manga_memory.memory.partition import Loaded, UserPartition
from strands_manga_memory.memory.pii_policy import Cleaning, PiiPolicy
from strands_manga_memory.memory.preferences.hot_profile import HotCopy, HotProfile
from strands_manga_memory.memory.preferences.preference_log import PreferenceLog
from strands_manga_memory.memory.preferences.preference_outbox import PreferenceOutbox
from strands_manga_memory.memory.preferences.profile_cache import TableView
from strands_manga_memory.memory.profiles import ProfileReader, ProfileSource
from strands_manga_memory.memory.records import RETENTION, MemoryRecord, MemoryType, Owner, Retention
from strands_manga_memory.messages.tokens import estimate_tokens
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import USER_MEMORY, Table
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

_DESCRIPTION = "What is known about this user from earlier conversations: preferences, feedback, and what was talked about."


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
        spool: Signals that wait for their sink, from which ``forget`` and ``retract`` remove theirs.
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
        outbox: PreferenceOutbox | None = None,
        max_characters: int = 4_000,
        count_tokens: Callable[[str], int] = estimate_tokens,
    ) -> None:
        if (table.schema.partition, table.schema.sort) != (USER_MEMORY.partition, USER_MEMORY.sort):
            raise ValueError(
                f"table must have the schema USER_MEMORY, got {table.schema.name!r:.80}; use open_table(url, USER_MEMORY)"
            )
        if max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, got {max_characters!r:.80}")
        if max_search_results is not None and max_search_results < 1:
            raise ValueError(f"max_search_results must be at least 1, got {max_search_results!r:.80}")
        if missing := sorted(set(MemoryType) - set(retention)):
            raise ValueError(f"retention must name every MemoryType, {missing} are missing")
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        self.owner = Owner(user_id, tenant)
        copy = None if hot is None else HotCopy(hot, self.owner, codec=codec)
        self.partition = UserPartition(table, self.owner, codec=codec, clock=clock)
        self._count_tokens = count_tokens
        kept = {MemoryType(type_): rule for type_, rule in retention.items()}
        cleaning = Cleaning(pii or PiiPolicy(), self.owner.partition, max_characters)
        self._reader = MemoryReader(
            self.partition,
            copy=copy,
            profiles=ProfileReader.of(profile),
            ranking=Ranking(kept, weights or RankingWeights(), embed),
            cleaning=cleaning,
            clock=clock,
            writer=shared_writer(None, table),
        )
        self._changes = MemoryChanges(
            self.partition,
            retention=kept,
            cleaning=cleaning,
            clock=clock,
            shown=self._reader.shown,
            profile=None if hot is None else HotProfile(hot, self.owner, codec=codec),
            outbox=outbox,
        )

    def __repr__(self) -> str:
        return f"UserMemoryStore(user_id={self.owner.user_id!r}, tenant={self.owner.tenant!r})"

    # Strands' memory store interface

    async def initialize(self) -> None:
        """Read the user's memories once. A table that does not answer costs the agent its memories, not its start.

        Raises:
            KeyMissingError: The memories are encrypted, and their key was not given, or is destroyed.
        """
        try:
            await asyncio.to_thread(self._reader.start)
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
        is_preference = dialogue_act(content, "user") is DialogueAct.PREFERENCE
        type_ = given.pop("memory_type", None) or (MemoryType.PREFERENCE if is_preference else MemoryType.FACT)
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
        return self._changes.remember(content, type, importance, metadata or {})

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
        return self._changes.prefer(key, value, importance, metadata or {})

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
        named = {} if metadata is None else metadata
        filters: dict[str, Any] = {"min_importance": min_importance, "metadata": named, "since": since, "until": until}
        return self._reader.recalled(type, limit=limit, query=query, **filters)

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory by its id, or None; a read, and a query of how often it was recalled."""
        return self._reader.get(memory_id)

    def forget(self, memory_id: str) -> bool:
        """Delete a memory, the episodes of its session, and the roll-ups made from it; tell whether it was there.

        Live agents do not tell it after their next look at the hot tier. A message from before now does not bring it back,
        a later one does.

        Raises:
            ValueError: The id is no memory's.
        """
        return self._changes.forget(memory_id)

    def retract(self, message_id: str, *, session_id: str | None = None, at: float | None = None) -> int:
        """Delete the preferences that a message stated, as a redaction wants it; return how many memories changed.

        Live agents do not tell them after their next look at the hot tier. The sink gets a signal that takes them back.

        Args:
            message_id: ``tracking_id`` of the message. Finalizing its session leaves the message out from now on.
            session_id: Session of the message, whose summary and episodes are deleted; finalizing makes new ones.
            at: Time of the removal, in seconds since 1970: later texts of the same message count. Default: now.
        """
        return self._changes.retract(message_id, session_id, at)

    def table_view(self, *, shared: bool) -> TableView:
        """Return the reads of the table that a ``ProfileCache`` of this user needs; ``shared``: its hot tier is shared."""
        log = PreferenceLog(self.partition)

        def erased_at() -> float:
            marker = self.partition.erased()
            return 0.0 if marker is None else float(marker.get("at") or 0.0)

        return TableView(None if shared else log.revision, log.removals, erased_at, self.partition.clock)

    def drop_snapshot(self) -> None:
        """Let the next search read the memories, as they were changed elsewhere."""
        self._reader.drop_snapshot()

    def sources(self, memory_id: str) -> dict[str, MemoryRecord | str]:
        """Return what a roll-up was made from: each summary, or ``"expired"`` if it is there no more."""
        return self._reader.sources(memory_id)

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
        return self._reader.context(max_tokens, self._count_tokens)

    def found(self, query: str, *, limit: int | None = 5) -> list[Hit]:
        """Return the memories and passages that have most to do with ``query``, from what was read at session start."""
        return self._reader.found(query, limit)

    def known_records(self) -> list[MemoryRecord]:
        """Return the memories that were read at session start, with what was added since."""
        return self._reader.known_records()

    def refresh(self) -> Loaded:
        """Read the user's memories, and the profile if there is a source, anew. One that fails costs only the profile."""
        return self._reader.refresh()
