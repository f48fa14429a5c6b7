"""import: store again what ``export`` wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Users, Yes, opened, settings_of
from strands_manga_memory.cli.output import advance, confirmed, messages, print_json, progress
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.ops.importing import import_user
from strands_manga_memory.stores import Table


def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File that export wrote.")],
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Store what export wrote. What is there already is left as it is."""
    if not source.is_file():
        raise typer.BadParameter(f"{str(source)!r} is no file")
    try:
        exported = json.loads(source.read_text(encoding="utf-8"))
        who, count = exported["user_id"], len(exported["sessions"])
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{source} is not what export writes: {error}") from error
    confirmed(f"Store {count} conversations and {len(exported.get('memories', ()))} memories of {who!r}?", yes=yes)
    with opened(settings_of(hot=hot, durable=durable, users=users), codec) as memory, progress("conversations") as shown:
        _create_missing_tables(memory)
        report = import_user(exported, memory, progress=lambda _: advance(shown))
        status = FAILED if report.left_out and memory.memories is None else 0
    if as_json:
        print_json(asdict(report))
        return status
    messages.print(f"{report.conversations} conversations, {report.messages} messages, {report.memories} memories were stored")
    for name in report.skipped:
        messages.print(f"there already, left as it is: {name}", markup=False)
    for name in report.ended:
        messages.print(f"deleted or ended here, not stored: {name}", markup=False)
    if report.left_out:
        why = "there is no memory table: --users true names one" if status else "the user was forgotten here"
        messages.print(f"memories not stored, {why}: {report.left_out}", markup=False)
    if report.media:
        messages.print(f"{report.media} blocks of media were not in the export")
    return status


def _create_missing_tables(memory: MangaMemory) -> None:
    for table in (memory.durable, memory.memories):
        if table is not None and not _is_there(table):
            table.create_if_missing()


def _is_there(table: Table) -> bool:
    try:
        table.get("nobody", "nothing")
    except StoreRefusedError as error:
        if error.reason != "table":
            raise
        return False
    return True
