"""The command line, ``strands-manga-memory``: look at a deployment, run its housekeeping, plan its cost.

``strands-manga-memory --help`` lists the commands, ``strands-manga-memory --install-completion`` sets up completion. Stores are
those that the ``MANGA_MEMORY_*`` variables name, or the options. ``--json`` prints one JSON value on standard output; progress
and messages go to standard error. It needs the extra ``cli``.

Exit status: 0 done; 1 something is wrong, or was not done; 2 the command line is wrong; 3 a store does not answer.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from strands_manga_memory import __version__
from strands_manga_memory.cli.exits import USAGE


def main() -> None:
    """Run the command line; exits the process."""
    missing = next((name for name in ("rich", "typer") if find_spec(name) is None), None)
    if missing is not None:
        print(  # noqa: T201
            f"strands-manga-memory {__version__}: its commands need {missing}: pip install 'strands-manga-memory[cli]'",
            file=sys.stderr,
        )
        sys.exit(USAGE)
    from strands_manga_memory.cli.app import run

    sys.exit(run())
