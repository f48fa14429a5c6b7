"""Command line, ``strands-manga-memory``: inspect a deployment, run its maintenance, estimate its cost.

``strands-manga-memory --help`` lists the commands, ``strands-manga-memory --install-completion`` installs shell
completion. Stores are set by the ``MANGA_MEMORY_*`` variables or by options. ``--json`` prints one JSON value on
standard output; progress and messages go to standard error. It needs the extra ``cli``.

Exit status: 0 success; 1 a problem was found or an operation failed; 2 invalid command line; 3 a store is unavailable.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from strands_manga_memory import __version__


def main() -> None:
    """Run the command line and exit the process."""
    missing = next((name for name in ("rich", "typer") if find_spec(name) is None), None)
    if missing is not None:
        print(  # noqa: T201
            f"strands-manga-memory {__version__}: its commands need {missing}: pip install 'strands-manga-memory[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    from strands_manga_memory.cli.app import run

    sys.exit(run())
