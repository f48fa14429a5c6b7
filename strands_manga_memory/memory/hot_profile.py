"""Record of a user in the hot tier, a fast shared store such as Redis.

The record has cached memories, a text about the user for agents (the context), preferences from
recent messages (statements), and recent deletions of preferences (removals). The user's agents in
all processes read the record before each model call.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable
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
    slot_states,
    valid,
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

TTL = 1800.0
"""Seconds that the record and cached memories may be used."""
PATIENCE = 0.25
"""Most seconds that an agent waits for the user's record."""
MEMORIES = "memories"
"""Name of the field with the cached memories."""
MAX_BYTES = 524_288
"""Most bytes of cached memories after compression. Larger content is not cached."""

_MAX_STATEMENTS = 30
"""Most statements in the record; the latest are kept."""
_STATE = "state"
_CONTENT = TypeAdapter(PartitionContent)


def cache_name(owner: Owner) -> str:
    """Return the name under which the hot tier, such as Redis, stores a user's record."""
    return f"profile/{owner.partition}/cache"


@dataclass(frozen=True)
class ProfileState:
    """Content of a user's record in the hot tier, a fast shared store such as Redis.

    Attributes:
        exists: Whether there is a record that is not a tombstone (marker of a deletion).
        is_erased: Whether a tombstone has replaced the record, because all data of the user were
            deleted.
        context: Text about the user, made at a session start and shared by all agents, or None.
        statements: Recently stated preferences of the user on all devices, in order of time.
        removals: Recent deletions of a preference, or of all preferences that a message stated.
        revision: Last known revision of the user's preference log.
        removed: Random text, replaced whenever memories are removed. Agents then read ``context``
            again.
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

        The latest comes last.
        """
        return {slot: state.value for slot, state in slot_states(self.statements).items()}

    def with_changes(
        self,
        statements: Iterable[Statement] = (),
        removals: Iterable[Removal] = (),
        *,
        since: float = -math.inf,
    ) -> ProfileState:
        """Return a copy of this state with further statements (stated preferences) and removals.

        The copy has the latest 30 statements that are later than ``since`` (seconds since 1970) and
        not removed.
        """
        void = latest_removals([*self.removals, *removals])
        stated = valid(merged(self.statements, statements), void)
        latest = [each for each in stated if each.at > since][-_MAX_STATEMENTS:]
        return replace(self, statements=tuple(latest), removals=void)


STATE = TypeAdapter(ProfileState)
"""Converter between a ``ProfileState`` and the dicts and lists that are stored."""


class HotProfile:
    """Access to the record of one user in the hot tier, a fast shared store such as Redis.

    The record contains a text about the user for prompts, the user's recently stated preferences,
    and a cache of the user's memories. Each change of a memory removes this cache.

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

    def load(self) -> ProfileState:
        """Read the user's record from the hot tier in one request, and renew its expiry.

        Without a record, or with an expired one, the state is empty.

        Raises:
            CorruptRecordError: The record is damaged.
            StoreError: The hot tier is unavailable.
        """
        return self._load()[1]

    def update(
        self, change: Callable[[ProfileState], ProfileState | None], *, drops: bool = False
    ) -> ProfileState:
        """Change the user's record by compare-and-set, and return its state afterwards.

        Args:
            change: Function from the current state to the next state, or to None to write nothing.
                It is called again after a conflict. To tell agents that memories were removed, the
                next state has an empty ``removed``; a new random text is then stored. A new record
                always gets one.
            drops: Whether to remove the cache of the user's memories from the record.

        Raises:
            StoreError: The hot tier is unavailable.
            ConflictError: Other writers keep changing the record.
        """

        def attempt() -> ProfileState | None:
            record, before = self._load()
            after = change(before)
            if after is None:
                return before
            # A new record gets a new token: an agent that has read an earlier record may have
            # missed removals.
            is_kept = before.exists and after.removed
            after = replace(after, removed=after.removed if is_kept else uuid.uuid4().hex)
            content = STATE.dump_python(
                after, exclude={"exists", "is_erased"}, exclude_defaults=True
            )
            write = HotWrite(
                expect=None
                if record is None or before.is_erased
                else (record.epoch, record.version),
                epoch=1 if record is None else record.epoch + before.is_erased,
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

    # Cached memories

    def load_memories(self) -> tuple[PartitionContent | None, tuple[int, int] | None]:
        """Read the cached memories of the user from the hot tier in one request.

        Returns:
            A pair: the memories (None if none were cached in the last 30 minutes), and the record's
            version for ``store_memories``. Both are None if the user has no record or the read
            fails.
        """

        def read() -> tuple[PartitionContent | None, tuple[int, int] | None]:
            record = self._hot.load(self.name, [MEMORIES], touch=False)
            if record is None or record.state != ACTIVE or record.expires_in <= 0:
                return None, None
            return self._field(record, MEMORIES, _fresh_content), (record.epoch, record.version)

        return self.health.call(lambda: self.health.call_in_thread(read, PATIENCE)) or (None, None)

    def store_memories(self, loaded: PartitionContent, version: tuple[int, int]) -> bool:
        """Cache memories of the user in the hot tier, and return whether this succeeded.

        Nothing is cached if the record has changed since ``load_memories`` returned ``version``, if
        the memories have more than 512 KiB or are partly unreadable, or if the hot tier fails.
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

    def _load(self) -> tuple[HotRecord | None, ProfileState]:
        record = self._hot.load(self.name, [_STATE])
        if record is None:
            return None, ProfileState()
        if record.state != ACTIVE or record.expires_in <= 0:
            is_erased = record.state == DELETED
            removed = f"{record.epoch}.{record.version}" if is_erased else ""
            return record, ProfileState(is_erased=is_erased, removed=removed)
        stored = self._field(record, _STATE, STATE.validate_python) or ProfileState()
        return record, replace(stored, exists=True)

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
