"""Pair: the replicas of a conversation in two tiers, and this process's copy of it: what is read, and taken in."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Protocol

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.author.author import Author
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.core.identity import is_end_by_age
from strands_manga_memory.session.core.merge import EMPTY, Copy, merge
from strands_manga_memory.session.core.records import Message
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync.rules import Rules
from strands_manga_memory.session.sync.watch import Watch
from strands_manga_memory.telemetry import MERGE, note

Replica = HotReplica | DurableReplica


class Listener(Protocol):
    """Who is told what becomes of a process's copy; called with the pair's lock held."""

    def offer(self, *, in_turn: bool) -> Offer:
        """Return what was said and changed, to be offered to a store."""

    def absorbing(self, other: Copy) -> None:
        """A copy that a store has is about to be taken in; raises what keeps that from being done."""


class Pair:
    """A process's conversation and its replicas. Thread-safe.

    Args:
        hot: Its hot replica, or None.
        durable: Its durable replica, or None.
        rules: How it is kept.
        author: What this process says.
        listener: Who is told what becomes of the copy.

    Attributes:
        hot: Its hot replica, or None.
        durable: Its durable replica, or None.
        rules: How it is kept.
        author: What this process says and knows; guarded by ``lock``.
        lock: Never held during I/O.
        hot_io: Held while the hot replica is asked.
        durable_io: Held while the durable replica is asked; before ``hot_io``, if both are.
        over: Lives that are over and may have a log that is to be deleted; guarded by ``lock``.

    Raises:
        ValueError: There is neither replica.
    """

    def __init__(
        self,
        *,
        hot: HotReplica | None,
        durable: DurableReplica | None,
        rules: Rules,
        author: Author,
        listener: Listener | None = None,
    ) -> None:
        if hot is None and durable is None:
            raise ValueError("hot or durable must be given, got neither")
        self.hot, self.durable, self.rules = hot, durable, rules
        self.author, self._listener = author, listener
        self.lock, self.hot_io, self.durable_io = threading.RLock(), threading.RLock(), threading.RLock()
        self.over: set[str] = set()
        self._watch = Watch(self.rules.clock, after=self.rules.silent)
        self._answers: dict[Replica, int] = {}

    @property
    def copy(self) -> Copy:
        """What this process knows."""
        with self.lock:
            return self.author.copy

    @property
    def known_durable(self) -> Copy:
        """What the durable replica is known to have."""
        return EMPTY if self.durable is None else self.durable.copy

    # Reading

    def look_hot(self, *, touch: bool = True) -> Copy | None:
        """Read the hot replica and take it in; None if there is no such tier."""
        if self.hot is None:
            return None
        with self.hot_io:
            copy = self.hot.load(touch=touch)
            self.absorb(copy)
            return copy

    def look_durable(self) -> Copy | None:
        """Read the durable replica's head and take it in; None if there is no such tier."""
        if self.durable is None:
            return None
        with self.durable_io:
            copy = self.durable.load()
            self.absorb(copy)
            return copy

    def complete(self) -> None:
        """Read messages of the view that no head had."""
        copy, keeps_log = self.copy, self.durable or self.hot
        if keeps_log is None or not copy.has_begun:
            return
        completed = keeps_log.completed(copy)  # beside a flush, whatever it does just now: segments only grow
        if completed is not copy:
            self.absorb(completed)

    def complete_if_possible(self) -> None:
        """Read them, unless the durable replica does not answer: a view with placeholders is stored as well as one without."""
        with suppress(StoreUnavailableError):
            self.complete()

    def log_of(self, copy: Copy) -> list[Message]:
        """Return all messages of the log of a copy, in order."""
        keeps_log = self.durable or self.hot
        copy = copy if keeps_log is None else keeps_log.log(copy)
        return sorted(copy.messages.values(), key=lambda message: message.order)

    def history(self) -> list[Message]:
        """Return all messages of the log, in order."""
        return self.log_of(self.copy)

    # Taking in, and offering

    def absorb(self, copy: Copy) -> None:
        """Take in a copy."""
        with self.lock:
            before = self.author.copy
            if self._listener is not None:
                self._listener.absorbing(copy)
            self.author.absorb(copy)
            if before.has_begun and self.author.copy.vector != before.vector:
                note(MERGE, counts={"merges": 1})
            if not all(map(is_end_by_age, self.author.copy.graves - before.graves)):
                self.over |= before.lives  # the log of one that ended by age stays until it is summarized
            self._watch.saw(copy, self.author.copy)

    def take_over(self) -> list[dict[str, Any]] | None:
        """Return the history that the agent is to go on with at the beginning of a turn.

        None if it is the one it has, or if a part of it cannot be read now: an agent goes on with what it has rather than with
        placeholders of what a tier that is away has.
        """
        with self.lock:
            if not self.author.is_stale:
                return None
        try:
            self.complete()
        except StoreUnavailableError:
            return None
        with self.lock:
            return self.author.take_over()

    def offer(self, *, in_turn: bool) -> Offer:
        """Return what was said and changed, to be offered to a store; the lock is held."""
        if self._listener is not None:
            return self._listener.offer(in_turn=in_turn)
        return self.author.offer(at=self.rules.clock(), in_turn=in_turn)

    def confirm(self, offer: Offer, replica: Replica) -> None:
        """Take note that a replica has an offer."""
        with self.lock:
            self.author.accept(offer)
            self.author.outbox.confirm(offer, for_good=replica is self.durable or self.durable is None)
            if replica.answers > self._answers.get(replica, 0):  # else it had all, and nobody was asked
                self._answers[replica] = replica.answers
                self._watch.saw(replica.copy, self.author.copy)

    # After a long silence

    def wake(self) -> None:
        """Look whether the life goes on, if this process has not seen it for so long that its grave may be gone."""
        if not self._watch.is_silent:
            return
        with self.durable_io, self.hot_io:
            found, error = self._found()
            with self.lock:
                mine = self.author.copy
                goes_on = bool(mine.lives & found.lives) or found.graves > mine.graves
                if error is not None and not goes_on:
                    for replica in self._replicas:  # what was read counts for nothing if it is not taken in
                        replica.forget()
                    raise error
                since, was_stored = self.rules.clock() - self.rules.keeps, self._watch.has_lost(mine, found)
                if was_stored or (not goes_on and self.author.outbox.oldest(mine) <= since):
                    self.author.let_go(since=since, was_stored=was_stored)
                elif not goes_on:
                    self.author.forget_graves(found.graves)
                self.absorb(found)

    @property
    def _replicas(self) -> list[Replica]:
        return [replica for replica in (self.hot, self.durable) if replica is not None]

    def _found(self) -> tuple[Copy, StoreUnavailableError | None]:
        found, error = EMPTY, None
        for replica in self._replicas:
            try:
                found = merge(found, replica.load())
            except StoreUnavailableError as unavailable:
                error = unavailable
        return found, error
