"""Command ``settings``: show every setting, its value and its source."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from strands_manga_memory.assembly.settings import markdown, rows
from strands_manga_memory.cli.options import Json, settings_of
from strands_manga_memory.cli.output import print_json, print_lines
from strands_manga_memory.stores.urls import without_password


def settings(
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the settings as a Markdown table.")] = False,
) -> None:
    """Show every setting: its value, its source, and the accepted values."""
    if as_markdown:
        print(markdown(), end="")  # noqa: T201
        return
    values = {name: without_password(str(value)) if isinstance(value, str) else value for name, value in settings_of()}
    if as_json:
        print_json(values)
        return
    lines = []
    for name, variable, _, takes, _ in rows():
        source = "set" if os.environ.get(variable) else "default"
        lines += [(variable, f"{values[name]} ({source})"), ("", f"accepts {takes.replace('`', '')}")]
    print_lines(lines)
