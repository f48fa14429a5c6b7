"""Command ``export``: write all data of a user as JSON."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from strands.storage import LocalFileStorage

from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Tenant, Users, opened, settings_of, unnamed_hot_tier
from strands_manga_memory.cli.output import messages, print_unchecked, write_private_file
from strands_manga_memory.ops.exporting import export_snapshots
from strands_manga_memory.session.places import listings, unseen_copies


def export(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default standard output.")] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option("--snapshots", help="Folder for the sessions, in the format of Strands."),
    ] = None,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Write all data of a user as JSON: sessions with their logs, memories, unsent signals, environment overrides.

    With --snapshots, only the sessions are written, in the format that SnapshotSessionManager reads from
    LocalFileStorage(folder). Exits with 1 if a store was not checked or a record is unreadable; ``not_looked_at`` and
    ``unreadable`` list them.
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
        return FAILED if print_unchecked([*unseen, *map(_unreadable, unreadable)]) else 0
    with messages.status(f"reading the data of {user!r}"):
        found: dict[str, Any] = memory.export_user(user, tenant=tenant)
    memory.close()
    found["not_looked_at"] += unnamed_hot_tier(settings)
    left_out = [*found["not_looked_at"], *map(_unreadable, found["unreadable"])]
    text = json.dumps(found, ensure_ascii=False, indent=None if as_json else 2, default=str)
    data = text.encode("utf-8", "backslashreplace")  # lone surrogates become escapes, which JSON accepts
    if out is None:
        print(data.decode())  # noqa: T201
        return FAILED if print_unchecked(left_out) else 0
    write_private_file(out, data + b"\n")
    messages.print(f"{len(found['sessions'])} conversations and {len(found['memories'])} memories are in {out}", markup=False)
    return FAILED if print_unchecked(left_out) else 0


def _unreadable(name: str) -> str:
    return f"record {name} cannot be read"
