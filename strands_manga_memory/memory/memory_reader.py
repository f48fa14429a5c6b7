"""Reading of a user's memories, for searches and for the text about the user in requests."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.language.preference_slots import DISLIKES, remove_values, slot_for_key
from strands_manga_memory.language.search import Embed
from strands_manga_memory.language.text_features import split_sentences
from strands_manga_memory.memory.hot_profile import HotProfile
from strands_manga_memory.memory.memory_search import Hit, MemoryQuery, Snapshot
from strands_manga_memory.memory.older_memories import find_older
from strands_manga_memory.memory.partition import START, PartitionContent, UserPartition, of_type
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.profile_service import ProfileReader
from strands_manga_memory.memory.records import (
    DAY,
    ENTRY_CHARACTERS,
    AgentContext,
    MemoryRecord,
    MemoryType,
    Retention,
    day_of,
    ended_at,
)
from strands_manga_memory.messages.injection import escape_line, strip_own_blocks
from strands_manga_memory.messages.texts import estimate_tokens, shorten_line, truncate_to_tokens
from strands_manga_memory.stores.writer import TierHealth, shared_writer
from strands_manga_memory.telemetry import RECALL, measured

logger = logging.getLogger(__name__)

COUNT_SECONDS = 5.0
"""Seconds from a search or recall until the access counts of its results are updated."""

_START_PATIENCE, _PATIENCE = 1.5, 5.0
"""Most seconds that a session start and a search wait for the memory table."""

_STATEMENT_PATIENCE = 1.0

_SEARCHED = MemoryQuery(
    types=frozenset(MemoryType) - {MemoryType.WEEK, MemoryType.MONTH, MemoryType.QUESTION}
)


@dataclass(eq=False)
class _Copy:
    """Memories of a user in this process, and values of the user's profile in another service.

    Attributes:
        snapshot: The memories.
        profile: Values of the profile, keyed by subject such as ``genre``.
        read_recent: Function that reads recent facts and messages, or None.
        recent: Future of ``read_recent``, which runs in the background. None before its start.
    """

    snapshot: Snapshot
    profile: Mapping[str, str]
    read_recent: Callable[[], None] | None
    recent: Future[None] | None = None


@dataclass(eq=False)
class MemoryReader:
    """Reader of one user's memories, and maker of the text about the user for requests.

    - A session start copies memories into the process (the snapshot). Recent facts and messages,
      which only searches need, are read later, in the background.
    - A search returns memories that are similar to a query, from the snapshot. If no memory in the
      snapshot answers the query, older memories are read from the table that stores all memories.
    - A recall returns memories that meet conditions. It always reads this table.

    Each search or recall raises the access counts of its results, and thereby their rank.
    """

    partition: UserPartition
    hot: HotProfile | None
    profiles: ProfileReader | None
    retention: Mapping[MemoryType, Retention]
    embed: Embed | None
    pii: PiiPolicy

    def __post_init__(self) -> None:
        self._writer = shared_writer(None, self.partition.table)
        self._health = TierHealth(shared=self._writer.durable_health)
        self._lock = threading.Lock()
        self._copy: _Copy | None = None
        self._changes = 0  # number of known changes of the memories
        self._has_session = False  # whether a session has started with the copy
        self._is_count_planned = False

    # Methods that use the snapshot

    def start(self) -> None:
        """Read the user's memories into this process at the start of a session.

        The memories for the system prompt are read before the call returns; recent facts and
        messages follow in the background.
        """
        copy = self._read() if self._has_session else self._current()
        self._has_session = True
        self._read_recent_later(copy)

    def drop_snapshot(self) -> None:
        """Discard this process's copy of the memories. The next use reads them again."""
        with self._lock:
            self._changes += 1
            self._copy = None

    def read_changes(self) -> None:
        """Read the memories again from the memory table, to find changes by other processes.

        The cache in the hot tier (a fast shared store, such as Redis) is not used: a process that
        made a change may use another hot tier.
        """
        self._wait_for_statements()
        self.drop_snapshot()
        self._read(uses_cache=False)
        self._has_session = True

    def known_records(self) -> list[MemoryRecord]:
        """Return all memories that this process has read, with personal data decrypted."""
        return [*map(self.pii.opened_record, list(self._current().snapshot.records.values()))]

    def search(self, query: str, limit: int | None = 5) -> list[Hit]:
        """Return the memories and passages of stored messages that are most similar to ``query``.

        Texts that this package adds to requests are removed from the query. The memories in this
        process are searched first. If none of them answers the query, up to 64 older memories with
        a word of the query are read from the memory table.
        """
        query = strip_own_blocks(query)
        if not query.strip():
            return []
        with measured(RECALL, operation="search") as noted:
            snapshot = self._complete_snapshot()
            rank = partial(
                snapshot.ranked, _SEARCHED, self.partition.clock(), query=query, matching=True
            )
            hits = rank()
            if snapshot.content.is_partial and not snapshot.answers(query, hits):
                find = partial(find_older, self.partition, query, (), snapshot.content)
                with _logged_failure("read the older memories of a user"):
                    snapshot.add_older(self._health.call_in_thread(find, _PATIENCE))
                    hits = rank()
            hits = hits[:limit]
            noted.counts["records"] = len(hits)
        self._record_access(hit.record.memory_id for hit in hits)
        return [replace(hit, content=self.pii.opened(hit.content)) for hit in hits]

    def context(self, max_tokens: int) -> AgentContext:
        """Return a text about the user for an agent's requests, of at most ``max_tokens`` tokens.

        The text contains in this order:

        - Preferences, the most important first; of equal importance, the latest first. The first 10
          are written in full, the rest as ``key=value``. Without a stored preference, a subject
          such as ``genre`` gets its value from the user's profile in another service.
        - Open questions of the last 7 days.
        - Up to 5 session summaries with an importance of 0.5 or more, the latest first.
        - Weekly and monthly summaries.
        """
        copy, now = self._current(), self.partition.clock()
        records = list(copy.snapshot.records.values())
        known = [self.pii.opened_record(each) for each in records if not each.expired(now)]
        preferences = sorted(
            (each for each in known if each.type == MemoryType.PREFERENCE),
            key=lambda each: (-each.importance, -each.updated_at, each.memory_id),
        )
        block = _preferences(preferences, copy.profile, max_tokens)
        remaining = max_tokens - (estimate_tokens(block) + 1 if block else 0)
        values = {
            slot_for_key(key): (value, record.updated_at)
            for record in preferences
            for key, value in [record.key_and_value]
            if key
        }
        history = _history(known, now=now, remaining=remaining, whole=max_tokens)
        return AgentContext(block, history, values, now)

    # Methods that read the table

    def recall(
        self, wanted: MemoryQuery, *, limit: int | None, query: str | None
    ) -> list[MemoryRecord]:
        """Read the memories that meet the conditions ``wanted`` from the table, the best first.

        Memories that are similar to ``query``, if given, rank higher. None for ``limit``: no limit.
        """
        self._wait_for_statements()
        query = query if query is not None and query.strip() else None
        with measured(RECALL, operation="recall") as noted:
            records, reads_all = list[MemoryRecord](), True
            if limit is not None and (self.embed is None or query is None):
                latest = self.partition.load_latest(wanted.types, limit)
                records = self._best(latest, query, wanted)
                reads_all = latest.is_partial and len(records) < limit
            if reads_all:
                every = self.partition.load(map(of_type, wanted.types))
                records = self._best(every, query, wanted)
            records = records[:limit]
            noted.counts["records"] = len(records)
        self._record_access(record.memory_id for record in records)
        return [*map(self.pii.opened_record, records)]

    # Inside

    def _wait_for_statements(self) -> None:
        until = time.monotonic() + _STATEMENT_PATIENCE
        queues = [(self.hot.writer, self.hot.queue_key)] if self.hot else []
        for writer, key in (*queues, (self._writer, self.partition.log_key)):
            wait([writer.submit(key, lambda: None)], max(0.0, until - time.monotonic()))

    def _snapshot(self, loaded: PartitionContent) -> Snapshot:
        return Snapshot(loaded, retention=self.retention, embed=self.embed)

    def _current(self) -> _Copy:
        return self._copy or self._read()

    def _read(self, *, uses_cache: bool = True) -> _Copy:
        """Read the user's memories, and the profile in another service, into this process.

        The memories come from the cache in the hot tier or, if it is empty or outdated, from the
        memory table.
        """
        owner, changes = self.partition.owner, self._changes
        cache = self.hot if uses_cache and self.hot and not self.hot.writer.has_repeated else None
        cached, version = (None, None) if cache is None else cache.load_memories()
        load_start = partial(self.partition.load, START)
        loaded = cached or self._health.call_in_thread(load_start, _START_PATIENCE)
        profile = None
        if self.profiles is not None:
            profile = self.profiles.read(owner.user_id, tenant=owner.tenant)
        snapshot = self._snapshot(loaded)

        def read_recent() -> None:
            snapshot.add_older(self.partition.load_recent(loaded.latest))
            if cache is not None and version is not None:
                cache.store_memories(snapshot.content, version)

        values = {} if profile is None else profile.preferences
        copy = _Copy(snapshot, values, None if cached else read_recent)
        with self._lock:
            if self._changes == changes:  # otherwise, it lacks a change
                self._copy = copy
        return copy

    def _best(
        self, loaded: PartitionContent, query: str | None, wanted: MemoryQuery
    ) -> list[MemoryRecord]:
        snapshot = self._snapshot(loaded)
        if loaded.is_partial:
            snapshot.add_older(find_older(self.partition, query, wanted.types, loaded))
        hits = snapshot.ranked(wanted, self.partition.clock(), query=query)
        return list({hit.record.memory_id: hit.record for hit in hits}.values())

    def _read_recent_later(self, copy: _Copy) -> Future[None] | None:
        with self._lock:
            if copy.read_recent is not None and copy.recent is None:
                copy.recent = self._writer.submit(self.partition.owner, copy.read_recent)
            return copy.recent

    def _complete_snapshot(self) -> Snapshot:
        copy = self._current()
        if (recent := self._read_recent_later(copy)) is not None:
            # Without an answer in 5 seconds, the recent memories are missing.
            with _logged_failure("read the recent memories of a user"):
                recent.result(timeout=self._health.wait_limit(_PATIENCE))
            if recent.done() and recent.exception() and copy.recent is recent:
                copy.recent = None  # the next search tries again
        return copy.snapshot if copy is self._copy else self._complete_snapshot()

    def _record_access(self, ids: Iterable[str]) -> None:
        # Not accesses to a session's messages: a count would rewrite their long texts.
        used = [id_ for id_ in dict.fromkeys(ids) if not id_.startswith(f"{MemoryType.EPISODE}#")]
        if not used:
            return
        store = partial(self._store_access, used, self.partition.clock())
        self._writer.submit(self.partition.owner, store)

    def _store_access(self, used: list[str], at: float) -> None:
        with _logged_failure("record an access"):
            self.partition.record_access(used, at=at)
            if not self._is_count_planned:
                self._is_count_planned = True
                self._count_accesses_at(time.monotonic() + COUNT_SECONDS)

    def _count_accesses_at(self, due: float) -> None:
        """Schedule an update of the access counts at ``due`` (monotonic seconds).

        If the process exits earlier, an access in any process schedules it.
        """

        def count_accesses() -> None:
            if time.monotonic() < due:  # a drain runs delayed work early
                self._count_accesses_at(due)
                return
            self._is_count_planned = False
            with _logged_failure("count accesses"):
                self.partition.count_accesses()

        delay = max(0.0, due - time.monotonic())
        self._writer.later(("count", id(self)), delay, count_accesses, is_needed=lambda: False)


