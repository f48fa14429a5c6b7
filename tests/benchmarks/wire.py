"""Stage: real stores behind proxies that record the traffic."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest import mock

import redis

from strands_manga_memory import ConversationScope, DynamoDBTable, RedisHotStore
from strands_manga_memory.session import session_agent
from strands_manga_memory.stores.dynamodb_requests import dynamodb_client
from strands_manga_memory.stores.redis_hot_store import redis_client
from strands_manga_memory.stores.writer import shared_writer
from tests import servers

PATIENT = 5.0
"""Seconds that a turn waits for its tier during counts, so that a busy machine does not turn a
count into a timeout.
"""

READS = ("GetItem", "BatchGetItem", "Query")


@dataclass(frozen=True)
class Chunk:
    """Bytes of the traffic, ``sent`` by the client or received by it."""

    connection: tuple[int, int]
    sent: bool
    data: bytes


class Wire(servers.FaultyProxy):
    """Proxy that records the traffic in order, answers when they are forwarded.

    Several wires may share one ``log``. ``hold`` is the delay of each answer in seconds.
    """

    def __init__(self, target: servers.Server, log: list[Chunk]) -> None:
        self.log = log
        self.hold = 0.0
        super().__init__(target.host, target.port)

    def _read(self, side: socket.socket) -> Iterator[bytes]:
        with suppress(OSError):  # a connection that is closed already
            sent = side.getsockname()[1] == self.port
            connection = (self.port, side.getpeername()[1] if sent else 0)
            for data in super()._read(side):
                if not sent and self.hold:
                    self._stopped.wait(self.hold)
                self.log.append(Chunk(connection, sent, data))
                yield data


def rounds(log: Iterable[Chunk]) -> int:
    """Return the number of round trips. Requests that are under way together are one round trip."""
    count, answered = 0, True
    for chunk in log:
        count += chunk.sent and answered
        answered = not chunk.sent
    return count


@dataclass(frozen=True)
class Request:
    """A request to DynamoDB."""

    operation: str
    body: dict[str, Any]


def requests(log: Iterable[Chunk]) -> list[Request]:
    """Return the DynamoDB requests in the traffic."""
    streams: dict[tuple[int, int], bytearray] = defaultdict(bytearray)
    for chunk in log:
        if chunk.sent:
            streams[chunk.connection] += chunk.data
    found: list[Request] = []
    for stream in map(bytes, streams.values()):
        rest = stream
        while rest.startswith(b"POST "):
            lines, _, rest = rest.partition(b"\r\n\r\n")
            pairs = (line.decode("latin-1").split(": ", 1) for line in lines.split(b"\r\n")[1:])
            headers = {name.lower(): value for name, value in pairs}
            length = int(headers["content-length"])
            body, rest = rest[:length], rest[length:]
            operation = headers["x-amz-target"].rpartition(".")[2]
            found.append(Request(operation, json.loads(body)))
    return found


def item_bytes(item: dict[str, dict[str, Any]]) -> int:
    """Return the size of an item as DynamoDB counts it: names and values of its attributes."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: dict[str, Any]) -> int:
    [(kind, content)] = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "B":
        return len(base64.b64decode(content))
    if kind == "N":
        return (
            math.ceil(len(content.strip("-").replace(".", "").strip("0")) / 2)
            + 1
            + content.startswith("-")
        )
    if kind in ("BOOL", "NULL"):
        return 1
    if kind == "L":
        return 3 + sum(1 + _value_bytes(element) for element in content)
    if kind == "M":
        return 3 + len(content) + item_bytes(content)
    raise ValueError(f"no size is known for a value of kind {kind!r}")


