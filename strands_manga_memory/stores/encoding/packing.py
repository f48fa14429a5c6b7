"""Compression of large stored values, protected against decompression bombs. Pure.

Compressed values have no header and no checksum; the codec adds both.
"""

from __future__ import annotations

import zlib

MOST_UNPACKED = 64 * 1024 * 1024
"""Largest value that is compressed, in bytes. A larger decompressed size indicates a decompression bomb."""

_MOST_TIMES, _SMALLEST = 16, 1024
"""Most decompressed bytes: 16 times the compressed ones, or 1 KiB if that is more."""

_MOST_ELEMENTS, _FEWEST = 2, 256
"""Most JSON elements: two per byte, or 256 if that is more, because each element takes much memory."""

_LEVEL = 6


def packed(payload: bytes) -> bytes | None:
    """Compress a value; return None if it does not become smaller, or is too large.

    A value that would exceed the limits of decompression is padded with zeros.
    """
    if len(payload) > MOST_UNPACKED:
        return None
    data = zlib.compress(payload, _LEVEL, wbits=-15)
    least = 0 if len(payload) <= _SMALLEST else -(-len(payload) // _MOST_TIMES)
    elements = _elements(payload)
    least = max(least, 0 if elements <= _FEWEST else -(-elements // _MOST_ELEMENTS))
    data = data.ljust(least, b"\0")
    return data if len(data) < len(payload) else None


def unpacked(payload: bytes) -> bytes:
    """Decompress a value. Memory and time are limited by the size of the stored bytes.

    Raises:
        ValueError: The value is truncated, or exceeds the limits, as a decompression bomb does.
        zlib.error: The value is damaged.
    """
    unpacking = zlib.decompressobj(-15)
    most = min(MOST_UNPACKED, max(_SMALLEST, _MOST_TIMES * len(payload)))
    data = unpacking.decompress(payload, most + 1)
    if len(data) > most:
        raise ValueError(f"it unpacks to over {most:,} bytes, the most that {len(payload):,} stored bytes may hold")
    if not unpacking.eof or unpacking.unused_data.strip(b"\0"):
        raise ValueError("it is cut, or more follows it")
    if _elements(data) > max(_FEWEST, _MOST_ELEMENTS * len(payload)):
        raise ValueError(f"it has more elements than {len(payload):,} stored bytes may hold")
    return data


def _elements(data: bytes) -> int:
    """Return an upper bound of the number of elements in a JSON text."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")
