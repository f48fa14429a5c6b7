"""ImportanceWeightedConversationManager: keeps a history within a budget of tokens at every model call."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    HookEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.types.content import Message

from strands_manga_memory.arguments import function, positive, with_method
from strands_manga_memory.conversation.budget import HistoryLimits, RequestMeter, history_tokens, window_of
from strands_manga_memory.conversation.copying import History, Template, copied_quickly
from strands_manga_memory.conversation.features import FeatureCache
from strands_manga_memory.conversation.full_texts import FullTextArchive
from strands_manga_memory.conversation.outcomes import MessageOutcome
from strands_manga_memory.conversation.scoring import Bands, ImportanceScorer, RuleScorer, SignalWeights
from strands_manga_memory.conversation.token_counter import TokenCounter, default_counter
from strands_manga_memory.conversation.trimmer import Trimmer
from strands_manga_memory.conversation.window_layout import Layout, MessageLog, check_manager, ensure_ids, identify
from strands_manga_memory.exceptions import CorruptRecordError, logged_errors
from strands_manga_memory.messages import for_model, tool_use_ids
from strands_manga_memory.messages.tool_results import ToolResultSeparator
from strands_manga_memory.messages.turn_context import with_added, without_added
from strands_manga_memory.telemetry import timed

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_BEHIND_SESSION_MANAGERS = HookOrder.SDK_LAST + 1

_BANDS, _SIGNALS = Bands(), SignalWeights()  # one for all agents
_NO_LAYOUT = Layout()


class ImportanceWeightedConversationManager(Template, ConversationManager):
    """Keeps the most important messages within ``max_tokens`` at every model call, in the middle of a turn too.

    The first turn, the current turn and pinned messages (``metadata.custom.pinned``, as Strands' ``pin_message`` sets it)
    always stay. Other messages stay by importance, the newest first, in whole exchanges, so that the
    history is valid for every provider. If the messages that always stay are too large, they are truncated, head and tail
    kept. Pinned messages are never truncated: if they alone are over the budget, that is logged once, and a real overflow of
    the model's window raises. The user's message of the current turn is not truncated as long as the model's window has room:
    its tokens beyond half of ``max_tokens`` come on top, up to three quarters of the window (of 128,000 tokens, if the model
    does not know its window).

    With ``trim_every`` or ``trim_to`` the history is trimmed in steps: it only grows at its end until it passes ``max_tokens``,
    and is then trimmed for several turns at once. Between two steps each request begins with the whole one before, so a
    provider's prompt cache has it. Without them a full history is trimmed a little in every turn: it holds more, and no request
    begins with the one before.

    A manager that summarizes sets ``grow_to``: the history may then grow to that many tokens before it is brought back to
    ``max_tokens``.

    One manager serves one agent. With a session manager that logs messages (``FileSessionManager``) it restores its own exact
    window; one that restores the window itself sets ``persist_layout`` to False before it restores.

    Args:
        max_tokens: The budget of the history, in tokens, both by the counter and by the model's reports. None: a quarter of
            the context window of the agent's model, at most 16,384, and 4,096 if the model does not know its window.
        scorer: Rates the importance of a message; default: rules in English and Japanese.
        bands: Scores of the bands: messages from 0.8 are evicted last, messages from 0.5 before them, others first.
        signals: Weights of the signals when messages of one band are compared.
        counter: Counts tokens; default: tiktoken if a vocabulary is on the disk, else an estimate.
        trim_to: Tokens to which a history over ``max_tokens`` is brought, and the same share of ``max_turns``; None (default):
            just below ``max_tokens``. Messages that always stay may take more. Trimmed in steps, tool results of the turn
            before are a reason for one, too, if they take an eighth of ``max_tokens`` and the history is near the low mark.
        trim_every: How many turns like the last ones a history over ``max_tokens`` makes room for, in at most a third of it.
        max_turns: Most turns to keep; None: as many as fit. Messages that always stay are not bound by it.
        includes_recall: Whether the quotes of ``HistoryRecall`` count into ``max_tokens`` too: the budget of the
            quotes, at most half of ``max_tokens``, is reserved in every request, and the history has the rest.
        on_evict: Called with the messages that left the history or were shortened in it, as they were before, whenever some
            did, perhaps in a thread; they may return. Also with those that a summary or a compaction around this manager took
            out. Its errors are logged.
        log: Returns the raw messages from the beginning, as a session keeps them: from there messages that were shortened are
            read after a restart.
        recent_log: Returns the last messages of that log, at most the given number. It is read at most once, when a
            restored history is trimmed: messages that were evicted before the restart may then return. None: only messages
            that this manager evicted return.
        proactive_compression: As in Strands' own managers: also reduce when the model's context window fills up.

    Raises:
        ValueError: A number is not a positive whole one, ``trim_to`` is above ``max_tokens``, or ``scorer``, ``counter``,
            ``on_evict`` or ``recent_log`` is not of its kind. From the agent's constructor: the manager already serves another
            agent.
    """

    def __init__(
        self,
        max_tokens: int | None = 4_096,
        *,
        scorer: ImportanceScorer | None = None,
        bands: Bands | None = None,
        signals: SignalWeights | None = None,
        counter: TokenCounter | None = None,
        trim_to: int | None = None,
        trim_every: int | None = None,
        max_turns: int | None = None,
        includes_recall: bool = False,
        on_evict: Callable[[list[Message]], None] | None = None,
        log: Callable[[], Iterable[Message]] | None = None,
        recent_log: Callable[[int], Iterable[Message]] | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        super().__init__(proactive_compression=proactive_compression)
        self.follows_window = max_tokens is None
        high = history_tokens(None) if max_tokens is None else positive("max_tokens", max_tokens)
        max_turns = None if max_turns is None else positive("max_turns", max_turns)
        trim_to = None if trim_to is None else positive("trim_to", trim_to)
        if trim_to is not None and trim_to > high and not self.follows_window:
            raise ValueError(f"trim_to must be at most max_tokens ({high}), got {trim_to!r:.80}")
        trim_every = None if trim_every is None else positive("trim_every", trim_every)
        self.scorer = with_method("scorer", scorer if scorer is not None else RuleScorer(), "score(message, act, context)")
        self.counter = with_method("counter", counter if counter is not None else default_counter(), "count(message)")
        if on_evict is not None:
            function("on_evict", on_evict, "a function of a list of messages")
        if recent_log is not None:
            function("recent_log", recent_log, "a function of a number of messages")
        self.includes_recall = includes_recall
        self.persist_layout = True
        self.archive = FullTextArchive(log)
        limits = HistoryLimits(high, trim_to, trim_every, max_turns, exact=getattr(self.counter, "exact", True))
        reference = weakref.ref(self)  # a bound method would keep the manager alive until a garbage collection

        def history() -> Sequence[Message]:
            manager = reference()
            return () if manager is None else manager._history()  # noqa: SLF001 - of this class

        features = FeatureCache(self.counter, self.scorer, history)
        self._trimmer = Trimmer(limits, features, self.archive, bands or _BANDS, signals or _SIGNALS, on_evict, recent_log)
        self._returns_from_log = recent_log is not None
        self._settled: str | None = None
        self._requests = RequestMeter(self.counter, limits.calibration)
        self._log = MessageLog()
        self._restored = _NO_LAYOUT
        self._is_started = False

    def __repr__(self) -> str:
        return f"ImportanceWeightedConversationManager(max_tokens={self.max_tokens}, max_turns={self.max_turns})"

    # --- Settings ---------------------------------------------------------------------------------

    @property
    def max_tokens(self) -> int:
        """The budget of the history, in tokens."""
        return self._trimmer.limits.max_tokens

    @max_tokens.setter
    def max_tokens(self, value: int) -> None:
        self._trimmer.limits.max_tokens = value

    @property
    def grow_to(self) -> int:
        """Tokens to which the history may grow before it is brought back to ``max_tokens``."""
        return self._trimmer.limits.grow_to

    @grow_to.setter
    def grow_to(self, value: int) -> None:
        self._trimmer.limits.grow_to = value

    @property
    def max_turns(self) -> int | None:
        """Most turns to keep; None: as many as fit."""
        return self._trimmer.limits.max_turns

    @max_turns.setter
    def max_turns(self, value: int | None) -> None:
        self._trimmer.limits.max_turns = value

    @property
    def bands(self) -> Bands:
        """Scores from which the bands begin."""
        return self._trimmer.bands

    @property
    def signals(self) -> SignalWeights:
        """The weights of the signals."""
        return self._trimmer.signals

    @property
    def on_evict(self) -> Callable[[list[Message]], None] | None:
        """Called with the messages that left the history."""
        return self._trimmer.on_evict

    @on_evict.setter
    def on_evict(self, value: Callable[[list[Message]], None] | None) -> None:
        self._trimmer.on_evict = value

    @property
    def records(self) -> int:
        """Number of messages that were logged."""
        return self._log.length

    # --- Hooks ------------------------------------------------------------------------------------

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the callbacks that keep the budget at every model call, and that restore the window."""
        registry = timed(registry)
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._attach, order=HookOrder.SDK_FIRST)
        registry.add_callback(AgentInitializedEvent, self._start, order=HookOrder.SDK_LAST)
        registry.add_callback(MessageAddedEvent, self._message_is_added, order=HookOrder.SDK_FIRST)
        registry.add_callback(MessageAddedEvent, self._message_was_added, order=HookOrder.SDK_LAST)
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterInvocationEvent, self.keep_within_budget, order=HookOrder.SDK_FIRST)
        registry.add_callback(BeforeModelCallEvent, self.keep_within_budget, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterModelCallEvent, self._requests.answered)
        registry.add_callback(HistoryManagerLookup, lambda event: event.found.append(self))
        ToolResultSeparator().register(registry, _BEHIND_SESSION_MANAGERS)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        """Before the session is restored: take the agent, and give its messages ids before they are logged."""
        if not self._trimmer.attach(event.agent):
            call = "Agent(conversation_manager=ImportanceWeightedConversationManager(...))"
            raise ValueError(f"this ImportanceWeightedConversationManager already serves an agent; give each its own: {call}")
        if self.follows_window:
            self.max_tokens = self.grow_to = history_tokens(window_of(event.agent.model))
        ensure_ids(event.agent.messages)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        """After the session was restored: bring back the exact window, and stand last before the model."""
        agent = event.agent
        messages = agent.messages
        if self.persist_layout:
            identify(messages, self._restored.skip)
            self._log = MessageLog(self._restored.skip)
            self._log.add_restored(messages)
            if (window := self._restored.replay(messages)) is not None:
                messages[:] = window
        self._restored = _NO_LAYOUT
        self._is_started = True
        self._trimmer.start(messages, self._settled)
        agent.messages = copied_quickly(messages)
        self.archive.offer(agent, agent.messages)
        agent.add_middleware(InvokeModelStage.Input, self._before_request)

    def _message_is_added(self, event: MessageAddedEvent[Agent]) -> None:
        if self.persist_layout:
            self._log.adding(event.message)

    def _message_was_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._log.added()
        if event.message["role"] == "assistant" and not tool_use_ids(event.message):
            # The answer ends the turn: trimmed now, the history is saved with its last message, not in a save of its own.
            self._trimmer.keep_now(event.agent, ends_turn=True)

    async def keep_within_budget(self, event: BeforeModelCallEvent | AfterInvocationEvent | ContextState) -> None:
        """Bring the history of an agent within the budget; errors are logged, never raised."""
        await self._trimmer.keep(event.agent)
        self._log.forget_all_but(event.agent.messages)

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._trimmer.keep(event.agent, event.messages or [])

    async def _before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        """Trim the messages of one request, which may hold more than the history: continuations come after the hooks."""
        with logged_errors(logger, "the history could not be trimmed for this call, sending it as it is"):
            messages, added = without_added(context)
            injected = [*added.before, *added.after]
            history, tokens = await self._trimmer.off_loop(messages, lambda: self._trimmer.fit_request(messages))
            self._requests.sending(context, tokens, injected)
            if history is not context.messages:
                sent = History(with_added(history, added))
                return context.replace(messages=sent, dynamic_trailing_blocks=len(added.after))
        return context

    # --- The contract of a conversation manager ---------------------------------------------------

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Bring the history within the budget; errors are logged, never raised."""
        self._log.settle()
        self._trimmer.keep_now(agent)

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller because the model's context window is full, or filling up.

        Args:
            agent: The agent; its list of messages is changed in place, as one step.
            e: The overflow. With it the history is at least halved, and halved again by each further overflow. Without it a
                quarter of the messages that need not stay is evicted.
            **kwargs: For extensions of the contract.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and half of the history cannot be freed: pinned messages are too
                large, or other parts of the request fill the window. The history is unchanged.
        """
        self._trimmer.reduce(agent, e)

    def get_state(self) -> dict[str, Any]:
        """Return the state for a session: small, and the same until something changes."""
        state = super().get_state()
        if (ratio := self._trimmer.limits.calibration.ratio) != 1.0:
            state["ratio"] = ratio
        if self.archive.is_offered:
            state["reader"] = True
        if self._returns_from_log and (until := self._trimmer.settled(self._history())) is not None:
            state["settled"] = until
        if self._is_started and self.persist_layout:
            layout = self._log.layout(self._history())
            state["removed_message_count"] = layout.skip
            if (window := layout.to_state()) is not None:
                state["layout"] = window
        self.removed_message_count = state["removed_message_count"]
        return state

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Restore the state of :meth:`get_state`; the window itself is restored at the end of the agent's construction.

        Raises:
            ValueError: The state is that of another conversation manager.
            CorruptRecordError: The state is malformed, or a newer version of this package wrote it.
        """
        check_manager(state, self)
        skip, ratio = state.get("removed_message_count"), state.get("ratio", 1.0)
        settled = state.get("settled")
        is_well_formed = isinstance(ratio, int | float) and (settled is None or isinstance(settled, str))
        if not isinstance(skip, int) or skip < 0 or not is_well_formed:
            raise CorruptRecordError("the state of the conversation manager is malformed", record="conversation manager state")
        layout = Layout.from_state(state.get("layout"), skip)
        if not self._is_started:  # later, from a snapshot, the messages are exact and the log is still the same
            self._restored, self._settled = layout, settled
            self.archive.is_offered = state.get("reader") is True
        self._trimmer.limits.calibration.restore(ratio)
        return super().restore_from_session(state)

    def _history(self) -> Sequence[Message]:
        agent = self._trimmer.agent
        return [] if agent is None else agent.messages

    # --- Questions of users and of other managers -------------------------------------------------

    def explain(self, agent: Agent) -> list[MessageOutcome]:
        """Return the outcomes of the messages of the history and of the last 1,000 evicted ones, in the order of speech."""
        return self._trimmer.explain(list(agent.messages))

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the tokens of the history as the model counts them, the budget, and the rest of the budget."""
        messages = agent.messages[:]
        most = self._trimmer.limits.most
        tokens, budget = self.tokens(messages), most + self.room_beyond(messages, most)
        return {"tokens": tokens, "budget": budget, "left": budget - tokens}

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages as the model counts them; each message is counted once."""
        return self._trimmer.reported_tokens(messages)

    def room_beyond(self, messages: Sequence[Message], limit: int) -> int:
        """Return the tokens, as the model counts them, by which a limit grows for the user's message of the current turn."""
        return self._trimmer.room_beyond(messages, limit)

    def score(self, message: Message) -> float:
        """Return the value of a message, 0 to 1."""
        return self._trimmer.features(message).score

    def fitted(self, messages: Sequence[Message], max_tokens: int) -> list[Message]:
        """Return the part of a history within a budget, by importance, truncated where necessary; nothing is changed."""
        return for_model(self._trimmer.fit(messages, max_tokens))

    def reserve(self, tokens: int) -> int:
        """Reserve tokens for the quotes of a ``HistoryRecall``, with ``includes_recall``; return how many those may have."""
        return self._trimmer.limits.reserve(tokens) if self.includes_recall else tokens

    def forget(self, tracking_id: str) -> None:
        """Forget a message that left the history, as when it is redacted in the log: it does not come back."""
        self._trimmer.forget(tracking_id)

    def report_evicted(self, messages: Sequence[Message]) -> None:
        """Call ``on_evict`` with messages that another manager took out of the history."""
        self._trimmer.report_evicted(messages)

    async def off_loop(self, messages: Sequence[Message], work: Callable[[], _T]) -> _T:
        """Do work on messages, and return its result: in a thread if it may take a second."""
        return await self._trimmer.off_loop(messages, work)

    def blocks_loop(self, messages: Sequence[Message]) -> bool:
        """Return whether work on messages must be left to a thread: it may take long and would block an event loop."""
        return self._trimmer.blocks_loop(messages)


@dataclass
class HistoryManagerLookup(HookEvent):
    """Asks the hooks of an agent for the manager of its history, which may be one below another, or a strategy.

    Attributes:
        found: The managers that have answered.
    """

    found: list[ImportanceWeightedConversationManager] = field(default_factory=list)


def history_manager_of(agent: Agent) -> ImportanceWeightedConversationManager | None:
    """Return the manager of an agent's history; None if it has none of this package."""
    lookup = HistoryManagerLookup(agent)
    agent.hooks.invoke_callbacks(lookup)
    return lookup.found[0] if lookup.found else None
