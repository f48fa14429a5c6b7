"""DynamoDB tables of other packages: message logs by key, and the values of a ``Storage``."""

from __future__ import annotations

import gzip
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.ops.importing.from_files import Bucket
from strands_manga_memory.ops.importing.message_log import Record, read_conversation
from strands_manga_memory.ops.importing.source import Content, Found, damaged, reading, unreadable

_SESSION, _AGENT, _MESSAGE, _ROOT = "SESSION#", "AGENT#", "MSG#", "META"
_ONE_SEGMENT = "\0"


class KeyValueTableSource:
    """Sessions of ``strands-session-dynamodb`` and ``strands-dynamodb-session-manager`` (layout of version 0.2.0 of both).

    The table is scanned, keys only, to find the sessions.

    Args:
        client: A boto3 client of DynamoDB.
        table: The table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def conversations(self) -> Iterator[Found]:
        """Yield what there is, sorted by session and agent."""
        _key_names(self._client, self._table, ("PK", "SK"))
        roots: set[str] = set()
        heads: set[tuple[str, str]] = set()
        messages: Counter[str] = Counter()
        for item in _scan(self._client, self._table, "PK", "SK"):
            partition, sort = item["PK"]["S"], item["SK"]["S"]
            session = partition.removeprefix(_SESSION)
            if sort == _ROOT:
                roots.add(session)
            elif sort.startswith(_AGENT):
                heads.add((session, sort.removeprefix(_AGENT)))
            elif sort.startswith(_MESSAGE):
                messages[partition] += 1
        partitions = Counter(_messages_of(*head) for head in heads)
        for session_id, agent_id in sorted(heads):
            partition = _messages_of(session_id, agent_id)
            if partitions[partition] > 1:
                what = "its messages are mixed with those of another session, whose ids make the same key"
                yield unreadable(session_id, agent_id, what, record=partition)
            else:
                read = partial(self._read, session_id, agent_id, has_root=session_id in roots)
                yield Found(session_id, agent_id, "agent", read)
        for partition in sorted(messages.keys() - partitions.keys()):
            session_id, _, agent_id = partition.removeprefix(_SESSION).rpartition(f"#{_AGENT}")
            what = f"its agent's record is gone; {messages[partition]} messages are left"
            yield unreadable(session_id, agent_id, what, record=partition)

    def _read(self, session_id: str, agent_id: str, *, has_root: bool) -> Content:
        name = f"{_SESSION}{session_id}/{_AGENT}{agent_id}"
        key = {"PK": {"S": f"{_SESSION}{session_id}"}, "SK": {"S": f"{_AGENT}{agent_id}"}}
        with reading(self._table, BotoCoreError, ClientError):
            head = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        if head is None:
            raise damaged(name, "it is gone")
        records = list(self._messages(_messages_of(session_id, agent_id)))
        last = max((int(record.number or 0) for record in records), default=-1)
        content = read_conversation(session_id, agent_id, _record(head, name), records, listed=range(last + 1))
        note = () if has_root else ("its session's record is gone in the source",)
        return Content(content.transferred, content.notes + note)

    def _messages(self, partition: str) -> Iterator[Record]:
        request = {
            "TableName": self._table,
            "KeyConditionExpression": "PK = :partition AND begins_with(SK, :message)",
            "ExpressionAttributeValues": {":partition": {"S": partition}, ":message": {"S": _MESSAGE}},
            "ConsistentRead": True,
        }
        with reading(self._table, BotoCoreError, ClientError):
            for page in self._client.get_paginator("query").paginate(**request):
                for item in page["Items"]:
                    sort = item["SK"]["S"]
                    number = sort.removeprefix(_MESSAGE)
                    if not number.isdecimal():
                        raise damaged(f"{partition}/{sort}", "its key is no message number")
                    yield _record(item, f"{partition}/{sort}", str(int(number)))


class StorageTable:
    """The values that a DynamoDB ``Storage`` keeps, as ``Blobs``.

    Knows the tables of ``strands-dynamodb-storage`` (AWS's own, layout of version 0.2.0) by their keys ``pk`` and ``sk``, and
    those of ``strands-storage-dynamodb`` (layout of version 0.2.1) by ``PK`` and ``SK``. What has expired is not there.

    Args:
        client: A boto3 client of DynamoDB.
        table: The table's name.
        prefix: The storage's ``prefix``.
        offloaded: Where AWS's package puts values over 380 KB, if it does: ``s3_bucket`` and ``s3_prefix`` of the storage.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        prefix: str = "",
        offloaded: Bucket | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._table = table
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._offloaded = offloaded
        self._clock = clock
        self._keys: dict[str, dict[str, Any]] = {}

    def names(self) -> Iterator[str]:
        """Yield the keys below the prefix."""
        partition, sort = _key_names(self._client, self._table, ("pk", "sk"), ("PK", "SK"))
        for item in _scan(self._client, self._table, partition, sort, "k", "expireAt"):
            if partition == "PK":
                key = item["SK"]["S"]
            else:
                rest = item["sk"]["S"]
                key = item["k"]["S"] if "k" in item else item["pk"]["S"] + ("" if rest == _ONE_SEGMENT else f"/{rest}")
            if key.startswith(self._prefix) and not self._is_over(item):
                key = key.removeprefix(self._prefix)
                self._keys[key] = {partition: item[partition], sort: item[sort]}
                yield key

    def read(self, key: str) -> bytes:
        """Return a value that ``names`` yielded."""
        with reading(self._table, BotoCoreError, ClientError):
            item = self._client.get_item(TableName=self._table, Key=self._keys[key], ConsistentRead=True).get("Item", {})
        if item.get("s3", {}).get("BOOL"):
            if self._offloaded is None:
                raise damaged(key, "its value is in S3: name the bucket that the storage uses")
            data = self._offloaded.read(self._prefix + key)
        elif "B" in item.get("data", {}):
            data = bytes(item["data"]["B"])
        else:
            raise damaged(key, "it has no value")
        try:
            return gzip.decompress(data) if item.get("z", {}).get("BOOL") else data
        except (OSError, EOFError, zlib.error) as error:
            raise damaged(key, error) from error

    def _is_over(self, item: dict[str, Any]) -> bool:
        try:
            return float(item["expireAt"]["N"]) <= self._clock()
        except (KeyError, ValueError):
            return False


def _messages_of(session_id: str, agent_id: str) -> str:
    return f"{_SESSION}{session_id}#{_AGENT}{agent_id}"


def _key_names(client: Any, table: str, *allowed: tuple[str, str]) -> tuple[str, str]:
    """Return the names of a table's partition and sort key; raise ``ValueError`` if they are not ``allowed``, and strings."""
    with reading(table, BotoCoreError, ClientError):
        made = client.describe_table(TableName=table)["Table"]
    types = {entry["AttributeName"]: entry["AttributeType"] for entry in made["AttributeDefinitions"]}
    names = {entry["KeyType"]: entry["AttributeName"] for entry in made["KeySchema"]}
    found = names["HASH"], names.get("RANGE", "")
    if found not in allowed or {types[name] for name in found} != {"S"}:
        raise ValueError(f"table {table!r:.80} has the keys {found}, a table of this kind has {' or '.join(map(str, allowed))}")
    return found


def _record(item: dict[str, Any], name: str, number: str | None = None) -> Record:
    if "S" not in item.get("data", {}):
        raise damaged(name, "it has no data")
    return Record(name, item["data"]["S"], number)


def _scan(client: Any, table: str, *attributes: str) -> Iterator[dict[str, Any]]:
    names = {f"#{number}": attribute for number, attribute in enumerate(attributes)}
    with reading(table, BotoCoreError, ClientError):
        pages = client.get_paginator("scan").paginate(
            TableName=table, ProjectionExpression=", ".join(names), ExpressionAttributeNames=names, ConsistentRead=True
        )
        for page in pages:
            yield from page["Items"]
