"""Protocol of hot stores, which keep the conversations in use, and a hot store in memory.

A conversation expires when its time to live (TTL) has passed since its last use. The store still
keeps an expired conversation for some time, so that a clean-up job (sweeper) can summarize it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from strands_manga_memory.arguments import Clock, Seconds, checked
from strands_manga_memory.lifecycle import renew_in_child

ACTIVE, CLOSING, DELETED = "active", "closing", "deleted"
"""States of a conversation: in use, being finalized by a sweeper, or deleted (a tombstone)."""


def new_version() -> int:
    """Return a random number that identifies a new version of a conversation.

    The number has at most 14 digits, which every store keeps exactly.
    """
    return secrets.randbits(46) or 1


@dataclass(frozen=True, kw_only=True)
class HotWrite:
    """Conditional write to a conversation of a hot store.

    The write succeeds only if no other process has changed the conversation since it was read.

    The version of a conversation is a number that changes at each write. The epoch is a number that
    grows by 1 each time the conversation is ended or deleted, so that late writes of earlier epochs
    are recognized.

    Args:
        expect: Epoch and version that the stored conversation must have. None: the write succeeds
            if there is no conversation. It also replaces a tombstone (record of a deletion) with an
            epoch below ``epoch``.
        epoch: Epoch after the write.
        version: Version after the write, from ``new_version``. If the store already has this epoch
            and version, an earlier attempt of the write has succeeded.
        fields: Fields to set, keyed by name. Names match ``[a-z0-9._]+``.
        removed: Names of the fields to remove.
        ttl: Seconds until the conversation expires.
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
    """Conversation that was read from a hot store.

    Args:
        epoch: Number that grows by 1 each time the conversation is ended or deleted.
        version: Number that each write changes.
        state: ``ACTIVE``, ``CLOSING`` (a sweeper is ending the conversation) or ``DELETED``. A
            deleted conversation has only an epoch.
        ttl: Seconds between the last use and the expiry of the conversation.
        expires_in: Seconds until the expiry; negative for an expired conversation.
        fields: Requested fields that exist, keyed by name.
    """

    epoch: int
    version: int
    state: str
    ttl: float = 0.0
    expires_in: float = 0.0
    fields: Mapping[str, bytes] = field(default_factory=dict)


class HotStore(Protocol):
    """Protocol of stores for the conversations in use, such as Redis.

    A conversation is a set of fields with a version and an epoch (see ``HotWrite``), and expires as
    a whole. Names of conversations are encoded ids (``[A-Za-z0-9_.~%!:/-]+``). The methods are
    synchronous, thread-safe, independent of event loops, and usable after a fork.

    A store that does not respond in time raises ``StoreUnavailableError``. Other errors of the
    driver raise ``StoreError``. A damaged number in a stored conversation raises
    ``CorruptRecordError``.

    ``survives_process`` is False if the conversations are lost with this process.
    """

    survives_process: bool

    def load(
        self, conversation: str, fields: Sequence[str] | None, *, touch: bool = True
    ) -> HotRecord | None:
        """Read a conversation with some or all of its fields.

        The read is one request. The result is None if nothing is stored. An expired conversation is
        returned as long as the store keeps it. For a deleted conversation, the result is its
        tombstone (record of the deletion).

        Args:
            conversation: Name of the conversation.
            fields: Names of the fields to read. None: all fields.
            touch: Whether the read renews the TTL of an active, unexpired conversation.
        """

    def write(self, conversation: str, write: HotWrite) -> bool:
        """Write fields of a conversation in one atomic step, and renew its TTL.

        Returns:
            True if the fields are stored, by this attempt or an earlier one. False if nothing was
            written, because the conversation has another version or epoch than ``HotWrite.expect``,
            or is not active.
        """

    def put_tombstone(self, conversation: str, *, ttl: float) -> int:
        """Replace a conversation by a tombstone (record of its deletion), and return its epoch.

        The epoch, a number, is 1 above the stored epoch; 1 if nothing is stored. Damaged
        conversations can be replaced, too. The tombstone itself expires after ``ttl`` seconds.
        """

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield the names of at most ``limit`` expired conversations that the store still keeps.

        Conversations that another process has reserved by ``claim`` are included. Deleted
        conversations are not.
        """

    def claim(
        self, conversation: str, *, lease: float = 60.0, expired_only: bool = True
    ) -> HotRecord | None:
        """Reserve a conversation for the calling process, which then summarizes and removes it.

        The result is the conversation without fields, in the state ``CLOSING``. The result is None
        if the conversation is missing, is claimed by another process or, with ``expired_only``, has
        not expired.

        Args:
            conversation: Name of the conversation.
            lease: Seconds after which another process may claim the conversation again.
            expired_only: Whether only an expired conversation can be claimed. False: also an active
                one.
        """

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a conversation reserved by ``claim``, unless it has changed since the claim.

        ``expect`` has the epoch and version of the claimed conversation. The result is False if the
        conversation was not removed, because it has changed.
        """

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under a name, or None if it is missing or has expired."""

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store a value under a name for ``ttl`` seconds, in place of an earlier value.

        Such values belong to no conversation, for example cached data of a user.
        """

    def replace_value(self, name: str, value: bytes, *, expect: bytes | None, ttl: float) -> bool:
        """Store a value in one atomic step, if the stored value still equals ``expect``.

        Args:
            name: Name of the value.
            value: The new value.
            expect: The value that ``get_value`` returned; None if there was no value.
            ttl: Seconds until the new value expires. With 0, the value is removed.

        Returns:
            Whether the new value is stored, by this attempt or an earlier one. False if another
            process has changed the value, which is then kept.
        """

    def close(self) -> None:
        """Close the connections to the server. The store stays usable, and opens new ones."""


