"""TieredSessionManager: Strands' session interface over a hot and a durable tier."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.hooks import AgentInitializedEvent, HookRegistry, MultiAgentInitializedEvent
from strands.session import SessionManager
from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.session.agents import orchestrator
from strands_manga_memory.session.agents.forking import watch
from strands_manga_memory.session.agents.live_agent import LiveAgent, check_supported
from strands_manga_memory.session.agents.waiting import wait_anywhere, wait_for
from strands_manga_memory.session.basis.place import Kind
from strands_manga_memory.session.basis.tiers import OnConflict, OnStoreError, Refresh, SaveOn, Tiers
from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.session.hooks import SessionHooks
from strands_manga_memory.session.members import Members
from strands_manga_memory.session.repository import LogRepository
from strands_manga_memory.session.stats import SessionStats, stats_of
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.session.sync.logged import Logged
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
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.encoding.values import MOST_LEVELS, is_json, is_nested_deeper
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.opened import hot_store_of, table_of
from strands_manga_memory.stores.table import Table
from strands_manga_memory.telemetry import timed

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase

COUNTERS = ("turn_count", "created", "last_activity")
"""What ``metadata`` tells of a conversation beside what ``set_metadata`` stored."""


class TieredSessionManager(SessionManager[Agent]):
    """Keeps a session in a hot tier every turn and in a durable tier every few turns, off the event loop.

    Give it to ``Agent(session_manager=...)``, or to a ``Graph`` or ``Swarm``. A restored agent has exactly the messages the
    live one had, whatever its conversation manager did to them; only a turn that a crash cut in half is closed.

    An agent that was restored goes on when stores fail: what is unsaved is kept, counted in ``stats()``, and saved later.
    If worker and hot tier are lost together, at most the turns since the last flush are lost; anything less loses none.

    Args:
        session_id: A ``ConversationScope``, or an id of 1 to 1,024 characters.
        hot: The hot tier or its URL, saved every turn. One that ends with the process is not used when there is a durable tier.
        durable: The durable tier, or its URL (a missing table is then created); flushed every ``flush_every`` turns, at
            interrupts and at ``close``; every turn if no hot tier survives the process.
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
        hot: HotStore | str | None = None,
        durable: Table | str | None = None,
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
            hot_store_of(hot),
            table_of(durable),
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
        self._members = Members(session_id, self._tiers)
        self.scope = self._members.scope
        self.session_id = session_id if isinstance(session_id, str) else session_id.storage_session_id
        self._hooks = SessionHooks(self._members, save_on=save_on)
        watch(self._members, Members.held)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the callbacks; the save runs after every other hook, so that it sees what they changed."""
        registry = timed(registry)
        registry.add_callback(AgentInitializedEvent, lambda event: self.initialize(event.agent))
        registry.add_callback(MultiAgentInitializedEvent, lambda event: self.initialize_multi_agent(event.source))
        self._hooks.register(registry)

    async def prefetch(self, agent_id: str | None = None) -> None:
        """Read an agent's conversation off the event loop, so that building the agent next needs no I/O.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        id_ = self._members.agent_id(agent_id)
        self._members.prefetched[id_] = await asyncio.to_thread(self._opened, id_)

    def _opened(self, agent_id: str) -> tuple[Conversation, list[Message] | None]:
        conversation = self._members.new("A", agent_id)
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
        members = self._members
        if members.live(agent.agent_id) not in (None, agent):
            raise ValueError(f"agent_id {agent.agent_id!r:.80} is already used in this session manager; give each its own")
        if hasattr(agent.conversation_manager, "persist_layout"):
            agent.conversation_manager.persist_layout = False
        prefetched = members.prefetched.pop(agent.agent_id, None)
        conversation, messages = prefetched or self._opened(agent.agent_id)
        live = LiveAgent(agent, conversation)
        live.begin(agent, messages)
        members.conversations["A", agent.agent_id] = conversation
        members.agents[agent.agent_id] = live

    def append_message(self, message: Message, agent: Agent, **kwargs: Any) -> None:
        """Take note of a message, without I/O in a turn, with which it is saved; else it is saved at once."""
        live = self._members.agent(agent)
        live.append(message, agent)
        if not live.in_turn:
            self._save_now(live)

    def redact_latest_message(self, redact_message: Message, agent: Agent, **kwargs: Any) -> None:
        """Put the redacted message in place of the original in everything that is kept, and wait until that is stored."""
        future = self._members.agent(agent).redact(redact_message)
        self._members.redacted(redact_message)
        if future is not None:
            wait_for(future, self._tiers)

    def when_redacted(self, listener: Callable[[str], None]) -> None:
        """Call a function with the ``tracking_id`` of each message that is redacted or corrected here from now on."""
        self._members.redaction_listeners.append(listener)

    def sync_agent(self, agent: Agent, **kwargs: Any) -> None:
        """Save the agent as it is; in a turn, take note that it changed, without I/O: it is saved with the turn.

        Waits until the first tier has it: at most ``hot_deadline`` on an event loop, ``durable_deadline`` elsewhere.
        """
        live = self._members.agent(agent)
        if live.in_turn:
            live.touch()
        else:
            live.capture_between_turns()
            self._save_now(live)

    def initialize_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Restore a Graph or Swarm, or begin its record."""
        conversation = self._members.new("M", source.id, keeps_window=False)
        orchestrator.restore(source, conversation)
        self._members.conversations["M", source.id] = conversation

    def sync_multi_agent(self, source: MultiAgentBase, **kwargs: Any) -> None:
        """Save the state of a Graph or Swarm and wait for it; the hooks do the same without blocking the loop."""
        wait_for(orchestrator.request_save(source, self._members.run(source.id)), self._tiers)

    @property
    def session_repository(self) -> LogRepository:
        """The messages of the log, to be listed and corrected by whoever expects Strands' ``RepositorySessionManager``."""
        return LogRepository(self.session_id, log=lambda id_, after: self._members.log(id_, after=after), correct=self._correct)

    # What users call

    def flush(self) -> None:
        """Save and flush everything of this session, and wait for it.

        Raises:
            StoreUnavailableError: The durable tier (without one, the hot tier) did not take it; it is kept and tried again.
            ConflictError: Someone else's change cannot be merged with it.
        """
        futures = []
        for (kind, id_), conversation in self._members.conversations.copy().items():
            if kind == "A" and id_ in self._members.agents:
                self._members.agents[id_].capture_between_turns()
            futures.append(conversation.commits.request_flush())
        for future in futures:
            future.result()

    def close(self) -> None:
        """Flush everything and tell the durable tier that it has it all. The manager can still be used."""
        for conversation in self._members.conversations.copy().values():
            conversation.own.closing = True
        self.flush()

    def exists(self, agent_id: str | None = None) -> bool:
        """Tell whether a conversation of this agent (default: the scope's) is stored in a tier."""
        return self._members.new("A", self._members.agent_id(agent_id)).open(inspect=True) is not None

    def delete_session(self) -> None:
        """Delete every conversation of this session in both tiers and leave tombstones, so no late write brings one back.

        An agent that is alive starts with an empty history at its next invocation, as it was built. Without a durable tier
        nothing lists a session's agents: those of this manager and the scope's are deleted, others end with their time to live.

        Raises:
            StoreUnavailableError: A tier could not be reached; call it again.
        """
        self._members.delete()

    @contextmanager
    def lease(self, agent_id: str | None = None, *, ttl: float = 30.0) -> Iterator[None]:
        """Hold the advisory lease of an agent's conversation, so that workers who ask for it take turns.

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
        name, owner = self._members.place("A", self._members.agent_id(agent_id)).conversation, uuid.uuid4().hex
        if not hot.acquire_lease(name, owner=owner, ttl=ttl):
            raise ConflictError("someone else holds the lease of this conversation")
        try:
            yield
        finally:
            hot.release_lease(name, owner=owner)

    def history(self, agent_id: str | None = None, *, after: int = 0) -> Iterator[Message]:
        """Yield the raw log of an agent's conversation, message by message, in order; it is read whole before the first one.

        Args:
            agent_id: The agent; the scope's by default.
            after: Leave out messages up to this sequence number.
        """
        for logged in self._members.log(agent_id, after=after):
            yield logged.message

    def records(self, agent_id: str | None = None, *, after: int = 0, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the log as records: ``seq``, ``turn``, ``at``, ``message`` and whatever else was stored.

        Args:
            agent_id: The agent; the scope's by default.
            after: Leave out messages up to this sequence number.
            last: Only the last so many sequence numbers of what is stored; None: all.
        """
        for logged in self._members.log(agent_id, after=after, last=last):
            yield logged.record

    def window_records(self, agent_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of those logged messages that an agent's history holds, in its order.

        Unlike the log, it is all there while only one of the tiers answers.
        """
        for logged in self._members.looked_at(agent_id).window():
            yield logged.record

    def agents(self) -> list[str]:
        """Return the ids of the agents that have a conversation in this session, sorted.

        Without a durable tier nothing lists them: those that this manager has used.

        Raises:
            StoreUnavailableError: The durable tier does not answer.
        """
        return self._members.agent_ids()

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
        members = self._members
        id_ = members.agent_id(agent_id)
        if members.live(id_) is not None:
            raise ValueError(f"agent_id {id_!r:.80} is a Strands agent of this session manager; it logs its own messages")
        conversation = members.known_or_looked_at(id_)
        with conversation.lock:
            for message in messages:
                conversation.own.say({**message, "tracking_id": str(uuid.uuid4())}, at=self._tiers.clock())
            if keep is not None:
                conversation.own.evict(keep=keep)
        members.conversations["A", id_] = conversation
        wait_for(conversation.commits.request(), self._tiers, must=True)

    def transferred(self, agent_id: str | None = None) -> TransferredConversation | None:
        """Return what is stored of an agent's conversation, to be stored elsewhere; None if there is nothing.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        conversation = self._members.new("A", self._members.agent_id(agent_id))
        return taken_out(conversation) if standing_of(conversation) == "exists" else None

    def transferred_orchestrator(self, id_: str) -> TransferredOrchestrator | None:
        """Return the state of a Graph or Swarm, to be stored elsewhere; None if there is none. Errors as ``transferred``."""
        conversation = self._members.new("M", id_, keeps_window=False)
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
        is_agent, members = isinstance(transferred, TransferredConversation), self._members
        if is_agent and members.live(id_) is not None:
            raise ValueError(f"agent_id {id_!r:.80} is a Strands agent of this session manager; it has a conversation")
        kind: Kind = "A" if is_agent else "M"
        checked_id("agent_id" if is_agent else "id", id_)
        standing = standing_of(members.new(kind, id_, keeps_window=is_agent, tiers=for_looking(self._tiers)))
        if standing != "new" or dry_run:
            return standing
        return store(members.new(kind, id_, keeps_window=is_agent, tiers=for_storing(self._tiers)), transferred)

    def _correct(self, agent_id: str, logged: Logged, message: Message) -> None:
        self._members.redacted(logged.message)
        wait_anywhere(self._members.known_or_looked_at(agent_id).request_correction(logged, message), self._tiers)

    def stats(self, agent_id: str | None = None) -> SessionStats:
        """Return what is known of an agent's conversation, without touching its time to live."""
        return stats_of(self._members.known_or_looked_at(agent_id), self._members.live(self._members.agent_id(agent_id)))

    def live_stats(self) -> list[SessionStats]:
        """Return what is known of each conversation that is open here, without any I/O."""
        open_ = self._members.conversations.copy().items()
        return [stats_of(conversation, self._members.live(id_)) for (kind, id_), conversation in open_ if kind == "A"]

    def metadata(self, agent_id: str | None = None) -> dict[str, Any]:
        """Return the metadata of an agent's conversation: its user, what ``set_metadata`` stored, and the counters."""
        conversation = self._members.known_or_looked_at(agent_id)
        if not conversation.is_dirty:
            conversation = self._members.looked_at(agent_id)
        with conversation.lock:
            facts = conversation.own.facts
            counters = dict(zip(COUNTERS, (facts.turns, facts.created, facts.active), strict=True))
            return {**({} if self.scope is None else {"user": self.scope.user_id}), **conversation.own.meta, **counters}

    def set_metadata(self, agent_id: str | None = None, /, **fields: Any) -> None:
        """Store metadata beside an agent's conversation, such as locale, active intent or cart items, and wait for it.

        Raises:
            ValueError: A value is not JSON, or has over 100 levels, or a name is one of the counters.
            StoreUnavailableError: No tier took it in time; it is kept and saved later.
        """
        for name, value in fields.items():
            if name in COUNTERS:
                raise ValueError(f"{name} is counted here and cannot be set; the counters are {', '.join(COUNTERS)}")
            if is_nested_deeper(value, MOST_LEVELS) or not is_json(value, bits=1 << 20):
                raise ValueError(f"{name} must be a JSON value of at most {MOST_LEVELS} levels, got {type(value).__name__}")
        conversation = self._members.known_or_looked_at(agent_id)
        with conversation.lock:
            conversation.own.set_meta(fields)
        wait_for(conversation.commits.request(), self._tiers, must=True)

    # Inside

    def _save_now(self, live: LiveAgent) -> None:
        wait_anywhere(live.conversation.commits.request(), self._tiers)
