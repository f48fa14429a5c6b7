"""at_fork: what is done to locks, threads and connections where a process forks."""

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
    """Have functions called at each fork of this process, as ``os.register_at_fork`` does.

    Where processes cannot fork, as on Windows, nothing is ever called.

    Args:
        before: Called in the parent before the fork; of several, the one registered last comes first.
        after_in_parent: Called in the parent after the fork, in the order of registration.
        after_in_child: Called in the child after the fork, in the order of registration.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
