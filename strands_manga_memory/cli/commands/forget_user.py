"""Command ``forget-user``: delete all data of a user."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import Durable, Hot, Json, Tenant, Users, Yes, opened, settings_of, unnamed_hot_tier
from strands_manga_memory.cli.output import advance, confirmed, messages, print_json, print_table, print_unchecked, progress


def forget_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    as_json: Json = False,
) -> int:
    """Delete all data of a user, in all tiers. It can be repeated.

    Exits with 1 if data is left or a store was not checked.
    """
    settings = settings_of(hot=hot, durable=durable, users=users)
    confirmed(f"Delete all sessions and memories of {user!r}? This cannot be undone.", yes=yes)
    memory = opened(settings)
    with progress("conversations deleted") as shown:
        report = memory.forget_user(user, tenant=tenant, progress=lambda _: advance(shown))
    memory.close()
    unnamed = unnamed_hot_tier(settings)
    not_looked_at = [*report.not_looked_at, *unnamed]
    if as_json:
        print_json({**asdict(report), "complete": report.complete and not unnamed, "not_looked_at": not_looked_at})
    else:
        print_table(f"Deleted of {user}", ("item", "count"), list(report.counts.items()), right=(1,))
    for name in report.left:
        messages.print(f"left: {name}", markup=False)
    return FAILED if print_unchecked(not_looked_at) or report.left else 0
