"""Copy of a conversation in one process, with the changes that are not saved yet. No I/O."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

from strands_manga_memory.session.protocol.record import (
    CONTINUES,
    NO_VERSION,
    OUTDATED,
    Lengths,
    Record,
    Replacement,
    Slot,
    StateValue,
    Turn,
    TurnKey,
    Version,
    Window,
    missing_turns,
    with_outdated,
)
from strands_manga_memory.session.protocol.record_join import (
    insert_in_order,
    insert_slots,
    is_newest,
    join,
    new_slots,
    rebase_window,
)
from strands_manga_memory.stores.codec import dump

MAX_EVICTED = 256
"""Maximum number of turns kept in memory after removal from the agent's history."""


class LocalCopy:
    """Copy of a conversation in one process, with the changes that are not saved yet.

    The object is thread-safe. ``lock`` guards it, and is never held during I/O. A record is the
    state of the conversation in a tier: a cache (hot) or a database table (durable). An incarnation
    is a numbered run of the conversation, which a deletion, expiry or rewind ends.

    Args:
        clock: Returns the time in seconds since 1970.
        hash_is_log: Whether the hot tier keeps all turns, because there is no durable tier.
        ids: Unescaped ids of session, user, tenant and member (agent or orchestrator).

    Attributes:
        check_merge: Function that raises an error if another process's changes must not be merged
            with unsaved ones. It gets this process's state values, the other record, and whether
            turns are unsaved.
        base: Merge of all records that this process has read and written.
        view: The agent's present history, as references to messages.
        window: The history to save next. Unlike ``view``, it has other processes' latest changes.
        open_key: Key of the open turn, to which the next message belongs; None without such a turn.
        own_turns: The open turn, and ended turns of this process that no store has in full.
        has_conflict: Whether ``window`` must replace ``view`` and the agent's edits.
        dropped: Number of messages that a deletion discarded before they were saved.
        tier_records: The last known record of each tier, keyed by the tier's name; empty if unknown
            or missing.
        answered_at: Time of a store's last answer, in seconds since 1970; None without an answer.
        is_loaded: Whether both tiers were read when the agent got its history.
        is_reset: Whether the conversation was deleted, has expired or was rewound, and the agent
            still has the old history.
        evicted: The last turns removed from the history. A conversation manager may add them.
        new_manager_state: Unsaved state of the conversation manager; None if it has not changed.
        first_incarnation: Incarnation that begins if no tier has a record.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        hash_is_log: bool = False,
        ids: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self.check_merge: Callable[[Mapping[str, Any], Record, bool], None] | None = None
        self.hash_is_log, self.ids = hash_is_log, dict(ids or {})
        self.lock, self.base = RLock(), Record()
        self.view = self.window = self.base.window
        self.own_turns: dict[TurnKey, Turn] = {}
        self.has_conflict = self.is_loaded = self.is_reset = False
        self.dropped = self._key_time = self._version_time = 0
        # one for all turns, because lists of equal tags are compressed well
        self._tag = secrets.token_hex(4)
        self.evicted: dict[TurnKey, Turn] = {}
        # Tombstones of a hot tier alone expire, so its incarnations are numbered by their time.
        self.first_incarnation = self.next_incarnation() if hash_is_log else 1
        self.tier_records = {"hot": Record(), "durable": Record()}
        self.answered_at: float | None = None
        self.open_key: TurnKey | None = None
        self._drafted = self.base, self.base  # the last draft after ``base`` when it was made
        self._draft_tags: deque[str] = deque(maxlen=64)
        self._changes: dict[str, Any] = {}
        self.new_manager_state: Any = None

    # The agent's side

    def begin_turn(self) -> None:
        """End the open turn, if any, so that the next message begins a new turn."""
        with self.lock:
            self.end_turn()
            self.open_key = None

    def append(
        self, message: Any, *, at: float | None = None, about: Mapping[str, Any] | None = None
    ) -> Slot | None:
        """Add a serialized message to the open turn or, if there is none, to a new turn.

        Return a reference to the message; None if the conversation was deleted during the turn.
        ``about`` has further values of a new turn. ``at`` is in seconds since 1970; None: now.
        """
        with self.lock:
            if self.open_key is None:
                self.open_key = self._next_key()
                self.own_turns[self.open_key] = Turn(is_open=True, about=dict(about or {}))
            key, turn = self.open_key, self.own_turns.get(self.open_key)
            if turn is None:  # the turn's beginning was deleted
                self.dropped += 1
                return None
            times = (*turn.times, round(self._clock() if at is None else at, 3))
            self.own_turns[key] = replace(turn, messages=(*turn.messages, message), times=times)
            slot = Slot(key, len(turn.messages))
            self.view = (*self.view, slot)
            # A turn that a rewind removed, and that goes on, comes back as a whole.
            first = 0 if self.base.removes(key, turn) else slot.number
            added = [Slot(key, at) for at in range(first, slot.number + 1)]
            self.window = insert_slots(self.window, added)
            return slot

    def revise(self, key: TurnKey, number: int, message: Any) -> None:
        """Replace a message of a turn. The next save replaces it in the stores, too."""
        with self.lock:
            turn = self.own_turns.get(key)
            stored = max(one.seen.get(key, 0) for one in (self._drafted[1], self.base))
            if turn is None or number < stored:
                self.redact(key, number, message)
                return
            messages = (*turn.messages[:number], message, *turn.messages[number + 1 :])
            self.own_turns[key] = replace(turn, messages=messages)

    def end_turn(self, **about: Any) -> None:
        """End the open turn, if any. Store ``about``, such as the user's intent, with it.

        After a deletion during the turn, further messages are discarded until ``begin_turn``.
        """
        with self.lock:
            if self.open_key is not None and (turn := self.own_turns.get(self.open_key)):
                about = {**turn.about, **about}
                self.own_turns[self.open_key] = replace(turn, is_open=False, about=about)
                self.open_key = None

    def set_view(self, view: Sequence[Slot]) -> None:
        """Set the agent's present history, after messages were removed, edited or added."""
        with self.lock:
            shown = kept = self.base.without_redacted_bodies(view)
            if kept != tuple(view):  # the agent may still have the originals of redacted messages
                edited = {slot[:2] for slot in {*view} - {*kept} if slot.body}
                current = {slot[:2] for slot in self.view if slot.body != OUTDATED}
                shown = with_outdated(kept, edited - current)
            if shown == self.view:
                return
            before, self.view = {slot[:2] for slot in self.view}, shown
            turns = {**self.base.turns, **self.own_turns}
            removed = {key for key, _ in before - {slot[:2] for slot in view}}
            evicted = sorted(turns.keys() & removed)
            self.keep_evicted({key: turns[key] for key in evicted})
            if self.has_conflict:  # the agent's history is replaced at its next turn
                return
            self.window = insert_in_order(kept, new_slots(kept, self.window, before), self.window)

    def keep_evicted(self, turns: Mapping[TurnKey, Turn]) -> None:
        """Keep evicted turns in memory. A conversation manager may add them to the history."""
        with self.lock:
            older = [(key, turn) for key, turn in self.evicted.items() if key not in turns]
            self.evicted = dict([*older, *turns.items()][-MAX_EVICTED:])

    @property
    def held_turns(self) -> dict[TurnKey, Turn]:
        """All turns in memory, also unsaved ones and those removed from the agent's history."""
        with self.lock:
            evicted = {key: self.base.redact_turn(key, turn) for key, turn in self.evicted.items()}
            return {**evicted, **self.base.turns, **self.own_turns}

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Change named state values of the conversation, which the next save stores."""
        with self.lock:
            self._changes |= states
            self._discard_acknowledged()

    @property
    def states(self) -> dict[str, Any]:
        """State values of the conversation, keyed by name, including unsaved ones."""
        with self.lock:
            return {name: entry.value for name, entry in self.base.states.items()} | self._changes

    @property
    def manager_state(self) -> Any:
        """State of the agent's conversation manager."""
        with self.lock:
            is_changed = self.new_manager_state is not None and not self.has_conflict
            return self.new_manager_state if is_changed else self.base.manager_state

    def adopt_window(self) -> Window:
        """Use ``window``, which has other processes' changes, as the agent's history. Return it."""
        with self.lock:
            self.new_manager_state = None if self.has_conflict else self.new_manager_state
            self.view, self.has_conflict, self.is_reset = self.window, False, False
            return self.view

    def message(self, slot: Slot) -> Any:
        """Return the serialized message of a reference (slot); None if it is not in memory."""
        return slot.body or self.original(slot)[0]

    def original(self, slot: Slot) -> tuple[Any, float | None]:
        """Return the unedited, serialized message of a turn, and its time in seconds since 1970.

        Both are None if the message is not in memory, or belongs to no turn.
        """
        key, number, _ = slot
        if key is None:
            return None, None
        with self.lock:
            for turns in (self.own_turns, self.base.turns, self.evicted):
                turn = turns.get(key)
                if turn is not None and number < len(turn.messages):
                    return self.base.redact_turn(key, turn).messages[number], turn.times[number]
            return None, None

    def redact(self, key: TurnKey, number: int, message: Any) -> None:
        """Replace a message of a turn by its redacted version in the next save."""
        with self.lock:
            before = self.base.redactions
            known = before.get(key, {})
            if number in known and known[number].message == message:
                return
            revision = known[number].revision + 1 if number in known else 1
            new = {**known, number: Replacement(revision, message)}
            if key in self.own_turns:
                self.own_turns[key] = self.own_turns[key].redact(new)
            self.base = replace(self.base, redactions={**before, key: new}).normalize()
            self.window = self.base.without_redacted_bodies(self.window)
            self._outdate_view(before)

    @property
    def record(self) -> Record:
        """State of the conversation with all unsaved changes, as a record without a version."""
        with self.lock:
            return self._with_changes(NO_VERSION)

    @property
    def unsaved_messages(self) -> int:
        """Number of messages that no store has confirmed."""
        with self.lock:
            found, record = self.tier_records.values(), self.record
            stored = [one.message_count for one in found if one.incarnation == record.incarnation]
            return record.message_count - max(stored, default=0) if self.is_dirty else 0

    @property
    def is_dirty(self) -> bool:
        """Whether this process has a change of the conversation that no store has confirmed."""
        with self.lock:
            base, records = self.base, self.tier_records.values()
            stored = [one for one in records if one.version == base.version]
            is_saved = any(map(base.has_content_of, stored)) and not self._is_answer_missing
            return self.has_changes() or not is_saved

    @property
    def _is_answer_missing(self) -> bool:
        """Whether a store may have an unconfirmed earlier save."""
        draft, base = self._drafted[1], self.base
        return draft.version > base.version and draft.incarnation >= base.incarnation

    def share(self) -> Record:
        """Return a record with all unsaved changes, for a merge into another copy in this process.

        The changes become part of ``base``, so that later changes of the other copy win.
        """
        with self.lock:
            if self.has_changes():
                draft = self.draft()
                # A conversation that no tier has keeps the incarnation 0 until it is stored.
                self.base = replace(draft, incarnation=self.base.incarnation)
                self._drafted = self.base, draft
                self._discard_acknowledged()
            return self.base

    def merge_shared(self, other: LocalCopy) -> None:
        """Merge into this copy the unsaved changes of another copy in this process."""
        found = other.share()
        with self.lock:
            self.first_incarnation = other.first_incarnation
            self.merge_record(found, {})
            if self.base.version == found.version:
                incarnation = found.incarnation or self.first_incarnation
                self._drafted = self.base, replace(found, incarnation=incarnation)

    # The stores' side

    def draft(self) -> Record:
        """Build the record (state of the conversation) to save next, with all unsaved changes."""
        with self.lock:
            if not self.is_dirty:
                return self.base
            last, own = self._drafted[1], self.own_turns.items()
            draft = None
            if self.base.version <= last.version and not any(last.lacks(*turn) for turn in own):
                draft = self._with_changes(last.version)
            # The same content keeps its version, so that it does not replace later content.
            if draft is None or not draft.has_content_of(last):
                draft = self._with_changes(self.next_version())
                self._draft_tags.append(draft.version.tag)
            self._drafted = self.base, draft
            return draft

    def _with_changes(self, version: Version) -> Record:
        base = replace(self.base, turns={**self.evicted, **self.base.turns})
        own, now = self.unsaved(), self._clock()
        lengths = {key: len(turn.messages) for key, turn in own.items()}
        counted = {key: base.counted_length(key) for key in own}
        begun = [key for key in own if not (counted[key] or own[key].about.get(CONTINUES))]
        changed = {name: StateValue(version, value) for name, value in self._changes.items()}
        used = bool(own or self._changes or self.window != base.window)
        return replace(
            base.with_turns(own),
            version=version,
            incarnation=base.incarnation or self.first_incarnation,
            window=self.window,
            manager_state=self.manager_state,
            seen={**base.seen, **lengths},
            states={**base.states, **changed},
            unlogged=base.unlogged | own.keys(),
            last_used=max(base.last_used, now if used else 0.0),
            created=base.created or now,
            turn_count=base.turn_count + len(begun),
            message_count=base.message_count + sum(lengths.values()) - sum(counted.values()),
            ids=base.ids or self.ids,
            is_closed=False,
        ).normalize()

    def merge_record(self, found: Record, logged: Lengths, *, is_head: bool = False) -> None:
        """Merge the record (state of the conversation) that a tier has into this copy.

        Args:
            found: Record that was read from the tier.
            logged: Old turns that were found in the log (list of all turns), with their numbers of
                messages. They are not added to the history again.
            is_head: Whether ``found`` is the durable tier's record. Its list of unlogged turns is
                then adopted, because the log of a restored backup may lack these turns.
        """
        with self.lock:
            if self.answered_at is None or found.incarnation:
                self.answered_at = self._clock()
            if not found.incarnation and found.is_empty:
                return
            self._note_times(found)
            is_own = found.version.tag in self._draft_tags
            found, before, own = self._aligned(found), self.base, {*self.own_turns}
            if is_head and found.incarnation == before.incarnation:
                before = replace(before, unlogged=before.unlogged | found.unlogged)
            joined = join(found, before, logged)
            if self.check_merge and not is_own and before.incarnation in (0, joined.incarnation):
                mine = replace(before, incarnation=joined.incarnation)
                if self.has_changes() and not mine.has_content_of(joined):
                    self.check_merge(self.states, found, bool(self.unsaved()))
            for key in logged.keys() - {self.open_key}:
                self.own_turns.pop(key, None)
            self.base = joined
            self._discard_acknowledged()
            if before.incarnation < self.base.incarnation:
                self._adopt_incarnation(before)
            self._outdate_view(before.redactions)
            # An own record is a save whose answer was lost; the agent has edited its history.
            edited = found if is_own and is_newest(found, before) else before
            self._rebase(edited.window, before.incarnation, own)

    def acknowledge(self, record: Record) -> None:
        """Mark the changes in a record as saved, because a tier has stored the record.

        Changes that were made after the record was drafted stay unsaved.
        """
        with self.lock:
            self.answered_at = self._clock()
            (base, draft), before = self._drafted, self.base
            if base is before and record.version[:2] == draft.version[:2]:
                self.base, self._drafted = record, (record, record)
                self._discard_acknowledged()
                return
            record, before, own = self._aligned(record), self.base, {*self.own_turns}
            self.base = join(record, before)  # redactions and reads since the draft stay
            self._discard_acknowledged()
            # During the flush of an earlier draft, a save may end, whose history the agent edits.
            edited = record if is_newest(record, before) else before
            self._rebase(edited.window, record.incarnation, own)

    def set_tier_record(self, tier: str, record: Record) -> None:
        """Set the last known record of a tier.

        If this tier has the log (list of all turns), also note in ``base.unlogged`` the turns that
        the log may lack.
        """
        with self.lock:
            self.tier_records[tier], base = record, self.base
            if tier == "durable":
                self.base = replace(base, unlogged=missing_turns(base, record))
            elif self.hash_is_log:
                left = {
                    key for key in base.unlogged if record.seen.get(key, 0) < base.seen.get(key, 0)
                }
                self.base = replace(base, unlogged=left).normalize()

    @property
    def possibly_lost(self) -> dict[TurnKey, int]:
        """Turns of the history that may be incomplete in a table restored from a backup.

        Each value is the number of the turn's messages that certainly exist.
        """
        with self.lock:
            base, head = self.base, self.tier_records["durable"]
            listed = head.seen if head.incarnation == base.incarnation else {}
            known = {
                key: max(listed.get(key, 0), len(base.turns.get(key, Turn()).messages))
                for key in base.incomplete_keys - self.own_turns.keys()
            }
            return {key: length for key, length in known.items() if length < base.seen.get(key, 0)}

    def remove_lost(
        self, keys: Collection[TurnKey], found: Mapping[TurnKey, Turn], incarnation: int
    ) -> None:
        """Remove from the history the messages that the log (list of turns) has lost.

        A removed message is added again if a record that has it is merged later.

        Args:
            keys: Turns that the log may have lost, from ``possibly_lost``.
            found: The turns of ``keys`` that the log still has.
            incarnation: Incarnation (run) of the log. If it has ended, nothing is removed.
        """
        with self.lock:
            self.add_turns(found, incarnation)
            if self.base.incarnation != incarnation:
                return
            known = {key: length for key, length in self.possibly_lost.items() if key in keys}
            seen = {key: length for key, length in {**self.base.seen, **known}.items() if length}
            base_window, self.window, view = (
                tuple(s for s in slots if s.key not in known or s.number < known[s.key])
                for slots in (self.base.window, self.window, self.view)
            )
            self.base = replace(self.base, seen=seen, window=base_window).normalize()
            self.has_conflict |= view != self.view

    def add_turns(self, turns: Mapping[TurnKey, Turn], incarnation: int) -> None:
        """Add turns of the stored log, unless the conversation was deleted or rewound meanwhile."""
        with self.lock:
            if self.base.incarnation == incarnation:
                self.base = self.base.with_turns(turns).normalize()

    def reset_to(self, record: Record) -> None:
        """Set this copy to ``record`` after a deletion, expiry or rewind. Drop unsaved changes."""
        self.is_reset = True
        self.base, self.window, self.new_manager_state = record, record.window, None
        self.own_turns, self._changes, self.evicted = {}, {}, {}
        self.has_conflict = self.window != self.view

    def has_changes(self) -> bool:
        """Return whether the history, turns or states have unsaved changes."""
        is_edited = self.window != self.base.window or self.manager_state != self.base.manager_state
        return is_edited or bool(self.unsaved() or self._changes)

    def unsaved(self) -> dict[TurnKey, Turn]:
        """Return the turns of this process that no store has confirmed completely."""
        return {key: turn for key, turn in self.own_turns.items() if self.base.lacks(key, turn)}

    def stored_lengths(self, incarnation: int) -> Mapping[TurnKey, int]:
        """Return how many messages of each turn are stored, by turn key, for an incarnation."""
        with self.lock:
            lengths = Counter[TurnKey]()
            for record in self.tier_records.values():
                if record.incarnation == incarnation:
                    lengths |= Counter(record.seen)  # the larger number of both
            return lengths

    def next_version(self, *others: Record) -> Version:
        """Return a version that is higher than all known versions and those of ``others``."""
        with self.lock:
            self._note_times(*others)
            # The latest key may have the same time, so quick turns do not run ahead of the clock.
            times = int(self._clock() * 1000), self._key_time, self._version_time + 1
            self._version_time = max(times)
            return Version(self._version_time, secrets.token_hex(4))

    def next_incarnation(self, known: int = 0) -> int:
        """Return a new incarnation number, higher than the present one and ``known``."""
        return max(known + 1, self.base.incarnation + 1, int(self._clock()))

    def expired_record(self, known: int = 0) -> Record:
        """Return an empty record that replaces the record of an expired conversation.

        Its incarnation number is higher than ``known``. Unlike a merge with a tombstone, a merge
        with this record keeps turns that the log may lack.
        """
        base, version = self.base, self.next_version()
        incarnation = self.next_incarnation(known)
        return Record(version, incarnation, base.deleted_below, base.last_rewind, seen=base.seen)

    def next_tombstone(self, known: int, found: Record) -> Record:
        """Return a tombstone (record of a deletion) that replaces this copy and ``found``.

        The number of its incarnation is also higher than ``known``.
        """
        incarnation = self.next_incarnation(max(known, found.incarnation))
        return Record(self.next_version(found), incarnation, deleted_below=incarnation)

    def _aligned(self, found: Record) -> Record:
        """Copy a missing incarnation number between ``found`` and ``base``. Return ``found``."""
        base, is_own = self.base, found.version.tag in self._draft_tags
        if not (base.incarnation or found.deletes(base)) and (is_own or not base.is_empty):
            self.base = replace(base, incarnation=found.incarnation)
        elif not (found.incarnation or base.deletes(found)):
            return replace(found, incarnation=base.incarnation)
        return found

    def _outdate_view(self, before: Mapping[TurnKey, Mapping[int, Replacement]]) -> None:
        outdated = {
            (key, at)
            for key, new in self.base.redactions.items()
            for at in new
            if before.get(key, {}).get(at) != new[at]
        }
        self.view = with_outdated(self.view, outdated) if outdated else self.view

    def _discard_acknowledged(self) -> None:
        base, known, drafted = self.base, self.base.states, self._drafted[1].states
        own = {key: turn for key, turn in self.own_turns.items() if base.lacks(key, turn)}
        opened = {key: turn for key, turn in self.own_turns.items() if key == self.open_key}
        self.own_turns = {**own, **opened}
        # A change back to the value in ``base`` replaces that of a draft whose answer is missing.
        self._changes = {
            name: new
            for name, new in self._changes.items()
            if name not in known
            or dump(known[name].value) != dump(new)  # 1 is not True
            or known[name].version < drafted.get(name, known[name]).version
        }
        if self.new_manager_state == base.manager_state and not self._is_answer_missing:
            self.new_manager_state = None

    def _adopt_incarnation(self, before: Record) -> None:
        """Move unsaved turns to the new incarnation. After a deletion, discard them."""
        if not before.incarnation and not self.is_loaded:
            return  # the deletion may be older than the unsaved turns
        if self.base.deletes(before):
            own = self.own_turns.items()
            self.dropped += sum(len(turn.messages) - before.seen.get(key, 0) for key, turn in own)
            self.reset_to(self.base)
            return
        self.is_reset |= bool(before.incarnation)
        self.new_manager_state, self.evicted = None, {}
        self.has_conflict = True

    def _rebase(self, ancestor: Window, incarnation: int, own: Collection[TurnKey]) -> None:
        """Update ``window``, the history to save next, after a merge with another record.

        If other processes only added messages, the agent's edits are kept. Otherwise, the merged
        history replaces the edited one. ``ancestor`` is the stored history before the edits.
        ``own`` has the turns of this process that were unsaved before the merge.
        """
        base = self.base
        # An open turn that a rewind removed counts only if the turn has grown since then.
        removed = {key for key, turn in self.own_turns.items() if base.removes(key, turn)}
        window, edited = tuple(slot for slot in self.window if slot.key not in removed), None
        if not self.has_conflict and incarnation == base.incarnation:
            edited = rebase_window(window, base.without_redacted_bodies(ancestor), base.window, own)
        if edited is None:
            edited = insert_slots(base.window, [s for s in window if s.key in self.own_turns])
            self.has_conflict |= edited != self.view
        self.window = base.without_redacted_bodies(edited)

    def _next_key(self) -> TurnKey:
        self._key_time = max(int(self._clock() * 1000), self._key_time + 1, self._version_time + 1)
        return TurnKey(self._key_time, self._tag)

    def _note_times(self, *found: Record) -> None:
        for record in found:
            self._key_time = max([self._key_time, *(key.time for key in record.seen)])
            self._version_time = max(self._version_time, record.version.time)
