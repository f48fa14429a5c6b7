"""Stores of the cases: embedded ones, and a real Valkey with a DynamoDB server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strands_manga_memory import (
    SESSIONS,
    USER_MEMORY,
    DynamoDBTable,
    MangaMemory,
    RedisHotStore,
    SQLiteTable,
)
from tests import servers
from tests.faults.hostile.sessions import Open


def embedded(path: Path) -> Open:
    """Return what opens SQLite tables, with a hot tier of each process's own."""
    return lambda: MangaMemory.open(
        "memory://", SQLiteTable(path), memories=SQLiteTable(path, USER_MEMORY)
    )


@contextmanager
def served() -> Iterator[Open]:
    """Start a Valkey and a server of the DynamoDB API; yield what opens them."""
    with servers.valkey() as valkey, servers.dynamodb() as dynamodb:
        yield opened(valkey, dynamodb)


def opened(valkey: Any, dynamodb: Any, *, prefix: str = "hostile") -> Open:
    """Return what opens these servers."""

    def open_() -> MangaMemory:
        client = dynamodb.client()
        tables = [
            DynamoDBTable(client, schema, name=f"{prefix}{number}", deadline=10)
            for number, schema in enumerate((SESSIONS, USER_MEMORY))
        ]
        for table in tables:
            table.create_if_missing()
        hot = RedisHotStore(valkey.client(), prefix=prefix, deadline=5)
        return MangaMemory.open(
            hot, tables[0], memories=tables[1], create_tables=False, hot_deadline=10.0
        )

    return open_
