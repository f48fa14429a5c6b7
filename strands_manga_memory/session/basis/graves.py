"""Graves of whole sessions and users: each is a record that ends every conversation there was when it was dug."""

from __future__ import annotations

import math

from strands_manga_memory.session.core.identity import new_grave
from strands_manga_memory.stores.hot import DELETED
from strands_manga_memory.stores.table import Key, Table

GRAVE = "#GRAVE"
"""Sort value of such a record, in the partition of a session, or in that of a user's directory."""


def grave_key(partition: str) -> Key:
    """Return the key of the grave of a session, or of the user whose directory has this partition value."""
    return partition, GRAVE


def dig(table: Table, partition: str, *, until: float) -> str:
    """End every conversation of a session or user, also those that no store lists yet.

    A conversation looks for it before its first head is put, and with every head that is read. So it is dug before the listed
    conversations are looked for.

    Args:
        table: The durable tier.
        partition: The session, or the directory of the user.
        until: When it may go, in seconds since 1970.

    Returns:
        The grave, which the listed conversations get as well.

    Raises:
        StoreUnavailableError: The table does not answer.
    """
    grave = new_grave()
    names = dict(zip((table.schema.partition, table.schema.sort), grave_key(partition), strict=True))
    table.put({**names, "graves": [grave], "state": DELETED, table.schema.ttl: math.ceil(until)})
    return grave
