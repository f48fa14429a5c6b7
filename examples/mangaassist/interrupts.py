"""Ctrl-C that leaves nothing behind: it waits while a process is being started, and comes only once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_held = 0
_pending = False


def install() -> None:
    """Turn the first SIGINT or SIGTERM into a ``KeyboardInterrupt``; further ones do not disturb the cleaning up."""
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)


@contextmanager
def held() -> Iterator[None]:
    """Hold interrupts back for a moment, so that a process is never started without being remembered."""
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1
    if _pending and not _held:
        raise KeyboardInterrupt


def _on_signal(*_: object) -> None:
    global _pending
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _held:
        raise KeyboardInterrupt
    _pending = True
