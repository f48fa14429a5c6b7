"""Commands that list users and sessions, and show, copy, rewind or delete a session."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from strands_manga_memory.cli.options import (
    AgentName,
    CodecName,
    Durable,
    Hot,
    Json,
    Session,
    Tenant,
    User,
    UserId,
    Users,
    Yes,
    check_id,
    missing_session_text,
    open_conversation,
    open_memory,
    session_target,
)
from strands_manga_memory.cli.output import (
    FAILED,
    confirm,
    console,
    messages,
    print_json,
    print_lines,
    print_result,
    print_table,
)
from strands_manga_memory.messages.texts import shorten_line
from strands_manga_memory.ops.inspection import Inspection, display_text, places
from strands_manga_memory.ops.inspection import inspect as inspected


def sessions(
    user: UserId,
    tenant: Tenant = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """List a user's sessions: agents, turns, time of the last message, first words. Read-only."""
    with open_memory(hot_url=hot, durable_url=durable, codec=codec) as memory:
        found = memory.sessions(user, tenant=tenant, limit=sys.maxsize).sessions
    if as_json:
        print_json([asdict(line) for line in found])
    elif found:
        rows = [
            (
                line.session_id,
                ", ".join(line.agents),
                "unreadable" if line.is_damaged else line.turns,
                _at(line.last_used),
                line.title,
            )
            for line in found
        ]
        print_table(
            f"Sessions of {user}",
            ("session", "agents", "turns", "last message, UTC", "first words"),
            rows,
            right=(2,),
        )
    else:
        messages.print(
            f"there are no sessions of {user!r} in this durable tier; do they belong to a tenant"
            " (--tenant)?"
        )


def users(durable: Durable = None, as_json: Json = False) -> None:
    """List the users who have sessions, with tenants and numbers of sessions.

    Sessions without a user are left out.
    """
    with open_memory(durable_url=durable) as memory:
        found = sorted(
            memory.users(limit=sys.maxsize).users,
            key=lambda line: (line.tenant or "", line.user_id),
        )
    if as_json:
        print_json([asdict(line) for line in found])
    elif found:
        rows = [(line.tenant or "", line.user_id, line.sessions) for line in found]
        print_table("Users", ("tenant", "user", "sessions"), rows, right=(2,))
    else:
        messages.print("there are no users in this durable tier")


def _at(seconds: float | None) -> str:
    return "" if not seconds else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def history(
    session: Session,
    user: User = None,
    tenant: Tenant = None,
    agent: AgentName = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of messages.")] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="NEXT", help="Value that the page before ended with.")
    ] = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Show the last page of a conversation's messages, or an earlier page. Read-only."""
    with open_conversation(
        session, user, tenant, agent, hot_url=hot, durable_url=durable, codec=codec
    ) as (_, manager, agent_id):
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
        messages.print(f"earlier messages: --after {page.next}")


