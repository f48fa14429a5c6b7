"""table_of and hot_store_of: what stands for a store, the store itself or its URL."""

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
    """Return the table that was given, or the one a URL names, created if it is missing.

    A URL gives the same table as long as that is in use, so that all who name it share what they know of its health.

    Args:
        given: A table, a URL, or None.
        schema: Names of a table that a URL names.
        name: What the argument is called.

    Raises:
        ValueError: The URL is not understood, or it is neither.
        StoreUnavailableError: The store does not answer.
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
    """Return the hot store that was given, or the one a URL names: the same as long as that is in use.

    Raises:
        ValueError: The URL is not understood, or it is neither.
        StoreUnavailableError: No node of the cluster answers.
    """
    if not isinstance(given, str):
        return given if given is None else with_method("hot", given, "load(conversation)", "a HotStore or its URL")
    store = _hot_stores.get(given)
    return store if store is not None else _hot_stores.setdefault(given, open_hot_store(given))
