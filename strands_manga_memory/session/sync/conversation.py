"""Conversation: one conversation of a session, opened once and saved, flushed and merged on the writer from then on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.messages import fingerprint
from strands_manga_memory.session.author.showing import paired, shown_messages
from strands_manga_memory.session.basis.expiry import FIRST_LOOK, ExpiryIndex
from strands_manga_memory.session.basis.facts import Facts, facts_of
from strands_manga_memory.session.basis.place import Place, directory_entry
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.session.core.identity import grave_by_age
from strands_manga_memory.session.core.merge import Copy, merge
from strands_manga_memory.session.core.records import Message as StoredMessage
from strands_manga_memory.session.core.records import in_order
from strands_manga_memory.session.core.window import gaps
from strands_manga_memory.session.sync.agent_copy import AgentCopy
from strands_manga_memory.session.sync.committing import Committing
from strands_manga_memory.session.sync.connecting import durable_replica, hot_replica
from strands_manga_memory.session.sync.ending import delete, end
from strands_manga_memory.session.sync.logged import Logged, counted
from strands_manga_memory.session.sync.opening import is_cold, is_over, possible_loss, read_tiers
from strands_manga_memory.session.sync.pair import Pair
from strands_manga_memory.session.sync.saving import Saving
from strands_manga_memory.stores.table import Item
from strands_manga_memory.telemetry import RESTORE, measured


class Conversation:
    """One conversation: what its agent and its users ask for.

    All I/O after ``open`` runs on the writer.

    Args:
        place: Where it is kept.
        tiers: What it shares with the other conversations of its manager.
        base: The original ids, stored once.
        keeps_window: False for one without a history.

    Attributes:
        own: What the agent said and changed; guarded by ``lock``.
        pair: Its replicas.
        commits: When it is saved and flushed.
        possible_loss: Whether the hot tier may have had turns that were gone when it was opened.
    """

    __slots__ = ("_saving", "commits", "own", "pair", "place", "possible_loss", "tiers")

    def __init__(self, place: Place, tiers: Tiers, *, base: Mapping[str, Any], keeps_window: bool = True) -> None:
        self.place, self.tiers = place, tiers
        self.own = AgentCopy(
            record=place.conversation,
            ids=base,
            clock=tiers.clock,
            keeps_window=keeps_window,
            may_be_ahead=tiers.hot is not None,
            on_conflict=tiers.on_conflict,
        )
        self.possible_loss = False
        self._connect()

    def _connect(self) -> None:
        """Begin with replicas of which nothing is known, and locks that nobody holds."""
        place, tiers, own = self.place, self.tiers, self.own
        # None of these refers to the conversation: an agent that is let go is freed at once.
        durable = durable_replica(
            place,
            tiers,
            ids=own.ids,
            entries=lambda: _entries(place, tiers, own.ids),
            attributes=lambda: {"member": own.ids.get("member")},
        )
        hot = hot_replica(place, tiers, durable=durable, ttl=lambda: _ttl(tiers.ttl, own.facts, tiers.clock()))
        self.pair = Pair(hot=hot, durable=durable, own=own, session=tiers.ttl.session)
        self._saving = Saving(self.pair, flush_every=tiers.flush_every)
        self.commits = Committing(place, tiers, self._saving, self.pair)

    def renew_after_fork(self) -> None:
        """Become a writer of one's own in the child of a fork: unsaved messages are the parent's to save."""
        self.own.renew()
        self._connect()

    @property
    def lock(self) -> threading.RLock:
        """Guards ``copy``; never held during I/O."""
        return self.pair.lock

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no tier has confirmed."""
        return self.own.is_dirty

    @property
    def has_news(self) -> bool:
        """Whether a store had something that the agent was not given, such as the end of the conversation."""
        with self.lock:
            return self.own.has_news or self.own.author.is_gone

    # Opening

    def open(self, *, inspect: bool = False) -> list[Message] | None:
        """Read the conversation from both tiers; return its messages, or None if it is new.

        Args:
            inspect: Only look: its time to live is not touched, and nothing is written.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
            CorruptRecordError: What is stored cannot be trusted.
        """
        if inspect:
            return self._open(inspect=True)
        with measured(RESTORE, conversation=self.place.conversation) as noted:
            messages = self._open(inspect=False)
            noted.attributes["outcome"] = "new" if messages is None else "restored"
        return messages

    def _open(self, *, inspect: bool) -> list[Message] | None:
        read_tiers(self.pair, self.commits, self.place, self.tiers, touch=not inspect)
        author = self.own.author
        self.own.has_news = author.is_gone = False
        self.possible_loss = possible_loss(self.pair, self.place.conversation)
        if not author.copy.has_begun:
            return None
        self.own.check_ids()
        if self._is_over(inspect=inspect) and self._end(inspect=inspect) and not author.copy.has_begun:
            return None  # else somebody has begun the next life already
        self.pair.complete()
        self._saving.is_turn_to_flush = self._saving.unflushed_turns >= self.tiers.flush_every
        with self.lock:
            if self.pair.durable is not None:
                author.outbox.join(self.pair.durable.open_segment(author.copy))
            self.own.has_news = False
            return paired(author.take_over())  # type: ignore[arg-type]

    def _is_over(self, *, inspect: bool) -> bool:
        read = self.pair, self.tiers, self.place.conversation
        return is_over(*read) or (not (self.tiers.resume_cold or inspect) and is_cold(*read))

    def _end(self, *, inspect: bool) -> bool:
        """End a life whose time is over; False if it goes on: somebody said something in it just now, or no store answers."""
        with self.lock:
            copy, active = self.own.author.copy, self.own.facts.active
        try:
            if inspect:
                self.pair.absorb(Copy(graves=copy.graves | {grave_by_age(copy.lives)}, clock=copy.clock))
                return True
            self.pair.complete()
            self._saving.flush()  # so that whoever summarizes it has all of it
            return end(self.pair, lambda found: facts_of(found, self.place.conversation).active <= active)
        except StoreUnavailableError:
            return False
        finally:
            with self.lock:
                self.own.has_news = self.own.author.is_gone = False

    # Others' work

    def take_over(self, live: Sequence[Message]) -> list[Message] | None:
        """Return the history that the agent is to go on with, if others have saved or deleted something; else None.

        Messages of the ``live`` history that are unchanged are returned as the same objects.
        """
        with self.lock:
            if not self.has_news:
                return None
            self.own.has_news = False
        messages = self.pair.take_over()
        with self.lock:
            if messages is None:  # what it lacks may be in a tier that is away
                self.own.has_news = self.own.author.is_stale
            else:
                self.own.take_over_states()
        if messages is None or not self.own.keeps_window:
            return None if messages is None else []
        objects = {(message.get("tracking_id") or "", fingerprint(message)): message for message in live}
        taken = [objects.get((message.get("tracking_id") or "", fingerprint(message)), message) for message in messages]
        return paired(taken)  # type: ignore[arg-type]

    def bury(self, grave: str | None = None) -> None:
        """End the conversation's life in both tiers with the grave of its session, or one of its own; runs on the writer.

        With the first grave the conversation is deleted, although the other tier may not answer and has to be asked again.
        """
        delete(self.pair, grave)
        self.commits.error = None

    def flush_claimed(self) -> bool:
        """Flush what the hot tier has of a conversation that a sweeper claimed, just as it is; False if it has nothing."""
        self.pair.look(self.pair.hot, touch=False)
        self.own.closing = True
        if not self.pair.copy.has_begun:
            return False
        if self.pair.durable is not None:
            self.pair.complete()
            self._saving.flush()
        return True

    # What is stored

    def history(self, *, after: int = 0, unsaved: Conversation | None = None) -> Iterator[Logged]:
        """Yield the log after a number, with what only ``unsaved`` has: the same conversation, as it is in use here."""
        drafts = []
        mine = self.pair.copy
        if unsaved is not None:
            with unsaved.lock:
                mine, drafts = merge(mine, unsaved.own.author.copy), list(unsaved.own.author.outbox.drafts)
        log = self.pair.last.log(mine).messages.values()
        messages = in_order([*log, *gaps(None, mine.vector, log)])
        yield from (one for one in counted([*messages, *drafts]) if one.seq > after)

    def window(self) -> list[Logged]:
        """Return those messages of the log that the history holds as they were said, in its order."""
        names = [one.name for one in self.pair.copy.view if isinstance(one, StoredMessage)]
        try:
            log = {one.name: one for one in self.history()}
        except StoreUnavailableError:  # what is at hand is the end of the log
            known = in_order(self.pair.copy.messages.values())
            before = max(0, self.own.facts.messages - len(known))
            log = {one.name: replace(one, seq=one.seq + before) for one in counted(known)}
        return [log[name] for name in names if name in log]

    def shown(self) -> list[Message]:
        """Return the history, as it is stored."""
        return [piece.message for piece in shown_messages(self.pair.copy.view, {})]  # type: ignore[misc]

    def request_correction(self, logged: Logged, message: Mapping[str, Any]) -> Future[None]:
        """Put a message in place of one of the log; the future ends when that is stored."""

        def work() -> None:
            if logged.name is not None:
                self.pair.redact(logged.name, message)
            else:
                with self.lock:
                    self.own.revise(message)
            self.commits.commit_all()

        return self.tiers.writer.submit(self.place, work, slow=True)


def _entries(place: Place, tiers: Tiers, ids: Mapping[str, Any]) -> list[Item]:
    listed = directory_entry(place.session, ids)
    return [*ExpiryIndex.items(place, ids, due=tiers.clock() + FIRST_LOOK), *([listed] if listed else [])]


def _ttl(policy: TtlPolicy, facts: Facts, now: float) -> float:
    seconds = policy.ttl(facts.turns)
    return max(1.0, facts.created + seconds - now) if policy.mode == "fixed" else seconds
