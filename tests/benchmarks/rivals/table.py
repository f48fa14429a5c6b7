"""Table of the comparison, as Markdown."""

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


GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "Work of a turn": (
        "Fewer bytes, round trips and commands are better. A pause of the event loop delays all"
        " agents of the process.",
        {
            "bytes written a turn, after 10 turns": "bytes, turn 10",
            "bytes written a turn, after 100 turns": "bytes, turn 100",
            "round trips a turn, after 10 turns": "round trips, turn 10",
            "round trips a turn, after 100 turns": "round trips, turn 100",
            "commands a turn, after 10 turns": "commands, turn 10",
            "commands a turn, after 100 turns": "commands, turn 100",
            "event loop stall in a turn, stores 50 ms away, ms": "event loop blocked, ms",
        },
    ),
    "Restores and losses": (
        "Fewer round trips and losses are better. A session that is in use for longer than its time"
        " to live (TTL) should keep all 6 turns. MIXED: two later processes found different"
        " messages of the session.",
        {
            "round trips to restore 100 turns": "round trips for 100 turns",
            "round trips to restore 1 turn with 5,000 foreign keys": (
                "round trips for 1 turn, with 5,000 keys of others"
            ),
            "window after trimming with pins restored exactly": "trimmed window restored",
            "of 3 turns of two writers lost": "turns lost by two writers, of 3",
            "a message of 500 KB": "message of 500 KB",
            "of 6 turns in use past the TTL left": "turns kept in use past the TTL, of 6",
            "a live agent goes on after its session expired": "agent continues after expiry",
        },
    ),
    "Ids of sessions and agents": (
        'The correct results are "no" in three columns and "apart" in the last. If a package raised'
        " an error, the table has the class of the error.",
        {
            "deleting a session whose id is a pattern of another's deletes that too": (
                "deleting session `a*` deletes session `ab`"
            ),
            "deleting a session whose id is a beginning of another's deletes that too": (
                "deleting session `a` deletes session `ab`"
            ),
            "an agent 'a?' gets the messages of 'a1'": "agent `a?` gets messages of `a1`",
            "agents 'x', 'x:msgs', 'x#msg' and 'x:messages' in one session": (
                "agents `x`, `x:msgs`, `x#msg`, `x:messages`"
            ),
        },
    ),
}
"""Tables of the guide: title, explanation, and columns by question."""

EQUAL = {
    "restored of 200 messages": "restored messages, of 200",
    "of 4 turns lost by kill -9": "turns lost by `kill -9`, of 4",
    "traces of a redacted message": "copies of a redacted message that are left",
}
"""Labels of questions that all packages answer equally."""

_BREAKERS = (
    "An open breaker lets one call, a *probe*, test whether the tool works again. 100 calls arrive"
    " when a probe is due: 1 should reach the tool. A probe that is cancelled, or that fails"
    " because of its caller (an *ignored* probe), shows nothing about the tool. The breaker should"
    " then admit the next call and stay half-open (not yet closed). In the last three rows, 1 means"
    " yes, and 0 no."
)


def markdown(
    columns: Sequence[Column], *, today: dt.date, breakers: Mapping[str, float] | None = None
) -> str:
    """Return the tables as Markdown, with a row for each rival.

    Questions that all rivals answer equally are listed below the tables.
    """
    questions = list(dict.fromkeys(name for column in columns for name in column.cells))
    shown = [column for column in columns if not column.failed]
    lines = [
        (
            f"Measured on {today:%Y-%m-%d} by `uv run python -m tests.benchmarks rivals`, Strands"
            f" Agents {importlib.metadata.version('strands-agents')}. Bytes, commands and losses"
            " are counts. Round trips vary a little if a client sends several commands at once."
            " The pause of the event loop is a timing on a busy machine."
        )
    ]
    grouped = {question for _, labels in GROUPS.values() for question in labels}
    rest = [question for question in questions if question not in grouped]
    equal = [question for question in rest if len(_answers(question, shown)) == 1]
    others = {question: question for question in rest if question not in equal}
    same = [f"{EQUAL.get(name, name)}: {_answers(name, shown)[0]}" for name in equal]
    groups = {**GROUPS, "Further questions": ("", others)}
    for title, (explanation, labels) in groups.items():
        asked = {question: label for question, label in labels.items() if question in questions}
        if asked:
            lines += ["", f"### {title}", ""] + [explanation, ""] * bool(explanation)
            lines += _table(shown, asked)
    lines += [
        "",
        "Further results and setups:",
        "",
        *([f"- Equal for all packages to which it applies: {'; '.join(same)}."] if same else []),
    ]
    lines += [f"- {c.rival.name}: {c.rival.note}." for c in shown if c.rival.note]
    failed = [column for column in columns if column.failed]
    lines += [f"- {_name(column)} could not be measured: {column.failed}." for column in failed]
    if breakers:
        lines += ["", "## Circuit breakers", "", _BREAKERS, "", *_breaker_lines(breakers)]
    return "\n".join(lines)


def _table(columns: Sequence[Column], labels: Mapping[str, str]) -> Iterator[str]:
    """Yield a table with a row for each rival and a column for each question."""
    yield f"| package | {' | '.join(labels.values())} |"
    yield "|---|" + "---|" * len(labels)
    for column in columns:
        cells = [_cell(column.cells.get(question)) for question in labels]
        yield f"| {_name(column)} | {' | '.join(cells)} |"


def _answers(question: str, columns: Sequence[Column]) -> list[str]:
    """Return the different answers to a question, without those of rivals that lack one."""
    cells = (_cell(column.cells.get(question)) for column in columns)
    return [cell for cell in dict.fromkeys(cells) if cell != "–"]


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
    "bytes, turn 100": "bytes written by one turn",
    "round trips, turn 100": "round trips of one turn",
    "round trips for 100 turns": "round trips to restore 100 turns",
    "event loop blocked, ms": "event loop blocked, ms",
    "trimmed window restored": "trimmed window restored",
    "turns lost by two writers, of 3": "turns lost by two writers, of 3",
}
"""Columns of the guide that the README's table has, with its labels."""

_PACKAGES = {
    "strands_manga_memory": "this package",
    "Strands FileSessionManager": "Strands file",
    "Strands SnapshotSessionManager": "Strands snapshot",
    "strands-dynamodb-storage (AWS)": "AWS DynamoDB",
    "strands-redis-session-manager": "strands-redis",
}


def in_short(page: str) -> str:
    """Build the README's table: six questions and five session managers of the guide's tables.

    Args:
        page: Text of the guide, with the tables between their markers.
    """
    answers: dict[tuple[str, str], str] = {}
    head: list[str] = []
    for line in page.partition(BEGIN)[2].partition(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| package |"):
            head = cells
        elif line.startswith("| "):
            package = next((name for name in _PACKAGES if cells[0].startswith(name)), cells[0])
            answers |= {(label, package): cell for label, cell in zip(head, cells, strict=False)}
    table = ["| | " + " | ".join(_PACKAGES.values()) + " |", "|---|" + "---|" * len(_PACKAGES)]
    return "\n".join(
        [
            *table,
            *(
                f"| {label} | {' | '.join(answers[question, name] for name in _PACKAGES)} |"
                for question, label in IN_SHORT.items()
            ),
        ]
    )
