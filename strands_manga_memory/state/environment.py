"""Environment of a conversation: user tier, cart, promotions; read from its source and followed when it changes."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, ValidationError, field_validator

from strands_manga_memory import telemetry
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.state_store import Part, SessionState
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import STATE_DRIFT

_MOST = 50


class Environment(Part):
    """What surrounds a conversation; None or empty where the source says nothing. Further fields are ignored.

    Attributes:
        tier: The user's tier, such as ``"premium"``.
        locale: Such as ``"ja-JP"``.
        language: Preferred language.
        cart: What is in the cart, one line an item.
        cart_total: Total of the cart with its currency, such as ``"1,200 JPY"``; a number is kept as text.
        promotions: What is on offer, one line each.
        timezone: IANA name, such as ``"Asia/Tokyo"``; the time of day follows from it.
        time_of_day: As the source says, where it does.
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


_UNKNOWN = b""


class EnvironmentChanges:
    """Tells the agents of a session that something outside changed, and tells an agent whether it did.

    Every publication leaves a new mark. An agent compares it with the one it knows before each model call, in one read, so it
    also learns of what was published while it was disconnected.

    Args:
        hot: The hot tier.
        scope: The session; all its agents are told.
        ttl: Seconds a publication stays, at least as long as sessions live. Default 86,400.
        codec: Seals what is published.
        clock: Monotonic seconds, for the health of the tier.

    Raises:
        ValueError: ``ttl`` is not above 0.
    """

    def __init__(
        self,
        hot: HotStore,
        scope: ConversationScope,
        *,
        ttl: float = 86_400.0,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl > 0:
            raise ValueError(f"ttl must be a positive number of seconds, got {ttl!r:.80}")
        self._hot = hot
        self._name = f"environment/{scope.storage_session_id}"
        self._state = SessionState.name_of(scope)
        self._ttl = ttl
        self._codec = codec or Codec()
        self._health = TierHealth(clock=clock)
        self._seen: bytes | None = None
        self.is_local = not hot.survives_process

    def publish(self, **fields: Any) -> None:
        """Say that the environment changed, from whatever process: each agent refreshes before its next model call.

        Args:
            fields: What changed, such as ``cart=["B07X1234"]``. Agents with an ``EnvironmentSource`` read that anew instead.

        Raises:
            ValueError: There is no such field, or a value is not allowed in it.
            StoreUnavailableError: The hot tier does not answer.
        """
        unknown = sorted(set(fields) - set(Environment.model_fields))
        if unknown:
            raise ValueError(f"fields must be of Environment ({', '.join(Environment.model_fields)}), got {unknown}")
        if "cart" in fields:  # the total of the cart before is not that of the new one
            fields = {"cart_total": None, **fields}
        dumped = Environment.model_validate(fields).model_dump(mode="json")
        for name in fields:  # values first: whoever sees the mark sees them
            place = f"{self._name}/{name}"
            self._hot.put_value(place, self._codec.encode(dumped[name], place), ttl=self._ttl)
        self._hot.put_value(self._name, uuid.uuid4().bytes, ttl=self._ttl)

    def erase(self) -> int:
        """Delete everything that was published for this session, and the state that its agents share.

        Returns:
            How many values there were.

        Raises:
            StoreUnavailableError: The hot tier does not answer.
        """
        places = [self._name, *(f"{self._name}/{name}" for name in Environment.model_fields), self._state]
        there = [place for place in places if self._hot.get_value(place)]
        for place in there:
            self._hot.put_value(place, b"", ttl=0.001)
        return len(there)

    def news(self) -> bool:
        """Tell whether something was published since the last time; at first, whether anything was. One read.

        A hot tier that is down costs one deadline, then nothing for a while; what was missed is news when it is back.
        """
        mark = self._health.tried(lambda: self._hot.get_value(self._name) or _UNKNOWN)
        if mark is None:
            return False
        before, self._seen = self._seen, mark
        return mark != _UNKNOWN and mark != before

    def forget(self) -> None:
        """Let the last publication be news again, because it could not be followed."""
        self._seen = None

    def published(self) -> Environment:
        """Return what was published, of each field the last value.

        Raises:
            StoreUnavailableError: The hot tier does not answer.
            CorruptRecordError: A value cannot be trusted.
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

_PASSING = ("time_of_day", "promotions")
"""What changes by itself, so that nobody announces it."""


class Surroundings:
    """The environment of one agent.

    A source, if there is one, says what is so, and a publication is a hint to read it anew; it is asked again after
    ``recheck_after`` seconds although no word came. Without a source, the environment is what was published. What cannot be
    read leaves what was known. A model call waits at most ``deadline`` seconds for news and for what follows from it.
    ``drifts`` are fields that were found to be otherwise than was known, without word of it.
    """

    def __init__(
        self,
        source: EnvironmentSource | None,
        scope: ConversationScope | None,
        changes: EnvironmentChanges | None,
        *,
        deadline: float,
        environment: Environment | None = None,
        recheck_after: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._scope = scope
        self._changes = changes
        self._deadline = deadline
        self._loaded = environment is not None
        self.environment = environment or Environment()
        self._writer = shared_writer(None, None)
        self._late: Future[None] | None = None
        self.reloads = self.drifts = 0
        self._recheck_after = recheck_after
        self._clock = clock
        self._read_at = clock()
        self._rechecking: Future[None] | None = None

    def load(self) -> None:
        """Load the environment as the session starts."""
        news = self._changes is not None and self._changes.news()
        if news or (self._source is not None and not self._loaded):
            self._read()
        self._loaded = True

    async def refresh(self) -> None:
        """Follow what was published since, off the event loop, within the deadline."""
        self._recheck_if_due()
        if self._changes is None:
            return
        if self._changes.is_local and self._source is None:
            self._look()  # memory of this process: quicker than any thread
            return
        work = self._look
        if self._changes.is_local:
            if not self._changes.news():
                return
            work = self._read
        if not await self._done():  # a read that was late before goes first, and news is looked for behind it
            if self._changes.is_local:
                self._changes.forget()
            return
        self._late = self._writer.submit(self, work)
        await self._done()

    def _recheck_if_due(self) -> None:
        """Ask the source again, in the background, when it was not asked for long; nobody waits for it."""
        if self._source is None or self._recheck_after is None or self._clock() - self._read_at < self._recheck_after:
            return
        if self._rechecking is None or self._rechecking.done():
            self._read_at = self._clock()
            self._rechecking = self._writer.submit(self, self._recheck)

    def _recheck(self) -> None:
        if self._changes is not None and self._changes.news():
            self._read()  # word of it came
            return
        before = self.environment
        self._read()
        changed = [name for name in Environment.model_fields if getattr(before, name) != getattr(self.environment, name)]
        for name in changed:
            if name not in _PASSING:
                self.drifts += 1
                telemetry.note(STATE_DRIFT, attributes={"field": name}, counts={"fields": 1})
                logger.warning("field=<%s> | the environment changed without a notification; publish its changes", name)

    async def _done(self) -> bool:
        if self._late is None or self._late.done():
            return True
        done, _ = await asyncio.wait([asyncio.wrap_future(self._late)], timeout=self._deadline)
        if not done:
            telemetry.missed("environment")
        return bool(done)

    def _look(self) -> None:
        if self._changes is not None and self._changes.news():
            self._read()

    def _read(self) -> None:
        try:
            if self._source is not None and self._scope is not None:
                self.environment = self._source.load(self._scope) or Environment()
            elif self._changes is not None:
                self.environment = self._changes.published()
            self.reloads += 1
            self._read_at = self._clock()
        except Exception as error:  # noqa: BLE001 - a source is others' code: the agent goes on with what it knew
            if self._changes is not None:
                self._changes.forget()
            level = logging.DEBUG if isinstance(error, MangaMemoryError) else logging.WARNING
            logger.log(level, "error=<%s> | the environment could not be read", type(error).__name__)
