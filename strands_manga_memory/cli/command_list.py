"""COMMANDS: the commands by their names; each is a function in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strands_manga_memory.cli.commands.bench import bench
from strands_manga_memory.cli.commands.cost import cost
from strands_manga_memory.cli.commands.dashboard import dashboard
from strands_manga_memory.cli.commands.demo import demo
from strands_manga_memory.cli.commands.doctor import doctor
from strands_manga_memory.cli.commands.export import export
from strands_manga_memory.cli.commands.forget_user import forget_user
from strands_manga_memory.cli.commands.import_ import import_
from strands_manga_memory.cli.commands.init_table import init_table
from strands_manga_memory.cli.commands.inspect import inspect
from strands_manga_memory.cli.commands.permissions import permissions
from strands_manga_memory.cli.commands.reencrypt import reencrypt
from strands_manga_memory.cli.commands.sessions import sessions, users
from strands_manga_memory.cli.commands.settings import settings
from strands_manga_memory.cli.commands.sweep import sweep
from strands_manga_memory.cli.commands.ttl_advice import ttl_advice

COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "doctor": doctor,
    "users": users,
    "sessions": sessions,
    "inspect": inspect,
    "sweep": sweep,
    "init-table": init_table,
    "permissions": permissions,
    "export": export,
    "import": import_,
    "forget-user": forget_user,
    "reencrypt": reencrypt,
    "cost": cost,
    "ttl-advice": ttl_advice,
    "bench": bench,
    "settings": settings,
    "dashboard": dashboard,
}

SHORT: dict[str, str] = {
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
    "reencrypt": "Encrypt all there is of a user with the present key.",
    "cost": "Say what a deployment costs a month.",
    "ttl-advice": "Say how long conversations should stay hot.",
    "bench": "Show what the layer takes of each turn on these stores.",
    "settings": "Show every setting, and where its value comes from.",
    "dashboard": "Print the Grafana dashboard of the package's metrics.",
}
"""What the list of commands says of each, short enough for a terminal of 80 columns."""
