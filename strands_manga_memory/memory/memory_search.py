"""Search and ranking of a user's memories."""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import math
import re
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands.memory import InjectionQueryContext, MemoryEntry
from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.language.search import (
    Embed,
    LexicalIndex,
    content_terms,
    dot,
    embed_texts,
    evidence_terms,
)
from strands_manga_memory.memory.partition import (
    MOST_PREFERENCES,
    PartitionContent,
    UserPartition,
    not_erased_since,
    unchanged,
)
from strands_manga_memory.memory.records import (
    CHANGES,
    DAY,
    DERIVED,
    ENTRY_CHARACTERS,
    INTERNAL,
    MOST_TOKENS,
    MemoryRecord,
    MemoryType,
    Retention,
    checked_importance,
    counted,
    ended_at,
    place_of,
)
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import escape_line, message_text, strip_own_blocks
from strands_manga_memory.messages.texts import estimate_tokens
from strands_manga_memory.stores.codec import Codec, trusted
from strands_manga_memory.stores.table import Write

_LEAST_SIMILARITY = 0.02
"""Similarity given to memories that share nothing with the query."""


def score(
    record: MemoryRecord, *, now: float, half_life: float | None, similarity: float | None = None
) -> float:
    """Return the score of a memory: ``similarity * importance**0.5 * (recency * use)**0.25``.

    ``recency`` is 1 at the memory's last update or recall, and halves in each ``half_life`` after
    it. ``use`` is 1 plus the logarithm of 1 plus the access count.

    Args:
        record: Memory to rank.
        now: Current time, in seconds since 1970.
        half_life: Seconds in which the recency factor halves. None means that recency never
            decreases.
        similarity: Similarity to the query. None means that there is no query, and counts as 1.
    """
    latest = max(record.updated_at, record.accessed_at)
    recency = 1.0 if half_life is None else 0.5 ** (max(0.0, now - latest) / half_life)
    use = 1.0 + math.log1p(record.access_count)
    similar = 1.0 if similarity is None else max(_LEAST_SIMILARITY, similarity)
    return float(similar * record.importance**0.5 * (recency * use) ** 0.25)


