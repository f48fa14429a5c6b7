"""One contract for every HotStore: in memory, Redis (Valkey), and a Cluster of three nodes."""

import os
import random
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from strands_manga_memory.exceptions import (
    CorruptRecordError,
    StoreRefusedError,
    StoreUnavailableError,
)
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.stores import (
    HotStore,
    HotWrite,
    InMemoryHotStore,
    RedisHotStore,
    open_hot_store,
    redis_hot_store,
)
from strands_manga_memory.testing import FakeClock
from tests import clocks, servers
from tests.faults.forks import result_of_child

CLUSTER = pytest.mark.xdist_group("cluster")


@dataclass
class Setup:
    make: Callable[..., HotStore]
    pass_time: Callable[[float], None]
    """Let the store's own clock go on by some seconds."""

    @property
    def store(self) -> HotStore:
        return self.make()


def _server_time(client: Any, key: str) -> float:
    return (
        int(client.eval("local t = redis.call('TIME') return t[1] * 1000000 + t[2]", 1, key)) / 1e6
    )


@pytest.fixture(params=["memory", "redis", pytest.param("cluster", marks=CLUSTER)])
def setup(request: pytest.FixtureRequest, unique: str) -> Iterator[Setup]:
    if request.param == "memory":
        clock = FakeClock()
        stores: dict[float, InMemoryHotStore] = {}

        def remembered(grace: float = 3600.0) -> InMemoryHotStore:
            return stores.setdefault(grace, InMemoryHotStore(clock=clock, grace=grace))

        yield Setup(remembered, lambda seconds: clock.advance(seconds + 0.002))
        return
    server = request.getfixturevalue(
        "valkey_server" if request.param == "redis" else "valkey_cluster"
    )
    client = server.client()

    def wait(seconds: float) -> None:
        end = _server_time(client, unique) + seconds + 0.002
        servers.wait_until(lambda: _server_time(client, unique) > end, "the passing of time")

    yield Setup(lambda grace=3600.0: RedisHotStore(client, prefix=unique, grace=grace), wait)
    client.close()


@pytest.fixture
def store(setup: Setup) -> HotStore:
    return setup.store


def first(**changes: Any) -> HotWrite:
    write = HotWrite(expect=None, epoch=1, version=1, fields={"head": b"h1"}, ttl=60.0)
    return replace(write, **changes)


def following(before: HotWrite, **changes: Any) -> HotWrite:
    return replace(
        before, expect=(before.epoch, before.version), version=before.version + 1, **changes
    )


# Reading and writing


def read_fields(store: HotStore, name: str, fields: Sequence[str]) -> Mapping[str, bytes]:
    record = store.load(name, fields, touch=False)
    return record.fields if record else {}


def test_nothing_is_there_at_first(store: HotStore) -> None:
    assert store.load("c", ["head"]) is None
    assert read_fields(store, "c", ["head"]) == {}
    assert store.claim("c") is None
    assert not store.drop("c", expect=(1, 1))
    assert list(store.expired()) == []


def test_a_new_conversation_is_read_as_it_was_written(store: HotStore) -> None:
    assert store.write("c", first(fields={"head": b"h1", "state.goals": b"g"}))
    record = store.load("c", ["head", "state.goals", "none"])
    assert (record.epoch, record.version, record.state, record.ttl) == (1, 1, "active", 60.0)
    assert 59.0 < record.expires_in <= 60.0
    assert record.fields == {"head": b"h1", "state.goals": b"g"}
    assert read_fields(store, "c", ["head", "none"]) == {"head": b"h1"}
    assert read_fields(store, "c", []) == {}


def test_load_without_names_returns_all_fields(store: HotStore) -> None:
    fields = {f"turn.{seq}.ab.2": b"%d" % seq for seq in range(1, 12_001)} | {"head": b"h"}
    assert store.write("c", first(fields=fields))
    assert store.load("c", None).fields == fields


def test_bytes_come_back_unharmed(store: HotStore) -> None:
    values = {
        "all": bytes(range(256)),
        "empty": b"",
        "large": os.urandom(3_000_000),
        "crlf": b"\r\n$5\r\n",
    }
    store.write("c", first(fields=values))
    assert read_fields(store, "c", list(values)) == values


def test_a_write_sets_removes_and_keeps(store: HotStore) -> None:
    write = first(fields={"a": b"1", "b": b"2", "c": b"3"})
    store.write("c", write)
    assert store.write("c", following(write, fields={"a": b"9"}, removed=["b", "never"]))
    assert read_fields(store, "c", ["a", "b", "c"]) == {"a": b"9", "c": b"3"}


