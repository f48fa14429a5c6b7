"""PreferenceSink: where preference signals go: to a stream, to a table, or to a function."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.exceptions import StoreError, StoreUnavailableError
from strands_manga_memory.language.preference_slots import Preference
from strands_manga_memory.memory.preferences.preference_log import PreferenceLog
from strands_manga_memory.memory.preferences.statements import Statement
from strands_manga_memory.memory.records.memory_records import Owner
from strands_manga_memory.memory.records.partition import UserPartition
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreferenceSignal:
    """What a user was heard to prefer, or that it is taken back.

    Attributes:
        id: The same each time it is sent; for receivers who want it once.
        number: Counts the user's signals: a receiver that has a higher one of the same key leaves this one out.
        user_id: The user.
        tenant: The tenant, or None.
        key: The slot it belongs to, such as ``genre``; empty: a statement that belongs to none.
        value: What is preferred.
        at: When it was said, in seconds since 1970.
        session_id: The session in which it was said, if any.
        liked: False: it is not wanted; None: it was wanted once, and is no more.
        adds: It stands beside earlier values of the slot; else it takes their place.
        message_id: The message that said it, if it is known.
        taken_back: The message was redacted: what it said is to be deleted. Key and value are empty.
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
    taken_back: bool = False

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return Owner(self.user_id, self.tenant)


def signals_of(owner: Owner, number: int, bodies: Sequence[Mapping[str, Any]]) -> list[PreferenceSignal]:
    """Return the signals that a spool's entry holds: the first has its number."""
    with trusted(f"{owner.partition}/{number}"):
        return [
            PreferenceSignal(number=number + at, user_id=owner.user_id, tenant=owner.tenant, **body)
            for at, body in enumerate(bodies)
        ]


class PreferenceSink(Protocol):
    """Takes preference signals: one user's in order, each at least once."""

    def send(self, signal: PreferenceSignal) -> None:
        """Take a signal; raise if it was not taken, it is sent again later."""


class CallablePreferenceSink:
    """Hands signals to a function; if it raises, the signal is sent again later."""

    def __init__(self, function: Callable[[PreferenceSignal], object]) -> None:
        self._function = function

    def send(self, signal: PreferenceSignal) -> None:
        """Call the function."""
        self._function(signal)


class TablePreferenceSink:
    """Stores signals as the user's preferences: one record for each slot, never an older message over a newer one.

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
        """Store the preference, or delete the preferences of its message; the time of the message decides, not the arrival."""
        at = signal.at if self._clock is None else self._clock()
        log = PreferenceLog(UserPartition(self._table, signal.owner, codec=self._codec, clock=lambda: at))
        source = signal.message_id or signal.id
        if signal.taken_back:
            log.retract(source, at)
        else:
            said = Preference(signal.key, signal.value, signal.liked, signal.adds)
            log.learn([Statement(said, at, source, signal.session_id)])


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
            raise ValueError(f"stream_name must not be empty, got {stream_name!r:.80}")
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
            raise StoreUnavailableError(f"stream=<{self._stream}> | {error}") from error
