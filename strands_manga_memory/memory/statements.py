"""Stated preferences, their removal, and the current values that result from both.

A statement is a preference in a message. A removal deletes a preference or retracts a message, so
that earlier statements are no longer valid. A slot is the subject of a preference, such as
``genre``. A signal reports a statement or a retraction to another service.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from operator import attrgetter

from pydantic import TypeAdapter

from strands_manga_memory.language.preference_slots import (
    DISLIKES,
    LIKES,
    Preference,
    apply_preference,
    canonical_value,
    contradicts_statement,
    split_values,
)
from strands_manga_memory.memory.records import MemoryRecord, Owner, content_key

MAX_SLOTS = 100
"""Most subjects with statements of one user. Values set by ``prefer`` have no such limit."""
MAX_SLOT_STATEMENTS = 8
_MAX_REMOVALS = 300
_MAX_SIGNALS = 400

_TIME = attrgetter("at")


@dataclass(frozen=True, slots=True)
class Statement:
    """Preference that a user stated in a message, or that ``UserMemoryStore.prefer`` set.

    Attributes:
        at: Time of the message or of the call, in seconds since 1970.
        message_id: ``tracking_id`` of the message, or None.
        session_id: Session of the message, or None.
        is_set: Whether ``prefer`` set the value, in place of all earlier values of the subject.
    """

    preference: Preference
    at: float
    message_id: str | None = None
    session_id: str | None = None
    is_set: bool = False

    @property
    def slot(self) -> str:
        """Key of the preference: its subject, such as ``genre``.

        For a rejected value, the key is ``dislikes``. Otherwise, without a subject, it is a digest
        of the value.
        """
        if self.preference.liked is False:
            return DISLIKES
        return self.preference.slot or f"~{content_key(canonical_value(self.preference.value))}"

    def repeats(self, other: Statement) -> bool:
        """Return whether ``other`` has the same preference, stated in the same message."""
        if not self.message_id or self.message_id != other.message_id:
            return False
        mine, theirs = self.preference, other.preference
        is_alike = (mine.slot, mine.liked) == (theirs.slot, theirs.liked)
        return is_alike and canonical_value(mine.value) == canonical_value(theirs.value)


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletion of a preference or retraction of a message.

    Attributes:
        at: Time of the removal, in seconds since 1970. Later statements stay valid.
        slot: Subject of the deleted preference. It may be empty.
        values: Digests of the deleted values. They are removed from all subjects, not only
            ``slot``.
        message: Digest of the retracted message's ``tracking_id``. Empty for a deleted preference.
    """

    at: float
    slot: str = ""
    values: tuple[str, ...] = ()
    message: str = ""

    @classmethod
    def of_preference(cls, slot: str, value: str, at: float) -> Removal:
        """Return the ``Removal`` that records the deletion of a stored preference.

        If the preference has no subject, ``slot`` is empty.
        """
        return cls(at, slot, _digests(slot, value))

    def removes(self, statement: Statement) -> bool:
        """Return whether this removal applies to a statement (a stated preference).

        A removal never applies to later statements.

        - The retraction of a message applies to all statements in the message.
        - The deletion of ``genre: horror`` applies to all statements about ``genre``, and to
          ``horror`` in statements about other subjects.
        - The deletion of a dislike applies only to dislikes. Other deletions apply to no dislikes.
        - A deletion does not apply to a statement that only ends an earlier preference, such as
          "Horror is fine again."
        """
        if statement.at > self.at:
            return False
        if self.message:
            id_ = statement.message_id
            return id_ is not None and message_digest(id_) == self.message
        if statement.preference.liked is None:
            return False  # a statement that only ends a preference stays
        if self.slot and statement.slot == self.slot:
            return True
        if (self.slot == DISLIKES) != (statement.preference.liked is False):
            return False
        preference = statement.preference
        return not set(self.values).isdisjoint(_digests(preference.slot, preference.value))


def _digests(slot: str, value: str) -> tuple[str, ...]:
    values = split_values(value) if slot else [value]
    return tuple(content_key(canonical_value(each)) for each in values)


