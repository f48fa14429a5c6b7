"""Preference signals, their sinks, and the outbox that stores them until a sink has accepted them."""

from __future__ import annotations

import json
import logging
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.exceptions import PersonalDataError, StoreError, StoreUnavailableError
from strands_manga_memory.forks import renew_in_child
from strands_manga_memory.language.preferences import Preference
from strands_manga_memory.memory.partition import UserPartition, not_erased_since, repeat_until_written
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.preference_log import PreferenceLog, erased_at
from strands_manga_memory.memory.preferences.statements import Removal, Statement, message_digest
from strands_manga_memory.memory.records import ERASED, INTERNAL, Owner, place_of
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table, Write
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreferenceSignal:
    """Preference of a user, or the retraction of a message.

    Attributes:
        id: Unique id, equal in repeated deliveries.
        number: Sequence number of the user's signals. A receiver that has a higher one of the same key ignores the
            signal.
        user_id: The user.
        tenant: The tenant, or None.
        key: Slot of the preference, such as ``genre``; empty for a statement without a slot.
        value: Preferred value.
        at: Time of the message, in seconds since 1970.
        session_id: Session of the message, or None.
        liked: False: the user rejects the value; None: an earlier value no longer applies.
        adds: Whether the value is added to earlier values of the slot; otherwise it replaces them.
        message_id: Id of the message, or None.
        retracted: Whether the message was redacted and its preferences must be deleted. Key and value are then empty.
    """

    id: str
    number: int
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
        """User of the signal."""
        return Owner(self.user_id, self.tenant)

    @property
    def statement(self) -> Statement:
        """Preference with the time of its message, and the id of the message or else of the signal."""
        preference = Preference(self.key, self.value, self.liked, self.adds)
        return Statement(preference, self.at, self.message_id or self.id, self.session_id)


_OF_ENTRY = ("number", "user_id", "tenant")
"""Attributes of signals that an entry does not repeat, because its key has them."""


class PreferenceSink(Protocol):
    """Receiver of preference signals. It gets the signals of a user in order, each at least once."""

    def send(self, signal: PreferenceSignal) -> None:
        """Accept a signal. An exception means that it is sent again later."""


class CallablePreferenceSink:
    """Sink that calls a function. If the function raises, the signal is sent again later."""

    def __init__(self, function: Callable[[PreferenceSignal], object]) -> None:
        self._function = function

    def send(self, signal: PreferenceSignal) -> None:
        """Call the function."""
        self._function(signal)


class TablePreferenceSink:
    """Sink that stores signals as the user's preferences, one record per slot. Older messages never override newer ones.

    Args:
        table: A table of the schema ``USER_MEMORY``. In the table of a ``UserMemoryStore`` they become its preferences.
        codec: Codec of the store.
        clock: Seconds since 1970. Default: the time of each signal.
    """

    def __init__(self, table: Table, *, codec: Codec | None = None, clock: Callable[[], float] | None = None) -> None:
        self.table = table
        self._codec = codec
        self._clock = clock

    def send(self, signal: PreferenceSignal) -> None:
        """Store a preference, or delete the preferences of a message. The time of the message decides, not the arrival."""
        self.send_together([signal])

    def send_together(self, signals: Sequence[PreferenceSignal]) -> None:
        """Store the signals of one message in three requests, more for a retraction."""
        at = signals[0].at if self._clock is None else self._clock()
        log = PreferenceLog(UserPartition(self.table, signals[0].owner, codec=self._codec, clock=lambda: at))
        for signal in signals:
            if signal.retracted:
                log.retract(signal.message_id or signal.id, at)
        log.learn([replace(each.statement, at=at) for each in signals if not each.retracted])