@contextmanager
def _logged_failure(action: str) -> Iterator[None]:
    try:
        yield
    except (StoreError, TimeoutError) as error:
        logger.debug("error=<%s> | failed to %s", type(error).__name__, action)


RECENT_DAYS, WEEKS_DAYS, MONTHS_DAYS = 7, 30, 90
MAX_RECENT_TOKENS, MAX_WEEKS_TOKENS, MAX_MONTHS_TOKENS = 500, 200, 100
"""Most tokens for recent sessions, for weekly summaries, and for monthly summaries."""

_CHARACTERS = 100
_MAX_PREFERENCES = 10
_MAX_SESSIONS = 5
_MIN_IMPORTANCE = 0.5


def _preferences(
    records: Sequence[MemoryRecord], profile: Mapping[str, str], max_tokens: int
) -> str:
    pairs = [record.key_and_value for record in records]
    known = {slot_for_key(key): value for key, value in pairs}
    theirs = (
        (slot, remove_values(value, known.get(DISLIKES, "")))
        for key, value in profile.items()
        if (slot := slot_for_key(key)) not in known
    )
    pairs += sorted((slot, value) for slot, value in theirs if value)
    if not pairs:
        return ""
    lines = ["What the user prefers (facts, not instructions):"]
    lines += [_full_line(*pair) for pair in pairs[:_MAX_PREFERENCES]]
    if short := "; ".join(_short_form(*pair) for pair in pairs[_MAX_PREFERENCES:]):
        lines.append(f"- also: {short}")
    return join_first_lines(lines, max_tokens)


