"""Stored session that can be read, extended, transferred and deleted, with or without an agent."""

from __future__ import annotations

import dataclasses
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from strands import Agent
from strands.types.content import Message

from strands_manga_memory.arguments import (
    Count,
    FiniteSeconds,
    PositiveInt,
    check_int,
    checked,
    with_repr,
)
from strands_manga_memory.exceptions import ConflictError, StoreUnavailableError
from strands_manga_memory.lifecycle import attachments, members_of
from strands_manga_memory.scope import ConversationScope, checked_id, checked_session_id, encoded_id
from strands_manga_memory.session.agent_conversation import (
    AgentConversation,
    SessionStats,
    check_messages,
)
from strands_manga_memory.session.agent_snapshot import ORCHESTRATOR
from strands_manga_memory.session.conversation_transfer import (
    TransferredConversation,
    TransferResult,
    begin_with,
    fork,
    rewind,
)
from strands_manga_memory.session.session_agent import SessionAgent
from strands_manga_memory.session.session_log import HistoryPage, LogEntry, LogPosition
from strands_manga_memory.session.tiers import (
    ConversationKey,
    Kind,
    Tiers,
    is_in_hot,
    put_group_tombstone,
    remove_listing,
    stored_heads,
)
from strands_manga_memory.stores.codec import MAX_LEVELS, is_json, load
from strands_manga_memory.stores.hot import acquire_lease, release_lease

COUNTERS = ("turn_count", "created", "last_activity")
"""Names of the counters in the result of ``metadata``. ``set_metadata`` cannot set them."""


