"""Delivery of the preferences that users state to another service.

A signal is the notification of one preference. A sink receives signals. The outbox stores signals until a sink has accepted
them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.exceptions import StoreError, StoreUnavailableError
from strands_manga_memory.language.preferences import Preference
from strands_manga_memory.lifecycle import renew_in_child
from strands_manga_memory.memory.partition import UserPartition, not_erased_since, repeat_until_written
from strands_manga_memory.memory.preference_log import (
    PreferenceChange,
    PreferenceLog,
    Removal,
    Statement,
    erased_at,
    message_digest,
)
from strands_manga_memory.memory.records import INTERNAL, Owner, place_of
from strands_manga_memory.stores.codec import Codec, trusted
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table, Write
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreferenceSignal:
    """Notification that a user stated a preference, or that a message was retracted.

    Attributes:
        id: Unique id of the signal. Repeated deliveries have the same id.
        number: Sequence number of the signal among the user's signals, 0 before the signal is stored. A receiver should ignore
            a signal after another signal of the same key with a higher number.
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user, or None.
        key: Subject of the preference, such as ``genre``. It is empty for a statement without a subject.
        value: Preferred value.
        at: Time of the message, in seconds since 1970.
        session_id: Session of the message, or None.
        liked: Whether the user wants the value. None means that a value wanted earlier no longer applies.
        adds: Whether the value is added to earlier values of the subject. Otherwise, it replaces the earlier values.
        message_id: ``tracking_id`` of the message, or None.
        retracted: Whether the message was redacted and its preferences must be deleted. Key and value are then empty.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    user_id: str
    tenant: str | None = None
    key: str
    value: str
    at: float
    session_id: str | None = None
    liked: bool | None = True
    adds: bool = False
    message_id: str | None = None
    retracted: bool = False

    @property
    def owner(self) -> Owner:
        """User to whom the signal belongs."""
        return Owner(self.user_id, self.tenant)

    @property
    def statement(self) -> Statement:
        """Preference of the signal as a statement. Without a message id, the statement has the signal's id."""
        preference = Preference(self.key, self.value, self.liked, self.adds)
        return Statement(preference, self.at, self.message_id or self.id, self.session_id)


class PreferenceSink(Protocol):
    """Protocol of a sink, the service that receives preference signals.

    A sink gets the signals of a user in order, each signal at least once.
    """

    def send(self, signal: PreferenceSignal) -> None:
        """Receive a signal, a stated preference or a retraction. After an exception, the signal is sent again later."""


class CallablePreferenceSink:
    """Receiver of preference signals that passes each signal to a function.

    If the function raises an exception, the signal is sent again later.
    """

    def __init__(self, function: Callable[[PreferenceSignal], object]) -> None:
        self._function = function

    def send(self, signal: PreferenceSignal) -> None:
        """Pass a preference signal to the function of this sink."""
        self._function(signal)


class TablePreferenceSink:
    """Sink that stores preference signals in a memory table, one record for each subject such as ``genre``.

    The latest message about a subject wins, even if its signal arrives first.

    Args:
        table: Table of the schema ``USER_MEMORY``. A ``UserMemoryStore`` of this table returns the preferences.
        codec: Codec of content and metadata in the table.
    """

    def __init__(self, table: Table, *, codec: Codec | None = None) -> None:
        self._table = table
        self._codec = codec

    def send(self, signal: PreferenceSignal) -> None:
        """Store the preference of a signal. If the signal is a retraction, delete the preferences of the retracted message."""
        log = PreferenceLog(UserPartition(self._table, signal.owner, codec=self._codec, clock=lambda: signal.at))
        if signal.retracted:
            removal = Removal(signal.at, message=message_digest(signal.message_id or signal.id))
            log.apply(PreferenceChange(removals=[removal]))
        else:
            log.apply(PreferenceChange(statements=[signal.statement]))


