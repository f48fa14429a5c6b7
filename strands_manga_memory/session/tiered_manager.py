"""Session manager of Strands that stores sessions in a cache and in a database table."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterMultiAgentInvocationEvent,
    AfterNodeCallEvent,
    AfterToolCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeMultiAgentInvocationEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
    MultiAgentInitializedEvent,
)
from strands.middleware import InvokeModelStage
from strands.session import SessionManager
from strands.types.agent import ConcurrentInvocationMode
from strands.types.content import Message

from strands_manga_memory.arguments import checked
from strands_manga_memory.deadline import is_on_event_loop
from strands_manga_memory.messages.message_parts import separate_result
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.agent_conversation import AgentConversation
from strands_manga_memory.session.agent_snapshot import ORCHESTRATOR
from strands_manga_memory.session.session_agent import SessionAgent, render_request
from strands_manga_memory.session.stored_session import StoredSession
from strands_manga_memory.session.tiers import Refresh, Tiers
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import Codec, dump, load, parsing
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.urls import hot_store_of, table_of
from strands_manga_memory.telemetry import with_turn_timing

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase


class TieredSessionManager(StoredSession, SessionManager[Agent]):
    """Session manager of Strands that stores a session in a cache and in a database table.

    Pass it to ``Agent(session_manager=...)``, or to a ``Graph`` or ``Swarm``. Each turn is saved in
    the cache, the hot tier (such as Redis), before the call of the agent returns. Every few turns,
    a flush in the background copies the new turns to the table, the durable tier (such as
    DynamoDB). A restored agent has exactly the messages of the original agent, with all changes of
    its conversation manager.

    If a store fails or is too slow, the call of the agent returns anyway. Unsaved messages are kept
    in memory, counted in ``stats()``, and saved later. Turns since the last flush can be lost if
    the hot tier loses them and no agent has them in memory.

    If a crash interrupts a turn, later requests to the model contain an error result for each tool
    call without a result. The stored history is not changed.

    Args:
        session_id: A ``ConversationScope``, or an id of 1 to 1,024 characters.
        hot: The hot tier or its URL. Each turn is saved in this tier. If there is a durable tier, a
            hot tier in the memory of the process is not used.
        durable: The durable tier or its URL. For a URL, a missing table is created. Turns are
            flushed to this tier every ``flush_every`` turns, at interrupts and at ``close``.
            Without a hot tier that survives the process, each turn is saved in this tier.
        flush_every: Number of turns between flushes. Default 5.
        ttl: Policy for the time to live in the hot tier, and for the end of an unused session.
            Default: ``TtlPolicy()``.
        refresh: Whether other processes' turns are read before each turn: ``turn`` (yes) or
            ``never`` (no, the default).
        codec: Compresses, encrypts and checksums stored values.
        hot_deadline: Seconds for which a turn waits for the hot tier. Default 0.05.
        durable_deadline: Seconds for which a turn waits for the durable tier. A turn waits for this
            tier only without a hot tier that survives the process. Default 2.0.
        max_unsaved: Number of unsaved messages from which on a new turn raises
            ``StoreUnavailableError``. Default 10,000.
        clock: Returns the time in seconds since 1970.

    Raises:
        ValueError: An argument is out of range, or there is neither a hot nor a durable tier.
    """

    @checked
    def __init__(
        self,
        session_id: str | ConversationScope,
        *,
        hot: HotStore | str | None = None,
        durable: Table | str | None = None,
        flush_every: int = 5,
        ttl: TtlPolicy | None = None,
        refresh: Refresh = "never",
        codec: Codec | None = None,
        hot_deadline: float = 0.05,
        durable_deadline: float = 2.0,
        max_unsaved: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        tiers = Tiers.of(
            hot_store_of(hot),
            table_of(durable),
            codec=codec,
            clock=clock,
            ttl=ttl,
            flush_every=flush_every,
            refresh=refresh,
            hot_deadline=hot_deadline,
            durable_deadline=durable_deadline,
            max_unsaved=max_unsaved,
        )
        super().__init__(session_id, tiers)

    def __repr__(self) -> str:
        tiers, session = self._tiers, repr(self.scope or self.session_id)
        rules = f"flush_every={tiers.flush_every}, refresh={tiers.refresh!r}"
        return f"TieredSessionManager({session}, {tiers.store_names}, {rules})"

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the callbacks that restore and save an agent, Graph or Swarm.

        An agent is saved after all other hooks have run, so that their changes are saved, too.
        """
        # The callbacks are methods: functions defined here would be created again for each of
        # thousands of agents.
        registry = with_turn_timing(registry)
        registry.add_callback(AgentInitializedEvent, self._initialized)
        first, last = HookOrder.SDK_FIRST - 1, HookOrder.SDK_LAST + 1
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=first)
        registry.add_callback(MessageAddedEvent, self._message_added)
        # The end of the turn is recorded before any other hook, because a hook that raises keeps
        # the save from running.
        registry.add_callback(AfterInvocationEvent, self._turn_ended, order=first)
        registry.add_callback(AfterInvocationEvent, self._after_invocation, order=last)
        registry.add_callback(MultiAgentInitializedEvent, self._initialized_run)
        registry.add_callback(BeforeMultiAgentInvocationEvent, self._before_run, order=first)
        registry.add_callback(AfterToolCallEvent, separate_result, order=HookOrder.SDK_LAST)
        registry.add_callback(AfterNodeCallEvent, self._after_node)
        registry.add_callback(AfterMultiAgentInvocationEvent, self._after_node, order=last)

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._session_agent(event.agent).before_turn(event.agent)

    def _initialized(self, event: AgentInitializedEvent[Agent]) -> None:
        self.initialize(event.agent)

    def _initialized_run(self, event: MultiAgentInitializedEvent) -> None:
        self.initialize_multi_agent(event.source)

    def _message_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._session_agent(event.agent).append(event.message, event.agent)

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        self._session_agent(event.agent).end_turn()

    def _before_run(self, event: BeforeMultiAgentInvocationEvent) -> None:
        conversation = self._multi_agent_conversation(event.source.id)
        conversation.saver.check()
        conversation.adopt_changes([])

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        await self._session_agent(event.agent).after_turn(event)

    async def _after_node(self, event: AfterNodeCallEvent | AfterMultiAgentInvocationEvent) -> None:
        conversation = self._multi_agent_conversation(event.source.id)
        is_over = isinstance(event, AfterMultiAgentInvocationEvent)
        save = _request_run_save(event.source, conversation, is_over=is_over)
        await conversation.saver.wait(save)

    # Strands' session interface

    def initialize(self, agent: Agent, **kwargs: Any) -> None:
        """Restore an agent from its stored conversation, or begin a new conversation.

        Raises:
            StoreUnavailableError: The stored conversation cannot be read.
            CorruptRecordError: A stored record is damaged.
            ValueError: The agent is bidirectional, allows reentrant invocations, or has the id of
                another agent of this manager.
        """
        if not isinstance(agent, Agent):
            raise ValueError(
                f"agent must be a strands Agent, got {type(agent).__name__}; use"
                " SnapshotSessionManager for it"
            )
        if agent.concurrent_invocation_mode == ConcurrentInvocationMode.UNSAFE_REENTRANT:
            raise ValueError(
                "concurrent_invocation_mode UNSAFE_REENTRANT cannot be saved turn by turn; use"
                " THROW"
            )
        if self._agent_in_use(agent.agent_id) not in (None, agent):
            raise ValueError(
                f"agent_id {agent.agent_id!r:.80} is already used in this session manager; give"
                " each its own"
            )
        if hasattr(agent.conversation_manager, "persist_layout"):
            agent.conversation_manager.persist_layout = False
        else:  # no conversation manager of this package, which would render the requests
            agent.add_middleware(InvokeModelStage.Input, render_request)
        conversation = self._new("A", agent.agent_id)
        session_agent = SessionAgent(agent, conversation)
        session_agent.begin(agent, conversation.open())
        self._conversations["A", agent.agent_id] = conversation
        self._agents[agent.agent_id] = session_agent

    def append_message(self, message: Message, agent: Agent, **kwargs: Any) -> None:
        """Add a message to the agent's conversation.

        During a turn, the message is saved with the turn. Between turns, it is saved at once.
        """
        session_agent = self._session_agent(agent)
        session_agent.append(message, agent)
        if not session_agent.in_turn:
            saver = session_agent.conversation.saver
            saver.block(saver.request())

    def redact_latest_message(self, redact_message: Message, agent: Agent, **kwargs: Any) -> None:
        """Replace a message by its redacted version, ``redact_message``, in all stores.

        The replaced message has the same ``tracking_id``. The call waits until the new message is
        stored. On an event loop, it returns at once, and the agent waits when a turn begins or
        ends. After ``durable_deadline``, the wait ends, and the redaction is completed in the
        background. No later write stores the original message.

        Raises:
            ConflictError: Another process's change cannot be merged.
            CorruptRecordError: A stored record is damaged.
        """
        session_agent = self._session_agent(agent)
        session_agent.redact(redact_message, partial(self._log, agent.agent_id))
        for _, conversation in self._open_conversations([session_agent.conversation.key]):
            conversation.redact(redact_message)  # of all agents of this process
        self._notify_redacted(redact_message)
        if not is_on_event_loop():
            session_agent.wait_for_redactions(timeout=self._tiers.durable_deadline)

    def sync_agent(self, agent: Agent, **kwargs: Any) -> None:
        """Save the present state of an agent between turns, and wait until it is saved.

        The wait takes at most ``durable_deadline``, and on an event loop at most ``hot_deadline``.
        After the deadline, a warning is logged, and the save goes on in the background.

        During a turn, this call does nothing, because the state is saved at the end of the turn.
        """
        session_agent = self._session_agent(agent)
        if not session_agent.in_turn:
            session_agent.capture_between_turns()
            saver = session_agent.conversation.saver
            saver.block(saver.request())

    def initialize_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Restore a Graph or Swarm from its stored state, if any, and register it for saves."""
        conversation = self._new("M", source.id)
        if conversation.open() is not None and ORCHESTRATOR in conversation.local.states:
            with parsing(conversation.key.name):
                source.deserialize_state(load(dump(conversation.local.states[ORCHESTRATOR])))
        self._conversations["M", source.id] = conversation

    def sync_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Save the state of a Graph or Swarm, and wait until it is saved."""
        conversation = self._multi_agent_conversation(source.id)
        conversation.saver.block(_request_run_save(source, conversation))

    # Methods for users

    def flush(self) -> None:
        """Write all changes of the session to the durable tier, and wait until this is done.

        Without a durable tier, the changes are written to the hot tier.

        Raises:
            StoreUnavailableError: A tier did not store the changes or a redaction. The write
                is repeated later, in the background.
            ConflictError: Another process's change cannot be merged with unsaved changes.
        """
        futures = []
        for (kind, id_), conversation in self._conversations.copy().items():
            if kind == "A" and id_ in self._agents:
                self._agents[id_].capture_between_turns()
            futures.append(conversation.saver.request_flush())
        for future in futures:
            future.result()
        for session_agent in self._agents.copy().values():
            session_agent.wait_for_redactions(timeout=self._tiers.durable_deadline, must=True)

    def close(self) -> None:
        """Write all changes of the session to the durable tier, and mark the session as complete.

        The next restore then needs no newer data from the hot tier. The manager can still be used.
        """
        for conversation in self._conversations.copy().values():
            conversation.saver.is_closing = True
        self.flush()

    # Internals

    def _session_agent(self, agent: Agent) -> SessionAgent:
        if agent.agent_id not in self._agents:
            raise ValueError(
                f"agent_id {agent.agent_id!r:.80} is not known to this session manager: "
                "give it to Agent(session_manager=...), or call initialize(agent) first"
            )
        return self._agents[agent.agent_id]

    def _multi_agent_conversation(self, id_: str) -> AgentConversation:
        if ("M", id_) not in self._conversations:
            raise ValueError(
                f"id {id_!r:.80} is not known to this session manager: give it to the Graph or"
                " Swarm as session_manager, or call initialize_multi_agent(source) first"
            )
        return self._conversations["M", id_]


def _request_run_save(
    source: MultiAgentBase, conversation: AgentConversation, *, is_over: bool = False
) -> Future[None]:
    state = source.serialize_state()
    conversation.set_entry(ORCHESTRATOR, state)
    saved = conversation.saver.request()
    if is_over and state.get("status") == "interrupted":
        conversation.saver.request_flush()
    return saved
