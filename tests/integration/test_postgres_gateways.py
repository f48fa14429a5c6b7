"""PostgreSQL behind transaction poolers, and behind gateways that drop idle connections."""

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from strands_manga_memory import MangaMemory, StoreUnavailableError
from strands_manga_memory.stores import SESSIONS, PostgresTable
from strands_manga_memory.testing import ScriptedModel
from tests import clocks, poolers, servers

pytestmark = pytest.mark.xdist_group("postgres")

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
