"""Helpers for the lifetime of objects: data attached to them, and renewal after a process's fork.

Data attached to an object, such as an agent, exist as long as the object. A forked process must not
use the locks, threads and connections of its parent, and renews them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar


def attachments(owner: object) -> dict[str, Any]:
    """Return this package's data about an object: a dict that is an attribute of the object."""
    found: dict[str, Any] = vars(owner).setdefault("_strands_manga_memory", {})
    return found


_Member = TypeVar("_Member")


class Renewable(Protocol):
    """Object whose locks, threads or connections must be replaced in a forked process.

    Besides ``renew_after_fork``, an object may have two more methods, both or neither:
    ``prepare_fork``, called before each fork, and ``end_fork``, called in the parent afterwards.
    """

    def renew_after_fork(self) -> None:
        """Replace this object's locks, threads and connections in a forked process."""


_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()
_prepared: list[Any] = []
_fork_lock = threading.Lock()


def members_of(objects: weakref.WeakSet[_Member]) -> list[_Member]:
    """Return the members of a weak set as a list, even while other threads change the set."""
    while True:
        with suppress(RuntimeError):  # the set changed its size during the iteration
            return list(objects)


def renew_in_child(renewable: Renewable) -> None:
    """Call an object's ``renew_after_fork`` in each forked process, while the object exists."""
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
    """Register functions to call before or after each fork. No effect on systems without fork.

    The arguments are those of ``os.register_at_fork``. Use this function for variables of a module,
    and ``renew_in_child`` for objects.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**callbacks)


at_fork(before=_prepare_all, after_in_parent=_end_all, after_in_child=_renew_all)
