"""SegmentLog: the append-only log of one conversation in a Table, one segment for each flush."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError
from strands_manga_memory.session.checking import checked_number
from strands_manga_memory.session.hot_tier import logged_of
from strands_manga_memory.session.records import Place, Segment, pack, segment_number, unpack
from strands_manga_memory.session.split import discard_parts, key_of, put_split, whole_values
from strands_manga_memory.session.window import Identity, Logged
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table

_LAST_SEQ = 10**12 - 1

_MOST_MESSAGES = 100
"""Messages of a segment that is written anew. A restore reads whole segments, so one must not hold a whole old log."""


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
        self._revisions: dict[int, int] = {}
        self._token = uuid.uuid4().hex[:8]

    def put(
        self, slots: Sequence[Logged], committed: Sequence[Segment] = (), *, since: int = 1
    ) -> tuple[list[Segment], int | None]:
        """Store messages that no segment has; return their segments, and the number at which one of others is stored, if any.

        Messages that an earlier try had stored, whose answer was lost, are found there and not stored again; an earlier
        revision of one is replaced.

        Args:
            slots: The messages.
            committed: Numbers that other segments hold.
            since: The incarnation they are of: what is stored of another one is somebody else's.
        """
        segments: list[Segment] = []
        origin: dict[int, int] = {}
        while slots:
            # A segment has no gaps: numbers that are missing may be set aside for someone's open turn.
            run = [slot for at, slot in enumerate(slots) if slot.seq == slots[0].seq + at]
            key = self._place.log_key(run[0].seq)
            name = "/".join(key)
            part = run[:_MOST_MESSAGES]
            data = self._codec.seal(pack({str(slot.seq): slot.record for slot in part}), name)
            attributes = {"last": part[-1].seq, "revision": 0, "by": self._token, "since": since}
            if put_split(self._table, key, data, attributes=attributes, when=ABSENT):
                self._revisions[run[0].seq] = 0
                run = part
            else:
                item = self._table.get(*key)
                if item is None:  # discarded meanwhile
                    continue
                stored = list(self._messages([item]))
                # Someone else may have stored less of the same messages; what is more has perhaps got other numbers since.
                behind = self._behind(stored[len(run) :], committed)
                is_of_another_life = item.get("since", since) != since
                if is_of_another_life or _identities(stored[: len(run)]) != _identities(run[: len(stored)]) or behind is None:
                    return segments, origin.get(run[0].seq, run[0].seq)
                latest = {slot.seq: slot for slot in run}
                merged = [max(slot, latest.get(slot.seq, slot), key=lambda one: one.revision) for slot in stored]
                if not self._claimed(item, merged):
                    continue
                # Another segment that this one reaches into counts no longer: what follows there needs one of its own.
                slots = [*merged, *behind, *slots[min(len(run), len(stored)) :]]
                origin |= {slot.seq: origin.get(run[0].seq, run[0].seq) for slot in behind}
                run = merged
            segments.append(Segment(run[0].seq, run[-1].seq))
            slots = slots[len(run) :]
        return segments, None

    def _behind(self, slots: Sequence[Logged], committed: Sequence[Segment]) -> list[Logged] | None:
        """Return what follows these messages in the segments that hold them; None if none hold just them by these numbers."""
        held: dict[int, Logged] = {}
        for slot in slots:
            holder = None if slot.seq in held else self._holder(slot.seq, committed)
            if holder is not None:
                held |= {one.seq: one for one in self._messages([holder])}
            if slot.seq not in held or _identity(held[slot.seq]) != _identity(slot):
                return None
        return [held[seq] for seq in sorted(held) if seq > slots[-1].seq]

    def _claimed(self, item: Item, slots: Sequence[Logged]) -> bool:
        """Store a segment anew that is there already: whoever took it for garbage before that cannot discard it any more.

        One that someone else stored is shared with him from then on, and neither can discard it.
        """
        first, revision = self._first(item), self._revision(item)
        # An earlier try of ours may have stored it without an answer; whoever claims it takes our mark away.
        is_ours = self._revisions.get(first) == revision or item.get("by") == self._token
        if not self._replaced(item, {slot.seq: slot for slot in slots}):
            return False
        self._revisions[first] = revision + 1 if is_ours else -1
        return True

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
        begins_a_run = all(first <= run.first or run.last < first for run in committed)
        holder = None if begins_a_run else self._holder(first, committed)
        start, last = self._first(holder) if holder else first, max((run.last for run in committed), default=0)
        low, high = self._place.log_key(start)[1], self._place.log_key(last)[1]
        done = 0
        for item in self._table.query(self._place.session, first=low, last=high):
            # A segment that nobody committed begins with a number that is not committed, or within one that is.
            if self._is_part(item) or self._first(item) <= done or not any(self._first(item) in run for run in committed):
                continue
            done = self._last(item)
            for slot in self._messages([item]):
                if first <= slot.seq:
                    yield slot

    def holding(self, seqs: Iterable[int], committed: Sequence[Segment]) -> list[Segment]:
        """Return the segments that hold these messages, as far as they are ``committed``."""
        segments: list[Segment] = []
        for seq in seqs:
            holder = None if any(seq in segment for segment in segments) else self._holder(seq, committed)
            if holder is not None:
                segments.append(Segment(self._first(holder), self._last(holder)))
        return segments

    def is_committed(self, segment: Segment, committed: Sequence[Segment]) -> bool:
        """Tell whether a segment is one of those that hold what is ``committed``, and no other one with some of its numbers."""
        holder = self._holder(segment.first, committed)
        return holder is not None and self._first(holder) == segment.first

    def beyond(self, seq: int) -> list[int]:
        """Return the first numbers of the segments from ``seq`` on, and last the number after all of them."""
        low, high = self._place.log_key(seq)[1], self._place.log_key(_LAST_SEQ)[1]
        items = self._table.query(self._place.session, first=low, last=high, attributes=["last"])
        segments = [(self._first(item), self._last(item)) for item in items if not self._is_part(item)]
        return [*(first for first, _ in segments), max((last + 1 for _, last in segments), default=seq)]

    def last_first(self) -> int:
        """Return the first number of the last segment, found by its key alone; 0 if there is none."""
        low, high = self._place.log_key(1)[1], self._place.log_key(_LAST_SEQ)[1]
        items = self._table.query(self._place.session, first=low, last=high, reverse=True, attributes=[])
        return next((self._first(item) for item in items if not self._is_part(item)), 0)

    def rewrite(self, changed: Sequence[Logged]) -> None:
        """Replace messages by later revisions of themselves, also in segments that nobody has committed.

        Others may have stored one by a number that its author has never heard of: it is looked for from its first one on.

        Raises:
            ConflictError: Someone else rewrites the same segment without end.
        """
        for slot in changed:
            for _ in range(5):
                first = min((seq for seq in (slot.seq, *slot.had) if seq), default=1)
                done = [self._rewritten(item, slot) for item in self._from(first)]
                if all(done):
                    break
            else:
                raise ConflictError(f"seq={slot.seq} could not be rewritten: its segment keeps changing")

    def _from(self, seq: int) -> list[Item]:
        """Return the items of the segments that hold message ``seq`` or a later one, whether they are committed or not."""
        low, high = self._place.log_key(seq + 1)[1], self._place.log_key(_LAST_SEQ)[1]
        later = self._table.query(self._place.session, first=low, last=high)
        return [*self._holders(seq), *(item for item in later if not self._is_part(item))]

    def _rewritten(self, item: Item, changed: Logged) -> bool:
        slots = {slot.seq: slot for slot in self._messages([item])}
        stale = {seq for seq, slot in slots.items() if slot.identity == changed.identity and slot.revision < changed.revision}
        return not stale or self._replaced(item, slots | dict.fromkeys(stale, changed))

    def _replaced(self, item: Item, slots: Mapping[int, Logged]) -> bool:
        key = self._place.log_key(self._first(item))
        data = self._codec.seal(pack({str(seq): slot.record for seq, slot in slots.items()}), "/".join(key))
        kept: Item = {name: item[name] for name in ("last", "since") if name in item}
        attributes = {**kept, "revision": self._revision(item) + 1}
        when = Condition(equals={"revision": self._revision(item)})
        return put_split(self._table, key, data, attributes=attributes, when=when, before=item) is not None

    def reseal(self) -> int:
        """Seal every segment anew, as the codec does it now; return how many. One that changes meanwhile is tried again.

        Raises:
            ConflictError: Someone else rewrites a segment without end.
        """
        low, high = self._place.log_key(1)[1], self._place.log_key(_LAST_SEQ)[1]
        sealed = 0
        for found in list(self._table.query(self._place.session, first=low, last=high, attributes=[])):
            item: Item | None = found
            for _ in range(5):
                item = None if self._is_part(found) else self._table.get(*key_of(self._table, found))
                if item is None or self._replaced(item, {slot.seq: slot for slot in self._messages([item])}):
                    break
            else:
                name = "/".join(key_of(self._table, found))
                raise ConflictError(f"record={name!r} could not be sealed anew: it keeps changing")
            sealed += item is not None
        return sealed

    def revisions(self, firsts: Sequence[int]) -> dict[int, int]:
        """Return the revisions of segments as they are now, by their first numbers."""
        found = self._table.batch_get([self._place.log_key(first) for first in firsts]) if firsts else {}
        return {self._first(item): self._revision(item) for item in found.values()}

    def own_revisions(self, firsts: Sequence[int]) -> dict[int, int]:
        """Return the revisions of segments as we stored them, by their first numbers."""
        return {first: self._revisions[first] for first in firsts if first in self._revisions}

    def discard(self, revisions: Mapping[int, int]) -> None:
        """Delete segments that can never be committed any more, unless someone has claimed them meanwhile.

        Args:
            revisions: The revisions that they had when it was clear that nobody needs them, by their first numbers.
        """
        found = self._table.batch_get([self._place.log_key(first) for first in revisions]) if revisions else {}
        for key, item in found.items():
            if self._table.delete(*key, when=Condition(equals={"revision": revisions[self._first(item)]})):
                discard_parts(self._table, [item])

    def delete_buried(self, buried: int, *, below: int) -> None:
        """Delete what came late of a deleted conversation, as its writer may have died over it.

        Args:
            buried: Epoch of the tombstone: of what is of it or of an earlier incarnation, nothing can be committed any more.
            below: Number with which the present incarnation began.
        """
        low, high = self._place.log_key(1)[1], self._place.log_key(below)[1]
        rows = self._table.query(self._place.session, first=low, last=high, attributes=["since"])
        # A record of an earlier version does not say what it is of.
        late = [key_of(self._table, row) for row in rows if type(row.get("since")) is int and row["since"] <= buried]
        if late:
            self._table.batch_write(deletes=late)

    def _holder(self, seq: int, committed: Sequence[Segment]) -> Item | None:
        """Return the item of the committed segment that holds message ``seq``.

        One begins a run, and every other one where that ends. Of those that nobody committed, one may begin where another one
        ends too: where several hold the message, all are followed from the beginning of the run.
        """
        run = next((run for run in committed if seq in run), None)
        if run is None:
            return None
        holders = {self._first(item): item for item in self._holders(seq)}
        if len(holders) == 1 and (run.first in holders or self._is_end(min(holders) - 1, run)):
            return holders[min(holders)]
        begins, low, high = run.first, self._place.log_key(run.first)[1], self._place.log_key(seq)[1]
        for item in self._table.query(self._place.session, first=low, last=high, attributes=["last"]) if holders else ():
            if not self._is_part(item) and self._first(item) == begins:
                if self._last(item) >= seq:
                    return holders.get(begins)
                begins = self._last(item) + 1
        return None

    def _is_end(self, seq: int, run: Segment) -> bool:
        """Tell whether a segment of the run, or one that nobody committed, ends with message ``seq``."""
        low, high = self._place.log_key(run.first)[1], self._place.log_key(seq)[1]
        before = self._table.query(self._place.session, first=low, last=high, reverse=True, limit=8, attributes=["last"])
        return any(self._last(item) == seq for item in before if not self._is_part(item))

    def _holders(self, seq: int) -> Iterator[Item]:
        """Yield the items of the segments that hold message ``seq``, the one that begins last first."""
        low, high = self._place.log_key(1)[1], self._place.log_key(seq)[1]
        for item in self._table.query(self._place.session, first=low, last=high, reverse=True):
            if not self._is_part(item):
                if self._first(item) + _MOST_MESSAGES <= seq:
                    return
                if self._last(item) >= seq:  # one that nobody committed may begin later, and end before
                    yield item

    def _first(self, item: Item) -> int:
        return segment_number(key_of(self._table, item)[1])[0]

    def _last(self, item: Item) -> int:
        return checked_number(item.get("last"), "/".join(key_of(self._table, item)), "its last number")

    def _revision(self, item: Item) -> int:
        return checked_number(item.get("revision"), "/".join(key_of(self._table, item)), "its revision")

    def _is_part(self, item: Item) -> bool:
        return segment_number(key_of(self._table, item)[1])[1]

    def _messages(self, items: Sequence[Item]) -> Iterator[Logged]:
        for item, data in zip(items, whole_values(self._table, items), strict=True):
            name = "/".join(key_of(self._table, item))
            for seq, record in unpack(self._codec.unseal(data, name), record=name).items():
                yield logged_of(record, int(seq) if seq.isdecimal() else -1, name)


def _identities(slots: Iterable[Logged]) -> list[tuple[int, Identity]]:
    return list(map(_identity, slots))


def _identity(slot: Logged) -> tuple[int, Identity]:
    return slot.seq, slot.identity
