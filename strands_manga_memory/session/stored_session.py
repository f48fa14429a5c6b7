"""Stored session that can be read, extended, corrected, transferred and deleted, with or without an agent."""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypedDict

from strands import Agent
from strands.types.content import Message
from strands.types.session import SessionMessage

from strands_manga_memory.arguments import whole
from strands_manga_memory.deadline import in_thread
from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.session.agent_conversation import AgentConversation, LogPosition
from strands_manga_memory.session.conversation_saver import wait_for
from strands_manga_memory.session.conversation_transfer import (
    Standing,
    TransferredConversation,
    TransferredOrchestrator,
    fork,
    orchestrator_taken_out,
    rewind,
    standing_of,
    store,
    taken_out,
)
from strands_manga_memory.session.places import Kind
from strands_manga_memory.session.session_members import SessionMembers
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.encoding.codec import dump, load
from strands_manga_memory.stores.encoding.values import MOST_LEVELS, is_json, is_nested_deeper
from strands_manga_memory.stores.health import TierHealth


class SessionStats(TypedDict):
    """Figures of one conversation.

    Attributes:
        turns: Number of turns so far. A turn is one request of the user.
        messages: Number of messages in the log.
        window_messages: Number of messages in the agent's history.
        left_messages: Number of messages in the log that the history does not have, or has in an edited form.
        unsaved_messages: Number of messages that no tier has confirmed.
        dropped_messages: Number of unsaved messages that were discarded because the conversation was deleted.
        possible_loss: Whether unflushed turns may be lost, because the hot tier was empty or silent when this process read it.
        hot: State of the hot tier: ``up``, ``down`` or ``none``.
        hot_error: Reason why the hot tier is down, with a remedy if the tier refused a request; empty if the tier is up.
        hot_failures: Number of times that the hot tier did not answer, or refused a request, in this process.
        durable: State of the durable tier: ``up``, ``down`` or ``none``.
        durable_error: Reason why the durable tier is down; empty if the tier is up.
        durable_failures: Number of times that the durable tier did not answer, or refused a request, in this process.
        tokens: Tokens of the history; None if the conversation manager does not count them.
        budget: Token budget of the history; None if the conversation manager has none.
        left: Remaining tokens of the budget; None without a budget.
        age: Seconds since the conversation began.
        oldest_turn_age: Seconds since the first unedited message of the history was logged; None if there is none.
    """

    turns: int
    messages: int
    window_messages: int
    left_messages: int
    unsaved_messages: int
    dropped_messages: int
    possible_loss: bool
    hot: str
    hot_error: str
    hot_failures: int
    durable: str
    durable_error: str
    durable_failures: int
    tokens: int | None
    budget: int | None
    left: int | None
    age: float
    oldest_turn_age: float | None


@dataclasses.dataclass(frozen=True)
class HistoryPage:
    """Page of a conversation's log.

    Attributes:
        records: The messages in order. Each record has ``seq``, ``turn``, ``at``, ``message`` and further stored values.
        next: Argument ``after`` of ``history_page`` to get earlier messages; None if this page has the first message.
    """

    records: tuple[dict[str, Any], ...]
    next: str | None = None


def stats_of(conversation: AgentConversation, agent: Agent | None) -> SessionStats:
    """Return figures of a conversation, such as the number of turns and messages.

    Args:
        conversation: The conversation.
        agent: The agent of the conversation; None if it is not in this process.
    """
    usage = getattr(agent.conversation_manager, "usage", None) if agent else None
    used = usage(agent) if callable(usage) else {}
    now, saver, local = conversation.tiers.clock(), conversation.saver, conversation.local
    hot, hot_error, hot_failures = _standing(None if conversation.hold.hot is None else saver.hot_health)
    durable, durable_error, durable_failures = _standing(None if conversation.hold.durable is None else saver.durable_health)
    with conversation.lock:
        window, base = local.window, local.base
        unchanged = [slot for slot in window if slot.key is not None and slot.body is None]
        times = (local.time(slot) for slot in unchanged)
        messages = conversation.local.message_count
        return SessionStats(
            turns=conversation.local.turn_count,
            messages=messages,
            window_messages=len(agent.messages) if agent else len(window),
            left_messages=max(0, messages - len(unchanged)),
            unsaved_messages=local.unsaved_messages,
            dropped_messages=local.dropped,
            possible_loss=conversation.possible_loss,
            hot=hot,
            hot_error=hot_error,
            hot_failures=hot_failures,
            durable=durable,
            durable_error=durable_error,
            durable_failures=durable_failures,
            tokens=used.get("tokens"),
            budget=used.get("budget"),
            left=used.get("left"),
            age=max(0.0, now - base.created) if base.created else 0.0,
            oldest_turn_age=next((max(0.0, now - at) for at in times if at is not None), None),
        )


