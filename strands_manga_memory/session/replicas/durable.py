"""DurableReplica: the copy of a conversation in a ``Table``: a head, and the segments of its log."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strands_manga_memory.session.core.cells import Head, Version, cells_of, head_of, loses, packed, read_cells, versions_of
from strands_manga_memory.session.core.cells import Key as CellKey
from strands_manga_memory.session.core.identity import Name, Segment
from strands_manga_memory.session.core.merge import EMPTY, Copy, is_logged, merge, with_messages
from strands_manga_memory.session.core.records import Message, framed, unframed
from strands_manga_memory.session.replicas.segments import Segments, head_key, pack_listed, unpack_listed
from strands_manga_memory.session.replicas.split import put_split, whole_value
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.hot import ACTIVE, DELETED
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Key, Table

logger = logging.getLogger(__name__)

HOT = "hot"
"""Attribute of a head that a process with a hot tier has written: that tier may have a copy."""

MOST_CARRIED = 16_000
"""Bytes of messages that a head carries along before they move to segments."""

MOST_JOINED = 40
"""Messages of a segment that another writer joins."""


_NONE: frozenset[Name] = frozenset()


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the table had when it last answered.

    Args:
        copy: The copy.
        item: The head; None if there is none.
        versions: The version of each cell in it.
        cells: Their stored forms, but for those of messages: what did not change is written as it is.
        listed: Segments in which messages of its view are, packed.
        carried: Messages that the head has along with it.
        unreadable: Cells that cannot be read. They stay.
    """

    copy: Copy = EMPTY
    item: Item | None = None
    versions: Mapping[CellKey, Version] = field(default_factory=dict)
    cells: Mapping[CellKey, bytes] = field(default_factory=dict)
    listed: Sequence[Any] = ()
    carried: frozenset[Name] = _NONE
    unreadable: tuple[bytes, ...] = ()


_UNKNOWN = _Stored()


