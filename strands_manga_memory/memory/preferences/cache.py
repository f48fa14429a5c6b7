"""ProfileCache: what an agent is told about its user, in the hot tier, and preferences heard just now."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.arguments import filled
from strands_manga_memory.exceptions import ConflictError, PersonalDataError
from strands_manga_memory.language.preferences.slot_values import Preference, slot_of
from strands_manga_memory.memory.pii.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.heard import Heard, after, slots_of, text_of
from strands_manga_memory.memory.preferences.spool import PreferenceSpool
from strands_manga_memory.memory.recall.context import AgentContext
from strands_manga_memory.memory.records.hot_copy import MEMORIES, cache_name
from strands_manga_memory.memory.records.memory_records import Owner
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import ACTIVE, CLOSING, DELETED, HotRecord, HotStore, HotWrite, WriteStatus, new_version
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

_CONTEXT, _HEARD = "context", "heard"
_TRIES = 50
_random = random.Random()  # noqa: S311 - jitter; of its own, so that nobody's seeded numbers change


@dataclass(frozen=True)
class CachedContext:
    """What an agent is told about its user.

    Attributes:
        context: As it was at session start.
        overrides: Preferences heard since, by slot, the last one said last: they win over ``context``.
    """

    context: AgentContext = field(default_factory=AgentContext)
    overrides: Mapping[str, str] = field(default_factory=dict)


class ProfileCache:
    """One user's context in the hot tier, shared by all devices and workers.

    The context is loaded once, when a session starts, and stays as it is until it is invalidated, so that a prompt's prefix
    does not change. A preference heard in between is an override: the other devices see it before their next model call, and
    it goes to the sink. While the hot tier is down, this process goes on with what it has.

    Args:
        hot: The hot tier.
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.
        spool: Where overrides go from here; None: nowhere.
        ttl: Seconds the cache lives after its last use. Default 1,800.
        pii: What becomes of personal data in overrides. Default ``PiiPolicy()``.
        codec: Seals what is kept in the hot tier.
        clock: Monotonic seconds, for the health of the tier.

    Attributes:
        writer: Does the cache's background work, under the key ``lane``, which all caches of the user in the process share: who
            asks after another of the user's agents has heard something finds it.

    Raises:
        ValueError: An id is not allowed, or ``ttl`` is not above 0.
    """

    def __init__(
        self,
        hot: HotStore,
        *,
        user_id: str,
        tenant: str | None = None,
        spool: PreferenceSpool | None = None,
        ttl: float = 1800.0,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl > 0:
            raise ValueError(f"ttl must be a positive number of seconds, got {ttl!r:.80}")
        self._hot = hot
        self._owner = Owner(user_id, tenant)
        self._name = cache_name(self._owner)
        self._spool = spool
        self._ttl = ttl
        self._pii = pii or PiiPolicy()
        self._codec = codec or Codec()
        self.writer = shared_writer(hot, None)
        self.lane = ("profile", self._owner)
        self._health = TierHealth(clock=clock)
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._cached = CachedContext()
        self._heard: tuple[Heard, ...] = ()
        self._unsaved: list[Heard | str] = []

    @property
    def cached(self) -> CachedContext:
        """What was last read or written, without I/O; overrides that the hot tier has not taken yet are in it."""
        with self._lock:
            return CachedContext(self._cached.context, slots_of(after(self._heard, self._unsaved)))

    def load(self, read: Callable[[], AgentContext]) -> CachedContext:
        """Return the user's context from the hot tier; if it is not there, by ``read``, and keep it there.

        Args:
            read: Reads the user's memories; called at most once.
        """
        record = self._read(touch=True)
        if record is not None and _CONTEXT in record.fields:
            with self._lock:
                return self._take(record)
        context = read()
        with self._lock:
            self._cached = CachedContext(context, self._cached.overrides)
        self._write(context=context)
        return self.cached

    def prefer(self, key: str, value: str, *, session_id: str | None = None) -> None:
        """Keep a preference, as ``hear`` does.

        Raises:
            ValueError: Key or value are empty.
            PersonalDataError: The policy refuses it.
        """
        filled("key", key)
        filled("value", value)
        self._clean(value)
        self.hear([Preference(slot_of(key), value)], session_id=session_id)

    def hear(self, said: Sequence[Preference], *, message_id: str | None = None, session_id: str | None = None) -> None:
        """Keep what a message said: here and in the hot tier at once, then on its way to the sink, in one batch.

        What the policy for personal data refuses is left out.
        """
        kept = []
        for each in said:
            try:
                kept.append(replace(each, slot=self._clean(each.slot), value=self._clean(each.value)))
            except PersonalDataError as error:
                logger.debug("error=<%s> | a preference was not kept", type(error).__name__)
        if not kept:
            return
        with self._lock:
            self._unsaved += [Heard(each, message_id) for each in kept]
        self._write()
        if self._spool is not None:
            self._spool.emit(self._owner, kept, message_id=message_id, session_id=session_id)

    def take_back(self, message_id: str) -> None:
        """Forget what a message said, because it was redacted: here, in the hot tier, in the spool, and in the sink."""
        with self._lock:
            self._unsaved.append(message_id)
        self._write(drop_context=True)
        if self._spool is not None:
            self._spool.take_back(self._owner, message_id)

    def _clean(self, text: str) -> str:
        return self._pii.applied(text, place=self._owner.partition)

    def refresh(self) -> bool:
        """Look whether another device changed something, in one round trip; tell whether it did."""
        if self._unsaved:
            self._write()
        record = self._read(touch=False)
        if record is None or (record.epoch, record.version) == self._seen:
            return False
        with self._lock:
            before = self._cached.overrides
            self._heard = self._heard_of(record)
            self._cached = CachedContext(self._cached.context, slots_of(self._heard))
            self._seen = record.epoch, record.version
            return self._cached.overrides != before

    def peek(self) -> CachedContext:
        """Return what the hot tier has, by inspection: no time to live is touched."""
        record = self._read(touch=False)
        if record is None or _CONTEXT not in record.fields:
            return CachedContext(AgentContext(), slots_of(self._heard_of(record)))
        with self._lock:
            return self._take(record)

    def invalidate(self) -> None:
        """Let the next session start read the user's memories anew; overrides stay until the memories have them."""
        self._write(drop_context=True)

    def bury(self, *, ttl: float) -> int:
        """Delete the cache and leave a tombstone for ``ttl`` seconds; return its epoch."""
        with self._lock:
            self._cached, self._heard, self._unsaved, self._seen = CachedContext(), (), [], None
        return self._hot.bury(self._name, epoch=1, ttl=ttl)

    # Inside

    def _read(self, *, touch: bool) -> HotRecord | None:
        record = self._health.tried(lambda: self._hot.load(self._name, [_CONTEXT, _HEARD], touch=touch))
        return None if record is None or record.state != ACTIVE or record.expires_in <= 0 else record

    def _take(self, record: HotRecord) -> CachedContext:
        place = f"{self._name}#{_CONTEXT}"
        data = self._codec.decode(record.fields[_CONTEXT], place)
        with trusted(place):
            context = AgentContext(*(text_of(data[name]) for name in ("preferences", "history")))
        self._heard = self._heard_of(record)
        self._cached = CachedContext(context, slots_of(self._heard))
        self._seen = record.epoch, record.version
        return CachedContext(self._cached.context, slots_of(after(self._heard, self._unsaved)))

    def _heard_of(self, record: HotRecord | None) -> tuple[Heard, ...]:
        if record is None or _HEARD not in record.fields:
            return ()
        place = f"{self._name}#{_HEARD}"
        data = self._codec.decode(record.fields[_HEARD], place)
        with trusted(place):
            return tuple(Heard.of(row) for row in data)

    def _write(self, *, context: AgentContext | None = None, drop_context: bool = False) -> None:
        self._health.tried(lambda: self._written(context, drop_context=drop_context))

    def _written(self, context: AgentContext | None, *, drop_context: bool) -> None:
        for attempt in range(_TRIES):
            kept = self._hot.load(self._name, [_CONTEXT, _HEARD], touch=False)
            if kept is None and drop_context:
                with self._lock:
                    self._heard, self._unsaved = after((), self._unsaved), []
                return
            fresh = kept is None or kept.state != ACTIVE or kept.expires_in <= 0
            with self._lock:
                mine = list(self._unsaved)
                heard = after(() if fresh else self._heard_of(kept), mine)
                values: dict[str, Any] = {_HEARD: [each.row for each in heard]}
                if context is not None:
                    values[_CONTEXT] = {"preferences": context.preferences, "history": context.history}
                write = self._compared(kept, values, removed=[_CONTEXT, MEMORIES] if drop_context else [], replace=fresh)
            if self._hot.write(self._name, write) is WriteStatus.OK:
                with self._lock:
                    del self._unsaved[: len(mine)]
                    self._heard = heard
                    self._cached = CachedContext(self._cached.context, slots_of(heard))
                    self._seen = write.epoch, write.version
                return
            time.sleep(_random.uniform(0.0, min(0.05, 0.0005 * 2**attempt)))
        raise ConflictError(f"record={self._name!r} keeps changing; try again")

    def _compared(self, kept: HotRecord | None, values: Mapping[str, Any], *, removed: list[str], replace: bool) -> HotWrite:
        deleted = kept is not None and kept.state == DELETED
        epoch = 1 if kept is None else kept.epoch + (kept.state in (DELETED, CLOSING))
        return HotWrite(
            expect=None if kept is None or deleted else (kept.epoch, kept.version),
            epoch=epoch,
            version=new_version(),
            fields={name: self._codec.encode(value, f"{self._name}#{name}") for name, value in values.items()},
            removed=removed,
            ttl=self._ttl,
            replace=replace,
        )
