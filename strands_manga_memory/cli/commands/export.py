"""export: everything there is of a user, or of one session, as JSON."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from strands.storage import LocalFileStorage

from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Tenant, Users, opened, settings_of, unnamed_hot_tier
from strands_manga_memory.cli.output import messages, told_of, write_private_file
from strands_manga_memory.ops.exporting import export_snapshots
from strands_manga_memory.session.upkeep.directory import listings, unseen_copies


def export(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default standard output.")] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option("--snapshots", help="Folder for the sessions, as Strands' own manager has them."),
    ] = None,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Write everything there is of a user as JSON: sessions with their logs, memories, signals that wait, overrides.

    With --snapshots, only the sessions are written, as SnapshotSessionManager reads them from LocalFileStorage(folder).
    Exits with 1 if there is a place that was not looked at, or a record that cannot be read; ``not_looked_at`` and
    ``unreadable`` name them.
    """
    settings = settings_of(hot=hot, durable=durable, users=users)
    memory = opened(settings, codec)
    if snapshots is not None:
        listed, unreadable = listings(memory.durable, user, tenant)
        scopes = [one.scope for one in listed]
        written = asyncio.run(export_snapshots(memory, LocalFileStorage(str(snapshots)), scopes))
        unseen = unseen_copies(memory.durable, listed, memory.hot)
        memory.close()
        messages.print(f"{written['agents']} agents' sessions are in {snapshots}", markup=False)
        return FAILED if told_of([*unseen, *map(_unreadable, unreadable)]) else 0
    with messages.status(f"reading what there is of {user!r}"):
        found: dict[str, Any] = memory.export_user(user, tenant=tenant)
    memory.close()
    found["not_looked_at"] += unnamed_hot_tier(settings)
    left_out = [*found["not_looked_at"], *map(_unreadable, found["unreadable"])]
    text = json.dumps(found, ensure_ascii=False, indent=None if as_json else 2, default=str)
    data = text.encode("utf-8", "backslashreplace")  # half a character becomes its escape, which JSON reads
    if out is None:
        print(data.decode())  # noqa: T201
        return FAILED if told_of(left_out) else 0
    write_private_file(out, data + b"\n")
    messages.print(f"{len(found['sessions'])} conversations and {len(found['memories'])} memories are in {out}", markup=False)
    return FAILED if told_of(left_out) else 0


def _unreadable(name: str) -> str:
    return f"record {name} cannot be read"
