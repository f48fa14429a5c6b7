"""Record of a user in the hot tier, and the cache through which an agent uses the record.

The record has cached memories, the context (text about the user), recent statements (preferences
from messages), and recent removals (deleted preferences and retracted messages).
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from strands_manga_memory.exceptions import (
    CorruptRecordError,
    KeyMissingError,
    PersonalDataError,
    StoreError,
)
from strands_manga_memory.language.preference_slots import Preference
from strands_manga_memory.memory.partition import PartitionContent, repeat_until_written
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
from strands_manga_memory.stores.codec import Codec, trusted
from strands_manga_memory.stores.hot import (
    ACTIVE,
    DELETED,
    HotRecord,
    HotStore,
    HotWrite,
    WriteStatus,
    new_version,
)
from strands_manga_memory.stores.writer import TierHealth, shared_writer

logger = logging.getLogger(__name__)

TTL = 1800.0
"""Seconds that the record exists after its last use, and the longest use of cached memories and of
a cached context.
"""
MEMORIES = "memories"
"""Name of the field with the cached memories."""
MOST_BYTES = 524_288
"""Most bytes of cached memories after compression. Larger content is not cached."""

_STATE = "state"
_CONTEXT = TypeAdapter(tuple[str, str, dict[str, float], float | None])
_TEXT = TypeAdapter(str)
_CONTENT = TypeAdapter(PartitionContent)
_LATE_SECONDS = 60.0
"""Longest time from a statement until the preference log has it.
A context may lack statements of this time.
"""


def cache_name(owner: Owner) -> str:
    """Return the key of a user's record in the hot tier."""
    return f"profile/{owner.partition}/cache"


