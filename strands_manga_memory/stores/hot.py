"""Protocol of hot stores, which hold the active conversations, and the text form of a window."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from strands_manga_memory.exceptions import CorruptRecordError

ACTIVE, CLOSING, DELETED = "active", "closing", "deleted"
"""States of a conversation: in use, being finalized by a sweeper, or deleted (a tombstone)."""

WINDOW_FIELD = "window"
"""Field that lists the messages of the agent's window, as text: ``1-5,9,x2`` is messages 1 to 5, message 9, body 2."""


DERIVED = "#derived"
"""Key of recomputable data in a conversation manager's state. If there is a hot tier, only the hot tier stores the data."""

MAX_WINDOW = 100_000
"""Most messages of a window; a longer one is damaged."""

_WINDOW_PART = re.compile(rb"(x?)(\d{1,15})|(\d{1,15})-(\d{1,15})")


def new_version() -> int:
    """Return a unique random version of at most 14 digits, which every store represents exactly."""
    return secrets.randbits(46) or 1


class WriteStatus(StrEnum):
    """Result of a compare-and-write."""

    OK = "ok"
    """The values are stored, by this attempt or an earlier one."""
    CONFLICT = "conflict"
    """No write: the stored epoch or version differs from the expected one, or the conversation is not active."""
    MISSING = "missing"
    """No write: the expected conversation does not exist."""


@dataclass(frozen=True, kw_only=True)
class HotWrite:
    """Atomic compare-and-write of a conversation.

    Args:
        expect: Expected epoch and version; None if there must be no conversation, or only a tombstone of an epoch below
            ``epoch``.
        epoch: Epoch after the write.
        version: Version after the write, from :func:`new_version`. If it is stored already, an earlier attempt
            succeeded.
        fields: Fields to set. Names match ``[a-z0-9._]+``; the window is ``WINDOW_FIELD``.
        removed: Fields to remove, disjoint from ``fields``.
        ttl: Logical TTL from now, in seconds.
        replace: Whether to remove all other fields first.
    """

    expect: tuple[int, int] | None
    epoch: int
    version: int
    fields: Mapping[str, bytes]
    removed: Sequence[str] = ()
    ttl: float
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class HotRecord:
    """Conversation in a hot store.

    Args:
        epoch: Incremented at each end or deletion of the conversation.
        version: Changed by each write.
        state: ``ACTIVE``, ``CLOSING`` or ``DELETED``; a deleted conversation has only its epoch.
        ttl: Logical TTL of the last write, in seconds.
        expires_in: Seconds until logical expiry by the store's clock; negative after it.
        fields: The requested fields that exist, and all messages and bodies of the window.
    """

    epoch: int
    version: int
    state: str
    ttl: float = 0.0
    expires_in: float = 0.0
    fields: Mapping[str, bytes] = field(default_factory=dict)


class HotStore(Protocol):
    """Store of active conversations. Each is one unit: a hash with state, head and messages, which expires as a whole.

    Synchronous, thread-safe, independent of event loops, usable after a fork. Conversations are named by encoded ids
    (``[A-Za-z0-9_.~%!:/-]+``). Every method raises ``StoreUnavailableError`` if the store does not answer in time and
    ``StoreError`` for other errors of the driver. A stored number that is invalid raises ``CorruptRecordError``.

    ``survives_process`` is False if the conversations are lost with this process.
    """

    survives_process: bool

    def load(self, conversation: str, fields: Sequence[str], *, touch: bool = True) -> HotRecord | None:
        """Return a conversation's ``fields``, and the messages and bodies of its window, in one round trip.

        A conversation after its logical expiry is returned as long as it exists (``expires_in`` is negative).

        Args:
            conversation: Name of the conversation.
            fields: Names of the fields to read in addition to the window's messages and bodies.
            touch: Whether to renew the TTL of an active, unexpired conversation. False for inspection.
        """

    def read(self, conversation: str, fields: Sequence[str]) -> dict[str, bytes]:
        """Return the existing ``fields`` without renewing the TTL."""

    def write(self, conversation: str, write: HotWrite) -> WriteStatus:
        """Compare and write in one atomic round trip; renews the TTL."""

    def put_tombstone(self, conversation: str, *, epoch: int, ttl: float) -> int:
        """Replace a conversation, even a damaged one, by a tombstone and return the tombstone's epoch.

        Args:
            conversation: Name of the conversation.
            epoch: Epoch of the tombstone; one more than the stored epoch if that is higher.
            ttl: Seconds until the tombstone expires.
        """

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield up to ``limit`` names of active or closing conversations after their logical expiry."""

    def claim(self, conversation: str, *, lease: float = 60.0, expired_only: bool = True) -> HotRecord | None:
        """Mark an active conversation as closing if it is still expired; return its record without fields, or None.

        A closing conversation whose claim is older than ``lease`` seconds can be claimed again. With
        ``expired_only=False``, active conversations are claimed regardless of their expiry.
        """

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a closing conversation if its epoch and version are still ``expect``."""

    def acquire_lease(self, conversation: str, *, owner: str, ttl: float) -> bool:
        """Acquire or extend the advisory lease of a conversation for ``ttl`` seconds; False if another owner holds it."""

    def release_lease(self, conversation: str, *, owner: str) -> bool:
        """Release the lease; False if ``owner`` does not hold it."""

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under ``name``; None if there is none or it has expired."""

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store a value for ``ttl`` seconds, independent of conversations, replacing an earlier one."""

    def close(self) -> None:
        """Close the connections. The store remains usable and opens new ones."""


def window_fields(window: bytes, conversation: str) -> list[str]:
    """Return the fields of the messages that a window lists, in its order.

    Field ``m5`` has message 5 of the log; field ``x2`` has body 2, a message that differs from the log or is not part of it.

    Raises:
        CorruptRecordError: The text is not a window, or lists more than ``MAX_WINDOW`` messages.
    """
    names: list[str] = []
    for part in window.split(b",") if window else ():
        found = _WINDOW_PART.fullmatch(part)
        body, number, first, last = found.groups() if found is not None else (b"", None, b"1", b"0")
        if number is not None:
            names.append(f"{'x' if body else 'm'}{int(number)}")
        elif int(first) > int(last) or int(last) - int(first) >= MAX_WINDOW:
            raise _damaged_window(conversation, f"has the part {part[:40]!r}")
        else:
            names.extend(f"m{seq}" for seq in range(int(first), int(last) + 1))
        if len(names) > MAX_WINDOW:
            raise _damaged_window(conversation, f"lists more than {MAX_WINDOW} messages")
    return names


def _damaged_window(conversation: str, why: str) -> CorruptRecordError:
    return CorruptRecordError(f"record={conversation!r} is damaged: its window {why}", record=conversation)
