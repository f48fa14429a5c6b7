"""demo: the quick start and MangaAssist, the assistant of a manga shop, as they come with the package."""

from __future__ import annotations

import os
import runpy
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.cli.exits import USAGE

_PACKAGE = Path(__file__).parents[2]
_NEEDED = ("agent_squad", "sse_starlette", "starlette", "uvicorn")


class What(StrEnum):
    """What to show."""

    ALL = "all"
    QUICKSTART = "quickstart"
    WEB = "web"
    TERMINAL = "terminal"


def demo(
    what: Annotated[
        What, typer.Argument(help="The quick start and then the web chat; or one of them; or the chat in this terminal.")
    ] = What.ALL,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Of the web chat; 0: a free one.")] = 8765,
    model: Annotated[
        str, typer.Option(metavar="scripted|bedrock[:ID]", help="Who plays the shop's agents; scripted needs no key.")
    ] = "scripted",
    folder: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Files of the chat's stores; by default below the working directory.")
    ] = None,
) -> int:
    """Show the package at work: a worker that is killed twice, then a chat with a panel that shows the memory.

    No keys, no servers, and nothing leaves this machine. It needs the extra demo. The chat's sessions are where the other
    commands look, so users, sessions and inspect show them.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        what_to_do = "pip install 'strands-manga-memory[demo]'"
        print(f"the demo needs {', '.join(missing)}: {what_to_do}", file=sys.stderr)  # noqa: T201
        return USAGE
    if what in (What.ALL, What.QUICKSTART):
        status = _run("quickstart.py", "--model", model)
        if status or what is What.QUICKSTART:
            return status
    chat = ["--model", model, *([] if folder is None else ["--folder", str(folder)])]
    return _run("mangaassist/__main__.py", *chat, *([] if what is What.TERMINAL else ["--web", "--port", str(port)]))


def _examples() -> Path:
    """Return where the examples are: inside the wheel, or beside the package in its repository."""
    inside = _PACKAGE / "demo"
    return inside if inside.is_dir() else _PACKAGE.parent / "examples"


def _run(name: str, *arguments: str) -> int:
    """Run an example as a script; return its exit status."""
    script = _examples() / name
    before, search = sys.argv, list(sys.path)
    sys.argv, sys.path = [os.fspath(script), *arguments], [os.fspath(_examples()), *sys.path]
    try:
        runpy.run_path(os.fspath(script), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    finally:
        sys.argv, sys.path = before, search
    return 0
