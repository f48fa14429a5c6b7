"""Stores from arguments that are a store or its URL, and the memory table that no argument names."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any, Literal, overload

from strands_manga_memory.arguments import with_method
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import SESSIONS, USER_MEMORY, Table, TableSchema
from strands_manga_memory.stores.urls import open_hot_store, open_table

MemoryTable = Table | Literal[False] | None
"""Memory table; False: there is none; None: it is not specified."""

_opened: weakref.WeakValueDictionary[tuple[str, ...], Any] = weakref.WeakValueDictionary()
"""Stores in use by their URL; a table also by the working directory, because its path may be relative, and its schema."""


@overload
def table_of(given: Table | str, schema: TableSchema = SESSIONS, *, name: str = "durable") -> Table: ...
@overload
def table_of(given: Table | str | None, schema: TableSchema = SESSIONS, *, name: str = "durable") -> Table | None: ...
def table_of(given: Table | str | None, schema: TableSchema = SESSIONS, *, name: str = "durable") -> Table | None:
    """Return a given table, or the table of a URL, created if it is missing.

    The same URL returns the same table while that is in use, so that all users share its health.

    Args:
        given: A table, a URL, or None.
        schema: Schema of a table that a URL names.
        name: Name of the argument, for errors.

    Raises:
        ValueError: The URL is invalid, or the argument is neither a table nor a URL.
        StoreUnavailableError: The store is unavailable.
    """
    if not isinstance(given, str):
        return given if given is None else with_method(name, given, "batch_get(keys)", "a Table or its URL")
    key = (os.getcwd(), given, schema.name)
    table: Table | None = _opened.get(key)
    if table is None:
        table = open_table(given, schema)
        table.create_if_missing()
        table = _opened.setdefault(key, table)
    return table


@overload
def hot_store_of(given: HotStore | str) -> HotStore: ...
@overload
def hot_store_of(given: HotStore | str | None) -> HotStore | None: ...
def hot_store_of(given: HotStore | str | None) -> HotStore | None:
    """Return a given hot store, or the hot store of a URL, which is shared while it is in use.

    Raises:
        ValueError: The URL is invalid, or the argument is neither a hot store nor a URL.
        StoreUnavailableError: No node of the cluster is available.
    """
    if not isinstance(given, str):
        return given if given is None else with_method("hot", given, "load(conversation)", "a HotStore or its URL")
    store: HotStore | None = _opened.get((given,))
    return store if store is not None else _opened.setdefault((given,), open_hot_store(given))


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
