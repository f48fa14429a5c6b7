"""Waits: who waits for whom, so that requests that would wait for one another for ever are told so at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Key = tuple[str, str]
"""A conversation: its storage id, and its agent's."""


class CircularWaitError(Exception):
    """Whoever has the turn that is wanted waits, himself or through others, for one that is held here."""


class Waits:
    """The waits of one process: an edge from each conversation whose turn is held to the one that its holder waits for.

    A turn is held by a request and by whatever it calls, in other tasks and threads, too, as far as these have its context.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[Key, list[Key]] = {}
        self._held: ContextVar[tuple[Key, ...]] = ContextVar("held", default=())

    @contextmanager
    def waiting(self, key: Key) -> Iterator[None]:
        """Wait for the turn of a conversation, for the time of the block.

        Raises:
            CircularWaitError: It would never come.
        """
        held = self._held.get()
        with self._lock:
            if not set(held).isdisjoint(self._reached(key)):
                raise CircularWaitError
            for each in held:
                self._wanted.setdefault(each, []).append(key)
        try:
            yield
        finally:
            with self._lock:
                for each in held:
                    self._wanted[each].remove(key)
                    if not self._wanted[each]:
                        del self._wanted[each]

    @contextmanager
    def holding(self, key: Key) -> Iterator[None]:
        """Hold the turn of a conversation, for the time of the block."""
        before = self._held.get()
        self._held.set((*before, key))
        try:
            yield
        finally:
            self._held.set(before)

    def _reached(self, key: Key) -> set[Key]:
        reached, ahead = {key}, [key]
        while ahead:
            for each in self._wanted.get(ahead.pop(), ()):
                if each not in reached:
                    reached.add(each)
                    ahead.append(each)
        return reached
