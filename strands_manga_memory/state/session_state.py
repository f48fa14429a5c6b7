"""State and environment of a session, which its agents share through the hot store.

The environment is data of other systems, such as the user's cart and locale.
"""

from __future__ import annotations

import contextvars
import logging
import time
import uuid
from bisect import bisect
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from strands import Agent
from strands.plugins import Plugin

from strands_manga_memory import telemetry
from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.deadline import wait_until_done
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError, logged_errors
from strands_manga_memory.lifecycle import attachments, renew_in_child
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.state_store import StateItem, StateStore
from strands_manga_memory.stores.codec import Codec, parsing
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.writer import TierHealth, shared_writer

logger = logging.getLogger(__name__)

HOT_DEADLINE, SOURCE_DEADLINE = 0.05, 0.25

_MAX_ATTEMPTS = 8
"""Most attempts to replace shared state that other agents keep changing."""

SHARED_TTL = 86_400.0
"""Seconds that shared state and announced changes are stored. Sessions should not live longer."""


class BackgroundRead:
    """Reader of a store or service, which reads in a background thread to limit the caller's wait.

    A read that exceeds the deadline continues in the background. Until this read ends, ``run``
    starts no new read.

    Args:
        read: Function that reads the data and stores the result itself. It may block.
        name: Name of the read in telemetry.
        deadline: Seconds that a caller waits.
        key: Key of the read. Reads with the same key run one after another.
        hot: Hot store that ``read`` uses, or None. If this store is in the memory of this process,
            ``read`` runs in the caller's thread. While this store fails, callers wait only if a new
            attempt is due, which is every 0.1 s to 5 s.

    Attributes:
        writer: Background threads that run the read.
        health: Availability of the hot store.
    """

    def __init__(
        self,
        read: Callable[[], None],
        *,
        name: str,
        deadline: float,
        key: Hashable,
        hot: HotStore | None = None,
    ) -> None:
        self._read, self._name, self._deadline, self._key = read, name, deadline, key
        self._hot = hot
        self._is_immediate = hot is not None and not hot.survives_process
        self.writer = shared_writer(hot, None)
        self.health = TierHealth(shared=self.writer.hot_health)
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Discard the parent's running read in a forked process, which lacks the read's thread."""
        self._running: Future[Any] | None = None

    async def run(self) -> None:
        """Start the read in a thread, and wait for its end, at most until the deadline.

        The event loop is not blocked. If an earlier read still runs, return at once.
        """
        if self._is_immediate:
            self._read()
        elif self._running is None or self._running.done():
            may_wait, running = not self.health.wait, self._start()
            if may_wait:
                await self._wait_for(running)

    def run_blocking(self) -> None:
        """Start the read in a thread, and block until its end, at most until the deadline.

        For callers without an event loop, such as constructors.
        """
        if self._is_immediate:
            self._read()
            return
        may_wait, running = not self.health.wait, self._start()
        if may_wait and not wait([running], self._deadline).done:
            telemetry.count_missed_deadline(self._name)

    def _start(self) -> Future[Any]:
        context = contextvars.copy_context()
        read = partial(context.run, self._read)
        self._running = self.writer.submit(self._key, read, is_needed=lambda: False)
        return self._running

    async def _wait_for(self, running: Future[Any]) -> None:
        since, limit = time.monotonic(), self._deadline
        await wait_until_done(
            running,
            lambda held_up: max(0.0, since + limit + held_up - time.monotonic()),
            limit=20 * limit,
        )
        if not running.done():
            telemetry.count_missed_deadline(self._name)
            if self._hot is not None:
                self.health.record_failure(since=since)


class _SharedState(BaseModel):
    """Stored form of the state that the agents of a session share.

    Attributes:
        parts: Texts of the state's parts, such as the goals, keyed by ``StatePart.KEY``.
        revision: Revision number, which increases at each write.
        agents: Ids of the agents that wrote the shared state.
    """

    parts: dict[str, str] = {}
    revision: int = 0
    agents: frozenset[str] = frozenset()


class SessionState:
    """State that all agents of a session share through the hot store.

    Before each turn, an agent reads the shared state. After the turn, the agent merges its own
    changes into the shared state, value by value. If another agent has written since the read, or
    the hot store does not answer, the merge is repeated.

    Each agent also keeps a copy in ``agent.state``. If the hot store loses the shared state, the
    next agent with changes stores its copy again.

    Args:
        hot: The hot store.
        scope: Scope of the session.
        store: Store of this agent's state.
        codec: Codec of the shared data.
        is_stored: Function that takes an agent's id and returns whether the session still has the
            agent's conversation. A new agent ignores shared state if the conversations of all
            agents that wrote the state were deleted. None: no check.
        deadline: Seconds that a turn waits for the shared state. Default 0.05.
    """

    def __init__(
        self,
        hot: HotStore,
        scope: ConversationScope,
        store: StateStore,
        *,
        codec: Codec | None = None,
        is_stored: Callable[[str], bool] | None = None,
        deadline: float = HOT_DEADLINE,
    ) -> None:
        self._hot, self._store = hot, store
        self._name = self.name_of(scope)
        self._codec = codec or Codec()
        self._is_stored = is_stored
        self._ignored_revision = 0
        self._reading = BackgroundRead(
            self.pull, name="state", deadline=deadline, key=self._name, hot=hot
        )
        self._writer, self._health = self._reading.writer, self._reading.health

    @staticmethod
    def name_of(scope: ConversationScope) -> str:
        """Return the key of a session's shared state in the hot store."""
        return f"state/{scope.storage_session_id}/shared"

    async def refresh(self) -> None:
        """Merge the changes of the session's other agents into this agent's state.

        The event loop is not blocked. Changes that arrive after the deadline are not merged.
        """
        await self._reading.run()

    def publish(self) -> None:
        """Write this agent's changes of the state to the hot store, for the session's other agents.

        Without changes, nothing is written.
        """
        if not self._store.has_changed():
            return
        if self._hot.survives_process:
            self._writer.submit(self._name, self._push)
        else:
            self._push()  # the memory of this process does not block

    def pull(self) -> None:
        """Read the session's shared state, and merge it into this agent's state.

        This method blocks. If the hot store does not answer, nothing happens.
        """
        shared = self._decoded(self._health.call(lambda: self._hot.get_value(self._name)))
        if shared is not None:
            self._merge(shared)

    def _push(self) -> None:
        if self._store.has_changed() and not self._health.call(self._write):
            key, delay = (self._name, self._store.agent_id), self._health.wait + 0.01
            self._writer.later(key, delay, self._push_again, is_needed=lambda: False)

    def _push_again(self) -> None:
        with suppress(MangaMemoryError):
            if self._is_stored is not None and not self._is_stored(self._store.agent_id):
                return  # a deleted session must not get its shared state back
        self._writer.submit(self._name, self._push, is_needed=lambda: False)

    def _write(self) -> bool:
        """Merge this agent's changes into the shared state, and store it.

        Return False if other agents changed the shared state during each attempt. The caller then
        tries again later.
        """
        return any(self._replace(self._hot.get_value(self._name)) for _ in range(_MAX_ATTEMPTS))

    def _replace(self, found: bytes | None) -> bool:
        shared = self._decoded(found)
        if found and shared is None:
            return True  # unreadable, such as with another key: kept until it expires
        if shared is None or not self._merge(shared):
            shared = _SharedState(revision=0 if shared is None else shared.revision)
        with self._store.lock:
            texts, values = self._store.state_to_share(shared.parts)
            revision = 1 + max(self._store.revision, shared.revision)
        agents = shared.agents  # this agent may be gone: its last turn is shared in the background
        if self._is_stored is not None:
            agents |= {self._store.agent_id}
        written = _SharedState(parts=texts, revision=revision, agents=agents)
        value = self._codec.encode(written.model_dump(mode="json"), self._name)
        if not self._hot.replace_value(self._name, value, expect=found, ttl=SHARED_TTL):
            return False
        self._store.set_shared(values, revision)
        return True

    def _decoded(self, value: bytes | None) -> _SharedState | None:
        if not value:
            return None
        try:
            with parsing(self._name):
                return _SharedState.model_validate(self._codec.decode(value, self._name))
        except CorruptRecordError as error:
            logger.warning(
                "error=<%s> | the shared state of a session cannot be read", type(error).__name__
            )
            return None

    def _merge(self, shared: _SharedState) -> bool:
        """Merge a new revision of the session's shared state into this agent's state.

        Return True if this agent's state now contains the shared state. Return False if the shared
        state comes from a deleted session and is therefore ignored.
        """
        if shared.revision == self._ignored_revision:
            return False
        if shared.revision != self._store.revision:
            if self._store.is_new and not self._is_alive(shared):
                self._ignored_revision = shared.revision
                return False
            self._store.merge(shared.parts, shared.revision)
        return True

    def _is_alive(self, shared: _SharedState) -> bool:
        if self._is_stored is None or not shared.agents:
            return True
        try:
            return any(map(self._is_stored, sorted(shared.agents)))
        except MangaMemoryError:
            return False


