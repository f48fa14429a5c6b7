"""Environment of a conversation: data from other systems, such as the user's locale, the cart and promotions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, ValidationError, field_validator

from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.session_state import SHARED_TTL, BackgroundRead, SessionState
from strands_manga_memory.state.state_store import Part
from strands_manga_memory.stores.codec import Codec, trusted
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.writer import TierHealth, shared_writer

_MOST = 50
_MOST_ITEMS, _MOST_PROMOTIONS = 5, 3


class Environment(Part):
    """Data from other systems that describe the user and the shop, such as the cart and promotions.

    Unknown values are None or empty. Fields that are not declared here are ignored.

    Attributes:
        tier: Customer tier of the user, such as ``"premium"``.
        locale: Locale, such as ``"ja-JP"``.
        language: Preferred language.
        cart: Items in the cart, one line each.
        cart_total: Total of the cart with its currency, such as ``"1,200 JPY"``; a number is stored as text.
        promotions: Current promotions, one line each.
        timezone: IANA name, such as ``"Asia/Tokyo"``, from which the time of day is derived.
        time_of_day: Time of day, if the source provides it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    tier: str | None = None
    locale: str | None = None
    language: str | None = None
    cart: tuple[str, ...] = Field(default=(), max_length=_MOST)
    cart_total: str | None = Field(default=None, max_length=40)
    promotions: tuple[str, ...] = Field(default=(), max_length=_MOST)
    timezone: str | None = None
    time_of_day: str | None = None

    @field_validator("cart", "promotions", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        return tuple(_line(item) for item in value)[:_MOST] if isinstance(value, list | tuple) else value

    @field_validator("cart_total", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        return f"{value:,}" if is_number else value

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
        """Return the locale and the cart, which are stored as metadata of the conversation."""
        return {"locale": self.locale, "cart": list(self.cart)}

    def part_of_day(self, now: float) -> str | None:
        """Return ``time_of_day`` or, without one, the time of day in the user's time zone; None if it is unknown.

        The derived value is ``morning``, ``afternoon``, ``evening`` or ``night``. ``now`` is in seconds since 1970.
        """
        if self.time_of_day is not None or self.timezone is None:
            return self.time_of_day
        hour = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.timezone)).hour
        return "night" if hour < 5 or hour >= 22 else "morning" if hour < 11 else "afternoon" if hour < 17 else "evening"

    def lines(self, now: float) -> Iterator[str]:
        """Yield the text lines that show the environment to the model. ``now`` is in seconds since 1970."""
        if self.cart:
            more = f" and {len(self.cart) - _MOST_ITEMS} more" if len(self.cart) > _MOST_ITEMS else ""
            total = f" (total {escape_line(self.cart_total)})" if self.cart_total else ""
            yield f"In the cart: {'; '.join(escape_line(item, 60) for item in self.cart[:_MOST_ITEMS])}{more}{total}"
        time_of_day = self.part_of_day(now)
        user = {"tier": self.tier, "language": self.language, "locale": self.locale, "time of day": time_of_day}
        if any(user.values()):
            yield "The user: " + "; ".join(f"{name} {escape_line(value, 40)}" for name, value in user.items() if value)
        if self.promotions:
            yield f"On offer: {'; '.join(escape_line(each, 60) for each in self.promotions[:_MOST_PROMOTIONS])}"


def _line(item: Any) -> str:
    """Return a cart item or promotion as one line: ``{"asin": "B07X1234", "quantity": 2}`` as ``asin B07X1234, quantity 2``."""
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value not in (None, ""))
    return str(item)


class EnvironmentSource(Protocol):
    """Source of a conversation's environment: data from other systems, such as the user's cart and locale."""

    def load(self, scope: ConversationScope) -> Environment | None:
        """Return the environment of a conversation; None if it is unknown. The method may block."""


class CallableEnvironmentSource:
    """Source that reads the environment (such as the user's cart) by calling a function, such as a client of a service.

    Args:
        function: Function that takes the scope of a conversation and returns an ``Environment``, a mapping of its fields, or
            None.
    """

    def __init__(self, function: Callable[[ConversationScope], Environment | Mapping[str, Any] | None]) -> None:
        if not callable(function):
            raise ValueError(f"function must be callable, got {function!r:.80}")
        self._function = function

    def load(self, scope: ConversationScope) -> Environment | None:
        """Call the function, and return its result as an environment.

        Raises:
            CorruptRecordError: The function's result is not an environment.
        """
        value = self._function(scope)
        if value is None or isinstance(value, Environment):
            return value
        try:
            return Environment.model_validate(dict(value))
        except (ValidationError, TypeError, ValueError) as error:
            wrong = repr(value)
            if isinstance(error, ValidationError):
                wrong = ", ".join(str(each["loc"][0]) for each in error.errors())
            raise CorruptRecordError(f"the result is not an environment: {wrong:.80}", record="environment") from error


