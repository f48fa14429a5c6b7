"""Storage of a conversation in the hot tier, which is a cache such as Redis.

The conversation is one hash, with a field for each part of its record (``record_format.py``). Each
write is one compare-and-set. Without a durable tier, the hash keeps all turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock

from strands_manga_memory.exceptions import (
    CorruptRecordError,
    StoreUnavailableError,
)
from strands_manga_memory.session.protocol.record import (
    Record,
    Turn,
    TurnKey,
)
from strands_manga_memory.session.protocol.record_format import (
    ENDED,
    HEAD,
    open_json,
    open_turn,
    record_from_parts,
    record_to_parts,
    seal_json,
    turn_key,
    turn_part,
    turn_to_json,
)
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.codec import parsing
from strands_manga_memory.stores.hot import (
    CLOSING,
    DELETED,
    HotRecord,
    HotStore,
    HotWrite,
    new_version,
)
from strands_manga_memory.stores.writer import TierHealth

EMPTY_SECONDS = 3600.0
"""Seconds for which a hot tier that was emptied after a flush refuses late writes."""


@dataclass
class StoredHash:
    """Hash of named fields that stores a conversation in the hot tier, as last read or written.

    Args:
        expect: Epoch and version of the stored hash; None if the hash is missing. The next write
            succeeds only if both are unchanged.
        epoch: Epoch that the next write stores, normally the stored epoch. After a deletion or a
            sweeper's reservation, it is 1 higher, so that late writes of other processes are
            refused.
        unread: Keys of stored turns that ``record`` lacks, because they are damaged or not in the
            agent's history.
        expires_in: Seconds from the read or write until the conversation counts as expired; None if
            the hash is missing.
    """

    expect: tuple[int, int] | None = None
    epoch: int = 1
    record: Record = field(default_factory=Record)
    unread: set[TurnKey] = field(default_factory=set)
    expires_in: float | None = None


class HotTier:
    """Access to one conversation in the hot tier, which is a cache such as Redis.

    The conversation is stored as a hash with a field for each turn.

    Args:
        tiers: The stores. Without a durable one, the hot one has to keep every turn.

    Attributes:
        stored: Content of the hash, as last read or written; None if it is not known.
        io: Lock that is held while the conversation is read or written.
        deadline: Seconds that a turn waits for the tier.
    """

    name = "hot"

    def __init__(self, conversation_key: ConversationKey, tiers: Tiers) -> None:
        assert tiers.hot is not None  # noqa: S101 - for the type checker
        self._store, self._name = tiers.hot, conversation_key.name
        self._tiers, self._keeps_log = tiers, tiers.durable is None
        self.stored: StoredHash | None = None
        self.io = RLock()
        self.health = TierHealth(tier=self.name, shared=tiers.writer.hot_health)
        self.deadline = tiers.hot_deadline

    @property
    def is_known(self) -> bool:
        """Whether this process knows the stored record's version and content, which a write needs.

        True after a read or a write, until the next request fails.
        """
        return self.stored is not None

    @property
    def record(self) -> Record:
        """Record (state) of the conversation, as last read or written by this process.

        It is empty if this process has not read it, or if nothing is stored.
        """
        return Record() if self.stored is None else self.stored.record

    def forget(self) -> None:
        """Discard this process's copy of the record. It must be read before the next write."""
        self.stored = None

    def read(self, *, touch: bool = True) -> Record:
        """Read the record (state) of the conversation in one round trip; empty if there is none.

        Args:
            touch: Whether the read may restart the time to live. An inspection passes False.

        Raises:
            StoreUnavailableError: The store does not answer.
            CorruptRecordError: The record cannot be read.
        """
        self.stored = None
        touch = touch and self._tiers.ttl.refreshed_by_reads
        found = self._store.load(self._name, None, touch=touch)
        if found is None or found.state == DELETED:
            self.stored = StoredHash(epoch=1 if found is None else found.epoch + 1)
        else:
            self.stored = self._decode(found)
        return self.stored.record

    def read_to_delete(self) -> None:
        """Read the record of a conversation that will be deleted.

        A damaged record is replaced by a tombstone, which marks the conversation as deleted.
        """
        try:
            self.read(touch=False)
        except CorruptRecordError:
            ttl = self._tiers.ttl.tombstone_seconds
            epoch = self._store.put_tombstone(self._name, ttl=ttl)
            self.stored = StoredHash(epoch=epoch + 1)

    def write(self, record: Record) -> bool:
        """Replace the record (state) of the conversation with one compare-and-set.

        Args:
            record: The new record. The caller has merged the record that was last read into it.

        Returns:
            False if another process has changed the record. Then read it, merge it with ``record``,
            and try again.

        Raises:
            StoreUnavailableError: The stored record is not known (``is_known`` is False): call
                ``read`` first. Or the store does not answer, and may have stored ``record``.
        """
        before = self.stored
        if before is None:
            raise StoreUnavailableError("the content of the hot tier is not known")
        is_new = record.is_empty or record.incarnation != before.record.incarnation
        old = StoredHash() if is_new else before
        record = self._add_redacted_turns(record, old)
        lacking = (old.record.turns.keys() | old.unread) - record.turns.keys()
        unread = lacking if self._keeps_log else lacking & record.shown_keys
        parts, known = record_to_parts(record), {} if is_new else record_to_parts(old.record)
        changed = {name: text for name, text in parts.items() if text != known.get(name)}
        changed |= {
            turn_part(key): turn_to_json(turn)
            for key, turn in record.turns.items()
            if turn != old.record.turns.get(key)
        }
        removed = (known.keys() - parts.keys()) | set(map(turn_part, lacking - unread))
        ttl, version = self._ttl_of(record), new_version()
        self.stored = None
        is_stored = self._store.write(
            self._name,
            HotWrite(
                expect=before.expect,
                epoch=before.epoch,
                version=version,
                fields={
                    name: seal_json(
                        text,
                        f"{self._name}#{name}",
                        self._tiers.codec_of(is_tombstone=name == ENDED),
                    )
                    for name, text in changed.items()
                },
                removed=sorted(removed),
                ttl=ttl,
                replace=is_new and before.expect is not None,
            ),
        )
        if is_stored:
            self.stored = StoredHash((before.epoch, version), before.epoch, record, unread, ttl)
        return is_stored

    def _ttl_of(self, record: Record) -> float:
        policy = self._tiers.ttl
        if not record.incarnation:
            return EMPTY_SECONDS
        if record.is_empty:
            return policy.tombstone_seconds
        seconds = policy.ttl(record.turn_count)
        if policy.mode == "fixed":
            return max(1.0, record.created + seconds - self._tiers.clock())
        return seconds

    def get_turns(
        self, incarnation: int, keys: Iterable[TurnKey] | None = None
    ) -> dict[TurnKey, Turn]:
        """Read turns of the conversation. Missing and unreadable turns are left out.

        Args:
            incarnation: Incarnation to read, which a deletion, expiry or rewind ends. If another
                incarnation is stored, the result is empty.
            keys: Keys of the turns to read. None: all turns.
        """
        with self.io:
            if self.stored is None:
                self.read(touch=False)
            stored = self.stored
            if stored is None or stored.record.incarnation != incarnation:
                return {}
            held, unread = stored.record.turns, stored.unread
            wanted = {*unread, *held} if keys is None else set(keys)
            names = [turn_part(key) for key in unread & wanted]
            found = self._store.load(self._name, names, touch=False) if names else None
            read = self._open_turns(found.fields if found else {})
            return read | {key: turn for key, turn in held.items() if key in wanted}

    def _open_turns(self, fields: Mapping[str, bytes]) -> dict[TurnKey, Turn]:
        turns: dict[TurnKey, Turn] = {}
        for name, data in fields.items():
            storage_key = f"{self._name}#{name}"
            turn = open_turn(partial(bytes, data), self.name, storage_key, self._tiers.codec)
            if turn is not None and (key := turn_key(name)) is not None:
                turns[key] = turn
        return turns

    def _add_redacted_turns(self, record: Record, before: StoredHash) -> Record:
        known = before.record.redactions
        new = {key for key in before.unread if record.redactions.get(key) != known.get(key)}
        # The stored hash still has the original messages of these turns. The write replaces them.
        turns = self.get_turns(record.incarnation, new).items()
        return record.with_turns({key: record.redact_turn(key, turn) for key, turn in turns})

    def _decode(self, found: HotRecord) -> StoredHash:
        parts, turns = {}, {}
        for name, data in found.fields.items():
            with parsing(storage_key := f"{self._name}#{name}"):
                if (key := turn_key(name)) is not None:
                    turns[key] = name, data
                else:
                    parts[name] = open_json(
                        data, storage_key, self._tiers.codec_of(is_tombstone=name == ENDED)
                    )
        with parsing(self._name):
            record = record_from_parts(parts)
        needed = sorted(turns.keys() & (record.shown_keys | record.unlogged))
        record = replace(record, turns=self._open_turns(dict(turns[key] for key in needed)))
        # A sweeper's claim stops no writer: the next writer raises the epoch, which voids the
        # claim.
        return StoredHash(
            expect=(found.epoch, found.version),
            epoch=found.epoch + (found.state == CLOSING),
            record=record,
            unread=turns.keys() - record.turns.keys(),
            expires_in=found.expires_in,
        )


def read_hot_head(store: HotStore, name: str) -> HotRecord | None:
    """Read version, counters and expiry of a conversation from the hot tier, without its turns.

    The result is None if the hot tier has no content of the conversation.
    """
    found = store.load(name, [HEAD], touch=False)
    if found is None or found.state == DELETED or HEAD not in found.fields:
        return None
    return found