class DurableReplica:
    """One conversation in a table.

    Args:
        table: The table.
        session: Partition value of its records.
        member: What their sort values begin with.
        codec: Seals what is stored.
        expires_at: Returns when the table may delete the head of a copy that is written now, in seconds since 1970; the default
            is for who begins and ends nothing.
        clock: Seconds since 1970. A grave whose time is over counts as gone: a table deletes it up to two days later.
        watched: Keys of records that may end this conversation along with others: of its session, its user.
        entries: Returns records by which the conversation is found, put before its first head.
        attributes: Returns attributes of the head that are readable without the codec.
        has_hot: Whether there is a hot tier beside the table. The head says from then on that one may have a copy.
    """

    tier = "durable"

    def __init__(
        self,
        table: Table,
        session: str,
        member: str,
        *,
        codec: Codec,
        expires_at: Callable[[Copy], int] = lambda copy: 0,
        clock: Callable[[], float] = time.time,
        watched: Sequence[Key] = (),
        entries: Callable[[], Sequence[Item]] | None = None,
        attributes: Callable[[], Mapping[str, Any]] = dict,
        has_hot: bool = False,
    ) -> None:
        self._table, self._codec, self._new_expiry, self._clock = table, codec, expires_at, clock
        self._key = head_key(session, member)
        self._watched, self._entries, self._attributes = tuple(watched), entries, attributes
        self._has_hot = has_hot
        self._stored = _UNKNOWN
        self._has_looked, self._is_unclean = True, False
        self.segments = Segments(table, session, member, codec=codec)

    @property
    def is_known(self) -> bool:
        """Whether it is known what the table has."""
        return self._stored is not _UNKNOWN

    @property
    def copy(self) -> Copy:
        """What it is known to have; nothing if that is not known."""
        return self._stored.copy

    @property
    def version(self) -> int | None:
        """A random number that changes with each write of the head; None if there is no head."""
        return (self._stored.item or {}).get("v")

    @property
    def expires_at(self) -> int:
        """When the table may delete the head, in seconds since 1970; 0 if there is no head, or it says nothing."""
        return int((self._stored.item or {}).get(self._table.schema.ttl) or 0)

    def load(self) -> Copy:
        """Read the head; ``EMPTY`` if there is none. One request, two if the head is split.

        Raises ``StoreUnavailableError``, and ``CorruptRecordError`` if the head cannot be read.
        """
        self.forget()
        found = self._table.batch_get([self._key, *self._watched])
        item = found.pop(self._key, None)
        stored = _Stored(item=item) if item is None or self._is_over(item) else self._read(item)
        graves = self._graves_in(found.values())
        self._stored, self._has_looked = stored, True
        return merge(stored.copy, Copy(graves=graves)) if graves else stored.copy

    def _read(self, item: Item) -> _Stored:
        name = "/".join(self._key)
        item, data = whole_value(self._table, item)
        codec = Codec() if item.get("state") == DELETED else self._codec  # graves are read though the keys are destroyed
        listed, blobs = unframed(codec.unseal(data, name), name)
        numbered = {str(at): blob for at, blob in enumerate(blobs[1:])}
        read = read_cells(head_of(blobs[0], name), numbered.items(), name)
        if read.damaged:
            logger.warning("tier=<durable>, cells=<%d> | cells cannot be read and stay as they are", len(read.damaged))
            logger.debug("record=<%s> | cells cannot be read", name)
        kept = tuple(numbered[at] for at in read.damaged)
        cells = _lasting({key: numbered[at] for key, at in read.records.items()})
        copy = replace(read.copy, vector=read.copy.vector.as_logged())
        return _Stored(copy, item, read.versions, cells, listed, frozenset(read.copy.messages), kept)

    def pending(self, copy: Copy) -> list[Message]:
        """Return the messages of a copy that the replica lacks, or has in a lower revision."""
        known = self.copy if self.copy.graves == copy.graves else EMPTY
        return [message for message in copy.messages.values() if not is_logged(message, copy, known)]

    def carried(self, copy: Copy) -> list[Message]:
        """Return the messages that the head has along with it, as a copy has them, until they are stored in segments."""
        return [copy.messages[name] for name in self._stored.carried if name in copy.messages]

    def open_segment(self, copy: Copy) -> Segment | None:
        """Return the segment that the last messages of a copy are waiting to go to, if it has room for another turn.

        What stateless workers say one after the other is stored together so.
        """
        waiting = {one.name: one for one in [*self.carried(copy), *self.pending(copy)]}
        last = max(waiting.values(), key=lambda one: one.order, default=None)
        if last is None:
            return None
        others = [one for one in copy.messages.values() if one.segment == last.segment]
        has_room = len(others) < MOST_JOINED and all(one.name in waiting for one in others)
        return last.segment if has_room else None

    def store(self, messages: Collection[Message]) -> None:
        """Store messages in their segments, those that the head carries along among them."""
        if messages:
            self.segments.put(messages)
        if self.is_known:
            self._stored = replace(self._stored, carried=_NONE)

    def enter(self, copy: Copy) -> None:
        """Put the records by which a conversation is found, before its first head."""
        if self._entries is not None and copy.has_begun and not self.copy.has_begun:
            self._table.batch_write(puts=self._entries())

    def graves_behind_the_first_head(self) -> frozenset[str]:
        """Return the graves of the session and user, if they were not read since the first head was put; else nothing.

        Whoever ends all conversations of a session or user digs a grave, then looks which are listed. The head is put, and the
        graves are read then: one of the two sees the other.
        """
        if self._has_looked or not self._watched:
            return frozenset()
        found = self._table.batch_get(self._watched)
        self._has_looked = True
        return self._graves_in(found.values())

    def write(self, copy: Copy, *, carried: Collection[Message] = ()) -> bool:
        """Write the head if it lacks anything of a copy that was merged with what was last read; one request if not split.

        What it carried before it carries on, until :meth:`store` has stored it, and what is ``carried`` from now on, too. Every
        other message that the copy includes must be in its segment. After False, as somebody else wrote meanwhile, and after
        ``StoreUnavailableError`` it has to be read before the next write.
        """
        before, copy = self._stored, replace(copy, vector=copy.vector.as_logged())
        base = before if copy.graves == before.copy.graves else _Stored()
        names = _NONE.union((message.name for message in carried), base.carried & copy.messages.keys()) or _NONE
        is_beside_hot = self._has_hot or bool((before.item or {}).get(HOT))
        cells = cells_of(copy, names, derived=not is_beside_hot)
        versions = versions_of(cells)
        if versions == before.versions and copy.head == before.copy.head and not self._is_unclean:
            return True
        listed = frozenset(copy.messages[name].segment for name in copy.needed if name not in names)
        if base.listed and copy.lacks:  # what is not at hand may be where it was
            listed |= self._listed(base)
        forms = {
            key: base.cells[key] if key in base.cells and base.versions[key] == versions[key] else packed({key: cell})
            for key, cell in cells.items()
        }
        blobs = [Head.of(copy, cells).pack(), *forms.values(), *base.unreadable]
        codec = self._codec if copy.has_begun else Codec()
        runs = pack_listed(listed)
        data = codec.seal(framed(runs, blobs), "/".join(self._key))
        self.forget()
        when = ABSENT if before.item is None else Condition(equals={"v": before.item.get("v")})
        attributes: dict[str, Any] = {"v": secrets.randbits(50), self._table.schema.ttl: self._new_expiry(copy)}
        attributes |= {"state": ACTIVE, **self._attributes()} if copy.has_begun else {"state": DELETED}
        if is_beside_hot:
            attributes[HOT] = True
        self._is_unclean |= copy.redactions != before.copy.redactions
        scrub = self._is_unclean or base is not before or loses(before.versions, versions)
        put = partial(put_split, self._table, self._key, data, attributes=attributes, when=when, before=before.item)
        item = put(cleans=self._is_unclean, scrub=scrub)
        if item is None:
            return False
        self._is_unclean = False
        self._has_looked = self._has_looked and (before.copy.has_begun or not copy.has_begun)
        self._stored = _Stored(copy, item, versions, _lasting(forms), runs, names, base.unreadable)
        return True

    def completed(self, copy: Copy) -> Copy:
        """Return a copy with the messages of its view that the log has: one batch, and the whole log if that was not enough."""
        lacks = copy.lacks
        if lacks and self._stored.listed:
            copy = with_messages(copy, self.segments.read(self._listed(self._stored), wanted=copy.may_show))
        return copy if lacks <= copy.messages.keys() else self.log(copy)

    def _listed(self, stored: _Stored) -> frozenset[Segment]:
        with trusted("/".join(self._key)):
            return unpack_listed(stored.listed)

    def log(self, copy: Copy) -> Copy:
        """Return a copy with all messages of the log."""
        return with_messages(copy, self.segments.log(copy.lives))

    def forget(self) -> None:
        """Take nothing for granted of what the table has."""
        self._stored = _UNKNOWN

    def remove(self) -> bool:
        """Delete the head that was read; False if somebody else has written meanwhile."""
        item = self._stored.item
        self.forget()
        return item is None or self._table.delete(*self._key, when=Condition(equals={"v": item.get("v")}))

    def discard(self) -> None:
        """Delete the head, as it cannot be read."""
        self.forget()
        self._table.delete(*self._key)

    def _graves_in(self, records: Iterable[Item]) -> frozenset[str]:
        return frozenset(grave for record in records if not self._is_over(record) for grave in record.get("graves", ()))

    def _is_over(self, item: Item) -> bool:
        """Tell whether an item is a grave whose time is over."""
        return item.get("state") == DELETED and 0 < (item.get(self._table.schema.ttl) or 0) <= self._clock()


def _lasting(cells: Mapping[CellKey, bytes]) -> dict[CellKey, bytes]:
    """Return the cells that the head goes on having: messages soon move to a segment."""
    return {key: data for key, data in cells.items() if type(key) is not Name}
