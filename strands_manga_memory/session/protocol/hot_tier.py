"""Storage of one conversation in the hot tier.

The conversation is one hash. Each write is one compare-and-set. These fields are JSON:

- ``head``: version and counters.
- ``run``: constant values of a run (incarnation) of the conversation, such as ids.
- ``view``: the agent's history, as references to messages.
- ``seen``: number of messages of each turn that the writer knew. Turns that are complete in the
  hash are left out.
- ``removed``: number of messages that a turn had when a rewind removed it, keyed by turn.
- ``notes``: state of the conversation manager.
- ``m1``, ``m2`` and so on: one turn each.
- ``x1``, ``x2`` and so on: one named state value, or one edited or written message.
- ``archive``: turns that have left the history, which a hash without a durable tier keeps.

The field ``window`` lists the fields that are read when an agent is restored. With a durable tier,
all fields are read.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import RLock

from strands_manga_memory.exceptions import (
    CorruptRecordError,
    KeyMissingError,
    StoreUnavailableError,
)
from strands_manga_memory.session.protocol.record import Entry, Record, Turn, TurnKey
from strands_manga_memory.session.protocol.record_format import (
    JsonObject,
    JsonPart,
    entry_object,
    entry_of,
    is_text,
    json_of,
    open_object,
    record_object,
    record_of,
    seal_object,
    turn_object,
    turn_of,
)
from strands_manga_memory.session.tiers import Place, Tiers
from strands_manga_memory.stores.codec import Codec, json_bytes, trusted
from strands_manga_memory.stores.hot import (
    ALL_FIELDS,
    CLOSING,
    DELETED,
    WINDOW_FIELD,
    HotRecord,
    HotStore,
    HotWrite,
    new_version,
)

logger = logging.getLogger(__name__)

ENDED_FIELD = "ended"
"""Field that replaces ``head`` in an empty record, and is never encrypted."""

_HEAD_FIELD = "head"
_SEALED_FRONT = re.compile(rb"(\d{12,20}\.[0-9a-z]{1,40})/(\d{1,6}) ")
_TEXT_FRONT = re.compile(
    rb'\{"v\d{1,9}":"[^"]{8}","turn":"(\d{12,20}\.[0-9a-z]{1,40})","length":(\d{1,6}),'
)
_SMALL_FIELDS = (_HEAD_FIELD, ENDED_FIELD, "run", "view", "seen", "removed", "notes", "archive")

_FIELD_OF = {
    "window": "view",
    "seen": "seen",
    "removed": "removed",
    "notes": "notes",
    **dict.fromkeys(("ids", "incarnation", "carries_from", "last_rewind", "created"), "run"),
}
"""Field of each part of a record's JSON object that is not in the field ``head``."""

_Part = TurnKey | str | bytes
"""Key of a turn, name of a state entry, or serialized message that was edited or written."""


@dataclass
class _Stored:
    """Content of the hash that stores a conversation, as last read or written.

    A turn is in a field ``m<number>``, a state value or an edited message in a field ``x<number>``.
    These fields are the parts.

    Args:
        expect: Stored epoch and version, which the next compare-and-set expects; None if the hash
            is missing.
        epoch: Epoch of the next write. It grows by 1 at each end of the conversation.
        record: The state of the conversation; None if there is none.
        numbers: Field number of each part, keyed by turn key, state name or edited message.
        unread: Message count of each stored turn that ``record`` lacks, because the turn has left
            the history or is damaged.
        small: Python ``hash()`` of each field that is not a part, to find changed fields.
        expires_in: Seconds until the conversation counts as expired; None if the hash is missing.
    """

    expect: tuple[int, int] | None = None
    epoch: int = 1
    record: Record | None = None
    numbers: dict[_Part, int] = field(default_factory=dict)
    unread: dict[TurnKey, int] = field(default_factory=dict)
    small: dict[str, int] = field(default_factory=dict)
    expires_in: float | None = None

    @property
    def archive(self) -> dict[TurnKey, list[int]]:
        """Stored turns that have left the history, each with its field number and message count."""
        shown = set() if self.record is None else self.record.shown_keys
        return {
            key: [self.numbers[key], length]
            for key, length in sorted(self.unread.items())
            if key not in shown
        }

    @property
    def names(self) -> set[str]:
        """Names of all fields of the hash, except ``window``."""
        return self.small.keys() - {WINDOW_FIELD} | {
            _field_name(part, number) for part, number in self.numbers.items()
        }


