"""What is made when it is first used: regular expressions, and the names of packages.

Most processes meet few of the hundreds of expressions there are, and few of the modules.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, AnyStr, cast

_OF_A_PATTERN = frozenset(name for name in dir(re.Pattern) if not name.startswith("_")) - {"pattern"}


def expression(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what is used as ``re.compile(pattern, flags)`` is, and is compiled at its first use."""
    return cast("re.Pattern[AnyStr]", Expression(pattern, flags))


class Expression:
    """Becomes its pattern at first use: from then on its methods are those of the pattern, found without a call of ours."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_A_PATTERN:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._flags)
        vars(self).update({each: getattr(compiled, each) for each in _OF_A_PATTERN})
        return getattr(compiled, name)

    def __repr__(self) -> str:
        return f"expression({self.pattern!r:.200})"


def door(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package, which load each of its names when it is first used.

    Args:
        package: Its ``__name__``.
        homes: By its modules the names that each gives it, separated by spaces.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next time it is found without a call
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return load, listed
