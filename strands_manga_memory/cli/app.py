"""app: the commands, and what errors become."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from strands_manga_memory.cli import FAILED, UNAVAILABLE
from strands_manga_memory.cli.commands import COMMANDS
from strands_manga_memory.exceptions import MangaMemoryError, StoreUnavailableError


def _exit(status: int | None) -> None:
    """Exit with what a command returned."""
    raise typer.Exit(status or 0)


app = typer.Typer(
    result_callback=_exit,
    name="strands-manga-memory",
    help="Look at a deployment of strands_manga_memory, run its housekeeping, plan its cost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for name, command in COMMANDS.items():
    app.command(name)(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status.

    Args:
        arguments: What stands behind the program's name. Default that of the process.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="strands-manga-memory")
    except SystemExit as end:  # the command line ends with it, well or not
        return end.code if isinstance(end.code, int) else FAILED
    except StoreUnavailableError as error:
        print(f"a store does not answer: {error}\nstrands-manga-memory doctor says why", file=sys.stderr)  # noqa: T201
        return UNAVAILABLE
    except (MangaMemoryError, ValueError, OSError) as error:
        hint = "; strands-manga-memory init-table makes it" if "create_if_missing" in str(error) else ""
        print(f"error: {error}{hint}", file=sys.stderr)  # noqa: T201
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0
