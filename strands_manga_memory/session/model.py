"""Model: a conversation as this process wants it stored. Pure."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.apart import Apart
from strands_manga_memory.session.rebasing import Carried, Rebase, open_turns, torn_turns
from strands_manga_memory.session.records import Draft, Head, Segment, Stored, forgotten_by, outside, with_save
from strands_manga_memory.session.states import AGENT, META, ORCHESTRATOR, is_interrupted, merged, rebased, run_waits
from strands_manga_memory.session.window import (
    Body,
    Identity,
    Logged,
    Slot,
    body_of,
    distinct,
    fingerprint,
    matched,
    parse_runs,
    runs_text,
    starts_turn,
    tool_use_ids,
)
from strands_manga_memory.stores.codec import dump, load
from strands_manga_memory.stores.hot import CLOSING

_NOTHING = Carried()


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
        self._new_writer()
        self.restart(epoch=1, next_seq=1, now=now)

    def _new_writer(self) -> None:
        """Save under an id of one's own from now on."""
        self.writer, self.number = uuid.uuid4().hex[:12], 0
        self._orders, self._foreign_orders = itertools.count(1), itertools.count(-(10**12))
        self._turn_ids = map(f"{self.writer}.{{}}".format, itertools.count(1))
        self.turn_id, self._ordinal = "", 0

    def restart(self, *, epoch: int, next_seq: int, now: float, buried: int = 0) -> None:
        """Begin a new incarnation: empty window, no states, a log that begins with ``next_seq``."""
        self.epoch, self.version = epoch, 0
        self.writers: dict[str, int] = {}
        self.head = Head(created=now, active=now, next=next_seq, first=next_seq, since=epoch, buried=buried)
        self.slots: list[Slot] = []
        self.fields: dict[str, bytes] = {}
        self._stored_fields: dict[str, bytes] = {}
        self.recent: list[Logged] = []
        self._of_turns: list[Logged] = []
        self._begun_after = 0
        self.pending: set[int] = set()
        self.revised: list[Logged] = []
        self._revisions: dict[Identity, dict[str, Any]] = {}
        self.confirmed_number = self._flushed_number = self.sent_number = self.number
        self.in_turn = False
        self.turn, self.turn_id, self._ordinal = 0, "", 0
        self._open_elsewhere: dict[str, str] = {}
        self._shown_closed: dict[str, str] = {}
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
        self.slots = distinct(stored.slots) if self.keeps_window else []
        self.fields, self._stored_fields, self._live = dict(stored.fields), dict(stored.fields), dict(stored.fields)
        self.pending = set(parse_runs(stored.head.pending, record="head")) if pending else set()
        self.turn = stored.head.turns
        latest = next((slot for slot in reversed(stored.slots) if isinstance(slot, Logged)), None)
        if latest is not None:  # the answer to an interrupt belongs to its turn
            self.turn_id, self._ordinal = latest.of, latest.ordinal

    def append(self, message: Message, *, at: float, extra: Mapping[str, Any] | None = None) -> None:
        """Log a message. ``extra`` goes into its record beside the message, the turn and the time."""
        if starts_turn(message, self._last):
            self.head.turns += 1
            self.turn, self.turn_id, self._ordinal = self.head.turns, next(self._turn_ids), 0
        self._last, self._ordinal = message, self._ordinal + 1
        turn = {"turn": self.turn, "turn_id": self.turn_id, "ordinal": self._ordinal}
        slot = Logged(
            message.get("tracking_id") or "",
            fingerprint(message),
            dump({"message": message, **turn, "at": at, **(extra or {})}),
            self.turn,
            at,
            order=next(self._orders),
            turn_id=self.turn_id,
            ordinal=self._ordinal,
        )
        self.recent.append(slot)
        self._of_turns.append(slot)
        if self.keeps_window:
            self.slots.append(slot)
        self.head.messages += 1
        self.touched = True

    def begin_turn(self) -> None:
        """Take note that a turn begins: what is appended until the next one belongs to it."""
        self.in_turn, self._begun_after = True, max((slot.order for slot in self._of_turns), default=0)

    @property
    def _is_going_on(self) -> bool:
        """Whether more of the turn is to come: if it has ended, the results of a tool call that nobody has answered."""
        return self.in_turn or (self._last is not None and bool(tool_use_ids(self._last)))

    def knows(self, tracking_id: str) -> int:
        """Return how many messages of this id the window has; the turn, if there is no window."""
        of_turn = [slot for slot in self._of_turns if slot.order > self._begun_after]
        return sum(slot.tracking_id == tracking_id for slot in (self.slots if self.keeps_window else of_turn))

    def revise(self, message: Message, *, at: float, every: bool = False) -> Logged | None:
        """Put ``message`` in place of the latest one with its id, or of every one; return its slot, or None if there is none.

        Slots are replaced, not changed: a save that is under way must not mistake the new one for what it is storing.
        """
        same = message.get("tracking_id") or ""
        for body in [slot for slot in self.slots if isinstance(slot, Body) and slot.tracking_id == same]:
            self._swap(body, body_of(message, edits=body))
        logged = {
            id(slot): slot
            for slot in (*self.slots, *self.recent, *self._of_turns)
            if isinstance(slot, Logged) and slot.tracking_id == same
        }
        revised: Logged | None = None
        for slot in sorted(logged.values(), key=lambda slot: (slot.order, slot.seq))[0 if every else -1 :]:
            revision = {"message": message, "revision": slot.revision + 1, "revised": at}
            self._revisions[slot.identity] = copy.deepcopy(revision)
            revised = self._revised(slot, revision)
        return revised

    def _revised(self, slot: Logged, revision: Mapping[str, Any]) -> Logged:
        mark, number = fingerprint(revision["message"]), revision["revision"]
        record = dump({**load(slot.record), **revision})
        revised = dataclasses.replace(slot, record=record, fingerprint=mark, revision=number)
        self._swap(slot, revised)
        # What the hot tier's copy awaits may be flushed all the same, and soon be out of the window.
        is_to_flush = revised.seq in self.pending and revised in self.recent
        if revised.seq and not is_to_flush and revised not in self.revised:
            self.revised.append(revised)
        return revised

    def _revise_again(self, *, edited: Collection[int]) -> None:
        """Revise what we have revised once more where a copy that was merged brought it back as it had been.

        Args:
            edited: Fingerprints of the edited forms that our window had; what others made of a message is of the original.
        """
        for identity, revision in self._revisions.items():
            held = {id(slot): slot for slot in (*self._logged(), *self._of_turns, *self.revised) if slot.identity == identity}
            earlier = [slot for slot in held.values() if slot.revision < revision["revision"]]
            for slot in earlier:
                self._revised(slot, revision)
            message = revision["message"]
            bodies = [slot for slot in self.slots if isinstance(slot, Body) and slot.tracking_id == identity[0]]
            for body in [slot for slot in bodies if earlier or slot.fingerprint not in edited]:
                self._swap(body, body_of(message, edits=body))
                self.touched = True

    def _swap(self, old: Slot, new: Slot) -> None:
        self.slots = [new if slot is old else slot for slot in self.slots]
        if isinstance(new, Logged):
            self.recent = [new if slot is old else slot for slot in self.recent]
            self._of_turns = [new if slot is old else slot for slot in self._of_turns]
            self.revised = [new if slot is old else slot for slot in self.revised]
        self.touched = True

    def capture(self, messages: Sequence[Message], fields: Mapping[str, bytes], *, in_turn: bool) -> None:
        """Take the window and the states from a live agent, unless someone else's are waiting to be taken over by it."""
        if in_turn != self.in_turn:
            self.in_turn, self.touched = in_turn, True
        changed = dict(fields)
        if self.stale:
            changed = {name: data for name, data in fields.items() if name == ORCHESTRATOR}
            if AGENT in fields:
                changed[AGENT] = merged(fields[AGENT], before=self._live.get(AGENT), theirs=self.fields.get(AGENT))
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
        return dict(load(self.fields.get(META, b"{}")))

    def set_meta(self, changed: Mapping[str, Any]) -> None:
        """Set some of the metadata."""
        self.fields = {**self.fields, META: dump({**self.meta, **changed})}
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

    @property
    def is_behind(self) -> bool:
        """Whether there is something that the durable tier has not confirmed."""
        return self.touched or self.number > self._flushed_number or bool(self.revised or self.pending)

    def draft(self, *, now: float, ttl: float, durable: bool) -> Draft:
        """Return what is to be stored now; the same save number again if nothing changed since the last time."""
        if self.touched or self.number == 0:
            self.number += 1
            self.touched = False
            self.head.active = now
        self._place(durable=durable)
        before, self.writers = self.writers, with_save(self.writers, self.writer, self.number)
        forgotten = forgotten_by(self.version + 1, before=before, after=self.writers)
        self.head.forgotten = max(self.head.forgotten, forgotten)
        self._shown_closed = {}
        self._note_open_turns()
        self.head.pending = runs_text(sorted(self.pending))
        self.head.revised = runs_text(sorted(self._revised_pending()))
        return self._draft(version=self.version + 1, ttl=ttl, durable=durable)

    def _revised_pending(self) -> set[int]:
        revisions = {slot.seq: slot.revision for slot in self._logged() if slot.seq in self.pending}
        elsewhere = self.pending.intersection(parse_runs(self.head.revised, record="head")) - revisions.keys()
        return elsewhere | {seq for seq, revision in revisions.items() if revision}

    def _note_open_turns(self) -> None:
        """Enter into the head which turns are not finished: ours, and those of others that we carry."""
        self.head.open.pop(self.writer, None)
        if not (self._is_going_on or self._open_elsewhere):
            return
        logged = self._logged()
        for writer in set(self._open_elsewhere.values()):
            if seqs := {slot.seq for slot in logged if self._open_elsewhere.get(slot.of) == writer}:
                self.head.open[writer] = runs_text(sorted(seqs))
        turn = {slot.seq for slot in logged if slot.order > 0 and slot.of == self.turn_id} if self._is_going_on else set()
        if turn:
            self.head.open[self.writer] = runs_text(sorted(turn))

    def _open_turns(self, *, since: Mapping[str, int]) -> dict[str, str]:
        """Return the unfinished turns of others, and whose they are, as far as nobody ``since`` has saved more of his."""
        noted = open_turns(self.head, self._logged(), writers=self.writers, since=since)
        known = {turn: w for turn, w in self._open_elsewhere.items() if self.writers.get(w, 0) >= since.get(w, 0)}
        return {turn: w for turn, w in (known | noted).items() if w != self.writer}

    def close_open_turns(self) -> None:
        """Take unfinished turns of others for ended, but for those that may still be given other numbers."""
        pending = self.pending
        still = {w: runs for w, runs in self.head.open.items() if pending & set(parse_runs(runs, record="head"))}
        self._shown_closed = {w: runs for w, runs in self.head.open.items() if w not in still}
        self._open_elsewhere = {turn: w for turn, w in self._open_elsewhere.items() if w not in self._shown_closed}
        self.head.open = still

    def as_stored(self) -> Draft:
        """Return what a tier has, just as it is: nobody's save, without what is only shown here."""
        draft = self._draft(version=self.version, ttl=0.0, durable=True)
        draft.head.open.update(self._shown_closed)  # what closes those turns is only shown, so they are not closed there
        return dataclasses.replace(draft, slots=tuple(s for s in draft.slots if isinstance(s, Logged) or s.number))

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
        for slot in (slot for slot in self.recent if slot.seq == 0):
            slot.seq, self.head.next = self.head.next, self.head.next + 1
            slot.had = (*slot.had, slot.seq)
            if durable:
                self.pending.add(slot.seq)
        for slot in (slot for slot in self.recent if slot.order and not slot.number):
            slot.number = self.number
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
            # What was appended while the draft was on its way has no number yet.
            self.recent = [
                slot
                for slot in self.recent
                if slot.number > self.confirmed_number or (slot.order and not slot.number) or id(slot) in window
            ]
            self._keep_turns()

    def flushed(self, draft: Draft, head: Head) -> None:
        """Take note that the durable tier has stored ``draft``, with ``head``."""
        self.head.segments, self.head.flushed_turns, self.head.garbage = head.segments, head.flushed_turns, ""
        lacking = set(parse_runs(head.pending, record="head"))
        stored = {slot.seq: slot.revision for slot in draft.pending if slot.seq not in lacking}
        now = {s.seq: s for s in (*self.slots, *self.recent) if isinstance(s, Logged) and s.seq in stored}
        self.revised += [slot for seq, slot in now.items() if slot.revision > stored[seq]]
        self.pending -= stored.keys()
        self.recent = [slot for slot in self.recent if slot.seq == 0 or slot.seq in self.pending]
        self._keep_turns()
        self._flushed_number = max(self._flushed_number, draft.writers.get(self.writer, 0))
        if draft.epoch == self.epoch:  # without the hot tier, versions must rise too: they order the copies, and guard the head
            self.version = max(self.version, draft.version)

    def has_flushed(self, head: Head, committed: Iterable[Segment]) -> None:
        """Take note that the durable tier had ``head`` and the log ``committed`` when this copy went on from there.

        What was revised since is still to come there. Turns that others have not finished stay as they are: those may still
        be given other numbers.
        """
        self.head.flushed_turns = max(self.head.flushed_turns, head.flushed_turns)
        stays = {seq for runs in (self.head.revised, *self.head.open.values()) for seq in parse_runs(runs, record="head")}
        self.pending = {*outside(self.pending, committed), *(self.pending & stays)}

    def _keep_turns(self) -> None:
        """Forget turns that are stored as a whole: nothing of them can ever be stored anew."""
        turns = {self.turn_id, *(slot.of for slot in self.recent)}
        self._of_turns = [slot for slot in self._of_turns if slot.of in turns]

    def show(self, messages: Sequence[Message]) -> None:
        """Take note of the window that the live agent gets, so that a save before its next capture has it too."""
        if self.keeps_window:
            self.slots = matched(messages, self.slots)

    def rebase(self, stored: Stored, *, carried: Carried = _NOTHING, logged: Mapping[Identity, Logged] | None = None) -> None:
        """Put what this process appended onto what someone else has stored: their window, then our whole turns.

        Their evictions and manager state stand; ``state.agent`` and ``meta`` are merged by top-level key, ours last.

        Args:
            stored: What is stored.
            carried: What others have saved that it lacks; it comes before our own.
            logged: Messages that are in its log for certain, as they are there; None if nobody has looked.

        Raises:
            ConflictError: An interrupt is active on either side; it cannot be merged.
        """
        if is_interrupted(self.fields) or is_interrupted(stored.fields) or run_waits(stored.fields):
            raise ConflictError("someone else saved the conversation while an interrupt was active; the two cannot be merged")
        unfinished = self._open_turns(since=stored.writers)
        edited = {slot.fingerprint for slot in self.slots if isinstance(slot, Body)}
        rebase = Rebase(stored, known=self._known_to(stored), carried=carried, renumbered=self._renumbered)
        rebase.sort_out(
            self._appended(),
            logged=logged,
            open_turn=self.turn_id if self._is_going_on else None,
            unflushed=[slot for slot in self.recent if slot.seq == 0 or slot.seq in self.pending],
        )
        for slot in carried.messages:
            slot.order = next(self._foreign_orders)
        still_of_use = rebase.still_of_use(self.recent)
        # What has been flushed of what we have revised may be as it was before, and by another number.
        kept = {slot.identity for slot in (*still_of_use, *carried.messages, *rebase.mine)}
        gone = [slot for slot in self.recent if slot.identity in self._revisions and slot.identity not in kept]
        self.revised += [slot for slot in gone if slot.seq == 0 or slot.seq in self.pending]
        self.recent = [*still_of_use, *carried.messages, *rebase.mine]
        if self.keeps_window:
            self.slots = rebase.window(still_of_use, before=self.slots)
        self.turn = rebase.turns.get(self.turn_id, self.turn)
        self.pending, self.head, self._renumbered = rebase.pending, rebase.head, False
        self.fields = rebased(self.fields, before=self._stored_fields, theirs=stored.fields)
        self._stored_fields = dict(stored.fields)
        self.epoch, self.version = stored.epoch + (stored.state == CLOSING), stored.version
        seen = carried.seen
        self.writers = {**seen, **{writer: max(number, seen.get(writer, 0)) for writer, number in stored.writers.items()}}
        open_elsewhere = {**unfinished, **carried.open_turns}
        if open_elsewhere:  # they replace what the head says of their writers, which may be more
            open_elsewhere |= open_turns(stored.head, self._logged(), writers=stored.writers, since={})
        self._open_elsewhere = {turn: w for turn, w in open_elsewhere.items() if w != self.writer}
        # What only repeats what is stored would be a conflict for everyone else.
        has_news = bool(rebase.mine or carried.messages or rebase.begun) or self.fields != stored.fields
        self.touched = has_news or self.confirmed_number < self.number
        self.stale = True
        self._revise_again(edited=edited)

    def _logged(self) -> list[Logged]:
        """Return the messages of the log that are at hand; some twice."""
        return [slot for slot in (*self.slots, *self.recent) if isinstance(slot, Logged)]

    def _appended(self) -> list[Logged]:
        """Return the messages at hand that this process has to store, each once."""
        return list({id(slot): slot for slot in (*self._logged(), *self._of_turns) if slot.order}.values())

    def apart(self) -> Apart:
        """Return what is known here of the messages of others that the durable tier may lack."""
        known = self._logged()
        loose = {slot.identity: slot for slot in known if not slot.order and slot.seq in self.pending}
        return Apart(loose=loose, known=known, window=list(self.slots), head=self.head, writers=self.writers)

    def leave_saved(self, *, until: float) -> None:
        """Leave turns that a tier has confirmed to the incarnation that ended ``until`` the next one began.

        The hot tier may have confirmed as a part of the old one what was said when the durable one had the next one already.
        """
        ours = [slot for slot in self.recent if slot.order > 0]
        turns = {slot.of for slot in self.unsaved_slots()} | ({self.turn_id} if self._is_going_on else set())
        turns |= {slot.of for slot in ours if slot.seq in self.pending and slot.at > until}
        self.slots, self.recent = [], [slot for slot in ours if slot.of in turns]
        self._of_turns = [slot for slot in self._of_turns if slot in self.recent]

    def is_known_to(self, stored: Stored) -> bool:
        """Tell whether ``stored`` includes a save of ours."""
        return self._known_to(stored) > 0

    def _known_to(self, stored: Stored) -> int:
        """Return our last save that ``stored`` includes for certain: its head may have forgotten us, or never have known."""
        return stored.writers.get(self.writer, 0)

    def is_beyond(self, stored: Stored) -> bool:
        """Tell whether a later copy than ``stored`` is known."""
        return (stored.epoch, stored.version) < (self.epoch, self.version)

    def doubtful(self, stored: Stored) -> list[Logged]:
        """Return messages of ours that a tier had, or may have had, and that ``stored`` may lack."""
        known, saved = self._known_to(stored), max(self.confirmed_number, self._flushed_number, self.sent_number)
        return [slot for slot in self._appended() if known < slot.number <= saved]

    def has_moved_in(self, stored: Stored) -> bool:
        """Tell whether our unfinished turn, or what is not flushed of ours, may have other numbers there than we gave it."""
        known, awaited = self._known_to(stored), parse_runs(stored.head.pending, record="head")
        unfinished = parse_runs(stored.head.open.get(self.writer, ""), record="head")
        if not {slot.seq for slot in self._appended() if 0 < slot.number <= known}.issuperset(unfinished):
            return True
        ours = {slot.seq for slot in self.recent if slot.order and 0 < slot.number <= known} & self.pending
        return bool(outside(ours.difference(awaited), Segment.parse(stored.head.segments, record="head")))

    def resequence(self, *, garbage: Iterable[int], beyond: int, first: int = 0) -> None:
        """Give every message from ``first`` on that the durable tier lacks a new number: others are stored under theirs."""
        loose = {
            id(slot): slot
            for slot in [*self.slots, *self.recent]
            if isinstance(slot, Logged) and slot.seq in self.pending and slot.seq >= first
        }
        self._open_elsewhere = self._open_turns(since=self.writers)
        moved = sorted(loose.values(), key=lambda slot: slot.seq)
        rest = [slot for slot in self.recent if slot not in moved]
        self.recent = [*(slot for slot in rest if slot.seq), *moved, *(slot for slot in rest if not slot.seq)]
        for slot in moved:
            slot.seq = 0
            slot.order = slot.order or next(self._foreign_orders)
        self.pending = {seq for seq in self.pending if seq < first}
        self._renumbered = True
        self.head.next = max(self.head.next, beyond)
        self.head.garbage = ",".join(map(str, garbage))
        self.touched = True

    def lacks(self, held: Collection[int]) -> set[int]:
        """Return the numbers of messages for the durable tier that neither we have nor who ``held`` others."""
        return self.pending - {slot.seq for slot in self._logged()} - set(held)

    def let_go(self, *, held: Collection[int], writers: Mapping[str, int]) -> None:
        """Give up messages for the durable tier that neither we nor the hot tier have, and the claim to include their saves.

        Args:
            held: Numbers that the hot tier holds.
            writers: Saves that are included all the same.
        """
        missing = self.lacks(held)
        if missing:
            self.pending -= missing
            ours = {writer: number for writer, number in self.writers.items() if writer == self.writer}
            self.writers, self.head.forgotten = {**writers, **ours}, 0
            self.close_torn_turns()

    def close_torn_turns(self) -> None:
        """Close turns of others of which the window lacks something that may be lost: the live agent gets to see that."""
        torn = {turn: writer for turn, writer in torn_turns(self.slots).items() if writer != self.writer}
        self.stale = self.stale or not torn.keys() <= self._open_elsewhere.keys()
        self._open_elsewhere |= torn

    def log_anew(self, *, beyond: int) -> None:
        """Log once more what the window holds of the log, as that of a new life: the durable tier has let go of the old one."""
        self.pending |= {slot.seq for slot in self.slots if isinstance(slot, Logged) and slot.seq}
        self.resequence(garbage=(), beyond=beyond)
        self.head.first = self.head.next

    def become_another_writer(self) -> None:
        """Leave what is not saved to the process that appended it; in this one's window it is a message of its own."""
        if self.writer in self.writers:  # a save that nobody has confirmed is none that the next one is made on top of
            self.writers[self.writer] = self.confirmed_number
        unsaved = {id(slot) for slot in self.recent if slot.number == 0 or slot.number > self.confirmed_number}
        self.pending -= {slot.seq for slot in self.recent if id(slot) in unsaved}
        self.slots = [body_of(slot.message, edits=slot) if id(slot) in unsaved else slot for slot in self.slots]
        for slot in self.recent:
            slot.order = 0
        for kept in self.slots:
            if isinstance(kept, Logged):
                kept.order = 0
        self.recent, self._of_turns = [], []
        self._new_writer()
        self.confirmed_number = self._flushed_number = self.sent_number = self.number

    def messages(self, live: Sequence[Message] = ()) -> list[Message]:
        """Return the window as messages; the live objects where they are unchanged."""
        objects = {(m.get("tracking_id") or "", fingerprint(m)): m for m in live}
        return [objects.get((slot.tracking_id, slot.fingerprint)) or slot.message for slot in self.slots]

    def cut_ids(self) -> set[str]:
        """Return the ids of messages of turns that were never finished, as far as the head knows."""
        unfinished = {writer: runs for writer, runs in self.head.open.items() if writer != self.writer}
        seqs = {seq for runs in unfinished.values() for seq in parse_runs(runs, record="head")}
        turns = {s.of for s in self.slots if isinstance(s, Logged) and s.seq in seqs} | self._open_elsewhere.keys()
        if unfinished:  # the window may show such a turn in another form alone, without the numbers by which the head knows it
            turns |= {turn for turn, writer in torn_turns(self.slots).items() if writer in unfinished}
        return {slot.tracking_id for slot in self.slots if slot.of in turns}
