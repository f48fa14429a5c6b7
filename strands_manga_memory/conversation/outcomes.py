"""Outcomes: whether each message was kept, truncated or evicted, and why."""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands.types.content import Message

from strands_manga_memory.conversation.features import FeatureCache, text_signals, tool_signals
from strands_manga_memory.conversation.message_truncation import is_truncated, shown_passages
from strands_manga_memory.conversation.scoring import SignalWeights
from strands_manga_memory.messages import is_turn_start

REMEMBERED_DROPS = 1_000


@dataclass(frozen=True)
class MessageOutcome:
    """Whether one message was kept, truncated or evicted, and why.

    Attributes:
        tracking_id: Its id; None if it has none yet.
        role: ``"user"`` or ``"assistant"``.
        act: Its dialogue act, ``"tool_use"`` or ``"tool_result"``.
        score: Its importance, 0 to 1.
        tokens: Its size.
        outcome: ``"kept"``, ``"dropped"`` or ``"shortened"``.
        reason: Why, in words.
        signals: The parts of its worth, signal by signal, in logarithms of odds; see ``SignalWeights``.
        passages: Of a truncated message: the passages that are shown (sentences, list items, table rows and blocks of code).
            A passage that was too long may be there in part.
    """

    tracking_id: str | None
    role: str
    act: str
    score: float
    tokens: int
    outcome: str
    reason: str
    signals: dict[str, float] = field(default_factory=dict)
    passages: tuple[str, ...] = ()


_Packed = tuple[Any, ...]
"""The fields of an outcome in order, the signals as their names and their values. An agent may have a thousand, and a process
thousands of agents: this form takes half of the memory, and the garbage collector does not scan it."""


def _packed(one: MessageOutcome) -> _Packed:
    names, values = _same(tuple(one.signals)), array("d", one.signals.values()).tobytes()
    return one.tracking_id, one.role, one.act, one.score, one.tokens, one.outcome, one.reason, names, values


def _unpacked(packed: _Packed, **changes: Any) -> MessageOutcome:
    *fields, names, values = packed
    fields.append(dict(zip(names, array("d", values), strict=True)))
    return replace(MessageOutcome(*fields), **changes)


@functools.lru_cache(1_024)
def _same(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same tuple object for equal tuples, to save memory."""
    return names


class OutcomeLog:
    """Outcomes of the messages of one history: of those that are there, and of the last 1,000 that were evicted.

    Evicted messages are kept without their text.

    Args:
        features: The features of messages.
        weights: The weights of the signals.
    """

    __slots__ = ("_evicted", "_features", "_numbers", "_order", "_weights")

    def __init__(self, features: FeatureCache, weights: SignalWeights) -> None:
        self._features = features
        self._weights = weights
        self._evicted: list[_Packed] = []
        self._numbers = itertools.count()
        self._order: dict[str | None, int] = {}

    def add_evicted(self, gone: Sequence[int], messages: Sequence[Message], reasons: Mapping[int, str]) -> None:
        """Remember that messages at some positions were evicted, and why."""
        self._see(messages)
        old = _ages(messages)
        for at in gone[-REMEMBERED_DROPS:]:
            self._evicted.append(_packed(self._outcome(messages[at], old[at], "dropped", reasons[at])))
        del self._evicted[:-REMEMBERED_DROPS]

    def of(self, messages: Sequence[Message], reasons: Mapping[int, str]) -> list[MessageOutcome]:
        """Return the outcomes of the messages of a history and of evicted ones, in the order of speech."""
        self._see(messages)
        old = _ages(messages)
        kept = {message.get("tracking_id"): self._present(message, old[at], reasons[at]) for at, message in enumerate(messages)}
        gone = {id_: packed for packed in self._evicted if (id_ := packed[0]) not in kept}
        found = [*map(_unpacked, gone.values()), *kept.values()]
        return sorted(found, key=lambda one: self._order.get(one.tracking_id, len(self._order)))

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Forget messages that are neither in ``messages`` nor remembered as evicted."""
        ids = {message.get("tracking_id") for message in messages} | {tracking_id for tracking_id, *_ in self._evicted}
        self._order = {id_: number for id_, number in self._order.items() if id_ in ids}

    def _see(self, messages: Iterable[Message]) -> None:
        """Record the order of messages."""
        for message in messages:
            id_ = message.get("tracking_id")
            if id_ not in self._order:
                self._order[id_] = next(self._numbers)

    def _present(self, message: Message, age: int, reason: str) -> MessageOutcome:
        if is_truncated(message):
            return replace(self._outcome(message, age, "shortened", reason), passages=shown_passages(message))
        return self._outcome(message, age, "kept", reason)

    def _outcome(self, message: Message, age: int, outcome: str, reason: str) -> MessageOutcome:
        features = self._features(message)
        if features.act in ("tool_use", "tool_result"):
            signals = tool_signals(features.score, age=age, weights=self._weights)
        else:
            service = self._features.vocabulary.service if message["role"] == "assistant" else 0.0
            signals = text_signals(features, service=service, age=age, weights=self._weights)
        id_, role = message.get("tracking_id"), message["role"]
        return MessageOutcome(id_, role, features.act, features.score, features.tokens, outcome, reason, signals)


def _ages(messages: Sequence[Message]) -> list[int]:
    """Return for each message how many turns began after it."""
    began = (message["role"] == "user" and is_turn_start(message) for message in reversed(messages))
    return list(itertools.accumulate(began, initial=0))[-2::-1]
