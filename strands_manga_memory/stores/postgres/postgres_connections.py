"""Connections: those of a PostgreSQL table, each in use by one thread, and none carried over a fork."""

from __future__ import annotations

import math
import selectors
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from strands_manga_memory.forks import at_fork

_MOST_IDLE = 8


class Connection(psycopg.Connection[Any]):
    """A connection that waits for an answer no longer than its deadline."""

    until: float = math.inf

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Go on with ``gen`` whenever the server is ready."""
        if timeout is None and self.until < math.inf:
            timeout = max(0.0, self.until - time.monotonic())
        try:
            return super().wait(gen, interval, timeout)
        except Exception as error:
            if time.monotonic() >= self.until:
                raise psycopg.OperationalError("the server does not answer within the deadline") from error
            raise


class Connections:
    """Opens connections as they are needed, and keeps up to 8 that are idle; thread-safe.

    Args:
        conninfo: A URL or connection string of libpq.
        deadline: Seconds that whoever takes one may use it; for a new connection at least 2.
    """

    def __init__(self, conninfo: str, deadline: float) -> None:
        self._conninfo = conninfo
        self._deadline = deadline
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        _all.add(self)

    def __del__(self) -> None:
        for connection in self._idle:
            connection.close()

    @contextmanager
    def one(self) -> Iterator[Connection]:
        """Take a connection; one that is left in the middle of something is closed."""
        connection = self._taken()
        connection.until = time.monotonic() + self._deadline
        try:
            yield connection
        finally:
            is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            with self._lock:
                if is_idle and len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Close the idle ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _taken(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not _is_ended(connection):
                    return connection
                connection.close()
        seconds = max(2, math.ceil(self._deadline))
        return Connection.connect(self._conninfo, autocommit=True, connect_timeout=seconds)

    def renew(self) -> None:
        """Begin anew in a forked process; the parent's connections stay, as to close them here would end them there."""
        _inherited.extend(self._idle)
        self._lock, self._idle = threading.Lock(), []


def _is_ended(connection: Connection) -> bool:
    """Whether the server has said something to a connection that asked nothing: that it ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.pgconn.socket, selectors.EVENT_READ)
        return bool(selector.select(timeout=0))


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_inherited: list[Connection] = []


def _after_fork_in_child() -> None:
    for connections in list(_all):
        connections.renew()


at_fork(after_in_child=_after_fork_in_child)