def test_replace_removes_every_other_field(store: HotStore) -> None:
    write = first(fields={"a": b"1", "b": b"2"})
    store.write("c", write)
    store.write("c", following(write, fields={"d": b"4"}, replace=True))
    assert read_fields(store, "c", ["a", "b", "d"]) == {"d": b"4"}


def test_a_write_without_fields_still_counts(store: HotStore) -> None:
    write = first(fields={})
    assert store.write("c", write)
    assert store.write("c", following(write))
    assert store.load("c", []).version == 2


def test_field_names_cannot_touch_control(store: HotStore) -> None:
    names = ["e", "v", "s", "w", "t", "x", "k", "f.e"]
    store.write("c", first(fields=dict.fromkeys(names, b"mine")))
    record = store.load("c", names)
    assert (record.epoch, record.version, record.state) == (1, 1, "active")
    assert record.fields == dict.fromkeys(names, b"mine")


def test_large_numbers_stay_exact(store: HotStore) -> None:
    epoch, version = 10**14 - 1, 123_456_789_012_345
    write = first(epoch=epoch, version=version, ttl=10_000_000.5)
    store.write("c", write)
    record = store.load("c", [])
    assert (record.epoch, record.version, record.ttl) == (epoch, version, 10_000_000.5)
    assert store.write("c", following(write))


# Compare and write


def test_a_conversation_that_was_expected_is_missing(store: HotStore) -> None:
    assert not store.write("c", first(expect=(1, 1), version=2))
    assert store.load("c", []) is None


@pytest.mark.parametrize("expect", [None, (1, 2), (1, 0), (2, 1), (0, 1)])
def test_a_conflict_writes_nothing(store: HotStore, expect: tuple[int, int] | None) -> None:
    store.write("c", first())
    lost = first(expect=expect, version=3, fields={"head": b"lost"}, replace=True)
    assert not store.write("c", lost)
    record = store.load("c", ["head"])
    assert (record.version, record.fields) == (1, {"head": b"h1"})


def test_the_same_write_again_finds_what_it_wrote(store: HotStore) -> None:
    write = first()
    second = following(write, fields={"head": b"h2"})
    third = following(second, fields={"head": b"h3"})
    for each in (write, write, second, second):
        assert store.write("c", each)
    assert store.write("c", replace(second, fields={"head": b"lost"}))
    assert read_fields(store, "c", ["head"]) == {"head": b"h2"}
    store.write("c", third)
    assert not store.write("c", second)
    assert read_fields(store, "c", ["head"]) == {"head": b"h3"}


def test_a_write_of_another_epoch_was_not_applied(store: HotStore) -> None:
    store.write("c", first())
    assert not store.write("c", first(epoch=2))


def test_of_many_writers_exactly_one_wins_each_version(store: HotStore) -> None:
    store.write("c", first())
    wins: list[str] = []

    def compete(writer: str) -> None:
        for number in range(15):
            while True:
                record = store.load("c", [], touch=False)
                version, field = random.getrandbits(49), f"{writer}.{number}"
                expect = record.epoch, record.version
                status = store.write(
                    "c",
                    first(
                        expect=expect, version=version, fields={field: f"{record.version}".encode()}
                    ),
                )
                if status:
                    wins.append(field)
                    break
                assert not status

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(compete, [f"w{number}" for number in range(1, 7)]))
    assert len(wins) == 90
    assert len(set(read_fields(store, "c", wins).values())) == 90  # no version was followed twice


# Names


def test_names_never_cross(store: HotStore) -> None:
    ids = [
        "a", "a*", "a:b", "a#b", "a?", "[a]", "{x}", "x", "日本", "a/b", "a%3Ab", "a" * 512,
        "a" * 511, "日" * 512,
    ]  # fmt: skip
    names = [ConversationScope("u", id_).storage_session_id for id_ in ids]
    names += [ConversationScope(id_, "s").storage_session_id for id_ in ids]
    names += [ConversationScope("u", "s", tenant=id_).storage_session_id for id_ in ids]
    assert len(set(names)) == len(names)
    for name in names:
        assert store.write(name, first(fields={"head": name.encode()}))
        store.put_value(name, name.encode(), ttl=60.0)
    for name in names[::2]:
        store.put_tombstone(name, ttl=60.0)
    for name in names[1::2]:
        assert read_fields(store, name, ["head"]) == {"head": name.encode()}
        assert store.get_value(name) == name.encode()
    for name in names[::2]:
        assert read_fields(store, name, ["head"]) == {}


# Time to live


