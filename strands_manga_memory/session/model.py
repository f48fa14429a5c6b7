"""Model: a conversation as this process wants it stored, and how it is rebased onto what someone else has stored. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.records import MOST_WRITERS, Draft, Head, Stored, with_save
from strands_manga_memory.session.window import (
    Body,
    Identity,
    Logged,
    Slot,
    fingerprint,
    matched,
    parse_runs,
    runs_text,
    starts_turn,
)
from strands_manga_memory.stores.codec import dump, load
from strands_manga_memory.stores.hot import CLOSING

_TURN_NUMBERS = 1000
"""Sequence numbers set aside for a turn that is saved before its end, so that two writers' turns never interleave."""

_MERGED_BY_KEY = ("meta", "state.agent")
_ORCHESTRATOR = "state.multi"


@dataclass(slots=True)
class _Block:
    """Sequence numbers set aside for a turn that is saved before its end, by the save of this number."""

    next: int
    end: int
    number: int


class Model:
    """One conversation in memory: its log's tail, window and states. Not thread-safe: its owner holds a lock.

    Args:
        base: The original ids, stored once.
        now: Seconds since 1970.
        keeps_window: False for a model that keeps the conversation itself: its window is always empty.
    """

    def __init__(self, *, base: Mapping[str, Any], now: float, keeps_window: bool = True) -> None:
        self._base = dict(base)
        self.keeps_window = keeps_window
        # The incarnation that the live agent knows was deleted, and how many unsaved messages went with it.
        self.deleted, self.dropped = False, 0
        # The owner is done with it for now: what is flushed next is everything.
        self.closing = False
        self.new_writer()
        self.restart(epoch=1, next_seq=1, now=now)

    def new_writer(self) -> None:
        """Save under an id of one's own from now on: at the start, and in the child after a fork."""
        self.writer, self.number = uuid.uuid4().hex[:12], 0
        self._orders, self._foreign_orders = itertools.count(1), itertools.count(-(10**12))

    def restart(self, *, epoch: int, next_seq: int, now: float, buried: int = 0) -> None:
        """Begin a new incarnation: empty window, no states, a log that begins with ``next_seq``."""
        self.epoch, self.version = epoch, 0
        self.writers: dict[str, int] = {}
        self.head = Head(created=now, active=now, next=next_seq, first=next_seq, since=epoch, buried=buried)
        self.slots: list[Slot] = []
        self.fields: dict[str, bytes] = {}
        self._stored_fields: dict[str, bytes] = {}
        self.recent: list[Logged] = []
        self._of_turn: list[Logged] = []
        self.pending: set[int] = set()
        self.revised: list[Logged] = []
        self.confirmed_number = self._flushed_number = self.number
        self.in_turn = False
        self.turn = 0
        self._blocks: dict[int, _Block] = {}
        self._open_elsewhere: dict[str, Collection[Identity]] = {}
        self._renumbered = False
        self._last: Message | None = None
        self._live: dict[str, bytes] = {}
        self.touched = False
        self.stale = False

    def adopt(self, stored: Stored, *, pending: bool) -> None:
        """Take over what a tier has stored; ``pending`` if messages may not be in the durable tier yet."""
        self.epoch = stored.epoch + (stored.state == CLOSING)
        self.version, self.writers, self._base = stored.version, dict(stored.writers), dict(stored.base)
        self.head = dataclasses.replace(stored.head)
        self.slots = list(stored.slots) if self.keeps_window else []
        self.fields, self._stored_fields, self._live = dict(stored.fields), dict(stored.fields), dict(stored.fields)
        self.pending = set(parse_runs(stored.head.pending, record="head")) if pending else set()
        self.turn = stored.head.turns

    def append(self, message: Message, *, at: float, extra: Mapping[str, Any] | None = None) -> None:
        """Log a message. ``extra`` goes into its record beside the message, the turn and the time."""
        if starts_turn(message, self._last):
            self.head.turns += 1
            self.turn = self.head.turns
        self._last = message
        record = {"message": message, "turn": self.turn, "at": at, **(extra or {})}
        identity = message.get("tracking_id") or ""
        slot = Logged(identity, fingerprint(message), dump(record), self.turn, at, order=next(self._orders))
        self.recent.append(slot)
        self._of_turn.append(slot)
        if self.keeps_window:
            self.slots.append(slot)
        self.head.messages += 1
        self.touched = True

    def begin_turn(self) -> None:
        """Take note that a turn begins: what is appended until the next one belongs to it."""
        self.in_turn, self._of_turn = True, []

    def knows(self, tracking_id: str) -> int:
        """Return how many messages of this id the window has; the turn, if there is no window."""
        return sum(slot.tracking_id == tracking_id for slot in (self.slots if self.keeps_window else self._of_turn))

    def revise(self, message: Message, *, at: float, every: bool = False) -> Logged | None:
        """Put ``message`` in place of the latest one with its id, or of every one; return its slot, or None if there is none.

        Slots are replaced, not changed: a save that is under way must not mistake the new one for what it is storing.
        """
        same = message.get("tracking_id") or ""
        mark = fingerprint(message)
        for body in [slot for slot in self.slots if isinstance(slot, Body) and slot.tracking_id == same]:
            self._swap(body, Body(same, mark, dump({"message": message})))
        logged = {
            id(slot): slot
            for slot in (*self.slots, *self.recent, *self._of_turn)
            if isinstance(slot, Logged) and slot.tracking_id == same
        }
        revised: Logged | None = None
        for slot in sorted(logged.values(), key=lambda slot: (slot.order, slot.seq))[0 if every else -1 :]:
            record = {**load(slot.record), "message": message, "revision": slot.revision + 1, "revised": at}
            revised = dataclasses.replace(slot, record=dump(record), fingerprint=mark, revision=slot.revision + 1)
            self._swap(slot, revised)
            if revised.seq and revised.seq not in self.pending:
                self.revised.append(revised)
        return revised

    def _swap(self, old: Slot, new: Slot) -> None:
        self.slots = [new if slot is old else slot for slot in self.slots]
        if isinstance(new, Logged):
            self.recent = [new if slot is old else slot for slot in self.recent]
            self._of_turn = [new if slot is old else slot for slot in self._of_turn]
        self.touched = True

    def capture(self, messages: Sequence[Message], fields: Mapping[str, bytes], *, in_turn: bool) -> None:
        """Take the window and the states from a live agent, unless someone else's are waiting to be taken over by it."""
        if in_turn != self.in_turn:
            self.in_turn, self.touched = in_turn, True
        changed = dict(fields)
        if self.stale:
            state = "state.agent"
            changed = {state: _merged(self._live.get(state), fields[state], self.fields.get(state))} if state in fields else {}
            changed |= {name: data for name, data in fields.items() if name == _ORCHESTRATOR}
        else:
            window = set(self.slots)
            evicted = [slot for slot in self.recent if slot not in window]
            slots = matched(messages, [*evicted, *self.slots]) if self.keeps_window else []
            if slots != self.slots:
                self.slots, self.touched = slots, True
        self._live = dict(fields)
        if any(self.fields.get(name) != data for name, data in changed.items()):
            self.fields, self.touched = {**self.fields, **changed}, True

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata that users keep beside the conversation."""
        return dict(load(self.fields.get("meta", b"{}")))

    def set_meta(self, changed: Mapping[str, Any]) -> None:
        """Set some of the metadata."""
        self.fields = {**self.fields, "meta": dump({**self.meta, **changed})}
        self.touched = True

    @property
    def unsaved(self) -> int:
        """Messages that no tier has confirmed."""
        return len(self.unsaved_slots())

    def unsaved_slots(self) -> list[Logged]:
        """Return the messages that no tier has confirmed, in order."""
        return [slot for slot in self.recent if slot.order > 0 and (slot.number == 0 or slot.number > self.confirmed_number)]

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no tier has confirmed."""
        return self.touched or self.number > self.confirmed_number or bool(self.revised)

    def draft(self, *, now: float, ttl: float, durable: bool) -> Draft:
        """Return what is to be stored now; the same save number again if nothing changed since the last time."""
        if self.touched or self.number == 0:
            self.number += 1
            self.touched = False
            self.head.active = now
        self._place(durable=durable)
        self.writers = with_save(self.writers, self.writer, self.number)
        own = [slot for slot in (*self.slots, *self.recent) if isinstance(slot, Logged) and slot.order > 0]
        turn = {slot.seq for slot in own if slot.turn == self.turn} if self.in_turn else set()
        self.head.open.pop(self.writer, None)
        logged = [slot for slot in (*self.slots, *self.recent) if isinstance(slot, Logged)] if self._open_elsewhere else []
        for writer, messages in self._open_elsewhere.items():
            self.head.open[writer] = runs_text(sorted({slot.seq for slot in logged if slot.identity in messages}))
        if turn:
            self.head.open[self.writer] = runs_text(sorted(turn))
        self.head.pending = runs_text(sorted(self.pending))
        return self._draft(version=self.version + 1, ttl=ttl, durable=durable)

    def as_stored(self) -> Draft:
        """Return what a tier has, just as it is: nobody's save."""
        return self._draft(version=self.version, ttl=0.0, durable=True)

    def _draft(self, *, version: int, ttl: float, durable: bool) -> Draft:
        by_seq = {slot.seq: slot for slot in [*self.recent, *self.slots] if isinstance(slot, Logged)}
        return Draft(
            epoch=self.epoch,
            version=version,
            writers=dict(self.writers),
            writer=self.writer,
            number=self.number,
            base=self._base,
            head=dataclasses.replace(self.head, open=dict(self.head.open)),
            slots=tuple(self.slots),
            fields=dict(self.fields),
            pending=tuple(by_seq[seq] for seq in sorted(self.pending) if seq in by_seq)
            if durable
            else (*(slot for slot in self.recent if slot.number > self.confirmed_number), *self.revised),
            ttl=ttl,
        )

    def _place(self, *, durable: bool) -> None:
        """Give every new message its number in the log and every new body its own."""
        new = [slot for slot in self.recent if slot.seq == 0]
        foreign: dict[int, _Block] = {}
        for slot in new:
            is_foreign = any(slot.identity in messages for messages in self._open_elsewhere.values())
            blocks = foreign if is_foreign else self._blocks
            block = blocks.get(slot.turn)
            is_open = is_foreign or (self.in_turn and slot.turn == self.turn)
            if is_open and (block is None or block.next == block.end):
                block = blocks[slot.turn] = _Block(self.head.next, self.head.next + _TURN_NUMBERS, self.number)
                self.head.next = block.end
            if block is not None and block.next < block.end:
                slot.seq = block.next
                block.next += 1
            else:
                slot.seq = self.head.next
                self.head.next += 1
            if durable:
                self.pending.add(slot.seq)
        for slot in (slot for slot in self.recent if slot.order and not slot.number):
            slot.number = self.number
        last = self._blocks.get(self.turn)
        if last is not None and not self.in_turn and self.head.next == last.end:
            self.head.next = last.end = last.next
        for body in self.slots:
            if isinstance(body, Body) and body.number == 0:
                self.head.bodies += 1
                body.number = self.head.bodies

    def saved(self, draft: Draft, *, keep: bool) -> None:
        """Take note that a tier has stored ``draft``; ``keep`` sent messages until the durable tier has them."""
        self.epoch, self.version = draft.epoch, draft.version
        self.confirmed_number = max(self.confirmed_number, draft.number)
        self._stored_fields, self._renumbered = dict(draft.fields), False
        if not keep:
            window = {id(slot) for slot in self.slots}
            self.revised = [slot for slot in self.revised if slot not in draft.pending]
            self.recent = [slot for slot in self.recent if slot.number > self.confirmed_number or id(slot) in window]

    def flushed(self, draft: Draft, head: Head) -> None:
        """Take note that the durable tier has stored ``draft``, with ``head``."""
        self.head.segments, self.head.flushed_turns, self.head.garbage = head.segments, head.flushed_turns, ""
        lacking = set(parse_runs(head.pending, record="head"))
        stored = {slot.seq: slot.revision for slot in draft.pending if slot.seq not in lacking}
        now = {s.seq: s for s in (*self.slots, *self.recent) if isinstance(s, Logged) and s.seq in stored}
        self.revised += [slot for seq, slot in now.items() if slot.revision > stored[seq]]
        self.pending -= stored.keys()
        self.recent = [slot for slot in self.recent if slot.seq == 0 or slot.seq in self.pending]
        unsafe = {self.turn, *(slot.turn for slot in self.recent)}
        self._blocks = {turn: block for turn, block in self._blocks.items() if turn in unsafe}
        self._flushed_number = max(self._flushed_number, draft.writers.get(self.writer, 0))
        if draft.epoch == self.epoch:  # without the hot tier, versions must rise too: they order the copies, and guard the head
            self.version = max(self.version, draft.version)

    def show(self, messages: Sequence[Message]) -> None:
        """Take note of the window that the live agent gets, so that a save before its next capture has it too."""
        if self.keeps_window:
            self.slots = matched(messages, self.slots)

    def rebase(
        self,
        stored: Stored,
        *,
        carried: Sequence[Logged] = (),
        shown: Sequence[Slot] = (),
        continued: Mapping[int, int] = MappingProxyType({}),
        granted: int = 0,
        logged: Collection[Identity] = (),
        seen: Mapping[str, int] = MappingProxyType({}),
        open_elsewhere: Mapping[str, Collection[Identity]] = MappingProxyType({}),
    ) -> None:
        """Put what this process appended onto what someone else has stored: their window, then our whole turns.

        Their evictions and manager state stand; ``state.agent`` and ``meta`` are merged by top-level key, ours last.

        Args:
            stored: What is stored.
            carried: Messages of others that it lacks. They come before our own, and get new numbers, except where they continue
                a turn within the numbers that were set aside for it.
            shown: What a window shows of them.
            continued: Turns among them that ``stored`` has in part, with their numbers there.
            granted: Numbers below this one are taken or set aside there.
            logged: Messages that are in its log for certain.
            seen: Saves of others, beside those of ``stored``, that the result includes.
            open_elsewhere: Carried messages of turns that others have not finished, by writer.

        Raises:
            ConflictError: An interrupt is active on either side; it cannot be merged.
        """
        if _interrupted(self.fields) or _interrupted(stored.fields) or _waits(stored.fields):
            raise ConflictError("someone else saved the conversation while an interrupt was active; the two cannot be merged")
        known = self._known_to(stored)
        slots = [*self.slots, *self.recent, *self._of_turn]
        ours = {id(slot): slot for slot in slots if isinstance(slot, Logged) and slot.order}
        again = {slot.identity for slot in carried}
        ours = {key: slot for key, slot in ours.items() if slot.identity not in again}
        lacking = (slot for slot in ours.values() if slot.number == 0 or slot.number > known)
        mine = sorted((slot for slot in lacking if slot.identity not in logged), key=lambda slot: slot.order)
        # Of a turn that was stored in part, the first part moves to the end of the window too, and the rest keeps its numbers:
        # unless the save that set them aside was refused, or someone else gave the first part other ones.
        split = {slot.turn for slot in mine} | ({self.turn} if self.in_turn else set())
        begun = {slot.identity: slot for slot in ours.values() if slot.turn in split and slot not in mine}
        renamed: dict[int, int] = {}
        moved: list[Logged] = []
        unfinished = set(parse_runs(stored.head.open.get(self.writer, ""), record="head"))
        for there in [slot for slot in stored.slots if isinstance(slot, Logged)]:
            own = begun.get(there.identity)
            if own is not None:
                if there.seq != own.seq:
                    self._blocks.pop(own.turn, None)
                    moved.append(there)
                own.seq, own.revision, own.record, own.fingerprint = there.seq, there.revision, there.record, there.fingerprint
                renamed[own.turn] = there.turn
            elif there.seq in unfinished and there.turn in split:  # our window has it in another form, or not at all
                there.order, there.number = 1, known
                begun[there.identity] = there
        self._blocks = {turn: block for turn, block in self._blocks.items() if known >= block.number}
        kept = [slot for slot in stored.slots if not (isinstance(slot, Logged) and slot.identity in begun)]
        old_turns = sorted({slot.turn for slot in mine} - {slot.turn for slot in begun.values()})
        head = dataclasses.replace(stored.head, open=dict(stored.head.open))
        head.messages += len(mine) + len(carried)
        awaited = set(parse_runs(stored.head.pending, record="head"))
        continued = {**{slot.turn: slot.turn for slot in carried if slot.seq in awaited}, **continued}
        new_turns = sorted({slot.turn for slot in carried} - continued.keys())
        fresh = {**continued, **{turn: head.turns + count for count, turn in enumerate(new_turns, 1)}}
        head.turns += len(new_turns)
        for slot in carried:
            slot.turn, slot.order = fresh[slot.turn], next(self._foreign_orders)
            first = min((s.seq for s in stored.slots if isinstance(s, Logged) and s.turn == slot.turn), default=0)
            is_set_aside = slot.seq in awaited or (first and first < slot.seq < first + _TURN_NUMBERS <= granted)
            slot.seq, slot.number = (slot.seq if is_set_aside else 0), 0
            slot.record = dump({**load(slot.record), "turn": slot.turn})
        renumbered = {turn: head.turns + count for count, turn in enumerate(old_turns, 1)}
        head.turns += len(renumbered)
        numbers = {**renamed, **renumbered}
        self.turn = numbers.get(self.turn, self.turn)
        for slot in mine:
            if slot.turn not in self._blocks:
                slot.seq, slot.number = 0, 0
            if numbers.get(slot.turn, slot.turn) != slot.turn:
                slot.record = dump({**load(slot.record), "turn": numbers[slot.turn]})
        for slot in (*begun.values(), *mine):
            slot.turn = numbers.get(slot.turn, slot.turn)
        self._blocks = {numbers.get(turn, turn): block for turn, block in self._blocks.items() if turn not in renumbered}
        if moved and all(slot.seq in unfinished for slot in moved):  # whoever moved it has set numbers aside for the rest
            first, last = min(slot.seq for slot in moved), max(slot.seq for slot in moved)
            self._blocks[moved[0].turn] = _Block(last + 1, first + _TURN_NUMBERS, known)
        parts = {slot.turn for slot in shown if isinstance(slot, Logged)} & set(continued.values())
        earlier = [slot for slot in kept if isinstance(slot, Logged) and slot.turn in parts]
        kept = [slot for slot in kept if slot not in earlier]
        fields = dict(stored.fields)
        for name in _MERGED_BY_KEY:
            if name in self.fields:
                fields[name] = _merged(self._stored_fields.get(name), self.fields[name], stored.fields.get(name))
        if _ORCHESTRATOR in self.fields:  # a run is one thing; the later one stands
            fields[_ORCHESTRATOR] = self.fields[_ORCHESTRATOR]
        self.pending = set(parse_runs(stored.head.pending, record="head"))
        self.pending |= {slot.seq for slot in (*carried, *mine) if slot.seq}
        # Of what we have beside that only what is stored under the same number is of use.
        there_by_seq = {slot.seq: (slot.identity, slot.revision) for slot in stored.slots if isinstance(slot, Logged)}
        unknown = None if self._renumbered else set(self.pending)
        self.recent = [
            slot
            for slot in self.recent
            if slot not in mine
            and (
                there_by_seq.get(slot.seq) == (slot.identity, slot.revision)
                or (unknown and slot.seq in unknown - there_by_seq.keys())
            )
        ]
        held = {slot.seq: slot for slot in self.recent}  # one object for one message, or it could get two numbers
        kept = [held.get(slot.seq, slot) if isinstance(slot, Logged) else slot for slot in kept]
        earlier = [held.get(slot.seq, slot) for slot in earlier]
        self._renumbered = False
        self.recent += [*carried, *mine]
        self.epoch = stored.epoch + (stored.state == CLOSING)
        self.version = stored.version
        self.writers = {**seen, **{writer: max(n, seen.get(writer, 0)) for writer, n in stored.writers.items()}}
        self.head, self.fields, self._stored_fields = head, fields, dict(stored.fields)
        if self.keeps_window:
            self.slots = [*kept, *earlier, *shown, *sorted(begun.values(), key=lambda slot: slot.seq), *mine]
        self._open_elsewhere = dict(open_elsewhere)
        # What only repeats what is stored would be a conflict for everyone else.
        self.touched = bool(mine or carried or begun) or fields != stored.fields or self.confirmed_number < self.number
        self.stale = True

    def saved_identities(self) -> set[Identity]:
        """Return what a tier has confirmed of the messages that this process appended."""
        ours = [slot for slot in (*self.slots, *self.recent, *self._of_turn) if isinstance(slot, Logged) and slot.order]
        return {slot.identity for slot in ours if 0 < slot.number <= self.confirmed_number}

    def is_known_to(self, stored: Stored) -> bool:
        """Tell whether ``stored`` includes a save of ours."""
        return self._known_to(stored) > 0

    def _known_to(self, stored: Stored) -> int:
        """Return our last save that ``stored`` includes. A writer that its head has forgotten is included since long."""
        is_forgotten = self.writer not in stored.writers and len(stored.writers) >= MOST_WRITERS
        if is_forgotten and (stored.epoch, stored.version) > (self.epoch, self.version):
            return self.confirmed_number
        return stored.writers.get(self.writer, 0)

    def is_doubtful(self, stored: Stored) -> bool:
        """Tell whether a tier had confirmed messages of ours that ``stored`` may lack."""
        known, saved = self._known_to(stored), max(self.confirmed_number, self._flushed_number)
        ours = [slot for slot in (*self.slots, *self.recent) if isinstance(slot, Logged) and slot.order]
        return any(known < slot.number <= saved for slot in ours)

    def resequence(self, *, garbage: Iterable[int], beyond: int, first: int = 0) -> None:
        """Give every message from ``first`` on that the durable tier lacks a new number: others are stored under theirs."""
        loose = {
            id(slot): slot
            for slot in [*self.slots, *self.recent]
            if isinstance(slot, Logged) and slot.seq in self.pending and slot.seq >= first
        }
        for writer, runs in self.head.open.items():
            if writer != self.writer:
                seqs = set(parse_runs(runs, record="head"))
                self._open_elsewhere[writer] = {slot.identity for slot in loose.values() if slot.seq in seqs}
        self._open_elsewhere = {writer: messages for writer, messages in self._open_elsewhere.items() if messages}
        moved = sorted(loose.values(), key=lambda slot: slot.seq)
        rest = [slot for slot in self.recent if slot not in moved]
        self.recent = [*(slot for slot in rest if slot.seq), *moved, *(slot for slot in rest if not slot.seq)]
        for slot in moved:
            slot.seq = 0
            slot.order = slot.order or next(self._foreign_orders)
        self.pending = {seq for seq in self.pending if seq < first}
        self._blocks, self._renumbered = {}, True
        self.head.next = max(self.head.next, beyond)
        self.head.garbage = ",".join(map(str, garbage))
        self.touched = True

    def log_anew(self, *, beyond: int) -> None:
        """Log once more what the window holds of the log, as that of a new life: the durable tier has let go of the old one."""
        self.pending |= {slot.seq for slot in self.slots if isinstance(slot, Logged) and slot.seq}
        self.resequence(garbage=(), beyond=beyond)
        self.head.first = self.head.next

    def forget_unsaved(self) -> None:
        """Leave what is not saved to the process that appended it; in this one's window it is a message of its own."""
        unsaved = {id(slot) for slot in self.recent if slot.number == 0 or slot.number > self.confirmed_number}
        self.pending -= {slot.seq for slot in self.recent if id(slot) in unsaved}
        self.slots = [
            Body(slot.tracking_id, slot.fingerprint, dump({"message": slot.message})) if id(slot) in unsaved else slot
            for slot in self.slots
        ]
        for slot in self.recent:
            slot.order = 0
        for kept in self.slots:
            if isinstance(kept, Logged):
                kept.order = 0
        self.recent, self._of_turn = [], []
        self.confirmed_number = self.number

    def messages(self, live: Sequence[Message] = ()) -> list[Message]:
        """Return the window as messages; the live objects where they are unchanged."""
        objects = {(m.get("tracking_id") or "", fingerprint(m)): m for m in live}
        return [objects.get((slot.tracking_id, slot.fingerprint)) or slot.message for slot in self.slots]

    def cut_ids(self) -> set[str]:
        """Return the ids of messages of turns that were never finished, as far as the head knows."""
        seqs: Collection[int] = {
            seq for writer, runs in self.head.open.items() if writer != self.writer for seq in parse_runs(runs, record="head")
        }
        ids = {identity for messages in self._open_elsewhere.values() for identity in messages}
        return {s.tracking_id for s in self.slots if isinstance(s, Logged) and (s.seq in seqs or s.identity in ids)}


def _interrupted(fields: Mapping[str, bytes]) -> bool:
    return bool("state.interrupts" in fields and load(fields["state.interrupts"]).get("activated"))


def _waits(fields: Mapping[str, bytes]) -> bool:
    return _ORCHESTRATOR in fields and load(fields[_ORCHESTRATOR]).get("status") == "interrupted"


def _merged(before: bytes | None, ours: bytes, theirs: bytes | None) -> bytes:
    """Return the object ``theirs`` with the top-level keys that changed between ``before`` and ``ours``."""
    old, new, merged = load(before or b"{}"), load(ours), load(theirs or b"{}")
    merged |= {key: value for key, value in new.items() if key not in old or old[key] != value}
    return dump({key: value for key, value in merged.items() if key in new or key not in old})
