"""Transaction poolers for PostgreSQL: a small own one, and PgBouncer if installed."""

import shutil
import socket
import struct
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests import servers

_SSL_REQUEST = 80877103


def _read(side: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = side.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        data += part
    return data


def _read_message(side: socket.socket) -> bytes:
    """Read one message of the PostgreSQL protocol: a byte for its kind, its length, its body."""
    head = _read(side, 5)
    return head + _read(side, struct.unpack(">I", head[1:])[0] - 4)


class TransactionPooler:
    """Relay that gives each transaction to the connection that has idled longest."""

    def __init__(self, target: servers.Postgres) -> None:
        self._target = (target.host, target.port)
        self._lock = threading.Lock()
        self._idle: deque[socket.socket] = deque()
        self._sides: set[socket.socket] = set()
        self._listener = socket.create_server((servers.HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = target.url.replace(f":{target.port}/", f":{self.port}/")
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and close every connection."""
        for side in (self._listener, *self._sides):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sides.add(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            start = self._startup(client)
            server = self._connected(start, client)
            self._give_back(server)
            while (message := _read_message(client))[:1] != b"X":
                server = self._taken(start)
                while True:  # one transaction
                    server.sendall(message)
                    if message[:1] in b"QS" and self._answered(server, client) == b"I":
                        break
                    message = _read_message(client)
                self._give_back(server)

    def _startup(self, client: socket.socket) -> bytes:
        while True:
            head = _read(client, 8)
            length, code = struct.unpack(">II", head)
            if code != _SSL_REQUEST:
                return head + _read(client, length - 8)
            client.sendall(b"N")

    def _connected(self, start: bytes, client: socket.socket | None) -> socket.socket:
        server = socket.create_connection(self._target)
        self._sides.add(server)
        server.sendall(start)
        self._answered(server, client)
        return server

    def _answered(self, server: socket.socket, client: socket.socket | None) -> bytes:
        """Pass an answer on until the server is ready; return the transaction's state."""
        while True:
            message = _read_message(server)
            if client is not None:
                client.sendall(message)
            if message[:1] == b"Z":
                return message[5:]

    def _taken(self, start: bytes) -> socket.socket:
        with self._lock:
            if self._idle:
                return self._idle.popleft()
        return self._connected(start, None)

    def _give_back(self, server: socket.socket) -> None:
        with self._lock:
            self._idle.append(server)


@contextmanager
def relay(target: servers.Postgres) -> Iterator[str]:
    """Run the tests' own pooler; yield the URL through it."""
    pooler = TransactionPooler(target)
    try:
        yield pooler.url
    finally:
        pooler.close()


@contextmanager
def pgbouncer(target: servers.Postgres) -> Iterator[str]:
    """Run PgBouncer in transaction mode with four server connections; yield the URL through it."""
    program = shutil.which("pgbouncer")
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        settings = Path(folder) / "pgbouncer.ini"

        def command(port: int) -> list[str]:
            settings.write_text(
                f"[databases]\npostgres = host={target.host} port={target.port} dbname=postgres"
                " user=tests\n"
                f"[pgbouncer]\nlisten_addr={servers.HOST}\nlisten_port={port}\nunix_socket_dir=\n"
                "auth_type=any\npool_mode=transaction\ndefault_pool_size=4\n"
            )
            return [*target.as_other, program, str(settings)]

        server = servers.Server(command, cwd="/")
        try:
            server.start()
            yield target.url.replace(f":{target.port}/", f":{server.port}/")
        finally:
            server.kill()
