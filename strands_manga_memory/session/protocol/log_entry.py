"""Messages of a conversation's log with their numbers, and positions from which a reader continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from strands_manga_memory.session.protocol.record import CONTINUES, Slot, TurnKey


class LogPosition(NamedTuple):
    """Position of a message in the log, from which a reader continues towards the beginning.

    Args:
        seq: Number of the message in the log, from 1.
        turn: Number of its turn, from 1.
        number: Its number in the turn, from 0.
        key: Key of the turn.
    """

    seq: int
    turn: int
    number: int
    key: TurnKey

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        return f"{self.seq}.{self.turn}.{self.number}.{self.key}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse a position; raise ``ValueError`` if the text is none."""
        try:
            seq, turn, number, key = text.split(".", 3)
            return cls(int(seq), int(turn), int(number), TurnKey.parse(key))
        except (AttributeError, ValueError) as error:
            raise ValueError(f"after must be the next of an earlier page, got {text!r:.80}") from error


@dataclass(frozen=True)
class LogEntry:
    """A message of the log.

    Args:
        seq: Number in the log, from 1.
        turn: Number of its turn, from 1.
        at: When it was added, in seconds since 1970.
        message: The message; a placeholder if it cannot be read.
        slot: Its turn's key and its number in the turn.
        revision: How often it was replaced.
        about: Further content of its turn, such as the intent.
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
        """The entry as a dict: ``seq``, ``turn``, ``at``, ``message``, ``revision`` if it was replaced, and ``about``."""
        about = {name: value for name, value in self.about.items() if name != CONTINUES}
        record = {**about, "seq": self.seq, "turn": self.turn, "at": self.at, "message": self.message}
        return record | ({"revision": self.revision} if self.revision else {})

    def shift(self, by: int, turns: int) -> LogEntry:
        """Return the entry with its number and turn number increased."""
        return replace(self, seq=self.seq + by, turn=self.turn + turns)
