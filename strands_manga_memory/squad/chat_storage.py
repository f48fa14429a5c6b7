"""Chat storage for Agent Squad that keeps messages in the sessions of this package."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from agent_squad.storage import ChatStorage
from agent_squad.types import ConversationMessage, ParticipantRole, TimestampedMessage
from strands.types.content import Message

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.exceptions import StoreError, StoreUnavailableError
from strands_manga_memory.messages import is_turn_start, text_of
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.squad.handoff import HANDOFF_TAG
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

UNANSWERED = "(This was not answered.)"
"""Text in place of a missing answer: the request has failed, or is not answered yet."""

UNASKED = "(Nothing was asked.)"
"""Text in place of a missing question, if the agent spoke first."""

MOST_MESSAGES = 100
"""Most messages of an agent that are returned.
Agent Squad may set a lower limit when it saves messages.
"""

_LOG_ENTRIES_PER_MESSAGE = 8
"""Number of log entries to read for each requested message, because the log has tool calls and
results, too.
"""


@dataclass(frozen=True)
class _Exchange:
    """Question of the user and final answer of the agent in one turn.

    Attributes:
        at: Time of the question, or of the answer if the agent spoke first, in seconds since 1970.
        question: Text of the user; None if the agent spoke first.
        answer: Text of the agent; empty if there is none.
    """

    at: float
    agent_id: str
    question: str | None
    answer: str

    def messages(self, *, named: bool, pairs: bool) -> list[ConversationMessage]:
        question, answer = (
            UNASKED if self.question is None else self.question,
            self.answer or UNANSWERED,
        )
        # Agent Squad's storages return roles as strings, although their annotation demands the
        # enumeration.
        messages: list[tuple[Any, str, bool]] = [
            ("user", question, self.question is not None),
            ("assistant", f"[{self.agent_id}] {answer}" if named else answer, bool(self.answer)),
        ]
        at = int(self.at * 1000)
        return [
            TimestampedMessage(role, [{"text": text}], timestamp=at)
            for role, text, is_real in messages
            if is_real or pairs
        ]


@with_repr("_memory", "_tenant")
class SessionChatStorage(ChatStorage):
    """Chat storage for Agent Squad that keeps messages in the sessions of this package.

    Agent Squad then sees the sessions of Strands agents, and messages of agents of other frameworks
    are stored as sessions, too. The storage returns the question and the final answer of each turn
    as text, without tool calls, tool results and handoffs. Reading does not extend any TTL. Stores
    are called in threads, so that the event loop is never blocked.

    Example::

        squad = AgentSquad(storage=SessionChatStorage(memory))

    Args:
        memory: Memory that stores the sessions.
        tenant: Tenant of all users. None (default): no tenant; the users are separate from those of
            every tenant.
        pairs: Whether the roles of returned messages alternate, as Agent Squad's supervisor and
            most models require. The placeholder ``UNANSWERED`` then follows a question without an
            answer, and ``UNASKED`` precedes an answer without a question. Use False to show the
            real conversation to its user. Default True.

    Raises:
        ValueError: ``memory`` is not a ``MangaMemory``.
    """

    @checked
    def __init__(
        self,
        memory: MangaMemory,
        *,
        tenant: str | None = None,
        pairs: bool = True,
    ) -> None:
        super().__init__()
        if tenant is not None:
            checked_id("tenant", tenant)
        self._memory = memory
        self._tenant = tenant
        self._pairs = pairs
        self._limits: dict[str, int] = {}

    # Agent Squad annotates bool, but its own storages return the messages.
    async def save_chat_message(  # type: ignore[override]
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_message: ConversationMessage | TimestampedMessage,
        max_history_size: int | None = None,
    ) -> list[ConversationMessage]:
        """Store a message to or from an agent that does not use Strands, and wait for the save.

        Args:
            user_id: Id of the user.
            session_id: Id of the session, unique within the user.
            agent_id: Id of the agent.
            new_message: Message to store. Only its text is stored.
            max_history_size: Maximum number of messages that this call and later calls for the
                agent return. 7 counts as 6, 1 as 2, and 500 as 100. Default: the value of the
                agent's previous call; 100 in the first call. All messages are stored.

        Returns:
            The latest messages of the agent, oldest first.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: Neither the hot nor the durable store answered in time. The
                message is saved later.
        """
        return await self.save_chat_messages(
            user_id, session_id, agent_id, [new_message], max_history_size
        )

    async def save_chat_messages(  # type: ignore[override]
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_messages: list[ConversationMessage] | list[TimestampedMessage],
        max_history_size: int | None = None,
    ) -> list[ConversationMessage]:
        """Store several messages of an agent. See ``save_chat_message``."""
        scope = self._scope(user_id, session_id, agent_id)
        limit = self._limits.get(agent_id, MOST_MESSAGES)
        if max_history_size is not None:
            limit = min(MOST_MESSAGES, max(2, max_history_size // 2 * 2))
        self._limits[agent_id] = limit
        messages = [
            message for message in map(_strands_message, new_messages) if message["content"]
        ]
        with _user_facing_errors():
            if messages:
                await asyncio.to_thread(self._memory.session(scope).log, messages, keep=limit)
        chat = await self.fetch_chat(user_id, session_id, agent_id)
        is_unanswered = bool(chat) and chat[-1].content == [{"text": UNANSWERED}]
        return chat[:-1] if is_unanswered else chat  # the answer may follow

    async def fetch_chat(
        self, user_id: str, session_id: str, agent_id: str, max_history_size: int | None = None
    ) -> list[ConversationMessage]:
        """Return the latest messages of an agent, oldest first.

        Args:
            user_id: Id of the user.
            session_id: Id of the session, unique within the user.
            agent_id: Id of the agent.
            max_history_size: Maximum number of messages; odd numbers are rounded down. Default and
                upper limit: the value for the agent in ``save_chat_message``, or 100 if not set.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: The stores cannot be read. The text of the error is suitable for
                users.
        """
        scope = self._scope(user_id, session_id, agent_id)
        self._limits.setdefault(agent_id, MOST_MESSAGES)
        with _user_facing_errors():
            exchanges = await asyncio.to_thread(self._exchanges, scope)
        shown = (
            exchanges
            if max_history_size is None
            else exchanges[max(0, len(exchanges) - max_history_size // 2) :]
        )
        return [
            message
            for exchange in shown
            for message in exchange.messages(named=False, pairs=self._pairs)
        ]

    async def fetch_all_chats(self, user_id: str, session_id: str) -> list[ConversationMessage]:
        """Return the latest messages of all agents of a session, oldest first.

        Each answer begins with ``[agent_id]``. The agents are those that this object has used, and
        those that the durable store lists for the session.

        While the durable store is unavailable, the result contains only agents that this object has
        used, and only messages in the window of an agent (the messages that its model sees).

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: The stores cannot be read. The text of the error is suitable for
                users.
        """
        scope = self._scope(user_id, session_id, "default")
        with _user_facing_errors():
            exchanges = await asyncio.to_thread(self._all_exchanges, scope)
        return [
            message
            for exchange in exchanges
            for message in exchange.messages(named=True, pairs=self._pairs)
        ]

    def _scope(self, user_id: str, session_id: str, agent_id: str) -> ConversationScope:
        return ConversationScope(user_id, session_id, agent_id, tenant=self._tenant)

    @property
    def _can_read_logs(self) -> bool:
        hot = self._memory.hot
        return shared_writer(
            hot if hot.survives_process else None, self._memory.durable
        ).durable_health.is_up

    def _all_exchanges(self, scope: ConversationScope) -> list[_Exchange]:
        agents = set(self._limits)  # the durable tier lists new agents only after a flush
        if self._can_read_logs:
            with suppress(StoreUnavailableError):
                agents.update(self._memory.session(scope).agents())
        found = [
            one
            for agent_id in sorted(agents)
            for one in self._exchanges(replace(scope, agent_id=agent_id))
        ]
        return sorted(found, key=lambda one: one.at)

    def _exchanges(self, scope: ConversationScope) -> list[_Exchange]:
        manager, limit = (
            self._memory.session(scope),
            self._limits.get(scope.agent_id, MOST_MESSAGES),
        )
        records: Iterable[dict[str, Any]] | None = None
        if self._can_read_logs:
            try:
                records = list(manager.records(last=limit * _LOG_ENTRIES_PER_MESSAGE))
            except StoreUnavailableError:
                logger.warning(
                    "agent=<%s> | failed to read the log, using the window of the agent",
                    scope.agent_id,
                )
        records = manager.window_records() if records is None else records
        return list(_exchanges(records, scope.agent_id))[-limit // 2 :]


@contextmanager
def _user_facing_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        # Agent Squad shows users the text of an error.
        raise type(error)(
            "The conversation cannot be reached just now. Please try again in a moment."
        ) from error


def _exchanges(records: Iterable[dict[str, Any]], agent_id: str) -> Iterator[_Exchange]:
    at: float | None = None
    question: str | None = None
    answer, is_final = "", False
    for record in records:
        message: Message = record["message"]
        if message["role"] == "assistant":
            at = record["at"] if record.get("seq") == 1 else at  # the agent spoke first
            texts = [text for text in (answer if is_final else "", message_text(message)) if text]
            answer, is_final = (
                "\n".join(texts) or answer,
                not any("toolUse" in block for block in message["content"]),
            )
        elif is_turn_start(message):
            if at is not None:
                yield _Exchange(at, agent_id, question, answer)
            content = message["content"]
            own = content[:1] + [
                each
                for each in content[1:]
                if not text_of(each.get("text")).startswith(HANDOFF_TAG)
            ]
            at, question, answer, is_final = (
                record["at"],
                message_text({**message, "content": own}),
                "",
                False,
            )
    if at is not None:
        yield _Exchange(at, agent_id, question, answer)


def _strands_message(message: ConversationMessage) -> Message:
    role = message.role.value if isinstance(message.role, ParticipantRole) else str(message.role)
    content: Any = message.content or []
    blocks = [content] if isinstance(content, str | dict) else content
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return {
        "role": "assistant" if role == "assistant" else "user",
        "content": [{"text": text} for text in texts if isinstance(text, str) and text],
    }
