"""Record of a user in the hot tier, a fast shared store such as Redis.

The record has cached memories, a text about the user for agents (the context), preferences from
recent messages (statements), and recent deletions of preferences and retractions of messages
(removals). The user's agents in all processes read the record before each model call.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.memory.partition import PartitionContent, repeat_until_written
from strands_manga_memory.memory.records import AgentContext, Owner
from strands_manga_memory.memory.statements import (
    Removal,
    Statement,
    latest_removals,
    merged,
    recent,
    slot_states,
)
from strands_manga_memory.stores.codec import Codec, parsing
from strands_manga_memory.stores.hot import (
    ACTIVE,
    DELETED,
    HotRecord,
    HotStore,
    HotWrite,
    new_version,
)
from strands_manga_memory.stores.writer import TierHealth, shared_writer

logger = logging.getLogger(__name__)

TTL = 1800.0
"""Seconds that the record and cached memories may be used."""
PATIENCE = 0.25
"""Most seconds that an agent waits for the user's record."""
MEMORIES = "memories"
"""Name of the field with the cached memories."""
MAX_BYTES = 524_288
"""Most bytes of cached memories after compression. Larger content is not cached."""

_STATE = "state"
_CONTENT = TypeAdapter(PartitionContent)


def cache_name(owner: Owner) -> str:
    """Return the name under which the hot tier, such as Redis, stores a user's record."""
    return f"profile/{owner.partition}/cache"


@dataclass(frozen=True)
class ProfileState:
    """Content of a user's record in the hot tier: text about the user, and recent preferences.

    The hot tier is a fast shared store such as Redis, which the user's agents read.

    Attributes:
        exists: Whether there is a record that is not a tombstone (marker of a deletion).
        is_erased: Whether a tombstone has replaced the record, because all data of the user were
            deleted.
        context: Text about the user, made at a session start and shared by all agents, or None.
        statements: Recently stated preferences of the user on all devices, in order of time.
        removals: Recent deletions of preferences and retractions of messages.
        revision: Last known revision of the user's preference log.
        removed: Random text that changes whenever memories are removed. An agent compares it with
            the text that it read before. If they differ, the agent reads ``context`` again.
    """

    exists: bool = False
    is_erased: bool = False
    context: AgentContext | None = None
    statements: tuple[Statement, ...] = ()
    removals: tuple[Removal, ...] = ()
    revision: str = ""
    removed: str = ""

    @property
    def overrides(self) -> dict[str, str]:
        """Values of recently stated preferences, keyed by subject such as ``genre``.

        The latest comes last. Removed preferences are left out.
        """
        slots = slot_states(recent(self.statements, self.removals))
        return {slot: state.value for slot, state in slots.items()}


STATE = TypeAdapter(ProfileState)
"""Conversion of a user's record to and from dicts and lists, the form that is stored."""


