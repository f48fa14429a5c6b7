"""List of the words of a user's memories, by which a search finds older memories without reading all of them."""

from __future__ import annotations

import logging
import math
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.language.search import content_terms
from strands_manga_memory.memory.memory_search import texts_of
from strands_manga_memory.memory.partition import MOST_PREFERENCES, PartitionContent, UserPartition, not_erased_since, unchanged
from strands_manga_memory.memory.records import CHANGES, DAY, INTERNAL, MemoryRecord, MemoryType, place_of
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.table import Item, Write

logger = logging.getLogger(__name__)

_WORDS = f"{INTERNAL}words#"
_SECONDS = 7 * DAY
"""Seconds until a stored list is made again from all memories."""
_MOST_PARTS, _MOST_BYTES = 8, 250_000
"""Most items of a list, and most bytes of an item. A DynamoDB item has at most 400 KB."""
_MOST_FOUND = 64


@dataclass(frozen=True)
class _Part:
    """Words of some memories, in a form that is fast to search.

    Attributes:
        ids: Ids of the memories, the latest first.
        importances: Importance of each memory, from 0 to 255.
        words: Sorted checksums of the words of all memories. A word of several memories is repeated, once for each memory.
        positions: For each element of ``words``, the position in ``ids`` of its memory.
    """

    ids: Sequence[str]
    importances: bytes
    words: array[int]
    positions: array[int]

    @classmethod
    def of(cls, memories: Sequence[tuple[MemoryRecord, Collection[int]]]) -> _Part:
        pairs = sorted((word, at) for at, (_, words) in enumerate(memories) for word in words)
        words, positions = array("I", [word for word, _ in pairs]), array("I", [at for _, at in pairs])
        ids = [record.memory_id for record, _ in memories]
        return cls(ids, bytes(round(255 * record.importance) for record, _ in memories), words, positions)

    def ids_with(self, word: int) -> list[str]:
        first, last = bisect_left(self.words, word), bisect_right(self.words, word)
        return [self.ids[at] for at in self.positions[first:last]]


@dataclass(frozen=True)
class WordList:
    """Words of a user's memories, without the preferences, as of the time ``made_at`` in seconds since 1970."""

    made_at: float
    parts: Sequence[_Part]

    @classmethod
    def of(cls, records: Iterable[MemoryRecord], made_at: float) -> WordList:
        """Make the list. If it would exceed 2 MB, only the latest memories are listed."""
        parts: list[list[tuple[MemoryRecord, Collection[int]]]] = [[]]
        size = 0
        for record in sorted(records, key=lambda record: record.updated_at, reverse=True):
            if record.type == MemoryType.PREFERENCE:
                continue
            words = {_checksum(term) for text in texts_of(record).values() for term in text.terms}
            added = len(record.memory_id.encode()) + 8 * len(words)
            if size + added > _MOST_BYTES and parts[-1]:
                if len(parts) == _MOST_PARTS:
                    break
                parts.append([])
                size = 0
            size += added
            parts[-1].append((record, words))
        return cls(made_at, [_Part.of(part) for part in parts])

    def find(self, terms: Iterable[str]) -> list[str]:
        """Return the ids of the memories with one of the terms. Those with more and rarer terms come first."""
        scores: dict[str, float] = {}
        for term in sorted(terms):
            word = _checksum(term)
            ids = [id_ for part in self.parts for id_ in part.ids_with(word)]
            for id_ in ids:
                scores[id_] = scores.get(id_, 0.0) + 1 / math.log2(1 + len(ids))
        return sorted(scores, key=lambda id_: -scores[id_])

    def by_importance(self, types: Collection[str]) -> list[str]:
        """Return the ids of all listed memories of some types, sorted by importance and then by time, the latest first."""
        found = [pair for part in self.parts for pair in zip(part.importances, part.ids, strict=True)]
        found.sort(key=lambda pair: -pair[0])
        return [id_ for _, id_ in found if id_.partition("#")[0] in types]


