"""UserSalt: ids of preferences that do not tell what they are about, where a user's memories are encrypted."""

from __future__ import annotations

import hmac
import os

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.language.preference_slots import canonical_value
from strands_manga_memory.memory.records.memory_records import INTERNAL, Owner, content_id, place_of, preference_id
from strands_manga_memory.memory.records.retention import MemoryType
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.table import ABSENT, Table

SALT = f"{INTERNAL}salt"

USUAL_SLOTS = frozenset(
    ("genre", "author", "format", "language", "budget", "style", "dislikes", "likes", "name", "home", "spoilers", "purchases")
)
"""Slots whose names tell nothing of a user."""


class UserSalt:
    """A random value of each user, sealed beside his memories: with it the same key has the same id, for whoever can open it.

    It outlives the keys of the cipher, as it is sealed anew with the memories, and goes with them. Without a codec that
    encrypts, ids are the keys themselves.
    """

    def __init__(self, table: Table, owner: Owner, codec: Codec | None) -> None:
        self._table = table
        self._owner = owner
        self._codec = codec
        self._place = place_of(owner, SALT)
        self._salt: bytes | None = None

    def preference_id(self, key: str) -> str:
        """Return the id of the preference ``key``.

        Raises:
            ConflictError: The user's memories are being erased.
            CorruptRecordError: The salt is damaged.
            KeyMissingError: Its key was not given, or is destroyed.
        """
        codec = self._codec
        if codec is None or not codec.encrypts or key in USUAL_SLOTS:
            return preference_id(key)
        if self._salt is None:
            self._salt = self._read(codec) or self._made(codec)
        plain = " ".join(key.casefold().split())
        return f"{MemoryType.PREFERENCE}#~{hmac.digest(self._salt, plain.encode(), 'sha256').hex()[:32]}"

    def statement_id(self, statement: str) -> str:
        """Return the id of a statement that belongs to no slot; raise as ``preference_id`` does."""
        plain = canonical_value(statement)
        if self._codec is None or not self._codec.encrypts:
            return content_id(MemoryType.PREFERENCE, plain)
        return self.preference_id(f"~{plain}")

    def _made(self, codec: Codec) -> bytes:
        """Return a new salt; of two that are made at once the first."""
        sealed = codec.encode(os.urandom(32), self._place)
        self._table.put({"user_id": self._owner.partition, "memory_id": SALT, "salt": sealed}, when=ABSENT)
        there = self._read(codec)
        if there is None:
            raise ConflictError(f"record={self._place!r} keeps changing; try again")
        return there

    def _read(self, codec: Codec) -> bytes | None:
        item = self._table.get(self._owner.partition, SALT)
        if item is None:
            return None
        with trusted(self._place):
            salt = codec.decode(item["salt"], self._place)
            if not isinstance(salt, bytes):
                raise TypeError("it is no salt")
            return salt
