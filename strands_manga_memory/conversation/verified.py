"""VerifiedSummarizingConversationManager: old turns become a summary that was checked, beside the conversation."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.hooks import AgentInitializedEvent, BeforeInvocationEvent, BeforeModelCallEvent, HookOrder, HookRegistry
from strands.models import Model
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.conversation.folding import fold_of
from strands_manga_memory.conversation.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.rest import Rest
from strands_manga_memory.conversation.stacked import StackedConversationManager
from strands_manga_memory.conversation.summarizers import summarizer_of
from strands_manga_memory.conversation.summary import Summary
from strands_manga_memory.conversation.summary_cache import SummaryCache
from strands_manga_memory.conversation.summary_head import SummaryHead
from strands_manga_memory.conversation.summary_runs import Replacement, SummaryRuns
from strands_manga_memory.conversation.summary_stats import SummaryStats
from strands_manga_memory.conversation.trigger import Trigger
from strands_manga_memory.conversation.writing import Log
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.language.entities import SHOP, EntityTypes
from strands_manga_memory.language.slots import SlotExtractor
from strands_manga_memory.language.summarizer import Summarizer

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)

Strategy = Literal["background", "async", "inline"]


class VerifiedSummarizingConversationManager(StackedConversationManager):
    """Replaces old turns by a summary that has been checked, and keeps the last turns whole (mission rows B5 to B7).

    A run begins after the response when the history has ``trigger_tokens`` or holds ``trigger_turns`` that no summary covers.
    It reads the raw turns on a thread of its own; what it wrote takes their place before the next model call, if the turns it
    covers are still the same. Only a history over ``hard_tokens`` waits for it. Every slot of the covered turns (preferences,
    corrections, decisions, open questions, promises, outcomes, what the user said) is either in the checked prose or written
    below it as a plain fact. Drafts that refuse, instruct, invent, or are empty or too long are never used. After three runs
    without a usable draft the summarizer is left alone for a while; facts and importance take over.

    A summary that was dropped because another process saved the conversation first takes its place again.

    One manager serves one agent. It restores exactly under every session manager, as its trimmer does.

    Args:
        trigger_tokens: Tokens of history from which on older turns are summarized. Default 8,000.
        trigger_turns: Turns since the last summary from which on they are. Default 20.
        keep_recent_turns: Turns that stay whole, the current one among them. Default 3.
        model: Who summarizes: a Strands model, or a function of a ``Prompt``. Default: the agent's ``aux_model``, which is its
            own model if it has no other.
        slots: Finds what must not be lost. Default: rules in English and Japanese.
        types: Entity types that are verified. Default: those of a book shop.
        strategy: ``background`` (default): as above. ``async``: the next model call waits for the summary, the event loop does
            not. ``inline``: the turn ends when the summary is there; blocks the event loop.
        summary_tokens: Most tokens of the summary. Default 500.
        facts_tokens: Most tokens of the facts that do not fit into it. Default: three quarters of the trimmer's budget.
        source_tokens: Most tokens of raw turns the summarizer reads at a time. Default 12,000, or 60 % of the model's window.
        hard_tokens: Tokens of history at which a model call waits for the summary. Default: one and a half times the trigger.
        wait_seconds: How long it waits at most. Default 30; then the trimmer makes room.
        keep_important: Whether covered turns of high importance stay as well, as far as the trimmer's budget allows.
        trimmer: Keeps the history within bounds when there is nothing to summarize, and gives the budget after a summary.
            Default: ``ImportanceWeightedConversationManager`` with 4,096 tokens, or the trigger if that is less.
        log: Returns the raw messages from the beginning, as a session keeps them: ``session_manager.history``. Old prose is
            written anew from there. Without it the turns are read from the history, and when the prose has no room any more
            the oldest sentences go; the facts they said are then written below it.
        cache: Drafts by content, kept for 24 hours.
        on_warning: Called with the tokens of history and the trigger when the history comes near it.
        rest_seconds: How long a failing summarizer is left alone. Default 300.
        clock: Monotonic seconds.
        proactive_compression: As in Strands' own managers: also reduce when the model's context window fills up.

    Raises:
        ValueError: An argument is out of range or not of its kind. From the agent's constructor: the manager already serves
            another agent.
    """

    def __init__(
        self,
        trigger_tokens: int = 8_000,
        trigger_turns: int = 20,
        keep_recent_turns: int = 3,
        *,
        model: Model | Summarizer | None = None,
        slots: SlotExtractor | None = None,
        types: EntityTypes = SHOP,
        strategy: Strategy = "background",
        summary_tokens: int = 500,
        facts_tokens: int | None = None,
        source_tokens: int | None = None,
        hard_tokens: int | None = None,
        wait_seconds: float = 30.0,
        keep_important: bool = False,
        trimmer: ImportanceWeightedConversationManager | None = None,
        log: Log | None = None,
        cache: SummaryCache | None = None,
        on_warning: Callable[[int, int], None] | None = None,
        rest_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        numbers = {
            "trigger_tokens": trigger_tokens,
            "trigger_turns": trigger_turns,
            "keep_recent_turns": keep_recent_turns,
            "summary_tokens": summary_tokens,
            "source_tokens": 1 if source_tokens is None else source_tokens,
            "hard_tokens": trigger_tokens if hard_tokens is None else hard_tokens,
        }
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be a positive whole number, got {number!r}")
        if facts_tokens is not None and (
            isinstance(facts_tokens, bool) or not isinstance(facts_tokens, int) or facts_tokens < 0
        ):
            raise ValueError(f"facts_tokens must be a whole number of 0 or more, got {facts_tokens!r}")
        if strategy not in get_args(Strategy):
            raise ValueError(f"strategy must be one of {', '.join(map(repr, get_args(Strategy)))}, got {strategy!r}")
        if slots is not None and not callable(getattr(slots, "extract", None)):
            raise ValueError(f"slots must have a method extract(messages), got {slots!r}")
        if trimmer is not None and not isinstance(trimmer, ImportanceWeightedConversationManager):
            raise ValueError(f"trimmer must be an ImportanceWeightedConversationManager, got {trimmer!r}")
        for name, function in (("log", log), ("on_warning", on_warning)):
            if function is not None and not callable(function):
                raise ValueError(f"{name} must be a function, got {function!r}")
        if hard_tokens is not None and hard_tokens < trigger_tokens:
            raise ValueError(f"hard_tokens must be at least trigger_tokens ({trigger_tokens}), got {hard_tokens!r}")
        trimmer = trimmer or ImportanceWeightedConversationManager(min(4_096, trigger_tokens))
        super().__init__(trimmer, trimmer, proactive_compression=proactive_compression)
        self.keep_recent_turns = keep_recent_turns
        self.strategy = strategy
        self.hard_tokens = hard_tokens or trigger_tokens * 3 // 2
        self.trimmer.grow_to = self.hard_tokens
        self.cache = cache
        self._trigger = Trigger(trigger_tokens, trigger_turns, on_warning)
        self._head = SummaryHead(
            trimmer,
            types,
            summary_tokens=summary_tokens,
            facts_tokens=trimmer.max_tokens * 3 // 4 if facts_tokens is None else facts_tokens,
            keep_important=keep_important,
        )
        self._wait_seconds = wait_seconds
        self._stats = SummaryStats()
        self._runs = SummaryRuns(
            self._head,
            counter=trimmer.counter,
            summarizer=None if model is None else summarizer_of(model),
            slots=slots,
            types=types,
            source_tokens=source_tokens,
            log=log,
            cache=cache,
            rest=Rest(rest_seconds, clock),
            stats=self._stats,
        )
        self._latest: Replacement | None = None

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
        registry.add_callback(BeforeModelCallEvent, self._before_model_call, order=HookOrder.SDK_LAST)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register what swaps summaries in before a model call, the trimmer's hooks, and a look at what was restored."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._start, order=HookOrder.SDK_LAST)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        fold_of(event.agent.messages, self.keep_recent_turns)  # a record that cannot be read is told now, not in a turn

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._make_room(event.agent, event.messages or [])

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        await self._make_room(event.agent, [])

    async def _make_room(self, agent: Agent, coming: Sequence[Message]) -> None:
        """Use a summary that is ready; if the history, with what is coming, is over the hard limit, wait for one."""
        self._swap_in(agent)
        try:
            if self.trimmer.tokens([*agent.messages, *coming]) > self.hard_tokens:
                self._begin(agent)
                await self._runs.wait(self._wait_seconds)
            elif self.strategy == "async":
                await self._runs.wait(self._wait_seconds)
        except Exception:
            logger.warning("the summary could not be waited for | going on without it", exc_info=True)
        self._swap_in(agent)
        if self.trimmer.tokens([*agent.messages, *coming]) > self.hard_tokens:
            # What follows is trimming. Turns too few for a summary, or whose summary takes too long, become facts first.
            self._fold_at_once(agent, self.trimmer.max_tokens, only_fresh=True)

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Begin a summary if one is due; errors are logged, never raised."""
        self._swap_in(agent)
        self._begin(agent)
        if self.strategy == "inline":
            self.finish(agent, self._wait_seconds)
        self.trimmer.apply_management(agent)

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
        self._swap_in(agent)
        if self.trimmer.tokens(agent.messages) == before:
            self._fold_at_once(agent, before // 2)
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
        return replace(self._runs.stats(), warnings=self._trigger.warnings)

    def finish(self, agent: Agent, seconds: float = 30.0) -> bool:
        """Wait for the summary that is on its way, if there is one, and use it; for the end of a process.

        Args:
            agent: The agent.
            seconds: How long to wait at most.

        Returns:
            Whether nothing is on its way any more.
        """
        is_finished = self._runs.finish(seconds)
        self._swap_in(agent)
        return is_finished

    # --- For whoever decides himself when a summary is due ------------------------------------------------------------------

    def bound_to(self, *, trigger_tokens: int, target_tokens: int, hard_tokens: int) -> None:
        """Set the bounds anew, when the model's window is known."""
        self._trigger.tokens, self.hard_tokens = trigger_tokens, hard_tokens
        self.trimmer.max_tokens, self.trimmer.grow_to = target_tokens, hard_tokens
        self._head.facts_tokens = min(self._head.facts_tokens, target_tokens * 3 // 4)

    @property
    def is_writing(self) -> bool:
        """Whether a summary is on its way, or waits to be swapped in."""
        return self._runs.is_writing

    def begin(self, agent: Agent) -> None:
        """Begin a summary of the older turns now, unless one is on its way; use one that is finished."""
        self._swap_in(agent)
        self._begin(agent, is_wanted=True)

    def fold_at_once(self, agent: Agent, budget: int) -> int:
        """Turn everything before the recent turns into facts, now and without a model; return the tokens freed.

        Args:
            agent: The agent; its list of messages is changed in place, as one step.
            budget: Tokens the history should have then.
        """
        before = self.trimmer.tokens(agent.messages)
        self._fold_at_once(agent, budget)
        return before - self.trimmer.tokens(agent.messages)

    # --- Beginning ----------------------------------------------------------------------------------------------------------

    def _begin(self, agent: Agent, *, is_wanted: bool = False) -> None:
        """Begin a run if one is due and none is on its way."""
        if self._runs.is_writing:
            return
        self._runs.forget()
        try:
            fold = fold_of(agent.messages[:], self.keep_recent_turns)
            tokens = self.trimmer.tokens(agent.messages[:])
            self._trigger.watch(tokens)
            counted = self.trigger_tokens if is_wanted else tokens
            if self._trigger.is_due(fold, counted, fresh_tokens=lambda: self.trimmer.tokens(fold.fresh)):
                self._runs.begin(fold, agent)
        except Exception:
            logger.warning("no summary could be begun | leaving the history as it is", exc_info=True)

    # --- Swapping in --------------------------------------------------------------------------------------------------------

    def _swap_in(self, agent: Agent) -> None:
        """Put a finished summary in the place of the turns it covers, in one step, if they are still the same."""
        if not self._runs.is_done:
            self._swap_in_again(agent)
        elif (replacement := self._runs.take()) is not None:
            try:
                if self._fits(replacement, agent):
                    before = self.trimmer.tokens(agent.messages)
                    self._put_in(agent, replacement)
                    after = self.trimmer.tokens(agent.messages)
                    self._stats.swapped += 1
                    self._stats.tokens_freed += before - after
                    self._stats.enough += after < self.trigger_tokens
                else:
                    self._stats.discarded += 1
                    logger.debug("the history has changed meanwhile | the summary is not used")
            except Exception:
                logger.warning("the summary could not be used | leaving the history as it is", exc_info=True)

    def _swap_in_again(self, agent: Agent) -> None:
        """Use the latest summary again if the turns it covers are back: another process saved its window before ours."""
        latest = self._latest
        try:
            if latest is not None and self._fits(latest, agent):
                self._put_in(agent, latest)
        except Exception:
            logger.warning("the summary could not be used again | leaving the history as it is", exc_info=True)

    def _fits(self, replacement: Replacement, agent: Agent) -> bool:
        """Whether the history begins with the turns a summary is for, and the recent ones stand behind them."""
        history = agent.messages[:]
        return replacement.fits(history) and len(replacement.marks) <= fold_of(history, self.keep_recent_turns).before_recent

    def _put_in(self, agent: Agent, replacement: Replacement) -> None:
        history, summary = agent.messages[:], replacement.summary
        room = min(self.trimmer.max_tokens, self.trigger_tokens * 7 // 8)
        head, gone = self._head.of(summary, history, len(replacement.marks), room=room)
        agent.messages[: len(replacement.marks)] = head
        self._latest = replacement
        self._trigger.reset()
        self.trimmer.evicted(gone)
        logger.debug("covered=<%d>, turns=<%d> | a summary took the place of old turns", len(gone), summary.turns)

    def _fold_at_once(self, agent: Agent, budget: int, *, only_fresh: bool = False) -> None:
        """Turn what is before the recent turns into facts, now and without a model; if wanted, only what no summary covers."""
        try:
            history = agent.messages[:]
            fold = fold_of(history, self.keep_recent_turns)
            if not fold.fresh and (only_fresh or not fold.shown):
                return
            summary = self._runs.at_once(fold)
            head, gone = self._head.of(summary, history, fold.before_recent, room=budget, is_tight=True)
            if only_fresh or self.trimmer.tokens(head) < self.trimmer.tokens(history[: fold.before_recent]):
                agent.messages[: fold.before_recent] = head
                self.trimmer.evicted(gone)
        except CorruptRecordError:
            logger.warning("the record of the summary cannot be read | it is left as it is")
        except Exception:
            logger.warning("the facts could not be written | leaving the history as it is", exc_info=True)
