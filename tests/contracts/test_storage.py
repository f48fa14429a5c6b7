"""``TieredStorage`` keeps the contract of Strands' ``Storage`` and serves its users."""

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.experimental.context_manager import ContextManagerConfig, Offload
from strands.session import SnapshotSessionManager
from strands.storage import Storage
from strands.storage.storage import StorageSearchResult
from strands.types.exceptions import StorageError
from strands.vended_plugins.context_offloader import ContextOffloader

from strands_manga_memory import (
    AesGcmCipher,
    Codec,
    InMemoryHotStore,
    MangaMemory,
    SQLiteTable,
    TieredSessionManager,
)
from strands_manga_memory.stores import DynamoDBTable, RedisHotStore, TieredStorage
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.faulty_stores import FaultyHotStore
from tests.support import stub_tool
from tests.unit.session.support import same, tool_use

LARGE = bytes(range(256)) * 4 + b"\x00"


def noise(size: int) -> bytes:
    """Bytes that do not compress."""
    import random

    return random.Random(size).randbytes(size)


class Stores:
    """The tiers below a storage."""

    def __init__(self, durable: Any, hot: Any) -> None:
        self.durable, self.hot = durable, hot
        durable.create_if_missing()

    def storage(self, user_id: str = "u1", **kwargs: Any) -> TieredStorage:
        return TieredStorage(
            **{"durable": self.durable, "hot": self.hot, "user_id": user_id, **kwargs}
        )


@pytest.fixture(params=["sqlite", "dynamodb+valkey"])
def stores(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Stores:
    if request.param == "sqlite":
        return Stores(SQLiteTable(tmp_path / "s.db"), InMemoryHotStore())
    dynamodb: servers.DynamoDB = request.getfixturevalue("dynamodb_server")
    valkey: servers.Valkey = request.getfixturevalue("valkey_server")
    return Stores(
        DynamoDBTable(dynamodb.client(), name=unique), RedisHotStore(valkey.client(), prefix=unique)
    )


@pytest.fixture
def storage(stores: Stores) -> TieredStorage:
    return stores.storage()


async def test_values_of_any_size_come_back(stores: Stores) -> None:
    values = {f"v/{size}": noise(size) for size in (0, 1, 8_000, 8_300, 350_000, 1_500_000)}
    storage = stores.storage()
    assert isinstance(storage, Storage)
    for key, value in values.items():
        await storage.write(key, value)
    for reader in (storage, stores.storage(hot=None)):
        assert {key: await reader.read(key) for key in await reader.list("")} == values
    assert await storage.read("nothing") is None


async def test_it_overwrites_and_deletes(storage: TieredStorage) -> None:
    for value in (b"first", noise(400_000), noise(20_000), b"", noise(500_000)):
        await storage.write("key", value)
        assert await storage.read("key") == value
    await storage.delete("key")
    await storage.delete("key")
    assert await storage.read("key") is None
    assert await storage.list("") == []
    assert list(storage._table.query(storage._partition)) == [], "parts of earlier values stay"


async def test_keys_are_those_of_strands_own_storages(storage: TieredStorage) -> None:
    keys = ["b/2", "a/1", "a/10", "ん/巻", "x" * 2_000, "x" * 2_000 + "y", "with space", "%2F"]
    for key in keys:
        await storage.write(key, key.encode())
    assert await storage.list("") == sorted(keys)
    assert await storage.list("a/") == ["a/1", "a/10"]
    assert await storage.list("x" * 1_500) == ["x" * 2_000, "x" * 2_000 + "y"]
    assert [await storage.read(key) for key in keys] == [key.encode() for key in keys]
    await storage.write("//foo///bar//", b"data")
    assert await storage.read("/foo/bar/") == b"data"
    for wrong in ("", "/", "../etc", "a/../b", "a\\b", "\ud800"):
        with pytest.raises(StorageError):
            await storage.write(wrong, b"")


async def test_namespaces_and_search(storage: TieredStorage) -> None:
    scoped = storage.namespace("memory").namespace("agent/")
    await scoped.write("notes.md", b"dark mode in settings")
    await storage.write("other/notes.md", b"dark")
    assert await scoped.list("") == ["notes.md"]
    assert await storage.list("memory/") == ["memory/agent/notes.md"]
    assert await storage.read("memory/agent/notes.md") == b"dark mode in settings"
    assert [result.key for result in await scoped.search("dark mode")] == ["notes.md"]
    data = bytearray(b"mutable")
    await storage.write("key", data)
    data[0] = 0
    assert await storage.read("key") == b"mutable"


async def test_a_search_strategy_indexes_each_value_and_searches(stores: Stores) -> None:
    class Words:
        """Find values by one whole word."""

        def __init__(self) -> None:
            self.words: dict[str, list[str]] = {}

        async def index(self, storage: Storage, key: str, data: bytes) -> None:
            if not data:
                raise ValueError("nothing to index")
            self.words[key] = data.decode().split()

        async def search(self, storage: Storage, query: str) -> list[StorageSearchResult]:
            found = [key for key, words in self.words.items() if query in words]
            return [StorageSearchResult(key, score=1.0) for key in found]

    storage = stores.storage(search_strategy=Words())
    await storage.write("/likes.txt", b"dark fantasy")
    assert [result.key for result in await storage.search("fantasy")] == ["likes.txt"]
    assert await storage.search("dar") == []
    with pytest.raises(StorageError, match="'empty' is written, but"):
        await storage.write("empty", b"")
    assert await storage.read("empty") == b""
    with pytest.raises(ValueError, match="search_strategy must have a method"):
        stores.storage(search_strategy="words")


async def test_blocking_methods_keep_to_their_namespace(stores: Stores) -> None:
    storage = stores.storage()
    scoped = storage.namespace("memory")
    small, large = b"small", noise(20_000)
    for key, value in (("a", small), ("b", large), ("a/c", small)):
        await scoped.write(key, value)
        await storage.write(f"other/{key}", value)
    assert scoped.keys() == ["a", "a/c", "b"]
    assert scoped.keys("a/") == ["a/c"]
    assert {key: scoped.value(key) for key in ("a", "b", "a/c")} == {
        "a": small,
        "a/c": small,
        "b": large,
    }
    assert scoped.erase() == 3
    assert storage.keys() == ["other/a", "other/a/c", "other/b"]
    assert await stores.storage().read("other/b") == large
    assert await scoped.read("b") is None


async def test_users_and_tenants_are_apart(stores: Stores) -> None:
    owners: list[dict[str, Any]] = [
        {"user_id": "u"},
        {"user_id": "u", "tenant": "t"},
        {"user_id": "t:u"},
        {"user_id": "v"},
    ]
    for number, owner in enumerate(owners):
        await stores.storage(**owner).write("key", str(number).encode())
    assert [await stores.storage(**owner).read("key") for owner in owners] == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]


