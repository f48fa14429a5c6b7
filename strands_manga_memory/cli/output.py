"""Output of commands as text or JSON, and the exit statuses."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

FAILED, USAGE, UNAVAILABLE = 1, 2, 3
"""Exit statuses of commands: a problem or a failed operation, an invalid command line, an
unavailable store.
"""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""Escapes that replace control characters, because stored text could control the terminal."""

_WHOLE = 24
"""A column whose longest cell has at most this number of characters is not narrowed."""


def _literal_console(**options: Any) -> Console:
    # Prints ids and texts literally, also ``[red]`` and ``:key:``, which Rich would replace.
    found = Console(highlight=False, markup=False, emoji=False, **options)
    # With COLUMNS=0, which some terminals set, Rich would print nothing.
    found.width = found.width or 80
    return found


messages = _literal_console(stderr=True)
"""Console that writes progress and messages to standard error."""


def console() -> Console:
    """Return a Rich console for standard output, with the current width of the terminal."""
    return _literal_console()


def print_json(value: Any) -> None:
    """Print a value as JSON on one line, in ASCII if standard output is not in Unicode."""
    # Standard output is None if it is closed.
    is_ascii = not str(getattr(sys.stdout, "encoding", "")).lower().startswith("utf")
    print(json.dumps(value, ensure_ascii=is_ascii, default=str), flush=True)  # noqa: T201


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """Print the result of a command that changes sessions, such as ``rewind``.

    With ``as_json``, print ``value`` as JSON on standard output. Otherwise, print the message
    ``text`` on standard error, because standard output is for data only.
    """
    if as_json:
        print_json(value)
    else:
        messages.print(text)


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[int] = (),
) -> None:
    """Print a table that fits the terminal. ``right`` lists indexes of right-aligned columns."""
    table = Table(title=title, title_justify="left", expand=False)
    for number, heading in enumerate(headings):
        # The widest columns shrink first. A column of short cells keeps its width, so that no
        # number is broken.
        longest = max((cell_len(str(row[number])) for row in rows), default=0)
        table.add_column(
            heading,
            justify="right" if number in right else "left",
            overflow="fold",
            min_width=longest if longest <= _WHOLE else None,
        )
    for row in rows:
        table.add_row(*(str(cell).translate(_CONTROLS) for cell in row))
    console().print(table)


def print_lines(lines: Sequence[Sequence[str | Text]]) -> None:
    """Print rows of short labels and a text. Long texts are wrapped within their column."""
    if not lines:
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in lines[0][:-1]:
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold", min_width=_WHOLE)
    for line in lines:
        table.add_row(*(c.translate(_CONTROLS) if isinstance(c, str) else c for c in line))
    console().print(table)


def print_error(error: str) -> None:
    """Print an error on standard error."""
    messages.print(f"error: {error}", soft_wrap=not messages.is_terminal)


@contextmanager
def progress(label: str) -> Iterator[Callable[..., None]]:
    """Show a counter with a label during a ``with`` block.

    The value of the context manager is a function that increments the counter.
    """
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description} {task.completed:,.0f}"),
        TimeElapsedColumn(),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    ) as shown:
        task = shown.add_task(label, total=None)
        yield lambda *_: shown.advance(task)


def write_private_file(path: Path, data: bytes) -> None:
    """Write data to a file that only its owner can read.

    The permissions of an existing file are restricted.

    Raises:
        OSError: The file cannot be written, or belongs to another user.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # no pipe and no terminal
            if os.chmod in os.supports_fd:
                os.chmod(file.fileno(), 0o600)
            file.truncate()
        file.write(data)


def print_unchecked(not_looked_at: Sequence[str]) -> bool:
    """Print the stores that a command could not check. Return whether there are such stores."""
    for place in not_looked_at:
        messages.print(f"not checked: {place}")
    return bool(not_looked_at)


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user for confirmation, unless ``yes`` is true.

    Raises:
        Abort: The user does not confirm, or standard input has ended.
    """
    try:
        agreed = yes or typer.confirm(question, err=True)
    except typer.Abort:
        messages.print("\nno answer; --yes skips the question")
        raise
    if not agreed:
        raise typer.Abort