def test_only_touching_starts_the_time_to_live_anew(setup: Setup) -> None:
    store = setup.store
    store.write("c", first(ttl=30.0))
    setup.pass_time(0.05)
    inspected = [store.load("c", [], touch=False) for _ in range(2)]
    read_fields(store, "c", ["head"])
    assert all(record is not None and record.expires_in <= 29.95 for record in inspected)
    touched = store.load("c", [])
    assert store.load("c", [], touch=False) is not None
    assert touched.expires_in == pytest.approx(30.0, abs=0.001)
    assert touched.version == 1


def test_a_conversation_that_has_expired_is_still_there_and_not_revived(setup: Setup) -> None:
    store = setup.store
    store.write("c", first(ttl=0.03))
    setup.pass_time(0.03)
    for _ in range(2):
        record = store.load("c", ["head"])
        assert record.expires_in < 0
        assert (record.state, record.fields) == ("active", {"head": b"h1"})
    assert list(store.expired()) == ["c"]


def test_a_write_revives_a_conversation_that_has_expired(setup: Setup) -> None:
    store = setup.store
    write = first(ttl=0.03)
    store.write("c", write)
    setup.pass_time(0.03)
    assert store.write("c", following(write, ttl=60.0))
    assert 59.0 < store.load("c", []).expires_in <= 60.0
    assert list(store.expired()) == []


def test_everything_goes_after_the_grace(setup: Setup) -> None:
    store = setup.make(grace=0.05)
    store.write("c", first(ttl=0.02))
    setup.pass_time(0.08)
    assert store.load("c", ["head"]) is None
    assert read_fields(store, "c", ["head"]) == {}
    assert list(store.expired()) == []
    assert store.write("c", first())


def test_expired_conversations_are_listed_up_to_the_limit(setup: Setup) -> None:
    store = setup.store
    for number in range(20):
        store.write(f"old{number}", first(ttl=0.02))
        store.write(f"new{number}", first(ttl=60.0))
    setup.pass_time(0.02)
    assert sorted(store.expired()) == sorted(f"old{number}" for number in range(20))
    assert len(set(store.expired(limit=7))) == 7
    assert list(store.expired(limit=0)) == []
    store.claim("old0")
    assert "old0" in set(store.expired())
    store.put_tombstone("old1", ttl=60.0)
    assert "old1" not in set(store.expired())


# Claiming


def test_only_an_expired_conversation_can_be_claimed_and_only_once(setup: Setup) -> None:
    store = setup.store
    store.write("c", first(ttl=0.03))
    store.write("alive", first())
    setup.pass_time(0.03)
    assert store.claim("alive") is None
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda _: store.claim("c"), range(6)))
    [record] = [claim for claim in claims if claim is not None]
    assert (record.epoch, record.version, record.state) == (1, 1, "closing")
    assert record.fields == {}
    assert record.ttl == 0.03
    assert record.expires_in < 0
    loaded = store.load("c", ["head"])
    assert (loaded.state, loaded.fields) == ("closing", {"head": b"h1"})


def test_an_old_claim_can_be_taken_over(setup: Setup) -> None:
    store = setup.store
    store.write("c", first(ttl=0.02))
    setup.pass_time(0.02)
    assert store.claim("c", lease=0.3) is not None
    assert store.claim("c", lease=60.0) is None
    setup.pass_time(0.3)
    assert store.claim("c", lease=60.0) is None
    assert store.claim("c", lease=0.3) is not None


@pytest.mark.parametrize(
    ("expect", "epoch", "status"),
    [((1, 1), 2, True), ((1, 1), 1, False), ((1, 2), 2, False), (None, 2, False)],
)
def test_a_closing_conversation_takes_only_the_next_epoch(
    setup: Setup, expect: tuple[int, int] | None, epoch: int, status: bool
) -> None:
    store = setup.store
    store.write("c", first(ttl=0.02))
    setup.pass_time(0.02)
    store.claim("c", lease=0.0)
    assert (
        store.write("c", first(expect=expect, epoch=epoch, version=3, fields={"m1": b"1"}))
        is status
    )
    record = store.load("c", ["head", "m1"])
    assert record.state == ("active" if status else "closing")
    if status:
        assert (record.epoch, record.state, record.fields) == (
            2,
            "active",
            {"head": b"h1", "m1": b"1"},
        )
        assert store.claim("c", lease=0.0) is None
        assert not store.drop("c", expect=(1, 1))
    else:
        assert (record.epoch, record.state, record.fields) == (1, "closing", {"head": b"h1"})


