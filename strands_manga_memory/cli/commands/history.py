"""Command ``history``: a page of a conversation's log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from strands_manga_memory.cli.options import AgentName, CodecName, Durable, Hot, Json, Session, Tenant, User, open_session
from strands_manga_memory.cli.output import messages, print_json, print_lines
from strands_manga_memory.ops.inspection import display_text


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


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
