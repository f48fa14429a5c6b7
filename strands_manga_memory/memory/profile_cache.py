"""Cache through which an agent uses the hot tier's record of its user."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from strands_manga_memory.exceptions import (
    CorruptRecordError,
    PersonalDataError,
)
from strands_manga_memory.language.preference_slots import Preference
from strands_manga_memory.memory.hot_profile import PATIENCE, TTL, HotProfile, ProfileState
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.preference_log import PreferenceLog, erased_at
from strands_manga_memory.memory.records import AgentContext, Owner
from strands_manga_memory.memory.statements import (
    LoggedChanges,
    PreferenceChange,
    Removal,
    SlotState,
    Statement,
    fold,
    latest_removals,
    merged,
    recent,
    valid,
)
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import (
    HotStore,
)
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

_LATE_SECONDS = 60.0
"""Longest time until the preference log has a statement, which a context may lack until then."""


class ProfileCache:
    """Cache of one user's context, the text about the user in an agent's requests.

    The hot tier stores the context for all devices and workers. A session loads the context once
    and keeps the text, so that the prefix of the prompt stays the same. ``refresh`` reads a new
    context after a memory of the user was removed, or after the user's record has expired.

    A preference that the user states during the session is an override: it takes precedence over
    the context. ``refresh`` also loads the overrides from other devices. While the hot tier is
    unavailable, the process uses the last known values.

    Args:
        hot: Hot tier of the cache.
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user. Users without a tenant are separate from the users of all
            tenants.
        pii: Policy for personal data in overrides. Default ``PiiPolicy()``.
        codec: Codec of the data in the hot tier.
        log: Preference log in the memory table. With None, only the hot tier stores preferences.
        reads_revision: Whether each refresh also looks for changes in the memory table. This is
            needed if processes with another hot tier change the table. Default False.

    Attributes:
        context: Text about the user.
        writer: Writer that runs the background work of the cache.
        lane: Key of the background work. All caches of the user in the process share the key, so
            their work runs in order.

    Raises:
        ValueError: An id is invalid.
    """

    def __init__(
        self,
        hot: HotStore,
        *,
        user_id: str,
        tenant: str | None = None,
        pii: PiiPolicy | None = None,
        codec: Codec | None = None,
        log: PreferenceLog | None = None,
        reads_revision: bool = False,
    ) -> None:
        self._owner = Owner(user_id, tenant)
        self._profile = HotProfile(hot, self._owner, codec=codec)
        self._pii = pii or PiiPolicy()
        self._log = log
        self._reads_revision = reads_revision and log is not None
        self._clock = time.time if log is None else log.partition.clock
        self.writer = shared_writer(hot, None)
        self.lane = ("profile", self._owner)
        self._health = self._profile.health
        self._lock = threading.RLock()
        self._read_context: Callable[[], AgentContext] | None = None
        self._memories_changed: Callable[..., None] = lambda **_: None
        self._void_before = -math.inf  # time of the last known erasure
        self._unsaved: list[Statement] = []
        self._log_version: str | None = None  # of the preference log that was read last
        self._take(ProfileState(), AgentContext())

    @property
    def overrides(self) -> dict[str, str]:
        """Values in ``stated``, keyed by subject such as ``genre``, the latest last."""
        return {slot: state.value for slot, state in self.stated.items()}

    @property
    def stated(self) -> dict[str, SlotState]:
        """Recent preferences that ``context`` lacks, keyed by subject such as ``genre``.

        Statements that are not yet in the hot tier are included.
        """
        with self._lock:
            slots = fold(recent([*self._state.statements, *self._unsaved], self._state.removals))
            known = self.context.changed_at
            return {
                slot: state
                for slot, state in slots.items()
                if state.by.at > known.get(slot, -math.inf)
            }

    def load(
        self, read: Callable[[], AgentContext], *, changed: Callable[..., None] = lambda **_: None
    ) -> None:
        """Load the context from the hot tier, or else read it and store it there.

        Args:
            read: Function that reads the user's context from the memories. It is called again after
                removals.
            changed: Function to call after another process changed the memories. Its argument
                ``is_removal`` is True if memories were removed.
        """
        self._read_context, self._memories_changed = read, changed
        self._adopt(self._look(touch=True))

    def hear(
        self,
        preferences: Sequence[Preference],
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Store the preferences of a message here, in the hot tier, and later in the memory table.

        A preference is left out if the policy for personal data refuses the text, or if the message
        is from before an erasure of the user's data.

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
                slot, value = (
                    self._pii.applied(text, place=self._owner.partition)
                    for text in (each.slot, each.value)
                )
            except PersonalDataError as error:
                logger.debug("error=<%s> | a preference was refused", type(error).__name__)
                continue
            kept.append(
                Statement(replace(each, slot=slot, value=value), at, message_id, session_id)
            )
        if not kept or at <= self._void_before:
            return
        with self._lock:
            self._unsaved += kept
        self._save()
        if self._log is not None:
            self._log.apply_later(
                PreferenceChange(statements=kept, signals=self._log.signals_of(kept))
            )

    def remove(self, removal: Removal) -> None:
        """Discard a deleted preference, or the preferences of a retracted message, from this cache.

        The context is discarded, too. The next ``refresh`` makes it from the memories again.
        """
        with self._lock:
            removals = latest_removals([*self._state.removals, removal])
            self._unsaved = list(valid(self._unsaved, [removal]))
            self._take(replace(self._state, removals=removals, removed=""), AgentContext())

    def refresh(self) -> None:
        """Load the changes that other devices and processes wrote to the hot tier.

        If memories were removed, or the user's record has expired, ``context`` is read again.
        """
        if self._unsaved:
            self._save()
        state = self._look(touch=False)
        if state is None:
            return
        known = self._state
        if state.exists and state.removed == known.removed:
            self._take(state, self.context)
            if state.revision != known.revision:
                self._memories_changed(is_removal=False)
        elif state.exists or (state.epoch, state.version, state.is_erased) != (
            known.epoch,
            known.version,
            True,
        ):
            self._reload(state)  # else the agent has handled this erasure already

    # Inside

    def _look(self, *, touch: bool) -> ProfileState | None:
        """Read the user's record from the hot tier; None if the hot tier fails.

        ``touch`` renews the record's expiry. With ``reads_revision``, changes in the memory table
        are first copied to the record.
        """
        load = partial(self._profile.load, touch=touch)
        # A refresh runs in the background, so only the caller of ``load`` needs a deadline.
        read = partial(self._health.ask, load, PATIENCE) if touch else load
        loaded = self._health.tried(lambda: [read()])
        if loaded is None:
            return None
        state, log = self._profile.state_of(loaded[0]), self._log
        if log is None or not self._reads_revision or not state.exists:
            return state
        return self._health.tried(lambda: self._followed(state, log))

    def _followed(self, state: ProfileState, log: PreferenceLog) -> ProfileState:
        """Copy changes of the preference log in the table to the user's record, and return it.

        Statements that the context lacks are added. If the log's revision is new, the context is
        dropped.
        """
        revision, version = log.tokens()
        is_renewed = revision != state.revision
        if not is_renewed and version == self._log_version:
            return state
        try:
            logged = log.read()[0]
        except CorruptRecordError as error:  # the statements of the hot tier are used
            logger.warning(
                "error=<%s> | failed to read the preferences of other processes",
                type(error).__name__,
            )
            logged = LoggedChanges(erased_at=_last_erasure(log))
        context = state.context if self.context.read_at is None else self.context
        read_at = None if context is None else context.read_at
        since = -math.inf if read_at is None else read_at - _LATE_SECONDS

        def changed(state: ProfileState) -> ProfileState | None:
            removals = latest_removals([*state.removals, *logged.removals])
            statements = merged(
                state.statements, (each for each in logged.statements if each.at > since)
            )
            statements = recent(statements, removals)
            kept = tuple(each for each in statements if each.at > logged.erased_at)
            new = replace(state, statements=kept, removals=removals)
            new = replace(new, context=None, revision=revision, removed="") if is_renewed else new
            return new if state.exists else None

        followed = self._profile.update(changed, drops=True)
        self._log_version = version
        return followed

    def _reload(self, state: ProfileState) -> None:
        """Replace the context by the one in ``state`` or, without one, by a new one.

        After an erasure of the user's data, earlier statements are discarded, too.
        """
        is_erased = (
            self._reads_revision or state.is_erased or state.epoch > max(1, self._state.epoch)
        )
        self._take(replace(state, removed=""), AgentContext())
        if is_erased:
            self._drop_erased()
        self._memories_changed(is_removal=True)
        self._adopt(state)

    def _adopt(self, state: ProfileState | None) -> None:
        """Use the context in ``state``, or read and store a new one if it is missing or too old.

        The new context is not stored if the record changes during the read, if the user's data were
        erased, or if the hot tier fails (``state`` is None).
        """
        found = state or ProfileState()
        context = found.context
        # The limit matters if a removal could not be published.
        if context is not None and (
            context.read_at is None or self._clock() - context.read_at < TTL
        ):
            self._take(found, context)
            return
        if self._read_context is None:
            self._take(found, AgentContext())
            return
        revision = self._log.tokens()[0] if self._log and self._reads_revision else ""
        context = self._read_context()
        # Without a token the next refresh reads again. An erased user gets a record with the next
        # statement.
        self._take(found if found.is_erased else replace(found, removed=""), context)

        def kept(now: ProfileState) -> ProfileState | None:
            read, there = (
                (each.exists, each.epoch, each.removed, each.revision) for each in (found, now)
            )
            if now.is_erased or there != read:
                return None
            return replace(now, context=context, revision=now.revision or revision)

        if state is None or found.is_erased:
            return
        stored = self._health.tried(lambda: self._profile.update(kept))
        if stored is not None and stored.exists:
            self._take(stored, context)

    def _save(self) -> None:
        """Write new statements to the hot tier. If this fails, a later call writes them."""
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

        stored = self._health.tried(lambda: self._profile.update(added))
        if stored is None or not stored.exists:
            return
        with self._lock:
            del self._unsaved[: len(mine)]
            known = self._state
            is_same = stored.removed == known.removed
            state = stored if is_same else replace(known, statements=stored.statements)
            self._take(state, self.context)

    def _drop_erased(self) -> None:
        at = -math.inf if self._log is None else _last_erasure(self._log)
        with self._lock:
            self._void_before = max(self._void_before, at)
            self._unsaved = [each for each in self._unsaved if each.at > self._void_before]

    def _take(self, state: ProfileState, context: AgentContext) -> None:
        with self._lock:
            self._state, self.context = state, context


def _last_erasure(log: PreferenceLog) -> float:
    """Return the time of the user's last erasure. A damaged marker counts as now and later."""
    try:
        return erased_at(log.partition.erased())
    except CorruptRecordError:
        return math.inf
