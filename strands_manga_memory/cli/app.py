"""app: the commands, and what errors become."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import typer

from strands_manga_memory.cli import FAILED, UNAVAILABLE, USAGE
from strands_manga_memory.cli.commands import COMMANDS
from strands_manga_memory.exceptions import MangaMemoryError, StoreUnavailableError

app = typer.Typer(
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
        result = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments), prog_name="strands-manga-memory", standalone_mode=False
        )
    except click.ClickException as error:
        error.show()
        return USAGE
    except click.exceptions.Abort:
        print("nothing was done", file=sys.stderr)  # noqa: T201
        return FAILED
    except StoreUnavailableError as error:
        print(f"a store does not answer: {error}\nstrands-manga-memory doctor says why", file=sys.stderr)  # noqa: T201
        return UNAVAILABLE
    except (MangaMemoryError, ValueError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        return FAILED
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0
