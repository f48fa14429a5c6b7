"""Rebasing: putting what a process appended onto what someone else has stored. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strands_manga_memory.session.numbering import TURN_NUMBERS, Blocks
from strands_manga_memory.session.records import Head, Stored
from strands_manga_memory.session.window import Body, Identity, Logged, Slot, closes_a_turn, parse_runs, shown_of
from strands_manga_memory.stores.codec import dump, load

_ELSEWHERE = 10**12
"""What is added to the numbers of turns that others may have by the same number."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What others have saved that the copy lacks onto which we rebase: it comes along, before what is our own.

    Args:
        messages: Their messages, in order. They get new numbers, except where they continue a turn within the numbers that
            were set aside for it.
        shown: What a window shows of them.
        continued: Turns among them that the copy has in part, with their numbers there.
        granted: Numbers below this one are taken or set aside in the copy.
        common: Numbers below this one mean the same message there as here.
        seen: Saves that the result includes beside those of the copy.
        open_turns: Messages of turns that others have not finished, by writer.
    """

    messages: Sequence[Logged] = ()
    shown: Sequence[Slot] = ()
    continued: Mapping[int, int] = field(default_factory=dict)
    granted: int = 0
    common: int = 0
    seen: Mapping[str, int] = field(default_factory=dict)
    open_turns: Mapping[str, Collection[Identity]] = field(default_factory=dict)

    @classmethod
    def onto(
        cls,
        durable: Stored,
        messages: Sequence[Logged],
        *,
        log: Collection[Logged],
        first: int,
        known: Collection[Logged],
        window: Sequence[Slot],
        head: Head,
        writers: Mapping[str, int],
        writer: str,
        seen: Mapping[str, int],
    ) -> Carried:
        """Return what comes along onto the durable tier's copy.

        Args:
            durable: That copy.
            messages: What it lacks, in order.
            log: Its messages from ``first`` on; its window may show them in another form, or not at all.
            first: Number below which the copies have not gone apart.
            known: Messages of the copy that they were found in, whether the durable one has them or not.
            window: A window that shows them.
            head: The head of the copy that they were found in.
            writers: The saves that are in it.
            writer: Who is going to save the result.
            seen: The saves that the result is going to include beside those of the durable tier's copy.
        """
        there = [slot for slot in (*durable.slots, *log) if isinstance(slot, Logged)]
        turns = {slot.identity: slot.turn for slot in there}
        continued = {slot.turn: turns[slot.identity] for slot in known if slot.identity in turns}
        open_turns: dict[str, Collection[Identity]] = {}
        for other, text in head.open.items():
            seqs = set(parse_runs(text, record="head"))
            if other != writer and any(slot.seq in seqs for slot in messages):
                open_turns[other] = {slot.identity for slot in messages if slot.seq in seqs}
        return cls(
            messages=messages,
            shown=shown_of(
                window,
                messages,
                log={slot.identity: slot for slot in there},
                first=first,
                visible={slot.tracking_id for slot in durable.slots},
            ),
            continued=continued | _unfinished_turns(durable, messages, log, writers=writers),
            granted=durable.head.next,
            common=common_of(known, there),
            seen=seen,
            open_turns=open_turns,
        )


def common_of(ours: Iterable[Logged], there: Iterable[Logged]) -> int:
    """Return the last number by which two logs mean the same message, as they do by every one below it.

    Numbers only rise, and a message that gets another one gets a later one: so they agree on all before one they agree on.
    """
    places = {(slot.identity, slot.seq, slot.turn) for slot in there}
    return max((slot.seq for slot in ours if (slot.identity, slot.seq, slot.turn) in places), default=0)


def estranged(ours: Iterable[Logged], theirs: Iterable[Logged]) -> dict[int, Logged]:
    """Return messages whose numbers mean something else in another copy, without them, by the ``id`` of what they replace.

    Args:
        ours: The messages.
        theirs: Messages of that copy. Where both have a message of a turn, the turn is called as it is there, else anew.
    """
    ours, turns = list(ours), {slot.identity: slot.turn for slot in theirs}
    called = {slot.turn: turns[slot.identity] for slot in ours if slot.identity in turns}
    return {id(slot): dataclasses.replace(slot, seq=0, turn=called.get(slot.turn, slot.turn + _ELSEWHERE)) for slot in ours}


def in_turns(messages: Sequence[Logged]) -> list[Logged]:
    """Return messages turn by turn, in order; turns without numbers last."""
    first: dict[int, int] = {}
    for slot in messages:
        if slot.seq:
            first[slot.turn] = min(slot.seq, first.get(slot.turn, slot.seq))
    return sorted(messages, key=lambda slot: (first.get(slot.turn, slot.turn + _ELSEWHERE), slot.turn, slot.at))


def _unfinished_turns(
    durable: Stored, messages: Collection[Logged], log: Collection[Logged], *, writers: Mapping[str, int]
) -> dict[int, int]:
    """Return the turns that the durable copy has the first part of, where ``messages`` are the rest, by their numbers.

    Whoever made such a save on top of that first part goes on within the numbers that were set aside for it.
    """
    found: dict[int, int] = {}
    for writer, text in durable.head.open.items():
        first = min(parse_runs(text, record="head"), default=0)
        turn = next((slot.turn for slot in log if slot.seq == first), 0)
        is_known = writers.get(writer, 0) >= durable.writers.get(writer, 0) > 0
        if is_known and any(slot.turn == turn and first < slot.seq < first + TURN_NUMBERS for slot in messages):
            found[turn] = turn
    return found


class Rebase:
    """One rebase: ``sort_out`` does it, what follows tells the outcome.

    Args:
        stored: What someone else has stored.
        known: The last of our saves that it includes.
        writer: Who we are.
        blocks: The numbers that we have set aside; changed to those that still hold.
        carried: What comes along.

    Attributes:
        head: The head of the result.
        mine: What we appended that is not stored there, in order.
        begun: What is stored there of our turns that go on.
        turns: How our turns are called from now on, where that changes.
    """

    def __init__(self, stored: Stored, *, known: int, writer: str, blocks: Blocks, carried: Carried) -> None:
        self._stored = stored
        self._logged = [slot for slot in stored.slots if isinstance(slot, Logged)]
        self._known = known
        self._blocks = blocks
        self._carried = carried
        self._again = {slot.identity for slot in carried.messages}
        self._continued: dict[int, int] = {}
        # Messages that the durable tier lacks, and those of our turn that was stored before its end.
        self._awaited = set(parse_runs(stored.head.pending, record="head"))
        self._unfinished = set(parse_runs(stored.head.open.get(writer, ""), record="head"))
        self._there: list[Logged] = []
        self._taken: dict[int, Identity] = {}
        self.head = dataclasses.replace(stored.head, open=dict(stored.head.open))
        self.mine: list[Logged] = []
        self.begun: dict[Identity, Logged] = {}
        self.turns: dict[int, int] = {}

    def sort_out(
        self, ours: Iterable[Logged], *, logged: Mapping[Identity, Logged], common: int, open_turn: int | None
    ) -> None:
        """Tell what is stored of ours from what is not.

        Args:
            ours: What we appended.
            logged: What is in the log there for certain, as it is there.
            common: The last number by which a message is known there as it is here; see ``common_of``.
            open_turn: Our turn that is not finished.
        """
        own = [slot for slot in ours if slot.identity not in self._again]
        self._there = [*logged.values(), *self._logged]
        self._taken = {slot.seq: slot.identity for slot in self._there}
        lacking = [slot for slot in own if slot.number == 0 or slot.number > self._known]
        self.mine = sorted((slot for slot in lacking if slot.identity not in logged), key=lambda slot: slot.order)
        # Of a turn that was stored in part, the first part moves to the end of the window too, and the rest keeps its numbers:
        # unless the save that set them aside was refused, or someone else gave the first part other ones.
        split = {slot.turn for slot in self.mine} | ({open_turn} if open_turn is not None else set())
        self.begun = {slot.identity: slot for slot in own if slot.turn in split and slot not in self.mine}
        self.head.messages += len(self.mine) + len(self._carried.messages)
        identities = {slot.identity for slot in self._there}
        in_place = {slot.turn for slot in self.begun.values() if slot.identity in identities}
        moved = self._meet({**logged, **{slot.identity: slot for slot in self._logged}}.values(), split)
        self._blocks.keep_granted(self._known, in_place=in_place, head=self.head, taken=self._taken)
        for slot in self.mine:
            if self._taken.get(slot.seq, slot.identity) != slot.identity:
                self._blocks.drop(slot.turn)
        self._place_carried()
        self._place_mine(common)
        if all(slot.seq in self._unfinished for slot in moved):
            self._resume()

    def _meet(self, logged: Iterable[Logged], split: Collection[int]) -> list[Logged]:
        """Take over what is stored of the turns that go on; return what has other numbers there."""
        moved: list[Logged] = []
        for there in logged:
            own = self.begun.get(there.identity)
            if own is not None:
                if there.seq != own.seq:
                    self._blocks.drop(own.turn)
                    moved.append(there)
                own.seq, own.revision, own.record, own.fingerprint = there.seq, there.revision, there.record, there.fingerprint
                self.turns[own.turn] = there.turn
            elif there.seq in self._unfinished and there.turn in split:  # our window has it in another form, or not at all
                there.order, there.number = 1, self._known
                self.begun[there.identity] = there
        return moved

    def _resume(self) -> None:
        """Go on with our turn that is not finished there, behind what is stored of it, if its rest has no numbers yet.

        Numbers are set aside for it, by us or by whoever moved it; we may have given them back with a save that is not there.
        """
        turn = next((slot.turn for slot in self.begun.values() if slot.seq in self._unfinished), None)
        if turn is not None and not any(slot.seq for slot in self.mine if slot.turn == turn):
            taken = [slot.seq for slot in self.begun.values() if slot.turn == turn]
            self._blocks.resume(turn, taken, save=self._known)

    def _place_carried(self) -> None:
        messages, granted = self._carried.messages, self._carried.granted
        kept = {slot.seq for slot in messages if slot.seq in self._awaited or self._is_left_out(slot, self._carried.common)}
        self._continued = {slot.turn: slot.turn for slot in messages if slot.seq in kept} | dict(self._carried.continued)
        turns = self._continued | self._new_turns({slot.turn for slot in messages} - self._continued.keys())
        unfinished = {min(parse_runs(runs, record="head"), default=0) for runs in self._stored.head.open.values()}
        latest: dict[int, int] = {}
        for slot in messages:
            slot.turn = turns[slot.turn]
            seqs = [there.seq for there in self._there if there.turn == slot.turn]
            first, end = min(seqs, default=0), min(seqs, default=0) + TURN_NUMBERS
            is_set_aside = slot.seq in kept or (first and first < slot.seq < end <= granted)
            # Whoever carries the rest of an unfinished turn gives it the numbers that its author would.
            following = max([*seqs, latest.get(slot.turn, 0)]) + 1
            is_rest = first in unfinished and following < end <= granted
            slot.seq, slot.number = (slot.seq if is_set_aside else following if is_rest else 0), 0
            slot.record = dump({**load(slot.record), "turn": slot.turn})
            latest[slot.turn] = slot.seq

    def _is_left_out(self, slot: Logged, common: int) -> bool:
        """Tell whether the log there has what came after a message, but not the message: then it still has its number."""
        return 0 < slot.seq < common and slot.seq not in self._taken

    def _place_mine(self, common: int) -> None:
        kept = {slot.seq for slot in self.mine if self._is_left_out(slot, common)}
        begun = {slot.turn for slot in (*self.begun.values(), *(slot for slot in self.mine if slot.seq in kept))}
        anew = self._new_turns({slot.turn for slot in self.mine} - begun)
        self.turns |= anew
        for slot in self.mine:
            if not self._blocks.hold(slot.turn, slot.seq):
                slot.seq, slot.number = (slot.seq if slot.seq in kept else 0), 0
            if self.turns.get(slot.turn, slot.turn) != slot.turn:
                slot.record = dump({**load(slot.record), "turn": self.turns[slot.turn]})
        for slot in (*self.begun.values(), *self.mine):
            slot.turn = self.turns.get(slot.turn, slot.turn)
        for turn in anew:
            self._blocks.drop(turn)
        self._blocks.rename(self.turns)

    def _new_turns(self, turns: Collection[int]) -> dict[int, int]:
        """Return new numbers for turns, after all that there are."""
        numbers = {turn: self.head.turns + count for count, turn in enumerate(sorted(turns), 1)}
        self.head.turns += len(numbers)
        return numbers

    @property
    def pending(self) -> set[int]:
        """Sequence numbers that the durable tier lacks."""
        return self._awaited | {slot.seq for slot in (*self._carried.messages, *self.mine) if slot.seq}

    def still_of_use(self, recent: Iterable[Logged], *, renumbered: bool) -> list[Logged]:
        """Return what is stored there too, or is pending, of the messages that we keep beside our own new ones.

        Args:
            recent: The messages that we keep.
            renumbered: Whether they may have numbers that no tier knows.
        """
        there = {slot.seq: (slot.identity, slot.revision) for slot in self._logged}
        unknown = set() if renumbered else self.pending - there.keys()
        kept = [slot for slot in recent if slot not in self.mine and slot.identity not in self._again]
        return [slot for slot in kept if there.get(slot.seq) == (slot.identity, slot.revision) or slot.seq in unknown]

    def window(self, held: Iterable[Logged]) -> list[Slot]:
        """Return the window: theirs, what is carried, and our own last, which keeps their evictions and our whole turns.

        Args:
            held: Messages of which we keep objects: one object for one message, or it could get two numbers.
        """
        by_seq = {slot.seq: slot for slot in held}
        ours = sorted((*self.begun.values(), *self.mine), key=lambda slot: slot.order)
        messages = {slot.tracking_id: slot for slot in (*self._there, *self._carried.messages, *ours)}
        going_on = [message for slot in self._carried.shown if (message := _message_of(slot, messages))]
        parts = {message.turn for message in going_on} & set(self._continued.values()) | {slot.turn for slot in self.mine}
        last = {slot.tracking_id for slot in (*self._carried.shown, *ours)}
        edited: dict[str, Slot] = {}
        kept: list[Slot] = []
        earlier: list[Slot] = []  # parts of turns that are carried on, in whatever form, with what closed them
        part = kept
        for slot in self._stored.slots:
            message = _message_of(slot, messages)
            if not isinstance(slot, Logged) and slot.tracking_id in last:
                edited[slot.tracking_id] = slot
            elif message is None or message.identity not in self.begun:
                is_part = (
                    message.turn in parts if message else part is earlier and isinstance(slot, Body) and closes_a_turn(slot)
                )
                part = earlier if is_part else kept
                part.append(by_seq.get(slot.seq, slot) if isinstance(slot, Logged) else slot)
        moved = _by_turn([*earlier, *self._carried.shown, *ours], messages, turns=[slot.turn for slot in (*going_on, *ours)])
        return [*kept, *(edited.pop(slot.tracking_id, slot) for slot in moved)]


def _message_of(slot: Slot, messages: Mapping[str, Logged]) -> Logged | None:
    """Return the message of the log that a slot shows, perhaps in another form; None if it is one of the window alone."""
    return slot if isinstance(slot, Logged) else messages.get(slot.tracking_id)


def _by_turn(slots: Iterable[Slot], messages: Mapping[str, Logged], *, turns: Iterable[int]) -> list[Slot]:
    """Return slots with the messages of each of ``turns`` together and in order; what follows one stays behind it."""
    ranks = {turn: rank for rank, turn in enumerate(dict.fromkeys(turns))}
    key: tuple[int, bool, int, int] = (0, False, 0, 0)
    keyed = []
    for slot in slots:
        message = _message_of(slot, messages)
        if message is not None:
            key = (ranks.get(message.turn, 0), message.seq == 0, message.seq, message.order)
        keyed.append((key, slot))
    return [slot for _, slot in sorted(keyed, key=lambda pair: pair[0])]
