"""DurableTier: one conversation in a Table: log segments first, the conditional put of the head last."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError
from strands_manga_memory.session.checking import checked_fields, checked_number, checked_text, checked_time
from strands_manga_memory.session.contention import OvertakenError, tries
from strands_manga_memory.session.expiry import FIRST_LOOK, ExpiryIndex
from strands_manga_memory.session.hot_tier import body_of_record
from strands_manga_memory.session.log import SegmentLog
from strands_manga_memory.session.records import (
    Draft,
    Head,
    Kind,
    Place,
    Save,
    Segment,
    Stored,
    directory_key,
    ended,
    joined,
    needed_segments,
    outside,
    pack,
    parse_writers,
    segments_text,
    tagged,
    unpack,
    untagged,
    writers_text,
)
from strands_manga_memory.session.split import put_split, whole_values
from strands_manga_memory.session.window import Body, Logged, Slot, parse_runs, runs_text, window_text
from strands_manga_memory.stores.codec import Codec, dump, load_stored, trusted
from strands_manga_memory.stores.hot import ACTIVE, DELETED, WriteStatus, body_field
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Table

logger = logging.getLogger(__name__)

_TOMBSTONES = Codec()
"""Tombstones have no content, and are left and read even where a tenant's key has been destroyed."""

_OWN_PARTS = {"base", "clear", "head"}

_PUT_ANEW = {"data", "parts", "tag", "session_id", "sk"}

_TRIES = 5

SEQ_STEP_AFTER_DELETE = 1_000_000
"""Numbers that a new incarnation leaves free, so that a late write of the deleted one never takes one of its own."""


