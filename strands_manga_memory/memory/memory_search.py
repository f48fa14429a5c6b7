"""Search in a user's memories: filters, ranking, and an index in memory."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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
from strands_manga_memory.memory.memory_context import ENTRY_CHARACTERS, MOST_TOKENS, ended_at
from strands_manga_memory.memory.partition import Loaded
from strands_manga_memory.memory.records import DERIVED, MemoryRecord, MemoryType, Retention, counted
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import escape_line, message_text, strip_own_blocks


@dataclass(frozen=True, kw_only=True)
class RankingWeights:
    """How much each factor counts: the score is the product of the factors, each to the power of its weight; 0 leaves one out.

    Args:
        importance: Of the importance, 0 to 1. Default 0.5.
        recency: Of the recency, which halves every half-life of the type. Default 0.25.
        use: Of the use, 1 + ln(1 + times recalled). Default 0.25.
        similarity: Of the similarity to the query, 0 to 1. Default 1.
        floor: Similarity of what shares nothing with the query. Default 0.02.

    Raises:
        ValueError: A weight is negative or not finite.
    """

    importance: float = 0.5
    recency: float = 0.25
    use: float = 0.25
    similarity: float = 1.0
    floor: float = 0.02

    def __post_init__(self) -> None:
        for weight in fields(self):
            value = getattr(self, weight.name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ValueError(f"{weight.name} must be a number of at least 0, got {value!r:.80}")


def score(
    record: MemoryRecord,
    *,
    now: float,
    half_life: float | None,
    weights: RankingWeights,
    uses: int = 0,
    used_at: float = 0.0,
    similarity: float | None = None,
) -> float:
    """Return what a memory is worth at ``now``, with the ``uses`` of it since its record was written.

    Its recency halves in ``half_life`` seconds, never if that is None. Without a query there is no similarity.
    """
    latest = max(record.updated_at, record.last_accessed, used_at)
    recency = 1.0 if half_life is None else 0.5 ** (max(0.0, now - latest) / half_life)
    use = 1.0 + math.log1p(record.access_count + uses)
    similar = 1.0 if similarity is None else max(weights.floor, similarity)
    factors = (
        (record.importance, weights.importance),
        (recency, weights.recency),
        (use, weights.use),
        (similar, weights.similarity),
    )
    return float(math.prod(factor**weight for factor, weight in factors))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Conditions of a search.

    Attributes:
        types: Of one of these types; None: of any that is not made from others.
        min_importance: Of at least this importance.
        metadata: With these values in its metadata, or among a list there; texts whatever their case.
        since: Of a session that ended, or else learned, at that time or later, in seconds since 1970.
        until: The same, before that time.

    Raises:
        ValueError: A value is out of range.
    """

    types: frozenset[MemoryType] | None = None
    min_importance: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        checked_importance("min_importance", self.min_importance)
        if not isinstance(self.metadata, Mapping) or not all(isinstance(name, str) for name in self.metadata):
            raise ValueError(f"metadata must map names to values, got {self.metadata!r:.80}")
        for name in ("since", "until"):
            at = getattr(self, name)
            if at is not None and (isinstance(at, bool) or not isinstance(at, int | float)):
                raise ValueError(f"{name} must be seconds since 1970, or None, got {at!r:.80}")

    def has(self, record: MemoryRecord, now: float) -> bool:
        """Tell whether a memory meets the conditions; an expired one does not."""
        if record.expired(now) or record.importance < self.min_importance:
            return False
        if record.type in DERIVED if self.types is None else record.type not in self.types:
            return False
        at = ended_at(record)
        if (self.since is not None and at < self.since) or (self.until is not None and at >= self.until):
            return False
        return all(_is_among(value, record.metadata.get(name)) for name, value in self.metadata.items())


def _is_among(value: Any, there: Any) -> bool:
    return any(_plain(each) == _plain(value) for each in (there if isinstance(there, list | tuple) else [there]))


