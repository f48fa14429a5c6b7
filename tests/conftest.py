"""Fixtures of all tests: real servers, unique names, no AWS credentials, only this machine."""

import functools
import gc
import importlib
import ipaddress
import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import hypothesis
import pytest
import strands.agent.agent
from strands.handlers.callback_handler import null_callback_handler

from strands_manga_memory import MangaMemory
from strands_manga_memory.stores import USER_MEMORY, DynamoDBTable, SQLiteTable, Table, writer
from tests import servers

# Before any client is made: boto3 must not look for real credentials, and no test may use them.
os.environ.update(
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="test",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_EC2_METADATA_DISABLED="true",
    AWS_CONFIG_FILE="/nonexistent",
    AWS_SHARED_CREDENTIALS_FILE="/nonexistent",
)
for name in (
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
):
    os.environ.pop(name, None)

# Files in memory: SQLite waits for the disk at every commit, a third of the time of the suite.
_MEMORY_FOLDER = "/dev/shm"
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY_FOLDER, os.W_OK)
    and shutil.disk_usage(_MEMORY_FOLDER).free > 2 << 30
):
    os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY_FOLDER

# A busy machine makes any example slow; what an example finds does not depend on how long it took.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# Sessions of boto3 share what they read of its models: reading takes most of the time of a client.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)

# Agents that are given no callback handler print nothing.
strands.agent.agent.PrintingCallbackHandler = lambda: null_callback_handler

# On a busy machine, an answer of a healthy store may take longer than an agent waits for one.
_WAITS = {
    "memory.hot_profile": ("PATIENCE",),
    "memory.memory_reader": ("_PATIENCE", "_START_PATIENCE", "_STATEMENT_PATIENCE"),
    "memory.plugin": ("PATIENCE",),
    "memory.profile_cache": ("PATIENCE",),
    "memory.profile_service": ("PROFILE_DEADLINE",),
    "session.agent_conversation": ("_HOT_SECONDS",),
}
_usual_waits = [
    (module, name, getattr(module, name))
    for path, names in _WAITS.items()
    for module in [importlib.import_module(f"strands_manga_memory.{path}")]
    for name in names
]
for module, name, _ in _usual_waits:
    setattr(module, name, 20.0)

_refused: list[object] = []
_numbers = itertools.count(1)


def _is_here(family: int, address: Any) -> bool:
    if family not in (socket.AF_INET, socket.AF_INET6):
        return True
    host = address[0]
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False


class _NetworkRefusedError(OSError):
    """A test tried to leave this machine."""


def _guarded(original: Any) -> Any:
    def connect(self: socket.socket, address: Any) -> Any:
        if not _is_here(self.family, address):
            _refused.append(address)
            raise _NetworkRefusedError(f"tests may connect only to this machine, not {address!r}")
        return original(self, address)

    return connect


socket.socket.connect = _guarded(socket.socket.connect)
socket.socket.connect_ex = _guarded(socket.socket.connect_ex)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from looking again and again at modules and tests, which stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _no_network() -> Iterator[None]:
    _refused.clear()
    yield
    assert not _refused, f"the test tried to connect to {_refused}"


@pytest.fixture(autouse=True)
def _no_work_left() -> Iterator[None]:
    """Drop unsaved work of a test's closed store, which would be retried during other tests."""
    yield
    for left in writer.writers():
        with left._changed:
            left._timers.clear()


@pytest.fixture
def usual_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents wait for a store as long as outside of tests, for tests of silent stores."""
    for module, name, seconds in _usual_waits:
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def unique() -> str:
    """A name no other test has, nor is there one that begins with it: letters and digits."""
    return f"t{os.getpid()}n{next(_numbers)}e"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MangaMemory]:
    """A memory in this process, on a SQLite file with sessions and user memories."""
    with MangaMemory.open(
        durable=f"sqlite:///{tmp_path}/s.db", memories=True, hot_deadline=20, durable_deadline=20
    ) as opened:
        yield opened


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[servers.Valkey]:
    """A Valkey server for the whole run of this worker.

    To stop or flush one, start your own with ``servers.valkey()``.
    """
    with servers.valkey() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[servers.ValkeyCluster]:
    """A cluster of three Valkey nodes.

    ``xdist_group("cluster")`` on its tests keeps them in the one worker that starts it.
    """
    with servers.valkey_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[servers.DynamoDB]:
    """A DynamoDB server for the whole run of this worker.

    To stop one, start your own with ``servers.dynamodb()``.
    """
    with servers.dynamodb() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Postgres]:
    """A PostgreSQL server.

    ``xdist_group("postgres")`` on its tests keeps them in the one worker that starts it.
    """
    with servers.postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("dynamodb", marks=pytest.mark.long)])
def tables(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str
) -> Iterator[tuple[Table, Table]]:
    """The tables of sessions and user memory, on a SQLite file and a DynamoDB server in turn."""
    made: tuple[Table, Table]
    if request.param == "sqlite":
        made = SQLiteTable(tmp_path / "m.db"), SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    else:
        client = request.getfixturevalue("dynamodb_server").client()
        made = (
            DynamoDBTable(client, name=unique, deadline=10),
            DynamoDBTable(client, USER_MEMORY, name=f"{unique}m", deadline=10),
        )
    for table in made:
        table.create_if_missing()
    yield made
    for table in made:
        table.close()
