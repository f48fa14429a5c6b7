"""Table of the comparison, as Markdown."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.rivals.catalogue import Rival
from tests.benchmarks.rivals.measures import Cell

BEGIN, END = "<!-- rivals: begin -->", "<!-- rivals: end -->"


@dataclass
class Column:
    """Results of one rival."""

    rival: Rival
    version: str
    cells: dict[str, Cell] = field(default_factory=dict)
    failed: str = ""


def markdown(
    columns: Sequence[Column], *, today: dt.date, breakers: Mapping[str, float] | None = None
) -> str:
    """Return the tables as Markdown, with a row for each rival."""
    questions = list(dict.fromkeys(name for column in columns for name in column.cells))
    lines = [
        (
            f"Measured on {today:%Y-%m-%d} by `uv run python -m tests.benchmarks rivals`, Strands"
            f" Agents {importlib.metadata.version('strands-agents')}. Commands, bytes and losses"
            " are counts; round trips of clients that pipeline vary a little; the stall is a"
            " timing on a busy machine."
        ),
        "",
        "| question | "
        + " | ".join(f"{_name(column)}" for column in columns if not column.failed)
        + " |",
        "|---|" + "---|" * sum(not column.failed for column in columns),
    ]
    shown = [column for column in columns if not column.failed]
    for question in questions:
        cells = [_cell(column.cells.get(question)) for column in shown]
        lines.append(f"| {question} | " + " | ".join(cells) + " |")
    lines += [
        "",
        *(f"- {column.rival.name}: {column.rival.note}." for column in shown if column.rival.note),
    ]
    failed = [column for column in columns if column.failed]
    lines += [f"- {_name(column)} could not be measured: {column.failed}." for column in failed]
    if breakers:
        lines += ["", *_breaker_lines(breakers)]
    return "\n".join(lines)


def _name(column: Column) -> str:
    return f"{column.rival.name} {column.version}"


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) else value


def _breaker_lines(values: Mapping[str, float]) -> Iterator[str]:
    """Yield the scenario table of the benchmark ``breaker``."""
    from tests.benchmarks.breaker import LIBRARIES

    names = ["strands_manga_memory", *LIBRARIES]
    asked = [
        name.removeprefix("strands_manga_memory_")
        for name in values
        if name.startswith("strands_manga_memory_")
    ]
    yield "| breaker | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    for question in asked:
        cells = [values.get(f"{name}_{question}") for name in names]
        yield (
            f"| {question.replace('_', ' ')} | "
            + " | ".join("–" if cell is None else f"{cell:g}" for cell in cells)
            + " |"
        )


def write(path: Path, table: str) -> None:
    """Write the table between its markers in a file.

    Raises:
        ValueError: The file has no markers.
    """
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} must have the markers {BEGIN} and {END}")
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    path.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}", encoding="utf-8")


IN_SHORT = {
    "bytes written a turn, after 100 turns": "bytes written by one turn",
    "round trips a turn, after 100 turns": "round trips of one turn",
    "round trips to restore 100 turns": "round trips to restore 100 turns",
    "event loop stall in a turn, stores 50 ms away, ms": "event loop blocked, ms",
    "window after trimming with pins restored exactly": "trimmed window restored",
    "of 3 turns of two writers lost": "turns lost by two writers, of 3",
}
"""Questions of the README's table, with its labels. The guide has all questions."""

_COLUMNS = {
    "strands_manga_memory": "this package",
    "Strands FileSessionManager": "Strands file",
    "Strands SnapshotSessionManager": "Strands snapshot",
    "strands-dynamodb-storage (AWS)": "AWS DynamoDB",
    "strands-redis-session-manager": "strands-redis",
}


def in_short(page: str) -> str:
    """Build the README's table: six questions and five session managers of the guide's table.

    Args:
        page: Text of the guide, with the table between its markers.
    """
    lines = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    head = [cell.strip() for cell in rows[0]]
    columns = [
        next(at for at, cell in enumerate(head) if cell.startswith(name)) for name in _COLUMNS
    ]
    answers = {row[0].strip(): [row[at].strip() for at in columns] for row in rows}
    table = ["| | " + " | ".join(_COLUMNS.values()) + " |", "|---|" + "---|" * len(columns)]
    return "\n".join(
        [
            *table,
            *(
                f"| {label} | {' | '.join(answers[question])} |"
                for question, label in IN_SHORT.items()
            ),
        ]
    )
