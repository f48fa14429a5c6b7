"""Conversion of a conversation's record (its state) to the stored form, and back.

The stored form is JSON text. Large text is compressed, and a codec with a key encrypts the text.
JSON that is neither compressed nor encrypted begins with an entry for its checksum. The key of this
entry is the version of the stored form, such as ``v3``.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby, islice
from typing import Any, NamedTuple

import orjson

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.session.protocol.record import (
    Lengths,
    Record,
    Replacement,
    Slot,
    StateValue,
    Turn,
    TurnKey,
    Version,
)
from strands_manga_memory.stores.codec import (
    VERSION,
    Codec,
    check_version,
    dump,
    json_bytes,
    json_value,
    load,
    parsing,
)

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]
"""Type of a JSON object."""

PLAIN_BYTES = 2048
"""Size in bytes from which a JSON object is usually compressed."""

_USUAL_LENGTH = 2  # a question and its answer
MAX_MESSAGES = 200_000
"""Maximum number of messages in a history. A record with more messages is damaged."""

_HEAD = b'{"v%d":"' % VERSION
_ANY_HEAD = re.compile(rb'\{"v(\d{1,9})":"[0-9a-f]{8}"')
_HEAD_BYTES = len(_HEAD) + 8 + len(b'",')


def seal_object(
    value: JsonObject, storage_key: str, codec: Codec, *, plain_bytes: int = PLAIN_BYTES
) -> bytes:
    """Convert a JSON object to the bytes that a store keeps.

    A codec with a key encrypts the bytes. Large objects are compressed. Other objects are plain
    JSON with a checksum.

    Args:
        value: The object, whose values are JSON or ``RawJson``.
        storage_key: Key under which the object is stored. ``open_object`` needs the same key.
        codec: Encrypts the object, and compresses large objects.
        plain_bytes: Size in bytes from which the object is compressed.
    """
    text = json_of(value)
    if codec.encrypts or len(text) >= plain_bytes:
        return codec.seal(text, storage_key)
    rest = text[1:]
    return b"".join((_HEAD, _checksum(rest, storage_key), b'",' if len(rest) > 1 else b'"', rest))


def open_object(data: object, storage_key: str, codec: Codec) -> JsonObject:
    """Convert stored bytes back to a JSON object: check, decrypt and decompress them.

    Args:
        data: The bytes.
        storage_key: Key under which the bytes are stored.
        codec: Decrypts and decompresses the bytes.

    Raises:
        CorruptRecordError: The bytes are damaged, or were stored under another key or in another
            version of the format.
        KeyMissingError: The bytes are encrypted with a key that the codec does not have.
    """
    if isinstance(data, bytes) and (head := _ANY_HEAD.match(data)):
        check_version(int(head[1]), storage_key)
        codec.check_plain(storage_key)
        rest = data[_HEAD_BYTES:] if data[len(_HEAD) + 8 :] != b'"}' else b"}"
        if data[len(_HEAD) : len(_HEAD) + 8] != _checksum(rest, storage_key):
            raise CorruptRecordError(
                f"record={storage_key!r} is damaged: its checksum does not match",
                record=storage_key,
            )
        text = b"{" + rest
    else:
        text = codec.unseal(data, storage_key)
    with parsing(storage_key):
        found = json_value(text)
        if not isinstance(found, dict):
            raise ValueError(f"it must be a JSON object, got {type(found).__name__}")
        return found


def is_text(data: bytes) -> bool:
    """Return whether a table can store the bytes of a JSON object as readable text.

    The result is False for compressed or encrypted bytes, and for JSON with invalid Unicode
    characters.
    """
    if not data.startswith(_HEAD) or b"\\ud" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:  # half a character of UTF-16 in a text
        return False
    return True


def json_of(value: JsonObject) -> bytes:
    """Convert a JSON object to JSON text in bytes.

    A value of the type ``RawJson`` is JSON text already, and is inserted unchanged.
    """
    try:
        return orjson.dumps(value, default=_raw_fragment)
    except TypeError:  # half a character of UTF-16 in a text, or more levels than the encoder takes
        return json_bytes(_with_parsed_json(value))


class RawJson(NamedTuple):
    """JSON text that is inserted unchanged into a larger JSON object."""

    text: bytes


def _raw_fragment(value: object) -> orjson.Fragment:
    if isinstance(value, RawJson):
        return orjson.Fragment(value.text)
    raise TypeError


def _with_parsed_json(value: Any) -> Any:
    if isinstance(value, RawJson):
        return json_value(value.text)
    if isinstance(value, Mapping):
        return {name: _with_parsed_json(item) for name, item in value.items()}
    return [_with_parsed_json(item) for item in value] if isinstance(value, list | tuple) else value


def _checksum(rest: bytes, storage_key: str) -> bytes:
    return b"%08x" % zlib.crc32(rest, zlib.crc32(storage_key.encode()))


# Messages, turns and state entries


def turn_to_json(key: TurnKey, turn: Turn) -> JsonObject:
    """Convert a turn of a conversation, and its key, to a JSON object for storage."""
    value: JsonObject = {
        "turn": str(key),
        "messages": [RawJson(message) for message in turn.messages],
        "times": [round(at, 3) for at in turn.times],
    }
    if turn.redacted:
        value["redacted"] = {str(at): times for at, times in sorted(turn.redacted.items())}
    if turn.is_open:
        value["open"] = True
    return value | ({"about": dict(turn.about)} if turn.about else {})


def turn_from_json(value: JsonObject) -> tuple[TurnKey, Turn]:
    """Convert a stored JSON object back to a turn and its key."""
    messages, times = tuple(map(json_bytes, value["messages"])), tuple(map(float, value["times"]))
    if len(times) != len(messages):
        raise ValueError(
            f"it must have a time for each of {len(messages)} messages, got {len(times)}"
        )
    redacted = {int(at): int(revision) for at, revision in value.get("redacted", {}).items()}
    about = dict(value.get("about", {}))
    return TurnKey.parse(value["turn"]), Turn(
        messages, times, redacted, bool(value.get("open")), about
    )


def open_turn(read: Callable[[], bytes], tier: str, storage_key: str, codec: Codec) -> Turn | None:
    """Convert stored bytes back to a turn. If they are damaged, log a warning and return None.

    Args:
        read: Function that returns the bytes.
        tier: Name of the tier, for the warning.
        storage_key: Key under which the bytes are stored.
        codec: Decrypts and decompresses the bytes.

    Raises:
        KeyMissingError: The bytes are encrypted with a key that the codec does not have.
    """
    try:
        with parsing(storage_key):
            return turn_from_json(open_object(read(), storage_key, codec))[1]
    except KeyMissingError:
        raise
    except CorruptRecordError:
        logger.warning("tier=<%s> | a turn of the log cannot be read and stays as it is", tier)
        logger.debug("record=<%s> | a turn of the log cannot be read", storage_key)
        return None


def state_to_json(name: str, entry: StateValue) -> JsonObject:
    """Convert a named state value and its version to a JSON object for storage."""
    return {"name": name, "version": list(entry.version), "value": RawJson(dump(entry.value))}


def state_from_json(value: JsonObject) -> tuple[str, StateValue]:
    """Convert the JSON object of ``state_to_json`` back to a name and a state value."""
    return str(value["name"]), StateValue(
        version_from_json(value["version"]), load(json_bytes(value["value"]))
    )


def version_from_json(value: Sequence[Any]) -> Version:
    """Convert a stored JSON list back to the version of a record."""
    time, tag, minor = value
    return Version(int(time), str(tag), int(minor))


# Records


_NUMBERS: dict[str, type[int] | type[float]] = {
    "incarnation": int,
    "deleted_below": int,
    "last_rewind": int,
    "last_used": float,
    "created": float,
    "turn_count": int,
    "message_count": int,
}
"""Type of each number of a record, keyed by field name."""


def record_to_json(record: Record, held: Lengths) -> JsonObject:
    """Convert the record of a conversation, without its turns, to a JSON object.

    The entry ``seen`` has the number of messages of each turn. It omits a turn if all its messages
    are stored next to the JSON, because a reader can count them. The entry ``bodies`` has the
    messages of the history that no turn contains: edited messages, and messages that the
    conversation manager wrote.

    Args:
        record: The record.
        held: Number of messages of each turn that are stored next to the JSON.
    """
    # The author has seen all turns that are stored with the record, also old ones.
    lengths = {
        key: record.seen.get(key, held.get(key, 0))
        for key in record.seen.keys() | record.shown_keys | held.keys()
    }
    bodies = [slot for slot in record.window if slot.body is not None]
    notes = (slot for slot in bodies if slot.key is None)
    named = {_edit_field(slot.key, slot.number): slot for slot in bodies if slot.key}
    named |= {f"note.{number}": slot for number, slot in enumerate(notes, 1)}
    parts = {
        "ids": dict(record.ids),
        # only the keys
        "unlogged": lengths_to_text(dict.fromkeys(record.unlogged, _USUAL_LENGTH)),
        "redactions": redactions_to_json(record.redactions),
        "window": window_to_text(record.window, _numbered(held, lengths), lengths),
        "seen": lengths_to_text(
            {key: length for key, length in lengths.items() if held.get(key) != length}
        ),
        "removed": lengths_to_text(record.removed),
        "closed": record.is_closed,
        "states": [state_to_json(name, state) for name, state in sorted(record.states.items())],
        "bodies": {name: RawJson(slot.body) for name, slot in named.items()},
    }
    value = {"version": list(record.version), **{name: getattr(record, name) for name in _NUMBERS}}
    if record.manager_state is not None:
        value["manager"] = record.manager_state
    return value | {name: part for name, part in parts.items() if part}


def record_from_json(value: JsonObject, held: Lengths) -> Record:
    """Convert the JSON object of ``record_to_json`` back to the record of a conversation.

    The result lacks the turns, which are stored next to the JSON. ``held`` has the number of stored
    messages of each of these turns.
    """
    lengths = {**held, **lengths_from_text(value.get("seen", ""))}
    bodies = {name: json_bytes(body) for name, body in value.get("bodies", {}).items()}
    numbers: JsonObject = {name: kind(value[name]) for name, kind in _NUMBERS.items()}
    return Record(
        version=version_from_json(value["version"]),
        window=window_from_text(value.get("window", ""), _numbered(held, lengths), lengths, bodies),
        manager_state=value.get("manager"),
        seen={key: length for key, length in lengths.items() if length},
        removed=lengths_from_text(value.get("removed", "")),
        states=dict(map(state_from_json, value.get("states", ()))),
        redactions=redactions_from_json(value.get("redactions", {})),
        unlogged=set(lengths_from_text(value.get("unlogged", ""))),
        ids={str(name): str(found) for name, found in value.get("ids", {}).items()},
        is_closed=bool(value.get("closed")),
        **numbers,
    )


def whole_record_to_json(record: Record) -> JsonObject:
    """Convert a conversation's record (its state) to one JSON object with all its content."""
    turns = sorted(record.turns.items())
    value = record_to_json(record, {key: len(turn.messages) for key, turn in turns})
    return value | ({"turns": [turn_to_json(key, turn) for key, turn in turns]} if turns else {})


