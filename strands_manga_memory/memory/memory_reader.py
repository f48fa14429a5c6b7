"""Reader of a user's memories, for searches and for the context of an agent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from strands_manga_memory.arguments import positive
from strands_manga_memory.exceptions import KeyMissingError, StoreError
from strands_manga_memory.language.search import Embed
from strands_manga_memory.memory.memory_context import AgentContext, agent_context
from strands_manga_memory.memory.memory_search import Hit, MemoryQuery, Snapshot
from strands_manga_memory.memory.partition import PartitionContent, UserPartition
from strands_manga_memory.memory.pii_policy import PiiFilter
from strands_manga_memory.memory.preferences.hot_profile import HotProfile
from strands_manga_memory.memory.profiles import ProfileReader
from strands_manga_memory.memory.records import DERIVED, MemoryRecord, MemoryType, Retention, counted
from strands_manga_memory.memory.word_list import OlderMemories
from strands_manga_memory.messages.injection import strip_own_blocks
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.telemetry import RECALL, measured

logger = logging.getLogger(__name__)

FOLD_SECONDS = 30.0
"""Seconds from a recall until the access counts of the memories are updated."""

_PATIENCE = 5.0
"""Most seconds that a search waits for the background read of recent memories."""

_SEARCHED = MemoryQuery(types=frozenset(MemoryType) - {MemoryType.WEEK, MemoryType.MONTH, MemoryType.QUESTION})
_PREFERENCES = MemoryQuery(types=frozenset({MemoryType.PREFERENCE}))


class MemoryReader:
    """Reader of one user's memories, for agent contexts, searches and recalls. It records the recalls.

    A session start reads the memories for the agent's context into a snapshot, a copy in the process. Recent facts and
    messages, which only searches need, are then read in the background. Both reads are limited, so their cost does not grow
    with the number of memories. If the snapshot does not answer a query, a search also reads older memories from the table. A
    recall reads the latest and the most important memories. If too few of these pass its filters, it reads all memories.
    """

    def __init__(
        self,
        partition: UserPartition,
        *,
        cached: HotProfile | None,
        profiles: ProfileReader | None,
        retention: Mapping[MemoryType, Retention],
        embed: Embed | None,
        cleaning: PiiFilter,
        writer: Writer,
    ) -> None:
        self._partition = partition
        self._cached = cached
        self._profiles = profiles
        self._retention = retention
        self._embed = embed
        self._cleaning = cleaning
        self._clock = partition.clock
        self._writer = writer
        self.older = OlderMemories(partition)
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._read_recent: Callable[[], None] | None = None
        self._recent: Future[None] | None = None
        self._profile: Mapping[str, str] = {}
        self._is_fresh = False
        self._is_fold_planned = False

    # Methods that use the snapshot

    def start(self) -> None:
        """Read the user's memories at session start, unless they were just read to render the system prompt."""
        if not self._is_fresh:
            self._read()
        self._is_fresh = False
        self._with_recent()

    def drop_snapshot(self) -> None:
        """Discard the copy of the user's memories in this process after another process changed them.

        The next use reads the memories again.
        """
        with self._lock:
            self._snapshot = None

    def update_snapshot(self, memory_id: str, record: MemoryRecord | None) -> None:
        """Put a changed memory into the snapshot (the copy in this process), or remove it if ``record`` is None."""
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.remove(memory_id) if record is None else self._snapshot.put(record)

    def known_records(self) -> list[MemoryRecord]:
        """Return the memories that this process has read at session start or added since, with personal data decrypted."""
        return [self._cleaning.opened(record) for record in list(self._current().records.values())]

    def search(self, query: str, limit: int | None) -> list[Hit]:
        """Return the memories and passages of stored messages that are most similar to ``query``.

        Texts that this package adds to requests are first removed from the query.
        """
        query = strip_own_blocks(query)
        with measured(RECALL, operation="search") as noted:
            hits = self._search(query, limit) if query.strip() else []
            noted.counts["records"] = len(hits)
        self._note_uses(hit.record.memory_id for hit in hits)
        return [Hit(hit.record, self._cleaning.opened_text(hit.content), hit.score) for hit in hits]

    def context(self, max_tokens: int) -> AgentContext:
        """Return the text about the user for an agent, rendered from memories, with at most ``max_tokens`` tokens."""
        snapshot, now = self._current(), self._clock()
        worth = {hit.record.memory_id: hit.score for hit in snapshot.ranked(now, wanted=_PREFERENCES)}
        records = [self._cleaning.opened(record) for record in list(snapshot.records.values()) if not record.expired(now)]
        return agent_context(
            records,
            now=now,
            profile=self._profile,
            worth=lambda record: worth.get(record.memory_id, 0.0),
            max_tokens=max_tokens,
        )

    # Methods that read the table

    def recall(
        self, type_: MemoryType | None, wanted: MemoryQuery, *, limit: int | None, query: str | None
    ) -> list[MemoryRecord]:
        """Read from the table the memories that meet the conditions ``wanted``, the best matches for ``query`` first.

        If ``type_`` is None, all types are read except those in ``DERIVED`` (stored messages, open questions, and weekly and
        monthly summaries).
        """
        if limit is not None:
            positive("limit", limit)
        with measured(RECALL, operation="recall") as noted:
            self.older.forget()
            is_all = limit is None or (self._embed is not None and query is not None and bool(query.strip()))
            snapshot = self._ranked(self._partition.load(type_, uses=True) if is_all else self._partition.load_latest(type_))
            records = self._best(snapshot, query, wanted)
            if snapshot.is_partial and limit is not None and len(records) < limit:
                snapshot = self._ranked(self._partition.load(type_, uses=True))
                records = self._best(snapshot, query, wanted)
            records = records[:limit]
            noted.counts["records"] = len(records)
        self._note_uses(record.memory_id for record in records)
        return [self._cleaning.opened(snapshot.counted(record)) for record in records]

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory with its access count, or None if it does not exist."""
        return next(self._each([memory_id]))

    def sources(self, memory_id: str) -> dict[str, MemoryRecord | str]:
        """Return the session summaries from which a weekly or monthly summary was made, keyed by id.

        A session summary that no longer exists is ``"expired"``.
        """
        rollup = self._partition.get(memory_id)
        covers = [] if rollup is None else list(rollup.covers)
        return {id_: record or "expired" for id_, record in zip(covers, self._each(covers), strict=True)}

    # Inside

    def _ranked(self, loaded: PartitionContent) -> Snapshot:
        return Snapshot(loaded, retention=self._retention, embed=self._embed)

    def _each(self, ids: Sequence[str]) -> Iterator[MemoryRecord | None]:
        records = [self._partition.get(id_) for id_ in ids]
        uses = self._partition.uses() if any(records) else {}
        return (None if record is None else self._cleaning.opened(counted(record, uses)) for record in records)

    def _read(self) -> None:
        """Read the user's memories from the hot tier, or else from the table, into this process.

        Memories from the table are stored in the hot tier as soon as the recent memories have been read in the background, too.
        """
        hot = self._cached
        cached, seen = (None, None) if hot is None else hot.load_memories()
        if cached is not None:
            self._take(cached, None)
            return
        loaded = self._partition.load_start()
        first = replace(loaded, records=dict(loaded.records))

        def keep(recent: PartitionContent) -> None:
            if hot is not None and seen is not None:
                hot.store_memories(first.joined(recent), seen)

        self._take(loaded, keep)

    def _take(self, loaded: PartitionContent, then: Callable[[PartitionContent], None] | None) -> None:
        """Replace the snapshot (the copy of the memories in this process), and read the user's profile.

        Args:
            loaded: Memories for the snapshot.
            then: Function to call with the recent memories, which only searches need, after their background read. None means
                that ``loaded`` contains these memories.
        """
        owner = self._partition.owner
        profile = None if self._profiles is None else self._profiles.read(owner.user_id, tenant=owner.tenant)
        snapshot = self._ranked(loaded)
        self.older.forget()

        def read_recent() -> None:
            recent = self._partition.load_recent(loaded.latest)
            snapshot.add_older(recent)
            if then is not None:
                then(recent)

        with self._lock:
            self._snapshot = snapshot
            self._read_recent, self._recent = None if then is None else read_recent, None
            self._profile = {} if profile is None else profile.preferences

    def _search(self, query: str, limit: int | None) -> list[Hit]:
        """Search the memories in this process. If no result answers the query, search older memories, too.

        A result answers the query if it has all content words of the query, or at least three of them. If texts are compared by
        vectors, any result answers the query.
        """
        snapshot, now = self._complete(), self._clock()
        hits = snapshot.ranked(now, query=query, wanted=_SEARCHED, matching=True)
        if snapshot.is_partial and not snapshot.answers(query, hits):
            try:
                self._add_older(snapshot, query, frozenset())
                hits = snapshot.ranked(now, query=query, wanted=_SEARCHED, matching=True)
            except StoreError as error:
                logger.debug("error=<%s> | failed to read the older memories of a user", type(error).__name__)
        return hits[:limit]

    def _best(self, snapshot: Snapshot, query: str | None, wanted: MemoryQuery) -> list[MemoryRecord]:
        query = query if query is not None and query.strip() else None
        if snapshot.is_partial:
            self._add_older(snapshot, query, wanted.types or frozenset(MemoryType) - DERIVED)
        hits = snapshot.ranked(self._clock(), query=query, wanted=wanted)
        return list({hit.record.memory_id: hit.record for hit in hits}.values())

    def _add_older(self, snapshot: Snapshot, query: str | None, types: frozenset[MemoryType]) -> None:
        """Read older memories from the table into the snapshot, the copy of the memories in this process.

        With a query, memories with one of its words are read. Without a query, the most important memories of ``types`` are
        read. Preferences that are not in the snapshot may be read, too.
        """
        older = self.older.find(
            query,
            types,
            since=snapshot.since,
            known=snapshot.records.keys(),
            with_preferences=not snapshot.has_older_preferences,
        )
        snapshot.add_older(older)
        snapshot.has_older_preferences = True

    def _with_recent(self) -> Future[None] | None:
        """Start the background read of recent memories, unless it has been started, and return its future.

        None means that no read is needed.
        """
        with self._lock:
            if self._read_recent is not None and self._recent is None:
                self._recent = self._writer.submit(self._partition.owner, self._read_recent)
            return self._recent

    def _complete(self) -> Snapshot:
        """Return the snapshot of the user's memories, with the recent memories that only searches need.

        The call waits up to 5 seconds for their background read. If the table is unavailable or slower, they are missing.
        """
        snapshot, recent = self._current(), self._with_recent()
        try:
            if recent is not None:
                recent.result(timeout=_PATIENCE)
        except (StoreError, TimeoutError) as error:
            logger.debug("error=<%s> | failed to read the recent memories of a user", type(error).__name__)
            with self._lock:
                self._recent = None  # the next search tries again
        return snapshot

    def _current(self) -> Snapshot:
        with self._lock:
            snapshot = self._snapshot
        if snapshot is None:
            self._read()
            self._is_fresh = True
            return self._current()
        return snapshot

    def _note_uses(self, ids: Iterable[str]) -> None:
        # Not recalls of a session's messages: only the live agent would rank by them, because the table does not count them.
        used = [id_ for id_ in dict.fromkeys(ids) if not id_.startswith(f"{MemoryType.EPISODE}#")]
        if not used:
            return
        now = self._clock()
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.used(used, now)
        self._writer.submit(self._partition.owner, lambda: self._written_quietly(used, now))

    def _written_quietly(self, used: list[str], at: float) -> None:
        try:
            is_not_erased = self._cached is not None and self._cached.rules_out_erasure()
            self._partition.note_uses(used, at=None if is_not_erased else at)
        except StoreError as error:
            logger.debug("error=<%s> | failed to record a recall", type(error).__name__)
            return
        if not self._is_fold_planned:
            self._is_fold_planned = True
            self._fold_at(time.monotonic() + FOLD_SECONDS)

    def _fold_at(self, due: float) -> None:
        """Schedule the addition of recorded recalls to the access counts of memories, for the time ``due`` (monotonic seconds).

        If the process exits before, or the table is unavailable, the recalls are added after a later recall.
        """

        def fold() -> None:
            if time.monotonic() < due:  # a drain runs delayed work early
                self._fold_at(due)
                return
            self._is_fold_planned = False
            try:
                self._partition.fold()
            except (StoreError, KeyMissingError) as error:
                logger.debug("error=<%s> | failed to count recalls", type(error).__name__)

        wait = max(0.0, due - time.monotonic())
        self._writer.later(("fold", id(self)), wait, fold, is_needed=lambda: False)
