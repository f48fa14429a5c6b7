"""ImportanceWeightedConversationManager: keeps a history within a budget of tokens at every model call."""

from __future__ import annotations

import asyncio
import itertools
import logging
import operator
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import (
    AfterModelCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.types.content import ContentBlock, Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.conversation.calibration import Calibration
from strands_manga_memory.conversation.contents import Contents
from strands_manga_memory.conversation.fates import REMEMBERED_DROPS, Fates, MessageFate, fate_of
from strands_manga_memory.conversation.intake import is_quote
from strands_manga_memory.conversation.layout import Layout, MessageLog, check_manager, identify
from strands_manga_memory.conversation.ledger import size_of
from strands_manga_memory.conversation.notes import Notes, weakly
from strands_manga_memory.conversation.requests import Requests, with_added, without_added
from strands_manga_memory.conversation.scoring import Bands, ImportanceScorer, RuleScorer
from strands_manga_memory.conversation.selection import Candidate, Choice, Limits, choose
from strands_manga_memory.conversation.shortening import is_shortened
from strands_manga_memory.conversation.signals import SignalWeights, text_signals, tool_signals
from strands_manga_memory.conversation.stubs import is_stub, joined
from strands_manga_memory.conversation.summary import is_synthesized
from strands_manga_memory.conversation.tokens import TokenCounter, default_counter
from strands_manga_memory.conversation.turns import is_turn_start, mended, tool_use_ids, turns
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.telemetry import TRIM, note, timed

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)

_LARGE = 50_000
"""New messages of more characters and bytes together are counted in a thread."""

_SHARE_OF_REQUEST = 16
"""At the end of a turn at most this part of the budget is left free for the next request."""

_LEAST_WITH_ROOM = 1_024
"""A smaller budget has nothing to spare, and choosing twice from so few messages costs little."""


