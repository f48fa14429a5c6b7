"""Directory: the sessions of a user, as the durable tier lists them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.basis.place import GRAVE, directory_entry, directory_key
from strands_manga_memory.session.replicas.durable import HOT
from strands_manga_memory.stores.hot import DELETED, HotStore
from strands_manga_memory.stores.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """A session that is listed; it ``waits`` if it was deleted without the hot tier, which may still have a copy."""

    scope: ConversationScope
    waits: bool


def listings(table: Table, user_id: str, tenant: str | None) -> tuple[list[Listing], list[str]]:
    """Return the sessions of a user, and the names of entries that do not say which session they list."""
    key = directory_key("", {"user": user_id, "tenant": tenant})
    assert key is not None  # noqa: S101 - there is a user
    found: list[Listing] = []
    unreadable: list[str] = []
    for row in table.query(key[0]):
        if row["sk"] == GRAVE:
            continue
        with suppress(ValueError):  # its own ids may be damaged: that it is where this user's session is says whose it is
            scope = ConversationScope(user_id, row.get("session"), tenant=tenant)  # type: ignore[arg-type]
            if scope.storage_session_id == row["sk"]:
                found.append(Listing(scope, row.get("state") == DELETED))
                continue
        unreadable.append(f"{key[0]}/{row['sk']}")
        logger.warning("an entry of a directory makes no sense, it is left")
        logger.debug("record=<%s> | an entry of a directory makes no sense", unreadable[-1])
    return found, unreadable


def unlist(table: Table, session: str, ids: Mapping[str, Any], *, waits_until: float | None) -> None:
    """Have a deleted session listed no more, or as one that waits until (seconds since 1970) its last hot copies have ended."""
    entry = directory_entry(session, ids)
    if entry is not None and waits_until is not None:
        table.put({**entry, "state": DELETED, table.schema.ttl: int(waits_until) + 1})
    elif entry is not None:
        table.delete(entry["session_id"], entry["sk"])


def is_in_hot(table: Table, session: str) -> bool:
    """Whether a hot tier may have copies of a session."""
    return any(row.get(HOT) for row in table.query(session, attributes=[HOT]))


def unseen_copies(table: Table, listed: Iterable[Listing], hot: HotStore | None) -> list[str]:
    """Return why copies of sessions in a hot tier cannot be seen, if there may be any."""
    if hot is not None and hot.survives_process:
        return []
    if any(one.waits or is_in_hot(table, one.scope.storage_session_id) for one in listed):
        return [
            "hot tier: sessions were kept in one that outlives its process, and none was given (MANGA_MEMORY_HOT_URL or --hot)"
        ]
    return []
