"""SegmentLog: the append-only log of one conversation in a Table, one segment for each flush."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

    def put(self, slots: Sequence[Logged]) -> list[Segment] | int:
        """Store messages that no segment has; return their segments, or the number at which a segment of others is stored.

        Messages that an earlier try had stored, whose answer was lost, are found there and not stored again.
        """
        segments: list[Segment] = []
        while slots:
            key = self._place.log_key(slots[0].seq)
            name = "/".join(key)
            data = self._codec.seal(pack({str(slot.seq): slot.record for slot in slots}), name)
            attributes = {"last": slots[-1].seq, "revision": 0}
            if put_split(self._table, key, data, attributes=attributes, when=ABSENT):
                return [*segments, Segment(slots[0].seq, slots[-1].seq)]
            item = self._table.get(*key)
            stored = [] if item is None else list(self._messages([item]))
            if not stored or [_identity(slot) for slot in stored] != [_identity(slot) for slot in slots[: len(stored)]]:
                return slots[0].seq
            segments.append(Segment(stored[0].seq, stored[-1].seq))
            slots = slots[len(stored) :]
        return segments

    def read(self, segments: Sequence[Segment]) -> dict[int, Logged]:
        """Return the messages of segments by number, in one round trip, one more if any is split."""
        keys = [self._place.log_key(segment.first) for segment in segments]
        found = self._table.batch_get(keys)
        for key in keys:
            if key not in found:
                name = "/".join(key)
                raise CorruptRecordError(f"record={name!r} is damaged: it is missing", record=name)
        return {slot.seq: slot for slot in self._messages([found[key] for key in keys])}

    def history(self, *, first: int, last: int, garbage: Sequence[int]) -> Iterator[Logged]:
        """Yield the committed messages from ``first`` to ``last``, in order, a page at a time."""
        start = self._holder(first)
        low, high = self._place.log_key(start["first"] if start else first)[1], self._place.log_key(last)[1]
        for item in self._table.query(self._place.session, first=low, last=high):
            if "~" in str(item["sk"]) or self._first(item) in garbage:
                continue
            for slot in self._messages([item]):
                if first <= slot.seq <= last:
                    yield slot

    def beyond(self, seq: int) -> list[int]:
        """Return the first numbers of the segments from ``seq`` on, and last the number after all of them."""
        low, high = self._place.log_key(seq)[1], self._place.log_key(_LAST_SEQ)[1]
        items = self._table.query(self._place.session, first=low, last=high, attributes=["last"])
        segments = [(self._first(item), int(item["last"])) for item in items if "~" not in str(item["sk"])]
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
        for item in self._table.query(self._place.session, first=low, last=high, reverse=True):
            if "~" not in str(item["sk"]):
                return {**item, "first": self._first(item)} if item["last"] >= seq else None
        return None

    def _first(self, item: Item) -> int:
        return int(str(item[self._table.schema.sort]).rsplit("#", 1)[1])

    def _messages(self, items: Sequence[Item]) -> Iterator[Logged]:
        for item, data in zip(items, whole_values(self._table, items), strict=True):
            name = f"{item[self._table.schema.partition]}/{item[self._table.schema.sort]}"
            for seq, record in unpack(self._codec.unseal(data, name), record=name).items():
                yield logged_of(record, int(seq))


def _identity(slot: Logged) -> tuple[int, str, int]:
    return slot.seq, slot.tracking_id, slot.revision