def test_only_a_closing_conversation_is_dropped_if_it_is_as_expected(setup: Setup) -> None:
    store = setup.store
    store.write("c", first(ttl=0.02))
    assert not store.drop("c", expect=(1, 1))
    setup.pass_time(0.02)
    store.claim("c")
    assert not store.drop("c", expect=(1, 2))
    assert not store.drop("c", expect=(2, 1))
    assert store.drop("c", expect=(1, 1))
    assert store.load("c", []) is None
    assert list(store.expired()) == []
    assert not store.drop("c", expect=(1, 1))


# Tombstones


def test_a_tombstone_keeps_only_the_epoch(store: HotStore) -> None:
    store.write("c", first(epoch=4))
    assert store.put_tombstone("c", ttl=60.0) == 5
    record = store.load("c", ["head"])
    assert (record.epoch, record.version, record.state) == (5, 0, "deleted")
    assert (record.ttl, record.expires_in, record.fields) == (0.0, 0.0, {})
    assert read_fields(store, "c", ["head"]) == {}
    assert store.claim("c", lease=0.0) is None
    assert not store.drop("c", expect=(5, 0))


def test_each_tombstone_has_a_higher_epoch(store: HotStore) -> None:
    assert store.put_tombstone("absent", ttl=60.0) == 1
    store.write("c", first(epoch=8))
    assert store.put_tombstone("c", ttl=60.0) == 9
    assert store.put_tombstone("c", ttl=60.0) == 10


@pytest.mark.parametrize(
    ("expect", "epoch", "status"),
    [
        (None, 3, True),
        (None, 2, False),
        (None, 1, False),
        ((1, 1), 1, False),
        ((2, 0), 2, False),
        ((2, 0), 3, False),
    ],
)
def test_a_late_write_cannot_resurrect(
    store: HotStore, expect: tuple[int, int] | None, epoch: int, status: bool
) -> None:
    store.write("c", first(fields={"head": b"old", "m1": b"old"}))
    store.put_tombstone("c", ttl=60.0)
    assert store.write("c", first(expect=expect, epoch=epoch, fields={"head": b"new"})) is status
    if status:
        assert read_fields(store, "c", ["head", "m1"]) == {"head": b"new"}
    else:
        record = store.load("c", ["head", "m1"])
        assert (record.epoch, record.version, record.state, record.fields) == (2, 0, "deleted", {})


def test_a_tombstone_goes_after_its_time(setup: Setup) -> None:
    store = setup.store
    store.put_tombstone("c", ttl=0.03)
    setup.pass_time(0.03)
    assert store.load("c", []) is None


# Process and connections


def test_it_can_be_used_after_close(store: HotStore) -> None:
    store.write("c", first())
    store.close()
    assert read_fields(store, "c", ["head"]) == {"head": b"h1"}


def test_it_can_be_used_after_a_fork(store: HotStore, tmp_path: Path) -> None:
    write = first()
    store.write("c", write)

    def write_in_child() -> list[Any]:
        record = store.load("c", ["head"])
        status = store.write("c", following(write, fields={"head": b"child"}))
        return [record.fields["head"].decode(), status]

    assert result_of_child(write_in_child) == ["h1", True]
    # The parent's connections still work, and see the child only if the store outlives a process.
    expected = {"head": b"child" if store.survives_process else b"h1"}
    assert read_fields(store, "c", ["head"]) == expected
    assert [read_fields(store, "c", ["head"]) for _ in range(20)]


# In memory


def test_memory_is_bounded_by_what_is_alive() -> None:
    clock = FakeClock()
    store = InMemoryHotStore(clock=clock, grace=10.0)
    for number in range(5_000):
        store.write(f"c{number}", first(ttl=5.0))
        store.put_value(f"c{number}", b"o", ttl=5.0)
        clock.advance(1.0)
    assert len(store._conversations) + len(store._values) < 128


# Redis


@pytest.fixture
def client(valkey_server: servers.Valkey) -> Iterator[Any]:
    with valkey_server.client() as client:
        yield client


@pytest.fixture
def proxy(valkey_server: servers.Valkey) -> Iterator[servers.FaultyProxy]:
    with servers.FaultyProxy(valkey_server.host, valkey_server.port) as proxy:
        yield proxy


def through(
    server: servers.Valkey | servers.FaultyProxy,
    prefix: str,
    *,
    deadline: float = 0.05,
    **options: Any,
) -> RedisHotStore:
    settings = {"socket_timeout": 10.0, "retry": Retry(NoBackoff(), 0), **options}
    return RedisHotStore(
        redis.Redis(host=server.host, port=server.port, **settings),
        prefix=prefix,
        deadline=deadline,
    )


def key_of(name: str, prefix: str, kind: str = "c") -> str:
    return f"{prefix}:{{b{zlib.crc32(name.encode()) % 1024:04d}}}:{kind}:{name}"