def message_digest(message_id: str) -> str:
    """Return a digest of fixed length for a message id, which may have any length."""
    return hashlib.blake2b(message_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class PreferenceSignal:
    """Report of a stated preference or of a redacted message, for another service.

    Attributes:
        id: Unique id of the signal. Repeated deliveries have the same id.
        number: Number that increases with each signal of the user, also after a deletion of all
            data of the user. 0 before the signal is stored. A receiver should ignore a signal if it
            has had a higher number for the same key.
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user, or None.
        key: Subject of the preference, such as ``genre``. Empty for a statement without a subject.
        value: Preferred value.
        at: Time of the message, in seconds since 1970.
        session_id: Session of the message, or None.
        liked: Whether the user wants the value. None means that an earlier wish no longer applies.
        adds: True: the value is added to earlier values of the subject. False: it replaces them.
        message_id: ``tracking_id`` of the message, or None.
        retracted: Whether the message was redacted and its preferences must be deleted. Key and
            value are then empty.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    user_id: str
    tenant: str | None = None
    key: str
    value: str
    at: float
    session_id: str | None = None
    liked: bool | None = True
    adds: bool = False
    message_id: str | None = None
    retracted: bool = False

    @classmethod
    def from_statement(cls, owner: Owner, statement: Statement) -> PreferenceSignal:
        """Create the signal that reports a stated preference to another service."""
        slot, value, liked, adds = astuple(statement.preference)
        return cls(
            user_id=owner.user_id,
            tenant=owner.tenant,
            key=slot,
            value=value,
            at=statement.at,
            session_id=statement.session_id,
            liked=liked,
            adds=adds,
            message_id=statement.message_id,
        )

    @property
    def owner(self) -> Owner:
        """User to whom the signal belongs."""
        return Owner(self.user_id, self.tenant)

    @property
    def statement(self) -> Statement:
        """Stated preference that this signal reports to another service.

        If the signal has no message id, the statement has the id of the signal as its message id.
        """
        preference = Preference(self.key, self.value, self.liked, self.adds)
        return Statement(preference, self.at, self.message_id or self.id, self.session_id)


@dataclass(frozen=True, slots=True)
class SlotState:
    """Current value of a slot (such as ``genre``), and the latest statement with this value."""

    value: str
    statement: Statement


def slot_states(statements: Iterable[Statement]) -> dict[str, SlotState]:
    """Compute the current value of each slot (subject such as ``genre``) from stated preferences.

    The statements are applied in order of time. The slot that changed last comes last.
    """
    slots: dict[str, SlotState] = {}
    for each in sorted(statements, key=attrgetter("at", "is_set")):
        preference = each.preference
        known = {slot: state.value for slot, state in slots.items()}
        changed = {
            slot: ""
            for slot, value in known.items()
            if slot.startswith("~") and contradicts_statement(preference, value)
        }
        if each.is_set:
            changed |= _set(known, preference)
        elif preference.liked and not preference.slot:
            changed |= {each.slot: preference.value}
        else:
            changed |= apply_preference(known, preference)
            if preference.liked and preference.slot in known and preference.slot not in changed:
                changed[preference.slot] = known[preference.slot]
        for slot, value in changed.items():
            slots.pop(slot, None)
            if value:
                slots[slot] = SlotState(value, each)
    return slots


def _set(known: dict[str, str], preference: Preference) -> dict[str, str]:
    parts = [preference]
    if preference.slot == DISLIKES:
        parts = [Preference(LIKES, value, liked=False) for value in split_values(preference.value)]
    changed: dict[str, str] = {}
    for each in parts:
        changed |= apply_preference({**known, **changed}, each)
    return {**changed, preference.slot: preference.value}


def valid(statements: Iterable[Statement], removals: Sequence[Removal]) -> tuple[Statement, ...]:
    """Return the stated preferences that no deletion or retraction has removed."""
    return tuple(one for one in statements if not any(each.removes(one) for each in removals))


def merged(known: Sequence[Statement], new: Iterable[Statement]) -> tuple[Statement, ...]:
    """Merge known and new statements of a user in order of time, without repetitions.

    Only the latest 100 subjects, such as ``genre``, are kept, with the latest 8 statements of each.
    """
    rows = list(known)
    for each in new:
        earlier = next((row for row in rows if each == row or each.repeats(row)), None)
        if earlier is None:
            rows.append(each)
        elif each.at < earlier.at:
            rows[rows.index(earlier)] = each
    rows.sort(key=_TIME)
    of_slot: dict[str, list[Statement]] = {}
    for each in rows:
        of_slot.setdefault(each.slot, []).append(each)
    latest = sorted(of_slot, key=lambda slot: of_slot[slot][-1].at)[-MAX_SLOTS:]
    kept = {id(each) for slot in latest for each in of_slot[slot][-MAX_SLOT_STATEMENTS:]}
    return tuple(each for each in rows if id(each) in kept)


@dataclass(frozen=True, kw_only=True)
class PreferenceChange:
    """Change of a user's preferences: new statements, removals, or a value that was set.

    Attributes:
        statements: Preferences that new messages state.
        removals: Deletions and retractions, which remove statements of earlier messages.
        record: Record of a preference that ``UserMemoryStore.prefer`` set, or None.
        dropped: Id of a preference record to delete, or None. Needed for a value that
            ``UserMemoryStore.prefer`` set: ``removals`` delete only values from messages.
        signals: Reports of the statements and retractions to another service.
        sent: Ids of signals that the other service has accepted. They are deleted.
    """

    statements: Sequence[Statement] = ()
    removals: Sequence[Removal] = ()
    record: MemoryRecord | None = None
    dropped: str | None = None
    signals: Sequence[PreferenceSignal] = ()
    sent: Collection[str] = ()


@dataclass(frozen=True)
class LoggedChanges:
    """Content of a user's preference log.

    Attributes:
        statements: Preferences stated in messages, in order of time.
        removals: Deleted preferences and retracted messages.
        revision: Random text. A new value tells live agents to read the preferences again.
        signals: Reports of preferences that an external preference service has not accepted yet.
        next_number: Number of the next signal.
        forgotten: Deletion times of memories other than preferences, in seconds since 1970, keyed
            by the digest of the memory's id.
        erased_at: Time of the last deletion of all data of the user, in seconds since 1970. Minus
            infinity without a deletion.
    """

    statements: tuple[Statement, ...] = ()
    removals: tuple[Removal, ...] = ()
    revision: str = ""
    signals: tuple[PreferenceSignal, ...] = ()
    next_number: int = 1
    forgotten: Mapping[str, float] = field(default_factory=dict)
    erased_at: float = -math.inf

    def admit(self, statements: Iterable[Statement]) -> tuple[Statement, ...]:
        """Return the new statements (stated preferences) that may be stored in the log.

        Statements that were removed, or that are older than the last deletion of all data of the
        user, are left out. The log keeps only the latest 300 removals. If it is full, statements
        from before the oldest of them are left out, because they may have been removed.
        """
        since = max(self.erased_at, complete_since(self.removals))
        return tuple(each for each in valid(statements, self.removals) if each.at > since)

    def with_change(self, change: PreferenceChange) -> LoggedChanges | None:
        """Return a copy of this log with a change of preferences; None if nothing changes."""
        removals = [each for each in change.removals if each.at > self.erased_at]
        statements = merged(valid(self.statements, removals), self.admit(change.statements))
        signals = self._signals_after(change, removals, statements)
        is_read = change.record or change.dropped or removals
        if not (is_read or statements != self.statements or signals != self.signals):
            return None
        return replace(
            self,
            statements=statements,
            removals=latest_removals([*self.removals, *removals]),
            revision=uuid.uuid4().hex if is_read else self.revision,
            signals=signals,
            next_number=max([self.next_number, *(each.number + 1 for each in signals)]),
        )

    def _signals_after(
        self, change: PreferenceChange, removals: Sequence[Removal], statements: Sequence[Statement]
    ) -> tuple[PreferenceSignal, ...]:
        """Return the signals that must still be sent after a change of the preference log.

        ``removals`` come from the change. ``statements`` are those in the log after the change.
        """
        kept = [
            one
            for one in self.signals
            if one.id not in change.sent and (one.retracted or valid([one.statement], removals))
        ]
        ids = {each.id for each in self.signals}
        new = [
            each
            for each in change.signals
            if each.id not in ids
            and (each.at > self.erased_at if each.retracted else self.admit([each.statement]))
        ]
        # Time in milliseconds, so that the numbers of a new log are above those of an erased one.
        first = max([self.next_number, *(int(1000 * each.at) for each in new)])
        kept += [replace(each, number=number) for number, each in enumerate(new, first)]
        if len(kept) > _MAX_SIGNALS:  # an item of DynamoDB has at most 400 KB
            known = {(each.message_id, each.preference) for each in statements}
            kept = [
                each
                for each in kept
                if each.retracted or (each.message_id, each.statement.preference) in known
            ]
        return tuple(kept)


LOG = TypeAdapter(LoggedChanges)
"""Converter between ``LoggedChanges`` and the dicts and lists that are stored."""


def latest_removals(removals: Iterable[Removal]) -> tuple[Removal, ...]:
    """Return the latest 300 removals of preferences without duplicates, the oldest first."""
    return tuple(sorted(dict.fromkeys(removals), key=_TIME)[-_MAX_REMOVALS:])


def complete_since(removals: Sequence[Removal]) -> float:
    """Return the time of the oldest removal in a full log, in seconds since 1970.

    A full log has 300 removals, and may have dropped earlier ones. For any other log, the result is
    minus infinity.
    """
    return removals[0].at if len(removals) >= _MAX_REMOVALS else -math.inf
