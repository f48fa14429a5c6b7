"""Snapshot: a user's memories as they were at session start, in memory, to be searched without I/O."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strands.memory import MemoryEntry

from strands_manga_memory.language.search import Embed, LexicalIndex, content_terms, dot, embed_texts, evidence_terms
from strands_manga_memory.memory.recall.context import ENTRY_CHARACTERS, MOST_TOKENS
from strands_manga_memory.memory.recall.ranking import RankingWeights, score
from strands_manga_memory.memory.recall.wanted import Wanted
from strands_manga_memory.memory.records.memory_records import MemoryRecord
from strands_manga_memory.memory.records.partition import Loaded
from strands_manga_memory.memory.records.retention import MemoryType, Retention
from strands_manga_memory.memory.records.uses import counted
from strands_manga_memory.messages.injection import escape_line

_PASSAGE = "\x1f"


@dataclass(frozen=True)
class Hit:
    """What a search found: a memory, or a passage of an episode, and what it is worth."""

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
