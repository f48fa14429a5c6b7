"""Ports and adapters for storage: ``Table`` and ``HotStore``, what implements them, and how to open them from a URL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strands_manga_memory.stores.embedded.in_memory import InMemoryHotStore
from strands_manga_memory.stores.encoding.cipher import AesGcmCipher, TenantCipher
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.encoding.keys import DataKey, KeyProvider, TenantKeys
from strands_manga_memory.stores.hot import HotRecord, HotStore, HotWrite, WriteResult, WriteStatus
from strands_manga_memory.stores.table import (
    ABSENT,
    SESSIONS,
    USER_MEMORY,
    Condition,
    Index,
    Item,
    Table,
    TableSchema,
    Write,
)
from strands_manga_memory.stores.urls import open_hot_store, open_table

if TYPE_CHECKING:
    from strands_manga_memory.stores.aws.dynamodb import DynamoDBTable
    from strands_manga_memory.stores.aws.kms import KmsKeys
    from strands_manga_memory.stores.aws.s3 import S3Objects
    from strands_manga_memory.stores.embedded.sqlite import SQLiteTable
    from strands_manga_memory.stores.postgres.postgres_table import PostgresTable
    from strands_manga_memory.stores.redis.redis_hot_store import RedisHotStore
    from strands_manga_memory.stores.storage.tiered_storage import TieredStorage

__all__ = [
    "ABSENT",
    "SESSIONS",
    "USER_MEMORY",
    "AesGcmCipher",
    "Codec",
    "Condition",
    "DataKey",
    "DynamoDBTable",
    "HotRecord",
    "HotStore",
    "HotWrite",
    "InMemoryHotStore",
    "Index",
    "Item",
    "KeyProvider",
    "KmsKeys",
    "PostgresTable",
    "RedisHotStore",
    "S3Objects",
    "SQLiteTable",
    "Table",
    "TableSchema",
    "TenantCipher",
    "TenantKeys",
    "TieredStorage",
    "Write",
    "WriteResult",
    "WriteStatus",
    "open_hot_store",
    "open_table",
]

# Imported on first use, so that nobody pays for a driver he does not use.
_ADAPTERS = {
    "DynamoDBTable": "aws.dynamodb",
    "KmsKeys": "aws.kms",
    "PostgresTable": "postgres.postgres_table",
    "RedisHotStore": "redis.redis_hot_store",
    "S3Objects": "aws.s3",
    "SQLiteTable": "embedded.sqlite",
    "TieredStorage": "storage.tiered_storage",
}


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return getattr(import_module(f"{__name__}.{_ADAPTERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
