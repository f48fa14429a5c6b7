"""Location of a user-memory table that is not set explicitly."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.stores.table import USER_MEMORY, Table

MemoryTable = Table | Literal[False] | None
"""Memory table; False: there is none; None: it is not specified."""


def memory_table(memories: MemoryTable, durable: Table) -> tuple[Table | None, list[str]]:
    """Return the memory table, if there is one, and notes on locations that could not be checked.

    An unspecified table is searched next to the durable tier, where ``MangaMemory.open(memories=True)`` creates it: in the
    same file, or under its default name in the same service.

    Args:
        memories: The specified table.
        durable: The durable tier.

    Raises:
        StoreUnavailableError: The location next to the durable tier is unavailable.
    """
    if memories is False:
        return None, []
    if memories is not None:
        return memories, []
    found, is_sure = _neighbor(getattr(durable, "observes", durable))
    if found is None:
        return None, ["memories: no memory table is set, and it cannot be searched next to this durable tier"]
    try:
        found.get("nobody", "nothing")
    except StoreRefusedError as error:
        if error.reason != "table":
            return None, [f"memories: {found!r} next to the durable tier cannot be read, reason: {error.reason}"]
    else:
        return found, []
    if is_sure:
        return None, []
    return None, [f"memories: no memory table is set, and there is no {found!r} next to the durable tier"]


def _neighbor(durable: Any) -> tuple[Table | None, bool]:
    """Return the possible memory table next to the durable tier, and whether a missing one rules out others."""
    if isinstance(path := getattr(durable, "path", None), Path):
        from strands_manga_memory.stores.embedded.sqlite import SQLiteTable

        return SQLiteTable(path, USER_MEMORY), True
    if isinstance(conninfo := getattr(durable, "conninfo", None), str):
        from strands_manga_memory.stores.postgres.postgres_table import PostgresTable

        return PostgresTable(conninfo, USER_MEMORY), True
    if (client := getattr(durable, "client", None)) is not None:
        from strands_manga_memory.stores.aws.dynamodb import DynamoDBTable

        # If the durable table has a custom name, the memory table may have one, too.
        return DynamoDBTable(client, USER_MEMORY), durable.name == durable.schema.name
    return None, False
