"""Stages: real servers for the seeds of a campaign, and the faults of these servers."""

from __future__ import annotations

import re
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import redis
from botocore.exceptions import BotoCoreError, ClientError
from redis.crc import key_slot

from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.tiers import ConversationKey
from strands_manga_memory.stores import HotStore, Table, open_hot_store, open_table
from strands_manga_memory.stores.codec import decompress
from tests import servers
from tests.faults import talk
from tests.faults.scenario import USERS, Scenario
from tests.faults.worker import codec

_FILLER = b"x" * 20_000


class Servers(ExitStack):
    """The servers of this process, each started when it is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, Any] = {}

    def end(self) -> None:
        """End all of them."""
        self._started.clear()
        self.close()

    def get(self, name: str, start: Callable[[], Any]) -> Any:
        """Return a server, started with ``start`` if it does not run yet."""
        if name not in self._started:
            self._started[name] = self.enter_context(start())
        return self._started[name]


class Pair:
    """A Valkey server and its replica."""

    def __init__(self, primary: servers.Valkey, replica: servers.Valkey) -> None:
        self.primary, self.replica = primary, replica

    def follow(self) -> None:
        """Make the replica follow the primary, and wait until it does."""
        with self.replica.client() as client:
            client.replicaof(self.primary.host, self.primary.port)

            def follows() -> bool:
                return client.info("replication").get("master_link_status") == "up"

            servers.wait_until(follows, "replication")

    def flush(self) -> None:
        """Delete every key."""
        self.primary.flush()

    def fail_over(self, *, gap: float, switch: Callable[[int], object]) -> None:
        """Cut the replica off, kill the primary later, and ``switch`` everyone to the replica."""
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")
        time.sleep(gap)
        self.primary.kill()
        self.primary, self.replica = self.replica, self.primary
        switch(self.primary.port)
        self.replica.start()
        self.follow()


@contextmanager
def _pair() -> Iterator[Pair]:
    with servers.valkey(*_QUICK) as primary, servers.valkey(*_QUICK) as replica:
        pair = Pair(primary, replica)
        pair.follow()
        yield pair


_QUICK = ("--repl-diskless-sync-delay", "0")


class Stage:
    """The tiers of one seed, empty at first, and what goes wrong with them.

    Attributes:
        hot_url: For each worker, its way to the hot tier; None: there is none.
        durable_url: For each worker, its way to the durable tier; None: there is none.
    """

    def __init__(
        self, scenario: Scenario, running: Servers, folder: Path, stack: ExitStack
    ) -> None:
        self.scenario = scenario
        self._running = running
        self._stack = stack
        self._hot_proxies: list[servers.FaultyProxy] = []
        self._durable_proxies: list[servers.FaultyProxy] = []
        slots = scenario.workers + 1
        self.hot_url: list[str | None] = [None] * slots
        self.durable_url: list[str | None] = [None] * slots
        self.hot: HotStore | None = None
        self.durable: Table | None = None
        self.file: Path | None = None
        getattr(self, f"_begin_{scenario.hot}", lambda _: None)(slots)
        getattr(self, f"_begin_{scenario.durable}", lambda *_: None)(slots, folder)

    # Beginning

    def _begin_memory(self, slots: int) -> None:
        self.hot_url = ["memory://"] * slots

    def _begin_single(self, slots: int) -> None:
        self._server = self._running.get("single", servers.valkey)
        with self._server.client() as client:
            client.config_set("maxmemory", 0)
        self._server.flush()
        self._proxied(slots, self._server.port)

    def _begin_replicated(self, slots: int) -> None:
        self._server = self._running.get("replicated", _pair)
        self._server.flush()
        self._proxied(slots, self._server.primary.port)

    def _proxied(self, slots: int, port: int) -> None:
        for slot in range(slots):
            proxy = self._stack.enter_context(servers.FaultyProxy(servers.HOST, port))
            self._hot_proxies.append(proxy)
            self.hot_url[slot] = f"redis://{proxy.host}:{proxy.port}/0?socket_timeout=0.4"
        self.hot = self._opened(open_hot_store(f"redis://{servers.HOST}:{port}/0?deadline=5"))

    def _begin_cluster(self, slots: int) -> None:
        self._server = self._running.get("cluster", lambda: servers.valkey_cluster(proxied=True))
        self._server.flush()
        self._hot_proxies = self._server.proxies
        self.hot_url = [f"{self._server.url}?socket_timeout=0.4"] * slots
        self.hot = self._opened(open_hot_store(f"{self._server.url}?deadline=5"))

    def _begin_dynamodb(self, slots: int, _: Path) -> None:
        self._dynamodb = self._running.get("dynamodb", servers.dynamodb)
        self._name = f"seed_{self.scenario.seed}_{time.monotonic_ns()}"
        table = self._opened(open_table(self._dynamodb.table_url(self._name)))
        table.create_if_missing()
        self.durable = table
        for slot in range(slots):
            proxy = self._stack.enter_context(
                servers.FaultyProxy(self._dynamodb.host, self._dynamodb.port)
            )
            self._durable_proxies.append(proxy)
            url = f"dynamodb://{self._name}?region=us-east-1&endpoint=http://{proxy.host}:{proxy.port}"
            self.durable_url[slot] = url

    def _begin_sqlite(self, slots: int, folder: Path) -> None:
        self.file = folder / "sessions.sqlite3"
        self.durable_url = [f"sqlite:///{self.file}"] * slots
        self.durable = self._opened(open_table(f"sqlite:///{self.file}"))
        self.durable.create_if_missing()

    def _begin_postgres(self, slots: int, _: Path) -> None:
        server = self._running.get("postgres", servers.postgres)
        self._name = f"seed_{self.scenario.seed}_{time.monotonic_ns()}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self._name}")
        self._postgres_url = server.url.replace("/postgres", f"/{self._name}")
        self.durable = self._opened(open_table(self._postgres_url))
        self.durable.create_if_missing()
        for slot in range(slots):
            proxy = self._stack.enter_context(servers.FaultyProxy(server.host, server.port))
            self._durable_proxies.append(proxy)
            self.durable_url[slot] = self._postgres_url.replace(
                f":{server.port}/", f":{proxy.port}/"
            )

    def _opened(self, store: Any) -> Any:
        self._stack.callback(store.close)
        return store

    # What goes wrong with sockets

    def _ways(
        self, proxies: list[servers.FaultyProxy], slot: int | None
    ) -> list[servers.FaultyProxy]:
        if slot is None or (self.scenario.hot == "cluster" and proxies is self._hot_proxies):
            return proxies
        return [proxies[slot]]

    def socket_fault(self, name: str, slot: int | None) -> None:
        """Let the way to a tier misbehave, of one worker or of all."""
        tier, _, what = name.partition("_") if name.startswith("durable_") else ("hot", "", name)
        for proxy in self._ways(
            self._durable_proxies if tier == "durable" else self._hot_proxies, slot
        ):
            if what == "reset":
                proxy.reset()
            elif what in ("blackhole", "timeout"):
                proxy.blackhole()
            elif what == "half_open":
                proxy.half_open()
            elif what == "drop_answers":
                proxy.drop_next_answer(3)
            elif what == "delay":
                proxy.delay = 0.2
            else:
                proxy.drip = 0.02

    def refuse(self, name: str, slot: int | None) -> None:
        """Let the durable tier refuse, as DynamoDB does."""
        for proxy in self._ways(self._durable_proxies, slot):
            if name == "throttle":
                proxy.refuse("ProvisionedThroughputExceededException")
            else:
                proxy.refuse("InternalServerError", status=500)

    def heal(self, tier: str | None = None) -> None:
        """Let every way to a tier, or to both, be open."""
        if tier != "durable":
            for proxy in self._hot_proxies:
                proxy.passing()
        if tier != "hot":
            for proxy in self._durable_proxies:
                proxy.passing()

    # What goes wrong with servers

    @property
    def _nodes(self) -> list[servers.Valkey]:
        """The hot tier's nodes that take writes."""
        if self.scenario.hot == "cluster":
            return list(self._server.nodes)
        return [getattr(self._server, "primary", self._server)]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the hot tier's process meanwhile."""
        node = self._nodes[self.scenario.seed % len(self._nodes)]
        node.pause()
        try:
            yield
        finally:
            node.resume()

    def empty_restart(self) -> None:
        """Kill the hot tier and start it again, with nothing in it."""
        self._server.kill()
        self._server.start()

    def wipe(self) -> None:
        """Delete everything in the hot tier."""
        self._server.flush()

    def fail_over(self, gap: float) -> None:
        """Kill the primary; a replica without the last ``gap`` seconds replaces it."""

        def switch(port: int) -> None:
            for proxy in self._hot_proxies:
                proxy.retarget(port)

        self._server.fail_over(gap=gap, switch=switch)
        self.hot = self._opened(open_hot_store(f"{self._server.primary.url}?deadline=5"))

    def squeeze(self) -> None:
        """Give the hot tier too little memory, with eviction of the least recently used."""
        with self._server.client() as client:
            used = client.info("memory")["used_memory"]
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("maxmemory", used + 10 * len(_FILLER))
            for number in range(40):
                with suppress(redis.OutOfMemoryError):
                    client.set(f"filler{number}", _FILLER)

    def relieve(self) -> None:
        """Let the hot tier have all the memory it wants."""
        with self._server.client() as client:
            client.config_set("maxmemory", 0)

    def reshard(self, seconds: float) -> None:
        """Move the sessions' slots to other nodes, in ``seconds``."""
        for user in range(USERS):
            name = ConversationKey.of(
                self.scenario.scope(user).storage_session_id, "A", "librarian"
            ).name
            slot = key_slot(f"{{b{zlib.crc32(name.encode()) % 1024:04d}}}".encode())
            self._server.move(slot, pause=lambda: time.sleep(seconds / 10))

    # What is stored

    def tags(self) -> dict[int, frozenset[str]]:
        """Return the turns that the durable tier has, by user."""
        if self.durable is None:
            return {}
        return {
            user: frozenset(tags_of(self.manager(user, hot=None).history("librarian")))
            for user in range(USERS)
        }

    def begun(self, user: int) -> frozenset[str]:
        """Return the turns that the durable tier has the beginning of."""
        marks = talk.marks(self.manager(user, hot=None).history("librarian"))
        return frozenset(m.removeprefix("user:").split()[0] for m in marks if m.startswith("user:"))

    def manager(self, user: int, **stores: Any) -> TieredSessionManager:
        """Return a session manager that goes to the servers directly."""
        found = {"hot": self.hot, "durable": self.durable, **stores}
        return TieredSessionManager(
            self.scenario.scope(user),
            codec=codec(self.scenario),
            hot_deadline=10.0,
            durable_deadline=10.0,
            **found,
        )

    def values(self) -> dict[int | None, dict[str, bytes]]:
        """Return all stored values by key, decoded, and the keys by user (None: nobody's)."""
        found: dict[int | None, dict[str, bytes]] = defaultdict(dict)
        ids = {self.scenario.scope(user).storage_session_id: user for user in range(USERS)}

        def owner(*names: str) -> int | None:
            return next(
                (
                    user
                    for id_, user in ids.items()
                    for name in names
                    if f"{name}/".startswith(f"{id_}/")
                ),
                None,
            )

        for key, fields in self._hashes():
            found[owner(key.partition(":c:")[2])][f"hot {key}"] = b"\n".join(map(_plain, fields))
        for item in self._items():
            values = [v if isinstance(v, bytes) else repr(v).encode() for v in item.values()]
            name = f"{item['session_id']} {item['sk']}"
            found[owner(str(item["session_id"]))][f"durable {name}"] = b"\n".join(
                map(_plain, values)
            )
        return found

    def _hashes(self) -> Iterator[tuple[str, list[bytes]]]:
        for node in self._nodes if self.hot is not None else ():
            with node.client() as client:
                for key in client.scan_iter(match="smm:*", count=1000):
                    if client.type(key) == b"hash":
                        yield (
                            key.decode(),
                            [part for pair in client.hgetall(key).items() for part in pair],
                        )
                    elif client.type(key) == b"string":
                        yield key.decode(), [client.get(key) or b""]

    def _items(self) -> Iterator[dict[str, Any]]:
        if self.scenario.durable == "dynamodb":
            client = self._dynamodb.client()
            for page in client.get_paginator("scan").paginate(TableName=self._name):
                for item in page["Items"]:
                    yield {name: next(iter(value.values())) for name, value in item.items()}
        elif self.file is not None and self.durable is not None:
            with sqlite3.connect(self.file) as connection:
                keys = connection.execute(
                    "SELECT DISTINCT partition FROM manga_sessions"
                ).fetchall()
            connection.close()
            for (partition,) in keys:
                yield from map(dict, self.durable.query(partition))
        elif self.scenario.durable == "postgres" and self.durable is not None:
            with psycopg.connect(self._postgres_url) as connection:
                rows = connection.execute(
                    "SELECT DISTINCT partition FROM manga_sessions"
                ).fetchall()
            for (partition,) in rows:
                yield from map(dict, self.durable.query(partition.decode()))

    def end(self) -> None:
        """Throw away what only this seed used."""
        if self.scenario.durable == "dynamodb":
            with suppress(
                BotoCoreError, ClientError
            ):  # the server has ended, and the table with it
                self._dynamodb.client().delete_table(TableName=self._name)
        elif self.scenario.durable == "postgres" and self.durable is not None:
            server = self._running.get("postgres", servers.postgres)
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {self._name} WITH (FORCE)")


def tags_of(messages: Any) -> set[str]:
    """Return the tags of the turns whose answer is among the messages."""
    said = (
        text
        for message in messages
        if message["role"] == "assistant"
        for text in talk.texts(message)
    )
    return {match[1] for text in said if (match := re.match(r"(\S+) answer", text))}


def _plain(value: bytes) -> bytes:
    """Return what a value says, uncompressed."""
    if value[:1] == b"\xb7" and len(value) > 7 and value[2] & 1:
        with suppress(ValueError, zlib.error):
            return decompress(value[7:])
    return value
