"""Conversion of the parts of a conversation's record to their stored form, and back.

The stored form is JSON text. Large values are compressed, and values are encrypted if the codec has a key. The first attribute
of plain JSON text is named after the version of the stored form, such as ``v3``. Its value is a checksum.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.protocol.record import Entry, Lengths, Record, Replacement, Slot, Turn, TurnKey, Version
from strands_manga_memory.stores.codec import (
    VERSION,
    Codec,
    check_version,
    dump,
    json_bytes,
    json_value,
    load,
    trusted,
)

JsonObject = dict[str, Any]
"""Type of a JSON object."""

PLAIN_BYTES = 2048
"""Size in bytes from which a JSON object is compressed. Smaller objects are stored as plain text."""

_USUAL_LENGTH = 2  # a question and its answer
MOST_MESSAGES = 200_000
"""Maximum number of messages in a history. A stored record that lists more messages is damaged."""

_HEAD = b'{"v%d":"' % VERSION
_ANY_HEAD = re.compile(rb'\{"v(\d{1,9})":"[0-9a-f]{8}"')
_HEAD_BYTES = len(_HEAD) + 8 + len(b'",')


def seal_object(value: JsonObject, place: str, codec: Codec) -> bytes:
    """Return the bytes in which a JSON object is stored: plain JSON with a checksum, or compressed or encrypted.

    Args:
        value: The object. Its values are JSON, or ``JsonPart`` (JSON text that is inserted unchanged).
        place: Name under which the object is stored. The object cannot be read under another name.
        codec: Encrypts the object, and compresses large objects.
    """
    text = json_of(value)
    if codec.encrypts or len(text) >= PLAIN_BYTES:
        return codec.seal(text, place)
    rest = text[1:]
    return b"".join((_HEAD, _checksum(rest, place), b'",' if len(rest) > 1 else b'"', rest))


def open_object(data: object, place: str, codec: Codec) -> JsonObject:
    """Decode a stored JSON object: check, decrypt and decompress its bytes.

    Raises:
        CorruptRecordError: The bytes are damaged, were stored under another name, or have another version.
        KeyMissingError: The bytes are encrypted with a key that the codec does not have.
    """
    if isinstance(data, bytes) and (head := _ANY_HEAD.match(data)):
        check_version(int(head[1]), place)
        codec.check_plain(place)
        rest = data[_HEAD_BYTES:] if data[len(_HEAD) + 8 :] != b'"}' else b"}"
        if data[len(_HEAD) : len(_HEAD) + 8] != _checksum(rest, place):
            raise CorruptRecordError(f"record={place!r} is damaged: its checksum does not match", record=place)
        text = b"{" + rest
    else:
        text = codec.unseal(data, place)
    with trusted(place):
        found = json_value(text)
        if not isinstance(found, dict):
            raise ValueError(f"it must be a JSON object, got {type(found).__name__}")
        return found


def is_text(data: bytes) -> bool:
    """Return whether stored bytes are plain JSON in valid UTF-8, so that a table can store them as a string."""
    if not data.startswith(_HEAD) or b"\\ud" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:  # half a character of UTF-16 in a text
        return False
    return True


def json_of(value: JsonObject) -> bytes:
    """Return a JSON object as text. Values of the type ``JsonPart`` are inserted unchanged."""
    try:
        return orjson.dumps(value, default=_fragment)
    except TypeError:  # half a character of UTF-16 in a text, or more levels than the encoder takes
        return json_bytes(_without_parts(value))


class JsonPart(NamedTuple):
    """JSON text that is inserted unchanged into a larger JSON object."""

    text: bytes


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, JsonPart):
        return orjson.Fragment(value.text)
    raise TypeError


def _without_parts(value: Any) -> Any:
    if isinstance(value, JsonPart):
        return json_value(value.text)
    if isinstance(value, Mapping):
        return {name: _without_parts(item) for name, item in value.items()}
    return [_without_parts(item) for item in value] if isinstance(value, list | tuple) else value


def _checksum(rest: bytes, place: str) -> bytes:
    return b"%08x" % zlib.crc32(rest, zlib.crc32(place.encode()))


# Messages, turns and state entries


def turn_object(key: TurnKey, turn: Turn) -> JsonObject:
    """Return a turn as a JSON object."""
    value: JsonObject = {
        "turn": str(key),
        "messages": [JsonPart(message) for message in turn.messages],
        "times": [round(at, 3) for at in turn.times],
    }
    if turn.redacted:
        value["redacted"] = {str(at): times for at, times in sorted(turn.redacted.items())}
    if turn.is_open:
        value["open"] = True
    return value | ({"about": dict(turn.about)} if turn.about else {})


def turn_of(value: JsonObject) -> tuple[TurnKey, Turn]:
    """Parse a turn and its key from a JSON object."""
    messages, times = tuple(map(json_bytes, value["messages"])), tuple(map(float, value["times"]))
    if len(times) != len(messages):
        raise ValueError(f"it must have a time for each of {len(messages)} messages, got {len(times)}")
    redacted = {int(at): int(revision) for at, revision in value.get("redacted", {}).items()}
    about = dict(value.get("about", {}))
    return TurnKey.parse(value["turn"]), Turn(messages, times, redacted, bool(value.get("open")), about)


def entry_object(name: str, entry: Entry) -> JsonObject:
    """Return a named state value, with its version, as a JSON object."""
    return {"name": name, "version": list(entry.version), "value": JsonPart(dump(entry.value))}


def entry_of(value: JsonObject) -> tuple[str, Entry]:
    """Parse a named state value, with its version, from a JSON object. Return the name and the value."""
    return str(value["name"]), Entry(version_of(value["version"]), load(json_bytes(value["value"])))


def version_of(value: Sequence[Any]) -> Version:
    """Parse the version of a record from a JSON list."""
    time, tag, marks = value
    return Version(int(time), str(tag), int(marks))


# Records


_NUMBERS: dict[str, type[int] | type[float]] = {
    "incarnation": int,
    "carries_from": int,
    "last_rewind": int,
    "last_used": float,
    "created": float,
    "turn_count": int,
    "message_count": int,
}
"""Type of each number of a record, keyed by field name."""

_NO_LENGTHS: Lengths = {}


def record_object(record: Record, bodies: Mapping[Any, int] | None = None, unreadable: Lengths = _NO_LENGTHS) -> JsonObject:
    """Convert a conversation's record (its state) to a JSON object.

    The field ``seen`` leaves out turns that are stored together with the record, if their number of messages is the same.

    Args:
        record: The record.
        bodies: Reference number of each edited message, keyed by serialized message. The edited messages, the turns and the
            state values are then stored elsewhere. None: the object contains all of them.
        unreadable: Number of messages of each stored turn that cannot be read, and is therefore missing in the record.
    """
    held = {**unreadable, **{key: len(turn.messages) for key, turn in record.turns.items()}}
    # A turn that is stored with the record was seen by the record's author, also beyond the last turns that ``seen`` counts.
    lengths = {key: record.seen.get(key, held.get(key, 0)) for key in record.seen.keys() | record.shown_keys | held.keys()}
    parts = {
        "ids": dict(record.ids),
        "unlogged": {str(key): length for key, length in sorted(record.unlogged.items())},
        "redactions": redaction_object(record.redactions),
        "window": window_list(record.window, lengths, bodies),
        "seen": lengths_text({key: length for key, length in lengths.items() if held.get(key) != length}),
        "removed": lengths_text(record.removed),
        "notes": record.notes,
    }
    if bodies is None:
        parts["states"] = [entry_object(name, entry) for name, entry in sorted(record.states.items())]
        parts["turns"] = [turn_object(key, turn) for key, turn in sorted(record.turns.items())]
    value = {"version": list(record.version), **{name: getattr(record, name) for name in _NUMBERS}}
    return value | {name: part for name, part in parts.items() if part or (name == "notes" and part is not None)}


def record_of(
    value: JsonObject,
    *,
    turns: Mapping[TurnKey, Turn] | None = None,
    states: Mapping[str, Entry] | None = None,
    bodies: Mapping[int, bytes] | None = None,
    unreadable: Lengths = _NO_LENGTHS,
) -> Record:
    """Parse a conversation's record (its state) from a JSON object. This is the inverse of ``record_object``.

    Args:
        value: The JSON object.
        turns: The record's turns, if they are stored elsewhere. None: the object contains them.
        states: The record's state values, if they are stored elsewhere. None: the object contains them.
        bodies: Edited messages that are stored elsewhere, keyed by reference number. None: the object contains them.
        unreadable: Number of messages of each stored turn that cannot be read. It completes the list ``seen``.
    """
    turns = dict(map(turn_of, value.get("turns", ()))) if turns is None else turns
    held = {**unreadable, **{key: len(turn.messages) for key, turn in turns.items()}}
    lengths = {**held, **lengths_of(value.get("seen", ""))}
    numbers: JsonObject = {name: kind(value[name]) for name, kind in _NUMBERS.items()}
    return Record(
        version=version_of(value["version"]),
        window=window_of(value.get("window", ()), lengths, bodies),
        notes=value.get("notes"),
        seen={key: length for key, length in lengths.items() if length},
        removed=lengths_of(value.get("removed", "")),
        states=dict(map(entry_of, value.get("states", ()))) if states is None else states,
        redactions=redactions_of(value.get("redactions", {})),
        turns=turns,
        unlogged={TurnKey.parse(key): int(length) for key, length in value.get("unlogged", {}).items()},
        ids={str(name): str(found) for name, found in value.get("ids", {}).items()},
        **numbers,
    )


# Lists of turns


def lengths_text(lengths: Lengths) -> str:
    """Return the number of messages of each turn as compact text, ordered by turn key.

    The text ``"41.5c8e01f2aa 43.90d1aa07be:4"`` has two turn keys. The second turn has 4 messages. The first turn has the usual
    number, 2, which is left out.
    """
    return " ".join(
        f"{key.time}.{key.tag}" if length == _USUAL_LENGTH else f"{key.time}.{key.tag}:{length}"
        for key, length in sorted(lengths.items())
    )


def lengths_of(text: str) -> dict[TurnKey, int]:
    """Parse the number of messages of each turn from compact text. This is the inverse of ``lengths_text``."""
    lengths = {}
    for entry in text.split():
        key, _, length = entry.partition(":")
        lengths[TurnKey.parse(key)] = int(length or _USUAL_LENGTH)
    return lengths


# Windows


def window_list(window: Sequence[Slot], lengths: Lengths, bodies: Mapping[Any, int] | None = None) -> list[Any]:
    """Convert an agent's history to a JSON list.

    The list has four kinds of entries:

    - The text ``"5-44"``: all messages of the turns 5 to 44.
    - A list of three numbers: a part of a turn, as number of the turn, index of the first and index of the last message.
    - An object with ``of`` and ``body``: an edited message. ``of`` has the number of the turn and the index in the turn.
    - An object with ``note``: a message that the conversation manager wrote.

    The number of a turn is its place in the order of the keys in ``lengths``, from 1.

    Args:
        window: The agent's history, as references to messages.
        lengths: Number of messages of each turn.
        bodies: Reference number of each edited or written message, keyed by serialized message, if these messages are stored
            elsewhere. The list then contains the numbers. None: the list contains the messages.
    """
    numbers = {key: number for number, key in enumerate(sorted(lengths), 1)}
    entries: list[Any] = []
    for key, group in groupby(window, lambda slot: slot.key):
        slots = list(group)
        if key is not None and slots == [Slot(key, index) for index in range(lengths[key])]:
            _add_whole(entries, numbers[key])
            continue
        for _, index, body in slots:
            part = None if body is None else JsonPart(body) if bodies is None else bodies[body]
            if key is None:
                entries.append({"note": part})
            elif part is None:
                entries.append([numbers[key], index, index])
            else:
                entries.append({"of": [numbers[key], index], "body": part})
    return entries


def _add_whole(entries: list[Any], number: int) -> None:
    """Add a whole turn to the JSON list of a history. If the last entry ends with the previous turn, extend that entry."""
    if entries and isinstance(entries[-1], str):
        first, _, last = entries[-1].partition("-")
        if int(last or first) + 1 == number:
            entries[-1] = f"{first}-{number}"
            return
    entries.append(str(number))


def window_of(entries: Sequence[Any], lengths: Lengths, bodies: Mapping[int, bytes] | None = None) -> tuple[Slot, ...]:
    """Parse an agent's history from a JSON list. This is the inverse of ``window_list``.

    Args:
        entries: The JSON list.
        lengths: Number of messages of each turn. Messages of turns that are not in ``lengths`` are left out.
        bodies: Edited or written messages that are stored elsewhere, keyed by reference number. None: the list contains them.

    Raises:
        ValueError: The history has too many messages.
    """
    keys: dict[int | None, TurnKey | None] = {None: None, **dict(enumerate(sorted(lengths), 1))}
    window: list[Slot] = []
    for entry in entries:
        if isinstance(entry, str):
            first, _, last = entry.partition("-")
            for number in _numbers(int(first), int(last or first)):
                if (key := keys.get(number)) is not None:
                    window += [Slot(key, index) for index in _numbers(0, lengths[key] - 1)]
        elif isinstance(entry, list):
            number, first_index, last_index = entry
            window += [Slot(keys[number], index) for index in _numbers(first_index, last_index)] if number in keys else []
        else:
            of, index = entry.get("of", (None, 0))
            part = entry["note" if of is None else "body"]
            if of in keys:
                window.append(Slot(keys[of], int(index), json_bytes(part) if bodies is None else bodies[part]))
        if len(window) > MOST_MESSAGES:
            raise ValueError(f"the window has over {MOST_MESSAGES} messages")
    return tuple(window)


def _numbers(first: int, last: int) -> range:
    if last - first >= MOST_MESSAGES:
        raise ValueError(f"the window has over {MOST_MESSAGES} messages")
    return range(first, last + 1)


def redaction_object(redactions: Mapping[TurnKey, Mapping[int, Replacement]]) -> JsonObject:
    """Return the replacements of redacted messages as a JSON object."""
    return {
        str(key): {str(at): [revision, JsonPart(message)] for at, (revision, message) in sorted(found.items())}
        for key, found in sorted(redactions.items())
    }


def redactions_of(value: JsonObject) -> dict[TurnKey, dict[int, Replacement]]:
    """Parse the replacements of redacted messages from a JSON object."""
    return {
        TurnKey.parse(key): {
            int(at): Replacement(int(revision), json_bytes(message)) for at, (revision, message) in found.items()
        }
        for key, found in value.items()
    }
