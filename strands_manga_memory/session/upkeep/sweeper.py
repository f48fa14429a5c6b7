"""SessionSweeper: finalizes conversations whose time is over, and deletes the logs of sessions that ended."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.basis.expiry import BUCKETS, Entry, ExpiryIndex, due_key, finalized_key
from strands_manga_memory.session.basis.facts import facts_of
from strands_manga_memory.session.basis.place import GRAVE, Place, directory_key
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.session.core.identity import grave_by_age, is_end_by_age, lives_ended_by
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import living
from strands_manga_memory.session.sync.connecting import durable_replica
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.session.upkeep.ended import earlier_lives
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.health import cause_of
from strands_manga_memory.stores.hot import CLOSING, HotStore
from strands_manga_memory.stores.table import Table

logger = logging.getLogger(__name__)

_random = random.Random()  # noqa: S311 - where to start; of its own, so that nobody's seeded numbers change


class Finalizer(Protocol):
    """What is done with a conversation that ended, between its last flush and the end of its hot copy."""

    def __call__(self, conversation: Conversation) -> None:
        """Do it; may be called again for the same conversation if a sweeper died in the middle."""


class SessionSweeper:
    """Flushes expired conversations to the durable tier, has them finalized, drops their hot copies, deletes ended logs.

    Any number of sweepers may run: each conversation is claimed first, atomically, and only if it is still expired. A turn
    that comes in meanwhile wins: it begins a new epoch, and the sweeper leaves the conversation alone. Sweeping never touches
    a time to live.

    Conversations are found twice: by the hot tier's expiry index, and by the durable one's, for those that have no hot copy,
    because there is no such tier or because nobody swept before it went. When a session has been over for the policy's
    grace, its log is deleted.

    Args:
        hot: The hot tier; None, or one that does not survive its process beside a durable tier, is not used.
        durable: The durable tier; None drops what expired.
        finalizer: Called after the flush, such as a ``SessionFinalizer``; if it raises, the conversation stays claimed and
            is tried again after ``lease``.
        ttl: The policy the session managers use.
        codec: The codec the session managers use.
        clock: Seconds since 1970.
        is_cache: Tells names in the hot tier that are no conversations: they are dropped when they have expired.
        lease: Seconds after which a claimed conversation may be claimed by another sweeper. Default 60; more than a finalizer
            takes.

    Raises:
        ValueError: There is neither a hot nor a durable tier, or ``lease`` is not above 0.
    """

    def __init__(
        self,
        *,
        hot: HotStore | None,
        durable: Table | None,
        finalizer: Finalizer | None = None,
        ttl: TtlPolicy | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
        is_cache: Callable[[str], bool] = lambda name: name.count("/") > 1,
        lease: float = 60.0,
    ) -> None:
        if not lease > 0:
            raise ValueError(f"lease must be a positive number of seconds, got {lease!r:.80}")
        if hot is None and durable is None:
            raise ValueError("hot and durable are both None: there is nothing to sweep")
        self._finalizer = finalizer
        self._is_cache = is_cache
        self._lease = lease
        self._index = None if durable is None else ExpiryIndex(durable)
        self._tiers = Tiers.of(
            hot,
            durable,
            codec=codec,
            clock=clock,
            ttl=ttl,
            on_store_error="raise",
        )

    def run_once(self, *, limit: int = 100) -> int:
        """Sweep up to ``limit`` expired conversations of each tier; return how many were finished.

        Raises:
            StoreUnavailableError: The hot tier, or the only one, does not answer.
        """
        hot = self._tiers.hot
        finished = 0 if hot is None else sum(self._sweep(hot, name) for name in list(hot.expired(limit=limit)))
        try:
            return finished + self._sweep_durable(limit)
        except StoreUnavailableError as error:
            if hot is None:
                raise
            logger.warning("error=<%s> | the durable tier could not be swept, it is tried again", cause_of(error))
            return finished

    # The hot tier

    def _sweep(self, hot: HotStore, name: str) -> bool:
        claimed = hot.claim(name, lease=self._lease)
        if claimed is None:
            return False
        is_cache = self._is_cache(name)
        if not is_cache and not _tried(lambda: self._finish(name)):
            return False
        return hot.drop(name, expect=(claimed.epoch, claimed.version)) and not is_cache

    def _finish(self, name: str) -> bool:
        """Flush a claimed conversation and have it finalized; False if there is nothing of it."""
        conversation = Conversation(Place.named(name), self._tiers, base={})
        if not conversation.flush_claimed():
            return False
        if self._finalizer is not None:
            self._finalizer(conversation)
        self._mark(conversation.place)
        return True

    # The durable tier

    def _sweep_durable(self, limit: int) -> int:
        if self._index is None:
            return 0
        finished = looked = 0
        now = self._tiers.clock()
        for entry in self._index.due(now, start=_random.randrange(BUCKETS)):
            if looked >= limit:
                break
            if not self._index.claim(entry, now=now, lease=self._lease):
                continue
            looked += 1
            finished += _tried(partial(self._look, entry, self._index))
        return finished

    def _look(self, entry: Entry, index: ExpiryIndex) -> bool:
        due, is_finalized = self._seen_to(entry)
        if due is None:
            index.remove(entry)
        else:
            index.move(entry, due=due)
        return is_finalized

    def _seen_to(self, entry: Entry) -> tuple[float | None, bool]:
        """Do what is due for one conversation; return when to look again, None for never, and whether it was finalized."""
        place, now, ttl = entry.place, self._tiers.clock(), self._tiers.ttl
        hot = None if self._tiers.hot is None else living(self._tiers.hot, place.conversation)
        if hot is not None:
            wait = 0.0 if hot.state == CLOSING else max(0.0, hot.expires_in)
            return now + wait + self._lease, False
        replica = self._replica(place, entry.ids)
        copy = replica.load()
        if not copy.has_begun:
            return self._ended(entry, replica, copy)
        facts = facts_of(copy, place.conversation)
        if now < facts.active + ttl.ttl(facts.turns):
            return facts.active + ttl.ttl(facts.turns), False
        is_finalized = self._finalized(entry, replica, is_empty=not facts.messages)
        summarized = is_finalized or self._finalizer is None
        over = [lives_ended_by(grave) for grave in copy.graves if summarized or not is_end_by_age(grave)]
        replica.segments.delete(replica.segments.lives() & set().union(*over))
        over_at = facts.active + ttl.session + ttl.grace
        if over_at > now:
            # A user may come back within the session: the longer he is away, the less often somebody looks.
            away = max(self._lease, now - facts.active)
            return min(max(over_at, now + self._lease), now + 2 * away), is_finalized
        self._bury(replica, copy, copy.lives)
        return now + ttl.grace + self._lease, is_finalized

    def _replica(self, place: Place, ids: Mapping[str, Any]) -> DurableReplica:
        replica = durable_replica(place, self._tiers, ids=ids)
        assert replica is not None  # noqa: S101 - for the type checker
        return replica

    def _finalized(self, entry: Entry, replica: DurableReplica, *, is_empty: bool) -> bool:
        if self._finalizer is None or is_empty or self._marked(entry.place) == [replica.version]:
            return False
        ids = {name: id_ for name, id_ in entry.ids.items() if id_ is not None}
        self._finalizer(Conversation(entry.place, self._tiers, base=ids))
        self._mark(entry.place)
        return True

    def _mark(self, place: Place) -> None:
        """Note which version was finalized, so that the durable pass does not do it again."""
        if self._tiers.durable is None:
            return
        replica = self._replica(place, {})
        if not replica.load().has_begun:
            return
        partition, sort = finalized_key(place)
        item = {"session_id": partition, "sk": sort, "of": [replica.version]}
        self._tiers.durable.put(item | {self._tiers.durable.schema.ttl: int(self._tiers.clock() + 2 * self._tiers.ttl.session)})

    def _marked(self, place: Place) -> list[int] | None:
        assert self._tiers.durable is not None  # noqa: S101 - for the type checker
        item = self._tiers.durable.get(*finalized_key(place))
        return None if item is None else item.get("of")

    @staticmethod
    def _bury(replica: DurableReplica, copy: Copy, lives: Collection[str]) -> None:
        """End a life and delete its log, unless somebody was faster.

        Only behind a grave may a log be deleted: whoever goes on with the life then finds that it is over, and takes what he
        has not stored yet into the next one.
        """
        if replica.write(Copy(graves=copy.graves | {grave_by_age(lives)}, clock=copy.clock)):
            replica.segments.delete(lives)

    def _ended(self, entry: Entry, replica: DurableReplica, copy: Copy) -> tuple[float | None, bool]:
        """Delete a head that says nothing, once its time is over, and what lists the conversation."""
        table, now = self._tiers.durable, self._tiers.clock()
        assert table is not None  # noqa: S101 - for the type checker
        lives = replica.segments.lives()
        if lives:  # of a life that is over, or that somebody is beginning just now: then what he says goes into the next one
            is_deleted = copy.graves and not earlier_lives(copy, lives)
            is_finalized = not is_deleted and self._finalized(entry, replica, is_empty=False)
            self._bury(replica, copy, lives)
            return now + self._tiers.ttl.grace + self._lease, is_finalized
        if replica.expires_at > now:
            return replica.expires_at, False
        if not replica.remove():
            return now + self._lease, False
        table.batch_write(deletes=[due_key(entry.place), finalized_key(entry.place)])
        key = directory_key(entry.place.session, entry.ids)
        others = (row for row in table.query(entry.place.session, attributes=[]) if row["sk"] != GRAVE)
        if key is not None and next(others, None) is None:
            table.delete(*key)
        return None, False


def _tried(work: Callable[[], bool]) -> bool:
    """Do work on one conversation; what fails there keeps no other from being swept."""
    try:
        return work()
    except Exception as error:
        logger.warning("error=<%s> | an ended conversation was not finished, it is tried again", cause_of(error))
        logger.debug("error=<%s> | why", type(error).__name__, exc_info=True)
        return False
