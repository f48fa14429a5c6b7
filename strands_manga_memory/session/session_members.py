"""Conversations of one session, and their agents in this process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from strands import Agent
from strands.types.content import Message

from strands_manga_memory.attachments import attachments
from strands_manga_memory.exceptions import ConflictError, StoreUnavailableError
from strands_manga_memory.forks import renew_in_child
from strands_manga_memory.scope import ConversationScope, checked_id, checked_session_id, encoded_id
from strands_manga_memory.session.agent_conversation import AgentConversation, LogEntry
from strands_manga_memory.session.places import Kind, Place, is_in_hot, member_ids, members, tombstone_key, unlist
from strands_manga_memory.session.protocol.durable_tier import put_group_tombstone
from strands_manga_memory.session.session_agent import SessionAgent
from strands_manga_memory.session.tiers import Tiers

_held: list[threading.RLock] = []
"""Locks that are held during a process fork."""


class SessionMembers:
    """Conversations of a session's agents and orchestrators (members).

    Args:
        session_id: Id of the session, or a ``ConversationScope`` with the ids of session, user, tenant and agent.
        tiers: The session's stores.

    Attributes:
        scope: ``ConversationScope`` of the session; None if only an id was given.
        conversations: Conversations that the session manager uses, keyed by kind and id.
        agents: Strands agents of these conversations, keyed by agent id.
        prefetched: Conversations that were read for agents that are not built yet, with their messages, keyed by agent id.
        redaction_listeners: Functions that are called with the ``tracking_id`` of each redacted message.
    """

    __slots__ = (
        "__weakref__",
        "_ids",
        "_storage_id",
        "_tiers",
        "agents",
        "conversations",
        "prefetched",
        "redaction_listeners",
        "scope",
    )

    def __init__(self, session_id: str | ConversationScope, tiers: Tiers) -> None:
        if isinstance(session_id, ConversationScope):
            self.scope: ConversationScope | None = session_id
            self._storage_id = str(session_id.storage_session_id)
            self._ids: Mapping[str, Any] = {
                "session": session_id.session_id,
                "user": session_id.user_id,
                "tenant": session_id.tenant,
            }
        else:
            self.scope = None
            self._storage_id = encoded_id(checked_session_id(session_id))
            self._ids = {"session": session_id}
        self._tiers = tiers
        self.conversations: dict[tuple[Kind, str], AgentConversation] = {}
        self.agents: dict[str, SessionAgent] = {}
        self.redaction_listeners: list[Callable[[str], None]] = []
        self.prefetched: dict[str, tuple[AgentConversation, list[Message] | None]] = {}
        attachments(tiers.writer).setdefault("sessions", weakref.WeakSet()).add(self)
        renew_in_child(self)

    def _every_conversation(self) -> list[AgentConversation]:
        return [*self.conversations.values(), *(conversation for conversation, _ in self.prefetched.values())]

    def prepare_fork(self) -> None:
        """Take the locks of all conversations, so that no change is half made at a process fork."""
        for conversation in self._every_conversation():
            conversation.lock.acquire()
            _held.append(conversation.lock)

    def end_fork(self) -> None:
        """Release the locks of all conversations in the parent process."""
        while _held:
            _held.pop().release()

    def renew_after_fork(self) -> None:
        """Reset the conversations in the child of a process fork, so that they write separately from the parent's."""
        _held.clear()
        for conversation in self._every_conversation():
            conversation.connect()

    def agent_id(self, agent_id: str | None) -> str:
        """Return a checked agent id or, if None is given, the default agent id.

        The default is the agent id of the session's ``ConversationScope``. If the session has only an id, the default is the id
        of the only agent in use or, with no or several agents, ``default``.
        """
        if agent_id is not None:
            return checked_id("agent_id", agent_id)
        if self.scope is not None:
            return self.scope.agent_id
        live = [id_ for kind, id_ in self.conversations if kind == "A"]
        return live[0] if len(live) == 1 else "default"

    def place(self, kind: Kind, id_: str) -> Place:
        """Return the storage key of a conversation."""
        return Place.of(self._storage_id, kind, id_)

    def new(
        self, kind: Kind, id_: str, *, keeps_window: bool = True, tiers: Tiers | None = None, is_strict: bool = False
    ) -> AgentConversation:
        """Return a new object for a conversation, without reading the conversation.

        Args:
            kind: Kind of the conversation.
            id_: Id of the agent or orchestrator.
            keeps_window: Whether an agent's history is stored.
            tiers: Stores to use instead of the session's stores.
            is_strict: Whether an unanswered request, or another writer's change before a save, is an error.
        """
        ids = {**self._ids, "member": id_}
        place, tiers = self.place(kind, id_), tiers or self._tiers
        return AgentConversation(place, tiers, ids=ids, keeps_window=keeps_window, is_strict=is_strict)

    def looked_at(self, agent_id: str | None) -> AgentConversation:
        """Read an agent's conversation from the tiers, and return it."""
        conversation = self.new("A", self.agent_id(agent_id))
        conversation.open(inspect=True)
        return conversation

    def known_or_looked_at(self, agent_id: str | None) -> AgentConversation:
        """Return an agent's conversation from this session manager; read it from the tiers if it is not there."""
        return self.conversations.get(("A", self.agent_id(agent_id))) or self.looked_at(agent_id)

    def live(self, agent_id: str) -> Agent | None:
        """Return the Strands agent with this id; None if there is none, or the agent is no longer used."""
        return self.agents[agent_id].agent if agent_id in self.agents else None

    def agent(self, agent: Agent) -> SessionAgent:
        """Return the ``SessionAgent`` of a Strands agent.

        Raises:
            ValueError: The agent is not known to this session manager.
        """
        if agent.agent_id not in self.agents:
            raise ValueError(
                f"agent_id {agent.agent_id!r:.80} is not known to this session manager: "
                "give it to Agent(session_manager=...), or call initialize(agent) first"
            )
        return self.agents[agent.agent_id]

    def run(self, id_: str) -> AgentConversation:
        """Return the conversation that holds the state of a Graph or Swarm.

        Raises:
            ValueError: The id is not known to this session manager.
        """
        if ("M", id_) not in self.conversations:
            raise ValueError(
                f"id {id_!r:.80} is not known to this session manager: "
                "give it to the Graph or Swarm as session_manager, or call initialize_multi_agent(source) first"
            )
        return self.conversations["M", id_]

    def log(self, agent_id: str | None, *, after: int = 0, last: int | None = None) -> Iterator[LogEntry]:
        """Yield the messages of an agent's log in order, including unsaved messages of this process.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
            after: Sequence number of a message. Only later messages are yielded.
            last: Yield only this number of the last messages. None: all messages.
        """
        stored = self.looked_at(agent_id)
        yield from stored.history(after=after, last=last, unsaved=self.conversations.get(("A", self.agent_id(agent_id))))

    def redacted(self, message: Message) -> None:
        """Notify the listeners that a message was redacted."""
        if id_ := message.get("tracking_id"):
            for listener in self.redaction_listeners:
                listener(id_)

    def agent_ids(self) -> list[str]:
        """Return the sorted ids of the session's agents; without a durable tier, only those of this session manager."""
        found = {id_ for kind, id_ in self.conversations if kind == "A"}
        if self._tiers.durable is not None:
            found |= {id_ for kind, id_ in member_ids(self._tiers.durable, self._storage_id) if kind == "A"}
        return sorted(found)

    def in_session(self, session_id: str, agent_id: str) -> tuple[Place, dict[str, Any]]:
        """Return the storage key and the unencoded ids of an agent's conversation in another session of the same user.

        Raises:
            ValueError: The session id is not allowed.
        """
        ids = {**self._ids, "session": session_id, "member": agent_id}
        if self.scope is None:
            return Place.of(encoded_id(checked_session_id(session_id)), "A", agent_id), ids
        scope = ConversationScope(self.scope.user_id, session_id, tenant=self.scope.tenant)
        return Place.of(scope.storage_session_id, "A", agent_id), ids

    def in_use(self, agent_id: str | None) -> AgentConversation | None:
        """Return an agent's conversation that this process uses; None if there is none."""
        return next((conversation for _, conversation in self._in_process(self.agent_id(agent_id))), None)

    def save_in_process(self, agent_id: str, *, idle: bool) -> None:
        """Save and flush an agent's unsaved changes in all session managers of this process.

        Args:
            agent_id: The agent.
            idle: Whether to raise an error if the agent is being invoked.

        Raises:
            ConflictError: ``idle`` is True, and the agent is being invoked.
            StoreUnavailableError: A tier did not store all changes.
        """
        for live, conversation in self._in_process(agent_id):
            if idle and live is not None and live.agent is not None and live.in_turn:
                raise ConflictError(f"agent_id {agent_id!r:.80} is in the middle of a turn; call it again after its end")
            if live is not None:
                live.capture_between_turns()
            if conversation.saver.is_unsaved():
                conversation.saver.request_flush().result()

    def refresh_in_process(self, agent_id: str) -> None:
        """Update an agent's conversation from the tiers in all session managers of this process, for the agent's next turn.

        Raises:
            StoreUnavailableError: A tier does not answer.
        """
        for _, conversation in self._in_process(agent_id):
            conversation.saver.request_refresh().result()

    def _in_process(self, agent_id: str) -> Iterator[tuple[SessionAgent | None, AgentConversation]]:
        """Yield an agent's conversation in each session manager of this process, with its ``SessionAgent`` if there is one."""
        place = self.place("A", agent_id)
        for session in list(attachments(self._tiers.writer)["sessions"]):
            held = session.conversations.get(("A", agent_id))
            if held is not None and held.place == place:
                yield session.agents.get(agent_id), held

    def delete(self) -> None:
        """Delete all conversations of the session from both tiers."""
        tiers, began = self._tiers, self._tiers.clock()
        until = began + tiers.ttl.tombstone_seconds
        places = {self.place("A", self.agent_id(None)), *(conversation.place for conversation in self.conversations.values())}
        if tiers.durable is None:
            if errors := self._delete(places):
                raise errors[0]
            return
        # The listed conversations are deleted first. If the process dies here, no agent can continue in a deleted session.
        places |= set(members(tiers.durable, self._storage_id))
        waits = tiers.hot is None and is_in_hot(tiers.durable, self._storage_id)
        errors = self._delete(places)
        # The tombstone gets the time before the deletions. With a later time, the tombstone would also delete a conversation
        # that begins again after its own deletion.
        put_group_tombstone(tiers.durable, tombstone_key(self._storage_id), now=began, until=until)
        errors += self._delete(set(members(tiers.durable, self._storage_id)) - places)
        if errors:
            raise errors[0]
        unlist(tiers.durable, self._storage_id, self._ids, waits_until=until if waits else None)

    def _delete(self, places: Iterable[Place]) -> list[StoreUnavailableError]:
        """Delete conversations, and return the errors of tiers that did not answer."""
        errors = []
        in_use = {conversation.place: conversation for conversation in self.conversations.values()}
        for place in places:
            conversation = in_use.get(place) or AgentConversation(place, self._tiers, ids=self._ids)
            try:
                self._tiers.writer.submit(place, conversation.hold.delete).result()
                conversation.saver.error = None
            except StoreUnavailableError as error:
                errors.append(error)
        return errors
