"""SummaryCache: verified drafts of summaries by the content that they summarize."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from strands_manga_memory.exceptions import MangaMemoryError
from strands_manga_memory.stores.encoding.cipher import AesGcmCipher
from strands_manga_memory.stores.encoding.codec import Codec

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

SECONDS = 24 * 3600
"""Seconds for which a draft is kept."""

_KEY = "content"


class ValueStore(Protocol):
    """Store of small values with a time to live, such as a ``HotStore``."""

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under ``name``; None if there is none, or it has expired."""

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store ``value`` under ``name`` for ``ttl`` seconds."""


class SummaryCache:
    """Keeps verified drafts for 24 hours, in any hot store. Needs the ``encryption`` extra.

    The name of an entry is a hash of who summarizes, how, and the whole source; the draft is encrypted with a key made from the
    same content. Only a reader of the conversation can find and read its draft: once the conversation is deleted,
    nobody can. A failing store acts as an empty cache.

    Args:
        store: Where to keep them.
        seconds: How long.

    Raises:
        ImportError: ``cryptography`` is not installed.
    """

    def __init__(self, store: ValueStore, *, seconds: float = SECONDS) -> None:
        _entry()
        self._store = store
        self._seconds = seconds
        self.hits = 0
        self.misses = 0

    @property
    def hit_rate(self) -> float:
        """Share of questions that the cache could answer; 0.0 if there were none."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0

    def get(self, summarizer: str, instructions: str, source: str) -> str | None:
        """Return the draft for this content, or None."""
        name, codec = _entry(summarizer, instructions, source)
        found = self._tried(lambda: self._store.get_value(name))
        text = None if found is None else self._tried(lambda: str(codec.decode(found, name)))
        self.hits += text is not None
        self.misses += text is None
        return text

    def put(self, summarizer: str, instructions: str, source: str, *, text: str) -> None:
        """Store a draft."""
        name, codec = _entry(summarizer, instructions, source)
        self._tried(lambda: self._store.put_value(name, codec.encode(text, name), ttl=self._seconds))

    def _tried(self, work: Callable[[], _T]) -> _T | None:
        try:
            return work()
        except MangaMemoryError as error:
            logger.debug("error=<%s> | the summary cache does not answer", type(error).__name__)
            return None


def _entry(*content: str) -> tuple[str, Codec]:
    """Return the name and the codec of the entry for some content."""
    digest = hashlib.sha512()
    for part in content:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    name, key = digest.hexdigest()[:64], digest.digest()[32:]
    return f"summary/{name}", Codec(cipher=AesGcmCipher({_KEY: key}, current=_KEY))