def test_redis_keys_share_the_slot_of_their_bucket(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique)
    store.write("c", first())
    store.put_value("lease/c", b"o", ttl=60.0)
    bucket = f"{unique}:{{b{zlib.crc32(b'c') % 1024:04d}}}"
    assert client.type(f"{bucket}:c:c") == b"hash"
    assert client.type(key_of("lease/c", unique, "v")) == b"string"
    [(member, score)] = client.zrange(f"{bucket}:x", 0, -1, withscores=True)
    assert member == b"c"
    assert score == int(client.hget(f"{bucket}:c:c", "x")[:-2])  # without its check digits


def test_redis_keeps_a_conversation_for_its_time_and_the_grace(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique)
    store.write("c", first(ttl=60.0))
    assert 3_658_000 < client.pttl(key_of("c", unique)) <= 3_660_000
    client.pexpire(key_of("c", unique), 1_000_000)
    store.load("c", [], touch=False)
    assert client.pttl(key_of("c", unique)) <= 1_000_000
    store.load("c", [])
    assert 3_658_000 < client.pttl(key_of("c", unique)) <= 3_660_000
    store.put_tombstone("c", ttl=60.0)
    assert client.pttl(key_of("c", unique)) <= 60_000


@pytest.mark.parametrize("field", ["e", "v", "s", "t", "x"])
@pytest.mark.parametrize("value", ["", "-1", "1.5", "one", "1e3", "9999999999999999", None])
def test_redis_never_overwrites_control_that_makes_no_sense(
    client: Any, unique: str, field: str, value: str | None
) -> None:
    store = RedisHotStore(client, prefix=unique)
    write = first()
    store.write("c", write)
    key = key_of("c", unique)
    if value is None:
        client.hdel(key, field)
    else:
        client.hset(key, field, value)
    before = client.hgetall(key)
    operations: list[Callable[[], object]] = [
        lambda: store.load("c", ["head"]),
        lambda: store.write("c", following(write)),
        lambda: store.write("c", write),
        lambda: store.claim("c"),
        lambda: store.drop("c", expect=(1, 1)),
    ]
    for operation in operations:
        with pytest.raises(CorruptRecordError, match=f"'{field}'") as caught:
            operation()
        assert caught.value.record == key
    assert client.hgetall(key) == before
    store.put_tombstone("c", ttl=60.0)  # to delete it is the way out
    store.write("c", first(epoch=10))


def test_redis_lists_expired_conversations_next_to_a_damaged_one(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique)
    for number in range(20):
        store.write(f"c{number}", first(ttl=0.001))
    time.sleep(0.01)
    client.hdel(key_of("c7", unique), "s")
    assert set(store.expired()) == {f"c{number}" for number in range(20) if number != 7}


def test_redis_never_overwrites_a_claim_that_makes_no_sense(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique)
    store.write("c", first())
    client.hset(key_of("c", unique), mapping={"s": "closing", "k": "now"})
    with pytest.raises(CorruptRecordError, match="'k'"):
        store.claim("c")
    client.hset(key_of("d", unique), "f:head", "alone")
    with pytest.raises(CorruptRecordError, match="'e'"):
        store.write("d", first())
    assert client.hgetall(key_of("d", unique)) == {b"f:head": b"alone"}


def test_redis_reports_a_key_of_another_type(client: Any, unique: str) -> None:
    client.set(key_of("c", unique), "text")
    store = RedisHotStore(client, prefix=unique)
    with pytest.raises(StoreRefusedError, match="WRONGTYPE") as caught:
        store.write("c", first())
    assert caught.value.record == key_of("c", unique)  # others are well
    assert client.get(key_of("c", unique)) == b"text"


def test_redis_index_forgets_what_is_gone(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique)
    for name in ("a", "b"):
        store.write(name, first(ttl=0.001))
        client.delete(key_of(name, unique))
    servers.wait_until(
        lambda: list(store.expired()) == [] and not client.exists(key_of("", unique, "x")),
        "nothing",
    )

    def entries(name: str) -> int:
        return int(client.zcard(key_of(name, unique).split(":c:")[0] + ":x"))

    servers.wait_until(
        lambda: [*store.expired(), entries("a"), entries("b")] == [0, 0], "cleaning of the index"
    )


def test_redis_index_stays_bounded_where_nobody_sweeps(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique, grace=0.0)
    bucket = zlib.crc32(b"c0") % 1024
    names = [f"c{n}" for n in range(20_000) if zlib.crc32(b"c%d" % n) % 1024 == bucket][:10]
    for name in names[:-1]:
        store.write(name, first(ttl=0.001))
    servers.wait_until(lambda: not client.exists(key_of(names[-2], unique)), "the expiry")
    store.write(names[-1], first())
    assert client.zrange(f"{unique}:{{b{bucket:04d}}}:x", 0, -1) == [names[-1].encode()]


