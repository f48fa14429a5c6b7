"""Joining: what one speaker said with nothing left between is one message, and is taken apart again. Pure.

Of a history of which much was left out every other message would be a mark, only to keep roles alternating. A joined message
has the blocks of all its parts, and in its metadata, which no model is sent, what else they were: so nothing of them is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.messages import id_of
from strands_manga_memory.messages.placeholders import CUT_TEXT
from strands_manga_memory.stores.encoding.codec import dump, load_stored

_NOTE = [{"text": CUT_TEXT}]

PARTS = "parts"
"""Name in a message's metadata of what it was joined of. A text: Strands copies each history deeply, and a text as it is."""

_SHARED = frozenset({"role", "content"})
"""What parts have in common with their message."""


def may_join(one: Message, other: Message) -> bool:
    """Whether two messages can be one: a pinned one is none with one that is not, and a note that ends a cut turn is none."""
    return custom_of(one) == custom_of(other) and _NOTE not in (one["content"], other["content"])


def joined(parts: Sequence[Message]) -> Message:
    """Return messages of one role and the same custom metadata as one, equal ones of equal parts; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    about = dump([[len(part["content"]), _rest(part)] for part in parts])
    metadata: dict[str, Any] = {PARTS: about.decode("utf-8", "surrogatepass")}
    if custom := custom_of(parts[0]):
        metadata["custom"] = custom
    return {
        "role": parts[0]["role"],
        "content": [block for part in parts for block in part["content"]],
        "metadata": metadata,  # type: ignore[typeddict-item]
        "tracking_id": f"{id_of(parts[0])}&{id_of(parts[-1])}",
    }


def parted(message: Message) -> Sequence[Message]:
    """Return the messages that one was joined of, with its custom metadata; itself if it was not, or lost blocks since."""
    if not is_joined(message):
        return (message,)
    about: Any = message["metadata"]
    content, custom, at = message["content"], custom_of(message), 0
    parts: list[Any] = []
    try:
        for length, rest in load_stored(about[PARTS].encode("utf-8", "surrogatepass"), "parts of a message"):
            if not 1 <= length <= len(content) - at or not _SHARED.isdisjoint(rest):
                return (message,)
            if custom:
                rest["metadata"] = {**rest.get("metadata", {}), "custom": custom}
            parts.append({"role": message["role"], "content": content[at : at + length], **rest})
            at += length
    except (AttributeError, CorruptRecordError, TypeError, ValueError):
        return (message,)
    if len(parts) < 2:
        return (message,)
    parts[-1]["content"] += content[at:]  # what was added since belongs to the last
    return parts


def is_joined(message: Mapping[str, Any]) -> bool:
    """Whether a message was joined of several."""
    metadata = message.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get(PARTS), str)


def custom_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the custom metadata of a message."""
    metadata = message.get("metadata")
    custom = metadata.get("custom") if isinstance(metadata, dict) else None
    return custom if isinstance(custom, dict) else {}


def _rest(part: Message) -> dict[str, Any]:
    """Return what a message is beside its role, content and custom metadata."""
    rest: dict[str, Any] = {key: value for key, value in part.items() if key not in _SHARED}
    if custom_of(part):
        rest["metadata"] = {key: value for key, value in rest["metadata"].items() if key != "custom"}
    return rest