class EnvironmentChanges:
    """Changes of a session's environment, such as a new cart, published to all agents of the session.

    Every publication writes a new random version. Agents compare versions before each model call, so they also find changes
    that were published while they were disconnected.

    Args:
        hot: Hot store through which changes are published.
        scope: Scope of the session.
        codec: Codec of the published values.
    """

    def __init__(self, hot: HotStore, scope: ConversationScope, *, codec: Codec | None = None) -> None:
        self._hot = hot
        self._name = f"environment/{scope.storage_session_id}"
        self._state = SessionState.name_of(scope)
        self._codec = codec or Codec()
        self._health = TierHealth()
        self.is_local = not hot.survives_process

    def publish(self, **fields: Any) -> None:
        """Publish a change of the environment. Each agent, in any process, reads the change before its next model call.

        Args:
            fields: Changed fields, such as ``cart=["B07X1234"]``. Agents with an ``EnvironmentSource`` ignore these values and
                read the source again.

        Raises:
            ValueError: A field does not exist, or its value is not allowed.
            StoreUnavailableError: The hot store is unavailable.
        """
        unknown = sorted(set(fields) - set(Environment.model_fields))
        if unknown:
            raise ValueError(f"fields must be of Environment ({', '.join(Environment.model_fields)}), got {unknown}")
        if "cart" in fields:  # a new cart invalidates the old total
            fields = {"cart_total": None, **fields}
        dumped = Environment.model_validate(fields).model_dump(mode="json")
        for name in fields:  # values first, so that an agent with the new version reads the new values
            place = f"{self._name}/{name}"
            self._hot.put_value(place, self._codec.encode(dumped[name], place), ttl=SHARED_TTL)
        self._hot.put_value(self._name, uuid.uuid4().bytes, ttl=SHARED_TTL)

    def erase(self) -> int:
        """Delete the published changes of a session's environment (such as the cart), and the state that its agents share.

        Returns:
            Number of deleted values.

        Raises:
            StoreUnavailableError: The hot store is unavailable.
        """
        places = [self._name, *(f"{self._name}/{name}" for name in Environment.model_fields), self._state]
        there = [place for place in places if self._hot.get_value(place)]
        for place in there:
            self._hot.put_value(place, b"", ttl=0.001)
        return len(there)

    def version(self) -> bytes | None:
        """Return the version of the last published change of the environment (such as the user's cart).

        Return None if no change was published, or if the hot store is unavailable.
        """
        return self._health.tried(lambda: self._hot.get_value(self._name)) or None

    def published(self) -> Environment:
        """Return the environment (such as the user's cart), with the last published value of each field.

        Raises:
            StoreUnavailableError: The hot store is unavailable.
            CorruptRecordError: A value is damaged.
        """
        found = {}
        for name in Environment.model_fields:
            place = f"{self._name}/{name}"
            value = self._hot.get_value(place)
            if value:
                found[name] = self._codec.decode(value, place)
        with trusted(self._name):
            return Environment.model_validate(found)


logger = logging.getLogger(__name__)


class EnvironmentTracker:
    """Tracker that keeps the environment of one agent (such as the user's cart and locale) up to date.

    With a source, the source is read again after each published change. Without a source, the environment consists of the
    published values. After a failed read, the last values stay. A model call waits at most ``deadline`` seconds for a read.
    """

    def __init__(
        self,
        source: EnvironmentSource | None,
        scope: ConversationScope | None,
        changes: EnvironmentChanges | None,
        *,
        deadline: float,
        environment: Environment | None = None,
    ) -> None:
        self._source, self._scope, self._changes = source, scope, changes
        self._is_loaded = environment is not None
        self.environment = environment or Environment()
        self._version: bytes | None = None
        writer = shared_writer(None, None)
        self._reading = BackgroundRead(self._read_change, name="environment", deadline=deadline, writer=writer, key=self)

    def load(self) -> None:
        """Load the environment, such as the user's cart and locale, at the start of the session."""
        version = self._new_version()
        if version is not None or (self._source is not None and not self._is_loaded):
            self._read(version)

    async def refresh(self) -> None:
        """Load the environment (such as the user's cart) again if a change was published, without blocking the event loop.

        A read that misses its deadline continues in the background.
        """
        if self._changes is None or (self._changes.is_local and self._new_version() is None):
            return  # without a change, the memory of this process needs no thread
        await self._reading.run()

    def _new_version(self) -> bytes | None:
        """Return the last announced version of the user's environment (tier, cart); None if it has been read already."""
        version = None if self._changes is None else self._changes.version()
        return None if version == self._version else version

    def _read_change(self) -> None:
        if (version := self._new_version()) is not None:
            self._read(version)

    def _read(self, version: bytes | None) -> None:
        try:
            if self._source is not None and self._scope is not None:
                self.environment = self._source.load(self._scope) or Environment()
            elif self._changes is not None:
                self.environment = self._changes.published()
        except Exception as error:  # noqa: BLE001 - a source is application code; the agent keeps the last values
            level = logging.DEBUG if isinstance(error, MangaMemoryError) else logging.WARNING
            logger.log(level, "error=<%s> | the environment could not be read", type(error).__name__)
        else:
            self._version = version
