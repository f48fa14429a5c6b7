"""ImportanceWeightedConversationManager: keeps a history within a budget of tokens at every model call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
from strands.middleware import InvokeModelStage
from strands.types.content import Message

from strands_manga_memory.arguments import function, positive, with_method
from strands_manga_memory.conversation.copying import CopiedAsNew
from strands_manga_memory.conversation.delegated import Delegated
from strands_manga_memory.conversation.history.layout import check_manager, ensure_ids
from strands_manga_memory.conversation.history.message_list import copied_quickly
from strands_manga_memory.conversation.history.requests import Requests
from strands_manga_memory.conversation.history.results import ResultArchive
from strands_manga_memory.conversation.importance.fates import MessageFate
from strands_manga_memory.conversation.importance.history_budget import HistoryBudget
from strands_manga_memory.conversation.importance.manager_state import ManagerState
from strands_manga_memory.conversation.importance.sending import Sending
from strands_manga_memory.conversation.importance.trimming import Trimming
from strands_manga_memory.conversation.importance.weighing.kept_notes import KeptNotes
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.scoring import Bands, ImportanceScorer, RuleScorer
from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights
from strands_manga_memory.conversation.importance.weighing.workload import Workload
from strands_manga_memory.conversation.serving import Served, serves
from strands_manga_memory.conversation.tokens.budget import history_tokens
from strands_manga_memory.conversation.tokens.calibration import Calibration
from strands_manga_memory.conversation.tokens.thresholds import window_of
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter, default_counter
from strands_manga_memory.messages import tool_use_ids
from strands_manga_memory.messages.tool_results import ToolResultSeparator
from strands_manga_memory.telemetry import timed

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState


_BEHIND_SESSION_MANAGERS = HookOrder.SDK_LAST + 1

_BANDS, _SIGNALS = Bands(), SignalWeights()  # one for all agents


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
        max_tokens: The budget of the history, in tokens, both by the counter and by what the model reports. None: a quarter of
            the context window of the agent's model, at most 16,384, and 4,096 if the model does not know its window.
        scorer: Says what a message is worth; default: rules in English and Japanese.
        bands: From which scores on a message is kept as long as anything else can go (0.8), or if there is room (0.5).
        signals: What each signal counts when messages of one band are compared.
        counter: Counts tokens; default: tiktoken if a vocabulary is on the disk, else an estimate.
        trim_to: Tokens to which a history over ``max_tokens`` is brought, and the same share of ``max_turns``; None (default):
            just below ``max_tokens``. What must stay may take more. Trimmed in steps, tool results of the turn before are
            a reason for one, too, if they take an eighth of ``max_tokens`` and the history is above the low mark.
        trim_every: How many turns like the last ones a history over ``max_tokens`` makes room for, in at most a third of it.
        max_turns: Most turns to keep; None: as many as fit. What must stay is not bound by it.
        includes_recall: Whether what ``HistoryRecall`` quotes in a request counts into ``max_tokens`` too: the budget of its
            quotes, at most half of ``max_tokens``, is reserved in every request, and the history has the rest.
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

    max_tokens = Delegated[int]("budget")
    grow_to = Delegated[int]("budget")
    trim_to = Delegated["int | None"]("budget")
    trim_every = Delegated["int | None"]("budget")
    max_turns = Delegated["int | None"]("budget")
    bands = Delegated[Bands]("budget")
    signals = Delegated[SignalWeights]("budget")
    includes_recall = Delegated[bool]("_sending")
    on_evict = Delegated["Callable[[list[Message]], None] | None"]("trimming")
    persist_layout = Delegated[bool]("_state")
    records = Delegated[int]("_state")

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
        self.scorer = with_method("scorer", scorer if scorer is not None else RuleScorer(), "score(message)")
        self.counter = with_method("counter", counter if counter is not None else default_counter(), "count(message)")
        if on_evict is not None:
            function("on_evict", on_evict, "a function of a list of messages")
        self.archive = ResultArchive(log)
        self._served = served = Served()
        self._notes = notes = Notes(self.counter, self.scorer, served.history)
        self._kept_notes = KeptNotes(self.counter, self.scorer)
        calibration = Calibration(exact=getattr(self.counter, "exact", True))
        self._state = ManagerState(notes, self._kept_notes, calibration)
        bands, signals = bands or _BANDS, signals or _SIGNALS
        self.budget = HistoryBudget(high, trim_to, trim_every, max_turns, bands, signals, notes, calibration, served)
        self.workload = Workload(notes, self.budget.is_over)
        self.trimming = Trimming(self.budget, self.workload, notes, self._state, self.archive, served, on_evict)
        self._requests = Requests(self.counter, calibration)
        self._sending = Sending(self.budget, self.workload, notes, self._requests, includes_recall=includes_recall)
        self._is_invoked = False

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
        registry.add_callback(AfterModelCallEvent, self._requests.answered)
        ToolResultSeparator().register(registry, _BEHIND_SESSION_MANAGERS)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        """Before the session is restored: take the agent, and give its messages ids before they are logged."""
        if not self._served.take(event.agent):
            call = "Agent(conversation_manager=ImportanceWeightedConversationManager(...))"
            raise ValueError(f"this ImportanceWeightedConversationManager already serves an agent; give each its own: {call}")
        if self.follows_window:
            self.max_tokens = self.grow_to = history_tokens(window_of(event.agent.model))
        serves(self, event.agent)
        ensure_ids(event.agent.messages)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        """After the session was restored: bring back the exact window, and stand last before the model."""
        agent = event.agent
        self._state.start(agent.messages)
        agent.messages = copied_quickly(agent.messages)
        self.archive.offer(agent, agent.messages)
        agent.add_middleware(InvokeModelStage.Input, self._sending.before_request)

    def _message_is_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._state.adding(event.message)

    def _message_was_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._state.added()
        if event.message["role"] == "assistant" and not tool_use_ids(event.message):
            # The answer ends the turn: trimmed now, the history is saved with its last message, not in a save of its own.
            self.trimming.keep_now(event.agent, ends_turn=True)

    async def keep_on(self, event: BeforeModelCallEvent | AfterInvocationEvent | ContextState) -> None:
        """Bring the history of an agent within the budget; errors are logged, never raised."""
        await self.trimming.keep_on(event.agent)
        self._is_invoked = self._is_invoked and not isinstance(event, AfterInvocationEvent)

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        self._is_invoked = True
        await self.trimming.keep(event.agent, event.messages or [])

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Bring the history within the budget; errors are logged, never raised."""
        self._state.settle()
        if not self._is_invoked:  # whoever asks may have edited a message in place; Strands asks with what was just sent
            self.workload.forget()
        self.trimming.keep_now(agent)

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
        self.trimming.reduce(agent, e)

    def get_state(self) -> dict[str, Any]:
        """Return what a session keeps: small, and the same until something really changes."""
        state = {**super().get_state(), **self._state.to_state(self._served.history())}
        self.removed_message_count = state["removed_message_count"]
        return state

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Take back what :meth:`get_state` returned; the window itself is restored at the end of the agent's construction.

        Raises:
            ValueError: The state is that of another conversation manager.
            CorruptRecordError: The state is malformed, or a newer version of this package wrote it.
        """
        check_manager(state, self)
        self._state.restore(state)
        return super().restore_from_session(state)

    # --- What users ask -----------------------------------------------------------------------------------------------------

    def explain(self, agent: Agent) -> list[MessageFate]:
        """Return what became of each message, of the history and of the last 1,000 dropped ones, in the order of speech."""
        return self.trimming.explain(list(agent.messages))

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the tokens of the history as the model counts them, the budget, and what is left of it."""
        return self.budget.usage(agent.messages[:])

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages as the model counts them; each message is counted once."""
        return self.budget.reported(messages)

    def score(self, message: Message) -> float:
        """Return what a message is worth, 0 to 1."""
        return self._notes(message).score

    def fitted(self, messages: Sequence[Message], max_tokens: int) -> list[Message]:
        """Return what of a history stays within a budget, by importance, shortened where it must; nothing is changed."""
        return self.budget.fitted(messages, max_tokens)

    def reserve(self, tokens: int) -> int:
        """Reserve tokens for the quotes of a ``HistoryRecall``, with ``includes_recall``; return how many those may have."""
        return self._sending.reserve(tokens)

    def forget(self, tracking_id: str) -> None:
        """Forget what a message said that has left the history, as when it is redacted in the log: it does not come back."""
        self.trimming.forget(tracking_id)
