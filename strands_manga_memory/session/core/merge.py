"""Merge: copies of a conversation, and their join. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from strands_manga_memory.session.core.identity import Name, Stamp
from strands_manga_memory.session.core.records import Lost, Message, Shown
from strands_manga_memory.session.core.registers import Path, Register, goes_with_window
from strands_manga_memory.session.core.vector import NOTHING, Entry, Vector
from strands_manga_memory.session.core.window import Window, is_decided, later, undecided, view, without_redacted


@dataclass(frozen=True)
class Copy:
    """All that somebody has of a conversation.

    Args:
        graves: Ids of the graves that it knows; it is of the life that follows them all.
        lives: Ids of that life: one, or more if it was begun twice. None while it has not begun.
        clock: The highest lamport clock in it.
        created: When the life began, in seconds since 1970; 0 if that is not known.
        vector: The messages that it includes.
        messages: Those of them that are at hand.
        window: The latest window.
        states: The registers of all layers of state.
        redactions: The revision of each message that was redacted.
    """

    graves: frozenset[str] = frozenset()
    lives: frozenset[str] = frozenset()
    clock: int = 0
    created: float = 0.0
    vector: Vector = NOTHING
    messages: Mapping[Name, Message] = field(default_factory=dict)
    window: Window | None = None
    states: Mapping[Path, Register] = field(default_factory=dict)
    redactions: Mapping[Name, int] = field(default_factory=dict)

    @property
    def has_begun(self) -> bool:
        """Whether anything has been said in this life."""
        return bool(self.lives)

    @property
    def head(self) -> tuple[object, ...]:
        """What it is beside its messages, window, states and redactions, and beside what writers have told."""
        vector = self.vector
        return self.graves, self.lives, self.created, vector.floor, vector.counted, vector.below, self.counted_entries

    @property
    def counted_entries(self) -> dict[str, Entry]:
        """The entries of writers that its vector does not describe in full."""
        return {writer: entry for writer, entry in self.vector.last.items() if entry.clock <= self.vector.counted}

    @property
    def clock_of_parts(self) -> int:
        """The highest lamport clock of its vector, window and states; its own may be higher if something of it has gone."""
        clocks = [self.vector.floor, *(entry.clock for entry in self.vector.last.values())]
        clocks += [register.stamp.clock for register in self.states.values()]
        return max(clocks) if self.window is None else max(*clocks, self.window.stamp.clock)

    def has(self, message: Message) -> bool:
        """Whether the copy includes a message in this revision, or a later one."""
        return self.vector.includes(message.name, message.clock) and self.redactions.get(message.name, 0) >= message.revision

    def may_show(self, name: Name, clock: int) -> bool:
        """Whether a message that is not at hand may be shown: one that the window was decided upon is if the window has it."""
        return self.window is None or name in self.window.names or not is_decided(self.window, self.vector, name)

    @cached_property
    def view(self) -> list[Shown]:
        """What an agent gets to see."""
        return view(self.window, self.vector, self.messages)

    @cached_property
    def lacks(self) -> frozenset[Name]:
        """The names of the messages of the view that are not at hand."""
        return frozenset(one.name for one in self.view if isinstance(one, Lost))

    @property
    def needed(self) -> Set[Name]:
        """The names of the messages at hand that a view depends on: shown ones, and those no window has decided upon."""
        return self.messages.keys() - self._idle if self._idle else self.messages.keys()

    @cached_property
    def _idle(self) -> tuple[Name, ...]:
        """The names of the others: few."""
        names = {message.name for message in undecided(self.window, self.vector, self.messages)}
        shown = names if self.window is None else self.window.names
        return tuple(name for name in self.messages if name not in names and name not in shown)


EMPTY = Copy()
"""Nothing: the copy that every other one includes."""


def merge(one: Copy, other: Copy) -> Copy:
    """Return the join of two copies: the least one that includes both.

    It is commutative, associative and idempotent. Nothing of a life that either knows to be over is in it.
    """
    graves = _union(one.graves, other.graves)
    alive = [copy for copy in (one, other) if copy.graves == graves]
    clock = max(one.clock, other.clock)
    if not alive:
        return Copy(graves=graves, clock=clock)
    if len(alive) == 1:
        return replace(alive[0], clock=clock)
    mine, theirs = one.redactions, other.redactions
    redactions = {name: max(mine.get(name, 0), theirs.get(name, 0)) for name in mine.keys() | theirs.keys()}
    return Copy(
        graves=graves,
        lives=_union(one.lives, other.lives),
        clock=clock,
        created=min(one.created or other.created, other.created or one.created),
        vector=one.vector.joined(other.vector),
        messages=_messages(one, other, redactions),
        window=without_redacted(later(one.window, other.window), redactions),
        states=_states(one, other),
        redactions=redactions,
    )


def is_logged(message: Message, copy: Copy, log: Copy) -> bool:
    """Tell whether a message of a copy is in a log; ``log`` is the copy of the replica that keeps the log."""
    if not log.has(message):
        return False
    return message.number <= log.vector.number(message.writer) or not copy.vector.is_unlogged(message.name)


def with_messages(copy: Copy, messages: Iterable[Message]) -> Copy:
    """Return a copy with messages that it includes, and that were not at hand."""
    found = {message.name: message for message in messages if copy.vector.includes(message.name, message.clock)}
    return merge(copy, replace(copy, messages=found)) if found else copy


def _union(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    return one if one >= other else one | other  # mostly they are equal, and many copies have the same


def _messages(one: Copy, other: Copy, redactions: Mapping[Name, int]) -> dict[Name, Message]:
    joined = {**one.messages, **other.messages}
    for name in one.messages.keys() & other.messages.keys():
        mine, theirs = one.messages[name], other.messages[name]
        if mine is not theirs and _precedes(mine, theirs):
            joined[name] = mine
    stale = [name for name in redactions if name in joined and joined[name].revision < redactions[name]]
    for name in stale:
        del joined[name]
    return joined


def _precedes(one: Message, other: Message) -> bool:
    if (one.revision, one.clock) != (other.revision, other.clock):
        return (one.revision, one.clock) > (other.revision, other.clock)
    # Equal revisions have equal contents; the rest only makes the choice the same everywhere if one of them is damaged.
    if isinstance(one.kept, bytes) and isinstance(other.kept, bytes):
        return one.kept > other.kept
    return not isinstance(one.kept, bytes)  # it takes less room, and was found to be undamaged


def _states(one: Copy, other: Copy) -> dict[Path, Register]:
    """Return the later registers; of those that go with the window, the ones of the later window.

    What a conversation manager notes of its work, such as a summary, is true of the window that it made, and of no other; what
    is derived from messages is true of them wherever they are.
    """
    joined = {**one.states, **other.states}
    for path in one.states.keys() & other.states.keys():
        joined[path] = max(one.states[path], other.states[path], key=lambda register: register.stamp)
    orders = [copy.window.order if copy.window is not None else (0, _NO_STAMP) for copy in (one, other)]
    if orders[0] == orders[1]:
        return joined
    later = one if orders[0] > orders[1] else other
    others = {path: register for path, register in joined.items() if not goes_with_window(path)}
    return others | {path: register for path, register in later.states.items() if goes_with_window(path)}


_NO_STAMP = Stamp(0, "")