def whole_record_from_json(value: JsonObject) -> Record:
    """Convert JSON of ``whole_record_to_json`` back to a conversation's record (its state)."""
    turns = dict(map(turn_from_json, value.get("turns", ())))
    record = record_from_json(value, {key: len(turn.messages) for key, turn in turns.items()})
    return replace(record, turns=turns)


# Lists of turns


def lengths_to_text(lengths: Lengths) -> str:
    """Convert the number of messages of each turn to a short text, ordered by turn key.

    The text ``"41.5c8e01f2 +2 +3.90d1aa07:4"`` has three turns:

    - ``41.5c8e01f2``: a turn with the time 41 and the tag ``5c8e01f2``. It has 2 messages, because
      no other number is given.
    - ``+2``: a turn with the time 43, which is 2 later, the same tag, and 2 messages.
    - ``+3.90d1aa07:4``: a turn with the time 46, the tag ``90d1aa07``, and 4 messages.
    """
    entries: list[str] = []
    before = TurnKey(0, "")
    for key, length in sorted(lengths.items()):
        time = f"+{key.time - before.time}" if entries else f"{key.time}"
        tag = "" if key.tag == before.tag else f".{key.tag}"
        entries.append(f"{time}{tag}" if length == _USUAL_LENGTH else f"{time}{tag}:{length}")
        before = key
    return " ".join(entries)


