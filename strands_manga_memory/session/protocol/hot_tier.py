"""Storage of a conversation in the hot tier, which is a cache such as Redis.

The conversation is one hash. Each write is one compare-and-set. These fields are JSON:

- ``head``: version, counters, redactions, and the turns that the log in the durable tier may lack.
- ``run``: values that stay the same until the conversation is deleted, expires or is rewound, such
  as ids.
- ``view``: the agent's history, as references to messages.
- ``seen``: number of messages of each turn that the writer knew. Turns that are complete in the
  hash are left out.
- ``removed``: number of messages that a turn had when a rewind removed it, keyed by turn.
- ``manager``: state of the conversation manager.
- ``turn.<key>.<length>``: one turn, named by its key and its number of messages.
- ``edit.<key>.<index>``: edited version of one message of a turn.
- ``note.<number>``: one message that the conversation manager wrote.
- ``state.<hash>``: one named state value.
- ``ended``: the only field of a hash without content, for example after a deletion.

Without a durable tier, the hash keeps turns that have left the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from threading import RLock
from typing import Any

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
    JsonObject,
    open_object,
    open_turn,
    record_from_json,
    record_to_json,
    seal_object,
    turn_to_json,
    whole_record_from_json,
    whole_record_to_json,
)
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.codec import Codec, parsing
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

ENDED_FIELD = "ended"
"""Field that replaces ``head`` in an empty record, and is never encrypted."""

_HEAD_FIELD = "head"

_FIELD_OF = {
    "window": "view",
    "seen": "seen",
    "removed": "removed",
    "manager": "manager",
    **dict.fromkeys(("ids", "incarnation", "deleted_below", "last_rewind", "created"), "run"),
}
"""Field of each part of a record's JSON object that is not in the field ``head``."""


@dataclass
class StoredHash:
    """Hash of named fields that stores a conversation in the hot tier, as last read or written.

    Args:
        expect: Epoch and version of the stored hash; None if the hash is missing. The next write
            succeeds only if both are unchanged.
        epoch: Epoch that the next write stores. It is 1 above the stored epoch after a deletion, or
            if a sweeper (background job) has reserved the conversation. Otherwise it is the same.
        record: The state of the conversation.
        unread: Stored turns that ``record`` lacks, because they have left the agent's history or
            are damaged. Each key of a turn is mapped to the turn's number of messages.
        fields: Content of each field, keyed by name: a turn or a JSON object. None for a turn in
            ``unread``, and for a field that the record does not need.
        expires_in: Seconds from the read or write until the conversation counts as expired; None if
            the hash is missing.
    """

    expect: tuple[int, int] | None = None
    epoch: int = 1
    record: Record = field(default_factory=Record)
    unread: dict[TurnKey, int] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    expires_in: float | None = None