def _plain(value: Any) -> Any:
    return " ".join(value.casefold().split()) if isinstance(value, str) else value


def checked_type(value: MemoryType | str) -> MemoryType:
    """Return the type of this name, or refuse it."""
    try:
        return MemoryType(value)
    except ValueError:
        raise ValueError(f"type must be one of {', '.join(map(repr, map(str, MemoryType)))}, got {value!r:.80}") from None


def checked_importance(name: str, value: float) -> float:
    """Return an importance, or refuse what is not from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value!r:.80}")
    return float(value)


_PASSAGE = "\x1f"


@dataclass(frozen=True)
class Hit:
    """A result of a search: a memory, or a passage of an episode, and its score."""

    record: MemoryRecord
    content: str
    score: float

    @property
    def described(self) -> dict[str, Any]:
        """What goes with it as an entry of Strands' memory, which a model is told."""
        named = ("key", "topics", "sentiment", "session_id", "ended_at")
        extra = {name: _told(self.record.metadata[name]) for name in named if name in self.record.metadata}
        first = {"memory_id": self.record.memory_id, "memory_type": str(self.record.type), "score": round(self.score, 4)}
        return first | extra


def entries_of(hits: Sequence[Hit], count_tokens: Callable[[str], int]) -> list[MemoryEntry]:
    """Return hits as a model may be told them: each one line without markup, all together at most 800 tokens."""
    entries = [MemoryEntry(content=escape_line(hit.content, ENTRY_CHARACTERS), metadata=hit.described) for hit in hits]
    tokens = itertools.accumulate(count_tokens(entry.content) for entry in entries)
    return [entry for entry, total in zip(entries, tokens, strict=True) if total <= MOST_TOKENS]


def _told(value: Any) -> Any:
    return (
        [_told(each) for each in value] if isinstance(value, list) else escape_line(value) if isinstance(value, str) else value
    )


@dataclass(frozen=True)
class _Text:
    own: str
    near: str
    record: MemoryRecord


