"""SessionSweeper: finalizes conversations whose time is over, and deletes the logs of sessions that ended."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.ended import durable_tier_of
from strands_manga_memory.session.expiry import BUCKETS, Entry, ExpiryIndex, due_key, finalized_key
from strands_manga_memory.session.records import Draft, Head, Place, Stored, directory_key, segment_number, with_save
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import CLOSING, DELETED, HotStore, WriteStatus
from strands_manga_memory.stores.table import Condition, Table

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
    a time to live (mission A2).

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
            raise ValueError(f"lease must be a positive number of seconds, got {lease!r}")
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
        hot = [] if self._tiers.hot is None else list(self._tiers.hot.expired(limit=limit))
        finished = sum(self._sweep(name) for name in hot)
        try:
            return finished + self._sweep_durable(limit)
        except StoreUnavailableError as error:
            if self._tiers.hot is None:
                raise
            logger.warning("error=<%s> | the durable tier could not be swept, it is tried again", type(error).__name__)
            return finished

    # The hot tier

    def _sweep(self, name: str) -> bool:
        assert self._tiers.hot is not None  # noqa: S101 - for the type checker
        claimed = self._tiers.hot.claim(name, lease=self._lease)
        if claimed is None:
            return False
        if self._is_cache(name):
            self._tiers.hot.drop(name, expect=(claimed.epoch, claimed.version))
            return False
        try:
            conversation = Conversation(Place.named(name), self._tiers, base={})
            conversation.flush_claimed()
            if self._finalizer is not None:
                self._finalizer(conversation)
            self._mark(conversation.place)
        except Exception as error:
            logger.warning("error=<%s> | an expired conversation was not finished, it is tried again", type(error).__name__)
            logger.debug("error=<%s> | why", type(error).__name__, exc_info=True)
            return False
        return self._tiers.hot.drop(name, expect=(claimed.epoch, claimed.version))

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
            try:
                finished += self._look(entry, self._index)
            except Exception as error:
                logger.warning("error=<%s> | an ended conversation was not finished, it is tried again", type(error).__name__)
                logger.debug("error=<%s> | why", type(error).__name__, exc_info=True)
        return finished

    def _look(self, entry: Entry, index: ExpiryIndex) -> bool:
        """Do what is due for one conversation, and say when to look again; tell whether it was finalized."""
        place, now, ttl = entry.place, self._tiers.clock(), self._tiers.ttl
        hot = None if self._tiers.hot is None else self._tiers.hot.load(place.conversation, [], touch=False)
        if hot is not None and hot.state != DELETED:
            index.move(
                entry, due=now + (self._lease if hot.state == CLOSING else max(self._lease, hot.expires_in + self._lease))
            )
            return False
        durable = durable_tier_of(place, self._tiers)
        assert durable is not None  # noqa: S101 - for the type checker
        stored = durable.load(window=False)
        if stored is not None and (buried := stored.epoch if stored.state == DELETED else stored.head.buried):
            durable.log.delete_buried(buried, below=stored.head.first)
        if stored is not None and stored.state == DELETED:
            return self._end(entry, index, stored)
        if stored is not None and now < stored.head.active + ttl.ttl(stored.head.turns):
            index.move(entry, due=stored.head.active + ttl.ttl(stored.head.turns))
            return False
        finished = self._finalized(entry, stored)
        over_at = now if stored is None else stored.head.active + ttl.session + ttl.grace
        if stored is not None and not (stored.expired and over_at <= now):
            # A user may come back within the session: the longer he is away, the less often somebody looks.
            away = max(self._lease, now - stored.head.active)
            index.move(entry, due=min(max(over_at, now + self._lease), now + 2 * away))
        elif stored is not None and stored.head.first == stored.head.next and not stored.head.messages:
            self._delete_log(place)  # of a sweeper that died behind its fence
            self._end(entry, index, stored)
        else:
            if self._fenced(place, entry, stored):
                self._delete_log(place)
            index.move(entry, due=now + ttl.grace + self._lease)
        return finished

    def _finalized(self, entry: Entry, stored: Stored | None) -> bool:
        if self._finalizer is None or (stored is not None and self._marked(entry.place) == [stored.epoch, stored.version]):
            return False
        if stored is not None and not stored.head.messages:
            return False
        self._finalizer(
            Conversation(entry.place, self._tiers, base={name: id_ for name, id_ in entry.ids.items() if id_ is not None})
        )
        self._mark(entry.place)
        return True

    def _mark(self, place: Place) -> None:
        """Note which version was finalized, so that the durable pass does not do it again."""
        durable = durable_tier_of(place, self._tiers)
        stored = None if durable is None else durable.load(window=False)
        if stored is None or stored.state == DELETED or self._tiers.durable is None:
            return
        partition, sort = finalized_key(place)
        item = {"session_id": partition, "sk": sort, "of": [stored.epoch, stored.version]}
        self._tiers.durable.put(item | {self._tiers.durable.schema.ttl: int(self._tiers.clock() + 2 * self._tiers.ttl.session)})

    def _marked(self, place: Place) -> list[int] | None:
        assert self._tiers.durable is not None  # noqa: S101 - for the type checker
        item = self._tiers.durable.get(*finalized_key(place))
        return None if item is None else item.get("of")

    def _fenced(self, place: Place, entry: Entry, stored: Stored | None) -> bool:
        """Put the head of a next, empty incarnation, which is over already; False if someone was faster.

        Whoever still has the old one in memory finds that a later life has begun, and takes only what it had not saved. Only
        then can the log be deleted: every head that refers to it is gone.
        """
        durable = durable_tier_of(place, self._tiers, session_ttl=0.0)
        assert durable is not None  # noqa: S101 - for the type checker
        there = durable.load(window=False)
        if (there is None) != (stored is None) or (
            there is not None and stored is not None and there.version != stored.version
        ):
            return False
        beyond = durable.log.beyond(1)[-1]
        now, epoch = self._tiers.clock(), 1 if stored is None else stored.epoch + 1
        first = beyond if stored is None else max(beyond, stored.head.next)
        writer = uuid.uuid4().hex[:12]
        draft = Draft(
            epoch=epoch,
            version=1,
            writers=with_save({}, writer, 1),
            writer=writer,
            number=1,
            base=dict(entry.ids) if stored is None else stored.base,
            head=Head(
                created=now,
                active=now,
                next=first,
                first=first,
                since=epoch,
                buried=0 if stored is None else stored.head.buried,
            ),
            slots=(),
            fields={},
            pending=(),
            ttl=0.0,
        )
        return durable.write(draft, ahead=False)[0] is WriteStatus.OK

    def _delete_log(self, place: Place) -> None:
        """Delete the segments below the present incarnation."""
        table, durable = self._tiers.durable, durable_tier_of(place, self._tiers)
        stored = None if durable is None else durable.load(window=False)
        if table is None or stored is None:
            return
        low, high = place.log_key(1)[1], place.log_key(stored.head.first)[1]
        rows = [str(row["sk"]) for row in table.query(place.session, first=low, last=high, attributes=[])]
        keys = [(place.session, sort) for sort in rows if segment_number(sort)[0] < stored.head.first]
        table.batch_write(deletes=[*keys, finalized_key(place)])

    def _end(self, entry: Entry, index: ExpiryIndex, stored: Stored) -> bool:
        """Delete a head that says nothing, once its time is over, and what lists the conversation."""
        table = self._tiers.durable
        assert table is not None  # noqa: S101 - for the type checker
        item = table.get(*entry.place.head_key)
        ends = 0 if item is None else item.get(table.schema.ttl) or 0
        if ends > self._tiers.clock():
            index.move(entry, due=ends)
            return False
        if item is not None and not table.delete(
            *entry.place.head_key, when=Condition(equals={"epoch": item["epoch"], "version": item["version"]})
        ):
            index.move(entry, due=self._tiers.clock() + self._lease)
            return False
        index.remove(entry)
        table.batch_write(deletes=[due_key(entry.place), finalized_key(entry.place)])
        others = table.query(entry.place.session, attributes=[], limit=1)
        if stored.base and next(others, None) is None:
            self._unlist(entry.place.session, stored)
        return False

    def _unlist(self, session: str, stored: Stored) -> None:
        key = directory_key(session, stored.base)
        if key is not None and self._tiers.durable is not None:
            self._tiers.durable.delete(*key)
