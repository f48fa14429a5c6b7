"""COMMANDS: the commands by their names; each is a function in a file of its own, which is loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

COMMANDS: dict[str, str] = {
    "demo": "Show the package at work: no keys, no servers.",
    "doctor": "Say what is wrong with a deployment, and what to do.",
    "users": "List the users who have sessions.",
    "sessions": "List the sessions of a user.",
    "inspect": "Show what is stored of a session.",
    "sweep": "Finish expired sessions.",
    "init-table": "Make the tables, their indexes and their TTL setting.",
    "permissions": "Print what a worker needs to be allowed.",
    "export": "Write everything there is of a user as JSON, or snapshots.",
    "import": "Store what export wrote, or others' sessions.",
    "forget-user": "Delete everything there is of a user, in all tiers.",
    "cost": "Say what a deployment costs a month.",
    "ttl-advice": "Say how long conversations should stay hot.",
    "bench": "Show what the layer takes of each turn on these stores.",
    "settings": "Show every setting, and where its value comes from.",
}
"""The commands, and what their list says of each, short enough for a terminal of 80 columns."""

_HOMES = {"import": "import_", "users": "sessions"}


def command(name: str) -> Callable[..., Any]:
    """Return the function of a command. Most load Strands, which takes longer than what some others do."""
    module = importlib.import_module(f"strands_manga_memory.cli.commands.{_HOMES.get(name, name.replace('-', '_'))}")
    return cast("Callable[..., Any]", getattr(module, "import_" if name == "import" else name.replace("-", "_")))