def _standing(health: TierHealth | None) -> tuple[str, str, int]:
    return ("none", "", 0) if health is None else ("up" if health.is_up else "down", health.error, health.failures)


class LogRepository:
    """Messages of a session, for packages that call methods of Strands' ``session_repository``, such as AG-UI.

    Args:
        session_id: The session.
        members: The conversations of the session.
        tiers: The session's stores.
    """

    def __init__(self, session_id: str, members: SessionMembers, tiers: Tiers) -> None:
        self._session_id, self._members, self._tiers = session_id, members, tiers

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Return messages of an agent's log in order. The ``message_id`` is the sequence number.

        Raises:
            ValueError: ``session_id`` is another session.
            StoreUnavailableError: The stored conversation cannot be read.
        """
        self._check(session_id)
        slots = itertools.islice(self._members.log(agent_id), offset, None if limit is None else offset + limit)
        return [
            SessionMessage(message=slot.message, message_id=slot.seq, created_at=_text(slot.at), updated_at=_text(slot.at))
            for slot in slots
        ]

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Replace the message with the same ``message_id`` in the log and the agent's history. The old ``tracking_id`` stays.

        Raises:
            ValueError: ``session_id`` is another session, or there is no such message.
            StoreUnavailableError: The stored conversation cannot be read.
        """
        self._check(session_id)
        seq = session_message.message_id
        logged = next(self._members.log(agent_id, after=seq - 1), None)
        if logged is None or logged.seq != seq:
            raise ValueError(f"message_id {seq!r:.80} is not in the log of agent_id {agent_id!r:.80}")
        message: Message = {**session_message.to_message()}
        if logged.message.get("tracking_id"):
            message["tracking_id"] = logged.message["tracking_id"]
        self._members.redacted(logged.message)
        conversation, slot = self._members.known_or_looked_at(agent_id), logged.slot
        assert slot.key is not None  # noqa: S101 - an entry of the log has one
        conversation.local.redact(slot.key, {slot.number: dump(message)})
        wait_for(conversation.saver.request_flush(), self._tiers)

    def _check(self, session_id: str) -> None:
        if session_id != self._session_id:
            raise ValueError(
                f"session_id {session_id!r:.80} is not the session of this session manager, {self._session_id!r:.80}"
            )


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat()


COUNTERS = ("turn_count", "created", "last_activity")
"""Names of the counters in the result of ``metadata``. ``set_metadata`` cannot set them."""


