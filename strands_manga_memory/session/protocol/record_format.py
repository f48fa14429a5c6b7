"""Conversion of a conversation's record (its state) to stored JSON, and back.

A record is stored in parts. The hot tier has a field for each part, so that a save writes only the
parts that have changed. The durable tier has one JSON object with all parts. Each part is a JSON
object:

- ``head``: version, counters, known turns, and the history as references to messages.
- ``ended``: replaces all other parts if the record has no content, such as after a deletion.
- ``ids``: ids of session, user, tenant and agent.
- ``manager_state``: state of the conversation manager.
- ``redactions``: new contents of redacted messages.
- ``turn.<key>``: one turn.
- ``body.<key>.<index>``: edited version of one message of a turn.
- ``body.<number>``: one message that the conversation manager wrote.
- ``state.<hash>``: one named state value.

Small JSON is stored as text. It begins with the version of the format and a checksum, such as
``{"v3":"5e0c91aa",``. A codec with a key encrypts the JSON. Large JSON is compressed.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import count, islice, pairwise
from typing import Any

import orjson
from pydantic import TypeAdapter

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.session.protocol.record import (
    MAX_MESSAGES,
    Lengths,
    Record,
    Slot,
    StateValue,
    Turn,
    TurnKey,
    Window,
    keys_from_text,
    keys_to_text,
)
from strands_manga_memory.stores.codec import (
    VERSION,
    Codec,
    check_version,
    dump,
    json_bytes,
    json_value,
    parsing,
)

logger = logging.getLogger(__name__)

HEAD, ENDED = "head", "ended"
"""Names of a record's main part: ``head``, or ``ended`` in a record without content."""

_APART = ("ids", "manager_state", "redactions")
"""Fields of a record that have parts of their own."""

PLAIN_BYTES = 2048
"""Default size in bytes from which on a JSON object is compressed."""

_START = re.compile(rb'\{"v(\d{1,9})":"([0-9a-f]{8})",')


# Stored bytes


def seal_json(
    text: bytes, storage_key: str, codec: Codec, *, plain_bytes: int = PLAIN_BYTES
) -> bytes:
    """Convert the text of a JSON object to the bytes that a store keeps.

    Args:
        text: The object, which has at least one entry.
        storage_key: Key under which the object is stored. ``open_json`` needs the same key.
        codec: Encrypts the object if the codec has a key.
        plain_bytes: Size in bytes from which the object is compressed.
    """
    if codec.encrypts or len(text) >= plain_bytes:
        return codec.seal(text, storage_key)
    return b'{"v%d":"%08x",' % (VERSION, _checksum(text[1:], storage_key)) + text[1:]


def open_json(data: object, storage_key: str, codec: Codec) -> Any:
    """Convert stored bytes back to a JSON object: check, decrypt, decompress and parse them.

    Raises:
        CorruptRecordError: The bytes are damaged, or were stored under another key or in another
            version of the format.
        KeyMissingError: The bytes are encrypted with a key that the codec does not have.
    """
    if isinstance(data, bytes) and (start := _START.match(data)):
        check_version(int(start[1]), storage_key)
        codec.check_plain(storage_key)
        text = b"{" + data[start.end() :]
        if int(start[2], 16) != _checksum(text[1:], storage_key):
            raise CorruptRecordError(
                f"record={storage_key!r} is damaged: its checksum does not match",
                record=storage_key,
            )
    else:
        text = codec.unseal(data, storage_key)
    with parsing(storage_key):
        return json_value(text)


def _checksum(rest: bytes, storage_key: str) -> int:
    return zlib.crc32(rest, zlib.crc32(storage_key.encode()))


# Turns

_TURN, _STATE, _RECORD = TypeAdapter(Turn), TypeAdapter(StateValue), TypeAdapter(Record)


def turn_to_json(turn: Turn) -> bytes:
    """Convert a turn of a conversation to JSON text."""
    return _to_json(_TURN.dump_python(turn, exclude_defaults=True))


def turn_from_json(value: Any) -> Turn:
    """Convert the parsed JSON of ``turn_to_json`` back to a turn."""
    turn = _TURN.validate_python(value)
    if not len(turn.times) == len(turn.messages) > 0:
        raise ValueError(
            f"it must have a time for each of {len(turn.messages)} messages, got {len(turn.times)}"
        )
    return turn


def _to_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def open_turn(read: Callable[[], bytes], tier: str, storage_key: str, codec: Codec) -> Turn | None:
    """Convert stored bytes back to a turn. If they are damaged, log a warning and return None.

    ``read`` returns the bytes. ``tier`` is the tier's name, for the warning.

    Raises:
        KeyMissingError: The bytes are encrypted with a key that the codec does not have.
    """
    try:
        with parsing(storage_key):
            return turn_from_json(open_json(read(), storage_key, codec))
    except KeyMissingError:
        raise
    except CorruptRecordError:
        logger.warning("tier=<%s> | a turn of the log cannot be read and stays as it is", tier)
        logger.debug("record=<%s> | a turn of the log cannot be read", storage_key)
        return None


# Records


