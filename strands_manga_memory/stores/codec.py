"""Codec: the one way a value becomes stored bytes and comes back unharmed."""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, MangaMemoryError

logger = logging.getLogger(__name__)

VERSION = 1
"""Version of the stored form. A record of a newer one is refused, never guessed at."""

_MAGIC = 0xB7
_COMPRESSED, _ENCRYPTED = 1, 2

MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes up to which a value is compressed. What unpacks to more was made to fill the memory of whoever reads it."""


class Cipher(Protocol):
    """Encrypts stored values on the client; ``place`` is authenticated with them, so a value moved elsewhere is refused."""

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return ``data`` encrypted for ``place``."""

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return what ``encrypt`` was given; raise ``ValueError`` if ``data`` or ``place`` differ, or ``KeyMissingError``."""


class Codec:
    """Compress, encrypt, checksum.

    A sealed value is one magic byte, one byte of version, one of flags, four of CRC-32 over version, flags, place and payload,
    then the payload. So a flipped bit, a cut value and a value copied to another place are all noticed.

    Args:
        cipher: Encrypts each value; None stores them in the clear.
        compress_from: Values of at least this many bytes are compressed with zlib. Default 256.
        allow_plain: With a cipher, read values that are not encrypted too: while an application that had none changes over.
            Default False: they are refused, as anybody who can write to the store could have put them there.
    """

    def __init__(self, *, cipher: Cipher | None = None, compress_from: int = 256, allow_plain: bool = False) -> None:
        self._cipher = cipher
        self._compress_from = compress_from
        self._allow_plain = allow_plain

    @property
    def allows_plain(self) -> bool:
        """Whether values that are not encrypted are read."""
        return self._cipher is None or self._allow_plain

    def check_plain(self, place: str) -> None:
        """Raise ``CorruptRecordError`` naming ``place`` if values that are not encrypted are refused."""
        if not self.allows_plain:
            advice = "Codec(allow_plain=True) reads what was stored before there was a cipher"
            raise CorruptRecordError(f"record={place!r} is not encrypted; {advice}", record=place)

    def seal(self, dumped: bytes, place: str) -> bytes:
        """Return the stored form of what ``dump`` returned.

        Args:
            dumped: Bytes of a dumped value.
            place: Where the value will be stored; opening it from anywhere else fails.
        """
        payload, flags = dumped, 0
        if self._compress_from <= len(payload) <= MOST_UNPACKED:
            packed = zlib.compress(payload, 3)
            if len(packed) < len(payload):
                payload, flags = packed, _COMPRESSED
        if self._cipher is not None:
            payload, flags = self._cipher.encrypt(payload, place), flags | _ENCRYPTED
        return bytes((_MAGIC, VERSION, flags)) + _checksum(VERSION, flags, place, payload) + payload

    def unseal(self, data: object, place: str) -> bytes:
        """Return what ``seal`` was given.

        Raises:
            CorruptRecordError: The bytes are damaged, come from another place, or a newer version wrote them. Names ``place``.
            KeyMissingError: They are encrypted, and there is no cipher, or it has no such key.
        """
        if not isinstance(data, bytes) or len(data) < 7 or data[0] != _MAGIC:
            raise CorruptRecordError(f"record={place!r} is damaged: it has no valid header", record=place)
        version, flags, payload = data[1], data[2], data[7:]
        if version > VERSION:
            raise CorruptRecordError(
                f"record={place!r} has version {version}, this package reads up to {VERSION}; upgrade it", record=place
            )
        if data[3:7] != _checksum(version, flags, place, payload):
            raise CorruptRecordError(f"record={place!r} is damaged: its checksum does not match", record=place)
        try:
            if flags & _ENCRYPTED:
                if self._cipher is None:
                    raise KeyMissingError(
                        f"record={place!r} is encrypted and no cipher was given; pass codec=Codec(cipher=...)", record=place
                    )
                payload = self._cipher.decrypt(payload, place)
            else:
                self.check_plain(place)
            return unpacked(payload) if flags & _COMPRESSED else payload
        except (ValueError, zlib.error) as error:
            raise CorruptRecordError(f"record={place!r} is damaged: {error}", record=place) from error

    def encode(self, value: Any, place: str) -> bytes:
        """Return the stored form of a value: ``seal`` of its ``dump``."""
        return self.seal(dump(value), place)

    def decode(self, data: object, place: str) -> Any:
        """Return what ``encode`` was given; raise ``CorruptRecordError`` as ``unseal`` does."""
        return load_stored(self.unseal(data, place), place)


def unpacked(payload: bytes, *, before: bytes = b"") -> bytes:
    """Return what was compressed, with ``before`` as preset dictionary.

    Raises:
        ValueError: It is cut, or unpacks to over 64 MiB.
        zlib.error: It is damaged, or was compressed with another dictionary.
    """
    unpacking = zlib.decompressobj(zdict=before)
    data = unpacking.decompress(payload, MOST_UNPACKED + 1)
    if not unpacking.eof or unpacking.unused_data or len(data) > MOST_UNPACKED:
        raise ValueError(f"it is cut, or unpacks to over {MOST_UNPACKED:,} bytes")
    return data


_BYTES_KEY = "\0bytes"
_HAS_BYTES = b"B"  # JSON text never starts with it


def dump(value: Any) -> bytes:
    """Return a value of dicts, lists, strings, numbers, booleans, None and ``bytes`` as compact bytes.

    Anything else is stored as its ``str()``, with a warning: a tool that returns such a thing must not end the turn.
    """
    try:
        return _json(value)
    except TypeError:
        return _HAS_BYTES + _json(_wrapped(value))


def load(data: bytes) -> Any:
    """Return what ``dump`` was given."""
    has_bytes = data[:1] == _HAS_BYTES
    value = json.loads(data[has_bytes:].decode("utf-8", "surrogatepass"))
    return _unwrapped(value) if has_bytes else value


def load_stored(data: bytes, record: str) -> Any:
    """Return what ``dump`` was given, when it comes from a store.

    Raises:
        CorruptRecordError: It is nothing that ``dump`` makes, or is nested over 250 levels deep. Names ``record``.
    """
    with trusted(record):
        value = load(data)
        # Whoever copies or compares a value goes as deep as it does. Counting is fast, and most values have few brackets.
        if data.count(b"[") + data.count(b"{") > _MOST_LEVELS and _is_deeper(value, _MOST_LEVELS):
            raise ValueError(f"it is nested over {_MOST_LEVELS} levels deep")
        return value


@contextmanager
def trusted(record: str) -> Iterator[None]:
    """Turn what a malformed record makes the code that reads it raise into ``CorruptRecordError``, naming ``record``."""
    try:
        yield
    except MangaMemoryError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptRecordError(
            f"record={record!r} is damaged: {type(error).__name__}: {error!s:.200}", record=record
        ) from error


_MOST_LEVELS = 250


def _is_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # made once: json.dumps makes one each time


def _json(value: Any) -> bytes:
    return _encoded(value).encode("utf-8", "surrogatepass")


def _wrapped(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {_BYTES_KEY: base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {f"\0{key}" if str(key).startswith("\0") else key: _wrapped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wrapped(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    logger.warning("type=<%s> | value is not JSON, its text is stored", type(value).__name__)
    return str(value)


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict):
        if _BYTES_KEY in value:
            return base64.b64decode(value[_BYTES_KEY])
        return {key[1:] if key.startswith("\0") else key: _unwrapped(item) for key, item in value.items()}
    return [_unwrapped(item) for item in value] if isinstance(value, list) else value


def _checksum(version: int, flags: int, place: str, payload: bytes) -> bytes:
    seed = zlib.crc32(place.encode(), zlib.crc32(bytes((version, flags))))
    return zlib.crc32(payload, seed).to_bytes(4, "big")
