"""Commands ``users``, ``sessions``, ``history``, ``fork``, ``rewind`` and ``delete-session``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from strands_manga_memory.cli.options import (
    AgentName,
    CodecName,
    Durable,
    Hot,
    Json,
    Session,
    Tenant,
    User,
    Yes,
    open_session,
    opened,
    settings_of,
)
from strands_manga_memory.cli.output import confirmed, messages, print_json, print_lines, print_table
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.ops.inspection import display_text
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.user_data import list_users
from strands_manga_memory.user_data.erasure import sessions_of


def sessions(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """List the sessions of a user: agents, turns, time of the last message. Nothing is changed."""
    found: list[dict[str, Any]] = []
    with opened(settings_of(hot=hot, durable=durable), codec) as memory:
        for scope in sessions_of(memory.durable, Owner(user, tenant)):
            manager = memory.session(scope)
            for agent in manager.agents():
                about = manager.metadata(agent)
                turns, last = about["turn_count"], about["last_activity"]
                found.append({"session": scope.session_id, "agent": agent, "turns": turns, "last": last})
    found.sort(key=lambda each: -(each["last"] or 0.0))
    if as_json:
        print_json(found)
    elif found:
        rows = [(each["session"], each["agent"], each["turns"], _at(each["last"])) for each in found]
        print_table(f"Sessions of {user}", ("session", "agent", "turns", "last message, UTC"), rows, right=(2,))
    else:
        messages.print(
            f"there are no sessions of {user!r} in this durable tier; do they belong to a tenant (--tenant)?", markup=False
        )
    return 0


def users(durable: Durable = None, as_json: Json = False) -> int:
    """List the users who have sessions, with tenants and numbers of sessions. Sessions without a user are left out."""
    with opened(settings_of(durable=durable)) as memory:
        listed = list_users(memory.durable, limit=sys.maxsize, after=None).users
    found = sorted(listed, key=lambda line: (line.tenant or "", line.user_id))
    if as_json:
        print_json([{"tenant": line.tenant, "user": line.user_id, "sessions": line.sessions} for line in found])
    elif found:
        rows = [(line.tenant or "", line.user_id, line.sessions) for line in found]
        print_table("Users", ("tenant", "user", "sessions"), rows, right=(2,))
    else:
        messages.print("there are no users in this durable tier", markup=False)
    return 0


def _at(seconds: float | None) -> str:
    return "" if not seconds else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def history(
    session: Session,
    user: User = None,
    tenant: Tenant = None,
    agent: AgentName = None,
    limit: Annotated[int, typer.Option(min=1, help="Most messages of the page.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="NEXT", help="Value that the page before ended with.")] = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Show the last messages of a conversation with their turns, or an earlier page. Nothing is changed."""
    with open_session(session, user, tenant, agent, hot=hot, durable=durable, codec=codec) as (manager, agent_id):
        page = manager.history_page(agent_id, limit=limit, after=after)
    if as_json:
        print_json({"records": page.records, "next": page.next})
        return
    print_lines(
        [
            (
                f"turn {record['turn']}",
                _at(record["at"]),
                record["message"]["role"],
                " ".join(display_text(record["message"]).split()),
            )
            for record in page.records
        ]
    )
    if page.next is not None:
        messages.print(f"earlier messages: --after {page.next}", markup=False)


def fork(
    session: Session,
    at_turn: Annotated[int, typer.Argument(metavar="TURN", min=1, help="Last turn of the fork; see history.")],
    to: Annotated[str, typer.Option("--to", metavar="ID", help="Id of the new session.")],
    user: User = None,
    tenant: Tenant = None,
    agent: AgentName = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Begin a new session with the first turns of another one, which does not change."""
    with open_session(session, user, tenant, agent, hot=hot, durable=durable, codec=codec) as (manager, agent_id):
        manager.fork(at_turn, session_id=to, agent_id=agent_id)
    if as_json:
        print_json({"session": to, "agent": agent_id, "turns": at_turn})
    else:
        messages.print(f"session {to!r} begins with the first {at_turn} turns of {session!r}, agent {agent_id!r}", markup=False)


def rewind(
    session: Session,
    at_turn: Annotated[int, typer.Argument(metavar="TURN", min=0, help="Last turn that stays, 0 for none.")],
    user: User = None,
    tenant: Tenant = None,
    agent: AgentName = None,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Let a conversation go back to the end of an earlier turn, and delete its later turns."""
    with open_session(session, user, tenant, agent, hot=hot, durable=durable, codec=codec) as (manager, agent_id):
        confirmed(f"Delete every turn of {session!r} after turn {at_turn}? This cannot be undone.", yes=yes)
        manager.rewind(at_turn, agent_id=agent_id)
    if as_json:
        print_json({"session": session, "agent": agent_id, "turns": at_turn})
    else:
        messages.print(f"session {session!r} of agent {agent_id!r} ends with turn {at_turn} now", markup=False)


def delete_session(
    session: Session,
    user: User = None,
    tenant: Tenant = None,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Delete a session with the conversations of all its agents. Memories of the user stay. It can be repeated."""
    if tenant is not None and user is None:
        raise typer.BadParameter("--tenant needs --user")
    with opened(settings_of(hot=hot, durable=durable), codec) as memory:
        manager = memory.session(session if user is None else ConversationScope(user, session, tenant=tenant))
        agents = manager.agents()
        confirmed(f"Delete session {session!r}? This cannot be undone.", yes=yes)
        if user is None:
            manager.delete_session()
        else:
            memory.delete_session(user, session, tenant=tenant)
    if as_json:
        print_json({"session": session, "agents": agents})
    elif agents:
        messages.print(f"session {session!r} is deleted; agents: {', '.join(agents)}", markup=False)
    else:
        messages.print(f"no agent had a conversation in {session!r}; does it belong to a user (--user)?", markup=False)
