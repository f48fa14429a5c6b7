"""Environment: what surrounds the conversation and belongs to others; read-only to the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, ValidationError, field_validator

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.layers.layer import Part
from strands_manga_memory.stores.table import Table

_MOST = 50


class Environment(Part):
    """What surrounds a conversation; None or empty where the source says nothing. Further fields are ignored.

    Attributes:
        tier: The user's tier, such as ``"premium"``.
        locale: Such as ``"ja-JP"``.
        language: Preferred language.
        cart: What is in the cart, one line an item.
        promotions: What is on offer, one line each.
        timezone: IANA name, such as ``"Asia/Tokyo"``; the time of day follows from it.
        time_of_day: As the source says, where it does.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    tier: str | None = None
    locale: str | None = None
    language: str | None = None
    cart: tuple[str, ...] = Field(default=(), max_length=_MOST)
    promotions: tuple[str, ...] = Field(default=(), max_length=_MOST)
    timezone: str | None = None
    time_of_day: str | None = None

    @field_validator("cart", "promotions", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        return tuple(_line(item) for item in value)[:_MOST] if isinstance(value, list | tuple) else value

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                ZoneInfo(value)
            except (KeyError, ValueError, OSError) as error:
                raise ValueError(f"timezone must be an IANA name, got {value!r:.80}") from error
        return value

    def announced(self) -> dict[str, Any]:
        """Return what is told of the conversation beside its messages."""
        return {"locale": self.locale, "cart": list(self.cart)}

    def part_of_day(self, now: float) -> str | None:
        """Return ``morning``, ``afternoon``, ``evening`` or ``night`` where the user is; None if nobody knows."""
        if self.time_of_day is not None or self.timezone is None:
            return self.time_of_day
        hour = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.timezone)).hour
        return "night" if hour < 5 or hour >= 22 else "morning" if hour < 11 else "afternoon" if hour < 17 else "evening"


def _line(item: Any) -> str:
    """Return an item of a cart in one line: ``{"asin": "B07X1234", "quantity": 2}`` is ``asin B07X1234, quantity 2``."""
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value not in (None, ""))
    return str(item)


class EnvironmentSource(Protocol):
    """Reads what surrounds a conversation."""

    def load(self, scope: ConversationScope) -> Environment | None:
        """Return it, or None if nothing is known. It may be slow; it is never called on the event loop of a turn."""


class CallableEnvironmentSource:
    """Asks a function, such as one that calls a service.

    Args:
        function: From a scope to an ``Environment``, a mapping of its fields, or None.
    """

    def __init__(self, function: Callable[[ConversationScope], Environment | Mapping[str, Any] | None]) -> None:
        if not callable(function):
            raise ValueError(f"function must be callable, got {function!r:.80}")
        self._function = function

    def load(self, scope: ConversationScope) -> Environment | None:
        """Return what the function says.

        Raises:
            CorruptRecordError: It is no environment.
        """
        return environment_of(self._function(scope), record="environment")


class TableEnvironmentSource:
    """Reads a record of a table that another service writes.

    Args:
        table: The table; its schema names its keys.
        sort: Sort value of the record. Default ``environment``.
        partition: From a scope to the partition value. Default: the user's storage id.
        attributes: Names of the attributes, where they differ from the fields: ``{"tier": "membership"}``.

    Raises:
        ValueError: ``attributes`` names no field of ``Environment``.
    """

    def __init__(
        self,
        table: Table,
        *,
        sort: str = "environment",
        partition: Callable[[ConversationScope], str] = lambda scope: scope.storage_user_id,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        unknown = sorted(set(attributes or {}) - set(Environment.model_fields))
        if unknown:
            raise ValueError(
                f"attributes must name fields of Environment ({', '.join(Environment.model_fields)}), got {unknown}"
            )
        self._table = table
        self._sort = sort
        self._partition = partition
        self._names = {name: name for name in Environment.model_fields} | dict(attributes or {})

    def load(self, scope: ConversationScope) -> Environment | None:
        """Return the record, or None; one request.

        Raises:
            CorruptRecordError: The record is no environment.
            StoreUnavailableError: The table does not answer.
        """
        item = self._table.get(self._partition(scope), self._sort)
        if item is None:
            return None
        found = {name: item[attribute] for name, attribute in self._names.items() if item.get(attribute) is not None}
        return environment_of(found, record=f"{self._partition(scope)}/{self._sort}")


def environment_of(value: Environment | Mapping[str, Any] | None, *, record: str) -> Environment | None:
    """Return a value as an environment.

    Raises:
        CorruptRecordError: It is none.
    """
    if value is None or isinstance(value, Environment):
        return value
    try:
        return Environment.model_validate(dict(value))
    except (ValidationError, TypeError, ValueError) as error:
        wrong = ", ".join(str(each["loc"][0]) for each in error.errors()) if isinstance(error, ValidationError) else repr(value)
        raise CorruptRecordError(f"record={record!r} is no environment: {wrong:.80}", record=record) from error
