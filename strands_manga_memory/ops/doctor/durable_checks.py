"""Checks that the sessions table or the memory table, in DynamoDB, PostgreSQL or SQLite, works."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.exceptions import CorruptRecordError, StoreError
from strands_manga_memory.ops.doctor.finding import Finding, clock_finding, first_failure, ok, problem, warning
from strands_manga_memory.ops.provisioning import SESSION_ACTIONS
from strands_manga_memory.stores.aws.dynamodb import DynamoDBTable
from strands_manga_memory.stores.aws.dynamodb_requests import translated
from strands_manga_memory.stores.aws.dynamodb_values import table_definition
from strands_manga_memory.stores.embedded.sqlite import SQLiteTable
from strands_manga_memory.stores.table import ABSENT, Condition, Table, Write

_CREATE = "strands-manga-memory init-table"
_ACTIONS = ", ".join(f"dynamodb:{name}" for name in (*SESSION_ACTIONS, "DescribeTable", "DescribeTimeToLive"))


def check_durable(table: Table, *, tier: str, clock: Callable[[], float]) -> Iterator[Finding]:
    """Check a table of a deployment, and yield the results of the checks.

    Args:
        table: Table to check.
        tier: Prefix for the names of the checks: ``durable`` for the durable tier, ``users`` for the memory table.
        clock: Function that returns seconds since 1970.
    """
    if isinstance(table, DynamoDBTable):
        try:
            described = table.client.describe_table(TableName=table.name)
        except (ClientError, BotoCoreError) as error:
            yield _failure(table, tier, translated(error, f"table=<{table.name}>"))
            return
        yield ok(f"{tier}.reach", f"the table {table.name!r} answers")
        yield from _shape(table, described["Table"], tier)
        yield from _regions(table, described["Table"], tier)
        yield _ttl(table, tier)
        skew = _skew(described, clock)
        if skew is not None:
            yield clock_finding(f"{tier}.clock", skew, "DynamoDB")
    yield _calls(table, tier)
    if isinstance(table, SQLiteTable):
        yield from _damage(table, tier)


_CHECKS = {"authentication": "auth", "table": "table", "permission": "permission", "read-only": "permission"}
"""Names of checks, keyed by the reason for which a table refused a call."""

_REMEDIES = {
    "auth": "aws sts get-caller-identity; renew them",
    "table": f"{_CREATE} (or --print for CloudFormation)",
    "permission": f"allow on the table: {_ACTIONS}; strands-manga-memory permissions",
    "reach": "check region, endpoint, VPC endpoint and security group",
}
"""Remedies for DynamoDB, keyed by the name of the check."""


def _failure(table: Table, tier: str, error: StoreError, step: str = "") -> Finding:
    """Return the finding (result of a check) for a failed call of a table, with a remedy."""
    if isinstance(error, CorruptRecordError):
        return problem(f"{tier}.schema", f"{step}{error}", "upgrade this package")
    check = _CHECKS.get(getattr(error, "reason", ""), "reach")
    remedy = _REMEDIES.get(check, "") if isinstance(table, DynamoDBTable) else getattr(error, "remedy", "")
    return problem(f"{tier}.{check}", f"{step}{error}", remedy or "is the table throttled, or the file locked? try again")


def _shape(table: DynamoDBTable, there: Mapping[str, Any], tier: str) -> Iterator[Finding]:
    """Compare the keys and indexes of a DynamoDB table with the keys and indexes that this package needs."""
    wanted = table_definition(table.schema, table.name)
    types = {entry["AttributeName"]: entry["AttributeType"] for entry in there["AttributeDefinitions"]}
    want_types = {entry["AttributeName"]: entry["AttributeType"] for entry in wanted["AttributeDefinitions"]}

    def keys(schema: Any, kinds: Mapping[str, str]) -> list[str]:
        return [f"{entry['AttributeName']} ({kinds.get(entry['AttributeName'])}, {entry['KeyType']})" for entry in schema]

    have, want = keys(there["KeySchema"], types), keys(wanted["KeySchema"], want_types)
    if have != want:
        yield problem(
            f"{tier}.schema",
            f"the keys of {table.name!r} are {', '.join(have)}, not {', '.join(want)}",
            f"name another table in the URL and run {_CREATE}: the keys of a table cannot be changed",
        )
    else:
        yield ok(f"{tier}.schema", f"keys are {', '.join(have)}")
    indexes = {index["IndexName"]: index for index in there.get("GlobalSecondaryIndexes", ())}
    for index in wanted.get("GlobalSecondaryIndexes", ()):
        name = index["IndexName"]
        if name not in indexes:
            yield problem(
                f"{tier}.index",
                f"the index {name!r} is missing",
                f"aws dynamodb update-table --table-name {table.name} (the index as in {_CREATE} --print)",
            )
        elif keys(indexes[name]["KeySchema"], types) != keys(index["KeySchema"], want_types):
            yield problem(
                f"{tier}.index", f"the index {name!r} has other keys", f"delete it and create it as in {_CREATE} --print"
            )
        else:
            yield ok(f"{tier}.index", f"the index {name!r} exists")


def _regions(table: DynamoDBTable, there: Mapping[str, Any], tier: str) -> Iterator[Finding]:
    """Warn of a global table in which concurrent writes of two regions can be lost."""
    regions = sorted(str(replica.get("RegionName")) for replica in there.get("Replicas", ()))
    if regions and there.get("MultiRegionConsistency") != "STRONG":
        yield warning(
            f"{tier}.regions",
            f"{table.name!r} is a global table with replicas in {', '.join(regions)}: if two regions write one "
            "conversation concurrently, the last write wins and the other is lost without an error",
            "write in one region, in others only after a failover; or use multi-region strong consistency",
        )


def _ttl(table: DynamoDBTable, tier: str) -> Finding:
    attribute = table.schema.ttl
    try:
        found = table.client.describe_time_to_live(TableName=table.name)["TimeToLiveDescription"]
    except (ClientError, BotoCoreError) as error:
        return warning(f"{tier}.ttl", f"the TTL setting cannot be read: {error}", "allow dynamodb:DescribeTimeToLive")
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


def _skew(described: Mapping[str, Any], clock: Callable[[], float]) -> float | None:
    """Return the seconds by which DynamoDB's clock is ahead of ``clock``. None if the response has no ``date`` header."""
    date = described.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if date is None:
        return None
    skew = parsedate_to_datetime(date).timestamp() + 0.5 - clock()  # the header has whole seconds
    return 0.0 if abs(skew) < 1.5 else skew


def _damage(table: SQLiteTable, tier: str) -> Iterator[Finding]:
    """Check that a SQLite file is not damaged."""
    if not table.path.exists():
        return
    try:
        with closing(sqlite3.connect(f"file:{table.path}?mode=ro", uri=True, timeout=1.0)) as connection:
            [[state]] = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error:
        return  # reported by _calls
    if state == "ok":
        yield ok(f"{tier}.schema", "the file is intact")
    else:
        yield problem(f"{tier}.schema", f"the file is damaged: {state}", "restore it from a backup; sqlite3 FILE .recover")


def _calls(table: Table, tier: str) -> Finding:
    """Check each method of a table that this package uses, with temporary records."""
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
    if (failure := first_failure(steps)) is not None:
        return _failure(table, tier, failure[1], f"{failure[0]}: ")
    return ok(f"{tier}.permission", f"{len(steps)} kinds of calls are allowed")
