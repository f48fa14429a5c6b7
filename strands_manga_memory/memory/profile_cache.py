"""One agent's copy of the text about its user, and of the user's recent preferences."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from strands_manga_memory.arguments import with_repr
from strands_manga_memory.exceptions import CorruptRecordError, PersonalDataError
from strands_manga_memory.language.preference_slots import Preference
from strands_manga_memory.memory.hot_profile import PATIENCE, TTL, ProfileState
from strands_manga_memory.memory.preference_log import revision_of
from strands_manga_memory.memory.records import MAX_TOKENS, AgentContext
from strands_manga_memory.memory.statements import (
    LoggedChanges,
    PreferenceChange,
    Removal,
    SlotState,
    Statement,
    slot_states,
)
from strands_manga_memory.memory.store import UserMemoryStore

logger = logging.getLogger(__name__)

_START_TOKENS = MAX_TOKENS * 3 // 4
"""Most tokens of the context at session start: 75 % of those for all memories in a request."""


@with_repr("_store")
class ProfileCache:
    """Text about the user for an agent's prompts, and the user's recently stated preferences.

    All agents of the user share a record of both in the hot tier, a fast store such as Redis. An
    agent loads the text (the context) once in a session and keeps it, so that the beginning of the
    prompt stays the same. ``refresh`` loads the context again only after a memory of the user was
    removed, or after the record has expired.

    A preference that the user states during the session is an override: it takes precedence over
    the context. ``refresh`` also loads the overrides from other devices. While the hot tier is
    unavailable, the last known values are used.

    Args:
        store: Store of the user's memories, with a hot tier.
        on_removal: Function to call when memories were removed, before the context is read again.
        reads_revision: Whether each refresh also looks for changes in the memory table. This is
            needed if processes with another hot tier change the table. Default False.

    Attributes:
        context: Text about the user.
        writer: Writer that runs the background work of the cache.
        queue_key: Key of the background work. All caches of the user in the process share the key,
            so their work runs in order.

    Raises:
        ValueError: The store has no hot tier.
    """

    def __init__(
        self,
        store: UserMemoryStore,
        *,
        on_removal: Callable[[], None] = lambda: None,
        reads_revision: bool = False,
    ) -> None:
        if store.hot is None:
            raise ValueError("store must have a hot tier, got UserMemoryStore(..., hot=None)")
        self._store, self._profile, self._log = store, store.hot, store.preference_log
        self._on_removal, self._reads_revision = on_removal, reads_revision
        self.writer, self.queue_key = store.hot.writer, store.hot.queue_key
        self._lock = threading.RLock()
        self._erased_at = -math.inf  # time of the last known erasure
        self._log_items: object = None  # the preference log that was read last
        self._state, self.context = ProfileState(), AgentContext()

    @property
    def stated(self) -> dict[str, SlotState]:
        """Preferences stated since ``context`` was made, keyed by subject such as ``genre``.

        They override the text about the user. The subject that changed last comes last. "Also
        romance" changes the value ``horror`` to ``horror, romance``. Preferences that are not yet
        in the hot tier are included. Encrypted personal data are decrypted.
        """
        with self._lock:
            known, stated = self.context.values, self._state.statements
        first = [
            Statement(Preference(slot, value), at, is_set=True)
            for slot, (value, at) in known.items()
        ]
        return {
            slot: replace(state, value=self._store.pii.opened(state.value))
            for slot, state in slot_states([*first, *stated]).items()
            if slot not in known or state.statement.at > known[slot][1]
        }

    def load(self) -> None:
        """Load the user's record and the text about the user at session start."""
        self._load_context(self._read_record() or ProfileState())

    def add_statements(
        self,
        preferences: Sequence[Preference],
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        at: float,
    ) -> None:
        """Store the preferences that the user stated in a message.

        They are stored in this process and in the hot tier, and in the background in the memory
        table. A preference is left out if the policy for personal data refuses the text. All are
        left out if the message is older than the last deletion of all data of the user.

        Args:
            preferences: The preferences.
            message_id: ``tracking_id`` of the message.
            session_id: Session of the message.
            at: Time of the message, in seconds since 1970.
        """
        kept = []
        for each in preferences:
            try:
                slot, value = map(self._store.pii.text, (each.slot, each.value))
            except PersonalDataError as error:
                logger.debug("error=<%s> | a preference was refused", type(error).__name__)
                continue
            kept.append(
                Statement(replace(each, slot=slot, value=value), at, message_id, session_id)
            )
        if kept and at > self._erased_at:
            with self._lock:
                self._state = self._state.with_changes(kept)
            self._log.apply_later(
                PreferenceChange(statements=kept, signals=self._log.signals_of(kept))
            )

    def remove(self, removal: Removal) -> None:
        """Discard a deleted preference, or the preferences of a retracted message, from this copy.

        The text about the user is discarded, too. The next ``refresh`` makes it from the memories
        again.
        """
        with self._lock:
            state = self._state.with_changes(removals=[removal])
            self._replace(replace(state, removed=""), AgentContext())

    def refresh(self) -> None:
        """Load the changes of the user's memories that other processes wrote to the hot tier.

        If memories were removed, or the user's record has expired, the text about the user is read
        again.
        """
        state = self._read_record()
        if state is None:
            return
        with self._lock:
            known, is_removal = self._state, state.removed != self._state.removed
            if not is_removal:  # statements of this agent may not be published yet
                self._state = state.with_changes(known.statements, known.removals)
        if is_removal or state.revision != known.revision:
            self._store.reader.drop_snapshot()
        if is_removal:
            self._replace(replace(state, removed=""), AgentContext())
            self._on_removal()
            self._erased_at = self._log.erased_at()
            self._load_context(state)

    # Inside

    def _read_record(self) -> ProfileState | None:
        """Read the user's record from the hot tier, or create it. None if the hot tier fails."""

        def read() -> ProfileState:
            # A deadline also for background reads, because statements wait in the same queue.
            state = health.call_in_thread(self._profile.load, PATIENCE)
            # Without a record, this agent would not notice removals by other processes.
            return state if state.exists or state.is_erased else self._profile.update(_created)

        health = self._profile.health
        state = health.call(read)
        if state is None or not (state.exists and self._reads_revision):
            return state
        return health.call(lambda: self._copy_from_table(state))

    def _copy_from_table(self, state: ProfileState) -> ProfileState:
        """Copy changes of preferences from the memory table to the user's record in the hot tier.

        Processes with another hot tier write their changes only to the table.
        """
        items = self._log.read_items()
        revision = revision_of(*items)
        if revision == state.revision and items == self._log_items:
            return state
        is_renewed = revision != state.revision
        try:
            logged = self._log.logged(*items)
        except CorruptRecordError as error:  # the statements of the hot tier are used
            logger.warning(
                "error=<%s> | failed to read the preferences of other processes",
                type(error).__name__,
            )
            logged = LoggedChanges(erased_at=self._log.erased_at())

        def changed(state: ProfileState) -> ProfileState | None:
            new = state.with_changes(logged.statements, logged.removals, since=logged.erased_at)
            if is_renewed:
                new = replace(new, context=None, revision=revision, removed="")
            return new if state.exists else None

        copied = self._profile.update(changed, drops=True)
        self._log_items = items
        return copied

    def _load_context(self, state: ProfileState) -> None:
        context = state.context
        # The limit matters if a removal could not be published.
        if context is None or self._store.partition.clock() - context.read_at >= TTL:
            context = self._store.agent_context(_START_TOKENS)

            def stored(now: ProfileState) -> ProfileState | None:
                is_same = (now.removed, now.revision) == (state.removed, state.revision)
                return replace(now, context=context) if now.exists and is_same else None

            # Not stored if memories change meanwhile.
            if state.exists:
                self._profile.health.call(lambda: self._profile.update(stored))
        self._replace(state, context)

    def _replace(self, state: ProfileState, context: AgentContext) -> None:
        with self._lock:
            self._state, self.context = state, context


def _created(state: ProfileState) -> ProfileState | None:
    return None if state.exists or state.is_erased else state
