"""memory_table: where a user's memories are if nobody named their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.stores.table import USER_MEMORY, Table

MemoryTable = Table | Literal[False] | None
"""The memory table; False: there is none; None: nobody said."""


def memory_table(memories: MemoryTable, durable: Table) -> tuple[Table | None, list[str]]:
    """Return the memory table to look at, if there is one, and the places that could not be looked at.

    If nobody named it, it is looked for beside the durable tier, where ``MangaMemory.open(memories=True)`` makes it: in the
    same file, or under its usual name in the same service.

    Args:
        memories: The table that was named.
        durable: The durable tier.

    Raises:
        StoreUnavailableError: The place beside the durable tier does not answer.
    """
    if memories is False:
        return None, []
    if memories is not None:
        return memories, []
    found, is_sure = _beside(getattr(durable, "observes", durable))
    if found is None:
        return None, ["memories: no memory table is named, and the durable tier does not say what is beside it"]
    try:
        found.get("nobody", "nothing")
    except StoreRefusedError as error:
        if error.reason != "table":
            return None, [f"memories: {found!r} beside the durable tier cannot be read, reason: {error.reason}"]
    else:
        return found, []
    if is_sure:
        return None, []
    return None, [f"memories: no memory table is named, and there is no {found!r} beside the durable tier"]


def _beside(durable: Any) -> tuple[Table | None, bool]:
    """Return the memory table that may be beside the durable tier, and whether there is no other if it is not."""
    if isinstance(path := getattr(durable, "path", None), Path):
        from strands_manga_memory.stores.embedded.sqlite import SQLiteTable

        return SQLiteTable(path, USER_MEMORY), True
    if isinstance(conninfo := getattr(durable, "conninfo", None), str):
        from strands_manga_memory.stores.postgres.postgres_table import PostgresTable

        return PostgresTable(conninfo, USER_MEMORY), True
    if (client := getattr(durable, "client", None)) is not None:
        from strands_manga_memory.stores.aws.dynamodb import DynamoDBTable

        # Whoever gave one table a name of its own will have given the other one, too.
        return DynamoDBTable(client, USER_MEMORY), durable.name == durable.schema.name
    return None, False
