"""Search in all memories of a user through a stored index of their words."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.language.search import content_terms
from strands_manga_memory.memory.memory_search import texts_of
from strands_manga_memory.memory.partition import (
    MAX_PREFERENCES,
    PartitionContent,
    UserPartition,
    not_erased_since,
    unchanged,
)
from strands_manga_memory.memory.records import (
    CHANGES,
    DAY,
    INTERNAL,
    MemoryRecord,
    MemoryType,
    storage_key_of,
)
from strands_manga_memory.stores.codec import Codec, parsing
from strands_manga_memory.stores.table import Item, Write

logger = logging.getLogger(__name__)

_WORDS = f"{INTERNAL}words#"
_SECONDS = 7 * DAY
"""Seconds until a stored list is made again from all memories."""
_SHARDS, _ROWS = 32, 512
"""Number of parts that hold the words of a list, and memories in each part that holds ids."""
_MAX_BYTES, _MAX_ROWS = 2_800_000, 64 * _ROWS
"""Most bytes and memories of a list, as DynamoDB limits a transaction to 4 MB in 100 items."""
_MAX_FOUND, _MAX_IMPORTANT = 64, 192


class WordList:
    """Index (word list) of a user's memories, so that a search need not read all memories.

    Preferences are not in the index. Each memory has a row number, from 0 for the latest memory.
    The index is stored in parts, of which a search reads only those that it needs:

    - ``words.00`` to ``words.31``: row numbers of the memories that contain each word. The checksum
      of a word selects the part.
    - ``ids.00``, ``ids.01`` and so on: memory ids of 512 rows each.
    - ``important``: the 192 most important memories of each type.

    Attributes:
        made_at: Time when the list was made, in seconds since 1970. Minus infinity if no list is
            stored, or none was read yet.
    """

    def __init__(
        self,
        partition: UserPartition,
        made_at: float = -math.inf,
        parts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.made_at = made_at
        self._parts = dict(parts)
        self._partition = partition

    def load(self, names: Iterable[str]) -> None:
        """Read parts of the index, such as ``words.3``, unless they were read before.

        Raises:
            CorruptRecordError: A part is damaged or missing, or belongs to an older or newer index.
        """
        missing, owner = set(names) - self._parts.keys(), self._partition.owner
        keys = {name: (owner.partition, f"{_WORDS}{name}") for name in missing}
        items = self._partition.table.batch_get([*keys.values()]) if keys else {}
        if not items and self.made_at == -math.inf:
            return
        for name, key in keys.items():
            storage_key = storage_key_of(owner, f"{_WORDS}{name}")
            with parsing(storage_key):
                codec = self._partition.codec or Codec()
                made_at, part = codec.decode(items[key]["data"], storage_key)
                if self.made_at not in (made_at, -math.inf):
                    raise ValueError("it is a part of another list")
                self.made_at, self._parts[name] = float(made_at), part

    def find(self, checksums: Sequence[str]) -> Iterator[str]:
        """Yield the ids of memories that have at least one of the searched words, best match first.

        The index stores the ``checksums`` of words, not the words. Memories with more of the words,
        and with rarer words, come first.
        """
        self.load(map(_words_part_name, checksums))
        scores: dict[int, float] = defaultdict(float)
        for checksum in checksums:
            rows = self._parts[_words_part_name(checksum)].get(checksum, "").split()
            worth = 1 / math.log2(1 + len(rows)) if rows else 0.0
            for row in map(int, rows):
                scores[row] -= worth
        ranked = sorted(sorted(scores), key=scores.__getitem__)
        for first in range(0, len(ranked), _ROWS):
            batch = ranked[first : first + _ROWS]
            self.load(map(_ids_part_name, batch))
            for row in batch:
                yield str(self._parts[_ids_part_name(row)][row % _ROWS])

    def by_importance(self, types: Collection[str]) -> Iterator[str]:
        """Yield the ids of the most important memories of the given types.

        The most important memory comes first. Of equally important memories, the latest comes
        first.
        """
        self.load(["important"])
        lists = (self._parts["important"].get(type_, ()) for type_ in types)
        return (str(id_) for *_, id_ in heapq.merge(*lists))


def _parts_of_list(records: Iterable[MemoryRecord]) -> dict[str, Any]:
    """Build a new word list from memories, and return its parts, keyed by name.

    The list has at most 2.8 MB and 32,768 memories. If ``records`` has more, the last ones are left
    out.
    """
    rows: dict[str, list[int]] = defaultdict(list)
    important: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    ids, size = list[str](), 0
    for row, record in enumerate(itertools.islice(records, _MAX_ROWS)):
        words = {_checksum(term) for text in texts_of(record) for term in text.terms}
        size += len(record.memory_id) + 6 * len(words)
        if size > _MAX_BYTES:
            break
        ids.append(record.memory_id)
        important[record.type].append((-record.importance, row, record.memory_id))
        for word in words:
            rows[word].append(row)
    parts: dict[str, Any] = {_words_part_name(f"{shard:x}"): {} for shard in range(_SHARDS)}
    for word, found in rows.items():
        parts[_words_part_name(word)][word] = " ".join(map(str, found))
    parts |= {
        _ids_part_name(start): ids[start : start + _ROWS] for start in range(0, len(ids), _ROWS)
    }
    return parts | {
        "important": {
            type_: heapq.nsmallest(_MAX_IMPORTANT, each) for type_, each in important.items()
        }
    }


def find_older(
    partition: UserPartition,
    query: str | None,
    types: Collection[str],
    *,
    since: float,
    known: Collection[str],
    listed: WordList | None = None,
) -> tuple[PartitionContent, WordList]:
    """Find memories of a user that this process has not read yet, at most 64.

    With a query, memories that contain a word of the query are found. Without a query, the most
    important memories of ``types`` are found.

    The first call reads all memories, and stores a list of their words. For seven days, calls in
    all processes read only the list and the found memories. The list lacks memories that were
    stored later. If this process may not have read all of these, a new list is made. A call that
    makes a list also returns all preferences.

    Args:
        partition: Memories of the user.
        query: Text to search for, or None.
        types: Types of the memories without a query.
        since: Time from which on the process has read all memories, in seconds since 1970.
        known: Ids of the memories that the process has read. They are left out. If 40 or more are
            preferences, all preferences are returned, too, because a session reads only 40 at its
            start.
        listed: Word list that an earlier call returned. Default: the stored list.

    Returns:
        Memories, and the word list that was used.
    """
    oldest = max(since, partition.clock() - _SECONDS)
    checksums = [] if query is None else sorted(map(_checksum, content_terms(query)))

    def find(words_of: WordList) -> list[str]:
        found = words_of.by_importance(types) if query is None else words_of.find(checksums)
        return list(itertools.islice((id_ for id_ in found if id_ not in known), _MAX_FOUND))

    listed = listed or WordList(partition)
    try:
        listed.load([*map(_words_part_name, checksums)] or ["important"])
        ids = find(listed) if listed.made_at >= oldest else None
    except CorruptRecordError:  # the list is made again from all memories
        ids = None
    if ids is not None:
        read = sum(id_.startswith(f"{MemoryType.PREFERENCE}#") for id_ in known)
        return partition.load_named(ids, with_preferences=read >= MAX_PREFERENCES), listed
    loaded, listed = _make_list(partition)
    chosen = set(find(listed))
    loaded.records = {
        id_: record
        for id_, record in loaded.records.items()
        if record.type == MemoryType.PREFERENCE or id_ in chosen
    }
    return loaded, listed


def delete_word_list(partition: UserPartition) -> None:
    """Delete a user's stored word list, the index for searches in older memories.

    Call this function after a memory was deleted, got new words, or was added with an old date. The
    next search makes a new list. First call ``PreferenceLog.notify_agents``, so that a running
    search does not store an outdated list.
    """
    stored = partition.table.query(
        partition.owner.partition, first=_WORDS, last=f"{_WORDS}~", attributes=[]
    )
    partition.delete_many([str(item["memory_id"]) for item in stored])


def _make_list(partition: UserPartition) -> tuple[PartitionContent, WordList]:
    """Read all memories of the user, build and store a word list of them, and return both.

    If the list would exceed 2.8 MB, it lacks the oldest memories. It is not stored if the store
    fails, or if memories change or are deleted during the call.
    """
    owner, table, codec = partition.owner, partition.table, partition.codec or Codec()
    changes = owner.preference_log_partition, CHANGES
    changed, erased = table.get(*changes), partition.erased()
    made_at = partition.clock()
    loaded = partition.load()
    listed = [each for each in loaded.records.values() if each.type != MemoryType.PREFERENCE]
    parts = _parts_of_list(sorted(listed, key=lambda record: record.updated_at, reverse=True))
    writes = list[Write]()
    for name, part in parts.items():
        id_ = f"{_WORDS}{name}"
        item: Item = {"user_id": owner.partition, "memory_id": id_}
        item["expires_at"] = int(made_at + _SECONDS)
        item["data"] = codec.encode([made_at, part], storage_key_of(owner, id_))
        writes.append(Write(item=item))
    # Each change of memories writes this record, and an erasure deletes it first.
    check = Write(key=changes, when=unchanged(changed), is_check=True)
    try:
        if changed is not None:
            table.transact([*writes, check, not_erased_since(owner.partition, erased)])
    except StoreError as error:  # the memories were read
        logger.debug(
            "error=<%s> | failed to store the words of a user's memories", type(error).__name__
        )
    return loaded, WordList(partition, made_at, parts)


def _checksum(term: str) -> str:
    return f"{zlib.crc32(term.encode('utf-8', 'surrogatepass')):x}"


def _ids_part_name(row: int) -> str:
    return f"ids.{row // _ROWS:02}"


def _words_part_name(checksum: str) -> str:
    return f"words.{int(checksum, 16) % _SHARDS:02}"
