"""UserMemoryStore on a SQLite file and a DynamoDB server, alone and in an agent."""

import asyncio
import math
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.memory import MemoryManager

from strands_manga_memory import (
    SESSIONS,
    USER_MEMORY,
    MangaMemory,
    SQLiteTable,
    Table,
    UserMemoryStore,
)
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.faulty_stores import FaultyTable
from tests.support import DAY, WatchedStore, finish_writes
from tests.unit.session.support import tool_use


@pytest.fixture
def table(tables: tuple[Table, Table]) -> Table:
    return tables[1]


@pytest.fixture
def quick(tmp_path: Path) -> SQLiteTable:
    made = SQLiteTable(tmp_path / "memory.sqlite3", USER_MEMORY)
    made.create_if_missing()
    return made


def settle(table: Table) -> None:
    finish_writes(None, table)


def contents(records: list[Any]) -> list[str]:
    return [record.content for record in records]


# Remember, recall, forget


def test_round_trip(table: Table) -> None:
    store = UserMemoryStore(table, user_id="u1", clock=FakeClock(5_000.0))
    fact = store.remember("Reads on the train", metadata={"source": "chat"})
    store.prefer("Genre", "horror")
    store.record_feedback("The last answer was wrong", rating=1)
    known = {
        record.memory_id: record
        for record in UserMemoryStore(table, user_id="u1", clock=FakeClock(5_000.0)).recall()
    }
    assert sorted(record.type for record in known.values()) == ["fact", "feedback", "preference"]
    assert known[fact.memory_id].metadata == {"source": "chat"}
    assert known[fact.memory_id].created_at == 5_000
    assert store.forget(fact.memory_id)
    assert not store.forget(fact.memory_id)
    assert fact.memory_id not in {record.memory_id for record in store.recall()}


def test_a_change_while_the_memories_are_read_is_in_the_next_context(quick: SQLiteTable) -> None:
    """Another thread sets a preference after the preferences were read, before the read ends."""

    def change(name: str, *_: Any, **asked: Any) -> None:
        if str(asked.get("first", "")).startswith("question") and not setting:
            setting.append(store.prefer("genre", "horror"))

    setting: list[Any] = []
    store = UserMemoryStore(WatchedStore(quick, before=change), user_id="u1")
    store.agent_context()
    assert setting
    assert "genre: horror" in store.agent_context().preferences


def test_one_record_for_each_key_the_last_write_wins(table: Table) -> None:
    threads = 30

    def write(number: int) -> None:
        UserMemoryStore(table, user_id="u1").prefer(
            "genre" if number % 2 else "Genre ", f"value {number}"
        )

    running = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    store = UserMemoryStore(table, user_id="u1")
    store.prefer("GENRE", "the last")
    [known] = store.recall(type="preference")
    assert known.content == "GENRE: the last"


def test_a_value_that_leaves_the_dislikes_does_not_return_with_the_next_value(table: Table) -> None:
    store = UserMemoryStore(table, user_id="u1", clock=FakeClock(5_000.0))
    store.prefer("dislikes", "horror, gore")
    store.prefer("genre", "horror")
    store.prefer("genre", "romance")
    assert sorted(contents(store.recall(type="preference"))) == ["dislikes: gore", "genre: romance"]


def test_filters_never_make_a_result_shorter_than_what_exists(quick: SQLiteTable) -> None:
    clock = FakeClock(5_000.0)
    store = UserMemoryStore(quick, user_id="u1", clock=clock)
    for number in range(120):
        store.remember(f"memory number {number}", importance=0.1 if number % 40 else 0.95)
    assert len(store.recall(min_importance=0.9, limit=10)) == 3
    assert len(store.recall(limit=None)) == 120
    assert len(store.recall(type="fact", min_importance=0.9, query="number", limit=2)) == 2
    assert [record.importance for record in store.recall(limit=4)] == [0.95, 0.95, 0.95, 0.1]