class OlderMemories:
    """Search in all memories of one user through a word list, which is stored next to the memories.

    The first search makes the list, for which it reads all memories once. Searches of the next seven days, in all processes,
    read the list and the memories that it names. The list is made again earlier if it is older than ``since``. It is deleted
    when a memory is deleted, or gets other words, or is stored with an old date.
    """

    def __init__(self, partition: UserPartition) -> None:
        self._partition = partition
        self._codec = partition.codec or Codec()
        self._list: WordList | None = None

    def find(
        self, query: str | None, types: Collection[str], *, since: float, known: Collection[str], with_preferences: bool
    ) -> PartitionContent:
        """Return up to 64 memories that have a word of the query or, without a query, the most important of some types.

        All preferences are added if the call makes the list, or if ``known`` has the most that a session start reads.

        Args:
            query: Text to search for, or None.
            types: Types of the most important memories.
            since: Time from which on the caller has read all memories, in seconds since 1970.
            known: Ids of the memories that the caller has read. They are left out.
            with_preferences: Whether preferences may be added.
        """
        words, oldest = self._list or self._read(), max(since, self._partition.clock() - _SECONDS)
        loaded = None
        if words is None or words.made_at < oldest:
            loaded, words = self._make()
        self._list = words
        found = words.by_importance(types) if query is None else words.find(content_terms(query))
        ids = [id_ for id_ in found if id_ not in known][:_MOST_FOUND]
        if loaded is None:
            has_most = sum(id_.startswith(f"{MemoryType.PREFERENCE}#") for id_ in known) >= MOST_PREFERENCES
            return self._partition.load_named(ids, with_preferences=with_preferences and has_most)
        chosen = {id_ for id_, record in loaded.records.items() if record.type == MemoryType.PREFERENCE}.union(ids)
        loaded.records = {id_: record for id_, record in loaded.records.items() if id_ in chosen}
        return loaded

    def forget(self) -> None:
        """Forget the list that was read, so that the next search reads the stored one."""
        self._list = None

    def delete_list(self) -> None:
        """Delete the stored list after a change that it does not show."""
        self._list = None
        owner = self._partition.owner
        stored = self._partition.table.query(owner.partition, first=_WORDS, last=f"{_WORDS}~", attributes=[])
        self._partition.delete_many([str(item["memory_id"]) for item in stored])

    def _read(self) -> WordList | None:
        """Return the stored list. None if it is missing, damaged or incomplete."""
        owner = self._partition.owner
        items = list(self._partition.table.query(owner.partition, first=_WORDS, last=f"{_WORDS}~"))
        try:
            rows = [self._opened(item) for item in items]
        except CorruptRecordError:
            return None
        made_at = max((row[0] for row in rows), default=0.0)
        parts = [part for at, number, part in rows if at == made_at]
        return WordList(made_at, parts) if rows and len(parts) == rows[0][1] else None

    def _make(self) -> tuple[PartitionContent, WordList]:
        """Read all memories, and return them and the list of their words.

        The list is also stored, unless the user's memories change or are erased meanwhile, or the store fails. The record
        ``CHANGES`` shows this: each change of memories writes the record, and an erasure deletes it before the memories.
        """
        partition, owner = self._partition, self._partition.owner
        table, changes = partition.table, (owner.changes_partition, CHANGES)
        changed, erased = table.get(*changes), partition.erased()
        made_at = partition.clock()
        loaded = partition.load()
        words = WordList.of(loaded.records.values(), made_at)
        writes = [Write(item=self._item(words, number)) for number in range(len(words.parts))]
        check = Write(key=changes, when=unchanged(changed), is_check=True)
        try:
            if changed is not None:
                table.transact([*writes, check, not_erased_since(owner.partition, erased)])
        except StoreError as error:  # the memories were read
            logger.debug("error=<%s> | failed to store the words of a user's memories", type(error).__name__)
        return loaded, words

    def _item(self, words: WordList, number: int) -> Item:
        owner, part, id_ = self._partition.owner, words.parts[number], f"{_WORDS}{number}"
        body = [words.made_at, len(words.parts), part.ids, part.importances, part.words.tobytes(), part.positions.tobytes()]
        data = self._codec.encode(body, place_of(owner, id_))
        return {
            "user_id": owner.partition,
            "memory_id": id_,
            "data": data,
            "expires_at": int(words.made_at + _SECONDS),
        }

    def _opened(self, item: Item) -> tuple[float, int, _Part]:
        place = place_of(self._partition.owner, str(item["memory_id"]))
        with trusted(place):
            made_at, count, ids, importances, words, positions = self._codec.decode(item["data"], place)
            part = _Part(list(map(str, ids)), importances, array("I", words), array("I", positions))
            if not isinstance(importances, bytes) or len(importances) != len(part.ids):
                raise ValueError("a list must have one importance for each memory")
            if len(part.words) != len(part.positions) or max(part.positions, default=-1) >= len(part.ids):
                raise ValueError("the words and the positions of a list must belong together")
            return float(made_at), int(count), part


def _checksum(term: str) -> int:
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))
