"""HotStore: the port for the conversations that are being held now."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

ACTIVE, CLOSING, DELETED = "active", "closing", "deleted"
"""States of a conversation: in use, being finalized by a sweeper, or deleted (a tombstone)."""

WINDOW_FIELD = "window"
"""The field that lists what the agent's window holds, as text: ``1-5,9,x2`` is messages 1 to 5, message 9, body 2."""


def new_version() -> int:
    """Return a version that no other write has: random, and of 14 digits, so that every store's arithmetic is exact."""
    return secrets.randbits(46) or 1


def message_field(seq: int) -> str:
    """Name of the field that holds message ``seq`` of the log."""
    return f"m{seq}"


def body_field(number: int) -> str:
    """Name of the field that holds body ``number``: a message of the window that differs from the log, or is not in it."""
    return f"x{number}"


class WriteStatus(StrEnum):
    """What became of a compare-and-write."""

    OK = "ok"
    """It is what is stored: written now, or by an earlier try."""
    CONFLICT = "conflict"
    """Nothing written: the stored epoch and version are other than expected, or the conversation is not active."""
    MISSING = "missing"
    """Nothing written: a conversation was expected and there is none."""


@dataclass(frozen=True, kw_only=True)
class HotWrite:
    """One atomic compare-and-write of a conversation.

    Args:
        expect: Epoch and version that must be stored, or None if there must be no conversation, or only a tombstone of an
            epoch lower than ``epoch``.
        epoch: Epoch after the write.
        version: Version after the write: a :func:`new_version`. A write that finds it stored had succeeded before.
        fields: Fields to set. Names are ``[a-z0-9._]+``; the window is ``WINDOW_FIELD``.
        removed: Fields to remove. Never a name that is in ``fields``.
        ttl: Logical time to live from now, in seconds.
        replace: Remove every other field first.
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
    """A conversation as the hot store has it.

    Args:
        epoch: Raised each time the conversation ends or is deleted.
        version: Changed by each write.
        state: ``ACTIVE``, ``CLOSING`` or ``DELETED``; of a deleted one only the epoch is left.
        ttl: Logical time to live of the last write, in seconds.
        expires_in: Seconds until logical expiry by the store's clock; negative once it has passed.
        fields: The fields asked for that exist, and every message and body that the window lists.
    """

    epoch: int
    version: int
    state: str
    ttl: float = 0.0
    expires_in: float = 0.0
    fields: Mapping[str, bytes] = field(default_factory=dict)


class HotStore(Protocol):
    """Conversations in use, each one unit: one hash with its state, head and messages, that expires, moves and goes whole.

    Synchronous, thread-safe, bound to no event loop, usable after a fork. Conversations are named by escaped ids
    (``[A-Za-z0-9_.~%!:/-]+``). Every method raises ``StoreUnavailableError`` when the store does not answer in time and
    ``StoreError`` for any other fault of the driver. A stored number that is no number is a ``CorruptRecordError``.

    ``survives_process`` is False if the conversations go with this process.
    """

    survives_process: bool

    def load(self, conversation: str, fields: Sequence[str], *, touch: bool = True) -> HotRecord | None:
        """Return a conversation's ``fields`` and the messages and bodies its window lists, in one round trip.

        A conversation that has logically expired, but is still there, is returned (``expires_in`` is negative).

        Args:
            conversation: Its name.
            fields: Names of the fields to read beside the window's messages and bodies.
            touch: Start its time to live anew, if it is active and has not expired. Inspection passes False.
        """

    def read(self, conversation: str, fields: Sequence[str]) -> dict[str, bytes]:
        """Return those of ``fields`` that exist, without touching the conversation's time to live."""

    def write(self, conversation: str, write: HotWrite) -> WriteStatus:
        """Compare and write in one atomic round trip; the time to live starts anew."""

    def bury(self, conversation: str, *, epoch: int, ttl: float) -> int:
        """Replace a conversation, a damaged one too, by a tombstone and return the tombstone's epoch.

        Args:
            conversation: Its name.
            epoch: The tombstone's epoch is this, or one more than what is stored if that is higher.
            ttl: Seconds until the tombstone goes too.
        """

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield up to ``limit`` names of active or closing conversations whose logical time to live has passed."""

    def claim(self, conversation: str, *, lease: float = 60.0, expired_only: bool = True) -> HotRecord | None:
        """Turn an active conversation into a closing one if it is still expired; return its record without fields.

        A closing conversation whose claim is older than ``lease`` seconds can be claimed again. With ``expired_only=False`` an
        active one is claimed whether or not it has expired. None: nothing to claim.
        """

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a closing conversation, if its epoch and version are still ``expect``."""

    def acquire_lease(self, conversation: str, *, owner: str, ttl: float) -> bool:
        """Take or prolong the advisory lease of a conversation for ``ttl`` seconds; False if another owner holds it."""

    def release_lease(self, conversation: str, *, owner: str) -> bool:
        """Give the lease back; False if ``owner`` does not hold it."""

    def get_value(self, name: str) -> bytes | None:
        """Return the value that ``put_value`` kept under ``name``; None if there is none, or its time is over."""

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Keep a value for ``ttl`` seconds, apart from every conversation; a newer one takes its place."""

    def close(self) -> None:
        """Give back connections. The store can still be used: it opens new ones."""
