"""Checks of the hot tier: a Redis or Valkey server, or the memory of a process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from redis.cluster import RedisCluster
from redis.exceptions import RedisError

from strands_manga_memory.exceptions import StoreError, StoreRefusedError, StoreUnavailableError
from strands_manga_memory.ops.doctor.finding import Finding, clock_finding, first_failure, ok, problem, warning
from strands_manga_memory.ops.provisioning import redis_acl
from strands_manga_memory.stores.hot import HotStore, HotWrite
from strands_manga_memory.stores.redis.redis_hot_store import RedisHotStore

_OLDEST = (6, 2)
_SLOTS = 16_384
_FULL = 0.9
_CONNECT = "check host, port, security group and TLS (rediss://); is the server running?"
_MEND = "redis-cli --cluster fix <node>, or restart the node that holds them"


def check_hot(store: HotStore, *, shown: str, clock: Callable[[], float]) -> Iterator[Finding]:
    """Check a hot store, and yield the results of the checks.

    Args:
        store: Store to check.
        shown: URL of the store without the password.
        clock: Function that returns seconds since 1970.
    """
    if not isinstance(store, RedisHotStore):
        yield warning(
            "hot.shared",
            f"{shown} is the memory of one process: other processes cannot read it, and it is lost when this one ends",
            "set MANGA_MEMORY_HOT_URL to a Redis or Valkey if more than one process serves users",
        )
        yield _calls(store)
        return
    reached = _reached(store, shown)
    yield reached
    info = _info(store)
    if info is not None:
        yield from _cluster(info, store)
    if reached.remedy:
        return
    if info is None:
        yield warning(
            "hot.info",
            "the user may not run INFO: version, eviction, memory and persistence were not checked",
            "ACL SETUSER <user> +info, for this doctor only",
        )
    else:
        yield from (_version(info), _eviction(info), _memory(info), _persistence(info))
    yield from _clock(store, clock)
    yield _calls(store)


def not_opened(error: ValueError | StoreError) -> Finding:
    """Return the finding (result of a check) for a hot store that could not be opened."""
    if "not covered" in str(error):
        return problem("hot.cluster", f"some slots are not served: {error}", _MEND)
    return problem("hot.reach", str(error), _CONNECT)


def _reached(store: RedisHotStore, shown: str) -> Finding:
    """Check that the Redis server of the hot tier answers."""
    try:
        store.read("doctor", ["none"])
    except StoreError as error:
        if isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError):
            return problem("hot.reach", f"{shown} does not answer: {error}", _CONNECT)
        return _refusal("hot.reach", error)
    return ok("hot.reach", f"{shown} answers")


_REMEDIES = {
    "authentication": ("hot.auth", "put user and password into the URL: redis://user:password@host:port"),
    "permission": (
        "hot.permission",
        f"ACL SETUSER {redis_acl('<user>')} (and +info +config|get +cluster for this doctor); "
        "strands-manga-memory permissions --print acl",
    ),
    "cluster": ("hot.cluster", "use redis+cluster://; CLUSTER INFO shows slots that are down"),
}
"""Names of checks and remedies, keyed by the reason for which the server refused a call."""


def _refusal(check: str, error: StoreError, step: str = "") -> Finding:
    """Return the finding (result of a check) for a failed call of the hot tier, with a remedy.

    Args:
        check: Name of the finding. Known causes of errors have names of their own, which take precedence.
        error: Error of the failed call.
        step: Text that precedes the error in the finding, such as the name of the call.
    """
    otherwise = check, getattr(error, "remedy", "") or "read the server's log"
    check, remedy = _REMEDIES.get(getattr(error, "reason", ""), otherwise)
    return problem(check, f"{step}{error}", remedy)


def _one_node(client: Any) -> dict[str, Any]:
    """Return the arguments that send a command to one node of a cluster; none for a single server."""
    return {"target_nodes": client.get_random_node()} if isinstance(client, RedisCluster) else {}  # type: ignore[no-untyped-call]


def _info(store: RedisHotStore) -> Mapping[str, Any] | None:
    """Return the server's (or one node's) answer to the command INFO, or None if the Redis user may not run INFO."""
    try:
        return cast("Mapping[str, Any]", store.client.info(**_one_node(store.client)))
    except RedisError:
        return None


def _version(info: Mapping[str, Any]) -> Finding:
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    text = str(info.get("valkey_version") or info.get("redis_version") or "0")
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version < _OLDEST:
        return problem(
            "hot.version", f"{name} {text} is too old", f"upgrade to Redis {'.'.join(map(str, _OLDEST))} or any Valkey"
        )
    return ok("hot.version", f"{name} {text}")


def _eviction(info: Mapping[str, Any]) -> Finding:
    """Check that Redis never evicts the indexes in which sweepers find expired conversations."""
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy.startswith("allkeys"):
        return problem(
            "hot.eviction",
            f"maxmemory-policy is {policy}: it also evicts the expiry indexes, which have no TTL, so conversations are "
            "never finalized",
            "CONFIG SET maxmemory-policy volatile-ttl (ElastiCache: in the parameter group), or noeviction",
        )
    return ok("hot.eviction", f"maxmemory-policy is {policy}")


def _memory(info: Mapping[str, Any]) -> Finding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        return ok("hot.memory", f"{used / 2**20:,.1f} MB are used, no maxmemory is set")
    detail = f"{used / 2**20:,.1f} of {most / 2**20:,.1f} MB are used"
    if used > _FULL * most:
        return warning(
            "hot.memory", detail, "add memory or shards (strands-manga-memory cost shows how many), or shorten the TTL"
        )
    return ok("hot.memory", detail)


def _persistence(info: Mapping[str, Any]) -> Finding:
    """Check that the data of a Redis server survive a restart, because of a replica, an append-only file or snapshots."""
    replicas, aof = int(info.get("connected_slaves", 0)), int(info.get("aof_enabled", 0))
    snapshots = info.get("role") == "slave" or int(info.get("rdb_saves", 0)) > 0
    if replicas or aof or snapshots:
        return ok("hot.persistence", f"{replicas} replicas, append-only file {'on' if aof else 'off'}")
    return warning(
        "hot.persistence",
        "the server has no replica, no append-only file and no snapshot: a restart loses the hot tier",
        "add a replica, or CONFIG SET appendonly yes; without them, at most flush_every turns of a conversation are lost",
    )


def _cluster(info: Mapping[str, Any], store: RedisHotStore) -> Iterator[Finding]:
    """Check that the URL of a Redis Cluster names a cluster, and that the cluster serves all of its hash slots."""
    if not int(info.get("cluster_enabled", 0)):
        return
    client: Any = store.client
    if not isinstance(store.client, RedisCluster):
        yield problem(
            "hot.cluster", "the server is a node of a cluster, but the URL is for a single server", "use redis+cluster://"
        )
        return
    try:
        answers = client.execute_command("CLUSTER INFO", target_nodes=client.get_primaries())  # each knows its own slots
    except RedisError as error:
        yield warning("hot.cluster", f"CLUSTER INFO was refused: {error}", "ACL SETUSER <user> +cluster")
        return
    slots = min(int(answer.get("cluster_slots_ok", 0)) for answer in answers.values())
    if slots < _SLOTS:
        yield problem(
            "hot.cluster",
            f"{_SLOTS - slots:,} of {_SLOTS:,} slots are not served: the conversations in them cannot be read or written",
            _MEND,
        )
    else:
        yield ok("hot.cluster", f"all {_SLOTS:,} slots are served by {len(client.get_primaries())} shards")


def _clock(store: RedisHotStore, clock: Callable[[], float]) -> Iterator[Finding]:
    client = store.client
    try:
        before = clock()
        seconds, microseconds = client.time(**_one_node(client))
    except RedisError:
        return  # _calls reports a missing permission: scripts call TIME as well
    yield clock_finding("hot.clock", int(seconds) + int(microseconds) / 1e6 - (before + clock()) / 2, "the hot tier")


def _calls(store: HotStore) -> Finding:
    """Check each method of a hot store that this package uses, with a temporary conversation."""
    name = f"doctor:{uuid.uuid4().hex}:probe/A:probe"
    write = HotWrite(expect=None, epoch=1, version=1, fields={"window": b""}, ttl=0.001)
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: store.write(name, write),
        "load": lambda: store.load(name, [], touch=True),
        "read": lambda: store.read(name, ["window"]),
        "expired": lambda: list(store.expired(limit=1)),
        "claim": lambda: store.claim(name, expired_only=False),
        "drop": lambda: store.drop(name, expect=(1, 1)),
        "acquire_lease": lambda: store.acquire_lease(name, owner="d", ttl=1.0),
        "release_lease": lambda: store.release_lease(name, owner="d"),
        "put_value": lambda: store.put_value(name, b"", ttl=1.0),
        "get_value": lambda: store.get_value(name),
        "put_tombstone": lambda: store.put_tombstone(name, epoch=2, ttl=0.001),
    }
    if (failure := first_failure(steps)) is not None:
        return _refusal("hot.permission", failure[1], f"{failure[0]}: ")
    return ok("hot.permission", f"{len(steps)} kinds of calls are allowed")
