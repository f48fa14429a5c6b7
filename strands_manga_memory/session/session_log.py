"""Messages of a conversation's log, its pages, and access to them for other packages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from strands.types.content import Message
from strands.types.session import SessionMessage

from strands_manga_memory.session.protocol.record import CONTINUES, Slot, TurnKey


class LogPosition(NamedTuple):
    """Position of a message in a conversation's log, from which a reader continues with earlier messages.

    Args:
        seq: Number of the message in the log, from 1.
        turn: Number of the message's turn, from 1.
        number: Index of the message in its turn, from 0.
        key: Key of the turn.
    """

    seq: int
    turn: int
    number: int
    key: TurnKey

    def __str__(self) -> str:
        """Return the position in the log as text."""
        return f"{self.seq}.{self.turn}.{self.number}.{self.key}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse a log position from its text.

        Raises:
            ValueError: The text is not a log position.
        """
        try:
            seq, turn, number, key = text.split(".", 3)
            return cls(int(seq), int(turn), int(number), TurnKey.parse(key))
        except (AttributeError, ValueError) as error:
            raise ValueError(f"after must be the next of an earlier page, got {text!r:.80}") from error


@dataclass(frozen=True)
class LogEntry:
    """Message in a conversation's log.

    Args:
        seq: Number of the message in the log, from 1.
        turn: Number of the message's turn, from 1.
        at: Time when the message was added, in seconds since 1970.
        message: The message, or a placeholder if the message cannot be read.
        slot: Key of the message's turn, and index of the message in the turn, from 0.
        revision: Number of times that the message was replaced.
        about: Further values of the turn, such as the intent.
    """

    seq: int
    turn: int
    at: float
    message: Any
    slot: Slot
    revision: int
    about: Mapping[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """Message of the log as a dict with ``seq``, ``turn``, ``at``, ``message`` and further values about the message.

        A replaced message also has a ``revision``.
        """
        about = {name: value for name, value in self.about.items() if name != CONTINUES}
        record = {**about, "seq": self.seq, "turn": self.turn, "at": self.at, "message": self.message}
        return record | ({"revision": self.revision} if self.revision else {})

    def shift(self, by: int, turns: int) -> LogEntry:
        """Return the log entry with ``by`` added to the message's number, and ``turns`` added to the turn's number."""
        return replace(self, seq=self.seq + by, turn=self.turn + turns)


@dataclass(frozen=True)
class HistoryPage:
    """Page of a conversation's log.

    Attributes:
        records: The messages, oldest first. Each record has ``seq``, ``turn``, ``at``, ``message`` and further stored values.
        next: Argument ``after`` of ``history_page`` for the next page, which has the preceding messages. None if this page has
            the first message.
    """

    records: tuple[dict[str, Any], ...]
    next: str | None = None


class LogRepository:
    """Messages of a session, for packages that call methods of Strands' ``session_repository``, such as AG-UI.

    Args:
        session_id: The session.
        read: Returns the messages of an agent's log in order; ``records`` of the session manager.
        correct: Replaces the message that has the given sequence number in an agent's log.
    """

    def __init__(
        self,
        session_id: str,
        read: Callable[[str], Iterator[dict[str, Any]]],
        correct: Callable[[str, int, Message], None],
    ) -> None:
        self._session_id, self._read, self._correct = session_id, read, correct

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Return messages of an agent's log in order. The ``message_id`` is the sequence number.

        Raises:
            ValueError: ``session_id`` is another session.
            StoreUnavailableError: The stored conversation cannot be read.
        """
        self._check(session_id)
        found = []
        for record in itertools.islice(self._read(agent_id), offset, None if limit is None else offset + limit):
            at = datetime.fromtimestamp(record["at"], tz=UTC).isoformat()
            found.append(SessionMessage(record["message"], record["seq"], created_at=at, updated_at=at))
        return found

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Replace the message that has the ``message_id`` of ``session_message``, in the log and in the agent's history.

        The ``tracking_id`` of the message does not change.

        Raises:
            ValueError: ``session_id`` is another session, there is no such message, or Strands could not process the new one.
            StoreUnavailableError: The stored conversation cannot be read.
        """
        self._check(session_id)
        self._correct(agent_id, session_message.message_id, session_message.to_message())

    def _check(self, session_id: str) -> None:
        if session_id != self._session_id:
            raise ValueError(
                f"session_id {session_id!r:.80} is not the session of this session manager, {self._session_id!r:.80}"
            )
