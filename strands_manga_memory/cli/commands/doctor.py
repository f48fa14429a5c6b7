"""Command ``doctor``: find problems of a deployment and their remedies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, ModelName, Users, codec_of, loaded, settings_of
from strands_manga_memory.cli.output import advance, console, print_json, print_lines, progress
from strands_manga_memory.ops.doctor import Finding, Level, diagnose

_SIGNS = {
    Level.OK: Text("ok", "green"),
    Level.WARNING: Text("warning", "yellow"),
    Level.PROBLEM: Text("PROBLEM", "red"),
}


def doctor(
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    model: ModelName = None,
    codec: CodecName = None,
    window: Annotated[int | None, typer.Option(help="Tokens of the context window; default: that of --model.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as problems.")] = False,
    as_json: Json = False,
) -> int:
    """Check a deployment and print its problems with remedies. Exits with 1 if there is a problem."""
    if model is not None and window is None:
        window = loaded(model).context_window_limit
    found: list[Finding] = []
    settings = settings_of(hot=hot, durable=durable, users=users)
    with progress("checks") as shown:
        for finding in diagnose(settings, window=window, codec=codec_of(codec)):
            found.append(finding)
            advance(shown)
    bad = {Level.PROBLEM, Level.WARNING} if strict else {Level.PROBLEM}
    failed = any(finding.level in bad for finding in found)
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in found]})
    else:
        lines: list[tuple[str | Text, ...]] = []
        for finding in found:
            lines.append((_SIGNS[finding.level], finding.check, finding.detail))
            lines += [("", "", f"-> {finding.remedy}")] if finding.remedy else []
        print_lines(lines)
        counts = {level: sum(finding.level is level for finding in found) for level in Level}
        console().print(f"{counts[Level.PROBLEM]} problems, {counts[Level.WARNING]} warnings, {counts[Level.OK]} checks passed")
    return FAILED if failed else 0
