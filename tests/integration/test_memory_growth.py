"""Reads of a user's memories that do not grow with their number, and access counts in the records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory, Table, UserMemoryStore
from strands_manga_memory.memory import memory_reader
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.testing import ScriptedModel
from tests import servers


class CountingTable:
    """A memory table that counts its requests and the bytes of the records that it returns."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.requests = Counter[str]()
        self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if not callable(found):
            return found

        def call(*args: Any, **settings: Any) -> Any:
            self.requests[name] += 1
            answer = found(*args, **settings)
            return self._read(answer) if name == "query" else answer

        return call

    def _read(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.read_bytes += len(json.dumps(item, default=repr))
            yield item


def finalizing(tables: tuple[Table, Table], user: str, memories: int) -> tuple[int, int]:
    """Return the requests and the bytes read of finalizing a session of a user with some memories."""
    store = UserMemoryStore(tables[1], user_id=user)
    fact = store.partition.item_of(store.remember("The parcel of Uzumaki is kept at the locker GX0."))
    for start in range(1, memories, 25):
        numbers = range(start, min(start + 25, memories))
        tables[1].batch_write(puts=[fact | {"memory_id": f"fact#~{number:032x}"} for number in numbers])
    counted = CountingTable(tables[1])
    with MangaMemory(hot="memory://", durable=tables[0], memories=counted) as memory:  # type: ignore[arg-type]
        kwargs = memory.agent_kwargs(user_id=user, session_id="s1")
        agent = Agent(model=ScriptedModel(lambda _: "Noted."), callback_handler=None, **kwargs)
        agent("Is volume 3 of Uzumaki in stock?")
        agent._session_manager.close()
        for pair in ((memory.hot, None), (None, counted)):
            assert shared_writer(*pair).drain(20)
        store.partition.fold()  # a write for each of the recalled memories: one here, five there
        counted.requests.clear()
        counted.read_bytes = 0
        memory.finalize(ConversationScope(user, "s1"))
        assert shared_writer(None, counted).drain(20)
        return counted.requests.total(), counted.read_bytes


def test_finalizing_reads_as_much_with_a_thousand_memories_as_with_one(tables: tuple[Table, Table]) -> None:
    few, many = finalizing(tables, "u1", 1), finalizing(tables, "u2", 1_000)
    assert few[0] == many[0] <= 20, "requests"
    assert max(few[1], many[1]) <= 2_500


def test_a_recall_is_counted_in_the_record_by_itself(tables: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another service reads ``access_count`` without the ledger."""
    monkeypatch.setattr(memory_reader, "FOLD_SECONDS", 0.05)
    store = UserMemoryStore(tables[1], user_id="u1")
    fact = store.remember("Likes maps")
    store.recall(query="maps")
    store.recall(query="maps")

    def read() -> Any:
        return tables[1].get("u1", fact.memory_id) or {}

    servers.wait_until(lambda: read()["access_count"] == 2, "the count of the recalls")
    assert read()["version"] == fact.version
    assert not list(tables[1].query("u1", first="~ledger#", last="~ledger#~"))