@dataclass(frozen=True, kw_only=True)
class MemoryQuery:
    """Conditions for the memories that a search or a recall returns.

    Attributes:
        types: Types of the memories. None means all types except those in ``DERIVED`` (stored
            messages, open questions, and weekly and monthly summaries).
        min_importance: Least importance of a memory.
        metadata: Required metadata values, keyed by name. Case is ignored. If a memory's value is a
            list, one element must be equal.
        since: Earliest end of a memory's session, in seconds since 1970. Without a session, the
            time of the last update counts.
        until: End of the period that begins at ``since``, exclusive.

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
        if not isinstance(self.metadata, Mapping) or not all(
            isinstance(name, str) for name in self.metadata
        ):
            raise ValueError(f"metadata must map names to values, got {self.metadata!r:.80}")
        for name in ("since", "until"):
            at = getattr(self, name)
            if at is not None and (isinstance(at, bool) or not isinstance(at, int | float)):
                raise ValueError(f"{name} must be seconds since 1970, or None, got {at!r:.80}")

    def has(self, record: MemoryRecord, now: float) -> bool:
        """Return whether a memory meets the conditions of this query and has not expired."""
        if record.expired(now) or record.importance < self.min_importance:
            return False
        if record.type in DERIVED if self.types is None else record.type not in self.types:
            return False
        at = ended_at(record)
        if (self.since is not None and at < self.since) or (
            self.until is not None and at >= self.until
        ):
            return False
        return all(
            _is_among(value, record.metadata.get(name)) for name, value in self.metadata.items()
        )


def _is_among(value: Any, there: Any) -> bool:
    return any(
        _plain(each) == _plain(value)
        for each in (there if isinstance(there, list | tuple) else [there])
    )


def _plain(value: Any) -> Any:
    return " ".join(value.casefold().split()) if isinstance(value, str) else value


def checked_type(value: MemoryType | str) -> MemoryType:
    """Convert a name to a memory type.

    Raises:
        ValueError: No type has this name.
    """
    try:
        return MemoryType(value)
    except ValueError:
        raise ValueError(
            f"type must be one of {', '.join(map(repr, map(str, MemoryType)))}, got {value!r:.80}"
        ) from None


_PASSAGE = "\x1f"
_ROLE = re.compile(r"^(?:User|Assistant): ", re.MULTILINE)


@dataclass(frozen=True)
class Hit:
    """Search result with its score: a memory, or a passage from the messages of a session."""

    record: MemoryRecord
    content: str
    score: float

    @property
    def described(self) -> dict[str, Any]:
        """Metadata that a model sees with the search result."""
        named = ("preference_key", "topics", "sentiment", "session_id", "ended_at")
        extra = {
            name: _escaped(self.record.metadata[name])
            for name in named
            if name in self.record.metadata
        }
        first = {
            "memory_id": self.record.memory_id,
            "memory_type": str(self.record.type),
            "score": round(self.score, 4),
        }
        return first | extra


def entries_of(hits: Sequence[Hit]) -> list[MemoryEntry]:
    """Convert search results to memory entries of one line each, at most 800 tokens in total."""
    entries, left = list[MemoryEntry](), MOST_TOKENS
    for hit in hits:
        line = escape_line(hit.content, ENTRY_CHARACTERS)
        left -= estimate_tokens(line)
        if left < 0:
            break
        entries.append(MemoryEntry(content=line, metadata=hit.described))
    return entries


def _escaped(value: Any) -> Any:
    return (
        [_escaped(each) for each in value]
        if isinstance(value, list)
        else escape_line(value)
        if isinstance(value, str)
        else value
    )


@dataclass(frozen=True)
class _Text:
    own: str
    near: str
    record: MemoryRecord

    @property
    def words(self) -> str:
        """Text without the speakers' roles, so that "user" does not match every passage."""
        return _ROLE.sub("", self.own)

    @property
    def terms(self) -> frozenset[str]:
        is_passage = self.record.type == MemoryType.EPISODE
        return evidence_terms(self.words if is_passage else f"{self.words} {self.near}")