def test_a_memory_that_is_read_by_its_id_says_how_often_it_was_recalled(table: Table) -> None:
    clock = FakeClock(1_000_000.0)
    store = UserMemoryStore(table, user_id="u1", clock=clock)
    fact, other = store.remember("Likes maps"), store.remember("Has a cat")
    for _ in range(3):
        clock.advance(10)
        assert store.recall(query="maps", limit=1)[0].memory_id == fact.memory_id
        finish_writes(None, table)
    store.partition.count_accesses()
    found = store.get(fact.memory_id)
    assert found is not None
    assert (found.access_count, found.accessed_at) == (3, 1_000_030.0)
    assert store.get(other.memory_id).access_count == 0  # type: ignore[union-attr]
    assert store.get("fact#missing") is None


@pytest.mark.parametrize("type_", [None, "fact"])
def test_access_counts_are_shown_by_whatever_filter(table: Table, type_: str | None) -> None:
    clock = FakeClock(1_000_000.0)
    store = UserMemoryStore(table, user_id="u1", clock=clock)
    store.remember("likes horror")
    for used in range(3):
        [record] = store.recall(type=type_)
        assert record.access_count == used
        settle(table)
        store.partition.count_accesses()
        clock.advance(60)
    assert record.accessed_at == 1_000_060.0
    assert [
        each.access_count
        for each in UserMemoryStore(table, user_id="u1", clock=clock).recall(type=type_)
    ] == [3]


def test_ranking_by_similarity_importance_and_use(quick: SQLiteTable) -> None:
    clock = FakeClock(5_000.0)
    store = UserMemoryStore(quick, user_id="u1", clock=clock)
    store.remember("Owns volume 3 of Uzumaki")
    store.remember("Prefers delivery on Saturday", importance=0.7)
    store.remember("伊藤潤二の漫画が大好き")
    assert contents(store.recall(query="which uzumaki volumes?"))[0] == "Owns volume 3 of Uzumaki"
    assert contents(store.recall(query="漫画は何が好き？"))[0] == "伊藤潤二の漫画が大好き"
    assert contents(store.recall())[0] == "Prefers delivery on Saturday"
    for _ in range(30):
        store.recall(query="uzumaki", limit=1)
    settle(quick)
    store.partition.count_accesses()
    clock.advance(40 * DAY)
    assert contents(store.recall())[0] == "Owns volume 3 of Uzumaki"


def test_a_recall_is_one_ledger_entry_and_folding_counts_it_once(table: Table) -> None:
    clock = FakeClock(5_000.0)
    store = UserMemoryStore(table, user_id="u1", clock=clock)
    store.remember("one")
    store.remember("two")
    for _ in range(3):
        store.recall(limit=2)
        settle(table)
    assert sum(str(item["memory_id"]).startswith("~ledger#") for item in table.query("u1")) == 3
    store.recall(limit=None)
    settle(table)
    assert store.partition.count_accesses() == 4
    assert store.partition.count_accesses() == 0
    assert [
        (record.access_count, record.accessed_at)
        for record in store.partition.load().records.values()
    ] == [(4, 5000)] * 2


def test_two_processes_that_count_the_same_recall_count_it_once(quick: SQLiteTable) -> None:
    store = UserMemoryStore(quick, user_id="u1")
    fact = store.remember("one")
    store.partition.record_access([fact.memory_id])

    def count_first(name: str, *_: Any, **__: Any) -> None:
        assert name != "delete" or store.partition.count_accesses() == 1

    racing: Any = WatchedStore(quick, count_first)
    assert UserMemoryStore(racing, user_id="u1").partition.count_accesses() == 0
    assert quick.get("u1", fact.memory_id)["access_count"] == 1  # type: ignore[index]


