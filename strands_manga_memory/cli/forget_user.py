"""forget-user: delete everything there is of a user."""

from __future__ import annotations

from typing import Annotated

import typer

from strands_manga_memory.cli import FAILED
from strands_manga_memory.cli.options import Durable, Hot, Json, Tenant, Users, Yes, opened, settings_of
from strands_manga_memory.cli.output import advance, confirmed, messages, print_json, print_table, progress


def forget_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    as_json: Json = False,
) -> int:
    """Delete everything there is of a user, in all tiers; exits with 1 if something is left. It can be run again."""
    settings = settings_of(hot=hot, durable=durable, users=users)
    confirmed(f"Delete all sessions and memories of {user!r}? This cannot be undone.", yes=yes)
    memory = opened(settings)
    with progress("conversations deleted") as shown:
        report = memory.forget_user(user, tenant=tenant, progress=lambda _: advance(shown))
    memory.close()
    if as_json:
        print_json({"complete": report.complete, "counts": report.counts, "tombstones": report.tombstones, "left": report.left})
    else:
        print_table(f"Deleted of {user}", ("what", "how many"), list(report.counts.items()), right=(1,))
        if settings.users_url is None:
            messages.print("no memory table was named (MANGA_MEMORY_USERS_URL or --users): memories were not looked at")
    for name in report.left:
        messages.print(f"left: {name}", markup=False)
    return 0 if report.complete else FAILED