_MAX_LINES = 50
_MAX_ITEMS, _MAX_PROMOTIONS = 5, 3


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
    cart: tuple[str, ...] = Field(default=(), max_length=_MAX_LINES)
    cart_total: str | None = Field(default=None, max_length=40)
    promotions: tuple[str, ...] = Field(default=(), max_length=_MAX_LINES)
    timezone: str | None = None
    time_of_day: str | None = None

    @field_validator("cart", "promotions", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        return tuple(map(_line, value[:_MAX_LINES])) if isinstance(value, list | tuple) else value

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
            hidden = len(self.cart) - _MAX_ITEMS
            more = f" and {hidden} more" if hidden > 0 else ""
            total = f" (total {escape_line(self.cart_total)})" if self.cart_total else ""
            items = "; ".join(escape_line(item, 60) for item in self.cart[:_MAX_ITEMS])
            yield f"In the cart: {items}{more}{total}"
        user = {"tier": self.tier, "language": self.language, "locale": self.locale}
        user["time of day"] = self.part_of_day(now)
        known = [f"{name} {escape_line(value, 40)}" for name, value in user.items() if value]
        if known:
            yield f"The user: {'; '.join(known)}"
        if promotions := self.promotions[:_MAX_PROMOTIONS]:
            yield "On offer: " + "; ".join(escape_line(each, 60) for each in promotions)


def _line(item: Any) -> str:
    """Return an item of the cart or a promotion as text: ``asin B07X1234, quantity 2``."""
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value not in (None, ""))
    return str(item)


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
        """Delete a session's shared state, and its last announced change, from the hot store.

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
        """Return the random id of the last announced change; None before the first change.

        Raises:
            StoreUnavailableError: The hot store is unavailable.
        """
        return self._hot.get_value(self._name) or None


_MAX_READS = 8
"""Largest backlog of background work at which a new session reads its source.
Otherwise, sources that hang could block all background threads.
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
        self._changes = None if hot is None else EnvironmentChanges(hot, scope)
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
        if self._changes is not None:
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