class Snapshot:
    """Memories of a user in this process, with a search index."""

    def __init__(
        self,
        loaded: PartitionContent,
        *,
        retention: Mapping[MemoryType, Retention],
        embed: Embed | None,
    ) -> None:
        self.content = loaded
        self.records = loaded.records
        self.has_older_preferences = False
        self._removed: set[str] = set()
        self._retention = retention
        self._embed = embed
        self._lock = threading.RLock()
        self._texts: dict[str, _Text] | None = None
        self._index = LexicalIndex[str]()
        self._vectors: dict[str, Sequence[float]] = {}

    def put(self, record: MemoryRecord) -> None:
        """Add a memory, or replace the memory with the same id."""
        with self._lock:
            self.records[record.memory_id] = record
            self._texts = None

    def add_older(self, loaded: PartitionContent) -> None:
        """Add memories that are not in the snapshot yet and were not removed from it."""
        with self._lock:
            new = {
                id_: each
                for id_, each in loaded.records.items()
                if id_ not in self.records and id_ not in self._removed
            }
            self.content.add(replace(loaded, records=new))
            if self._texts is not None:
                self._index_texts(new.values(), self._texts)

    def remove(self, memory_id: str) -> None:
        """Remove a memory."""
        with self._lock:
            self._removed.add(memory_id)
            self.records.pop(memory_id, None)
            self._texts = None

    def used(self, ids: Collection[str], now: float) -> None:
        """Add a recall at the time ``now`` to the access counts of memories, for their ranking."""
        with self._lock:
            for id_ in self.records.keys() & ids:
                self.records[id_] = counted(self.records[id_], {id_: (1, now)})

    def ranked(
        self,
        now: float,
        *,
        query: str | None = None,
        wanted: MemoryQuery | None = None,
        matching: bool = False,
    ) -> list[Hit]:
        """Return the memories that meet the conditions ``wanted`` as search results, best first.

        With a query, each passage of a session's messages is a separate result. If ``matching`` is
        True, results without a word of the query in their text or topics are left out; with
        vectors, those without a positive similarity.
        """
        with self._lock:
            filters = wanted or MemoryQuery()
            candidates = {
                id_: record for id_, record in self.records.items() if filters.has(record, now)
            }
            if query is None or not query.strip():
                hits = [
                    Hit(record, record.content, self._score(record, now, None))
                    for record in candidates.values()
                ]
            else:
                texts = self._indexed()
                similar = self._similar(query, texts)
                asked = None if self._embed else content_terms(query)
                hits = [
                    Hit(record, text.own, self._score(record, now, similar.get(name, 0.0)))
                    for name, text in texts.items()
                    if (record := candidates.get(text.record.memory_id)) is not None
                    if not matching
                    or (name in similar and (asked is None or not asked.isdisjoint(text.terms)))
                ]
        hits.sort(key=lambda hit: (-hit.score, hit.record.memory_id))
        return hits

    def answers(self, query: str, hits: Sequence[Hit]) -> bool:
        """Return whether a search result has all content words of the query, or three of them.

        If texts are compared by vectors, any result is enough. A query without content words counts
        as answered.
        """
        if self._embed is not None:
            return bool(hits)
        asked = content_terms(query)
        asked = asked & evidence_terms(query) or asked  # without synonyms, one of which is enough
        texts = (f"{hit.content} {' '.join(map(str, hit.record.listed('topics')))}" for hit in hits)
        return not asked or any(
            len(asked & evidence_terms(text)) >= min(3, len(asked)) for text in texts
        )

    def _score(self, record: MemoryRecord, now: float, similarity: float | None) -> float:
        half_life = self._retention[MemoryType(record.type)].half_life
        return score(record, now=now, half_life=half_life, similarity=similarity)

    def _indexed(self) -> dict[str, _Text]:
        """Return the texts of all memories by the text's id. Index them again after a change."""
        if self._texts is None:
            self._texts, self._index = {}, LexicalIndex()
            self._index_texts(self.records.values(), self._texts)
        return self._texts

    def _index_texts(self, records: Iterable[MemoryRecord], known: dict[str, _Text]) -> None:
        """Add the texts of memories to ``known`` and, without ``embed``, to the index of words."""
        texts = {name: text for record in records for name, text in texts_of(record).items()}
        known |= texts
        if self._embed is None:
            self._index.put(
                (name, text.words, _ROLE.sub("", text.near)) for name, text in texts.items()
            )

    def _similar(self, query: str, texts: Mapping[str, _Text]) -> dict[str, float]:
        if self._embed is None:
            return self._index.search(query)
        missing = [
            own
            for own in dict.fromkeys(text.own for text in texts.values())
            if own not in self._vectors
        ]
        vectors = embed_texts(self._embed, [query, *missing])
        self._vectors.update(zip(missing, vectors[1:], strict=True))
        similar = {name: dot(vectors[0], self._vectors[text.own]) for name, text in texts.items()}
        return {name: value for name, value in similar.items() if value > 0}


def texts_of(record: MemoryRecord) -> dict[str, _Text]:
    """Return the texts of a memory that a search compares with its query, keyed by the text's id.

    A memory has one text, its content. Stored messages of a session have one text for each passage.
    """
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
    """Return the user's text that began the last turn, or None if it is empty or small talk."""
    opening = next(filter(is_turn_start, reversed(messages)), None)
    words = "" if opening is None else strip_own_blocks(message_text(opening)).strip()
    return words if words and dialogue_act(words, "user") not in SMALL_TALK_ACTS else None


logger = logging.getLogger(__name__)

_WORDS = f"{INTERNAL}words#"
_SECONDS = 7 * DAY
"""Seconds until a stored list is made again from all memories."""
_SHARDS, _ROWS = 16, 512
"""Number of parts that hold the words of a list, and memories in each part that holds ids."""
_MOST_BYTES, _MOST_ROWS = 2_800_000, 64 * _ROWS
"""Most bytes of the words and ids of a list, and most memories.
DynamoDB limits a transaction to 4 MB in 100 items.
"""
_MOST_FOUND, _MOST_IMPORTANT = 64, 192


