"""Search and ranking of a user's memories."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from strands.memory import InjectionQueryContext, MemoryEntry
from strands.types.content import Message

from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.language.search import (
    Embed,
    LexicalIndex,
    content_terms,
    dot,
    embed_texts,
    evidence_terms,
)
from strands_manga_memory.memory.partition import PartitionContent
from strands_manga_memory.memory.records import (
    ENTRY_CHARACTERS,
    MAX_TOKENS,
    MemoryRecord,
    MemoryType,
    Retention,
    ended_at,
)
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import escape_line, message_text, strip_own_blocks
from strands_manga_memory.messages.texts import estimate_tokens

_MIN_SIMILARITY = 0.02
"""Similarity given to memories that share nothing with the query."""


def score(
    record: MemoryRecord, *, now: float, half_life: float | None, similarity: float | None = None
) -> float:
    """Compute the score of a memory from its similarity to a query, importance, age and use.

    The score is ``similarity * importance**0.5 * (recency * use)**0.25``. ``recency`` is 1 at the
    memory's last update or recall, and halves in each ``half_life`` after it. ``use`` is 1 plus the
    logarithm of 1 plus the access count.

    Args:
        record: Memory to rank.
        now: Current time, in seconds since 1970.
        half_life: Seconds in which the recency factor halves. None: recency never decreases.
        similarity: Similarity to the query. None: there is no query, which counts as 1.
    """
    latest = max(record.updated_at, record.accessed_at)
    recency = 1.0 if half_life is None else 0.5 ** (max(0.0, now - latest) / half_life)
    use = 1.0 + math.log1p(record.access_count)
    similar = 1.0 if similarity is None else max(_MIN_SIMILARITY, similarity)
    return float(similar * record.importance**0.5 * (recency * use) ** 0.25)


@dataclass(frozen=True, kw_only=True)
class MemoryQuery:
    """Conditions for the memories that a search or a recall returns.

    Attributes:
        types: Types of the memories.
        min_importance: Minimum importance of a memory.
        metadata: Required metadata values, keyed by name. Case is ignored. If a memory has a list
            under the name, one element must be equal to the value.
        since: Start of a period, in seconds since 1970. The session of a memory must have ended in
            the period. A memory without a session must have been last updated in the period.
        until: End of the period, exclusive.
    """

    types: Collection[MemoryType]
    min_importance: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    since: float = -math.inf
    until: float = math.inf

    def has(self, record: MemoryRecord, now: float) -> bool:
        """Return whether a memory meets the conditions of this query and has not expired."""
        return (
            record.type in self.types
            and not record.expired(now)
            and record.importance >= self.min_importance
            and self.since <= ended_at(record) < self.until
            and all(
                _is_among(each, record.metadata.get(name)) for name, each in self.metadata.items()
            )
        )


def _is_among(value: Any, there: Any) -> bool:
    return _plain(value) in map(_plain, there if isinstance(there, list | tuple) else [there])


def _plain(value: Any) -> Any:
    return " ".join(value.casefold().split()) if isinstance(value, str) else value


def checked_type(value: MemoryType | str) -> MemoryType:
    """Convert the name of a memory type, such as ``fact``, to a ``MemoryType``.

    Raises:
        ValueError: No type has this name.
    """
    try:
        return MemoryType(value)
    except ValueError:
        raise ValueError(
            f"type must be one of {', '.join(map(repr, map(str, MemoryType)))}, got {value!r:.80}"
        ) from None


_ROLE = re.compile(r"^(?:User|Assistant): ", re.MULTILINE)


@dataclass(frozen=True)
class Hit:
    """Result of a memory search with its score: a memory, or a passage of a session's messages."""

    record: MemoryRecord
    content: str
    score: float

    @property
    def described(self) -> dict[str, Any]:
        """Metadata that a model sees with the search result, such as the topics of the memory."""
        shown: dict[str, Any] = {
            "memory_id": self.record.memory_id,
            "memory_type": str(self.record.type),
            "score": round(self.score, 4),
        }
        for name in ("preference_key", "topics", "sentiment", "session_id", "ended_at"):
            if name in self.record.metadata:
                shown[name] = _escaped(self.record.metadata[name])
        return shown


def entries_of(hits: Sequence[Hit]) -> list[MemoryEntry]:
    """Convert search results to Strands' ``MemoryEntry`` objects, each with one line of text.

    The lines have at most 800 tokens in total. Further results are left out.
    """
    entries, remaining = list[MemoryEntry](), MAX_TOKENS
    for hit in hits:
        line = escape_line(hit.content, ENTRY_CHARACTERS)
        remaining -= estimate_tokens(line)
        if remaining < 0:
            break
        entries.append(MemoryEntry(content=line, metadata=hit.described))
    return entries


