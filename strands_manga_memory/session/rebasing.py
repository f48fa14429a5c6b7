"""Rebasing: putting what a process appended onto what someone else has stored. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strands_manga_memory.session.numbering import TURN_NUMBERS, Blocks
from strands_manga_memory.session.records import Stored
from strands_manga_memory.session.window import Identity, Logged, Slot, parse_runs, shown_of
from strands_manga_memory.stores.codec import dump, load


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What others have saved that the copy lacks onto which we rebase: it comes along, before what is our own.

    Args:
        messages: Their messages, in order. They get new numbers, except where they continue a turn within the numbers that
            were set aside for it.
        shown: What a window shows of them.
        continued: Turns among them that the copy has in part, with their numbers there.
        granted: Numbers below this one are taken or set aside in the copy.
        seen: Saves that the result includes beside those of the copy.
        open_turns: Messages of turns that others have not finished, by writer.
    """

    messages: Sequence[Logged] = ()
    shown: Sequence[Slot] = ()
    continued: Mapping[int, int] = field(default_factory=dict)
    granted: int = 0
    seen: Mapping[str, int] = field(default_factory=dict)
    open_turns: Mapping[str, Collection[Identity]] = field(default_factory=dict)

    @classmethod
    def onto(
        cls, durable: Stored, messages: Sequence[Logged], *, window: Sequence[Slot], hot: Stored | None, writer: str
    ) -> Carried:
        """Return what comes along onto the durable tier's copy.

        Args:
            durable: That copy.
            messages: What it lacks, in order.
            window: A window that shows them.
            hot: The hot tier's copy, if that is where they were found.
            writer: Who is going to save the result.
        """
        turns = {slot.identity: slot.turn for slot in durable.slots if isinstance(slot, Logged)}
        open_turns: dict[str, Collection[Identity]] = {}
        for other, text in (hot.head.open if hot else {}).items():
            seqs = set(parse_runs(text, record="head"))
            if other != writer and any(slot.seq in seqs for slot in messages):
                open_turns[other] = {slot.identity for slot in messages if slot.seq in seqs}
        return cls(
            messages=messages,
            shown=shown_of(window, messages),
            continued={
                slot.turn: turns[slot.identity] for slot in window if isinstance(slot, Logged) and slot.identity in turns
            },
            granted=durable.head.next,
            seen=hot.writers if hot else {},
            open_turns=open_turns,
        )


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
        self.head = dataclasses.replace(stored.head, open=dict(stored.head.open))
        self.mine: list[Logged] = []
        self.begun: dict[Identity, Logged] = {}
        self.turns: dict[int, int] = {}

    def sort_out(self, ours: Iterable[Logged], *, logged: Mapping[Identity, Logged], open_turn: int | None) -> None:
        """Tell what is stored of ours from what is not; ``logged`` is in the log there for certain, as it is there."""
        own = [slot for slot in ours if slot.identity not in self._again]
        lacking = [slot for slot in own if slot.number == 0 or slot.number > self._known]
        self.mine = sorted((slot for slot in lacking if slot.identity not in logged), key=lambda slot: slot.order)
        # Of a turn that was stored in part, the first part moves to the end of the window too, and the rest keeps its numbers:
        # unless the save that set them aside was refused, or someone else gave the first part other ones.
        split = {slot.turn for slot in self.mine} | ({open_turn} if open_turn is not None else set())
        self.begun = {slot.identity: slot for slot in own if slot.turn in split and slot not in self.mine}
        self.head.messages += len(self.mine) + len(self._carried.messages)
        moved = self._meet({**logged, **{slot.identity: slot for slot in self._logged}}.values(), split)
        self._blocks.keep_granted(self._known)
        self._place_carried()
        self._place_mine()
        if moved and all(slot.seq in self._unfinished for slot in moved):  # whoever moved it has set numbers aside for the rest
            self._blocks.resume(moved[0].turn, [slot.seq for slot in moved], save=self._known)

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

    def _place_carried(self) -> None:
        messages, granted = self._carried.messages, self._carried.granted
        self._continued = {slot.turn: slot.turn for slot in messages if slot.seq in self._awaited} | dict(
            self._carried.continued
        )
        turns = self._continued | self._new_turns({slot.turn for slot in messages} - self._continued.keys())
        for slot in messages:
            slot.turn = turns[slot.turn]
            first = min((there.seq for there in self._logged if there.turn == slot.turn), default=0)
            is_set_aside = slot.seq in self._awaited or (first and first < slot.seq < first + TURN_NUMBERS <= granted)
            slot.seq, slot.number = (slot.seq if is_set_aside else 0), 0
            slot.record = dump({**load(slot.record), "turn": slot.turn})

    def _place_mine(self) -> None:
        anew = self._new_turns({slot.turn for slot in self.mine} - {slot.turn for slot in self.begun.values()})
        self.turns |= anew
        for slot in self.mine:
            if slot.turn not in self._blocks:
                slot.seq, slot.number = 0, 0
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
        parts = {slot.turn for slot in self._carried.shown if isinstance(slot, Logged)} & set(self._continued.values())
        kept: list[Slot] = []
        earlier: list[Slot] = []  # parts of turns that are carried on
        for slot in self._stored.slots:
            if not isinstance(slot, Logged):
                kept.append(slot)
            elif slot.identity not in self.begun:
                (earlier if slot.turn in parts else kept).append(by_seq.get(slot.seq, slot))
        begun = sorted(self.begun.values(), key=lambda slot: slot.seq)
        return [*kept, *earlier, *self._carried.shown, *begun, *self.mine]
