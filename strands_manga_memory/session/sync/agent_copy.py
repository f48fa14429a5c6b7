"""AgentCopy: what the agent of this process said and changed, as its conversation is to have it. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError
from strands_manga_memory.messages import starts_turn, tool_use_ids
from strands_manga_memory.session.author.author import Author
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.basis.facts import (
    AGENT,
    FACTS,
    MANAGER,
    META,
    STATES,
    Facts,
    facts_of,
    has_news,
    is_interrupted,
    is_waiting,
    pauses_after,
)
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.registers import WITH_WINDOW
from strands_manga_memory.stores.encoding.codec import dump, load


class AgentCopy:
    """A process's conversation without its stores. Not thread-safe: whoever has it holds the conductor's lock.

    Args:
        record: What the conversation is called in errors.
        ids: The original ids, stored once.
        clock: Seconds since 1970.
        keeps_window: False for a model that keeps the conversation itself: its window is always empty.
        may_be_ahead: Whether a hot tier may go on without the durable one.
        on_conflict: What becomes of the changes of two writers.

    Attributes:
        in_turn: Whether the agent is being invoked.
        closing: Whether the owner is done with it for now: what is flushed next is everything.
        has_news: Whether a store had something since the agent was given its history.
        changes: How often something has changed here.
    """

    def __init__(
        self,
        *,
        record: str,
        ids: Mapping[str, Any],
        clock: Callable[[], float],
        keeps_window: bool = True,
        may_be_ahead: bool = True,
        on_conflict: Literal["merge", "raise"] = "merge",
    ) -> None:
        self._record, self._ids, self.clock = record, ids, clock
        self._may_be_ahead, self._on_conflict = may_be_ahead, on_conflict
        self.keeps_window = keeps_window
        self.author = Author()
        self.renew()

    @property
    def ids(self) -> dict[str, Any]:
        """The original ids of session, user, tenant and member, as far as they are known."""
        return {**self._ids, **facts_of(self.author.copy, self._record).ids}

    def check_ids(self) -> None:
        """Raise ``CorruptRecordError`` if what is stored has other ids than those asked for."""
        stored = facts_of(self.author.copy, self._record).ids
        if stored and any(stored.get(name) != value for name, value in self._ids.items()):
            raise CorruptRecordError(f"record={self._record!r} belongs to other ids than those asked for", record=self._record)

    def renew(self) -> None:
        """Begin anew, as another writer; in the child of a fork what is unsaved is the parent's to save."""
        self.author.become_another()
        self.in_turn = self.closing = self.has_news = False
        self.changes = self._saved = self._flushed = 0
        self._fields: dict[str, bytes] = {}
        self._kept: dict[str, bytes] = {}
        self._built: Mapping[str, bytes] = {}
        self._told: dict[str, Any] = {}
        self._last: Mapping[str, Any] | None = None
        self._begun_after = 0
        self._created = 0.0

    # What the agent says and changes

    def begin_turn(self) -> None:
        """Take note that a turn begins."""
        self.in_turn, self._begun_after = True, self.author.outbox.told.number

    def end_turn(self) -> None:
        """Take note that a turn is over."""
        if self.in_turn:
            self.in_turn = False
            self.touch()

    def say(self, message: Mapping[str, Any], *, at: float) -> None:
        """Take a message."""
        begins = starts_turn(message, self._last)  # type: ignore[arg-type]
        intent = self.meta.get("active_intent")
        self.author.say(message, at=at, begins=begins, about=dump({"intent": intent}).decode() if intent else "")
        self._last = message
        self.touch()

    def revise(self, message: Mapping[str, Any], *, every: bool = False) -> bool:
        """Put a message in place of the latest with its ``tracking_id``, or of every one; False if none is at hand."""
        found = self.author.revise(message, every=every)
        self.changes += found
        return found

    def redact(self, name: Name, message: Mapping[str, Any]) -> bool:
        """Put a message in place of another one of the log; False if that is not at hand."""
        found = self.author.redact(name, message)
        self.changes += found
        return found

    def knows(self, tracking_id: str) -> int:
        """Return how many messages of the history have this id."""
        return self.author.knows(tracking_id, after=self._begun_after)

    def touch(self) -> None:
        """Take note of a change."""
        self.changes += 1

    def capture(self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, bytes], *, in_turn: bool) -> None:
        """Take the agent's history and states as they are."""
        if self.author.is_gone:
            return
        before = self.author.has_changed, self.is_going_on
        self.in_turn = in_turn
        self.author.capture(messages if self.keeps_window else [])
        if (self.author.has_changed, self.is_going_on) != before:
            self.touch()
        changed = {name: data for name, data in fields.items() if self._fields.get(name) != data}
        if changed:
            self._fields = self._fields | changed
            self.touch()

    def set_field(self, name: str, data: bytes) -> None:
        """Set one of the states that no capture takes from the agent."""
        self._fields = {**self._fields, name: data}
        self.touch()

    def as_built(self, fields: Mapping[str, bytes], stored: Mapping[str, bytes]) -> None:
        """Take the states that the agent was built with, and the stored ones that it was given: they are nothing to save."""
        self._built = fields
        self._fields = {**fields, **stored}

    def take_over_states(self) -> None:
        """Take the states that are stored for those that the agent has: it is given them with the history."""
        self._fields = self._fields | self.fields
        self._kept = {}

    def set_meta(self, changed: Mapping[str, Any]) -> None:
        """Set some of the metadata."""
        self.author.layers.set(META, changed)
        self.touch()

    def announce(self, told: Mapping[str, Any]) -> None:
        """Let metadata be what is told of the conversation, once it has begun, where that is another than was told before.

        What was set by hand since stays, and what was never told is not set to nothing.
        """
        news = {name: value for name, value in told.items() if value != self._told.get(name) and (value or name in self._told)}
        if not news or not self.facts.messages:
            return
        self._told |= news
        known = self.meta
        changed = {name: value for name, value in news.items() if value != known.get(name)}
        if changed:
            self.set_meta(changed)

    def evict(self, *, keep: int) -> None:
        """Let only the last ``keep`` messages stay in the history of an agent that is no Strands agent."""
        self.author.history.evict(keep=keep)
        self.touch()

    def count(self, *, turns: int) -> None:
        """Count turns that have no messages."""
        self.author.outbox.count(turns=turns)
        self.touch()

    def begin_at(self, created: float) -> None:
        """Let the conversation have begun earlier."""
        self._created = created

    # What stores are offered, and what they have

    def offer(self) -> Offer:
        """Return what is new, with the states and facts."""
        author, is_dirty = self.author, self.is_dirty
        if is_dirty:
            self._keep_states()
        if author.copy.has_begun or author.has_changed or (is_dirty and not author.is_gone):
            author.layers.set(FACTS, {"ids": self.ids, "ahead": self._may_be_ahead and not self.closing})
        at = self.clock() if is_dirty else 0.0
        offer = author.offer(at=at, in_turn=self.is_going_on, created=self._created)
        offer.changes = self.changes
        return offer

    def _keep_states(self) -> None:
        changed = {name: data for name, data in self._fields.items() if self._kept.get(name) != data}
        if not changed or self.author.is_gone:
            return
        if AGENT in changed:
            self.author.keep(AGENT, load(changed[AGENT]))
        if MANAGER in changed:
            self.author.keep(WITH_WINDOW, {MANAGER: load(changed[MANAGER])}, depth=2)
        others = {name: load(data) for name, data in changed.items() if name not in (AGENT, MANAGER)}
        self.author.layers.set(STATES, others | ({AGENT: True} if AGENT in changed else {}))
        self._kept = self._fields

    def absorb(self, other: Copy) -> None:
        """Take in a copy that a store has; raise ``ConflictError`` if it is not to be merged with what is new here."""
        mine = self.author.copy
        self._note_news(mine, other)
        self.author.absorb(other)
        # What a placeholder stands for may have been found.
        self.has_news = self.has_news or (not other.messages.keys() <= mine.messages.keys() and bool(mine.lacks))

    def _note_news(self, mine: Copy, other: Copy) -> None:
        if not other.graves <= mine.graves:
            self._last, self._told = None, {}
            self._fields, self._kept = dict(self._built), {}  # what the agent has of a life that is over is not of the next one
            self.has_news = True
            self.touch()
        if other.graves != mine.graves or not other.has_begun or not has_news(mine, other):
            return
        self.has_news = True
        # A turn that has begun goes on with the history it began with, also before anything was said in it.
        if not ((self.is_dirty or self.in_turn) and (mine.has_begun or self.author.has_changed)):
            return
        if self._on_conflict == "raise":
            raise ConflictError("someone else saved the conversation meanwhile: try again")
        if is_waiting(mine.states) or is_waiting(other.states) or is_interrupted(self._fields):
            raise ConflictError("someone else saved the conversation while an interrupt was active; the two cannot be merged")

    def saved(self, offer: Offer) -> None:
        """Take note that the first tier has an offer."""
        self._saved = max(self._saved, offer.changes)

    def flushed(self, offer: Offer) -> None:
        """Record that the last tier has an offer."""
        self._flushed = max(self._flushed, offer.changes)

    @property
    def is_unflushed(self) -> bool:
        """Whether the last tier lacks a change."""
        return self.changes > self._flushed

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no store has confirmed."""
        return self.changes > self._saved

    @property
    def is_going_on(self) -> bool:
        """Whether more of the turn is to come: if it has ended, the results of a tool call that nobody has answered."""
        if self.in_turn or self._last is None or not tool_use_ids(self._last):
            return self.in_turn
        last = self._last.get("tracking_id")
        return not is_interrupted(self._fields) and (last is None or last != pauses_after(self._fields))

    # What is known

    @property
    def facts(self) -> Facts:
        """What is counted, with what no store has yet."""
        stored, outbox, now = facts_of(self.author.copy, self._record), self.author.outbox, self.clock()
        return replace(
            stored,
            messages=stored.messages + len(outbox.drafts),
            turns=stored.turns + outbox.turns,
            created=stored.created or self._created or now,
            active=stored.active or now,
        )

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata that users keep beside the conversation."""
        return self.author.layer(META)

    @property
    def fields(self) -> dict[str, bytes]:
        """The states that are stored, by name; raises ``CorruptRecordError`` if one cannot be read, or is no object."""
        layer = self.author.layer(STATES)
        has_state = layer.pop(AGENT, False)
        found = {name: value for name, value in layer.items() if name.startswith("state.")} | self.author.layer(WITH_WINDOW)
        if has_state:
            found[AGENT] = self.author.layer(AGENT)
        for name, value in found.items():
            if not isinstance(value, dict):
                raise CorruptRecordError(f"record={self._record!r} is damaged: {name} is no object", record=self._record)
        return {name: dump(value) for name, value in found.items()}
