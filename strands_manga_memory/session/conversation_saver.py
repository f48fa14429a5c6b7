"""Background saves of a conversation's changes to the stores, and functions that wait for them.

A save stores changes in the hot tier (such as Redis). A flush writes them to the durable tier (such
as DynamoDB).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import TypeVar

from strands_manga_memory.deadline import is_on_event_loop, wait_until_done
from strands_manga_memory.exceptions import (
    ConflictError,
    CorruptRecordError,
    OvertakenError,
    StoreError,
    StoreUnavailableError,
)
from strands_manga_memory.lifecycle import members_of
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage, Tier
from strands_manga_memory.session.protocol.local_copy import LocalCopy
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.writer import TierHealth, Writer, cause_of
from strands_manga_memory.telemetry import count_missed_deadline, in_current_context

logger = logging.getLogger(__name__)

_MAX_WAIT_SECONDS = 5.0
"""Limit of a wait in seconds, including pauses of the process. A longer deadline replaces it."""

_T = TypeVar("_T")


class ConversationSaver:
    """Background writer of one conversation's changes. All methods are thread-safe.

    A save stores changes in the hot tier (such as Redis) or, if that tier does not take them, in
    the durable tier (such as DynamoDB). A flush writes all changes to the durable tier. A flush may
    run while the next turn is saved.

    Attributes:
        error: Error that a retry cannot resolve: changes that cannot be merged, or damaged stored
            data. None without such an error.
        is_closing: Whether ``commit_all`` also marks the durable tier's copy as complete. A restore
            then reports no possible loss.
    """

    def __init__(
        self, conversation_key: ConversationKey, tiers: Tiers, storage: ConversationStorage
    ) -> None:
        self._key, self.tiers, self._storage = conversation_key, tiers, storage
        self.error: StoreError | None = None
        self.is_closing = False
        self._tier = storage.nearest
        self._started_at: float | None = None
        self._is_scheduled = self._needs_flush = False

    def check(self) -> None:
        """Raise the error that prevents further saves of the conversation, if there is one."""
        if self.error is not None:
            raise self.error

    # Requests

    def request(self) -> Future[None]:
        """Save the changes of the conversation in the background.

        Returns:
            Future that ends when one tier has stored the changes. The durable tier may get them
            later.
        """
        self._is_scheduled = False
        self.tiers.writer.cancel_later((self, "soon"))
        if self._storage.local.is_dirty:
            self.tiers.writer.unsaved.add(self)
        tier = self._first_tier
        if self._started_at is None:  # else the caller also waits for the running call
            self._tier = tier
        work, is_slow = in_current_context(self._commit), tier is self._storage.durable
        return self.tiers.writer.submit(self._key, work, slow=is_slow, is_needed=self.is_unsaved)

    def request_flush(self) -> Future[None]:
        """Write all changes of the conversation to the durable tier, in the background.

        Returns:
            Future that ends when the durable tier has all changes. Without a durable tier, it ends
            when the hot tier has them.
        """
        return self.tiers.writer.submit(self._key, self.commit_all, slow=True)

    def request_soon(self, delay: float) -> None:
        """Plan a save of the conversation in ``delay`` seconds, unless one is planned already."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.tiers.writer.later((self, "soon"), delay, self.request)

    def request_refresh(self) -> Future[None]:
        """Read other processes' changes of the conversation from the stores, in the background.

        Returns:
            Future that ends when the changes are merged with this process's copy.
        """

        def refresh() -> None:
            self._tier, self._started_at = self._storage.nearest, time.monotonic()
            try:
                self._storage.refresh()
            finally:
                self._started_at = None

        if self._started_at is None:
            self._tier = self._storage.nearest
        return self.tiers.writer.submit(self._key, refresh)

    # Waiting

    async def wait(self, future: Future[None]) -> None:
        """Wait until a save or refresh ends, at most for its tier's ``deadline``.

        After the deadline, a warning is logged, and the work goes on in the background. If the
        tier is known to be down, the call returns at once.

        Raises:
            ConflictError: Another process's change cannot be merged with unsaved changes.
            CorruptRecordError: A stored record is damaged.
        """
        self.check()
        tier = self._tier
        deadline, health = tier.deadline, tier.health

        def remaining(held_up: float) -> float:
            if not self._tier.health.is_up:
                return 0.0
            since = self._started_at  # the deadline counts from the call of the tier
            waited = 0.0 if since is None else time.monotonic() - since
            return max(0.0, deadline + held_up - waited)

        if not health.is_up:
            return
        try:
            held_up = await wait_until_done(
                future, remaining, limit=max(deadline, _MAX_WAIT_SECONDS)
            )
            if not future.done():
                if not remaining(held_up):
                    health.record_failure(since=self._started_at)
                count_missed_deadline(tier.name)
                raise StoreUnavailableError(
                    f"the {tier.name} tier did not answer within {deadline} s"
                )
            future.result()
        except StoreUnavailableError as error:
            cause = health.error or type(error).__name__
            logger.warning("tier=<%s>, error=<%s> | the turn is not saved yet", tier.name, cause)
        finally:
            del future  # avoids a reference cycle of error, traceback, frame and future

    def block(self, future: Future[None], *, must: bool = False, has_waited: bool = False) -> None:
        """Block the thread until a save ends, or until a deadline.

        The deadline is ``hot_deadline`` on an event loop without ``must``. Otherwise, it is
        ``durable_deadline``.

        Args:
            future: The save.
            must: Whether to raise an error if no tier stores the changes in time. False: a warning
                is logged.
            has_waited: True: do not wait, because the caller has waited for the save already.

        Raises:
            StoreUnavailableError: The changes were not stored in time, and ``must`` is True.
            ConflictError: Another process's change cannot be merged with the changes of this save.
            CorruptRecordError: A stored record is damaged.
        """
        is_durable = must or has_waited or not is_on_event_loop()
        deadline = self.tiers.durable_deadline if is_durable else self.tiers.hot_deadline
        try:
            future.result(0.0 if has_waited else deadline)
        except (TimeoutError, StoreUnavailableError) as error:
            is_late = isinstance(error, TimeoutError)
            if is_late:
                count_missed_deadline("durable" if is_durable else "hot")
            if must:
                reason = f"no answer within {deadline} s" if is_late else cause_of(error)
                raise StoreUnavailableError(
                    f"no tier took it in time; it is kept and saved later: {reason}"
                ) from error
            logger.warning("error=<%s> | not stored yet, it is tried again", type(error).__name__)
        finally:
            del future  # as above

    def is_unsaved(self) -> bool:
        """Return whether the durable tier lacks changes of the conversation.

        Without a durable tier: whether the hot tier lacks changes.
        """
        local = self._storage.local
        with local.lock:
            if local.is_dirty:
                return True
            head = local.tier_records["durable"]
            if self._storage.durable is None or not local.base.incarnation:
                return False
            return head.version[:2] != local.base.version[:2]

    def others_unsaved(self) -> list[LocalCopy]:
        """Return this process's other copies of the conversation that have unsaved changes."""
        savers: list[ConversationSaver] = members_of(self.tiers.writer.unsaved)
        same = [one for one in savers if one._key == self._key and one is not self]  # noqa: SLF001
        found = [one._storage.local for one in same if one.error is None]  # noqa: SLF001
        return [local for local in found if local.is_dirty]

    # On the writer

    @property
    def _first_tier(self) -> Tier:
        storage = self._storage
        begins = storage.nearest.is_known and storage.begins_durably
        return storage.first if begins else storage.nearest

    def commit_all(self) -> None:
        """Write all changes of the conversation to both tiers, in the calling thread.

        If a tier fails, the write is repeated later in the background.
        """
        storage, local = self._storage, self._storage.local
        try:
            self._save()
        except StoreUnavailableError:
            if storage.durable is None:
                raise
        if storage.durable is not None and (local.base.incarnation or local.is_dirty):
            work = partial(self._flush, closes=self.is_closing)
            self._attempt(work, storage.durable, must=True)

    def _commit(self) -> None:
        storage, submit = self._storage, self.tiers.writer.submit
        try:
            self._save()
        except StoreUnavailableError:
            if storage.hot is not None and storage.durable is not None:
                work = partial(self._attempt, storage.save_durably, storage.durable)
                submit(self._key, work, slow=True)
            raise
        if storage.durable is not None and (self._needs_flush or storage.is_flush_due):
            # A flush runs at the same time as the next turn's save, so that no turn waits for the
            # durable tier.
            self._needs_flush = False
            work = partial(self._attempt, self._flush, storage.durable)
            submit((self._key, "flush"), work, slow=True, is_needed=self.is_unsaved)

    def _flush(self, *, closes: bool = False) -> None:
        self._storage.flush(writes_hot=self._storage.nearest.health.is_up, closes=closes)

    def _save(self) -> None:
        self.check()
        storage = self._storage
        if not storage.local.is_dirty:
            hot = storage.hot
            if hot is not None and not hot.health.is_up:
                with suppress(StoreUnavailableError):  # the durable tier has everything
                    self._attempt(storage.catch_up_hot, hot)
            return
        self._tier, self._started_at = self._first_tier, time.monotonic()
        try:
            if storage.hot is not None:
                if self._attempt(storage.save_hot, storage.hot):
                    return
                self._tier, self._started_at = storage.first, time.monotonic()
            self._attempt(storage.save_durably, storage.first)
        finally:
            self._started_at = None
        if storage.durable is not None and not storage.local.tier_records["durable"].incarnation:
            self._needs_flush = True  # begun in the hot tier: the durable tier does not answer

    def _attempt(self, work: Callable[[], _T], tier: Tier, *, must: bool = False) -> _T:
        """Call ``work``, which uses ``tier``. If the tier fails, plan a retry.

        Without ``must``, a tier that is known to be down is not called. After a ``ConflictError``
        or ``CorruptRecordError``, all later saves fail with the same error.
        """
        health = tier.health
        if not must and not health.may_call():
            self._retry(health)
            raise StoreUnavailableError(f"the tier is down and tried again soon: {health.error}")
        try:
            found = work()
        except OvertakenError:
            health.record_conflict()
            self._retry(health)
            raise
        except (ConflictError, CorruptRecordError) as error:
            self.error = error
            raise
        except StoreError as error:
            health.record_failure(error)
            self._retry(health)
            if isinstance(error, StoreUnavailableError):
                raise
            raise StoreUnavailableError(
                f"the tier rejected the change, which is kept: {cause_of(error)}"
            ) from error
        health.record_success()
        if not self._storage.local.is_dirty:
            self.tiers.writer.unsaved.discard(self)
        if self._storage.hot is not None and self._storage.durable is not None:
            self._update_unflushed()
        return found

    def _update_unflushed(self) -> None:
        # ``flush_saved`` copies the conversations in this dict to the durable tier.
        unflushed = self.tiers.writer.unflushed
        unflushed.pop(self._key, None)  # the latest save is the last in the dict
        if self.is_unsaved():
            ids = self._storage.local.base.ids
            unflushed[self._key] = partial(ConversationStorage, self._key, self.tiers, ids=ids)
            for conversation_key in list(unflushed)[:-_MAX_UNFLUSHED]:
                unflushed.pop(conversation_key, None)

    def _retry(self, health: TierHealth) -> None:
        # Keyed by this object, because each object for a conversation has its own retry.
        key, delay = (self, "retry"), health.wait + 0.01
        self._needs_flush = True
        self.tiers.writer.later(key, delay, self.request, is_needed=self.is_unsaved)


