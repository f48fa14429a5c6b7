"""Limits for the number and size of images, documents, videos and audio in a request.

A request to Bedrock Converse accepts 20 images and 5 documents with different names. Providers limit a request to 20 to 50 MB,
including media in base64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from strands.types.content import Message

from strands_manga_memory.messages.message_parts import UniqueNames

MEDIA = ("image", "document", "video", "audio")

MOST_IMAGES = 20
MOST_DOCUMENTS = 5
MOST_BYTES = 15_000_000
"""Most bytes of all media in a request. Encoded in base64, they have 20 MB."""

_MOST_IN_NAME, _MOST_OF_GIVEN_NAME = 200, 180
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9\s()\[\]-]")
_SPACE = re.compile(r"\s+")
_NOT_IN_NOTE = re.compile(r'["\[\]\s]+')


def media_kind(block: Any) -> str:
    """Return the kind of a media block, such as ``"image"``. An empty text for other blocks."""
    if isinstance(block, dict):
        for kind in MEDIA:
            if kind in block:
                return kind
    return ""


def media_note(block: dict[str, Any]) -> str:
    """Return the note that replaces a removed medium, such as ``[image, 48 KB, not kept]``."""
    kind = media_kind(block)
    medium = block[kind]
    parts = [kind]
    if isinstance(medium, dict):
        if name := _NOT_IN_NOTE.sub(" ", str(medium.get("name") or ""))[:80].strip():
            parts[0] += f' "{name}"'
        if size := media_bytes(medium):
            parts.append(f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{max(1, size // 1_000)} KB")
    return f"[{', '.join(parts)}, not kept]"


def media_bytes(medium: dict[str, Any]) -> int:
    """Return the number of bytes in a medium, or 0 if the medium only refers to a location."""
    source = medium.get("source")
    value = source.get("bytes") if isinstance(source, dict) else None
    return len(value) if isinstance(value, bytes | bytearray | str) else 0


def within_limits(messages: Sequence[Message]) -> list[Message]:
    """Return messages whose media satisfy the limits of a request.

    If a limit is exceeded, notes replace the oldest media. The newest medium stays even if it alone exceeds the limit of bytes,
    because some providers accept more. Documents with equal names get different names.
    """
    left = {"image": MOST_IMAGES, "document": MOST_DOCUMENTS}
    room: float = math.inf
    names = UniqueNames(_MOST_IN_NAME, " ({})")

    def limited(block: dict[str, Any]) -> dict[str, Any]:
        nonlocal room
        kind = media_kind(block)
        size = media_bytes(block[kind]) if isinstance(block[kind], dict) else 0
        is_allowed = left.get(kind, 1) > 0
        if not is_allowed or size > room:
            room = 0 if is_allowed else room
            return {"text": media_note(block)}
        room = min(room, MOST_BYTES) - size
        if kind in left:
            left[kind] -= 1
        return block

    def named(block: dict[str, Any]) -> dict[str, Any]:
        document = block.get("document")
        if not isinstance(document, dict):
            return block
        base = _SPACE.sub(" ", _NOT_IN_NAME.sub("-", str(document.get("name") or "")))[:_MOST_OF_GIVEN_NAME].strip()
        name = names.unique(base if base.strip("- ") else "document")
        return block if name == document.get("name") else {**block, "document": {**document, "name": name}}

    newest_first = [_changed(message, limited, step=-1) for message in reversed(messages)]
    return [_changed(message, named) for message in reversed(newest_first)]


def _changed(owner: Any, change: Callable[[dict[str, Any]], dict[str, Any]], step: int = 1) -> Any:
    """Apply the function ``change`` to each media block of a message or tool result, including nested blocks.

    The same object is returned if nothing changes. With ``step=-1``, the last block is changed first.
    """
    after = []
    content = owner.get("content") or []
    for block in content[::step]:
        if "toolResult" in block:
            result = _changed(block["toolResult"], change, step)
            after.append(block if result is block["toolResult"] else {**block, "toolResult": result})
        elif "guardContent" in block and media_kind(block["guardContent"]):
            guarded = change(block["guardContent"])
            after.append(block if guarded is block["guardContent"] else guarded)
        else:
            after.append(change(block) if media_kind(block) else block)
    after = after[::step]
    return owner if all(map(is_, after, content)) else {**owner, "content": after}
