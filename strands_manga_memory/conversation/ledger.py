"""What has been measured about messages, so that a turn costs its own text and not the history's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from strands.types.content import Message

from strands_manga_memory.conversation.tokens import TokenCounter

_Measure = TypeVar("_Measure")


def fingerprint(value: Any) -> int:
    """Return a hash of a nested value, good within this process; CPython remembers the hash of a string, so it is cheap.

    Values that differ in content or in order differ in it (but for numbers that are equal, as ``1`` and ``True`` are).
    """
    if isinstance(value, dict):
        return hash((dict, *[item if isinstance(item, str) else fingerprint(item) for pair in value.items() for item in pair]))
    if isinstance(value, list | tuple):
        return hash((list, *[fingerprint(item) for item in value]))
    try:
        return hash(value)
    except TypeError:
        return id(value)


def content_fingerprint(message: Message) -> int:
    """Return the fingerprint of what the model is sent of ``message``: its role and content, not its id and metadata."""
    return hash((message["role"], fingerprint(message["content"])))


class Ledger(Generic[_Measure]):
    """Measures each message once, and again when its content has changed.

    Entries are known by ``tracking_id`` and content fingerprint. Safe to use from several threads.

    Args:
        measure: Called with a message, outside any lock.
    """

    def __init__(self, measure: Callable[[Message], _Measure]) -> None:
        self._measure = measure
        self._lock = threading.Lock()
        self._measured: dict[tuple[str | None, int], _Measure] = {}

    def __call__(self, message: Message) -> _Measure:
        """Return the measure of ``message``."""
        key = message.get("tracking_id"), content_fingerprint(message)
        with self._lock:
            if key in self._measured:
                return self._measured[key]
        value = self._measure(message)
        with self._lock:
            self._measured[key] = value
        return value

    def __len__(self) -> int:
        return len(self._measured)

    def __contains__(self, message: Message) -> bool:
        return (message.get("tracking_id"), content_fingerprint(message)) in self._measured

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Drop what is known of every other message."""
        keep = [(message.get("tracking_id"), content_fingerprint(message)) for message in messages]
        with self._lock:
            self._measured = {key: self._measured[key] for key in keep if key in self._measured}


class CountedMessages(Ledger[int]):
    """The token counts of messages.

    Args:
        counter: Counts a message that is not known yet.
    """

    def __init__(self, counter: TokenCounter) -> None:
        super().__init__(counter.count)

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of all ``messages`` together."""
        return sum(map(self, messages))
