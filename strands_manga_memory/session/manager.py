"""TieredSessionManager: Strands' session interface over a hot and a durable tier."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from strands import Agent
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
from strands.session import SessionManager
from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.scope import ConversationScope, checked_id, encoded_id
from strands_manga_memory.session import orchestrator
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.durable_tier import member_ids, members
from strands_manga_memory.session.forking import watch
from strands_manga_memory.session.live_agent import LiveAgent, check_supported
from strands_manga_memory.session.records import Kind, Place, directory_key
from strands_manga_memory.session.stats import SessionStats, stats_of
from strands_manga_memory.session.tiers import OnConflict, OnStoreError, Refresh, SaveOn, Tiers
from strands_manga_memory.session.transfer import (
    Standing,
    TransferredConversation,
    TransferredOrchestrator,
    for_looking,
    for_storing,
    orchestrator_taken_out,
    standing_of,
    store,
    taken_out,
)
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.session.waiting import saved, wait_for
from strands_manga_memory.session.window import Logged
from strands_manga_memory.stores.codec import Codec, load
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.telemetry import timed

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase

_AFTER_ALL_HOOKS = HookOrder.SDK_LAST + 1
_BEFORE_ALL_HOOKS = HookOrder.SDK_FIRST - 1


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
        self._tiers = Tiers.of(
            hot,
            durable,
            codec=codec,
            clock=clock,
            ttl=ttl,
            save_on=save_on,
            flush_every=flush_every,
            on_conflict=on_conflict,
            on_store_error=on_store_error,
            refresh=refresh,
            resume_cold=resume_cold,
            hot_deadline=hot_deadline,
            durable_deadline=durable_deadline,
            max_unsaved=max_unsaved,
        )
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
        self._conversations: dict[tuple[Kind, str], Conversation] = {}
        self._agents: dict[str, LiveAgent] = {}
        self._prefetched: dict[str, tuple[Conversation, list[Message] | None]] = {}
        watch(self, TieredSessionManager._held)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the callbacks; the save runs after every other hook, so that it sees what they changed."""
        registry = timed(registry)
        registry.add_callback(AgentInitializedEvent, lambda event: self.initialize(event.agent))
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(MessageAddedEvent, lambda event: self.append_message(event.message, event.agent))
        if self._tiers.save_on == "message":
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
        check_supported(agent)
        if self._live(agent.agent_id) not in (None, agent):
            raise ValueError(f"agent_id {agent.agent_id!r} is already used in this session manager; give each agent its own")
        if hasattr(agent.conversation_manager, "persist_layout"):
            agent.conversation_manager.persist_layout = False
        prefetched = self._prefetched.pop(agent.agent_id) if agent.agent_id in self._prefetched else None
        conversation, messages = prefetched or self._opened(agent.agent_id)
        live = LiveAgent(agent, conversation)
        live.begin(agent, messages)
        self._conversations["A", agent.agent_id] = conversation
        self._agents[agent.agent_id] = live

    def append_message(self, message: Message, agent: Agent, **kwargs: Any) -> None:
        """Take note of a message, without I/O; it is saved with its turn."""
        self._agents[agent.agent_id].append(message, agent)

    def redact_latest_message(self, redact_message: Message, agent: Agent, **kwargs: Any) -> None:
        """Put the redacted message in place of the original in everything that is kept, and wait until that is stored.

        A tier that is down gets it as soon as it is back, before anything else of this conversation.
        """
        future = self._agents[agent.agent_id].redact(redact_message)
        if future is not None:
            wait_for(future, self._tiers)

    def sync_agent(self, agent: Agent, **kwargs: Any) -> None:
        """Take note that the agent changed; it is saved with its turn."""
        self._agents[agent.agent_id].touch()

    def initialize_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Restore a Graph or Swarm, or begin its record."""
        conversation = self._new_conversation("M", source.id, keeps_window=False)
        orchestrator.restore(source, conversation)
        self._conversations["M", source.id] = conversation

    def sync_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Save the state of a Graph or Swarm and wait for it; the hooks do the same without blocking the loop."""
        wait_for(orchestrator.request_save(source, self._conversations["M", source.id]), self._tiers)

    # Hooks

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._agents[event.agent.agent_id].before_turn(event.agent)

    async def _after_message(self, event: MessageAddedEvent[Agent]) -> None:
        await self._agents[event.agent.agent_id].after_message(event.message, event.agent)

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        """Take note of it before any other hook, because one that raises keeps the save from running."""
        self._agents[event.agent.agent_id].turn_ended()

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        await self._agents[event.agent.agent_id].after_turn(event)

    def _before_run(self, event: BeforeMultiAgentInvocationEvent) -> None:
        orchestrator.begin_run(self._conversations["M", event.source.id])

    async def _after_node(self, event: AfterNodeCallEvent | AfterMultiAgentInvocationEvent) -> None:
        conversation = self._conversations["M", event.source.id]
        is_over = isinstance(event, AfterMultiAgentInvocationEvent)
        await saved(conversation, orchestrator.request_save(event.source, conversation, is_over=is_over))

    # What users call

    def flush(self) -> None:
        """Save and flush everything of this session, and wait for it.

        Raises:
            StoreUnavailableError: The durable tier (without one, the hot tier) did not take it; it is kept and tried again.
            ConflictError: Someone else's change cannot be merged with it.
        """
        futures = []
        for (kind, id_), conversation in self._conversations.copy().items():
            if kind == "A" and id_ in self._agents:
                self._agents[id_].capture_between_turns()
            futures.append(conversation.request_flush())
        for future in futures:
            future.result()

    def close(self) -> None:
        """Flush everything and tell the durable tier that it has it all. The manager can still be used."""
        for conversation in self._conversations.copy().values():
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
        conversations = {conversation.place: conversation for conversation in self._conversations.values()}
        for place in self._stored_places() - conversations.keys():
            conversations[place] = Conversation(place, self._tiers, base=self._ids)
        for place, conversation in conversations.items():
            self._tiers.writer.submit(place, conversation.bury).result()
        entry = directory_key(self._storage_id, self._ids)
        if entry is not None and self._tiers.durable is not None:
            self._tiers.durable.delete(*entry)

    def _stored_places(self) -> set[Place]:
        own = {Place.of(self._storage_id, "A", self._agent_id(None))}
        return own if self._tiers.durable is None else own | set(members(self._tiers.durable, self._storage_id))

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

    def records(self, agent_id: str | None = None, *, after: int = 0, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the log as records: ``seq``, ``turn``, ``at``, ``message`` and whatever else was stored (mission B4).

        Args:
            agent_id: The agent; the scope's by default.
            after: Leave out messages up to this sequence number.
            last: Only the last so many sequence numbers of what is stored; None: all.
        """
        for slot in self._log(agent_id, after, last):
            yield {"seq": slot.seq, **load(slot.record)}

    def window_records(self, agent_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of those logged messages that an agent's history holds, in its order.

        Unlike the log, it is all there while only one of the tiers answers.
        """
        stored = self._new_conversation("A", self._agent_id(agent_id))
        stored.open(inspect=True)
        for slot in stored.model.slots:
            if isinstance(slot, Logged):
                yield {"seq": slot.seq, **load(slot.record)}

    def agents(self) -> list[str]:
        """Return the ids of the agents that have a conversation in this session, sorted.

        Without a durable tier nothing lists them: those that this manager has used.

        Raises:
            StoreUnavailableError: The durable tier does not answer.
        """
        found = {id_ for kind, id_ in self._conversations if kind == "A"}
        if self._tiers.durable is not None:
            found |= {id_ for kind, id_ in member_ids(self._tiers.durable, self._storage_id) if kind == "A"}
        return sorted(found)

    def log(self, messages: Sequence[Message], agent_id: str | None = None, *, keep: int | None = None) -> None:
        """Log messages of an agent that is no Strands agent, and wait until they are saved.

        Args:
            messages: The messages, in order.
            agent_id: The agent; the scope's by default. A Strands agent of this manager logs its own.
            keep: Only the last so many messages stay in the agent's history; None: all. The log keeps every message.

        Raises:
            ValueError: A Strands agent of this manager has the id.
            StoreUnavailableError: No tier took them in time; they are kept and saved later.
            ConflictError: Someone else's change cannot be merged.
        """
        id_ = self._agent_id(agent_id)
        if self._live(id_) is not None:
            raise ValueError(f"agent_id {id_!r} is a Strands agent of this session manager; it logs its own messages")
        conversation = self._known_or_opened(id_)
        with conversation.lock:
            model = conversation.model
            for message in messages:
                model.append({**message, "tracking_id": str(uuid.uuid4())}, at=self._tiers.clock())
            if keep is not None:
                model.slots = model.slots[max(0, len(model.slots) - keep) :]
        self._conversations["A", id_] = conversation
        wait_for(conversation.request(), self._tiers, must=True)

    def transferred(self, agent_id: str | None = None) -> TransferredConversation | None:
        """Return what is stored of an agent's conversation, to be stored elsewhere; None if there is nothing.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        conversation = self._new_conversation("A", self._agent_id(agent_id))
        return taken_out(conversation) if standing_of(conversation) == "exists" else None

    def transferred_orchestrator(self, id_: str) -> TransferredOrchestrator | None:
        """Return the state of a Graph or Swarm, to be stored elsewhere; None if there is none. Errors as ``transferred``."""
        conversation = self._new_conversation("M", id_, keeps_window=False)
        return orchestrator_taken_out(conversation) if standing_of(conversation) == "exists" else None

    def transfer(
        self, transferred: TransferredConversation | TransferredOrchestrator, id_: str, *, dry_run: bool = False
    ) -> Standing:
        """Store what another session manager kept, unless there is something already; return what there was.

        It goes into the durable tier, in one commit, and waits there until it is used; its session's time begins now.

        Args:
            transferred: The conversation of an agent, or the state of a Graph or Swarm.
            id_: The id of that agent, or of that Graph or Swarm.
            dry_run: Only look.

        Raises:
            StoreUnavailableError: A tier does not answer; it can be called again.
            CorruptRecordError: What is stored there cannot be trusted.
            ValueError: The id is not allowed, or a Strands agent of this manager has it.
        """
        is_agent = isinstance(transferred, TransferredConversation)
        if is_agent and self._live(id_) is not None:
            raise ValueError(f"agent_id {id_!r} is a Strands agent of this session manager; it has a conversation")
        place = Place.of(self._storage_id, "A" if is_agent else "M", checked_id("agent_id" if is_agent else "id", id_))
        base = {**self._ids, "member": id_}
        standing = standing_of(Conversation(place, for_looking(self._tiers), base=base, keeps_window=is_agent))
        if standing != "new" or dry_run:
            return standing
        return store(Conversation(place, for_storing(self._tiers), base=base, keeps_window=is_agent), transferred)

    def _log(self, agent_id: str | None, after: int, last: int | None = None) -> Iterator[Logged]:
        """Yield what is stored, whoever stored it, then what only this process has."""
        id_ = self._agent_id(agent_id)
        known = self._conversations.get(("A", id_))
        unsaved: list[Logged] = []
        if known is not None:  # looked at first: what gets saved meanwhile is found in the store too
            with known.lock:
                unsaved = [*known.model.unsaved_slots(), *known.model.revised]
        stored = self._new_conversation("A", id_)
        stored.open(inspect=True)
        if last is not None:
            after = max(after, stored.model.head.next - 1 - last)
        yield from stored.history(after=after, unsaved=unsaved)

    def stats(self, agent_id: str | None = None) -> SessionStats:
        """Return what is known of an agent's conversation, without touching its time to live."""
        return stats_of(self._known_or_opened(agent_id), self._live(self._agent_id(agent_id)))

    def live_stats(self) -> list[SessionStats]:
        """Return what is known of each conversation that is open here, without any I/O."""
        open_ = [(id_, conversation) for (kind, id_), conversation in self._conversations.copy().items() if kind == "A"]
        return [stats_of(conversation, self._live(id_)) for id_, conversation in open_]

    def metadata(self, agent_id: str | None = None) -> dict[str, Any]:
        """Return the metadata of an agent's conversation: what ``set_metadata`` stored, and the counters (mission A1)."""
        conversation = self._known_or_opened(agent_id)
        if not conversation.is_dirty:
            conversation = self._new_conversation("A", self._agent_id(agent_id))
            conversation.open(inspect=True)
        with conversation.lock:
            head = conversation.model.head
            counters = {"turn_count": head.turns, "created": head.created, "last_activity": head.active}
            return {**conversation.model.meta, **counters}

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
            conversation.model.set_meta(fields)
        wait_for(conversation.request(), self._tiers, must=True)

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

    def _live(self, agent_id: str) -> Agent | None:
        return self._agents[agent_id].agent if agent_id in self._agents else None

    def _known_or_opened(self, agent_id: str | None) -> Conversation:
        id_ = self._agent_id(agent_id)
        known = self._conversations.get(("A", id_))
        if known is not None:
            return known
        conversation = self._new_conversation("A", id_)
        conversation.open(inspect=True)
        return conversation

    def _held(self) -> list[Conversation]:
        return [*self._conversations.values(), *(conversation for conversation, _ in self._prefetched.values())]


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float | bool)
