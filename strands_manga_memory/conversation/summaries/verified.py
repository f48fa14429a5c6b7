"""VerifiedSummarizingConversationManager: old turns become a summary that was checked, beside the conversation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.hooks import AgentInitializedEvent, BeforeInvocationEvent, BeforeModelCallEvent, HookOrder, HookRegistry
from strands.models import Model
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import function, of_kind, with_method
from strands_manga_memory.conversation.delegated import Delegated
from strands_manga_memory.conversation.history.summary import Summary
from strands_manga_memory.conversation.importance.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.importance.stacked import StackedConversationManager
from strands_manga_memory.conversation.summaries.folding import fold_of
from strands_manga_memory.conversation.summaries.rest import Rest
from strands_manga_memory.conversation.summaries.shared_runs import CoveredRange
from strands_manga_memory.conversation.summaries.summary_head import SummaryHead
from strands_manga_memory.conversation.summaries.summary_policies import SummarySchedule, SummarySizes, SummaryTrigger
from strands_manga_memory.conversation.summaries.summary_runs import SummaryRuns
from strands_manga_memory.conversation.summaries.summary_stats import SummaryStats
from strands_manga_memory.conversation.summaries.summary_swaps import SummarySwaps
from strands_manga_memory.conversation.summaries.trigger import Trigger
from strands_manga_memory.conversation.summaries.writing.summarizers import summarizer_of
from strands_manga_memory.conversation.summaries.writing.summary_cache import SummaryCache
from strands_manga_memory.conversation.summaries.writing.writing import Log, SummaryWriter
from strands_manga_memory.conversation.tokens.thresholds import window_of
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.entity_types import SHOP
from strands_manga_memory.language.session_summaries import Summarizer
from strands_manga_memory.language.summary_facts import FactExtractor

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

_RUN, _REST, _WARNED = "summary_run", "summary_rest", "summary_warned"
"""Keys of the manager's state: the run that has been begun, failures of the summarizer, and whether a warning was given."""

_TRIGGER, _MAX_TOKENS = 8_000, 4_096
"""Default size of a history that is summarized, and of what is left of it."""


