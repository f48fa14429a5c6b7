"""SummaryCache: verified drafts by the content they summarize, so that the same turns are never paid for twice in a day."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

from strands_manga_memory.exceptions import MangaMemoryError
from strands_manga_memory.stores.codec import Codec

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

SECONDS = 24 * 3600
"""How long a draft is kept (mission row E1)."""

_VERSION = b"strands-manga-memory summary 1"


class ValueStore(Protocol):
    """Keeps small values for a time; every ``HotStore`` does."""

    def get_value(self, name: str) -> bytes | None:
        """Return the value kept under ``name``; None if there is none, or its time is over."""

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Keep ``value`` under ``name`` for ``ttl`` seconds."""


class SummaryCache:
    """Keeps verified drafts for 24 hours, in any hot store.

    The name of an entry is a hash of who summarizes, how, and the whole source; what is stored is masked with a key made from
    the same content. So only who already holds a conversation can find its draft and read it: after the conversation was
    deleted, nobody can. A store that fails is a cache that has nothing.

    Args:
        store: Where to keep them.
        seconds: How long.
        codec: How values are compressed, encrypted and checksummed.
    """

    def __init__(self, store: ValueStore, *, seconds: float = SECONDS, codec: Codec | None = None) -> None:
        self._store = store
        self._seconds = seconds
        self._codec = codec or Codec()
        self.hits = 0
        self.misses = 0

    @property
    def hit_rate(self) -> float:
        """Share of questions that the cache could answer; 0.0 if there were none."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0

    def get(self, summarizer: str, instructions: str, source: str) -> str | None:
        """Return the draft for this content, or None."""
        name, key = _name_and_key(summarizer, instructions, source)
        found = self._tried(lambda: self._store.get_value(name))
        text = None if found is None else self._tried(lambda: self._read(found, name, key))
        self.hits += text is not None
        self.misses += text is None
        return text

    def put(self, summarizer: str, instructions: str, source: str, *, text: str) -> None:
        """Keep a draft."""
        name, key = _name_and_key(summarizer, instructions, source)
        salt = os.urandom(16)
        value = {"salt": base64.b64encode(salt).decode(), "text": base64.b64encode(_masked(text.encode(), key + salt)).decode()}
        self._tried(lambda: self._store.put_value(name, self._codec.encode(value, name), ttl=self._seconds))

    def _read(self, found: bytes, name: str, key: bytes) -> str:
        value = self._codec.decode(found, name)
        return _masked(base64.b64decode(value["text"]), key + base64.b64decode(value["salt"])).decode()

    def _tried(self, work: Callable[[], _T]) -> _T | None:
        try:
            return work()
        except (MangaMemoryError, KeyError, TypeError, ValueError) as error:
            logger.debug("error=<%s> | the summary cache does not answer", type(error).__name__)
            return None


def _name_and_key(*parts: str) -> tuple[str, bytes]:
    digest = hashlib.sha512(_VERSION)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return f"summary/{digest.hexdigest()[:64]}", digest.digest()[32:]


def _masked(data: bytes, key: bytes) -> bytes:
    """Return ``data`` masked, or unmasked, with a stream that only ``key`` gives."""
    stream = hashlib.shake_256(key).digest(len(data))
    return bytes(byte ^ mask for byte, mask in zip(data, stream, strict=True))