def test_a_count_does_not_replace_a_record_that_changes_meanwhile(quick: SQLiteTable) -> None:
    store = UserMemoryStore(quick, user_id="u1")
    fact, gone, new = store.remember("one"), store.remember("two"), {"is_new": True}
    store.partition.record_access([fact.memory_id, gone.memory_id])

    changes = [lambda: store.forget(gone.memory_id), partial(store.remember, "one", metadata=new)]

    def change(name: str, *_: Any, **__: Any) -> None:
        if name == "get" and changes:
            changes.pop()()

    racing: Any = WatchedStore(quick, after=change)
    assert UserMemoryStore(racing, user_id="u1").partition.count_accesses() == 1
    stored = store.partition.get(fact.memory_id)
    assert stored is not None
    assert (stored.metadata, stored.access_count) == (new, 1)
    assert store.partition.get(gone.memory_id) is None


def test_a_recall_of_an_episode_writes_nothing(quick: SQLiteTable) -> None:
    """A count would rewrite the texts of the session."""
    store = UserMemoryStore(quick, user_id="u1")
    store.remember("User: Is Uzumaki in stock?", type="episode")
    assert store.recall(type="episode")
    finish_writes(None, quick)
    assert not list(quick.query("u1", first="~ledger#", last="~ledger#~"))


def test_context_of_a_store_without_hot_tier_has_changes_of_other_processes(table: Table) -> None:
    store, other = UserMemoryStore(table, user_id="u1"), UserMemoryStore(table, user_id="u1")
    assert store.build_agent_context() == "No prior interaction history."
    other.prefer("genre", "horror")
    assert "genre: horror" in store.build_agent_context()
    other.forget("preference#genre")
    assert store.build_agent_context() == "No prior interaction history."


def test_context_without_room_does_not_say_that_nothing_is_known(quick: SQLiteTable) -> None:
    user = UserMemoryStore(quick, user_id="u1")
    assert user.build_agent_context(2) == "No prior interaction history."
    user.prefer("genre", "horror")
    assert user.build_agent_context(2) == ""
    assert "horror" in user.build_agent_context(100)


def test_accesses_do_not_change_the_order_of_preferences_in_the_context(quick: SQLiteTable) -> None:
    """The provider's prompt cache serves the context, also to a process for each request."""
    clock = FakeClock(5_000.0)
    user = UserMemoryStore(quick, user_id="u1", clock=clock)
    for key, value in (("genre", "horror"), ("language", "ja"), ("format", "ebook")):
        clock.advance(1)
        user.prefer(key, value)
    context = user.build_agent_context()
    assert [line[2:] for line in context.splitlines()[1:]] == [
        "format: ebook",
        "language: ja",
        "genre: horror",
    ]
    for _ in range(3):
        user.recall(query="horror", limit=1)
    settle(quick)
    user.partition.count_accesses()
    assert user.get("preference#genre").access_count == 3  # type: ignore[union-attr]
    assert UserMemoryStore(quick, user_id="u1", clock=clock).build_agent_context() == context


def test_a_summary_of_a_session_that_was_saved_elsewhere(table: Table) -> None:
    """A later summary replaces the earlier one for the next agent."""
    store = UserMemoryStore(table, user_id="u1")
    first = store.store_session_summary(
        "s1", "The user asked about Uzumaki.", topics=["Uzumaki"], turn_count=2
    )
    second = store.store_session_summary(
        "s1",
        "The user ordered Uzumaki.",
        topics=["Uzumaki"],
        sentiment="positive",
        turn_count=4,
        open_questions=["When?"],
    )
    assert (second.memory_id, second.version) == (first.memory_id, first.version + 1)
    [summary] = store.recall(type="interaction_summary")
    named = ("session_id", "topics", "sentiment", "turn_count", "open_questions")
    assert [summary.metadata[name] for name in named] == [
        "s1",
        ["Uzumaki"],
        "positive",
        4,
        ["When?"],
    ]
    context = UserMemoryStore(table, user_id="u1").build_agent_context()
    assert "The user ordered Uzumaki." in context
    assert "- When?" in context
    assert "asked about" not in context
    assert store.forget(summary.memory_id)
    assert store.recall(type="interaction_summary") == []
    with pytest.raises(ValueError, match="sentiment must be one of"):
        store.store_session_summary("s1", "x", sentiment="glad")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="turn_count must be"):
        store.store_session_summary("s1", "x", turn_count=-1)


