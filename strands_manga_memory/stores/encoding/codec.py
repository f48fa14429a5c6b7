"""Codec: the one way a value becomes stored bytes and comes back unharmed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol

import orjson

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, MangaMemoryError
from strands_manga_memory.stores.encoding.packing import packed, unpacked
from strands_manga_memory.stores.encoding.values import MOST_LEVELS, is_json, is_nested_deeper, nodes_of, value_of

VERSION = 3
"""Version of the stored form. A record of another one is refused, never guessed at."""

_MAGIC = 0xB7
_COMPRESSED, _ENCRYPTED = 1, 2


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
        compress_from: Values of at least this many bytes are compressed with zlib. Default 1,024:
            smaller ones can be read in the store.
        allow_plain: With a cipher, read values that are not encrypted too: while an application that had none changes over.
            Default False: they are refused, as anybody who can write to the store could have put them there.
    """

    def __init__(self, *, cipher: Cipher | None = None, compress_from: int = 1024, allow_plain: bool = False) -> None:
        self._cipher = cipher
        self._compress_from = compress_from
        self._allow_plain = allow_plain

    def __repr__(self) -> str:
        return f"Codec(encrypts={self.encrypts}, compress_from={self._compress_from})"

    @property
    def allows_plain(self) -> bool:
        """Whether values that are not encrypted are read."""
        return self._cipher is None or self._allow_plain

    def check_plain(self, place: str) -> None:
        """Raise ``CorruptRecordError`` naming ``place`` if values that are not encrypted are refused."""
        if not self.allows_plain:
            advice = "Codec(allow_plain=True) reads what was stored before there was a cipher"
            raise CorruptRecordError(f"record={place!r} is not encrypted; {advice}", record=place)

    @property
    def cipher(self) -> Cipher | None:
        """What encrypts each value, if anything does."""
        return self._cipher

    @property
    def encrypts(self) -> bool:
        """Whether there is a cipher."""
        return self.cipher is not None

    def seal(self, dumped: bytes, place: str) -> bytes:
        """Return the stored form of what ``dump`` returned.

        Args:
            dumped: Bytes of a dumped value.
            place: Where the value will be stored; opening it from anywhere else fails.
        """
        payload, flags = dumped, 0
        smaller = packed(payload) if len(payload) >= self._compress_from else None
        if smaller is not None:
            payload, flags = smaller, _COMPRESSED
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
        if version != VERSION:
            advice = "; upgrade it" if version > VERSION else ""
            raise CorruptRecordError(
                f"record={place!r} has version {version}, this package reads {VERSION}{advice}", record=place
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

    def seal_each(self, dumped: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """Return the stored forms of values, each with the place where it will be stored: those of one write."""
        return [self.seal(value, place) for value, place in dumped]

    def unseal_each(self, sealed: Iterable[tuple[object, str]]) -> list[bytes | CorruptRecordError]:
        """Return what was sealed, of values with their places: those of one read. One that is damaged is its error.

        Raises:
            KeyMissingError: As :meth:`unseal` does.
        """
        found: list[bytes | CorruptRecordError] = []
        for data, place in sealed:
            try:
                found.append(self.unseal(data, place))
            except KeyMissingError:
                raise
            except CorruptRecordError as error:
                found.append(error)
        return found

    def encode(self, value: Any, place: str) -> bytes:
        """Return the stored form of a value: ``seal`` of its ``dump``."""
        return self.seal(dump(value), place)

    def decode(self, data: object, place: str) -> Any:
        """Return what ``encode`` was given; raise ``CorruptRecordError`` as ``unseal`` does."""
        return load_stored(self.unseal(data, place), place)


def dump(value: Any) -> bytes:
    """Return a value as compact bytes; ``load`` returns its equal, of the same types, however deeply it is nested.

    What JSON has is stored as JSON, all else in the form of ``stores.encoding.values``. What that has no form for is stored as
    its ``str()``, with a warning: a tool that returns such a thing must not end the turn.

    Raises:
        ValueError: The value contains itself.
    """
    return json_bytes(value) if is_json(value) else _AS_NODES + json_bytes(nodes_of(value))


def load(data: bytes) -> Any:
    """Return what ``dump`` was given; raise ``ValueError`` for JSON of more levels than it writes."""
    if data[:1] == _AS_NODES:
        return value_of(json_value(data[1:]))
    value = json_value(data)
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS and is_nested_deeper(value, MOST_LEVELS):
        raise ValueError(f"it has over {MOST_LEVELS} levels")
    return value


def load_stored(data: bytes, record: object) -> Any:
    """Return what ``dump`` was given, when it comes from a store.

    Raises:
        CorruptRecordError: It is nothing that ``dump`` makes. Names ``record``, by its ``str()``.
    """
    try:
        return load(data)
    except MALFORMED as error:
        raise damaged(record, error) from error


class trusted:  # noqa: N801 - used as ``with trusted(name):``, for every record: a generator takes four times as long
    """Turns what a malformed record makes the code that reads it raise into ``CorruptRecordError``, naming ``record``.

    Args:
        record: Its name, or what has that as its ``str()``: it is made when something is wrong.
    """

    __slots__ = ("_record",)

    def __init__(self, record: object) -> None:
        self._record = record

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Raise the error as one that names the record."""
        if isinstance(error, MALFORMED) and not isinstance(error, MangaMemoryError):
            raise damaged(self._record, error) from error


MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What a malformed record makes the code that reads it raise."""


def damaged(record: object, error: Exception) -> CorruptRecordError:
    """Return the error to raise for what reading a record raised."""
    name = str(record)
    return CorruptRecordError(f"record={name!r} is damaged: {type(error).__name__}: {error!s:.200}", record=name)


_AS_NODES = b"V"  # JSON text never starts with it

_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # made once: json.dumps makes one each time


def json_bytes(value: Any) -> bytes:
    """Return compact JSON of a value that JSON has a form for."""
    try:
        return bytes(memoryview(orjson.dumps(value)))  # a copy: what orjson returns holds on to its whole buffer
    except TypeError:  # half a character, which is no UTF-8
        return _encoded(value).encode("utf-8", "surrogatepass")


def json_value(text: bytes) -> Any:
    """Return what :func:`json_bytes` was given; raise ``ValueError`` for what is no JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text.decode("utf-8", "surrogatepass"))


def _checksum(version: int, flags: int, place: str, payload: bytes) -> bytes:
    seed = zlib.crc32(place.encode(), zlib.crc32(bytes((version, flags))))
    return zlib.crc32(payload, seed).to_bytes(4, "big")
