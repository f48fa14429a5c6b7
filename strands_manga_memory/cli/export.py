"""export: everything there is of a user, or of one session, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Tenant, Users, opened, settings_of
from strands_manga_memory.cli.output import messages


def export(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default standard output.")] = None,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Write everything there is of a user as JSON: sessions with their logs, memories, signals that wait, overrides."""
    memory = opened(settings_of(hot=hot, durable=durable, users=users), codec)
    with messages.status(f"reading what there is of {user!r}"):
        found: dict[str, Any] = memory.export_user(user, tenant=tenant)
    memory.close()
    text = json.dumps(found, ensure_ascii=False, indent=None if as_json else 2, default=str)
    if out is None:
        print(text)  # noqa: T201
        return
    out.touch(mode=0o600)
    out.write_text(text + "\n", encoding="utf-8")
    messages.print(f"{len(found['sessions'])} conversations and {len(found['memories'])} memories are in {out}", markup=False)
