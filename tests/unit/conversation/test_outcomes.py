"""Outcomes of evicted messages, as ``explain()`` returns them."""

from __future__ import annotations

from strands_manga_memory.conversation import EstimateCounter, RuleScorer, SignalWeights
from strands_manga_memory.conversation.features import FeatureCache
from strands_manga_memory.conversation.outcomes import REMEMBERED_DROPS, OutcomeLog
from tests.unit.conversation.messages import assistant, user


def log() -> OutcomeLog:
    return OutcomeLog(FeatureCache(EstimateCounter(), RuleScorer()), SignalWeights())


def test_evicted_messages_are_listed_in_the_order_of_speech() -> None:
    """Of an evicted message its act, score, tokens and signals are known, with the reason."""
    messages = [user("I prefer horror manga."), assistant(), user("ok thanks"), assistant("You are welcome.")]
    outcomes = log()
    reasons = {at: f"reason {at}" for at in range(4)}
    present = {fate.tracking_id: fate for fate in outcomes.of(messages, reasons)}
    outcomes.add_evicted([0, 2], messages, reasons)
    found = outcomes.of([messages[1], messages[3]], {0: "kept", 1: "kept"})
    assert [fate.tracking_id for fate in found] == [message["tracking_id"] for message in messages]
    assert [fate.outcome for fate in found] == ["dropped", "kept", "dropped", "kept"]
    first = present[messages[0]["tracking_id"]]
    assert (found[0].act, found[0].score, found[0].tokens) == (first.act, first.score, first.tokens)
    assert found[0].signals == first.signals
    assert found[0].reason == "reason 0"


def test_a_message_that_came_back_is_listed_once() -> None:
    messages = [user("I prefer horror manga."), assistant()]
    outcomes = log()
    outcomes.add_evicted([0], messages, {0: "no room", 1: ""})
    assert [fate.outcome for fate in outcomes.of(messages, {0: "high band", 1: "current turn"})] == ["kept", "kept"]


def test_the_last_thousand_evicted_messages_are_listed() -> None:
    outcomes = log()
    for _ in range(REMEMBERED_DROPS + 5):
        outcomes.add_evicted([0], [user("x")], {0: "no room"})
    assert len(outcomes.of([], {})) == REMEMBERED_DROPS
