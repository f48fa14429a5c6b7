"""SummaryRuns: makes the summaries of one conversation, one at a time, beside it."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strands.types.content import Message

from strands_manga_memory.conversation.background import Run
from strands_manga_memory.conversation.history.summary import RULES, Summary
from strands_manga_memory.conversation.summaries import shared_runs
from strands_manga_memory.conversation.summaries.folding import Fold, marks
from strands_manga_memory.conversation.summaries.rest import Rest
from strands_manga_memory.conversation.summaries.shared_runs import CoveredRange, SharedRun
from strands_manga_memory.conversation.summaries.summary_head import SummaryHead
from strands_manga_memory.conversation.summaries.summary_stats import SummaryStats
from strands_manga_memory.conversation.summaries.writing.summarizers import ModelSummarizer, name_of
from strands_manga_memory.conversation.summaries.writing.writing import SummaryWriter
from strands_manga_memory.language.session_summaries import Summarizer
from strands_manga_memory.telemetry import SUMMARY, measured

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replacement:
    """A summary, and what tells the part of the history it takes the place of: ids and fingerprints."""

    summary: Summary
    marks: Sequence[tuple[str | None, int]]

    def fits(self, history: Sequence[Message]) -> bool:
        """Whether a history still begins with the messages that the summary is for."""
        if len(history) < len(self.marks) or not self.marks or history[0].get("tracking_id") != self.marks[0][0]:
            return False
        return marks(history[: len(self.marks)]) == self.marks


class SummaryRuns:
    """Begins summaries and hands out those that are finished; leaves a failing summarizer alone for a while.

    Without a summarizer the agent's ``aux_model`` writes. A run belongs to the conversation: an agent that goes on with it in
    this process takes up the run of the agent before.

    Attributes:
        covered: The messages of the run that has been begun, perhaps by another agent or process; None if there is none.
    """

    def __init__(
        self, head: SummaryHead, writer: SummaryWriter, summarizer: Summarizer | None, rest: Rest, stats: SummaryStats
    ) -> None:
        self._head = head
        self._writer = writer
        self._summarizer = summarizer
        self._rest = rest
        self._stats = stats
        self._pending: SharedRun | None = None
        self.covered: CoveredRange | None = None

    def resume(self, agent: Agent) -> None:
        """Take up the run that an earlier agent of this conversation has begun in this process."""
        if self._pending is not None and self._pending.run.is_lost:
            self._pending = None
        if self._pending is None and self.covered is not None:
            self._pending = shared_runs.runs.find(self._key(self.covered.first, self.covered.last, agent))

    def is_overdue(self, seconds: float) -> bool:
        """Whether a run was begun at least so many seconds ago, and is not in this process."""
        return self.covered is not None and not self.is_writing and abs(time.time() - self.covered.begun) >= seconds

    @property
    def is_writing(self) -> bool:
        """Whether a summary is on its way, or waits to be taken."""
        return self._pending is not None and not self._pending.run.is_lost

    @property
    def is_done(self) -> bool:
        """Whether a run has ended, well or badly, and waits to be taken."""
        return self._pending is not None and self._pending.run.is_done

    def begin(self, fold: Fold, agent: Agent) -> None:
        """Begin the summary of what is before the recent turns."""
        marks = fold.marks()
        first, last = (str(marks[at][0]) for at in (0, -1))
        self.covered = CoveredRange(first, last, time.time())
        key = self._key(first, last, agent)
        known = shared_runs.runs.find(key)
        if known is not None and known.marks == marks:
            self._pending = known
            return
        summarizer = self._summarizer or ModelSummarizer(agent.aux_model)
        asked = not self._rest.is_resting and not (isinstance(summarizer, ModelSummarizer) and summarizer.model.stateful)
        self._stats.runs += 1

        async def written() -> Summary:
            with measured(SUMMARY):
                summary = await self._writer.write(fold.summary, fold.fresh, summarizer if asked else None)
                self._head.prepare(summary)
                return summary

        self._pending = SharedRun(Run(written), key, marks, asked)
        shared_runs.runs.add(self._pending)

    def at_once(self, fold: Fold) -> Summary:
        """Return the summary of what is before the recent turns, now and without a model; a run on its way is forgotten."""
        self.forget()
        return self._writer.from_rules(fold.summary, fold.fresh)

    def take(self) -> Replacement | None:
        """Return what a run that has ended wrote; None if none has, or it failed."""
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
            shared_runs.runs.discard(pending)
            self._stats.failed += 1
            self._rest.failed()
            return None
        self._note(summary, asked=pending.asked)
        return Replacement(summary, pending.marks)

    def forget(self) -> None:
        """Forget the run on its way: it is for another history."""
        if self._pending is not None:
            shared_runs.runs.discard(self._pending)
        self._pending = self.covered = None

    async def wait(self, seconds: float) -> None:
        """Wait for the run on its way, at most so many seconds, without blocking the event loop."""
        if self._pending is not None and not self._pending.run.is_done:
            self._stats.waits += 1
            if not await self._pending.run.wait(seconds):
                logger.warning("seconds=<%.0f> | the summary takes too long, going on without it", seconds)

    def finish(self, seconds: float) -> bool:
        """Wait for the run on its way, at most so many seconds; return whether none is on its way any more."""
        if self._pending is None or self._pending.run.is_lost:
            return True
        try:
            self._pending.run.result(seconds)
        except TimeoutError:
            return self._pending.run.is_done
        except Exception as error:  # noqa: BLE001 - taking it tells what went wrong
            logger.debug("error=<%s> | the summary was not written", type(error).__name__)
        return True

    def stats(self) -> SummaryStats:
        """Return what was done so far."""
        return replace(self._stats, resting=self._rest.is_resting)

    def _key(self, first: str, last: str, agent: Agent) -> Hashable:
        summarizer = self._summarizer or ModelSummarizer(agent.aux_model)
        return first, last, name_of(summarizer), self._head.sizes

    def _note(self, summary: Summary, *, asked: bool) -> None:
        self._stats.attempts += summary.attempts
        self._stats.tokens_spent = max(self._stats.tokens_spent, summary.tokens)
        if not asked:
            self._rest.rested()
        elif summary.model == RULES:
            self._stats.failed += 1
            self._rest.failed()
        else:
            self._rest.succeeded()
