"""The command ``demo``, which runs two examples: a quick start, and a shop's chat."""

from __future__ import annotations

import os
import runpy
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.cli.output import USAGE

_PACKAGE = Path(__file__).parents[2]
_NEEDED = ("agent_squad", "sse_starlette", "starlette", "uvicorn")


class DemoPart(StrEnum):
    """Part of the demonstration that the command ``demo`` runs."""

    ALL = "all"
    QUICKSTART = "quickstart"
    WEB = "web"
    TERMINAL = "terminal"


def demo(
    part: Annotated[
        DemoPart,
        typer.Argument(
            help="Quick start, then web chat; one of them; or the chat in this terminal."
        ),
    ] = DemoPart.ALL,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the web chat; 0: any free port.")
    ] = 8765,
    model: Annotated[
        str,
        typer.Option(
            metavar="scripted|bedrock[:ID]",
            help="Model of the shop's agents; scripted needs no key.",
        ),
    ] = "scripted",
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Folder of the chat's stores; default: inside the working directory.",
        ),
    ] = None,
) -> int:
    """Run a demonstration: a worker is killed twice and loses nothing, then a shop's chat opens.

    No keys and no servers are needed; no data leaves this machine. Install
    strands-manga-memory[demo] first. Three other commands show the chat's sessions: users, sessions
    and inspect.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        remedy = "pip install 'strands-manga-memory[demo]'"
        print(f"the demo needs {', '.join(missing)}: {remedy}", file=sys.stderr)  # noqa: T201
        return USAGE
    if part in (DemoPart.ALL, DemoPart.QUICKSTART):
        status = _run("quickstart.py", "--model", model)
        if status or part is DemoPart.QUICKSTART:
            return status
    chat = ["--model", model, *([] if folder is None else ["--folder", str(folder)])]
    return _run(
        "mangaassist/__main__.py",
        *chat,
        *([] if part is DemoPart.TERMINAL else ["--web", "--port", str(port)]),
    )


def _examples() -> Path:
    inside = _PACKAGE / "demo"
    return inside if inside.is_dir() else _PACKAGE.parent / "examples"


def _run(name: str, *arguments: str) -> int:
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
