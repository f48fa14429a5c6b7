"""Data attached to objects of other packages, and renewal of objects in forked processes.

A forked process must not use the locks, threads and connections of its parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar


def attachments(owner: object) -> dict[str, Any]:
    """Return the objects that this package has attached to ``owner``, keyed by name.

    Objects that the caller adds to the dict are kept as long as ``owner`` exists.
    """
    found: dict[str, Any] = vars(owner).setdefault("_strands_manga_memory", {})
    return found


_Member = TypeVar("_Member")


class Renewable(Protocol):
    """Object with locks, threads or connections that the child of a fork must replace.

    An object may also have the methods ``prepare_fork``, called before each fork, and ``end_fork``,
    called in the parent after the fork.
    """

    def renew_after_fork(self) -> None:
        """Replace this object's locks, threads and connections in the child of a fork."""


_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()
_prepared: list[Any] = []
_fork_lock = threading.Lock()


def members_of(objects: weakref.WeakSet[_Member]) -> list[_Member]:
    """Return the members of a weak set that other threads may change meanwhile."""
    while True:
        with suppress(RuntimeError):  # the set changed its size during the iteration
            return list(objects)


def renew_in_child(renewable: Renewable) -> None:
    """Call ``renew_after_fork`` of a weakly referenced object in the child of each fork."""
    _renewables.add(renewable)


def _prepare_all() -> None:
    _fork_lock.acquire()  # two threads may fork at the same time
    for renewable in members_of(_renewables):
        if hasattr(renewable, "prepare_fork"):
            renewable.prepare_fork()
            _prepared.append(renewable)


def _end_all() -> None:
    while _prepared:
        _prepared.pop().end_fork()
    _fork_lock.release()


def _renew_all() -> None:
    global _fork_lock
    _fork_lock = threading.Lock()
    _prepared.clear()
    for renewable in members_of(_renewables):
        renewable.renew_after_fork()


def at_fork(**callbacks: Callable[[], object]) -> None:
    """Register callbacks for forks, as ``os.register_at_fork`` does, if the system has forks.

    Use this function to renew the variables of a module, and ``renew_in_child`` for objects.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**callbacks)


at_fork(before=_prepare_all, after_in_parent=_end_all, after_in_child=_renew_all)
