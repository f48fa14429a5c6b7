"""Searches and recalls of users who have more memories than a session reads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import USER_MEMORY, SQLiteTable, UserMemoryStore
from strands_manga_memory.user_data import forget_user
from tests.support import finish_writes


class Memories:
    """Memory table of one user, with a clock that each new memory moves by a second."""

    def __init__(self, path: Path) -> None:
        self.table = SQLiteTable(path / "memories.sqlite3", schema=USER_MEMORY)
        self.table.create_if_missing()
        self.now = 1_800_000_000.0

    def store(self) -> UserMemoryStore:
        """Return a store of another process."""
        return UserMemoryStore(self.table, user_id="u1", clock=lambda: self.now)

    def remember(self, *texts: str) -> list[str]:
        """Store facts, and return their ids."""
        store, ids = self.store(), []
        for text in texts:
            self.now += 1
            ids.append(store.remember(text).memory_id)
        return ids


@pytest.fixture
def memories(tmp_path: Path) -> Iterator[Memories]:
    found = Memories(tmp_path)
    yield found
    found.table.close()


def contents(store: UserMemoryStore, query: str, limit: int = 5) -> list[str]:
    return [record.content for record in store.recall(query=query, limit=limit)]


def test_recall_compares_all_matching_memories(memories: Memories) -> None:
    """A recent match does not hide older ones."""
    matching = [f"allergy {word}" for word in ("peanuts", "shellfish", "latex")]
    memories.remember(
        *matching, *(f"parcel number {number}" for number in range(200)), "allergy pollen"
    )
    for _ in range(2):  # the second recall reads the stored list of words
        found = sorted(contents(memories.store(), "allergy", 4))
        assert found == sorted([*matching, "allergy pollen"])


def test_search_after_a_recall_finds_an_old_preference(memories: Memories) -> None:
    """There are more preferences than a session start reads."""
    writer = memories.store()
    for number in range(60):
        memories.now += 1
        writer.prefer(f"topic{number:02d}", f"value{number:02d}")
    memories.remember(*(f"parcel number {number}" for number in range(100)))
    for _ in range(2):
        store = memories.store()
        store.recall(query="something else", limit=2)
        found = [record.content for record in store.reader.search("topic03 value03", limit=1)]
        assert found == ["topic03: value03"]


def test_facts_are_found_after_the_latest_are_forgotten(memories: Memories) -> None:
    """The list of the latest facts names deleted ones."""
    ids = memories.remember(*(f"fact {number} about thing{number}" for number in range(100)))
    store = memories.store()
    for id_ in ids[-64:]:
        store.forget(id_)
    assert len(memories.store().recall(limit=5)) == 5
    assert contents(memories.store(), "thing7", 1) == ["fact 7 about thing7"]


@pytest.mark.parametrize("damage", [{"latest": 5}, {"latest": []}])
def test_facts_are_found_without_the_latest(memories: Memories, damage: dict[str, Any]) -> None:
    memories.remember(*(f"volume {number} of Uzumaki" for number in range(3)))
    memories.table.put({**(memories.table.get("u1", "~by_age") or {}), **damage})
    assert (
        len(contents(memories.store(), "Uzumaki"))
        == len(memories.store().reader.search("Uzumaki"))
        == 3
    )
    memories.remember("volume 4 of Uzumaki")
    assert (
        len(contents(memories.store(), "Uzumaki"))
        == len(memories.store().reader.search("Uzumaki"))
        == 4
    )
    assert len(memories.store().recall(type="fact", query="Uzumaki")) == 4


def test_new_words_of_an_old_summary_are_found(memories: Memories) -> None:
    """The summary is replaced after the list of words was stored."""
    store = memories.store()
    for number in range(150):
        memories.now += 60
        store.store_session_summary(f"s{number}", f"The user asked about book{number}.")
    assert contents(memories.store(), "book2", 1) == ["The user asked about book2."]
    memories.now += 60
    memories.store().store_session_summary("s2", "The user cancelled the gazebo delivery.")
    assert contents(memories.store(), "gazebo", 1) == ["The user cancelled the gazebo delivery."]


class PausedSearch:
    """Table whose read of the word list waits until the user's memories are deleted."""

    def __init__(self, table: SQLiteTable) -> None:
        self._table = table
        self.paused, self.deleted, self.searched = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def batch_get(self, keys: Any) -> Any:
        if any(id_.startswith("~words#") for _, id_ in keys) and not self.paused.is_set():
            self.paused.set()
            assert self.deleted.wait(20)
        return self._table.batch_get(keys)

    def batch_write(self, **writes: Any) -> None:
        self._table.batch_write(**writes)
        if any(partition == "u1" for partition, _ in writes.get("deletes", ())):
            self.deleted.set()
            assert self.searched.wait(20)


def test_words_of_an_erased_user_are_not_stored(memories: Memories, tmp_path: Path) -> None:
    """A search that makes the list between two steps of the erasure leaves nothing behind."""
    memories.remember(*(f"parcel number {number}" for number in range(100)))
    table: Any = PausedSearch(memories.table)
    sessions = SQLiteTable(tmp_path / "sessions.sqlite3")
    sessions.create_if_missing()

    def search() -> None:
        UserMemoryStore(table, user_id="u1", clock=lambda: memories.now).recall(
            query="parcel", limit=5
        )
        table.searched.set()

    thread = threading.Thread(target=search)
    thread.start()
    assert table.paused.wait(20)
    report = forget_user(
        "u1", hot=None, durable=sessions, memories=table, clock=lambda: memories.now
    )
    thread.join()
    assert report.complete, report.left
    sessions.close()


def test_searches_share_a_hanging_read(memories: Memories, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search waits for the first read, and queues no other one."""
    memories.remember("volume 3 of Uzumaki")
    reader = memories.store().reader
    answers, reads = threading.Event(), list[float]()
    monkeypatch.setattr("strands_manga_memory.memory.memory_reader._PATIENCE", 0.05)
    partition_type = type(memories.store().partition)
    load_recent = partition_type.load_recent

    def silent(partition: Any, latest: Any) -> Any:
        reads.append(memories.now)
        answers.wait(10)
        return load_recent(partition, latest)

    monkeypatch.setattr(partition_type, "load_recent", silent)
    for _ in range(3):
        reader.search("Uzumaki")
    answers.set()
    assert [hit.content for hit in reader.search("Uzumaki")] == ["volume 3 of Uzumaki"]
    finish_writes(None, memories.table)
    assert len(reads) == 1
