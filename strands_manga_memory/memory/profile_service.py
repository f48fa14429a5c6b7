"""Connections to other services: user profiles are read, and stated preferences are reported.

A profile is read at session start within a deadline, and never written. A signal is the report of
one stated preference or retraction. A sink is the service that receives signals. The outbox sends
signals until the sink has accepted them.
"""

from __future__ import annotations

import contextvars
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter, ValidationError

from strands_manga_memory.arguments import Clock, PositiveSeconds, Text, checked, with_repr
from strands_manga_memory.exceptions import CorruptRecordError, StoreError, StoreUnavailableError
from strands_manga_memory.lifecycle import renew_in_child
from strands_manga_memory.memory.partition import UserPartition
from strands_manga_memory.memory.preference_log import BUCKETS, PreferenceLog
from strands_manga_memory.memory.records import INTERNAL, Owner
from strands_manga_memory.memory.statements import (
    PreferenceChange,
    PreferenceSignal,
    Removal,
    message_digest,
)
from strands_manga_memory.stores.codec import Codec, parsing
from strands_manga_memory.stores.table import Condition, Item, Table
from strands_manga_memory.stores.writer import Writer, shared_writer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile of a user in another service. A missing value is None or empty.

    Attributes:
        favorite_genres: Favorite genres, the most favorite first.
        language: Preferred language.
        purchase_summary: Description of the user's purchases.
        escalations: Number of conversations that were passed on to a human.
        last_updated: Time of the last change, in the format of the service.
    """

    favorite_genres: tuple[str, ...] = ()
    language: str | None = None
    purchase_summary: str | None = None
    escalations: int | None = None
    last_updated: str | float | None = None

    @property
    def preferences(self) -> dict[str, str]:
        """Values of the user's profile that an agent sees, keyed by subject such as ``genre``."""
        values = {
            "genre": ", ".join(self.favorite_genres),
            "language": self.language or "",
            "purchases": self.purchase_summary or "",
            "escalations": str(self.escalations) if self.escalations else "",
        }
        return {key: value for key, value in values.items() if value}


_PROFILES = TypeAdapter(Profile)


def profile_of(answer: Profile | Mapping[str, Any]) -> Profile:
    """Convert the answer of a profile service to a ``Profile``.

    Fields with a value of a wrong type are dropped.
    """
    found = vars(answer) if isinstance(answer, Profile) else answer
    # Sets of strings have no stable order.
    found = {
        name: sorted(value, key=str) if isinstance(value, set | frozenset) else value
        for name, value in found.items()
        if value is not None
    }
    try:
        return _PROFILES.validate_python(found)
    except ValidationError as error:
        wrong = {each["loc"][0] for each in error.errors()}
        logger.warning("fields=<%s> | dropped fields of a profile because of their types", wrong)
        return _PROFILES.validate_python(
            {name: value for name, value in found.items() if name not in wrong}
        )


class ProfileSource(Protocol):
    """Protocol of a source of user profiles, such as a customer database."""

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Return the profile of a user, or None if the user has no profile."""


_ATTRIBUTES: Mapping[str, str] = {
    "favorite_genres": "favorite_genres",
    "language": "language_pref",
    "purchase_summary": "purchase_history_summary",
    "escalations": "escalation_history",
    "last_updated": "last_updated",
}
"""Attribute names in a table, keyed by field of ``Profile``."""


@with_repr("_table")
class TableProfileSource:
    """Source that reads profiles from a table of another service.

    The attributes of the table are ``favorite_genres``, ``language_pref``,
    ``purchase_history_summary``, ``escalation_history`` and ``last_updated``. The purchase summary
    may be a text or a map, the escalation history a list or a number.

    Args:
        table: Table of the profiles. The table may have no sort key.
        sort: Sort key of a profile record. Default ``profile``.
        partition: Function from user id and tenant to the partition key. Default: the partition key
            that ``UserMemoryStore`` uses for the user's memories.
    """

    @checked
    def __init__(
        self,
        table: Table,
        *,
        sort: str = "profile",
        partition: Any = lambda user_id, tenant: Owner(user_id, tenant).partition,
    ) -> None:
        self._table = table
        self._sort = sort
        self._partition = partition

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Read the profile of a user in one request; None if the table has no profile of the user.

        Fields with a value of a wrong type are left out.

        Raises:
            StoreUnavailableError: The table is unavailable.
            CorruptRecordError: The profile is damaged.
        """
        partition, schema = self._partition(user_id, tenant), self._table.schema
        item = self._table.get(partition, self._sort)
        if item is None:
            return None
        if item.keys() <= {schema.partition, schema.sort}:
            name = f"{partition}/{self._sort}"
            raise CorruptRecordError(
                f"record={name!r} is damaged: it has only its key", record=name
            )
        found = {name: item.get(attribute) for name, attribute in _ATTRIBUTES.items()}
        found["purchase_summary"] = _summary_text(found["purchase_summary"])
        if isinstance(found["escalations"], list):
            found["escalations"] = len(found["escalations"])
        return profile_of(found)


