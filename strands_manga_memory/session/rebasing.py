"""Rebasing: putting what a process appended onto what someone else has stored. Pure.

A message is the same everywhere by its identity, and a turn by its id. Their numbers belong to one copy: what comes onto a copy
is called there as it is known there, and gets new numbers where it is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strands.types.content import Message

from strands_manga_memory.session.apart import Apart, common_of
from strands_manga_memory.session.records import Head, Stored
from strands_manga_memory.session.window import (
    Body,
    Identity,
    Logged,
    Slot,
    closes_a_turn,
    copy_of,
    distinct,
    parse_runs,
    shown_of,
    tool_result_ids,
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
        open_turns: Turns that others have not finished, and whose they are.
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
        # Beyond that, what the durable tier awaits by a number may be another message than the one that has it in the copy.
        common = common_of(of.known, there)
        carried = [slot if slot.seq <= common else dataclasses.replace(slot, seq=0) for slot in messages]
        log_of = {slot.identity: slot for slot in there}
        return cls(
            messages=carried,
            shown=shown_of(of.window, carried, log=log_of, first=first, beside=durable.slots),
            seen=of.seen,
            open_turns=open_turns(of.head, [*of.known, *messages], since=durable.writers, writers=of.writers),
        )


def open_turns(
    head: Head, known: Collection[Logged], *, writers: Mapping[str, int], since: Mapping[str, int]
) -> dict[str, str]:
    """Return the turns that are not finished as far as a copy knows, and whose they are.

    Args:
        head: The head of the copy.
        known: Messages, by the numbers that they have there.
        writers: The saves that are in it.
        since: Saves that are known beside: who has a later one among them may have finished his turn with it.
    """
    found: dict[str, str] = {}
    for writer, runs in head.open.items():
        if writers.get(writer, 0) >= since.get(writer, 0):
            seqs = set(parse_runs(runs, record="head"))
            found |= {slot.of: writer for slot in known if slot.seq in seqs}
    return found


def torn_turns(slots: Iterable[Slot]) -> dict[str, str]:
    """Return the turns that lack something, and whose they are: the results of a tool call, or the answer at the end."""
    last: dict[str, Message] = {}
    torn = set()
    for slot in sorted(slots, key=lambda slot: slot.within):
        if slot.of:
            message = slot.message
            if slot.of in last and not tool_use_ids(last[slot.of]) <= tool_result_ids(message):
                torn.add(slot.of)
            last[slot.of] = message
    torn |= {turn for turn, end in last.items() if end["role"] == "user" or tool_use_ids(end)}
    return {turn: turn.rpartition(".")[0] for turn in torn}


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
        renumbered: Whether our messages may have numbers that no tier knows, which may be another's there: those that a refused
            save gave, or that the hot tier had before it went back in time.

    Attributes:
        head: The head of the result.
        mine: What we appended that is not stored there, in order.
        begun: What is stored there of our turns that go on.
        turns: The numbers of turns, by their ids.
    """

    def __init__(self, stored: Stored, *, known: int, carried: Carried, renumbered: bool = False) -> None:
        self._stored = stored
        self._logged = [slot for slot in stored.slots if isinstance(slot, Logged)]
        self._known = known
        self._carried = carried
        self._renumbered = renumbered
        self._again = {slot.identity for slot in carried.messages}
        # Messages that the durable tier lacks.
        self._awaited = set(parse_runs(stored.head.pending, record="head"))
        self._there: dict[Identity, Logged] = {}
        self._by_seq: dict[int, Logged] = {}
        self.head = dataclasses.replace(stored.head, open=dict(stored.head.open))
        self.mine: list[Logged] = []
        # Those of them that were lost there out of a turn of which the rest is there, or was.
        self._gaps: list[Logged] = []
        self.begun: dict[Identity, Logged] = {}
        self.turns: dict[str, int] = {}

    def sort_out(
        self,
        ours: Iterable[Logged],
        *,
        logged: Mapping[Identity, Logged] | None,
        open_turn: str | None,
        unflushed: Collection[Logged] = (),
    ) -> None:
        """Tell what is stored of ours from what is not.

        Args:
            ours: What we appended.
            logged: What is in the log there for certain, as it is there; None if nobody has looked.
            open_turn: Our turn that is not finished.
            unflushed: What the durable tier may lack. If it is nowhere, it was lost, although the save is included.
        """
        has_looked, logged = logged is not None, logged or {}
        self._there = {**logged, **{slot.identity: slot for slot in self._logged}}
        self._by_seq = {slot.seq: slot for slot in (*logged.values(), *self._logged)}
        own = [slot for slot in ours if slot.identity not in self._again]
        lacking = [slot for slot in own if (slot.number == 0 or slot.number > self._known) and slot.identity not in logged]
        found = self._there.keys() | self._again
        lost = [slot for slot in unflushed if has_looked and slot.order and slot.identity not in found and slot not in lacking]
        self.mine = sorted((*lacking, *lost), key=lambda slot: slot.order)
        # Of a turn that was stored in part, the first part moves to the end of the window too.
        split = {slot.of for slot in lacking} | ({open_turn} if open_turn is not None else set())
        whole = {slot.of for slot in lost if slot.ordinal <= 1} - {slot.of for slot in self._there.values()}
        self._gaps = [slot for slot in lost if slot.of not in split | whole]
        split |= whole
        self.begun = {slot.identity: slot for slot in own if slot.of in split and slot not in self.mine}
        self._meet(split)
        self.head.messages += len(self.mine) + len(self._carried.messages)
        self._name_turns()
        for slot in (*self._carried.messages, *self.mine):
            self._call(slot)

    def _is_awaited(self, slot: Logged) -> bool:
        """Tell whether the durable tier lacks a message of ours that is stored there by the number that it has."""
        return not self._renumbered and slot.seq in self._awaited and slot.seq not in self._by_seq

    def _meet(self, split: Collection[str]) -> None:
        """Take over what is stored of the turns that go on."""
        for there in self._there.values():
            own = self.begun.get(there.identity)
            if own is not None:
                _take_over(own, there)
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

    def still_of_use(self, recent: Iterable[Logged]) -> list[Logged]:
        """Return what is stored there too, or is ours and pending, of the messages that we keep beside our own new ones.

        Someone may have given them other numbers there. Until they are flushed, the hot tier may lose them once more.

        Args:
            recent: The messages that we keep.
        """
        pending, kept = self.pending, []
        for slot in recent:
            if slot in self.mine or slot.identity in self._again:
                continue
            there = self._there.get(slot.identity)
            if there is not None and self._by_seq[there.seq].identity != slot.identity:
                continue  # the log has it, by a number that the copy has for another message
            if there is not None and there.seq in pending:
                _take_over(slot, there)
                kept.append(slot)
            elif (there is not None and (there.seq, there.revision) == (slot.seq, slot.revision)) or (
                slot.order > 0 and self._is_awaited(slot)
            ):
                kept.append(slot)
        return kept

    def window(self, held: Iterable[Logged], *, before: Collection[Slot] = ()) -> list[Slot]:
        """Return the window: theirs, what is carried, and our own last, which keeps their evictions and our whole turns.

        Args:
            held: Messages of which we keep objects: one object for one message, or it could get two numbers.
            before: Our window until now. What it shows of a turn that we store comes along: marks, and what only the log has.
        """
        by_identity = {slot.identity: slot for slot in held}
        moves = [slot for slot in self.mine if slot not in self._gaps]
        # Of others' turns, we may have no more than the end.
        beginnings = {slot.of for slot in (*self.begun.values(), *moves, *self._stored.slots) if slot.ordinal <= 1}
        moves = [slot for slot in moves if slot.order > 0 or slot.of in beginnings]
        ours = sorted((*self.begun.values(), *moves), key=lambda slot: slot.order)
        own = {slot.tracking_id for slot in ours}  # others' marks in place of these would stand beside them
        carried = [s for s in self._carried.shown if isinstance(s, Logged) or not s.of or s.tracking_id not in own]
        moved: list[Slot] = [*carried, *ours]
        stored, at_hand = {slot.of for slot in moves}, {slot.tracking_id for slot in (*self._stored.slots, *moved)}
        common = common_of([slot for slot in before if isinstance(slot, Logged)], self._there.values())
        rest = [slot for slot in before if slot.of in stored and slot.tracking_id not in at_hand]
        moved += [copy_of(s) if isinstance(s, Body) else s for s in rest if isinstance(s, Body) or 0 < s.seq <= common]
        turns = list(dict.fromkeys(slot.of for slot in moved if slot.of))
        by_id = {slot.tracking_id: slot for slot in moved}
        edited: dict[str, Slot] = {}
        kept: list[Slot] = []
        earlier: list[Slot] = []  # parts of turns that go on, in whatever form, with what closed them
        part = kept
        for slot in self._stored.slots:
            if isinstance(slot, Body):
                if slot.tracking_id in by_id:
                    edited[slot.tracking_id] = slot
                    part = earlier
                    part.append(by_id[slot.tracking_id])
                    continue
                is_part = slot.of in turns if slot.of else part is earlier and closes_a_turn(slot)
            elif slot.identity in self.begun:
                continue
            else:
                is_part = slot.of in turns
            part = earlier if is_part else kept
            part.append(by_identity.get(slot.identity, slot) if isinstance(slot, Logged) else slot)
        moved = _by_turn(distinct([*earlier, *moved]), turns)
        return self._filled(distinct([*kept, *(edited.pop(slot.tracking_id, slot) for slot in moved)]))

    def _filled(self, window: list[Slot]) -> list[Slot]:
        """Return the window with what was lost there where the rest of its turn is, if that has a place for it.

        Where there is a mark in its place, or for all that came between a question and an answer, there is none.
        """
        for gap in self._gaps:
            part = [(at, slot) for at, slot in enumerate(window) if slot.of == gap.of]
            before = [(at, slot) for at, slot in part if slot.ordinal < gap.ordinal]
            after = [slot for _, slot in part if slot.ordinal >= gap.ordinal]
            if before and (not after or _is_one_pair(before[-1][1], gap) or _is_one_pair(gap, after[0])):
                window.insert(before[-1][0] + 1, gap)
        return window


def _is_one_pair(call: Slot, results: Slot) -> bool:
    """Tell whether one slot has results of the other one's tool calls."""
    return not tool_use_ids(call.message).isdisjoint(tool_result_ids(results.message))


def _take_over(own: Logged, there: Logged) -> None:
    """Call a message as it is called there; someone may store it by that number, whatever it is called later."""
    own.had = own.had if there.seq in own.had else (*own.had, there.seq)
    own.seq, own.revision, own.record, own.fingerprint = there.seq, there.revision, there.record, there.fingerprint
    own.turn = there.turn


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