def test_redis_scripts_come_back_after_a_flush(client: Any, unique: str) -> None:
    store = RedisHotStore(client, prefix=unique)
    write = first()
    for step in (
        lambda: store.write("c", write),
        lambda: store.load("c", []),
        lambda: store.put_tombstone("c", ttl=60.0),
    ):
        client.script_flush()
        assert step()
    client.script_flush()
    assert list(store.expired()) == []
    client.script_flush()
    assert store.replace_value("c", b"o", expect=None, ttl=1.0)
    client.script_flush()
    assert store.replace_value("c", b"", expect=b"o", ttl=0.0)


@CLUSTER
def test_cluster_scripts_come_back_after_a_flush(
    valkey_cluster: servers.ValkeyCluster, unique: str
) -> None:
    client: Any = valkey_cluster.client()
    store = RedisHotStore(client, prefix=unique)
    for number in range(12):  # on every node
        client.script_flush()
        assert store.write(f"c{number}", first())
    nodes = {client.get_node_from_key(key_of(f"c{number}", unique)).port for number in range(12)}
    assert len(nodes) == 3
    client.close()


def test_redis_reads_and_writes_in_one_round_trip(proxy: servers.FaultyProxy, unique: str) -> None:
    store = through(proxy, unique)
    write = first(fields={f"m{number}": b"x" * 1000 for number in range(200)})
    store.write("c", write)
    store.load("c", None)
    store.claim("c")
    for step in (
        lambda: store.write("c", following(write, fields={})),
        lambda: store.load("c", ["head"]),
    ):
        proxy.clear_counts()
        assert step()
        assert (proxy.round_trips, proxy.connections) == (1, 0)


def test_redis_finds_its_own_write_when_the_answer_was_lost(
    proxy: servers.FaultyProxy, unique: str
) -> None:
    store = through(proxy, unique, deadline=5.0)
    write = first()
    store.write("c", write)
    proxy.drop_next_answer()
    assert store.write("c", following(write, fields={"head": b"h2"}))
    assert proxy.dropped_answers == 1
    assert read_fields(store, "c", ["head"]) == {"head": b"h2"}


def test_redis_uses_connections_of_its_own_after_a_fork(
    proxy: servers.FaultyProxy, unique: str
) -> None:
    store = through(proxy, unique)
    store.write("c", first())
    proxy.clear_counts()
    assert result_of_child(lambda: read_fields(store, "c", ["head"]) == {"head": b"h1"})
    assert proxy.connections == 1
    read_fields(store, "c", ["head"])
    assert proxy.connections == 1


def test_redis_does_not_repeat_what_must_not_be_repeated(
    proxy: servers.FaultyProxy, valkey_server: servers.Valkey, unique: str
) -> None:
    store = through(proxy, unique)
    store.write("c", first(ttl=0.001))
    servers.wait_until(lambda: list(store.expired()), "expiry")
    store.claim("none")  # the server knows both scripts now
    store.drop("none", expect=(1, 1))
    for step in (lambda: store.claim("c"), lambda: store.drop("c", expect=(1, 1))):
        read_fields(store, "c", ["head"])  # so that the answer lost is not that of a new connection
        proxy.drop_next_answer()
        with pytest.raises(StoreUnavailableError):
            step()
    assert through(valkey_server, unique).load("c", []) is None


@pytest.mark.parametrize("fault", ["blackhole", "reset"])
def test_redis_is_unavailable_within_its_deadline(
    proxy: servers.FaultyProxy, unique: str, fault: str
) -> None:
    write = first()
    through(proxy, unique).write("c", write)
    getattr(proxy, fault)()
    store = through(proxy, unique, socket_timeout=0.3)
    with clocks.Idle() as idle, pytest.raises(StoreUnavailableError) as caught:
        store.load("c", [])
    assert idle.seconds < 1.5
    assert isinstance(caught.value.__cause__, redis.RedisError)
    proxy.passing()
    next_write = following(write)
    servers.wait_until(lambda: answer(lambda: store.write("c", next_write)) is True, "recovery")


