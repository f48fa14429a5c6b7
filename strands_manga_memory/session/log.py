"""SegmentLog: the append-only log of one conversation in a Table, one segment for each flush."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError
from strands_manga_memory.session.hot_tier import logged_of
from strands_manga_memory.session.records import Place, Segment, pack, unpack
from strands_manga_memory.session.split import discard_parts, put_split, whole_values
from strands_manga_memory.session.window import Logged
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table

_LAST_SEQ = 10**12 - 1


class SegmentLog:
    """The log of one conversation. A segment never changes, except that a redaction replaces a message in it.

    Args:
        table: The table.
        place: Where the conversation is kept.
        codec: Seals and unseals segments.
    """

    def __init__(self, table: Table, place: Place, codec: Codec) -> None:
        self._table = table
        self._place = place
        self._codec = codec

    def put(self, slots: Sequence[Logged]) -> tuple[list[Segment], int | None]:
        """Store messages that no segment has; return their segments, and the number at which one of others is stored, if any.

        Messages that an earlier try had stored, whose answer was lost, are found there and not stored again.
        """
        segments: list[Segment] = []
        while slots:
            # A segment has no gaps: numbers that are missing may be set aside for someone's open turn.
            run = [slot for at, slot in enumerate(slots) if slot.seq == slots[0].seq + at]
            key = self._place.log_key(run[0].seq)
            name = "/".join(key)
            data = self._codec.seal(pack({str(slot.seq): slot.record for slot in run}), name)
            attributes = {"last": run[-1].seq, "revision": 0}
            if not put_split(self._table, key, data, attributes=attributes, when=ABSENT):
                item = self._table.get(*key)
                stored = [] if item is None else list(self._messages([item]))
                if not stored or [_identity(slot) for slot in stored] != [_identity(slot) for slot in run[: len(stored)]]:
                    return segments, run[0].seq
                run = stored
            segments.append(Segment(run[0].seq, run[-1].seq))
            slots = slots[len(run) :]
        return segments, None

    def read(self, segments: Sequence[Segment]) -> dict[int, Logged]:
        """Return the messages of segments by number, in one round trip, one more if any is split."""
        keys = [self._place.log_key(segment.first) for segment in segments]
        found = self._table.batch_get(keys)
        for key in keys:
            if key not in found:
                name = "/".join(key)
                raise CorruptRecordError(f"record={name!r} is damaged: it is missing", record=name)
        return {slot.seq: slot for slot in self._messages([found[key] for key in keys])}

    def history(self, *, first: int, committed: Sequence[Segment]) -> Iterator[Logged]:
        """Yield the messages from ``first`` on whose numbers are ``committed``, in order, a page at a time."""
        start, last = self._holder(first), max((run.last for run in committed), default=0)
        low, high = self._place.log_key(start["first"] if start else first)[1], self._place.log_key(last)[1]
        done = 0
        for item in self._table.query(self._place.session, first=low, last=high):
            # A segment that nobody committed begins with a number that is not committed, or within one that is.
            if self._is_part(item) or self._first(item) <= done or not any(self._first(item) in run for run in committed):
                continue
            done = int(item["last"])
            for slot in self._messages([item]):
                if first <= slot.seq:
                    yield slot

    def holding(self, seqs: Iterable[int]) -> list[Segment]:
        """Return the segments that hold these messages, as far as there are any."""
        segments: list[Segment] = []
        for seq in seqs:
            holder = None if any(seq in segment for segment in segments) else self._holder(seq)
            if holder is not None:
                segments.append(Segment(holder["first"], int(holder["last"])))
        return segments

    def beyond(self, seq: int) -> list[int]:
        """Return the first numbers of the segments from ``seq`` on, and last the number after all of them."""
        low, high = self._place.log_key(seq)[1], self._place.log_key(_LAST_SEQ)[1]
        items = self._table.query(self._place.session, first=low, last=high, attributes=["last"])
        segments = [(self._first(item), int(item["last"])) for item in items if not self._is_part(item)]
        return [*(first for first, _ in segments), max((last + 1 for _, last in segments), default=seq)]

    def rewrite(self, changed: Sequence[Logged]) -> None:
        """Replace messages by later revisions of themselves.

        Raises:
            ConflictError: Someone else rewrites the same segment without end.
        """
        for slot in changed:
            for _ in range(5):
                holder = self._holder(slot.seq)
                if holder is None or self._rewritten(holder, slot):
                    break
            else:
                raise ConflictError(f"seq={slot.seq} could not be rewritten: its segment keeps changing")

    def _rewritten(self, item: Item, changed: Logged) -> bool:
        slots = {slot.seq: slot for slot in self._messages([item])}
        if changed.seq not in slots or slots[changed.seq].revision >= changed.revision:
            return True
        slots[changed.seq] = changed
        key = self._place.log_key(self._first(item))
        data = self._codec.seal(pack({str(seq): slot.record for seq, slot in slots.items()}), "/".join(key))
        attributes = {"last": item["last"], "revision": item["revision"] + 1}
        when = Condition(equals={"revision": item["revision"]})
        return put_split(self._table, key, data, attributes=attributes, when=when, before=item) is not None

    def discard(self, firsts: Sequence[int]) -> None:
        """Delete segments that were stored and can never be committed any more."""
        found = self._table.batch_get([self._place.log_key(first) for first in firsts])
        discard_parts(self._table, found.values())
        self._table.batch_write(deletes=list(found))

    def _holder(self, seq: int) -> Item | None:
        """Return the item of the segment that holds message ``seq``."""
        low, high = self._place.log_key(1)[1], self._place.log_key(seq)[1]
        holder = None
        for item in self._table.query(self._place.session, first=low, last=high, reverse=True):
            if self._is_part(item):
                continue
            if item["last"] < seq:
                break
            holder = {**item, "first": self._first(item)}  # one before it that holds it too is the one that was committed
        return holder

    def _first(self, item: Item) -> int:
        return int(str(item[self._table.schema.sort]).rsplit("#", 1)[1])

    def _is_part(self, item: Item) -> bool:
        return "~" in str(item[self._table.schema.sort]).rsplit("#", 1)[1]

    def _messages(self, items: Sequence[Item]) -> Iterator[Logged]:
        for item, data in zip(items, whole_values(self._table, items), strict=True):
            name = f"{item[self._table.schema.partition]}/{item[self._table.schema.sort]}"
            for seq, record in unpack(self._codec.unseal(data, name), record=name).items():
                yield logged_of(record, int(seq))


def _identity(slot: Logged) -> tuple[int, str, int]:
    return slot.seq, slot.tracking_id, slot.revision
