"""Storage of one conversation in the hot tier.

The conversation is one hash. Each write of the hash is one compare-and-set. The values of these fields are JSON:

- ``head``: version and counters.
- ``view``: the agent's history, as references to messages.
- ``seen``: turns that the writer has seen, with their numbers of messages, if the turns' fields do not show this.
- ``notes``: state of the conversation manager.
- ``m1``, ``m2`` and so on: one turn each.
- ``x1``, ``x2`` and so on: one named state value, or one message that the conversation manager edited or wrote.
- ``archive``: turns that have left the history. Without a durable tier, the hash keeps these turns as the log.

The field ``window`` lists the fields that are read when an agent is restored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, StoreUnavailableError
from strands_manga_memory.session.protocol.record import Entry, Record, Turn, TurnKey
from strands_manga_memory.session.protocol.record_format import (
    dumped_part,
    entry_object,
    entry_of,
    head_object,
    is_text,
    json_of,
    json_part,
    lengths_of,
    lengths_text,
    open_object,
    record_of_head,
    seal_object,
    turn_object,
    turn_of,
    window_list,
    window_of,
)
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.hot import (
    CLOSING,
    DELETED,
    WINDOW_FIELD,
    HotRecord,
    HotStore,
    HotWrite,
    WriteStatus,
    new_version,
)

logger = logging.getLogger(__name__)

ENDED_FIELD = "ended"
"""Field that replaces ``head`` in an empty record. It is never encrypted, so that a deletion can be read without the keys."""

_HEAD_FIELD = "head"
_SEALED_FRONT = re.compile(rb"(\d{12,20}\.[0-9a-z]{1,40})/(\d{1,6}) ")
_TEXT_FRONT = re.compile(rb'\{"v\d{1,9}":"[^"]{8}","turn":"(\d{12,20}\.[0-9a-z]{1,40})","length":(\d{1,6}),')
_SMALL_FIELDS = (_HEAD_FIELD, ENDED_FIELD, "view", "seen", "notes", "archive")


@dataclass
class _Stored:
    """Content of the conversation's hash after the last read or write, and the epoch of the next write.

    Args:
        expect: Epoch and version that the next compare-and-set expects; None if the hash is missing.
        epoch: Epoch of the next write. The epoch grows by 1 at each end or deletion of the conversation.
        record: The record; None if there is none.
        turns: Field number and content of each stored turn, keyed by turn key. Number 12 means the field ``m12``.
        entries: Field number and content of each state entry, keyed by name. Number 3 means the field ``x3``.
        bodies: Field number of each message that the conversation manager edited or wrote, keyed by the serialized message.
        archive: Field number and message count of each turn that a restore does not read, keyed by turn key.
        small: Python ``hash()`` of the content of each unnumbered field, such as ``view``, keyed by field name.
        unreadable: Turn key and message count of each turn that cannot be read, keyed by field number.
        expires_in: Seconds until the conversation counts as expired (the store keeps it longer); None if the hash is missing.
    """

    expect: tuple[int, int] | None = None
    epoch: int = 1
    record: Record | None = None
    turns: dict[TurnKey, tuple[int, Turn]] = field(default_factory=dict)
    entries: dict[str, tuple[int, Entry]] = field(default_factory=dict)
    bodies: dict[bytes, int] = field(default_factory=dict)
    archive: dict[TurnKey, tuple[int, int]] = field(default_factory=dict)
    small: dict[str, int] = field(default_factory=dict)
    unreadable: Mapping[int, tuple[TurnKey, int]] = field(default_factory=dict)
    expires_in: float | None = None


class HotTier:
    """One conversation in a ``HotStore``, as a hash with a field for each turn.

    Args:
        store: The store.
        name: Name of the conversation in the store.
        codec: Encrypts the fields, and compresses large fields.
        keeps_log: Whether there is no durable tier, so that the hot tier has to keep every turn.
        refreshed_by_reads: Whether an agent's reads restart the time to live.
    """

    def __init__(
        self, store: HotStore, name: str, *, codec: Codec, keeps_log: bool = False, refreshed_by_reads: bool = True
    ) -> None:
        self._store, self._name, self._codec = store, name, codec
        self._keeps_log, self._refreshed_by_reads = keeps_log, refreshed_by_reads
        self._stored: _Stored | None = None

    @property
    def is_known(self) -> bool:
        """Whether the conversation's content in the store is known. False before the first read and after a failed request."""
        return self._stored is not None

    @property
    def record(self) -> Record | None:
        """Last known record in the store; None if there is no record, or the content is not known."""
        return None if self._stored is None else self._stored.record

    @property
    def is_untouched(self) -> bool:
        """Whether the store is known to have nothing of the conversation, not even a tombstone."""
        return self._stored is not None and self._stored.expect is None and self._stored.epoch == 1

    @property
    def stored_as(self) -> tuple[int, int] | None:
        """Epoch (raised by each deletion) and version of the last known content; None if there is none or it is not known."""
        return None if self._stored is None else self._stored.expect

    @property
    def expires_in(self) -> float | None:
        """Seconds from the last read until the conversation counts as expired; negative if it has expired, None if missing."""
        return None if self._stored is None else self._stored.expires_in

    def forget(self) -> None:
        """Discard the known content, so that the next operation reads the store again."""
        self._stored = None

    def read(self, *, touch: bool = True) -> Record | None:
        """Read the record from the store in one round trip.

        Args:
            touch: Whether the read may restart the time to live. An inspection passes False.

        Returns:
            The record; None if there is none.

        Raises:
            StoreUnavailableError: The store does not answer.
            CorruptRecordError: The field ``head`` cannot be read.
        """
        self._stored = None
        found = self._store.load(self._name, _SMALL_FIELDS, touch=touch and self._refreshed_by_reads)
        if found is None or found.state == DELETED:
            self._stored = _Stored(epoch=1 if found is None else found.epoch + 1)
        else:
            self._stored = self._decode(found)
        return self._stored.record

    def read_to_delete(self, *, ttl: float) -> Record | None:
        """Read the record before the conversation is deleted. Replace a damaged record by a tombstone.

        Args:
            ttl: Seconds for which the tombstone stays.

        Returns:
            The record; None if it is missing or damaged.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        try:
            return self.read(touch=False)
        except CorruptRecordError:
            epoch = self._store.put_tombstone(self._name, epoch=1, ttl=ttl)
            self._stored = _Stored(epoch=epoch + 1)
            return None

    def write(self, record: Record, *, ttl: float) -> bool:
        """Replace the last known record with one compare-and-set.

        Args:
            record: The new record. It must include the content of the property ``record`` (see ``join``).
            ttl: Seconds to live from now.

        Returns:
            False if another writer has changed the record. Read and join the record, then try again.

        Raises:
            StoreUnavailableError: The store does not answer. The record may have been stored.
        """
        before = self._stored
        if before is None:
            raise StoreUnavailableError("the content of the hot tier is not known")
        is_new = record.incarnation != (before.record.incarnation if before.record else 0)
        after, fields, removed = self._encode(record, _Stored() if is_new else before)
        version = new_version()
        self._stored = None
        status = self._store.write(
            self._name,
            HotWrite(
                expect=before.expect,
                epoch=before.epoch,
                version=version,
                fields=fields,
                removed=[] if is_new else removed,
                ttl=ttl,
                replace=is_new and before.expect is not None,
            ),
        )
        if status is not WriteStatus.OK:
            return False
        self._stored = replace(after, expect=(before.epoch, version), epoch=before.epoch, expires_in=ttl)
        return True

    def read_archive(self, keys: set[TurnKey] | None = None) -> dict[TurnKey, Turn]:
        """Read turns that the hot tier keeps as the log.

        Args:
            keys: Keys of the turns to read. None: all turns.

        Returns:
            The archived turns, and turns that the last ``read`` returned, keyed by turn key. ``keys`` restricts both.
        """
        stored = self._stored
        if stored is None:
            raise StoreUnavailableError("the content of the hot tier is not known")
        numbers = {f"m{number}": key for key, (number, _) in stored.archive.items() if keys is None or key in keys}
        found = self._store.read(self._name, list(numbers)) if numbers else {}
        # A turn that is not in the window any more keeps its field until the next write lists it in the archive.
        turns = {key: turn for key, (_, turn) in stored.turns.items() if keys is None or key in keys}
        for name, data in found.items():
            turn = self._opened_turn(name, data)
            if turn is not None:
                turns[numbers[name]] = turn[1]
        return turns

    def with_redacted_archive(self, draft: Record) -> Record:
        """Return the record ``draft`` with archived turns added, in redacted form, whose redactions are new in ``draft``."""
        before = self.record
        known = before.redactions if before is not None and before.incarnation == draft.incarnation else {}
        new = {key for key, found in draft.redactions.items() if known.get(key) != found} - draft.turns.keys()
        if not new:
            return draft
        turns = {key: turn.redact(draft.redactions[key]) for key, turn in self.read_archive(new).items()}
        return replace(draft, turns={**draft.turns, **turns})

    # Fields

    def _encode(self, record: Record, before: _Stored) -> tuple[_Stored, dict[str, bytes], list[str]]:
        """Encode a record as fields of the hash.

        Returns:
            The content of the hash after the write, the fields that change, and the names of the fields to remove.
        """
        if record.is_empty:
            after = _Stored(record=record, small={ENDED_FIELD: 0})
            head = {**head_object(record), **({"seen": lengths_text(record.seen)} if record.seen else {})}
            return after, {ENDED_FIELD: seal_object(head, self._place(ENDED_FIELD), Codec())}, []
        fields: dict[str, bytes] = {}
        turns = self._numbered_turns(record, before)
        archive = self._archived_turns(record, before, turns)
        entries, bodies = _numbered_entries(record, before)
        for name, (number, entry) in entries.items():
            if before.entries.get(name, (0, None))[1] != entry:
                fields[f"x{number}"] = self._seal(f"x{number}", entry_object(name, entry))
        for data, number in bodies.items():
            if data not in before.bodies:
                fields[f"x{number}"] = self._seal(f"x{number}", {"body": json_part(data)})
        for key, (number, turn) in turns.items():
            known_turn = before.turns.get(key)
            if known_turn is None or known_turn[0] != number or (known_turn[1] is not turn and known_turn[1] != turn):
                fields[f"m{number}"] = self._seal_turn(f"m{number}", key, turn)
        unreadable = self._still_unreadable(record, before)
        numbers = {key: number for key, (number, _) in turns.items()}
        numbers |= {key: number for number, (key, _) in unreadable.items()}
        small: dict[str, int] = {}
        for name, value in self._small_objects(record, numbers, bodies, archive).items():
            small[name] = hash(json_of(value))
            if small[name] != before.small.get(name):
                fields[name] = self._seal(name, value)
        listed = _listed(turns, entries, bodies, unreadable)
        if _HEAD_FIELD not in before.small or listed != _listed(before.turns, before.entries, before.bodies, before.unreadable):
            fields[WINDOW_FIELD] = listed
        kept = {*unreadable, *(number for number, _ in turns.values()), *(number for number, _ in archive.values())}
        was = {*before.unreadable, *(number for number, _ in before.turns.values())}
        gone = [f"m{number}" for number in sorted(was - kept)]
        gone += [f"x{number}" for name, (number, _) in before.entries.items() if name not in entries]
        gone += [f"x{number}" for data, number in before.bodies.items() if data not in bodies]
        gone += [name for name in before.small if name not in small]
        after = _Stored(
            record=record, turns=turns, entries=entries, bodies=bodies, archive=archive, small=small, unreadable=unreadable
        )
        return after, fields, gone

    def _still_unreadable(self, record: Record, before: _Stored) -> dict[int, tuple[TurnKey, int]]:
        # The history, or the log in this hash, still needs damaged turns of which no copy was read.
        needed = record.shown_keys - record.turns.keys()
        return {
            number: front
            for number, front in before.unreadable.items()
            if front[0] in needed or (self._keeps_log and front[0] not in record.turns)
        }

    @staticmethod
    def _numbered_turns(record: Record, before: _Stored) -> dict[TurnKey, tuple[int, Turn]]:
        """Return a record's turns with the numbers of their hash fields: as in ``before``, or free numbers for new turns."""
        used = [number for number, _ in (*before.turns.values(), *before.archive.values())]
        free = max([*used, *before.unreadable], default=0)
        damaged = {key: number for number, (key, _) in before.unreadable.items()}
        turns = {}
        for key, turn in sorted(record.turns.items()):
            known = before.turns.get(key) or before.archive.get(key)
            number = damaged.get(key) if known is None else known[0]
            if number is None:
                number = free = free + 1
            turns[key] = number, turn
        return turns

    def _archived_turns(self, record: Record, before: _Stored, turns: Mapping[TurnKey, Any]) -> dict[TurnKey, tuple[int, int]]:
        if not self._keeps_log:
            return {}
        archive = {key: found for key, found in before.archive.items() if key not in turns}
        evicted = {key: (number, len(turn.messages)) for key, (number, turn) in before.turns.items() if key not in turns}
        return archive | evicted

    def _small_objects(
        self,
        record: Record,
        numbers: Mapping[TurnKey, int],
        bodies: Mapping[bytes, int],
        archive: Mapping[TurnKey, tuple[int, int]],
    ) -> dict[str, dict[str, Any]]:
        # A window may refer to turns whose content this process has not read; they have no field, and a negative number.
        absent = sorted(record.shown_keys - numbers.keys())
        numbers = {**numbers, **{key: -at for at, key in enumerate(absent, 1)}}
        seen = {
            key: length
            for key, length in record.seen.items()
            if key not in record.turns or length != len(record.turns[key].messages)
        }
        objects: dict[str, dict[str, Any]] = {
            _HEAD_FIELD: head_object(record),
            "view": {
                "window": window_list(record.window, numbers, record.seen, bodies),
                **({"absent": list(map(str, absent))} if absent else {}),
            },
        }
        if seen:
            objects["seen"] = {"seen": lengths_text(seen)}
        if record.notes is not None:
            objects["notes"] = {"notes": record.notes}
        if archive:
            objects["archive"] = {"archive": {str(key): list(found) for key, found in sorted(archive.items())}}
        return objects

    def _decode(self, found: HotRecord) -> _Stored:
        expect = found.epoch, found.version
        # A sweeper's claim stops no writer: the next writer raises the epoch, which voids the claim.
        epoch = found.epoch + (found.state == CLOSING)
        fields = found.fields
        if ENDED_FIELD in fields and _HEAD_FIELD not in fields:
            head = open_object(fields[ENDED_FIELD], self._place(ENDED_FIELD), Codec())
            with trusted(self._name):
                seen = lengths_of(head.get("seen", ""))
                record = replace(record_of_head(head), seen=seen)
                return _Stored(expect, epoch, record, small={ENDED_FIELD: 0}, expires_in=found.expires_in)
        objects = {name: self._opened(name, fields[name]) for name in _SMALL_FIELDS if name in fields}
        if _HEAD_FIELD not in objects:
            raise CorruptRecordError(f"record={self._name!r} is damaged: it has no head", record=self._name)
        turns: dict[TurnKey, tuple[int, Turn]] = {}
        unreadable: dict[int, tuple[TurnKey, int]] = {}
        for name in sorted(name for name in fields if name[0] == "m" and name[1:].isdecimal()):
            read = self._opened_turn(name, fields[name])
            if read is None:
                unreadable[int(name[1:])] = self._front_of(name, fields[name])
            else:
                turns[read[0]] = int(name[1:]), read[1]
        with trusted(self._name):
            entries: dict[str, tuple[int, Entry]] = {}
            bodies: dict[bytes, int] = {}
            for name in sorted(name for name in fields if name[0] == "x" and name[1:].isdecimal()):
                value = self._opened(name, fields[name])
                if "body" in value:
                    bodies[dumped_part(value["body"])] = int(name[1:])
                else:
                    state, entry = entry_of(value)
                    entries[state] = int(name[1:]), entry
            archive = {
                TurnKey.parse(key): (int(number), int(length))
                for key, (number, length) in objects.get("archive", {}).get("archive", {}).items()
            }
            record = self._record_of(objects, turns, entries, bodies, unreadable)
        small = {name: hash(json_of(value)) for name, value in objects.items()}
        return _Stored(expect, epoch, record, turns, entries, bodies, archive, small, unreadable, found.expires_in)

    def _record_of(
        self,
        objects: Mapping[str, Mapping[str, Any]],
        turns: Mapping[TurnKey, tuple[int, Turn]],
        entries: Mapping[str, tuple[int, Entry]],
        bodies: Mapping[bytes, int],
        unreadable: Mapping[int, tuple[TurnKey, int]],
    ) -> Record:
        record = record_of_head(objects[_HEAD_FIELD])
        seen = {key: len(turn.messages) for key, (_, turn) in turns.items()}
        seen |= dict(unreadable.values())
        seen |= lengths_of(objects.get("seen", {}).get("seen", ""))
        view = objects.get("view", {})
        keys = {number: key for key, (number, _) in turns.items()} | {number: key for number, (key, _) in unreadable.items()}
        keys |= {-at: TurnKey.parse(key) for at, key in enumerate(view.get("absent", ()), 1)}
        window = window_of(view.get("window", ()), keys, seen, {number: data for data, number in bodies.items()})
        return replace(
            record,
            seen=seen,
            window=window,
            notes=objects.get("notes", {}).get("notes"),
            states={name: entry for name, (_, entry) in entries.items()},
            turns={key: turn for key, (_, turn) in turns.items()},
        )

    def _opened_turn(self, name: str, data: bytes) -> tuple[TurnKey, Turn] | None:
        try:
            front = _SEALED_FRONT.match(data)
            with trusted(self._place(name)):
                return turn_of(self._opened(name, data if front is None else data[front.end() :]))
        except KeyMissingError:
            raise
        except CorruptRecordError:
            logger.warning("tier=<hot>, fields=<%d> | a turn cannot be read and stays as it is", 1)
            logger.debug("record=<%s> | a turn cannot be read", self._place(name))
            return None

    def _front_of(self, name: str, data: bytes) -> tuple[TurnKey, int]:
        """Return the key and the message count of a damaged turn from the beginning of its field.

        Raises:
            CorruptRecordError: The beginning of the field is damaged, too.
        """
        front = _SEALED_FRONT.match(data) or _TEXT_FRONT.match(data)
        if front is None:
            raise CorruptRecordError(f"record={self._place(name)!r} is damaged: it has no turn key", record=self._place(name))
        return TurnKey.parse(front[1].decode()), int(front[2])

    def _seal_turn(self, name: str, key: TurnKey, turn: Turn) -> bytes:
        data = self._seal(name, {"turn": str(key), "length": len(turn.messages), **turn_object(key, turn)})
        return data if is_text(data) else f"{key}/{len(turn.messages)} ".encode() + data

    def _seal(self, name: str, value: Mapping[str, Any]) -> bytes:
        return seal_object(value, self._place(name), self._codec)

    def _opened(self, name: str, data: bytes) -> dict[str, Any]:
        return open_object(data, self._place(name), self._codec)

    def _place(self, name: str) -> str:
        return f"{self._name}#{name}"


