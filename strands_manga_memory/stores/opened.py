"""Opening of stores that are given as objects or URLs, and search for the table of user memories."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any, Literal

from strands_manga_memory.arguments import with_method
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import SESSIONS, USER_MEMORY, Table, TableSchema
from strands_manga_memory.stores.urls import open_hot_store, open_table

MemoryTable = Table | Literal[False] | None
"""Memory table; False: there is none; None: it is not specified."""

_opened: weakref.WeakValueDictionary[tuple[str, ...], Any] = weakref.WeakValueDictionary()
"""Stores in use, by URL. The key of a table also has its schema, and the working directory because paths may be relative."""


def table_of(given: Table | str | None, schema: TableSchema = SESSIONS, *, name: str = "durable") -> Any:
    """Return the given table, or open the table that a URL names.

    A missing table is created. While a table is in use, the same URL returns the same object. All callers therefore share its
    connections and its record of outages.

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


def hot_store_of(given: HotStore | str | None) -> Any:
    """Return the given hot store, or open the hot store that a URL names.

    While a store is in use, the same URL returns the same object.

    Raises:
        ValueError: The URL is invalid, or the argument is neither a hot store nor a URL.
        StoreUnavailableError: The URL names a Redis cluster, and none of its nodes is available.
    """
    if not isinstance(given, str):
        return given if given is None else with_method("hot", given, "load(conversation)", "a HotStore or its URL")
    store: HotStore | None = _opened.get((given,))
    return store if store is not None else _opened.setdefault((given,), open_hot_store(given))


def memory_table(memories: MemoryTable, durable: Table) -> tuple[Table | None, list[str]]:
    """Return the table of user memories, and a list of reasons why an existing table may have been missed.

    If no table is given, the default table in the file or service of the durable tier is used. This is the table that
    ``MangaMemory.open(memories=True)`` creates. A table with another name is not found.

    Args:
        memories: The table. False: there is no table. None: search for the default table.
        durable: The durable tier.

    Returns:
        The table, or None if there is none or none was found; and the list, which is empty if no table can have been missed.

    Raises:
        StoreUnavailableError: The file or service of the durable tier is unavailable.
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
    """Return the default table of user memories in the file or service of the durable tier, and whether its name is certain.

    The table may not exist. The name is uncertain if the durable tier is a DynamoDB table with a custom name. For a durable
    tier of an unknown type, return None and False.
    """
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
