"""ReturnGaps: how long users stay away between two turns of a conversation, recorded cheaply."""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.forks import at_fork
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.telemetry.histogram import LogHistogram

logger = logging.getLogger(__name__)

PARTITION = "returns/all"
"""Where they are kept. No session id holds a slash, so it is none."""

KEPT_SECONDS = 90 * 86_400.0
"""How long a day's counts are kept."""

_EVERY_SECONDS = 300.0


class ReturnGaps:
    """Counts gaps in this process, and stores the counts every 5 minutes: a record a process and day, one write each time.

    A gap costs a few microseconds and no I/O. What a process has counted since its last write goes with it if it is killed.

    Args:
        table: The durable tier; None: they are only counted.
        writer: Writes in the background.
    """

    def __init__(self, table: Table | None, writer: Writer) -> None:
        self._table = None if table is None else weakref.ref(table)
        self._writer = weakref.ref(writer)
        self._lock = threading.Lock()
        self._process = uuid.uuid4().hex[:12]
        self._day = ""
        self._saved_at: float | None = None
        self.gaps = LogHistogram()

    def add(self, gap: float, now: float) -> None:
        """Count a gap of some seconds that ended ``now``."""
        with self._lock:
            self.gaps.add(gap)
            if self._saved_at is None:
                self._day, self._saved_at = _day(now), now
            is_due = now - self._saved_at >= _EVERY_SECONDS
            if is_due:
                self._saved_at = now
        writer = self._writer()
        if is_due and writer is not None:
            writer.submit(self, lambda: self.save(now))

    def save(self, now: float) -> None:
        """Store what was counted; if the table does not answer, the next time will do. A new day has a record of its own."""
        table = None if self._table is None else self._table()
        with self._lock:
            counts = {str(bucket): count for bucket, count in self.gaps.counts.items()}
            day = self._day
        if table is None or not counts:
            return
        key = {table.schema.partition: PARTITION, table.schema.sort: f"{day}#{self._process}"}
        try:
            table.put({**key, "counts": counts, table.schema.ttl: int(now + KEPT_SECONDS)})
        except StoreError as error:
            logger.debug("error=<%s> | the gaps between returns were not stored, it is tried again", type(error).__name__)
            return
        with self._lock:
            if day == self._day and day != _day(now):
                self._day, self.gaps = _day(now), LogHistogram(counts=_more(self.gaps.counts, counts))


def stored_gaps(table: Table, *, since: float = 0.0) -> LogHistogram:
    """Return the gaps that all processes have stored.

    Args:
        table: The durable tier.
        since: Leave out days before this one, in seconds since 1970.

    Raises:
        StoreUnavailableError: The table does not answer.
    """
    gaps = LogHistogram()
    for item in table.query(PARTITION, first=_day(since)):
        counts: Mapping[str, Any] = item.get("counts") or {}
        gaps.merge({int(bucket): int(count) for bucket, count in counts.items()})
    return gaps


def gaps_of(writer: Writer, table: Table | None) -> ReturnGaps:
    """Return the one ``ReturnGaps`` of a pair of stores in this process."""
    with _lock:
        found = _known.get(writer)
        if found is None:
            found = _known[writer] = ReturnGaps(getattr(table, "observes", table), writer)
        return found


def _more(now: Mapping[int, int], stored: Mapping[str, int]) -> dict[int, int]:
    """Return what was counted beyond what is stored."""
    rest = {bucket: count - stored.get(str(bucket), 0) for bucket, count in now.items()}
    return {bucket: count for bucket, count in rest.items() if count}


def _renew_after_fork() -> None:
    """Count anew in the child of a fork: what was counted is the parent's to store."""
    global _lock
    _lock = threading.Lock()
    _known.clear()


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")


_known: weakref.WeakKeyDictionary[Writer, ReturnGaps] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
at_fork(after_in_child=_renew_after_fork)
