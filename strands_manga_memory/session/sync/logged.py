"""Logged: the messages of a log as others get to see them, counted from 1. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.messages import is_message, tool_result_ids, tool_use_ids
from strands_manga_memory.session.author.places import Draft
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.records import Message, lost_message
from strands_manga_memory.stores.encoding.codec import load


@dataclass(frozen=True)
class Logged:
    """A message of the log.

    Args:
        seq: Its place in the log, from 1.
        turn: Which turn it belongs to, from 1.
        at: When it was said, in seconds since 1970.
        message: What was said; a placeholder if it cannot be read.
        name: Its name; None if no store has been offered it yet.
        revision: How often it was redacted.
        about: What else was kept with it.
    """

    seq: int
    turn: int
    at: float
    message: Any
    name: Name | None = None
    revision: int = 0
    about: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """It as a record: ``seq``, ``turn``, ``at``, ``message``, and ``revision`` if it was redacted."""
        record = {"seq": self.seq, "turn": self.turn, "at": self.at, "message": self.message}
        about = load(self.about.encode()) if self.about else {}
        return {**(about if isinstance(about, dict) else {}), **record} | ({"revision": self.revision} if self.revision else {})


def counted(messages: Iterable[Message | Draft]) -> Iterator[Logged]:
    """Yield messages of a log, from its beginning and in order, with their numbers."""
    previous: Any = None
    key: object = None
    turn = 0
    for seq, one in enumerate(messages, 1):
        value = _value(one, previous)
        # Of a turn that was interrupted the rest has another key, and begins with the results of its calls: it is that turn.
        goes_on = one.turn == key if isinstance(one, Message) else not one.begins
        turn += not turn or not (goes_on or _answers(value, previous))
        previous, key = value, one.turn if isinstance(one, Message) else None
        if isinstance(one, Message):
            yield Logged(seq, turn, one.at, value, one.name, one.revision, one.about)
        else:
            yield Logged(seq, turn, one.at, value, about=one.about)


def _answers(message: Any, previous: Any) -> bool:
    """Tell whether a message brings results of calls that the one before it makes."""
    results = set(tool_result_ids(message))
    return bool(results) and previous is not None and results.issubset(tool_use_ids(previous))


def _value(one: Message | Draft, previous: Any) -> Any:
    if isinstance(one, Draft):
        return load(one.record)
    try:
        value = one.value
    except KeyMissingError:
        raise
    except CorruptRecordError:
        value = None
    if is_message(value):
        return value
    return lost_message(one, "assistant" if previous is not None and previous["role"] == "user" else "user")
