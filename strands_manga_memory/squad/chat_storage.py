"""SessionChatStorage: Agent Squad's history is the session log, so there is one history, not two."""

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

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.exceptions import StoreError, StoreUnavailableError
from strands_manga_memory.messages import is_turn_start, text_of
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.squad.handoff import MARK

logger = logging.getLogger(__name__)

UNANSWERED = "(This was not answered.)"
"""What is shown for an answer if there is none: it failed, or has not come yet."""

UNASKED = "(Nothing was asked.)"
"""What is shown for a question where the agent spoke first."""

_LOGGED_PER_MESSAGE = 8
"""Log entries that are read for each message asked for; tool calls and results are logged too, and not shown."""


@dataclass(frozen=True)
class _Exchange:
    """What the user said in a turn, None if the agent spoke first, and what that answered in the end; empty if it has not."""

    at: float
    agent_id: str
    question: str | None
    answer: str

    def messages(self, *, named: bool, pairs: bool) -> list[ConversationMessage]:
        question, answer = UNASKED if self.question is None else self.question, self.answer or UNANSWERED
        # Roles are texts, as Agent Squad's own storages give them, where the annotation says the enumeration.
        said: list[tuple[Any, str, bool]] = [
            ("user", question, self.question is not None),
            ("assistant", f"[{self.agent_id}] {answer}" if named else answer, bool(self.answer)),
        ]
        at = int(self.at * 1000)
        return [TimestampedMessage(role, [{"text": text}], timestamp=at) for role, text, is_said in said if is_said or pairs]


