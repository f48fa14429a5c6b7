"""Conversion of values to stored bytes and back, with compression, encryption and a checksum that detects damage.

JSON text is read and written recursively, so the size of the stack limits its nesting. Values that JSON cannot represent, or
that are nested too deeply, are stored as a flat list of nodes instead. A node is a short JSON list or value that stores one
part of the value. Nodes refer to each other by their positions in the list.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
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
"""Most bits of an integer that is stored as JSON, because some JSON readers change larger integers."""

_KEYS, _PLAIN = frozenset({str}), frozenset({str, bool, type(None)})

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
    """Converter of values to stored bytes and back. It compresses, encrypts and checksums the values.

    The checksum covers the content of a value, its storage key, and its header (format version, flags for compression and
    encryption). Flipped bits, truncated values and values copied to another storage key are therefore detected.

    Args:
        cipher: Cipher that encrypts each value. None: values are stored in clear text.
        compress_from: Least size in bytes of values that are compressed with zlib. Default 1,024, so that smaller values stay
            readable in the store.
        allow_plain: Whether a codec with a cipher also reads unencrypted values, while encryption is being introduced. Default
            False: they are rejected, because anyone with write access could have stored them.
    """

    @checked
    def __init__(self, *, cipher: Cipher | None = None, compress_from: int = 1024, allow_plain: bool = False) -> None:
        self._cipher = cipher
        self._compress_from = compress_from
        self._allow_plain = allow_plain

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
        """Convert a value from Python to its stored form: serialize, compress, encrypt and checksum the value.

        ``place`` is the key under which the value is stored.
        """
        return self.seal(dump(value), place)

    def decode(self, data: object, place: str) -> Any:
        """Convert a value from its stored form (bytes) to Python.

        Args:
            data: Stored form of the value.
            place: Key under which the value is stored.

        Raises:
            CorruptRecordError: The bytes are damaged, belong to another storage key, have another version, or are not encrypted
                although they must be.
            KeyMissingError: The value is encrypted, and there is no cipher, or the cipher lacks the key.
        """
        return load_stored(self.unseal(data, place), place)


def dump(value: Any) -> bytes:
    """Serialize a value as compact bytes, from which ``load`` restores the value.

    JSON values are stored as JSON. Values that JSON cannot represent are stored with their types as a list of nodes: bytes,
    dates, times, ``Decimal``, numbers such as NaN, and containers such as sets. Objects of all other types are stored as their
    ``str()``, with a warning, and restored as texts.

    Raises:
        ValueError: The value contains itself.
    """
    return json_bytes(value) if is_json(value) else _AS_NODES + json_bytes(nodes_of(value))


def load(data: bytes) -> Any:
    """Return the value that ``dump`` serialized.

    Raises:
        Exception: The bytes are invalid, or contain JSON that is nested more deeply than ``dump`` allows. The type of the error
            is in ``MALFORMED``.
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

    Parsing errors are those that malformed data cause, such as ``KeyError`` and ``ValueError``. Errors of this package, and all
    other errors, are raised unchanged.

    Args:
        record: Name of the record, or an object whose ``str()`` is the name.
    """
    try:
        yield
    except MangaMemoryError:
        raise
    except MALFORMED as error:
        name, reason = str(record), str(error)
        if isinstance(error, ValidationError):  # its text has several lines, with the stored values
            reason = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        what = f"record={name!r} is damaged: {type(error).__name__}: {reason:.200}"
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
    """Compress serialized bytes. Return None for more than 64 MiB, or if compression does not make the bytes smaller."""
    if len(payload) > MOST_UNPACKED:
        return None
    data = zlib.compress(payload, _LEVEL, wbits=-15)
    least = 0 if len(payload) <= _SMALLEST else -(-len(payload) // _MOST_TIMES)
    elements = _elements(payload)
    least = max(least, 0 if elements <= _FEWEST else -(-elements // _MOST_ELEMENTS))
    data = data.ljust(least, b"\0")  # the limits of ``unpacked`` depend on the size
    return data if len(data) < len(payload) else None


def unpacked(payload: bytes) -> bytes:
    """Decompress serialized bytes. As a protection against decompression bombs, the result is limited.

    The limits on the size and the number of JSON elements depend on the size of ``payload``.

    Raises:
        ValueError: The value is truncated, or exceeds the limits.
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


def is_json(value: Any, *, levels: int = MOST_LEVELS, bits: int = _MOST_BITS, exponents: int = 1 << 11) -> bool:
    """Return whether JSON represents a value exactly.

    Args:
        value: The value.
        levels: Most levels of nested containers.
        bits: Most bits of an integer, because some JSON readers change larger integers.
        exponents: Largest binary exponent of a float, positive or negative.
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
                    or (kind is float and math.isfinite(item) and abs(math.frexp(item)[1]) <= exponents)
                ):
                    return False
        if not held:
            return True
        level = list(held.values())
    return False


def as_json(value: Any, *, ensure_ascii: bool = True, sort_keys: bool = False) -> str:
    """Return a value as JSON text. An object without a JSON form is written as its type, such as ``"<date>"``.

    A value that JSON cannot represent, for example because of a tuple as a key, is written as its list of nodes (``nodes_of``).
    """
    try:
        return json.dumps(
            value, default=lambda item: f"<{type(item).__name__}>", ensure_ascii=ensure_ascii, sort_keys=sort_keys
        )
    except (TypeError, ValueError, RecursionError):  # a key of another type, a very long number, or deep nesting
        return json.dumps(nodes_of(value), ensure_ascii=ensure_ascii)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether containers in a value are nested deeper than ``levels`` levels."""
    level = [value]
    for _ in range(levels + 1):
        held = [item.values() if isinstance(item, Mapping) else item for item in level if _container_of(item)]
        if not held:
            return False
        level = list({id(item): item for items in held for item in items}.values())  # by id, against growth in cycles
    return True


