"""Converts an agent's history from messages to references to stored messages, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.messages import is_message
from strands_manga_memory.session.protocol.record import Slot, Turn, TurnKey
from strands_manga_memory.stores.encoding.codec import dump, load

UNREADABLE_TEXT = "[message could not be read]"
"""Text of the placeholder for a message that cannot be read."""

_UNREADABLE_ID = "unreadable-"

Stored = Callable[[Slot], bytes | None]
"""Function that returns the serialized message to which a reference points. None: the message cannot be read now."""


Returnable = Mapping[str, tuple[Slot, Turn]]
"""References to evicted messages that may return to the history, and their turns, keyed by ``tracking_id``."""


def slots_of(
    messages: Sequence[Mapping[str, Any]],
    view: Sequence[Slot],
    stored: Stored,
    returnable: Returnable | None = None,
    identities: dict[tuple[Any, int], str] | None = None,
) -> tuple[Slot, ...]:
    """Return the agent's history as references to stored messages.

    A message is recognized by its ``tracking_id``. A message without a ``tracking_id`` is recognized by its content. If the
    content differs from the stored message, the reference contains the edited message. A message that is not stored is taken
    for a message that the conversation manager wrote.

    Args:
        messages: The agent's history.
        view: References of the previous history, and of the messages that were appended since.
        stored: Returns the serialized message to which a reference in ``view`` points.
        returnable: Messages that were evicted earlier, and may be in the history again.
        identities: Cache of each message's ``tracking_id``, keyed by turn key and index.
    """
    places: dict[Any, list[tuple[Slot, bytes]]] = {}
    for slot in view:
        data = stored(slot)
        if data is not None:
            places.setdefault(_slot_identity(slot, data, identities), []).append((slot, data))
    shown = {slot[:2]: slot for slot in view if slot.key is not None}
    return tuple(_slot_of(message, places, shown, returnable or {}) for message in messages)


def _slot_of(
    message: Mapping[str, Any],
    places: Mapping[Any, list[tuple[Slot, bytes]]],
    shown: Mapping[tuple[Any, int], Slot],
    returnable: Returnable,
) -> Slot:
    unreadable = _unreadable_slot(message)
    if unreadable is not None and unreadable[:2] in shown:
        return shown[unreadable[:2]]  # its message may be readable again by now
    data = dump(message)
    identity = _identity_of(message, data)
    found = places.get(identity)
    if not found:
        slot, turn = returnable.get(identity, (Slot(None), Turn()))
        is_same = slot.key is not None and turn.messages[slot.number] == data
        return slot if is_same else slot._replace(body=data)
    # A history may hold a message twice: the one with the same content first, else the first one.
    at = next((at for at, (_, known) in enumerate(found) if known == data), 0)
    slot, known = found.pop(at)
    return slot if known == data else Slot(slot.key, slot.number if slot.key else 0, data)


def messages_of(
    view: Sequence[Slot], stored: Stored, *, before: Sequence[Slot] = (), live: Sequence[Message] = ()
) -> list[Message]:
    """Return the messages to which references point.

    A message that cannot be read is replaced by a placeholder.

    Args:
        view: The references.
        stored: Returns the serialized message to which a reference points.
        before: References of the agent's present history.
        live: Messages of the agent's present history. They are returned as the same objects if ``view`` refers to them.
    """
    kept = dict(zip(before, live, strict=True)) if len(before) == len(live) else {}
    messages: list[Message] = []
    for slot in view:
        known = kept.get(slot)
        if known is not None and _unreadable_slot(known) is None:
            messages.append(known)
            continue
        data = stored(slot)
        if data is not None and is_message(found := load(data)):
            messages.append(found)
        else:
            messages.append(_placeholder(slot, messages))
    return messages


def _slot_identity(slot: Slot, data: bytes, cache: dict[tuple[Any, int], str] | None) -> Any:
    if slot.key is None or cache is None:
        return _identity_of(load(data), data)
    identity: Any = cache.get(slot[:2])
    if identity is None:
        identity = _identity_of(load(data), data)
        if isinstance(identity, str):
            cache[slot[:2]] = identity
    return identity


def _identity_of(message: Any, data: bytes) -> Any:
    identity = message.get("tracking_id") if isinstance(message, Mapping) else None
    return identity if identity and isinstance(identity, str) else data


def _placeholder(slot: Slot, before: Sequence[Message]) -> Message:
    """Return a placeholder for a message that cannot be read.

    The role of the placeholder differs from the role of the message before it.
    """
    role = "assistant" if before and before[-1]["role"] == "user" else "user"
    identity = f"{_UNREADABLE_ID}{slot.key}-{slot.number}"
    placeholder: Any = {"role": role, "content": [{"text": UNREADABLE_TEXT}], "tracking_id": identity}
    found: Message = placeholder
    return found


def _unreadable_slot(message: Mapping[str, Any]) -> Slot | None:
    """Return the reference for which a placeholder was made. None if the message is no placeholder."""
    identity = message.get("tracking_id")
    if not isinstance(identity, str) or not identity.startswith(_UNREADABLE_ID):
        return None
    if message.get("content") != [{"text": UNREADABLE_TEXT}]:
        return None
    key, dash, number = identity.removeprefix(_UNREADABLE_ID).rpartition("-")
    try:
        return Slot(TurnKey.parse(key), int(number)) if dash else None
    except ValueError:  # a message of the user's that only looks like a placeholder
        return None
