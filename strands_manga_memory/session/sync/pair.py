"""Pair: the replicas of a conversation in two tiers, and this process's copy of it: what is read, and taken in."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from strands_manga_memory.exceptions import OvertakenError, StoreUnavailableError
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.core.identity import Name, is_end_by_age
from strands_manga_memory.session.core.merge import EMPTY, Copy, merge, with_messages
from strands_manga_memory.session.core.records import Message
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync.agent_copy import AgentCopy
from strands_manga_memory.session.sync.watch import Watch
from strands_manga_memory.telemetry import COLLISION, MERGE, note

Replica = HotReplica | DurableReplica

NO_LIVES: frozenset[str] = frozenset()

MOST_TRIES = 8
"""How often a write that others overtake is tried again."""


def pause(tried: int) -> None:
    """Wait a random time that grows from try to try."""
    time.sleep(random.uniform(0.0, min(0.05, 0.001 * 2**tried)))  # noqa: S311 - jitter


class Pair:
    """A process's conversation and its replicas, given the seconds after which a session ends that nobody uses. Thread-safe.

    Attributes:
        first: The replica that a save goes to: the hot one, if there is one.
        last: The replica that keeps the log: the durable one, if there is one.
        author: What this process says and knows; guarded, as is ``own``, by ``lock``.
        lock: Never held during I/O.
        io: For each replica what is held while it is asked; that of the durable one before that of the hot one, if both are.
        put: Names of messages that this process put into the log, and that no head includes yet.
        over: Lives that are over and may have a log that is to be deleted; guarded by ``lock``.

    Raises:
        ValueError: There is neither replica.
    """

    __slots__ = ("_seen", "_watch", "author", "durable", "first", "hot", "io", "last", "lock", "over", "own", "put")

    def __init__(self, *, hot: HotReplica | None, durable: DurableReplica | None, own: AgentCopy, session: float) -> None:
        replicas: list[Replica] = [replica for replica in (durable, hot) if replica is not None]
        if not replicas:
            raise ValueError("hot or durable must be given, got neither")
        self.hot, self.durable, self.own, self.author = hot, durable, own, own.author
        self.last, self.first = replicas[0], replicas[-1]
        self.lock, self.io = threading.RLock(), {replica: threading.RLock() for replica in replicas}
        self.over = NO_LIVES
        self.put: set[Name] = set()
        self._watch = Watch(own.clock, session=session)
        self._seen: dict[Replica, Copy] = {}

    @property
    def copy(self) -> Copy:
        """What this process knows."""
        with self.lock:
            return self.author.copy

    # Reading

    def look(self, replica: Replica | None, *, touch: bool = True) -> Copy | None:
        """Read a replica, of the durable one the head, and take it in; None if there is no such tier.

        For ``touch`` see ``HotReplica.load``.
        """
        if replica is None:
            return None
        with self.io[replica]:
            copy = self._with_logged(self._loaded(replica, touch=touch))
            self.absorb(copy)
            return copy

    def _loaded(self, replica: Replica, *, touch: bool = True) -> Copy:
        copy = replica.load(touch=touch) if isinstance(replica, HotReplica) else replica.load()
        self._seen[replica] = replica.copy
        return copy

    def _with_logged(self, other: Copy) -> Copy:
        """Return a copy with what the log has of writers that have left this process's copy, and take note of the reverse.

        It costs one batch, and only if one of both has been silent for longer than the other one names writers.
        """
        mine = self.copy
        late = [*_late_messages(mine, other), *_late_messages(other, mine)]
        late = [message for message in late if message.name not in self.put]
        if self.durable is None or not late or mine.graves != other.graves:
            return other
        names = {message.name for message in late}
        try:
            logged = self.durable.segments.read({one.segment for one in late}, wanted=lambda name, clock: name in names)
        except StoreUnavailableError:
            return other  # they are shown again
        missing = names - {message.name for message in logged}
        numbers = {name.writer: name.number for name in sorted(names - missing)}
        numbers |= {name.writer: name.number - 1 for name in sorted(missing, reverse=True)}
        with self.lock:
            self.author.note_logged(numbers)
        return replace(other, vector=other.vector.with_logged(numbers))

    def complete(self) -> None:
        """Read messages of the view that no head had."""
        copy = self.copy
        if copy.has_begun:
            completed = self.last.completed(copy)  # beside a flush, whatever it does just now: segments only grow
            if completed is not copy:
                self.absorb(completed)

    def redact(self, name: Name, message: Mapping[str, Any]) -> bool:
        """Put another content in place of a message of the log, here for now; False if it is nowhere."""
        with self.lock:
            is_done = self.own.redact(name, message)
        if not is_done:
            found = [one for one in self.last.log(self.copy).messages.values() if one.name == name]
            with self.lock:
                self.author.absorb(with_messages(self.author.copy, found))
                is_done = self.own.redact(name, message)
        return is_done

    # Writing

    def until_written(self, replica: Replica, attempt: Callable[[], bool], *, look: Callable[[], object]) -> None:
        """Let ``attempt`` write a replica until that is done; ``look`` reads what is not known before.

        Raises ``OvertakenError`` if others were faster ``MOST_TRIES`` times.
        """
        with self.io[replica]:
            for tried in range(MOST_TRIES):
                if not replica.is_known:
                    look()
                if attempt():
                    return
                note(COLLISION, attributes={"manga_memory.tier": replica.tier}, counts={"collisions": 1})
                pause(tried)
        raise OvertakenError(f"the {replica.tier} replica was overtaken {MOST_TRIES} times; what it lacks is kept")

    def confirm(self, offer: Offer, replica: Replica) -> None:
        """Take note that a replica has an offer."""
        with self.lock:
            self.author.accept(offer)
            self.author.outbox.confirm(offer, for_good=replica is self.last)
            if replica is self.last:
                self.put.clear()
                self.author.note_logged({writer: entry.number for writer, entry in replica.copy.vector.last.items()})
            if replica is self.first:
                self.own.saved(offer)
            if replica is self.last:
                self.own.flushed(offer)
            if replica.copy is not self._seen.get(replica):  # else it had all, and nobody was asked
                self._seen[replica] = replica.copy
                self._watch.saw(replica.copy, self.author.copy)

    # Taking in

    def absorb(self, copy: Copy) -> None:
        """Take in a copy; raises what keeps that from being done, as :meth:`AgentCopy.absorb` does."""
        with self.lock:
            before = self.author.copy
            self.own.absorb(copy)
            if before.has_begun and not before.vector.at_least(self.author.copy.vector):
                note(MERGE, counts={"merges": 1})
            if not all(map(is_end_by_age, self.author.copy.graves - before.graves)):
                self.over |= before.lives  # the log of one that ended by age stays until it is summarized
            self._watch.saw(copy, self.author.copy)

    def take_over(self) -> list[dict[str, Any]] | None:
        """Return the history that the agent is to go on with at the beginning of a turn; None if it is the one it has.

        None, too, if a part of it cannot be read now: what it has is better than placeholders of what a tier has that is away.
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

    # After a long silence

    def wake(self) -> None:
        """Look whether the life goes on, if this process has not seen it for so long that its grave may be gone."""
        if not self._watch.is_silent:
            return
        with ExitStack() as held:
            for io in self.io.values():
                held.enter_context(io)
            found, error = self._found()
            with self.lock:
                mine = self.author.copy
                goes_on = bool(mine.lives & found.lives) or found.graves > mine.graves
                if error is not None and not goes_on:
                    for replica in self.io:  # what was read counts for nothing if it is not taken in
                        replica.forget()
                    raise error
                since, was_stored = self._watch.since, self._watch.has_lost(mine, found)
                if was_stored or (not goes_on and self.author.outbox.oldest(mine) <= since):
                    self.author.let_go(since=since, was_stored=was_stored)
                elif not goes_on:
                    self.author.forget_graves(found.graves)
                self.absorb(found)

    def _found(self) -> tuple[Copy, StoreUnavailableError | None]:
        found, error = EMPTY, None
        for replica in self.io:
            try:
                found = merge(found, self._with_logged(self._loaded(replica)))
            except StoreUnavailableError as unavailable:
                error = unavailable
        return found, error


def _late_messages(one: Copy, other: Copy) -> list[Message]:
    """Return the messages of a copy that are not known to be in the log, and whose writers may have left another copy."""
    if one.vector.floor >= other.vector.floor:
        return []
    below = {writer for writer, entry in one.vector.last.items() if entry.clock <= other.vector.floor and not entry.is_logged}
    below -= other.vector.last.keys()
    return (
        [message for name, message in one.messages.items() if name.writer in below and one.vector.is_unlogged(name)]
        if below
        else []
    )
