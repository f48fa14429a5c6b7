"""What has been measured about messages, so that a turn costs its own text and not the history's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from strands.types.content import Message

_Measure = TypeVar("_Measure")


def fingerprint(value: Any) -> int:
    """Return a hash of a nested value, good within this process; CPython remembers the hash of a string, so it is cheap.

    Values that differ in content or in order differ in it (but for numbers that are equal, as ``1`` and ``True`` are).
    """
    if isinstance(value, dict):
        return hash((dict, *[item if isinstance(item, str) else fingerprint(item) for pair in value.items() for item in pair]))
    if isinstance(value, list | tuple):
        return hash((list, *[fingerprint(item) for item in value]))
    if isinstance(value, bytes):  # CPython hashes bytes and the text of the same characters alike
        return hash((bytes, value))
    try:
        return hash(value)
    except TypeError:
        return id(value)


def content_fingerprint(message: Message) -> int:
    """Return the fingerprint of what the model is sent of ``message``: its role and content, not its id and metadata."""
    if len(message["content"]) == 1 and len(block := message["content"][0]) == 1 and "text" in block:
        return hash((message["role"], block["text"]))  # as below, in half the time
    blocks = [block["text"] if len(block) == 1 and "text" in block else fingerprint(block) for block in message["content"]]
    return hash((message["role"], *blocks))


def size_of(value: Any) -> int:
    """Return the characters and bytes in a nested value, quickly."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(key) + size_of(item) for key, item in value.items())
    return sum(map(size_of, value)) if isinstance(value, list | tuple) else 8


class Ledger(Generic[_Measure]):
    """Measures each message once, and again when its content has changed.

    Entries are known by a hash of ``tracking_id`` and content, one number each: there are thousands of them in a process with
    many agents. Safe to use from several threads.

    Args:
        measure: Called with a message, outside any lock.
    """

    def __init__(self, measure: Callable[[Message], _Measure]) -> None:
        self._measure = measure
        self._lock = threading.Lock()
        self._measured: dict[int, _Measure] = {}

    def __call__(self, message: Message) -> _Measure:
        """Return the measure of ``message``."""
        key = _key(message, message.get("tracking_id"))
        value = self._measured.get(key)
        if value is None:
            value = self._measured.get(_key(message, None))  # measured before it got its id
            value = self._measure(message) if value is None else value
            with self._lock:
                self._measured[key] = value
        return value

    def __len__(self) -> int:
        return len(self._measured)

    def __contains__(self, message: Message) -> bool:
        return _key(message, message.get("tracking_id")) in self._measured

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Drop what is known of every other message."""
        keep = [_key(message, message.get("tracking_id")) for message in messages]
        with self._lock:
            self._measured = {key: self._measured[key] for key in keep if key in self._measured}


def _key(message: Message, id_: str | None) -> int:
    content = message["content"]
    if len(content) == 1 and len(block := content[0]) == 1 and "text" in block:
        return hash((id_, message["role"], block["text"]))  # most messages: in half the time
    return hash((id_, content_fingerprint(message)))
