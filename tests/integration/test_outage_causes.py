"""Statistics, errors and logs have the driver's text of an outage, without ids."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import MangaMemory, SQLiteTable, StoreUnavailableError, Table
from strands_manga_memory.testing import ScriptedModel
from tests import servers

pytestmark = pytest.mark.xdist_group("postgres")


def _agent(memory: MangaMemory) -> Any:
    return memory.agent(ScriptedModel(), user_id="user-4f1c", session_id="session-77ab")


def test_hot_outage_names_the_address(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """``hot_error`` and the warnings say that the connection was refused, and by which server."""
    with servers.valkey() as server:
        memory = MangaMemory.open(hot=server.url, durable=f"sqlite:///{tmp_path / 'm.sqlite3'}")
        agent = _agent(memory)
        agent("one")
        server.kill()
        agent("two")
        servers.wait_until(lambda: memory.stats()["hot_error"] not in ("", "no answer"), "cause")
        error = memory.stats()["hot_error"]
        assert f"127.0.0.1:{server.port}" in error
        assert "refused" in error.lower()
        assert agent._session_manager.stats()["hot_error"] == error
        memory.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any(f"127.0.0.1:{server.port}" in warning for warning in warnings)
    assert not any("user-4f1c" in warning or "session-77ab" in warning for warning in warnings)


@contextmanager
def _locked_file(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[Table, Callable[[], object], Callable[[], object]]]:
    path = request.getfixturevalue("tmp_path") / "m.db"
    lock = sqlite3.connect(path, isolation_level=None)
    table = SQLiteTable(path, deadline=0.5)
    yield table, lambda: lock.execute("BEGIN EXCLUSIVE"), lock.rollback
    lock.close()


@contextmanager
def _reset_dynamodb(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    server, name = request.getfixturevalue("dynamodb_server"), request.getfixturevalue("unique")
    with servers.FaultyProxy(server.host, server.port) as proxy:
        yield (
            f"dynamodb://{name}?region=us-east-1&endpoint=http://127.0.0.1:{proxy.port}",
            proxy.reset,
            proxy.passing,
        )


@contextmanager
def _reset_postgres(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    server = request.getfixturevalue("postgres_server")
    with servers.FaultyProxy(server.host, server.port) as proxy:
        yield server.url.replace(str(server.port), str(proxy.port)), proxy.reset, proxy.passing


@pytest.mark.parametrize(
    ("outage", "cause"),
    [
        (_locked_file, r"database is locked|other threads used the table"),
        (_reset_dynamodb, r"(?i)connection|connect to the endpoint"),
        (_reset_postgres, r"(?i)connection (failed|reset)|closed the connection"),
    ],
    ids=["sqlite", "dynamodb", "postgres"],
)
def test_an_unreachable_durable_tier_is_reported_with_its_cause(
    request: pytest.FixtureRequest, outage: Any, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    """``durable_error``, the error of ``flush`` and the warning hold the text of the driver."""
    with outage(request) as (durable, begin, end):
        memory = MangaMemory.open(durable=durable, durable_deadline=2.0)
        agent = _agent(memory)
        agent("one")
        agent._session_manager.flush()
        begin()
        agent("two")
        with pytest.raises(StoreUnavailableError) as caught:
            agent._session_manager.flush()
        servers.wait_until(
            lambda: memory.stats()["durable_error"] not in ("", "no answer"), "the cause"
        )
        texts = [str(caught.value), memory.stats()["durable_error"]]
        texts += [
            record.getMessage()
            for record in caplog.records
            if "the store fails" in record.getMessage()
        ][-1:]
        end()
        memory.close()
    assert len(texts) == 3
    assert [text for text in texts if not re.search(cause, text)] == []
    assert not any("user-4f1c" in text or "session-77ab" in text for text in texts)