_OPENED: dict[str, Callable[[Any], Any]] = {
    "bytes": base64.b64decode,
    "int": lambda text: int(text, 16),
    "float": float,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "Decimal": Decimal,
}
"""Parsers of leaves, by name of type."""

_HOLDERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}
"""Constructors of containers, by name of type."""


def nodes_of(value: Any) -> list[Any]:
    """Convert a value to a list of nodes, from which ``value_of`` restores the value.

    A node stores one part of the value. Items come before their container. The last node is the whole value. These are the
    nodes:

    - A string, number, boolean or None is its own node.
    - A value such as a date or bytes is ``[type, text]``.
    - A container that JSON can represent is ``["json", value]``. Its items have no nodes of their own.
    - Any other container is ``[type, index, index, ...]``, with the positions of its items' nodes in the list. For a dict, the
      indexes alternate between keys and values.

    Raises:
        ValueError: The value contains itself.
    """
    nodes: list[Any] = []
    path: set[int] = set()
    open_holders: list[tuple[Any, Iterator[Any], list[Any]]] = [(None, iter([value]), [])]
    while open_holders:
        holder, items, node = open_holders[-1]
        for item in items:
            container = _container_of(item)
            if not container:
                nodes.append(_leaf(item))
            elif is_json(item):
                nodes.append(["json", item])
            elif id(item) in path:
                raise ValueError(f"a {type(item).__name__} contains itself, it cannot be stored")
            else:  # its items come first
                path.add(id(item))
                open_holders.append((item, iter(_items(item)), [container]))
                break
            node.append(len(nodes) - 1)
        else:
            open_holders.pop()
            if open_holders:
                path.discard(id(holder))
                nodes.append(node)
                open_holders[-1][2].append(len(nodes) - 1)
    return nodes


def value_of(nodes: Any) -> Any:
    """Return the value that ``nodes_of`` converted to a list of nodes.

    Raises:
        ValueError: A node is invalid, two containers have the same item, or a node before the last is in no container.
        LookupError: A node has an unknown type, or an index out of range.
        TypeError: A node has the wrong form.
        ArithmeticError: A node of the type ``Decimal`` is no number.
    """
    values: list[Any] = []
    taken = 0
    for node in nodes:
        if not isinstance(node, list):
            values.append(node)
            continue
        name, *rest = node
        if name == "json" or name in _OPENED:
            [content] = rest
            values.append(content if name == "json" else _OPENED[name](content))
            continue
        items = []
        for index in rest:
            if values[index] is _ItemPlaceholder:
                raise ValueError("an item belongs to two containers")
            items.append(values[index])
            values[index] = _ItemPlaceholder  # a shared item would grow with every level
        taken += len(items)
        values.append(_HOLDERS[name](items))
    if taken != len(values) - 1:
        raise ValueError("an item belongs to no container")
    return values[-1]


class _ItemPlaceholder:
    """Placeholder in the list of restored values, in place of a value that is already an item of a container.

    Two containers may not have the same item. The placeholder reveals this error.
    """


def _container_of(item: Any) -> str:
    """Return the name of a container's type in its node, or an empty text if the value is not a container."""
    if isinstance(item, Mapping):
        return "dict"
    for kind in (list, tuple, set, frozenset):
        if isinstance(item, kind):
            return kind.__name__
    return ""


def _items(holder: Any) -> list[Any]:
    """Return the items of a container in the order of its node. For a dict, keys and values alternate."""
    items: list[Any] = []
    if isinstance(holder, Mapping):
        for key, value in holder.items():
            items += (_hashable(key), value)
    elif isinstance(holder, set | frozenset):
        items += map(_hashable, sorted(holder, key=lambda item: text_of(item, repr)))
    else:
        items += holder
    return items


def _hashable(item: Any) -> Any:
    """Return a dict key or set item that stays hashable after it is stored and restored.

    An item that is or contains a dict, list or set is converted to text. Other items are returned unchanged.
    """
    inner = [item]
    for part in inner:  # grows by the items of its containers
        container = _container_of(part)
        if container in ("dict", "list", "set"):
            return text_of(item)
        if container:
            inner += part
    return item


def _leaf(item: Any) -> Any:
    """Return the stored form of a value that is not a container. A value of an unknown type is stored as its text."""
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, float):
        return float(item) if math.isfinite(item) else ["float", repr(float(item))]
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, int):
        return int(item) if item.bit_length() <= _MOST_BITS else ["int", f"{int(item):x}"]
    if isinstance(item, bytes | bytearray | memoryview):
        return ["bytes", base64.b64encode(item).decode("ascii")]
    for kind in (datetime, date, time, Decimal):
        if isinstance(item, kind) and _comes_back(kind.__name__, text := text_of(item, _written)):
            return [kind.__name__, text]
    logger.warning("type=<%s> | value has no stored form, its text is stored", type(item).__name__)
    return text_of(item)


def _written(item: Any) -> str:
    return str(item) if isinstance(item, Decimal) else item.isoformat()


def _comes_back(name: str, text: str) -> bool:
    """Return whether a text stays the same if it is parsed as a value of the type ``name`` and written again."""
    # a subclass may write a text that its base type cannot parse
    try:
        return _written(_OPENED[name](text)) == text
    except (ValueError, TypeError, ArithmeticError):
        return False
