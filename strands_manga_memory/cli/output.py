"""Output: what commands print, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

messages = Console(stderr=True, highlight=False)
"""Standard error: progress and what is not the result."""


def console() -> Console:
    """Return standard output, as wide as the terminal is now."""
    return Console(highlight=False)


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)  # noqa: T201


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Print a table; the columns ``right`` are numbers."""
    table = Table(title=title, title_justify="left", expand=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    console().print(table)


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """Show on standard error that something long goes on: ``advance`` its only task."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=messages, transient=True) as shown:
        shown.add_task(label, total=None)
        yield shown


def advance(shown: Progress) -> None:
    """Count one more."""
    shown.advance(TaskID(0))


def told_of(not_looked_at: Sequence[str]) -> bool:
    """Say which places were not looked at; tell whether there are any."""
    for place in not_looked_at:
        messages.print(f"not looked at: {place}", markup=False)
    return bool(not_looked_at)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask, unless ``yes``.

    Raises:
        Abort: The answer was no, or there is nobody to ask.
    """
    if not yes:
        typer.confirm(question, abort=True, err=True)