async def test_what_is_read_is_never_out_of_date(stores: Stores) -> None:
    old, new = noise(20_000), noise(20_001)
    faulty = FaultyHotStore(stores.hot)
    writer, reader = stores.storage(hot=faulty), stores.storage()
    await writer.write("key", old)
    assert await reader.read("key") == old
    faulty.down = True
    await writer.write("key", new)  # the hot tier still has the old value, and cannot be told
    assert await reader.read("key") == new
    assert await stores.storage(hot=faulty).read("key") == new


async def test_a_large_value_is_read_from_the_hot_tier(stores: Stores) -> None:
    storage, value = stores.storage(), noise(30_000)
    await storage.write("key", value)
    asked: list[Any] = []
    real = stores.durable.batch_get
    stores.durable.batch_get = lambda keys: (
        asked.extend(key for key in keys if key[1].startswith("p/")) or real(keys)
    )
    assert await storage.read("key") == value
    assert asked == []
    assert await stores.storage(hot=InMemoryHotStore()).read("key") == value
    assert len(asked) == 1


async def test_writers_at_the_same_time_leave_one_whole_value(stores: Stores) -> None:
    clock = FakeClock(1.0)  # they all have the same time, and one is behind
    await stores.storage(clock=FakeClock(1_000.0)).write("key", noise(9_000))
    values = [noise(360_000 + number) for number in range(6)]
    await asyncio.gather(*(stores.storage(clock=clock).write("key", value) for value in values))
    assert await stores.storage().read("key") in values
    rows = [row for row in stores.durable.query("storage/u1") if str(row["sk"]).startswith("p/")]
    assert len(rows) == 2


@pytest.mark.parametrize("old", [None, b"old"])
async def test_a_deletion_during_a_write_leaves_a_whole_value(
    stores: Stores, old: bytes | None, monkeypatch: Any
) -> None:
    storage, new, put = stores.storage(), noise(400_000), stores.durable.put
    if old is not None:
        await storage.write("key", old)

    def delete_first(item: Any, **kwargs: Any) -> bool:
        asyncio.run(stores.storage().delete("key"))  # between the parts of the value and its record
        return bool(put(item, **kwargs))

    monkeypatch.setattr(stores.durable, "put", delete_first)
    await storage.write("key", new)
    assert await stores.storage(hot=None).read("key") == new
    await storage.delete("key")
    assert list(stores.durable.query("storage/u1")) == []