def _window_to_text(window: Window, seen: Lengths) -> str:
    """Convert an agent's history to text, such as ``:* +41.5c8e01f2:0* +9:1-``.

    The example has these entries (``keys_to_text`` explains the form of the turn keys):

    - ``:*``: a message that the conversation manager wrote. It belongs to no turn.
    - ``+41.5c8e01f2:0*``: the first message (0) of the turn with the time 41 and the tag
      ``5c8e01f2``. The message was edited (``*``).
    - ``+9:1-``: the next messages (``-``), up to and including the second one (1) of the turn with
      the time 50 (9 later).

    ``seen`` has the number of messages of each turn.
    """
    entries: list[tuple[TurnKey | None, str]] = []
    following, before = _following_messages(seen), Slot(None)
    for slot in window:
        is_next = slot == following.get(before[:2])
        if is_next and entries[-1][1].endswith("-"):
            entries.pop()
        number = "" if slot.key is None else slot.number
        mark = "-" if is_next else "" if slot.body is None else "*"
        entries.append((slot.key, f"{number}{mark}"))
        before = slot
    return keys_to_text(entries)


def _window_from_text(text: str, seen: Lengths, parts: Mapping[str, Any]) -> Iterator[Slot]:
    notes, following, slot = count(1), _following_messages(seen), Slot(None)
    for key, note in keys_from_text(text):
        if note.endswith("-"):
            last = key, int(note.removesuffix("-"))
            while slot[:2] != last:
                yield (slot := following[slot[:2]])
            continue
        slot = Slot(None) if note == "*" else Slot(key, int(note.removesuffix("*")))
        if note.endswith("*"):
            slot = slot._replace(body=json_bytes(parts[_body_part(slot, notes)]["body"]))
        yield slot


def _following_messages(seen: Lengths) -> dict[tuple[TurnKey | None, int], Slot]:
    known = [Slot(key, number) for key in sorted(seen) for number in range(seen[key])]
    return {before[:2]: after for before, after in pairwise(known)}


def _body_part(slot: Slot, notes: Iterator[int]) -> str:
    # ``notes`` numbers the messages that the conversation manager wrote, from 1.
    return f"body.{next(notes)}" if slot.key is None else f"body.{slot.key}.{slot.number}"


def record_to_parts(record: Record) -> dict[str, bytes]:
    """Convert the record of a conversation, without its turns, to the JSON texts of its parts."""
    apart = {"window", "turns", "states"}
    fields = _RECORD.dump_python(record, exclude=apart, exclude_defaults=True)
    fields |= {
        "version": list(record.version),
        "window": _window_to_text(record.window, record.seen),
    }
    parts: dict[str, Any] = {}
    for name, value in fields.items():
        part = ENDED if record.is_empty else name if name in _APART else HEAD
        parts.setdefault(part, {})[name] = value
    notes = count(1)
    for slot in record.window:
        if slot.body is not None:
            parts[_body_part(slot, notes)] = {"body": orjson.Fragment(slot.body)}
    for name, state in record.states.items():
        value = {"name": orjson.Fragment(dump(name)), **_STATE.dump_python(state)}
        parts[state_part(name)] = value
    return {name: _to_json(part) for name, part in parts.items()}


def record_from_parts(parts: Mapping[str, Any]) -> Record:
    """Build a record from its JSON parts, keyed by names such as ``head``.

    If the part of a turn or state is missing, the record lacks this turn or state.
    """
    fields = {name: one for part in parts if "." not in part for name, one in parts[part].items()}
    text = fields.pop("window")
    record = _RECORD.validate_python({**fields, "version": fields["version"]})
    window = tuple(islice(_window_from_text(text, record.seen, parts), MAX_MESSAGES + 1))
    if len(window) > MAX_MESSAGES:
        raise ValueError(f"the history has over {MAX_MESSAGES} messages")
    found = (part for name, part in parts.items() if name.startswith("state."))
    states = sorted((str(part["name"]), _STATE.validate_python(part)) for part in found)
    turns = {turn_key(name): part for name, part in parts.items()}
    return replace(
        record,
        window=window,
        states=dict(states),
        turns={key: turn_from_json(part) for key, part in turns.items() if key},
    )


def record_to_json(record: Record) -> bytes:
    """Convert the record of a conversation to one JSON object of all its parts."""
    parts = record_to_parts(record)
    parts |= {turn_part(key): turn_to_json(turn) for key, turn in record.turns.items()}
    return _to_json({name: orjson.Fragment(text) for name, text in parts.items()})


def turn_part(key: TurnKey) -> str:
    """Return the name of the part of a record that contains the turn ``key``."""
    return f"turn.{key}"


def turn_key(part: str) -> TurnKey | None:
    """Return the turn key in a part's name, such as ``turn.<key>``; None for other names."""
    return TurnKey.parse(part.removeprefix("turn.")) if part.startswith("turn.") else None


def state_part(name: str) -> str:
    """Return the name of the part of a record that contains the state value ``name``."""
    return f"state.{blake2b(dump(name), digest_size=8).hexdigest()}"
