"""HotReplica: the copy of a conversation in a ``HotStore``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from strands_manga_memory.session.core.cells import Cell, Head, Key, Version, cells_of, head_of, packed, read_cells, versions_of
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.merge import EMPTY, Copy, is_logged, with_messages
from strands_manga_memory.session.core.records import Message
from strands_manga_memory.session.replicas import hot_fields
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import (
    CLOSING,
    DELETED,
    WINDOW_FIELD,
    HotRecord,
    HotStore,
    HotWrite,
    WriteStatus,
    message_field,
    new_version,
)

logger = logging.getLogger(__name__)

_HEAD, _LOG = "head", "log"

GRAVES = "graves"
"""The head of a conversation that is over. It has no content, and is written and read though the keys are destroyed."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the store had when it last answered.

    Args:
        expect: Its epoch and version; None if there was nothing.
        fence: The epoch of the next write.
        copy: Its copy.
        fields: The number of each cell's field. Messages that are not needed any more stay as long as one beside them is.
        versions: The version of each cell; none of a message that was never redacted, as most are.
        archived: Cells of messages that no view shows and that a restore does not read.
        unreadable: Numbers of fields that cannot be read. They stay.
        head: Its head, as packed; empty if it is to be written.
        listed: The fields that a restore reads, as they are listed.
    """

    expect: tuple[int, int] | None = None
    fence: int = 1
    copy: Copy = EMPTY
    fields: Mapping[Key, int] = field(default_factory=dict)
    versions: Mapping[Key, Version] = field(default_factory=dict)
    archived: frozenset[Key] = frozenset()
    unreadable: frozenset[int] = frozenset()
    head: bytes = b""
    listed: bytes = b""


_UNKNOWN = _Stored()


class HotReplica:
    """One conversation in a hot store.

    Args:
        store: The store.
        conversation: The conversation's name there.
        codec: Seals what is stored.
        durable: The other replica; None: this one keeps the log, too, that is, messages that no view shows.
        ttl: Returns the seconds that a copy is to live that is written now.
        refreshed_by_reads: Whether the agent's reads start the time to live anew.

    Attributes:
        expires_in: Seconds that it had to live when it was read; negative if its time was over, None if it was not there.
    """

    tier = "hot"

    def __init__(
        self,
        store: HotStore,
        conversation: str,
        *,
        codec: Codec,
        durable: DurableReplica | None = None,
        ttl: Callable[[Copy], float] = lambda copy: 0.0,
        refreshed_by_reads: bool = True,
    ) -> None:
        self._store, self._name, self._codec, self._durable = store, conversation, codec, durable
        self._ttl, self._refreshed_by_reads = ttl, refreshed_by_reads
        self._stored = _UNKNOWN
        self.expires_in: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known what the store has."""
        return self._stored is not _UNKNOWN

    @property
    def copy(self) -> Copy:
        """What it is known to have; nothing if that is not known."""
        return self._stored.copy

    def load(self, *, touch: bool = True) -> Copy:
        """Read the copy; ``EMPTY`` if there is none. One round trip.

        Raises ``StoreUnavailableError``, and ``CorruptRecordError`` if the head cannot be read.

        Args:
            touch: The agent uses it; what only looks at it does not start its time to live anew.
        """
        self.forget()
        record = self._store.load(self._name, [_HEAD, GRAVES, _LOG, WINDOW_FIELD], touch=touch and self._refreshed_by_reads)
        self.expires_in = None if record is None else record.expires_in
        if record is None or record.state == DELETED:
            self._stored = _Stored(fence=1 if record is None else record.epoch + 1)
            return EMPTY
        self._stored = self._read(record)
        return self._stored.copy

    def _read(self, record: HotRecord) -> _Stored:
        if GRAVES in record.fields:
            copy = head_of(Codec().unseal(record.fields[GRAVES], self._place(GRAVES)), self._name).copy
            return _Stored((record.epoch, record.version), record.epoch + (record.state == CLOSING), copy)
        packed_head = self._unsealed(_HEAD, record.fields.get(_HEAD))
        head = head_of(packed_head, self._place(_HEAD))
        numbers = {name: int(name[1:]) for name in record.fields if name[0] == "m" and name[1:].isdecimal()}
        cells, unreadable = [], []
        payloads = self._codec.unseal_each((record.fields[name], self._place(name)) for name in numbers)
        for (name, number), payload in zip(numbers.items(), payloads, strict=True):
            if isinstance(payload, bytes):
                cells.append((name, payload))
            else:
                unreadable.append(number)
        read = read_cells(head, cells, self._name)
        if self._durable is None:
            read = read._replace(copy=_as_log(read.copy))
        unreadable += [numbers[name] for name in read.damaged]
        if unreadable:
            logger.warning("tier=<hot>, cells=<%d> | cells cannot be read and stay as they are", len(unreadable))
            logger.debug("conversation=<%s> | cells cannot be read", self._name)
        archive = self._archive(record.fields.get(_LOG))
        archived = {key: (number, version) for key, (number, version) in archive.items() if key not in read.records}
        return _Stored(
            (record.epoch, record.version),
            # A claim binds nobody: who writes takes the replica from whoever claimed it.
            record.epoch + (record.state == CLOSING),
            read.copy,
            {key: number for key, (number, _) in archived.items()} | {key: numbers[name] for key, name in read.records.items()},
            _noted({key: version for key, (_, version) in archived.items()} | read.versions),
            frozenset(archived),
            frozenset(unreadable),
            packed_head,
            record.fields.get(WINDOW_FIELD, b""),
        )

    def write(self, copy: Copy) -> bool:
        """Write what the replica lacks of a copy that includes it, as ``DurableReplica.write`` does. One round trip, or none.

        What no view shows leaves, where the durable replica is known to have it.
        """
        before = self._stored
        copy = copy if self._durable is not None else _as_log(copy)
        is_new_life = copy.graves != before.copy.graves
        base = _Stored(before.expect, before.fence) if is_new_life else before
        after, changed, removed = self._difference(copy, base)
        if not changed and not removed and copy.head == before.copy.head:
            return True
        self.forget()
        version = new_version()
        status = self._store.write(
            self._name,
            HotWrite(
                expect=before.expect,
                epoch=before.fence,
                version=version,
                fields={**self._sealed(after, changed), **self._index(after, base), **self._head(copy, after.head, base.head)},
                removed=[] if is_new_life else [*removed, *([GRAVES] if copy.has_begun > before.copy.has_begun else [])],
                ttl=self._ttl(copy),
                replace=is_new_life and before.expect is not None,
            ),
        )
        if status is not WriteStatus.OK:
            return False
        self._stored = replace(after, expect=(before.fence, version), fence=before.fence, copy=copy)
        return True

    def _head(self, copy: Copy, head: bytes, before: bytes) -> dict[str, bytes]:
        name, codec = (_HEAD, self._codec) if copy.has_begun else (GRAVES, Codec())
        return {} if head == before else {name: codec.seal(head, self._place(name))}

    def _sealed(self, after: _Stored, cells: Mapping[Key, Cell]) -> dict[str, bytes]:
        together: dict[str, dict[Key, Cell]] = {}
        for key, cell in cells.items():
            together.setdefault(message_field(after.fields[key]), {})[key] = cell
        forms = ((packed(held), self._place(name)) for name, held in together.items())
        return dict(zip(together, self._codec.seal_each(forms), strict=True))

    def _difference(self, copy: Copy, base: _Stored) -> tuple[_Stored, dict[Key, Cell], list[str]]:
        """Return what the store has afterwards, the cells that change, and the names of the fields that go."""
        shown = copy.needed
        due = [name for name, message in copy.messages.items() if name in shown or self._is_due(message, copy, base)]
        cells = cells_of(copy, due)
        archived = base.archived - cells.keys() if base.archived else base.archived
        if alone := self._durable is None:
            held = (key for key in base.fields.keys() | cells.keys() if type(key) is Name)
            archived = frozenset(key for key in held if key not in shown)
        needed = archived | cells.keys()
        versions = {key: base.versions[key] for key in archived - cells.keys() if key in base.versions}
        versions |= _noted(versions_of(cells))
        was, now = base.versions, versions
        others = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)} | (cells.keys() - base.fields.keys())
        changed = {key: cell for key, cell in cells.items() if key in others}
        beside = hot_fields.staying_beside(base.fields, needed)
        redacted = [key for key in beside if copy.redactions and copy.redactions.get(Name(*key), 0) > was.get(key, 0)]
        anew = hot_fields.written_anew(base.fields, [*changed, *redacted], alone=alone)
        if anew:
            changed = {key: cell for key, cell in cells.items() if key in changed or base.fields.get(key) in anew}
        stays: Set[Key] = (needed | beside) & base.fields.keys()
        if anew:
            stays = {key for key in stays if base.fields[key] not in anew}
        versions |= {key: base.versions[key] for key in beside & stays if key in base.versions}
        fields = {key: number for key, number in base.fields.items() if key in stays}
        new = {key: cell for key, cell in changed.items() if key not in fields}
        fields |= hot_fields.numbered(new, {*fields.values(), *base.unreadable}, alone=alone)
        gone = set(base.fields.values()) - set(fields.values())
        head = Head.of(copy, cells).pack()
        listed = hot_fields.listed_fields({*fields.values(), *base.unreadable}, {fields[key] for key in archived}).encode()
        after = _Stored(
            fields=fields, versions=versions, archived=archived, unreadable=base.unreadable, head=head, listed=listed
        )
        return after, changed, list(map(message_field, sorted(gone)))

    def _is_due(self, message: Message, copy: Copy, base: _Stored) -> bool:
        """Tell whether a message that no view shows has to be in the replica."""
        if self._durable is not None and is_logged(message, copy, self._durable.copy):
            return False
        # What it includes and does not have has left, as the durable replica has it.
        return message.name in base.fields or not base.copy.vector.includes(message.name, message.clock)

    def completed(self, copy: Copy) -> Copy:
        """Return a copy with the messages of its view that a restore does not read, as no window showed them."""
        return self._with_archived(copy, copy.lacks) if copy.lacks else copy

    def log(self, copy: Copy) -> Copy:
        """Return a copy with all messages of the log."""
        return self._with_archived(copy)

    def _with_archived(self, copy: Copy, keys: Set[Key] | None = None) -> Copy:
        stored = self._stored
        names = [message_field(stored.fields[key]) for key in stored.archived if keys is None or key in keys]
        if not names:
            return copy
        found = self._store.read(self._name, names)
        read = read_cells(Head(EMPTY), [(name, self._unsealed(name, data)) for name, data in found.items()], self._name)
        return with_messages(copy, read.copy.messages.values())

    def forget(self) -> None:
        """Take nothing for granted of what the store has."""
        self._stored = _UNKNOWN

    def discard(self) -> None:
        """Give up what is there, as it cannot be read."""
        self.forget()
        self._store.bury(self._name, epoch=1, ttl=1.0)

    def _index(self, after: _Stored, before: _Stored) -> dict[str, bytes]:
        """Return the list of the fields that a restore reads, if it changes, and what is known of the others."""
        hidden = {key: (after.fields[key], after.versions.get(key, 0)) for key in after.archived}
        log = {_LOG: self._codec.seal(hot_fields.pack_hidden(hidden), self._place(_LOG))} if hidden else {}
        return log if after.listed == before.listed else {WINDOW_FIELD: after.listed, **log}

    def _archive(self, data: bytes | None) -> dict[Key, tuple[int, Version]]:
        return {} if data is None else hot_fields.unpack_hidden(self._unsealed(_LOG, data), self._name)

    def _place(self, field_name: str) -> str:
        return f"{self._name}#{field_name}"

    def _unsealed(self, field_name: str, data: bytes | None) -> bytes:
        return self._codec.unseal(data, self._place(field_name))


def _as_log(copy: Copy) -> Copy:
    return replace(copy, vector=copy.vector.as_logged())


def _noted(versions: Mapping[Key, Version]) -> dict[Key, Version]:
    """Return the versions that say something: a first one is known by its field."""
    return {key: version for key, version in versions.items() if version}


def living(store: HotStore, conversation: str) -> HotRecord | None:
    """Return what a hot store has of a conversation, without its content; None if it has nothing, or only that it is over."""
    record = store.load(conversation, [GRAVES], touch=False)
    return None if record is None or record.state == DELETED or GRAVES in record.fields else record
