"""HotTier: one conversation in a HotStore."""

from __future__ import annotations

from collections.abc import Iterable

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.checking import checked_message, checked_number, checked_text, checked_time
from strands_manga_memory.session.hot_states import HotStates
from strands_manga_memory.session.records import (
    Draft,
    Head,
    Place,
    Stored,
    digest,
    parse_writers,
    tagged,
    untagged,
    writers_text,
)
from strands_manga_memory.session.window import Body, Logged, Slot, fingerprint, parse_runs, window_text
from strands_manga_memory.stores.codec import Codec, dump, load_stored, trusted
from strands_manga_memory.stores.hot import (
    DELETED,
    WINDOW_FIELD,
    HotRecord,
    HotStore,
    HotWrite,
    WriteResult,
    WriteStatus,
    body_field,
    message_field,
)

_FIELDS = ("base", "head", WINDOW_FIELD, *HotStates.FIELDS)


class HotTier:
    """One conversation in a HotStore, and what this process knows to be there.

    Args:
        store: The store.
        place: Where the conversation is kept.
        codec: Seals and unseals values.
        keeps_log: Whether messages outside the window stay, because no durable tier has them.
    """

    def __init__(self, store: HotStore, place: Place, codec: Codec, *, keeps_log: bool) -> None:
        self._store = store
        self._name = place.conversation
        self._codec = codec
        self._keeps_log = keeps_log
        self.expect: tuple[int, int] | None = None
        self._states = HotStates(self._name)
        self._base: int | None = None
        self._messages: dict[int, int] = {}
        self._bodies: dict[int, int] = {}

    @property
    def _head_name(self) -> str:
        return f"{self._name}#head"

    def forget(self) -> None:
        """Take nothing for granted: the next write brings everything."""
        self.expect = None
        self._states.forget()
        self._base, self._messages, self._bodies = None, {}, {}

    def load(self, *, touch: bool) -> Stored | None:
        """Return the conversation, or None; remember what is there."""
        with trusted(self._name):
            record = self._store.load(self._name, _FIELDS, touch=touch)
        self.forget()
        if record is None:
            return None
        if record.state == DELETED:
            return Stored(epoch=record.epoch, version=untagged(record.version), state=DELETED, head=Head(created=0, active=0))
        self.expect = (record.epoch, record.version)
        with trusted(self._name):
            return self._opened(record)

    def _opened(self, record: HotRecord) -> Stored:
        name = self._head_name
        if "head" not in record.fields or "base" not in record.fields:
            raise _missing(name)
        opened = {
            field: self._codec.unseal(data, f"{self._name}#{field}")
            for field, data in record.fields.items()
            if field != WINDOW_FIELD
        }
        for number in (record.epoch, untagged(record.version)):
            checked_number(number, name, "epoch or version")
        head_data = load_stored(opened["head"], name)
        window = record.fields.get(WINDOW_FIELD, b"").decode("ascii", "replace")
        head = Head.from_dict(head_data, record=name)
        if head_data.get("digest") != digest(record.epoch, record.version, record.writers, window):
            raise CorruptRecordError(f"record={name!r} is damaged: its digest does not match", record=name)
        slots: list[Slot] = []
        for reference in parse_runs(window, record=f"{self._name}#{WINDOW_FIELD}"):
            field = message_field(reference) if reference > 0 else body_field(-reference)
            if field not in opened:
                raise _missing(f"{self._name}#{field}")
            place, data = f"{self._name}#{field}", opened[field]
            slots.append(logged_of(data, reference, place) if reference > 0 else body_of_record(data, -reference, place))
        for slot in slots:
            if isinstance(slot, Logged):
                self._messages[slot.seq] = hash(slot.record)
            else:
                self._bodies[slot.number] = hash(slot.record)
        for seq in parse_runs(head.pending, record=name):
            self._messages.setdefault(seq, 0)
        states = self._states.read(opened)
        self._base = hash(opened["base"])
        return Stored(
            epoch=record.epoch,
            version=untagged(record.version),
            writers=parse_writers(record.writers, record=name),
            base=dict(load_stored(opened["base"], self._name)),
            head=head,
            slots=slots,
            fields=states,
            state=record.state,
            expired=record.expires_in <= 0,
        )

    def read_log(self, seqs: Iterable[int], *, since: int) -> list[Logged]:
        """Return those messages of the log that the hot tier has, or holds for the durable one.

        Those it holds for its window alone may be others: where copies were joined, somebody else's got these numbers.

        Args:
            seqs: Their numbers.
            since: The epoch in which their incarnation began: a replica may have others by these numbers, of one that ended.

        Raises:
            CorruptRecordError: There are messages and no head that says of which incarnation they are.
        """
        fields = {message_field(seq): seq for seq in seqs}
        if not fields:
            return []
        found = self._store.read(self._name, ["head", *fields])
        if not found:
            return []
        if "head" not in found:
            raise _missing(self._head_name)
        head = Head.from_dict(
            load_stored(self._codec.unseal(found["head"], self._head_name), self._head_name), record=self._head_name
        )
        if head.since != since:
            return []
        held = set(fields.values() if self._keeps_log else parse_runs(head.pending, record=self._head_name))
        places = {field: f"{self._name}#{field}" for field, seq in fields.items() if field in found and seq in held}
        return [logged_of(self._codec.unseal(found[field], place), fields[field], place) for field, place in places.items()]

    def write(self, draft: Draft) -> WriteResult:
        """Compare and write what changed since the last write, in one round trip; nothing of an earlier incarnation stays."""
        expect = self.expect
        replaces = expect is not None and expect[0] < draft.head.since
        if replaces:
            self.forget()
        writers, window = writers_text(draft.writers), window_text(draft.slots)
        version = tagged(draft.version, writers)
        head = draft.head.to_dict() | {"digest": digest(draft.epoch, version, writers, window)}
        base, states = dump(dict(draft.base)), self._states.changed(draft.fields)
        logged = {slot.seq: slot for slot in draft.slots if isinstance(slot, Logged)} | {
            slot.seq: slot for slot in draft.pending
        }
        bodies = {slot.number: slot for slot in draft.slots if isinstance(slot, Body)}

        changed = {**states.fields, "head": dump(head)}
        if self._base != hash(base):
            changed["base"] = base
        for seq, slot in logged.items():
            if self._messages.get(seq) != hash(slot.record):
                changed[message_field(seq)] = slot.record
        for number, body in bodies.items():
            if self._bodies.get(number) != hash(body.record):
                changed[body_field(number)] = body.record
        removed = [*states.removed, *(body_field(number) for number in self._bodies if number not in bodies)]
        pending = set(parse_runs(draft.head.pending, record=self._name))
        gone = [] if self._keeps_log else [seq for seq in self._messages if seq not in logged and seq not in pending]
        removed += map(message_field, gone)

        result = self._store.write(
            self._name,
            HotWrite(
                expect=expect,
                epoch=draft.epoch,
                version=version,
                writers=writers,
                writer=draft.writer,
                number=draft.number,
                fields={
                    WINDOW_FIELD: window.encode("ascii"),
                    **{name: self._codec.seal(data, f"{self._name}#{name}") for name, data in changed.items()},
                },
                removed=removed,
                ttl=draft.ttl,
                replace=replaces,
            ),
        )
        if result.status in (WriteStatus.OK, WriteStatus.APPLIED):
            self.expect = (draft.epoch, version)
            self._states.written(states)
            self._base = hash(base)
            self._messages |= {seq: hash(slot.record) for seq, slot in logged.items()}
            for seq in gone:
                del self._messages[seq]
            self._bodies = {number: hash(body.record) for number, body in bodies.items()}
        return result

    def bury(self, *, epoch: int, ttl: float) -> int:
        """Replace the conversation by a tombstone; return its epoch."""
        self.forget()
        return self._store.bury(self._name, epoch=epoch, ttl=ttl)