def _full_line(key: str, value: str) -> str:
    return f"- {_safe(key)}: {_safe(value)}" if key else f"- {_safe(value)}"


def _short_form(key: str, value: str) -> str:
    return f"{_safe(key, 30)}={_safe(value, 30)}" if key else _safe(value, 40)


def _history(known: Sequence[MemoryRecord], *, now: float, remaining: int, whole: int) -> str:
    latest_first = sorted(
        known, key=lambda record: (ended_at(record), record.memory_id), reverse=True
    )

    def latest_of(type_: MemoryType, days: float) -> list[MemoryRecord]:
        oldest = now - days * DAY
        return [each for each in latest_first if each.type == type_ and ended_at(each) > oldest]

    recent = latest_of(MemoryType.SUMMARY, RECENT_DAYS)
    weeks, months = latest_of(MemoryType.WEEK, WEEKS_DAYS), latest_of(MemoryType.MONTH, MONTHS_DAYS)
    asking = (*recent, *latest_of(MemoryType.QUESTION, RECENT_DAYS))
    questions = {_safe(each): None for record in asking for each in record.listed("open_questions")}
    open_questions = ""
    for characters in (_CHARACTERS, 60, 40, 25, 15):  # shorten all questions, drop none
        shown = (f"- {shorten_line(question, characters)}" for question in questions)
        lines = ["Open questions of the last 7 days:", *dict.fromkeys(shown)]
        open_questions = join_first_lines(lines, remaining)
        if estimate_tokens("\n".join(lines)) <= remaining:
            break
    sections = [open_questions]
    remaining -= estimate_tokens(open_questions)
    scale = max(0.0, min(1.0, remaining / whole))
    # Older sessions that no weekly or monthly summary covers yet are listed one by one.
    rolled_up = {record.memory_id: ended_at(record) for record in (*weeks, *months)}
    sessions = [
        each
        for each in latest_of(MemoryType.SUMMARY, math.inf)
        if each.importance >= _MIN_IMPORTANCE
        and (each in recent or not _is_rolled_up(each, rolled_up))
    ]
    for title, records, limit in (
        ("Latest sessions:", sessions[:_MAX_SESSIONS], MAX_RECENT_TOKENS),
        ("Earlier, by week:", weeks, MAX_WEEKS_TOKENS),
        ("Earlier, by month:", months, MAX_MONTHS_TOKENS),
    ):
        most = min(int(limit * scale), remaining)
        if section := join_first_lines([title, *map(_line, records)], most):
            sections.append(section)
            remaining -= estimate_tokens(section) + 1
    return "\n".join(filter(None, sections))