class WordList:
    """Index of the words in a user's memories, so that a search need not read all memories.

    Preferences are not listed. The list has parts, so that a search decodes only a few of them.
    Each listed memory has a row number; the latest has the number 0.

    - ``words.N`` maps checksums of words to the rows of the memories with the word. The checksum
      determines ``N``.
    - ``ids.N`` holds the ids of 512 rows.
    - ``important`` maps each type to the 192 most important memories, as pairs of negative
      importance and row.

    Args:
        made_at: Time when the list was made, in seconds since 1970.
        part: Function that returns a part by its name.
    """

    def __init__(self, made_at: float, part: Callable[[str], Any]) -> None:
        self.made_at = made_at
        self._part = functools.cache(part)

    def find(self, terms: Iterable[str]) -> Iterator[str]:
        """Yield the ids of memories with a search term, those with more and rarer terms first."""
        scores: dict[int, float] = {}
        for word in sorted(map(_checksum, terms)):
            rows = self._part(_part_of(word)).get(word, "").split()
            for row in map(int, rows):
                scores[row] = scores.get(row, 0.0) + 1 / math.log2(1 + len(rows))
        return map(self._id, sorted(scores, key=lambda row: (-scores[row], row)))

    def by_importance(self, types: Collection[str]) -> Iterator[str]:
        """Yield the ids of the most important memories of some types, then the latest first."""
        important = self._part("important")
        return (
            self._id(row) for _, row in heapq.merge(*(important.get(type_, ()) for type_ in types))
        )

    def _id(self, row: int) -> str:
        return str(self._part(f"ids.{row // _ROWS:02}")[row % _ROWS])


def _parts_of_list(records: Iterable[MemoryRecord]) -> dict[str, Any]:
    """Return the parts of a word list, keyed by name. Memories beyond its limits are left out."""
    rows: dict[str, list[int]] = defaultdict(list)
    important: dict[str, list[tuple[float, int]]] = defaultdict(list)
    ids, size = list[str](), 0
    for row, record in enumerate(itertools.islice(records, _MOST_ROWS)):
        words = {_checksum(term) for text in texts_of(record).values() for term in text.terms}
        size += len(record.memory_id) + 6 * len(words)
        if size > _MOST_BYTES:
            break
        ids.append(record.memory_id)
        important[record.type].append((-record.importance, row))
        for word in words:
            rows[word].append(row)
    parts: dict[str, Any] = {_part_of(f"{shard:x}"): {} for shard in range(_SHARDS)}
    for word, found in rows.items():
        parts[_part_of(word)][word] = " ".join(map(str, found))
    parts |= {
        f"ids.{start // _ROWS:02}": ids[start : start + _ROWS]
        for start in range(0, len(ids), _ROWS)
    }
    return parts | {
        "important": {
            type_: heapq.nsmallest(_MOST_IMPORTANT, each) for type_, each in important.items()
        }
    }


