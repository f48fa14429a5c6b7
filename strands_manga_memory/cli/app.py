"""app: the commands, and what errors become."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from strands_manga_memory import __version__
from strands_manga_memory.cli.command_list import COMMANDS, command
from strands_manga_memory.cli.exits import FAILED, UNAVAILABLE
from strands_manga_memory.cli.output import print_error


def _exit(status: int | None, **options: object) -> None:
    """Exit with what a command returned."""
    raise typer.Exit(status or 0)


def _version(asked: bool) -> None:
    if asked:
        print(f"strands-manga-memory {__version__}")  # noqa: T201
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Look at a deployment of strands_manga_memory, run its housekeeping, plan its cost."""


def _not_loaded() -> None:
    """Stand for a command in the list: its module imports Strands, which takes longer than the list does."""


def _app(named: str | None) -> typer.Typer:
    app = typer.Typer(
        result_callback=_exit,
        callback=_options,
        name="strands-manga-memory",
        help="Look at a deployment of strands_manga_memory, run its housekeeping, plan its cost.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name in COMMANDS:
        app.command(name, short_help=COMMANDS[name])(command(name) if name == named else _not_loaded)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status.

    Args:
        arguments: What stands behind the program's name. Default that of the process.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    completed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = given or completed.split()[1:]
    try:
        _app(words[0] if words else None)(args=given, prog_name="strands-manga-memory")
    except SystemExit as end:  # the command line ends with it, well or not
        return end.code if isinstance(end.code, int) else FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Imported here, because the tree of errors imports Strands.
        from strands_manga_memory.exceptions import MangaMemoryError, StoreRefusedError, StoreUnavailableError

        if not isinstance(error, MangaMemoryError | ValueError | OSError):
            raise
        if isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError):
            advice = "if it is one of the settings, strands-manga-memory doctor says why"
            print_error(f"a store does not answer: {error}; {advice}")
            return UNAVAILABLE
        print_error(str(error))
        return FAILED
    return 0
