"""SessionSource: where sessions of other session managers are read, one conversation after the other."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.session.transfer import TransferredConversation, TransferredOrchestrator


@dataclass(frozen=True)
class Content:
    """What a source keeps of a conversation.

    Args:
        transferred: What is stored here; None if there is nothing worth it.
        notes: What cannot be taken over, and why, or what is remarkable; a sentence each, without a message's text.
    """

    transferred: TransferredConversation | TransferredOrchestrator | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A conversation that a source has.

    Args:
        session_id: The session, as the source calls it.
        id: The agent, or the Graph or Swarm.
        kind: Which of the two.
        read: Reads it. Raises ``CorruptRecordError``, which names the record, if it cannot be trusted.
    """

    session_id: str
    id: str
    kind: Literal["agent", "orchestrator"]
    read: Callable[[], Content]


class SessionSource(Protocol):
    """Where sessions are read. Nothing of it is ever changed."""

    def conversations(self) -> Iterator[Found]:
        """Yield what there is, damaged ones too, in any order.

        Raises:
            StoreUnavailableError: The source does not answer.
        """


def unreadable(session_id: str, id_: str, what: str, *, record: str) -> Found:
    """Return a conversation of which is known that it cannot be read."""

    def read() -> Content:
        raise damaged(record, what)

    return Found(session_id, id_, "agent", read)


def damaged(record: str, what: object) -> CorruptRecordError:
    """Return the error that a record of a source cannot be trusted."""
    return CorruptRecordError(f"record={record!r} is damaged: {what}", record=record)


def json_object(data: bytes | str, *, record: str) -> dict[str, Any]:
    """Return the JSON object that a record of a source holds.

    Raises:
        CorruptRecordError: It holds something else, or bytes that are not whole. Names ``record``.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(record, f"it is no JSON ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise damaged(record, f"it is a JSON {type(value).__name__}, not an object")
    _check_bytes(value, record=record)
    return value


def field_of(value: Mapping[str, Any], name: str, type_: type, *, record: str) -> Any:
    """Return a field of a record; raise ``CorruptRecordError`` naming ``record`` if it is missing or of another type."""
    found = value.get(name)
    if not isinstance(found, type_) or isinstance(found, bool):
        raise damaged(record, f"{name} is missing" if name not in value else f"{name} is a {type(found).__name__}")
    return found


def _check_bytes(value: object, *, record: str) -> None:
    """Look whether bytes that Strands wrote as base64 are whole; its own reader leaves out what is not.

    Raises:
        CorruptRecordError: They are not. Names ``record``.
    """
    if isinstance(value, dict):
        if value.get("__bytes_encoded__") is True and "data" in value:
            try:
                base64.b64decode(value["data"], validate=True)
            except (TypeError, ValueError) as error:
                raise damaged(record, "bytes in it are no base64") from error
        for item in value.values():
            _check_bytes(item, record=record)
    elif isinstance(value, list):
        for item in value:
            _check_bytes(item, record=record)


@contextmanager
def reading(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise ``StoreUnavailableError`` for the errors of a source's driver."""
    try:
        yield
    except errors as error:
        raise StoreUnavailableError(f"the source {what} cannot be read: {error}") from error
