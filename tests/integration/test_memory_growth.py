"""Reads of memories do not grow with their number; access counts are in the records."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory, Table, UserMemoryStore
from strands_manga_memory.memory import RETENTION, MemoryRecord, MemoryType, memory_reader
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.support import DAY, finish_writes, settle, summary_id


class CountingTable:
    """A memory table that counts its requests and the bytes of the records that it returns."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.requests = Counter[str]()
        self.read_bytes = 0
        self.read_memories = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if not callable(found):
            return found

        def call(*args: Any, **settings: Any) -> Any:
            self.requests[name] += 1
            answer = found(*args, **settings)
            if name == "batch_get":
                self.read_memories += sum(not id_.startswith("~") for _, id_ in answer)
            return self._read(answer) if name == "query" else answer

        return call

    def _read(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.read_memories += not item["memory_id"].startswith("~")
            self.read_bytes += len(json.dumps(item, default=repr))
            yield item


def opened(tables: tuple[Table, Table]) -> UserMemoryStore:
    """Open the memories of the user ``u1`` like another process."""
    return UserMemoryStore(tables[1], user_id="u1")


def finalizing(
    tables: tuple[Table, Table], user: str, memories: int, session_id: str = "s1"
) -> tuple[int, int]:
    """Return requests and bytes read of finalizing a session of a user with memories."""
    store = UserMemoryStore(tables[1], user_id=user)
    fact = store.partition.item_of(
        store.remember("The parcel of Uzumaki is kept at the locker GX0.")
    )
    for start in range(1, memories, 25):
        numbers = range(start, min(start + 25, memories))
        tables[1].batch_write(puts=[fact | {"memory_id": f"fact#~{n:032x}"} for n in numbers])
    counted = CountingTable(tables[1])
    with MangaMemory(hot="memory://", durable=tables[0], memories=counted) as memory:
        kwargs = memory.agent_kwargs(user_id=user, session_id=session_id)
        agent = Agent(model=ScriptedModel(lambda _: "Noted."), **kwargs)
        agent("Is volume 3 of Uzumaki in stock?")
        agent._session_manager.close()
        settle(memory)
        store.partition.count_accesses()  # a write for each recalled memory: one here, five there
        counted.requests.clear()
        counted.read_bytes = 0
        memory.finalize(ConversationScope(user, session_id))
        finish_writes(None, counted)
        return counted.requests.total(), counted.read_bytes


def test_finalizing_reads_no_more_with_a_thousand_memories(tables: tuple[Table, Table]) -> None:
    few, many = finalizing(tables, "u1", 1), finalizing(tables, "u2", 1_000)
    assert few[0] == many[0] <= 20, "requests"
    assert max(few[1], many[1]) <= 2_500


def fill(store: UserMemoryStore, count: int) -> None:
    """Give a user facts, summaries, open questions and episodes, each as often as the others."""
    table, now = store.partition.table, time.time()
    fact = store.partition.item_of(
        store.remember("The parcel of Uzumaki is kept at the locker GX0.")
    )
    summary = store.store_session_summary(
        "s",
        "The user asked about Uzumaki and its next volume.",
        topics=["Uzumaki"],
        open_questions=["When does it arrive?"],
    )
    passages = {"passages": ["User: Is Uzumaki in stock?\nAssistant: Yes."] * 10, "ended_at": now}
    episode = summary.changed(type=MemoryType.EPISODE, content="", metadata=passages)
    [question] = store.recall(type="question")
    puts: list[dict[str, Any]] = []
    for number in range(count // 4):
        id_ = summary_id(f"s{number}", now - number)
        name = id_.partition("#")[2]
        puts.append(fact | {"memory_id": f"fact#~{number:032x}"})
        puts += [
            store.partition.item_of(replace(record, memory_id=memory_id))
            for record, memory_id in (
                (summary, id_),
                (question, f"question#{name}"),
                (episode, f"episode#{name.replace('#', '.')}#000"),
            )
        ]
    for start in range(0, len(puts), 25):
        table.batch_write(puts=puts[start : start + 25])
    store.partition.add_to_latest(*(put["memory_id"] for put in puts[::4]))


def session(tables: tuple[Table, Table], user: str, memories: int) -> list[tuple[int, int]]:
    """Return requests and bytes read until the context is read, and of three turns."""
    fill(UserMemoryStore(tables[1], user_id=user), memories)
    counted: Any = CountingTable(tables[1])
    found = []

    def take() -> None:
        finish_writes(None, counted)
        found.append((counted.requests.total(), counted.read_bytes))
        counted.requests.clear()
        counted.read_bytes = 0

    UserMemoryStore(counted, user_id=user).build_agent_context()
    take()
    with MangaMemory(hot="memory://", durable=tables[0], memories=counted) as memory:
        kwargs = memory.agent_kwargs(user_id=user, session_id="s1")
        agent = Agent(model=ScriptedModel(lambda _: "Noted."), **kwargs)
        for _ in range(3):
            agent("Is volume 3 of Uzumaki in stock?")
            take()
    return found


def test_a_session_start_reads_at_most_25_kb_for_every_user(tables: tuple[Table, Table]) -> None:
    few, some, many = (session(tables, f"u{count}", count) for count in (4, 100, 2_000))
    assert (
        [requests for requests, _ in few]
        == [requests for requests, _ in some]
        == [requests for requests, _ in many]
    )
    assert many[0][0] == 3, "requests of a start"
    assert max(read for _, read in (few[0], some[0], many[0])) <= 25_000
    found = max(read for _, read in (few[1], some[1], many[1]))
    assert found <= 75_000, "bytes of the start, and of what searches look in"
    assert {read for t in (few, some, many) for _, read in t[2:]} == {0}, "bytes of later turns"


def test_search_finds_an_old_memory_among_many(tables: tuple[Table, Table]) -> None:
    """Searches look in the recent memories first.

    The words of all others are read once, by one of all processes.
    """
    store = opened(tables)
    fill(store, 1_000)
    put_old(store, "Collects lighthouse postcards.")
    counted: Any = CountingTable(tables[1])
    store = UserMemoryStore(counted, user_id="u1")
    assert store.reader.search("uzumaki")
    assert counted.requests["query"] == 4
    assert contents(store, "Any postcards?") == ["Collects lighthouse postcards."]
    assert counted.requests["query"] == 5, "all memories"
    assert store.reader.search("Any trains?") == []
    assert counted.requests["query"] == 5
    counted.read_bytes = 0
    store = UserMemoryStore(counted, user_id="u1")
    assert contents(store, "Any postcards?") == ["Collects lighthouse postcards."]
    assert store.reader.search("Any trains?") == []
    assert counted.requests["query"] == 9, "a start, and recent memories"
    assert counted.read_bytes <= 150_000


def put_old(store: UserMemoryStore, content: str, **fields: Any) -> MemoryRecord:
    """Store a fact that is not among those which searches read first."""
    first = store.remember(content, **fields)
    record = replace(first, memory_id=f"fact#~!{content}")
    store.partition.table.put(store.partition.item_of(record))
    store.partition.table.delete("u1", first.memory_id)
    return record


def contents(store: UserMemoryStore, query: str) -> list[str]:
    return [hit.content for hit in store.reader.search(query)]


def word_lists(table: Table) -> list[str]:
    return [item["memory_id"] for item in table.query("u1", first="~words#", last="~words#~")]


def test_search_finds_memories_newer_than_the_word_list(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    fill(store, 400)
    assert contents(store, "Any postcards?") == []
    assert word_lists(tables[1])
    store.remember("Collects lighthouse postcards.")
    for number in range(64):
        store.remember(f"Shelf {number} is full.")
    found = contents(opened(tables), "Any postcards?")
    assert found == ["Collects lighthouse postcards."]


def test_search_finds_a_new_preference_among_many(tables: tuple[Table, Table]) -> None:
    """A session start reads 40 preferences, and the list of words has none."""
    store = opened(tables)
    fill(store, 400)
    for number in range(41):
        store.prefer(f"taste {number:02d}", f"value {number}")
    assert contents(store, "Any postcards?") == []
    store.prefer("arts", "lighthouse postcards")
    found = contents(opened(tables), "Any postcards?")
    assert found == ["arts: lighthouse postcards"]


def test_words_of_a_forgotten_memory_are_deleted(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    fill(store, 400)
    old = put_old(store, "Collects lighthouse postcards.")
    assert contents(store, "Any postcards?") == [old.content]
    assert word_lists(tables[1])
    assert store.forget(old.memory_id)
    assert not word_lists(tables[1])
    for reader in (store, opened(tables)):
        assert contents(reader, "Any postcards?") == []


def test_a_repeated_recall_rereads_words_only_after_a_change(tables: tuple[Table, Table]) -> None:
    counted: Any = CountingTable(tables[1])
    store, other = (UserMemoryStore(table, user_id="u1") for table in (counted, tables[1]))
    fill(other, 400)
    old = put_old(other, "Collects lighthouse postcards.")

    def recalled() -> tuple[bool, int]:
        counted.requests.clear()
        found = store.recall(query="postcards", limit=1)
        finish_writes(None, counted)
        return found[0].content == old.content, counted.requests["query"]

    assert recalled()[0]
    assert recalled() == recalled() == (True, 3), "queries, none of them for the list"
    other.forget(old.memory_id)
    put_old(other, old.content)
    assert recalled()[0]
    other.forget(old.memory_id)
    assert not recalled()[0]


def test_no_list_of_words_is_stored_if_memories_change(tables: tuple[Table, Table]) -> None:
    """A memory that is forgotten while the list is made would leave its words in the list."""
    store = opened(tables)
    fill(store, 400)
    old = put_old(store, "Collects lighthouse postcards.")

    class RacingTable(CountingTable):
        def __getattr__(self, name: str) -> Any:
            return self._query if name == "query" else super().__getattr__(name)

        def _query(self, *args: Any, **settings: Any) -> Iterator[Any]:
            items = list(tables[1].query(*args, **settings))
            if any(item["memory_id"] == old.memory_id for item in items):
                store.forget(old.memory_id)
            return iter(items)

    UserMemoryStore(RacingTable(tables[1]), user_id="u1").reader.search("Any postcards?")
    assert not word_lists(tables[1])


@pytest.mark.parametrize("damage", [{"data": b"x"}, {"data": 5}, {}])
def test_a_damaged_word_list_is_remade(tables: tuple[Table, Table], damage: dict[str, Any]) -> None:
    store = opened(tables)
    fill(store, 400)
    old = put_old(store, "Collects lighthouse postcards.")
    assert contents(store, "Any postcards?") == [old.content]
    parts = {i["memory_id"]: i for i in tables[1].query("u1", first="~words#", last="~words#~")}
    for id_ in parts:
        tables[1].put({"user_id": "u1", "memory_id": id_, **damage})
    assert contents(opened(tables), "Any postcards?") == [old.content]
    stored = {
        item["memory_id"]: item["data"]
        for item in tables[1].query("u1", first="~words#", last="~words#~")
    }
    assert stored.keys() == parts.keys()
    assert not {b"x", 5} & set(stored.values())


def test_a_list_of_two_makings_is_made_again(tables: tuple[Table, Table]) -> None:
    """A part of another list would name wrong memories."""
    store = opened(tables)
    fill(store, 400)
    old = put_old(store, "Collects lighthouse postcards.")
    assert contents(store, "Any postcards?") == [old.content]
    ids = tables[1].get("u1", "~words#ids.00")
    assert ids is not None
    for item in list(tables[1].query("u1", first="~words#", last="~words#~")):
        tables[1].delete("u1", item["memory_id"])
    for number in range(65):
        store.remember(f"Shelf {number} is full.")
    assert contents(opened(tables), "Any postcards?") == [old.content]
    tables[1].put(ids)
    assert contents(opened(tables), "Any postcards?") == [old.content]


def test_each_of_many_memories_is_found_both_ways(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    fact = store.remember("The parcel of Uzumaki is kept at the locker GX0.")
    facts = [
        replace(fact, memory_id=f"fact#~{number:032x}", content=f"Owns the stamp qx{number}.")
        for number in range(1_200)
    ]
    tables[1].batch_write(puts=[store.partition.item_of(each) for each in facts])
    store.partition.add_to_latest(*(each.memory_id for each in facts[:64]))
    assert store.reader.search("stamp qx5")
    for number in (3, 511, 512, 1_199):
        found = opened(tables).reader.search(f"Where is qx{number}?")
        assert [hit.content for hit in found] == [f"Owns the stamp qx{number}."]
    assert len({each.memory_id for each in opened(tables).recall(limit=120)}) == 120


def recalled(tables: tuple[Table, Table], user: str, memories: int) -> list[tuple[int, int, int]]:
    """Return requests, bytes and memories read of recalls of a user with listed words."""
    fill(UserMemoryStore(tables[1], user_id=user), memories)
    UserMemoryStore(tables[1], user_id=user).recall()
    counted: Any = CountingTable(tables[1])
    store = UserMemoryStore(counted, user_id=user)
    found = []
    for options in ({}, {"query": "Uzumaki"}, {"type": "fact"}, {"type": "interaction_summary"}):
        counted.requests.clear()
        counted.read_bytes = counted.read_memories = 0
        assert store.recall(limit=1, **options)
        finish_writes(None, counted)
        found.append((counted.requests.total(), counted.read_bytes, counted.read_memories))
    return found


def test_a_recall_reads_little_for_every_user(tables: tuple[Table, Table]) -> None:
    few, many = recalled(tables, "u1", 4), recalled(tables, "u2", 2_000)
    assert sum(requests for requests, *_ in many) <= 1.5 * sum(requests for requests, *_ in few)
    assert max(read for _, read, _ in many) <= 200_000
    assert max(memories for *_, memories in many) <= 16 + 16 + 64, "summaries, facts, listed ones"


def test_a_recall_finds_old_memories_in_three_ways(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    fill(store, 400)
    important = put_old(store, "Is allergic to latex covers.", importance=1.0)
    old = put_old(store, "Collects lighthouse postcards.")
    for reader in (store, opened(tables)):
        assert reader.recall(limit=1)[0].content == important.content
        assert reader.recall(type="fact", limit=1)[0].content == important.content
        assert reader.recall(limit=1, query="Any lighthouse postcards?")[0].content == old.content
        assert [each.content for each in reader.recall(min_importance=1.0)] == [important.content]
        assert (
            len(reader.recall(type="fact", limit=150))
            == len(reader.recall(type="fact", limit=None))
            == 103
        )
        assert reader.recall(type="fact", limit=1)[0].created_at > 0


def test_recent_hit_with_one_word_hides_no_older_answer(tables: tuple[Table, Table]) -> None:
    """The latest 64 facts share a word with the question, and an older fact has both words."""
    store = opened(tables)
    store.remember("The parcel of Berserk is at the locker GX1.")
    for number in range(66):
        store.remember(f"Parcel {number} has arrived.")
    found = opened(tables).reader.search("Where is the parcel of Berserk?")
    assert found[0].content == "The parcel of Berserk is at the locker GX1."


def test_storing_a_summary_costs_the_same_after_many_sessions(tables: tuple[Table, Table]) -> None:
    counted: Any = CountingTable(tables[1])
    store = UserMemoryStore(counted, user_id="u1")
    ids, costs = set(), set()
    for number in range(40):
        counted.requests.clear()
        ids.add(store.store_session_summary(f"s{number}", "The user asked.").memory_id)
        costs.add((counted.requests.total(), counted.read_bytes))
    assert len(ids) == 40
    assert len(costs) == 1
    assert store.store_session_summary("s7", "The user was answered.").memory_id in ids
    assert len(store.recall(type="interaction_summary", limit=None)) == 40


def test_many_feedbacks_leave_the_facts_to_searches(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    fact = store.remember("Collects lighthouse postcards.")
    for number in range(90):
        store.record_feedback(f"The postcards of volume {number} are too small.")
    found = opened(tables).reader.search("lighthouse postcards")
    assert found[0].record.memory_id == fact.memory_id


def test_a_memory_removed_during_a_read_stays_removed(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    gone, kept = store.remember("Likes maps"), store.remember("Likes map tables")

    class RacingTable(CountingTable):
        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            return self._batch_get if name == "batch_get" else found

        def _batch_get(self, keys: Any) -> Any:
            items = tables[1].batch_get(keys)
            if ("u1", gone.memory_id) in items:
                racing.forget(gone.memory_id)
            return items

    racing = UserMemoryStore(RacingTable(tables[1]), user_id="u1")
    assert [hit.record.memory_id for hit in racing.reader.search("maps")] == [kept.memory_id]


def test_open_questions_of_a_week_stay_over_many_sessions(tables: tuple[Table, Table]) -> None:
    store = opened(tables)
    first = store.store_session_summary(
        "asked", "The user asked.", open_questions=["When does volume 9 arrive?"]
    )
    for number in range(20):
        store.store_session_summary(f"s{number}", "The user thanked.")
    found = opened(tables).build_agent_context()
    assert "- When does volume 9 arrive?" in found
    store.store_session_summary("asked", "The user asked, and was answered.")
    assert "volume 9" not in opened(tables).build_agent_context()
    store.store_session_summary(
        "asked", "The user asked.", open_questions=["When does volume 8 arrive?"]
    )
    assert store.forget(first.memory_id)
    assert "volume 8" not in store.build_agent_context()
    assert "volume 8" not in opened(tables).build_agent_context()
    assert "volume 8" not in repr(list(tables[1].query("u1")))


def test_recall_is_counted_in_the_record(
    tables: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another service reads ``access_count`` without the ledger."""
    monkeypatch.setattr(memory_reader, "COUNT_SECONDS", 0.05)
    store = opened(tables)
    fact = store.remember("Likes maps")
    store.recall(query="maps")
    store.recall(query="maps")

    def read() -> Any:
        return tables[1].get("u1", fact.memory_id) or {}

    servers.wait_until(lambda: read()["access_count"] == 2, "the count of the recalls")
    assert read()["version"] == fact.version
    assert not list(tables[1].query("u1", first="~ledger#", last="~ledger#~"))


def summaries(store: UserMemoryStore, numbers: range, *, days_ago: float, topic: str) -> list[str]:
    """Store summaries of sessions that ended some days ago, and return their ids."""
    at = time.time() - days_ago * DAY
    kept = store.store_session_summary("template", "The user asked.", topics=[topic])
    ids = [summary_id(f"{topic}{number}", at + number) for number in numbers]
    expires_at = RETENTION[MemoryType.SUMMARY].expires_at(at)
    fields = {"created_at": at, "updated_at": at, "expires_at": expires_at}
    found = [
        replace(
            kept,
            memory_id=id_,
            metadata={**kept.metadata, "session_id": id_, "ended_at": at},
            **fields,
        )
        for id_ in ids
    ]
    store.partition.table.batch_write(puts=map(store.partition.item_of, found))
    store.forget(kept.memory_id)
    return ids


def test_finalizing_after_many_sessions_reads_little(tables: tuple[Table, Table]) -> None:
    """Only the latest, newly week- or month-old, and oldest sessions are read."""
    store = opened(tables)
    gone = summaries(store, range(20), days_ago=91, topic="Berserk")
    summaries(store, range(100), days_ago=35, topic="Monster")
    summaries(store, range(100), days_ago=9, topic="Pluto")
    summaries(store, range(300), days_ago=1, topic="Uzumaki")
    few, first = finalizing(tables, "u2", 1), finalizing(tables, "u1", 1)
    many = finalizing(tables, "u1", 1, "s2")
    assert first[1] <= 350_000, "bytes"
    assert many[0] <= 1.5 * few[0], "requests after the roll-ups are made"
    assert many[1] <= 200_000, "bytes"
    weeks, months = (
        [each.listed("topics") for each in store.recall(type=f"{each}_rollup")]
        for each in ("weekly", "monthly")
    )
    assert ["Pluto"] in weeks
    assert ["Monster"] in months
    covered = {id_.partition("#")[0]: 0 for id_ in ("weekly_rollup#", "monthly_rollup#")}
    for rollup in [*store.recall(type="weekly_rollup"), *store.recall(type="monthly_rollup")]:
        covered[rollup.type] += len(rollup.covers)
    assert covered == {"weekly_rollup": 200, "monthly_rollup": 100}, "no session is left out"
    patterns = " ".join(each.content for each in store.recall(type="behavioral_pattern"))
    assert "Asked about Uzumaki in" in patterns
    assert tables[1].batch_get([("u1", id_) for id_ in gone]) == {}, "expired summaries are deleted"
