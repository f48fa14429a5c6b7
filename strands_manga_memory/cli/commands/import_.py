"""import: store again what ``export`` wrote, or what other session managers keep."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, Tenant, Users, Yes, opened, settings_of
from strands_manga_memory.cli.output import advance, confirmed, messages, print_json, print_lines, progress
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.ops.importing import KINDS, SessionsReport, import_sessions, import_user, open_source
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.stores import Table

_KINDS = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())


def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="File that export wrote; with --from, a folder or a URL.")],
    kind: Annotated[
        str | None, typer.Option("--from", metavar="KIND", help=f"Read the sessions of another session manager. {_KINDS}.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="With --from: whose sessions they are. Default: nobody's.")
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            "--ids",
            metavar="REGEX",
            help="With --from: what session ids look like, with groups named user, session and tenant, of which "
            "session and tenant may be missing; sessions of other ids are left out.",
        ),
    ] = None,
    tenant: Tenant = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --from: read everything, store nothing.")] = False,
    yes: Yes = False,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Store what export wrote, or the sessions of another session manager. What is there already is left as it is."""
    if kind is None:
        if user or ids or tenant or dry_run:
            raise typer.BadParameter("--user, --ids, --tenant and --dry-run go with --from")
        open_ = partial(_destination, settings_of(hot=hot, durable=durable, users=users), codec, dry_run=False)
        return _import_user(Path(source), open_, yes=yes, as_json=as_json)
    scope_of = _scope_of(user, ids, tenant)
    try:
        found = open_source(kind, source)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not dry_run:
        confirmed(f"Store the sessions of {kind} {source!r}?", yes=yes)
    stores = _destination(settings_of(hot=hot, durable=durable, users=users), codec, dry_run=dry_run)
    with stores as memory, progress("conversations") as shown:
        report = import_sessions(found, memory, scope_of=scope_of, dry_run=dry_run, progress=lambda _: advance(shown))
    if as_json:
        print_json({**asdict(report), "counts": report.counts, "dry_run": dry_run})
    else:
        _show(report, source)
    return 0 if report.complete and report.conversations else FAILED


@contextmanager
def _destination(settings: MangaMemorySettings, codec: str | None, *, dry_run: bool) -> Iterator[MangaMemory]:
    """Open the stores, and make the tables that are missing; for a dry run empty ones stand in for them."""
    with opened(settings, codec) as memory:
        missing = [table for table in (memory.durable, memory.memories) if table is not None and not _is_there(table)]
        for table in () if dry_run else missing:
            table.create_if_missing()
        if not dry_run or memory.durable not in missing:
            yield memory
            return
    with TemporaryDirectory() as folder, MangaMemory.open(durable=f"sqlite:///{folder}/empty.sqlite3") as memory:
        yield memory


def _is_there(table: Table) -> bool:
    try:
        table.get("nobody", "nothing")
    except StoreRefusedError as error:
        if error.reason != "table":
            raise
        return False
    return True


def _import_user(file: Path, open_: Callable[[], AbstractContextManager[MangaMemory]], *, yes: bool, as_json: bool) -> int:
    if not file.is_file():
        raise typer.BadParameter(f"{str(file)!r} is no file; to read another session manager's sessions, say --from")
    try:
        exported = json.loads(file.read_text(encoding="utf-8"))
        who, count = exported["user_id"], len(exported["sessions"])
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{file} is not what export writes: {error}") from error
    confirmed(f"Store {count} conversations and {len(exported.get('memories', ()))} memories of {who!r}?", yes=yes)
    with open_() as memory, progress("conversations") as shown:
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


def _scope_of(user: str | None, ids: str | None, tenant: str | None) -> Callable[[str], str | ConversationScope | None]:
    """Return which conversations a session of the source becomes."""
    if user is not None and ids is None:
        return lambda session: ConversationScope(user, session, tenant=tenant)
    if ids is None:
        if tenant is not None:
            raise typer.BadParameter("--tenant goes with --user or --ids")
        return str
    try:
        pattern = re.compile(ids)
    except re.error as error:
        raise typer.BadParameter(f"--ids {ids!r} is no regular expression: {error}") from error
    if user is not None or "user" not in pattern.groupindex:
        raise typer.BadParameter("--ids needs a group (?P<user>...), and takes the place of --user")

    def scope_of(session: str) -> ConversationScope | None:
        match = pattern.fullmatch(session)
        named = {} if match is None else {name: value for name, value in match.groupdict().items() if value}
        if "user" not in named:
            return None
        return ConversationScope(named["user"], named.get("session", session), tenant=named.get("tenant", tenant))

    return scope_of


def _show(report: SessionsReport, source: str) -> None:
    if not report.conversations:
        messages.print(f"there are no sessions in {source}; name the folder, namespace or table itself", markup=False)
        return
    lines: list[tuple[str, str]] = []
    for one in report.conversations:
        size = f": {one.messages} messages, {one.window} in the history" if one.messages else ""
        lines += [(one.outcome, f"{one.session_id}/{one.id}{size}"), *(("", note) for note in one.notes)]
    print_lines(lines)
    messages.print(", ".join(f"{count} {name}" for name, count in report.counts.items()))
