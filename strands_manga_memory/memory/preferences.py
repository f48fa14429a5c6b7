"""PreferenceSink: where preference signals go: to a stream, to a table, or to a function (mission B3)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.exceptions import StoreError, StoreUnavailableError
from strands_manga_memory.memory.partition import UserPartition
from strands_manga_memory.memory.records import MemoryRecord, Owner, preference_id
from strands_manga_memory.memory.retention import RETENTION, MemoryType
from strands_manga_memory.memory.store import preference_record
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreferenceSignal:
    """What a user was heard to prefer.

    Attributes:
        id: The same each time it is sent; for receivers who want it once.
        number: Counts the user's signals: a receiver that has a higher one of the same key leaves this one out.
        user_id: The user.
        tenant: The tenant, or None.
        key: What it is about.
        value: What is preferred.
        at: When it was said, in seconds since 1970.
        session_id: The session in which it was said, if any.
    """

    id: str
    number: int
    user_id: str
    tenant: str | None = None
    key: str
    value: str
    at: float
    session_id: str | None = None

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return Owner(self.user_id, self.tenant)


class PreferenceSink(Protocol):
    """Takes preference signals: one user's in order, each at least once."""

    def send(self, signal: PreferenceSignal) -> None:
        """Take a signal; raise if it was not taken, it is sent again later."""
        ...


class CallablePreferenceSink:
    """Hands signals to a function; if it raises, the signal is sent again later."""

    def __init__(self, function: Callable[[PreferenceSignal], object]) -> None:
        self._function = function

    def send(self, signal: PreferenceSignal) -> None:
        """Call the function."""
        self._function(signal)


class TablePreferenceSink:
    """Stores signals as the user's preferences: one record for each key, never an older one over a newer one.

    Args:
        table: A table of the schema ``USER_MEMORY``; that of ``UserMemoryStore`` makes them its preferences.
        codec: As of the store.
        clock: Seconds since 1970; by default a signal's own time counts.
    """

    def __init__(self, table: Table, *, codec: Codec | None = None, clock: Callable[[], float] | None = None) -> None:
        self._table = table
        self._codec = codec
        self._clock = clock

    def send(self, signal: PreferenceSignal) -> None:
        """Store the preference, unless a later signal of the same key is there."""
        now = signal.at if self._clock is None else self._clock()
        partition = UserPartition(self._table, signal.owner, codec=self._codec, clock=lambda: now)

        def newer(known: MemoryRecord | None) -> MemoryRecord | None:
            if known is not None and known.metadata.get("signal", 0) >= signal.number:
                return known
            return preference_record(
                signal.key,
                signal.value,
                now=now,
                known=known,
                importance=RETENTION[MemoryType.PREFERENCE].importance,
                metadata={"signal": signal.number, "session_id": signal.session_id},
            )

        partition.update(preference_id(signal.key), newer)


class KinesisPreferenceSink:
    """Puts signals on an Amazon Kinesis data stream, as JSON, with the user as partition key.

    One request a signal: a batch that fails in part would change the order.

    Args:
        client: ``boto3.client("kinesis")``, with its retries off, as they are done by whoever sends.
        stream_name: The stream.

    Raises:
        ValueError: ``stream_name`` is empty.
    """

    def __init__(self, client: Any, *, stream_name: str) -> None:
        if not stream_name:
            raise ValueError(f"stream_name must not be empty, got {stream_name!r}")
        self._client = client
        self._stream = stream_name

    def send(self, signal: PreferenceSignal) -> None:
        """Put the signal on the stream.

        Raises:
            StoreUnavailableError: The stream throttles, or does not answer.
            StoreError: It refuses the request for another reason.
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
            raise StoreUnavailableError(f"stream=<{self._stream}> | {type(error).__name__}") from error