@dataclass(frozen=True)
class ProfileState:
    """Content of a user's record in the hot tier.

    Attributes:
        epoch: Number that each erasure of the user increments.
        version: Version of the record. Each write changes the version.
        exists: Whether there is an active record. A tombstone (mark of an erasure) is not active.
        is_erased: Whether the tombstone of an erasure replaces the record.
        context: Text about the user for agents, read at the last session start, or None.
        statements: Recent statements of the user on all devices, in order of time.
        removals: Recent deletions of preferences and retractions of messages.
        revision: Last known revision of the user's preference log.
        removed: Token that each removal of memories replaces. A process that knows another token
            must not use its ``context``.
    """

    epoch: int = 0
    version: int = 0
    exists: bool = False
    is_erased: bool = False
    context: AgentContext | None = None
    statements: tuple[Statement, ...] = ()
    removals: tuple[Removal, ...] = ()
    revision: str = ""
    removed: str = ""

    @property
    def overrides(self) -> dict[str, str]:
        """Values of recently stated preferences by subject, such as ``genre``, the latest last."""
        return {
            slot: state.value
            for slot, state in fold(recent(self.statements, self.removals)).items()
        }

    @property
    def content(self) -> dict[str, Any]:
        """Content of the user's record in the form in which it is stored."""
        return {
            "context": None if self.context is None else asdict(self.context),
            "statements": [each.row for each in self.statements],
            "removals": [each.row for each in self.removals],
            "revision": self.revision,
            "removed": self.removed,
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> ProfileState:
        """Create the state from stored content. Damage raises KeyError, TypeError or ValueError."""
        context = content["context"]
        if (
            context is not None
        ):  # each field is required, so that a damaged context is not taken for an empty one
            fields = [context[name] for name in ("preferences", "history", "changed_at", "read_at")]
            context = AgentContext(*_CONTEXT.validate_python(fields))
        return cls(
            context=context,
            statements=tuple(map(Statement.of, content["statements"])),
            removals=tuple(map(Removal.of, content["removals"])),
            revision=_TEXT.validate_python(content["revision"]),
            removed=_TEXT.validate_python(content["removed"]),
        )


class HotProfile:
    """Record of a user in the hot tier, changed by compare-and-set.

    Each change of a memory removes the cached memories from the record.

    Args:
        hot: Hot tier of the record.
        owner: User to whom the record belongs.
        codec: Codec of the data in the record.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None) -> None:
        self._hot = hot
        self._owner = owner
        self._codec = codec or Codec()
        self.name = cache_name(owner)
        self._places = {field: f"{self.name}#{field}" for field in (_STATE, MEMORIES)}

    def load(self, *, touch: bool = False) -> HotRecord | None:
        """Return the user's stored record, or None, in one round trip.

        ``touch`` renews the record's expiry.

        Raises:
            StoreError: The hot tier is unavailable.
        """
        return self._hot.load(self.name, [_STATE], touch=touch)

    def update(
        self, change: Callable[[ProfileState], ProfileState | None], *, drops: bool = False
    ) -> ProfileState:
        """Change the user's record by compare-and-set, and return its new state.

        Args:
            change: Function from the current state to the next state. If it returns None, nothing
                changes and the result is an empty state.
            drops: Whether to drop the cached memories, too.

        Raises:
            StoreError: The hot tier is unavailable.
            ConflictError: Other writers keep changing the record.
        """

        def attempt() -> ProfileState | None:
            kept = self.load()
            before = self.state_of(kept)
            after = change(before)
            if after is None:
                return ProfileState()
            # A new record gets a new token: an agent that has read an earlier record may have
            # missed removals.
            after = replace(after, removed=after.removed or uuid.uuid4().hex)
            write = HotWrite(
                expect=None if kept is None or before.is_erased else (kept.epoch, kept.version),
                epoch=1 if kept is None else kept.epoch + before.is_erased,
                version=new_version(),
                fields={_STATE: self._codec.encode(after.content, self._places[_STATE])},
                removed=[MEMORIES] if drops and before.exists else [],
                ttl=TTL,
                replace=not before.exists,
            )
            if self._hot.write(self.name, write) is not WriteStatus.OK:
                return None
            return replace(
                after, epoch=write.epoch, version=write.version, exists=True, is_erased=False
            )

        return repeat_until_written(attempt, record=self.name)

    def publish(
        self,
        *,
        statements: Sequence[Statement] = (),
        removals: Sequence[Removal] = (),
        before: str = "",
        revision: str = "",
        is_removal: bool = False,
        drops_context: bool = False,
    ) -> None:
        """Publish a change of the memory table to new sessions and live agents.

        The cached memories are dropped. If the hot tier is unavailable, the change is published
        later, in the background.

        Args:
            statements: Preferences that the application has just set.
            removals: Deletions of preferences and retractions of messages. Earlier statements stay
                removed, even if another device writes them later.
            before: Revision of the preference log before the change.
            revision: Revision of the preference log after the change.
            is_removal: Whether memories other than those in ``removals`` were removed. After either
                kind of removal, agents discard an earlier ``AgentContext``.
            drops_context: Whether to drop the stored ``AgentContext``, so that the next session
                start reads the table.
        """

        def changed(state: ProfileState) -> ProfileState | None:
            if not state.exists and (state.is_erased or not removals):
                return None
            void = latest_removals([*state.removals, *removals])
            removes = is_removal or bool(removals)
            known = state.revision
            if revision != before:
                # If another process changed the table, a new token keeps the record different from
                # the table's revision, so that the next refresh reads that change.
                known = revision if known == before else uuid.uuid4().hex
            return replace(
                state,
                context=None if drops_context or removes else state.context,
                statements=recent([*state.statements, *statements], void),
                removals=void,
                revision=known,
                removed=uuid.uuid4().hex if removes else state.removed,
            )

        until = time.monotonic() + TTL

        def publish_again() -> None:
            if time.monotonic() < until:  # later, every older copy has expired
                self.update(changed, drops=True)

        try:
            self.update(changed, drops=True)
        except StoreError as error:
            logger.warning(
                "error=<%s> | failed to publish a change of a user's memories, retrying",
                type(error).__name__,
            )
            # The table has the change, so the exit does not wait for the hot tier.
            shared_writer(self._hot, None).repeat(
                ("publish", self.name), publish_again, is_needed=lambda: False
            )

    def put_tombstone(self, *, ttl: float) -> int:
        """Replace the user's record by a tombstone (mark of an erasure) for ``ttl`` seconds.

        Return the epoch, a number that each erasure increments.
        """
        return self._hot.put_tombstone(self.name, epoch=1, ttl=ttl)

    # Cached memories

    def load_memories(self) -> tuple[PartitionContent | None, tuple[int, int] | None]:
        """Return the cached memories, and epoch and version of their record, in one round trip.

        The memories are None if they are not cached. Epoch and version are None if there is no
        active record. Both are None if the hot tier is unavailable or the data is damaged.
        """
        try:
            record = self._hot.load(self.name, [MEMORIES], touch=False)
            if record is not None and record.state == ACTIVE and record.expires_in > 0:
                return self._memories_of(record), (record.epoch, record.version)
        except (StoreError, KeyMissingError) as error:
            logger.debug(
                "error=<%s> | the cached memories of a user are not used", type(error).__name__
            )
        return None, None

    def store_memories(self, loaded: PartitionContent, seen: tuple[int, int]) -> bool:
        """Cache memories, if the record still has ``seen``, its epoch and version at the read.

        Return whether they were cached. Memories over 512 KiB, or with unreadable records, are not.
        """
        content = replace(loaded, records=dict(loaded.records))
        data = self._codec.encode(
            [time.time(), _CONTENT.dump_python(content)], self._places[MEMORIES]
        )
        if len(data) > MOST_BYTES or loaded.unreadable:
            return False
        write = HotWrite(
            expect=seen, epoch=seen[0], version=new_version(), fields={MEMORIES: data}, ttl=TTL
        )
        try:
            return self._hot.write(self.name, write) is WriteStatus.OK
        except StoreError:
            return False

    # Inside

    def _memories_of(self, record: HotRecord) -> PartitionContent | None:
        data = self._field(record, MEMORIES, list)
        if data is None:
            return None
        with trusted(self._places[MEMORIES]):
            read_at, content = data
            # The limit matters if a removal could not be published.
            return None if time.time() - read_at >= TTL else _CONTENT.validate_python(content)

    def state_of(self, record: HotRecord | None) -> ProfileState:
        """Decode a user's record. Without a record, the result is an empty state.

        Raises:
            CorruptRecordError: The record is damaged.
        """
        if record is None:
            return ProfileState()
        if record.state != ACTIVE or record.expires_in <= 0:
            return ProfileState(record.epoch, record.version, is_erased=record.state == DELETED)
        stored = self._field(record, _STATE, ProfileState.of) or ProfileState()
        return replace(stored, epoch=record.epoch, version=record.version, exists=True)

    def _field(self, record: HotRecord, name: str, read: Callable[[Any], Any]) -> Any:
        if name not in record.fields:
            return None
        data = self._codec.decode(record.fields[name], self._places[name])
        with trusted(self._places[name]):
            return read(data)


class ProfileCache:
    """Cache of one user's context, the text about the user in an agent's requests.

    The hot tier stores the context for all devices and workers. A session loads the context once
    and keeps the text, so that the prefix of the prompt stays the same. ``refresh`` reads a new
    context after a memory of the user was removed, or after the user's record has expired.

    A preference that the user states during the session is an override of the context. ``refresh``
    also loads the overrides from other devices. While the hot tier is unavailable, the process uses
    the last known values.

    Args:
        hot: Hot tier of the cache.
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user. Users without a tenant are separate from the users of all
            tenants.
        pii: Policy for personal data in overrides. Default ``PiiPolicy()``.
        codec: Codec of the data in the hot tier.
        clock: Function that returns monotonic seconds, for the pauses after errors of the hot tier.
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
        clock: Callable[[], float] = time.monotonic,
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
        self._health = TierHealth(clock=clock)
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
        """Return the user's record in the hot tier, or None if the hot tier fails.

        ``touch`` renews the record's expiry. With ``reads_revision``, the record is first updated
        if the memory table has changed.
        """
        loaded = self._health.tried(lambda: [self._profile.load(touch=touch)])
        if loaded is None:
            return None
        state, log = self._profile.state_of(loaded[0]), self._log
        if log is None or not self._reads_revision or not state.exists:
            return state
        return self._health.tried(lambda: self._followed(state, log))

    def _followed(self, state: ProfileState, log: PreferenceLog) -> ProfileState:
        """Return the user's record, updated if the preference log in the table has changed.

        Statements that the context lacks are added. If the log's revision is new, the context is
        dropped.
        """
        revision, version = log.tokens()
        is_renewed = revision != state.revision
        if not is_renewed and version == self._log_version:
            return state
        try:
            logged = log.read()[0]
        except (
            CorruptRecordError
        ) as error:  # of the log only, so the statements of the hot tier are used
            logger.warning(
                "error=<%s> | failed to read the preferences of other processes",
                type(error).__name__,
            )
            logged = LoggedChanges(erased_at=_last_erasure(log))
        context = state.context if self.context.read_at is None else self.context
        since = (
            -math.inf
            if context is None or context.read_at is None
            else context.read_at - _LATE_SECONDS
        )

        def changed(state: ProfileState) -> ProfileState | None:
            removals = latest_removals([*state.removals, *logged.removals])
            statements = merged(
                state.statements, (each for each in logged.statements if each.at > since)
            )
            kept = tuple(
                each for each in recent(statements, removals) if each.at > logged.erased_at
            )
            new = replace(state, statements=kept, removals=removals)
            new = replace(new, context=None, revision=revision, removed="") if is_renewed else new
            return new if state.exists else None

        followed = self._profile.update(changed, drops=True)
        self._log_version = version
        return followed

    def _reload(self, state: ProfileState) -> None:
        """Discard the context, and use that in ``state``, or else read a new context.

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
        revision = self._log.revision() if self._log is not None and self._reads_revision else ""
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

        stored = (
            None
            if state is None or found.is_erased
            else self._health.tried(lambda: self._profile.update(kept))
        )
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
            self._take(
                stored if is_same else replace(known, statements=stored.statements), self.context
            )

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
