"""PostgreSQL as durable tier: data, deadlines, restarts, permissions, poolers, proxies."""

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from strands_manga_memory import ConversationScope, MangaMemory, MangaMemorySettings, open_table
from strands_manga_memory.exceptions import StoreRefusedError, StoreUnavailableError
from strands_manga_memory.stores import ABSENT, SESSIONS, PostgresTable, Write
from strands_manga_memory.testing import ScriptedModel
from tests import clocks, poolers, servers
from tests.support import run
from tests.unit.session.support import same

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def url(postgres_server: servers.Postgres, unique: str) -> str:
    """A database of its own."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {unique}")
    return postgres_server.url.replace("/postgres", f"/{unique}")


def test_agents_go_on_and_are_forgotten(url: str) -> None:
    with MangaMemory.open(durable=url, memories=True, flush_every=1) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u", session_id="s", tenant="t")
        for number in range(4):
            agent(f"I prefer hardcover editions, number {number}.")
        asyncio.run(memory.storage(user_id="u", tenant="t").write("key", b"x" * 1_000_000))
        memory.finalize(ConversationScope("u", "s", tenant="t"))
        assert asyncio.run(memory.user("u", tenant="t").search("hardcover"))
    with MangaMemory.open(durable=url, memories=True) as memory:
        assert asyncio.run(memory.storage(user_id="u", tenant="t").read("key")) == b"x" * 1_000_000
        report = memory.forget_user("u", tenant="t")
        assert report.complete
        assert report.counts["memories"] > 0
        assert memory.agent(ScriptedModel(), user_id="u", session_id="s", tenant="t").messages == []


def test_a_new_process_restores_exactly(url: str) -> None:
    with MangaMemory.open(durable=url) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u", session_id="s", max_tokens=200)
        for number in range(12):
            agent(f"question {number} about volumes and editions")
    with MangaMemory.open(durable=url) as memory:
        again = memory.agent(ScriptedModel(), user_id="u", session_id="s", max_tokens=200)
        assert same(again.messages, agent.messages)


def test_the_command_line_looks_at_it(url: str, capsys: Any) -> None:
    assert run(["init-table", "--durable", url]) == 0
    assert run(["doctor", "--durable", url]) == 0
    assert run(["export", "nobody", "--durable", url, "--hot", "memory://", "--json"]) == 0


@pytest.mark.parametrize("fault", ["blackhole", "reset"])
def test_it_fails_within_its_deadline(
    postgres_server: servers.Postgres, unique: str, fault: str
) -> None:
    with servers.FaultyProxy(servers.HOST, postgres_server.port) as proxy:
        url = postgres_server.url.replace(str(postgres_server.port), str(proxy.port))
        table = PostgresTable(url, replace(SESSIONS, name=unique), deadline=0.5)
        table.create_if_missing()
        item = {"session_id": "p", "sk": "k", "v": 1}
        table.put(item)
        getattr(proxy, fault)()
        with clocks.Idle() as idle, pytest.raises(StoreUnavailableError) as caught:
            table.transact([Write(item=item, when=ABSENT)])
        assert idle.seconds < 5.0
        assert caught.value.__cause__ is not None
        proxy.passing()
        assert table.get("p", "k") == item


def test_a_server_that_was_restarted_is_used_again() -> None:
    with servers.postgres() as server:
        table = PostgresTable(server.url, deadline=20.0)
        table.create_if_missing()
        item = {"session_id": "p", "sk": "k"}
        table.put(item)
        server.kill()
        with pytest.raises(StoreUnavailableError):
            table.get("p", "k")
        server.start()
        assert table.get("p", "k") == item


def test_many_threads_write_transactions_of_the_same_records(url: str) -> None:
    table = PostgresTable(url, deadline=20.0)
    table.create_if_missing()
    keys = ["a", "b", "c"]

    def work(number: int) -> bool:
        order = keys if number % 2 else keys[::-1]
        return table.transact(
            [Write(item={"session_id": "p", "sk": key, "n": number}) for key in order]
        )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(80)))
    assert len({item["n"] for item in table.query("p")}) == 1


def test_what_is_not_allowed_is_named(url: str) -> None:
    open_table(url).create_if_missing()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
    table = open_table(url.replace("tests@", "reader@"))
    with pytest.raises(StoreRefusedError, match="permission denied") as caught:
        table.get("p", "k")
    assert caught.value.reason == "permission"
    with pytest.raises(StoreRefusedError) as caught:
        open_table(f"{url}_not_there").get("p", "k")
    assert caught.value.reason == "database"
    with pytest.raises(StoreRefusedError) as caught:
        open_table(url.replace("tests@", "nobody_here@")).get("p", "k")
    assert caught.value.reason == "permission"


def test_urls_and_passwords() -> None:
    table = open_table("postgresql://me:hush@127.0.0.1:1/db?sslmode=disable")
    assert "hush" not in repr(table)
    with pytest.raises(StoreUnavailableError) as caught:
        table.get("p", "k")
    assert "hush" not in str(caught.value)
    with pytest.raises(ValueError, match="cannot be opened") as refused:
        open_table("postgresql://me:hush@127.0.0.1:1/db?sslmode=disable&nonsense=1")
    assert "hush" not in str(refused.value)
    found = repr(MangaMemorySettings(durable_url="postgresql://me:hush@127.0.0.1:1/db"))
    assert "hush" not in found
    with pytest.raises(ValueError, match="deadline"):
        PostgresTable("postgresql://127.0.0.1/db", deadline=0)


_WITHOUT = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="there is no PgBouncer")


@pytest.fixture(scope="module", params=["relay", pytest.param("pgbouncer", marks=_WITHOUT)])
def pooled_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server of these tests behind a transaction pooler."""
    with servers.postgres() as server, getattr(poolers, request.param)(server) as url:
        yield url


