"""Tables of the command line."""

from typing import Any

import pytest
from rich.cells import cell_len

from strands_manga_memory.cli.output import print_table


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