def fork(
    session: Session,
    at_turn: Annotated[
        int, typer.Argument(metavar="TURN", min=1, help="Last turn of the fork; see history.")
    ],
    to: Annotated[
        str,
        typer.Option("--to", metavar="ID", help="Id of the new session.", callback=check_id),
    ],
    user: User = None,
    tenant: Tenant = None,
    agent: AgentName = None,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Begin a new session with the first turns of another session, which stays unchanged."""
    with open_conversation(
        session, user, tenant, agent, hot_url=hot, durable_url=durable, codec=codec
    ) as (_, manager, agent_id):
        manager.fork(at_turn, session_id=to, agent_id=agent_id)
    text = f"session {to!r} has the turns of {session!r}, agent {agent_id!r}, up to turn {at_turn}"
    print_result({"session": to, "agent": agent_id, "turns": at_turn}, text, as_json=as_json)


def rewind(
    session: Session,
    at_turn: Annotated[
        int, typer.Argument(metavar="TURN", min=0, help="Last turn that stays, 0 for none.")
    ],
    user: User = None,
    tenant: Tenant = None,
    agent: AgentName = None,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Return a conversation to an earlier turn, and delete all later turns.

    With a memory table, the preferences that the user stated in the deleted turns are deleted, too.
    """
    with open_conversation(
        session, user, tenant, agent, hot_url=hot, durable_url=durable, users_url=users, codec=codec
    ) as (memory, manager, agent_id):
        confirm(
            f"Delete every turn of {session!r} after turn {at_turn}? This cannot be undone.",
            yes=yes,
        )
        if manager.scope is None:
            manager.rewind(at_turn, agent_id=agent_id)
        else:
            memory.rewind(replace(manager.scope, agent_id=agent_id), at_turn)
    text = f"session {session!r} of agent {agent_id!r} ends with turn {at_turn} now"
    print_result({"session": session, "agent": agent_id, "turns": at_turn}, text, as_json=as_json)


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
    """Delete a session with the conversations of all its agents.

    Memories of the user stay. The command can be repeated.
    """
    target = session_target(session, user, tenant)
    with open_memory(hot_url=hot, durable_url=durable, codec=codec) as memory:
        manager = memory.session(target)
        agents = manager.agents()
        confirm(f"Delete session {session!r}? This cannot be undone.", yes=yes)
        if user is None:
            manager.delete_session()
        else:
            memory.delete_session(user, session, tenant=tenant)
    text = f"session {session!r} is deleted; agents: {', '.join(agents)}"
    if not agents:
        owner = "a user (--user)" if user is None else "another tenant (--tenant)"
        text = f"no agent had a conversation in {session!r}; does it belong to {owner}?"
    print_result({"session": session, "agents": agents}, text, as_json=as_json)


_TEXT_CHARACTERS = 100


def inspect(
    session: Session,
    user: User = None,
    tenant: Tenant = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="ID", help="Only this agent's conversation.", callback=check_id
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, help="Number of messages to show, from the end.")
    ] = 40,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Show a session's stored data: tiers, messages, entities and tools. Nothing is changed.

    The list of messages shows whether the history still has each message in full.
    """
    session_target(session, user, tenant)
    with open_memory(hot_url=hot, durable_url=durable, codec=codec) as memory:
        every = places(session, user=user, tenant=tenant, agent=agent, durable=memory.durable)
        stores: dict[str, Any] = {"hot": memory.hot, "durable": memory.durable}
        stores |= {"codec": memory.codec, "ttl": memory.settings.ttl_policy()}
        found = [each for place in every if (each := inspected(place, **stores)) is not None]
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            _print(each, last)
    if not found:
        messages.print(missing_session_text(session, user, agent))
    return 0 if found else FAILED


def _print(found: Inspection, last: int) -> None:
    console().rule(Text(found.conversation), align="left")
    console().print(
        f"{found.turns} turns, {len(found.messages)} messages, began {_at(found.created)},"
        f" last saved {_at(found.last_activity)} (UTC)"
    )
    kept = sum(message.outcome != "left" for message in found.messages)
    lines = [
        ("hot", _hot(found)),
        ("durable", _durable(found)),
        ("window", f"{kept} messages, {found.window_tokens:,} tokens"),
    ]
    for name, values in (("entities", found.entities), ("metadata", found.metadata)):
        if values:
            lines.append((name, ", ".join(f"{key}={value}" for key, value in values.items())))
    if found.tools:
        lines.append(("tools", "; ".join(_tool(*tool) for tool in found.tools.items())))
    print_lines(lines)
    rows = [
        (
            *("" if number is None else number for number in (message.seq, message.turn)),
            message.role,
            message.act,
            f"{message.score:.2f}",
            f"{message.tokens:,}",
            message.outcome,
            shorten_line(message.text, _TEXT_CHARACTERS),
        )
        for message in found.messages[-last:]
    ]
    headings = ("seq", "turn", "role", "act", "score", "tokens", "outcome", "text")
    print_table("Messages", headings, rows, right=(0, 1, 4, 5))
    if len(found.messages) > last:
        console().print(f"(the last {last} of {len(found.messages)} messages; --last shows more)")


def _hot(found: Inspection) -> str:
    if found.hot is None:
        return "no copy"
    left = found.hot["expires_in"]
    time_left = f"expires in {left:,.0f} s" if left > 0 else f"expired {-left:,.0f} s ago"
    return f"{found.hot['state']}, {time_left} of {found.hot['ttl']:,.0f} s"


def _durable(found: Inspection) -> str:
    if found.durable is None:
        return "no copy"
    more = ", the hot tier is ahead" if found.durable["ahead"] else ""
    over = ", expired" if found.durable["expired"] else ""
    return f"{found.durable['state']}, flushed up to turn {found.durable['turns']}{more}{over}"


def _tool(name: str, known: dict[str, Any]) -> str:
    text = f"{name}: {known['calls']} calls, {known['errors']} errors"
    if known["state"]:
        text += f", breaker {known['state']}, {known['failures']} failures in a row"
    if known["retry_after"]:
        text += f", retry in {known['retry_after']:,.0f} s"
    if known["rejected_at"]:
        text += f", last rejected {_at(known['rejected_at'])} UTC"
    return text
