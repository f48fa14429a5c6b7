"""Reads and writes the record of a user in the hot tier.

The record has cached memories, the context for agents, recent statements of preferences, and recent removals.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from strands_manga_memory.exceptions import ConflictError, KeyMissingError, StoreError
from strands_manga_memory.memory.memory_context import AgentContext
from strands_manga_memory.memory.partition import PartitionContent, repeat_until_written
from strands_manga_memory.memory.preferences.preference_log import CommittedChange
from strands_manga_memory.memory.preferences.statements import Removal, Statement, latest_removals, recent, text_of
from strands_manga_memory.memory.records import Owner, item_of, record_of
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.hot import ACTIVE, CLOSING, DELETED, HotRecord, HotStore, HotWrite, WriteStatus, new_version
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)

MEMORIES = "memories"
"""Name of the field with the cached memories."""
MOST_BYTES = 524_288
"""Most bytes of cached memories after compression. Larger content is not cached."""


def cache_name(owner: Owner) -> str:
    """Return the key of a user's record in the hot tier."""
    return f"profile/{owner.partition}/cache"


@dataclass(frozen=True)
class CacheLookup:
    """Result of looking up cached memories in the hot tier.

    Attributes:
        memories: Cached memories, or None.
        seen: Epoch and version of the user's record. None if there is no active record or the hot tier is unavailable.
    """

    memories: PartitionContent | None = None
    seen: tuple[int, int] | None = None


class MemoryCache:
    """Cache of a user's memories in the hot tier.

    The memories are one field of the user's record. By default, they expire after 1,800 seconds. Each change of a memory drops
    the cached memories. A process that reads the table then caches the memories again, but only if the record has not changed
    since. Unreadable data counts as missing.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None, ttl: float = 1800.0) -> None:
        self._hot = hot
        self._owner = owner
        self._codec = codec or Codec()
        self._ttl = ttl
        self._name = cache_name(owner)

    def look(self) -> CacheLookup:
        """Return the cached memories, in one round trip.

        The result is empty if the hot tier is unavailable.
        """
        try:
            record = self._hot.load(self._name, [MEMORIES], touch=False)
            if record is None or record.state != ACTIVE or record.expires_in <= 0:
                return CacheLookup()
            return CacheLookup(self._read(record), (record.epoch, record.version))
        except (StoreError, KeyMissingError) as error:
            logger.debug("error=<%s> | the cached memories of a user are not used", type(error).__name__)
            return CacheLookup()

    def rules_out_erasure(self) -> bool:
        """Return whether the hot tier proves that the user was not erased recently.

        The call needs one round trip.
        """
        if not self._hot.survives_process:
            return False
        try:
            record = self._hot.load(self._name, [], touch=False)
        except StoreError:
            return False
        return record is not None and record.state == ACTIVE and record.epoch == 1

    def keep(self, loaded: PartitionContent, seen: tuple[int, int]) -> bool:
        """Cache memories and return whether they were stored.

        They are stored only if the record has not changed since ``look`` returned ``seen``.
        """
        rows = [item_of(record, self._owner, None) for record in loaded.records.values()]
        uses = {id_: list(used) for id_, used in loaded.uses.items()}
        content = {"rows": rows, "uses": uses, "is_partial": loaded.is_partial, "read_at": time.time()}
        data = self._codec.encode(content, self._place)
        if len(data) > MOST_BYTES or loaded.unreadable:
            return False
        try:
            return self._written(seen, fields={MEMORIES: data})
        except StoreError:
            return False

    @property
    def _place(self) -> str:
        return f"{self._name}#{MEMORIES}"

    def _read(self, record: HotRecord) -> PartitionContent | None:
        if MEMORIES not in record.fields:
            return None
        data = self._codec.decode(record.fields[MEMORIES], self._place)
        with trusted(self._place):
            if time.time() - float(data["read_at"]) >= self._ttl:
                return None  # limits how long a removal that could not be published has no effect
            records = [record_of(row, self._owner, None) for row in data["rows"]]
            uses = {str(id_): (int(count), float(at)) for id_, (count, at) in data["uses"].items()}
        return PartitionContent({each.memory_id: each for each in records}, uses, is_partial=bool(data["is_partial"]))

    def _written(self, seen: tuple[int, int], *, fields: dict[str, bytes]) -> bool:
        write = HotWrite(expect=seen, epoch=seen[0], version=new_version(), fields=fields, ttl=self._ttl)
        return self._hot.write(self._name, write) is WriteStatus.OK


TTL = 1800.0
"""Seconds that the record exists after its last use. A cached context is used at most as long."""

_CONTEXT, _STATEMENTS, _REMOVALS, _REVISION = "context", "statements", "removals", "revision"
FIELDS = (_CONTEXT, _STATEMENTS, _REMOVALS, _REVISION)
_RETRY_SECONDS = (0.5, 60.0)


@dataclass(frozen=True)
class ProfileState:
    """Content of a user's record in the hot tier.

    Attributes:
        epoch: Number that each erasure of the user increments.
        version: Version of the record. Each write changes the version.
        exists: Whether there is an active record. A tombstone is not an active record.
        is_erased: Whether the tombstone of an erasure replaces the record.
        context: Context for agents, read at the last session start, or None.
        statements: Recent statements of all devices, in the order of their times.
        removals: Recent removals.
        revision: Last known revision of the user's preference log in the table.
        removed: Token that each removal changes. A context that was read under an earlier token must not be used.
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