class DurableTier:
    """One conversation in a Table, and what this process knows to be there.

    Nothing counts until a head that names it is committed, so a crash before that leaves only garbage.

    Args:
        table: The table.
        place: Where the conversation is kept.
        codec: Seals and unseals values.
        clock: Seconds since 1970.
        session_ttl: Seconds after the last write at which the session ends.
        grace: Seconds that the head stays beyond that.
    """

    def __init__(
        self, table: Table, place: Place, codec: Codec, *, clock: Callable[[], float], session_ttl: float, grace: float
    ) -> None:
        self._table = table
        self._place = place
        self._codec = codec
        self._clock = clock
        self._session_ttl = session_ttl
        self._grace = grace
        self._name = "/".join(place.head_key)
        self.log = SegmentLog(table, place, codec)
        self._is_listed = False
        self.made_by = Save("", 0, 0)
        self._adding = 0
        self._disowned: dict[int, int] = {}
        self.added: list[Segment] = []
        self.forget()

    def forget(self) -> None:
        """Take nothing for granted."""
        self._item: Item | None = None
        self.segments: list[Segment] = []
        self.committed: list[Segment] = []
        self._unread: tuple[str, Mapping[str, bytes]] = ("", {})
        self._since = self._free = 0
        self.collision: int | None = None

    @property
    def expect(self) -> tuple[int, int] | None:
        """Epoch and version that are stored as far as this process knows."""
        return None if self._item is None else (self._item["epoch"], self._item["version"])

    def load(self, *, window: bool = True) -> Stored | None:
        """Return the conversation, or None; remember what is there.

        Args:
            window: Read the messages of the window too, in one more round trip; else ``complete`` does it later.
        """
        for _ in tries("the durable tier's copy"):
            self.forget()
            with trusted(self._name):
                stored = self._loaded()
            if stored is None or stored.state == DELETED or not window:
                return stored
            with suppress(OvertakenError):
                return self.complete(stored)
        raise AssertionError("tries ends with an error")

    def _loaded(self) -> Stored | None:
        found = self._read()
        if found is None:
            self._is_listed = False
            return None
        item, parts, clear = found
        head = Head.from_dict(load_stored(parts["head"], self._name), record=self._name)
        self._item = {name: value for name, value in item.items() if name != "data"}
        self._is_listed = item["state"] != DELETED
        if item["state"] == DELETED:
            self._free = head.next
            return Stored(epoch=item["epoch"], version=untagged(item["version"]), head=head, state=DELETED)
        self.segments, self.committed = Segment.parse(head.segments, record=self._name), self._committed(clear)
        self._since = head.since
        stored = Stored(
            epoch=item["epoch"],
            version=untagged(item["version"]),
            writers=parse_writers(clear["writers"], record=self._name),
            base=dict(load_stored(parts["base"], self._name)),
            head=head,
            # Fields of a later version are kept and written back.
            fields=checked_fields(
                {name: data for name, data in parts.items() if name not in _OWN_PARTS and not name.startswith("x")}, self._name
            ),
            state=item["state"],
            expired=checked_time(clear.get("ends"), self._name, "its end") <= self._clock(),
            ahead=bool(clear.get("ahead")),
        )
        self.made_by = stored.made_by
        self._unread = (checked_text(clear.get("window"), self._name, "the window"), parts)
        return stored

    def history(self, *, first: int) -> Iterator[Logged]:
        """Yield the committed messages from ``first`` on, in order; read the head anew, and remember nothing of it."""
        found = self._read()
        if found is not None:
            yield from self.log.history(first=first, committed=self._committed(found[2]))

    def _committed(self, clear: Mapping[str, Any]) -> list[Segment]:
        return Segment.parse(clear.get("log", ""), record=self._name)

    def _read(self) -> tuple[Item, Mapping[str, bytes], dict[str, Any]] | None:
        item = self._table.get(*self._place.head_key)
        if item is None:
            return None
        for attribute in ("epoch", "version"):
            value = item.get(attribute)
            checked_number(untagged(value) if type(value) is int else value, self._name, attribute)
        codec = self._codec_of(item.get("state"))
        parts = unpack(codec.unseal(whole_values(self._table, [item])[0], self._name), record=self._name)
        if not parts.keys() >= _OWN_PARTS:
            raise self._damaged("it is incomplete")
        clear: dict[str, Any] = load_stored(parts["clear"], self._name)
        if not isinstance(clear, dict) or clear.get("place") != [item["epoch"], item["version"], item.get("state")]:
            raise self._damaged("its digest does not match")
        return item, parts, clear

    def _codec_of(self, state: object) -> Codec:
        return _TOMBSTONES if state == DELETED else self._codec

    def complete(self, stored: Stored) -> Stored:
        """Read the messages of the window of what ``load`` just returned.

        Raises:
            OvertakenError: They have gone, because the conversation was changed or deleted meanwhile.
        """
        try:
            with trusted(self._name):
                stored.slots = self._slots(*self._unread)
        except CorruptRecordError as error:
            item = self._table.get(*self._place.head_key)
            if item is not None and (item.get("epoch"), item.get("version")) == self.expect:
                raise
            raise OvertakenError(f"record={self._name!r} changed while it was read") from error
        return stored

    def _slots(self, window: str, parts: Mapping[str, bytes]) -> list[Slot]:
        references = parse_runs(window, record=self._name)
        logged = self.log.read(self.segments) if any(reference > 0 for reference in references) else {}
        slots: list[Slot] = []
        for reference in references:
            field = body_field(-reference)
            if reference > 0 and reference in logged:
                slots.append(logged[reference])
            elif reference < 0 and field in parts:
                slots.append(body_of_record(parts[field], -reference, self._name))
            else:
                raise self._damaged(f"message {reference} is missing")
        return slots

    def _damaged(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"record={self._name!r} is damaged: {what}", record=self._name)

    def enlist(self, ids: Mapping[str, Any]) -> None:
        """Enter a user's session into his directory and into the expiry index, so that both are found without a scan.

        Done before the head is committed, or a crash in between would leave a session that nobody finds. One without a user has
        nothing but its log to be found for; that is done afterwards, off the way to the first commit.
        """
        key = directory_key(self._place.session, ids)
        if key is not None:
            entry = {"session_id": key[0], "sk": key[1], **{name: ids[name] for name in ("session", "user", "tenant")}}
            self._list(ids, entry)

    def _list(self, ids: Mapping[str, Any], *others: Item) -> None:
        self._table.batch_write(puts=[*ExpiryIndex.items(self._place, ids, due=self._clock() + FIRST_LOOK), *others])
        self._is_listed = True

    def write(self, draft: Draft, *, ahead: bool) -> tuple[WriteStatus, Head]:
        """Put the log segments that are missing, then commit the head if its epoch and version are as expected.

        Args:
            draft: What to store.
            ahead: Whether the hot tier will go on without the durable tier after this.

        Returns:
            What became of it, and the head as committed.
        """
        self.collision = None
        if self._is_over(draft.epoch):
            return WriteStatus.CONFLICT, draft.head
        if self._is_buried and any(slot.seq < self._free for slot in draft.pending):  # whoever buried it deletes all below
            self.collision = min(slot.seq for slot in draft.pending)
            return WriteStatus.CONFLICT, draft.head
        if not self._is_listed and (self._item is None or self._is_buried):
            self.enlist(draft.base)  # what listed it went with the head, or with the user's erasure
        # Segments count only with the head: if that fails, the next try looks again whether they hold what it wants to store.
        segments, committed = self.segments, [run for run in self.committed if run.last >= draft.head.first]
        if self._since != draft.head.since:  # those of an incarnation that has ended may have numbers of this one
            segments, committed = [], []
        missing = [slot for slot in draft.pending if not any(slot.seq in run for run in committed)]
        if missing:
            self._adding = draft.head.since
            added, self.collision = self.log.put(missing, committed, since=draft.head.since)
            segments, committed = [*segments, *added], joined([*committed, *added])
            self.added = list(dict.fromkeys([*self.added, *added]))
            if self.collision is not None:
                return WriteStatus.CONFLICT, draft.head
        seqs = [slot.seq for slot in draft.slots if isinstance(slot, Logged)]
        segments = [*segments, *self.log.holding(outside(seqs, segments), committed)]
        if lost := outside(seqs, segments):  # a head that names them, and not who holds them, could never be read
            logger.debug("messages=<%d> | the window has messages that someone else has stored since", len(lost))
            return WriteStatus.CONFLICT, draft.head
        stored = {slot.seq for slot in draft.pending}
        lacking = [seq for seq in parse_runs(draft.head.pending, record=self._name) if seq not in stored]
        segments = needed_segments(draft.slots, segments)
        head = dataclasses.replace(
            draft.head,
            pending=runs_text(outside(lacking, committed)),
            flushed_turns=draft.head.turns,
            segments=segments_text(segments),
        )
        now, writers = self._clock(), writers_text(draft.writers)
        # Two processes may store one save, the one with messages that the other has not. Who takes segments for garbage stores
        # what is there already: whoever is about to commit one of them must be refused all the same.
        version = tagged(draft.version, f"{writers} {segments_text(committed)} {draft.head.garbage}")
        clear = {
            "place": [draft.epoch, version, ACTIVE],
            "writers": writers,
            "window": window_text(draft.slots),
            "log": segments_text(committed),
            "ends": now + self._session_ttl,
            "ahead": ahead,
        }
        bodies = {body_field(slot.number): slot.record for slot in draft.slots if isinstance(slot, Body)}
        parts = {"base": dump(dict(draft.base)), "clear": dump(clear), "head": dump(head.to_dict())}
        if not self._put_head(draft.epoch, version, ACTIVE, draft.base.get("member"), {**parts, **draft.fields, **bodies}):
            return WriteStatus.CONFLICT, draft.head
        self.segments, self.committed, self.added, self._since = segments, committed, [], draft.head.since
        self.made_by = Save(*list(draft.writers.items())[-1], draft.version)
        if not self._is_listed:
            self._list(draft.base)
        return WriteStatus.OK, head

    def _is_over(self, epoch: int) -> bool:
        """Tell whether the incarnation of this epoch has ended: a later one, or a tombstone, is in its place."""
        return self._item is not None and (epoch < self._item["epoch"] or (epoch == self._item["epoch"] and self._is_buried))

    @property
    def _is_buried(self) -> bool:
        return self._item is not None and self._item["state"] == DELETED

    def disown(self) -> None:
        """Take note that we shall not commit what was added since the last commit: the conversation was deleted meanwhile."""
        self._disowned |= {segment.first: self._adding for segment in self.added}

    def discard_disowned(self) -> None:
        """Delete what was disowned, once its incarnation has ended here, too.

        It may have been deleted in the hot tier alone. Until the durable one says so, someone who has not heard of it may
        commit what we added, as messages of his.
        """
        if self._disowned:
            revisions, latest = self.log.revisions(list(self._disowned)), self._ended()
            self._disowned = {first: since for first, since in self._disowned.items() if since > latest}
            self.log.discard({first: revision for first, revision in revisions.items() if first not in self._disowned})

    def _ended(self) -> int:
        """Return the last incarnation of which nothing can be committed any more; 0 if that cannot be told."""
        try:
            with trusted(self._name):
                found = self._read()
                if found is None:
                    return 0
                item, parts, _ = found
                head = Head.from_dict(load_stored(parts["head"], self._name), record=self._name)
        except CorruptRecordError:
            return 0
        return ended(item["state"], head)

    def _put_head(self, epoch: int, version: int, state: str, member: object, parts: Mapping[str, bytes]) -> bool:
        attributes: dict[str, Any] = {
            "epoch": epoch,
            "version": version,
            "state": state,
            "member": member,
            self._table.schema.ttl: math.ceil(self._clock() + self._session_ttl + self._grace),
        }
        data = self._codec_of(state).seal(pack(parts), self._name)
        when = ABSENT if self.expect is None else Condition(equals=dict(zip(("epoch", "version"), self.expect, strict=True)))
        key = self._place.head_key
        item = put_split(self._table, key, data, attributes=attributes, when=when, before=self._item)
        self._item = item or self._item
        return item is not None

    def reseal(self) -> int:
        """Seal log and head anew, as the codec does it now; return how many records that are. Nothing else changes.

        Raises:
            ConflictError: Someone else keeps saving the conversation.
        """
        sealed = self.log.reseal()
        for _ in range(_TRIES):
            found = self._read()
            if found is None or found[0]["state"] == DELETED:
                return sealed
            item, parts, _ = found
            attributes = {name: value for name, value in item.items() if name not in _PUT_ANEW}
            when = Condition(equals={name: item[name] for name in ("epoch", "version")})
            data = self._codec.seal(pack(parts), self._name)
            if put_split(self._table, self._place.head_key, data, attributes=attributes, when=when, before=item):
                return sealed + 1
        raise ConflictError(f"record={self._name!r} could not be sealed anew: it keeps changing")

    def bury(self, *, epoch: int) -> int:
        """Replace the head, a damaged one too, by a tombstone, then delete everything else; return the tombstone's epoch."""
        while True:
            self._item = self._intact_head()
            epoch = max(epoch, self.expect[0] + 1 if self.expect else 1)
            beyond = max(self.log.last_first(), self._last_number()) + SEQ_STEP_AFTER_DELETE
            head = Head(created=self._clock(), active=self._clock(), next=beyond, first=beyond, since=epoch)
            parts = {"base": dump({}), "clear": dump({"place": [epoch, 0, DELETED]}), "head": dump(head.to_dict())}
            if self._put_head(epoch, 0, DELETED, None, parts):
                break
        first, last = self._place.everything
        rows = self._table.query(self._place.session, first=first, last=last, attributes=[])
        keys = [(self._place.session, str(row["sk"])) for row in rows]
        begun = self._place.log_key(beyond)  # by someone who began another life meanwhile
        self._table.batch_write(deletes=[key for key in keys if key != self._place.head_key and key < begun])
        self.segments = []
        return epoch

    def _last_number(self) -> int:
        """Return the last number that the head has given, a tombstone's too; 0 if it cannot be read."""
        try:
            found = self._read()
            return 0 if found is None else Head.from_dict(load_stored(found[1]["head"], self._name), record=self._name).next - 1
        except CorruptRecordError:
            return 0

    def _intact_head(self) -> Item | None:
        """Return of the head's item what a tombstone is to be compared with; delete one that is too damaged for that."""
        needed = {"session_id": str, "sk": str, "epoch": int, "version": int}
        try:
            item = self._table.get(*self._place.head_key)
            if item is None or all(type(item.get(name)) is kind for name, kind in needed.items()):
                return item and {name: item[name] for name in needed}
        except CorruptRecordError as error:
            logger.debug("error=<%s> | deleting a head that cannot be read", error)
        self._table.delete(*self._place.head_key)
        return None


def members(table: Table, session: str) -> Iterator[Place]:
    """Yield the places of the conversations that a table has of a session, damaged ones too."""
    for row in table.query(session, attributes=[]):
        if str(row["sk"]).endswith("#HEAD"):
            yield Place(session, str(row["sk"]).removesuffix("#HEAD"))


def member_ids(table: Table, session: str) -> Iterator[tuple[Kind, str]]:
    """Yield the kinds and original ids of the agents and orchestrators that a table has of a session, deleted ones not."""
    for row in table.query(session, attributes=["member"]):
        if str(row["sk"]).endswith("#HEAD") and row.get("member"):
            yield ("M" if str(row["sk"]).startswith("M:") else "A"), str(row["member"])
