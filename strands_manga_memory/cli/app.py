"""Typer application of the command line. It imports only the module of the called command."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from strands_manga_memory import __version__
from strands_manga_memory.cli.output import FAILED, UNAVAILABLE, print_error

COMMANDS: dict[str, str] = {
    "demo": "Run a demonstration: no keys, no servers.",
    "doctor": "Find problems of a deployment, with remedies.",
    "users": "List the users who have sessions.",
    "sessions": "List the sessions of a user.",
    "inspect": "Show the stored data of a session.",
    "history": "Show the messages of a session, page by page.",
    "fork": "Begin a session with the first turns of another.",
    "rewind": "Let a session go back to an earlier turn.",
    "delete-session": "Delete a session, in both tiers.",
    "sweep": "Finalize and delete expired sessions.",
    "init-table": "Create the tables, their indexes and TTL settings.",
    "permissions": "Print the permissions that a worker needs.",
    "export": "Export a user's data as JSON.",
    "import": "Import a file that export wrote.",
    "forget-user": "Delete all data of a user, in all tiers.",
    "cost": "Estimate the monthly cost of a deployment.",
    "ttl-advice": "Recommend a TTL for the hot tier.",
    "bench": "Measure the layer's time per turn on these stores.",
    "settings": "Show every setting, its value and its source.",
}
"""Short help texts of the commands, keyed by command name."""

_MODULES = {
    "maintenance": "doctor sweep bench",
    "sessions": "users sessions inspect history fork rewind delete-session",
    "planning": "cost ttl-advice",
    "setup": "init-table permissions settings",
    "user_data": "export import forget-user",
    "demo": "demo",
}
"""Commands of each module, separated by spaces."""


def command(name: str) -> Callable[..., Any]:
    """Import the module of a command, and return the function that executes the command."""
    module = next(module for module, names in _MODULES.items() if name in names.split())
    commands = importlib.import_module(f"strands_manga_memory.cli.commands.{module}")
    attribute = "import_" if name == "import" else name.replace("-", "_")
    function: Callable[..., Any] = getattr(commands, attribute)
    return function


def _exit(status: int | None, **options: object) -> None:
    raise typer.Exit(status or 0)


def _version(asked: bool) -> None:
    if asked:
        print(f"strands-manga-memory {__version__}")  # noqa: T201
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass  # typer needs a function for the options of the program itself


def _app(named: str | None) -> typer.Typer:
    app = typer.Typer(
        result_callback=_exit,
        callback=_options,
        name="strands-manga-memory",
        help="Inspect a deployment of strands_manga_memory, maintain it, and estimate its cost.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name, text in COMMANDS.items():
        # The help lists every command, but only the called one is imported.
        app.command(name, short_help=text)(command(name) if name == named else lambda: None)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    ``arguments`` lacks the name of the program. Default: the arguments of the process.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal in Shift JIS shows no emoji
        sys.stdout.reconfigure(errors="backslashreplace")
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
        from strands_manga_memory.exceptions import (
            KeyMissingError,
            MangaMemoryError,
            StoreRefusedError,
            StoreUnavailableError,
        )

        if not isinstance(error, MangaMemoryError | ValueError | OSError):
            raise
        if isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError):
            print_error(
                f"a store is unavailable: {error}; to find the cause, run strands-manga-memory"
                " doctor"
            )
            return UNAVAILABLE
        hint = "; name the codec with --codec" if isinstance(error, KeyMissingError) else ""
        print_error(f"{error}{hint}")
        return FAILED
    return 0
