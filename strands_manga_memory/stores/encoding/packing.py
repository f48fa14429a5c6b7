"""Compression of large stored values, bounded against decompression bombs. Pure.

Compressed values have no header and no checksum of their own: the codec adds both.
"""

from __future__ import annotations

import zlib

MOST_UNPACKED = 64 * 1024 * 1024
"""Largest value that is compressed, in bytes. A larger result of decompression was made to fill the memory of its reader."""

_MOST_TIMES, _SMALLEST = 16, 1024
"""A compressed value holds at most 16 times its bytes, or 1 KiB if that is more."""

_MOST_ELEMENTS, _FEWEST = 2, 256
"""Its JSON has at most two elements a byte, or 256 if that is more: each takes a hundred times its text in memory."""

_LEVEL = 6


def packed(payload: bytes) -> bytes | None:
    """Return a value compressed; None if that does not make it smaller, or it is too large to be decompressed.

    A value that would pass for a decompression bomb is padded with zeros.
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
    """Return a compressed value as it was. Memory and time are bounded by the size of the stored bytes.

    Raises:
        ValueError: The value is cut, or holds more than a compressed value may: it was made to fill the memory of its reader.
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
    """Return an upper bound of the elements of JSON text."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")