class ImportanceWeightedConversationManager(ConversationManager):
    """Keeps what matters of the conversation within ``max_tokens`` at every model call, in the middle of a turn too.

    The first turn, the current turn and pinned messages (``metadata.custom.pinned``, as Strands' ``pin_message`` sets it)
    always stay. What else there is stays by importance (mission row A4), the newest first, in whole exchanges, so that the
    history is valid for every provider. If what must stay is too large, it is shortened, head and tail kept; pinned messages
    never are: if they alone are over the budget, that is logged once, and a real overflow of the model's window raises.

    A manager that summarizes sets ``grow_to``: the history may then grow to that many tokens before it is brought back to
    ``max_tokens``.

    One manager serves one agent. With a session manager that logs messages (``FileSessionManager``) it restores its own exact
    window; one that restores the window itself sets ``persist_layout`` to False before it restores.

    Args:
        max_tokens: The budget of the history, in tokens, both by the counter and by what the model reports.
        scorer: Says what a message is worth; default: rules in English and Japanese.
        bands: From which scores on a message is kept as long as anything else can go (0.8), or if there is room (0.5).
        signals: What each signal counts when messages of one band are compared.
        counter: Counts tokens; default: tiktoken if a vocabulary is on the disk, else an estimate.
        max_turns: Most turns to keep; None: as many as fit. What must stay is not bound by it.
        includes_recall: Whether what ``HistoryRecall`` quotes in a request counts into ``max_tokens`` too: the history gives
            way to it for that one call. What is kept of the history is as much as without recall.
        on_evict: Called with the messages that left the history or were shortened in it, as they were before, whenever some
            did, perhaps in a thread; also with those that a summary or a compaction around this manager took out. Its errors
            are logged.
        proactive_compression: As in Strands' own managers: also reduce when the model's context window fills up.

    Raises:
        ValueError: ``max_tokens`` or ``max_turns`` is not a positive whole number, or ``scorer``, ``counter`` or ``on_evict``
            is not of its kind. From the agent's constructor: the manager already serves another agent.
    """

    def __init__(
        self,
        max_tokens: int = 4_096,
        *,
        scorer: ImportanceScorer | None = None,
        bands: Bands | None = None,
        signals: SignalWeights | None = None,
        counter: TokenCounter | None = None,
        max_turns: int | None = None,
        includes_recall: bool = False,
        on_evict: Callable[[list[Message]], None] | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        super().__init__(proactive_compression=proactive_compression)
        self.max_tokens = _positive("max_tokens", max_tokens)
        self.max_turns = None if max_turns is None else _positive("max_turns", max_turns)
        self.scorer = _with_method("scorer", scorer if scorer is not None else RuleScorer(), "score")
        self.bands = bands or Bands()
        self.signals = signals or SignalWeights()
        self.counter = _with_method("counter", counter if counter is not None else default_counter(), "count")
        if on_evict is not None and not callable(on_evict):
            raise ValueError(f"on_evict must be a function of a list of messages, got {on_evict!r}")
        self.includes_recall = includes_recall
        self.on_evict = on_evict
        self.persist_layout = True
        self.grow_to = self.max_tokens
        self._agent: weakref.ref[Agent] | None = None
        self._initialized = False
        self._lock = threading.RLock()
        self._notes = Notes(self.counter, self.scorer, weakly(self._history))
        self._fates = Fates()
        self._contents = Contents()
        self._first_turn: frozenset[str] = frozenset()
        self._within: list[Message] = []
        self._warned_over_budget = False
        self._calibration = Calibration(exact=getattr(self.counter, "exact", True))
        self._requests = Requests(self.counter, self._calibration)
        self._log = MessageLog()
        self._restored = Layout()

    # --- Hooks --------------------------------------------------------------------------------------------------------------

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register what keeps the budget at every model call, and what restores the window."""
        registry = timed(registry)
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._attach, order=HookOrder.SDK_FIRST)
        registry.add_callback(AgentInitializedEvent, self._start, order=HookOrder.SDK_LAST)
        registry.add_callback(MessageAddedEvent, self._message_is_added, order=HookOrder.SDK_FIRST)
        registry.add_callback(MessageAddedEvent, self._message_was_added, order=HookOrder.SDK_LAST)
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=HookOrder.SDK_LAST)
        registry.add_callback(BeforeModelCallEvent, self._before_model_call, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        """Before the session is restored: take the agent, and give its messages ids before they are logged."""
        if self._agent is not None:
            raise ValueError(
                "this ImportanceWeightedConversationManager already serves an agent; give each agent its own: "
                "Agent(conversation_manager=ImportanceWeightedConversationManager(...))"
            )
        self._agent = weakref.ref(event.agent)
        _ensure_ids(event.agent.messages)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        """After the session was restored: bring back the exact window, and stand last before the model."""
        agent = event.agent
        if self.persist_layout:
            identify(agent.messages, self._restored.skip)
            self._log = MessageLog(self._restored.skip)
            self._log.add_restored(agent.messages)
            window = self._restored.replay(agent.messages)
            if window is not None:
                agent.messages[:] = window
        self._restored = Layout()
        self._initialized = True
        agent.add_middleware(InvokeModelStage.Input, self._before_request)

    def _message_is_added(self, event: MessageAddedEvent[Agent]) -> None:
        if self.persist_layout:
            self._log.adding(event.message)

    def _message_was_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._log.added()
        if event.message["role"] == "assistant" and not tool_use_ids(event.message):
            # The answer ends the turn: trimmed now, the history is saved with its last message, not in a save of its own.
            self._keep_budget(event.agent, [], ends_turn=True)

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._keep_budget_off_loop(event.agent, event.messages or [])

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        if not same_objects(event.agent.messages, self._within):  # else nothing was added since; what is sent is counted again
            await self._keep_budget_off_loop(event.agent, [])

    def _before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        """Mend and trim what this one call sends: it may hold more than the history, continuations come after the hooks."""
        try:
            messages, added = without_added(context)
            history = mended(messages)
            tokens, quoted = self._notes.total(history), self._quoted(added)
            if self._is_over(history, tokens + quoted):
                choice = self._chosen_beside(history, quoted)
                history, tokens = list(choice.kept.values()), choice.tokens
            history = joined(history)
            self._requests.sending(context, tokens, added)
            return context if history is messages else context.replace(messages=with_added(history, added))
        except Exception:
            logger.warning("the history could not be trimmed for this call | sending it as it is", exc_info=True)
            return context

    def _after_model_call(self, event: AfterModelCallEvent) -> None:
        self._requests.answered(event)

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Bring the history within the budget; errors are logged, never raised."""
        self._log.settle()
        self._keep_budget(agent, [])

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller because the model's context window is full, or filling up.

        Args:
            agent: The agent; its list of messages is changed in place, as one step.
            e: The overflow. With it the history is at least halved, and halved again by each further overflow. Without it a
                quarter goes, of what need not stay.
            **kwargs: For extensions of the contract.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and no half of the history can be freed: what is pinned is too
                large, or the history is not what fills the window. The history is left as it was.
        """
        with self._lock:
            history = agent.messages[:]
            candidates = self._candidates(history)
            before = sum(candidate.tokens for candidate in candidates)
            if e is None:
                goal = min(self._budget, before * 3 // 4)
                choice = self._choose(candidates, goal, may_shorten=before > self._budget)
            else:
                goal = min(self._budget, before // 2)
                choice = self._choose(candidates, goal)
                if choice.tokens > goal or not choice.kept:
                    raise ContextWindowOverflowException(
                        f"the window is full and the history cannot be halved: of {before} tokens {choice.tokens} must stay"
                    ) from e
            self._commit(agent, history, choice)
        logger.debug("tokens_before=<%d>, tokens_after=<%d> | reduced the history", before, choice.tokens)

    def get_state(self) -> dict[str, Any]:
        """Return what a session keeps: small, and the same until something really changes."""
        state = super().get_state()
        if self._calibration.settled != 1.0:
            state["ratio"] = self._calibration.settled
        if self.persist_layout and self._initialized:
            layout = self._log.layout(self._history())
            state["removed_message_count"] = self.removed_message_count = layout.skip
            if (window := layout.to_state()) is not None:
                state["layout"] = window
        return state

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Take back what :meth:`get_state` returned; the window itself is restored at the end of the agent's construction.

        Raises:
            ValueError: The state is that of another conversation manager.
            CorruptRecordError: The state is malformed, or a newer version of this package wrote it.
        """
        check_manager(state, self)
        skip, ratio = state.get("removed_message_count"), state.get("ratio", 1.0)
        if not isinstance(skip, int) or skip < 0 or not isinstance(ratio, int | float):
            raise CorruptRecordError("the state of the conversation manager is malformed", record="conversation manager state")
        super().restore_from_session(state)
        layout = Layout.from_state(state.get("layout"), self.removed_message_count)
        if not self._initialized:  # later, from a snapshot, the messages are exact and the log is still the same
            self._restored = layout
        self._calibration.restore(ratio)
        return None

    # --- What users ask -----------------------------------------------------------------------------------------------------

    def explain(self, agent: Agent) -> list[MessageFate]:
        """Return what became of each message, of the history and of the last 1,000 dropped ones, in the order of speech."""
        messages = list(agent.messages)
        self._fates.see(messages)
        candidates = self._candidates(messages)
        why = self._choose(candidates, self._budget).why
        ages = _ages(messages)
        return self._fates.in_order(self._present(each, ages[at], why[at]) for at, each in enumerate(candidates))

    def _present(self, candidate: Candidate, age: int, why: str) -> MessageFate:
        """Return the fate of a message of the history."""
        if is_stub(candidate.message):
            return self._fates.marked(self._fate(candidate.message, age, "shortened", why))
        return self._fate(candidate.message, age, "shortened" if is_shortened(candidate.message) else "kept", why)

    def _fate(self, message: Message, age: int, fate: str, why: str) -> MessageFate:
        note = self._notes(message)
        if note.act in ("tool_use", "tool_result"):
            signals = tool_signals(note, age=age, weights=self.signals)
        else:
            service = self._notes.vocabulary.service if message["role"] == "assistant" else 0.0
            signals = text_signals(note, is_service=service, age=age, weights=self.signals)
        return fate_of(message, note, fate, why, signals)

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the tokens of the history as the model counts them, the budget, and what is left of it."""
        tokens = self._calibration.reported(self._notes.total(agent.messages[:]))
        return {"tokens": tokens, "budget": self.max_tokens, "left": self.max_tokens - tokens}

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages as the model counts them; each message is counted once."""
        return self._calibration.reported(self._notes.total(messages))

    def score(self, message: Message) -> float:
        """Return what a message is worth, 0 to 1."""
        return self._notes(message).score

    def fitted(self, messages: Sequence[Message], max_tokens: int) -> list[Message]:
        """Return what of a history stays within a budget, by importance, shortened where it must; nothing is changed."""
        if self.tokens(messages) <= max_tokens:
            return list(messages)
        return list(self._choose(self._candidates(messages), self._calibration.budget(max_tokens)).kept.values())

    def beside(self, messages: Sequence[Message], quoted: int) -> list[Message]:
        """Return what of a history a model is sent beside so many tokens of quotes; nothing is changed."""
        if not self.includes_recall or not self._is_over(messages, self._notes.total(messages) + quoted):
            return list(messages)
        return list(self._chosen_beside(messages, quoted).kept.values())

    def _chosen_beside(self, messages: Sequence[Message], quoted: int) -> Choice:
        return self._choose(self._candidates(messages), max(1, self._budget - quoted))

    def evicted(self, messages: Sequence[Message]) -> None:
        """Tell ``on_evict`` of messages that left the history; marks and parts of summaries among them are left out."""
        said = [message for message in messages if not is_stub(message) and not is_synthesized(message)]
        if said and self.on_evict is not None:
            try:
                self.on_evict(said)
            except Exception:
                logger.warning("on_evict failed | the messages have left the history", exc_info=True)

    # --- Keeping the budget -------------------------------------------------------------------------------------------------

    @property
    def _budget(self) -> int:
        return self._calibration.budget(self.max_tokens)

    def _history(self) -> list[Message]:
        agent = self._agent() if self._agent is not None else None
        return agent.messages if agent is not None else []

    async def _keep_budget_off_loop(self, agent: Agent, coming: list[Message]) -> None:
        """Keep the budget; many or large messages not counted before are left to a thread: they may take a second."""
        new = itertools.takewhile(lambda message: message not in self._notes, reversed([*agent.messages, *coming]))
        sizes = itertools.accumulate(size_of(message["content"]) for message in new)
        if any(size > _LARGE for size in sizes):
            await asyncio.to_thread(self._keep_budget, agent, coming)
        else:
            self._keep_budget(agent, coming)

    def _keep_budget(self, agent: Agent, coming: list[Message], *, ends_turn: bool = False) -> None:
        """Drop and shorten messages of the agent until they are, with those that are ``coming``, within the budget.

        At the end of a turn room is made for the next request too, or the same choice would be made again when it comes.
        """
        try:
            with self._lock:
                history = agent.messages[:]
                _ensure_ids(history)
                messages = [*history, *coming]
                next_request = self._next_request(history) if ends_turn else 0
                stays = coming
                if self._is_over(messages, self._notes.total(messages) + next_request):
                    choice = self._choose(self._candidates(messages), self._budget - next_request)
                    self._commit(agent, history, choice)
                    stays = [message for at, message in choice.kept.items() if at >= len(history)]
                self._within = [*agent.messages, *coming] if same_objects(stays, coming) else []
                if len(self._notes) > 2 * len(agent.messages) + 128:
                    for memory in (self._notes, self._log, self._fates, self._contents):
                        memory.forget_all_but(agent.messages)
        except Exception:
            logger.warning("the history could not be trimmed | leaving it as it is", exc_info=True)

    def _quoted(self, added: Sequence[ContentBlock]) -> int:
        """Return the tokens of what is quoted from earlier in the conversation, if the budget is for that too."""
        quotes: list[ContentBlock] = [block for block in added if is_quote(block)] if self.includes_recall else []
        return self.counter.count({"role": "user", "content": quotes}) if quotes else 0

    def _next_request(self, messages: Sequence[Message]) -> int:
        """Return how many tokens the user's next message may have: those of the largest of the last four, within reason."""
        if self._budget < _LEAST_WITH_ROOM:
            return 0
        latest = itertools.islice(filter(is_turn_start, reversed(messages)), 4)
        return min(max(map(self._notes.tokens, latest), default=0), self._budget // _SHARE_OF_REQUEST)

    def _candidates(self, messages: Sequence[Message]) -> list[Candidate]:
        notes = self._notes.read(messages)
        return [Candidate(message, note.tokens, note.score, note) for message, note in zip(messages, notes, strict=True)]

    def _is_over(self, messages: Sequence[Message], tokens: int) -> bool:
        if tokens > self._calibration.budget(max(self.max_tokens, self.grow_to)):
            return True
        return self.max_turns is not None and sum(map(is_turn_start, messages)) > self.max_turns

    def _choose(self, candidates: Sequence[Candidate], budget: int, *, may_shorten: bool = True) -> Choice:
        self._fix_first_turn([candidate.message for candidate in candidates])
        service = self._notes.vocabulary.service
        limits = Limits(budget, self.max_turns, self.bands, may_shorten=may_shorten, weights=self.signals, service=service)
        return choose(candidates, limits, first_turn=self._first_turn, count=self._notes.count)

    def _commit(self, agent: Agent, history: list[Message], choice: Choice) -> None:
        """Make a choice from ``history`` the agent's history, in one step; what was added to it meanwhile stays."""
        if choice.tokens > self._budget and not self._warned_over_budget:
            self._warned_over_budget = True
            logger.warning(
                "tokens=<%d>, budget=<%d> | what must stay (pinned messages, reasoning, waiting tool calls) is over the budget",
                choice.tokens,
                self._budget,
            )
        gone = [at for at in range(len(history)) if at not in choice.kept]
        if not gone and not choice.shortened:
            return
        left = [message for at, message in enumerate(history) if choice.kept.get(at) is not message]
        if not same_objects(agent.messages[: len(history)], history):
            logger.debug("the history was replaced meanwhile | leaving it as it is")
            return
        for at in choice.shortened:
            if at < len(history):
                self._contents.replace(history[at], choice.kept[at])
        agent.messages[: len(history)] = [message for at, message in choice.kept.items() if at < len(history)]
        self._fates.see(history)
        ages = _ages(history)
        tokens = max(0, choice.tokens_before - choice.tokens)
        note(TRIM, counts={"messages": len(gone), "shortened": len(choice.shortened), "tokens": tokens})
        for at in gone[-REMEMBERED_DROPS:]:
            self._fates.drop(self._fate(history[at], ages[at], "dropped", choice.why[at]))
        for at in choice.shortened:
            if at < len(history) and is_stub(choice.kept[at]) and not is_stub(history[at]):
                self._fates.mark(self._fate(history[at], ages[at], "shortened", choice.why[at]))
        self.evicted(left)

    def _fix_first_turn(self, messages: Sequence[Message]) -> None:
        """Remember the extent of the first turn once it is over, by id: told anew from a trimmed history it might grow."""
        if self._first_turn.isdisjoint(message.get("tracking_id") for message in messages):
            found = [turn for turn in turns(messages) if is_turn_start(messages[turn.start])]
            first = found[0] if len(found) > 1 else ()
            self._first_turn = frozenset(id_ for at in first if (id_ := messages[at].get("tracking_id")))


def _ages(messages: Sequence[Message]) -> list[int]:
    """Return for each message how many turns began after it."""
    began = list(itertools.accumulate((is_turn_start(message) for message in reversed(messages)), initial=0))
    return began[-2::-1]


def same_objects(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Whether two lists hold the same messages, not merely equal ones."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _ensure_ids(messages: list[Message]) -> None:
    for message in messages:
        if not message.get("tracking_id"):
            message["tracking_id"] = str(uuid.uuid4())


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return value


def _with_method(name: str, value: Any, method: str) -> Any:
    if not callable(getattr(value, method, None)):
        raise ValueError(f"{name} must have a method {method}(message), got {value!r}")
    return value
