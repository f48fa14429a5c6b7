"""Messages of a conversation's log, with their numbers and times, and pages of the log.

The log has every message of a conversation, also those that have left ``agent.messages``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.messages import is_message
from strands_manga_memory.session.agent_snapshot import UNREADABLE_TEXT
from strands_manga_memory.session.protocol.record import CONTINUES, Turn, TurnKey
from strands_manga_memory.stores.codec import load


class LogPosition(NamedTuple):
    """Position of a message in a conversation's log, from which older messages can be read.

    Args:
        seq: Place of the message in the whole log; the first message has 1.
        turn: Number of the message's turn; the first turn of the log has 1.
        number: Place of the message in its turn; the first message of a turn has 0.
    """

    seq: int
    turn: int
    number: int
    key: TurnKey

    def __str__(self) -> str:
        """Return the position as text: ``seq``, ``turn``, ``number``, ``key``, joined by dots."""
        return f"{self.seq}.{self.turn}.{self.number}.{self.key}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse a log position from the text that ``str(position)`` returns.

        Raises:
            ValueError: The text is not a log position.
        """
        try:
            seq, turn, number, key = text.split(".", 3)
            return cls(int(seq), int(turn), int(number), TurnKey.parse(key))
        except (AttributeError, ValueError) as error:
            raise ValueError(
                f"after must be the next of an earlier page, got {text!r:.80}"
            ) from error


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """Message of a conversation's log, with its number, turn and time.

    Args:
        seq: Place of the message in the whole log; the first message has 1.
        turn: Number of the message's turn; the first turn of the log has 1.
        at: Time when the message was added, in seconds since 1970.
        message: The message, or a placeholder if the message cannot be read.
        number: Place of the message in its turn; the first message of a turn has 0.
        revision: Number of times that the message was replaced, such as by a redaction.
        about: Further values that are stored with the turn, such as the user's intent.
    """

    seq: int
    turn: int
    at: float
    message: Any
    key: TurnKey
    number: int
    revision: int
    about: Mapping[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """Message as a dict with its message number, turn number and time.

        The keys are ``message``, ``seq``, ``turn``, ``at``, and the names of further values of the
        turn, such as ``intent``. A replaced message also has a ``revision``.
        """
        about = {name: value for name, value in self.about.items() if name != CONTINUES}
        record = {**about, "seq": self.seq, "turn": self.turn, "at": self.at}
        revision = {"revision": self.revision} if self.revision else {}
        return {**record, "message": self.message, **revision}

    @property
    def position(self) -> LogPosition:
        """Position of the message, from which older messages can be read."""
        return LogPosition(self.seq, self.turn, self.number, self.key)


@dataclass(frozen=True)
class HistoryPage:
    """Page of the messages of a conversation, as ``history_page`` returns it.

    Attributes:
        records: The messages, oldest first. Each is a dict with ``seq`` (message number), ``turn``
            (turn number), ``at`` (seconds since 1970), ``message`` and further stored values.
        next: Argument ``after`` for the call of ``history_page`` that returns the older messages.
            None on the page with the oldest messages.
    """

    records: tuple[dict[str, Any], ...]
    next: str | None = None


def log_entries(log: Mapping[TurnKey, Turn], lengths: Mapping[TurnKey, int]) -> list[LogEntry]:
    """Convert the turns of a log to messages, numbered from 1.

    ``lengths`` has the known number of messages of each turn. A placeholder replaces each message
    that is missing in ``log`` or cannot be read.
    """
    entries: list[LogEntry] = []
    role = "assistant"
    for key, turn_number in turn_numbers({**dict.fromkeys(lengths, Turn()), **log}).items():
        turn = log.get(key, Turn())
        for number in range(max(len(turn.messages), lengths.get(key, 0))):
            is_there = number < len(turn.messages)
            message = _loaded(turn.messages[number]) if is_there else None
            if message is None:
                role = "assistant" if role == "user" else "user"
                message = {"role": role, "content": [{"text": UNREADABLE_TEXT}]}
            role = message["role"]
            entry = LogEntry(
                seq=len(entries) + 1,
                turn=turn_number,
                at=turn.times[number] if is_there else 0.0,
                message=message,
                key=key,
                number=number,
                revision=turn.redacted.get(number, 0),
                about=turn.about,
            )
            entries.append(entry)
    return entries


def turn_numbers(log: Mapping[TurnKey, Turn]) -> dict[TurnKey, int]:
    """Number the turns of a log from 1, in their order. Return the numbers, keyed by turn key.

    A turn that only continues the previous one, such as after an interrupt, gets the same number.
    """
    numbers: dict[TurnKey, int] = {}
    number = 0
    for key in sorted(log):
        number += not number or not log[key].about.get(CONTINUES)
        numbers[key] = number
    return numbers


def _loaded(dumped: bytes) -> Any:
    try:
        message = load(dumped)
    except KeyMissingError:
        raise
    except (CorruptRecordError, ValueError):
        return None
    return message if is_message(message) else None
