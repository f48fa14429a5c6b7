"""List of the words of a user's memories. With it, a search finds older memories without reading all of them."""

from __future__ import annotations

import itertools
import logging
import math
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.language.search import content_terms
from strands_manga_memory.memory.memory_search import texts_of
from strands_manga_memory.memory.partition import MOST_PREFERENCES, PartitionContent, UserPartition, not_erased_since, unchanged
from strands_manga_memory.memory.records import CHANGES, DAY, INTERNAL, MemoryRecord, MemoryType, parts_of, place_of
from strands_manga_memory.stores.codec import Codec, trusted
from strands_manga_memory.stores.table import Write

logger = logging.getLogger(__name__)

_WORDS = f"{INTERNAL}words#"
_SECONDS = 7 * DAY
"""Seconds until a stored list is made again from all memories."""
_MOST_PARTS, _MOST_BYTES = 8, 350_000
"""Most items of a list, and most bytes of an item. A DynamoDB item has at most 400 KB."""
_MOST_FOUND = 64


@dataclass(frozen=True)
class WordList:
    """Words of a user's memories, without the preferences.

    Attributes:
        made_at: Time when the list was made, in seconds since 1970.
        ids: Ids of the memories, the latest first.
        importances: Importance of each memory, in the order of ``ids``.
        words: Checksums of the words of each memory, in the order of ``ids``. Each checksum is between spaces.
    """

    made_at: float
    ids: list[str] = field(default_factory=list)
    importances: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def add(self, ids: Iterable[str], importances: Iterable[float], words: Iterable[str]) -> None:
        """Append memories with their importances and words to the list. They must be older than the memories in the list."""
        self.ids.extend(map(str, ids))
        self.importances.extend(map(float, importances))
        self.words.extend(map(str, words))
        if not len(self.ids) == len(self.importances) == len(self.words):
            raise ValueError("each memory must have an importance and words")

    def find(self, terms: Iterable[str]) -> list[str]:
        """Return the ids of the listed memories that contain a search term. Memories with more and rarer terms come first."""
        scores: dict[str, float] = {}
        for word in sorted({f" {_checksum(term)} " for term in terms}):
            found = [id_ for id_, words in zip(self.ids, self.words, strict=True) if word in words]
            scores |= {id_: scores.get(id_, 0.0) + 1 / math.log2(1 + len(found)) for id_ in found}
        return sorted((id_ for id_ in self.ids if id_ in scores), key=lambda id_: -scores[id_])

    def by_importance(self, types: Collection[str]) -> list[str]:
        """Return the ids of all listed memories of some types, sorted by importance and then by time, the latest first."""
        listed = zip(self.importances, self.ids, strict=True)
        found = [pair for pair in listed if pair[1].partition("#")[0] in types]
        return [id_ for _, id_ in sorted(found, key=lambda pair: -pair[0])]


class OlderMemories:
    """Search in all memories of one user through a word list, which is stored next to the memories.

    The first search makes the list, for which it reads all memories once. Searches of the next seven days, in all processes,
    read the list and the memories that it names. The list is made again earlier if it may lack memories that the caller has
    not read. It is deleted when a memory is deleted, gets other words, or is stored with an old date.
    """

    def __init__(self, partition: UserPartition) -> None:
        self._partition = partition
        self._codec = partition.codec or Codec()
        self._list: WordList | None = None

    def find(
        self, query: str | None, types: Collection[str], *, since: float, known: Collection[str], with_preferences: bool
    ) -> PartitionContent:
        """Return up to 64 memories with a word of the query. Without a query, return the most important memories of ``types``.

        All preferences are added if the call makes the word list. Otherwise, they are added if ``with_preferences`` is True and
        ``known`` has at least 40 preferences, the most that a session start reads.

        Args:
            query: Text to search for, or None.
            types: Types of the most important memories.
            since: Time from which on the caller has read all memories, in seconds since 1970.
            known: Ids of the memories that the caller has read. They are left out.
            with_preferences: Whether preferences may be added if the list exists.
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
        """Discard the word list in this process, so that the next search reads the stored list."""
        self._list = None

    def delete_list(self) -> None:
        """Delete the stored word list after a change of the memories that is not in the list."""
        self._list = None
        owner = self._partition.owner
        stored = self._partition.table.query(owner.partition, first=_WORDS, last=f"{_WORDS}~", attributes=[])
        self._partition.delete_many([str(item["memory_id"]) for item in stored])

    def _read(self) -> WordList | None:
        """Return the stored word list. None if it is missing, damaged or incomplete."""
        owner = self._partition.owner
        found: WordList | None = None
        missing = 0
        try:
            for item in self._partition.table.query(owner.partition, first=_WORDS, last=f"{_WORDS}~"):
                place = place_of(owner, str(item["memory_id"]))
                with trusted(place):
                    made_at, parts, *columns = self._codec.decode(item["data"], place)
                    if found is None:
                        found, missing = WordList(float(made_at)), int(parts)
                    if made_at == found.made_at:  # else a part of an earlier list, which had more parts
                        found.add(*columns)
                        missing -= 1
        except CorruptRecordError:
            return None
        return None if missing else found

    def _make(self) -> tuple[PartitionContent, WordList]:
        """Read all memories, and return them with a new list of their words.

        The list has at most 2.8 MB. Beyond that, the oldest memories are missing in it. The list is also stored, unless the
        user's memories change or are erased meanwhile, or the store fails. The record ``CHANGES`` shows such a change: each
        change of memories writes the record, and an erasure deletes it before the memories.
        """
        partition, owner = self._partition, self._partition.owner
        table, changes = partition.table, (owner.changes_partition, CHANGES)
        changed, erased = table.get(*changes), partition.erased()
        made_at = partition.clock()
        loaded = partition.load()
        listed = [each for each in loaded.records.values() if each.type != MemoryType.PREFERENCE]
        listed.sort(key=lambda record: record.updated_at, reverse=True)
        rows = ((record.memory_id, record.importance, _words_of(record)) for record in listed)
        split = parts_of(rows, lambda row: len(row[0].encode()) + len(row[2]) + 12, _MOST_BYTES)
        parts = list(itertools.islice(split, _MOST_PARTS)) or [[]]
        writes, words = list[Write](), WordList(made_at)
        for number, part in enumerate(parts):
            id_, columns = f"{_WORDS}{number}", [list(column) for column in zip(*part, strict=True)] or [[], [], []]
            words.add(*columns)
            data = self._codec.encode([made_at, len(parts), *columns], place_of(owner, id_))
            item = {"user_id": owner.partition, "memory_id": id_, "data": data, "expires_at": int(made_at + _SECONDS)}
            writes.append(Write(item=item))
        check = Write(key=changes, when=unchanged(changed), is_check=True)
        try:
            if changed is not None:
                table.transact([*writes, check, not_erased_since(owner.partition, erased)])
        except StoreError as error:  # the memories were read
            logger.debug("error=<%s> | failed to store the words of a user's memories", type(error).__name__)
        return loaded, words


def _words_of(record: MemoryRecord) -> str:
    words = {_checksum(term) for text in texts_of(record).values() for term in text.terms}
    return f" {' '.join(sorted(words))} "


def _checksum(term: str) -> str:
    return f"{zlib.crc32(term.encode('utf-8', 'surrogatepass')):x}"