class KinesisPreferenceSink:
    """Sink that writes signals to an Amazon Kinesis data stream, as JSON, with the user as partition key.

    One request per signal, because a batch that fails in part would change the order.

    Args:
        client: ``boto3.client("kinesis")`` without retries; the outbox retries.
        stream_name: The stream.

    Raises:
        ValueError: ``stream_name`` is empty.
    """

    def __init__(self, client: Any, *, stream_name: str) -> None:
        if not stream_name:
            raise ValueError(f"stream_name must not be empty, got {stream_name!r:.80}")
        self._client = client
        self._stream = stream_name

    def send(self, signal: PreferenceSignal) -> None:
        """Write a signal to the stream.

        Raises:
            StoreUnavailableError: The stream throttles or is unavailable.
            StoreError: The stream rejects the request.
        """
        data = json.dumps(asdict(signal), ensure_ascii=False).encode()
        try:
            # A partition key has at most 256 characters; an owner's partition may have more.
            self._client.put_record(StreamName=self._stream, Data=data, PartitionKey=signal.owner.partition[-256:])
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            refused = code in (
                "ResourceNotFoundException",
                "InvalidArgumentException",
                "AccessDeniedException",
                "ValidationException",
            )
            raise (StoreError if refused else StoreUnavailableError)(
                f"stream=<{self._stream}> | {code or 'unknown error'}"
            ) from error
        except BotoCoreError as error:
            raise StoreUnavailableError(f"stream=<{self._stream}> | {error}") from error


HEAD, ENTRY, LEASE = f"{INTERNAL}spool", f"{INTERNAL}spool#", f"{INTERNAL}spool.lease"
BUCKETS = 16
"""Number of partitions that list users with pending signals. Encoded user ids contain no slash, so they differ from users'."""

_LEASE_SECONDS = 30.0
_LONGEST_WAIT = 60.0