class HotProfile:
    """Access to the record of one user in the hot tier, a fast shared store such as Redis.

    The record contains a text about the user for prompts, the user's recently stated preferences,
    and a cache of the user's memories. Each change of a memory removes this cache.

    The record is changed by compare-and-set: if another process has changed the record since it was
    read, the change is repeated on the new record.

    Args:
        hot: Hot tier of the record.
        owner: User to whom the record belongs.
        codec: Codec of the data in the record.

    Attributes:
        writer: Writer that runs the background work on the record.
        queue_key: Key under which ``writer`` queues background work of the user's agents. Work with
            the same key runs in order.
        health: Availability of the hot tier.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None) -> None:
        self._hot = hot
        self._codec = codec or Codec()
        self.name = cache_name(owner)
        self.queue_key = ("profile", owner)
        # Keeps the writer alive: a new writer would have another ``hot_health``.
        self.writer = shared_writer(hot, None)
        self.health = TierHealth(shared=self.writer.hot_health)
        self._storage_keys = {field: f"{self.name}#{field}" for field in (_STATE, MEMORIES)}

    def load(self) -> HotRecord | None:
        """Read the user's record from the hot tier in one request; None if there is none.

        The read renews the record's expiry.

        Raises:
            StoreError: The hot tier is unavailable.
        """
        return self._hot.load(self.name, [_STATE])

    def update(
        self, change: Callable[[ProfileState], ProfileState | None], *, drops: bool = False
    ) -> ProfileState:
        """Change the user's record by compare-and-set, and return its new state.

        Args:
            change: Function from the current state to the next state, called again after a
                conflict. If the function returns None, nothing is written, and the result is an
                empty ``ProfileState``.
            drops: Whether to remove the cache of the user's memories from the record.

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
            is_kept = before.exists and after.removed
            after = replace(after, removed=after.removed if is_kept else uuid.uuid4().hex)
            content = STATE.dump_python(
                after, exclude={"exists", "is_erased"}, exclude_defaults=True
            )
            write = HotWrite(
                expect=None if kept is None or before.is_erased else (kept.epoch, kept.version),
                epoch=1 if kept is None else kept.epoch + before.is_erased,
                version=new_version(),
                fields={_STATE: self._codec.encode(content, self._storage_keys[_STATE])},
                removed=[MEMORIES] if drops and before.exists else [],
                ttl=TTL,
                replace=not before.exists,
            )
            if not self._hot.write(self.name, write):
                return None
            return replace(after, exists=True, is_erased=False)

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
        erased_at: Callable[[], float],
    ) -> None:
        """Write a change of the user's memories to the hot tier, where the user's agents read it.

        The cached memories are removed. The call waits at most 0.25 seconds for the hot tier. If
        the hot tier is unavailable, the change is written later, in the background.

        Args:
            statements: Preferences that the user has just stated, or that the application has set.
            removals: Deletions of preferences and retractions of messages. They also apply to
                earlier statements that arrive later from another device.
            before: Revision of the preference log before the change. If the record has another
                revision, it lacks a change by another process. The record then gets a random
                revision, so that agents read that change from the table.
            revision: Revision of the preference log after the change.
            is_removal: Whether memories were removed that are not in ``removals``. After any
                removal, agents read their text about the user again.
            drops_context: Whether to remove the stored text about the user, so that the next
                session start makes it from the table again.
            erased_at: Function that returns the time of the last deletion of all the user's data,
                in seconds since 1970. Called only if that deletion has replaced the record by a
                tombstone (deletion marker). Statements up to this time are then left out.
        """

        def changed(state: ProfileState) -> ProfileState | None:
            since = erased_at() if state.is_erased else -math.inf
            stated = [each for each in statements if each.at > since]
            if not (state.exists or stated or (removals and not state.is_erased)):
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
                statements=recent(merged(state.statements, stated), void),
                removals=void,
                revision=known,
                removed=uuid.uuid4().hex if removes else state.removed,
            )

        until = time.monotonic() + TTL

        def publish_again() -> None:
            if time.monotonic() < until:  # later, every older copy has expired
                self.update(changed, drops=True)

        try:
            self.health.call_in_thread(lambda: self.update(changed, drops=True), PATIENCE)
        except StoreError as error:
            logger.warning(
                "error=<%s> | failed to publish a change of a user's memories, retrying",
                type(error).__name__,
            )
            # The table has the change, so the exit does not wait for the hot tier.
            self.writer.repeat(("publish", self.name), publish_again, is_needed=lambda: False)

    # Cached memories

    def load_memories(self) -> tuple[PartitionContent | None, tuple[int, int] | None]:
        """Read the cached memories of the user from the hot tier in one request.

        Returns:
            Memories, and the version of the user's record for a later call of ``store_memories``.
            The memories are None if they are not cached or were cached over 30 minutes ago. Both
            are None if the user has no record, if the data is damaged, or if the hot tier fails.
        """

        def read() -> tuple[PartitionContent | None, tuple[int, int] | None]:
            record = self._hot.load(self.name, [MEMORIES], touch=False)
            if record is None or record.state != ACTIVE or record.expires_in <= 0:
                return None, None
            return self._field(record, MEMORIES, _fresh_content), (record.epoch, record.version)

        return self.health.call(lambda: self.health.call_in_thread(read, PATIENCE)) or (None, None)

    def store_memories(self, loaded: PartitionContent, version: tuple[int, int]) -> bool:
        """Cache memories of the user in the hot tier, and return whether this succeeded.

        Nothing is cached in these cases:

        - The user's record has changed since ``load_memories`` returned ``version``.
        - The memories have more than 512 KiB.
        - Some of the memories are unreadable.
        - The hot tier fails.
        """
        content = replace(loaded, records=dict(loaded.records))
        data = self._codec.encode(
            [time.time(), _CONTENT.dump_python(content)], self._storage_keys[MEMORIES]
        )
        if len(data) > MAX_BYTES or loaded.unreadable:
            return False
        write = HotWrite(
            expect=version,
            epoch=version[0],
            version=new_version(),
            fields={MEMORIES: data},
            ttl=TTL,
        )
        try:
            return self._hot.write(self.name, write)
        except StoreError:
            return False

    # Inside

    def state_of(self, record: HotRecord | None) -> ProfileState:
        """Decode a user's record from the hot tier.

        Without a record, or with an expired one, the result is an empty state.

        Raises:
            CorruptRecordError: The record is damaged.
        """
        if record is None:
            return ProfileState()
        if record.state != ACTIVE or record.expires_in <= 0:
            is_erased = record.state == DELETED
            removed = f"{record.epoch}.{record.version}" if is_erased else ""
            return ProfileState(is_erased=is_erased, removed=removed)
        stored = self._field(record, _STATE, STATE.validate_python) or ProfileState()
        return replace(stored, exists=True)

    def _field(self, record: HotRecord, name: str, read: Callable[[Any], Any]) -> Any:
        if name not in record.fields:
            return None
        data = self._codec.decode(record.fields[name], self._storage_keys[name])
        with parsing(self._storage_keys[name]):
            return read(data)


def _fresh_content(data: Any) -> PartitionContent | None:
    read_at, content = data
    # The limit matters if a removal could not be published.
    return None if time.time() - read_at >= TTL else _CONTENT.validate_python(content)
