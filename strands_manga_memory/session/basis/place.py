"""Place: where a conversation is kept, and how it is found, or ended along with all of its session or user."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from strands_manga_memory.scope import encoded_id
from strands_manga_memory.session.core.identity import new_grave
from strands_manga_memory.stores.hot import DELETED
from strands_manga_memory.stores.table import Item, Key, Table

Kind = Literal["A", "M"]
"""An agent's conversation, or the state of a Graph or Swarm."""

GRAVE = "#GRAVE"
"""Sort value of a record that ends all there was of a session or user; its partition is the session, or a user's directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation is kept: the storage id of its session, and its kind and id there, both escaped."""

    session: str
    member: str

    @classmethod
    def of(cls, session: str, kind: Kind, id_: str) -> Place:
        """Return the place of an agent or orchestrator, named by its own id."""
        return cls(session, f"{kind}:{encoded_id(id_)}")

    @classmethod
    def named(cls, conversation: str) -> Place:
        """Return the place of a conversation, by its name in the hot tier."""
        return cls(*conversation.rsplit("/", 1))

    @property
    def conversation(self) -> str:
        """Escaped name in the hot tier. No session id holds a slash, so no two places share one."""
        return f"{self.session}/{self.member}"


def directory_key(session: str, ids: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a session's entry in its user's directory; None if the session has no user.

    No session id holds a slash, so the directory's partition is never a session's.
    """
    if not ids.get("user"):
        return None
    tenant = encoded_id(ids["tenant"]) if ids.get("tenant") else ""
    return f"user/{tenant}:{encoded_id(ids['user'])}", session


def directory_entry(session: str, ids: Mapping[str, Any]) -> Item | None:
    """Return that entry; None likewise."""
    key = directory_key(session, ids)
    if key is None:
        return None
    return {"session_id": key[0], "sk": key[1], **{name: ids.get(name) for name in ("session", "user", "tenant")}}


def members(table: Table, session: str) -> Iterator[Place]:
    """Yield the places of the conversations that a table has of a session, damaged ones too."""
    for row in table.query(session, attributes=[]):
        if str(row["sk"]).endswith("#HEAD"):
            yield Place(session, str(row["sk"]).removesuffix("#HEAD"))


def member_ids(table: Table, session: str) -> Iterator[tuple[Kind, str]]:
    """Yield the kinds and original ids of the agents and orchestrators that a table has of a session, deleted ones not."""
    for row in table.query(session, attributes=["member"]):
        if str(row["sk"]).endswith("#HEAD") and row.get("member"):
            yield ("M" if str(row["sk"]).startswith("M:") else "A"), str(row["member"])


def grave_key(partition: str) -> Key:
    """Return the key of the grave of a session, or of the user whose directory has this partition value."""
    return partition, GRAVE


def dig(table: Table, partition: str, *, until: float, grave: str | None = None) -> str:
    """End every conversation of a session or user, also those that no store lists yet; return the grave, which all of them get.

    It is looked for with every head that is read, and behind the first that is put. So it is dug before who ends the listed
    conversations looks for them for the last time.

    Args:
        table: The durable tier.
        partition: The session, or the directory of the user.
        until: When it may go, in seconds since 1970.
        grave: The grave, if some of them have it already.
    """
    grave = grave or new_grave()
    names = dict(zip((table.schema.partition, table.schema.sort), grave_key(partition), strict=True))
    table.put({**names, "graves": [grave], "state": DELETED, table.schema.ttl: math.ceil(until)})
    return grave
