"""Command line that inspects and maintains a deployment and estimates its cost.

The command is ``strands-manga-memory`` and needs the extra ``cli``. ``--help`` lists the
subcommands, ``--install-completion`` installs shell completion. Options or ``MANGA_MEMORY_*``
variables set the stores. With ``--json``, a command prints one JSON value on standard output.
Progress and messages go to standard error.

The exit status is one of these:

- 0: The command succeeded.
- 1: The command found a problem, or an operation failed.
- 2: The command line is invalid.
- 3: A store is unavailable.
- 130: The user interrupted the command.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from strands_manga_memory import __version__


def main() -> None:
    """Run the command line and exit the process."""
    missing = [name for name in ("rich", "typer") if find_spec(name) is None]
    if missing:
        print(  # noqa: T201
            f"strands-manga-memory {__version__}: its commands need {missing[0]}: pip install"
            " 'strands-manga-memory[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    from strands_manga_memory.cli.app import run

    sys.exit(run())
