"""COMMANDS: the commands by their names; each is a function in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strands_manga_memory.cli.bench import bench
from strands_manga_memory.cli.cost import cost
from strands_manga_memory.cli.dashboard import dashboard
from strands_manga_memory.cli.doctor import doctor
from strands_manga_memory.cli.export import export
from strands_manga_memory.cli.forget_user import forget_user
from strands_manga_memory.cli.import_ import import_
from strands_manga_memory.cli.init_table import init_table
from strands_manga_memory.cli.inspect import inspect
from strands_manga_memory.cli.permissions import permissions
from strands_manga_memory.cli.reencrypt import reencrypt
from strands_manga_memory.cli.settings import settings
from strands_manga_memory.cli.sweep import sweep
from strands_manga_memory.cli.ttl_advice import ttl_advice

COMMANDS: dict[str, Callable[..., Any]] = {
    "doctor": doctor,
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