class Snapshot:
    """A user's memories and an index of their texts, which is made when it is first needed."""

    def __init__(
        self, loaded: Loaded, *, retention: Mapping[MemoryType, Retention], weights: RankingWeights, embed: Embed | None
    ) -> None:
        self.records = loaded.records
        self._uses = loaded.uses
        self._retention = retention
        self._weights = weights
        self._embed = embed
        self._lock = threading.RLock()
        self._index: LexicalIndex[str] | None = None
        self._texts: dict[str, _Text] = {}
        self._of_record: dict[str, list[str]] = {}
        self._vectors: dict[str, Sequence[float]] = {}

    def put(self, record: MemoryRecord) -> None:
        """Take over a memory that was just written."""
        with self._lock:
            self.remove(record.memory_id)
            self.records[record.memory_id] = record
            if self._index is not None:
                self._enter([record])

    def remove(self, memory_id: str) -> None:
        """Forget a memory."""
        with self._lock:
            self.records.pop(memory_id, None)
            names = self._of_record.pop(memory_id, [])
            for name in names:
                self._texts.pop(name, None)
                self._vectors.pop(name, None)
            if self._index is not None:
                self._index.remove(names)

    def used(self, ids: Iterable[str], now: float) -> None:
        """Take note that memories were recalled."""
        with self._lock:
            for id_ in ids:
                self._uses[id_] = self._uses.get(id_, (0, 0.0))[0] + 1, now

    def counted(self, record: MemoryRecord) -> MemoryRecord:
        """Return a memory with the recalls that the ledger has and its record has not."""
        return counted(record, self._uses)

    def ranked(
        self,
        now: float,
        *,
        query: str | None = None,
        wanted: Wanted | None = None,
        limit: int | None = None,
        matching: bool = False,
    ) -> list[Hit]:
        """Return up to ``limit`` memories, the ones worth most first; for a query passages of an episode each on its own.

        If they are to be ``matching``, only those whose own text, topics included, shares a content word with the query: that
        of the passage before or after does not count.
        """
        with self._lock:
            filters = wanted or Wanted()
            candidates = {id_: record for id_, record in self.records.items() if filters.has(record, now)}
            if query is None or not query.strip():
                hits = [Hit(record, record.content, self._score(record, now, None)) for record in candidates.values()]
            else:
                similar = self._similar(query)
                asked = None if self._embed else content_terms(query)
                hits = [
                    Hit(record, self._texts[name].own, self._score(record, now, similar.get(name, 0.0)))
                    for id_, record in candidates.items()
                    for name in self._of_record.get(id_, ())
                    if not matching or (name in similar and self._shares(name, asked))
                ]
        hits.sort(key=lambda hit: (-hit.score, hit.record.memory_id))
        return hits[:limit]

    def _score(self, record: MemoryRecord, now: float, similarity: float | None) -> float:
        uses, used_at = self._uses.get(record.memory_id, (0, 0.0))
        half_life = self._retention[MemoryType(record.type)].half_life
        return score(
            record, now=now, half_life=half_life, weights=self._weights, uses=uses, used_at=used_at, similarity=similarity
        )

    def _shares(self, name: str, asked: frozenset[str] | None) -> bool:
        """Tell whether a text shares a term with the query; always where vectors decide."""
        text = self._texts[name]
        is_passage = text.record.type == MemoryType.EPISODE
        return asked is None or not asked.isdisjoint(evidence_terms(text.own if is_passage else f"{text.own} {text.near}"))

    def _similar(self, query: str) -> dict[str, float]:
        if self._index is None:
            self._index = LexicalIndex()
            self._enter(self.records.values())
        if self._embed is None:
            return self._index.search(query)
        missing = [name for name in self._texts if name not in self._vectors]
        vectors = embed_texts(self._embed, [query, *(self._texts[name].own for name in missing)])
        self._vectors.update(zip(missing, vectors[1:], strict=True))
        similar = {name: dot(vectors[0], vector) for name, vector in self._vectors.items()}
        return {name: value for name, value in similar.items() if value > 0}

    def _enter(self, records: Iterable[MemoryRecord]) -> None:
        assert self._index is not None  # noqa: S101 - for the type checker
        added: dict[str, _Text] = {}
        for record in records:
            texts = _texts_of(record)
            self._of_record[record.memory_id] = list(texts)
            added |= texts
        self._texts |= added
        self._index.put((name, text.own, text.near) for name, text in added.items())


def _texts_of(record: MemoryRecord) -> dict[str, _Text]:
    if record.type != MemoryType.EPISODE:
        topics = " ".join(map(str, record.listed("topics")))
        return {record.memory_id: _Text(record.content, topics, record)}
    passages = [str(passage) for passage in record.listed("passages")]
    return {
        f"{record.memory_id}{_PASSAGE}{at}": _Text(
            own, "\n".join(passages[max(0, at - 1) : at] + passages[at + 1 : at + 2]), record
        )
        for at, own in enumerate(passages)
    }


def extract_user_query(context: InjectionQueryContext, **_: Any) -> str | None:
    """Return the user's words of the current turn, without the blocks that this package injects into a request.

    Pass it to a ``MemoryManager`` that you build yourself. Strands' default query is the whole last message, with the text
    that plugins added to it: cart, preferences, phone numbers.

    Args:
        context: The messages of the request, as Strands passes them.

    Returns:
        The query; None if the user wrote no text, or only a greeting, thanks or a farewell: Strands then skips the search.

    Example:
        ``MemoryManager(stores=[store], injection={"query": extract_user_query})``
    """
    return user_query(context.messages)


def user_query(messages: Sequence[Message]) -> str | None:
    """Return the user's words in the message that opened the last turn; None if they are small talk, or there are none."""
    opening = next(filter(is_turn_start, reversed(messages)), None)
    words = "" if opening is None else strip_own_blocks(message_text(opening)).strip()
    return words if words and dialogue_act(words, "user") not in SMALL_TALK_ACTS else None
