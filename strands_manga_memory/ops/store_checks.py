"""Checks of the stores for ``diagnose``, the doctor of a deployment."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError
from redis.cluster import RedisCluster
from redis.exceptions import RedisError

from strands_manga_memory.arguments import Clock
from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.stores.dynamodb import DynamoDBTable
from strands_manga_memory.stores.dynamodb_requests import key_names, package_error, table_definition
from strands_manga_memory.stores.hot import HotStore, HotWrite
from strands_manga_memory.stores.redis_hot_store import RedisHotStore
from strands_manga_memory.stores.table import ABSENT, Condition, Table, Write


class Level(StrEnum):
    """Severity of a check's result: no problem, warning or problem."""

    OK = "ok"
    """The check found no problem."""
    WARNING = "warning"
    """The checked part works, but there is a risk."""
    PROBLEM = "problem"
    """The checked part does not work, or data can be lost."""


@dataclass(frozen=True)
class Finding:
    """Result of one check of a deployment.

    Args:
        check: Name of the check, such as ``hot.eviction``.
        level: Severity.
        detail: Description of the result.
        remedy: Action to take; empty if none is needed.
    """

    check: str
    level: Level
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    """Create the result of a check that found no problem."""
    return Finding(check, Level.OK, detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Create the result of a check that found a possible problem, with the remedy."""
    return Finding(check, Level.WARNING, detail, remedy)


def problem(check: str, detail: str, remedy: str) -> Finding:
    """Create the result of a check that found a problem, with the remedy."""
    return Finding(check, Level.PROBLEM, detail, remedy)


def _check_calls(tier: str, steps: Mapping[str, Callable[[], object]]) -> Finding:
    for name, work in steps.items():
        try:
            work()
        except StoreError as error:
            return _failed_check(tier, error, f"{name}: ")
    return ok(f"{tier}.permission", f"{len(steps)} kinds of calls are allowed")


def _compare_clocks(check: str, skew: float, where: str) -> Finding:
    if abs(skew) <= 2:
        return ok(check, f"clocks agree within {max(0.1, abs(skew)):.1f} s")
    side = "ahead of" if skew > 0 else "behind"
    detail = f"the clock of {where} is {abs(skew):.1f} s {side} this machine's"
    remedy = "synchronize both clocks (NTP, chrony); sessions expire by them"
    return (problem if abs(skew) > 30 else warning)(check, detail, remedy)


_CREATE = "strands-manga-memory init-table"


def check_durable(table: Table, *, tier: str, clock: Clock) -> Iterator[Finding]:
    """Check a durable table of a deployment, and yield the result of each check.

    ``tier`` is the beginning of the checks' names: ``durable`` for the table of conversations,
    ``users`` for the memory table.
    """
    if isinstance(table, DynamoDBTable):
        try:
            described = table.client.describe_table(TableName=table.name)
        except (ClientError, BotoCoreError) as error:
            yield _failed_check(tier, package_error(error, f"table=<{table.name}>"))
            return
        yield ok(f"{tier}.reach", f"the table {table.name!r} answers")
        yield from _check_schema(table, described["Table"], tier)
        yield _check_ttl(table, tier)
        date = described.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is not None:
            # The header has whole seconds.
            skew = parsedate_to_datetime(date).timestamp() + 0.5 - clock()
            yield _compare_clocks(f"{tier}.clock", 0.0 if abs(skew) < 1.5 else skew, "DynamoDB")
    yield _check_table_calls(table, tier)


_CHECKS = {
    "authentication": "auth",
    "cluster": "cluster",
    "table": "table",
    "permission": "permission",
    "read-only": "permission",
}
"""Names of checks, keyed by the reason for which a store refused a call."""

_CONNECT = (
    "is the server running, the table throttled, or the file locked? check host, port, TLS"
    " (rediss://), region, endpoint and security group; of a SQLite file the path, the permissions"
    " of its folder and the free disk space"
)


def _failed_check(tier: str, error: StoreError, step: str = "") -> Finding:
    if isinstance(error, CorruptRecordError):
        return problem(f"{tier}.schema", f"{step}{error}", "upgrade this package")
    check = _CHECKS.get(getattr(error, "reason", ""), "reach")
    remedy = getattr(error, "remedy", "") or _CONNECT
    return problem(f"{tier}.{check}", f"{step}{error}", remedy)


def _check_schema(table: DynamoDBTable, found: Mapping[str, Any], tier: str) -> Iterator[Finding]:
    wanted = table_definition(table.schema, table.name)
    have, want = key_names(found), key_names(wanted)
    if have != want:
        yield problem(
            f"{tier}.schema",
            f"the keys of {table.name!r} are {', '.join(have)}, not {', '.join(want)}",
            f"name another table in the URL and run {_CREATE}: the keys of a table cannot be"
            " changed",
        )
    else:
        yield ok(f"{tier}.schema", f"keys are {', '.join(have)}")
    indexes = {index["IndexName"]: index for index in found.get("GlobalSecondaryIndexes", ())}
    for index in wanted.get("GlobalSecondaryIndexes", ()):
        name = index["IndexName"]
        if name not in indexes:
            yield problem(
                f"{tier}.index",
                f"the index {name!r} is missing",
                f"aws dynamodb update-table --table-name {table.name} (the index as in {_CREATE}"
                " --print)",
            )
        elif key_names(found, indexes[name]) != key_names(wanted, index):
            yield problem(
                f"{tier}.index",
                f"the index {name!r} has other keys",
                f"delete it and create it as in {_CREATE} --print",
            )
        else:
            yield ok(f"{tier}.index", f"the index {name!r} exists")


def _check_ttl(table: DynamoDBTable, tier: str) -> Finding:
    attribute = table.schema.ttl
    try:
        found = table.client.describe_time_to_live(TableName=table.name)["TimeToLiveDescription"]
    except (ClientError, BotoCoreError) as error:
        return warning(
            f"{tier}.ttl",
            f"the TTL setting cannot be read: {error}",
            "allow dynamodb:DescribeTimeToLive",
        )
    if found["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
        return problem(
            f"{tier}.ttl",
            "TTL is not enabled: expired items are never deleted, and storage keeps growing",
            f"{_CREATE}, or: aws dynamodb update-time-to-live --table-name {table.name} "
            f"--time-to-live-specification Enabled=true,AttributeName={attribute}",
        )
    if found.get("AttributeName") != attribute:
        return problem(
            f"{tier}.ttl",
            f"TTL is on for the attribute {found.get('AttributeName')!r}, not for {attribute!r}",
            f"disable it, wait an hour, and run {_CREATE}",
        )
    return ok(f"{tier}.ttl", f"TTL is on for {attribute!r}")


def _check_table_calls(table: Table, tier: str) -> Finding:
    schema = table.schema
    partition = f"doctor/{uuid.uuid4().hex}"
    extra = {index.sort: 0 if index.sort_is_number else "doctor" for index in schema.indexes}
    item = {schema.partition: partition, schema.sort: "probe", "epoch": 1, **extra}
    other = {**item, schema.sort: "probe2"}
    is_memory = bool(schema.indexes)  # only the memory table uses condition checks
    checks = [Write(key=(partition, "probe3"), when=ABSENT, is_check=True)] if is_memory else []
    keys, is_stored = [(partition, "probe"), (partition, "probe2")], Condition(equals={"epoch": 1})
    steps: dict[str, Callable[[], object]] = {
        "put": lambda: table.put(item, when=ABSENT),
        "get": lambda: table.get(partition, "probe"),
        "batch_write": lambda: table.batch_write(puts=[other]),
        "batch_get": lambda: table.batch_get(keys),
        "query": lambda: list(table.query(partition)),
        "transact": lambda: table.transact([Write(item=item, when=is_stored), *checks]),
        "delete": lambda: table.delete(partition, "probe", when=is_stored),
        "batch delete": lambda: table.batch_write(deletes=keys),
    }
    return _check_calls(tier, steps)


_SLOTS = 16_384
_FULL = 0.9
_MEND = "redis-cli --cluster fix <node>, or restart the node that holds them"


def check_hot(store: HotStore, *, url: str, clock: Clock) -> Iterator[Finding]:
    """Check a hot store, such as Redis, and yield the result of each check.

    ``url`` is the URL of the store without the password.
    """
    if not isinstance(store, RedisHotStore):
        yield warning(
            "hot.shared",
            f"{url} is the memory of one process: other processes cannot read it, and it is lost"
            " when this one ends",
            "set MANGA_MEMORY_HOT_URL to a Redis or Valkey if more than one process serves users",
        )
        yield _check_hot_calls(store)
        return
    reached = _check_reachable(store, url)
    yield reached
    info = _read_info(store)
    if info is not None:
        yield from _check_cluster(info, store)
    if reached.remedy:
        return
    if info is None:
        yield warning(
            "hot.info",
            "the user may not run INFO: version, eviction, memory and persistence were not checked",
            "ACL SETUSER <user> +info, for this doctor only",
        )
    else:
        yield from _check_server(info)
    yield from _check_clock(store, clock)
    yield _check_hot_calls(store)


def unopened_store(error: ValueError | StoreError) -> Finding:
    """Return the check result for a hot store that could not be opened: a problem with a remedy."""
    if "not covered" in str(error):
        return problem("hot.cluster", f"some slots are not served: {error}", _MEND)
    return problem("hot.reach", str(error), _CONNECT)


def _check_reachable(store: RedisHotStore, url: str) -> Finding:
    try:
        store.get_value("doctor")
    except StoreError as error:
        return _failed_check("hot", error)
    return ok("hot.reach", f"{url} answers")


def _node_arguments(client: Any) -> dict[str, Any]:
    return {"target_nodes": client.get_random_node()} if isinstance(client, RedisCluster) else {}  # type: ignore[no-untyped-call]


def _read_info(store: RedisHotStore) -> Mapping[str, Any] | None:
    try:
        return cast("Mapping[str, Any]", store.client.info(**_node_arguments(store.client)))
    except RedisError:
        return None


def _check_server(info: Mapping[str, Any]) -> Iterator[Finding]:
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    text = str(info.get("valkey_version") or info.get("redis_version") or "0")
    if tuple(int(part) for part in text.split(".")[:2] if part.isdigit()) < (6, 2):
        yield problem(
            "hot.version", f"{name} {text} is too old", "upgrade to Redis 6.2 or any Valkey"
        )
    else:
        yield ok("hot.version", f"{name} {text}")
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy.startswith("allkeys"):
        yield problem(
            "hot.eviction",
            f"maxmemory-policy is {policy}: it also evicts the expiry indexes, which have no TTL,"
            " so conversations are never finalized",
            "CONFIG SET maxmemory-policy volatile-ttl (ElastiCache: in the parameter group), or"
            " noeviction",
        )
    else:
        yield ok("hot.eviction", f"maxmemory-policy is {policy}")
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        yield ok("hot.memory", f"{used / 2**20:,.1f} MB are used, no maxmemory is set")
    else:
        detail = f"{used / 2**20:,.1f} of {most / 2**20:,.1f} MB are used"
        remedy = "add memory or shards (see strands-manga-memory cost), or shorten the TTL"
        is_full = used > _FULL * most
        yield warning("hot.memory", detail, remedy) if is_full else ok("hot.memory", detail)
    replicas, aof = int(info.get("connected_slaves", 0)), int(info.get("aof_enabled", 0))
    if replicas or aof or info.get("role") == "slave" or int(info.get("rdb_saves", 0)) > 0:
        yield ok(
            "hot.persistence", f"{replicas} replicas, append-only file {'on' if aof else 'off'}"
        )
    else:
        yield warning(
            "hot.persistence",
            "the server has no replica, no append-only file and no snapshot: a restart loses the"
            " hot tier",
            "add a replica, or CONFIG SET appendonly yes; without them, at most flush_every turns"
            " of a conversation are lost",
        )


def _check_cluster(info: Mapping[str, Any], store: RedisHotStore) -> Iterator[Finding]:
    if not int(info.get("cluster_enabled", 0)):
        return
    client: Any = store.client
    if not isinstance(store.client, RedisCluster):
        yield problem(
            "hot.cluster",
            "the server is a node of a cluster, but the URL is for a single server",
            "use redis+cluster://",
        )
        return
    try:
        # Each node knows its own slots.
        answers = client.execute_command("CLUSTER INFO", target_nodes=client.get_primaries())
    except RedisError as error:
        yield warning(
            "hot.cluster", f"CLUSTER INFO was refused: {error}", "ACL SETUSER <user> +cluster"
        )
        return
    slots = min(int(answer.get("cluster_slots_ok", 0)) for answer in answers.values())
    if slots < _SLOTS:
        yield problem(
            "hot.cluster",
            f"{_SLOTS - slots:,} of {_SLOTS:,} slots are not served: the conversations in them"
            " cannot be read or written",
            _MEND,
        )
    else:
        yield ok(
            "hot.cluster",
            f"all {_SLOTS:,} slots are served by {len(client.get_primaries())} shards",
        )


def _check_clock(store: RedisHotStore, clock: Clock) -> Iterator[Finding]:
    client = store.client
    try:
        before = clock()
        seconds, microseconds = client.time(**_node_arguments(client))
    except RedisError:
        return  # _check_hot_calls reports a missing permission: scripts call TIME as well
    skew = int(seconds) + int(microseconds) / 1e6 - (before + clock()) / 2
    yield _compare_clocks("hot.clock", skew, "the hot tier")


def _check_hot_calls(store: HotStore) -> Finding:
    name = f"doctor:{uuid.uuid4().hex}:probe/A:probe"
    write = HotWrite(expect=None, epoch=1, version=1, fields={"window": b""}, ttl=0.001)
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: store.write(name, write),
        "load": lambda: store.load(name, [], touch=True),
        "expired": lambda: list(store.expired(limit=1)),
        "claim": lambda: store.claim(name, expired_only=False),
        "drop": lambda: store.drop(name, expect=(1, 1)),
        "put_value": lambda: store.put_value(name, b"", ttl=1.0),
        "replace_value": lambda: store.replace_value(name, b"", expect=b"", ttl=1.0),
        "get_value": lambda: store.get_value(name),
        "put_tombstone": lambda: store.put_tombstone(name, ttl=0.001),
    }
    return _check_calls("hot", steps)
