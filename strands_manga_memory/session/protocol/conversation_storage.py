"""Access to a conversation in a cache (hot tier) and a database table (durable tier)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from strands_manga_memory.exceptions import OvertakenError, StoreUnavailableError
from strands_manga_memory.session.protocol.durable_tier import DurableTier, attempts
from strands_manga_memory.session.protocol.hot_tier import HotTier, StoredHash
from strands_manga_memory.session.protocol.local_copy import LocalCopy
from strands_manga_memory.session.protocol.record import (
    Record,
    Slot,
    Turn,
    TurnKey,
    head_record,
    missing_turns,
)
from strands_manga_memory.session.protocol.record_join import join, keys_older_than_seen
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.telemetry import FLUSH, record_event

OPEN_SECONDS = 600.0
"""Seconds without a new message after which an open turn may be written to the log."""

Tier = HotTier | DurableTier


class ConversationStorage:
    """Access of one process to a conversation in a cache (hot tier) and a table (durable tier).

    The object is thread-safe. Each tier has a record (state of the conversation). The durable tier
    also has the log, a list of all turns. If a needed tier does not answer, a method raises
    ``StoreUnavailableError``, and unsaved changes are kept.

    Args:
        ids: Known unescaped ids of session, user, tenant and member (agent or orchestrator), stored
            with the first change.

    Attributes:
        clock: Returns the time in seconds since 1970.
        nearest: The tier that is read and written in each turn: the hot one, if any.
        first: The tier that is written first when the conversation begins or ends: the durable one,
            if any.
        local: This process's copy of the conversation.
    """

    def __init__(
        self, conversation_key: ConversationKey, tiers: Tiers, *, ids: Mapping[str, Any]
    ) -> None:
        known = {name: str(value) for name, value in ids.items() if value is not None}
        self.hot = None if tiers.hot is None else HotTier(conversation_key, tiers)
        self.durable = (
            None if tiers.durable is None else DurableTier(conversation_key, tiers, known)
        )
        self.nearest: Tier = self.hot or self._durable()
        self.first: Tier = self.durable or self._hot()
        self.clock, self._flush_every = tiers.clock, tiers.flush_every
        self._silence = min(12 * 3600.0, tiers.ttl.session)
        self.local = LocalCopy(clock=tiers.clock, hash_is_log=tiers.durable is None, ids=known)

    @property
    def is_silent(self) -> bool:
        """Whether no tier has answered this process for 12 hours (``ttl.session`` if shorter)."""
        answered_at = self.local.answered_at
        return answered_at is not None and self.clock() - answered_at >= self._silence

    @property
    def is_flush_due(self) -> bool:
        """Whether this process should write the conversation to the durable tier now.

        True if that tier's record (state) is outdated, or whenever ``flush_every`` more turns have
        ended.
        """
        if self.durable is None:
            return False
        base, head = self.local.base, self.local.tier_records["durable"]
        ended = len(self._ended(base, base.unlogged))
        if ended and ended % self._flush_every == 0:
            return True
        return 0 < head.incarnation == base.incarnation and (
            (head.is_closed and head.version[:2] < base.version[:2])
            or head.redactions != base.redactions
            or base.last_used - head.last_used >= self._silence / 2
        )

    # Reading

    def load(
        self,
        *,
        touch: bool = True,
        read: Callable[[Tier, Callable[[], Any]], Any] = lambda tier, work: work(),
        start: Callable[[Callable[[], Any]], Future[Any]] = lambda work: _done(work()),
    ) -> StoreUnavailableError | None:
        """Read the conversation from the hot and the durable tier.

        Args:
            touch: Whether reading restarts the time to live. An inspection passes False.
            read: Function for each read of a tier. ``read(tier, work)`` returns ``work()``, for
                example with a deadline.
            start: Function for the start of the hot tier's read. ``start(work)`` returns a future
                of ``work()``. If it uses a thread, both tiers are read at the same time.

        Returns:
            Error of the tier that did not answer; None if no tier failed.

        Raises:
            StoreUnavailableError: The answers do not show whether the conversation exists.
        """

        def failure(tier: Tier, work: Callable[[], Any]) -> StoreUnavailableError | None:
            try:
                read(tier, work)
            except StoreUnavailableError as error:
                return error
            return None

        hot = self.hot and start(partial(failure, self.hot, partial(self.read_hot, touch=touch)))
        error = None if self.durable is None else failure(self.durable, self.read_head)
        error = (hot.result() if hot else None) or error
        if hot and not error and self.begins_durably:
            error = failure(self._durable(), self.read_unlisted_turns)
        if error is not None and not self.first.is_known and self.nearest.record.is_empty:
            # Conversations begin in the durable tier, so an empty hot tier is not enough.
            raise StoreUnavailableError(f"the conversation could not be read: {error}") from error
        self.local.is_loaded = self.local.is_loaded or error is None
        return error

    def refresh(self) -> None:
        """Read other processes' changes from the hot tier; if it is empty, from the durable one."""
        self._reread_if_silent()
        found = self.read_hot() if self.hot is not None else Record()
        if self.durable is not None and not found.incarnation:
            self.read_head()
            if self.hot is not None:
                self.read_unlisted_turns()

    def read_hot(self, *, touch: bool = True) -> Record:
        """Read and return the hot tier's record (state). Merge it into this process's copy.

        ``touch=False`` does not restart the time to live.
        """
        hot = self._hot()
        return self._merge(hot, partial(hot.read, touch=touch))

    def read_head(self) -> Record:
        """Read and return the durable tier's record (state). Merge it into this process's copy."""
        return self._merge(self._durable(), self._durable().read)

    def read_unlisted_turns(self) -> None:
        """Add the turns of interrupted flushes to this process's copy.

        These turns are in the log (list of all turns), but not in the durable tier's record. Call
        ``read_head``, which reads this record, first.
        """
        head = self._durable().record
        if head.incarnation and (keys := self._durable().unlisted_keys(head)):
            turns = self._durable().get_turns(head.incarnation, keys)
            lengths = {key: len(turn.messages) for key, turn in turns.items()}
            unlisted = Record(
                incarnation=head.incarnation,
                window=tuple(Slot(key, at) for key in sorted(turns) for at in range(lengths[key])),
                seen=lengths,
                turns=turns,
                # until a head lists the turns; otherwise, no later head could list them
                unlogged=set(turns),
                last_used=max((at for turn in turns.values() for at in turn.times), default=0.0),
            )
            self.local.merge_record(unlisted, {})

    def _merge(self, tier: Tier, read: Callable[[], Record]) -> Record:
        local, durable = self.local, self.durable
        with tier.io:
            try:
                found, logged = read(), {}
                if found.incarnation and durable is not None:
                    with local.lock:
                        incarnation = max(found.incarnation, local.base.incarnation)
                        forgotten = keys_older_than_seen(found, local.base, local.own_turns)
                    if forgotten:
                        turns = durable.get_turns(incarnation, forgotten)
                        logged = {key: len(turn.messages) for key, turn in turns.items()}
                local.merge_record(found, logged, is_head=tier is durable)
                local.set_tier_record(tier.name, found)
                if durable is tier and (possibly_lost := local.possibly_lost):
                    incarnation = local.base.incarnation
                    turns = durable.get_turns(incarnation, possibly_lost)
                    local.remove_lost(possibly_lost, turns, incarnation)
            except BaseException:
                tier.forget()  # else a write would replace what was not joined
                raise
            return found

    def complete(self) -> None:
        """Try to read the messages of the agent's history that this process does not have."""
        base = self.local.base
        if incomplete_keys := base.incomplete_keys:
            with suppress(StoreUnavailableError):
                found = self.first.get_turns(base.incarnation, incomplete_keys)
                self.local.add_turns(found, base.incarnation)

    def history(
        self, *, newest: int | None = None, until: TurnKey | None = None
    ) -> list[tuple[TurnKey, Turn]]:
        """Return the turns of the conversation in order, stored and unsaved ones.

        Args:
            newest: Minimum number of messages to read from the durable tier's log, from the newest
                message back. None: all messages.
            until: Key of the newest turn to read from this log. None: no limit.
        """
        with self.local.lock:
            incarnation, record = self.local.base.incarnation, self.local.record
        if self.durable is None:
            log, held = self._hot().get_turns(incarnation), record.turns
        else:
            log = self.durable.read_log(incarnation, newest=newest, until=until)
            held = {key: turn for key, turn in record.turns.items() if key in record.unlogged}
        for key, turn in held.items():
            log[key] = turn.merge(log.get(key, turn))
        return sorted((key, record.redact_turn(key, turn)) for key, turn in log.items())

    # Saving

    def flush(self, *, writes_hot: bool = True, closes: bool = False) -> None:
        """Write ended turns, and then the conversation's state, to the durable tier.

        Args:
            writes_hot: Whether the hot tier is updated, too, so that its time to live restarts.
            closes: Whether the durable record is marked as complete. A restore then needs no newer
                data from the hot tier.
        """
        if self.durable is None:
            self.save_hot()
            return
        self._reread_if_silent()
        with self.durable.io:
            before = self.local.base.incarnation
            self.read_head()
            for _ in attempts("durable"):
                if self.hot is not None and writes_hot:
                    with suppress(StoreUnavailableError):
                        self.save_hot()
                if self._put_head(closes=closes and self.hot is not None):
                    break
            if before < (logs_from := self.local.base.logs_from):
                # The conversation was deleted meanwhile, perhaps before the last put of a turn.
                self.durable.purge(logs_from)

    def save_hot(self, *, fills: bool = False) -> bool:
        """Save the conversation's changes in the hot tier with one compare-and-set.

        Args:
            fills: Whether to save in an empty hot tier although there is a durable tier, in which
                conversations begin.

        Returns:
            Whether the changes are saved.
        """
        self._reread_if_silent()
        hot = self._hot()
        with hot.io:
            for attempt in attempts("hot"):
                if not hot.is_known or (self.begins_durably and not attempt):
                    self.read_hot()  # others may have begun since it was read
                if self.begins_durably and not fills:
                    return False  # the put of a head lists a new conversation
                draft = self.local.draft()
                # A stored record of this version needs no update of its list of unlogged turns.
                if (
                    not draft.incarnation
                    or hot.record.version[:2] == draft.version[:2]
                    or self._write(hot, draft, draft)
                ):
                    break
        return True

    def catch_up_hot(self) -> None:
        """Update the hot tier (cache) after an outage with all changes that it has missed."""
        self.read_hot(touch=False)
        if not self.save_hot():
            self._fill_hot()

    @property
    def begins_durably(self) -> bool:
        """Whether the next save must write to the durable tier first.

        True if there is no hot tier, or if it is empty, because it may have lost the conversation.
        """
        return self.durable is not None and (self.hot is None or self.hot.record.is_empty)

    def save_durably(self) -> None:
        """Save the conversation in the durable tier, and in the hot tier if it is missing there."""
        self._reread_if_silent()
        try:
            if self.hot is not None and self.hot.is_known and self.local.base.incarnation:
                # The hot tier has lost its record, perhaps in the middle of a flush.
                self.read_head()
                self.read_unlisted_turns()
            self._save_head()
        except StoreUnavailableError as error:
            if isinstance(error, OvertakenError) or not self._begin_in_hot_if_new():
                raise
        else:
            self._fill_hot()

    def _save_head(self) -> None:
        durable = self._durable()
        with durable.io:
            record, known = self.local.record, durable.record
            writes_log = known.incarnation and (
                len(missing_turns(record, known)) >= self._flush_every
                or record.redactions != known.redactions
            )
            if not durable.is_known or writes_log:
                self.read_head()  # a restored table may lack the head, which precedes any log
            for _ in attempts("durable"):
                is_new = not durable.record.incarnation and not self.local.base.incarnation
                has_log = is_new and durable.unlisted_keys(Record(incarnation=1))
                if has_log and not self.read_head().incarnation:
                    # The log is of a lost or deleted conversation. None of its turns may come back.
                    self.local.first_incarnation = self.local.next_incarnation(1)
                if self._put_head(least_logged=self._flush_every):
                    return

    def _write(self, tier: Tier, draft: Record, stored: Record) -> bool:
        """Write ``draft`` to a tier, in the form ``stored``. Return False if the tier has changed.

        After a write, the changes in ``draft`` count as saved. Otherwise, the tier's record is
        merged into this process's copy.
        """
        if tier.write(stored):
            self.local.acknowledge(draft)
            self.local.set_tier_record(tier.name, stored)
            return True
        if tier is self.hot:
            self.read_hot()
        else:
            self.read_head()
        return False

    def _begin_in_hot_if_new(self) -> bool:
        local = self.local
        known = local.base.incarnation or local.tier_records["durable"].incarnation
        is_new = local.is_loaded and not known
        if self.hot is None or not is_new or self.hot.stored != StoredHash():
            return False  # the hash has content or a tombstone, or is not known
        with self.hot.io, suppress(StoreUnavailableError):
            draft = local.draft()
            return self._write(self.hot, draft, draft)
        return False

    def _fill_hot(self) -> None:
        if self.hot is None:
            return
        with self.hot.io, suppress(StoreUnavailableError):
            record, head = self.local.base, self.local.tier_records["durable"]
            is_stored = record.incarnation and head.version == record.version
            if self.hot.is_known and self.begins_durably and is_stored:
                self._write(self.hot, record, record)

    def _put_head(self, *, least_logged: int = 1, closes: bool = False) -> bool:
        """Try once to write ended turns and the record (state) to the durable tier.

        The ended turns stay in the record if they are fewer than ``least_logged``. Return False if
        another process has changed the record. For ``closes``, see ``flush``.
        """
        durable = self._durable()
        with self.local.lock:
            record, known = self.local.draft(), durable.record
            missing = missing_turns(record, known)
            if not record.incarnation:
                return True
            closes = closes and not record.is_empty
            ended = self._ended(record, missing)
            if len(ended) < least_logged:
                ended = set()
            if known.version[:2] == record.version[:2]:
                if not ended and missing == known.unlogged and (known.is_closed or not closes):
                    return True
                record = replace(record, version=max(record.version, known.version).next_minor())
            record = replace(record, is_closed=closes)
        if known.incarnation < record.incarnation:
            # The head comes first: a log without a head counts as that of a deleted conversation.
            is_stored = self._write(durable, record, head_record(record, missing, known))
            if not (is_stored and ended):
                return is_stored
            known = durable.record
            record = replace(record, version=record.version.next_minor())
        self._redact_log(record, known)
        if ended:
            missing -= self._put_turns(record, ended)
        return self._write(durable, record, head_record(record, missing, known))

    def _put_turns(self, record: Record, ended: set[TurnKey]) -> set[TurnKey]:
        # A restore ignores turns that no record lists, so a tier must have stored all messages.
        durable, stored = self._durable(), self.local.stored_lengths(record.incarnation)
        loggable = {key for key in ended if stored.get(key, 0) >= len(record.turns[key].messages)}
        if times := [at for key in loggable for at in record.turns[key].times]:
            record_event(FLUSH, max(0.0, self.clock() - min(times)))
        turns = {key: record.redact_turn(key, record.turns[key]) for key in sorted(loggable)}
        return {
            key for key, turn in turns.items() if durable.put_turn(record.incarnation, key, turn)
        }

    def _redact_log(self, record: Record, head: Record) -> None:
        # The log already has the redactions that ``head``, the durable tier's record, has.
        noted = head.redactions if head.incarnation == record.incarnation else {}
        new = {key: found for key, found in record.redactions.items() if noted.get(key) != found}
        if not new:
            return
        durable, stored = self._durable(), self.local.stored_lengths(record.incarnation)
        turns = {key: record.turns[key] for key in new if key in record.turns and key in stored}
        for key, turn in (turns | durable.get_turns(record.incarnation, new)).items():
            # also a turn that the log lacks, so that a late put of the original is merged with it
            durable.put_turn(record.incarnation, key, turn.redact(new[key]))
        durable.purge(record.logs_from)  # an interrupted rewind may have left the originals

    # Ending

    def delete(self) -> None:
        """Delete the conversation from both tiers. After an error, the call can be repeated."""
        hot, durable, known = self.hot, self.durable, 0
        if hot is not None:
            with hot.io:
                with suppress(StoreUnavailableError):
                    hot.read_to_delete()
                known = hot.record.incarnation
                hot.forget()  # else a write would replace what was not joined
        if durable is not None:
            known = max([known, *durable.incarnations()])  # the head may be damaged or missing
        with self.first.io:
            for attempt in attempts(self.first.name):
                if not self.first.is_known or attempt:
                    self.first.read_to_delete()
                tombstone = self.local.next_tombstone(known, self.first.record)
                if self.begin_incarnation(tombstone):
                    break
        if durable is None:
            return
        if hot is not None:
            self.save_hot(fills=True)
        if self.local.base.deleted_below < tombstone.deleted_below:
            self.delete()  # above an expiry or rewind that the durable tier has lost
        else:
            durable.purge(tombstone.incarnation)

    def begin_incarnation(self, record: Record) -> bool:
        """Write the first record of a new incarnation, which a deletion, expiry or rewind begins.

        ``record`` is written to the durable tier or, without one, to the hot tier. It replaces this
        process's copy. Return False, without a change, if another process has changed the tier's
        record since the last read.
        """
        if not self.first.write(record):
            return False
        with self.local.lock:
            self.local.reset_to(record)
            self.local.set_tier_record(self.first.name, record)
        return True

    def expire(self, *, unused_since: float) -> bool:
        """End the conversation if it was not used after ``unused_since`` (seconds since 1970).

        Its turns are first written to the log. The next use begins with an empty history.

        Returns:
            False if nothing was ended, because the conversation is empty, was used, or has changed.
        """
        if self.hot is not None:
            self.read_hot(touch=False)
        if self.durable is not None:
            self.read_head()
            self.read_unlisted_turns()
            if self._is_unused(unused_since):
                self.flush()
        with self.local.lock:
            if not self._is_unused(unused_since):
                return False
            base, after = self.local.base, self.local.expired_record()
        with self.first.io:
            known = self.first.record
            if known.version[:2] != base.version[:2] or not self.begin_incarnation(after):
                return False
        if self.hot is not None:
            with suppress(StoreUnavailableError):
                self.save_hot(fills=True)
        return True

    def _is_unused(self, since: float) -> bool:
        with self.local.lock:
            base = self.local.base
            return not (base.is_empty or base.last_used > since or self.local.has_changes())

    def empty_hot(self) -> bool:
        """Remove a conversation from the hot tier if the durable tier has all of it.

        An empty record stays in the hot tier for an hour, so that late writes are refused.

        Returns:
            False if nothing was removed: the durable tier lacks a part of the conversation, or the
            record in the hot tier is missing or has changed.
        """
        hot, durable = self._hot(), self._durable()
        with hot.io:
            found, head = hot.record, durable.record
            if not 0 < found.incarnation == head.incarnation:
                return False
            if head.version[:2] < found.version[:2] or found.unlogged - head.seen.keys():
                return False
            return hot.write(Record(version=found.version.next_minor()))

    # Internals

    def _reread_if_silent(self) -> None:
        if not self.is_silent:
            return
        local = self.local
        before, is_saved = local.base, not local.has_changes()
        error = self.load()
        stored = join(self.nearest.record, self.first.record)
        if error is not None and not stored.incarnation:
            raise error
        with local.lock:
            local.answered_at = self.clock()
            is_unknown = before.seen.keys().isdisjoint(stored.seen)
            # After a higher incarnation, the merge has decided which unsaved turns stay.
            is_other = (
                stored.incarnation <= before.incarnation and 0 < before.created < stored.created
            )
            # The conversation was deleted. If a tier has other turns, another process began it
            # again.
            is_over = is_unknown and (is_other or is_saved or not stored.incarnation)
            if local.base.incarnation and is_over:
                local.dropped += local.unsaved_messages
                local.reset_to(stored)

    def _ended(self, record: Record, keys: Iterable[TurnKey]) -> set[TurnKey]:
        # After a crash, nobody ends the open turn. It then counts as ended when it is this old.
        silent_since = self.clock() - min(OPEN_SECONDS, self._silence)
        return {
            key
            for key in keys
            if (turn := record.turns.get(key))
            and (not turn.is_open or max(turn.times, default=0.0) <= silent_since)
        }

    def _hot(self) -> HotTier:
        if self.hot is None:
            raise StoreUnavailableError("there is no hot tier")
        return self.hot

    def _durable(self) -> DurableTier:
        if self.durable is None:
            raise StoreUnavailableError("there is no durable tier")
        return self.durable


def _done(result: Any) -> Future[Any]:
    future = Future[Any]()
    future.set_result(result)
    return future
