"""Command ``import``: store an export."""

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
        who, count = exported["user_id"], len(exported["sessions"])
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{source} is not an export: {error}") from error
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
        messages.print(f"exists already, not changed: {name}", markup=False)
    for name in report.ended:
        messages.print(f"deleted or expired in this deployment, not stored: {name}", markup=False)
    if report.left_out:
        why = "no memory table is set (--users true)" if status else "the user was deleted in this deployment"
        messages.print(f"memories not stored, {why}: {report.left_out}", markup=False)
    if report.media:
        messages.print(f"{report.media} media blocks are missing in the export")
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