class StoredSession:
    """Stored session that can be read and changed. ``TieredSessionManager`` inherits these methods."""

    def __init__(self, session_id: str | ConversationScope, tiers: Tiers) -> None:
        self._tiers, self._members = tiers, SessionMembers(session_id, tiers)
        self.scope = self._members.scope
        self.session_id = session_id if isinstance(session_id, str) else session_id.storage_session_id

    def exists(self, agent_id: str | None = None) -> bool:
        """Return whether a conversation of an agent is stored in a tier.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
        """
        return self._members.new("A", self._members.agent_id(agent_id)).open(inspect=True) is not None

    def delete_session(self) -> None:
        """Delete all conversations of this session from both tiers.

        Tombstones stay, so that a late write brings no conversation back. A running agent starts its next invocation with an
        empty history and its initial states.

        Without a durable tier, there is no list of a session's agents. Then only the conversations of agents that this manager
        uses, and of the agent that its scope names, are deleted. Other conversations end with their time to live.

        Raises:
            StoreUnavailableError: A tier could not be reached; call it again.
        """
        self._members.delete()

    @contextmanager
    def lease(self, agent_id: str | None = None, *, ttl: float = 30.0) -> Iterator[None]:
        """Hold the advisory lease of an agent's conversation, which only one worker can hold at a time.

        The lease lets workers that call this method take turns. Writers without it can still save, and changes are merged.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
            ttl: Seconds after which the lease ends by itself.

        Raises:
            ConflictError: Someone else holds the lease.
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
        """Yield the messages of an agent's log in order. The whole log is read before the first message is yielded.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
            after: Leave out messages up to this sequence number.
        """
        for logged in self._members.log(agent_id, after=after):
            yield logged.message

    def records(self, agent_id: str | None = None, *, after: int = 0, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the messages of an agent's log as dicts, in order.

        Keys are ``seq`` (message number), ``turn`` (turn number), ``at`` (seconds since 1970), ``message`` and further values.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
            after: Leave out messages up to this sequence number.
            last: Yield only this many of the last messages; None: all.
        """
        for logged in self._members.log(agent_id, after=after, last=last):
            yield logged.record

    def history_page(self, agent_id: str | None = None, *, limit: int = 50, after: str | None = None) -> HistoryPage:
        """Return a page of an agent's log. The first page has the last messages, and each further page has earlier messages.

        Only the turns around the page are read from a durable tier.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
            limit: Maximum number of messages. Default 50.
            after: ``next`` of the page that was returned last. None: the page with the last messages of the log.

        Raises:
            ValueError: ``limit`` is below 1, or ``after`` names no message of the log.
            StoreUnavailableError: The stored conversation cannot be read.
        """
        whole("limit", limit, least=1)
        members = self._members
        entries, earlier = members.looked_at(agent_id).page(
            limit=limit,
            before=None if after is None else LogPosition.parse(after),
            unsaved=members.in_use(agent_id),
        )
        return HistoryPage(tuple(entry.record for entry in entries), None if earlier is None else str(earlier))

    history_page_async = in_thread(history_page)

    def fork(self, at_turn: int, *, session_id: str, agent_id: str | None = None) -> None:
        """Begin a new session of the same user with a copy of this session's first turns. This session does not change.

        If ``at_turn`` is the last turn, the new conversation has the agent's whole state and history. If ``at_turn`` is an
        earlier turn, the new history has at most 100 turns. State values that were set after that turn are then missing,
        because the values at that turn are not stored.

        Args:
            at_turn: Number of the last turn to copy, counted from 1; ``turn`` in the records of ``history_page``.
            session_id: Id of the new session. The agent must have no conversation in it.
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.

        Raises:
            ValueError: There is no turn ``at_turn``, or the session id is not allowed.
            ConflictError: The agent has a conversation in the new session, or a turn to copy is still open.
            CorruptRecordError: A turn to copy cannot be read.
            StoreUnavailableError: A tier does not answer; nothing of the session has changed.
        """
        id_ = self._members.agent_id(agent_id)
        to, ids = self._members.in_session(session_id, id_)
        self._members.save_in_process(id_, idle=False)
        fork(self._members.place("A", id_), self._tiers, at_turn=whole("at_turn", at_turn, least=1), to=to, ids=ids)

    fork_async = in_thread(fork)

    def rewind(self, at_turn: int, *, agent_id: str | None = None) -> None:
        """Remove the stored turns of a conversation after the turn ``at_turn``.

        Turns that are stored during the call stay, unless ``at_turn`` is 0. Unless ``at_turn`` is the last turn, the new
        history has at most 100 turns, and state values that were set after that turn are missing.

        An agent of this process has the shortened history at its next turn. An agent of another process has it at its next turn
        if it uses ``refresh="turn"``. Otherwise the agent's next turn still uses the old history, but is stored after the
        shortened history. From the following turn on, the agent has the shortened history, with the turns stored after it.

        Args:
            at_turn: Number of the last turn to keep, counted from 1; 0: no turn and no state is kept.
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.

        Raises:
            ValueError: There is no turn ``at_turn``.
            ConflictError: The agent is being invoked in this process, a turn to keep is still open, or the conversation
                ended meanwhile.
            CorruptRecordError: A turn to keep cannot be read.
            StoreUnavailableError: A tier does not answer; call ``rewind`` again.
        """
        id_ = self._members.agent_id(agent_id)
        self._members.save_in_process(id_, idle=True)
        rewind(self._members.place("A", id_), self._tiers, at_turn=whole("at_turn", at_turn, least=0))
        self._members.refresh_in_process(id_)

    rewind_async = in_thread(rewind)

    def window_records(self, agent_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the unedited messages in an agent's history, as dicts with ``message`` and ``at`` (seconds since 1970).

        If no agent of this manager has the conversation, it is read from the tiers, even if only one of them answers.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.
        """
        conversation = self._members.known_or_looked_at(agent_id)
        with conversation.lock:
            local = conversation.local
            held = [(local.message(slot), local.time(slot)) for slot in local.window if slot.key and slot.body is None]
        yield from ({"message": load(data), "at": at} for data, at in held if data is not None)

    def agents(self) -> list[str]:
        """Return the ids of the agents that have a conversation in this session, sorted.

        Without a durable tier, only the agents that this manager has used are returned.

        Raises:
            StoreUnavailableError: The durable tier does not answer.
        """
        return self._members.agent_ids()

    def log(self, messages: Sequence[Message], agent_id: str | None = None, *, keep: int | None = None) -> None:
        """Log messages of an agent that is not a Strands agent, and wait until they are saved.

        Args:
            messages: The messages, in order.
            agent_id: Id of the agent, which is no Strands agent of this manager. Default: the agent of the session's scope,
                else the only agent in use, else ``default``.
            keep: Number of last messages that stay in the agent's history; None: all. The log keeps every message.

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
                conversation.local.set_view(conversation.local.view[-keep:] if keep > 0 else ())
        members.conversations["A", id_] = conversation
        wait_for(conversation.saver.request(), self._tiers, must=True)

    def transferred(self, agent_id: str | None = None) -> TransferredConversation | None:
        """Return an agent's conversation, to be stored elsewhere by ``transfer``; None if no conversation is stored.

        Args:
            agent_id: Id of the agent. Default: the agent of the session's scope, else the only agent in use, else ``default``.

        Raises:
            StoreUnavailableError: The stored conversation cannot be read.
            CorruptRecordError: A stored record is damaged.
        """
        conversation = self._members.new("A", self._members.agent_id(agent_id))
        return taken_out(conversation) if standing_of(conversation) == "exists" else None

    def transferred_orchestrator(self, id_: str) -> TransferredOrchestrator | None:
        """Return the state of a Graph or Swarm, to be stored elsewhere by ``transfer``; None if no state is stored.

        Raises:
            StoreUnavailableError: The stored state cannot be read.
            CorruptRecordError: A stored record is damaged.
        """
        conversation = self._members.new("M", id_, keeps_window=False)
        return orchestrator_taken_out(conversation) if standing_of(conversation) == "exists" else None

    def transfer(self, transferred: TransferredConversation | TransferredOrchestrator, id_: str) -> Standing:
        """Store a conversation of another session manager, unless a conversation exists here already.

        The conversation is written to the durable tier in one commit. Its time to live begins now.

        Args:
            transferred: The conversation of an agent, or the state of a Graph or Swarm.
            id_: The id of that agent, or of that Graph or Swarm.

        Returns:
            State before the call, ``new``, ``exists`` or ``ended`` (deleted or expired). Only a ``new`` conversation is stored.

        Raises:
            StoreUnavailableError: A tier does not answer; call ``transfer`` again.
            CorruptRecordError: A stored record is damaged.
            ValueError: The id is not allowed, or a Strands agent of this manager has it.
        """
        is_agent, members = isinstance(transferred, TransferredConversation), self._members
        if is_agent and members.live(id_) is not None:
            raise ValueError(f"agent_id {id_!r:.80} is a Strands agent of this session manager; it has a conversation")
        kind: Kind = "A" if is_agent else "M"
        checked_id("agent_id" if is_agent else "id", id_)
        # A conversation that only one tier has must not count as new while that tier is down.
        standing = standing_of(members.new(kind, id_, keeps_window=is_agent, is_strict=True))
        if standing != "new":
            return standing
        tiers = self._tiers if self._tiers.durable is None else dataclasses.replace(self._tiers, hot=None)
        return store(members.new(kind, id_, keeps_window=is_agent, tiers=tiers, is_strict=True), transferred)

    def stats(self, agent_id: str | None = None) -> SessionStats:
        """Return figures of an agent's conversation. The time to live does not restart."""
        return stats_of(self._members.known_or_looked_at(agent_id), self._members.live(self._members.agent_id(agent_id)))

    def live_stats(self) -> list[SessionStats]:
        """Return figures of each agent's conversation that this manager uses, without I/O."""
        open_ = self._members.conversations.copy().items()
        return [stats_of(conversation, self._members.live(id_)) for (kind, id_), conversation in open_ if kind == "A"]

    def metadata(self, agent_id: str | None = None) -> dict[str, Any]:
        """Return the metadata of an agent's conversation: user, values that ``set_metadata`` stored, and counters."""
        conversation = self._members.known_or_looked_at(agent_id)
        if not conversation.local.is_dirty:
            conversation = self._members.looked_at(agent_id)
        with conversation.lock:
            base, now = conversation.local.base, self._tiers.clock()
            values = conversation.local.turn_count, base.created or now, base.last_used or now
            counters = dict(zip(COUNTERS, values, strict=True))
            return {**({} if self.scope is None else {"user": self.scope.user_id}), **conversation.meta, **counters}

    def set_metadata(self, agent_id: str | None = None, /, **fields: Any) -> None:
        """Store metadata of an agent's conversation, such as the locale or an active intent, and wait until they are saved.

        Raises:
            ValueError: A value is not JSON, or has over 100 levels, or a name is one of the counters.
            StoreUnavailableError: No tier took the metadata in time; they are kept and saved later.
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
        """Access to the log for packages that expect Strands' ``RepositorySessionManager``."""
        return LogRepository(self.session_id, self._members, self._tiers)

    def when_redacted(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the ``tracking_id`` of each message that is redacted or corrected from now on."""
        self._members.redaction_listeners.append(listener)
