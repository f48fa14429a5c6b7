"""Detection of requests that would wait for each other for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Key = tuple[str, str]
"""Storage session id and agent id of a conversation."""


class CircularWaitError(Exception):
    """Raised if the holder of the requested turn waits, directly or through others, for a turn that the caller holds."""


class WaitGraph:
    """Graph of waits in this process, with an edge from each held conversation to the one its holder waits for.

    A request holds its turn for all tasks and threads that run in its context.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._edges: dict[Key, list[Key]] = {}
        self._held: ContextVar[tuple[Key, ...]] = ContextVar("held", default=())

    @contextmanager
    def waiting(self, key: Key) -> Iterator[None]:
        """Record, during the block, that the caller waits until it may enter a conversation.

        Raises:
            CircularWaitError: The holders of that conversation wait for the caller.
        """
        held = self._held.get()
        with self._lock:
            if not set(held).isdisjoint(self._reachable(key)):
                raise CircularWaitError
            for each in held:
                self._edges.setdefault(each, []).append(key)
        try:
            yield
        finally:
            with self._lock:
                for each in held:
                    self._edges[each].remove(key)
                    if not self._edges[each]:
                        del self._edges[each]

    @contextmanager
    def holding(self, key: Key) -> Iterator[None]:
        """Record that the caller holds the turn of a conversation inside the block."""
        before = self._held.get()
        self._held.set((*before, key))
        try:
            yield
        finally:
            self._held.set(before)

    def _reachable(self, key: Key) -> set[Key]:
        reachable, ahead = {key}, [key]
        while ahead:
            for each in self._edges.get(ahead.pop(), ()):
                if each not in reachable:
                    reachable.add(each)
                    ahead.append(each)
        return reachable