def acquire_lease(hot: HotStore, conversation: str, *, owner: str, ttl: float) -> bool:
    """Acquire or extend a lease, the right of ``owner`` to process a conversation alone.

    The lease ends after ``ttl`` seconds. It is advisory: ``HotStore.write`` does not check it.
    The result is False if another owner holds the lease.
    """
    return hot.replace_value(f"lease/{conversation}", owner.encode(), expect=None, ttl=ttl)


def release_lease(hot: HotStore, conversation: str, *, owner: str) -> None:
    """Release the lease of a conversation, if ``owner`` holds the lease."""
    hot.replace_value(f"lease/{conversation}", b"", expect=owner.encode(), ttl=0.0)


@dataclass(frozen=True)
class _Conversation:
    # Frozen, so that a fork during a write gives the child the old or the new object in full.
    epoch: int
    version: int
    state: str
    ttl: float = 0.0
    expires_at: float = 0.0
    claimed_at: float = 0.0
    gone_at: float = 0.0
    fields: Mapping[str, bytes] = field(default_factory=dict)

    def record(self, now: float, fields: Mapping[str, bytes] | None = None) -> HotRecord:
        return HotRecord(
            epoch=self.epoch,
            version=self.version,
            state=self.state,
            ttl=self.ttl,
            expires_in=0.0 if self.state == DELETED else self.expires_at - now,
            fields=fields or {},
        )


@dataclass(frozen=True)
class _Value:
    content: bytes
    gone_at: float


_Perishable = TypeVar("_Perishable", _Conversation, _Value)


