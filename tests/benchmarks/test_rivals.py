"""Comparison with rivals: results of the installed ones, counts, and the table in the guide."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.rivals import measures
from tests.benchmarks.rivals.catalogue import RIVALS, Rival
from tests.benchmarks.rivals.stage import RivalError, Stage, driven, stage_of
from tests.benchmarks.rivals.table import BEGIN, END, Column, markdown, setups, write

pytestmark = pytest.mark.xdist_group("rivals")  # its servers and processes are started once

GUIDE = Path(__file__).parents[2] / "strands_manga_memory/guide/comparison.md"
OURS, FILE = RIVALS[:2]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with stage_of() as made:
        yield made


@pytest.mark.long
def test_ours_loses_nothing_and_restores_exactly(stage: Stage) -> None:
    assert measures.two_writers(OURS, stage) == {"of 3 turns of two writers lost": 0}
    assert measures.window(OURS, stage) == {
        "window after trimming with pins restored exactly": "yes"
    }
    assert measures.redacted(OURS, stage) == {"traces of a redacted message": 0}
    assert set(measures.neighbours(OURS, stage).values()) == {"no"}


@pytest.mark.long
def test_strands_own_are_told_apart(stage: Stage) -> None:
    """The measures can find differences: Strands' file manager has some."""
    stage.close()
    assert measures.window(FILE, stage) == {
        "window after trimming with pins restored exactly": "no"
    }
    assert measures.two_writers(FILE, stage) == {"of 3 turns of two writers lost": 1}


@pytest.mark.long
def test_what_a_rival_raises_is_told(stage: Stage) -> None:
    stage.close()
    broken = Rival("broken", "no_such_adapter")
    with pytest.raises(RivalError), driven(broken, stage, session="s"):
        raise AssertionError("it opened")
    stage.close()


def test_commands_are_counted_in_what_passed() -> None:
    stream = b"*2\r\n$3\r\nGET\r\n$5\r\n*9\r\n$\r\n" + b"*1\r\n$4\r\nPING\r\n"
    assert measures._commands_of(stream) == 2
    assert measures._commands_of(b"") == 0


def test_the_table_tells_of_everyone(tmp_path: Path) -> None:
    columns = [
        Column(OURS, "1", {"trips": 1, "kept": "yes", "lost": 0}),
        Column(FILE, "2", {"trips": 2.5, "kept": "no", "lost": 0}),
        Column(RIVALS[3], "3", failed="not installed on Python 3.11: no network"),
    ]
    table = markdown(
        columns,
        breakers={
            "strands_manga_memory_probes_of_100": 1,
            "strands_manga_memory_admits": 0,
            "pybreaker_x": 2,
        },
    )
    details = setups(columns, today=dt.date(2026, 1, 2))
    assert f"| {OURS.name} 1 | 1 | yes |" in table
    assert f"| {FILE.name} 2 | 2.5 | no |" in table
    assert (
        "- Equal for all packages to which it applies: lost: 0." in details
    )  # an equal answer has no column
    assert (
        f"- {RIVALS[3].name} 3 could not be measured: not installed on Python 3.11: no network."
        in details
    )
    assert "2026-01-02" in details
    assert "| probes of 100 | 1 |" in table
    assert "| admits | no |" in table
    path = tmp_path / "R.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(path, table)
    assert path.read_text() == f"before\n{BEGIN}\n{table}\n{END}\nafter\n"
    path.write_text("nothing")
    with pytest.raises(ValueError, match="markers"):
        write(path, table)


def test_the_guide_holds_a_table_of_this_form() -> None:
    text = GUIDE.read_text(encoding="utf-8").partition(BEGIN)[2]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0].startswith("| package | ")
    assert rows[1].startswith(f"| {OURS.name} ")
    for rival in RIVALS:
        assert rival.name in text, (
            f"{rival.name} is missing: python -m tests.benchmarks rivals --write"
            " strands_manga_memory/guide/comparison.md"
        )
    assert "measured on 20" in text
    tables = [row for row in rows if row.startswith("| package | ")]
    assert sum(row.count("|") - 2 for row in tables) > 15
    assert sum(row.startswith(f"| {OURS.name} ") for row in rows) == len(tables)
    assert any(row.startswith("| breaker |") for row in rows)
