"""A worker with an agent for each message hardly reads the memory table."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import (
    USER_MEMORY,
    AesGcmCipher,
    Codec,
    DynamoDBTable,
    MangaMemory,
    RedisHotStore,
    SQLiteTable,
    UserMemoryStore,
)
from strands_manga_memory.stores import Item
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.faulty_stores import FaultyHotStore
from tests.support import settle

NAME, MEMORIES = "profile/u1/cache", "memories"


class Reads:
    """A table that counts the queries of whole partitions."""

    def __init__(self, table: DynamoDBTable, sessions: SQLiteTable) -> None:
        self._table = table
        self.sessions = sessions
        self.whole = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def query(self, partition: str, **asked: Any) -> Iterator[Item]:
        self.whole += partition == "u1" and asked.get("first") is None and asked.get("last") is None
        return self._table.query(partition, **asked)


@pytest.fixture
def table(dynamodb_server: servers.DynamoDB, unique: str, tmp_path: Path) -> Reads:
    sessions = SQLiteTable(tmp_path / "sessions.sqlite3")
    sessions.create_if_missing()
    made = DynamoDBTable(dynamodb_server.client(), USER_MEMORY, name=f"{unique}m", deadline=10)
    made.create_if_missing()
    return Reads(made, sessions)


@pytest.fixture
def hot(valkey_server: servers.Valkey, unique: str) -> Iterator[RedisHotStore]:
    with valkey_server.client() as client:
        yield RedisHotStore(client, prefix=unique, deadline=2)


Worker = Callable[..., MangaMemory]


@pytest.fixture
def worker(hot: RedisHotStore, table: Reads) -> Iterator[Worker]:
    made: list[MangaMemory] = []

    def opened(**settings: Any) -> MangaMemory:
        made.append(MangaMemory(hot=hot, durable=table.sessions, memories=table, **settings))
        return made[-1]

    yield opened
    for memory in made:
        memory.close()


def asked(memory: MangaMemory, text: str) -> str:
    """Answer one message as a new worker does; return what the model was sent."""
    model = ScriptedModel()
    agent = memory.agent(model, user_id="u1", session_id="s1")
    agent(text)
    settle(memory)
    return str(model.requests[-1].messages[-1])


def test_ten_messages_read_the_memories_only_twice(worker: Worker, table: Reads) -> None:
    memory = worker()
    for number in range(40):
        memory.user("u1").remember(
            f"The parcel of Uzumaki number {number} is kept at the locker GX{number}."
        )
    told = [asked(memory, "Where is the parcel of Uzumaki number 7 kept?") for _ in range(10)]
    assert all("GX7" in each for each in told)
    assert table.whole <= 2


def test_changes_between_two_messages_are_known_to_the_next(worker: Worker) -> None:
    memory = worker()
    old = memory.user("u1").remember("The parcel is at the locker GX1.")
    for _ in range(3):
        assert "GX1" in asked(memory, "Where is the parcel?")
    memory.user("u1").forget(old.memory_id)
    memory.user("u1").remember("The parcel is at the locker GX2.")
    told = asked(memory, "Where is the parcel?")
    assert "GX2" in told
    assert "GX1" not in told
    asked(memory, "I love horror manga.")
    asked(memory, "I don't like horror any more, I prefer romance.")
    told = asked(memory, "Do I like horror?")
    assert "genre: horror" not in told
    assert "romance" in told


def test_copy_dropped_during_a_read_is_not_kept(
    hot: RedisHotStore, table: Reads, worker: Worker
) -> None:
    memory = worker()
    asked(memory, "hello")
    store = UserMemoryStore(table, user_id="u1", hot=hot)
    copy: Any = store.hot
    _, seen = copy.load_memories()
    assert seen is not None
    loaded = store.partition.load()
    store.remember("The parcel is at the locker GX3.")
    assert not copy.store_memories(loaded, seen)
    assert "GX3" in asked(memory, "Where is the parcel?")


def test_a_copy_is_sealed_and_gone_with_its_user(hot: RedisHotStore, worker: Worker) -> None:
    memory = worker(codec=Codec(cipher=AesGcmCipher({"k": bytes(32)}, current="k")))
    memory.user("u1").remember("The parcel is at the locker GX4.")
    for _ in range(3):
        asked(memory, "Where is the parcel?")
    record = hot.load(NAME, [MEMORIES], touch=False)
    assert record.fields[MEMORIES]
    assert b"GX4" not in record.fields[MEMORIES]
    assert memory.forget_user("u1").complete
    left = hot.load(NAME, [MEMORIES], touch=False)
    assert left is None or MEMORIES not in left.fields


def test_a_damaged_copy_counts_as_none(hot: RedisHotStore, table: Reads, worker: Worker) -> None:
    memory = worker()
    memory.user("u1").remember("The parcel is at the locker GX5.")
    asked(memory, "hello")
    codec = Codec(cipher=AesGcmCipher({"k": bytes(32)}, current="k"))
    copy: Any = UserMemoryStore(table, user_id="u1", hot=hot, codec=codec).hot
    _, seen = copy.load_memories()
    assert seen is not None
    assert copy.store_memories(UserMemoryStore(table, user_id="u1").partition.load(), seen)
    assert "GX5" in asked(memory, "Where is the parcel?")


def test_without_the_hot_tier_the_table_is_read(hot: RedisHotStore, table: Reads) -> None:
    down: Any = FaultyHotStore(hot)
    down.down = True
    store = UserMemoryStore(table, user_id="u1", hot=down)
    store.remember("The parcel is at the locker GX6.")
    found = [hit.content for hit in store.reader.search("the parcel")]
    assert found == ["The parcel is at the locker GX6."]