class WriteUnits:
    """Counter of write units, by the larger size of an item before and after a write."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}

    def of(self, requests: Iterable[Request]) -> int:
        """Return the write units of all ``requests`` since the last call."""
        return sum(self._of(request) for request in requests)

    def _of(self, request: Request) -> int:
        body = request.body
        if request.operation == "PutItem":
            return self._put(body["Item"])
        if request.operation == "DeleteItem":
            return self._deleted(body["Key"])
        if request.operation == "BatchWriteItem":
            writes = [write for writes in body["RequestItems"].values() for write in writes]
            puts = [
                self._put(write["PutRequest"]["Item"]) for write in writes if "PutRequest" in write
            ]
            return sum(puts) + sum(
                self._deleted(write["DeleteRequest"]["Key"])
                for write in writes
                if "DeleteRequest" in write
            )
        if request.operation in READS:
            return 0
        raise ValueError(f"no cost is known for {request.operation}")

    def _put(self, item: dict[str, Any]) -> int:
        key, size = _key(item), item_bytes(item)
        before, self._sizes[key] = self._sizes.get(key, 0), size
        return math.ceil(max(before, size) / 1024)

    def _deleted(self, key: dict[str, Any]) -> int:
        return max(1, math.ceil(self._sizes.pop(_key(key), 0) / 1024))


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["session_id"]["S"], item["sk"]["S"]


@dataclass(frozen=True)
class Stage:
    """Valkey and DynamoDB, a wire in front of each, and stores that use the wires."""

    valkey: servers.Valkey
    hot_wire: Wire
    durable_wire: Wire
    hot: RedisHotStore
    durable: DynamoDBTable
    direct: redis.Redis
    unwatched: tuple[RedisHotStore, DynamoDBTable]
    """The same stores, connected without the wires."""

    @property
    def tiers(self) -> dict[str, Any]:
        """The stores, as arguments of a session manager."""
        return {"hot": self.hot, "durable": self.durable}

    def key_of(self, scope: ConversationScope) -> str:
        """Return the key of a conversation in Valkey."""
        return self.hot._key(f"{scope.storage_session_id}/A:{scope.agent_id}", "c")

    def hold(self, seconds: float) -> None:
        """Delay every answer of both stores."""
        self.hot_wire.hold = self.durable_wire.hold = seconds

    def settle(self) -> None:
        """Wait until no background work is left."""
        if not shared_writer(self.hot, self.durable).drain(30.0):
            raise TimeoutError("the background work did not end within 30 s")

    def clear(self) -> None:
        """Clear the recorded traffic."""
        for wire in (self.hot_wire, self.durable_wire):
            wire.clear_counts()
            wire.log.clear()
        self.direct.config_resetstat()

    def another_hot_store(self, prefix: str) -> RedisHotStore:
        """Return a store for other conversations on the same wire."""
        client = redis_client(
            f"redis://{servers.HOST}:{self.hot_wire.port}", socket_timeout=PATIENT
        )
        return RedisHotStore(client, prefix=prefix, deadline=PATIENT)

    @property
    def bytes(self) -> int:
        """Return the bytes of the traffic on both wires, in both directions."""
        return sum(
            wire.to_server_bytes + wire.to_client_bytes
            for wire in (self.hot_wire, self.durable_wire)
        )

    def durable_answers(self) -> int:
        """Return the number of chunks of answers from the durable store."""
        return sum(
            not chunk.sent and chunk.connection[0] == self.durable_wire.port
            for chunk in list(self.durable_wire.log)
        )

    def commands(self) -> dict[str, int]:
        """Return the calls of each command that Valkey executed, including those inside scripts."""
        statistics: dict[str, Any] = self.direct.info("commandstats")  # type: ignore[assignment]
        calls = {
            name.removeprefix("cmdstat_"): int(values["calls"])
            for name, values in statistics.items()
        }
        return {
            name: count for name, count in calls.items() if name not in ("info", "config|resetstat")
        }


@contextmanager
def staged() -> Iterator[Stage]:
    """Run both servers with a wire in front of each. The wires share one log.

    Deadlines are long, so that a turn which the machine delays is not saved in parts and counts do
    not depend on the load.
    """
    log: list[Chunk] = []
    with (
        mock.patch.object(session_agent, "_PENDING_SECONDS", 1.0),
        servers.valkey() as valkey,
        servers.dynamodb() as dynamodb,
        Wire(valkey, log) as hot_wire,
        Wire(dynamodb, log) as durable_wire,
        valkey.client() as direct,
    ):
        hot = RedisHotStore(
            redis_client(f"redis://{servers.HOST}:{hot_wire.port}", socket_timeout=PATIENT),
            deadline=PATIENT,
        )
        endpoint = f"http://{servers.HOST}:{durable_wire.port}"
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            os.environ.setdefault(name, "test")
        durable = DynamoDBTable(
            dynamodb_client(region="us-east-1", endpoint=endpoint), deadline=PATIENT
        )
        durable.create_if_missing()
        unwatched = (
            RedisHotStore(redis_client(valkey.url)),
            DynamoDBTable(dynamodb.client(proxies={})),
        )
        yield Stage(valkey, hot_wire, durable_wire, hot, durable, direct, unwatched)
        for store in (hot, durable, *unwatched):
            store.close()


class SocketUse:
    """Number of uses of sockets to given ports, by event-loop threads and elsewhere."""

    def __init__(self) -> None:
        self.on_loops = self.elsewhere = 0


@contextmanager
def socket_use(*ports: int) -> Iterator[SocketUse]:
    """Count uses of the sockets that are connected, or being connected, to ``ports``."""
    use = SocketUse()
    before = {
        name: socket.socket.__dict__.get(name)
        for name in ("connect", "send", "sendall", "recv", "recv_into")
    }

    def watched(name: str) -> Any:
        original = getattr(socket.socket, name)

        def call(self: socket.socket, *args: Any, **kwargs: Any) -> Any:
            if _port(self, *args, connecting=name == "connect") in ports:
                if _runs_loop():
                    use.on_loops += 1
                else:
                    use.elsewhere += 1
            return original(self, *args, **kwargs)

        return call

    for name in before:
        setattr(socket.socket, name, watched(name))
    try:
        yield use
    finally:
        for name, method in before.items():
            if method is None:
                delattr(socket.socket, name)
            else:
                setattr(socket.socket, name, method)


def _port(side: socket.socket, *args: Any, connecting: bool) -> int:
    with suppress(OSError):
        address = args[0] if connecting else side.getpeername()
        return int(address[1]) if isinstance(address, tuple) else 0
    return 0


def _runs_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
