"""Limits for the number and size of images, documents, videos and audio in a request.

A request to Bedrock Converse accepts 20 images and 5 documents with different names. Providers limit a request to 20 to 50 MB,
including media in base64.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from strands.types.content import Message

MEDIA = ("image", "document", "video", "audio")

MOST_IMAGES = 20
MOST_DOCUMENTS = 5
MOST_BYTES = 15_000_000
"""Most bytes of all media in a request. Encoded in base64, they have 20 MB."""

_MOST_IN_NAME = 180
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9\s()\[\]-]")
_SPACE = re.compile(r"\s+")
_NOT_IN_NOTE = re.compile(r'["\[\]\s]+')


def media_kind(block: Any) -> str:
    """Return the kind of a media block, or an empty text for other blocks."""
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
    if not any(media_kind(block) for message in messages for block in _blocks(message)):
        return list(messages)
    limits = _Limits()
    limited = [_replaced_blocks(message, limits.replacement, backwards=True) for message in reversed(messages)]
    names = _Names()
    return [_replaced_blocks(message, names.replacement) for message in reversed(limited)]


def _blocks(message: Message) -> Iterator[Any]:
    """Yield the blocks of a message. Of tool results and ``guardContent`` blocks, only their inner blocks are yielded."""
    for block in message["content"]:
        if "toolResult" in block:
            yield from block["toolResult"].get("content") or ()
        else:
            yield block.get("guardContent", block)


class _Limits:
    """Counts the media that a request may still contain, from the newest to the oldest medium."""

    def __init__(self) -> None:
        self._left = {"image": MOST_IMAGES, "document": MOST_DOCUMENTS}
        self._bytes = 0
        self._is_first = True

    def replacement(self, block: dict[str, Any]) -> dict[str, Any]:
        """Return a media block, or the note that replaces the block if a limit is reached."""
        kind = media_kind(block)
        size = media_bytes(block[kind]) if isinstance(block[kind], dict) else 0
        left = self._left.get(kind, 1)
        if left > 0 and (self._is_first or self._bytes + size <= MOST_BYTES):
            self._is_first = False
            self._bytes += size
            if kind in self._left:
                self._left[kind] = left - 1
            return block
        if size:
            self._bytes = max(self._bytes, MOST_BYTES) if left > 0 else self._bytes
        return {"text": media_note(block)}


class _Names:
    """Creates unique document names that Bedrock accepts."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def replacement(self, block: dict[str, Any]) -> dict[str, Any]:
        """Return a media block. A document gets a name that is unique in the request."""
        document = block.get("document")
        if not isinstance(document, dict):
            return block
        given = str(document.get("name") or "")
        base = _SPACE.sub(" ", _NOT_IN_NAME.sub("-", given))[:_MOST_IN_NAME].strip()
        if not base.strip("- "):
            base = "document"
        name, number = base, self._next.get(base, 2)
        while name in self._used:
            name = f"{base} ({number})"
            number += 1
        self._next[base] = number
        self._used.add(name)
        return block if name == document.get("name") else {**block, "document": {**document, "name": name}}


def _replaced_blocks(message: Message, replacement: Any, *, backwards: bool = False) -> Message:
    """Return a message in which ``replacement`` was called for each media block, also in tool results.

    The same object is returned if nothing changes. With ``backwards``, the calls begin with the last block.
    """
    content = _replaced(message["content"], replacement, backwards=backwards)
    return message if content is message["content"] else cast("Message", {**message, "content": content})


def _replaced(blocks: Sequence[Any], replacement: Any, *, backwards: bool) -> Sequence[Any]:
    after = [_of_block(block, replacement, backwards=backwards) for block in (reversed(blocks) if backwards else blocks)]
    if backwards:
        after.reverse()
    return blocks if all(one is other for one, other in zip(after, blocks, strict=True)) else after


def _of_block(block: Any, replacement: Any, *, backwards: bool) -> Any:
    if "toolResult" in block:
        result = block["toolResult"]
        content = result.get("content") or []
        after = _replaced(content, replacement, backwards=backwards)
        return block if after is content else {**block, "toolResult": {**result, "content": after}}
    if "guardContent" in block and media_kind(block["guardContent"]):
        guarded = replacement(block["guardContent"])
        return block if guarded is block["guardContent"] else guarded
    return replacement(block) if media_kind(block) else block
