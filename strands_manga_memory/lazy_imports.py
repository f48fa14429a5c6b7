"""Import of the public names of a package at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, str], public_names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package that imports names lazily.

    A module of the package is imported at the first use of one of its names.

    Example::

        modules = {"store": "UserMemoryStore", "records": "MemoryRecord MemoryType"}
        __getattr__, __dir__ = lazy_names(__name__, modules, __all__)

    Args:
        package: Name of the package.
        names: Mapping from each module, relative to the package, to the module's names, separated
            by spaces.
        public_names: All public names of the package, which ``__dir__`` returns.
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{modules[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: public_names
