"""Parts of a conversation manager that summarizes old turns in the background.

The module has the settings, the division of a history into old and recent turns, and the background
tasks that write the summaries.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from opentelemetry import metrics
from strands import Agent
from strands.types.content import Message

from strands_manga_memory.arguments import Clock, PositiveInt, PositiveShare, Seconds, checked
from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker, State
from strands_manga_memory.conversation.background import BackgroundTask
from strands_manga_memory.conversation.summary_record import (
    RULES,
    Summary,
    is_synthesized,
    record_of,
)
from strands_manga_memory.conversation.summary_writing import (
    ModelSummarizer,
    SummaryWriter,
    summarizer_name,
)
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.language.session_summaries import Summarizer
from strands_manga_memory.messages import content_fingerprint, is_turn_start, turns
from strands_manga_memory.telemetry import SUMMARY, measured
from strands_manga_memory.telemetry.events import SUMMARY_RUNS

logger = logging.getLogger(__name__)

# --- Policies -------------------------------------------------------------------------------------


Strategy = Literal["background", "async", "inline"]
"""Way to wait for a due summary: not at all, in the next model call, or at the end of the turn."""


@checked
@dataclass(frozen=True, kw_only=True)
class SummaryTrigger:
    """Conditions for summarizing old turns, and number of latest turns that are not summarized.

    Attributes:
        tokens: Size of the history, in tokens, at which older turns are summarized. Default 8,000.
            None: nearly twice the budget of the manager's ``trimmer``, but at most half of the
            model's context window.
        turns: Number of turns without a summary at which older turns are summarized. Default 20.
        keep_recent_turns: Number of latest turns that are not summarized, including the current
            turn. Default 3.

    Raises:
        ValueError: A number is not positive.
    """

    tokens: PositiveInt | None = 8_000
    turns: PositiveInt = 20
    keep_recent_turns: PositiveInt = 3


@checked
@dataclass(frozen=True, kw_only=True)
class SummarySchedule:
    """Settings for waiting for a summary, and for a warning before the summary.

    Attributes:
        strategy: ``background`` (default): the summary is written in the background. ``async``: the
            next model call waits for the summary, without blocking the event loop. ``inline``: the
            turn ends only when the summary is written; this blocks the event loop.
        wait_seconds: Longest wait for a summary, in seconds. Default 30. If the history is still
            too large after this time, facts that rules extract replace the older turns.
        warn_share: Share of the size at which old turns are summarized. When the history reaches
            this share, such as 6,000 of 8,000 tokens, a warning is logged. Default 0.75.

    Raises:
        ValueError: ``strategy`` is none of these, ``wait_seconds`` is below 0, or ``warn_share`` is
            not above 0 and at most 1.
    """

    strategy: Strategy = "background"
    wait_seconds: Seconds = 30.0
    warn_share: PositiveShare = 0.75


# --- Covered messages -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SummarySpan:
    """Division of a history into old turns, which a summary may replace, and recent turns.

    Attributes:
        summary: The summary in the history. None if there is no summary.
        old: Messages that show the summary to the model, then those of the old turns.
        unsummarized: Messages in ``old`` that are not summarized yet.
        recent: Messages of the recent turns.
    """

    summary: Summary | None
    old: tuple[Message, ...]
    unsummarized: tuple[Message, ...]
    recent: tuple[Message, ...]

    @property
    def uncovered_turns(self) -> int:
        """Number of turns in the history that no summary covers, including the recent turns."""
        return sum(is_turn_start(message) for message in (*self.unsummarized, *self.recent))


MessageVersions = list[tuple[str | None, int]]
"""Id and fingerprint of each message that a summary replaces."""


def message_versions(messages: Iterable[Message]) -> MessageVersions:
    """Return the id and a content hash of each message, to detect later changes of the messages."""
    return [(message.get("tracking_id"), content_fingerprint(message)) for message in messages]


def split_history(history: Sequence[Message], keep_recent_turns: int) -> SummarySpan:
    """Divide a history into the old turns to summarize and the last ``keep_recent_turns`` turns.

    Raises:
        CorruptRecordError: The summary record is malformed, or has another format version.
    """
    found = turns(history)
    return split_at(
        history, found[-keep_recent_turns].start if len(found) > keep_recent_turns else 0
    )


def split_at(history: Sequence[Message], split: int) -> SummarySpan:
    """Divide a history at position ``split`` into old messages, to be summarized, and recent ones.

    A summarized turn stays if it has a pinned message. It is not summarized again, and counts as
    recent if it ends directly before ``split``.

    Raises:
        CorruptRecordError: The summary record is malformed, or has another format version.
    """
    summary: Summary | None = None
    for message in history:
        summary = record_of(message) or summary
    kept = frozenset(summary.kept) if summary else frozenset()
    unsummarized = [
        at
        for at in range(split)
        if not is_synthesized(history[at]) and history[at].get("tracking_id") not in kept
    ]
    split = unsummarized[-1] + 1 if unsummarized else split
    return SummarySpan(
        summary,
        tuple(history[:split]),
        tuple(history[at] for at in unsummarized),
        tuple(history[split:]),
    )


# --- Runs -----------------------------------------------------------------------------------------


_RUN, _REST = "summary_run", "summary_rest"
"""Keys in the saved state: the current summary, and failures of the summarizer."""

MOST_FAILURES = 3
_REST_SECONDS = 300.0
"""Pause of the summarizer after ``MOST_FAILURES`` failures in a row, in seconds."""

_run_counter = metrics.get_meter("strands_manga_memory").create_counter(
    SUMMARY_RUNS.name, unit=SUMMARY_RUNS.unit, description=SUMMARY_RUNS.description
)


def _warn_of_rest(event: BreakerEvent) -> None:
    if event.after is State.OPEN:
        logger.warning(
            "seconds=<%.0f> | the breaker of the summarizer is open, importance decides what stays",
            _REST_SECONDS,
        )


class CoveredRange(NamedTuple):
    """Range of messages, from the beginning of a history, of which a summary is being written.

    The session stores the range, so that other processes do not summarize the same messages.

    Attributes:
        last: Tracking id of the last message of the range.
        begun: Time at which the work started, in seconds since the epoch.
    """

    last: str
    begun: float


class SummaryRun(NamedTuple):
    """Work on one summary of a conversation, in progress or finished.

    Attributes:
        task: Background task that writes the summary.
        key: Id of the last message to summarize, and name of the summarizer. Other agents of the
            process find the summary by this key.
        replaced: Ids and content hashes of the messages that the summary replaces.
        uses_summarizer: Whether a summarizer, such as a model, writes the summary, and not rules.
    """

    task: BackgroundTask[Summary]
    key: tuple[str, str]
    replaced: MessageVersions
    uses_summarizer: bool


_runs: deque[SummaryRun] = deque(maxlen=256)
"""Latest summaries begun in this process. No lock is needed: each call on a deque is atomic."""


def _find_run(key: tuple[str, str]) -> SummaryRun | None:
    found = (run for run in reversed(_runs.copy()) if run.key == key and not run.task.is_lost)
    return next(found, None)


@dataclass
class SummaryStats:
    """Counts of summaries, waits and tokens of a summarizing conversation manager.

    Attributes:
        runs: Number of summaries that were started.
        swapped: Number of summaries that replaced turns.
        discarded: Number of summaries that were not used, because the history had changed
            meanwhile.
        failed: Number of summaries without any usable text, because the summarizer refused, failed
            or invented facts.
        waits: Number of model calls that had to wait for a summary.
        warnings: Number of times that a warning was logged, because a summary was nearly due.
        attempts: Number of requests to the summarizer.
        tokens_spent: Tokens that the summarizer read and wrote.
        cache_hit_rate: Share of summary texts that were found in the cache. 0.0 without a cache.
        resting: Whether calls of the summarizer are paused, after several failures in a row.
        tokens_freed: Tokens by which summaries made the history smaller.
        enough: Number of summaries after which the history was smaller than ``trigger_tokens``.
    """

    runs: int = 0
    swapped: int = 0
    discarded: int = 0
    failed: int = 0
    waits: int = 0
    warnings: int = 0
    attempts: int = 0
    tokens_spent: int = 0
    cache_hit_rate: float = 0.0
    resting: bool = False
    tokens_freed: int = 0
    enough: int = 0


@dataclass(eq=False)
class SummaryJobs:
    """Writes summaries of a conversation in the background, and returns the finished summaries.

    If an agent ends before its summary is finished, the next agent of the conversation in this
    process uses the summary (see ``resume``). After three failures of the summarizer in a row,
    rules write the summaries for 5 minutes.

    Args:
        writer: Writer of the summaries.
        summarizer: Function that writes summary texts. None: the agent's ``aux_model``.
        clock: Function that returns monotonic seconds.

    Attributes:
        stats: Counts of summaries and waits, updated in place.
        covered: Range of messages of which this or another process writes a summary, or None.
    """

    writer: SummaryWriter
    summarizer: Summarizer | None
    clock: Clock
    stats: SummaryStats = field(default_factory=SummaryStats)
    covered: CoveredRange | None = None
    _pending: SummaryRun | None = None

    def __post_init__(self) -> None:
        self._breaker = CircuitBreaker(
            MOST_FAILURES,
            _REST_SECONDS,
            name="summarizer",
            clock=self.clock,
            on_event=_warn_of_rest,
        )

    @property
    def is_resting(self) -> bool:
        """Whether requests to the summarizer are paused, after several failures in a row."""
        return self._breaker.state is State.OPEN

    @property
    def has_pending(self) -> bool:
        """Whether this process writes a summary, or has one that is not in the history yet."""
        return self._pending is not None and not self._pending.task.is_lost

    def to_state(self) -> dict[str, Any]:
        """Return the state that :meth:`restore` restores, as JSON values to store.

        The state has the range of messages of which a summary is being written, and the recent
        failures of the summarizer.
        """
        state: dict[str, Any] = {}
        if self.covered is not None:
            state[_RUN] = self.covered._asdict()
        if failures := self._breaker.failures:
            wait = self._breaker.retry_after
            until = round(time.time() + wait, 3) if wait else 0
            state[_REST] = {"failures": failures, "until": until}
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the values that :meth:`to_state` returned. Unreadable values are ignored.

        If requests to the summarizer were paused, the pause goes on for at most five minutes.
        """
        failures, wait = 0, 0.0
        match state.get(_REST):
            case {"failures": int(failures), "until": int(until) | float(until)}:
                wait = min(_REST_SECONDS, until - time.time())
        self._breaker.restore(failures, wait)
        self.covered = None
        match state.get(_RUN):
            case {"last": str(last), "begun": int(begun) | float(begun)}:
                self.covered = CoveredRange(last, begun)

    def resume(self, agent: Agent) -> None:
        """Take over a summary that an earlier agent of this conversation began in this process.

        Without such a summary, nothing happens.
        """
        if not self.has_pending:
            self._pending = None
            if self.covered is not None:
                name = summarizer_name(self._summarizer_of(agent))
                self._pending = _find_run((self.covered.last, name))

    def is_overdue(self, seconds: float) -> bool:
        """Return whether another process has been writing a summary for ``seconds`` or longer.

        The other process may have ended, so this process may summarize the same messages.
        """
        return (
            self.covered is not None
            and not self.has_pending
            and abs(time.time() - self.covered.begun) >= seconds
        )

    def begin(self, span: SummarySpan, agent: Agent) -> None:
        """Start to summarize the old turns of a history in the background.

        A summary of the same messages that another agent of this process has begun is used instead.
        """
        replaced = message_versions(span.old)
        self.covered = CoveredRange(str(replaced[-1][0]), time.time())
        summarizer = self._summarizer_of(agent)
        key = self.covered.last, summarizer_name(summarizer)
        known = _find_run(key)
        if known is not None and known.replaced == replaced:
            self._pending = known
            return
        is_stateful = isinstance(summarizer, ModelSummarizer) and summarizer.model.stateful
        asked = None if self.is_resting or is_stateful else summarizer
        self.stats.runs += 1

        async def written() -> Summary:
            with measured(SUMMARY):
                return await self.writer.write(span.summary, span.unsummarized, asked)

        self._pending = SummaryRun(BackgroundTask(written), key, replaced, asked is not None)
        _runs.append(self._pending)

    def pop_finished(self) -> SummaryRun | None:
        """Return the current summary if it has been written, else None.

        A summary is returned only once. A summary that failed is discarded.
        """
        run = self._pending
        if run is None or not run.task.done():
            return None
        summary: Summary | None = None
        with logged_errors(logger, "no summary was written, leaving the history as it is"):
            summary = run.task.result()
        if summary is None:
            self.discard()
            self._count("failed")
            return None
        # The run stays among those of the process: this agent may end before its session has saved
        # the summary.
        self._pending = self.covered = None
        self.stats.attempts += summary.attempts
        self.stats.tokens_spent = max(self.stats.tokens_spent, summary.tokens)
        outcome = "failed" if summary.model == RULES else "written"
        self._count(outcome if run.uses_summarizer else "rested")
        return run

    def discard(self) -> None:
        """Discard the summary that is being written, or is written but not in the history yet."""
        if self._pending is not None:
            with suppress(ValueError):  # newer runs may have displaced it
                _runs.remove(self._pending)
        self._pending = self.covered = None

    async def wait(self, seconds: float) -> None:
        """Wait at most ``seconds`` seconds until the current summary has been written.

        The event loop is not blocked.
        """
        if self._pending is not None and not self._pending.task.done():
            self.stats.waits += 1
            if not await self._pending.task.wait(seconds):
                logger.warning(
                    "seconds=<%.0f> | the summary takes too long, going on without it", seconds
                )

    def join(self, seconds: float) -> bool:
        """Block until the current summary has been written, for at most ``seconds`` seconds.

        Returns:
            False if the summary was still being written after this time.
        """
        return self._pending is None or not self.has_pending or self._pending.task.join(seconds)

    def _summarizer_of(self, agent: Agent) -> Summarizer:
        return self.summarizer or ModelSummarizer(agent.aux_model)

    def _count(self, outcome: str) -> None:
        _run_counter.add(1, {"outcome": outcome})
        self.stats.failed += outcome == "failed"
        if outcome != "rested":
            self._breaker.record(succeeded=outcome == "written")
