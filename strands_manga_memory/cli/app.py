"""Typer application with all commands, and the mapping from errors to exit statuses."""

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
    """Exit with a command's return value."""
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
    """Inspect a deployment of strands_manga_memory, run its maintenance, estimate its cost."""


def _not_loaded() -> None:
    """Placeholder for a command in the list of commands. The real module imports Strands, which is slow."""


def _app(named: str | None) -> typer.Typer:
    app = typer.Typer(
        result_callback=_exit,
        callback=_options,
        name="strands-manga-memory",
        help="Inspect a deployment of strands_manga_memory, run its maintenance, estimate its cost.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name in COMMANDS:
        app.command(name, short_help=COMMANDS[name])(command(name) if name == named else _not_loaded)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Args:
        arguments: Arguments without the program's name. Default: those of the process.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    completed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = given or completed.split()[1:]
    try:
        _app(words[0] if words else None)(args=given, prog_name="strands-manga-memory")
    except SystemExit as end:  # Typer raises it after success and after failure
        return end.code if isinstance(end.code, int) else FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Imported here, because the tree of errors imports Strands.
        from strands_manga_memory.exceptions import MangaMemoryError, StoreRefusedError, StoreUnavailableError

        if not isinstance(error, MangaMemoryError | ValueError | OSError):
            raise
        if isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError):
            print_error(f"a store is unavailable: {error}; to find the cause, run strands-manga-memory doctor")
            return UNAVAILABLE
        print_error(str(error))
        return FAILED
    return 0
