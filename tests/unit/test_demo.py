"""The demo of the command line: what it runs, and what it says where something is missing."""

from pathlib import Path

import pytest

from strands_manga_memory.cli.app import run
from strands_manga_memory.cli.commands import demo
from strands_manga_memory.cli.output import USAGE
from tests.support import printed_by


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(demo, "find_spec", lambda name: object())
    monkeypatch.setattr(demo, "_run", lambda *call: calls.append(call) or 0)
    return calls


def test_it_shows_the_quick_start_and_then_the_chat(started: list[tuple[str, ...]]) -> None:
    assert run(["demo", "--port", "0"]) == 0
    assert [call[0] for call in started] == ["quickstart.py", "mangaassist/__main__.py"]
    assert started[1][1:] == ("--model", "scripted", "--web", "--port", "0")


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("quickstart", ("quickstart.py", "--model", "scripted")),
        ("terminal", ("mangaassist/__main__.py", "--model", "scripted", "--folder", "there")),
    ],
)
def test_one_of_them_alone(
    started: list[tuple[str, ...]], what: str, arguments: tuple[str, ...]
) -> None:
    assert run(["demo", what, "--folder", "there"]) == 0
    assert started == [arguments]


def test_a_quick_start_that_fails_opens_no_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: object())
    monkeypatch.setattr(
        demo, "_run", lambda name, *rest: 1 if name == "quickstart.py" else pytest.fail("opened")
    )
    assert run(["demo"]) == 1


def test_it_names_the_extra_where_a_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "uvicorn" else object())
    assert run(["demo"]) == USAGE
    assert "needs uvicorn: pip install 'strands-manga-memory[demo]'" in capsys.readouterr().err


def test_the_examples_start_by_it(tmp_path: Path) -> None:
    """They find their own modules, whatever the working directory is."""
    code = (
        "from strands_manga_memory.cli.commands import demo; import sys;"
        " sys.exit(demo._run({name!r}, '--help'))"
    )
    for name in ("quickstart.py", "mangaassist/__main__.py"):
        assert "--model" in printed_by("-c", code.format(name=name), cwd=tmp_path)
