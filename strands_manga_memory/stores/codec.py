"""Conversion of Python values to stored bytes: JSON with compression, encryption and a checksum.

JSON cannot represent bytes and some numbers. They are stored as an object with one key, such as
``{"$bytes": "/9j/4AAQ"}``.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, time
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, Protocol

import orjson
from pydantic import ValidationError

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, MangaMemoryError
from strands_manga_memory.messages import text_of

logger = logging.getLogger(__name__)

MAX_LEVELS = 100
"""Maximum number of nested levels in a value that is stored as JSON."""

_MAX_BITS = 63
"""Maximum bits of an integer in JSON, because some JSON readers change larger integers."""

_KEYS = frozenset({str})
_PLAIN: frozenset[type] = frozenset({str, bool, type(None)})
_SCALARS = _PLAIN | {int, float, bytes}
_CONTAINERS = (dict, list, tuple, set, frozenset, Mapping)

VERSION = 3
"""Version of the format of stored values. Values of other versions are rejected."""

_MAGIC = 0xB7
_COMPRESSED, _ENCRYPTED = 1, 2


class Cipher(Protocol):
    """Protocol of ciphers, which encrypt values before a store gets them.

    ``storage_key`` is the key under which the store keeps the value. ``decrypt`` must fail for a
    value that was encrypted with another ``storage_key``, so that copied values are detected.
    """

    def encrypt(self, data: bytes, storage_key: str) -> bytes:
        """Encrypt a value. Only ``decrypt`` with the same ``storage_key`` can read the result."""

    def decrypt(self, data: bytes, storage_key: str) -> bytes:
        """Decrypt a value that ``encrypt`` returned for the same ``storage_key``.

        Raises:
            ValueError: The data is damaged, or was encrypted for another ``storage_key``.
            KeyMissingError: The cipher does not have the encryption key.
        """


def check_version(version: int, storage_key: str) -> None:
    """Raise ``CorruptRecordError`` if a stored record does not have the current format version.

    ``storage_key`` is the record's key in its store, for the error message.
    """
    if version != VERSION:
        advice = "; upgrade the package" if version > VERSION else ""
        raise CorruptRecordError(
            f"record={storage_key!r} has version {version}, this package reads {VERSION}{advice}",
            record=storage_key,
        )


@with_repr("encrypts", "_compress_from")
class Codec:
    """Converter of Python values to stored bytes, with compression, encryption and a checksum.

    The checksum covers the content of a value, its header, and its storage key (the key under which
    the store keeps the value). ``decode`` therefore rejects damaged values, and values that were
    copied to another storage key.

    Args:
        cipher: Cipher that encrypts each value. Default None: values are not encrypted.
        compress_from: Smallest size in bytes of values that are compressed. Default 1,024, so that
            smaller values stay readable in the store.
        allow_plain: Whether a codec with a cipher also reads unencrypted values. Use True while you
            introduce encryption. Default False: unencrypted values are rejected, because anyone
            with write access to the store could have written them.

    Attributes:
        cipher: Cipher that encrypts each value, or None.
    """

    @checked
    def __init__(
        self, *, cipher: Cipher | None = None, compress_from: int = 1024, allow_plain: bool = False
    ) -> None:
        self.cipher = cipher
        self._compress_from = compress_from
        self._allow_plain = allow_plain

    def check_plain(self, storage_key: str) -> None:
        """Reject an unencrypted record, unless this codec may read unencrypted records.

        A codec may read them if it has no cipher, or with ``allow_plain=True``. Otherwise,
        ``CorruptRecordError`` is raised. ``storage_key`` is the record's key in its store, for the
        error message.
        """
        if self.encrypts and not self._allow_plain:
            advice = "Codec(allow_plain=True) also reads records from before encryption"
            raise CorruptRecordError(
                f"record={storage_key!r} is not encrypted; {advice}", record=storage_key
            )

    @property
    def encrypts(self) -> bool:
        """Whether this codec encrypts values."""
        return self.cipher is not None

    def seal(self, dumped: bytes, storage_key: str) -> bytes:
        """Convert the bytes from ``dump`` to stored bytes: compressed, encrypted, with a checksum.

        Args:
            dumped: Value in the JSON format of ``dump``.
            storage_key: Key under which the store keeps the value. Only ``unseal`` with the same
                key can read the value.
        """
        payload, flags = dumped, 0
        smaller = compress(payload) if len(payload) >= self._compress_from else None
        if smaller is not None:
            payload, flags = smaller, _COMPRESSED
        if self.cipher is not None:
            payload, flags = self.cipher.encrypt(payload, storage_key), flags | _ENCRYPTED
        return (
            bytes((_MAGIC, VERSION, flags))
            + _checksum(VERSION, flags, storage_key, payload)
            + payload
        )

    def unseal(self, data: object, storage_key: str) -> bytes:
        """Verify, decrypt and decompress stored bytes. The result is JSON that ``load`` parses.

        Raises:
            CorruptRecordError: The bytes are damaged, belong to another key than ``storage_key``,
                have another format version, or are unencrypted although the codec requires
                encryption. The message contains ``storage_key``.
            KeyMissingError: The value is encrypted, and the cipher or its key is missing.
        """
        if not isinstance(data, bytes) or len(data) < 7 or data[0] != _MAGIC:
            raise CorruptRecordError(
                f"record={storage_key!r} is damaged: it has no valid header", record=storage_key
            )
        version, flags, payload = data[1], data[2], data[7:]
        check_version(version, storage_key)
        if data[3:7] != _checksum(version, flags, storage_key, payload):
            raise CorruptRecordError(
                f"record={storage_key!r} is damaged: its checksum does not match",
                record=storage_key,
            )
        try:
            if flags & _ENCRYPTED:
                if self.cipher is None:
                    raise KeyMissingError(
                        f"record={storage_key!r} is encrypted and no cipher was given; pass"
                        " codec=Codec(cipher=...)",
                        record=storage_key,
                    )
                payload = self.cipher.decrypt(payload, storage_key)
            else:
                self.check_plain(storage_key)
            return decompress(payload) if flags & _COMPRESSED else payload
        except (ValueError, zlib.error) as error:
            raise CorruptRecordError(
                f"record={storage_key!r} is damaged: {error}", record=storage_key
            ) from error

    def encode(self, value: Any, storage_key: str) -> bytes:
        """Convert a Python value to the bytes that a store keeps under the key ``storage_key``.

        ``decode`` rejects the bytes if they were copied to another storage key.
        """
        return self.seal(dump(value), storage_key)

    def decode(self, data: object, storage_key: str) -> Any:
        """Convert stored bytes to the Python value that was passed to ``encode``.

        Raises:
            CorruptRecordError: The bytes are damaged or invalid, or belong to another storage key.
            KeyMissingError: The value is encrypted, and the cipher or its key is missing.
        """
        with parsing(storage_key):
            return load(self.unseal(data, storage_key))


def dump(value: Any) -> bytes:
    """Serialize a Python value as compact JSON, which ``load`` converts back.

    These values are restored unchanged: texts, numbers, booleans, None, bytes, lists, and dicts
    whose keys are texts. Bytes are stored as ``{"$bytes": "BASE64"}``, NaN and infinities as
    ``{"$float": "nan"}``, and integers of over 63 bits as ``{"$int": "HEX"}``. A dict with a single
    key that begins with ``$`` gets one more ``$`` before the key.

    Other values are changed. Tuples and sets become lists. Keys of dicts become texts. Dates, times
    and ``Decimal`` become their ``str()``. Any other object, a container that contains itself, and
    a container nested deeper than ``MAX_LEVELS`` also become their ``str()``, and a warning is
    logged.
    """
    if is_json(value, levels=MAX_LEVELS - 1):
        text = json_bytes(value)
        if _TAG not in text:  # no key of the value needs one more ``$``
            return text
    return json_bytes(_json_values(value))


def load(data: bytes) -> Any:
    """Parse JSON bytes from ``dump``, and return the original value.

    Raises:
        Exception: The bytes are not valid JSON, or are nested too deeply. ``MALFORMED`` lists the
            possible types of the error.
    """
    value = json_value(data, _restore_value if _TAG in data else None)
    if data.count(b"[") + data.count(b"{") > MAX_LEVELS and is_nested_deeper(value, MAX_LEVELS):
        raise ValueError(f"it has over {MAX_LEVELS} levels")
    return value


_TAG = b'{"$'
"""Beginning of the JSON objects that ``load`` must convert, such as those of bytes."""

_TAGS: dict[str, Callable[[str], Any]] = {
    "$bytes": base64.b64decode,
    "$int": lambda text: int(text, 16),
    "$float": float,
}
"""Parsers of the values that JSON cannot represent, by the key of their JSON object."""


def _json_values(value: Any, path: frozenset[int] = frozenset()) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_BITS else {"$int": f"{int(value):x}"}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    # ``path`` has the ``id()`` of each container around the value, to detect cycles.
    is_stored = _is_container(value) and id(value) not in path
    if is_stored and (not value or len(path) < MAX_LEVELS - 1):
        path |= {id(value)}
        if not isinstance(value, Mapping):
            if isinstance(value, set | frozenset):
                value = sorted(value, key=partial(text_of, written=repr))
            return [_json_values(item, path) for item in value]
        named = {
            str.__str__(key) if isinstance(key, str) else text_of(key): _json_values(item, path)
            for key, item in value.items()
        }
        is_escaped = len(named) == 1 and next(iter(named))[:1] == "$"
        return {f"${key}": item for key, item in named.items()} if is_escaped else named
    if not isinstance(value, date | time | Decimal):
        logger.warning(
            "type=<%s> | the value has no JSON form, its str() is stored", type(value).__name__
        )
    return text_of(value)


def _restore_value(found: dict[str, Any]) -> Any:
    if len(found) == 1 and (key := next(iter(found)))[:1] == "$":
        return {key[1:]: found[key]} if key[1:2] == "$" else _TAGS[key](found[key])
    return found


def _is_container(value: Any) -> bool:
    return type(value) not in _SCALARS and isinstance(value, _CONTAINERS)


MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Errors that parsing a malformed record may raise."""


