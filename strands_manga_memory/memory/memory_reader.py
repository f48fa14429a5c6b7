"""Reads of a user's memories: search and rendering, from a snapshot of the session start or from the table."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.exceptions import KeyMissingError, StoreError
from strands_manga_memory.language.search import Embed
from strands_manga_memory.memory.memory_context import AgentContext, agent_context
from strands_manga_memory.memory.memory_search import Hit, MemoryQuery, RankingWeights, Snapshot, checked_type
from strands_manga_memory.memory.partition import PartitionContent, UserPartition
from strands_manga_memory.memory.pii_policy import PiiFilter
from strands_manga_memory.memory.preferences.hot_profile import CacheLookup, MemoryCache
from strands_manga_memory.memory.profiles import ProfileReader
from strands_manga_memory.memory.records import MemoryRecord, MemoryType, Retention, counted
from strands_manga_memory.messages.injection import strip_own_blocks
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.telemetry import RECALL, measured

logger = logging.getLogger(__name__)

FOLD_SECONDS = 30.0
"""Seconds after a recall in which its access counts become part of the records."""

_PATIENCE = 5.0
"""Seconds that a search waits for the recent memories; a table answers or fails earlier."""

_SEARCHED = MemoryQuery(types=frozenset(MemoryType) - {MemoryType.WEEK, MemoryType.MONTH, MemoryType.QUESTION})
_PREFERENCES = MemoryQuery(types=frozenset({MemoryType.PREFERENCE}))


@dataclass(frozen=True)
class Ranking:
    """Ranking of memories. Without ``embed``, similarity is lexical."""

    retention: Mapping[MemoryType, Retention]
    weights: RankingWeights
    embed: Embed | None

    def of(self, loaded: PartitionContent) -> Snapshot:
        """Return a rankable snapshot of memories."""
        return Snapshot(loaded, retention=self.retention, weights=self.weights, embed=self.embed)


class MemoryReader:
    """Reads the memories of a session's start, then recent ones for searches, and records recalls, in the background.

    Both are bounded, so that a start does not depend on the number of memories. All memories are read by ``recalled``, and
    once by a search that finds nothing in the recent ones.
    """

    def __init__(
        self,
        partition: UserPartition,
        *,
        copy: MemoryCache | None,
        profiles: ProfileReader | None,
        ranking: Ranking,
        cleaning: PiiFilter,
        clock: Callable[[], float],
        writer: Writer,
    ) -> None:
        self._partition = partition
        self._copy = copy
        self._profiles = profiles
        self._ranking = ranking
        self._cleaning = cleaning
        self._clock = clock
        self._writer = writer
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._read_recent: Callable[[], None] | None = None
        self._recent: Future[None] | None = None
        self._profile: Mapping[str, str] = {}
        self._is_fresh = False
        self._is_fold_planned = False

    # What was read at session start

    def start(self) -> None:
        """Read the memories, unless they were just read for the user's context of this start."""
        if not self._is_fresh:
            self._read()
        self._is_fresh = False
        self._with_recent()

    def refresh(self) -> None:
        """Read the memories from the table and the profile from its source."""
        self._take(self._partition.load_start(), lambda older: None)

    def drop_snapshot(self) -> None:
        """Drop the snapshot after a change elsewhere, so that the next search or context reads the memories."""
        with self._lock:
            self._snapshot = None

    def shown(self, memory_id: str, record: MemoryRecord | None) -> None:
        """Update a memory in the snapshot; None removes it."""
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.remove(memory_id) if record is None else self._snapshot.put(record)

    def known_records(self) -> list[MemoryRecord]:
        """Return the memories of the session start with later additions."""
        return [self._cleaning.opened(record) for record in list(self._current().records.values())]

    def found(self, query: str, limit: int | None) -> list[Hit]:
        """Return the memories and passages most similar to ``query``, without the blocks of this package in it."""
        query = strip_own_blocks(query)
        with measured(RECALL, operation="search") as noted:
            hits = self._search(query, limit) if query.strip() else []
            noted.counts["records"] = len(hits)
        self._note_uses(hit.record.memory_id for hit in hits)
        return [Hit(hit.record, self._cleaning.opened_text(hit.content), hit.score) for hit in hits]

    def context(self, max_tokens: int, count: Callable[[str], int]) -> AgentContext:
        """Render the user's context in at most ``max_tokens``."""
        snapshot, now = self._current(), self._clock()
        worth = {hit.record.memory_id: hit.score for hit in snapshot.ranked(now, wanted=_PREFERENCES)}
        records = [self._cleaning.opened(record) for record in list(snapshot.records.values()) if not record.expired(now)]
        return agent_context(
            records,
            now=now,
            profile=self._profile,
            ranked=lambda record: worth.get(record.memory_id, 0.0),
            max_tokens=max_tokens,
            count=count,
        )

    # From the table

    def recalled(
        self,
        type: MemoryType | str | None,  # noqa: A002 - the word of the field
        *,
        limit: int | None,
        query: str | None,
        **filters: Any,
    ) -> list[MemoryRecord]:
        """Return the current memories of the table, best first. ``filters`` are those of ``MemoryQuery``."""
        type_ = None if type is None else checked_type(type)
        wanted = MemoryQuery(types=None if type_ is None else frozenset({type_}), **filters)
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, or None for all, got {limit!r:.80}")
        with measured(RECALL, operation="recall") as noted:
            snapshot = self._ranking.of(self._partition.load(type_, uses=True))
            hits = snapshot.ranked(self._clock(), query=query, wanted=wanted)
            records = list({hit.record.memory_id: hit.record for hit in hits}.values())[:limit]
            noted.counts["records"] = len(records)
        self._note_uses(record.memory_id for record in records)
        return [self._cleaning.opened(snapshot.counted(record)) for record in records]

    def get(self, memory_id: str) -> MemoryRecord | None:
        """Return a memory by its id, with its access count."""
        return next(self._each([memory_id]))

    def sources(self, memory_id: str) -> dict[str, MemoryRecord | str]:
        """Return the sources of a roll-up: each summary, or ``"expired"`` if it no longer exists."""
        rollup = self._partition.get(memory_id)
        covers = [] if rollup is None else list(rollup.covers)
        return {id_: record or "expired" for id_, record in zip(covers, self._each(covers), strict=True)}

    # Inside

    def _each(self, ids: Sequence[str]) -> Iterator[MemoryRecord | None]:
        records = [self._partition.get(id_) for id_ in ids]
        uses = self._partition.uses() if any(records) else {}
        return (None if record is None else self._cleaning.opened(counted(record, uses)) for record in records)

    def _read(self) -> None:
        """Read the memories from the hot tier, or from the table and later store them in the hot tier."""
        copy = self._copy
        looked = CacheLookup() if copy is None else copy.look()
        if looked.memories is not None:
            self._take(looked.memories, None)
            return
        loaded = self._partition.load_start()
        first = dict(loaded.records)

        def keep(recent: PartitionContent) -> None:
            if copy is not None and looked.seen is not None:
                records, unreadable = {**recent.records, **first}, [*loaded.unreadable, *recent.unreadable]
                is_partial = loaded.is_partial or recent.is_partial
                copy.keep(PartitionContent(records, unreadable=unreadable, is_partial=is_partial), looked.seen)

        self._take(loaded, keep)

    def _take(self, loaded: PartitionContent, then: Callable[[PartitionContent], None] | None) -> None:
        """Use memories that were read. ``then`` is called with the recent memories; None: they are among those read."""
        owner = self._partition.owner
        profile = None if self._profiles is None else self._profiles.read(owner.user_id, tenant=owner.tenant)
        snapshot = self._ranking.of(loaded)

        def read_recent() -> None:
            recent = self._partition.load_recent()
            snapshot.add_older(recent, is_partial=loaded.is_partial or recent.is_partial)
            if then is not None:
                then(recent)

        with self._lock:
            self._snapshot = snapshot
            self._read_recent, self._recent = None if then is None else read_recent, None
            self._profile = {} if profile is None else profile.preferences

    def _search(self, query: str, limit: int | None) -> list[Hit]:
        """Search the recent memories, and all others if none of the recent ones matches."""
        snapshot = self._complete()
        hits = snapshot.ranked(self._clock(), query=query, wanted=_SEARCHED, limit=limit, matching=True)
        if hits or not snapshot.is_partial:
            return hits
        try:
            snapshot.add_older(self._partition.load(), is_partial=False)
        except StoreError as error:
            logger.debug("error=<%s> | failed to read the older memories of a user", type(error).__name__)
            return []
        return snapshot.ranked(self._clock(), query=query, wanted=_SEARCHED, limit=limit, matching=True)

    def _with_recent(self) -> Future[None] | None:
        """Read the recent memories in the background, unless that was begun; return the result."""
        with self._lock:
            if self._read_recent is not None and self._recent is None:
                self._recent = self._writer.submit(self._partition.owner, self._read_recent)
            return self._recent

    def _complete(self) -> Snapshot:
        """Return the snapshot with the recent memories, or without them if the table is unavailable."""
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
        used = list(dict.fromkeys(ids))
        if not used:
            return
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.used(used, self._clock())
        now = self._clock()
        self._writer.submit(self._partition.owner, lambda: self._written_quietly(used, now))

    def _written_quietly(self, used: list[str], at: float) -> None:
        try:
            is_not_erased = self._copy is not None and self._copy.rules_out_erasure()
            self._partition.note_uses(used, at=None if is_not_erased else at)
        except StoreError as error:
            logger.debug("error=<%s> | failed to record a recall", type(error).__name__)
            return
        if not self._is_fold_planned:
            self._is_fold_planned = True
            self._fold_at(time.monotonic() + FOLD_SECONDS)

    def _fold_at(self, due: float) -> None:
        """Add the recalls to the records at a time; at an exit, or if the table is down, a later recall does it."""

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
