"""What has been measured about messages, so that a turn costs its own text and not the history's."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from strands.types.content import Message

from strands_manga_memory.messages import content_fingerprint

_Measure = TypeVar("_Measure")


def size_of(value: Any) -> int:
    """Return the characters and bytes in a nested value, quickly."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(key) + size_of(item) for key, item in value.items())
    return sum(map(size_of, value)) if isinstance(value, list | tuple) else 8


def same_objects(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Whether two lists hold the same messages, not merely equal ones."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


class Ledger(Generic[_Measure]):
    """Measures each message once, and again when its content has changed; ``count`` is how often it measured.

    Entries are known by a hash of ``tracking_id`` and content, one number each: there are thousands of them in a process with
    many agents. Safe to use from several threads: ``measure`` is called outside any lock.
    """

    __slots__ = ("_lock", "_measure", "_measured", "count")

    def __init__(self, measure: Callable[[Message], _Measure]) -> None:
        self._measure = measure
        self.count = 0
        self._lock = threading.Lock()
        self._measured: dict[int, _Measure] = {}

    def __call__(self, message: Message) -> _Measure:
        """Return the measure of ``message``."""
        value = self.get(message)
        if value is None:
            value = self._measure(message)
            self.count += 1
            self.know([(message, value)])
        return value

    def get(self, message: Message) -> _Measure | None:
        """Return the measure of ``message`` if it is known, also from before it got its id."""
        content, id_ = message["content"], message.get("tracking_id")
        if len(content) == 1 and len(block := content[0]) == 1 and isinstance(text := block.get("text"), str):
            value = self._measured.get(hash((id_, message["role"], text)))  # as in _key, without a call for each
        else:
            value = self._measured.get(_key(message, id_))
        if value is None and id_ is not None:
            with self._lock:
                value = self._measured.pop(_key(message, None), None)
            if value is not None:
                self.know([(message, value)])
        return value

    def each(self, messages: Iterable[Message]) -> list[_Measure | None]:
        """Return the measures of messages, None of those that were not measured."""
        look, found = self._measured.get, list[_Measure | None]()
        for message in messages:
            content = message["content"]
            if len(content) == 1 and len(block := content[0]) == 1 and isinstance(text := block.get("text"), str):
                value = look(hash((message.get("tracking_id"), message["role"], text)))  # as in get, without calls
                found.append(self.get(message) if value is None else value)
            else:
                found.append(self.get(message))
        return found

    def known(self, messages: Sequence[Message]) -> tuple[list[_Measure], list[Message]]:
        """Return the measures that are known of ``messages``, and the messages of which none is, wherever they stand."""
        found = self.each(messages)
        if None not in found:
            return found, []  # type: ignore[return-value]
        others = [message for message, value in zip(messages, found, strict=True) if value is None]
        return [value for value in found if value is not None], others

    def know(self, measured: Iterable[tuple[Message, _Measure]]) -> None:
        """Take over the measures of messages that were measured before."""
        found = {_key(message, message.get("tracking_id")): value for message, value in measured}
        with self._lock:
            self._measured.update(found)

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
    if len(content) == 1 and len(block := content[0]) == 1 and isinstance(text := block.get("text"), str):
        return hash((id_, message["role"], text))  # most messages: in half the time
    return hash((id_, content_fingerprint(message)))
