"""Conversion of values to stored bytes: JSON with compression, encryption and a checksum.

Bytes and some numbers have no JSON form. They are stored as an object with one key, such as
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

from strands_manga_memory.arguments import checked
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, MangaMemoryError
from strands_manga_memory.messages import text_of

logger = logging.getLogger(__name__)

MOST_LEVELS = 100
"""Most levels of a value that is stored as JSON, far fewer than the stack allows."""

_MOST_BITS = 63
"""Most bits of an integer that is stored as JSON, because some JSON readers change larger
integers.
"""

_KEYS = frozenset({str})
_PLAIN: frozenset[type] = frozenset({str, bool, type(None)})
_SCALARS = _PLAIN | {int, float, bytes}
_CONTAINERS = (dict, list, tuple, set, frozenset, Mapping)

VERSION = 3
"""Version of the format of stored values. Values of other versions are rejected."""

_MAGIC = 0xB7
_COMPRESSED, _ENCRYPTED = 1, 2


class Cipher(Protocol):
    """Protocol of ciphers, which encrypt values before they are stored.

    ``place`` is the storage key of a value. A value can be decrypted only under the storage key for
    which it was encrypted.
    """

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return ``data`` encrypted for the storage key ``place``."""

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return the decrypted value.

        Raises:
            ValueError: The data or the storage key ``place`` was changed.
            KeyMissingError: The cipher lacks the encryption key.
        """


def check_version(version: int, place: str) -> None:
    """Raise ``CorruptRecordError`` unless ``version`` is the current format version of records.

    ``place`` is the storage key of the record, for the error message.
    """
    if version != VERSION:
        advice = "; upgrade it" if version > VERSION else ""
        raise CorruptRecordError(
            f"record={place!r} has version {version}, this package reads {VERSION}{advice}",
            record=place,
        )


class Codec:
    """Converter of values to stored bytes and back, with compression, encryption and a checksum.

    The checksum covers the content of a value, its storage key, and its header (format version,
    flags for compression and encryption). Flipped bits, truncated values and values copied to
    another storage key are therefore detected.

    Args:
        cipher: Cipher that encrypts each value. None: values are stored in clear text.
        compress_from: Least size in bytes of values that are compressed with zlib. Default 1,024,
            so that smaller values stay readable in the store.
        allow_plain: Whether a codec with a cipher also reads unencrypted values, while encryption
            is being introduced. Default False: such values are rejected, because anyone with write
            access could have stored one.
    """

    @checked
    def __init__(
        self, *, cipher: Cipher | None = None, compress_from: int = 1024, allow_plain: bool = False
    ) -> None:
        self._cipher = cipher
        self._compress_from = compress_from
        self._allow_plain = allow_plain

    def __repr__(self) -> str:
        return f"Codec(encrypts={self.encrypts}, compress_from={self._compress_from})"

    def check_plain(self, place: str) -> None:
        """Raise ``CorruptRecordError`` if this codec must reject unencrypted records.

        ``place`` is the storage key of an unencrypted record, for the error message.
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
        """Convert a serialized value to the stored form: compressed, encrypted, with a checksum.

        Args:
            dumped: Serialized value, as returned by ``dump``.
            place: Storage key of the value. The value can be read only with the same key.
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
            CorruptRecordError: The bytes are damaged, belong to another storage key than ``place``,
                have another version, or are not encrypted although they must be. The message names
                ``place``.
            KeyMissingError: The value is encrypted, and the cipher or its key is missing.
        """
        if not isinstance(data, bytes) or len(data) < 7 or data[0] != _MAGIC:
            raise CorruptRecordError(
                f"record={place!r} is damaged: it has no valid header", record=place
            )
        version, flags, payload = data[1], data[2], data[7:]
        check_version(version, place)
        if data[3:7] != _checksum(version, flags, place, payload):
            raise CorruptRecordError(
                f"record={place!r} is damaged: its checksum does not match", record=place
            )
        try:
            if flags & _ENCRYPTED:
                if self._cipher is None:
                    raise KeyMissingError(
                        f"record={place!r} is encrypted and no cipher was given; pass"
                        " codec=Codec(cipher=...)",
                        record=place,
                    )
                payload = self._cipher.decrypt(payload, place)
            else:
                self.check_plain(place)
            return unpacked(payload) if flags & _COMPRESSED else payload
        except (ValueError, zlib.error) as error:
            raise CorruptRecordError(
                f"record={place!r} is damaged: {error}", record=place
            ) from error

    def encode(self, value: Any, place: str) -> bytes:
        """Convert a value from Python to its stored form, for the storage key ``place``."""
        return self.seal(dump(value), place)

    def decode(self, data: object, place: str) -> Any:
        """Convert a value from its stored form to Python.

        Raises:
            CorruptRecordError: The bytes are damaged, or are not a valid record of ``place``.
            KeyMissingError: The value is encrypted, and the cipher or its key is missing.
        """
        return load_stored(self.unseal(data, place), place)


