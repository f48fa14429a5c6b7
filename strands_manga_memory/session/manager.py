"""TieredSessionManager: Strands' session interface over a hot and a durable tier."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Literal, get_args

from strands import Agent, Snapshot
from strands.hooks import (
    AfterInvocationEvent,
    AfterMultiAgentInvocationEvent,
    AfterNodeCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    BeforeMultiAgentInvocationEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
    MultiAgentInitializedEvent,
)
from strands.multiagent.base import MultiAgentBase
from strands.session import SessionManager
from strands.types.agent import ConcurrentInvocationMode
from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError, StoreUnavailableError
from strands_manga_memory.scope import ConversationScope, checked_id, encoded_id
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.durable_tier import members as members_of
from strands_manga_memory.session.records import Kind, Place, directory_key
from strands_manga_memory.session.stats import SessionStats, stats_of
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.session.waiting import awaitable
from strands_manga_memory.session.window import Identity, Logged, tool_use_ids
from strands_manga_memory.stores.codec import Codec, dump, load
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

SaveOn = Literal["turn", "message"]
OnConflict = Literal["merge", "raise"]
OnStoreError = Literal["degrade", "raise"]
Refresh = Literal["never", "turn"]

_PENDING_SECONDS = 1.0
_MOST_SECONDS = 5.0  # that a turn waits while the tier answers, but other writers keep overtaking it
_AFTER_ALL_HOOKS = HookOrder.SDK_LAST + 1
_BEFORE_ALL_HOOKS = HookOrder.SDK_FIRST - 1
_STATES = {
    "state": "state.agent",
    "conversation_manager_state": "state.manager",
    "interrupt_state": "state.interrupts",
    "model_state": "state.model",
}


class TieredSessionManager(SessionManager[Agent]):
    """Keeps a session in a hot tier every turn and in a durable tier every few turns, off the event loop.

    Give it to ``Agent(session_manager=...)``, or to a ``Graph`` or ``Swarm``. A restored agent has exactly the messages the
    live one had, whatever its conversation manager did to them; only a turn that a crash cut in half is closed.

    An agent that was restored goes on when stores fail: what is unsaved is kept, counted in ``stats()``, and saved later.
    If worker and hot tier are lost together, at most the turns since the last flush are lost; anything less loses none.

    Args:
        session_id: A ``ConversationScope``, or an id of 1 to 1,024 characters.
        hot: The hot tier, saved every turn. One that does not survive the process is not used when there is a durable tier.
        durable: The durable tier, flushed every ``flush_every`` turns, at interrupts and at ``close``; every turn if no hot
            tier survives the process.
        save_on: ``turn`` (default): one write a turn, and after 1 s of a longer one. ``message``: one write a message.
        flush_every: Turns between flushes. Default 5.
        ttl: How long the conversation lives in each tier.
        on_conflict: What to do when someone else saved the conversation: ``merge`` (default) or ``raise`` ``ConflictError``.
        on_store_error: What a store that fails does to a turn: ``degrade`` (default), or ``raise`` ``StoreUnavailableError``.
        refresh: ``turn`` spends one read before each turn to see what other devices saved. Default ``never``.
        resume_cold: Whether a conversation that left the hot tier is taken up again. Default True; False starts afresh.
        codec: How values are compressed, encrypted and checksummed.
        hot_deadline: Seconds a turn waits for the hot tier. Default 0.05.
        durable_deadline: Seconds a turn waits for the durable tier when it is the only one that survives. Default 2.0.
        max_unsaved: Unsaved messages from which on a turn is refused with ``StoreUnavailableError``. Default 10,000.
        clock: Seconds since 1970.

    Raises:
        ValueError: An argument is out of range, or there is neither a hot nor a durable tier.
    """

    def __init__(
        self,
        session_id: str | ConversationScope,
        *,
        hot: HotStore | None = None,
        durable: Table | None = None,
        save_on: SaveOn = "turn",
        flush_every: int = 5,
        ttl: TtlPolicy | None = None,
        on_conflict: OnConflict = "merge",
        on_store_error: OnStoreError = "degrade",
        refresh: Refresh = "never",
        resume_cold: bool = True,
        codec: Codec | None = None,
        hot_deadline: float = 0.05,
        durable_deadline: float = 2.0,
        max_unsaved: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, value, allowed in (
            ("save_on", save_on, get_args(SaveOn)),
            ("on_conflict", on_conflict, get_args(OnConflict)),
            ("on_store_error", on_store_error, get_args(OnStoreError)),
            ("refresh", refresh, get_args(Refresh)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
        for name, number in (("flush_every", flush_every), ("max_unsaved", max_unsaved)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {number!r}")
        for name, seconds in (("hot_deadline", hot_deadline), ("durable_deadline", durable_deadline)):
            if not seconds > 0:
                raise ValueError(f"{name} must be a positive number of seconds, got {seconds!r}")
        if hot is None and durable is None:
            raise ValueError("hot and durable are both None: pass hot=open_hot_store(url), durable=open_table(url), or both")
        if isinstance(session_id, ConversationScope):
            self.scope: ConversationScope | None = session_id
            self._storage_id = session_id.storage_session_id
            self._ids: dict[str, Any] = {
                "session": session_id.session_id,
                "user": session_id.user_id,
                "tenant": session_id.tenant,
            }
        else:
            self.scope = None
            self._storage_id = encoded_id(checked_id("session_id", session_id))
            self._ids = {"session": session_id}
        self.session_id = session_id if isinstance(session_id, str) else self._storage_id
        if hot is not None and durable is not None and not hot.survives_process:
            hot = None
        self._save_on = save_on
        self._refresh = refresh
        self._hot_deadline, self._durable_deadline, self._max_unsaved = hot_deadline, durable_deadline, max_unsaved
        writer = shared_writer(hot, durable)
        self._tiers = Tiers(
            hot=hot,
            durable=durable,
            writer=writer,
            codec=codec or Codec(),
            clock=clock,
            ttl=ttl or TtlPolicy(),
            flush_every=flush_every,
            on_conflict=on_conflict,
            on_store_error=on_store_error,
            resume_cold=resume_cold,
            hot_health=writer.hot_health,
            durable_health=writer.durable_health,
        )
        self._lock = threading.Lock()
        self._conversations: dict[tuple[Kind, str], Conversation] = {}
        self._agents: weakref.WeakValueDictionary[str, Agent] = weakref.WeakValueDictionary()
        self._prefetched: dict[str, tuple[Conversation, list[Message] | None]] = {}
        self._as_built: dict[str, Snapshot] = {}
        self._in_turn: set[str] = set()
        _managers.add(self)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the callbacks; the save runs after every other hook, so that it sees what they changed."""
        registry.add_callback(AgentInitializedEvent, lambda event: self.initialize(event.agent))
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(MessageAddedEvent, lambda event: self.append_message(event.message, event.agent))
        if self._save_on == "message":
            registry.add_callback(MessageAddedEvent, self._after_message, order=_AFTER_ALL_HOOKS)
        registry.add_callback(AfterInvocationEvent, self._turn_ended, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(AfterInvocationEvent, self._after_invocation, order=_AFTER_ALL_HOOKS)
        registry.add_callback(MultiAgentInitializedEvent, lambda event: self.initialize_multi_agent(event.source))
        registry.add_callback(BeforeMultiAgentInvocationEvent, self._before_run, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(AfterNodeCallEvent, self._after_node)
        registry.add_callback(AfterMultiAgentInvocationEvent, self._after_node, order=_AFTER_ALL_HOOKS)

    async def prefetch(self, agent_id: str | None = None) -> None:
        """Read an agent's conversation off the event loop, so that building the agent next needs no I/O.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        id_ = self._agent_id(agent_id)
        self._prefetched[id_] = await asyncio.to_thread(self._opened, id_)

    def _opened(self, agent_id: str) -> tuple[Conversation, list[Message] | None]:
        conversation = self._new_conversation("A", agent_id)
        return conversation, conversation.open()

    # Strands' session interface

    def initialize(self, agent: Agent, **kwargs: Any) -> None:
        """Restore the agent, or begin its conversation.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
            ValueError: The agent is bidirectional, allows reentrant invocations, or shares its id with another one here.
        """
        if not isinstance(agent, Agent):
            raise ValueError(f"agent must be a strands Agent, got {type(agent).__name__}; use SnapshotSessionManager for it")
        if agent.concurrent_invocation_mode == ConcurrentInvocationMode.UNSAFE_REENTRANT:
            raise ValueError("concurrent_invocation_mode UNSAFE_REENTRANT cannot be saved turn by turn; use THROW")
        if self._agents.get(agent.agent_id) not in (None, agent):
            raise ValueError(f"agent_id {agent.agent_id!r} is already used in this session manager; give each agent its own")
        if hasattr(agent.conversation_manager, "persist_layout"):
            agent.conversation_manager.persist_layout = False
        seeds = list(agent.messages)
        self._as_built[agent.agent_id] = agent.take_snapshot(preset="session", exclude=["messages"])
        prefetched = self._prefetched.pop(agent.agent_id) if agent.agent_id in self._prefetched else None
        conversation, messages = prefetched or self._opened(agent.agent_id)
        if agent.model.stateful:
            conversation.model.keeps_window, conversation.model.slots = False, []
        has_log = bool(messages or conversation.model.head.messages)
        if messages is not None:
            if seeds and has_log:
                logger.warning("messages=<%d> | the agent's own messages give way to the restored session", len(seeds))
            self._restore(agent, conversation, seeds if not has_log else [] if agent.model.stateful else messages)
        if not has_log:
            self._seed(conversation, agent.messages)
            with conversation.lock:  # an agent as it was built is nothing to save
                model = conversation.model
                model.fields = {**_dumped(self._as_built[agent.agent_id]), **model.fields}
        with self._lock:
            self._conversations["A", agent.agent_id] = conversation
            self._agents[agent.agent_id] = agent

    def append_message(self, message: Message, agent: Agent, **kwargs: Any) -> None:
        """Take note of a message, without I/O; it is saved with its turn."""
        conversation = self._conversation(agent)
        now = self._tiers.clock()
        with conversation.lock:
            model = conversation.model
            if model.deleted:  # the turn began before that, nothing of it may come back
                model.dropped += 1
                return
            model.closing = False
            identity = message.get("tracking_id") or ""
            live = sum((other.get("tracking_id") or "") == identity for other in agent.messages)
            # A continuation adds to the last message and announces it again; a caller's second use of a message is a new one.
            is_continuation = 0 < live <= model.knows(identity)
            if not is_continuation or model.revise(message, at=now) is None:
                intent = load(model.fields.get("meta", b"{}")).get("active_intent")
                model.append(message, at=now, extra={"intent": intent} if intent else None)
        conversation.request_soon(_PENDING_SECONDS)

    def redact_latest_message(self, redact_message: Message, agent: Agent, **kwargs: Any) -> None:
        """Put the redacted message in place of the original in everything that is kept, and wait until that is stored.

        A tier that is down gets it as soon as it is back, before anything else of this conversation.
        """
        conversation = self._conversation(agent)
        with conversation.lock:
            revised = conversation.model.revise(redact_message, at=self._tiers.clock(), every=True)
        if revised is not None:
            self._wait(conversation.request_flush(), self._durable_deadline)

    def sync_agent(self, agent: Agent, **kwargs: Any) -> None:
        """Take note that the agent changed; it is saved with its turn."""
        conversation = self._conversation(agent)
        with conversation.lock:
            conversation.model.touched = True

    def initialize_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Restore a Graph or Swarm, or begin its record."""
        conversation = self._new_conversation("M", source.id, keeps_window=False)
        if conversation.open() is not None and "state.multi" in conversation.model.fields:
            source.deserialize_state(load(conversation.model.fields["state.multi"]))
        with self._lock:
            self._conversations["M", source.id] = conversation

    def sync_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Save the state of a Graph or Swarm and wait for it; the hooks do the same without blocking the loop."""
        self._wait(self._capture_multi_agent(source), self._durable_deadline)

    # Hooks

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        agent = event.agent
        conversation = self._conversation(agent)
        if conversation.error is not None:
            raise conversation.error
        if conversation.is_dirty or conversation.model.stale:
            self._capture(agent, conversation, in_turn=False)
            if conversation.is_dirty:
                await self._saved(conversation, conversation.request())
        if self._refresh == "turn":
            await self._saved(conversation, conversation.request_refresh())
        if conversation.model.unsaved >= self._max_unsaved:
            raise StoreUnavailableError(f"{conversation.model.unsaved} messages could not be saved; no store answers")
        self._take_over(agent, conversation)
        self._in_turn.add(agent.agent_id)
        with conversation.lock:
            conversation.model.begin_turn()

    async def _after_message(self, event: MessageAddedEvent[Agent]) -> None:
        conversation = self._conversation(event.agent)
        if event.agent.agent_id in self._in_turn:
            final = event.message["role"] == "assistant" and not tool_use_ids(event.message)
            self._capture(event.agent, conversation, in_turn=not final)
            await self._saved(conversation, conversation.request())

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        """Take note of it before any other hook, because one that raises keeps the save from running."""
        conversation = self._conversation(event.agent)
        self._in_turn.discard(event.agent.agent_id)
        with conversation.lock:
            model = conversation.model
            model.in_turn, model.touched = False, model.touched or model.in_turn

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        conversation = self._conversation(event.agent)
        self._capture(event.agent, conversation, in_turn=False)
        interrupted = bool(event.result is not None and event.result.stop_reason == "interrupt")
        await self._saved(conversation, conversation.request(flush=interrupted))

    def _before_run(self, event: BeforeMultiAgentInvocationEvent) -> None:
        conversation = self._conversations["M", event.source.id]
        if conversation.error is not None:
            raise conversation.error
        conversation.model.deleted = False

    async def _after_node(self, event: AfterNodeCallEvent | AfterMultiAgentInvocationEvent) -> None:
        is_over = isinstance(event, AfterMultiAgentInvocationEvent)
        future = self._capture_multi_agent(event.source, is_over=is_over)
        await self._saved(self._conversations["M", event.source.id], future)

    def _capture_multi_agent(self, source: MultiAgentBase, *, is_over: bool = False) -> Future[None]:
        conversation = self._conversations["M", source.id]
        state = source.serialize_state()
        with conversation.lock:
            if not conversation.model.deleted:  # else the run began before that, nothing of it may come back
                conversation.model.capture([], {"state.multi": dump(state)}, in_turn=False)
                conversation.model.head.turns += is_over
        return conversation.request(flush=is_over and state.get("status") == "interrupted")

    def _capture(self, agent: Agent, conversation: Conversation, *, in_turn: bool) -> None:
        fields = _dumped(agent.take_snapshot(preset="session", exclude=["messages"]))
        with conversation.lock:
            if not conversation.model.deleted:
                conversation.model.capture(agent.messages, fields, in_turn=in_turn)

    async def _saved(self, conversation: Conversation, future: Future[None]) -> None:
        """Wait until the first tier has it, within its deadline. A cancelled caller cancels nothing."""
        tier = conversation.waits_for
        if tier == "nothing" and self._tiers.on_store_error == "degrade":
            return
        deadline = self._durable_deadline if tier == "durable" else self._hot_deadline
        waiter = awaitable(future)
        try:
            # A busy machine is no dead tier: the deadline counts from when the tier was asked, not from when we wished to.
            end = time.monotonic() + max(deadline, _MOST_SECONDS)
            while not (waiter.done() or conversation.overdue(deadline) or time.monotonic() > end):
                await asyncio.wait([waiter], timeout=max(0.001, conversation.left(deadline)))
            if not waiter.done():
                if conversation.overdue(deadline):
                    health = self._tiers.durable_health if tier == "durable" else self._tiers.hot_health
                    health.failed(since=conversation.asked_at)
                raise StoreUnavailableError("the tier did not answer in time")
            waiter.result()
        except StoreUnavailableError as error:
            logger.warning("tier=<%s>, error=<%s> | the turn is not saved yet", tier, type(error).__name__)
            if self._tiers.on_store_error == "raise":
                raise StoreUnavailableError("the turn could not be saved in time; it is kept and saved later") from error

    def _take_over(self, agent: Agent, conversation: Conversation) -> None:
        """Give the agent what someone else saved or deleted meanwhile; the only place where a live history changes."""
        messages = conversation.take_over(agent.messages)
        if messages is None:
            return
        self._restore(agent, conversation, messages, over=copy.deepcopy(self._as_built[agent.agent_id].data))

    def _restore(
        self,
        agent: Agent,
        conversation: Conversation,
        messages: list[Message],
        *,
        over: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        with conversation.lock:
            fields = conversation.model.fields
            data = {**over, **{name: load(fields[field]) for name, field in _STATES.items() if field in fields}}
        manager_state = data.get("conversation_manager_state")
        if manager_state is not None and manager_state.get("__name__") != type(agent.conversation_manager).__name__:
            logger.warning(
                "saved=<%s>, used=<%s> | another conversation manager takes over, it begins without state",
                manager_state.get("__name__"),
                type(agent.conversation_manager).__name__,
            )
            del data["conversation_manager_state"]
        data["messages"] = messages
        agent.load_snapshot(Snapshot(scope="agent", schema_version="1.0", data=data, app_data={}))

    def _seed(self, conversation: Conversation, seeds: list[Message]) -> None:
        now = self._tiers.clock()
        with conversation.lock:
            for message in seeds:
                if not message.get("tracking_id"):
                    message["tracking_id"] = str(uuid.uuid4())
                conversation.model.append(message, at=now)
            conversation.model.touched = bool(seeds)

    # What users call

    def flush(self) -> None:
        """Save and flush everything of this session, and wait for it.

        Raises:
            StoreUnavailableError: The durable tier (without one, the hot tier) did not take it; it is kept and tried again.
            ConflictError: Someone else's change cannot be merged with it.
        """
        with self._lock:
            live = list(self._conversations.items())
        futures = []
        for (kind, id_), conversation in live:
            agent = self._agents.get(id_) if kind == "A" else None
            if agent is not None and id_ not in self._in_turn:
                self._capture(agent, conversation, in_turn=False)
            futures.append(conversation.request_flush())
        for future in futures:
            future.result()

    def close(self) -> None:
        """Flush everything and tell the durable tier that it has it all. The manager can still be used."""
        with self._lock:
            for conversation in self._conversations.values():
                conversation.model.closing = True
        self.flush()

    def exists(self, agent_id: str | None = None) -> bool:
        """Tell whether a conversation of this agent (default: the scope's) is stored in a tier."""
        conversation = self._new_conversation("A", self._agent_id(agent_id))
        return conversation.open(inspect=True) is not None

    def delete_session(self) -> None:
        """Delete every conversation of this session in both tiers and leave tombstones, so no late write brings one back.

        An agent that is alive starts with an empty history at its next invocation, as it was built. Without a durable tier
        nothing lists a session's agents: those of this manager and the scope's are deleted, others end with their time to live.

        Raises:
            StoreUnavailableError: A tier could not be reached; call it again.
        """
        with self._lock:
            conversations = dict(self._conversations)
        for kind, id_ in self._stored_members():
            if (kind, id_) not in conversations:
                conversations[kind, id_] = self._new_conversation(kind, id_)
        for conversation in conversations.values():
            self._tiers.writer.submit(conversation.place, conversation.bury).result()
        entry = directory_key(self._storage_id, self._ids)
        if entry is not None and self._tiers.durable is not None:
            self._tiers.durable.delete(*entry)

    def _stored_members(self) -> set[tuple[Kind, str]]:
        members: set[tuple[Kind, str]] = {("A", self._agent_id(None))}
        if self._tiers.durable is not None:
            members |= set(members_of(self._tiers.durable, self._storage_id))
        return members

    @contextmanager
    def lease(self, agent_id: str | None = None, *, ttl: float = 30.0) -> Iterator[None]:
        """Hold the advisory lease of an agent's conversation, so that workers who ask for it take turns (mission A1).

        It keeps nobody from saving: what two writers save is merged, with or without it.

        Args:
            agent_id: The agent; the scope's by default.
            ttl: Seconds after which the lease ends by itself.

        Raises:
            ConflictError: Someone else holds it.
            StoreUnavailableError: The hot tier does not answer.
            ValueError: There is no hot tier.
        """
        hot = self._tiers.hot
        if hot is None:
            raise ValueError("hot is None: a lease needs a hot tier that survives the process")
        name, owner = Place.of(self._storage_id, "A", self._agent_id(agent_id)).conversation, uuid.uuid4().hex
        if not hot.acquire_lease(name, owner=owner, ttl=ttl):
            raise ConflictError("someone else holds the lease of this conversation")
        try:
            yield
        finally:
            hot.release_lease(name, owner=owner)

    def history(self, agent_id: str | None = None, *, after: int = 0) -> Iterator[Message]:
        """Yield the raw log of an agent's conversation, message by message, in order, a page at a time.

        Args:
            agent_id: The agent; the scope's by default.
            after: Leave out messages up to this sequence number.
        """
        for slot in self._log(agent_id, after):
            yield slot.message

    def records(self, agent_id: str | None = None, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the log as records: ``seq``, ``turn``, ``at``, ``message`` and whatever else was stored (mission B4)."""
        for slot in self._log(agent_id, after):
            yield {"seq": slot.seq, **load(slot.record)}

    def _log(self, agent_id: str | None, after: int) -> Iterator[Logged]:
        """Yield what is stored, whoever stored it, then what only this process has."""
        id_ = self._agent_id(agent_id)
        known = self._conversations.get(("A", id_))
        newer: dict[Identity, list[Logged]] = {}
        if known is not None:  # looked at first: what gets saved meanwhile is found in the store too
            with known.lock:
                for slot in (*known.model.unsaved_slots(), *known.model.revised):
                    newer.setdefault(slot.identity, []).append(slot)
        stored = self._new_conversation("A", id_)
        stored.open(inspect=True)
        for slot in stored.history(after=after):
            same = newer.get(slot.identity)
            yield max(same.pop(0), slot, key=lambda one: one.revision) if same else slot
        yield from (slot for slots in newer.values() for slot in slots if slot.seq == 0 or slot.seq > after)

    def stats(self, agent_id: str | None = None) -> SessionStats:
        """Return what is known of an agent's conversation, without touching its time to live."""
        return stats_of(self._known_or_opened(agent_id), self._agents.get(self._agent_id(agent_id)))

    def metadata(self, agent_id: str | None = None) -> dict[str, Any]:
        """Return the metadata of an agent's conversation: what ``set_metadata`` stored, and the counters (mission A1)."""
        conversation = self._known_or_opened(agent_id)
        if not conversation.is_dirty:
            conversation = self._new_conversation("A", self._agent_id(agent_id))
            conversation.open(inspect=True)
        with conversation.lock:
            head = conversation.model.head
            counters = {"turn_count": head.turns, "created": head.created, "last_activity": head.active}
            return {**load(conversation.model.fields.get("meta", b"{}")), **counters}

    def set_metadata(self, agent_id: str | None = None, /, **fields: Any) -> None:
        """Store metadata beside an agent's conversation, such as locale, active intent or cart items, and wait for it.

        Raises:
            ValueError: A value is not JSON.
            StoreUnavailableError: No tier took it in time; it is kept and saved later.
        """
        for name, value in fields.items():
            if not _is_json(value):
                raise ValueError(f"{name} must be a JSON value, got {type(value).__name__}")
        conversation = self._known_or_opened(agent_id)
        with conversation.lock:
            model = conversation.model
            changed = {**load(model.fields.get("meta", b"{}")), **copy.deepcopy(fields)}
            model.fields = {**model.fields, "meta": dump(changed)}
            model.touched = True
        self._wait(conversation.request(), self._durable_deadline, must=True)

    # Inside

    def _agent_id(self, agent_id: str | None) -> str:
        if agent_id is not None:
            return checked_id("agent_id", agent_id)
        if self.scope is not None:
            return self.scope.agent_id
        live = [id_ for kind, id_ in self._conversations if kind == "A"]
        return live[0] if len(live) == 1 else "default"

    def _new_conversation(self, kind: Kind, id_: str, *, keeps_window: bool = True) -> Conversation:
        place = Place.of(self._storage_id, kind, id_)
        return Conversation(place, self._tiers, base={**self._ids, "member": id_}, keeps_window=keeps_window)

    def _conversation(self, agent: Agent) -> Conversation:
        return self._conversations["A", agent.agent_id]

    def _known_or_opened(self, agent_id: str | None) -> Conversation:
        id_ = self._agent_id(agent_id)
        known = self._conversations.get(("A", id_))
        if known is not None:
            return known
        conversation = self._new_conversation("A", id_)
        conversation.open(inspect=True)
        return conversation

    def _wait(self, future: Future[None], deadline: float, *, must: bool = False) -> None:
        try:
            future.result(deadline)
        except (TimeoutError, StoreUnavailableError) as error:
            if must or self._tiers.on_store_error == "raise":
                raise StoreUnavailableError("no tier took it in time; it is kept and saved later") from error
            logger.warning("error=<%s> | not stored yet, it is tried again", type(error).__name__)

    def _renew_after_fork(self) -> None:
        self._lock = threading.Lock()
        for conversation in self._held():
            conversation.renew_after_fork()

    def _held(self) -> list[Conversation]:
        return [*self._conversations.values(), *(conversation for conversation, _ in self._prefetched.values())]


_managers: weakref.WeakSet[TieredSessionManager] = weakref.WeakSet()
_forking: list[Any] = []


def _before_fork() -> None:
    """Wait for changes that are under way in memory, which take no I/O, so that the child gets none by half."""
    for manager in list(_managers):
        for conversation in manager._held():  # noqa: SLF001
            conversation.lock.acquire()
            _forking.append(conversation.lock)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().release()


def _after_fork_in_child() -> None:
    _forking.clear()
    for manager in list(_managers):
        manager._renew_after_fork()  # noqa: SLF001


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _dumped(snapshot: Snapshot) -> dict[str, bytes]:
    return {_STATES[name]: dump(value) for name, value in snapshot.data.items() if name in _STATES}


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float | bool)
