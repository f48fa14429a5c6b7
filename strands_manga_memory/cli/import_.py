"""import: store again what ``export`` wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Users, Yes, opened, settings_of
from strands_manga_memory.cli.output import advance, confirmed, messages, print_json, progress
from strands_manga_memory.importing import import_user


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that export wrote.", exists=True, dir_okay=False)],
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Store what export wrote: conversations and memories of a user. What is there already is left as it is."""
    try:
        exported = json.loads(file.read_text(encoding="utf-8"))
        who, count = exported["user_id"], len(exported["sessions"])
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{file} is not what export writes: {error}") from error
    confirmed(f"Store {count} conversations and {len(exported.get('memories', ()))} memories of {who!r}?", yes=yes)
    memory = opened(settings_of(hot=hot, durable=durable, users=users), codec)
    with progress("conversations") as shown:
        report = import_user(exported, memory, progress=lambda _: advance(shown))
    memory.close()
    if as_json:
        print_json(asdict(report))
        return
    messages.print(f"{report.conversations} conversations, {report.messages} messages, {report.memories} memories were stored")
    for name in report.skipped:
        messages.print(f"left as it is: {name}", markup=False)
    if report.media:
        messages.print(f"{report.media} blocks of media were not in the export")
