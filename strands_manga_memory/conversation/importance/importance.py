"""ImportanceWeightedConversationManager: keeps a history within a budget of tokens at every model call."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import positive, with_method
from strands_manga_memory.conversation.copying import CopiedAsNew
from strands_manga_memory.conversation.history.exchanges import ids_of_first_turn
from strands_manga_memory.conversation.history.layout import Layout, MessageLog, check_manager, ensure_ids, identify
from strands_manga_memory.conversation.history.message_list import History, copied_quickly
from strands_manga_memory.conversation.history.requests import Requests, with_added, without_added
from strands_manga_memory.conversation.history.results import ResultArchive
from strands_manga_memory.conversation.history.stubs import is_stub, joined
from strands_manga_memory.conversation.history.summary import is_synthesized
from strands_manga_memory.conversation.importance import headroom
from strands_manga_memory.conversation.importance.choosing.choice import Candidate, Choice, Limits
from strands_manga_memory.conversation.importance.choosing.selection import choose
from strands_manga_memory.conversation.importance.fates import Explanations, MessageFate
from strands_manga_memory.conversation.importance.reserve import Reserve
from strands_manga_memory.conversation.importance.steps import Steps
from strands_manga_memory.conversation.importance.view import View
from strands_manga_memory.conversation.importance.weighing.kept_notes import KeptNotes
from strands_manga_memory.conversation.importance.weighing.notes import Notes, weakly
from strands_manga_memory.conversation.importance.weighing.scoring import Bands, ImportanceScorer, RuleScorer
from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights
from strands_manga_memory.conversation.importance.weighing.workload import NOT_COUNTED, Work, counted, on_event_loop, work_on
from strands_manga_memory.conversation.serving import serves
from strands_manga_memory.conversation.tokens.calibration import Calibration
from strands_manga_memory.conversation.tokens.ledger import same_objects
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter, default_counter
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.messages import is_turn_start, mended, tool_use_ids
from strands_manga_memory.telemetry import timed

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class ImportanceWeightedConversationManager(CopiedAsNew, ConversationManager):
    """Keeps what matters of the conversation within ``max_tokens`` at every model call, in the middle of a turn too.

    The first turn, the current turn and pinned messages (``metadata.custom.pinned``, as Strands' ``pin_message`` sets it)
    always stay. What else there is stays by importance, the newest first, in whole exchanges, so that the
    history is valid for every provider. If what must stay is too large, it is shortened, head and tail kept; pinned messages
    never are: if they alone are over the budget, that is logged once, and a real overflow of the model's window raises.
    What the user says in the current turn is not shortened as long as the model's window has room: what it has beyond half of
    ``max_tokens`` comes on top of them, up to three quarters of the window (of 128,000 tokens, if the model does not say).

    With ``trim_every`` or ``trim_to`` the history is trimmed in steps: it only grows at its end until it passes ``max_tokens``,
    and is then trimmed for several turns at once. Between two steps each request begins with the whole one before, so a
    provider's prompt cache has it. Without them a full history is trimmed a little in every turn: it holds more, and no request
    begins with the one before.

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
        trim_to: Tokens to which a history over ``max_tokens`` is brought, and the same share of ``max_turns``; None (default):
            just below ``max_tokens``. What must stay may take more.
        trim_every: How many turns like the last ones a history over ``max_tokens`` makes room for, in at most a fifth of it.
        max_turns: Most turns to keep; None: as many as fit. What must stay is not bound by it.
        includes_recall: Whether what ``HistoryRecall`` quotes in a request counts into ``max_tokens`` too: the history gives
            way to it for that one call. What is kept of the history is as much as without recall.
        on_evict: Called with the messages that left the history or were shortened in it, as they were before, whenever some
            did, perhaps in a thread; they may return. Also with those that a summary or a compaction around this manager took
            out. Its errors are logged.
        log: Returns the raw messages from the beginning, as a session keeps them: from there messages that were shortened are
            read after a restart.
        proactive_compression: As in Strands' own managers: also reduce when the model's context window fills up.

    Raises:
        ValueError: A number is not a positive whole one, ``trim_to`` is above ``max_tokens``, or ``scorer``, ``counter`` or
            ``on_evict`` is not of its kind. From the agent's constructor: the manager already serves another agent.
    """

    def __init__(
        self,
        max_tokens: int = 4_096,
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
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        super().__init__(proactive_compression=proactive_compression)
        self.max_tokens = positive("max_tokens", max_tokens)
        self.max_turns = None if max_turns is None else positive("max_turns", max_turns)
        self.trim_to = self.max_tokens if trim_to is None else positive("trim_to", trim_to)
        if self.trim_to > self.max_tokens:
            raise ValueError(f"trim_to must be at most max_tokens ({self.max_tokens}), got {trim_to!r:.80}")
        self._steps = Steps(self.max_tokens, self.trim_to, None if trim_every is None else positive("trim_every", trim_every))
        self.scorer = with_method("scorer", scorer if scorer is not None else RuleScorer(), "score(message)")
        self.bands = bands or Bands()
        self.signals = signals or SignalWeights()
        self.counter = with_method("counter", counter if counter is not None else default_counter(), "count(message)")
        if on_evict is not None and not callable(on_evict):
            raise ValueError(f"on_evict must be a function of a list of messages, got {on_evict!r:.80}")
        self.includes_recall = includes_recall
        self.on_evict = on_evict
        self.archive = ResultArchive(log)
        self.persist_layout = True
        self.grow_to = self.max_tokens
        self._agent: weakref.ref[Agent] | None = None
        self._initialized = False
        self._lock = threading.RLock()
        self._notes = Notes(self.counter, self.scorer, weakly(self._history))
        self._explanations = Explanations(self._notes, self.signals)
        self._reserve = Reserve()
        self._first_turn: frozenset[str] = frozenset()
        self._within: list[Message] = []
        self._counted = NOT_COUNTED
        self._warned_over_budget = False
        self._calibration = Calibration(exact=getattr(self.counter, "exact", True))
        self._requests = Requests(self.counter, self._calibration)
        self._log, self._restored = MessageLog(), Layout()
        self._kept_notes = KeptNotes(self.counter, self.scorer)

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
        registry.add_callback(AfterInvocationEvent, self.keep_on, order=HookOrder.SDK_FIRST)
        registry.add_callback(BeforeModelCallEvent, self.keep_on, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        """Before the session is restored: take the agent, and give its messages ids before they are logged."""
        if self._agent is not None:
            call = "Agent(conversation_manager=ImportanceWeightedConversationManager(...))"
            raise ValueError(f"this ImportanceWeightedConversationManager already serves an agent; give each its own: {call}")
        self._agent = weakref.ref(event.agent)
        serves(self, event.agent)
        ensure_ids(event.agent.messages)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        """After the session was restored: bring back the exact window, and stand last before the model."""
        agent = event.agent
        if self.persist_layout:
            identify(agent.messages, self._restored.skip)
            self._log = MessageLog(self._restored.skip)
            self._log.add_restored(agent.messages)
            if (window := self._restored.replay(agent.messages)) is not None:
                agent.messages[:] = window
        self._restored = Layout()
        self._kept_notes.give(agent.messages, self._notes)
        self._initialized = True
        agent.messages = copied_quickly(agent.messages)
        self.archive.offer(agent, agent.messages)
        agent.add_middleware(InvokeModelStage.Input, self._before_request)

    def _message_is_added(self, event: MessageAddedEvent[Agent]) -> None:
        if self.persist_layout:
            self._log.adding(event.message)

    def _message_was_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._log.added()
        if event.message["role"] == "assistant" and not tool_use_ids(event.message):
            # The answer ends the turn: trimmed now, the history is saved with its last message, not in a save of its own.
            self._keep_budget_now(event.agent, ends_turn=True)

    async def keep_on(self, event: BeforeModelCallEvent | AfterInvocationEvent | ContextState) -> None:
        """Bring the history of an agent within the budget; errors are logged, never raised."""
        if not same_objects(event.agent.messages, self._within):  # else nothing was added since; what is sent is counted again
            await self._keep_budget_soon(event.agent, [])

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._keep_budget_soon(event.agent, event.messages or [])

    async def _before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        """Mend and trim what this one call sends: it may hold more than the history, continuations come after the hooks."""
        try:
            messages, added = without_added(context)
            history = mended(messages)
            quoted = self._requests.quoted(added) if self.includes_recall else 0
            work, tokens = self._work_on(history, quoted)
            if work is not Work.NONE:
                history, tokens = await self._done(work, lambda: self._fitted_request(history, quoted))
            history = joined(history)
            self._requests.sending(context, tokens, added)
            return context if history is messages else context.replace(messages=History(with_added(history, added)))
        except Exception:
            logger.warning("the history could not be trimmed for this call | sending it as it is", exc_info=True)
            return context

    def _fitted_request(self, history: list[Message], quoted: int) -> tuple[list[Message], int]:
        if not self._is_over(history, (tokens := self._notes.total(history)) + quoted):
            return history, tokens
        choice = self._chosen_beside(history, quoted)
        return list(choice.kept.values()), choice.tokens

    def _after_model_call(self, event: AfterModelCallEvent) -> None:
        self._requests.answered(event)

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Bring the history within the budget; errors are logged, never raised."""
        self._log.settle()
        self._counted = NOT_COUNTED  # whoever asks may have edited a message in place
        self._keep_budget_now(agent)

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
            self._reserve.take_in(history := agent.messages[:], self._notes.tokens)
            candidates = self._candidates(history)
            before = sum(candidate.tokens for candidate in candidates)
            if e is None:
                budget = self._budget + self._headroom(history, self._budget).tokens
                goal = min(budget, before * 3 // 4)
                choice = self._choose(candidates, goal, may_shorten=before > budget, room=headroom.NO_HEADROOM)
            else:
                goal = min(self._budget, before // 2)
                choice = self._choose(candidates, goal, room=headroom.NO_HEADROOM)
                if choice.tokens > goal or not choice.kept:
                    raise ContextWindowOverflowException(
                        f"the window is full and the history cannot be halved: of {before} tokens {choice.tokens} must stay"
                    ) from e
            self._commit(agent, history, choice, history)
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
        if self._initialized and (notes := self._kept_notes.to_state(self._history(), self._notes)) is not None:
            state["notes"] = notes
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
            self._kept_notes.restore(state.get("notes"))
        self._calibration.restore(ratio)
        return None

    # --- What users ask -----------------------------------------------------------------------------------------------------

    def explain(self, agent: Agent) -> list[MessageFate]:
        """Return what became of each message, of the history and of the last 1,000 dropped ones, in the order of speech."""
        messages = list(agent.messages)
        return self._explanations.of(messages, self._choose(self._candidates(messages), self._budget).why)

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the tokens of the history as the model counts them, the budget, and what is left of it."""
        messages = agent.messages[:]
        tokens, budget = self.tokens(messages), self.max_tokens + self.room_beyond(messages, self.max_tokens)
        return {"tokens": tokens, "budget": budget, "left": budget - tokens}

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
        budget = self._calibration.budget(max_tokens)
        return list(self._choose(self._candidates(messages), budget, room=headroom.NO_HEADROOM).kept.values())

    def beside(self, messages: Sequence[Message], quoted: int) -> tuple[list[Message], int]:
        """Return what of a history a model is sent beside up to so many tokens of quotes, and how many those may be."""
        most = headroom.for_quotes(messages, self._budget, self._notes.total) if self.includes_recall else quoted
        if self.includes_recall and self._is_over(messages, self._notes.total(messages) + min(quoted, most)):
            messages = list(self._chosen_beside(messages, min(quoted, most)).kept.values())
        return list(messages), min(quoted, most)

    def _chosen_beside(self, messages: Sequence[Message], quoted: int) -> Choice:
        return self._choose(self._candidates(messages), max(1, self._budget - quoted))

    def forget(self, tracking_id: str) -> None:
        """Forget what a message said that has left the history, as when it is redacted in the log: it does not come back."""
        self._reserve.forget(tracking_id)

    def evicted(self, messages: Sequence[Message]) -> None:
        """Tell ``on_evict`` of messages that left the history; marks and parts of summaries among them are left out."""
        said = [message for message in messages if not is_stub(message) and not is_synthesized(message)]
        if said and self.on_evict is not None:
            try:
                self.on_evict(said)
            except Exception:
                logger.warning("on_evict failed | the messages have left the history", exc_info=True)

    @property
    def records(self) -> int:
        """How many messages a session manager that logs them has logged."""
        return self._log.length

    # --- Keeping the budget -------------------------------------------------------------------------------------------------

    @property
    def _budget(self) -> int:
        return self._calibration.budget(self.max_tokens)

    @property
    def _served(self) -> Agent | None:
        return self._agent() if self._agent is not None else None

    def _history(self) -> list[Message]:
        return self._served.messages if self._served is not None else []

    async def off_loop(self, messages: Sequence[Message], work: Callable[[], _T]) -> _T:
        """Do work on messages, and return what comes of it: in a thread if it may take a second, as counting them may."""
        return await self._done(self._work_on(messages)[0], work)

    async def _done(self, work: Work, do: Callable[[], _T]) -> _T:
        return await asyncio.to_thread(do) if work is Work.LONG else do()

    def holds_up(self, messages: Sequence[Message]) -> bool:
        """Whether work on messages must not be done here: it may take long, and an event loop would wait for it."""
        return on_event_loop() and self._work_on(messages)[0] is Work.LONG

    def _work_on(self, messages: Sequence[Message], beside: int = 0, *, anew: bool = True) -> tuple[Work, int]:
        """Return what there is to do to have messages within the budget, ``beside`` other tokens, and their tokens."""
        known = NOT_COUNTED if anew else self._counted
        return work_on(messages, self._notes, lambda tokens: self._is_over(messages, tokens + beside), known)

    async def _keep_budget_soon(self, agent: Agent, coming: Sequence[Message]) -> None:
        """Keep the budget, where it can be waited for."""
        work, tokens = self._work_on([*agent.messages, *coming], anew=False)
        if work is Work.NONE:
            self._is_within(agent, coming, tokens)
        else:
            await self._done(work, lambda: self._keep_budget(agent, coming))

    def _keep_budget_now(self, agent: Agent, *, ends_turn: bool = False) -> None:
        """Keep the budget where nothing can be waited for; on an event loop long work is left to the end of the invocation.

        At the end of a turn room is made for the next request too, or the same choice would be made again when it comes.
        """
        room = headroom.next_request(self._budget, self._notes.tokens) if ends_turn and not self._steps else headroom.no_room
        work, tokens = self._work_on(messages := agent.messages[:], room(messages), anew=False)
        if work is Work.NONE:
            self._is_within(agent, [], tokens)
        elif work is Work.SHORT or not on_event_loop():
            self._keep_budget(agent, [], room)

    def _keep_budget(self, agent: Agent, coming: Sequence[Message], room: headroom.Room = headroom.no_room) -> None:
        """Drop and shorten messages of the agent until they are within the budget, with those ``coming`` and ``room``."""
        try:
            with self._lock:
                ensure_ids(history := agent.messages[:])
                messages = [*history, *coming]
                stays, left = coming, room(history)
                if self._is_over(messages, self._notes.total(messages) + left):
                    choice, pool = self._chosen_anew(history, coming, left)
                    self._commit(agent, history, choice, pool)
                    stays = [message for at, message in choice.kept.items() if at >= len(pool)]
                self._within = []
                if same_objects(stays, coming):
                    self._is_within(agent, coming)
        except Exception:
            logger.warning("the history could not be trimmed | leaving it as it is", exc_info=True)

    def _chosen_anew(self, history: list[Message], coming: Sequence[Message], beside: int) -> tuple[Choice, list[Message]]:
        """Return a choice and what it is made from: in a step all that is at hand.

        Where every turn is trimmed, that is done now and then, and when the history alone would leave much room.
        """
        self._reserve.take_in(history, self._notes.tokens)
        mark = self._steps.mark([*history, *coming], self._notes.total)
        if not self._steps and not self._reserve.is_due(self.max_tokens, 0):
            choice = self._choose(self._candidates([*history, *coming]), self._budget - beside, trim_to=mark)
            if not self._reserve.is_due(self.max_tokens, choice.budget - choice.tokens):
                return choice, history
        pool = self._reserve.at_hand(history, self.max_tokens, self._notes.total, self._narrowed)
        return self._choose(self._candidates([*pool, *coming]), self._budget - beside, trim_to=mark), pool

    def _narrowed(self, pool: Sequence[Message], tokens: int) -> list[Message]:
        self._fix_first_turn(pool)
        limits = Limits(tokens, None, self.bands, False, self.signals, self._notes.vocabulary.service)  # noqa: FBT003
        choice = choose(self._candidates(pool), limits, first_turn=self._first_turn, count=self._notes.count)
        return list(choice.kept.values())

    def _is_within(self, agent: Agent, coming: Sequence[Message], tokens: int | None = None) -> None:
        """Take note that the history is within the budget, with what is ``coming``; forget what is known of other messages."""
        with self._lock:
            ensure_ids(agent.messages)
            self._within = [*agent.messages, *coming]
            self._counted = counted(self._within, tokens, self._notes)
            if len(self._notes) > 2 * max(len(agent.messages), len(self._reserve)) + 128:
                for memory in (self._notes, self._log, self._explanations):
                    memory.forget_all_but([*self._reserve, *agent.messages])

    def _candidates(self, messages: Sequence[Message]) -> list[Candidate]:
        notes = self._notes.read(messages)
        return [Candidate(message, note.tokens, note.score, note) for message, note in zip(messages, notes, strict=True)]

    def _is_over(self, messages: Sequence[Message], tokens: int) -> bool:
        most = self._calibration.budget(max(self.max_tokens, self.grow_to))
        if tokens > most and tokens > most + self._headroom(messages, most).tokens:
            return True
        return self.max_turns is not None and sum(map(is_turn_start, messages)) > self.max_turns

    def room_beyond(self, messages: Sequence[Message], limit: int) -> int:
        """Return by how many tokens, as the model counts them, a limit grows for what the user says now."""
        return self._calibration.reported(self._headroom(messages, self._calibration.budget(limit)).tokens)

    def _headroom(self, messages: Sequence[Message], budget: int) -> headroom.Headroom:
        return headroom.headroom_for(messages, budget, self._served, self._calibration, self._notes.tokens)

    def _choose(
        self,
        candidates: Sequence[Candidate],
        budget: int,
        *,
        may_shorten: bool = True,
        trim_to: int | None = None,
        room: headroom.Headroom | None = None,
    ) -> Choice:
        self._fix_first_turn(messages := [candidate.message for candidate in candidates])
        beyond = self._headroom(messages, self._budget) if room is None else room
        most, fill_to, lasts = self.max_turns, None, 0
        if trim_to is not None and trim_to < self.max_tokens:
            fill_to = self._calibration.budget(trim_to) + beyond.tokens
            lasts = self._steps.turns or 0
            most = most and max(1, most * trim_to // self.max_tokens)
        limits = Limits(budget + beyond.tokens, most, self.bands, may_shorten, self.signals, self._notes.vocabulary.service)
        limits = replace(limits, fill_to=fill_to, headroom=beyond.tokens, spares_request=beyond.is_enough, lasts=lasts)
        return choose(candidates, limits, first_turn=self._first_turn, count=self._notes.count)

    def _commit(self, agent: Agent, history: list[Message], choice: Choice, pool: Sequence[Message]) -> None:
        """Make a choice from ``pool`` the agent's history, in one step; what was added to ``history`` meanwhile stays."""
        if choice.tokens > choice.budget and not self._warned_over_budget:
            self._warned_over_budget = True
            what = "what must stay (pinned messages, reasoning, waiting tool calls) is over the budget"
            logger.warning("tokens=<%d>, budget=<%d> | %s", choice.tokens, choice.budget, what)
        view = View(history, pool, choice)
        if view.is_unchanged:
            self._reserve.show(history, history)
            return
        if not same_objects(agent.messages[: len(history)], history):
            logger.debug("the history was replaced meanwhile | leaving it as it is")
            return
        agent.messages[: len(history)] = view.messages
        self._reserve.show(history, view.messages)
        self.archive.keep_cut(self._served, pool, view.cut)
        view.tell(self._notes.total(history), choice)
        self._explanations.follow(view, pool, choice.why)
        self.evicted(view.left)

    def _fix_first_turn(self, messages: Sequence[Message]) -> None:
        """Remember the extent of the first turn once it is over, by id: told anew from a trimmed history it might grow."""
        if self._first_turn.isdisjoint(message.get("tracking_id") for message in messages):
            self._first_turn = ids_of_first_turn(messages)
