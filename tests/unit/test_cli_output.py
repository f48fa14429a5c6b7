"""Tables of the command line."""

from contextlib import nullcontext
from io import StringIO
from typing import Any

import pytest
import typer
from rich.cells import cell_len

from strands_manga_memory.cli.output import confirm, print_table


def test_a_table_breaks_no_word_that_has_room(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(
        "Those",
        ("what", "how many"),
        [("some words that are many", "1,234,567"), ("[b]x[/b]", 2)],
        right=(1,),
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 40
    assert any("1,234,567" in line for line in lines)
    assert any("[b]x[/b]" in line for line in lines)
    print_table("Those", ("what", "how many"), [("word " * 20 + "w" * 60, "1,234,567")])
    printed = capsys.readouterr().out
    assert max(map(cell_len, printed.splitlines())) <= 40
    assert "1,234,567" in printed
    assert " word " in printed


def test_a_terminal_that_says_it_has_no_columns_shows_a_table(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    print_table("Those", ("what",), [("manga",)])
    assert "manga" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "hinted"), [("", True), ("n\n", False), ("y\n", None)])
def test_a_question_without_an_answer_names_the_option_that_skips_it(
    typed: str, hinted: bool | None, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(typed))
    with nullcontext() if hinted is None else pytest.raises(typer.Abort):
        confirm("Delete?", yes=False)
    assert ("--yes skips" in capsys.readouterr().err) is bool(hinted)
