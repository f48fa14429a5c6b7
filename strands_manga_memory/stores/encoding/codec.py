"""Conversion of values to stored bytes and back, with compression, encryption and a checksum that detects damage."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import orjson

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, MangaMemoryError
from strands_manga_memory.stores.encoding.values import MOST_LEVELS, is_json, is_nested_deeper, nodes_of, value_of

VERSION = 3
"""Version of the format of stored values. Values of other versions are rejected."""

_MAGIC = 0xB7
_COMPRESSED, _ENCRYPTED = 1, 2


class Cipher(Protocol):
    """Encryption of stored values on the client.

    ``place`` is the storage key of a value. A value can be decrypted only under the storage key for which it was encrypted.
    """

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return ``data`` encrypted for the storage key ``place``."""

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return the decrypted value.

        Raises ``ValueError`` if the data or the storage key ``place`` was changed. Raises ``KeyMissingError`` if the cipher
        lacks the encryption key.
        """


def check_version(version: int, place: str) -> None:
    """Raise ``CorruptRecordError`` if the record with the storage key ``place`` has an older or newer format version."""
    if version != VERSION:
        advice = "; upgrade it" if version > VERSION else ""
        raise CorruptRecordError(f"record={place!r} has version {version}, this package reads {VERSION}{advice}", record=place)


class Codec:
    """Converter of values to stored bytes: compresses, encrypts and checksums them.

    The checksum covers the content of a value, its storage key, and its header (format version, flags for compression and
    encryption). Flipped bits, truncated values and values copied to another storage key are therefore detected.

    Args:
        cipher: Cipher that encrypts each value. None: values are stored in clear text.
        compress_from: Least size in bytes of values that are compressed with zlib. Default 1,024, so that smaller values stay
            readable in the store.
        allow_plain: Whether a codec with a cipher also reads unencrypted values, while encryption is being introduced. Default
            False: they are rejected, because anyone with write access could have stored them.
    """

    def __init__(self, *, cipher: Cipher | None = None, compress_from: int = 1024, allow_plain: bool = False) -> None:
        self._cipher = cipher
        self._compress_from = compress_from
        self._allow_plain = of_kind("allow_plain", allow_plain, bool, "True or False")

    def __repr__(self) -> str:
        return f"Codec(encrypts={self.encrypts}, compress_from={self._compress_from})"

    def check_plain(self, place: str) -> None:
        """Raise ``CorruptRecordError`` if this codec rejects unencrypted values.

        ``place`` is the storage key of the unencrypted value, for the message.
        """
        if self.encrypts and not self._allow_plain:
            advice = "Codec(allow_plain=True) reads what was stored before there was a cipher"
            raise CorruptRecordError(f"record={place!r} is not encrypted; {advice}", record=place)

    @property
    def cipher(self) -> Cipher | None:
        """Cipher of the values, or None without encryption."""
        return self._cipher

    @property
    def encrypts(self) -> bool:
        """Whether this codec encrypts values."""
        return self._cipher is not None

    def seal(self, dumped: bytes, place: str) -> bytes:
        """Convert a serialized value to the stored form: compressed if large, encrypted, and with a checksum.

        Args:
            dumped: Serialized value, as returned by ``dump``.
            place: Key under which the value is stored; the value can be read only with the same key.
        """
        payload, flags = dumped, 0
        smaller = packed(payload) if len(payload) >= self._compress_from else None
        if smaller is not None:
            payload, flags = smaller, _COMPRESSED
        if self._cipher is not None:
            payload, flags = self._cipher.encrypt(payload, place), flags | _ENCRYPTED
        return bytes((_MAGIC, VERSION, flags)) + _checksum(VERSION, flags, place, payload) + payload

    def unseal(self, data: object, place: str) -> bytes:
        """Convert a value from the stored form to the serialized form, which ``load`` reads.

        Raises:
            CorruptRecordError: The bytes are damaged, belong to another storage key than ``place``, have another version, or
                are not encrypted although they must be. The message names ``place``.
            KeyMissingError: The value is encrypted, and there is no cipher, or the cipher lacks the key.
        """
        if not isinstance(data, bytes) or len(data) < 7 or data[0] != _MAGIC:
            raise CorruptRecordError(f"record={place!r} is damaged: it has no valid header", record=place)
        version, flags, payload = data[1], data[2], data[7:]
        check_version(version, place)
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
        """Convert a value from Python to its stored form: bytes that are serialized, encrypted and checksummed."""
        return self.seal(dump(value), place)

    def decode(self, data: object, place: str) -> Any:
        """Convert a value from its stored form (bytes) to Python. Raises the errors of ``unseal``."""
        return load_stored(self.unseal(data, place), place)


def dump(value: Any) -> bytes:
    """Serialize a value as compact bytes, from which ``load`` restores the value.

    JSON values are stored as JSON. Bytes, dates, times, ``Decimal``, and numbers and containers that JSON cannot represent,
    such as sets, are stored with their types in the format of ``stores.encoding.values``. Objects of all other types are stored
    as their ``str()``, with a warning, and restored as texts.

    Raises:
        ValueError: The value contains itself.
    """
    return json_bytes(value) if is_json(value) else _AS_NODES + json_bytes(nodes_of(value))


def load(data: bytes) -> Any:
    """Return the value that ``dump`` serialized.

    Raises:
        ValueError: The bytes contain JSON that is nested more deeply than ``dump`` allows.
    """
    if data[:1] == _AS_NODES:
        return value_of(json_value(data[1:]))
    value = json_value(data)
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS and is_nested_deeper(value, MOST_LEVELS):
        raise ValueError(f"it has over {MOST_LEVELS} levels")
    return value


def load_stored(data: bytes, record: object) -> Any:
    """Return the value that ``dump`` serialized and a store returned.

    Raises:
        CorruptRecordError: The bytes are invalid. The message contains ``record``, the name of the stored record.
    """
    with trusted(record):
        return load(data)


MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Errors that parsing a malformed record may raise."""