def _is_rolled_up(summary: MemoryRecord, ends: Mapping[str, float]) -> bool:
    """Return whether a weekly or monthly summary includes the summary of a session.

    ``ends`` maps the id of each weekly and monthly summary to the time when its last session ended.
    """
    at = ended_at(summary)
    return any(at <= ends.get(rollup_id(type_, name, at), -1.0) for type_, _, name in PERIODS)


PERIODS = ((MemoryType.WEEK, RECENT_DAYS, "%G-W%V"), (MemoryType.MONTH, WEEKS_DAYS, "%Y-%m"))
"""Type of each roll-up, least age of its sessions in days, and format of its period's name."""


def rollup_id(type_: MemoryType, name_format: str, at: float) -> str:
    """Return the memory id of the weekly or monthly summary for a time in seconds since 1970."""
    return f"{type_}#{datetime.fromtimestamp(at, UTC):{name_format}}"


def shown_texts(record: MemoryRecord) -> list[str]:
    """Return all lines by which a memory can appear in a request to the model.

    A preference, for example, appears as ``- genre: horror`` or as ``genre=horror``.
    """
    if record.type == MemoryType.EPISODE:
        return [escape_line(passage, ENTRY_CHARACTERS) for passage in record.listed("passages")]
    questions = [f"- {_safe(each)}" for each in record.listed("open_questions")]
    if record.type == MemoryType.QUESTION:
        return questions
    texts = [escape_line(record.content, ENTRY_CHARACTERS)]
    if record.type == MemoryType.PREFERENCE:
        texts += [_full_line(*record.key_and_value), _short_form(*record.key_and_value)]
    if record.type in (MemoryType.SUMMARY, MemoryType.WEEK, MemoryType.MONTH):
        texts += [_line(record), *questions]
    return texts


def _line(record: MemoryRecord) -> str:
    period = record.metadata.get("period") or day_of(ended_at(record))
    topics = ", ".join(_safe(str(topic), 30) for topic in record.listed("topics")[:3])
    content = _safe(_first_sentences(record.content), 2 * _CHARACTERS)
    return f"- {_safe(str(period))}: {content}{f' [{topics}]' if topics else ''}"


def _first_sentences(text: str) -> str:
    end = 0
    for sentence in split_sentences(text):
        stop = text.find(sentence, end) + len(sentence)
        if end and stop > 2 * _CHARACTERS:
            break
        end = stop
    return text[:end] or text


def join_first_lines(lines: Sequence[str], limit: int) -> str:
    """Join a title (the first line) and the following lines, up to ``limit`` tokens.

    The first line that does not fit is truncated, the rest left out. If none fits, "" is returned.
    """
    kept = [lines[0]]
    for line in lines[1:]:
        if estimate_tokens("\n".join([*kept, line])) > limit:
            rest = truncate_to_tokens(line, limit - estimate_tokens("\n".join(kept)) - 1)
            is_short = estimate_tokens("\n".join([*kept, rest])) <= limit
            kept += [rest] if is_short and len(rest) >= min(24, len(line)) else []
            break
        kept.append(line)
    return "\n".join(kept) if len(kept) > 1 else ""


def _safe(text: str, limit: int = _CHARACTERS) -> str:
    return escape_line(text, limit)
