"""Table of the comparison, as Markdown."""

import datetime as dt
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.rivals.catalogue import Rival
from tests.benchmarks.rivals.measures import Cell

BEGIN, END = "<!-- rivals: begin -->", "<!-- rivals: end -->"
"""Markers of the tables in the guide and in the README."""

SETUPS_BEGIN, SETUPS_END = "<!-- setups: begin -->", "<!-- setups: end -->"
"""Markers of the setups at the end of the guide."""


@dataclass
class Column:
    """Results of one rival."""

    rival: Rival
    version: str
    cells: dict[str, Cell] = field(default_factory=dict)
    failed: str = ""


GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "Work of a turn": (
        "Less is better in all columns. *Turn 10* and *turn 100* are means of five turns: 6 to"
        " 10, and 96 to 100.\n\n"
        "- **bytes**: sent to the stores or, by managers of files, written.\n"
        "- **round trips**: waits for an answer of a store. Requests that are sent together are"
        " one round trip.\n"
        "- **commands**: commands to Redis, and requests to DynamoDB.\n"
        "- **event loop blocked, ms**: longest pause of the event loop in a turn, with stores 50 ms"
        " away. It delays all agents of the process.",
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
        "- **restore, 100 turns**: round trips until a new process has a session of 100 turns."
        " Fewer are better.\n"
        "- **restore, crowded**: round trips to restore one turn from a Redis with 5,000 keys of"
        " others. Fewer are better.\n"
        "- **trimmed window restored**: after a trim, a new process has the same window, pinned"
        " messages included. *Yes* is right.\n"
        "- **lost turns, of 3**: two processes that know a session of one turn add one turn each."
        " 0 is right.\n"
        "- **message of 500 KB**: it and the turn after it are stored. *Kept* is right. An"
        " error is shown by its class.\n"
        "- **kept turns, of 6**: turns that are left of a session that was in use for longer than"
        " its time to live (TTL), with shorter pauses. 6 is right.\n"
        "- **continues after expiry**: a live agent continues an expired session, and later"
        " processes find its new turns. *Yes* is right. MIXED: two later processes found different"
        " messages.",
        {
            "round trips to restore 100 turns": "restore, 100 turns",
            "round trips to restore 1 turn with 5,000 foreign keys": "restore, crowded",
            "window after trimming with pins restored exactly": "trimmed window restored",
            "of 3 turns of two writers lost": "lost turns, of 3",
            "a message of 500 KB": "message of 500 KB",
            "of 6 turns in use past the TTL left": "kept turns, of 6",
            "a live agent goes on after its session expired": "continues after expiry",
        },
    ),
}
"""Tables of the guide: title, explanation, and columns by question."""

IDS = {
    "deleting a session whose id is a pattern of another's deletes that too": (
        "deleting session `a?` deletes session `ab`"
    ),
    "deleting a session whose id is a beginning of another's deletes that too": (
        "deleting session `a` deletes session `ab`"
    ),
    "an agent 'a?' gets the messages of 'a1'": "agent `a?` gets messages of `a1`",
    "agents 'x', 'x:msgs', 'x#msg' and 'x:messages' in one session": (
        "agents `x`, `x:msgs`, `x#msg`, `x:messages`"
    ),
}
"""Columns by question of the table of ids, among the setups."""

EQUAL = {
    "restored of 200 messages": "restored messages, of 200",
    "of 4 turns lost by kill -9": "turns lost by `kill -9`, of 4",
    "traces of a redacted message": "copies of a redacted message that are left",
}
"""Labels of questions that all packages answer equally."""

_BREAKERS = (
    "An open breaker lets one call, a *probe*, test whether the tool works again.\n\n"
    "- **probes of 100**: calls that reach the tool, if 100 arrive when a probe is due. 1 is"
    " right.\n"
    "- **probes of 100 failing**: the same, if the tool still fails. 1 is right.\n"
    "- **admits after ...**: the breaker admits the next call. *Yes* is right.\n"
    "- **half open after ...**: the breaker admits one call, and opens again if this call fails."
    " *Yes* is right.\n\n"
    "If a probe is cancelled, or fails by its caller's mistake (*ignored*), it shows nothing about"
    " the tool."
)


