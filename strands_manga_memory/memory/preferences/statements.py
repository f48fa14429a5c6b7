"""Values and pure functions for the preferences that a user states.

A statement is a preference from a message. A removal deletes a preference or retracts a message: it makes earlier statements
void, so that they no longer count. A slot is the subject of a preference, such as ``genre``.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strands_manga_memory.language.preferences import (
    DISLIKES,
    LIKES,
    Preference,
    apply_preference,
    canonical_value,
    split_values,
)
from strands_manga_memory.memory.records import MemoryRecord, content_key

MOST_RECENT = 30
"""Number of the latest statements that the hot tier stores."""
MOST_SLOTS = 100
"""Most subjects with statements of one user. The oldest are dropped. Values set by ``prefer`` have no such limit."""
_MOST_OF_A_SLOT = 8
_MOST_REMOVALS = 200


@dataclass(frozen=True, slots=True)
class Statement:
    """Preference that a user stated in a message, or that the application set by ``UserMemoryStore.prefer``.

    Attributes:
        at: Time of the message or of the call, in seconds since 1970.
        message_id: ``tracking_id`` of the message. None if the id is unknown or the application set the value.
        session_id: Session of the message, or None.
        is_set: Whether the application set the value. Such a value replaces all earlier values of the subject.
    """

    preference: Preference
    at: float
    message_id: str | None = None
    session_id: str | None = None
    is_set: bool = False

    @property
    def slot(self) -> str:
        """Subject of the stated preference, such as ``genre``. It is ``dislikes`` for an unwanted value.

        Without a subject, it is a key derived from the text.
        """
        if self.preference.liked is False:
            return DISLIKES
        return self.preference.slot or f"~{content_key(canonical_value(self.preference.value))}"

    @property
    def row(self) -> list[Any]:
        """Stored form of the stated preference: a list of its values, without their names."""
        preference = self.preference
        return [
            preference.slot,
            preference.value,
            preference.liked,
            preference.adds,
            self.message_id,
            self.at,
            self.session_id,
            self.is_set,
        ]

    @classmethod
    def of(cls, row: Any) -> Statement:
        """Create a stated preference from its stored list of values, ``row``. Damaged data raises TypeError or ValueError."""
        slot, value, liked, adds, message_id, at, session_id, is_set = row
        preference = Preference(text_of(slot), text_of(value), liked, bool(adds))
        return cls(preference, float(at), _optional(message_id), _optional(session_id), bool(is_set))

    def repeats(self, other: Statement) -> bool:
        """Return whether two statements state the same preference in the same message, in any spelling of the value."""
        if not self.message_id or self.message_id != other.message_id:
            return False
        mine, theirs = self.preference, other.preference
        return (mine.slot, mine.liked, canonical_value(mine.value)) == (
            theirs.slot,
            theirs.liked,
            canonical_value(theirs.value),
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletion of a preference or retraction of a message. Earlier statements (stated preferences) that it matches become void.

    Attributes:
        at: Time of the removal, in seconds since 1970.
        slot: Subject of the deleted preference, such as ``genre``. It may be empty.
        values: Digests of the deleted values. Earlier statements of any subject with one of these values become void.
        message: Digest of the ``tracking_id`` of the retracted message. It is empty for a deleted preference.
    """

    at: float
    slot: str = ""
    values: tuple[str, ...] = ()
    message: str = ""

    @property
    def row(self) -> list[Any]:
        """Stored form of a deletion or retraction: a list of its values, with digests in place of the removed texts."""
        return [self.at, self.slot, list(self.values), self.message]

    @classmethod
    def of(cls, row: Any) -> Removal:
        """Create a deletion of a preference, or a retraction of a message, from its stored list of values, ``row``.

        Damaged data raises TypeError or ValueError.
        """
        at, slot, values, message = row
        return cls(float(at), text_of(slot), tuple(map(text_of, values)), text_of(message))

    @classmethod
    def of_preference(cls, slot: str, value: str, at: float) -> Removal:
        """Create the deletion of a stored preference from its subject ``slot``, such as ``genre``, and its ``value``.

        If the preference has no subject, ``slot`` is empty and ``value`` is the whole text of the preference.
        """
        values = split_values(value) if slot else [value]
        return cls(at, slot, tuple(content_key(canonical_value(each)) for each in values))

    def voids(self, statement: Statement) -> bool:
        """Return whether this deletion or retraction deletes a statement, a preference from a message.

        It never deletes a later statement. A retraction deletes the statements of its message. A deletion of a preference
        deletes those with its subject or one of its values.
        """
        if statement.at > self.at:
            return False
        if self.message:
            return statement.message_id is not None and message_digest(statement.message_id) == self.message
        if statement.preference.liked is None:
            return False  # a statement that only ends a preference stays
        if self.slot and statement.slot == self.slot:
            return True
        if (self.slot == DISLIKES) != (statement.preference.liked is False):
            return False
        values = split_values(statement.preference.value) if statement.preference.slot else [statement.preference.value]
        return not {content_key(canonical_value(each)) for each in values}.isdisjoint(self.values)


