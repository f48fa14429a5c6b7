"""A durable store that is restored, removed or changed between turns of real agents."""

import os
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import TtlPolicy
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import SQLiteTable
from strands_manga_memory.testing import FakeClock
from tests import servers
from tests.support import WatchedStore
from tests.unit.session.support import Stores, open_stores, texts


@pytest.fixture(
    params=[
        "sqlite",
        "valkey+sqlite",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("dynamodb", "valkey+dynamodb")),
    ]
)
def stores(request: pytest.FixtureRequest) -> Stores:
    return open_stores(request.param, request)


def saved(manager: TieredSessionManager) -> None:
    def flushed() -> bool:
        with suppress(StoreUnavailableError):
            manager.flush()
            return True
        return False

    servers.wait_until(flushed, "flush")


def test_who_goes_on_after_a_deletion_that_the_table_refused_is_saved(stores: Stores) -> None:
    throttles = threading.Event()

    def refuse(name: str, *_: Any, **__: Any) -> None:
        if throttles.is_set() and name in ("put", "batch_write"):
            raise StoreUnavailableError("ProvisionedThroughputExceededException")

    stores.durable = WatchedStore(stores.durable, refuse)
    live = stores.agent(flush_every=1)
    manager = live._session_manager
    live("one")
    manager.flush()
    throttles.set()
    with pytest.raises(StoreUnavailableError):
        manager.delete_session()
    throttles.clear()
    live("two")
    live("three")
    saved(manager)
    assert texts(stores.only_durable().manager().history())[-4:] == ["two", "ok", "three", "ok"]
    assert manager.stats()["unsaved_messages"] == 0


@pytest.mark.parametrize("kind", ["sqlite", "dynamodb"])
def test_a_head_of_several_parts_that_is_replaced_while_it_is_read_is_read_anew(
    kind: str, request: pytest.FixtureRequest
) -> None:
    stores = open_stores(kind, request)
    live = stores.agent(flush_every=1)
    live.state.set("picture", os.urandom(600_000).hex())
    live("one")
    live._session_manager.flush()

    again = ["more 2", "more 1", "more 0"]

    def save(name: str, keys: Any = (), *_: Any, **__: Any) -> None:
        """Save between the read of the head and that of its further parts."""
        if name == "batch_get" and again and any("HEAD~" in key[1] for key in keys):
            live.state.set("picture", os.urandom(600_000).hex())
            live(again.pop(0))
            live._session_manager.flush()

    replaced: Any = WatchedStore(stores.durable, save)
    found = Stores(None, replaced, stores.session, settings=stores.settings).agent()
    assert not again
    assert found.state.get("picture") == live.state.get("picture")
    found("after")
    assert texts(found.messages)[-2:] == ["after", "ok"]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_value_without_its_parts_is_damaged(kind: str, request: pytest.FixtureRequest) -> None:
    stores = open_stores(kind, request)
    live = stores.agent(flush_every=1)
    live.state.set("picture", os.urandom(600_000).hex())
    live("one")
    live._session_manager.flush()
    rows = stores.durable.query(stores.session, attributes=[])
    parts = [(stores.session, str(row["sk"])) for row in rows if "HEAD~" in str(row["sk"])]
    stores.durable.batch_write(deletes=parts)
    with pytest.raises(Exception, match="parts of it are missing"):
        stores.agent()


def in_use(stores: Stores) -> tuple[Path, Agent]:
    """Return the path of the durable store's file, and an agent with a turn that the file has."""
    assert isinstance(stores.durable, SQLiteTable)
    live = stores.agent(flush_every=1)
    live("one")
    live._session_manager.flush()
    return stores.durable.path, live


