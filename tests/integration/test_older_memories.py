"""Searches and recalls of users who have more memories than a session reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_manga_memory import SQLiteTable, UserMemoryStore
from strands_manga_memory.stores.table import USER_MEMORY


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
    memories.remember(*matching, *(f"parcel number {number}" for number in range(200)), "allergy pollen")
    for _ in range(2):  # the second recall reads the stored list of words
        assert sorted(contents(memories.store(), "allergy", 4)) == sorted([*matching, "allergy pollen"])


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
        assert [record.content for record in store.found("topic03 value03", limit=1)] == ["topic03: value03"]


def test_facts_are_found_after_the_latest_are_forgotten(memories: Memories) -> None:
    """The list of the latest facts names deleted ones."""
    ids = memories.remember(*(f"fact {number} about thing{number}" for number in range(100)))
    store = memories.store()
    for id_ in ids[-64:]:
        store.forget(id_)
    assert len(memories.store().recall(limit=5)) == 5
    assert contents(memories.store(), "thing7", 1) == ["fact 7 about thing7"]


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