def test_redis_waits_for_a_paused_server_no_longer_than_the_socket_timeout(unique: str) -> None:
    with servers.valkey() as server:
        store = through(server, unique, socket_timeout=0.1)
        through(server, unique).write("c", first())
        server.pause()
        with pytest.raises(StoreUnavailableError):
            read_fields(store, "c", ["head"])
        server.resume()
        read = {"head": b"h1"}
        servers.wait_until(
            lambda: answer(lambda: read_fields(store, "c", ["head"])) == read, "recovery"
        )
        server.kill()
        with clocks.Idle() as idle, pytest.raises(StoreUnavailableError):
            read_fields(store, "c", ["head"])
        assert idle.seconds < 0.5
        server.start()
        servers.wait_until(lambda: answer(lambda: store.load("c", [])) is None, "recovery")


def test_redis_out_of_memory_and_read_only_are_unavailable(unique: str) -> None:
    with servers.valkey() as server, server.client() as admin:
        store = through(server, unique)
        store.write("c", first())
        admin.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailableError, match="OutOfMemory"):
            store.write("d", first())
        admin.config_set("maxmemory", 0)
        admin.replicaof("127.0.0.1", servers.free_port())
        with pytest.raises(StoreUnavailableError, match="ReadOnly"):
            store.write("d", first())
        admin.replicaof("NO", "ONE")
        assert store.write("d", first())


def test_redis_credentials_and_permissions(unique: str) -> None:
    with servers.valkey() as server, server.client() as admin:
        admin.execute_command(
            "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection"
        )
        admin.config_set("requirepass", "pw")
        with pytest.raises(StoreRefusedError) as caught:
            through(server, unique).load("c", [])
        assert caught.value.reason == "authentication"
        with pytest.raises(StoreRefusedError) as caught:
            through(server, unique, username="reader", password="wrongsecret").load("c", [])
        assert caught.value.reason == "authentication"
        assert "wrongsecret" not in str(caught.value)
        with pytest.raises(StoreRefusedError, match="NoPermission") as caught:
            through(server, unique, username="reader", password="secret").write("c", first())
        assert caught.value.reason == "permission"
        assert through(server, unique, password="pw").write("c", first())


def test_redis_threads_wait_for_a_connection(valkey_server: servers.Valkey, unique: str) -> None:
    store = open_hot_store(
        f"{valkey_server.url}?prefix={unique}&client_name={unique}&max_connections=2"
    )
    store.write("c", first())
    with ThreadPoolExecutor(8) as pool, valkey_server.client() as admin:
        answers = list(pool.map(lambda _: read_fields(store, "c", ["head"]), range(100)))
        connections = [entry for entry in admin.client_list() if entry["name"] == unique]
    assert answers == [{"head": b"h1"}] * 100
    assert 1 <= len(connections) <= 2
    store.close()