class KinesisPreferenceSink:
    """Sink that writes signals to an Amazon Kinesis data stream, as JSON with the user as partition key.

    Each signal is one request, because a batch that fails in part would change the order.

    Args:
        client: Client ``boto3.client("kinesis")`` without retries, because the outbox retries.
        stream_name: Name of the data stream.

    Raises:
        ValueError: ``stream_name`` is empty.
    """

    def __init__(self, client: Any, *, stream_name: str) -> None:
        if not stream_name:
            raise ValueError(f"stream_name must not be empty, got {stream_name!r:.80}")
        self._client = client
        self._stream = stream_name

    def send(self, signal: PreferenceSignal) -> None:
        """Write a signal (a stated preference or the retraction of a message) to the data stream.

        Raises:
            StoreUnavailableError: The stream throttles, does not exist or is unavailable.
        """
        data = json.dumps(asdict(signal), ensure_ascii=False).encode()
        try:
            # A partition key has at most 256 characters; an owner's partition may have more.
            self._client.put_record(StreamName=self._stream, Data=data, PartitionKey=signal.owner.partition[-256:])
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailableError(f"stream=<{self._stream}> | {error}") from error


HEAD, ENTRY, LEASE = f"{INTERNAL}spool", f"{INTERNAL}spool#", f"{INTERNAL}spool.lease"
BUCKETS = 16
"""Number of partitions that list the users with pending signals."""

_LEASE_SECONDS = 30.0
_LONGEST_WAIT = 60.0