@contextmanager
def trusted(record: object) -> Iterator[None]:
    """Convert parsing errors in a ``with`` block to ``CorruptRecordError``, because the parsed record is damaged.

    Converted are errors that malformed data cause, such as ``KeyError`` and ``ValueError``. All other errors, and errors of
    this package, are raised unchanged.

    Args:
        record: Name of the record, or an object whose ``str()`` is the name.
    """
    try:
        yield
    except MangaMemoryError:
        raise
    except MALFORMED as error:
        name = str(record)
        what = f"record={name!r} is damaged: {type(error).__name__}: {error!s:.200}"
        raise CorruptRecordError(what, record=name) from error


_AS_NODES = b"V"  # no JSON text starts with it

_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # created once; json.dumps creates one per call


def json_bytes(value: Any) -> bytes:
    """Serialize a JSON value as compact JSON."""
    try:
        return bytes(memoryview(orjson.dumps(value)))  # a copy, because orjson's result holds its whole buffer
    except TypeError:  # a lone surrogate, which UTF-8 lacks
        return _encoded(value).encode("utf-8", "surrogatepass")


def json_value(text: bytes) -> Any:
    """Parse JSON as written by :func:`json_bytes`. Invalid JSON raises ``ValueError``."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text.decode("utf-8", "surrogatepass"))


def _checksum(version: int, flags: int, place: str, payload: bytes) -> bytes:
    seed = zlib.crc32(place.encode(), zlib.crc32(bytes((version, flags))))
    return zlib.crc32(payload, seed).to_bytes(4, "big")


MOST_UNPACKED = 64 * 1024 * 1024
"""Largest value that is compressed, in bytes. A larger decompressed size indicates a decompression bomb."""

_MOST_TIMES, _SMALLEST = 16, 1024
"""Limits of decompressed bytes: 16 times the compressed ones, or 1 KiB if that is more."""

_MOST_ELEMENTS, _FEWEST = 2, 256
"""Limits of JSON elements, which take much memory: two per byte, or 256 if that is more."""

_LEVEL = 6


def packed(payload: bytes) -> bytes | None:
    """Compress serialized bytes. Return None if compression does not make them smaller, or if they are too large."""
    if len(payload) > MOST_UNPACKED:
        return None
    data = zlib.compress(payload, _LEVEL, wbits=-15)
    least = 0 if len(payload) <= _SMALLEST else -(-len(payload) // _MOST_TIMES)
    elements = _elements(payload)
    least = max(least, 0 if elements <= _FEWEST else -(-elements // _MOST_ELEMENTS))
    data = data.ljust(least, b"\0")  # the limits of ``unpacked`` depend on the size
    return data if len(data) < len(payload) else None


def unpacked(payload: bytes) -> bytes:
    """Decompress serialized bytes. The size and complexity of the result are limited, against decompression bombs.

    Raises:
        ValueError: The value is truncated, or exceeds the limits, which depend on the size of ``payload``.
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
    return data.count(b",") + data.count(b"[") + data.count(b"{")
