"""Command ``inspect``: shows a conversation's tiers, history size, entities, tools, and which messages were kept or evicted."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from strands_manga_memory.cli.options import (
    CodecName,
    Durable,
    Hot,
    Json,
    Session,
    Tenant,
    User,
    missing_session,
    open_memory,
    target_of,
)
from strands_manga_memory.cli.output import FAILED, console, messages, print_json, print_lines
from strands_manga_memory.ops.inspection import Inspection, places
from strands_manga_memory.ops.inspection import inspect as inspected

_OUTCOME_STYLES = {"kept": "green", "shortened": "yellow", "written": "cyan", "left": "dim"}


def inspect(
    session: Session,
    user: User = None,
    tenant: Tenant = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="Only this agent's conversation.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Number of messages to show, from the end.")] = 40,
    hot: Hot = None,
    durable: Durable = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Show the stored data of a session: tiers, history size, kept or evicted messages, entities, tools. Read-only."""
    target_of(session, user, tenant)
    with open_memory(hot_url=hot, durable_url=durable, codec=codec) as memory:
        every = places(session, user=user, tenant=tenant, agent=agent, durable=memory.durable)
        stores: dict[str, Any] = {"hot": memory.hot, "durable": memory.durable, "codec": memory.codec}
        ttl = memory.settings.ttl_policy()
        found = [each for place in every if (each := inspected(place, ttl=ttl, **stores)) is not None]
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            _print(each, last)
    if not found:
        messages.print(missing_session(session, user))
    return 0 if found else FAILED


def _print(found: Inspection, last: int) -> None:
    console().rule(Text(found.conversation), align="left")
    began, saved = _when(found.created), _when(found.last_activity)
    console().print(f"{found.turns} turns, {len(found.messages)} messages, began {began}, last saved {saved}")
    kept = sum(message.outcome != "left" for message in found.messages)
    lines = [("hot", _hot(found)), ("durable", _durable(found)), ("window", f"{kept} messages, {found.window_tokens:,} tokens")]
    for name, values in (("entities", found.entities), ("metadata", found.metadata)):
        if values:
            lines.append((name, ", ".join(f"{key}={value}" for key, value in values.items())))
    if found.tools:
        tools = [f"{name}: {count['calls']} calls, {count['errors']} errors" for name, count in found.tools.items()]
        lines.append(("tools", "; ".join(tools)))
    print_lines(lines)
    table = Table(box=None, pad_edge=False, expand=True)
    shown = found.messages[-last:]
    acts = max((len(message.act) for message in shown), default=0)
    for heading, width in (("seq", 5), ("turn", 4), ("role", 9), ("act", acts), ("score", 5), ("tokens", 6), ("outcome", 9)):
        is_number = heading in ("seq", "turn", "score", "tokens")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True, min_width=width)
    table.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
    for message in shown:
        table.add_row(
            *("" if number is None else str(number) for number in (message.seq, message.turn)),
            message.role,
            message.act,
            f"{message.score:.2f}",
            f"{message.tokens:,}",
            Text(message.outcome, _OUTCOME_STYLES[message.outcome]),
            " ".join(message.text.split())[:200],
        )
    console().print(table)
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
    return f"{found.durable['state']}, {found.durable['turns']} turns flushed{more}{over}"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
