"""Stores for conversations and user memories, and functions that open a store from a URL.

A ``HotStore`` keeps the conversations in use, for example in Redis. A ``Table`` keeps data
permanently, for example in DynamoDB, PostgreSQL or a SQLite file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands_manga_memory.lazy_imports import lazy_names
from strands_manga_memory.stores.cipher import (
    AesGcmCipher,
    DataKey,
    KeyProvider,
    TenantCipher,
    TenantKeys,
)
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import (
    HotRecord,
    HotStore,
    HotWrite,
    InMemoryHotStore,
)
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
    from strands_manga_memory.stores.dynamodb import DynamoDBTable
    from strands_manga_memory.stores.postgres import PostgresTable
    from strands_manga_memory.stores.redis_hot_store import RedisHotStore
    from strands_manga_memory.stores.sqlite import SQLiteTable
    from strands_manga_memory.stores.tiered_storage import TieredStorage

_NAMES = {
    "dynamodb": "DynamoDBTable",
    "sqlite": "SQLiteTable",
    "postgres": "PostgresTable",
    "redis_hot_store": "RedisHotStore",
    "tiered_storage": "TieredStorage",
}
"""Modules of the adapters, imported at first use because each imports its driver."""

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
    "PostgresTable",
    "RedisHotStore",
    "SQLiteTable",
    "Table",
    "TableSchema",
    "TenantCipher",
    "TenantKeys",
    "TieredStorage",
    "Write",
    "open_hot_store",
    "open_table",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