async def test_parts_of_an_interrupted_write_go_with_the_next_write_or_a_later_deletion(
    stores: Stores, monkeypatch: Any
) -> None:
    async def interrupted_write() -> None:
        with monkeypatch.context() as interrupted:
            interrupted.setattr(stores.durable, "put", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await stores.storage().write("key", noise(400_000))

    def parts() -> list[Any]:
        return [
            row for row in stores.durable.query("storage/u1") if str(row["sk"]).startswith("p/")
        ]

    await interrupted_write()
    assert len(parts()) == 2
    assert await stores.storage().read("key") is None
    await stores.storage().write("key", b"small")
    assert parts() == []
    await stores.storage().delete("key")
    await interrupted_write()
    await stores.storage(clock=lambda: time.time() + 3_601).delete("key")
    assert list(stores.durable.query("storage/u1")) == []


async def test_damage_and_other_places_are_refused(stores: Stores) -> None:
    storage = stores.storage(hot=None)
    await storage.write("key", b"value")
    await storage.write("large", noise(400_000))
    item = stores.durable.get("storage/u1", "k/key")
    stores.durable.put({**item, "sk": "k/other", "key": "other"})
    with pytest.raises(StorageError, match="checksum"):
        await storage.read("other")
    part = next(
        row for row in stores.durable.query("storage/u1") if str(row["sk"]).startswith("p/")
    )
    stores.durable.delete("storage/u1", part["sk"])
    with pytest.raises(StorageError, match="parts of it are missing"):
        await storage.read("large")


async def test_values_are_encrypted(stores: Stores) -> None:
    secret = b"the secret of the blade " * 2_000
    codec = Codec(cipher=AesGcmCipher({"k1": b"1" * 32}, current="k1"))
    storage = stores.storage(codec=codec)
    await storage.write("key", secret)
    assert await storage.read("key") == secret
    stored = [
        value
        for row in stores.durable.query("storage/u1")
        for value in row.values()
        if isinstance(value, bytes)
    ]
    assert b"secret" not in b"".join(stored)
    with pytest.raises(StorageError):
        await stores.storage(hot=None).read("key")


async def test_a_storage_that_does_not_answer_says_so(tmp_path: Path) -> None:
    storage = TieredStorage(durable=SQLiteTable(tmp_path), user_id="u")
    for work in (
        storage.write("key", b""),
        storage.read("key"),
        storage.list(""),
        storage.delete("key"),
    ):
        with pytest.raises(StorageError):
            await work


# What stands on it


catalogue = stub_tool("catalogue", "one volume after another, " * 2_000)


def answers(messages: Any) -> Any:
    return (
        "done"
        if "toolResult" in messages[-1]["content"][0]
        else [tool_use(f"c{len(messages)}", "catalogue")]
    )


def test_snapshots_the_stash_and_offloaders_outlive_the_process(stores: Stores) -> None:
    def agent() -> Agent:
        cut = Offload.truncate("tool_results", {"preview_tokens": 200}).when(threshold=400)
        return Agent(
            model=ScriptedModel(answers),
            tools=[catalogue],
            storage=stores.storage(),
            session_manager=SnapshotSessionManager(session_id="s"),
            context_manager=ContextManagerConfig(strategies=[cut]),
        )

    live = agent()
    live("list everything")
    assert "[Stashed]" in str(live.messages)
    again = agent()
    assert same(again.messages, live.messages)
    assert again.context_manager.stash_is_durable
    kept = asyncio.run(again.context_manager.stash.retrieve("c1_0"))
    assert "one volume after another" in str(kept)
    offloader = ContextOffloader(storage=stores.storage("u2"))
    offloading = Agent(model=ScriptedModel(answers), tools=[catalogue], plugins=[offloader])
    offloading("list everything")
    assert asyncio.run(stores.storage("u2").list("")) != []


def test_the_stash_under_our_session_manager_outlives_the_process(stores: Stores) -> None:
    def agent() -> Agent:
        cut = Offload.truncate("tool_results", {"preview_tokens": 200}).when(threshold=400)
        config = ContextManagerConfig(strategies=[cut], stash={"storage": stores.storage()})
        manager = TieredSessionManager("s", durable=stores.durable, durable_deadline=10.0)
        return Agent(
            model=ScriptedModel(answers),
            tools=[catalogue],
            session_manager=manager,
            context_manager=config,
        )

    live = agent()
    live("list everything")
    again = agent()
    assert same(again.messages, live.messages)
    assert "one volume after another" in str(
        asyncio.run(again.context_manager.stash.retrieve("c1_0"))
    )


def test_stored_values_are_exported_and_forgotten_with_their_user(tmp_path: Path) -> None:
    codec = Codec(cipher=AesGcmCipher({"k": b"1" * 32}, current="k"))
    url = f"sqlite:///{tmp_path}/s.db"
    with MangaMemory.open(durable=url, codec=codec) as memory:
        storage = memory.storage(user_id="u", tenant="t")
        asyncio.run(storage.write("a/b", LARGE))
        asyncio.run(storage.write("large", noise(400_000)))
        stored = {
            row["key"]: row["value"] for row in memory.export_user("u", tenant="t")["stored_values"]
        }
        assert base64.b64decode(stored["a/b"]["$bytes"]) == LARGE
    with MangaMemory.open(durable=url, memories=False, codec=codec) as memory:
        assert asyncio.run(memory.storage(user_id="u", tenant="t").read("large")) == noise(400_000)
        report = memory.forget_user("u", tenant="t")
        assert report.complete
        assert report.counts["stored_values"] == 2
        assert asyncio.run(memory.storage(user_id="u", tenant="t").list("")) == []