class HotTier:
    """Access to one conversation in the hot tier, which is a cache such as Redis.

    The conversation is stored as a hash with a field for each turn.

    Args:
        conversation_key: Storage key of the conversation.
        tiers: The stores. Without a durable one, the hot one has to keep every turn.

    Attributes:
        name: Name of the tier.
        stored: Content of the hash, as last read or written; None if it is not known.
        io: Lock that is held while the conversation is read or written.
        health: Availability of the tier for this conversation.
        deadline: Seconds that a turn waits for the tier.
    """

    name = "hot"

    def __init__(self, conversation_key: ConversationKey, tiers: Tiers) -> None:
        assert tiers.hot is not None  # noqa: S101 - for the type checker
        self._store, self._name = tiers.hot, conversation_key.name
        self._tiers, self._codec = tiers, tiers.codec
        self._keeps_log = tiers.durable is None
        self.stored: StoredHash | None = None
        self.io = RLock()
        self.health = TierHealth(tier=self.name, shared=tiers.writer.hot_health)
        self.deadline = tiers.hot_deadline

    @property
    def is_known(self) -> bool:
        """Whether this process knows the version and content of the stored hash.

        A write needs both, because it is a compare-and-set. They are known after a read or a write,
        until the next request fails.
        """
        return self.stored is not None

    @property
    def record(self) -> Record:
        """Record (state) of the conversation, as last read or written by this process.

        It is empty if this process has not read it, or if nothing is stored.
        """
        return Record() if self.stored is None else self.stored.record

    def forget(self) -> None:
        """Discard the hash in memory. It must be read again before the next write."""
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
            record: The new record, merged with the one that was last read.

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
        record = self._add_redacted_turns(record, before)
        ttl = self._ttl_of(record)
        is_new = record.incarnation != before.record.incarnation
        old = StoredHash() if is_new else before
        after = self._content(record, old)
        version = new_version()
        self.stored = None
        is_stored = self._store.write(
            self._name,
            HotWrite(
                expect=before.expect,
                epoch=before.epoch,
                version=version,
                fields={
                    name: self._encode(name, value)
                    for name, value in after.fields.items()
                    if value is not None and value != old.fields.get(name)
                },
                removed=sorted(old.fields.keys() - after.fields.keys()),
                ttl=ttl,
                replace=is_new and before.expect is not None,
            ),
        )
        if is_stored:
            self.stored = replace(
                after, expect=(before.epoch, version), epoch=before.epoch, expires_in=ttl
            )
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
            incarnation: Number of the conversation's run, which a deletion, expiry or rewind ends.
                If another run is stored, the result is empty.
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
            names = {_turn_field(key, unread[key]): key for key in unread.keys() & wanted}
            turns = {key: turn for key, turn in held.items() if key in wanted}
            found = self._store.load(self._name, list(names), touch=False) if names else None
            for name, data in (found.fields if found else {}).items():
                if (turn := self._read_turn(name, data)) is not None:
                    turns[names[name]] = turn
            return turns

    def _read_turn(self, name: str, data: bytes) -> Turn | None:
        """Convert a stored field to a turn. If the turn is damaged, return None."""
        return open_turn(partial(bytes, data), self.name, self._storage_key(name), self._codec)

    def _add_redacted_turns(self, record: Record, before: StoredHash) -> Record:
        """Return a copy of ``record`` with the redacted turns that have left the agent's history.

        ``record`` (state of the conversation) lacks these turns, and the hash in the hot tier has
        their original messages. A write of the result replaces these messages.
        """
        known = before.record.redactions
        new = {key for key in before.unread if record.redactions.get(key, {}) != known.get(key, {})}
        turns = self.get_turns(record.incarnation, new) if new else {}
        redacted = {key: record.redact_turn(key, turn) for key, turn in turns.items()}
        return replace(record, turns={**redacted, **record.turns})

    # Fields

    def _content(self, record: Record, before: StoredHash) -> StoredHash:
        """Build the new content of the hash that stores the conversation in the hot tier.

        ``record`` is the state to store. ``before`` is the present content of the hash. Turns of
        ``before`` stay if the agent's history or, without a durable tier, the log needs them.
        """
        if record.is_empty:
            return StoredHash(record=record, fields={ENDED_FIELD: whole_record_to_json(record)})
        shown = record.shown_keys
        lengths = {key: len(turn.messages) for key, turn in before.record.turns.items()}
        # The history, or the log in this hash, still needs turns that have left the record, or
        # cannot be read.
        unread = {
            key: length
            for key, length in (lengths | before.unread).items()
            if key not in record.turns and (self._keeps_log or key in shown)
        }
        held = unread | {key: len(turn.messages) for key, turn in record.turns.items()}
        fields: dict[str, Any] = {
            _turn_field(key, length): record.turns.get(key) for key, length in held.items()
        }
        value = record_to_json(record, held)
        fields |= {name: {"body": body} for name, body in value.pop("bodies", {}).items()}
        fields |= {
            f"state.{self._digest(state['name'])}": state for state in value.pop("states", ())
        }
        for part, found in value.items():
            fields.setdefault(_FIELD_OF.get(part, _HEAD_FIELD), {})[part] = found
        return StoredHash(record=record, unread=unread, fields=fields)

    def _digest(self, name: str) -> str:
        text = f"{self._name}#{name}".encode(errors="surrogatepass")
        return blake2b(text, digest_size=8).hexdigest()

    def _encode(self, name: str, value: Turn | JsonObject) -> bytes:
        if isinstance(value, Turn):
            value = turn_to_json(_parse_turn_field(name)[0], value)
        codec = Codec() if name == ENDED_FIELD else self._codec
        return seal_object(value, self._storage_key(name), codec)

    def _decode(self, found: HotRecord) -> StoredHash:
        # A sweeper's claim stops no writer: the next writer raises the epoch, which voids the
        # claim.
        epoch = found.epoch + (found.state == CLOSING)
        stored = StoredHash((found.epoch, found.version), epoch, expires_in=found.expires_in)
        if _HEAD_FIELD in found.fields:
            self._decode_fields(found.fields, stored)
        elif ENDED_FIELD in found.fields:
            value = open_object(found.fields[ENDED_FIELD], self._storage_key(ENDED_FIELD), Codec())
            with parsing(self._name):
                stored.record = whole_record_from_json(value)
            stored.fields[ENDED_FIELD] = value
        else:
            raise CorruptRecordError(
                f"record={self._name!r} is damaged: it has no head", record=self._name
            )
        return stored

    def _decode_fields(self, fields: Mapping[str, bytes], stored: StoredHash) -> None:
        value, states, bodies = JsonObject(), list[JsonObject](), JsonObject()
        for name, data in fields.items():
            kind, dot, _ = name.partition(".")
            with parsing(self._storage_key(name)):
                if kind == "turn":
                    stored.unread.update([_parse_turn_field(name)])
                    continue
                opened = open_object(data, self._storage_key(name), self._codec)
                if not dot:
                    stored.fields[name] = opened
                    value |= opened
                elif kind == "state":
                    states.append(opened)
                else:
                    bodies[name] = opened["body"]
        with parsing(self._name):
            states.sort(key=itemgetter("name"))
            value |= {"states": states, "bodies": bodies}
            record = record_from_json(value, stored.unread)
        turns: dict[TurnKey, Turn] = {}
        for key in sorted(stored.unread.keys() & (record.shown_keys | record.unlogged)):
            name = _turn_field(key, stored.unread[key])
            if (turn := self._read_turn(name, fields[name])) is not None:
                turns[key] = turn
                del stored.unread[key]
        stored.record = replace(record, turns=turns)
        known = self._content(stored.record, stored).fields
        stored.fields = {name: known.get(name) for name in fields} | stored.fields

    def _storage_key(self, name: str) -> str:
        return f"{self._name}#{name}"


def read_hot_head(store: HotStore, name: str) -> HotRecord | None:
    """Read version, counters and expiry of a conversation from the hot tier, without its turns.

    The result is None if the hot tier has no content of the conversation.
    """
    found = store.load(name, [_HEAD_FIELD], touch=False)
    if found is None or found.state == DELETED or _HEAD_FIELD not in found.fields:
        return None
    return found


def _turn_field(key: TurnKey, length: int) -> str:
    return f"turn.{key.time}.{key.tag}.{length}"


def _parse_turn_field(name: str) -> tuple[TurnKey, int]:
    key, _, length = name.removeprefix("turn.").rpartition(".")
    return TurnKey.parse(key), int(length)
