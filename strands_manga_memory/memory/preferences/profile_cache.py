"""Cache of a user's context in the hot tier, and of later statements, for one agent."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.language.preferences import Preference
from strands_manga_memory.memory.memory_context import AgentContext
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.hot_profile import TTL, HotProfile, ProfileState
from strands_manga_memory.memory.preferences.preference_log import PreferenceLog
from strands_manga_memory.memory.preferences.preference_outbox import PreferenceOutbox
from strands_manga_memory.memory.preferences.statements import (
    Removal,
    SlotState,
    Statement,
    fold,
    latest_removals,
    recent,
    valid,
)
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CachedContext:
    """Text about the user for an agent.

    Attributes:
        context: Context at the session's start.
        overrides: Later preferences by slot, the latest last. They take precedence over ``context``.
    """

    context: AgentContext = field(default_factory=AgentContext)
    overrides: Mapping[str, str] = field(default_factory=dict)


class ProfileCache:
    """Context of one user in the hot tier, shared by all devices and workers.

    The context is loaded once per session and does not change within it, so that a prompt's prefix stays equal. Later
    preferences are overrides, which other devices load before their next model call. After a removal by any process,
    ``refresh`` drops the context and reads a new one. While the hot tier is down, this process uses its last values.

    Args:
        hot: The hot tier.
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.
        outbox: Outbox for statements; None: they are not sent to a sink.
        ttl: Seconds that the cache exists after its last use. Default 1,800.
        pii: Policy for personal data in overrides. Default ``PiiPolicy()``.
        codec: Codec of the fields in the hot tier.
        clock: Monotonic seconds, for the health of the tier.
        log: Log of the user's statements in the memory table; None: there is none.
        reads_revision: Whether to compare the log's revision at each refresh, because other processes that change the table
            use another hot tier. Default False.

    Attributes:
        writer: Runs the background work of the cache under the key ``lane``. All caches of the user in the process share the
            key, so a refresh follows pending statements of other agents.

    Raises:
        ValueError: An id is invalid, or ``ttl`` is not above 0.
    """

    def __init__(
        self,
        hot: HotStore,
        *,
        user_id: str,
        tenant: str | None = None,
        outbox: PreferenceOutbox | None = None,
        ttl: float = TTL,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.monotonic,
        log: PreferenceLog | None = None,
        reads_revision: bool = False,
    ) -> None:
        if not ttl > 0:
            raise ValueError(f"ttl must be a positive number of seconds, got {ttl!r:.80}")
        self._owner = Owner(user_id, tenant)
        self._profile = HotProfile(hot, self._owner, codec=codec, ttl=ttl)
        self._outbox = outbox
        self._ttl = ttl
        self._pii = pii or PiiPolicy()
        self._log = log
        self._reads_revision = reads_revision and log is not None
        self._clock = time.time if log is None else log.clock
        self.writer = shared_writer(hot, None)
        self.lane = ("profile", self._owner)
        self._health = TierHealth(clock=clock)
        self._lock = threading.Lock()
        self._read_context: Callable[[], AgentContext] | None = None
        self._memories_changed: Callable[..., None] = lambda **_: None
        self._void_before = -math.inf
        self._unsaved: list[Statement] = []
        self._take(ProfileState(), AgentContext())

    @property
    def cached(self) -> CachedContext:
        """Context and overrides as last read or written, including statements that wait for the hot tier. No I/O."""
        with self._lock:
            return self._cached

    @property
    def stated(self) -> dict[str, SlotState]:
        """Preferences since the session's start, by slot, each with its statement."""
        with self._lock:
            return fold(self._statements_since())

    def load(self, read: Callable[[], AgentContext], *, changed: Callable[..., None] = lambda **_: None) -> CachedContext:
        """Return the user's context from the hot tier. If it is missing, call ``read`` and store the result there.

        Args:
            read: Reads the user's memories; called again after removals.
            changed: Called after changes by other processes, with ``is_removal=True`` if memories were removed.
        """
        self._read_context, self._memories_changed = read, changed
        state = self._look(touch=True)
        if state is not None and self._is_usable(state.context):
            with self._lock:
                self._take(state, state.context or AgentContext())
        else:
            self._load(state)
        return self.cached

    def hear(
        self,
        preferences: Sequence[Preference],
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Store the preferences of a message, here and in the hot tier at once, then send them to the sink in one batch.

        Preferences that the policy for personal data refuses, and those from before an erasure, are left out.

        Args:
            preferences: The preferences.
            message_id: ``tracking_id`` of the message.
            session_id: Session of the message.
            at: Time of the message, in seconds since 1970. Default: now.
        """
        at = self._clock() if at is None else at
        kept = []
        for each in preferences:
            try:
                cleaned = replace(each, slot=self._clean(each.slot), value=self._clean(each.value))
            except PersonalDataError as error:
                logger.debug("error=<%s> | a preference was refused", type(error).__name__)
                continue
            kept.append(Statement(cleaned, at, message_id, session_id))
        if not kept or at <= self._void_before:
            return
        with self._lock:
            self._unsaved += kept
            self._show()
        self._save()
        if self._outbox is not None:
            preferences = [each.preference for each in kept]
            self._outbox.emit(self._owner, preferences, message_id=message_id, session_id=session_id, at=at)

    def remove(self, removal: Removal) -> None:
        """Exclude a removed preference or message from now on. The next ``refresh`` reads a new context."""
        with self._lock:
            self._unsaved = list(valid(self._unsaved, [removal]))
            self._take(replace(self._state, statements=valid(self._state.statements, [removal]), removed=""), AgentContext())

    def refresh(self) -> bool:
        """Load the changes of other devices and processes; return whether overrides or context changed.

        One round trip, plus a read of the memories after a removal.
        """
        before = self.cached
        if self._unsaved:
            self._save()
        state = self._look(touch=False)
        if state is None:
            return False
        known = self._state
        if state.exists and state.removed == known.removed:
            with self._lock:
                self._take(state, self._context)
            if state.revision != known.revision:
                self._memories_changed(is_removal=False)
        elif not state.exists and (state.epoch, state.version, state.is_erased) == (known.epoch, known.version, True):
            return False  # the agent has handled this erasure already
        else:
            self._reload(state)
        return self.cached != before

    def peek(self) -> CachedContext:
        """Return the content of the hot tier without renewing its TTL."""
        state = self._read() or ProfileState()
        return CachedContext(state.context or AgentContext(), _values(recent(state.statements, state.removals)))

    # Inside

    def _clean(self, text: str) -> str:
        return self._pii.applied(text, place=self._owner.partition)

    def _tried(self, work: Callable[[], ProfileState]) -> ProfileState | None:
        return self._health.tried(work)

    def _read(self, *, touch: bool = False) -> ProfileState | None:
        """Return the record of the hot tier; None if the tier is unavailable."""
        loaded = self._health.tried(lambda: [self._profile.load(touch=touch)])
        return None if loaded is None else self._profile.state_of(loaded[0])

    def _look(self, *, touch: bool) -> ProfileState | None:
        """Return the record with the changes of other processes; None if the tier is unavailable."""
        state = self._read(touch=touch)
        return None if state is None else self._tried(lambda: self._followed(state))

    def _is_usable(self, context: AgentContext | None) -> bool:
        """Return whether a context of the hot tier may be used. Its age bounds the effect of an unpublished removal."""
        if context is None:
            return False
        return context.read_at is None or self._clock() - context.read_at < self._ttl

    def _followed(self, state: ProfileState) -> ProfileState:
        """Return the record after changes that other processes made only in the table, because they share no hot tier."""
        log = self._log if self._reads_revision and state.exists else None
        if log is None or (revision := log.revision()) == state.revision:
            return state
        known, erased_at = log.removals().all, log.erased_at()

        def changed(state: ProfileState) -> ProfileState | None:
            if not state.exists:
                return None
            removals = latest_removals([*state.removals, *known])
            kept = tuple(each for each in recent(state.statements, removals) if each.at > erased_at)
            return replace(state, context=None, statements=kept, removals=removals, revision=revision, removed="")

        return self._profile.update(changed, drops=True) or ProfileState()

    def _reload(self, state: ProfileState) -> None:
        """Drop the context and read a new one. After an erasure, drop earlier statements, too."""
        is_erased = self._reads_revision or state.is_erased or state.epoch > max(1, self._state.epoch)
        with self._lock:
            self._take(replace(state, removed=""), AgentContext())
        if is_erased:
            self._drop_erased()
        self._memories_changed(is_removal=True)
        if self._is_usable(state.context):
            with self._lock:
                self._take(state, state.context or AgentContext())
        elif self._read_context is not None:
            self._load(state)
        else:
            with self._lock:
                self._take(state, AgentContext())

    def _load(self, state: ProfileState | None) -> None:
        """Read the context from the table, and store it in the hot tier unless the record changed meanwhile."""
        assert self._read_context is not None  # noqa: S101 - load has set it
        revision = self._log.revision() if self._log is not None and self._reads_revision else ""
        context = self._read_context()
        with self._lock:
            self._take(replace(state or ProfileState(), removed=""), context)
        if state is None:
            return
        if state.is_erased:  # an erased user gets a record with the next statement
            with self._lock:
                self._take(state, context)
            return

        def kept(now: ProfileState) -> ProfileState | None:
            if now.is_erased or (now.exists, now.epoch, now.removed, now.revision) != (
                state.exists,
                state.epoch,
                state.removed,
                state.revision,
            ):
                return None
            return replace(now, context=context, revision=now.revision or revision)

        stored = self._tried(lambda: self._profile.update(kept) or ProfileState())
        if stored is not None and stored.exists:
            with self._lock:
                self._take(stored, context)

    def _save(self) -> None:
        """Write pending statements to the hot tier."""
        mine: list[Statement] = []

        def added(state: ProfileState) -> ProfileState | None:
            nonlocal mine
            if state.is_erased or state.epoch > max(1, self._state.epoch):
                self._drop_erased()
            with self._lock:
                mine = list(self._unsaved)
            if not mine:
                return None
            return replace(state, statements=recent([*state.statements, *mine], state.removals))

        stored = self._tried(lambda: self._profile.update(added) or ProfileState())
        if stored is None or not stored.exists:
            return
        with self._lock:
            del self._unsaved[: len(mine)]
            known = self._state
            is_same = stored.removed == known.removed
            self._take(stored if is_same else replace(known, statements=stored.statements), self._context)

    def _drop_erased(self) -> None:
        erased_at = -math.inf if self._log is None else self._log.erased_at()
        with self._lock:
            self._void_before = max(self._void_before, erased_at)
            self._unsaved = [each for each in self._unsaved if each.at > self._void_before]
            self._show()

    def _take(self, state: ProfileState, context: AgentContext) -> None:
        self._state, self._context = state, context
        self._show()

    def _show(self) -> None:
        self._cached = CachedContext(self._context, _values(self._statements_since()))

    def _statements_since(self) -> list[Statement]:
        rows = recent([*self._state.statements, *self._unsaved], self._state.removals)
        return [each for each in rows if each.at > self._context.changed_at.get(each.slot, float("-inf"))]


def _values(statements: Sequence[Statement]) -> dict[str, str]:
    return {slot: state.value for slot, state in fold(statements).items()}