@contextmanager
def parsing(record: object) -> Iterator[None]:
    """Raise a ``CorruptRecordError`` for errors of a ``with`` block that parses a stored record.

    Only errors that damaged data can cause, such as ``KeyError`` and ``ValueError``, are replaced.
    Other errors, and those of this package, are raised unchanged. ``str(record)`` is the name of
    the record for the error message.
    """
    try:
        yield
    except MangaMemoryError:
        raise
    except MALFORMED as error:
        name, reason = str(record), str(error)
        if isinstance(error, ValidationError):  # its text has several lines, with the stored values
            reason = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
            )
        what = f"record={name!r} is damaged: {type(error).__name__}: {reason:.200}"
        raise CorruptRecordError(what, record=name) from error


_SPLIT_CHARACTER = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""Pair of surrogates that a JSON reader would join to one character."""


def json_bytes(value: Any) -> bytes:
    """Serialize a value of JSON's types as compact JSON."""
    try:  # a copy, because orjson's result holds its whole buffer
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:  # a lone surrogate, which UTF-8 lacks
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        split = _SPLIT_CHARACTER.search(text)  # its two escapes would be read as one character
        return text.encode("utf-8", "surrogatepass" if split else "backslashreplace")


def json_value(text: bytes, restored: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse JSON bytes from ``json_bytes``. Invalid JSON raises ``ValueError``.

    ``restored`` converts each JSON object. Default: objects become dicts.
    """
    if restored is None:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    return json.loads(text, object_hook=restored)


def _checksum(version: int, flags: int, storage_key: str, payload: bytes) -> bytes:
    seed = zlib.crc32(storage_key.encode(), zlib.crc32(bytes((version, flags))))
    return zlib.crc32(payload, seed).to_bytes(4, "big")


MAX_DECOMPRESSED = 64 * 1024 * 1024
"""Largest value that is compressed, in bytes.
A larger decompressed size indicates a decompression bomb.
"""

_MAX_RATIO, _SMALLEST = 16, 1024
"""Limit of decompressed bytes: 16 times the compressed bytes, at least 1 KiB."""

_LEVEL = 6


def compress(payload: bytes) -> bytes | None:
    """Compress bytes. Return None if they have over 64 MiB, or if the result is not smaller."""
    if len(payload) > MAX_DECOMPRESSED:
        return None
    data = zlib.compress(payload, _LEVEL, wbits=-15)
    least = 0 if len(payload) <= _SMALLEST else -(-len(payload) // _MAX_RATIO)
    data = data.ljust(least, b"\0")  # the limit of ``decompress`` depends on the size
    return data if len(data) < len(payload) else None


def decompress(payload: bytes) -> bytes:
    """Decompress bytes from ``compress``, with protection against decompression bombs.

    The limit of the result is 16 times the size of ``payload``, but at least 1 KiB and at most 64
    MiB.

    Raises:
        ValueError: The bytes are truncated, or the result exceeds the limit.
        zlib.error: The bytes are damaged.
    """
    decompressor = zlib.decompressobj(-15)
    most = min(MAX_DECOMPRESSED, max(_SMALLEST, _MAX_RATIO * len(payload)))
    data = decompressor.decompress(payload, most + 1)
    if len(data) > most:
        raise ValueError(
            f"it decompresses to over {most:,} bytes, the limit for {len(payload):,} stored bytes"
        )
    if not decompressor.eof or decompressor.unused_data.strip(b"\0"):
        raise ValueError("it is truncated, or other bytes follow it")
    return data


def is_json(
    value: Any,
    *,
    levels: int = MAX_LEVELS,
    bits: int = _MAX_BITS,
    exponents: int = 1 << 11,
) -> bool:
    """Return whether JSON can represent a value exactly, within the given limits.

    Args:
        value: The value.
        levels: Maximum depth of nested containers.
        bits: Maximum number of bits of an integer. Some JSON readers change larger integers.
        exponents: Maximum binary exponent of a float, positive or negative.
    """
    level: list[Any] = [[value]]
    for left in reversed(range(levels + 1)):
        held: dict[int, Any] = {}  # by id, because a value that contains itself would grow
        for holder in level:
            if holder and not left:
                return False
            if type(holder) is dict and not _KEYS.issuperset(map(type, holder)):
                return False
            for item in holder.values() if type(holder) is dict else holder:
                kind = type(item)
                if kind is dict or kind is list:
                    held[id(item)] = item
                elif kind not in _PLAIN and not (
                    (kind is int and item.bit_length() <= bits)
                    or (
                        kind is float
                        and math.isfinite(item)
                        and abs(math.frexp(item)[1]) <= exponents
                    )
                ):
                    return False
        if not held:
            return True
        level = list(held.values())
    return False


def as_json(value: Any, *, ensure_ascii: bool = True) -> str:
    """Return JSON text for a value of any type, to show the value or measure its length.

    An object without a JSON form is replaced by the name of its type, such as ``"<date>"``. Keys
    that JSON does not allow, such as tuples, are converted to texts.
    """
    try:
        return json.dumps(
            value,
            default=lambda item: f"<{type(item).__name__}>",
            ensure_ascii=ensure_ascii,
        )
    except (TypeError, ValueError, RecursionError):  # another key, a long number, deep nesting
        return json.dumps(_json_values(value), ensure_ascii=ensure_ascii)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether containers in a value, such as lists, are nested deeper than ``levels``."""
    level = [value] if _is_container(value) else []
    for _ in range(levels + 1):
        if not level:
            return False
        items = chain.from_iterable(
            holder.values() if isinstance(holder, Mapping) else holder for holder in level
        )  # unique by id, because a value that contains itself would grow
        level = list({id(item): item for item in items if _is_container(item)}.values())
    return True