class PreferenceOutbox:
    """Stores each user's signals in the memory table, numbered, until the sink has accepted them in that order.

    A signal is stored before it is sent and deleted afterwards, so it is sent at least once. If the sink fails, it
    waits. Numbers come from the table, not from clocks, so workers agree on the order. A lease lets one worker at a
    time send a user's signals. For a ``TablePreferenceSink`` of the same table, signals become preferences at once.

    Args:
        table: A table of the schema ``USER_MEMORY``.
        sink: Receiver of the signals.
        pii: Policy for personal data in signals. Default ``PiiPolicy()``.
        codec: Codec of pending signals.
        clock: Seconds since 1970.
        drained: Called with a user whose signals were sent, and whether one was a retraction; once per run, even if the
            sink failed at the last one.
    """

    def __init__(
        self,
        table: Table,
        sink: PreferenceSink,
        *,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
        drained: Callable[[Owner, bool], None] = lambda owner, is_removal: None,
    ) -> None:
        self._table = table
        self._sink = sink
        self._is_direct = isinstance(sink, TablePreferenceSink) and sink.table is table
        self._pii = pii or PiiPolicy()
        self._codec = codec or Codec()
        self._memory_codec = codec
        self._clock = clock
        self._drained = drained
        self._writer = shared_writer(None, table)
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Reset the state, also in the child of a fork: unsaved signals belong to the parent."""
        self._unstored: dict[Owner, deque[Sequence[PreferenceSignal]]] = {}
        self._waits: dict[tuple[Owner, str], float] = {}
        self._put_off: set[tuple[Owner, str]] = set()

    def emit(
        self,
        owner: Owner,
        preferences: Sequence[Preference],
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Store and send the preferences of a message in the background, in the order of the calls.

        Args:
            owner: The user.
            preferences: The preferences.
            message_id: ``tracking_id`` of the message.
            session_id: Session of the message.
            at: Time of the message, in seconds since 1970. Default: now.
        """
        at = self._clock() if at is None else at
        self._submit(owner, [_signal(owner, each, at, message_id, session_id) for each in preferences])

    def drop(self, owner: Owner, removal: Removal) -> None:
        """Drop pending signals that a removal voids, in the background."""
        self._writer.submit(("spool", owner), lambda: self._drop(owner, removal))

    def retract(self, owner: Owner, message_id: str, *, at: float | None = None, is_stored: bool = False) -> None:
        """Drop the pending signals of a message and send a retraction to the sink, in the background.

        Args:
            owner: The user.
            message_id: ``tracking_id`` of the message.
            at: Time of the retraction, in seconds since 1970. Default: now.
            is_stored: Whether the table of the outbox has the retraction already. Default False.
        """
        if is_stored and self._is_direct:
            return
        at = self._clock() if at is None else at
        signal = _signal(owner, Preference("", ""), at, message_id, None)
        self._submit(owner, [replace(signal, retracted=True)])

    # On the writer, one user's work in order

    def _submit(self, owner: Owner, signals: Sequence[PreferenceSignal]) -> None:
        def enqueue() -> None:
            self._unstored.setdefault(owner, deque()).append(signals)
            self._run(owner)

        self._writer.submit(("spool", owner), enqueue)

    def _run(self, owner: Owner) -> None:
        if self._is_done(owner, "store", self._store_unstored) and not self._is_direct:
            self._is_done(owner, "send", self.drain)

    def _is_done(self, owner: Owner, what: str, work: Callable[[Owner], object]) -> bool:
        """Return whether ``work`` succeeded. After a failure it waits for its retry, each time twice as long."""
        task = (owner, what)
        if task in self._put_off:
            return False
        try:
            work(owner)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything; the signals stay
            logger.warning("error=<%s> | failed to %s preference signals, retrying", type(error).__name__, what)
        else:
            self._waits.pop(task, None)
            return True

        def again() -> None:
            self._put_off.discard(task)
            self._run(owner)

        wait = self._waits[task] = min(_LONGEST_WAIT, 2 * self._waits.get(task, 0.1))
        self._put_off.add(task)
        self._writer.later((self, *task), wait, lambda: self._writer.submit(("spool", owner), again))
        return False

    def _store_unstored(self, owner: Owner) -> None:
        unstored = self._unstored.get(owner, deque())
        while unstored:
            try:
                self._accept(owner, unstored[0])
            except StoreError:
                raise
            except BaseException:
                unstored.popleft()  # otherwise it would block the following ones
                raise
            unstored.popleft()
        self._unstored.pop(owner, None)

    def _accept(self, owner: Owner, signals: Sequence[PreferenceSignal]) -> None:
        """Store the signals of a message, in the table of the sink itself if that is the table of the outbox."""
        cleaned = []
        for signal in signals:
            try:
                cleaned.append(self._cleaned(signal))
            except PersonalDataError as error:
                logger.debug("error=<%s> | a preference signal was refused", type(error).__name__)
        if not isinstance(self._sink, TablePreferenceSink) or not self._is_direct:
            self._store(owner, cleaned)
        elif cleaned:
            self._sink.send_together(cleaned)
            self._drained(owner, any(signal.retracted for signal in cleaned))

    def _cleaned(self, signal: PreferenceSignal) -> PreferenceSignal:
        key, value = (self._pii.applied(text, place=signal.owner.partition) for text in (signal.key, signal.value))
        return replace(signal, key=key, value=value)

    def store(
        self,
        owner: Owner,
        preference: Preference,
        *,
        at: float,
        message_id: str | None = None,
        session_id: str | None = None,
    ) -> PreferenceSignal:
        """Store a signal under the user's next number; ``drain`` sends it.

        Raises:
            PersonalDataError: The policy refuses the signal.
            StoreUnavailableError: The table is unavailable.
            ConflictError: Other writers keep storing signals of the user.
        """
        return self._store(owner, [self._cleaned(_signal(owner, preference, at, message_id, session_id))])[0]

    def _store(self, owner: Owner, signals: Sequence[PreferenceSignal]) -> list[PreferenceSignal]:
        """Store the signals of a message as one entry, in one write.

        Preferences that were deleted since, or stated before the user was erased, are left out.
        """
        log = PreferenceLog(UserPartition(self._table, owner, codec=self._memory_codec, clock=self._clock))
        valid, erased = log.admitted([signal.statement for signal in signals if not signal.retracted])
        kept = [each for each in signals if (each.at > erased_at(erased) if each.retracted else each.statement in valid)]
        for signal in kept:
            if signal.retracted:
                self._drop(owner, Removal(signal.at, message=message_digest(signal.message_id or signal.id)))

        def attempt() -> list[PreferenceSignal] | None:
            head = self._table.get(owner.partition, HEAD)
            with trusted(place_of(owner, HEAD)):
                number = 1 if head is None else int(head["next"])
            when = ABSENT if head is None else Condition(equals={"next": number})
            writes = [
                Write(item={"user_id": owner.partition, "memory_id": HEAD, "next": number + len(kept)}, when=when),
                Write(item=self._item(owner, number, kept)),
                Write(item={"user_id": bucket_of(owner), "memory_id": owner.partition, "owner": owner.ids}),
                not_erased_since(owner.partition, erased),
            ]
            if self._table.transact(writes):
                return [replace(signal, number=number + at) for at, signal in enumerate(kept)]
            if self._table.get(owner.partition, ERASED) != erased:
                return self._store(owner, signals)
            return None

        return repeat_until_written(attempt, record=place_of(owner, HEAD)) if kept else []

    def _item(self, owner: Owner, number: int, signals: Sequence[PreferenceSignal]) -> Item:
        id_ = f"{ENTRY}{number:012d}"
        bodies = [{name: value for name, value in asdict(each).items() if name not in _OF_ENTRY} for each in signals]
        return {"user_id": owner.partition, "memory_id": id_, "data": self._codec.encode(bodies, place_of(owner, id_))}

    def _drop(self, owner: Owner, removal: Removal) -> None:
        """Remove pending signals that a removal voids. A signal that another worker is sending is retracted by the next one."""
        for number, signals in list(self._entries(owner)):
            kept = [each for each in signals if each.retracted or not removal.voids(each.statement)]
            if not kept:
                self._table.delete(owner.partition, f"{ENTRY}{number:012d}")
            elif len(kept) < len(signals):
                self._table.put(self._item(owner, number, kept), when=Condition(equals={"memory_id": f"{ENTRY}{number:012d}"}))

    def _entries(self, owner: Owner) -> Iterator[tuple[int, list[PreferenceSignal]]]:
        for item in self._table.query(owner.partition, first=ENTRY, last=f"{ENTRY}~"):
            place = place_of(owner, item["memory_id"])
            with trusted(place):
                number, bodies = int(item["memory_id"].removeprefix(ENTRY)), self._codec.decode(item["data"], place)
                found = [
                    PreferenceSignal(number=number + at, user_id=owner.user_id, tenant=owner.tenant, **body)
                    for at, body in enumerate(bodies)
                ]
            yield number, found

    def waiting(self, owner: Owner) -> Iterator[PreferenceSignal]:
        """Yield the user's pending signals in order."""
        for _, signals in self._entries(owner):
            yield from signals

    def drain(self, owner: Owner) -> int:
        """Send pending signals in order; return the number of accepted ones.

        Raises:
            StoreUnavailableError: Another worker sends the user's signals.
            Exception: Any error of the sink; the remaining signals stay.
        """
        sent, is_removal = 0, False
        if self._table.get(owner.partition, HEAD) is None:  # nothing was ever stored, or the user was erased
            return sent
        with self._leased(owner):
            try:
                for number, signals in self._entries(owner):
                    for signal in signals:
                        self._sink.send(signal)
                        sent += 1
                        is_removal = is_removal or signal.retracted
                    self._table.delete(owner.partition, f"{ENTRY}{number:012d}")
            finally:
                if sent:
                    self._drained(owner, is_removal)
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
        """Send pending signals of all users, including those who do not return; return the number of accepted ones."""
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


def _signal(
    owner: Owner, preference: Preference, at: float, message_id: str | None, session_id: str | None
) -> PreferenceSignal:
    """Return a signal that is not numbered yet."""
    return PreferenceSignal(
        id=uuid.uuid4().hex,
        number=0,
        user_id=owner.user_id,
        tenant=owner.tenant,
        key=preference.slot,
        value=preference.value,
        at=at,
        session_id=session_id,
        liked=preference.liked,
        adds=preference.adds,
        message_id=message_id,
    )


def bucket_of(owner: Owner) -> str:
    """Return the partition that lists a user while signals are pending."""
    return f"spool/{zlib.crc32(owner.partition.encode()) % BUCKETS:02d}"