class VerifiedSummarizingConversationManager(StackedConversationManager):
    """Replaces old turns by a summary that has been checked, and keeps the last turns whole.

    A run begins after the response when the trigger says so.
    It reads the raw turns on a thread of its own; what it wrote takes their place before the next model call, if the turns it
    covers are still the same. Only a history over the hard limit waits for it. Every slot of the covered turns (preferences,
    corrections, decisions, open questions, promises, outcomes, what the user said) is either in the checked prose or written
    below it as a plain fact. Drafts that refuse, instruct, invent, or are empty or too long are never used. After three runs
    without a usable draft the summarizer is left alone for a while; facts and importance take over.

    A summary that was dropped because another process saved the conversation first takes its place again.

    One manager serves one agent. It restores exactly under every session manager, as its trimmer does.

    Args:
        trigger: When older turns are summarized. Default: from 8,000 tokens or 20 turns on; the last 3 turns stay whole.
        model: Who summarizes: a Strands model, or a function of a ``Prompt``. Default: the agent's ``aux_model``, which is its
            own model if it has no other.
        sizes: How large a summary is. Default: 500 tokens.
        schedule: Who waits for it. Default: nobody, it is written in the background.
        slots: Finds what must not be lost. Default: rules in English and Japanese.
        types: Entity types that are verified. Default: those of a book shop.
        trimmer: Keeps the history within bounds when there is nothing to summarize, and gives the budget after a summary.
            Default: ``ImportanceWeightedConversationManager`` with 4,096 tokens, or the trigger if that is less. One that
            follows the window of the model has at most as many.
        log: Returns the raw messages from the beginning, as a session keeps them: ``session_manager.history``. Old prose is
            written anew from there. Without it the turns are read from the history, and when the prose has no room any more
            the oldest sentences go; the facts they said are then written below it.
        cache: Drafts by content, kept for 24 hours.
        clock: Monotonic seconds.
        proactive_compression: As in Strands' own managers: also reduce when the model's context window fills up.

    Raises:
        ValueError: An argument is out of range or not of its kind. From the agent's constructor: the manager already serves
            another agent.
    """

    is_writing = Delegated[bool]("_runs")

    def __init__(
        self,
        trigger: SummaryTrigger | None = None,
        *,
        model: Model | Summarizer | None = None,
        sizes: SummarySizes | None = None,
        schedule: SummarySchedule | None = None,
        slots: FactExtractor | None = None,
        types: EntityTypes = SHOP,
        trimmer: ImportanceWeightedConversationManager | None = None,
        log: Log | None = None,
        cache: SummaryCache | None = None,
        clock: Callable[[], float] = time.monotonic,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        trigger, sizes, schedule = trigger or SummaryTrigger(), sizes or SummarySizes(), schedule or SummarySchedule()
        for name, policy, kind in (
            ("trigger", trigger, SummaryTrigger),
            ("sizes", sizes, SummarySizes),
            ("schedule", schedule, SummarySchedule),
        ):
            of_kind(name, policy, kind)
        if slots is not None:
            with_method("slots", slots, "extract(messages)")
        if log is not None:
            function("log", log)
        if trimmer is None:
            trimmer = ImportanceWeightedConversationManager(min(_MAX_TOKENS, trigger.tokens or _MAX_TOKENS))
        of_kind("trimmer", trimmer, ImportanceWeightedConversationManager, "an ImportanceWeightedConversationManager")
        super().__init__(trimmer, trimmer, proactive_compression=proactive_compression)
        self.keep_recent_turns = trigger.keep_recent_turns
        self.schedule = schedule
        tokens = trigger.tokens or _trigger_for(trimmer.max_tokens, None)
        self.hard_tokens = trigger.hard_tokens or tokens * 3 // 2
        self.trimmer.grow_to = self.hard_tokens
        self.cache = cache
        self._asked, self._is_bound = trigger, False
        self._trigger = Trigger(tokens, trigger.turns, trigger.on_warning)
        self._head = SummaryHead(trimmer, types, sizes)
        stats = SummaryStats()
        self._writer = SummaryWriter(trimmer.counter, slots, types, sizes, log, cache)
        summarizer = None if model is None else summarizer_of(model)
        self._rest = Rest(schedule.rest_seconds, clock)
        self._runs = SummaryRuns(self._head, self._writer, summarizer, self._rest, stats)
        self._swaps = SummarySwaps(
            trimmer, self._head, self._runs, self._trigger, stats, keep_recent_turns=trigger.keep_recent_turns
        )

    @property
    def trigger_tokens(self) -> int:
        """Tokens of history from which on older turns are summarized."""
        return self._trigger.tokens

    @property
    def trigger_turns(self) -> int:
        """Turns since the last summary from which on they are."""
        return self._trigger.turns

    # --- Hooks --------------------------------------------------------------------------------------------------------------

    def _register(self, registry: HookRegistry) -> None:
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=HookOrder.SDK_LAST)
        super()._register(registry)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register what swaps summaries in before a model call, the trimmer's hooks, and a look at what was restored."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._start, order=HookOrder.SDK_LAST)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        fold_of(event.agent.messages, self.keep_recent_turns)  # a record that cannot be read is told now, not in a turn
        if not self._is_bound:
            self._follow_window(event.agent)

    def _follow_window(self, agent: Agent) -> None:
        """Set the bounds that were left to the context window of the agent's model."""
        trimmer = self.trimmer
        if trimmer.follows_window:  # more is not needed: a summary stands for what is left out
            trimmer.max_tokens = min(trimmer.max_tokens, _MAX_TOKENS)
        if self._asked.tokens is None:
            self._trigger.tokens = _trigger_for(trimmer.max_tokens, window_of(agent.model))
            self.hard_tokens = self._trigger.tokens * 3 // 2
        if trimmer.follows_window:
            trimmer.max_tokens = min(trimmer.max_tokens, self._trigger.tokens)
            sizes = self._head.sizes
            sizes = replace(sizes, summary_tokens=max(1, min(sizes.summary_tokens, trimmer.max_tokens // 4)))
            self._head.sizes = self._writer.sizes = sizes
            if sizes.facts_tokens is None:
                self._head.facts_tokens = trimmer.max_tokens * 3 // 4
        trimmer.grow_to = self.hard_tokens

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._make_room(event.agent, event.messages or [])

    async def _before_model_call(self, event: BeforeModelCallEvent | ContextState) -> None:
        await self._make_room(event.agent, [])

    async def _make_room(self, agent: Agent, coming: Sequence[Message]) -> None:
        """Use a summary that is ready; if the history, with what is coming, is over the hard limit, wait for one."""
        await self.trimmer.workload.off_loop([*agent.messages, *coming], lambda: self._begin_if_full(agent, coming))
        try:
            if self.schedule.strategy == "async" or self._is_full(agent, coming):
                await self._runs.wait(self.schedule.wait_seconds)
        except Exception as error:
            logger.warning("error=<%s> | the summary could not be waited for, going on without it", type(error).__name__)
            logger.debug("the summary could not be waited for", exc_info=True)
        await self.trimmer.workload.off_loop(agent.messages, lambda: self._swaps.swap_in(agent))
        if self._is_full(agent, coming):
            # What follows is trimming. Turns too few for a summary, or whose summary takes too long, become facts first.
            await asyncio.to_thread(self._swaps.fold_at_once, agent, self.trimmer.max_tokens, only_fresh=True)

    def _begin_if_full(self, agent: Agent, coming: Sequence[Message]) -> None:
        self._swaps.swap_in(agent)
        if self._is_full(agent, coming):
            self._swaps.begin(agent)
        elif self._runs.is_overdue(self.schedule.wait_seconds):
            self._swaps.begin(agent, patience=self.schedule.wait_seconds)

    def _is_full(self, agent: Agent, coming: Sequence[Message]) -> bool:
        messages = [*agent.messages, *coming]
        return self.trimmer.tokens(messages) > self.hard_tokens + self.trimmer.budget.room_beyond(messages, self.hard_tokens)

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def _manage(self, agent: Agent) -> None:
        """Begin a summary if one is due; then the trimmer keeps its budget."""
        self._swaps.swap_in(agent)
        self._swaps.begin(agent, patience=self.schedule.wait_seconds)
        if self.schedule.strategy == "inline":
            self.finish(agent, self.schedule.wait_seconds)
        super()._manage(agent)

    def get_state(self) -> dict[str, Any]:
        """Return what a session keeps: also which messages a begun run covers, and whether a warning was given."""
        state = super().get_state()
        if self._runs.covered is not None:
            state[_RUN] = self._runs.covered.to_state()
        if self._rest.failures:
            state[_REST] = self._rest.to_state()
        return state | ({_WARNED: True} if self._trigger.has_warned else {})

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Take back what :meth:`get_state` returned.

        Raises:
            ValueError: The state is that of another conversation manager.
            CorruptRecordError: The state is malformed, or a newer version of this package wrote it.
        """
        super().restore_from_session(state)
        self._runs.covered = CoveredRange.from_state(state.get(_RUN))
        self._rest.restore(state.get(_REST))
        self._trigger.has_warned = state.get(_WARNED) is True
        return None

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller because the model's context window is full, or filling up.

        What is older than the recent turns becomes facts, without a model; then the trimmer reduces what is left.

        Args:
            agent: The agent; its list of messages is changed in place, as one step.
            e: The overflow, if there was one. Then at least half of the history goes.
            **kwargs: For extensions of the contract.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and nothing could be freed.
        """
        before = self.trimmer.tokens(agent.messages)
        self._swaps.swap_in(agent)
        if self.trimmer.tokens(agent.messages) == before:
            self._swaps.fold_at_once(agent, before // 2)
        freed = before - self.trimmer.tokens(agent.messages)
        if freed * 2 >= before or (e is None and freed > 0):
            return
        try:
            self.trimmer.reduce_context(agent, e, **kwargs)
        except ContextWindowOverflowException:
            if freed <= 0:
                raise
            logger.debug("freed=<%d> | less than half could be freed, trying with that", freed)

    # --- What users ask -----------------------------------------------------------------------------------------------------

    def summary(self, agent: Agent) -> Summary | None:
        """Return the record of the summary the history begins with; None if there is none.

        Raises:
            CorruptRecordError: The record is malformed, or a newer version wrote it.
        """
        return fold_of(agent.messages, self.keep_recent_turns).summary

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the tokens of the history as the model counts them, the trigger as budget, and what is left of it."""
        tokens = self.trimmer.tokens(agent.messages[:])
        return {"tokens": tokens, "budget": self.trigger_tokens, "left": self.trigger_tokens - tokens}

    def stats(self) -> SummaryStats:
        """Return what was done so far."""
        rate = self.cache.hit_rate if self.cache is not None else 0.0
        return replace(self._runs.stats(), warnings=self._trigger.warnings, cache_hit_rate=rate)

    def finish(self, agent: Agent, seconds: float = 30.0) -> bool:
        """Wait for the summary that is on its way, if there is one, and use it; for the end of a process.

        Args:
            agent: The agent.
            seconds: How long to wait at most.

        Returns:
            Whether nothing is on its way any more.
        """
        is_finished = self._runs.finish(seconds)
        self._swaps.swap_in(agent)
        return is_finished

    # --- For whoever decides himself when a summary is due ------------------------------------------------------------------

    def bound_to(self, *, trigger_tokens: int, target_tokens: int, hard_tokens: int) -> None:
        """Set the bounds anew, when the model's window is known."""
        self._is_bound = True
        self._trigger.tokens, self.hard_tokens = trigger_tokens, hard_tokens
        self.trimmer.max_tokens, self.trimmer.grow_to = target_tokens, hard_tokens
        self._head.facts_tokens = min(self._head.facts_tokens, target_tokens * 3 // 4)

    def begin(self, agent: Agent) -> None:
        """Begin a summary of the older turns now, unless one is on its way; use one that is finished."""
        self._swaps.swap_in(agent)
        self._swaps.begin(agent, is_wanted=True, patience=self.schedule.wait_seconds)

    def fold_at_once(self, agent: Agent, budget: int) -> int:
        """Turn everything before the recent turns into facts, now and without a model; return the tokens freed.

        Args:
            agent: The agent; its list of messages is changed in place, as one step.
            budget: Tokens the history should have then.
        """
        before = self.trimmer.tokens(agent.messages)
        self._swaps.fold_at_once(agent, budget)
        return before - self.trimmer.tokens(agent.messages)


def _trigger_for(max_tokens: int, window: int | None) -> int:
    """Return the default trigger for a trimmer's budget: a request may wait for a summary until half as much again is there."""
    tokens = max_tokens * _TRIGGER // _MAX_TOKENS
    return max(1, tokens if window is None else min(tokens, max(max_tokens, window // 2)))
