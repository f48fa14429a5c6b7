"""Outcomes of evicted messages: all that ``explain()`` returns, in little memory."""

from __future__ import annotations

import gc
import tracemalloc

from strands_manga_memory.conversation import EstimateCounter, RuleScorer, SignalWeights
from strands_manga_memory.conversation import outcomes as module
from strands_manga_memory.conversation.features import FeatureCache
from strands_manga_memory.conversation.outcomes import REMEMBERED_DROPS, OutcomeLog
from tests.unit.conversation.messages import assistant, user


def log() -> OutcomeLog:
    return OutcomeLog(FeatureCache(EstimateCounter(), RuleScorer(), list), SignalWeights())


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


def tracked(root: object) -> int:
    """Return the number of objects that the garbage collector has to look at for ``root``."""
    gc.collect()
    found, todo = {id(root)}, [root]
    while todo:
        for each in gc.get_referents(todo.pop()):
            if gc.is_tracked(each) and not isinstance(each, type) and id(each) not in found:
                found.add(id(each))
                todo.append(each)
    return len(found)


def test_a_thousand_outcomes_are_small_and_nothing_to_the_garbage_collector() -> None:
    outcomes = log()
    tracemalloc.start()
    for number in range(5 * REMEMBERED_DROPS):
        message = user("x")
        message["tracking_id"] = f"{number:036}"  # type: ignore[typeddict-unknown-key]
        outcomes.add_evicted([0], [message], {0: "no room"})
    outcomes.forget_all_but([])
    taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, module.__file__)])
    size = sum(line.size for line in taken.statistics("filename"))
    tracemalloc.stop()
    assert tracked(outcomes._evicted) < REMEMBERED_DROPS / 10
    assert size < 450 * REMEMBERED_DROPS
    assert len(outcomes.of([], {})) == REMEMBERED_DROPS