class InMemoryHotStore:
    """Hot store in the memory of this process, for one process and for tests.

    The store is thread-safe. Its data is lost with the process. After a fork, the child continues
    with its own copy.

    An expired conversation stays readable for ``grace`` seconds. It is then removed at its next
    access, or when the number of entries (conversations and values) has doubled since the last
    clean-up.

    Args:
        clock: Function that returns the time in seconds. Default ``time.time``.
        grace: Seconds that a conversation stays readable after it has expired. Default 3,600.

    Raises:
        ValueError: ``grace`` is negative.
    """

    survives_process = False

    @checked
    def __init__(self, *, clock: Clock = time.time, grace: Seconds = 3600.0) -> None:
        self._clock = clock
        self._grace = grace
        self._lock = threading.Lock()
        self._conversations: dict[str, _Conversation] = {}
        self._values: dict[str, _Value] = {}
        self._clean_at = 64
        renew_in_child(self)

    def __repr__(self) -> str:
        return f"InMemoryHotStore(conversations={len(self._conversations)})"

    def renew_after_fork(self) -> None:
        """Replace the lock in a forked process, because a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def load(
        self, conversation: str, fields: Sequence[str] | None, *, touch: bool = True
    ) -> HotRecord | None:
        """Read a conversation with some or all of its fields."""
        now = self._clock()
        with self._lock:
            kept = self._unexpired(self._conversations, conversation, now)
            if kept is None:
                return None
            if touch and kept.state == ACTIVE and kept.expires_at > now:
                end = now + kept.ttl
                kept = replace(kept, expires_at=end, gone_at=end + self._grace)
                self._conversations[conversation] = kept
        names = kept.fields if fields is None else kept.fields.keys() & set(fields)
        return kept.record(now, {name: kept.fields[name] for name in names})

    def write(self, conversation: str, write: HotWrite) -> bool:
        """Write fields of a conversation if its epoch and version equal ``HotWrite.expect``."""
        now = self._clock()
        with self._lock:
            kept = self._unexpired(self._conversations, conversation, now)
            if kept is not None and (kept.epoch, kept.version) == (write.epoch, write.version):
                return True
            if not _may_replace(kept, write):
                return False
            fields = {} if kept is None or write.replace else dict(kept.fields)
            for name in write.removed:
                fields.pop(name, None)
            fields |= {name: bytes(value) for name, value in write.fields.items()}
            self._conversations[conversation] = _Conversation(
                epoch=write.epoch,
                version=write.version,
                state=ACTIVE,
                ttl=write.ttl,
                expires_at=now + write.ttl,
                gone_at=now + write.ttl + self._grace,
                fields=fields,
            )
            self._clean(now)
        return True

    def put_tombstone(self, conversation: str, *, ttl: float) -> int:
        """Replace a conversation by a tombstone (record of its deletion), and return its epoch.

        The epoch of a conversation grows by 1 each time the conversation is ended or deleted.
        """
        now = self._clock()
        with self._lock:
            kept = self._unexpired(self._conversations, conversation, now)
            epoch = 1 if kept is None else kept.epoch + 1
            self._conversations[conversation] = _Conversation(epoch, 0, DELETED, gone_at=now + ttl)
            self._clean(now)
        return epoch

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield the names of at most ``limit`` expired conversations that the store still keeps."""
        now = self._clock()
        with self._lock:
            names = [
                name
                for name, kept in self._conversations.items()
                if kept.state != DELETED and kept.expires_at <= now < kept.gone_at
            ]
        yield from names[:limit]

    def claim(
        self, conversation: str, *, lease: float = 60.0, expired_only: bool = True
    ) -> HotRecord | None:
        """Reserve a conversation for the calling process, which then summarizes and removes it."""
        now = self._clock()
        with self._lock:
            kept = self._unexpired(self._conversations, conversation, now)
            if kept is None:
                return None
            due = kept.state == ACTIVE and (kept.expires_at <= now or not expired_only)
            if not due and not (kept.state == CLOSING and now - kept.claimed_at > lease):
                return None
            kept = self._conversations[conversation] = replace(kept, state=CLOSING, claimed_at=now)
        return kept.record(now)

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a conversation reserved by ``claim``, unless it has changed since the claim."""
        with self._lock:
            kept = self._unexpired(self._conversations, conversation, self._clock())
            if kept is None or kept.state != CLOSING or (kept.epoch, kept.version) != tuple(expect):
                return False
            del self._conversations[conversation]
        return True

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under a name, or None if it is missing or has expired."""
        with self._lock:
            kept = self._unexpired(self._values, name, self._clock())
        return None if kept is None else kept.content

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store a value under a name for ``ttl`` seconds, in place of an earlier value."""
        now = self._clock()
        with self._lock:
            self._values[name] = _Value(bytes(value), now + ttl)
            self._clean(now)

    def replace_value(self, name: str, value: bytes, *, expect: bytes | None, ttl: float) -> bool:
        """Store a value in one atomic step, if the stored value still equals ``expect``."""
        now = self._clock()
        with self._lock:
            kept = self._unexpired(self._values, name, now)
            if (None if kept is None else kept.content) not in (expect, value):
                return False
            self._values[name] = _Value(bytes(value), now + ttl)
            self._clean(now)
        return True

    def close(self) -> None:
        """Do nothing: this store has no connections."""

    @staticmethod
    def _unexpired(kept: dict[str, _Perishable], name: str, now: float) -> _Perishable | None:
        found = kept.get(name)
        if found is not None and found.gone_at <= now:
            del kept[name]
            return None
        return found

    def _clean(self, now: float) -> None:
        every: tuple[dict[str, Any], ...] = (self._conversations, self._values)
        if sum(map(len, every)) < self._clean_at:
            return
        for kept in every:
            for name in [name for name, each in kept.items() if each.gone_at <= now]:
                del kept[name]
        self._clean_at = max(64, 2 * sum(map(len, every)))


def _may_replace(kept: _Conversation | None, write: HotWrite) -> bool:
    if kept is None:
        return write.expect is None
    grows = write.epoch > kept.epoch
    if kept.state == DELETED:
        return write.expect is None and grows
    is_expected = write.expect is not None and tuple(write.expect) == (kept.epoch, kept.version)
    return is_expected and (grows or kept.state != CLOSING)
