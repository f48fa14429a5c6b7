"""Search in all memories of a user through a stored index of their words (the word list).

Each memory that is not a preference has a row number, from 0 for the most important memory. The
index is stored in parts, of which a search reads only those that it needs:

- ``words.00`` to ``words.31``: row numbers of the memories that contain each word. The checksum of
  a word selects the part.
- ``ids.00``, ``ids.01`` and so on: memory ids of 512 rows each. The last part has fewer.
"""

from __future__ import annotations

import itertools
import logging
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.language.search import content_terms
from strands_manga_memory.memory.memory_search import texts_of
from strands_manga_memory.memory.partition import (
    MAX_PREFERENCES,
    PartitionContent,
    UserPartition,
    not_erased_since,
    of_type,
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
from strands_manga_memory.stores.table import Write

logger = logging.getLogger(__name__)

_WORDS = f"{INTERNAL}words#"
_SECONDS = 7 * DAY
"""Seconds until a stored list is made again from all memories."""
_SHARDS, _ROWS = 32, 512
"""Number of parts with the words of a list, and number of ids in each part with memory ids."""
_MAX_BYTES, _MAX_ROWS = 2_800_000, 64 * _ROWS - 1
"""Most bytes and memories of a list, as DynamoDB limits a transaction to 4 MB in 100 items."""
_MAX_FOUND = 64

_Parts = dict[str, Any]
"""Parts of a word list, keyed by name."""
_Read = Callable[[Iterable[str]], _Parts]
"""Function that reads the parts with the given names."""


def find_older(
    partition: UserPartition,
    query: str | None,
    types: Collection[str],
    content: PartitionContent,
) -> PartitionContent:
    """Read at most 64 memories of a user that this process has not read yet.

    With a query, these are memories that contain a word of the query. Without a query, they are the
    most important memories of ``types``.

    They are found by a stored index of the words of all memories (the word list). If the list is
    missing, older than seven days or possibly incomplete, the call reads all memories, stores a new
    list, and also returns all preferences.

    Args:
        partition: Access to the memories of the user.
        query: Text to search for, or None.
        types: Types of the memories that are returned without a query.
        content: Memories that the process has read. They are left out. If they have 40 preferences,
            the most that a session start reads, all preferences are returned, too.
    """
    # other threads change the content meanwhile
    known, since = frozenset(content.records), content.since

    def find(read: _Read) -> list[str]:
        if query is None:
            found = _ids_by_importance(read, types)
        else:
            found = _ids_by_words(read, content_terms(query), _MAX_FOUND + len(known))
        return list(itertools.islice((id_ for id_ in found if id_ not in known), _MAX_FOUND))

    try:
        oldest = max(since, partition.clock() - _SECONDS)
        ids = find(_stored_list(partition, oldest))
    except CorruptRecordError:
        loaded, parts = _make_list(partition)
        chosen = set(find(lambda names: parts))
        loaded.records = {
            id_: record
            for id_, record in loaded.records.items()
            if record.type == MemoryType.PREFERENCE or id_ in chosen
        }
        return loaded
    preferences = sum(id_.startswith(f"{MemoryType.PREFERENCE}#") for id_ in known)
    has_all = preferences < MAX_PREFERENCES
    return partition.load([] if has_all else [of_type(MemoryType.PREFERENCE)], ids)


def delete_word_list(partition: UserPartition) -> None:
    """Delete a user's stored word list, the index for searches in older memories.

    Call this function after a memory was deleted or changed, or was added with an old date. First
    call ``PreferenceLog.notify_agents``, so that a running search does not store an outdated list.
    """
    stored = partition.table.query(
        partition.owner.partition, first=_WORDS, last=f"{_WORDS}~", attributes=[]
    )
    partition.delete_many([str(item["memory_id"]) for item in stored])


def _stored_list(partition: UserPartition, oldest: float) -> _Read:
    """Return a function that reads parts of a user's stored word list.

    The function raises ``CorruptRecordError`` if a part is damaged or missing, or if the list was
    made before ``oldest`` or replaced between two calls.
    """
    times, codec, owner = set[float](), partition.codec or Codec(), partition.owner

    def read(names: Iterable[str]) -> _Parts:
        parts = _Parts()
        keys = {name: (owner.partition, f"{_WORDS}{name}") for name in set(names)}
        items = partition.table.batch_get([*keys.values()]) if keys else {}
        for name, key in keys.items():
            storage_key = storage_key_of(owner, key[1])
            with parsing(storage_key):
                made_at, parts[name] = codec.decode(items[key]["data"], storage_key)
                times.add(made_at)
                if made_at < oldest or len(times) > 1:
                    raise ValueError("the part is old, or belongs to another list")
        return parts

    return read


def _ids_by_words(read: _Read, words: Iterable[str], limit: int) -> Iterable[str]:
    """Return the ids of memories that have at least one of the words, best match first."""
    checksums, scores = sorted(map(_checksum, words)), defaultdict[int, float](float)
    parts = read(map(_words_part_name, checksums))
    for checksum in checksums:
        rows = parts[_words_part_name(checksum)].get(checksum, "").split()
        for row in map(int, rows):
            scores[row] -= 1 / math.log2(1 + len(rows))
    ranked = sorted(scores, key=lambda row: (scores[row], row))[:limit]
    parts = read(map(_ids_part_name, ranked))
    return [str(parts[_ids_part_name(row)][row % _ROWS]) for row in ranked]


def _ids_by_importance(read: _Read, types: Collection[str]) -> Iterable[str]:
    for name in map(_ids_part_name, itertools.count(0, _ROWS)):
        ids = read([name])[name]
        yield from (str(id_) for id_ in ids if str(id_).partition("#")[0] in types)
        if len(ids) < _ROWS:
            return


def _parts_of_list(records: Iterable[MemoryRecord]) -> _Parts:
    """Build an index from words to memories (the word list). Return its parts, keyed by name.

    If there are too many memories, the least important ones are left out.
    """
    rows, ids, size = defaultdict[str, list[str]](list), list[str](), 0
    ranks = defaultdict[tuple[str, float], Iterator[int]](itertools.count)

    def order(record: MemoryRecord) -> tuple[float, int]:
        # Types take turns, so that the first part has ids of each type.
        return -record.importance, next(ranks[record.type, record.importance])

    latest_first = sorted(records, key=lambda each: each.updated_at, reverse=True)
    for record in sorted(latest_first, key=order):
        words = {_checksum(term) for text in texts_of(record) for term in text.terms}
        size += len(record.memory_id) + 6 * len(words)
        if size > _MAX_BYTES or len(ids) == _MAX_ROWS:
            break
        for word in words:
            rows[word].append(str(len(ids)))
        ids.append(record.memory_id)
    parts: _Parts = {_words_part_name(f"{shard:x}"): {} for shard in range(_SHARDS)}
    for word, found in rows.items():
        parts[_words_part_name(word)][word] = " ".join(found)
    for start in range(0, len(ids) + 1, _ROWS):
        parts[_ids_part_name(start)] = ids[start : start + _ROWS]
    return parts


def _make_list(partition: UserPartition) -> tuple[PartitionContent, _Parts]:
    """Read all memories of the user, store a word list of them, and return both."""
    owner, table, codec = partition.owner, partition.table, partition.codec or Codec()
    changes = owner.preference_log_partition, CHANGES
    changed, erased = table.get(*changes), partition.erased()
    made_at = partition.clock()
    loaded = partition.load()
    listed = [each for each in loaded.records.values() if each.type != MemoryType.PREFERENCE]
    parts = _parts_of_list(listed)
    writes = list[Write]()
    for name, part in parts.items():
        data = codec.encode([made_at, part], storage_key_of(owner, f"{_WORDS}{name}"))
        key = {"user_id": owner.partition, "memory_id": f"{_WORDS}{name}"}
        writes.append(Write(item={**key, "expires_at": int(made_at + _SECONDS), "data": data}))
    # Each change of memories writes this record, and an erasure deletes it first.
    check = Write(key=changes, when=unchanged(changed), is_check=True)
    try:
        if changed is not None:
            table.transact([*writes, check, not_erased_since(owner.partition, erased)])
    except StoreError as error:  # the memories were read
        logger.debug(
            "error=<%s> | failed to store the words of a user's memories", type(error).__name__
        )
    return loaded, parts


def _checksum(term: str) -> str:
    return f"{zlib.crc32(term.encode('utf-8', 'surrogatepass')):x}"


def _ids_part_name(row: int) -> str:
    return f"ids.{row // _ROWS:02}"


def _words_part_name(checksum: str) -> str:
    return f"words.{int(checksum, 16) % _SHARDS:02}"
