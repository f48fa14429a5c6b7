"""Opens the stores of a process, and ends their background work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strands_manga_memory.stores import USER_MEMORY, HotStore, Table, open_hot_store, open_table
from strands_manga_memory.stores.opened import hot_store_of, table_of
from strands_manga_memory.stores.urls import users_table_url, without_password
from strands_manga_memory.stores.writer import shared_writer

if TYPE_CHECKING:  # the module loads the language packs, which takes longer than the rest of the package
    from strands_manga_memory.memory import PreferenceOutbox

_DRAIN_SECONDS = 5.0


def open_stores(
    hot: str | HotStore,
    durable: str | Table,
    memories: str | Table | bool | None,  # noqa: FBT001 - as MangaMemory takes it
) -> tuple[dict[str, Any], dict[str, str]]:
    """Open the stores that the arguments of ``MangaMemory`` name.

    Returns:
        Two dicts, keyed by argument: the stores (None for no memory table), and the URL without password or the class name of
        each store.

    Raises:
        ValueError: An argument is neither a store nor a URL, or ``memories`` is True and ``durable`` is not a URL.
    """
    if memories is True:
        if not isinstance(durable, str):
            raise ValueError("memories must be a URL or a table where durable is a table, got True")
        memories = users_table_url("true", durable)
    users = None if memories is False else memories
    stores = {
        "hot": hot_store_of(open_hot_store(hot) if isinstance(hot, str) else hot),
        "durable": table_of(open_table(durable) if isinstance(durable, str) else durable),
        "memories": table_of(open_table(users, USER_MEMORY) if isinstance(users, str) else users, name="memories"),
    }
    given = {"hot": hot, "durable": durable, "memories": users}
    names = {
        tier: without_password(store) if isinstance(store, str) else type(store).__name__
        for tier, store in given.items()
        if store is not None
    }
    return stores, names


def close_memories(hot: HotStore, memories: Table, outbox: PreferenceOutbox | None) -> bool:
    """Write pending changes of user memories to the stores, for up to 5 seconds per store, and close the memory table.

    Returns:
        Whether the memory table has all changes. It may still contain preferences for another service, which are sent later.
    """
    shared_writer(hot, None).drain(_DRAIN_SECONDS)
    is_stored = shared_writer(None, memories).drain(_DRAIN_SECONDS) or (outbox is not None and not outbox.has_unstored)
    memories.close()
    return is_stored
