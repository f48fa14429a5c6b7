"""reencrypt_user: what is stored of one user, encrypted anew with the present key."""

from __future__ import annotations

import time
from collections.abc import Callable

from strands_manga_memory.memory.records.memory_records import Owner
from strands_manga_memory.memory.records.partition import UserPartition
from strands_manga_memory.session.basis.place import Place, member_ids
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.siblings import MemoryTable, memory_table
from strands_manga_memory.stores.storage.tiered_storage import TieredStorage
from strands_manga_memory.stores.table import Table
from strands_manga_memory.user_data.erasure import sessions_of


def reencrypt_user(
    user_id: str,
    *,
    tenant: str | None = None,
    durable: Table,
    memories: MemoryTable,
    codec: Codec,
    clock: Callable[[], float] = time.time,
    progress: Callable[[str], object] = lambda name: None,
) -> dict[str, int]:
    """Read every session and memory of a user, and write it with the codec's present key; return how many records of each.

    After a rotation new values have the new key, and old ones are read with the old key. This is for whoever wants to give
    the old key up. It runs beside the user's agents, and may be called again. What the hot tier has is not touched: it has the
    new key once it was saved anew, at the latest when its time to live is over.

    Args:
        user_id: The user.
        tenant: The tenant; None is a tenant of its own.
        durable: The durable tier.
        memories: The memory table; False: there is none; None: the one beside the durable tier, if there is one.
        codec: The codec of sessions and memories; it has the old key and the new one.
        clock: Seconds since 1970.
        progress: Called with the storage id of each session that is done.

    Raises:
        ValueError: An id is not allowed, or the memory table is not named and cannot be found: False says that there is none.
        CorruptRecordError: A record cannot be read; nothing is written over it.
        ConflictError: Someone else keeps changing a record; call it again.
        StoreUnavailableError: A table does not answer; call it again.
    """
    owner = Owner(user_id, tenant)
    table, not_looked_at = memory_table(memories, durable)
    if not_looked_at:
        raise ValueError("; ".join(not_looked_at))
    counts = {"sessions": 0, "records": 0, "memories": 0, "stored_values": 0}
    for scope in list(sessions_of(durable, owner)):
        session = scope.storage_session_id
        for kind, agent_id in list(member_ids(durable, session)):
            place = Place.of(session, kind, agent_id)
            counts["records"] += DurableReplica(durable, place.session, place.member, codec=codec).reseal()
        counts["sessions"] += 1
        progress(session)
    counts["stored_values"] = TieredStorage(durable=durable, user_id=user_id, tenant=tenant, codec=codec, clock=clock).reseal()
    if table is not None:
        counts["memories"] = UserPartition(table, owner, codec=codec, clock=clock).reseal()
    return counts