@pytest.mark.parametrize("kind", ["sqlite", "valkey+sqlite"])
@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_file_that_is_deleted_or_replaced_in_use_is_noticed_and_gets_what_is_known(
    kind: str, what: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    stores = open_stores(kind, request)
    path, live = in_use(stores)
    manager = live._session_manager
    path.unlink()
    if what == "replaced":
        SQLiteTable(path).create_if_missing()
    for said in ("two", "three", "four"):
        live(said)
    saved(manager)
    assert sum("reason=<file>" in record.getMessage() for record in caplog.records) == 1
    live("five")
    saved(manager)
    assert manager.stats()["durable"] == "up"
    expected = [text for said in ("one", "two", "three", "four", "five") for text in (said, "ok")]
    elsewhere = stores.elsewhere().only_durable()
    assert texts(elsewhere.manager().history()) == expected
    assert texts(elsewhere.agent().messages) == expected


def damage(path: Path) -> None:
    """Overwrite the roots of the sessions table, so that the file is malformed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        roots = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'manga_sessions'"
        ).fetchall()
    with path.open("r+b") as file:
        for (page,) in roots:
            file.seek((page - 1) * 4096)
            file.write(b"\xee" * 4096)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE other (x)")  # tells the connections of others to read anew


@pytest.mark.parametrize("kind", ["sqlite", "valkey+sqlite"])
def test_a_file_that_is_damaged_is_a_tier_that_is_down_until_it_is_restored(
    kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    stores = open_stores(kind, request)
    path, live = in_use(stores)
    manager = live._session_manager
    with (
        closing(sqlite3.connect(path)) as file,
        closing(sqlite3.connect(f"{path}.backup")) as backup,
    ):
        file.backup(backup)
    damage(path)
    for said in ("two", "three", "four"):
        live(said)
    with pytest.raises(StoreUnavailableError):
        manager.flush()
    assert "damaged: " in manager.stats()["durable_error"]
    assert manager.stats()["durable"] == "down"
    assert sum("reason=<damaged>" in record.getMessage() for record in caplog.records) == 1
    with (
        closing(sqlite3.connect(path)) as file,
        closing(sqlite3.connect(f"{path}.backup")) as backup,
    ):
        backup.backup(file)
    saved(manager)
    assert manager.stats()["durable"] == "up"
    expected = [text for said in ("one", "two", "three", "four") for text in (said, "ok")]
    assert texts(stores.elsewhere().only_durable().agent().messages) == expected


@pytest.mark.parametrize("kind", ["sqlite", "dynamodb", "valkey+sqlite"])
def test_a_worker_whose_clock_is_behind_does_not_end_a_session_earlier(
    kind: str, request: pytest.FixtureRequest
) -> None:
    stores = open_stores(kind, request)
    right, behind = FakeClock(2_000_000_000.0), FakeClock(2_000_000_000.0 - 30 * 3600)
    ttl = TtlPolicy()
    assert ttl.session <= 30 * 3600
    one = stores.agent(flush_every=1, clock=right, ttl=ttl)
    one("said at the right time")
    one._session_manager.close()
    other = stores.elsewhere().agent(flush_every=1, clock=behind, ttl=ttl)
    other("said by who is behind")
    other._session_manager.close()
    right.advance(60)
    stores.lose_hot()
    found = stores.elsewhere().agent(clock=right, ttl=ttl)
    assert texts(found.messages) == ["said at the right time", "ok", "said by who is behind", "ok"]


def test_a_late_table_holds_up_no_turn_with_a_hot_tier(request: pytest.FixtureRequest) -> None:
    """While the gate is shut no flush is answered, and every turn ends."""
    stores = open_stores("valkey+sqlite", request)
    gate = threading.Event()
    gate.set()

    stores.durable = WatchedStore(
        stores.durable, lambda name, *_, **__: name != "put" or gate.wait(60)
    )
    lives = [stores.agent(session=f"{stores.session}-{n}", flush_every=1) for n in range(20)]
    for live in lives:
        live("begun")
        live._session_manager.flush()
    gate.clear()
    try:
        for said in ("one", "two", "three"):
            for live in lives:
                live(said)
        assert [live._session_manager.stats()["unsaved_messages"] for live in lives] == [0] * 20
    finally:
        gate.set()
    for live in lives:
        live._session_manager.flush()
