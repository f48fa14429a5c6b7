"""Parts of summarizing: when a summary is due, which messages it covers, and its runs in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from opentelemetry import metrics
from strands.types.content import Message

from strands_manga_memory.arguments import function, whole
from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker, State
from strands_manga_memory.conversation.background import Run
from strands_manga_memory.conversation.scoring import Band
from strands_manga_memory.conversation.selection import is_pinned
from strands_manga_memory.conversation.summary_record import RULES, Summary, is_synthesized, record_of
from strands_manga_memory.conversation.summary_writing import ModelSummarizer, SummaryWriter, summarizer_name
from strands_manga_memory.forks import renew_in_child
from strands_manga_memory.language.session_summaries import Summarizer
from strands_manga_memory.messages import content_fingerprint, is_turn_start, turns
from strands_manga_memory.telemetry import SUMMARY, measured
from strands_manga_memory.telemetry.events import SUMMARY_RUNS

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)

# --- Policies -----------------------------------------------------------------------------------------------------------------


Strategy = Literal["background", "async", "inline"]
"""Waiting for a due summary: not at all, in the next model call, or in the turn that made it due."""


@dataclass(frozen=True, kw_only=True)
class SummaryTrigger:
    """Conditions for a summary, and the number of recent turns that stay unsummarized.

    The trimmer is the conversation manager that evicts messages when the history is over its budget.

    Attributes:
        tokens: Tokens of history at which older turns are summarized. None: nearly twice the trimmer's budget, at most half the
            context window of the agent's model. Default 8,000.
        turns: Number of turns without a summary at which older turns are summarized. Default 20.
        keep_recent_turns: Number of latest turns that are not summarized, including the current turn. Default 3.
        hard_tokens: Tokens of history at which a model call waits for the summary. Default: one and a half times ``tokens``.
        on_warning: Function that is called with the tokens of the history and of the trigger when the history comes near the
            trigger.

    Raises:
        ValueError: A number is not positive, ``hard_tokens`` is below ``tokens``, or ``on_warning`` is not a function.
    """

    tokens: int | None = 8_000
    turns: int = 20
    keep_recent_turns: int = 3
    hard_tokens: int | None = None
    on_warning: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        numbers = {"turns": self.turns, "keep_recent_turns": self.keep_recent_turns}
        numbers |= {} if self.tokens is None else {"tokens": self.tokens}
        numbers |= {} if self.hard_tokens is None else {"hard_tokens": self.hard_tokens}
        for name, number in numbers.items():
            whole(name, number, least=1)
        if self.hard_tokens is not None and self.tokens is None:
            raise ValueError(f"hard_tokens must be None if tokens is None, got {self.hard_tokens!r:.80}")
        if self.hard_tokens is not None and self.tokens is not None and self.hard_tokens < self.tokens:
            raise ValueError(f"hard_tokens must be at least tokens ({self.tokens}), got {self.hard_tokens!r:.80}")
        if self.on_warning is not None:
            function("on_warning", self.on_warning)


@dataclass(frozen=True, kw_only=True)
class SummarySchedule:
    """Rules for waiting for summaries.

    The trimmer is the conversation manager that evicts messages when the history is over its budget.

    Attributes:
        strategy: ``background`` (default): the summary is written in the background. ``async``: the next model call waits for
            the summary, without blocking the event loop. ``inline``: the turn ends only when the summary is written; this
            blocks the event loop.
        wait_seconds: Longest wait for a summary, in seconds. The trimmer then makes room. Default 30.
        rest_seconds: Seconds without a call of the summarizer after three failures in a row. Default 300.

    Raises:
        ValueError: ``strategy`` is none of these, or a time is below 0.
    """

    strategy: Strategy = "background"
    wait_seconds: float = 30.0
    rest_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise ValueError(f"strategy must be one of {', '.join(map(repr, get_args(Strategy)))}, got {self.strategy!r:.80}")
        for name, seconds in (("wait_seconds", self.wait_seconds), ("rest_seconds", self.rest_seconds)):
            if not seconds >= 0:
                raise ValueError(f"{name} must be 0 or more, got {seconds!r:.80}")


# --- Covered messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SummarySpan:
    """A history divided into summarized turns, turns without a summary, and recent turns.

    Attributes:
        summary: The summary that the history contains. None if there is no summary.
        shown: Messages that contain the text of the summary.
        kept: Messages that the summary covers, but that stayed in the history.
        fresh: Messages of older turns that no summary covers yet.
        recent: Messages of the latest turns, which are not summarized.
    """

    summary: Summary | None
    shown: tuple[Message, ...]
    kept: tuple[Message, ...]
    fresh: tuple[Message, ...]
    recent: tuple[Message, ...]

    @property
    def before_recent(self) -> int:
        """Number of messages before the recent turns."""
        return len(self.shown) + len(self.kept) + len(self.fresh)

    @property
    def uncovered_turns(self) -> int:
        """Number of turns that no summary covers, including the recent turns."""
        return sum(is_turn_start(message) for message in (*self.fresh, *self.recent))

    def until(self, last: str) -> SummarySpan | None:
        """Return a span whose recent part begins after the message ``last``. None if ``last`` is no unsummarized message."""
        for at, message in enumerate(self.fresh):
            if message.get("tracking_id") == last:
                return replace(self, fresh=self.fresh[: at + 1], recent=(*self.fresh[at + 1 :], *self.recent))
        return None


Marks = list[tuple[str | None, int]]
"""Id and fingerprint of each message that a summary replaces."""


def marks(messages: Iterable[Message]) -> Marks:
    """Return the id and the fingerprint of each message."""
    return [(message.get("tracking_id"), content_fingerprint(message)) for message in messages]


def split_history(history: Sequence[Message], keep_recent_turns: int) -> SummarySpan:
    """Divide a history into summarized turns, turns without a summary, and recent turns.

    Raises:
        CorruptRecordError: The summary record is malformed, or a newer version wrote it.
    """
    found = turns(history)
    split = found[-keep_recent_turns].start if len(found) > keep_recent_turns else 0
    summary: Summary | None = None
    for message in history:
        summary = record_of(message) or summary
    covered = frozenset(summary.kept) if summary else frozenset()
    parts: dict[str, list[Message]] = {"shown": [], "kept": [], "fresh": []}
    for message in history[:split]:
        where = "shown" if is_synthesized(message) else "kept" if message.get("tracking_id") in covered else "fresh"
        parts[where].append(message)
    return SummarySpan(summary, tuple(parts["shown"]), tuple(parts["kept"]), tuple(parts["fresh"]), tuple(history[split:]))


def select_kept(
    messages: Sequence[Message],
    room: int,
    *,
    bands: Sequence[Band],
    band_of: Callable[[Message], Band],
    tokens_of: Callable[[Sequence[Message]], int],
    outdated: Collection[str] = (),
) -> list[Message]:
    """Return the summarized messages that stay in the history.

    Pinned messages always stay, with the other messages of their turns. As long as there are ``room`` tokens, other whole turns
    stay too. Turns of the first importance level in ``bands`` are selected first, and newer turns before older turns.

    A turn with ``outdated`` messages, which a later message corrected, stays only if it is pinned. Otherwise the model would
    read the turn after the facts of the summary, and would take the outdated turn as current.
    """
    found = [(turn, messages[turn.start : turn.stop]) for turn in turns(messages)]
    kept = {at for turn, own in found if any(map(is_pinned, own)) for at in turn}
    room -= tokens_of([messages[at] for at in kept])
    for band in bands:
        for turn, own in reversed(found):
            if any(message.get("tracking_id") in outdated for message in own):
                continue
            if kept.isdisjoint(turn) and max(map(band_of, own)) is band and (tokens := tokens_of(own)) <= room:
                kept.update(turn)
                room -= tokens
    return [messages[at] for at in sorted(kept)]


# --- Failures of the summarizer -----------------------------------------------------------------------------------------------


MOST_FAILURES = 3

_run_counter = metrics.get_meter("strands_manga_memory").create_counter(
    SUMMARY_RUNS.name, unit=SUMMARY_RUNS.unit, description=SUMMARY_RUNS.description
)


def summarizer_breaker(seconds: float = 300.0, clock: Callable[[], float] = time.monotonic) -> CircuitBreaker:
    """Return the circuit breaker of a summarizer. It opens for ``seconds`` seconds after three failures in a row."""

    def warn(event: BreakerEvent) -> None:
        if event.after is State.OPEN:
            logger.warning(
                "failures=<%d>, seconds=<%.0f> | the breaker of the summarizer is open, importance decides what stays",
                breaker.failures,
                seconds,
            )

    breaker = CircuitBreaker(MOST_FAILURES, seconds, name="summarizer", clock=clock, on_event=warn)
    return breaker


def breaker_to_state(breaker: CircuitBreaker) -> dict[str, Any]:
    """Return the state of a circuit breaker as JSON values: failures in a row, and end of the wait in epoch seconds."""
    wait = breaker.retry_after
    return {"failures": breaker.failures, "until": round(time.time() + wait, 3) if wait else None}


def restore_breaker(breaker: CircuitBreaker, state: Any, longest: float) -> None:
    """Restore a circuit breaker from the state that ``breaker_to_state`` returned.

    An unreadable state counts as no failures. The remaining wait is at most ``longest`` seconds.
    """
    state = state if isinstance(state, Mapping) else {}
    failures, ends_at = state.get("failures"), state.get("until")
    left = min(longest, ends_at - time.time()) if isinstance(ends_at, int | float) else 0.0
    breaker.restore(failures if isinstance(failures, int) else 0, left)


# --- Runs ---------------------------------------------------------------------------------------------------------------------


_MOST_RUNS = 256
"""Most runs in the registry. The least recently used run is removed first."""


@dataclass(frozen=True)
class CoveredRange:
    """Range of messages that a summary run covers.

    The conversation manager's state contains the range, so that other processes know of the run.

    Attributes:
        first: Tracking id of the first message of the range.
        last: Tracking id of the last message of the range.
        begun: Start of the run, in seconds since the epoch.
    """

    first: str
    last: str
    begun: float

    def to_state(self) -> dict[str, Any]:
        """Return the range as JSON values."""
        return {"first": self.first, "last": self.last, "begun": self.begun}

    @classmethod
    def from_state(cls, state: Any) -> CoveredRange | None:
        """Read a range from JSON values. None if the values are missing or unreadable."""
        if not isinstance(state, Mapping):
            return None
        first, last, begun = (state.get(name) for name in ("first", "last", "begun"))
        if not (isinstance(first, str) and isinstance(last, str) and isinstance(begun, int | float)):
            return None
        return cls(first, last, float(begun))


@dataclass(frozen=True)
class SharedRun:
    """A summary run, with the messages that its summary replaces.

    Attributes:
        run: The background run that writes the summary.
        key: Key by which ``SharedRuns`` finds the run.
        marks: Ids and fingerprints of the messages that the summary replaces.
        asked: Whether the run asks a summarizer. If not, the run extracts facts by rules.
    """

    run: Run[Summary]
    key: Hashable
    marks: Marks
    asked: bool


class SharedRuns:
    """Registry of the latest summary runs of all agents in this process, including ended runs."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Clear the registry in a forked child process.

        The threads of the runs exist only in the parent process. One of them may have held the lock during the fork.
        """
        self._lock = threading.Lock()
        self._runs: OrderedDict[Hashable, SharedRun] = OrderedDict()

    def find(self, key: Hashable) -> SharedRun | None:
        """Return the run with a key. None if there is no such run, or if it was started before this process was forked."""
        with self._lock:
            found = self._runs.get(key)
            if found is not None and found.run.is_lost:
                del self._runs[key]
                return None
            if found is not None:
                self._runs.move_to_end(key)
            return found

    def add(self, shared: SharedRun) -> None:
        """Add a run. It replaces a run with the same key."""
        with self._lock:
            self._runs[shared.key] = shared
            self._runs.move_to_end(shared.key)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)

    def discard(self, shared: SharedRun) -> None:
        """Remove a run."""
        with self._lock:
            if self._runs.get(shared.key) is shared:
                del self._runs[shared.key]


shared_runs = SharedRuns()
"""Registry of the summary runs of this process."""


@dataclass
class SummaryStats:
    """Counts of summaries, waits and tokens of a summarizing manager.

    Attributes:
        runs: Number of summaries that were started.
        swapped: Number of summaries that replaced turns.
        discarded: Number of summaries that were not used, because the history had changed meanwhile.
        failed: Number of runs without any usable text, because the summarizer refused, failed or invented facts.
        waits: Number of model calls that had to wait for a summary.
        warnings: Number of times that the history came near the trigger (the tokens at which a summary is due).
        attempts: Number of requests to the summarizer.
        tokens_spent: Tokens that the summarizer read and wrote.
        cache_hit_rate: Share of summary texts that were found in the cache. 0.0 without a cache.
        resting: Whether the circuit breaker of the summarizer is open.
        tokens_freed: Tokens by which summaries made the history smaller.
        enough: Number of summaries that brought the history below the trigger.
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


