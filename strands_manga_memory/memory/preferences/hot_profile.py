"""Record of a user in the hot tier: memories, agent context, recent statements and removals."""

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
"""Field of the cached memories."""
MOST_BYTES = 524_288
"""Largest compressed size of cached memories. Larger ones are read from the table."""


def cache_name(owner: Owner) -> str:
    """Return the key of a user's cache in the hot tier. It has two slashes; the key of a conversation has one."""
    return f"profile/{owner.partition}/cache"


@dataclass(frozen=True)
class CacheLookup:
    """Result of a look-up in the hot tier: the memories, or None, and epoch and version of the record."""

    memories: PartitionContent | None = None
    seen: tuple[int, int] | None = None


class MemoryCache:
    """Cached memories of a user, a field of the user's record in the hot tier, which expires after 1,800 seconds by default.

    ``HotProfile.publish`` drops the field after each change of a memory. A reader of the table stores the memories only if
    the field was not dropped since the look-up. An unreadable field counts as missing.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None, ttl: float = 1800.0) -> None:
        self._hot = hot
        self._owner = owner
        self._codec = codec or Codec()
        self._ttl = ttl
        self._name = cache_name(owner)

    def look(self) -> CacheLookup:
        """Return the content of the hot tier, in one round trip; empty if the tier is down."""
        try:
            record = self._hot.load(self._name, [MEMORIES], touch=False)
            if record is None or record.state != ACTIVE or record.expires_in <= 0:
                return CacheLookup()
            return CacheLookup(self._read(record), (record.epoch, record.version))
        except (StoreError, KeyMissingError) as error:
            logger.debug("error=<%s> | the cached memories of a user are not used", type(error).__name__)
            return CacheLookup()

    def rules_out_erasure(self) -> bool:
        """Return whether the hot tier shows, in one round trip, that no process has erased the user recently."""
        if not self._hot.survives_process:
            return False
        try:
            record = self._hot.load(self._name, [], touch=False)
        except StoreError:
            return False
        return record is not None and record.state == ACTIVE and record.epoch == 1

    def keep(self, loaded: PartitionContent, seen: tuple[int, int]) -> bool:
        """Cache memories that were read from the table after ``look`` returned ``seen``; return whether they were stored."""
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
                return None  # bounds the effect of a removal that could not be published
            records = [record_of(row, self._owner, None) for row in data["rows"]]
            uses = {str(id_): (int(count), float(at)) for id_, (count, at) in data["uses"].items()}
        return PartitionContent({each.memory_id: each for each in records}, uses, is_partial=bool(data["is_partial"]))

    def _written(self, seen: tuple[int, int], *, fields: dict[str, bytes]) -> bool:
        write = HotWrite(expect=seen, epoch=seen[0], version=new_version(), fields=fields, ttl=self._ttl)
        return self._hot.write(self._name, write) is WriteStatus.OK


TTL = 1800.0
"""Seconds that the record exists after its last use, and that an agent context is used after it was read from the table."""

_CONTEXT, _STATEMENTS, _REMOVALS, _REVISION = "context", "statements", "removals", "revision"
FIELDS = (_CONTEXT, _STATEMENTS, _REMOVALS, _REVISION)
_RETRY_SECONDS = (0.5, 60.0)


@dataclass(frozen=True)
class ProfileState:
    """Content of the record.

    Attributes:
        epoch: Incremented by each erasure.
        version: Changed by each write.
        exists: Whether there is an active record; False also for the tombstone of an erasure.
        is_erased: Whether there is the tombstone of an erasure.
        context: Agent context of the last session start, or None.
        statements: Recent statements of all devices, in the order of their times.
        removals: Recent removals.
        revision: Last known revision of the table's ``~changes``.
        removed: Changed by each removal. A context that was read before must not be used.
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
    """Reads and changes the record of a user in the hot tier, by compare-and-set.

    Args:
        hot: The hot tier.
        owner: The user.
        codec: Codec of the fields.
        ttl: Seconds that the record exists after its last use. Default 1,800.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None, ttl: float = TTL) -> None:
        self._hot = hot
        self._codec = codec or Codec()
        self._ttl = ttl
        self.name = cache_name(owner)

    def load(self, *, touch: bool = False) -> HotRecord | None:
        """Return the stored record, in one round trip.

        Raises:
            StoreError: The hot tier is unavailable.
        """
        return self._hot.load(self.name, FIELDS, touch=touch)

    def update(self, change: Callable[[ProfileState], ProfileState | None], *, drops: bool = False) -> ProfileState | None:
        """Change the record by compare-and-set; return its new state, or None if ``change`` returns None.

        Args:
            change: Returns the next state for the current one.
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
            # A new record gets a new token: an agent that has read an earlier one may have missed removals.
            after = replace(after, removed=after.removed or uuid.uuid4().hex)
            write = self._write(kept, before, after, drops=drops)
            if self._hot.write(self.name, write) is not WriteStatus.OK:
                return None
            return (replace(after, epoch=write.epoch, version=write.version, exists=True, is_erased=False),)

        return repeat_until_written(attempt, record=self.name)[0]

    def publish(
        self, committed: CommittedChange | None = None, *, is_removal: bool = False, drops_context: bool = False
    ) -> None:
        """Publish a change of the table to new sessions and live agents, and drop cached memories.

        If the hot tier is unavailable, the change is published later, in the background.

        Args:
            committed: Change of the table. Live agents add its statements to their context; its removals also void
                statements that other devices have not written yet.
            is_removal: Whether data was removed, so that no agent may use its earlier context.
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
        """Replace the record by a tombstone that exists for ``ttl`` seconds; return its epoch."""
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
        """Return the content of a stored record; raise ``CorruptRecordError`` if the record is damaged."""
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
