"""Times to live of conversations, and a histogram of the pauses between two turns."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from strands_manga_memory.arguments import FiniteSeconds, PositiveSeconds, checked
from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.lifecycle import attachments, renew_in_child
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.telemetry.recording import LogHistogram

logger = logging.getLogger(__name__)

Tier = Literal["standard", "premium", "vip"]
Mode = Literal["fixed", "sliding", "activity", "hybrid"]

TOMBSTONE_SECONDS = 25 * 3600.0
"""Least number of seconds for which stores keep a tombstone."""

_HYBRID: dict[str, tuple[float, int, float]] = {
    "standard": (1800.0, 10, 2700.0),
    "premium": (2700.0, 8, 3600.0),
    "vip": (3600.0, 5, 7200.0),
}
"""For each user tier: seconds to live, turns at which they increase, and increased seconds."""

_SECONDS = 1800.0
_GROWING = 20
"""Turns after the first one until the mode ``activity`` has doubled the time to live."""


@checked
@dataclass(frozen=True, slots=True)
class TtlPolicy:
    """Policy for the time to live in the hot tier, and for the end of an unused session.

    In the mode ``hybrid``, the time to live depends on the user tier (class of customer) and on the
    number of turns:

    - ``standard``: 1,800 seconds, and 2,700 from 10 turns on.
    - ``premium``: 2,700 seconds, and 3,600 from 8 turns on.
    - ``vip``: 3,600 seconds, and 7,200 from 5 turns on.

    Args:
        tier: The user tier (``standard``, ``premium`` or ``vip``), or a function that returns the
            user tier. Any other text counts as ``standard``. The function is called at each use,
            because the user tier may change during a session.
        mode: ``hybrid`` (default): by user tier and turns; the agent's reads and writes restart the
            time to live. ``sliding``: always ``seconds``; reads and writes restart it.
            ``activity``: ``seconds`` plus 5 % for each turn after the first, at most doubled; only
            writes restart it. ``fixed``: ``seconds`` from the first write, never restarted.
        seconds: Seconds to live in the modes other than ``hybrid``. If given with ``hybrid``, it
            has the effect of ``sliding``. Default 1,800.
        session: Seconds after the last use at which the session ends. The next use begins a new
            session. With Redis or Valkey, a session does not end before its time to live there. To
            end sessions earlier than that, also set ``seconds``. Default 86,400.
        grace: Seconds for which stores keep expired data. Default and minimum 3,600.

    Raises:
        ValueError: ``mode`` is unknown, ``tier`` is neither text nor a function, ``seconds`` or
            ``session`` is not positive, or ``grace`` is below 3,600.
    """

    tier: str | Callable[[], str] = "standard"
    mode: Mode = "hybrid"
    _: KW_ONLY
    seconds: PositiveSeconds | None = None
    session: FiniteSeconds = 86_400.0
    grace: FiniteSeconds = 3600.0

    def __post_init__(self) -> None:
        if self.grace < 3600:
            raise ValueError(f"grace must be at least 3600 seconds, got {self.grace!r:.80}")

    def ttl(self, turn_count: int) -> float:
        """Return the time to live in the hot tier, in seconds, after ``turn_count`` turns."""
        if self.mode != "hybrid" or self.seconds is not None:
            seconds = _SECONDS if self.seconds is None else float(self.seconds)
            growth = min(max(turn_count - 1, 0), _GROWING) / _GROWING
            return seconds * (1 + growth) if self.mode == "activity" else seconds
        tier = self.tier() if callable(self.tier) else self.tier
        first, depth, deep = _HYBRID.get(tier.lower(), _HYBRID["standard"])
        return deep if turn_count >= depth else first

    @property
    def tombstone_seconds(self) -> float:
        """Seconds for which stores keep the deletion marker (tombstone) of a conversation.

        The time is at least 90,000 seconds (25 hours), and never shorter than the time for which
        an unused conversation is kept.
        """
        longest = (self.seconds or 0.0) * (2 if self.mode == "activity" else 1)
        return max(TOMBSTONE_SECONDS, max(self.session, longest) + self.grace)

    @property
    def refreshed_by_reads(self) -> bool:
        """Whether reads of a conversation by its agent restart its time to live.

        True in the modes ``hybrid`` and ``sliding``.
        """
        return self.mode in ("hybrid", "sliding")


PARTITION = "returns/all"
"""Partition of the stored histograms. The slash keeps it apart from the partitions of sessions."""

KEPT_SECONDS = 90 * 86_400.0
"""Seconds for which the histogram of a day is kept."""

_EVERY_SECONDS = 300.0


class ReturnGaps:
    """Histogram of the pauses between the turns of each conversation, for a whole process.

    The histogram is stored in the durable tier every 5 minutes, in one item for each process and
    day. If a process is killed, its changes since the last write are lost.

    Args:
        table: The durable tier. None: the histogram is not stored.
    """

    def __init__(self, table: Table | None) -> None:
        self._table = table
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Discard the histogram of pauses in a forked process, because the parent stores it."""
        self._lock = threading.Lock()
        self._process = uuid.uuid4().hex[:12]
        self._day = ""
        self._saved_at: float | None = None
        self.gaps = LogHistogram()

    def add(self, gap: float, now: float, writer: Writer) -> None:
        """Add the pause of ``gap`` seconds between two turns of a conversation to the histogram.

        ``now`` is the time of the second turn, in seconds since 1970. ``writer`` stores the
        histogram in the background, every 5 minutes.
        """
        with self._lock:
            self.gaps.add(gap)
            if self._saved_at is None:
                self._day, self._saved_at = _day(now), now
            is_due = now - self._saved_at >= _EVERY_SECONDS
            if is_due:
                self._saved_at = now
        if is_due:
            writer.submit(self, lambda: self.save(now))

    def save(self, now: float) -> None:
        """Store the day's histogram of the pauses between two turns in the durable tier.

        ``ttl_advice`` recommends a time to live from it. If the durable tier does not answer, the
        next call stores the histogram.
        """
        table = self._table
        with self._lock:
            counts, day = self.gaps.counts.copy(), self._day
        if table is None or not counts:
            return
        key = {"session_id": PARTITION, "sk": f"{day}#{self._process}"}
        try:
            stored = {str(bucket): count for bucket, count in counts.items()}
            table.put({**key, "counts": stored, table.schema.ttl: int(now + KEPT_SECONDS)})
        except StoreError as error:
            kind = type(error).__name__
            logger.debug("error=<%s> | the gaps between turns are stored later", kind)
            return
        with self._lock:
            if day == self._day and day != _day(now):
                self._day = _day(now)
                self.gaps = LogHistogram(counts=self.gaps.counts - counts)


def stored_gaps(table: Table, *, since: float = 0.0) -> LogHistogram:
    """Return the stored histogram of the pauses between two turns, summed over all processes.

    ``since`` is a time on the first day to include, in seconds since 1970. Default: all days.

    Raises:
        StoreUnavailableError: The table does not answer.
    """
    gaps = LogHistogram()
    for item in table.query(PARTITION, first=_day(since)):
        counts: Mapping[str, Any] = item.get("counts") or {}
        gaps.counts.update({int(bucket): int(count) for bucket, count in counts.items()})
    return gaps


def gaps_of(writer: Writer, table: Table | None) -> ReturnGaps:
    """Return this process's histogram of the pauses between two turns, for the given stores.

    All session managers of the process that use these stores share the histogram.
    """
    attached, table = attachments(writer), getattr(table, "observes", table)
    found: ReturnGaps = attached.get("gaps") or attached.setdefault("gaps", ReturnGaps(table))
    return found


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
