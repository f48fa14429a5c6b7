"""List of commands. Each is a function in its own module, which is imported when the command runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

COMMANDS: dict[str, str] = {
    "demo": "Run a demonstration: no keys, no servers.",
    "doctor": "Find problems of a deployment, with remedies.",
    "users": "List the users who have sessions.",
    "sessions": "List the sessions of a user.",
    "inspect": "Show the stored data of a session.",
    "history": "Show the messages of a session, page by page.",
    "fork": "Begin a session with the first turns of another.",
    "rewind": "Let a session go back to an earlier turn.",
    "sweep": "Finalize and delete expired sessions.",
    "init-table": "Create the tables, their indexes and TTL settings.",
    "permissions": "Print the permissions that a worker needs.",
    "export": "Export a user's data as JSON, or as snapshots.",
    "import": "Import an export, or sessions of other managers.",
    "forget-user": "Delete all data of a user, in all tiers.",
    "cost": "Estimate the monthly cost of a deployment.",
    "ttl-advice": "Recommend a TTL for the hot tier.",
    "bench": "Measure the layer's time per turn on these stores.",
    "settings": "Show every setting, its value and its source.",
}
"""Commands by name with their short help, which fits a terminal of 80 columns."""

_HOMES = {"import": "import_", "rewind": "fork", "users": "sessions"}


def command(name: str) -> Callable[..., Any]:
    """Import and return the function of a command."""
    module = importlib.import_module(f"strands_manga_memory.cli.commands.{_HOMES.get(name, name.replace('-', '_'))}")
    return cast("Callable[..., Any]", getattr(module, "import_" if name == "import" else name.replace("-", "_")))