class SummaryJobs:
    """Starts the summary runs of a conversation, and returns finished summaries.

    A run belongs to the conversation: the next agent of the conversation in this process continues it. The agent's
    ``aux_model`` writes the summaries if there is no summarizer.

    Attributes:
        covered: Range of messages of the current run, which another agent or process may have started. None if there is no run.
    """

    def __init__(
        self,
        writer: SummaryWriter,
        summarizer: Summarizer | None,
        breaker: CircuitBreaker,
        stats: SummaryStats,
    ) -> None:
        self._writer = writer
        self._summarizer = summarizer
        self._breaker = breaker
        self._stats = stats
        self._pending: SharedRun | None = None
        self.covered: CoveredRange | None = None

    def resume(self, agent: Agent) -> None:
        """Continue the run that an earlier agent object of this conversation started in this process."""
        if self._pending is not None and self._pending.run.is_lost:
            self._pending = None
        if self._pending is None and self.covered is not None:
            self._pending = shared_runs.find(self._key(self.covered.first, self.covered.last, agent))

    def is_overdue(self, seconds: float) -> bool:
        """Return whether a run of another process was started at least ``seconds`` seconds ago."""
        return self.covered is not None and not self.is_writing and abs(time.time() - self.covered.begun) >= seconds

    @property
    def is_writing(self) -> bool:
        """Whether a run is active, or a finished summary has not been used yet."""
        return self._pending is not None and not self._pending.run.is_lost

    @property
    def is_done(self) -> bool:
        """Whether the current run has ended, with a summary or an error, and its result has not been taken yet."""
        return self._pending is not None and self._pending.run.is_done

    def begin(self, span: SummarySpan, agent: Agent) -> None:
        """Start a run that summarizes the messages before the recent turns, or join a run of this process for them."""
        replaced = marks((*span.shown, *span.kept, *span.fresh))
        first, last = (str(replaced[at][0]) for at in (0, -1))
        self.covered = CoveredRange(first, last, time.time())
        key = self._key(first, last, agent)
        known = shared_runs.find(key)
        if known is not None and known.marks == replaced:
            self._pending = known
            return
        summarizer = self._summarizer or ModelSummarizer(agent.aux_model)
        is_stateful = isinstance(summarizer, ModelSummarizer) and summarizer.model.stateful
        asked = self._breaker.state is not State.OPEN and not is_stateful
        self._stats.runs += 1

        async def written() -> Summary:
            with measured(SUMMARY):
                return await self._writer.write(span.summary, span.fresh, summarizer if asked else None)

        self._pending = SharedRun(Run(written), key, replaced, asked)
        shared_runs.add(self._pending)

    def take(self) -> tuple[Summary, Marks] | None:
        """Return the summary of an ended run, and the messages it replaces. None if no run has ended, or if the run failed."""
        pending = self._pending
        if pending is None or not pending.run.is_done:
            return None
        # The run stays among those of the process: this agent may end before its session has saved the summary.
        self._pending = self.covered = None
        try:
            summary = pending.run.result(0)
        except Exception as error:
            logger.warning("error=<%s> | no summary was written, leaving the history as it is", type(error).__name__)
            logger.debug("no summary was written", exc_info=True)
            shared_runs.discard(pending)
            self._count_failure()
            return None
        self._note(summary, asked=pending.asked)
        return summary, pending.marks

    def forget(self) -> None:
        """Discard the current run, because the history was replaced."""
        if self._pending is not None:
            shared_runs.discard(self._pending)
        self._pending = self.covered = None

    async def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` seconds for the current run, without blocking the event loop."""
        if self._pending is not None and not self._pending.run.is_done:
            self._stats.waits += 1
            if not await self._pending.run.wait(seconds):
                logger.warning("seconds=<%.0f> | the summary takes too long, going on without it", seconds)

    def finish(self, seconds: float) -> bool:
        """Block up to ``seconds`` seconds until the current run has ended. Return whether it has ended."""
        if self._pending is None or self._pending.run.is_lost:
            return True
        try:
            self._pending.run.result(seconds)
        except TimeoutError:
            return self._pending.run.is_done
        except Exception as error:  # noqa: BLE001 - taking it tells what went wrong
            logger.debug("error=<%s> | the summary was not written", type(error).__name__)
        return True

    def _key(self, first: str, last: str, agent: Agent) -> Hashable:
        summarizer = self._summarizer or ModelSummarizer(agent.aux_model)
        return first, last, summarizer_name(summarizer), self._writer.sizes

    def _note(self, summary: Summary, *, asked: bool) -> None:
        self._stats.attempts += summary.attempts
        self._stats.tokens_spent = max(self._stats.tokens_spent, summary.tokens)
        if not asked:
            _run_counter.add(1, {"outcome": "rested"})
        elif summary.model == RULES:
            self._count_failure()
        else:
            _run_counter.add(1, {"outcome": "written"})
            self._breaker.record(succeeded=True)

    def _count_failure(self) -> None:
        self._stats.failed += 1
        _run_counter.add(1, {"outcome": "failed"})
        self._breaker.record(succeeded=False)
