"""Difference: a value as what it has that an earlier one has not. Pure.

A state of some kilobytes changes by some bytes a turn. The difference is the value, compressed with the earlier one as preset
dictionary (RFC 1950): it knows nothing of what the bytes mean, and is bound to that earlier value by its checksum.
"""

from __future__ import annotations

import zlib

from strands_manga_memory.stores.codec import unpacked

_WINDOW = 32 * 1024
"""So many bytes a compressor looks back, at most."""


def difference(value: bytes, before: bytes) -> bytes:
    """Return what ``value`` has that ``before`` has not; of a long ``before`` only the last 32 KiB are compared."""
    packing = zlib.compressobj(zdict=before[-_WINDOW:])
    return packing.compress(value) + packing.flush()


def applied(difference: bytes, before: bytes) -> bytes:
    """Return the value that :func:`difference` was given.

    Raises:
        ValueError: It is damaged, belongs to another ``before``, or unpacks to over 64 MiB.
    """
    try:
        return unpacked(difference, before=before[-_WINDOW:])
    except zlib.error as error:
        raise ValueError(f"it is no difference to what is stored beside it: {error}") from error
