"""One process's copy of a conversation, with the changes that are not saved yet. No I/O."""

from __future__ import annotations

import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from strands_manga_memory.session.protocol.record import (
    CLOSED,
    CONTINUES,
    Entry,
    Record,
    Replacement,
    Slot,
    Turn,
    TurnKey,
    Version,
    Window,
    grown_slots,
    insert_slots,
    join,
    latest_replacements,
    missing_turns,
    place_slots,
)

_OUTDATED = b""
"""``body`` of a slot of an agent's history whose message was redacted, while the agent may still
have the original.
"""

MergeCheck = Callable[[Mapping[str, Any], Record, bool], None]
"""Type of a function that may prevent a merge by an error. See ``LocalCopy``."""

MOST_EVICTED = 256
"""Maximum number of remembered turns whose messages have left the agent's history."""


class LocalCopy:
    """One process's copy of a conversation, with the changes that no store has confirmed.

    The object is thread-safe. ``lock`` guards the fields, and is never held during I/O. A record is
    the state of the conversation as a tier has it. An incarnation is one run of the conversation,
    until a deletion, expiry or rewind.

    Args:
        clock: Returns the time in seconds since 1970.
        hash_is_log: Whether the hot tier keeps the log of all turns, because there is no durable
            tier.
        ids: Unescaped ids of session, user, tenant and member (agent or orchestrator). They are
            stored with the first change.
        check_merge: Called before another writer's changes are merged with unsaved changes of this
            process. It gets this process's state values by name, the other writer's record, and
            whether unsaved turns exist. It may raise an error.

    Attributes:
        base: State of the conversation, merged from all records that this process has read and
            written.
        view: The history that the agent has now, as references to messages.
        window: The history that the next save stores, as references. It also has other writers'
            turns that ``view`` lacks.
        own: Turns of this process: the open turn, and turns that no store has confirmed in full.
        has_news: Whether ``window`` differs from ``view`` because of other writers.
        is_overruled: Whether ``window`` replaces ``view`` at the next turn, and the agent's edits
            of its history are discarded.
        dropped: Number of messages that were discarded because the conversation was deleted before
            they were saved.
        hot_copy: The last known record of the hot tier.
        head_copy: The last known record of the durable tier.
        answered_at: Time when a store last answered, in seconds since 1970; None if no store has
            answered.
        is_loaded: Whether both tiers were read when the agent got its history.
        resets: Number of times that the conversation was deleted or expired.
        evicted: The latest turns whose messages left the agent's history. The messages may return
            to the history.
        has_met_others: Whether this process has read a record that another process wrote.
        first_incarnation: Number of the incarnation to begin if no tier has a record.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        hash_is_log: bool = False,
        ids: Mapping[str, str] | None = None,
        check_merge: MergeCheck | None = None,
    ) -> None:
        self._clock, self.hash_is_log, self._ids, self._check_merge = (
            clock,
            hash_is_log,
            dict(ids or {}),
            check_merge,
        )
        self.lock = new_lock()
        self.base = Record()
        self.view: Window = ()
        self.window: Window = ()
        self.own: dict[TurnKey, Turn] = {}
        self.has_news = self.is_overruled = self.is_loaded = self.has_met_others = False
        self.dropped = self.resets = self._lamport_time = 0
        self._tag = secrets.token_hex(
            4
        )  # one for all turns, because lists of equal tags are compressed well
        self.evicted: dict[TurnKey, Turn] = {}
        # A hot tier alone keeps no tombstone for long, so its incarnations are numbered by the time
        # of their beginning.
        self.first_incarnation = self.next_incarnation() if hash_is_log else 1
        self.hot_copy: Record | None = None
        self.head_copy: Record | None = None
        self.answered_at: float | None = None
        self._open: TurnKey | None = None
        self._drafted: dict[TurnKey, int] = {}
        self._offers: Counter[TurnKey] = Counter()
        self._renamed: dict[TurnKey, TurnKey] = {}
        self._own_tags: deque[str] = deque(maxlen=64)
        self._skips_rest = False
        self._changes: dict[str, Any] = {}
        self._notes: Any = None

    # The agent's side

    def begin_turn(self) -> None:
        """End the open turn, and let the next message begin a new turn, even if a deletion
        interrupted the open turn.
        """
        with self.lock:
            self.end_turn()
            self._skips_rest = False

    @property
    def has_open_turn(self) -> bool:
        """Whether the next message belongs to a turn that has already begun."""
        return self._open is not None or self._skips_rest

    def append(
        self, message: Any, *, at: float | None = None, about: Mapping[str, Any] | None = None
    ) -> Slot | None:
        """Add a message to the open turn. Without an open turn, begin a new turn.

        Args:
            message: The message.
            at: Time of the message, in seconds since 1970. Default: now.
            about: Further values of a new turn, such as its intent.

        Returns:
            Reference to the message; None if it was discarded, because the conversation was deleted
            during the turn.
        """
        with self.lock:
            if self._skips_rest:  # the turn's beginning was deleted
                self.dropped += 1
                return None
            if self._open is None:
                self._open = self._next_key()
                self.own[self._open] = Turn(is_open=True, about=dict(about or {}))
            if self._changes.get(CLOSED, self.base.is_closed):
                self._changes[CLOSED] = False
            turn = self.own[self._open]
            times = (*turn.times, self._clock() if at is None else at)
            self.own[self._open] = replace(turn, messages=(*turn.messages, message), times=times)
            slot = Slot(self._open, len(turn.messages))
            self.view = (*self.view, slot)
            # A turn that a rewind removed, and that goes on, comes back as a whole.
            first = 0 if slot.number <= self.base.removed.get(self._open, 0) else slot.number
            self.window = insert_slots(
                self.window, [Slot(self._open, at) for at in range(first, slot.number + 1)]
            )
            return slot

    def revise(self, key: TurnKey, number: int, message: Any) -> None:
        """Replace the message with index ``number`` of a turn.
        The next save also replaces it in a store that has it.
        """
        with self.lock:
            key = self.current_key(key)
            turn = self.own.get(key)
            if turn is None or number < self._drafted.get(key, 0):
                self.redact(key, {number: message})
                return
            self.own[key] = replace(
                turn, messages=(*turn.messages[:number], message, *turn.messages[number + 1 :])
            )

    def end_turn(self) -> None:
        """End the open turn.
        The next message begins a new turn, unless a deletion interrupted the open turn.
        """
        with self.lock:
            if self._open is not None:
                self.own[self._open] = replace(self.own[self._open], is_open=False)
                self._open = None

    def set_view(self, view: Sequence[Slot]) -> None:
        """Set the agent's present history, given as references.
        Messages may have been removed, edited or added.
        """
        with self.lock:
            shown = kept = self.base.without_redacted_bodies(view)
            if kept != tuple(view):  # the agent may still have the originals of redacted messages
                edited = {slot[:2] for slot in {*view} - {*kept} if slot.body}
                outdated = edited - {slot[:2] for slot in self.view if slot.body != _OUTDATED}
                shown = tuple(
                    slot._replace(body=_OUTDATED) if slot[:2] in outdated else slot for slot in kept
                )
            if shown == self.view:
                return
            before, self.view = {slot[:2] for slot in self.view}, shown
            turns, left = {**self.base.turns, **self.own}, before - {slot[:2] for slot in view}
            self.keep_evicted(
                {key: turns[key] for key in sorted(turns.keys() & {key for key, _ in left})}
            )
            if self.is_overruled:  # the agent's history is replaced at its next turn
                return
            self.window = place_slots(kept, grown_slots(kept, self.window, before), self.window)
            self.has_news = self.window != self.view

    def keep_evicted(self, turns: Mapping[TurnKey, Turn]) -> None:
        """Keep turns in memory, because their messages may return to the agent's history.
        Old turns are discarded.
        """
        with self.lock:
            kept = {
                **{key: turn for key, turn in self.evicted.items() if key not in turns},
                **turns,
            }
            self.evicted = dict(list(kept.items())[-MOST_EVICTED:])

    @property
    def held_turns(self) -> dict[TurnKey, Turn]:
        """All turns in this process's memory, including unsaved turns and turns that have left the
        agent's history.
        """
        with self.lock:
            redactions = self.base.redactions
            evicted = {
                key: turn.redact(redactions.get(key, {})) for key, turn in self.evicted.items()
            }
            return {**evicted, **self.base.turns, **self.own}

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Set named state values of the conversation. Other values do not change."""
        with self.lock:
            self._changes |= states
            self._drop_saved()

    def set_notes(self, notes: Any) -> None:
        """Set the state of the conversation manager."""
        with self.lock:
            self._notes = notes

    @property
    def states(self) -> dict[str, Any]:
        """State values of the conversation, keyed by name."""
        with self.lock:
            return {name: entry.value for name, entry in self.base.states.items()} | self._changes

    @property
    def notes(self) -> Any:
        """State of the conversation manager."""
        with self.lock:
            return self.base.notes if self._notes is None or self.is_overruled else self._notes

    def adopt_window(self) -> Window:
        """Apply other writers' changes to the agent's history.
        Return the new history, as references to messages.
        """
        with self.lock:
            self._notes = None if self.is_overruled else self._notes
            self.view, self.has_news, self.is_overruled = self.window, False, False
            return self.view

    def message(self, slot: Slot) -> Any:
        """Return the serialized message to which a reference points.
        None if the message is not in memory.
        """
        if slot.body:
            return slot.body
        turn = self._turn_with(slot)
        return None if turn is None else turn.messages[slot.number]

    def time(self, slot: Slot) -> float | None:
        """Return when a message was added, in seconds since 1970.
        None if the message is not in memory.
        """
        turn = self._turn_with(slot)
        return None if turn is None else turn.times[slot.number]

    def _turn_with(self, slot: Slot) -> Turn | None:
        if slot.key is None:
            return None
        with self.lock:
            for turns in (self.own, self.base.turns, self.evicted):
                turn = turns.get(slot.key)
                if turn is not None and slot.number < len(turn.messages):
                    return turn.redact(self.base.redactions.get(slot.key, {}))
            return None

    def redact(self, key: TurnKey, messages: Mapping[int, Any]) -> None:
        """Replace messages of a turn, and store the replacements with the next save.

        Args:
            key: Key of the turn.
            messages: The new messages, keyed by index in the turn.
        """
        with self.lock:
            key = self.current_key(key)
            known = self.base.redactions.get(key, {})
            new = {
                at: Replacement(known[at].revision + 1 if at in known else 1, found)
                for at, found in messages.items()
            }
            if key in self.own:
                self.own[key] = self.own[key].redact(new)
            before = self.base.redactions
            self.base = replace(
                self.base, redactions={**before, key: latest_replacements(new, known)}
            ).normalize()
            self.window = self.base.without_redacted_bodies(self.window)
            self._note_redactions(before)

    @property
    def turn_count(self) -> int:
        """Number of turns of the conversation so far, including unsaved turns."""
        with self.lock:
            return self.base.turn_count + self._count_unsaved()[0]

    @property
    def message_count(self) -> int:
        """Number of messages of the conversation so far, including unsaved messages."""
        with self.lock:
            return self.base.message_count + self._count_unsaved()[1]

    @property
    def unsaved_messages(self) -> int:
        """Number of messages of the conversation that no store has confirmed."""
        with self.lock:
            return self._count_unsaved()[1]

    def _count_unsaved(self) -> tuple[int, int]:
        """Return the number of turns and the number of messages of the conversation that no store
        has confirmed.
        """
        turns = messages = 0
        for key, turn in self.unsaved().items():
            counted = self.base.counted_length(key)
            turns += not counted and not turn.about.get(CONTINUES)
            messages += len(turn.messages) - counted
        return turns, messages

    @property
    def is_dirty(self) -> bool:
        """Whether the conversation has a change in this process that no store has confirmed."""
        with self.lock:
            if self.has_work():
                return True
            for copy in (self.hot_copy, self.head_copy):
                if (
                    copy is not None
                    and copy.version == self.base.version
                    and copy.has_content_of(self.base)
                ):
                    return False
            return self.base.incarnation > 0

    # The stores' side

    def draft(self) -> Record:
        """Return the state of the conversation for the next save: the stored states that were read,
        and unsaved changes.
        """
        with self.lock:
            base = self.base
            if not self.is_dirty:
                return base
            version, own = self.next_version(), self.unsaved()
            new_turns, new_messages = self._count_unsaved()
            turns, seen, unlogged = (
                {**self.evicted, **base.turns},
                dict(base.seen),
                dict(base.unlogged),
            )
            self._drafted = {
                key: length for key, length in self._drafted.items() if key in self.own
            }
            for key, turn in own.items():
                turns[key] = turn.merge(base.turns.get(key, turn))
                seen[key] = self._drafted[key] = len(turn.messages)
                unlogged[key] = base.logged_length(key)
            used = bool(own or self._changes.keys() - {CLOSED} or self.window != base.window)
            return replace(
                base,
                version=version,
                incarnation=base.incarnation or self.first_incarnation,
                window=self.window,
                notes=self.notes,
                seen=seen,
                states={
                    **base.states,
                    **{name: Entry(version, value) for name, value in self._changes.items()},
                },
                turns=turns,
                unlogged=unlogged,
                last_used=self._clock() if used else base.last_used,
                created=base.created or self._clock(),
                turn_count=base.turn_count + new_turns,
                message_count=base.message_count + new_messages,
                ids=base.ids or self._ids,
            ).normalize()

    def note_offer(self, record: Record) -> bool:
        """Make the keys of unsaved turns in a record (state of the conversation) final, before a
        tier gets the record.

        Until then, an unsaved turn gets a new key if a turn with a higher key is read from a tier.

        Returns:
            False if a key has changed since the record was made. Then the record must not be sent.
        """
        with self.lock:
            if not self._renamed.keys().isdisjoint(record.turns):
                return False
            self._offers.update(self.own.keys() & record.turns.keys())
            return True

    def note_refusal(self, record: Record) -> None:
        """Let the keys of unsaved turns in a record change again, because a tier has refused the
        record.
        """
        with self.lock:
            self._offers.subtract(self._offers.keys() & record.turns.keys())

    def current_key(self, key: TurnKey) -> TurnKey:
        """Return the present key of a turn.
        An unsaved turn may get a new key when other writers' turns are read.
        """
        while key in self._renamed:
            key = self._renamed[key]
        return key

    def take_in(self, found: Record | None, logged: Mapping[TurnKey, int]) -> None:
        """Merge a record (state of the conversation) that was read from a tier with this process's
        copy.

        Args:
            found: The record; None if the tier has none.
            logged: Message counts in the log of turns that are too old for the newer record's list
                ``seen`` of known turns.
        """
        with self.lock:
            if self.answered_at is None or found is not None:
                self.answered_at = self._clock()
            if found is None:
                return
            self._next_time(found)
            self.has_met_others = self.has_met_others or bool(
                found.incarnation and found.version.tag not in self._own_tags
            )
            before, joined = self.base, join(found, self.base, logged)
            if self._check_merge is not None and self._is_foreign_change(found, joined):
                self._check_merge(self.states, found, bool(self.unsaved()))
            for key in logged.keys() - {self._open}:
                self.own.pop(key, None)
            self.base = joined
            self._drop_saved()
            if before.incarnation < self.base.incarnation:
                self._note_new_incarnation(before)
            self._note_redactions(before.redactions)
            self._rename_late_turns()
            self._rebase(before.window, before.incarnation)

    def note_stored(self, record: Record) -> None:
        """Merge a record that a tier has stored with this process's copy.
        Changes that the record lacks stay unsaved.
        """
        with self.lock:
            self.answered_at = self._clock()
            before = self.base
            self.base = join(record, before)  # redactions and reads since the draft stay
            self._drop_saved()
            is_newest = (record.incarnation, record.version) >= (before.incarnation, before.version)
            # While a flush stores an earlier draft, a save may end. The agent then edits the
            # history of that save.
            self._rebase(record.window if is_newest else before.window, record.incarnation)

    def note_head(self, head: Record | None) -> None:
        """Remember the durable tier's record ``head`` (None if missing), and update the list of
        turns missing in the log.
        """
        with self.lock:
            self.head_copy = head
            self.base = replace(self.base, unlogged=missing_turns(self.base, head))

    @property
    def unproven(self) -> dict[TurnKey, int]:
        """Turns of the agent's history that may have lost messages, with the number of messages
        that each turn still has.

        A message is not lost if this process has it in memory, or if the durable tier's record of
        the conversation lists it.
        """
        with self.lock:
            base, head = self.base, self.head_copy
            listed = head.seen if head is not None and head.incarnation == base.incarnation else {}
            unproven = {}
            for key in base.lacking - self.own.keys():
                known = max(
                    listed.get(key, 0), len(base.turns[key].messages) if key in base.turns else 0
                )
                if known < base.seen.get(key, 0):
                    unproven[key] = known
            return unproven

    def cut_lost(
        self, unproven: Collection[TurnKey], found: Mapping[TurnKey, Turn], incarnation: int
    ) -> None:
        """Remove messages from the agent's history that the log has lost, such as by a restore of
        the table from a backup.

        If another process or the hot tier still has such a message, it comes back with the next
        record that is read.

        Args:
            unproven: Keys of the turns that were searched in the log, because they may have lost
                messages.
            found: The searched turns that the log has.
            incarnation: Number of the conversation's run to which the log belongs. If another run
                has begun, nothing changes.
        """
        with self.lock:
            self.add_turns(found, incarnation)
            lengths = {key: length for key, length in self.unproven.items() if key in unproven}
            if self.base.incarnation != incarnation:
                return
            slots = {*self.window, *self.base.window}
            lost = {
                slot for slot in slots if slot.key in lengths and slot.number >= lengths[slot.key]
            }
            seen = {key: length for key, length in {**self.base.seen, **lengths}.items() if length}
            window = tuple(slot for slot in self.base.window if slot not in lost)
            self.base = replace(self.base, seen=seen, window=window).normalize()
            self.window = tuple(slot for slot in self.window if slot not in lost)
            if not lost.isdisjoint(self.view):
                self.has_news = self.is_overruled = True

    def add_turns(self, turns: Mapping[TurnKey, Turn], incarnation: int) -> None:
        """Add turns of the log to this process's copy, if ``incarnation`` is the present run of the
        conversation.
        """
        with self.lock:
            if self.base.incarnation == incarnation:
                read = {
                    key: turn.merge(self.base.turns.get(key, turn)) for key, turn in turns.items()
                }
                self.base = replace(self.base, turns={**self.base.turns, **read}).normalize()

    def begin_after(self, record: Record) -> None:
        """Discard this process's copy after a deletion or expiry of the conversation.
        Begin with the empty ``record``.
        """
        self.resets += 1
        self._skips_rest = self._skips_rest or self._open is not None
        self.base = record
        self.own, self._open, self._changes, self._notes, self.evicted = {}, None, {}, None, {}
        self.window = ()
        self.has_news = self.is_overruled = bool(self.view)

    def has_work(self, *, besides: str = "") -> bool:
        """Return whether this process has unsaved changes.
        A change of the state value named ``besides`` does not count.
        """
        is_edited = self.window != self.base.window or self.notes != self.base.notes
        return is_edited or bool(self.unsaved() or self._changes.keys() - {besides})

    def unsaved(self) -> dict[TurnKey, Turn]:
        """Return the turns that no store has confirmed completely, keyed by turn key."""
        return {key: turn for key, turn in self.own.items() if self.base.lacks(key, turn)}

    def stored_lengths(self, incarnation: int) -> dict[TurnKey, int]:
        """Return the number of messages of each turn that the hot or the durable tier has stored,
        keyed by turn key.

        The numbers are from the last known record of each tier. A record of another run of the
        conversation is ignored.
        """
        with self.lock:
            lengths: dict[TurnKey, int] = {}
            for copy in (self.hot_copy, self.head_copy):
                if copy is not None and copy.incarnation == incarnation:
                    lengths |= {
                        key: max(length, lengths.get(key, 0)) for key, length in copy.seen.items()
                    }
            return lengths

    def next_version(self, *others: Record | None) -> Version:
        """Return a version for the next state to store.
        It is higher than all known versions and the versions of ``others``.
        """
        version = Version(self._next_time(*others), secrets.token_hex(4))
        self._own_tags.append(version.tag)
        return version

    def next_incarnation(self, known: int = 0) -> int:
        """Return the number for a new run of the conversation (an incarnation).

        The number is higher than ``known`` and the present run's number, and at least the time in
        seconds since 1970. No number is therefore used twice, even if a table that was restored
        from a backup lacks the latest numbers.
        """
        return max(known + 1, self.base.incarnation + 1, int(self._clock()))

    def next_tombstone(self, known: int, found: Record | None) -> Record:
        """Return a tombstone.
        Its incarnation (number of the run) is above ``known``, the present one and that of
        ``found``.
        """
        incarnation = self.next_incarnation(max(known, found.incarnation if found else 0))
        return Record(
            version=self.next_version(found), incarnation=incarnation, carries_from=incarnation
        )

    # Internals

    def _is_foreign_change(self, found: Record, joined: Record) -> bool:
        """Return whether ``joined``, the merge with ``found``, has foreign changes while this
        process has unsaved changes.
        """
        base = self.base
        if found.version.tag in self._own_tags or base.incarnation not in (0, joined.incarnation):
            return False
        mine, theirs = (
            replace(
                record,
                incarnation=0,
                states={name: entry for name, entry in record.states.items() if name != CLOSED},
            )
            for record in (base, joined)
        )
        return self.has_work(besides=CLOSED) and not mine.has_content_of(theirs)

    def _note_redactions(self, before: Mapping[TurnKey, Mapping[int, Replacement]]) -> None:
        """Mark messages of the agent's history as outdated if their redactions are new, compared
        with those in ``before``.
        """
        if self.base.redactions == before:
            return
        new = {
            (key, at)
            for key, one in self.base.redactions.items()
            for at in one
            if one[at] != before.get(key, {}).get(at)
        }
        self.view = tuple(
            slot._replace(body=_OUTDATED) if slot[:2] in new else slot for slot in self.view
        )
        self.has_news = self.has_news or self.window != self.view

    def _drop_saved(self) -> None:
        """Discard unsaved changes that ``base``, the merged stored state, now has.
        The open turn is kept.
        """
        if self.hash_is_log:
            self.base = replace(self.base, unlogged={}).normalize()
        known = self.base.states
        self.own = {
            key: turn
            for key, turn in self.own.items()
            if key == self._open or self.base.lacks(key, turn)
        }
        self._changes = {
            name: new
            for name, new in self._changes.items()
            if name not in known or known[name].value != new
        }
        self._notes = None if self._notes == self.base.notes else self._notes

    def _rename_late_turns(self) -> None:
        """Give unsaved turns new keys if a turn with a higher key was read.
        The log then has the order of the first saves.
        """
        late = [
            key for key in sorted(self.own) if key not in self.base.seen and self._offers[key] <= 0
        ]
        if not late or not self.base.seen or max(self.base.seen) < late[0]:
            return
        for key in late:
            new = self._next_key()
            self.own[new] = self.own.pop(key)
            self.evicted.pop(key, None)
            self._renamed[key] = new
            self._open = new if self._open == key else self._open
            self._drafted.pop(key, None)
            self._offers.pop(key, None)
            self.view = tuple(
                slot._replace(key=new) if slot.key == key else slot for slot in self.view
            )
            self.window = tuple(
                slot._replace(key=new) if slot.key == key else slot for slot in self.window
            )
            if key in self.base.redactions:
                redactions = {
                    new if known == key else known: found
                    for known, found in self.base.redactions.items()
                }
                self.base = replace(self.base, redactions=redactions)

    def _note_new_incarnation(self, before: Record) -> None:
        """Discard this process's unsaved turns if the conversation was deleted.
        Keep them after an expiry or a rewind.
        """
        if not before.incarnation and not self.is_loaded:
            return  # the deletion may be older than the unsaved turns
        self.resets += bool(before.incarnation or self.base.carries_from)
        if self.base.deletes(before):
            self.dropped += sum(
                len(turn.messages) - before.seen.get(key, 0) for key, turn in self.own.items()
            )
            self._skips_rest = self._skips_rest or self._open is not None
            self.own, self._open, self._changes = {}, None, {}
        self._notes, self.evicted = None, {}
        self.is_overruled = self.has_news = True

    def _rebase(self, ancestor: Window, incarnation: int) -> None:
        """Update ``window``, the history that the next save stores, after a record was merged into
        ``base``.

        If other writers only added messages to the earlier stored history ``ancestor``, the agent's
        edits are kept. Otherwise the new stored history replaces them. The agent's unsaved turns
        are kept in both cases.
        """
        base = self.base
        ancestor = base.without_redacted_bodies(ancestor)
        # An open turn that a rewind removed counts only if the turn has grown since then.
        used = {
            key for key, turn in self.own.items() if len(turn.messages) > base.removed.get(key, 0)
        }
        mine = [slot for slot in self.window if slot.key in used]
        present = set(ancestor)
        common = [slot for slot in base.window if slot in present]
        if not self.is_overruled and incarnation == base.incarnation and common == list(ancestor):
            known = {slot[:2] for slot in ancestor if slot.key is not None}
            kept = [slot for slot in self.window if slot.key not in self.own or slot[:2] in known]
            window = insert_slots(kept, [*grown_slots(kept, base.window, known), *mine])
        else:
            window = insert_slots(base.window, mine)
            self.is_overruled = self.is_overruled or window != self.view
        self.window = base.without_redacted_bodies(window)
        self.has_news = self.window != self.view

    def _next_key(self) -> TurnKey:
        return TurnKey(self._next_time(), self._tag)

    def _next_time(self, *found: Record | None) -> int:
        """Advance this process's Lamport clock beyond all times in the given records.
        Return the new time.
        """
        with self.lock:  # two turns with the same time would have the same key
            known = [
                at
                for one in filter(None, found)
                for at in (one.version.time, *(key.time for key in one.seen))
            ]
            self._lamport_time = max([self._lamport_time, *known]) + 1
            return self._lamport_time


def new_lock() -> Any:
    """Return a new re-entrant lock."""
    return threading.RLock()