def message_digest(message_id: str) -> str:
    """Return a digest of a message id, always of the same length."""
    return hashlib.blake2b(message_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class SlotState:
    """Current value of a subject such as ``genre``, with the last statement that changed or repeated the value."""

    value: str
    by: Statement


def fold(statements: Iterable[Statement]) -> dict[str, SlotState]:
    """Apply stated preferences in the order of their times, and return the resulting value of each subject.

    The keys are subjects such as ``genre``. The subject of the latest statement is the last key.
    """
    slots: dict[str, SlotState] = {}
    for each in sorted(statements, key=lambda each: (each.at, each.is_set)):
        preference = each.preference
        known = {slot: state.value for slot, state in slots.items()}
        if each.is_set:
            changed = _set(known, preference)
        elif not preference.slot:
            changed = {each.slot: preference.value}
        else:
            changed = apply_preference(known, preference)
            if preference.liked and preference.slot in known and preference.slot not in changed:
                changed[preference.slot] = known[preference.slot]
        for slot, value in changed.items():
            slots.pop(slot, None)
            if value:
                slots[slot] = SlotState(value, each)
    return slots


def _set(known: dict[str, str], preference: Preference) -> dict[str, str]:
    changed: dict[str, str] = {}
    if preference.slot == DISLIKES:
        for value in split_values(preference.value):
            changed |= apply_preference({**known, **changed}, Preference(LIKES, value, liked=False))
    else:
        changed = apply_preference(known, preference)
    return {**changed, preference.slot: preference.value}


def valid(statements: Iterable[Statement], removals: Sequence[Removal]) -> tuple[Statement, ...]:
    """Return the stated preferences that no deletion or retraction in ``removals`` deletes."""
    return tuple(each for each in statements if not any(removal.voids(each) for removal in removals))


def recent(statements: Iterable[Statement], removals: Sequence[Removal] = ()) -> tuple[Statement, ...]:
    """Return the latest 30 stated preferences that no deletion or retraction deletes, in the order of their times."""
    return tuple(sorted(valid(statements, removals), key=lambda each: each.at)[-MOST_RECENT:])


def merged(known: Sequence[Statement], new: Iterable[Statement]) -> tuple[Statement, ...]:
    """Merge new statements (stated preferences) into known ones, without repetitions, in the order of their times.

    The result has the latest 8 statements of each of the latest 100 subjects.
    """
    rows = list(known)
    for each in new:
        earlier = next((row for row in rows if each == row or each.repeats(row)), None)
        if earlier is None:
            rows.append(each)
        elif each.at < earlier.at:
            rows[rows.index(earlier)] = each
    rows.sort(key=lambda each: each.at)
    of_slot: dict[str, list[Statement]] = {}
    for each in rows:
        of_slot.setdefault(each.slot, []).append(each)
    latest = sorted(of_slot, key=lambda slot: of_slot[slot][-1].at)[-MOST_SLOTS:]
    kept = {id(each) for slot in latest for each in of_slot[slot][-_MOST_OF_A_SLOT:]}
    return tuple(each for each in rows if id(each) in kept)


@dataclass(frozen=True, kw_only=True)
class PreferenceChange:
    """Change of a user's preferences.

    Attributes:
        statements: New statements of messages.
        removals: Deleted preferences, or retracted messages.
        record: Record of a preference that ``UserMemoryStore.prefer`` set, or None.
        dropped: Id of a preference record to delete, or None. A value that ``prefer`` set is stored only in the record, so
            ``removals`` do not delete it.
    """

    statements: Sequence[Statement] = ()
    removals: Sequence[Removal] = ()
    record: MemoryRecord | None = None
    dropped: str | None = None


@dataclass(frozen=True)
class LoggedChanges:
    """Content of a user's preference log: stated preferences and deletions of preferences.

    Both take effect in the order of their times, not in the order in which they are stored.

    Attributes:
        statements: Preferences stated in messages, in the order of their times.
        removals: Deleted preferences.
        revision: Token that changes whenever live agents must read the preferences again.
        erased_at: Time of the user's last erasure, in seconds since 1970. It is minus infinity if there was none.
        retractions: Retractions of the messages whose statements are to be stored. Other retractions are not read.
    """

    statements: tuple[Statement, ...] = ()
    removals: tuple[Removal, ...] = ()
    revision: str = ""
    erased_at: float = -math.inf
    retractions: tuple[Removal, ...] = ()

    def admit(self, statements: Iterable[Statement]) -> tuple[Statement, ...]:
        """Return the given preferences that may be stored: those that no deletion, retraction or erasure deletes."""
        return tuple(each for each in valid(statements, [*self.removals, *self.retractions]) if each.at > self.erased_at)

    def after(self, change: PreferenceChange) -> LoggedChanges | None:
        """Return the preference log after a change of preferences, or None if the change has no effect."""
        removals = [each for each in change.removals if each.at > self.erased_at]
        statements = merged(valid(self.statements, removals), self.admit(change.statements))
        is_changed = statements != self.statements
        if not (is_changed or removals or change.record or change.dropped):
            return None
        deleted = [each for each in removals if not each.message]
        is_read = change.record or deleted or (removals and is_changed)
        revision = uuid.uuid4().hex if is_read else self.revision
        return replace(self, statements=statements, removals=latest_removals([*self.removals, *deleted]), revision=revision)


def latest_removals(removals: Iterable[Removal]) -> tuple[Removal, ...]:
    """Return the latest 200 distinct deletions of preferences and retractions of messages, in the order of their times."""
    return tuple(sorted(dict.fromkeys(removals), key=lambda each: each.at)[-_MOST_REMOVALS:])


def text_of(value: object) -> str:
    """Return a value if it is a text, or else raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _optional(value: object) -> str | None:
    return None if value is None else text_of(value)
