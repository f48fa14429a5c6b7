"""ProfileSource: a user's profile that another service owns: read at session start, never written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Protocol

from strands_manga_memory.memory.records.memory_records import Owner
from strands_manga_memory.stores.table import Table


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile service knows of a user; None where it says nothing.

    Attributes:
        favorite_genres: Genres, the favorite one first.
        language: Preferred language.
        purchase_summary: Purchases in a sentence.
        escalations: How often a human had to take over.
        last_updated: When the service last changed it, as it says.
    """

    favorite_genres: tuple[str, ...] = ()
    language: str | None = None
    purchase_summary: str | None = None
    escalations: int | None = None
    last_updated: str | float | None = None

    @property
    def preferences(self) -> dict[str, str]:
        """What an agent is told of it, as slot and value."""
        said = {
            "genre": ", ".join(self.favorite_genres),
            "language": self.language or "",
            "purchases": self.purchase_summary or "",
            "escalations": str(self.escalations) if self.escalations else "",
        }
        return {key: value for key, value in said.items() if value}


def profile_of(answer: object) -> tuple[Profile, list[str]]:
    """Return the profile that an object or a mapping tells, and the fields that are left out because of their type."""
    names = [field.name for field in fields(Profile)]
    said = {name: answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None) for name in names}
    given = {name: value for name, value in said.items() if value is not None}
    kept = {name: value for name, known in given.items() if (value := _READ[name](known)) is not None}
    return Profile(**kept), sorted(given.keys() - kept.keys())


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return (value,)
    listed = sorted(value, key=str) if isinstance(value, set | frozenset) else value
    return tuple(listed) if isinstance(listed, list | tuple) and all(isinstance(each, str) for each in listed) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


def _count(value: object) -> int | None:
    number = float(len(value)) if isinstance(value, list | tuple) else _number(value)
    return int(number) if number is not None and math.isfinite(number) else None


_READ: Mapping[str, Callable[[object], Any]] = {
    "favorite_genres": _texts,
    "language": _text,
    "purchase_summary": _text,
    "escalations": _count,
    "last_updated": lambda value: _number(value) if _text(value) is None else value,
}


class ProfileSource(Protocol):
    """Reads a user's profile."""

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Return the profile, or None if there is none."""


class TableProfileSource:
    """Reads profiles from a table of another service.

    Args:
        table: The table; its schema names its keys.
        sort: Sort value of a profile record. Default ``profile``.
        attributes: Names of the attributes, where they differ from those of ``Profile``: ``{"language": "lang"}``.
        partition: From user and tenant to the partition value. Default that of ``UserMemoryStore``: the escaped user id, behind
            ``tenant:`` if there is one.

    Raises:
        ValueError: ``attributes`` names no field of ``Profile``.
    """

    def __init__(
        self,
        table: Table,
        *,
        sort: str = "profile",
        attributes: Mapping[str, str] | None = None,
        partition: Any = lambda user_id, tenant: Owner(user_id, tenant).partition,
    ) -> None:
        names = [field.name for field in fields(Profile)]
        unknown = sorted(set(attributes or {}) - set(names))
        if unknown:
            raise ValueError(f"attributes must name fields of Profile ({', '.join(names)}), got {unknown}")
        self._table = table
        self._sort = sort
        self._names = {name: name for name in names} | dict(attributes or {})
        self._partition = partition

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Return the profile, or None; one request. What of it has another type is left out.

        Raises:
            StoreUnavailableError: The table does not answer.
        """
        item = self._table.get(self._partition(user_id, tenant), self._sort)
        return None if item is None else profile_of({name: item.get(attribute) for name, attribute in self._names.items()})[0]
