"""Outcomes of messages when a history was reduced: kept, truncated or evicted, and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strands.types.content import Message

from strands_manga_memory.conversation.features import FeatureCache, text_signals, tool_signals
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.scoring import SignalWeights
from strands_manga_memory.messages import is_turn_start

REMEMBERED_DROPS = 1_000


@dataclass(frozen=True)
class MessageOutcome:
    """Outcome of one message when the history was reduced to its budget: kept, truncated or evicted, and why.

    Attributes:
        tracking_id: Tracking id of the message. None if the message has no id yet.
        role: ``"user"`` or ``"assistant"``.
        act: Dialogue act of the message. For tool messages ``"tool_use"`` or ``"tool_result"``.
        score: Importance of the message, from 0 to 1.
        tokens: Size of the message in tokens.
        outcome: ``"kept"``, ``"dropped"`` (evicted) or ``"shortened"`` (truncated).
        reason: Reason for the outcome, in words.
        signals: Contribution of each signal (a property, see ``SignalWeights``) to the logarithm of the odds that the message
            is needed.
    """

    tracking_id: str | None
    role: str
    act: str
    score: float
    tokens: int
    outcome: str
    reason: str
    signals: dict[str, float] = field(default_factory=dict)


class OutcomeLog:
    """Outcomes of the messages in one history, and of the last 1,000 evicted messages (without their texts).

    Args:
        features: Cache of the features of messages.
        weights: Weights of the signals (properties of a message), to report each signal's contribution.
    """

    __slots__ = ("_evicted", "_features", "_numbers", "_order", "_weights")

    def __init__(self, features: FeatureCache, weights: SignalWeights) -> None:
        self._features = features
        self._weights = weights
        self._evicted: list[MessageOutcome] = []
        self._numbers = itertools.count()
        self._order: dict[str | None, int] = {}

    def add_evicted(self, gone: Sequence[int], messages: Sequence[Message], reasons: Mapping[int, str]) -> None:
        """Record evicted messages and the reasons for their eviction.

        Args:
            gone: Positions of the evicted messages.
            messages: Messages of the history before the eviction.
            reasons: Reasons of the evictions, keyed by position.
        """
        self._see(messages)
        old = _ages(messages)
        for at in gone[-REMEMBERED_DROPS:]:
            self._evicted.append(self._outcome(messages[at], old[at], "dropped", reasons[at]))
        del self._evicted[:-REMEMBERED_DROPS]

    def of(self, messages: Sequence[Message], reasons: Mapping[int, str]) -> list[MessageOutcome]:
        """Return the outcomes of all messages, oldest first, including the recorded outcomes of evicted messages.

        Args:
            messages: Messages of the present history.
            reasons: Reasons of the outcomes, keyed by position in ``messages``.
        """
        self._see(messages)
        old = _ages(messages)
        kept = {
            message.get("tracking_id"): self._outcome(
                message, old[at], "shortened" if is_truncated(message) else "kept", reasons[at]
            )
            for at, message in enumerate(messages)
        }
        gone = {one.tracking_id: one for one in self._evicted if one.tracking_id not in kept}
        found = [*gone.values(), *kept.values()]
        return sorted(found, key=lambda one: self._order.get(one.tracking_id, len(self._order)))

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Forget all messages except the given messages and the recorded evicted messages."""
        ids = {message.get("tracking_id") for message in messages} | {one.tracking_id for one in self._evicted}
        self._order = {id_: number for id_, number in self._order.items() if id_ in ids}

    def _see(self, messages: Iterable[Message]) -> None:
        for message in messages:
            id_ = message.get("tracking_id")
            if id_ not in self._order:
                self._order[id_] = next(self._numbers)

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
    """Return the age of each message: the number of turns that began after it."""
    began = (message["role"] == "user" and is_turn_start(message) for message in reversed(messages))
    return list(itertools.accumulate(began, initial=0))[-2::-1]
