"""Environment of a session: data of other systems, such as the user's cart and locale."""

from __future__ import annotations

import logging
import uuid
from bisect import bisect
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Protocol
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)
from strands import Agent
from strands.plugins import Plugin

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.deadline import BackgroundRead
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.lifecycle import attachments
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.session_state import (
    HOT_DEADLINE,
    SHARED_TTL,
    SessionState,
)
from strands_manga_memory.state.state_item import StateItem
from strands_manga_memory.stores.hot import HotStore

logger = logging.getLogger(__name__)

SOURCE_DEADLINE = 0.25

_MAX_LINES = 50
_MAX_ITEMS, _MAX_PROMOTIONS = 5, 3


def _item_text(item: Any) -> str:
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value not in (None, ""))
    return str(item)


def _amount(total: Any) -> Any:
    return f"{total:,}" if type(total) in (int, float, Decimal) else total


_Lines = Annotated[
    tuple[Annotated[str, BeforeValidator(_item_text)], ...],
    AfterValidator(lambda lines: lines[:_MAX_LINES]),
]


class Environment(StateItem):
    """Data from other systems about the user and the shop, such as the cart and promotions.

    Unknown values are None or empty. Fields that are not declared here are ignored.

    Attributes:
        tier: Customer tier of the user, such as ``"premium"``.
        locale: Locale, such as ``"ja-JP"``.
        language: Preferred language.
        cart: Items in the cart, one line each.
        cart_total: Total of the cart with its currency, such as ``"1,200 JPY"``. A number becomes a
            text.
        promotions: Current promotions, one line each.
        timezone: IANA name, such as ``"Asia/Tokyo"``, from which the time of day is derived.
        time_of_day: Time of day, if the source provides it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    tier: str | None = None
    locale: str | None = None
    language: str | None = None
    cart: _Lines = ()
    cart_total: Annotated[str | None, BeforeValidator(_amount)] = Field(default=None, max_length=40)
    promotions: _Lines = ()
    timezone: str | None = None
    time_of_day: str | None = None

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        try:
            ZoneInfo(value or "UTC")
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"timezone must be an IANA name, got {value!r:.80}") from error
        return value

    def metadata(self) -> dict[str, Any]:
        """Return the user's locale and cart as metadata for the conversation."""
        return {"locale": self.locale, "cart": list(self.cart)}

    def part_of_day(self, now: float) -> str | None:
        """Return the time of day of the user, such as ``morning``; None if it is unknown.

        Without a given ``time_of_day``, it is derived from the user's time zone and from ``now``,
        the time in seconds since 1970.
        """
        if self.time_of_day is not None or self.timezone is None:
            return self.time_of_day
        hour = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.timezone)).hour
        parts = "night", "morning", "afternoon", "evening", "night"
        return parts[bisect((5, 11, 17, 22), hour)]

    def lines(self, now: float) -> Iterator[str]:
        """Yield the text lines that show the cart, the user and the promotions to the model.

        ``now`` is the time in seconds since 1970, from which the user's time of day is derived.
        """
        if self.cart:
            more = f" and {hidden} more" if (hidden := len(self.cart) - _MAX_ITEMS) > 0 else ""
            total = f" (total {escape_line(self.cart_total)})" if self.cart_total else ""
            items = "; ".join(escape_line(item, 60) for item in self.cart[:_MAX_ITEMS])
            yield f"In the cart: {items}{more}{total}"
        user = {
            "tier": self.tier,
            "language": self.language,
            "locale": self.locale,
            "time of day": self.part_of_day(now),
        }
        known = [f"{name} {escape_line(value, 40)}" for name, value in user.items() if value]
        if known:
            yield f"The user: {'; '.join(known)}"
        if promotions := self.promotions[:_MAX_PROMOTIONS]:
            yield "On offer: " + "; ".join(escape_line(each, 60) for each in promotions)


class EnvironmentSource(Protocol):
    """Function that reads the environment, such as the user's cart, from other systems."""

    def __call__(self, scope: ConversationScope, /) -> Environment | Mapping[str, Any] | None:
        """Return the environment, such as the user's cart, for a conversation.

        The application implements this function, which may block: it is called in a thread. The
        result is an ``Environment`` or a mapping with its fields; None if it is unknown.
        """


