"""open_source: the source that a kind and a URL name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

import boto3
import redis
from botocore.exceptions import BotoCoreError
from redis.cluster import RedisCluster

from strands_manga_memory.ops.importing.from_dynamodb import KeyValueTableSource, StorageTable
from strands_manga_memory.ops.importing.from_files import Blobs, Bucket, Folder, MessageFilesSource
from strands_manga_memory.ops.importing.from_redis import NAMESPACE, RedisSource
from strands_manga_memory.ops.importing.from_snapshots import SnapshotSource
from strands_manga_memory.ops.importing.from_valkey import ValkeySource
from strands_manga_memory.ops.importing.source import SessionSource, reading
from strands_manga_memory.stores.urls import without_password

KINDS = {
    "file": "FileSessionManager (a folder), S3SessionManager (s3://bucket/prefix)",
    "snapshot": "SnapshotSessionManager: a folder, s3://bucket/prefix, or a storage's table (dynamodb://table)",
    "redis": "strands-redis-session-manager (redis://host/db?namespace=)",
    "valkey": "strands-valkey-session-manager (redis://host/db)",
    "dynamodb": "strands-session-dynamodb, strands-dynamodb-session-manager (dynamodb://table)",
}
"""What can be read, by kind."""


def open_source(kind: str, url: str) -> SessionSource:
    """Return the source that a URL names.

    Args:
        kind: One of ``KINDS``.
        url: A folder; ``s3://bucket/prefix?region=&endpoint=``; ``redis://``, ``rediss://`` or ``redis+cluster://host:port/db``,
            with ``namespace=`` for ``redis``; ``dynamodb://table?region=&endpoint=``, for ``snapshot`` also with the storage's
            ``prefix=``, ``s3_bucket=`` and ``s3_prefix=``.

    Raises:
        ValueError: There is no such kind, the URL does not suit it, or the folder does not exist.
        StoreUnavailableError: A cluster, whose shape is read here, does not answer.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r:.200}")
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if kind in ("file", "snapshot") and "://" not in url:
        return _files(kind)(Folder(url))
    if kind in ("file", "snapshot") and parts.scheme == "s3":
        client = _client("s3", _only(url, query, "region", "endpoint"))
        return _files(kind)(Bucket(client, parts.netloc, parts.path))
    if kind in ("redis", "valkey") and parts.scheme in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
        return _redis(kind, url, parts, query)
    if kind == "dynamodb" and parts.scheme == "dynamodb":
        return KeyValueTableSource(_client("dynamodb", _only(url, query, "region", "endpoint")), parts.netloc)
    if kind == "snapshot" and parts.scheme == "dynamodb":
        return SnapshotSource(
            _storage(parts.netloc, _only(url, query, "region", "endpoint", "prefix", "s3_bucket", "s3_prefix"))
        )
    raise ValueError(f"{without_password(url)!r:.200} does not suit kind {kind!r:.200}: {KINDS[kind]}")


def _files(kind: str) -> Callable[[Blobs], SessionSource]:
    return MessageFilesSource if kind == "file" else SnapshotSource


def _only(url: str, query: dict[str, str], *names: str) -> dict[str, str]:
    if unknown := sorted(query.keys() - {*names}):
        raise ValueError(f"{without_password(url)!r:.200}: unknown arguments {unknown}, it takes {', '.join(names)}")
    return query


def _client(service: str, query: dict[str, str]) -> Any:
    region, endpoint = query.get("region"), query.get("endpoint")
    try:
        return boto3.client(service, region_name=region, endpoint_url=endpoint)  # type: ignore[call-overload]
    except BotoCoreError as error:
        raise ValueError(
            f"{service} cannot be used with region={region!r:.200}, endpoint={endpoint!r:.200}: {error}"
        ) from error


def _storage(table: str, query: dict[str, str]) -> StorageTable:
    bucket = query.get("s3_bucket")
    offloaded = Bucket(_client("s3", query), bucket, query.get("s3_prefix", "")) if bucket else None
    return StorageTable(_client("dynamodb", query), table, prefix=query.get("prefix", ""), offloaded=offloaded)


def _redis(kind: str, url: str, parts: SplitResult, query: dict[str, str]) -> SessionSource:
    allowed = _only(url, query, *(["namespace"] if kind == "redis" else []))
    scheme, _, cluster = parts.scheme.partition("+")
    address = urlunsplit((scheme, parts.netloc, parts.path, "", ""))
    with reading(without_password(address), redis.RedisError):
        client: Any = RedisCluster.from_url(address) if cluster else redis.Redis.from_url(address)
    return RedisSource(client, allowed.get("namespace", NAMESPACE)) if kind == "redis" else ValkeySource(client)