class PreferenceOutbox:
    """Outbox that stores the signals of each user until their receiver, the sink, has accepted them.

    A signal is a stated preference or the retraction of a message. It is stored in the memory table before it is sent, and
    deleted afterwards. So each signal is sent at least once. The table numbers the signals of a user, and the sink gets them in
    this order. A lease lets only one worker at a time send the signals of a user.

    Args:
        table: Table of the schema ``USER_MEMORY``.
        sink: Receiver of the signals.
        codec: Codec of the pending signals and of the users' preferences in the table.
        clock: Function that returns seconds since 1970.
    """

    def __init__(
        self, table: Table, sink: PreferenceSink, *, codec: Codec | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._table = table
        self._sink = sink
        self._codec = codec or Codec()
        self._memory_codec = codec
        self._clock = clock
        self._writer = shared_writer(None, table)
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Create empty queues of signals (preferences to send) in a new outbox, or in a child process after a fork.

        Signals that were not yet stored at the fork belong to the parent process.
        """
        self._lock = threading.Lock()
        self._unstored: dict[Owner, deque[Sequence[PreferenceSignal] | Removal]] = {}
        self._waits: dict[Owner, float] = {}

    def emit(
        self,
        owner: Owner,
        preferences: Sequence[Preference],
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Store and send the preferences of a message, in the background and in the order of the calls.

        Args:
            owner: The user.
            preferences: The preferences, from which the caller has removed personal data that must not be sent to the sink.
            message_id: ``tracking_id`` of the message.
            session_id: Session of the message.
            at: Time of the message, in seconds since 1970. Default: now.
        """
        at = self._clock() if at is None else at
        signals = [
            PreferenceSignal(
                user_id=owner.user_id,
                tenant=owner.tenant,
                key=each.slot,
                value=each.value,
                at=at,
                session_id=session_id,
                liked=each.liked,
                adds=each.adds,
                message_id=message_id,
            )
            for each in preferences
        ]
        self._submit(owner, signals)

    @property
    def has_unstored(self) -> bool:
        """Whether this process has queued writes for the outbox that the memory table does not contain yet.

        A write adds or deletes an entry. An entry tells another service that the user stated a preference or that a message was
        retracted.
        """
        return bool(self._unstored)

    def drop(self, owner: Owner, removal: Removal) -> None:
        """Delete the pending signals of a removed preference in the background, so that they are not sent."""
        self._submit(owner, removal)

    def retract(self, owner: Owner, message_id: str, *, at: float) -> None:
        """Delete the pending signals of a message, and send a retraction of the message to the receiver, in the background.

        Args:
            owner: The user.
            message_id: ``tracking_id`` of the message.
            at: Time of the retraction, in seconds since 1970.
        """
        retraction = PreferenceSignal(
            user_id=owner.user_id, tenant=owner.tenant, key="", value="", at=at, message_id=message_id, retracted=True
        )
        self._submit(owner, Removal(at, message=message_digest(message_id)), [retraction])

    # Methods that the background writer runs, for each user in order

    def _submit(self, owner: Owner, *changes: Sequence[PreferenceSignal] | Removal) -> None:
        with self._lock:
            self._unstored.setdefault(owner, deque()).extend(changes)
        self._writer.submit(("spool", owner), lambda: self._run(owner))

    def _run(self, owner: Owner, *, is_retry: bool = False) -> None:
        """Store a user's new signals (preferences to send), and send all stored signals.

        After a failure, a retry is scheduled. Until the retry, new signals are stored but not sent.
        """
        is_planned = owner in self._waits and not is_retry
        try:
            self._store_unstored(owner)
            if not is_planned:
                self.drain(owner)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything; the signals stay
            logger.warning("error=<%s> | failed to store or send preference signals, retrying", type(error).__name__)
            if not is_planned:
                wait = self._waits[owner] = min(_LONGEST_WAIT, 2 * self._waits.get(owner, 0.1))
                self._writer.later(
                    (self, owner),
                    wait,
                    lambda: self._writer.submit(("spool", owner), lambda: self._run(owner, is_retry=True)),
                    is_needed=lambda: owner in self._unstored,  # the exit does not wait for a sink that fails
                )
        else:
            if not is_planned:
                self._waits.pop(owner, None)

    def _store_unstored(self, owner: Owner) -> None:
        while waiting := self._unstored.get(owner):
            is_done = True
            try:
                if isinstance(change := waiting[0], Removal):
                    self._drop(owner, change)
                else:
                    self._store(owner, change)
            except StoreError:
                is_done = False
                raise
            finally:
                if is_done:  # also if it can never be stored, because it would block the following ones
                    with self._lock:
                        waiting.popleft()
                        if not waiting:
                            del self._unstored[owner]

    def _store(self, owner: Owner, signals: Sequence[PreferenceSignal]) -> None:
        """Store the signals of a message in one transaction, in the memory table.

        Preferences that were deleted, retracted or erased meanwhile are left out.
        """
        log = PreferenceLog(UserPartition(self._table, owner, codec=self._memory_codec, clock=self._clock))

        def attempt() -> bool | None:
            statements = [each.statement for each in signals if not each.retracted]
            logged, _, erased = log.read(statements)
            valid = logged.admit(statements)
            kept = [each for each in signals if (each.at > erased_at(erased) if each.retracted else each.statement in valid)]
            if not kept:
                return True
            head = self._table.get(owner.partition, HEAD)
            with trusted(place_of(owner, HEAD)):
                number = 1 if head is None else int(head["next"])
            kept = [replace(each, number=number + at) for at, each in enumerate(kept)]
            when = ABSENT if head is None else Condition(equals={"next": number})
            writes = [
                Write(item={"user_id": owner.partition, "memory_id": HEAD, "next": number + len(kept)}, when=when),
                Write(item=self._item(owner, f"{ENTRY}{number:012d}", kept)),
                Write(item={"user_id": bucket_of(owner), "memory_id": owner.partition, "owner": owner.ids}),
                not_erased_since(owner.partition, erased),
            ]
            return self._table.transact(writes) or None

        repeat_until_written(attempt, record=place_of(owner, HEAD))

    def _item(self, owner: Owner, id_: str, signals: Sequence[PreferenceSignal]) -> Item:
        data = self._codec.encode([asdict(each) for each in signals], place_of(owner, id_))
        return {"user_id": owner.partition, "memory_id": id_, "data": data}

    def _drop(self, owner: Owner, removal: Removal) -> None:
        # A signal that another worker is sending at the same time is still sent.
        for id_, signals in list(self._entries(owner)):
            kept = [each for each in signals if each.retracted or not removal.voids(each.statement)]
            if not kept:
                self._table.delete(owner.partition, id_)
            elif len(kept) < len(signals):
                self._table.put(self._item(owner, id_, kept), when=Condition(equals={"memory_id": id_}))

    def _entries(self, owner: Owner) -> Iterator[tuple[str, list[PreferenceSignal]]]:
        """Yield the table items with a user's pending signals, in the order of storage, each as its id and its signals."""
        for item in self._table.query(owner.partition, first=ENTRY, last=f"{ENTRY}~"):
            id_ = str(item["memory_id"])
            with trusted(place_of(owner, id_)):
                signals = [PreferenceSignal(**body) for body in self._codec.decode(item["data"], place_of(owner, id_))]
            yield id_, signals

    def waiting(self, owner: Owner) -> Iterator[PreferenceSignal]:
        """Yield the user's pending signals (stored, but not accepted by the receiver) in order."""
        for _, signals in self._entries(owner):
            yield from signals

    def drain(self, owner: Owner) -> int:
        """Send a user's pending signals to the sink in order. Return the number of signals that the sink accepted.

        Raises:
            StoreUnavailableError: Another worker sends the user's signals.
            Exception: The sink failed. The remaining signals stay stored.
        """
        sent = 0
        if self._table.get(owner.partition, HEAD) is None:  # nothing was ever stored, or the user was erased
            return sent
        with self._leased(owner):
            for id_, signals in self._entries(owner):
                for signal in signals:
                    self._sink.send(signal)
                    sent += 1
                self._table.delete(owner.partition, id_)
            if self._table.get(owner.partition, HEAD) is not None:
                self._unlist(owner)
        return sent

    def _unlist(self, owner: Owner) -> None:
        self._table.delete(bucket_of(owner), owner.partition)
        if next(self.waiting(owner), None) is not None:  # stored between the last read and the delete
            self._table.put({"user_id": bucket_of(owner), "memory_id": owner.partition, "owner": owner.ids})

    @contextmanager
    def _leased(self, owner: Owner) -> Iterator[None]:
        now, holder = self._clock(), uuid.uuid4().hex
        item = {"user_id": owner.partition, "memory_id": LEASE, "holder": holder, "until": now + _LEASE_SECONDS}
        item["expires_at"] = int(now + 3600)
        if not self._table.put(item, when=Condition(absent=True, below={"until": now})):
            raise StoreUnavailableError("another worker sends this user's signals")
        try:
            yield
        finally:
            self._table.delete(owner.partition, LEASE, when=Condition(equals={"holder": holder}))

    def drain_all(self) -> int:
        """Send the pending signals of all users to the sink, and return the number of signals that the sink accepted.

        No agent needs to run. A user is skipped if another worker sends the user's signals, or if the sink fails.
        """
        sent = 0
        for bucket in range(BUCKETS):
            for item in list(self._table.query(f"spool/{bucket:02d}")):
                owner = Owner(item["owner"]["user"], item["owner"]["tenant"])
                try:
                    sent += self.drain(owner)
                except StoreError as error:
                    logger.debug("error=<%s> | a user's signals wait on", type(error).__name__)
                except Exception as error:  # noqa: BLE001 - a sink may raise anything; other users' signals must be sent
                    logger.warning("error=<%s> | a user's signals wait on", type(error).__name__)
        return sent


def bucket_of(owner: Owner) -> str:
    """Return the partition key under which the table lists a user whose preferences must still be sent to the sink."""
    return f"spool/{zlib.crc32(owner.partition.encode()) % BUCKETS:02d}"