def lengths_from_text(text: str) -> dict[TurnKey, int]:
    """Convert text such as ``41.5c8e01f2 +2`` back to the number of messages of each turn.

    ``lengths_to_text`` describes the text.
    """
    lengths = {}
    key = TurnKey(0, "")
    for entry in text.split():
        name, _, length = entry.partition(":")
        time, _, tag = name.partition(".")
        key = TurnKey(key.time + int(time), tag or key.tag)
        lengths[key] = int(length or _USUAL_LENGTH)
    return lengths


# Windows


def _numbered(held: Lengths, lengths: Lengths) -> dict[TurnKey, int]:
    """Return a number for each turn, which replaces the turn's key in a stored history.

    The numbers begin at 1. The turns that are stored with the record (``held``) get the lowest
    numbers. Most messages of a history are from these turns, and so form ranges such as ``1-4``.
    """
    keys = [*sorted(held), *sorted(lengths.keys() - held.keys())]
    return {key: number for number, key in enumerate(keys, 1)}


def _edit_field(key: TurnKey, index: int) -> str:
    return f"edit.{key.time}.{key.tag}.{index}"


def window_to_text(window: Sequence[Slot], numbers: Mapping[TurnKey, int], lengths: Lengths) -> str:
    """Convert an agent's history to text for storage, such as ``note 1-4 5-44:0 45:1-3 46:2*``.

    The parts of this text mean:

    - ``note``: a message that the conversation manager wrote.
    - ``1-4``: all messages of the turns 1 to 4.
    - ``5-44:0``: the message with the index 0 of each of the turns 5 to 44.
    - ``45:1-3``: the messages with the indexes 1 to 3 of turn 45.
    - ``46:2*``: the edited message with the index 2 of turn 46.

    Args:
        window: The history, as references to messages.
        numbers: Number of each turn, keyed by turn key.
        lengths: Number of messages of each turn.
    """
    parts: list[str] = []
    for key, group in groupby(window, lambda slot: slot.key):
        slots = list(group)
        first, last = slots[0].number, slots[0].number + len(slots) - 1
        if key is None:
            parts += ["note"] * len(slots)
        elif slots == [Slot(key, index) for index in range(first, last + 1)]:
            is_whole = not first and len(slots) == lengths[key]
            indexes = "" if is_whole else f":{first}-{last}" if last > first else f":{first}"
            _append_turn(parts, numbers[key], indexes)
        else:
            for _, index, body in slots:
                _append_turn(parts, numbers[key], f":{index}" if body is None else f":{index}*")
    return " ".join(parts)


