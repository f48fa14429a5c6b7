"""Checking: whether what was read from a tier is of the shape that this package stores. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.codec import load_stored

STATE_FIELDS = ("meta", "state.agent", "state.interrupts", "state.manager", "state.model", "state.multi")
"""Names of the fields that hold a conversation's states; each is written only when it changed."""

MOST = 10**12
"""A sequence number, version, count or time (in seconds) that is not below this was not stored by this package."""


def checked_message(record: bytes, name: str) -> tuple[dict[str, Any], Message]:
    """Return what a message's record holds, and the message.

    Raises:
        CorruptRecordError: It is no message that a model could be sent. Names ``name``.
    """
    data = load_stored(record, name)
    message: Any = data.get("message") if isinstance(data, dict) else None
    if message is None or not is_message(message):
        raise CorruptRecordError(f"record={name!r} is damaged: it holds no message", record=name)
    return data, message


def checked_number(value: object, name: str, what: str) -> int:
    """Return a whole number from 0 on; raise ``CorruptRecordError`` naming ``name`` if it is none."""
    if type(value) is not int or not 0 <= value < MOST:
        raise CorruptRecordError(f"record={name!r} is damaged: {what} is {value!r:.80}", record=name)
    return value


def checked_time(value: object, name: str, what: str) -> float:
    """Return a time in seconds; raise ``CorruptRecordError`` naming ``name`` if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and abs(value) < MOST):
        raise CorruptRecordError(f"record={name!r} is damaged: {what} is {value!r:.80}", record=name)
    return value


def checked_text(value: object, name: str, what: str) -> str:
    """Return a text; raise ``CorruptRecordError`` naming ``name`` if it is none."""
    if not isinstance(value, str):
        raise CorruptRecordError(f"record={name!r} is damaged: {what} is {value!r:.80}", record=name)
    return value


def checked_fields(fields: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return dumped states, and whatever a later version keeps beside them.

    Raises:
        CorruptRecordError: A state is no object with names. Names ``name``.
    """
    for field, data in fields.items():
        if field in STATE_FIELDS and not isinstance(load_stored(data, name), dict):
            raise CorruptRecordError(f"record={name!r} is damaged: {field} is no object", record=name)
    return dict(fields)


def is_message(message: Any) -> bool:
    """Tell whether a value is a message that a model could be sent, as far as this package relies on its shape."""
    return (
        isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("tracking_id", ""), str | None)
        and _is_marked(message.get("metadata"))
        and isinstance(message.get("content"), list)
        and all(map(_is_block, message["content"]))
    )


def _is_marked(metadata: object) -> bool:
    return metadata is None or (isinstance(metadata, dict) and isinstance(metadata.get("custom"), dict | None))


def _is_block(block: object) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("text", ""), str):
        return False
    for name in ("toolUse", "toolResult"):
        if name in block and not (isinstance(block[name], dict) and isinstance(block[name].get("toolUseId"), str)):
            return False
    results = block["toolResult"].get("content", []) if "toolResult" in block else []
    names = block["toolUse"].get("name") if "toolUse" in block else ""
    return isinstance(names, str) and isinstance(results, list) and all(map(_is_block, results))