def markdown(columns: Sequence[Column], *, breakers: Mapping[str, float] | None = None) -> str:
    """Return the tables as Markdown, with a row for each rival.

    A table of its own has the questions that are neither in ``GROUPS`` nor in ``IDS``, unless all
    rivals answer them equally. ``setups`` returns the rest.
    """
    questions = _questions(columns)
    shown = [column for column in columns if not column.failed]
    grouped = {*IDS, *(question for _, labels in GROUPS.values() for question in labels)}
    others = {
        question: question
        for question in questions
        if question not in grouped and len(_answers(question, shown)) > 1
    }
    lines: list[str] = []
    for title, (explanation, labels) in {**GROUPS, "Further questions": ("", others)}.items():
        asked = {question: label for question, label in labels.items() if question in questions}
        if asked:
            lines += [f"### {title}", ""] + [explanation, ""] * bool(explanation)
            lines += [*_table(shown, asked), ""]
    if breakers:
        lines += ["## Circuit breakers", "", _BREAKERS, "", *_breaker_lines(breakers)]
    return "\n".join(lines).strip()


def setups(columns: Sequence[Column], *, today: dt.date) -> str:
    """Return the date, the setups, equal results and the table of ids as Markdown."""
    shown = [column for column in columns if not column.failed]
    grouped = {*IDS, *(question for _, labels in GROUPS.values() for question in labels)}
    same = [
        f"{EQUAL.get(name, name)}: {answers[0]}"
        for name in _questions(columns)
        if name not in grouped and len(answers := _answers(name, shown)) == 1
    ]
    lines = [
        (
            f"Session managers: measured on {today:%Y-%m-%d}, Strands Agents"
            f" {importlib.metadata.version('strands-agents')}. Bytes, commands and losses are"
            " counts. Round trips vary a little if a client sends several commands at once. The"
            " pause of the event loop is a timing on a busy machine."
        ),
        "",
        *([f"- Equal for all packages to which it applies: {'; '.join(same)}."] if same else []),
    ]
    lines += [f"- {c.rival.name}: {c.rival.note}." for c in shown if c.rival.note]
    failed = [column for column in columns if column.failed]
    lines += [f"- {_name(column)} could not be measured: {column.failed}." for column in failed]
    asked = {name: label for name, label in IDS.items() if name in _questions(columns)}
    if asked:
        lines += [
            "",
            (
                "Ids of sessions and agents. *No* is right in three columns, and *apart* in the"
                " last. An error is shown by its class."
            ),
            "",
            *_table(shown, asked),
        ]
    return "\n".join(lines)


def _questions(columns: Sequence[Column]) -> list[str]:
    return list(dict.fromkeys(name for column in columns for name in column.cells))


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
    heads = [names[0], *(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)]
    asked = [
        name.removeprefix("strands_manga_memory_")
        for name in values
        if name.startswith("strands_manga_memory_")
    ]
    yield "| breaker | " + " | ".join(heads) + " |"
    yield "|---|" + "---|" * len(names)
    for question in asked:
        cells: list[Cell] = [values.get(f"{name}_{question}") for name in names]
        if not question.startswith("probes"):
            cells = [None if cell is None else ("yes" if cell else "no") for cell in cells]
        yield f"| {question.replace('_', ' ')} | {' | '.join(map(_cell, cells))} |"


def write(path: Path, table: str, begin: str = BEGIN, end: str = END) -> None:
    """Write text between its markers in a file.

    Raises:
        ValueError: The file has no markers.
    """
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise ValueError(f"{path} must have the markers {begin} and {end}")
    head, tail = text.partition(begin)[0], text.partition(end)[2]
    path.write_text(f"{head}{begin}\n{table}\n{end}{tail}", encoding="utf-8")


IN_SHORT = {
    "bytes, turn 100": "bytes written by one turn",
    "round trips, turn 100": "round trips of one turn",
    "restore, 100 turns": "round trips to restore 100 turns",
    "event loop blocked, ms": "event loop blocked, ms",
    "trimmed window restored": "trimmed window restored",
    "lost turns, of 3": "turns lost by two writers, of 3",
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
