"""What is made when it is first used: regular expressions, of which most processes meet few of the hundreds there are."""

from __future__ import annotations

import re
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
