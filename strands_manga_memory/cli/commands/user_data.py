"""Commands that export, import or delete the data of one user."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.cli.options import (
    CodecName,
    Durable,
    Hot,
    Json,
    Tenant,
    UserId,
    Users,
    Yes,
    hot_store_warnings,
    open_memory,
)
from strands_manga_memory.cli.output import (
    FAILED,
    confirm,
    messages,
    print_json,
    print_table,
    print_unchecked,
    progress,
    write_private_file,
)
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.ops.importing import import_user


def export(
    user: UserId,
    tenant: Tenant = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; default standard output.")
    ] = None,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Write all data of a user as JSON: sessions, memories, unsent preferences, other values.

    Exits with 1 if stores were not checked (``not_looked_at``) or records are ``unreadable``.
    """
    with (
        open_memory(hot_url=hot, durable_url=durable, users_url=users, codec=codec) as memory,
        messages.status("reading the data of the user"),
    ):
        found = memory.export_user(user, tenant=tenant)
    found["not_looked_at"] += hot_store_warnings(memory.settings)
    left_out = [
        *found["not_looked_at"],
        *(f"record {name} cannot be read" for name in found["unreadable"]),
    ]
    text = json.dumps(found, ensure_ascii=False, indent=None if as_json else 2, default=str)
    # Lone surrogates become escapes, which JSON accepts.
    data = text.encode("utf-8", "backslashreplace")
    if out is None:
        print(data.decode())  # noqa: T201
    else:
        write_private_file(out, data + b"\n")
        counts = f"{len(found['sessions'])} conversations and {len(found['memories'])} memories"
        messages.print(f"{counts} are in {out}")
    return FAILED if print_unchecked(left_out) else 0


def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File written by export.")],
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Store the data of an export. Existing data is not changed."""
    if not source.is_file():
        raise typer.BadParameter(f"{str(source)!r} is not a file")
    try:
        exported = json.loads(source.read_text(encoding="utf-8"))
        who = exported["user_id"]
        count, memories = len(exported["sessions"]), len(exported["memories"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise typer.BadParameter(
            f"{str(source)!r} must be a JSON file from export, with user_id, sessions and"
            " memories;"
            f" {type(error).__name__}: {error}"
        ) from error
    confirm(f"Store {count} conversations and {memories} memories of {who!r}?", yes=yes)
    with (
        open_memory(hot_url=hot, durable_url=durable, users_url=users, codec=codec) as memory,
        progress("conversations") as advance,
    ):
        for table in filter(None, (memory.durable, memory.memories)):
            try:
                table.get("nobody", "nothing")
            except StoreRefusedError as error:
                if error.reason != "table":
                    raise
                table.create_if_missing()
        report = import_user(exported, memory, progress=advance)
        status = FAILED if report.left_out and memory.memories is None else 0
    if as_json:
        print_json(asdict(report))
        return status
    messages.print(
        f"{report.conversations} conversations, {report.messages} messages, {report.memories}"
        " memories were stored"
    )
    if report.values:
        messages.print(f"values stored for memory.storage: {report.values}")
    for name in report.skipped:
        messages.print(f"exists already, not changed: {name}")
    for name in report.ended:
        messages.print(f"deleted or expired in this deployment, not stored: {name}")
    if report.left_out:
        unset = "no memory table is set (--users true)"
        why = unset if status else "the user was deleted in this deployment, or the memories were"
        messages.print(f"memories not stored, {why}: {report.left_out}")
    return status


def forget_user(
    user: UserId,
    tenant: Tenant = None,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    as_json: Json = False,
) -> int:
    """Delete all data of a user, in all tiers, and check the stores.

    The command exits with 1 if data of the user are left, or if a store that may contain such data
    could not be checked. Repeat the command then.
    """
    confirm(f"Delete all sessions and memories of {user!r}? This cannot be undone.", yes=yes)
    with (
        open_memory(hot_url=hot, durable_url=durable, users_url=users) as memory,
        progress("conversations deleted") as advance,
    ):
        report = memory.forget_user(user, tenant=tenant, progress=advance)
    unnamed = hot_store_warnings(memory.settings)
    not_looked_at = [*report.not_looked_at, *unnamed]
    if as_json:
        print_json(
            {
                **asdict(report),
                "complete": report.complete and not unnamed,
                "not_looked_at": not_looked_at,
            }
        )
    else:
        print_table(
            f"Deleted of {user}", ("item", "count"), list(report.counts.items()), right=(1,)
        )
    for name in report.left:
        messages.print(f"left: {name}")
    return FAILED if print_unchecked(not_looked_at) or report.left else 0
