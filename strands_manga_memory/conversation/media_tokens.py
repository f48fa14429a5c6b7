"""Token counts of images, documents, video and audio, from their bytes alone.

Providers count media by rules of their own, which are not published for all of them. These are deliberately on the high side:

========  ==================================================================================================================
image     width * height / 750 (Anthropic's published rule), at most 1,600, which is also the figure for an unknown size
document  plain text formats: their text; pdf: a token per 20 bytes, at least 1,500; others: a token per 10 bytes, at least 500
video     a token per 1,000 bytes, at least 2,000
audio     a token per 400 bytes, at least 100
========  ==================================================================================================================

Media stored elsewhere (S3) have no known size: documents, video and audio cost the smallest figure, images the largest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

IMAGE_TOKENS = 1_600
"""Most an image costs: providers scale larger ones down."""

_PIXELS_PER_TOKEN = 750
_TEXT_FORMATS = frozenset({"csv", "html", "md", "txt"})
_DOCUMENT = {"pdf": (20, 1_500)}
_OTHER_DOCUMENT = (10, 500)
_VIDEO = (1_000, 2_000)
_AUDIO = (400, 100)


def image_tokens(image: dict[str, Any]) -> int:
    """Return the tokens of an image content."""
    size = image_size(_bytes(image))
    if size is None:
        return IMAGE_TOKENS
    return max(1, min(IMAGE_TOKENS, -(-size[0] * size[1] // _PIXELS_PER_TOKEN)))


def document_tokens(document: dict[str, Any], text_tokens: Callable[[str], int]) -> int:
    """Return the tokens of a document content: those of its bytes, its name and its context."""
    data = _bytes(document)
    kind = document.get("format", "txt")
    if kind in _TEXT_FORMATS and data:
        tokens = text_tokens(data.decode("utf-8", "replace"))
    else:
        tokens = _by_size(data, *_DOCUMENT.get(kind, _OTHER_DOCUMENT))
    return tokens + sum(text_tokens(document[key]) for key in ("name", "context") if document.get(key))


def video_tokens(video: dict[str, Any]) -> int:
    """Return the tokens of a video content."""
    return _by_size(_bytes(video), *_VIDEO)


def audio_tokens(audio: dict[str, Any]) -> int:
    """Return the tokens of an audio content."""
    return _by_size(_bytes(audio), *_AUDIO)


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) as the header of a PNG, GIF, WebP or JPEG states them, None if it cannot be read."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return struct.unpack(">II", data[16:24])
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack("<HH", data[6:10])
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
    except (struct.error, IndexError):
        pass
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int(struct.unpack(">H", data[at + 2 : at + 4])[0])
    return None


def _bytes(content: dict[str, Any]) -> bytes:
    data = (content.get("source") or {}).get("bytes")
    return data if isinstance(data, bytes) else b""


def _by_size(data: bytes, bytes_per_token: int, least: int) -> int:
    return max(least, len(data) // bytes_per_token)
