"""The kinds of values that settings take, each with its unit or its words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator

from strands_manga_memory.language.pii import DEFAULT_RULES, Action
from strands_manga_memory.memory.records import MemoryType


@dataclass(frozen=True)
class Unit:
    """The unit of a setting's number."""

    name: str


@dataclass(frozen=True)
class Words:
    """Kinds of settings other than number, text and choice."""

    takes: str


Seconds = Annotated[float, Unit("seconds")]
Tokens = Annotated[int, Unit("tokens")]
Turns = Annotated[int, Unit("turns")]
Messages = Annotated[int, Unit("messages")]
Failures = Annotated[int, Unit("failures")]
Users = Annotated[int, Unit("users")]

_MOST_DAYS = 36_500.0


def _pairs(names: Collection[str], taken: Callable[[Any], Any], words: str) -> Callable[[object], Mapping[str, Any] | None]:
    """Return a validator that reads ``name=value,name=value`` or a mapping, and refuses other values with ``words``."""

    def read(given: object) -> Mapping[str, Any] | None:
        if given is None:
            return None
        pairs = [pair.split("=") for pair in given.split(",")] if isinstance(given, str) else given
        try:
            return {_one_of(names, name): taken(value) for name, value in dict(pairs).items()}  # type: ignore[call-overload]
        except (TypeError, ValueError):
            raise ValueError(words.replace("`", "")) from None

    return read


def _one_of(names: Collection[str], name: Any) -> str:
    known = str(name).strip()
    if known not in names:
        raise ValueError(known)
    return known


def _days(value: Any) -> float:
    days = float(value)
    if not 0 < days <= _MOST_DAYS:
        raise ValueError(days)
    return days


_RULES = tuple(dict.fromkeys(rule.name for rule in DEFAULT_RULES))
_ACTIONS = get_args(Action)
_KEPT = tuple(type_.value for type_ in MemoryType if type_ is not MemoryType.PREFERENCE)

_PII = f"`rule=action,...`, with a rule of {', '.join(_RULES)} and an action of {', '.join(_ACTIONS)}"
_RETENTION = f"`type=days,...`, with a type of {', '.join(_KEPT)} and over 0 to {_MOST_DAYS:,.0f} days"

PiiActions = Annotated[
    Mapping[str, Action], BeforeValidator(_pairs(_RULES, lambda value: _one_of(_ACTIONS, value), _PII)), Words(_PII)
]
RetentionDays = Annotated[Mapping[str, float], BeforeValidator(_pairs(_KEPT, _days, _RETENTION)), Words(_RETENTION)]
