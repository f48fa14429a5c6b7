"""Commands ``sessions`` and ``users``: list the sessions of a user, and the users."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Tenant, opened, settings_of
from strands_manga_memory.cli.output import messages, print_json, print_table
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.session.places import ExpiryIndex
from strands_manga_memory.user_data.erasure import sessions_of

_ANY_TIME = 10.0**12


def sessions(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """List the sessions of a user: agents, turns, time of the last message. Nothing is changed."""
    memory = opened(settings_of(hot=hot, durable=durable), codec)
    found: list[dict[str, Any]] = []
    for scope in sessions_of(memory.durable, Owner(user, tenant)):
        manager = memory.session(scope)
        for agent in manager.agents():
            about = manager.metadata(agent)
            turns, last = about["turn_count"], about["last_activity"]
            found.append({"session": scope.session_id, "agent": agent, "turns": turns, "last": last})
    memory.close()
    found.sort(key=lambda each: -(each["last"] or 0.0))
    if as_json:
        print_json(found)
    elif found:
        rows = [(each["session"], each["agent"], each["turns"], _at(each["last"])) for each in found]
        print_table(f"Sessions of {user}", ("session", "agent", "turns", "last message"), rows, right=(2,))
    else:
        messages.print(
            f"there are no sessions of {user!r} in this durable tier; do they belong to a tenant (--tenant)?", markup=False
        )
    return 0


def users(durable: Durable = None, as_json: Json = False) -> int:
    """List the users who have sessions, with their tenants. Sessions without a user are not counted."""
    memory = opened(settings_of(durable=durable))
    found: dict[tuple[str, str], set[str]] = {}
    for entry in ExpiryIndex(memory.durable).due(_ANY_TIME):
        if entry.ids.get("user"):
            owner = str(entry.ids.get("tenant") or ""), str(entry.ids["user"])
            found.setdefault(owner, set()).add(str(entry.ids["session"]))
    memory.close()
    rows = [(tenant, user, len(found[tenant, user])) for tenant, user in sorted(found)]
    if as_json:
        print_json([{"tenant": tenant or None, "user": user, "sessions": count} for tenant, user, count in rows])
    elif rows:
        print_table("Users", ("tenant", "user", "sessions"), rows, right=(2,))
    else:
        messages.print("there are no users in this durable tier", markup=False)
    return 0


def _at(seconds: float | None) -> str:
    return "" if not seconds else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
