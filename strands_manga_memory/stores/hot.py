"""Protocol of hot stores, which hold the active conversations.

After its logical expiry, a conversation has ended, but the store keeps it for a while so that a sweeper can finalize it. The
window is the list of the messages in an agent's current history. The log holds all messages by number.
"""

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
"""Field that stores the window. For example, ``1-5,9,x2`` lists messages 1 to 5 and message 9 of the log, then body 2. A body
is a message that differs from the log or is missing from the log.
"""


MAX_WINDOW = 100_000
"""Most messages of a window. A longer list counts as damaged."""

_WINDOW_PART = re.compile(rb"(x?)(\d{1,15})|(\d{1,15})-(\d{1,15})")


def new_version() -> int:
    """Return a unique random version number of at most 14 digits, which every store represents exactly."""
    return secrets.randbits(46) or 1


class WriteStatus(StrEnum):
    """Result of a conditional write."""

    OK = "ok"
    """The values are stored, by this attempt or an earlier one."""
    CONFLICT = "conflict"
    """No write: the stored epoch or version differs from the expected one, or the conversation is not active."""
    MISSING = "missing"
    """No write: the expected conversation does not exist."""


@dataclass(frozen=True, kw_only=True)
class HotWrite:
    """Conditional write of a conversation, in one atomic step.

    Args:
        expect: Epoch and version that the stored conversation must have. None: it must not exist, or must be a tombstone
            (record of a deletion) with an epoch below ``epoch``.
        epoch: Epoch after the write. The epoch grows by 1 at each end or deletion of the conversation.
        version: Version after the write, from :func:`new_version`. If the store already has this version, an earlier attempt
            succeeded.
        fields: Fields to set. Names match ``[a-z0-9._]+``.
        removed: Fields to remove, disjoint from ``fields``.
        ttl: Seconds until the logical expiry, at which the conversation ends.
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
    """Conversation as read from a hot store.

    Args:
        epoch: Number that grows by 1 at each end or deletion of the conversation.
        version: Number that each write changes.
        state: ``ACTIVE``, ``CLOSING`` (being finalized) or ``DELETED``. A deleted conversation has only its epoch.
        ttl: Seconds from the last write to the logical expiry, at which the conversation ends.
        expires_in: Seconds until the logical expiry by the store's clock, negative afterwards.
        fields: The requested fields that exist, and the fields of all messages of the agent's current history (see
            ``window_fields``).
    """

    epoch: int
    version: int
    state: str
    ttl: float = 0.0
    expires_in: float = 0.0
    fields: Mapping[str, bytes] = field(default_factory=dict)


class HotStore(Protocol):
    """Store of active conversations.

    Each conversation has a state and fields, and expires as a whole. Conversations are named by encoded ids
    (``[A-Za-z0-9_.~%!:/-]+``). The methods are synchronous, thread-safe, independent of event loops, and usable after a fork.

    Every method raises ``StoreUnavailableError`` if the store does not answer in time. Other errors of the driver raise
    ``StoreError``. An invalid stored number raises ``CorruptRecordError``.

    ``survives_process`` is False if the conversations are lost with this process.
    """

    survives_process: bool

    def load(self, conversation: str, fields: Sequence[str], *, touch: bool = True) -> HotRecord | None:
        """Return a conversation with the requested fields and all messages of its window (current history), in one request.

        A conversation that is over is still returned while the store keeps it. A deleted conversation is returned as its
        tombstone (record of the deletion). The result is None if nothing is stored.

        Args:
            conversation: Name of the conversation.
            fields: Names of the fields to read in addition to the window's messages.
            touch: Whether to renew the TTL of an active, unexpired conversation. False for inspection.
        """

    def read(self, conversation: str, fields: Sequence[str]) -> dict[str, bytes]:
        """Return the requested fields of a conversation, without those that do not exist. The TTL is not renewed."""

    def write(self, conversation: str, write: HotWrite) -> WriteStatus:
        """Write fields of a conversation in one atomic step, and renew its TTL. Return the outcome.

        Nothing is written if the stored epoch (number of ends and deletions) or version differs from the expected one.
        """

    def put_tombstone(self, conversation: str, *, epoch: int, ttl: float) -> int:
        """Replace a conversation by a tombstone (record of its deletion), and return the tombstone's epoch.

        The epoch of a conversation grows at each end or deletion. A damaged conversation can be replaced too.

        Args:
            conversation: Name of the conversation.
            epoch: Least epoch of the tombstone. If the stored epoch is not lower, the tombstone gets the next higher epoch.
            ttl: Seconds until the tombstone expires.
        """

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield the names of at most ``limit`` conversations that have expired but are still stored.

        Conversations that another process is ending are included. Deleted conversations are not.
        """

    def claim(self, conversation: str, *, lease: float = 60.0, expired_only: bool = True) -> HotRecord | None:
        """Claim an expired conversation, so that only the caller ends it. Its state becomes ``CLOSING``.

        Args:
            conversation: Name of the conversation.
            lease: Seconds after which another caller may claim a conversation that is still ``CLOSING``.
            expired_only: Whether an active conversation must have expired. False: it can be claimed at any time.

        Returns:
            Record of the conversation, without fields. None if the conversation cannot be claimed.
        """

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a conversation in the state ``CLOSING``, and return True.

        Return False, and remove nothing, if the state is another one or if ``expect`` differs from the stored epoch and
        version.
        """

    def acquire_lease(self, conversation: str, *, owner: str, ttl: float) -> bool:
        """Acquire or extend a conversation's lease, and return True. Return False if another owner holds the lease.

        A lease is a lock that expires after ``ttl`` seconds. It is advisory: writes do not check it.
        """

    def release_lease(self, conversation: str, *, owner: str) -> bool:
        """Release a conversation's lease (lock with an expiry), and return True. Return False if ``owner`` does not hold it."""

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under ``name``, or None if there is none or it has expired."""

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store a value under a name for ``ttl`` seconds. It replaces the earlier value, and belongs to no conversation."""

    def close(self) -> None:
        """Close the connections to the server of the hot store. The store remains usable and opens new ones."""


def window_fields(window: bytes, conversation: str) -> list[str]:
    """Return the names of the stored fields that contain the messages of a window, in the order of the messages.

    A window is the list of messages in an agent's current history, stored as in ``b"5,x2"``. The number 5 means message 5 of
    the log, which is in the field ``m5``. The name ``x2`` means the field ``x2``, which contains a message that differs from
    the log or is missing from it.

    Raises:
        CorruptRecordError: ``window`` is malformed, or lists more than ``MAX_WINDOW`` messages.
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