def _missing(name: str) -> CorruptRecordError:
    return CorruptRecordError(f"record={name!r} is damaged: it is missing", record=name)


def logged_of(record: bytes, seq: int, name: str) -> Logged:
    """Return the message of a record; raise ``CorruptRecordError`` naming ``name`` if it holds none."""
    data, message = checked_message(record, name)
    return Logged(
        message.get("tracking_id") or "",
        fingerprint(message),
        record,
        checked_number(data.get("turn"), name, "turn"),
        checked_time(data.get("at"), name, "at"),
        seq=checked_number(seq, name, "seq"),
        revision=checked_number(data.get("revision", 0), name, "revision"),
        turn_id=checked_text(data.get("turn_id", ""), name, "turn_id"),
        ordinal=checked_number(data.get("ordinal", 0), name, "ordinal"),
    )


def body_of_record(record: bytes, number: int, name: str) -> Body:
    """Return the body of a record; raise ``CorruptRecordError`` naming ``name`` if it holds none."""
    data, message = checked_message(record, name)
    return Body(
        message.get("tracking_id") or "",
        fingerprint(message),
        record,
        number=number,
        turn_id=checked_text(data.get("turn_id", ""), name, "turn_id"),
        ordinal=checked_number(data.get("ordinal", 0), name, "ordinal"),
    )