def dump(value: Any) -> bytes:
    """Serialize a value as compact JSON, from which ``load`` restores the value.

    Texts, numbers, booleans, None, bytes, lists, and dicts with texts as keys are restored
    unchanged. Bytes are stored as ``{"$bytes": "BASE64"}``, numbers such as NaN as
    ``{"$float": "nan"}``, and integers of over 63 bits as ``{"$int": "HEX"}``. If the single key of
    a dict begins with ``$``, one more ``$`` is stored before the key.

    All other values are converted, and ``load`` does not restore the original value. Tuples and
    sets become lists. Keys of dicts become texts. Dates, times and ``Decimal`` become their
    ``str()``. Any other object also becomes its ``str()``, and a warning is logged. The same
    applies to a container that contains itself or is nested deeper than ``MOST_LEVELS``.
    """
    tags = 0

    def tag(item: bytes) -> dict[str, str]:
        nonlocal tags
        tags += 1
        return _tagged_bytes(item)

    if is_json(value, levels=MOST_LEVELS - 1, plain=_PLAIN | {bytes}):
        with suppress(TypeError):  # bytes and a lone surrogate
            text = json_bytes(value, tag)
            if text.count(_TAG) == tags:  # no key of the value needs one more ``$``
                return text
    return json_bytes(_tagged(value))


def load(data: bytes) -> Any:
    """Return the value that ``dump`` serialized.

    Raises:
        Exception: The bytes are invalid, or contain JSON that is nested more deeply than ``dump``
            allows. The type of the error is in ``MALFORMED``.
    """
    value = json_value(data, _untagged if _TAG in data else None)
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS and is_nested_deeper(value, MOST_LEVELS):
        raise ValueError(f"it has over {MOST_LEVELS} levels")
    return value


_TAG = b'{"$'
"""Beginning of the JSON objects that stand for bytes and numbers, and of no other JSON objects that
``load`` must convert.
"""

_TAGS: dict[str, Callable[[str], Any]] = {
    "$bytes": base64.b64decode,
    "$int": lambda text: int(text, 16),
    "$float": float,
}
"""Parsers of the values that JSON cannot represent, by the key of their JSON object."""


def _tagged(value: Any, path: frozenset[int] = frozenset()) -> Any:
    """Convert a value to values that JSON has, such as bytes to ``{"$bytes": "BASE64"}``.

    ``path`` contains the ``id()`` of each container around the value, to detect cycles.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MOST_BITS else {"$int": f"{int(value):x}"}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        return _tagged_bytes(value)
    is_stored = _is_container(value) and id(value) not in path
    if is_stored and (not value or len(path) < MOST_LEVELS - 1):
        path |= {id(value)}
        if not isinstance(value, Mapping):
            if isinstance(value, set | frozenset):
                value = sorted(value, key=partial(text_of, written=repr))
            return [_tagged(item, path) for item in value]
        named = {
            str.__str__(key) if isinstance(key, str) else text_of(key): _tagged(item, path)
            for key, item in value.items()
        }
        is_escaped = len(named) == 1 and next(iter(named))[:1] == "$"
        return {f"${key}": item for key, item in named.items()} if is_escaped else named
    if not isinstance(value, date | time | Decimal):
        logger.warning(
            "type=<%s> | value has no stored form, its text is stored", type(value).__name__
        )
    return text_of(value)


def _tagged_bytes(value: bytes | bytearray | memoryview) -> dict[str, str]:
    return {"$bytes": base64.b64encode(value).decode("ascii")}


def _untagged(found: dict[str, Any]) -> Any:
    """Restore a value from a JSON object, such as bytes from ``{"$bytes": "BASE64"}``.

    An unknown key with ``$`` raises ``LookupError``.
    """
    if len(found) == 1 and (key := next(iter(found)))[:1] == "$":
        return {key[1:]: found[key]} if key[1:2] == "$" else _TAGS[key](found[key])
    return found


def _is_container(value: Any) -> bool:
    return type(value) not in _SCALARS and isinstance(value, _CONTAINERS)


def load_stored(data: bytes, record: object) -> Any:
    """Return the value that ``dump`` serialized and a store returned.

    Raises:
        CorruptRecordError: The bytes are invalid. The message names ``record``.
    """
    with trusted(record):
        return load(data)


MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Errors that parsing a malformed record may raise."""