def _summary_text(value: object) -> object:
    """Convert a purchase summary from a mapping to a text, such as ``total orders: 12``."""
    if not isinstance(value, Mapping):
        return value
    pairs = ((str(name).replace("_", " "), each) for name, each in value.items())
    parts = [f"{name}: {text}" for name, each in pairs if (text := _plain_text(each))]
    return ", ".join(parts) or None


def _plain_text(value: object) -> str:
    if isinstance(value, list | tuple):
        return " / ".join(filter(None, map(_plain_text, value)))
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return f"{value:g}" if is_number else value if isinstance(value, str) else ""


PROFILE_DEADLINE = 0.25
"""Most seconds that the start of an agent waits for a profile."""

_MAX_THREADS = 8


@with_repr("_source", "_deadline")
class ProfileReader:
    """Reader that gets profiles from a source within a deadline and logs the errors of the source.

    Args:
        source: Source of the profiles.
        deadline: Most seconds that a read may take. Default 0.25.

    Raises:
        ValueError: ``deadline`` is not above 0, or ``source`` has no method ``read``.
    """

    @checked
    def __init__(
        self, source: ProfileSource, *, deadline: PositiveSeconds = PROFILE_DEADLINE
    ) -> None:
        self._source = source
        self._deadline = min(deadline, threading.TIMEOUT_MAX)
        self.renew_after_fork()
        renew_in_child(self)

    @classmethod
    def wrap(
        cls, source: ProfileSource | None, *, deadline: float = PROFILE_DEADLINE
    ) -> ProfileReader | None:
        """Return a reader for a source of profiles, so that callers may pass a source or a reader.

        If ``source`` is a reader or None, it is returned unchanged.
        """
        if source is None or isinstance(source, cls):
            return source
        return cls(source, deadline=deadline)

    def renew_after_fork(self) -> None:
        """Discard pending reads in a forked process, as their threads exist only in the parent."""
        # of its own, so that a source that hangs delays no other work
        self._writer = Writer(threads=_MAX_THREADS)

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Read the profile of a user within the deadline.

        The result is None if the user has no profile. It is also None, with a warning in the log,
        if the source fails or is too slow.
        """
        error: BaseException | None = TimeoutError()
        if self._writer.backlog < _MAX_THREADS:  # a source that hangs holds all threads
            context = contextvars.copy_context()
            read = self._writer.submit(object(), lambda: context.run(self._answer, user_id, tenant))
            wait([read], self._deadline)
            error = read.exception() if read.done() else error
            if error is None:
                return read.result()
        logger.warning(
            "error=<%s> | failed to read the profile, continuing without it", type(error).__name__
        )
        return None

    def _answer(self, user_id: str, tenant: str | None) -> Profile | None:
        answer = self._source.read(user_id, tenant=tenant)
        return None if answer is None else profile_of(answer)


class PreferenceSink(Protocol):
    """Protocol of a sink: a service that receives signals, which report preferences of users.

    A sink gets the signals of a user in order, each signal at least once.
    """

    def send(self, signal: PreferenceSignal) -> None:
        """Send the report of a preference or retraction to the service.

        If the method raises an exception, the report is sent again later.
        """


@with_repr("_function")
class CallablePreferenceSink:
    """Sink that passes each signal (report of a preference) to a function.

    If the function raises an exception, the signal is sent again later.
    """

    @checked
    def __init__(self, function: Callable[[PreferenceSignal], object]) -> None:
        self._function = function

    def send(self, signal: PreferenceSignal) -> None:
        """Call the function of this sink with the report of a preference or retraction."""
        self._function(signal)


@with_repr("_table")
class TablePreferenceSink:
    """Sink that stores preferences in a memory table, one record for each subject.

    The latest message about a subject, such as ``genre``, wins, even if its signal arrives first.

    Args:
        table: Table of the schema ``USER_MEMORY``. A ``UserMemoryStore`` of this table returns the
            preferences.
        codec: Codec of content and metadata in the table.
    """

    @checked
    def __init__(self, table: Table, *, codec: Codec | None = None) -> None:
        self._table = table
        self._codec = codec

    def send(self, signal: PreferenceSignal) -> None:
        """Store a reported preference in the table.

        If ``signal`` reports a retracted message instead, delete all preferences of the message.
        """
        partition = UserPartition(
            self._table, signal.owner, codec=self._codec, clock=lambda: signal.at
        )
        log = PreferenceLog(partition)
        if signal.retracted:
            removal = Removal(signal.at, message=message_digest(signal.message_id or signal.id))
            log.apply(PreferenceChange(removals=[removal]))
        else:
            log.apply(PreferenceChange(statements=[signal.statement]))


@with_repr("_stream")
class KinesisPreferenceSink:
    """Sink that writes signals (reports of preferences) to an Amazon Kinesis data stream as JSON.

    The partition key of a signal is its user. Each signal is one request, because a batch that
    fails in part would change the order.

    Args:
        client: Client ``boto3.client("kinesis")`` without retries, because the outbox retries.
        stream_name: Name of the data stream.

    Raises:
        ValueError: ``client`` is no client of Kinesis, or ``stream_name`` is empty.
    """

    @checked
    def __init__(self, client: Any, *, stream_name: Text) -> None:
        if not hasattr(client, "put_record"):
            raise ValueError(f"client must be a client of Kinesis, got {client!r:.80}")
        self._client = client
        self._stream = stream_name

    def send(self, signal: PreferenceSignal) -> None:
        """Write the report of a preference or retraction to the data stream.

        Raises:
            StoreUnavailableError: The stream throttles, does not exist or is unavailable.
        """
        data = json.dumps(asdict(signal), ensure_ascii=False).encode()
        try:
            # A partition key has at most 256 characters; an owner's partition may have more.
            self._client.put_record(
                StreamName=self._stream, Data=data, PartitionKey=signal.owner.partition[-256:]
            )
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailableError(f"stream=<{self._stream}> | {error}") from error


LEASE = f"{INTERNAL}spool.lease"

_LEASE_SECONDS = 30.0
_LONGEST_WAIT = 60.0


@with_repr("_table", "_sink")
class PreferenceOutbox:
    """Sender of preference signals to another service (the sink), with retries.

    A signal reports a stated preference or a retraction. It is stored in the user's preference log,
    in the same write as the preference or retraction, and deleted after the sink has accepted it.
    Each signal is thus sent at least once. A lease lets only one worker at a time send the signals
    of a user, in the order of their numbers.

    Args:
        table: Table of the schema ``USER_MEMORY``.
        sink: Receiver of the signals.
        codec: Codec of the users' preferences in the table.
        clock: Function that returns seconds since 1970.
    """

    @checked
    def __init__(
        self,
        table: Table,
        sink: PreferenceSink,
        *,
        codec: Codec | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._table = table
        self._sink = sink
        self._codec = codec
        self._clock = clock
        self._writer = shared_writer(None, table)
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Discard scheduled retries in a forked process, because the parent process runs them."""
        self._waits: dict[Owner, float] = {}

    def log_of(self, owner: Owner) -> PreferenceLog:
        """Open the preference log of a user.

        The outbox reports later changes in this log, such as retractions, to the sink (the service
        that receives them).
        """
        partition = UserPartition(self._table, owner, codec=self._codec, clock=self._clock)
        return PreferenceLog(partition, send_later=self.send_later)

    def waiting(self, owner: Owner) -> tuple[PreferenceSignal, ...]:
        """Return the user's signals (reports of preferences) that the sink has not accepted yet.

        They are in the order of their numbers.
        """
        return self.log_of(owner).read().signals

    def send_later(self, owner: Owner) -> None:
        """Send a user's signals (reports of preferences) to the sink in the background.

        If a retry after a failure is scheduled, the retry sends them.
        """
        self._writer.submit((self, owner), lambda: self._send(owner))

    def _send(self, owner: Owner, *, is_retry: bool = False) -> None:
        if owner in self._waits and not is_retry:
            return
        try:
            self.drain(owner)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything; the signals stay
            logger.warning(
                "error=<%s> | failed to send preference signals, retrying", type(error).__name__
            )
            wait = self._waits[owner] = min(_LONGEST_WAIT, 2 * self._waits.get(owner, 0.1))
            # The exit does not wait for a sink that fails.
            self._writer.later((self, owner), wait, lambda: self._send(owner, is_retry=True))
        else:
            self._waits.pop(owner, None)

    def drain(self, owner: Owner) -> int:
        """Send a user's signals (reports of preferences) to the sink in the order of their numbers.

        The result is the number of accepted signals.

        Raises:
            StoreUnavailableError: Another worker sends the user's signals.
            Exception: The sink failed. The remaining signals stay stored.
        """
        log, total, is_done = self.log_of(owner), 0, False
        while not is_done:
            sent = list[str]()
            with self._leased(owner):
                waiting, end = log.read().signals, self._clock() + _LEASE_SECONDS / 2
                try:
                    for signal in waiting:
                        self._sink.send(signal)
                        sent.append(signal.id)
                        if self._clock() >= end:  # the rest needs a new lease
                            break
                finally:
                    if sent:
                        log.apply(PreferenceChange(sent=sent))
            total, is_done = total + len(sent), len(sent) == len(waiting)
        return total

    @contextmanager
    def _leased(self, owner: Owner) -> Iterator[None]:
        now, key = self._clock(), (owner.partition, LEASE)
        held = self._table.get(*key) or {}
        until, same = held.get("until"), {name: held.get(name) for name in ("holder", "until")}
        # A damaged lease may never expire. It holds no data of the user, so it is replaced.
        is_held = isinstance(until, int | float) and now <= until <= now + 2 * _LEASE_SECONDS
        lease = {"holder": uuid.uuid4().hex, "until": now + _LEASE_SECONDS}
        item: Item = {"user_id": key[0], "memory_id": key[1], "expires_at": int(now + 3600)}
        if is_held or not self._table.put(item | lease, when=Condition(absent=True, equals=same)):
            raise StoreUnavailableError("another worker sends this user's signals")
        try:
            yield
        finally:
            self._table.delete(*key, when=Condition(equals=lease))

    def drain_all(self) -> int:
        """Send the signals (reports of preferences) of all users to the sink, without an agent.

        The result is the number of signals that the sink accepted. A user is skipped if another
        worker sends the user's signals, or if the sink fails.
        """
        sent = 0
        for bucket in range(BUCKETS):
            for item in list(self._table.query(f"spool/{bucket:02d}")):
                try:
                    with parsing(f"spool/{bucket:02d}/{item['memory_id']}"):
                        owner = Owner(item["owner"]["user"], item["owner"]["tenant"])
                    sent += self.drain(owner)
                except Exception as error:  # noqa: BLE001 - a sink may raise anything; other users' signals must be sent
                    level = logging.DEBUG if isinstance(error, StoreError) else logging.WARNING
                    logger.log(level, "error=<%s> | a user's signals wait", type(error).__name__)
        return sent
