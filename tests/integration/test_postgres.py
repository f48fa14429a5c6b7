"""PostgreSQL as durable tier: data, deadlines, restarts, permissions, hidden passwords."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from strands_manga_memory import ConversationScope, MangaMemory, MangaMemorySettings, open_table
from strands_manga_memory.exceptions import StoreRefusedError, StoreUnavailableError
from strands_manga_memory.stores import ABSENT, SESSIONS, PostgresTable, Write
from strands_manga_memory.testing import ScriptedModel
from tests import clocks, servers
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
