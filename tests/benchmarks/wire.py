"""Stage: real stores behind proxies that record the traffic."""

import asyncio
import base64
import json
import math
import os
import re
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest import mock

import redis

from strands_manga_memory import USER_MEMORY, ConversationScope, DynamoDBTable, RedisHotStore
from strands_manga_memory.session import session_agent
from strands_manga_memory.stores.dynamodb_requests import dynamodb_client
from strands_manga_memory.stores.redis_hot_store import redis_client
from strands_manga_memory.stores.writer import shared_writer
from tests import servers

PATIENT = 5.0
"""Seconds that a turn waits for its tier during counts, so that a busy machine does not turn a
count into a timeout.
"""


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


_ITEM_OVERHEAD = 100  # bytes that DynamoDB adds to each stored item, and again in each index


class Units:
    """Counter of the read and write units of requests.

    It remembers every item, as the tables do.
    """

    def __init__(self) -> None:
        self._items: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self.writes = self.index_writes = self.reads = 0.0

    def take(self, found: Iterable[Request]) -> None:
        """Count all requests since the last call."""
        for request in found:
            getattr(self, re.sub("([A-Z])", r"_\1", request.operation).lower())(request.body)

    def stored(self, table: str) -> int:
        """Return the billed bytes of a table and its indexes."""
        items = self._items.get(table, {}).values()
        return sum((item_bytes(i) + _ITEM_OVERHEAD) * (1 + len(_listing(table, i))) for i in items)

    def _put_item(self, body: dict[str, Any], factor: int = 1) -> None:
        table, item = body["TableName"], body["Item"]
        items, key = self._items.setdefault(table, {}), _key(table, item)
        before = items.get(key)
        items[key] = item
        sizes = [item_bytes(item)] + ([] if before is None else [item_bytes(before)])
        listing = _listing(table, item) | (set() if before is None else _listing(table, before))
        self._count_write(factor * math.ceil(max(sizes) / 1024), len(listing))

    def _delete_item(self, body: dict[str, Any], factor: int = 1) -> None:
        table = body["TableName"]
        before = self._items.setdefault(table, {}).pop(_key(table, body["Key"]), None)
        size = 1 if before is None else math.ceil(item_bytes(before) / 1024)
        self._count_write(factor * size, 0 if before is None else len(_listing(table, before)))

    def _count_write(self, units: int, indexes: int) -> None:
        self.writes += units * (1 + indexes)
        self.index_writes += units * indexes

    def _batch_write_item(self, body: dict[str, Any]) -> None:
        for table, writes in body["RequestItems"].items():
            for write in writes:
                if "PutRequest" in write:
                    self._put_item({"TableName": table, "Item": write["PutRequest"]["Item"]})
                else:
                    self._delete_item({"TableName": table, "Key": write["DeleteRequest"]["Key"]})

    def _transact_write_items(self, body: dict[str, Any]) -> None:
        for action in body["TransactItems"]:
            if "Put" in action:
                self._put_item(action["Put"], 2)
            elif "Delete" in action:
                self._delete_item(action["Delete"], 2)
            else:  # a condition is billed as a write of its item
                check = action["ConditionCheck"]
                item = self._items.setdefault(check["TableName"], {}).get(
                    _key(check["TableName"], check["Key"])
                )
                self.writes += 2 * (1 if item is None else math.ceil(item_bytes(item) / 1024))

    def _get_item(self, body: dict[str, Any]) -> None:
        self._read(body["TableName"], [body["Key"]])

    def _batch_get_item(self, body: dict[str, Any]) -> None:
        for table, entry in body["RequestItems"].items():
            self._read(table, entry["Keys"])

    def _read(self, table: str, keys: Iterable[dict[str, Any]]) -> None:
        for key in keys:
            item = self._items.setdefault(table, {}).get(_key(table, key))
            self.reads += 1 if item is None else math.ceil(item_bytes(item) / 4096)

    def _query(self, body: dict[str, Any]) -> None:
        values = body["ExpressionAttributeValues"]
        low, high = (
            values.get(":first", {}).get("S", ""),
            values.get(":last", {}).get("S", "\U0010ffff"),
        )
        found = [
            item
            for key, item in self._items.setdefault(body["TableName"], {}).items()
            if key[0] == values[":p"]["S"] and low <= key[1] <= high
        ]
        self.reads += max(
            0.5 if "IndexName" in body else 1, math.ceil(sum(map(item_bytes, found)) / 4096)
        )

    def _describe_table(self, body: dict[str, Any]) -> None:
        """Count nothing: the request is free."""


def _key(table: str, item: dict[str, Any]) -> tuple[str, str]:
    names = ("user_id", "memory_id") if table == USER_MEMORY.name else ("session_id", "sk")
    return item[names[0]]["S"], item[names[1]]["S"]


def _listing(table: str, item: dict[str, Any]) -> set[str]:
    if table != USER_MEMORY.name:
        return set()
    return {i.name for i in USER_MEMORY.indexes if i.partition in item and i.sort in item}


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
            f"redis://{servers.HOST}:{self.hot_wire.port}?socket_timeout={PATIENT}"
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
        statistics: dict[str, Any] = self.direct.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): int(v["calls"]) for name, v in statistics.items()}
        return {name: c for name, c in calls.items() if name not in ("info", "config|resetstat")}


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
            redis_client(f"redis://{servers.HOST}:{hot_wire.port}?socket_timeout={PATIENT}"),
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
