"""SummarySwaps: begins summaries of an agent's older turns, and puts them in the place of those turns."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from strands_manga_memory.conversation.importance.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.summaries.folding import fold_of
from strands_manga_memory.conversation.summaries.summary_head import SummaryHead
from strands_manga_memory.conversation.summaries.summary_runs import Replacement, SummaryRuns
from strands_manga_memory.conversation.summaries.summary_stats import SummaryStats
from strands_manga_memory.conversation.summaries.trigger import Trigger
from strands_manga_memory.exceptions import CorruptRecordError

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)


class SummarySwaps:
    """Swaps old turns for summaries of them; what cannot be done leaves the history as it is."""

    def __init__(
        self,
        trimmer: ImportanceWeightedConversationManager,
        head: SummaryHead,
        runs: SummaryRuns,
        trigger: Trigger,
        stats: SummaryStats,
        *,
        keep_recent_turns: int,
    ) -> None:
        self._trimmer = trimmer
        self._head = head
        self._runs = runs
        self._trigger = trigger
        self._stats = stats
        self._keep_recent_turns = keep_recent_turns
        self._latest: Replacement | None = None

    def begin(self, agent: Agent, *, is_wanted: bool = False, patience: float = 0.0) -> None:
        """Begin a run if one is due and none is on its way.

        A run that was begun and is not in this process is begun again, for the same messages, after so many seconds of
        patience: what another process has written of it by then is in the cache of drafts.
        """
        self._runs.resume(agent)
        if self._runs.is_writing:
            return
        try:
            fold = fold_of(agent.messages[:], self._keep_recent_turns)
            begun = self._runs.covered and fold.until(self._runs.covered.last)
            if begun:
                if self._runs.is_overdue(patience):
                    self._runs.begin(begun, agent)
                return
            self._runs.forget()
            tokens = self._trimmer.tokens(agent.messages[:])
            self._trigger.watch(tokens)
            counted = self._trigger.tokens if is_wanted else tokens
            if self._trigger.is_due(fold, counted, fresh_tokens=lambda: self._trimmer.tokens(fold.fresh)):
                self._runs.begin(fold, agent)
        except Exception as error:
            logger.warning("error=<%s> | no summary could be begun, leaving the history as it is", type(error).__name__)
            logger.debug("no summary could be begun", exc_info=True)

    def swap_in(self, agent: Agent) -> None:
        """Put a finished summary in the place of the turns it covers, in one step, if they are still the same."""
        self._runs.resume(agent)
        if not self._runs.is_done:
            self._swap_in_again(agent)
        elif (replacement := self._runs.take()) is not None:
            try:
                if self._fits(replacement, agent):
                    before = self._trimmer.tokens(agent.messages)
                    self._put_in(agent, replacement)
                    after = self._trimmer.tokens(agent.messages)
                    self._stats.swapped += 1
                    self._stats.tokens_freed += before - after
                    self._stats.enough += after < self._trigger.tokens
                else:
                    self._stats.discarded += 1
                    logger.debug("the history has changed meanwhile | the summary is not used")
            except Exception as error:
                logger.warning("error=<%s> | the summary could not be used, leaving the history as it is", type(error).__name__)
                logger.debug("the summary could not be used", exc_info=True)

    def _swap_in_again(self, agent: Agent) -> None:
        """Use the latest summary again if the turns it covers are back: another process saved its window before ours."""
        latest = self._latest
        try:
            if latest is not None and self._fits(latest, agent):
                self._put_in(agent, latest)
        except Exception as error:
            logger.warning(
                "error=<%s> | the summary could not be used again, leaving the history as it is", type(error).__name__
            )
            logger.debug("the summary could not be used again", exc_info=True)

    def _fits(self, replacement: Replacement, agent: Agent) -> bool:
        """Whether the history begins with the turns a summary is for, and the recent ones stand behind them."""
        history = agent.messages[:]
        return replacement.fits(history) and len(replacement.marks) <= fold_of(history, self._keep_recent_turns).before_recent

    def _put_in(self, agent: Agent, replacement: Replacement) -> None:
        history, summary = agent.messages[:], replacement.summary
        room = min(self._trimmer.max_tokens, self._trigger.tokens * 7 // 8)
        head, gone = self._head.of(summary, history, len(replacement.marks), room=room)
        agent.messages[: len(replacement.marks)] = head
        self._latest = replacement
        self._trigger.reset()
        self._trimmer.trimming.evicted(gone)
        logger.debug("covered=<%d>, turns=<%d> | a summary took the place of old turns", len(gone), summary.turns)

    def fold_at_once(self, agent: Agent, budget: int, *, only_fresh: bool = False) -> None:
        """Turn what is before the recent turns into facts, now and without a model; if wanted, only what no summary covers."""
        try:
            history = agent.messages[:]
            fold = fold_of(history, self._keep_recent_turns)
            if not fold.fresh and (only_fresh or not fold.shown):
                return
            summary = self._runs.at_once(fold)
            head, gone = self._head.of(summary, history, fold.before_recent, room=budget, is_tight=True)
            if only_fresh or self._trimmer.tokens(head) < self._trimmer.tokens(history[: fold.before_recent]):
                agent.messages[: fold.before_recent] = head
                self._trimmer.trimming.evicted(gone)
        except CorruptRecordError:
            logger.warning("the record of the summary cannot be read | it is left as it is")
        except Exception as error:
            logger.warning("error=<%s> | the facts could not be written, leaving the history as it is", type(error).__name__)
            logger.debug("the facts could not be written", exc_info=True)