@CLUSTER
def test_a_node_that_hangs_is_unavailable_and_the_others_go_on(
    valkey_cluster: servers.ValkeyCluster, unique: str
) -> None:
    client: Any = valkey_cluster.client(socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
    store = RedisHotStore(client, prefix=unique)
    patient: Any = valkey_cluster.client()
    names = {client.get_node_from_key(key_of(f"c{n}", unique)).port: f"c{n}" for n in range(50)}
    assert len(names) == 3
    for name in names.values():
        RedisHotStore(patient, prefix=unique).write(name, first())
    patient.close()

    def has_head(name: str) -> bool:
        return answer(lambda: read_fields(store, name, ["head"])) == {"head": b"h1"}

    node = valkey_cluster.nodes[1]
    node.pause()
    try:
        with pytest.raises(StoreUnavailableError):
            store.load(names[node.port], ["head"])
        for port in names.keys() - {node.port}:
            servers.wait_until(partial(has_head, names[port]), "answer of another node")
    finally:
        node.resume()
    servers.wait_until(partial(has_head, names[node.port]), "recovery of the node")
    client.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_speaks_both_protocols(
    valkey_server: servers.Valkey, unique: str, protocol: int
) -> None:
    store = through(valkey_server, unique, protocol=protocol)
    write = first(fields={"m1": b"1"})
    store.write("c", write)
    assert store.load("c", None).fields == {"m1": b"1"}
    assert store.claim("c") is None


def test_redis_refuses_a_client_that_decodes(valkey_server: servers.Valkey) -> None:
    with pytest.raises(ValueError, match="pass decode_responses=False"):
        RedisHotStore(valkey_server.client(decode_responses=True))


def test_redis_refuses_an_asynchronous_client() -> None:
    client: Any = redis.asyncio.Redis()
    with pytest.raises(
        ValueError,
        match=r"client must be redis.Redis or RedisCluster, got <redis.asyncio.client.Redis",
    ):
        RedisHotStore(client)


@CLUSTER
def test_redis_refuses_a_cluster_client_that_decodes(valkey_cluster: servers.ValkeyCluster) -> None:
    with pytest.raises(ValueError, match="pass decode_responses=False"):
        RedisHotStore(valkey_cluster.client(decode_responses=True))


def test_redis_repeats_under_one_deadline_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        clock.advance(seconds)

    dead = redis.Redis(host="127.0.0.1", port=servers.free_port(), retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr(redis_hot_store, "time", SimpleNamespace(monotonic=clock, sleep=sleep))
    monkeypatch.setattr(redis_hot_store, "_RANDOM", SimpleNamespace(random=lambda: 0.5))
    store = RedisHotStore(dead, deadline=1.0)
    with pytest.raises(StoreUnavailableError):
        read_fields(store, "c", ["head"])
    assert sleeps == [0.002 * 2**number for number in range(len(sleeps))]
    assert 0.5 < sum(sleeps) < 1.0


def test_sentinel_leads_to_the_primary(unique: str, tmp_path: Path) -> None:
    with servers.valkey() as primary:
        (tmp_path / "sentinel.conf").write_text(
            f"sentinel monitor shop 127.0.0.1 {primary.port} 1\n"
        )
        sentinel = servers.Server(
            lambda port: (
                [
                    *servers.valkey_command(port)[:1],
                    str(tmp_path / "sentinel.conf"),
                    "--sentinel",
                    "--port",
                    str(port),
                    "--bind",
                    "127.0.0.1",
                ]
            )
        )
        try:
            sentinel.start()
            client = Sentinel([("127.0.0.1", sentinel.port)]).master_for(
                "shop", retry=Retry(NoBackoff(), 0)
            )
            store = RedisHotStore(client, prefix=unique)
            servers.wait_until(
                lambda: answer(lambda: store.load("c", [])) != "no answer", "discovery"
            )
            assert store.write("c", first())
            with primary.client() as client:
                assert client.exists(key_of("c", unique))
            store.close()
        finally:
            sentinel.kill()


def answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except StoreUnavailableError:
        return "no answer"


def test_two_hundred_stores_share_their_clients(valkey_server: servers.Valkey, unique: str) -> None:
    client = valkey_server.client()
    before = {*threading.enumerate()}
    stores = [RedisHotStore(client, prefix=unique) for _ in range(200)]
    for number, store in enumerate(stores):
        store.write(f"c{number}", first())
    # A writer of another test may begin or end one meanwhile; a store has no writer.
    assert {t.name for t in {*threading.enumerate()} - before} <= {"strands-manga-memory-writer"}
    assert len(client.connection_pool._available_connections) == 1
    client.close()


assert sys.platform != "win32", "the contract forks"


# Values


def test_a_value_is_kept_for_its_time_and_replaced_by_a_newer_one(setup: Setup) -> None:
    store = setup.store
    assert store.get_value("summary/a") is None
    store.put_value("summary/a", b"\x00one", ttl=60.0)
    assert store.get_value("summary/a") == b"\x00one"
    store.put_value("summary/a", b"two", ttl=60.0)
    assert store.get_value("summary/a") == b"two"
    store.put_value("summary/a", b"three", ttl=0.05)
    store.put_value("summary/b", b"", ttl=60.0)
    assert store.get_value("summary/b") == b""
    setup.pass_time(0.05)
    assert store.get_value("summary/a") is None


def test_a_value_is_replaced_only_while_it_is_the_expected_one(setup: Setup) -> None:
    store = setup.store
    assert not store.replace_value("state/a", b"one", expect=b"other", ttl=60.0)
    assert store.get_value("state/a") is None
    assert store.replace_value("state/a", b"\x00one", expect=None, ttl=60.0)
    assert not store.replace_value("state/a", b"two", expect=None, ttl=60.0)
    assert not store.replace_value("state/a", b"two", expect=b"", ttl=60.0)
    assert store.replace_value("state/a", b"two", expect=b"\x00one", ttl=60.0)
    assert store.replace_value("state/a", b"two", expect=b"\x00one", ttl=0.05)  # sent again
    assert store.get_value("state/a") == b"two"
    setup.pass_time(0.05)
    assert not store.replace_value("state/a", b"three", expect=b"two", ttl=60.0)
    assert store.replace_value("state/a", b"", expect=None, ttl=60.0)
    assert store.replace_value("state/a", b"four", expect=b"", ttl=60.0)
    assert store.get_value("state/a") == b"four"


def test_values_and_conversations_of_one_name_do_not_meet(store: HotStore) -> None:
    store.write("c", first())
    store.put_value("c", b"value", ttl=60.0)
    assert read_fields(store, "c", ["head"]) == {"head": b"h1"}
    store.put_tombstone("c", ttl=60.0)
    assert store.get_value("c") == b"value"
    assert list(store.expired()) == []
