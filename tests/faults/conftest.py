"""Stores for the fault campaigns, and processes that can be lost."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from botocore.config import Config
from strands import Agent

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session import TieredSessionManager, session_agent
from strands_manga_memory.stores import (
    HotStore,
    Table,
    dynamodb_requests,
    open_hot_store,
    open_table,
)
from tests import servers
from tests.faults import talk
from tests.faults.talk import Stores
from tests.faulty_stores import FaultyHotStore, FaultyTable


@pytest.fixture(autouse=True)
def _turns_are_saved_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn held up by a busy machine must not be saved in parts while calls are counted."""
    monkeypatch.setattr(session_agent, "_PENDING_SECONDS", 1.0)


PATIENCE = 60.0
"""Seconds for an answer: on a busy machine, the DynamoDB server needs seconds."""


@contextmanager
def patient_clients() -> Iterator[None]:
    """Let the DynamoDB clients of URLs that are opened meanwhile wait patiently for an answer."""

    def patient(**settings: Any) -> Config:
        return Config(**{**settings, "read_timeout": PATIENCE})

    with mock.patch.object(dynamodb_requests, "Config", patient):
        yield


@pytest.fixture(scope="session")
def services(valkey_server: servers.Valkey, dynamodb_server: servers.DynamoDB) -> Stores:
    """Valkey and DynamoDB, shared by the tests of this worker."""
    return _with_table(Stores(valkey_server.url, dynamodb_server.table_url("fault_sessions")))


@pytest.fixture
def sqlite(tmp_path: Path) -> Stores:
    """A SQLite file and no hot tier that survives, as ``MangaMemory.open()`` has it."""
    return _with_table(Stores(None, f"sqlite:///{tmp_path / 'sessions.sqlite3'}"))


@pytest.fixture(params=["services", "sqlite"])
def stores(request: pytest.FixtureRequest) -> Stores:
    """Each backend in turn."""
    found: Stores = request.getfixturevalue(request.param)
    return found


def _with_table(stores: Stores) -> Stores:
    with patient_clients():
        table = open_table(stores.durable)
    table.create_if_missing()
    table.close()
    return stores


@dataclass
class Process:
    """What one process has of a session: a manager with stores of its own, and an agent."""

    manager: TieredSessionManager
    agent: Agent
    hot: HotStore | None
    durable: Table | None

    def lose(self) -> None:
        """Save nothing any more, as if it had been killed."""
        for conversation in self.manager._conversations.values():
            conversation.saver.error = ConflictError("this process is gone")

    def settle(self) -> None:
        """Wait until the work that is due now is done."""
        writer = self.manager._tiers.writer
        servers.wait_until(lambda: not (writer._active or writer._queues), "the end of the work")

    def stats(self) -> Any:
        return self.manager.stats("librarian")

    def log(self) -> list[Any]:
        return list(self.manager.history("librarian"))


NewProcess = Callable[..., Process]


@pytest.fixture
def new_process(unique: str) -> Iterator[NewProcess]:
    """Start a process on the test's session: ``new_process(stores, hot=..., durable=...)``."""
    started: list[Process] = []

    def start(stores: Stores, *, agent: dict[str, Any] | None = None, **settings: Any) -> Process:
        hot = settings.pop("hot", None) or (open_hot_store(stores.hot) if stores.hot else None)
        durable = settings.pop("durable", None) or (
            open_table(stores.durable) if stores.durable else None
        )
        patient = {"hot_deadline": 5.0, "durable_deadline": 10.0}
        manager = TieredSessionManager(unique, hot=hot, durable=durable, **{**patient, **settings})
        process = Process(manager, talk.new_agent(manager, **(agent or {})), hot, durable)
        started.append(process)
        return process

    yield start
    for process in started:
        process.lose()
    for process in started:
        process.settle()
        for store in (process.hot, process.durable):
            if isinstance(store, FaultyHotStore | FaultyTable):
                store.down = False
            if store is not None:
                store.close()


def check_turns(new_process: NewProcess, stores: Stores, *turns: tuple[str, str]) -> None:
    """Each turn is once in the log and in the window, whole, with the hot tier and without."""
    wanted = sorted(mark for tag, kind in turns for mark in talk.wanted_marks(tag, kind))
    for there in (stores, Stores(None, stores.durable)):
        found = new_process(there)
        assert sorted(talk.marks(found.log()).elements()) == wanted
        assert sorted(talk.marks(found.agent.messages).elements()) == wanted
        assert talk.problems(found.agent.messages) == []
        assert talk.split_pairs(found.log()) == []


class Far:
    """Valkey and DynamoDB behind proxies that can misbehave, and both without a proxy."""

    def __init__(
        self, stack: ExitStack, valkey: servers.Valkey, dynamodb: servers.DynamoDB, direct: Stores
    ) -> None:
        self.direct = direct
        self.hot = stack.enter_context(servers.FaultyProxy(valkey.host, valkey.port))
        self.durable = stack.enter_context(servers.FaultyProxy(dynamodb.host, dynamodb.port))
        durable_url = direct.durable.replace(f":{dynamodb.port}", f":{self.durable.port}")
        self.stores = Stores(f"redis://127.0.0.1:{self.hot.port}/0", durable_url)


@pytest.fixture
def far(
    valkey_server: servers.Valkey, dynamodb_server: servers.DynamoDB, services: Stores
) -> Iterator[Far]:
    with ExitStack() as stack:
        yield Far(stack, valkey_server, dynamodb_server, services)


SESSION = "s"
_tables = itertools.count(1)


@dataclass
class FaultyTiers:
    """Valkey server and DynamoDB table of one test, each behind a proxy that can fail."""

    valkey: servers.Valkey
    hot_proxy: servers.FaultyProxy
    durable_proxy: servers.FaultyProxy
    dynamodb: servers.DynamoDB
    table: str
    stack: ExitStack

    @property
    def hot_url(self) -> str:
        return f"redis://127.0.0.1:{self.hot_proxy.port}/0"

    @cached_property
    def admin(self) -> Any:
        """Client of the Valkey server that has all permissions and no proxy."""
        with self.valkey.client() as client:
            client.execute_command("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
        admin = self.stack.enter_context(self.valkey.client(username="admin", password="admin"))
        admin.ping()
        return admin

    def manager(self, **settings: Any) -> TieredSessionManager:
        settings.setdefault("hot", open_hot_store(self.hot_url))
        settings.setdefault("durable", self.durable())
        return TieredSessionManager(SESSION, **settings)

    def durable(self) -> Table:
        endpoint = f"http://127.0.0.1:{self.durable_proxy.port}"
        return self._opened(f"dynamodb://{self.table}?region=us-east-1&endpoint={endpoint}")

    def direct(self) -> Table:
        """Open the durable table without the proxy."""
        return self._opened(self.dynamodb.table_url(self.table))

    def _opened(self, url: str) -> Table:
        table = open_table(url)
        self.stack.callback(table.close)
        return table


@pytest.fixture
def tiers(dynamodb_server: servers.DynamoDB) -> Iterator[FaultyTiers]:
    with ExitStack() as stack:
        valkey = stack.enter_context(servers.valkey())
        hot_proxy = stack.enter_context(servers.FaultyProxy(valkey.host, valkey.port))
        durable_proxy = stack.enter_context(
            servers.FaultyProxy(dynamodb_server.host, dynamodb_server.port)
        )
        tiers = FaultyTiers(
            valkey, hot_proxy, durable_proxy, dynamodb_server, f"faults_{next(_tables)}", stack
        )
        tiers.direct().create_if_missing()
        yield tiers
