"""StoredSession: what a session keeps, to be looked at, added to, carried elsewhere and deleted, with or without an agent."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.session.basis.place import Kind
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.live.conversation_transfer import orchestrator_taken_out, standing_of, store, taken_out
from strands_manga_memory.session.live.log_repository import LogRepository
from strands_manga_memory.session.live.save_waits import wait_for
from strands_manga_memory.session.live.session_members import SessionMembers
from strands_manga_memory.session.live.session_stats import SessionStats, stats_of
from strands_manga_memory.session.transfer import Standing, TransferredConversation, TransferredOrchestrator
from strands_manga_memory.stores.encoding.values import MOST_LEVELS, is_json, is_nested_deeper

COUNTERS = ("turn_count", "created", "last_activity")
"""What ``metadata`` tells of a conversation beside what ``set_metadata`` stored."""


class StoredSession:
    """What a ``TieredSessionManager`` is asked of what its session keeps."""

    def __init__(self, session_id: str | ConversationScope, tiers: Tiers) -> None:
        self._tiers, self._members = tiers, SessionMembers(session_id, tiers)
        self.scope = self._members.scope
        self.session_id = session_id if isinstance(session_id, str) else session_id.storage_session_id

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
                conversation.add({**message, "tracking_id": str(uuid.uuid4())})
            conversation.local.end_turn()
            if keep is not None:
                conversation.evict(keep=keep)
        members.conversations["A", id_] = conversation
        wait_for(conversation.saver.request(), self._tiers, must=True)

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
        # What only one of the tiers knows of must not be taken for new while that one is down.
        looking = dataclasses.replace(self._tiers, on_store_error="raise")
        standing = standing_of(members.new(kind, id_, keeps_window=is_agent, tiers=looking))
        if standing != "new" or dry_run:
            return standing
        hot = self._tiers.hot if self._tiers.durable is None else None
        storing = dataclasses.replace(self._tiers, hot=hot, on_conflict="raise")
        return store(members.new(kind, id_, keeps_window=is_agent, tiers=storing), transferred)

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
            base, now = conversation.local.base, self._tiers.clock()
            values = conversation.turn_count, base.created or now, base.last_used or now
            counters = dict(zip(COUNTERS, values, strict=True))
            return {**({} if self.scope is None else {"user": self.scope.user_id}), **conversation.meta, **counters}

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
        conversation.set_meta(fields)
        wait_for(conversation.saver.request(), self._tiers, must=True)

    @property
    def session_repository(self) -> LogRepository:
        """The messages of the log, to be listed and corrected by whoever expects Strands' ``RepositorySessionManager``."""
        return LogRepository(self.session_id, self._members, self._tiers)

    def when_redacted(self, listener: Callable[[str], None]) -> None:
        """Call a function with the ``tracking_id`` of each message that is redacted or corrected here from now on."""
        self._members.redaction_listeners.append(listener)