@with_repr("_name")
class EnvironmentChanges:
    """Announcements that the environment of a session, such as the user's cart, has changed.

    Each announcement writes a new random id to the hot store. An agent reads this id before each
    model call, and so also notices announcements that were made between two model calls.

    Args:
        hot: Hot store through which changes are announced.
        scope: Scope of the session.
    """

    def __init__(self, hot: HotStore, scope: ConversationScope) -> None:
        self._hot = hot
        self._name = f"environment/{scope.storage_session_id}"
        self._state = SessionState.name_of(scope)

    def publish(self) -> None:
        """Announce to a session's agents that the environment, such as the cart, has changed.

        Each agent of the session then reads the environment again before its next model call.

        Raises:
            StoreUnavailableError: The hot store is unavailable.
        """
        self._hot.put_value(self._name, uuid.uuid4().bytes, ttl=SHARED_TTL)

    def erase(self) -> int:
        """Delete a session's shared state and the id of its latest announcement from the hot store.

        Returns:
            Number of deleted values.

        Raises:
            StoreUnavailableError: The hot store is unavailable.
        """
        there = [place for place in (self._name, self._state) if self._hot.get_value(place)]
        for place in there:
            self._hot.put_value(place, b"", ttl=0.001)
        return len(there)

    def version(self) -> bytes | None:
        """Return the random id of the latest announcement that the environment has changed.

        The result is None before the first announcement.

        Raises:
            StoreUnavailableError: The hot store is unavailable.
        """
        return self._hot.get_value(self._name) or None


_MAX_READS = 8
"""Number of waiting background jobs above which a new session does not read its source.
Without this limit, sources that hang could block all background threads.
"""


@with_repr("_scope")
class EnvironmentTracker(Plugin):
    """Plugin that keeps an agent's environment, such as the user's cart and locale, up to date.

    The source is read at the start of the session and after each announced change. If a read fails,
    the last values remain in use. A field with a wrong value keeps its last value.

    As a plugin, the tracker also stores the locale and the cart in the conversation's metadata. An
    agent with a ``StateCoordinator``, which does the same, does not need this plugin.

    Args:
        source: Source of the environment. The constructor reads it.
        scope: Scope of the conversation.
        hot: Hot store through which changes are announced. None: the source is read only once.
        deadline: Seconds that a model call waits for the hot store. Default 0.05.
        source_deadline: Seconds that the constructor, and a model call after an announced change,
            wait for the source. Default 0.25.

    Attributes:
        environment: Last known values; an empty environment while none are known.
    """

    name = "strands-manga-memory:environment"

    @checked
    def __init__(
        self,
        source: EnvironmentSource,
        scope: ConversationScope,
        *,
        hot: HotStore | None = None,
        deadline: float = HOT_DEADLINE,
        source_deadline: float = SOURCE_DEADLINE,
    ) -> None:
        super().__init__()
        self.environment = Environment()
        self._source, self._scope = source, scope
        self._changes: Any = None if hot is None else EnvironmentChanges(hot, scope)
        self._announced: bytes | None = None
        self._version: bytes | None = None
        self._checking = BackgroundRead(
            self._check, name="environment", deadline=deadline, key=self, hot=hot
        )
        self._loading = BackgroundRead(
            self._read, name="environment", deadline=source_deadline, key=self
        )
        if hot is not None:
            self._checking.run_blocking()
        if self._loading.writer.backlog <= _MAX_READS:
            self._loading.run_blocking()

    def init_agent(self, agent: Agent) -> None:
        """Register the locale and the cart as metadata that the agent's session manager saves."""
        attachments(agent)["metadata"] = lambda: self.environment.metadata()

    async def refresh(self) -> None:
        """Load the environment, such as the user's cart, again if a change was announced.

        The event loop is not blocked.
        """
        if self._changes is not None:
            await self._checking.run()
            if self._announced != self._version:
                await self._loading.run()

    def _check(self) -> None:
        self._announced = self._checking.health.call(self._changes.version) or self._announced

    def _read(self) -> None:
        version = self._announced
        with logged_errors(logger, "the environment could not be read, keeping the last values"):
            found = dict(self._source(self._scope) or {})
            try:
                self.environment = Environment.model_validate(found)
            except ValidationError as error:
                wrong = {str(each["loc"][0]) for each in error.errors()}
                logger.warning(
                    "fields=<%s> | wrong fields of the environment keep their last values",
                    ", ".join(sorted(wrong)),
                )
                found |= {name: getattr(self.environment, name) for name in wrong}
                self.environment = Environment.model_validate(found)
            else:
                self._version = version
