"""ProfileCache: the context of a user in the hot tier, and statements made since, as one agent sees them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strands_manga_memory.arguments import filled
from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.language.preferences import Preference, slot_for_key
from strands_manga_memory.memory.memory_context import AgentContext
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.hot_profile import TTL, HotProfile, ProfileState
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
    """Text that an agent is told about its user.

    Attributes:
        context: Context of the session's start.
        overrides: Preferences stated or set since, by slot, the latest last: they win over ``context``.
    """

    context: AgentContext = field(default_factory=AgentContext)
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableView:
    """Reads of the memory table that a cache needs.

    Attributes:
        revision: Returns the revision of the user's memories; None if other processes publish changes in the hot tier.
        removals: Returns the removals of preferences and messages.
        erased_at: Returns when the user was last erased, in seconds since 1970; 0.0: never.
        clock: Seconds since 1970.
    """

    revision: Callable[[], str] | None = None
    removals: Callable[[], tuple[Removal, ...]] = tuple
    erased_at: Callable[[], float] = float
    clock: Callable[[], float] = time.time


class ProfileCache:
    """One user's context in the hot tier, shared by all devices and workers.

    The context is loaded once, when a session starts, and stays the same while the session lasts, so that a prompt's prefix
    does not change. A preference stated or set meanwhile is an override, which the other devices see before their next model
    call. A removal, by any device or process, ends the context: ``refresh`` drops it and reads a new one. While the hot tier
    is down, this process goes on with the context and statements that it has.

    Args:
        hot: The hot tier.
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.
        spool: Takes statements on their way to the sink; None: they go nowhere.
        ttl: Seconds the cache lives after its last use. Default 1,800.
        pii: Policy for personal data in overrides. Default ``PiiPolicy()``.
        codec: Seals the fields in the hot tier.
        clock: Monotonic seconds, for the health of the tier.
        table: Reads of the memory table. Default: none.

    Attributes:
        writer: Does the background work of the cache, under the key ``lane``. All caches of the user in the process share the
            lane, so a refresh comes behind statements of another agent.

    Raises:
        ValueError: An id is not allowed, or ``ttl`` is not above 0.
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
        table: TableView | None = None,
    ) -> None:
        if not ttl > 0:
            raise ValueError(f"ttl must be a positive number of seconds, got {ttl!r:.80}")
        self._owner = Owner(user_id, tenant)
        self._profile = HotProfile(hot, self._owner, codec=codec, ttl=ttl)
        self._outbox = outbox
        self._ttl = ttl
        self._pii = pii or PiiPolicy()
        self._table = table or TableView()
        self.writer = shared_writer(hot, None)
        self.lane = ("profile", self._owner)
        self._health = TierHealth(clock=clock)
        self._lock = threading.Lock()
        self._read_context: Callable[[], AgentContext] | None = None
        self._memories_changed: Callable[..., None] = lambda **_: None
        self._void_before = 0.0
        self._unsaved: list[Statement] = []
        self._take(ProfileState(), AgentContext())

    @property
    def cached(self) -> CachedContext:
        """Context and overrides as last read or written, without I/O, with statements that wait for the hot tier."""
        with self._lock:
            return self._cached

    @property
    def stated(self) -> dict[str, SlotState]:
        """Preferences stated or set since the session's start, by slot, each with the statement that said it."""
        with self._lock:
            return fold(self._statements_since())

    def load(self, read: Callable[[], AgentContext], *, changed: Callable[..., None] = lambda **_: None) -> CachedContext:
        """Return the user's context from the hot tier; if it is not there, by ``read``, and keep it there.

        Args:
            read: Reads the user's memories; called again when they were removed from.
            changed: Called when memories were changed elsewhere, with ``is_removal=True`` if some were removed.
        """
        self._read_context, self._memories_changed = read, changed
        state = self._look(touch=True)
        if state is not None and self._is_told(state.context):
            with self._lock:
                self._take(state, state.context or AgentContext())
        else:
            self._load(state)
        return self.cached

    def prefer(self, key: str, value: str, *, session_id: str | None = None) -> None:
        """Keep a preference that is stated now, as ``hear`` does.

        Raises:
            ValueError: Key or value are empty.
            PersonalDataError: The policy refuses it.
        """
        filled("key", key)
        filled("value", value)
        self._clean(value)
        self.hear([Preference(slot_for_key(key), value)], session_id=session_id)

    def hear(
        self,
        said: Sequence[Preference],
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Keep the preferences of a message: here and in the hot tier at once, then on their way to the sink, in one batch.

        Preferences that the policy for personal data refuses are left out, and those of a message from before an erasure.

        Args:
            said: The preferences.
            message_id: ``tracking_id`` of the message.
            session_id: Session of the message.
            at: Time of the message, in seconds since 1970. Default: now.
        """
        at = self._table.clock() if at is None else at
        kept = []
        for each in said:
            try:
                cleaned = replace(each, slot=self._clean(each.slot), value=self._clean(each.value))
            except PersonalDataError as error:
                logger.debug("error=<%s> | a preference was not kept", type(error).__name__)
                continue
            kept.append(Statement(cleaned, at, message_id, session_id))
        if not kept or at <= self._void_before:
            return
        with self._lock:
            self._unsaved += kept
            self._show()
        self._save()
        if self._outbox is not None:
            said = [each.said for each in kept]
            self._outbox.emit(self._owner, said, message_id=message_id, session_id=session_id, at=at)

    def remove(self, removal: Removal) -> None:
        """Tell nothing of a removed preference or message from now on; the next ``refresh`` reads a new context."""
        with self._lock:
            self._unsaved = list(valid(self._unsaved, [removal]))
            self._take(replace(self._state, statements=valid(self._state.statements, [removal]), removed=""), AgentContext())

    def refresh(self) -> bool:
        """Look whether another device or process changed something; return whether the overrides or the context changed.

        One round trip, and a read of the memories if something was removed from them.
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
            return False  # the user was erased, which this agent knows
        else:
            self._reload(state)
        return self.cached != before

    def peek(self) -> CachedContext:
        """Return the content of the hot tier, by inspection: no time to live is touched."""
        state = self._read() or ProfileState()
        return CachedContext(state.context or AgentContext(), _values(recent(state.statements, state.removals)))

    def invalidate(self) -> None:
        """Let the next session start read the user's memories from the table; overrides stay."""
        self._profile.publish(drops_context=True)

    def bury(self, *, ttl: float) -> int:
        """Delete the cache and leave a tombstone for ``ttl`` seconds; return its epoch."""
        with self._lock:
            self._unsaved = []
            self._take(ProfileState(), AgentContext())
        return self._profile.bury(ttl=ttl)

    # Inside

    def _clean(self, text: str) -> str:
        return self._pii.applied(text, place=self._owner.partition)

    def _tried(self, work: Callable[[], ProfileState]) -> ProfileState | None:
        return self._health.tried(work)

    def _read(self, *, touch: bool = False) -> ProfileState | None:
        """Return the record of the hot tier; None if the tier does not answer."""
        loaded = self._health.tried(lambda: [self._profile.load(touch=touch)])
        return None if loaded is None else self._profile.state_of(loaded[0])

    def _look(self, *, touch: bool) -> ProfileState | None:
        """Return the record with the changes of other processes; None if the tier does not answer."""
        state = self._read(touch=touch)
        return None if state is None else self._tried(lambda: self._followed(state))

    def _is_told(self, context: AgentContext | None) -> bool:
        """Tell whether a context of the hot tier may be told: a removal that could not be published ends with its age."""
        if context is None:
            return False
        return context.read_at is None or self._table.clock() - context.read_at < self._ttl

    def _followed(self, state: ProfileState) -> ProfileState:
        """Return the record after changes that other processes made in the table alone, as they share no hot tier."""
        if self._table.revision is None or not state.exists or (revision := self._table.revision()) == state.revision:
            return state

        known, erased_at = self._table.removals(), self._table.erased_at()

        def changed(state: ProfileState) -> ProfileState | None:
            if not state.exists:
                return None
            removals = latest_removals([*state.removals, *known])
            kept = tuple(each for each in recent(state.statements, removals) if each.at > erased_at)
            return replace(state, context=None, statements=kept, removals=removals, revision=revision, removed="")

        return self._profile.update(changed, drops=True) or ProfileState()

    def _reload(self, state: ProfileState) -> None:
        """Drop the context, and read a new one; after an erasure drop statements from before it, too."""
        is_erased = self._table.revision is not None or state.is_erased or state.epoch > max(1, self._state.epoch)
        with self._lock:
            self._take(replace(state, removed=""), AgentContext())
        if is_erased:
            self._drop_erased()
        self._memories_changed(is_removal=True)
        if self._is_told(state.context):
            with self._lock:
                self._take(state, state.context or AgentContext())
        elif self._read_context is not None:
            self._load(state)
        else:
            with self._lock:
                self._take(state, AgentContext())

    def _load(self, state: ProfileState | None) -> None:
        """Read the context from the table, and keep it in the hot tier unless something was changed meanwhile."""
        assert self._read_context is not None  # noqa: S101 - load has set it
        revision = self._table.revision() if self._table.revision is not None else ""
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
        """Write the statements that wait to the hot tier."""
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
        erased_at = self._table.erased_at()
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