def test_an_embedding_function_replaces_words(quick: SQLiteTable) -> None:
    def embed(texts: Any) -> list[list[float]]:
        return [[1.0, 0.0] if "dog" in text or "puppy" in text else [0.0, 1.0] for text in texts]

    store = UserMemoryStore(quick, user_id="u1", embed=embed)
    store.remember("Has a dog")
    store.remember("Has a bicycle")
    assert [hit.content for hit in store.reader.search("puppy")] == ["Has a dog"]


# Hostile content, personal data, isolation, damage


def test_metadata_that_are_too_large_are_refused_with_what_they_belong_to(table: Table) -> None:
    store = UserMemoryStore(table, user_id="u1")
    allowed = {"note": "x" * (16_384 - len('{"note":""}'))}
    for keep in (
        lambda metadata: store.remember("a fact", metadata=metadata),
        lambda m: store.prefer("genre", "horror", metadata=m),
    ):
        with pytest.raises(
            ValueError, match="metadata must have at most 16,384 bytes as JSON, got 16,385"
        ):
            keep({"note": allowed["note"] + "x"})
        assert len(store.recall()) == 0
    assert store.remember("a fact", metadata=allowed).metadata == allowed


def test_a_damaged_newer_or_foreign_record_is_named_and_left_as_it_is(quick: SQLiteTable) -> None:
    store = UserMemoryStore(quick, user_id="u1")
    record = store.remember("fine")
    good: Any = quick.get("u1", record.memory_id)
    for damage in (
        {"schema": 99},
        {"owner": {"user": "other", "tenant": None}},
        {"content": 7},
        {"memory_type": "?"},
    ):
        bad = {**good, **damage}
        quick.put(bad)
        assert store.recall() == [], "it costs itself"
        with pytest.raises(CorruptRecordError):
            store.remember("fine")
        assert quick.get("u1", record.memory_id) == bad