def _append_turn(parts: list[str], number: int, indexes: str) -> None:
    """Append messages of a turn to the parts of a stored history.

    The messages 1 to 3 of turn 5 are the part ``5:1-3``. If the same messages of turn 6 follow, the
    part becomes ``5-6:1-3``.

    Args:
        parts: Parts of the history so far. Changed in place.
        number: Number of the turn.
        indexes: Indexes of the messages, such as ``:1-3``; empty for all messages of the turn.
    """
    turns, colon, rest = (parts or [""])[-1].partition(":")
    first, _, last = turns.partition("-")
    if first.isdigit() and colon + rest == indexes and int(last or first) + 1 == number:
        parts[-1] = f"{first}-{number}{indexes}"
    else:
        parts.append(f"{number}{indexes}")


def window_from_text(
    text: str,
    numbers: Mapping[TurnKey, int],
    lengths: Lengths,
    bodies: Mapping[str, bytes],
) -> tuple[Slot, ...]:
    """Convert the text that ``window_to_text`` returned back to an agent's history.

    Args:
        text: The text.
        numbers: Number of each turn, keyed by turn key. Other numbers in the text are ignored.
        lengths: Number of messages of each turn.
        bodies: Messages that no turn contains, keyed as by ``record_to_json``.

    Raises:
        ValueError: The history has too many messages.
    """
    keys = {number: key for key, number in numbers.items()}
    window = tuple(islice(_slots(text, keys, lengths, bodies), MAX_MESSAGES + 1))
    if len(window) > MAX_MESSAGES:
        raise ValueError(f"the window has over {MAX_MESSAGES} messages")
    return window


def _slots(
    text: str,
    keys: Mapping[int, TurnKey],
    lengths: Lengths,
    bodies: Mapping[str, bytes],
) -> Iterator[Slot]:
    notes = count(1)
    for part in text.split():
        if part == "note":
            yield Slot(None, 0, bodies[f"note.{next(notes)}"])
            continue
        turns, _, indexes = part.removesuffix("*").partition(":")
        for key in (keys[number] for number in _span(turns) if number in keys):
            for index in _span(indexes) if indexes else range(lengths[key]):
                is_edited = part.endswith("*")
                yield Slot(key, index, bodies[_edit_field(key, index)] if is_edited else None)


def _span(text: str) -> range:
    """Convert text such as ``5-44`` or ``5`` to a range of numbers."""
    first, _, last = text.partition("-")
    span = range(int(first), int(last or first) + 1)
    if len(span) > MAX_MESSAGES:
        raise ValueError(f"the window has over {MAX_MESSAGES} messages")
    return span


def redactions_to_json(redactions: Mapping[TurnKey, Mapping[int, Replacement]]) -> JsonObject:
    """Convert the new contents of redacted messages to a JSON object for storage."""
    return {
        str(key): {
            str(at): [revision, RawJson(message)]
            for at, (revision, message) in sorted(found.items())
        }
        for key, found in sorted(redactions.items())
    }


def redactions_from_json(value: JsonObject) -> dict[TurnKey, dict[int, Replacement]]:
    """Convert a stored JSON object back to the new contents of redacted messages."""
    return {
        TurnKey.parse(key): {
            int(at): Replacement(int(revision), json_bytes(message))
            for at, (revision, message) in found.items()
        }
        for key, found in value.items()
    }