def _agent(memory: MangaMemory, session: str) -> Any:
    return memory.agent(ScriptedModel(), user_id="u", session_id=session)


def test_every_session_behind_a_transaction_pooler_is_restored(pooled_url: str) -> None:
    """Changing server connections neither refuse a restore nor lose a turn."""

    def talk(number: int) -> None:
        for turn in range(3):
            _agent(memory, f"s{number}")(f"turn {turn}")

    with (
        MangaMemory.open(durable=pooled_url, memories=True) as memory,
        ThreadPoolExecutor(8) as threads,
    ):
        list(threads.map(talk, range(8)))
    with MangaMemory.open(durable=pooled_url, memories=True) as memory:
        found = [_agent(memory, f"s{number}").messages for number in range(8)]
    assert [len(messages) for messages in found] == [6] * 8


def test_transactions_behind_a_pooler_are_atomic(pooled_url: str) -> None:
    """Threads that write the same records in one transaction leave the records of one of them."""
    table = PostgresTable(pooled_url, deadline=20.0)
    table.create_if_missing()

    def write(number: int) -> None:
        table.batch_write(puts=[{"session_id": "p", "sk": key, "n": number} for key in "abc"])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(16)))
    assert len({item["n"] for item in table.query("p")}) == 1
    assert len(list(table.query("p"))) == 3
    table.close()


def _filled(table: PostgresTable, connections: int) -> None:
    """Let the pool of a table have so many idle connections."""
    meeting = threading.Barrier(connections)

    def hold(_: int) -> None:
        with table._connected():
            meeting.wait(10)

    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(hold, range(connections)))


def test_restore_after_dropped_idle_connections(
    postgres_server: servers.Postgres, unique: str
) -> None:
    """Each restore takes less than its deadline."""
    with servers.FaultyProxy(servers.HOST, postgres_server.port) as proxy:
        url = postgres_server.url.replace(str(postgres_server.port), str(proxy.port))
        table = PostgresTable(url, replace(SESSIONS, name=unique))
        table.create_if_missing()
        with MangaMemory.open(durable=table) as memory:
            for number in range(12):
                _agent(memory, f"s{number}")("hello")
        _filled(table, 8)
        time.sleep(1.1)  # idle
        proxy.half_open()

        def restore(number: int) -> tuple[int, float]:
            with clocks.Idle() as idle, MangaMemory.open(durable=table) as memory:
                messages = len(_agent(memory, f"s{number}").messages)
            return messages, idle.seconds

        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(restore, range(12)))
        assert [messages for messages, _ in found] == [2] * 12
        assert max(seconds for _, seconds in found) < 2.0
        table.close()


def test_a_server_that_refuses_connections_is_reported_at_once(unique: str) -> None:
    """The error of a refused connection names its cause, and does not wait for the deadline."""
    table = PostgresTable(
        f"postgresql://tests@127.0.0.1:{servers.free_port()}/postgres", deadline=10.0
    )
    with (
        clocks.Idle() as idle,
        pytest.raises(StoreUnavailableError, match=r"(?i)connection refused"),
    ):
        table.get("p", "k")
    assert idle.seconds < 2.0
    table.close()


def test_more_threads_than_connections_wait(postgres_server: servers.Postgres, unique: str) -> None:
    """A table opens a limited number of connections, and serves any number of threads."""
    with servers.FaultyProxy(servers.HOST, postgres_server.port) as proxy:
        url = postgres_server.url.replace(str(postgres_server.port), str(proxy.port))
        table = PostgresTable(url, replace(SESSIONS, name=unique), deadline=20.0)
        table.create_if_missing()
        with ThreadPoolExecutor(40) as threads:
            list(threads.map(lambda n: table.put({"session_id": "p", "sk": f"{n:03}"}), range(200)))
        assert len(list(table.query("p"))) == 200
        assert proxy.connections <= 16
        table.close()