def test_unknown_attributes_are_kept(quick: SQLiteTable) -> None:
    store = UserMemoryStore(quick, user_id="u1")
    record = store.remember("fine")
    quick.put({**quick.get("u1", record.memory_id), "of_tomorrow": [1]})  # type: ignore[dict-item]
    store.remember("fine", importance=0.1)
    assert quick.get("u1", record.memory_id)["of_tomorrow"] == [1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.remember(" "), "content must be a text"),
        (lambda store: store.remember("x", type="wish"), "type must be one of 'preference'"),
        (lambda store: store.remember("x", importance=2), "importance must be from 0 to 1"),
        (lambda store: store.prefer("", "x"), "key must be a text"),
        (lambda store: store.prefer("k" * 201, "x"), "key must have at most 200"),
        (lambda store: store.recall(query=5), "query must be a text or None, got 5"),
        (lambda store: store.retract(3), "message_id must be a text that is not empty, got 3"),
        (lambda store: store.retract("m1", at="today"),
            "at must be a finite positive number of seconds or None, got 'today'"),
        (lambda store: store.recall(limit=0), "limit must be a positive whole number"),
        (lambda store: store.recall(min_importance=-1), "min_importance must be from 0 to 1"),
        (lambda store: store.forget("~erased"), "memory_id must be"),
        (lambda store: store.remember("x", metadata=["y"]), "metadata must be a mapping"),
        (lambda store: store.store_session_summary("s", "x", topics="ab"),
            "topics must be a list of texts"),
        (lambda store: store.store_session_summary("s", "x", open_questions=[None]),
            "open_questions.0. must be a text, got None"),
        (lambda store: store.store_session_summary("s", "x", topics=(each for each in "ab")),
            "topics must be a list of texts"),
        (lambda store: store.record_feedback("x", rating="five"),
            "rating must be a finite number or None, got .five"),
        (lambda store: store.record_feedback("x", rating=math.nan),
            "rating must be a finite number or None, got nan"),
        (lambda store: store.record_feedback("x", metadata=[1]),
            "metadata must be a mapping or None, got .1."),
        (lambda store: store.recall(since=math.nan),
            "since must be a finite number or None, got nan"),
        (lambda store: store.retract(""), "message_id must be a text that is not empty"),
        (lambda store: store.build_agent_context(0), "max_tokens must be a positive whole number"),
        (lambda store: store.agent_context(0), "max_tokens must be a positive whole number"),
    ],
)  # fmt: skip
def test_bad_arguments(quick: SQLiteTable, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(UserMemoryStore(quick, user_id="u1"))


def test_a_table_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must have the schema USER_MEMORY"):
        UserMemoryStore(SQLiteTable(tmp_path / "t", SESSIONS), user_id="u1")


# In a Strands agent


def test_the_memory_manager_searches_injects_and_adds(table: Table) -> None:
    UserMemoryStore(table, user_id="u1").remember("Owns volume 3 of Uzumaki")
    store = UserMemoryStore(table, user_id="u1")
    add = [tool_use("1", "add_memory", entries=["Collects first editions"])]
    model = ScriptedModel([add, "noted", "yes"])
    agent = Agent(model=model, memory_manager=MemoryManager(stores=[store], add_tool_config=True))
    agent("Which volume of Uzumaki is next?")
    assert "Owns volume 3 of Uzumaki" in repr(model.requests[0].messages[-1])
    assert "Owns volume 3" not in repr(agent.messages)
    agent("Do I collect first editions?")
    assert "Collects first editions" in repr(model.requests[-1].messages[-1])
    assert {tool["name"] for tool in model.requests[0].tool_specs or ()} >= {
        "search_memory",
        "add_memory",
    }


def test_repeated_extraction_writes_are_absorbed(table: Table) -> None:
    store = UserMemoryStore(table, user_id="u1")
    for _ in range(3):
        asyncio.run(store.add("I prefer paperbacks.", {"memory_type": None}))
        asyncio.run(store.add("Ordered a box set", {"score": float("nan")}))
    assert sorted(record.type for record in store.recall()) == ["fact", "preference"]


def test_no_durable_read_after_the_session_has_started(quick: SQLiteTable) -> None:
    UserMemoryStore(quick, user_id="u1").remember("Owns volume 3 of Uzumaki")
    faulty: Any = FaultyTable(quick)
    store = UserMemoryStore(faulty, user_id="u1")
    model = ScriptedModel()
    agent = Agent(model=model, memory_manager=MemoryManager(stores=[store]))
    settle(faulty)
    assert faulty.calls == [*["query"] * 3, "batch_get", "query"]
    for _ in range(3):
        agent("Which volume of Uzumaki is next?")
        store.agent_context()
    settle(faulty)
    assert set(faulty.calls[5:]) == {"transact"}  # the ledger, in the background


def test_a_preference_costs_three_requests(quick: SQLiteTable, tmp_path: Path) -> None:
    """Whether it is set or stated."""
    table: Any = FaultyTable(quick)
    UserMemoryStore(table, user_id="u1").prefer("genre", "horror")
    assert len(table.calls) <= 3
    with MangaMemory("memory://", f"sqlite:///{tmp_path}/s.db", memories=table) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        agent("Any lighthouses?")
        settle(table)
        table.calls.clear()
        agent("My favorite author is Junji Ito.")
        finish_writes(memory.hot, None)
        settle(table)
        assert len(table.calls) <= 3


def test_a_table_that_is_down_costs_memories_not_the_start(quick: SQLiteTable) -> None:
    faulty: Any = FaultyTable(quick)
    faulty.down = True
    agent = Agent(
        model=ScriptedModel(["hello"]),
        memory_manager=MemoryManager(stores=[UserMemoryStore(faulty, user_id="u1")]),
    )
    assert str(agent("hi")).strip() == "hello"
