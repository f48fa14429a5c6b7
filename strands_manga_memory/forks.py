"""Callbacks at a fork of the process, for locks, threads and connections."""

from __future__ import annotations

import os
from collections.abc import Callable


def _nothing() -> None:
    return None


def at_fork(
    *,
    before: Callable[[], object] = _nothing,
    after_in_parent: Callable[[], object] = _nothing,
    after_in_child: Callable[[], object] = _nothing,
) -> None:
    """Register callbacks for each fork of this process, like ``os.register_at_fork``.

    On systems without fork, such as Windows, they are never called.

    Args:
        before: Called in the parent before the fork, in reverse order of registration.
        after_in_parent: Called in the parent after the fork, in the order of registration.
        after_in_child: Called in the child after the fork, in the order of registration.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
