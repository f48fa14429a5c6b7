"""Rebasing: putting what a process appended onto what someone else has stored. Pure.

A message is the same everywhere by its identity, and a turn by its id. Their numbers belong to one copy: what comes onto a copy
is called there as it is known there, and gets new numbers where it is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strands_manga_memory.session.apart import Apart
from strands_manga_memory.session.records import Head, Stored
from strands_manga_memory.session.window import (
    Body,
    Identity,
    Logged,
    Slot,
    closes_a_turn,
    distinct,
    parse_runs,
    shown_of,
    tool_use_ids,
)
from strands_manga_memory.stores.codec import dump, load


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What others have saved that the copy lacks onto which we rebase: it comes along, before what is our own.

    Args:
        messages: Their messages, in order.
        shown: What a window shows of them.
        seen: Saves that the result includes beside those of the copy.
        open_turns: Turns that others have not finished, by writer.
    """

    messages: Sequence[Logged] = ()
    shown: Sequence[Slot] = ()
    seen: Mapping[str, int] = field(default_factory=dict)
    open_turns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def onto(cls, durable: Stored, messages: Sequence[Logged], *, of: Apart, log: Collection[Logged], first: int) -> Carried:
        """Return what comes along onto the durable tier's copy.

        Args:
            durable: That copy.
            messages: What it lacks, in order.
            of: The copy that they were found in.
            log: Messages of the durable tier from ``first`` on; its window may show them in another form, or not at all.
            first: Number below which the copies have not gone apart.
        """
        there = [slot for slot in (*durable.slots, *log) if isinstance(slot, Logged)]
        turns = {slot.of for slot in messages}
        torn = torn_turns([*messages, *(slot for slot in there if slot.of in turns)]) if of.lost else {}
        log_of = {slot.identity: slot for slot in there}
        return cls(
            messages=messages,
            shown=shown_of(of.window, messages, log=log_of, first=first, beside=durable.slots),
            seen=of.seen,
            open_turns=torn | open_turns(of.head, [*of.known, *messages], since=durable.writers, writers=of.writers),
        )


def open_turns(
    head: Head, known: Collection[Logged], *, writers: Mapping[str, int], since: Mapping[str, int]
) -> dict[str, str]:
    """Return the turns that are not finished as far as a copy knows, by writer.

    Args:
        head: The head of the copy.
        known: Messages, by the numbers that they have there.
        writers: The saves that are in it.
        since: Saves that are known beside: who has a later one among them may have finished his turn with it.
    """
    found: dict[str, str] = {}
    for writer, runs in head.open.items():
        seqs = set(parse_runs(runs, record="head"))
        turn = next((slot.of for slot in known if slot.seq in seqs), None)
        if turn is not None and writers.get(writer, 0) >= since.get(writer, 0):
            found[writer] = turn
    return found


def torn_turns(messages: Iterable[Logged]) -> dict[str, str]:
    """Return the turns that lack their ends, by writer: what there is of them ends with the user's side, or a tool call."""
    last = {slot.of: slot for slot in sorted(messages, key=lambda slot: slot.within)}
    ends = {turn: slot.message for turn, slot in last.items()}
    return {turn.rpartition(".")[0]: turn for turn, end in ends.items() if end["role"] == "user" or tool_use_ids(end)}


def in_turns(messages: Sequence[Logged]) -> list[Logged]:
    """Return messages turn by turn, in order; turns without numbers last."""
    first: dict[str, tuple[bool, int, int]] = {}
    for slot in messages:
        key = (slot.seq == 0, slot.seq, slot.turn)
        first[slot.of] = min(key, first.get(slot.of, key))
    return sorted(messages, key=lambda slot: (first[slot.of], slot.of, slot.within, slot.at))


