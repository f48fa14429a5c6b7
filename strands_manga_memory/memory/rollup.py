"""MemoryRollup: weeks and months of sessions in few words, made from the sessions' own summaries."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from strands.models import Model

from strands_manga_memory.language.session_summaries import (
    RuleSessionSummarizer,
    SessionSummarizer,
    resolve_summarizer,
    summarize_session,
)
from strands_manga_memory.memory.pii.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.preference_log import forgotten_id
from strands_manga_memory.memory.recall.context import MOST_MONTHS, MOST_WEEKS, RECENT_DAYS, WEEKS_DAYS, ended_at
from strands_manga_memory.memory.records.memory_records import MemoryRecord, Owner
from strands_manga_memory.memory.records.partition import Loaded, UserPartition
from strands_manga_memory.memory.records.retention import DAY, RETENTION, MemoryType, Retention
from strands_manga_memory.memory.records.unreadable import going_on
from strands_manga_memory.messages.tokens import shorten_line, truncate_to_tokens
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.table import Item, Table

logger = logging.getLogger(__name__)

WEEK_TOKENS, MONTH_TOKENS = MOST_WEEKS // 5, MOST_MONTHS // 4
"""Tokens of one week and of one month: in the last 30 days are parts of at most 5 weeks, in 30 to 90 of at most 4 months."""

_MOST_TOPICS = 5
_MOST_COVERED = 400


class MemoryRollup:
    """Makes a user's weekly and monthly roll-ups.

    A week has the sessions of it that are more than 7 days old, a month those that are more than 30 days old, both from the
    summaries of the sessions themselves. Doing it again changes nothing, unless a summary came or changed. Each keeps
    pointers to what it was made from (``UserMemoryStore.sources``), also when that has expired.

    Args:
        table: A table of the schema ``USER_MEMORY``.
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.
        model: A Strands model or a summarizer; None: by rules.
        clock: Seconds since 1970.
        retention: How long each type is kept.
        pii: What becomes of personal data.
        codec: As of the store.
        timeout: Seconds to wait for the model. Default 30.
    """

    def __init__(
        self,
        table: Table,
        *,
        user_id: str,
        tenant: str | None = None,
        model: Model | SessionSummarizer | None = None,
        clock: Callable[[], float] = time.time,
        retention: Mapping[MemoryType, Retention] = RETENTION,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._owner = Owner(user_id, tenant)
        self._partition = UserPartition(table, self._owner, codec=codec, clock=clock)
        self._summarizer = resolve_summarizer(model)
        self._clock = clock
        self._retention = retention
        self._pii = pii or PiiPolicy()
        self._timeout = timeout

    def run(
        self, loaded: Loaded | None = None, *, guard: Item | str | None = "", forgotten: Mapping[str, float] | None = None
    ) -> int:
        """Make the roll-ups that are missing or behind; return how many were written.

        Args:
            loaded: What the user's partition holds, if it was just read.
            guard: As of ``UserPartition.update``.
            forgotten: When roll-ups were forgotten, by ``forgotten_id``: sessions from before make none of that id again.

        Raises:
            StoreUnavailableError: The table does not answer.
        """
        records = (loaded or self._partition.load()).records
        sessions = [record for record in records.values() if record.type == MemoryType.SUMMARY]
        now = self._clock()
        written = 0
        for type_, days, name_of in ((MemoryType.WEEK, RECENT_DAYS, _week), (MemoryType.MONTH, WEEKS_DAYS, _month)):
            periods: dict[str, list[MemoryRecord]] = defaultdict(list)
            for record in sessions:
                if now - ended_at(record) >= days * DAY:
                    periods[name_of(ended_at(record))].append(record)
            for period, covered in sorted(periods.items()):
                after = (forgotten or {}).get(forgotten_id(f"{type_}#{period}"), 0.0)
                covered = [record for record in covered if ended_at(record) > after]
                if not covered:
                    continue
                written += self._made(type_, period, sorted(covered, key=ended_at), records, guard)
        return written

    def _made(
        self,
        type_: MemoryType,
        period: str,
        sessions: Sequence[MemoryRecord],
        records: Mapping[str, MemoryRecord],
        guard: Item | str | None,
    ) -> bool:
        id_ = f"{type_}#{period}"
        versions = {record.memory_id: record.version for record in sessions}
        if _is_up_to_date(records.get(id_), versions):
            return False
        content, topics = self._content(sessions, WEEK_TOKENS if type_ == MemoryType.WEEK else MONTH_TOKENS)
        latest = ended_at(sessions[-1])
        now, rule = self._clock(), self._retention[type_]

        def made(known: MemoryRecord | None) -> MemoryRecord | None:
            if known is not None and _is_up_to_date(known, versions):
                return known
            covers = {**dict(known.metadata.get("versions") or {} if known else {}), **_digests(versions)}
            ids = dict.fromkeys([*(known.listed("covers") if known else ()), *versions])
            metadata: dict[str, Any] = {
                "period": period,
                "covers": list(ids)[-_MOST_COVERED:],
                "versions": dict(list(covers.items())[-_MOST_COVERED:]),
                "sessions": len(ids),
                "topics": topics,
                "ended_at": latest,
            }
            first = known or MemoryRecord(
                memory_id=id_, type=type_, content="", importance=rule.importance, created_at=now, updated_at=now
            )
            return first.changed(content=content, metadata=metadata, updated_at=now, expires_at=rule.expires_at(latest))

        with going_on():
            return self._partition.update(id_, made, guard=guard) is not None
        return False

    def _content(self, sessions: Sequence[MemoryRecord], most: int) -> tuple[str, list[str]]:
        counts = Counter(str(topic) for record in sessions for topic in record.listed("topics"))
        topics = [topic for topic, _ in counts.most_common(_MOST_TOPICS)]
        if isinstance(self._summarizer, RuleSessionSummarizer):
            text = _by_rules(sessions, topics)
        else:
            lines = [("user", record.content) for record in sessions]
            summary = summarize_session(self._summarizer, lines, max_tokens=most, timeout=self._timeout)
            text = _by_rules(sessions, topics) if summary.by_rules else summary.text
        text = self._pii.applied(text, place=self._owner.partition)
        return truncate_to_tokens(text, most), topics


def _by_rules(sessions: Sequence[MemoryRecord], topics: Sequence[str]) -> str:
    count = f"{len(sessions)} session{'' if len(sessions) == 1 else 's'}"
    about = f" about {', '.join(topics[:3])}" if topics else ""
    return f"{count}{about}; last: {shorten_line(sessions[-1].content, 120)}"


def _is_up_to_date(rollup: MemoryRecord | None, versions: Mapping[str, int]) -> bool:
    if rollup is None:
        return False
    known = dict(rollup.metadata.get("versions") or {})
    return all(known.get(name) == version for name, version in _digests(versions).items())


def _digests(versions: Mapping[str, int]) -> dict[str, int]:
    """Return versions by a short name of each memory: many ids would make a large record."""
    return {hashlib.sha256(id_.encode()).hexdigest()[:8]: version for id_, version in versions.items()}


def _week(at: float) -> str:
    year, week, _ = datetime.fromtimestamp(at, UTC).isocalendar()
    return f"{year}-W{week:02d}"


def _month(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")
