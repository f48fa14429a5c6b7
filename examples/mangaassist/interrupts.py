"""Ctrl-C without leftover processes: an interrupt waits for a starting process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_delay_depth = 0
_pending = False


def install() -> None:
    """Turn the first SIGINT or SIGTERM into a ``KeyboardInterrupt``, and ignore the others."""
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)


@contextmanager
def delay() -> Iterator[None]:
    """Delay interrupts during a block, so that each process that it starts is registered."""
    global _delay_depth
    _delay_depth += 1
    try:
        yield
    finally:
        _delay_depth -= 1
    if _pending and not _delay_depth:
        raise KeyboardInterrupt


def _on_signal(*_: object) -> None:
    global _pending
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _delay_depth:
        raise KeyboardInterrupt
    _pending = True
