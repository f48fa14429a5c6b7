"""Commands ``fork`` and ``rewind``: begin a session with the first turns of another one; go back to an earlier turn."""

from __future__ import annotations

from typing import Annotated

import typer

from strands_manga_memory.cli.options import AgentName, CodecName, Durable, Hot, Json, Session, Tenant, User, Yes, open_session
from strands_manga_memory.cli.output import confirmed, messages, print_json


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
