"""Forking: the child of a fork gets no change by half, and is a writer of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from strands_manga_memory.forks import at_fork
from strands_manga_memory.session.sync.conversation import Conversation

_Owner = TypeVar("_Owner")
_owners: weakref.WeakKeyDictionary[Any, Callable[[Any], Iterable[Conversation]]] = weakref.WeakKeyDictionary()
_held: list[threading.RLock] = []


def watch(owner: _Owner, held: Callable[[_Owner], Iterable[Conversation]]) -> None:
    """Look after the conversations that ``held(owner)`` returns, for as long as ``owner`` lives."""
    _owners[owner] = held


def _conversations() -> list[Conversation]:
    return [conversation for owner, held in list(_owners.items()) for conversation in held(owner)]


def _before_fork() -> None:
    """Wait for changes that are under way in memory, which take no I/O, so that the child gets none by half."""
    for conversation in _conversations():
        lock = conversation.lock
        lock.acquire()
        _held.append(lock)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _held.clear()
    for conversation in _conversations():
        conversation.renew_after_fork()


at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