@with_repr("session_id")
class StoredSession:
    """Stored session that can be read and changed. ``TieredSessionManager`` inherits these methods.

    Many methods have an argument ``agent_id``. None means the default agent. With a scope, this is
    the scope's agent. Without one, it is the only agent that uses this object or, if none or
    several do, the agent ``default``.

    Args:
        session_id: Id of the session, or a ``ConversationScope`` with the ids of session, user,
            tenant and agent.
        tiers: The session's stores, a hot tier (such as Redis) and a durable tier (such as
            DynamoDB).

    Attributes:
        scope: ``ConversationScope`` of the session; None if only an id was given.
        session_id: Id of the session; with a scope, its storage id.
    """

    def __init__(self, session_id: str | ConversationScope, tiers: Tiers) -> None:
        self._tiers = tiers
        self.scope: ConversationScope | None = None
        self._ids: dict[str, Any] = {"session": session_id}
        if isinstance(session_id, ConversationScope):
            scope = self.scope = session_id
            self._ids = {"session": scope.session_id, "user": scope.user_id, "tenant": scope.tenant}
            self.session_id = scope.storage_session_id
            self._storage_id = str(self.session_id)
        else:
            self.session_id = session_id
            self._storage_id = encoded_id(checked_session_id(session_id))
        self._conversations: dict[tuple[Kind, str], AgentConversation] = {}
        self._agents: dict[str, SessionAgent] = {}
        self._redaction_listeners: list[Callable[[str], object]] = []
        attachments(tiers.writer).setdefault("sessions", weakref.WeakSet()).add(self)

    def exists(self, agent_id: str | None = None) -> bool:
        """Return whether one of the stores has a conversation of an agent in this session.

        Args:
            agent_id: Id of the agent, or None for the default agent.
        """
        return not self._inspect(agent_id).local.base.is_empty

    def delete_session(self) -> None:
        """Delete all conversations of this session from both tiers.

        Deletion markers (tombstones) stay, so that a late write of another process brings no
        conversation back. An agent of this process starts its next invocation with an empty history
        and its initial states. An agent of another process notices the deletion at its next save,
        which is discarded.

        Without a durable tier, there is no list of a session's agents. Then only conversations of
        the default agent and of agents that use this object are deleted. Those of other agents
        expire after their time to live.

        Raises:
            StoreUnavailableError: A tier could not be reached; call ``delete_session`` again.
        """
        durable, session, now = self._tiers.durable, self._storage_id, self._tiers.clock()
        until = now + self._tiers.ttl.tombstone_seconds
        keys = {self._key_of(self._agent_id(None))}
        keys |= {conversation.key for conversation in self._conversations.values()}
        copies_until = None
        if durable is not None:
            if self._tiers.hot is None and is_in_hot(durable, session):
                copies_until = until
            put_group_tombstone(durable, session, now=now, until=until)
            # Listed after the tombstone, which ends conversations that begin meanwhile.
            keys |= {head.key for head in stored_heads(durable, session)}
        if errors := self._delete(keys):
            raise errors[0]
        self._refresh_in_process(keys)
        if durable is not None:
            remove_listing(durable, session, self._ids, copies_until=copies_until)

    @contextmanager
    @checked
    def lease(self, agent_id: str | None = None, *, ttl: FiniteSeconds = 30.0) -> Iterator[None]:
        """Reserve a conversation for one worker during a ``with`` block.

        Only one worker can hold this reservation, the lease, at a time. The lease ends with the
        block or, if the hot tier does not answer then, after ``ttl``. A worker that does not call
        this method can still save, and its changes are merged.

        Args:
            agent_id: Id of the agent, or None for the default agent.
            ttl: Seconds after which the lease ends by itself.

        Raises:
            ConflictError: Someone else holds the lease.
            StoreUnavailableError: The hot tier does not answer.
            ValueError: There is no hot tier, or ``ttl`` is not above 0.
        """
        hot = self._tiers.hot
        if hot is None:
            raise ValueError("hot is None: a lease needs a hot tier that survives the process")
        name = self._key_of(self._agent_id(agent_id)).name
        owner = uuid.uuid4().hex
        if not acquire_lease(hot, name, owner=owner, ttl=ttl):
            raise ConflictError("someone else holds the lease of this conversation")
        try:
            yield
        finally:
            with suppress(StoreUnavailableError):  # the turn in the block is complete
                release_lease(hot, name, owner=owner)

    def history(self, agent_id: str | None = None) -> Iterator[Message]:
        """Yield all messages of an agent's conversation, oldest first.

        Messages that were removed from ``agent.messages`` are included. All messages are read from
        the stores before the first one is yielded.

        Args:
            agent_id: Id of the agent, or None for the default agent.
        """
        yield from (entry.message for entry in self._log(agent_id))

    @checked
    def records(
        self, agent_id: str | None = None, *, last: Count | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield all messages of an agent's conversation in order, as dicts with numbers and times.

        The keys are ``seq`` (message number), ``turn`` (turn number), ``at`` (seconds since 1970),
        ``message``, and the names of further values of the turn, such as ``intent``.

        Args:
            agent_id: Id of the agent, or None for the default agent.
            last: Number of messages to yield, counted back from the end; None: all.

        Raises:
            ValueError: ``last`` is negative.
        """
        yield from (entry.record for entry in self._log(agent_id, last=last))

    @checked
    def history_page(
        self, agent_id: str | None = None, *, limit: PositiveInt = 50, after: str | None = None
    ) -> HistoryPage:
        """Return one page of all messages of an agent's conversation.

        The first page has the last messages, and each further page has the messages before them.
        Only the turns around the page are read from a durable tier.

        Args:
            agent_id: Id of the agent, or None for the default agent.
            limit: Maximum number of messages. Default 50.
            after: ``next`` of the previous page, for the messages before that page. None: return
                the page with the last messages.

        Raises:
            ValueError: ``limit`` is below 1, or ``after`` names no message of the conversation.
            StoreUnavailableError: The stored conversation cannot be read.
        """
        before = None if after is None else LogPosition.parse(after)
        entries = self._log(agent_id, last=limit + 1, before=before)
        page = entries[-limit:]
        earlier = str(page[0].position) if len(entries) > limit else None
        return HistoryPage(tuple(entry.record for entry in page), earlier)

    @checked
    def fork(self, at_turn: PositiveInt, *, session_id: str, agent_id: str | None = None) -> None:
        """Begin a new session of the same user with a copy of an agent's first turns.

        If ``at_turn`` is the last turn, the copy has the agent's whole state and history. If it is
        an earlier turn, the copy has at most 100 turns of history. State values that were set after
        that turn are missing, because their earlier values are not stored.

        Args:
            at_turn: Number of the last turn to copy, counted from 1; ``turn`` in the records of
                ``history_page``.
            session_id: Id of the new session. The agent must have no other conversation in it.
            agent_id: Id of the agent, or None for the default agent.

        Raises:
            ValueError: There is no turn ``at_turn``, or the session id is not allowed.
            ConflictError: The agent has a conversation in the new session, or a turn to copy is
                still open.
            CorruptRecordError: A turn to copy cannot be read.
            StoreUnavailableError: A tier does not answer; call ``fork`` again.
        """
        id_ = self._agent_id(agent_id)
        scope = self.scope and dataclasses.replace(self.scope, session_id=session_id)
        target = StoredSession(scope or session_id, self._tiers)
        self._flush_in_process(id_, idle=False)
        fork(self._new("A", id_).storage, at_turn=at_turn, to=target._new("A", id_).storage)

    @checked
    def rewind(self, at_turn: Count, *, agent_id: str | None = None) -> None:
        """Remove the stored turns of a conversation after the turn ``at_turn``.

        If turns are removed, the new history has at most 100 turns, and state values that were set
        in the removed turns are missing. A new turn that another process stores during the call is
        kept, unless ``at_turn`` is 0.

        Agents of this process, and of processes with ``refresh="turn"``, have the shortened history
        at their next turn. Other agents use the old history for one more turn, which is stored
        after the kept turns.

        Args:
            at_turn: Number of the last turn to keep, counted from 1; 0: no turn and no state is
                kept.
            agent_id: Id of the agent, or None for the default agent.

        Raises:
            ValueError: There is no turn ``at_turn``.
            ConflictError: The agent is being invoked in this process, a turn to keep is still open,
                or the conversation ended meanwhile.
            CorruptRecordError: A turn to keep cannot be read.
            StoreUnavailableError: A tier does not answer; call ``rewind`` again.
        """
        id_ = self._agent_id(agent_id)
        self._flush_in_process(id_, idle=True)
        stored = self._new("A", id_)
        rewind(stored.storage, at_turn=at_turn)
        self._refresh_in_process([stored.key])

    def window_records(self, agent_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the unedited messages of an agent's history, with their times.

        Each message is yielded as a dict with ``message`` and ``at`` (seconds since 1970). Messages
        that a conversation manager has edited, such as truncated ones, or added, such as summaries,
        are left out. The call works while one tier is down, if the other one has the conversation.

        Args:
            agent_id: Id of the agent, or None for the default agent.
        """
        conversation = self._get_or_inspect(agent_id)
        with conversation.lock:
            local = conversation.local
            slots = [slot for slot in local.window if slot.key and slot.body is None]
            held = [local.original(slot) for slot in slots]
        yield from ({"message": load(data), "at": at} for data, at in held if data is not None)

    def agents(self) -> list[str]:
        """Return the ids of the agents that have a conversation in this session, sorted.

        Without a durable tier, only agents that use this object are returned.

        Raises:
            StoreUnavailableError: The durable tier does not answer.
        """
        found = {
            id_
            for (kind, id_), one in self._conversations.copy().items()
            if kind == "A" and (one.local.is_dirty or not one.local.base.is_empty)
        }
        if self._tiers.durable is not None:
            heads = stored_heads(self._tiers.durable, self._storage_id)
            found |= {head.member for head in heads if head.member and head.key.kind == "A"}
        return sorted(found)

    def log(
        self, messages: Iterable[Message], agent_id: str | None = None, *, keep: int | None = None
    ) -> None:
        """Store messages of an agent that is not a Strands agent, and wait until they are saved.

        Args:
            messages: The messages, in order.
            agent_id: Id of the agent, or None for the default agent.
            keep: Number of last messages that stay in the agent's history; None: all. The stored
                log keeps every message.

        Raises:
            ValueError: A Strands agent that uses this object has the id, Strands could not process
                a message, or ``keep`` is below 0.
            StoreUnavailableError: No tier stored the messages in time. They are kept in memory, and
                saved later.
            ConflictError: Another process's change cannot be merged.
        """
        id_ = self._agent_id(agent_id)
        if self._agent_in_use(id_) is not None:
            raise ValueError(
                f"agent_id {id_!r:.80} is a Strands agent of this session manager; it logs its own"
                " messages"
            )
        messages = list(messages)
        check_messages(messages)
        if keep is not None:
            check_int("keep", keep, minimum=0)
        conversation = self._get_or_inspect(id_)
        with conversation.lock:
            for message in messages:
                conversation.add({**message, "tracking_id": str(uuid.uuid4())})
            conversation.end_turn()
            if keep is not None:
                conversation.local.set_view(conversation.local.view[-keep:] if keep else ())
        self._conversations["A", id_] = conversation
        conversation.saver.block(conversation.saver.request(), must=True)

    def restorable(self, agent_id: str | None = None) -> tuple[list[Message], dict[str, Any]]:
        """Return the history and the states that a restore would give to an agent.

        Both are empty if no conversation is stored. The states are keyed as in a Strands snapshot.

        Args:
            agent_id: Id of the agent, or None for the default agent.

        Raises:
            StoreUnavailableError: The stored conversation cannot be read.
            CorruptRecordError: A stored record is damaged.
        """
        conversation = self._new("A", self._agent_id(agent_id))
        window = conversation.open(inspect=True)
        return ([], {}) if window is None else (window, conversation.snapshot)

    def orchestrator_state(self, id_: str) -> Any:
        """Return the stored state of a Graph or Swarm; None if none is stored.

        Raises:
            StoreUnavailableError: The stored state cannot be read.
            CorruptRecordError: A stored record is damaged.
        """
        conversation = self._new("M", id_)
        states = {} if conversation.open(inspect=True) is None else conversation.local.states
        return states.get(ORCHESTRATOR)

    def transfer(
        self, transferred: TransferredConversation | Mapping[str, Any], id_: str
    ) -> TransferResult:
        """Store a conversation of another session manager, unless this session has it already.

        With a durable tier, the conversation is stored only there, and not in the hot tier. The
        conversation's time to live begins with this call.

        Args:
            transferred: The conversation of an agent, or the state of a Graph or Swarm from its
                method ``serialize_state``.
            id_: The id of that agent, Graph or Swarm.

        Returns:
            ``new`` if the conversation was stored. Otherwise nothing was stored: ``exists`` if this
            session has the conversation, or ``ended`` if it had one that was deleted or has
            expired.

        Raises:
            StoreUnavailableError: A tier does not answer; call ``transfer`` again.
            CorruptRecordError: A stored record is damaged.
            ValueError: The id is not allowed, or a Strands agent that uses this object has it.
        """
        is_agent = isinstance(transferred, TransferredConversation)
        if is_agent and self._agent_in_use(id_) is not None:
            raise ValueError(
                f"agent_id {id_!r:.80} is a Strands agent of this session manager; it has a"
                " conversation"
            )
        kind: Kind = "A" if is_agent else "M"
        checked_id("agent_id" if is_agent else "id", id_)
        conversation = self._new(kind, id_)
        local = conversation.local
        if conversation.open(inspect=True) is not None:
            return "exists"
        if local.base.incarnation:
            return "ended"
        with conversation.lock:
            if isinstance(transferred, TransferredConversation):
                local.base = dataclasses.replace(local.base, created=transferred.created or 0.0)
                for message, at in transferred.log:
                    conversation.add(message, at=at)
                local.end_turn()
                conversation.capture(transferred.window, transferred.states)
                conversation.set_meta(transferred.metadata)
            else:
                conversation.set_entry(ORCHESTRATOR, transferred)
            content = local.draft()
        storage = self._new(kind, id_).storage
        is_new = not content.incarnation or begin_with(storage, content, replaces=False)
        return "new" if is_new else "exists"  # another writer has just begun the conversation

    def stats(self, agent_id: str | None = None) -> SessionStats:
        """Return statistics of an agent's conversation, such as the number of messages.

        The call does not restart the conversation's time to live.
        """
        return self._get_or_inspect(agent_id).stats(self._agent_in_use(self._agent_id(agent_id)))

    def live_stats(self) -> list[SessionStats]:
        """Return statistics of each agent that uses this object. No store is read."""
        in_use = self._conversations.copy().items()
        return [one.stats(self._agent_in_use(id_)) for (kind, id_), one in in_use if kind == "A"]

    def metadata(self, agent_id: str | None = None) -> dict[str, Any]:
        """Return the metadata of an agent's conversation, keyed by name.

        These are the user (if known), the values that ``set_metadata`` stored, the number of turns,
        and the times of the beginning and of the last use.
        """
        conversation = self._conversations.get(("A", self._agent_id(agent_id)))
        if conversation is None or not conversation.local.is_dirty:
            conversation = self._inspect(agent_id)
        with conversation.lock:
            base, now = conversation.local.base, self._tiers.clock()
            turns = conversation.local.record.turn_count
            values = turns, base.created or now, base.last_used or now
            user = {} if self.scope is None else {"user": self.scope.user_id}
            return {**user, **conversation.meta, **dict(zip(COUNTERS, values, strict=True))}

    def set_metadata(self, agent_id: str | None = None, /, **fields: Any) -> None:
        """Store metadata of a conversation, such as the user's locale, and wait for the save.

        Raises:
            ValueError: A value is not JSON, or has over 100 levels, or a name belongs to a counter,
                such as ``turn_count``.
            StoreUnavailableError: No tier took the metadata in time; they are kept and saved later.
        """
        for name, value in fields.items():
            if name in COUNTERS:
                raise ValueError(
                    f"{name} is counted here and cannot be set; the counters are"
                    f" {', '.join(COUNTERS)}"
                )
            if not is_json(value, bits=1 << 20):
                raise ValueError(
                    f"{name} must be a JSON value of at most {MAX_LEVELS} levels, got"
                    f" {type(value).__name__}"
                )
        conversation = self._get_or_inspect(agent_id)
        conversation.set_meta(fields)
        conversation.saver.block(conversation.saver.request(), must=True)

    def when_redacted(self, listener: Callable[[str], object]) -> None:
        """Register a function that is called with the ``tracking_id`` of each redacted message."""
        self._redaction_listeners.append(listener)

    def removal_version(self) -> object:
        """Return a value that changes when messages of the default agent are redacted or deleted.

        A new value means that cached data, such as a search index, is outdated.
        """
        base = self._get_or_inspect(None).local.base
        return base.incarnation and (base.incarnation, base.redactions)

    # Conversations of the session's agents and orchestrators

    def _agent_id(self, agent_id: str | None) -> str:
        if agent_id is not None:
            return checked_id("agent_id", agent_id)
        if self.scope is not None:
            return self.scope.agent_id
        in_use = [id_ for kind, id_ in self._conversations if kind == "A"]
        return in_use[0] if len(in_use) == 1 else "default"

    def _key_of(self, id_: str, kind: Kind = "A") -> ConversationKey:
        return ConversationKey.of(self._storage_id, kind, id_)

    def _new(self, kind: Kind, id_: str) -> AgentConversation:
        ids = {**self._ids, "member": id_}
        return AgentConversation(self._key_of(id_, kind), self._tiers, ids=ids)

    def _inspect(self, agent_id: str | None) -> AgentConversation:
        conversation = self._new("A", self._agent_id(agent_id))
        conversation.open(inspect=True)
        return conversation

    def _get_or_inspect(self, agent_id: str | None) -> AgentConversation:
        return self._conversations.get(("A", self._agent_id(agent_id))) or self._inspect(agent_id)

    def _agent_in_use(self, agent_id: str) -> Agent | None:
        return self._agents[agent_id].agent() if agent_id in self._agents else None

    def _log(
        self, agent_id: str | None, *, last: int | None = None, before: LogPosition | None = None
    ) -> list[LogEntry]:
        conversation = self._inspect(agent_id)
        conversation.in_use = self._conversations.get(("A", self._agent_id(agent_id)))
        for _, in_use in self._open_conversations([conversation.key]):
            conversation.include_unsaved(in_use)
        return conversation.history(last=last, before=before)

    def _notify_redacted(self, message: Message) -> None:
        if id_ := message.get("tracking_id"):
            for listener in self._redaction_listeners:
                listener(id_)

    def _flush_in_process(self, agent_id: str, *, idle: bool) -> None:
        for session_agent, conversation in self._open_conversations([self._key_of(agent_id)]):
            agent = None if session_agent is None else session_agent.agent()
            if idle and agent is not None and session_agent is not None and session_agent.in_turn:
                raise ConflictError(
                    f"agent_id {agent_id!r:.80} is in the middle of a turn; call it again after"
                    " its end"
                )
            if session_agent is not None:
                session_agent.capture_between_turns()
            if conversation.saver.is_unsaved():
                conversation.saver.request_flush().result()

    def _open_conversations(
        self, keys: Collection[ConversationKey]
    ) -> Iterator[tuple[SessionAgent | None, AgentConversation]]:
        """Yield this process's open conversations that have one of the keys, with their agents."""
        for session in members_of(attachments(self._tiers.writer)["sessions"]):
            if session._storage_id != self._storage_id:  # noqa: SLF001 - of this class
                continue
            for (kind, id_), found in session._conversations.copy().items():  # noqa: SLF001
                if found.key in keys:
                    yield session._agents.get(id_) if kind == "A" else None, found  # noqa: SLF001

    def _refresh_in_process(self, keys: Collection[ConversationKey]) -> None:
        for session_agent, conversation in self._open_conversations(keys):
            conversation.saver.request_refresh().result()
            if session_agent is not None:
                session_agent.end_interrupt()

    def _delete(self, keys: Iterable[ConversationKey]) -> list[StoreUnavailableError]:
        errors = []
        in_use = {conversation.key: conversation for conversation in self._conversations.values()}
        for conversation_key in keys:
            conversation = in_use.get(conversation_key) or AgentConversation(
                conversation_key, self._tiers, ids=self._ids
            )
            try:
                self._tiers.writer.submit(conversation_key, conversation.storage.delete).result()
                conversation.saver.error = None
            except StoreUnavailableError as error:
                errors.append(error)
        return errors
