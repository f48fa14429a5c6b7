"""Hot store in the memory of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from strands_manga_memory.arguments import not_negative
from strands_manga_memory.forks import renew_in_child
from strands_manga_memory.stores.hot import (
    ACTIVE,
    CLOSING,
    DELETED,
    WINDOW_FIELD,
    HotRecord,
    HotWrite,
    WriteStatus,
    window_fields,
)


@dataclass(frozen=True)
class _Conversation:
    """Immutable conversation in the memory of this process.

    Each write replaces the whole object, so that a fork during a write copies a consistent state.
    """

    epoch: int
    version: int
    state: str
    ttl: float = 0.0
    expires_at: float = 0.0
    claimed_at: float = 0.0
    gone_at: float = 0.0
    fields: Mapping[str, bytes] = field(default_factory=dict)

    def record(self, now: float, fields: Mapping[str, bytes] | None = None) -> HotRecord:
        """Return the conversation as a ``HotRecord`` with the given fields. Its ``expires_in`` counts from the time ``now``."""
        if self.state == DELETED:
            return HotRecord(epoch=self.epoch, version=self.version, state=DELETED)
        return HotRecord(
            epoch=self.epoch,
            version=self.version,
            state=self.state,
            ttl=self.ttl,
            expires_in=self.expires_at - now,
            fields=fields or {},
        )


@dataclass(frozen=True)
class _Value:
    """Stored value, or the owner of a lease, with the time at which it expires."""

    content: Any
    gone_at: float


_Perishable = TypeVar("_Perishable", _Conversation, _Value)


class InMemoryHotStore:
    """Hot store in the memory of this process.

    The store is fast and thread-safe. Its data is lost with the process. A forked child continues with its own copy.

    At its logical expiry, a conversation ends, but it stays readable for ``grace`` seconds. Later it is removed at its next
    use, or by a clean-up. A clean-up runs whenever the number of stored objects has doubled since the last one.

    Args:
        clock: Seconds since a fixed moment. Default ``time.time``.
        grace: Seconds that a conversation stays readable after its logical expiry. Default 3,600.

    Raises:
        ValueError: ``grace`` is negative.
    """

    survives_process = False

    def __init__(self, *, clock: Callable[[], float] = time.time, grace: float = 3600.0) -> None:
        self._clock = clock
        self._grace = not_negative("grace", grace)
        self._lock = threading.Lock()
        self._conversations: dict[str, _Conversation] = {}
        self._leases: dict[str, _Value] = {}
        self._values: dict[str, _Value] = {}
        self._clean_at = 64
        renew_in_child(self)

    def __repr__(self) -> str:
        return f"InMemoryHotStore(conversations={len(self._conversations)})"

    def renew_after_fork(self) -> None:
        """Replace the lock in a forked process, because a thread of the parent process may hold the old lock."""
        self._lock = threading.Lock()

    def load(self, conversation: str, fields: Sequence[str], *, touch: bool = True) -> HotRecord | None:
        """Return a conversation with the requested fields and all messages of its history. See ``HotStore.load``."""
        now = self._clock()
        with self._lock:
            kept = self._alive(self._conversations, conversation, now)
            if kept is None:
                return None
            listed = window_fields(kept.fields.get(WINDOW_FIELD, b""), conversation)
            if touch and kept.state == ACTIVE and kept.expires_at > now:
                kept = replace(kept, expires_at=now + kept.ttl, gone_at=now + kept.ttl + self._grace)
                self._conversations[conversation] = kept
        return kept.record(now, {name: kept.fields[name] for name in (*fields, *listed) if name in kept.fields})

    def read(self, conversation: str, fields: Sequence[str]) -> dict[str, bytes]:
        """Return the requested fields of a conversation, without those that do not exist. See ``HotStore.read``."""
        with self._lock:
            kept = self._alive(self._conversations, conversation, self._clock())
        return {} if kept is None else {name: kept.fields[name] for name in fields if name in kept.fields}

    def write(self, conversation: str, write: HotWrite) -> WriteStatus:
        """Write fields of a conversation, unless another writer changed it first. See ``HotStore.write``."""
        now = self._clock()
        with self._lock:
            kept = self._alive(self._conversations, conversation, now)
            if kept is not None and (kept.epoch, kept.version) == (write.epoch, write.version):
                return WriteStatus.OK
            status = _judged(kept, write)
            if status is not WriteStatus.OK:
                return status
            fields = {} if kept is None or write.replace or kept.state == DELETED else dict(kept.fields)
            for name in write.removed:
                fields.pop(name, None)
            fields.update((name, bytes(value)) for name, value in write.fields.items())
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
        return status

    def put_tombstone(self, conversation: str, *, epoch: int, ttl: float) -> int:
        """Replace a conversation by a tombstone (record of its deletion). See ``HotStore.put_tombstone``."""
        now = self._clock()
        with self._lock:
            kept = self._alive(self._conversations, conversation, now)
            if kept is not None:
                epoch = max(epoch, kept.epoch + 1)
            self._conversations[conversation] = _Conversation(epoch, 0, DELETED, gone_at=now + ttl)
            self._clean(now)
        return epoch

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield the names of expired conversations. See ``HotStore.expired``."""
        now = self._clock()
        with self._lock:
            names = [
                name
                for name, kept in self._conversations.items()
                if kept.state != DELETED and kept.expires_at <= now < kept.gone_at
            ]
        yield from names[:limit]

    def claim(self, conversation: str, *, lease: float = 60.0, expired_only: bool = True) -> HotRecord | None:
        """Claim an expired conversation, so that only the caller ends it. See ``HotStore.claim``."""
        now = self._clock()
        with self._lock:
            kept = self._alive(self._conversations, conversation, now)
            if kept is None:
                return None
            due = kept.state == ACTIVE and (kept.expires_at <= now or not expired_only)
            if not due and not (kept.state == CLOSING and now - kept.claimed_at > lease):
                return None
            kept = self._conversations[conversation] = replace(kept, state=CLOSING, claimed_at=now)
        return kept.record(now)

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a conversation that the caller has claimed and ended. See ``HotStore.drop``."""
        with self._lock:
            kept = self._alive(self._conversations, conversation, self._clock())
            if kept is None or kept.state != CLOSING or (kept.epoch, kept.version) != tuple(expect):
                return False
            del self._conversations[conversation]
        return True

    def acquire_lease(self, conversation: str, *, owner: str, ttl: float) -> bool:
        """Acquire or extend a conversation's lease (lock with an expiry). See ``HotStore.acquire_lease``."""
        now = self._clock()
        with self._lock:
            held = self._alive(self._leases, conversation, now)
            if held is not None and held.content != owner:
                return False
            self._leases[conversation] = _Value(owner, now + ttl)
            self._clean(now)
        return True

    def release_lease(self, conversation: str, *, owner: str) -> bool:
        """Release a conversation's lease (lock with an expiry). See ``HotStore.release_lease``."""
        with self._lock:
            held = self._alive(self._leases, conversation, self._clock())
            if held is None or held.content != owner:
                return False
            del self._leases[conversation]
        return True

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under ``name``. See ``HotStore.get_value``."""
        with self._lock:
            kept = self._alive(self._values, name, self._clock())
        return None if kept is None else kept.content

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store a value under a name for ``ttl`` seconds. See ``HotStore.put_value``."""
        now = self._clock()
        with self._lock:
            self._values[name] = _Value(bytes(value), now + ttl)
            self._clean(now)

    def close(self) -> None:
        """Do nothing: this store has no connections. The conversations stay in the memory of the process."""

    @staticmethod
    def _alive(kept: dict[str, _Perishable], name: str, now: float) -> _Perishable | None:
        """Return a stored object by its name, or None if it is missing or has expired. Remove an expired object."""
        found = kept.get(name)
        if found is not None and found.gone_at <= now:
            del kept[name]
            return None
        return found

    def _clean(self, now: float) -> None:
        """Remove expired conversations, leases and values if the number of all these has doubled since the last clean-up."""
        every: tuple[dict[str, Any], ...] = (self._conversations, self._leases, self._values)
        if sum(map(len, every)) < self._clean_at:
            return
        for kept in every:
            for name in [name for name, each in kept.items() if each.gone_at <= now]:
                del kept[name]
        self._clean_at = max(64, 2 * sum(map(len, every)))


def _judged(kept: _Conversation | None, write: HotWrite) -> WriteStatus:
    """Return the status of a conditional write, without writing. ``kept`` is the stored conversation, or None."""
    if kept is None:
        return WriteStatus.OK if write.expect is None else WriteStatus.MISSING
    if kept.state == DELETED:
        return WriteStatus.OK if write.expect is None and kept.epoch < write.epoch else WriteStatus.CONFLICT
    if write.expect is None or tuple(write.expect) != (kept.epoch, kept.version):
        return WriteStatus.CONFLICT
    if kept.state == CLOSING and write.epoch <= kept.epoch:
        return WriteStatus.CONFLICT
    return WriteStatus.OK