def hot_copy_of(store: HotStore, name: str) -> HotRecord | None:
    """Return the status of a conversation in the hot tier, without its messages.

    Returns:
        The status; None if the hot tier has no copy, or only a tombstone.
    """
    found = store.load(name, [_HEAD_FIELD], touch=False)
    return None if found is None or found.state == DELETED or _HEAD_FIELD not in found.fields else found


def _numbered_entries(record: Record, before: _Stored) -> tuple[dict[str, tuple[int, Entry]], dict[bytes, int]]:
    """Number the fields of a record's state entries and edited messages. Fields that ``before`` has keep their numbers."""
    free = max([*(number for number, _ in before.entries.values()), *before.bodies.values()], default=0)
    entries: dict[str, tuple[int, Entry]] = {}
    for name, entry in record.states.items():
        number = before.entries[name][0] if name in before.entries else (free := free + 1)
        entries[name] = number, entry
    bodies: dict[bytes, int] = {}
    for slot in record.window:
        if slot.body is not None and slot.body not in bodies:
            bodies[slot.body] = before.bodies[slot.body] if slot.body in before.bodies else (free := free + 1)
    return entries, bodies


def _listed(
    turns: Mapping[TurnKey, tuple[int, Turn]],
    entries: Mapping[str, tuple[int, Entry]],
    bodies: Mapping[bytes, int],
    unreadable: Collection[int],
) -> bytes:
    """Return the list of the numbered fields that a restore reads: ``1-4,7,x2`` for ``m1`` to ``m4``, ``m7`` and ``x2``."""
    numbers = sorted({*(number for number, _ in turns.values()), *unreadable})
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{first}-{last}" if first < last else f"{first}" for first, last in runs]
    numbers = sorted([*(number for number, _ in entries.values()), *bodies.values()])
    return ",".join([*parts, *(f"x{number}" for number in numbers)]).encode()