class OlderMemories:
    """Search in all memories of one user through a word list, which is stored next to the memories.

    The first search reads all memories and makes the list. Searches of the next seven days, in all
    processes, read the list and then the memories with matching words. A list is made again if
    memories may exist that neither it nor the caller has. It is deleted when a memory is deleted,
    gets other words, or is stored with an old date.
    """

    def __init__(self, partition: UserPartition) -> None:
        self._partition = partition
        self._codec = partition.codec or Codec()
        self._list: WordList | None = None

    def find(
        self,
        query: str | None,
        types: Collection[str],
        *,
        since: float,
        known: Collection[str],
        with_preferences: bool,
    ) -> PartitionContent:
        """Return up to 64 memories with a word of the query, or the most important of ``types``.

        All preferences are added if the call makes the word list. Otherwise, they are added if
        ``with_preferences`` is True and ``known`` has at least 40 preferences, the most that a
        session start reads.

        Args:
            query: Text to search for, or None.
            types: Types of the memories without a query. With a query, the type does not matter.
            since: Time from which on the caller has read all memories, in seconds since 1970.
            known: Ids of the memories that the caller has read. They are left out.
            with_preferences: Whether preferences may be added if the list exists.
        """
        oldest = max(since, self._partition.clock() - _SECONDS)

        def find(words: WordList) -> list[str]:
            found = (
                words.by_importance(types) if query is None else words.find(content_terms(query))
            )
            return list(itertools.islice((id_ for id_ in found if id_ not in known), _MOST_FOUND))

        try:
            words = self._list or self._read()
            ids = None if words is None or words.made_at < oldest else find(words)
        except CorruptRecordError:  # the list is made again from all memories
            ids = None
        if ids is not None:
            self._list = words
            has_most = (
                sum(id_.startswith(f"{MemoryType.PREFERENCE}#") for id_ in known)
                >= MOST_PREFERENCES
            )
            return self._partition.load_named(ids, with_preferences=with_preferences and has_most)
        loaded, self._list = self._make()
        chosen = {
            id_ for id_, record in loaded.records.items() if record.type == MemoryType.PREFERENCE
        }
        chosen.update(find(self._list))
        loaded.records = {id_: record for id_, record in loaded.records.items() if id_ in chosen}
        return loaded

    def forget(self) -> None:
        """Discard the word list in this process, so that the next search reads the stored list."""
        self._list = None

    def delete_list(self) -> None:
        """Delete the stored word list after a change of the memories that is not in the list."""
        self._list = None
        owner = self._partition.owner
        stored = self._partition.table.query(
            owner.partition, first=_WORDS, last=f"{_WORDS}~", attributes=[]
        )
        self._partition.delete_many([str(item["memory_id"]) for item in stored])

    def _read(self) -> WordList | None:
        """Return the stored word list, or None if there is none.

        A damaged list raises ``CorruptRecordError``, here or when a damaged part is used.
        """
        owner = self._partition.owner
        rows = self._partition.table.query(owner.partition, first=_WORDS, last=f"{_WORDS}~")
        items = {str(item["memory_id"]).removeprefix(_WORDS): item for item in rows}
        if not items:
            return None

        def part(name: str) -> Any:
            place = place_of(owner, f"{_WORDS}{name}")
            with trusted(place):
                made, body = self._codec.decode(items[name]["data"], place)
                if made != made_at:
                    raise ValueError("it is a part of another list")
                return body

        with trusted(place_of(owner, _WORDS)):
            made_at = float(items["important"]["made_at"])
        return WordList(made_at, part)

    def _make(self) -> tuple[PartitionContent, WordList]:
        """Read all memories, make and store a list of their words, and return both.

        The list has at most 2.8 MB: from a larger one, the oldest memories are left out. It is not
        stored if the store fails, or if memories change or are erased during the call. The record
        ``CHANGES`` shows that, because each change of memories writes it, and an erasure deletes it
        first.
        """
        partition, owner = self._partition, self._partition.owner
        table, changes = partition.table, (owner.changes_partition, CHANGES)
        changed, erased = table.get(*changes), partition.erased()
        made_at = partition.clock()
        loaded = partition.load()
        listed = [each for each in loaded.records.values() if each.type != MemoryType.PREFERENCE]
        parts = _parts_of_list(sorted(listed, key=lambda record: record.updated_at, reverse=True))
        writes = list[Write]()
        for name, part in parts.items():
            id_ = f"{_WORDS}{name}"
            stored = {
                "data": self._codec.encode([made_at, part], place_of(owner, id_)),
                "made_at": made_at,
            }
            key = {
                "user_id": owner.partition,
                "memory_id": id_,
                "expires_at": int(made_at + _SECONDS),
            }
            writes.append(Write(item={**key, **stored}))
        check = Write(key=changes, when=unchanged(changed), is_check=True)
        try:
            if changed is not None:
                table.transact([*writes, check, not_erased_since(owner.partition, erased)])
        except StoreError as error:  # the memories were read
            logger.debug(
                "error=<%s> | failed to store the words of a user's memories", type(error).__name__
            )
        return loaded, WordList(made_at, parts.__getitem__)


def _checksum(term: str) -> str:
    return f"{zlib.crc32(term.encode('utf-8', 'surrogatepass')):x}"


def _part_of(word: str) -> str:
    """Return the name of the part of a word list that contains the word with this checksum."""
    return f"words.{int(word, 16) % _SHARDS:02}"