class HotTier:
    """One conversation in the hot tier, stored as a hash with a field for each turn.

    Args:
        place: Storage key of the conversation.
        tiers: The stores. Without a durable one, the hot one has to keep every turn.

    Attributes:
        name: Name of the tier.
        io: Lock that is held while the conversation is read or written.
    """

    name = "hot"

    def __init__(self, place: Place, tiers: Tiers) -> None:
        assert tiers.hot is not None  # noqa: S101 - for the type checker
        self._store, self._name = tiers.hot, place.conversation
        self._tiers, self._codec = tiers, tiers.codec
        self._keeps_log = tiers.durable is None
        self._stored: _Stored | None = None
        self.io = RLock()

    @property
    def is_known(self) -> bool:
        """Whether the content is known: after a read or write, until a request fails."""
        return self._stored is not None

    @property
    def record(self) -> Record | None:
        """The stored record, as last read or written; None if it is missing or not known."""
        return None if self._stored is None else self._stored.record

    @property
    def is_untouched(self) -> bool:
        """Whether the store is known to have nothing, not even a tombstone."""
        return self._stored is not None and self._stored.expect is None and self._stored.epoch == 1

    @property
    def stored_as(self) -> tuple[int, int] | None:
        """Epoch and version of the stored hash, as last read or written. None: missing or unknown.

        The epoch grows by 1 at each end of the conversation.
        """
        return None if self._stored is None else self._stored.expect

    @property
    def expires_in(self) -> float | None:
        """Seconds from the last read or write to the expiry; None if missing or not known."""
        return None if self._stored is None else self._stored.expires_in

    def forget(self) -> None:
        """Discard the known content, so that the next use must read the store again."""
        self._stored = None

    def read(self, *, touch: bool = True) -> Record | None:
        """Read the record in one round trip; None if there is none.

        Args:
            touch: Whether the read may restart the time to live. An inspection passes False.

        Raises:
            StoreUnavailableError: The store does not answer.
            CorruptRecordError: The record cannot be read.
        """
        self._stored = None
        found = self._store.load(
            self._name, _SMALL_FIELDS, touch=touch and self._tiers.ttl.refreshed_by_reads
        )
        if found is None or found.state == DELETED:
            self._stored = _Stored(epoch=1 if found is None else found.epoch + 1)
        else:
            self._stored = self._decode(found)
        return self._stored.record

    def read_to_delete(self) -> Record | None:
        """Read the record before a deletion; None if it is missing or damaged.

        A tombstone replaces a damaged record.
        """
        try:
            return self.read(touch=False)
        except CorruptRecordError:
            ttl = self._tiers.ttl.tombstone_seconds
            epoch = self._store.put_tombstone(self._name, ttl=ttl)
            self._stored = _Stored(epoch=epoch + 1)
            return None

    def write(self, record: Record, *, ttl: float | None = None) -> bool:
        """Replace the record with one compare-and-set.

        Args:
            record: The new record, joined with the one that was last read.
            ttl: Seconds to live from now. None: those of the session's ``TtlPolicy``.

        Returns:
            False if another writer has changed the record. Then read it, join it with ``record``,
            and try again.

        Raises:
            StoreUnavailableError: The store does not answer. The record may have been stored.
        """
        before = self._stored
        if before is None:
            raise StoreUnavailableError("the content of the hot tier is not known")
        if self._keeps_log:
            record = self._with_redacted_archive(record)
        ttl = self._ttl_of(record) if ttl is None else ttl
        is_new = record.incarnation != (before.record.incarnation if before.record else 0)
        after, fields, removed = self._encode(record, _Stored() if is_new else before)
        version = new_version()
        self._stored = None
        is_stored = self._store.write(
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
        if not is_stored:
            return False
        self._stored = replace(
            after, expect=(before.epoch, version), epoch=before.epoch, expires_in=ttl
        )
        return True

    def _ttl_of(self, record: Record) -> float:
        policy = self._tiers.ttl
        if record.is_empty:
            return policy.tombstone_seconds
        seconds = policy.ttl(record.turn_count)
        if policy.mode == "fixed":
            return max(1.0, record.created + seconds - self._tiers.clock())
        return seconds

    def get_turns(
        self, incarnation: int, keys: Iterable[TurnKey] | None = None
    ) -> dict[TurnKey, Turn]:
        """Read turns of an incarnation. Missing and unreadable turns are left out.

        Args:
            incarnation: Number of the conversation's run.
            keys: Keys of the turns to read. None: all turns.
        """
        with self.io:
            if self._stored is None:
                self.read(touch=False)
            stored = self._stored
            if stored is None or stored.record is None or stored.record.incarnation != incarnation:
                return {}
            # A turn that is not in the window any more keeps its field until the next write lists
            # it in the archive.
            archive, held = stored.archive, stored.record.turns
            wanted = {*archive, *held} if keys is None else set(keys)
            names = {f"m{archive[key][0]}": key for key in archive.keys() & wanted}
            turns = {key: turn for key, turn in held.items() if key in wanted}
            for name, data in (self._store.read(self._name, list(names)) if names else {}).items():
                if (read := self._opened_turn(name, data)) is not None:
                    turns[names[name]] = read[1]
            return turns

    def _with_redacted_archive(self, record: Record) -> Record:
        """Add turns that have left the history to a record, if they have new redactions.

        The write of the record then replaces the original turns in the store.
        """
        before = self.record or Record()
        known = before.redactions if before.incarnation == record.incarnation else {}
        changed = {key for key, found in record.redactions.items() if known.get(key) != found}
        new = changed - record.turns.keys()
        turns = self.get_turns(record.incarnation, new) if new else {}
        redacted = {key: record.redacted(key, turn) for key, turn in turns.items()}
        return replace(record, turns={**record.turns, **redacted}) if redacted else record

    # Fields

    def _encode(
        self, record: Record, before: _Stored
    ) -> tuple[_Stored, dict[str, bytes], list[str]]:
        """Return the new content of the hash, the changed fields, and the names of removed ones."""
        if record.is_empty:
            ended = seal_object(record_object(record), self._place(ENDED_FIELD), Codec())
            return _Stored(record=record, small={ENDED_FIELD: 0}), {ENDED_FIELD: ended}, []
        old, shown = before.record or Record(), record.shown_keys
        lengths = {key: len(turn.messages) for key, turn in old.turns.items()} | before.unread
        # The history, or the log in this hash, still needs turns that have left the record, or
        # cannot be read.
        unread = {
            key: length
            for key, length in lengths.items()
            if key not in record.turns and (self._keeps_log or key in shown)
        }
        bodies = [slot.body for slot in record.window if slot.body is not None]
        numbers = _numbered(
            [*sorted(record.turns), *record.states, *bodies, *unread], before.numbers
        )
        after = _Stored(record=record, numbers=numbers, unread=unread)
        archive = after.archive
        values: dict[str, JsonObject] = {}
        for key, turn in record.turns.items():
            if old.turns.get(key) != turn:
                values[f"m{numbers[key]}"] = {
                    "turn": str(key),
                    "length": len(turn.messages),
                    **turn_object(key, turn),
                }
        for name, entry in record.states.items():
            if old.states.get(name) != entry:
                values[f"x{numbers[name]}"] = entry_object(name, entry)
        values |= {
            f"x{numbers[body]}": {"body": JsonPart(body)}
            for body in bodies
            if body not in before.numbers
        }
        head = record_object(
            record, numbers, {key: length for key, length in unread.items() if key not in archive}
        )
        small: dict[str, JsonObject] = {_HEAD_FIELD: head}
        for part, name in _FIELD_OF.items():
            if part in head:
                small.setdefault(name, {})[part] = head.pop(part)
        if archive:
            small["archive"] = {"archive": {str(key): found for key, found in archive.items()}}
        after.small = {name: hash(json_of(value)) for name, value in small.items()}
        values |= {
            name: value
            for name, value in small.items()
            if after.small[name] != before.small.get(name)
        }
        fields = {name: self._seal(name, value) for name, value in values.items()}
        listed = self._listed(
            {part: number for part, number in numbers.items() if part not in archive}
        )
        after.small[WINDOW_FIELD] = hash(listed)
        if after.small[WINDOW_FIELD] != before.small.get(WINDOW_FIELD):
            fields[WINDOW_FIELD] = listed
        return after, fields, sorted(before.names - after.names)

    def _decode(self, found: HotRecord) -> _Stored:
        # A sweeper's claim stops no writer: the next writer raises the epoch, which voids the
        # claim.
        epoch = found.epoch + (found.state == CLOSING)
        stored, fields = (
            _Stored((found.epoch, found.version), epoch, expires_in=found.expires_in),
            found.fields,
        )
        if ENDED_FIELD in fields and _HEAD_FIELD not in fields:
            value = open_object(fields[ENDED_FIELD], self._place(ENDED_FIELD), Codec())
            with trusted(self._name):
                return replace(stored, record=record_of(value), small={ENDED_FIELD: 0})
        if _HEAD_FIELD not in fields:
            raise CorruptRecordError(
                f"record={self._name!r} is damaged: it has no head", record=self._name
            )
        small = {name: self._opened(name, fields[name]) for name in _SMALL_FIELDS if name in fields}
        turns: dict[TurnKey, Turn] = {}
        states: dict[str, Entry] = {}
        bodies: dict[int, bytes] = {}
        for name in sorted(
            fields, key=lambda field: (len(field), field)
        ):  # states keep their order; Redis returns any
            if name in small or not name[1:].isdecimal():
                continue
            data = fields[name]
            part: _Part
            number = int(name[1:])
            if name[0] == "m":
                part = self._decode_turn(name, data, turns, stored.unread)
            else:
                value = self._opened(name, data)
                with trusted(self._name):
                    if "body" in value:
                        part = bodies[number] = json_bytes(value["body"])
                    else:
                        name, entry = entry_of(value)
                        states[name], part = entry, name
            stored.numbers[part] = number
        stored.small = {name: hash(json_of(value)) for name, value in small.items()}
        stored.small[WINDOW_FIELD] = hash(self._listed(stored.numbers))
        value = {name: part for one in small.values() for name, part in one.items()}
        with trusted(self._name):
            turns, unreadable = dict(sorted(turns.items())), dict(stored.unread)
            stored.record = record_of(
                value, turns=turns, states=states, bodies=bodies, unreadable=unreadable
            )
            for text, (at, length) in value.get("archive", {}).items():
                key = TurnKey.parse(text)
                stored.numbers[key], stored.unread[key] = int(at), int(length)
        return stored

    def _decode_turn(
        self, name: str, data: bytes, turns: dict[TurnKey, Turn], unread: dict[TurnKey, int]
    ) -> TurnKey:
        """Decode a turn, add it to ``turns``, and return its key.

        If the turn cannot be read, its number of messages is added to ``unread``.
        """
        read = self._opened_turn(name, data)
        if read is None:
            key, unread[key] = self._front_of(name, data)
            return key
        turns[read[0]] = read[1]
        return read[0]

    def _opened_turn(self, name: str, data: bytes) -> tuple[TurnKey, Turn] | None:
        try:
            front = _SEALED_FRONT.match(data)
            with trusted(self._place(name)):
                return turn_of(self._opened(name, data if front is None else data[front.end() :]))
        except KeyMissingError:
            raise
        except CorruptRecordError:
            logger.warning("tier=<hot> | a turn cannot be read and stays as it is")
            logger.debug("record=<%s> | a turn cannot be read", self._place(name))
            return None

    def _front_of(self, name: str, data: bytes) -> tuple[TurnKey, int]:
        """Return the key and the message count of a damaged turn, from the beginning of its field.

        A damaged beginning raises ``CorruptRecordError``.
        """
        front = _SEALED_FRONT.match(data) or _TEXT_FRONT.match(data)
        if front is None:
            raise CorruptRecordError(
                f"record={self._place(name)!r} is damaged: it has no turn key",
                record=self._place(name),
            )
        return TurnKey.parse(front[1].decode()), int(front[2])

    def _listed(self, numbers: Mapping[_Part, int]) -> bytes:
        """Encode the field ``window``: the fields to read at a restore; all with a durable tier."""
        return _listed(numbers) if self._keeps_log else ALL_FIELDS

    def _seal(self, name: str, value: JsonObject) -> bytes:
        data = seal_object(value, self._place(name), self._codec)
        if "length" not in value or is_text(data):
            return data
        return f"{value['turn']}/{value['length']} ".encode() + data

    def _opened(self, name: str, data: bytes) -> JsonObject:
        return open_object(data, self._place(name), self._codec)

    def _place(self, name: str) -> str:
        return f"{self._name}#{name}"


def hot_copy_of(store: HotStore, name: str) -> HotRecord | None:
    """Read a hot tier's copy of a conversation without its messages; None if there is none."""
    found = store.load(name, [_HEAD_FIELD], touch=False)
    if found is None or found.state == DELETED or _HEAD_FIELD not in found.fields:
        return None
    return found


def _kind_of(part: _Part) -> str:
    return "m" if isinstance(part, TurnKey) else "x"


def _field_name(part: _Part, number: int) -> str:
    return f"{_kind_of(part)}{number}"


def _numbered(parts: Iterable[_Part], known: Mapping[_Part, int]) -> dict[_Part, int]:
    """Return a field number for each part: the one in ``known`` or, for a new part, a free one."""
    used = {
        kind: [number for part, number in known.items() if _kind_of(part) == kind] for kind in "mx"
    }
    free = {kind: itertools.count(max(numbers, default=0) + 1) for kind, numbers in used.items()}
    numbers: dict[_Part, int] = {}
    for part in parts:
        if part not in numbers:
            numbers[part] = known[part] if part in known else next(free[_kind_of(part)])
    return numbers


def _listed(numbers: Mapping[_Part, int]) -> bytes:
    """Return the field numbers of parts as text.

    For example, ``1-4,7,x2`` lists the fields ``m1`` to ``m4``, ``m7`` and ``x2``.
    """
    runs: list[list[int]] = []
    for number in sorted(number for part, number in numbers.items() if _kind_of(part) == "m"):
        if runs and runs[-1][-1] + 1 == number:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    listed = ["-".join(map(str, run)) for run in runs]
    others = sorted(number for part, number in numbers.items() if _kind_of(part) == "x")
    return ",".join([*listed, *(f"x{number}" for number in others)]).encode()