class HotProfile:
    """Reads and changes the record of a user in the hot tier.

    Changes use compare-and-set.

    Args:
        hot: Hot tier of the record.
        owner: User to whom the record belongs.
        codec: Codec of the data in the record.
        ttl: Seconds that the record exists after its last use. Default 1,800.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None, ttl: float = TTL) -> None:
        self._hot = hot
        self._codec = codec or Codec()
        self._ttl = ttl
        self.name = cache_name(owner)

    def load(self, *, touch: bool = False) -> HotRecord | None:
        """Return the stored record, or None, in one round trip.

        ``touch`` renews the expiry of the record.

        Raises:
            StoreError: The hot tier is unavailable.
        """
        return self._hot.load(self.name, FIELDS, touch=touch)

    def update(self, change: Callable[[ProfileState], ProfileState | None], *, drops: bool = False) -> ProfileState | None:
        """Change the record by compare-and-set and return its new state.

        The result is None if ``change`` returns None.

        Args:
            change: Function that gets the current state and returns the next state. None means that nothing changes.
            drops: Whether to drop the cached memories, too.

        Raises:
            StoreError: The hot tier is unavailable.
            ConflictError: Other writers keep changing the record.
        """

        def attempt() -> tuple[ProfileState | None] | None:
            kept = self._hot.load(self.name, FIELDS, touch=False)
            before = self.state_of(kept)
            after = change(before)
            if after is None:
                return (None,)
            # A new record gets a new token: an agent that has read an earlier record may have missed removals.
            after = replace(after, removed=after.removed or uuid.uuid4().hex)
            write = self._write(kept, before, after, drops=drops)
            if self._hot.write(self.name, write) is not WriteStatus.OK:
                return None
            return (replace(after, epoch=write.epoch, version=write.version, exists=True, is_erased=False),)

        return repeat_until_written(attempt, record=self.name)[0]

    def publish(
        self, committed: CommittedChange | None = None, *, is_removal: bool = False, drops_context: bool = False
    ) -> None:
        """Publish a change of the table to new sessions and live agents.

        Cached memories are dropped. If the hot tier is unavailable, the change is published later, in the background.

        Args:
            committed: Change of the table. Live agents add the new statements to their context. The removals also apply to
                earlier statements that other devices write later.
            is_removal: Whether data was removed. Agents then must not use contexts that were read before.
            drops_context: Whether the next session start must read the table.
        """
        new = committed or CommittedChange()

        def changed(state: ProfileState) -> ProfileState | None:
            if not state.exists and not new.removals:
                return None
            void = latest_removals([*state.removals, *new.removals])
            removes = is_removal or bool(new.removals)
            return replace(
                state,
                context=None if drops_context or removes else state.context,
                statements=recent([*state.statements, *new.statements], void),
                removals=void,
                revision=new.revision or state.revision,
                removed=uuid.uuid4().hex if removes else state.removed,
            )

        self._published(changed, _RETRY_SECONDS[0], time.monotonic() + TTL)

    def put_tombstone(self, *, ttl: float) -> int:
        """Replace the record by a tombstone and return the epoch of the tombstone.

        The tombstone exists for ``ttl`` seconds.
        """
        return self._hot.put_tombstone(self.name, epoch=1, ttl=ttl)

    # Inside

    def _published(self, change: Callable[[ProfileState], ProfileState | None], wait: float, until: float) -> None:
        try:
            self.update(change, drops=True)
        except (StoreError, ConflictError) as error:
            if time.monotonic() > until:  # every older copy has expired
                return
            logger.warning("error=<%s> | failed to publish a change of a user's memories, retrying", type(error).__name__)
            again = min(_RETRY_SECONDS[1], 2 * wait)
            key = ("publish", uuid.uuid4().hex)
            shared_writer(self._hot, None).later(
                key,
                wait,
                lambda: self._published(change, again, until),
                is_needed=lambda: False,  # the table has the change, so the exit does not wait for the hot tier
            )

    def state_of(self, record: HotRecord | None) -> ProfileState:
        """Decode a stored record.

        Raises:
            CorruptRecordError: The record is damaged.
        """
        if record is None:
            return ProfileState()
        if record.state != ACTIVE or record.expires_in <= 0:
            return ProfileState(record.epoch, record.version, is_erased=record.state == DELETED)
        revision = self._field(record, _REVISION, lambda data: (text_of(data[0]), text_of(data[1]))) or ("", "")
        return ProfileState(
            epoch=record.epoch,
            version=record.version,
            exists=True,
            context=self._field(record, _CONTEXT, AgentContext.of),
            statements=self._field(record, _STATEMENTS, lambda rows: tuple(map(Statement.of, rows))) or (),
            removals=self._field(record, _REMOVALS, lambda rows: tuple(map(Removal.of, rows))) or (),
            revision=revision[0],
            removed=revision[1],
        )

    def _field(self, record: HotRecord, name: str, read: Callable[[Any], Any]) -> Any:
        if name not in record.fields:
            return None
        place = f"{self.name}#{name}"
        data = self._codec.decode(record.fields[name], place)
        with trusted(place):
            return read(data)

    def _write(self, kept: HotRecord | None, before: ProfileState, after: ProfileState, *, drops: bool) -> HotWrite:
        values: dict[str, Any] = {
            _STATEMENTS: [each.row for each in after.statements],
            _REMOVALS: [each.row for each in after.removals],
            _REVISION: [after.revision, after.removed],
        }
        if after.context is not None:
            values[_CONTEXT] = after.context.stored
        is_new = not before.exists
        gone = [] if is_new else [*([_CONTEXT] if after.context is None else []), *([MEMORIES] if drops else [])]
        deleted = kept is not None and kept.state == DELETED
        return HotWrite(
            expect=None if kept is None or deleted else (kept.epoch, kept.version),
            epoch=1 if kept is None else kept.epoch + (kept.state in (DELETED, CLOSING)),
            version=new_version(),
            fields={name: self._codec.encode(value, f"{self.name}#{name}") for name, value in values.items()},
            removed=gone,
            ttl=self._ttl,
            replace=is_new,
        )