class Rebase:
    """One rebase: ``sort_out`` does it, what follows tells the outcome.

    Args:
        stored: What someone else has stored.
        known: The last of our saves that it includes.
        carried: What comes along.

    Attributes:
        head: The head of the result.
        mine: What we appended that is not stored there, in order.
        begun: What is stored there of our turns that go on.
        turns: The numbers of turns, by their ids.
    """

    def __init__(self, stored: Stored, *, known: int, carried: Carried) -> None:
        self._stored = stored
        self._logged = [slot for slot in stored.slots if isinstance(slot, Logged)]
        self._known = known
        self._carried = carried
        self._again = {slot.identity for slot in carried.messages}
        # Messages that the durable tier lacks.
        self._awaited = set(parse_runs(stored.head.pending, record="head"))
        self._there: dict[Identity, Logged] = {}
        self._by_seq: dict[int, Logged] = {}
        self.head = dataclasses.replace(stored.head, open=dict(stored.head.open))
        self.mine: list[Logged] = []
        self.begun: dict[Identity, Logged] = {}
        self.turns: dict[str, int] = {}

    def sort_out(self, ours: Iterable[Logged], *, logged: Mapping[Identity, Logged], open_turn: str | None) -> None:
        """Tell what is stored of ours from what is not.

        Args:
            ours: What we appended.
            logged: What is in the log there for certain, as it is there.
            open_turn: Our turn that is not finished.
        """
        self._there = {**logged, **{slot.identity: slot for slot in self._logged}}
        self._by_seq = {slot.seq: slot for slot in (*logged.values(), *self._logged)}
        own = [slot for slot in ours if slot.identity not in self._again]
        lacking = [slot for slot in own if slot.number == 0 or slot.number > self._known]
        self.mine = sorted((slot for slot in lacking if slot.identity not in logged), key=lambda slot: slot.order)
        # Of a turn that was stored in part, the first part moves to the end of the window too.
        split = {slot.of for slot in self.mine} | ({open_turn} if open_turn is not None else set())
        self.begun = {slot.identity: slot for slot in own if slot.of in split and slot not in self.mine}
        self._meet(split)
        self.head.messages += len(self.mine) + len(self._carried.messages)
        self._name_turns()
        for slot in (*self._carried.messages, *self.mine):
            self._call(slot)

    def _meet(self, split: Collection[str]) -> None:
        """Take over what is stored of the turns that go on."""
        for there in self._there.values():
            own = self.begun.get(there.identity)
            if own is not None:
                own.seq, own.revision, own.record, own.fingerprint = there.seq, there.revision, there.record, there.fingerprint
                own.turn = there.turn
            elif there.of in split:  # our window has it in another form, or not at all
                there.order, there.number = 1, self._known
                self.begun[there.identity] = there

    def _name_turns(self) -> None:
        """Give turns that are not there yet the next numbers."""
        self.turns = {slot.of: slot.turn for slot in (*self.begun.values(), *self._there.values())}
        for slot in (*self._carried.messages, *self.mine):
            if slot.of not in self.turns:
                self.head.turns += 1
                self.turns[slot.of] = self.head.turns

    def _call(self, slot: Logged) -> None:
        """Call a message as the result does; unless it is awaited there, it gets its number in the log when it is saved."""
        is_awaited = slot.seq in self._awaited and slot.identity in self._again
        slot.seq, slot.number, turn = slot.seq if is_awaited else 0, 0, self.turns[slot.of]
        if slot.turn != turn:
            slot.turn_id, slot.turn = slot.of, turn
            slot.record = dump({**load(slot.record), "turn": turn, "turn_id": slot.turn_id})

    @property
    def pending(self) -> set[int]:
        """Sequence numbers that the durable tier lacks."""
        return self._awaited | {slot.seq for slot in (*self._carried.messages, *self.mine) if slot.seq}

    def still_of_use(self, recent: Iterable[Logged], *, renumbered: bool) -> list[Logged]:
        """Return what is stored there too, or is ours and pending, of the messages that we keep beside our own new ones.

        A number that a refused save gave, or that the hot tier had before it went back in time, may be another's there.

        Args:
            recent: The messages that we keep.
            renumbered: Whether they may have numbers that no tier knows.
        """
        there = {seq: (slot.identity, slot.revision) for seq, slot in self._by_seq.items()}
        unknown = set() if renumbered else self.pending - there.keys()
        kept = [slot for slot in recent if slot not in self.mine and slot.identity not in self._again]
        return [
            slot
            for slot in kept
            if there.get(slot.seq) == (slot.identity, slot.revision) or (slot.order > 0 and slot.seq in unknown)
        ]

    def window(self, held: Iterable[Logged]) -> list[Slot]:
        """Return the window: theirs, what is carried, and our own last, which keeps their evictions and our whole turns.

        Args:
            held: Messages of which we keep objects: one object for one message, or it could get two numbers.
        """
        by_seq = {slot.seq: slot for slot in held}
        ours = sorted((*self.begun.values(), *self.mine), key=lambda slot: slot.order)
        own = {slot.tracking_id for slot in ours}  # others' marks in place of these would stand beside them
        carried = [s for s in self._carried.shown if isinstance(s, Logged) or not s.of or s.tracking_id not in own]
        moved: list[Slot] = [*carried, *ours]
        turns = list(dict.fromkeys(slot.of for slot in moved if slot.of))
        last = {slot.tracking_id for slot in moved}
        edited: dict[str, Slot] = {}
        kept: list[Slot] = []
        earlier: list[Slot] = []  # parts of turns that go on, in whatever form, with what closed them
        part = kept
        for slot in self._stored.slots:
            if isinstance(slot, Body):
                if slot.tracking_id in last:
                    edited[slot.tracking_id] = slot
                    continue
                is_part = slot.of in turns if slot.of else part is earlier and closes_a_turn(slot)
            elif slot.identity in self.begun:
                continue
            else:
                is_part = slot.of in turns
            part = earlier if is_part else kept
            part.append(by_seq.get(slot.seq, slot) if isinstance(slot, Logged) else slot)
        moved = _by_turn(distinct([*earlier, *moved]), turns)
        return distinct([*kept, *(edited.pop(slot.tracking_id, slot) for slot in moved)])


def _by_turn(slots: Iterable[Slot], turns: Sequence[str]) -> list[Slot]:
    """Return slots with the messages of each of ``turns`` together and in order; what follows one stays behind it."""
    ranks = {turn: rank for rank, turn in enumerate(turns)}
    key: tuple[int, tuple[int, bool, int, int]] = (0, (0, False, 0, 0))
    keyed = []
    for slot in slots:
        if slot.of:
            key = (ranks.get(slot.of, 0), slot.within)
        keyed.append((key, slot))
    return [slot for _, slot in sorted(keyed, key=lambda pair: pair[0])]
