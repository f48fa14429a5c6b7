"""Conversation manager that replaces old turns by verified summaries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.hooks import (
    AgentInitializedEvent,
    BeforeModelCallEvent,
    HookOrder,
    HookRegistry,
)
from strands.models import Model
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import Clock, PositiveInt, checked, with_repr
from strands_manga_memory.conversation.budget import window_of
from strands_manga_memory.conversation.importance_manager import (
    ImportanceWeightedConversationManager,
    StackedConversationManager,
)
from strands_manga_memory.conversation.selection import is_pinned
from strands_manga_memory.conversation.summaries import (
    SummaryJobs,
    SummaryRun,
    SummarySchedule,
    SummarySpan,
    SummaryStats,
    SummaryTrigger,
    message_versions,
    split_at,
    split_history,
)
from strands_manga_memory.conversation.summary_record import Summary, is_synthesized, render_summary
from strands_manga_memory.conversation.summary_writing import (
    Log,
    ModelSummarizer,
    SummaryCache,
    SummaryWriter,
)
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.language.entities import SHOP, EntityTypes
from strands_manga_memory.language.session_summaries import Summarizer
from strands_manga_memory.language.summary_facts import FactExtractor, RuleFactExtractor
from strands_manga_memory.messages import id_of, turns

if TYPE_CHECKING:
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

_WARNED = "summary_warned"
"""Key in the saved state: whether a warning was logged that the history will be summarized."""

_WORTH_A_RUN = 8
"""Divisor: a large history is summarized if at least 1/8 of the trigger size is unsummarized."""

_TRIGGER, _MAX_TOKENS = 8_000, 4_096
"""Default tokens at which a history is summarized, and default budget after a summary."""


@with_repr("trigger_tokens", "trigger_turns")
class VerifiedSummarizingConversationManager(StackedConversationManager):
    """Conversation manager that replaces old turns by a verified summary.

    When the history reaches a trigger size, a summary of the old turns is written in the
    background. The summary replaces these turns before a later model call, if the turns have not
    changed. By default, a model call waits for the summary only if the history exceeds a second
    limit, which is one and a half times the trigger size.

    The summary contains the facts of the summarized turns, either in its text or in a list below
    the text. Facts are preferences, corrections, decisions, open questions, promises, outcomes, and
    statements of the user. If there is no room for all facts, the least important ones are left
    out.

    Each draft of the text is checked. A draft is rejected if it refuses, gives instructions,
    invents facts, is empty or is too long. After three summaries without a usable draft, the
    summarizer is not called for a while. Meanwhile, summaries consist of facts only.

    One manager serves one agent. After a restart, the manager restores exactly the history that the
    agent had.

    Args:
        trigger: Conditions for a summary. Default: from 8,000 tokens or 20 turns on; the last 3
            turns stay whole.
        model: The summarizer: a Strands model, or a function of a ``Prompt``. Default: the agent's
            ``aux_model``, which is the agent's own model if no other is set.
        summary_tokens: Maximum tokens of a summary. Default 500. Facts that do not fit are shown in
            another message, which may use up to half of the history's budget.
        schedule: Settings for waiting for a summary, and for a warning before the summary. Default:
            summaries are written in the background.
        facts: Extractor of the facts that a summary must contain. Default: rules in English and
            Japanese.
        types: Types of values, such as prices, that a summary must not invent. Default: those of a
            book shop.
        trimmer: Manager that evicts messages when there is nothing to summarize. Its ``max_tokens``
            is the budget of the history after a summary. Default:
            ``ImportanceWeightedConversationManager`` with 4,096 tokens, or ``trigger.tokens`` if
            that is less. ``max_tokens=None`` means at most this default.
        log: Function that returns all raw messages of the conversation, as a session stores them,
            such as ``session_manager.history``. From these messages, the summarizer rewrites older
            parts of a summary as one shorter text. Without a log, older parts lose sentences when
            the summary is full. The facts in these sentences are listed below the text.
        cache: Cache of summary texts, for equal requests to the summarizer. Default: no cache.
        clock: Function that returns monotonic seconds.
        proactive_compression: Whether to reduce the history when the model's context window is
            almost full, as in Strands' own managers.

    Attributes:
        trigger_tokens: Tokens of the history at which older turns are summarized.
        trigger_turns: Number of turns without a summary at which older turns are summarized.

    Raises:
        ValueError: An argument is out of range or has the wrong type. From the agent's constructor:
            the manager already serves another agent.
    """

    @checked
    def __init__(
        self,
        trigger: SummaryTrigger | None = None,
        *,
        model: Model | Summarizer | None = None,
        summary_tokens: PositiveInt = 500,
        schedule: SummarySchedule | None = None,
        facts: FactExtractor | None = None,
        types: EntityTypes = SHOP,
        trimmer: ImportanceWeightedConversationManager | None = None,
        log: Log | None = None,
        cache: SummaryCache | None = None,
        clock: Clock = time.monotonic,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        trigger = trigger or SummaryTrigger()
        if trimmer is None:
            trimmer = ImportanceWeightedConversationManager(
                min(_MAX_TOKENS, trigger.tokens or _MAX_TOKENS)
            )
        super().__init__(trimmer, trimmer, proactive_compression=proactive_compression)
        self.trigger_turns, self.keep_recent_turns = trigger.turns, trigger.keep_recent_turns
        self.schedule = schedule or SummarySchedule()
        self.cache = cache
        self._trigger = trigger
        self._has_warned = False
        self._most_facts = trimmer.max_tokens // 2
        self._installed: SummaryRun | None = None
        self._writer = SummaryWriter(
            trimmer.counter, facts or RuleFactExtractor(types), types, summary_tokens, log, cache
        )
        if isinstance(model, Model):
            model = ModelSummarizer(model)
        self._jobs = SummaryJobs(self._writer, model, clock)
        self._derive_limits(None)

    # --- Hooks ------------------------------------------------------------------------------------

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks that put summaries into the history and that trim the history.

        One of the hooks reads the summary of a restored history. An unreadable summary thus raises
        an error in the agent's constructor, not in a later turn.
        """
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._start, order=HookOrder.SDK_LAST)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        # An unreadable record raises now, not in a turn.
        split_history(event.agent.messages, self.keep_recent_turns)
        self._derive_limits(window_of(event.agent.model))

    def _derive_limits(self, window: int | None) -> None:
        """Set the token limits of history, summary and facts for a context window."""
        follows_window = self.trimmer.follows_window
        tokens, budget = self._trigger.tokens, self.trimmer.max_tokens
        if follows_window:  # the summary replaces more
            budget = min(budget, _MAX_TOKENS)
        if tokens is None:
            tokens = budget * _TRIGGER // _MAX_TOKENS
            tokens = tokens if window is None else min(tokens, max(budget, window // 2))
        if follows_window:
            budget = min(budget, tokens)
            limit = max(1, min(self._writer.summary_tokens, budget // 4))
            self._writer.summary_tokens = limit
        self.set_limits(tokens, budget, tokens * 3 // 2)

    async def _before_model_call(self, event: BeforeModelCallEvent | ContextState) -> None:
        agent = event.agent
        await self._history.run_off_loop(agent.messages, lambda: self._begin_if_full(agent))
        with logged_errors(logger, "the summary could not be waited for, going on without it"):
            if self.schedule.strategy == "async" or self._is_full(agent):
                await self._jobs.wait(self.schedule.wait_seconds)
        await self._history.run_off_loop(agent.messages, lambda: self._swap_in(agent))
        if self._is_full(agent):
            # Before trimming, rules extract the facts of the turns without a summary.
            await asyncio.to_thread(
                self.replace_by_facts, agent, self.trimmer.max_tokens, only_unsummarized=True
            )

    def _begin_if_full(self, agent: Agent) -> None:
        self._swap_in(agent)
        is_full, seconds = self._is_full(agent), self.schedule.wait_seconds
        if is_full or self._jobs.is_overdue(seconds):
            self._begin(agent, patience=0.0 if is_full else seconds)

    def _is_full(self, agent: Agent) -> bool:
        messages = agent.messages[:]
        return self._history.tokens(messages) > self.hard_tokens + self._history.headroom(
            messages, self.hard_tokens
        )

    # --- The contract of a conversation manager ---------------------------------------------------

    def _manage(self, agent: Agent) -> None:
        self._swap_in(agent)
        self._begin(agent, patience=self.schedule.wait_seconds)
        if self.schedule.strategy == "inline":
            self.finish(agent, self.schedule.wait_seconds)

    def get_state(self) -> dict[str, Any]:
        """Return the state of this manager, which the session manager saves.

        If a summary is being written, the state contains its start time and the id of the last
        message to summarize. The recent failures of the summarizer are included, too.
        """
        warned = {_WARNED: True} if self._has_warned else {}
        return super().get_state() | self._jobs.to_state() | warned

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Restore a state that :meth:`get_state` returned.

        Raises:
            ValueError: Another conversation manager saved the state.
            CorruptRecordError: The state is malformed, or another version of this package wrote it.
        """
        super().restore_from_session(state)
        self._jobs.restore(state)
        self._has_warned = state.get(_WARNED) is True
        return None

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller when the model's context window is full, or nearly full.

        Old turns are replaced by a summary if one is finished, and otherwise by facts that rules
        extract. If that frees too little, the trimmer (the wrapped conversation manager) evicts
        messages.

        Args:
            agent: The agent. Its list of messages is changed in place.
            e: The overflow error, or None. With an error, a summary or facts must free a quarter of
                the history. Without an error, any freed tokens are enough.
            **kwargs: Passed to the trimmer.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and nothing could be freed.
        """
        before = self._history.tokens(agent.messages)
        self._swap_in(agent)
        if self._history.tokens(agent.messages) == before:
            self.replace_by_facts(agent, before // 2)
        freed = before - self._history.tokens(agent.messages)
        if freed * 4 >= before or (e is None and freed > 0):
            return
        try:
            self.trimmer.reduce_context(agent, e, **kwargs)
        except ContextWindowOverflowException:
            if freed <= 0:
                raise
            logger.debug("freed=<%d> | less than a quarter could be freed, trying with that", freed)

    # --- Installation of summaries ----------------------------------------------------------------

    def _begin(self, agent: Agent, *, is_wanted: bool = False, patience: float = 0.0) -> None:
        """Start to write a summary, if the history needs a summary and none is being written.

        ``patience`` is the longest wait, in seconds, for another process that summarizes the same
        messages.
        """
        if self._jobs.has_pending:
            return
        with logged_errors(logger, "no summary could be begun, leaving the history unchanged"):
            span = split_history(agent.messages[:], self.keep_recent_turns)
            covered = self._jobs.covered
            if covered and covered.last in map(id_of, span.unsummarized):
                if self._jobs.is_overdue(patience):
                    end = [*map(id_of, span.old)].index(covered.last) + 1
                    self._jobs.begin(split_at(span.old, end), agent)
                return
            self._jobs.discard()
            tokens = self._history.tokens(agent.messages[:])
            self._warn_early(tokens)
            if self._is_due(span, self.trigger_tokens if is_wanted else tokens):
                self._jobs.begin(span, agent)

    def _is_due(self, span: SummarySpan, tokens: int) -> bool:
        messages = span.unsummarized
        if not messages or not all(map(id_of, messages)):
            return False
        return span.uncovered_turns >= self.trigger_turns or (
            tokens >= self.trigger_tokens
            and self._history.tokens(messages) >= self.trigger_tokens // _WORTH_A_RUN
        )

    def _warn_early(self, tokens: int) -> None:
        if tokens < self.schedule.warn_share * self.trigger_tokens:
            self._has_warned = False
        elif not self._has_warned:
            self._has_warned = True
            self._jobs.stats.warnings += 1
            logger.warning(
                "tokens=<%d>, trigger=<%d> | the history will be summarized soon",
                tokens,
                self.trigger_tokens,
            )

    def _swap_in(self, agent: Agent) -> None:
        """Replace old turns by a finished summary, if these turns have not changed meanwhile.

        If the turns of the last summary return to the history, for example by a restore, that
        summary replaces them again.
        """
        self._jobs.resume(agent)
        with logged_errors(logger, "the summary could not be used, leaving the history unchanged"):
            stats, finished = self._jobs.stats, self._jobs.pop_finished()
            run = finished or self._installed
            if run is not None and self._fits(run, agent):
                before = self._history.tokens(agent.messages)
                self._put_in(agent, run)
                if finished:
                    after = self._history.tokens(agent.messages)
                    stats.swapped += 1
                    stats.tokens_freed += before - after
                    stats.enough += after < self.trigger_tokens
            elif finished:
                stats.discarded += 1
                logger.debug("the history has changed meanwhile | the summary is not used")

    def _fits(self, run: SummaryRun, agent: Agent) -> bool:
        history, split = agent.messages[:], len(run.replaced)
        return message_versions(history[:split]) == run.replaced and (
            split <= len(split_history(history, self.keep_recent_turns).old)
        )

    def _put_in(self, agent: Agent, run: SummaryRun) -> None:
        summary, split = run.task.result(), len(run.replaced)
        room = min(self.trimmer.max_tokens, self.trigger_tokens * 7 // 8)
        agent.messages[:split] = self._head(summary, agent.messages[:], split, room=room)
        self._installed, self._has_warned = run, False
        logger.debug(
            "messages=<%d>, last_turn=<%d> | a summary took the place of old turns",
            split,
            summary.last_turn,
        )

    def replace_by_facts(
        self, agent: Agent, budget: int, *, only_unsummarized: bool = False
    ) -> None:
        """Replace old turns by a list of facts, which rules extract without a summarizer.

        The recent turns stay. Errors are logged, not raised.

        Args:
            agent: The agent. Its list of messages is changed in place.
            budget: Maximum tokens of the new history. The list of facts is limited accordingly.
            only_unsummarized: Condition for the replacement. True: at least one old turn has no
                summary yet. False (default): the history becomes smaller.
        """
        with logged_errors(logger, "the facts could not be written, leaving the history unchanged"):
            history = agent.messages[:]
            span = split_history(history, self.keep_recent_turns)
            if not span.unsummarized and (only_unsummarized or span.summary is None):
                return
            self._jobs.discard()
            summary = self._writer.from_rules(span.summary, span.unsummarized)
            head = self._head(summary, history, len(span.old), room=budget)
            if only_unsummarized or self._history.tokens(head) < self._history.tokens(
                history[: len(span.old)]
            ):
                agent.messages[: len(span.old)] = head

    def _head(
        self, summary: Summary, history: Sequence[Message], split: int, *, room: int
    ) -> list[Message]:
        """Return the messages that replace the first ``split`` messages of a history.

        The summary is followed by the old turns with pinned messages. If possible, the new history
        has at most ``room`` tokens.
        """
        covered = [message for message in history[:split] if not is_synthesized(message)]
        kept = [
            message
            for own in (covered[turn.start : turn.stop] for turn in turns(covered))
            if any(map(is_pinned, own))
            for message in own
        ]
        # Recent turns full of tool results must not evict messages: the trimmer shortens those.
        own = room * 2 // 3
        facts = max(room - self._history.tokens(history[split:]), own) - self._writer.summary_tokens
        most = min(self._most_facts, self.trimmer.max_tokens // 2)
        shown = render_summary(
            replace(summary, kept=tuple(filter(None, map(id_of, kept)))),
            summary_tokens=self._writer.summary_tokens,
            facts_tokens=max(0, min(most, facts)),
            count=self._writer.count,
            types=self._writer.types,
        )
        return [*shown, *kept]

    # --- Inspection -------------------------------------------------------------------------------

    def summary(self, agent: Agent) -> Summary | None:
        """Return the summary that the agent's history contains, or None.

        Raises:
            CorruptRecordError: The record is malformed, or has another format version.
        """
        return split_history(agent.messages, self.keep_recent_turns).summary

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the size of the history, and the limit at which old turns are summarized.

        Both are numbers of tokens, corrected by the counts that the model reports. The keys are
        ``tokens`` (size of the history), ``budget`` (the limit) and ``left`` (limit minus size).
        """
        tokens = self._history.tokens(agent.messages[:])
        return {
            "tokens": tokens,
            "budget": self.trigger_tokens,
            "left": self.trigger_tokens - tokens,
        }

    def stats(self) -> SummaryStats:
        """Return the counts of summaries, waits, warnings and tokens so far."""
        rate = self.cache.hit_rate if self.cache is not None else 0.0
        return replace(self._jobs.stats, resting=self._jobs.is_resting, cache_hit_rate=rate)

    def finish(self, agent: Agent, seconds: float = 30.0) -> bool:
        """Wait until the summary that is being written is finished, and put it into the history.

        Useful at the end of a process.

        Args:
            agent: The agent.
            seconds: Longest wait, in seconds.

        Returns:
            False if a summary was still being written when the time expired.
        """
        is_finished = self._jobs.join(seconds)
        self._swap_in(agent)
        return is_finished

    # --- For callers that decide when a summary is due --------------------------------------------

    def set_limits(self, trigger_tokens: int, target_tokens: int, hard_tokens: int) -> None:
        """Replace the token limits that were derived from the constructor's arguments.

        ``TieredCompactionConversationManager`` calls this method before each use, because it
        decides when to summarize.

        Args:
            trigger_tokens: Tokens of history at which older turns are summarized.
            target_tokens: Budget of the history after a summary.
            hard_tokens: Tokens of history at which a model call waits for the summary.
        """
        self.trigger_tokens, self.hard_tokens = trigger_tokens, hard_tokens
        self._history.max_tokens, self._history.high_water_mark = target_tokens, hard_tokens

    def begin(self, agent: Agent) -> None:
        """Put the finished summary, if any, into the history, and start to write the next one.

        The next one is started even if the history is smaller than ``trigger_tokens``. It is not
        started while another is being written, or if the old turns without a summary have less than
        an eighth of ``trigger_tokens``.
        """
        self._swap_in(agent)
        self._begin(agent, is_wanted=True, patience=self.schedule.wait_seconds)
