"""What became of each message, and why."""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands.types.content import Message

from strands_manga_memory.conversation.history.exchanges import ages
from strands_manga_memory.conversation.history.shortening import is_shortened, kept_passages
from strands_manga_memory.conversation.history.stubs import is_between, is_stub
from strands_manga_memory.conversation.importance.view import View
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights, text_signals, tool_signals

REMEMBERED_DROPS = 1_000


@dataclass(frozen=True)
class MessageFate:
    """What became of one message, and why.

    Attributes:
        tracking_id: Its id; None if it has none yet.
        role: ``"user"`` or ``"assistant"``.
        act: What it does: a dialogue act, ``"tool_use"`` or ``"tool_result"``.
        score: Its importance, 0 to 1.
        tokens: Its size.
        fate: ``"kept"``, ``"dropped"`` or ``"shortened"``.
        why: The reason, in words.
        signals: What its worth is made of, signal by signal, in logarithms of odds; see ``SignalWeights``.
        passages: Of a message that is shown shortened: what is shown of it, by sentences, list items, table rows and blocks of
            code. A passage that was too long for the room may be there in part.
    """

    tracking_id: str | None
    role: str
    act: str
    score: float
    tokens: int
    fate: str
    why: str
    signals: dict[str, float] = field(default_factory=dict)
    passages: tuple[str, ...] = ()


_Packed = tuple[Any, ...]
"""The fields of a fate in order, the signals as their names and their values; passages are told only of what is present. Of
each agent there may be a thousand, and of agents thousands: this takes half of the memory, and the garbage collector need not
look at it."""


def _packed(fate: MessageFate) -> _Packed:
    names, values = _same(tuple(fate.signals)), array("d", fate.signals.values()).tobytes()
    return fate.tracking_id, fate.role, fate.act, fate.score, fate.tokens, fate.fate, fate.why, names, values


def _unpacked(packed: _Packed, **changes: Any) -> MessageFate:
    *fields, names, values = packed
    fields.append(dict(zip(names, array("d", values), strict=True)))
    return replace(MessageFate(*fields), **changes)


@functools.lru_cache(1_024)
def _same(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one and the same tuple for equal ones."""
    return names


class Fates:
    """Remembers the last 1,000 messages that were dropped, without their text, and in which order messages were spoken."""

    __slots__ = ("_dropped", "_marked", "_numbers", "_order")

    def __init__(self) -> None:
        self._dropped: list[_Packed] = []
        self._numbers = itertools.count()
        self._order: dict[str | None, int] = {}
        self._marked: dict[str | None, _Packed] = {}

    def see(self, messages: Iterable[Message]) -> None:
        """Take note of the order of messages."""
        for message in messages:
            id_ = message.get("tracking_id")
            if id_ not in self._order:
                self._order[id_] = next(self._numbers)

    def drop(self, fate: MessageFate) -> None:
        """Remember that a message was dropped; of one that a mark stood for, what it was before."""
        before = self._marked.pop(fate.tracking_id, None)
        self._dropped.append(_packed(fate if before is None else _unpacked(before, fate="dropped", why=fate.why)))
        del self._dropped[:-REMEMBERED_DROPS]

    def mark(self, fate: MessageFate) -> None:
        """Remember what a message was whose place a mark keeps."""
        self._marked[fate.tracking_id] = _packed(fate)

    def marked(self, stub: MessageFate) -> MessageFate:
        """Return the fate of a message whose place a mark keeps: what it was, with the tokens of the mark."""
        before = self._marked.get(stub.tracking_id)
        return stub if before is None else _unpacked(before, tokens=stub.tokens, fate="shortened", why=stub.why)

    def in_order(self, present: Iterable[MessageFate]) -> list[MessageFate]:
        """Return the dropped and the ``present`` messages in the order they were spoken."""
        kept = {fate.tracking_id: fate for fate in present}
        gone = {tracking_id: fate for fate in self._dropped if (tracking_id := fate[0]) not in kept}
        fates = [*map(_unpacked, gone.values()), *kept.values()]
        return sorted(fates, key=lambda fate: self._order.get(fate.tracking_id, len(self._order)))

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Drop the order of messages that are neither among these nor remembered as dropped."""
        present = {message.get("tracking_id") for message in messages}
        self._marked = {id_: fate for id_, fate in self._marked.items() if id_ in present}
        ids = present | {tracking_id for tracking_id, *_ in self._dropped}
        self._order = {id_: number for id_, number in self._order.items() if id_ in ids}


class Explanations:
    """What became of the messages of one history: of those that are there, and of the last that left it."""

    __slots__ = ("_fates", "_notes", "_weights")

    def __init__(self, notes: Notes, weights: SignalWeights) -> None:
        self._notes = notes
        self._weights = weights
        self._fates = Fates()

    def follow(self, view: View, pool: Sequence[Message], why: Mapping[int, str]) -> None:
        """Remember what a choice from ``pool`` dropped or put marks in place of."""
        self._fates.see(pool)
        old = ages(pool)
        for at in view.gone[-REMEMBERED_DROPS:]:
            self._fates.drop(self._fate(pool[at], old[at], "dropped", why[at]))
        for at in view.newly_marked:
            self._fates.mark(self._fate(pool[at], old[at], "shortened", why[at]))

    def of(self, messages: Sequence[Message], why: Mapping[int, str]) -> list[MessageFate]:
        """Return what became of the messages of a history and of those that were dropped, in the order they were spoken."""
        self._fates.see(messages)
        old = ages(messages)
        told = [(at, message) for at, message in enumerate(messages) if not is_between(message)]
        return self._fates.in_order(self._present(message, old[at], why[at]) for at, message in told)

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Forget messages that are neither among these nor remembered as dropped."""
        self._fates.forget_all_but(messages)

    def _present(self, message: Message, age: int, why: str) -> MessageFate:
        if is_stub(message):
            return self._fates.marked(self._fate(message, age, "shortened", why))
        if is_shortened(message):
            return replace(self._fate(message, age, "shortened", why), passages=kept_passages(message))
        return self._fate(message, age, "kept", why)

    def _fate(self, message: Message, age: int, fate: str, why: str) -> MessageFate:
        note = self._notes(message)
        if note.act in ("tool_use", "tool_result"):
            signals = tool_signals(note, age=age, weights=self._weights)
        else:
            service = self._notes.vocabulary.service if message["role"] == "assistant" else 0.0
            signals = text_signals(note, is_service=service, age=age, weights=self._weights)
        return MessageFate(message.get("tracking_id"), message["role"], note.act, note.score, note.tokens, fate, why, signals)
