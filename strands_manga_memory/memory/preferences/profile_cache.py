"""Caches the text about a user and the preferences that the user states later.

The cache belongs to one agent. Its data is kept in the hot tier.
"""

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
    """Text about a user for an agent.

    Attributes:
        context: Text about the user at session start.
        overrides: Preferences that were stated later and replace those in ``context``. The keys are subjects such as
            ``genre``. The latest preference comes last.
    """

    context: AgentContext = field(default_factory=AgentContext)
    overrides: Mapping[str, str] = field(default_factory=dict)


class ProfileCache:
    """Cache of the text about one user, called the context.

    The hot tier shares the context with all devices and workers. The context is loaded once per session. It does not change
    within the session, so the prefix of the prompt stays the same. Preferences that the user states later are overrides. Other
    devices load the overrides before their next model call. After a removal by any process, ``refresh`` reads a new context.
    While the hot tier is unavailable, the process uses the values that it read last.

    Args:
        hot: Hot tier of the cache.
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user. Users without a tenant are separate from the users of all tenants.
        outbox: Outbox that sends statements to another service. None means that statements are not sent.
        ttl: Seconds that the user's record in the hot tier exists after its last use. Default 1,800.
        pii: Policy for personal data in overrides. Default ``PiiPolicy()``.
        codec: Codec of the data in the hot tier.
        clock: Function that returns monotonic seconds, for the pauses after errors of the hot tier.
        log: Log of the user's statements in the memory table. None means that there is no log.
        reads_revision: Whether each refresh checks if the table changed. This is needed if processes with another hot
            tier change the table. Default False.

    Attributes:
        writer: Writer that runs the background work of the cache.
        lane: Key of the background work. All caches of the user in the process share the key, so their work runs in order.

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
        """Context and overrides that this process knows.

        Statements that are not yet written to the hot tier are included. The property does no I/O.
        """
        with self._lock:
            return self._cached

    @property
    def stated(self) -> dict[str, SlotState]:
        """Preferences that were stated since session start, with their latest statements.

        The keys are subjects such as ``genre``.
        """
        with self._lock:
            return fold(self._statements_since())

    def load(self, read: Callable[[], AgentContext], *, changed: Callable[..., None] = lambda **_: None) -> CachedContext:
        """Return the user's context from the hot tier.

        If the context is missing or too old, ``read`` is called and the result is stored in the hot tier.

        Args:
            read: Function that reads the user's context from the memories. It is called again after removals.
            changed: Function that is called after changes by other processes. ``is_removal=True`` means that memories were
                removed.
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
        """Store the preferences of a message in this cache and the hot tier.

        The preferences are then passed to the outbox. A preference is left out if the policy for personal data refuses it, or
        if it is from before an erasure.

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
        """Stop showing removed preferences.

        ``refresh`` then reads a new context.
        """
        with self._lock:
            self._unsaved = list(valid(self._unsaved, [removal]))
            self._take(replace(self._state, statements=valid(self._state.statements, [removal]), removed=""), AgentContext())

    def refresh(self) -> bool:
        """Load the changes that other devices and processes made.

        Return whether the overrides or the context changed. The call needs one round trip. After a removal, it also reads the
        memories.
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
        """Return the context and preferences in the hot tier without renewing their expiry."""
        state = self._read() or ProfileState()
        return CachedContext(state.context or AgentContext(), _values(recent(state.statements, state.removals)))

    # Inside

    def _clean(self, text: str) -> str:
        return self._pii.applied(text, place=self._owner.partition)

    def _tried(self, work: Callable[[], ProfileState]) -> ProfileState | None:
        return self._health.tried(work)

    def _read(self, *, touch: bool = False) -> ProfileState | None:
        loaded = self._health.tried(lambda: [self._profile.load(touch=touch)])
        return None if loaded is None else self._profile.state_of(loaded[0])

    def _look(self, *, touch: bool) -> ProfileState | None:
        """Return the user's record with the changes of other processes, or None if the hot tier is unavailable."""
        state = self._read(touch=touch)
        return None if state is None else self._tried(lambda: self._followed(state))

    def _is_usable(self, context: AgentContext | None) -> bool:
        if context is None:
            return False
        # The limit matters if a removal could not be published.
        return context.read_at is None or self._clock() - context.read_at < self._ttl

    def _followed(self, state: ProfileState) -> ProfileState:
        """Return the user's record with changes that are only in the table.

        Processes with another hot tier made these changes.
        """
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
        """Discard the context and read a new one.

        After an erasure, earlier statements are discarded, too.
        """
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
        """Read the context from the table and store it in the hot tier.

        The context is not stored if the record in the hot tier changed meanwhile.
        """
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
        """Write statements to the hot tier that are not stored there yet."""
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
