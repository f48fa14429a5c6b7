"""EnvironmentChanges: word of an outside change, through the hot store, to every live agent of a session."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.layers.environment import Environment
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import HotStore

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
        dumped = Environment.model_validate(fields).model_dump(mode="json")
        for name in fields:  # values first: whoever sees the mark sees them
            place = f"{self._name}/{name}"
            self._hot.put_value(place, self._codec.encode(dumped[name], place), ttl=self._ttl)
        self._hot.put_value(self._name, uuid.uuid4().bytes, ttl=self._ttl)

    def erase(self) -> int:
        """Take back everything that was published for this session; return how many values there were.

        Raises:
            StoreUnavailableError: The hot tier does not answer.
        """
        places = [self._name, *(f"{self._name}/{name}" for name in Environment.model_fields)]
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
