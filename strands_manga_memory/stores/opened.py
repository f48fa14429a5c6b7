"""Stores from arguments that are a store or its URL."""

from __future__ import annotations

import os
import weakref
from typing import overload

from strands_manga_memory.arguments import with_method
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import SESSIONS, Table, TableSchema
from strands_manga_memory.stores.urls import open_hot_store, open_table

_tables: weakref.WeakValueDictionary[tuple[str, str, str], Table] = weakref.WeakValueDictionary()
_hot_stores: weakref.WeakValueDictionary[str, HotStore] = weakref.WeakValueDictionary()


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
    key = (os.getcwd(), given, schema.name)  # a path may be relative
    table = _tables.get(key)
    if table is None:
        table = open_table(given, schema)
        table.create_if_missing()
        table = _tables.setdefault(key, table)
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
    store = _hot_stores.get(given)
    return store if store is not None else _hot_stores.setdefault(given, open_hot_store(given))