@contextmanager
def trusted(record: object) -> Iterator[None]:
    """Convert parse errors of a ``with`` block to ``CorruptRecordError``.

    Errors of this package, and errors that malformed data do not cause, are raised unchanged.

    Args:
        record: Name of the stored record that is parsed, or an object whose ``str()`` is the name.
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
"""The two surrogates of one character."""


def json_bytes(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Serialize a value as compact JSON.

    ``default`` converts values of types that JSON lacks. ``TypeError`` is raised for such a value
    without ``default``, and in a value that also has a lone surrogate (half a UTF-16 character).
    """
    try:  # a copy, because orjson's result holds its whole buffer
        return bytes(memoryview(orjson.dumps(value, default)))
    except TypeError:  # a lone surrogate, which UTF-8 lacks
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        split = _SPLIT_CHARACTER.search(text)  # its two escapes would be read as one character
        return text.encode("utf-8", "surrogatepass" if split else "backslashreplace")


def json_value(text: bytes, restored: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse JSON that :func:`json_bytes` has written.

    The function ``restored`` converts each JSON object, if given. Invalid JSON raises
    ``ValueError``.
    """
    if restored is None:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    return json.loads(text, object_hook=restored)


def _checksum(version: int, flags: int, place: str, payload: bytes) -> bytes:
    seed = zlib.crc32(place.encode(), zlib.crc32(bytes((version, flags))))
    return zlib.crc32(payload, seed).to_bytes(4, "big")


MOST_UNPACKED = 64 * 1024 * 1024
"""Largest value that is compressed, in bytes.
A larger decompressed size indicates a decompression bomb.
"""

_MOST_TIMES, _SMALLEST = 16, 1024
"""Limits of decompressed bytes: 16 times the compressed ones, or 1 KiB if that is more."""

_LEVEL = 6


def packed(payload: bytes) -> bytes | None:
    """Compress serialized bytes.

    Return None for more than 64 MiB, or if compression does not make the bytes smaller.
    """
    if len(payload) > MOST_UNPACKED:
        return None
    data = zlib.compress(payload, _LEVEL, wbits=-15)
    least = 0 if len(payload) <= _SMALLEST else -(-len(payload) // _MOST_TIMES)
    data = data.ljust(least, b"\0")  # the limit of ``unpacked`` depends on the size
    return data if len(data) < len(payload) else None


def unpacked(payload: bytes) -> bytes:
    """Decompress serialized bytes.

    The size of ``payload`` limits the size of the result, as a protection against decompression
    bombs.

    Raises:
        ValueError: The value is truncated, or exceeds the limit.
        zlib.error: The value is damaged.
    """
    unpacking = zlib.decompressobj(-15)
    most = min(MOST_UNPACKED, max(_SMALLEST, _MOST_TIMES * len(payload)))
    data = unpacking.decompress(payload, most + 1)
    if len(data) > most:
        raise ValueError(
            f"it unpacks to over {most:,} bytes, the most that {len(payload):,} stored bytes may"
            " hold"
        )
    if not unpacking.eof or unpacking.unused_data.strip(b"\0"):
        raise ValueError("it is truncated, or other bytes follow it")
    return data


def is_json(
    value: Any,
    *,
    levels: int = MOST_LEVELS,
    bits: int = _MOST_BITS,
    exponents: int = 1 << 11,
    plain: frozenset[type] = _PLAIN,
) -> bool:
    """Return whether JSON represents a value exactly.

    Args:
        value: The value.
        levels: Most levels of nested containers.
        bits: Most bits of an integer, because some JSON readers change larger integers.
        exponents: Largest binary exponent of a float, positive or negative.
        plain: Types of values that are not checked.
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
                elif kind not in plain and not (
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


def as_json(value: Any, *, ensure_ascii: bool = True, sort_keys: bool = False) -> str:
    """Return a value as JSON text.

    An object without a JSON form is written as its type, such as ``"<date>"``. A value that
    Python's JSON encoder rejects, such as a dict with a tuple as a key, is first converted as in
    ``dump``.
    """
    try:
        return json.dumps(
            value,
            default=lambda item: f"<{type(item).__name__}>",
            ensure_ascii=ensure_ascii,
            sort_keys=sort_keys,
        )
    except (TypeError, ValueError, RecursionError):  # another key, a long number, deep nesting
        return json.dumps(_tagged(value), ensure_ascii=ensure_ascii)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether containers in a value are nested deeper than ``levels`` levels."""
    level = [value] if _is_container(value) else []
    for _ in range(levels + 1):
        if not level:
            return False
        items = chain.from_iterable(
            holder.values() if isinstance(holder, Mapping) else holder for holder in level
        )  # unique by id, because a value that contains itself would grow
        level = list({id(item): item for item in items if _is_container(item)}.values())
    return True