class SessionChatStorage(ChatStorage):
    """Shows Agent Squad the sessions of its agents, and keeps there what agents that are not Strands' say.

    What is shown is text: for each turn what the user said and what the agent answered in the end, the latest ``max_messages``
    of each agent. Tool calls, results and handoffs stay in the log. Reading touches no time to live. Blocking stores are asked
    on threads, so any event loop will do.

    Args:
        memory: Where the sessions are.
        tenant: The tenant of all users; None is a tenant of its own.
        max_messages: Most messages of each agent that are shown; even, 2 or more. Agent Squad's own limit, which it gives with
            each message that is saved, counts as well. Default 100.
        pairs: Whether user and assistant speak in turn in what is shown, as Agent Squad's supervisor and most models demand: a
            question without an answer is followed by ``UNANSWERED``, and an agent that spoke first comes behind ``UNASKED``.
            False: nothing is shown that nobody said, as a page of the conversation wants it. Default True.

    Raises:
        ValueError: ``memory`` is no ``MangaMemory``, or ``max_messages`` is out of range.
    """

    def __init__(
        self,
        memory: MangaMemory,
        *,
        tenant: str | None = None,
        max_messages: int = 100,
        pairs: bool = True,
    ) -> None:
        super().__init__()
        if max_messages < 2 or max_messages % 2:
            raise ValueError(f"max_messages must be even and 2 or more, got {max_messages!r:.80}")
        if tenant is not None:
            checked_id("tenant", tenant)
        self._memory = of_kind("memory", memory, MangaMemory, "a MangaMemory")
        self._tenant = tenant
        self._max_messages = max_messages
        self._pairs = pairs
        self._limits: dict[str, int] = {}

    # Agent Squad annotates bool, and its own storages return the messages.
    async def save_chat_message(  # type: ignore[override]
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_message: ConversationMessage | TimestampedMessage,
        max_history_size: int | None = None,
    ) -> list[ConversationMessage]:
        """Log a message of an agent that is not Strands'; see ``save_chat_messages``."""
        return await self.save_chat_messages(user_id, session_id, agent_id, [new_message], max_history_size)

    async def save_chat_messages(  # type: ignore[override]
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_messages: list[ConversationMessage] | list[TimestampedMessage],
        max_history_size: int | None = None,
    ) -> list[ConversationMessage]:
        """Log messages of an agent that is not Strands', and wait until they are saved; return what is shown of it then.

        Args:
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent.
            new_messages: The messages; their texts are logged, those of one without any are not.
            max_history_size: Messages of the agent that are shown from now on, and stay at hand; the log keeps every one. An
                odd number is rounded down, to 2 at least. Default: as before.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: No tier took them in time; they are kept and saved later.
        """
        scope = self._scope(user_id, session_id, agent_id)
        limit = self._limits.get(agent_id, self._max_messages)
        if max_history_size is not None:
            limit = min(self._max_messages, max(2, max_history_size // 2 * 2))
        self._limits[agent_id] = limit
        said = [message for message in map(_strands_message, new_messages) if message["content"]]
        with _worded_for_users():
            if said:
                await asyncio.to_thread(self._memory.session(scope).log, said, keep=limit)
        chat = await self.fetch_chat(user_id, session_id, agent_id)
        return chat[:-1] if chat and chat[-1].content == [{"text": UNANSWERED}] else chat  # the answer may be saved next

    async def fetch_chat(
        self, user_id: str, session_id: str, agent_id: str, max_history_size: int | None = None
    ) -> list[ConversationMessage]:
        """Return the latest exchanges of an agent, the oldest first.

        Args:
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent.
            max_history_size: Most messages; an odd number is rounded down. Default: as many as are shown of the agent.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: What is stored cannot be read; the text may be shown to users.
        """
        scope = self._scope(user_id, session_id, agent_id)
        self._limits.setdefault(agent_id, self._max_messages)
        with _worded_for_users():
            exchanges = await asyncio.to_thread(self._exchanges, scope)
        shown = exchanges if max_history_size is None else exchanges[max(0, len(exchanges) - max_history_size // 2) :]
        return [message for exchange in shown for message in exchange.messages(named=False, pairs=self._pairs)]

    async def fetch_all_chats(self, user_id: str, session_id: str) -> list[ConversationMessage]:
        """Return the latest exchanges of all agents of a session in order of time, each answer behind ``[agent_id]``.

        Agents are those that the durable tier lists and those that this storage was asked for before. While that tier does not
        answer, what each has at hand is shown.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: What is stored cannot be read; the text may be shown to users.
        """
        scope = self._scope(user_id, session_id, "default")
        with _worded_for_users():
            exchanges = await asyncio.to_thread(self._all_exchanges, scope)
        return [message for exchange in exchanges for message in exchange.messages(named=True, pairs=self._pairs)]

    def _scope(self, user_id: str, session_id: str, agent_id: str) -> ConversationScope:
        return ConversationScope(user_id, session_id, agent_id, tenant=self._tenant)

    @property
    def _has_logs(self) -> bool:
        """Whether the durable tier, which has the logs and lists whose they are, is not known to be down."""
        return bool(self._memory.stats()["durable"] == "up")

    def _all_exchanges(self, scope: ConversationScope) -> list[_Exchange]:
        agents = set(self._limits)  # the durable tier lists an agent soon after its first turn, not at once
        if self._has_logs:
            with suppress(StoreUnavailableError):
                agents.update(self._memory.session(scope).agents())
        found = [one for agent_id in sorted(agents) for one in self._exchanges(replace(scope, agent_id=agent_id))]
        return sorted(found, key=lambda one: one.at)

    def _exchanges(self, scope: ConversationScope) -> list[_Exchange]:
        manager, limit = self._memory.session(scope), self._limits.get(scope.agent_id, self._max_messages)
        if self._has_logs:
            try:
                return list(_exchanges(manager.records(last=limit * _LOGGED_PER_MESSAGE), scope.agent_id))[-limit // 2 :]
            except StoreUnavailableError:
                logger.warning("agent=<%s> | the log cannot be read, what the agent has at hand is shown", scope.agent_id)
        return list(_exchanges(manager.window_records(), scope.agent_id))[-limit // 2 :]


@contextmanager
def _worded_for_users() -> Iterator[None]:
    """Reword errors of the stores: Agent Squad shows the text of an exception to the user."""
    try:
        yield
    except StoreError as error:
        raise type(error)("The conversation cannot be reached just now. Please try again in a moment.") from error


def _exchanges(records: Iterable[dict[str, Any]], agent_id: str) -> Iterator[_Exchange]:
    """Yield the turns of a log: an answer is the text after the last call of a tool before the user speaks again."""
    at: float | None = None
    question: str | None = None
    answer, is_final = "", False
    for record in records:
        message: Message = record["message"]
        if message["role"] == "assistant":
            at = record["at"] if record["seq"] == 1 else at  # it spoke first
            said = [text for text in (answer if is_final else "", message_text(message)) if text]
            answer, is_final = "\n".join(said) or answer, not any("toolUse" in block for block in message["content"])
        elif is_turn_start(message):
            if at is not None:
                yield _Exchange(at, agent_id, question, answer)
            at, question, answer, is_final = record["at"], _said(message), "", False
    if at is not None:
        yield _Exchange(at, agent_id, question, answer)


def _said(message: Message) -> str:
    """Return what the user said, without what another agent handed over behind it."""
    first, more = message["content"][:1], message["content"][1:]
    own = [*first, *(block for block in more if not text_of(block.get("text")).startswith(MARK))]
    return message_text({**message, "content": own})


def _strands_message(message: ConversationMessage) -> Message:
    role = message.role.value if isinstance(message.role, ParticipantRole) else str(message.role)
    content: Any = message.content or []
    blocks = [content] if isinstance(content, str | dict) else content
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return {
        "role": "assistant" if role == "assistant" else "user",
        "content": [{"text": text} for text in texts if isinstance(text, str) and text],
    }
