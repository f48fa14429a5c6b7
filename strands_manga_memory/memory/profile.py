"""ProfileSource: a user's profile that another service owns: read at session start, never written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.memory.memory_records import Owner
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


class ProfileSource(Protocol):
    """Reads a user's profile."""

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Return the profile, or None if there is none."""
        ...


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
        """Return the profile, or None; one request.

        Raises:
            CorruptRecordError: The record has other types than a profile's.
            StoreUnavailableError: The table does not answer.
        """
        place = self._partition(user_id, tenant), self._sort
        item = self._table.get(*place)
        if item is None:
            return None
        found = {name: item[attribute] for name, attribute in self._names.items() if item.get(attribute) is not None}
        genres = found.pop("favorite_genres", ())
        genres = [genres] if isinstance(genres, str) else genres
        escalations = found.get("escalations")
        if isinstance(escalations, list):
            found["escalations"] = len(escalations)
        try:
            return Profile(favorite_genres=tuple(map(str, genres)), **found)
        except TypeError as error:
            name = "/".join(place)
            raise CorruptRecordError(f"record={name!r} is no profile: {error}", record=name) from error