_MAX_UNFLUSHED = 1_000
_FLUSH_SECONDS = 5.0


def flush_saved(writer: Writer, *others: Future[None]) -> None:
    """Copy to the durable tier the conversations that this process saved only in the hot tier.

    Only the 1,000 conversations with the latest saves are copied. If this takes over 5 seconds, a
    warning is logged. A background job (the sweeper) later copies the remaining conversations.
    ``others`` are futures of further writes to wait for.
    """
    unflushed, end = writer.unflushed, time.monotonic() + _FLUSH_SECONDS

    def flush(conversation_key: ConversationKey) -> None:
        opened = unflushed.get(conversation_key)
        if opened is None or time.monotonic() >= end:
            return
        storage = opened()
        if not storage.read_hot(touch=False).is_empty:
            storage.flush(writes_hot=False)
        if unflushed.get(conversation_key) is opened:  # else it was saved again meanwhile
            unflushed.pop(conversation_key, None)

    submit = partial(writer.submit, slow=True, is_needed=lambda: False)
    flushes = [
        submit(conversation_key, partial(flush, conversation_key))
        for conversation_key in list(unflushed)
    ]
    wait([*others, *flushes], timeout=_FLUSH_SECONDS)
    if unflushed:
        logger.warning("sessions=<%d> | not flushed yet, a sweeper flushes them", len(unflushed))