def _escaped(value: Any) -> Any:
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return escape_line(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class _Text:
    own: str
    near: str
    record: MemoryRecord

    @property
    def words(self) -> str:
        return _ROLE.sub("", self.own)

    @property
    def terms(self) -> frozenset[str]:
        is_passage = self.record.type == MemoryType.EPISODE
        return evidence_terms(self.words if is_passage else f"{self.words} {self.near}")


class Snapshot:
    """Memories of a user that this process has read, for searches."""

    def __init__(
        self,
        loaded: PartitionContent,
        *,
        retention: Mapping[MemoryType, Retention],
        embed: Embed | None,
    ) -> None:
        self.content = loaded
        self.records = loaded.records
        self._retention = retention
        self._embed = embed
        self._lock = threading.RLock()
        self._vectors: dict[str, Sequence[float]] = {}
        self._index = LexicalIndex[tuple[str, str]]()
        self._indexed: set[tuple[str, str]] = set()

    def add_older(self, loaded: PartitionContent) -> None:
        """Add memories that were read later, such as older memories, to this snapshot."""
        with self._lock:
            self.content.add(loaded)

    def ranked(
        self, wanted: MemoryQuery, now: float, *, query: str | None = None, matching: bool = False
    ) -> list[Hit]:
        """Return the memories that meet the given conditions as search results, best first.

        With a query, each passage of a session's messages is a separate result.

        Args:
            wanted: Conditions.
            now: The time in seconds since 1970.
            query: Text with which the memories are compared. None: no comparison.
            matching: True: each result must share a word with the query or, if texts are compared
                by vectors, have a similarity above 0.
        """
        terms = content_terms(query) if query and matching and self._embed is None else None
        with self._lock:
            hits = [
                Hit(text.record, text.own, self._score(text.record, now, similarity))
                for text, similarity in self._compared(query)
                if wanted.has(text.record, now)
                if not matching or similarity
                if terms is None or not terms.isdisjoint(text.terms)
            ]
        return sorted(
            hits, key=lambda hit: (-hit.score, -hit.record.updated_at, hit.record.memory_id)
        )

    def answers(self, query: str, hits: Sequence[Hit]) -> bool:
        """Return whether the results answer the query, so that no further search is needed.

        If texts are compared by vectors, any result is enough. Otherwise, one result must have 3
        content words of the query (such as nouns and names), or all if there are fewer. A query
        without content words counts as answered.
        """
        if self._embed is not None:
            return bool(hits)
        terms = content_terms(query)
        query_terms = terms & evidence_terms(query) or terms  # without synonyms: one is enough
        texts = (f"{hit.content} {' '.join(map(str, hit.record.listed('topics')))}" for hit in hits)
        min_terms = min(3, len(query_terms))
        return not query_terms or any(
            len(query_terms & evidence_terms(text)) >= min_terms for text in texts
        )

    def _score(self, record: MemoryRecord, now: float, similarity: float | None) -> float:
        half_life = self._retention[record.type].half_life
        return score(record, now=now, half_life=half_life, similarity=similarity)

    def _compared(self, query: str | None) -> Iterable[tuple[_Text, float | None]]:
        records = self.records.values()
        if query is None:
            return [(_Text(record.content, "", record), None) for record in records]
        texts = [text for record in records for text in texts_of(record)]
        if self._embed is None:
            new = {(text.own, text.near) for text in texts} - self._indexed
            plain = partial(_ROLE.sub, "")
            self._index.put(((own, near), plain(own), plain(near)) for own, near in new)
            self._indexed |= new
            found = self._index.search(query)
            return [(text, found.get((text.own, text.near), 0.0)) for text in texts]
        missing = list({text.own: None for text in texts if text.own not in self._vectors})
        vectors = embed_texts(self._embed, [query, *missing])
        self._vectors.update(zip(missing, vectors[1:], strict=True))
        return [(text, max(0.0, dot(vectors[0], self._vectors[text.own]))) for text in texts]


def texts_of(record: MemoryRecord) -> list[_Text]:
    """Return the searchable texts of a memory: its content or, of stored messages, each passage."""
    if record.type != MemoryType.EPISODE:
        return [_Text(record.content, " ".join(map(str, record.listed("topics"))), record)]
    passages = [str(passage) for passage in record.listed("passages")]
    return [
        _Text(own, "\n".join(passages[max(0, at - 1) : at] + passages[at + 1 : at + 2]), record)
        for at, own in enumerate(passages)
    ]


def extract_user_query(context: InjectionQueryContext, **_: Any) -> str | None:
    """Return the user's text in the current turn as a search query.

    Pass this function to a ``MemoryManager`` that you build yourself. Strands' default query is the
    whole last message, including texts that plugins added.

    Args:
        context: Messages of the request, as Strands passes them.

    Returns:
        Query, or None if the user wrote no text or only small talk. Strands then skips the search.

    Example:
        ``MemoryManager(stores=[store], injection={"query": extract_user_query})``
    """
    return user_query(context.messages)


def user_query(messages: Sequence[Message]) -> str | None:
    """Return the user's text that began the current turn, as a query for a memory search.

    None if the text is empty or only small talk.
    """
    opening = next(filter(is_turn_start, reversed(messages)), None)
    words = "" if opening is None else strip_own_blocks(message_text(opening)).strip()
    return words if words and dialogue_act(words, "user") not in SMALL_TALK_ACTS else None
