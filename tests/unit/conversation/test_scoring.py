"""What messages are worth."""

import math
from typing import Any

import pytest

from strands_manga_memory.conversation import EstimateCounter, ImportanceWeights, RuleScorer
from strands_manga_memory.conversation.importance import (
    Band,
    FeatureCache,
    MessageFeatures,
    band_of,
    message_act,
)
from tests.lines import rows
from tests.unit.conversation.messages import assistant, calls, results, user

SUGGESTION = {"text": "I suggest it."}


def of(role: str, **block: Any) -> Any:
    return {"role": role, "content": [block]}


@pytest.mark.parametrize(
    ("message", "act", "score"),
    [
        (user("I prefer horror manga."), "preference", 0.9),
        (user("ホラーが好きです。"), "preference", 0.9),
        (user("No, I meant volume 12."), "correction", 0.85),
        (assistant("I recommend Monster."), "recommendation", 0.6),
        (user("Do you have volume 3?"), "unmatched", 0.5),
        (calls("a", text="I prefer to look it up."), "tool_use", 0.4),
        (results("a"), "tool_result", 0.4),
        (user("ok thanks"), "acknowledgement", 0.2),
        (user("こんにちは"), "greeting", 0.1),
        (assistant("Have a nice day!"), "farewell", 0.1),
        (of("user", image={"format": "png", "source": {"bytes": b""}}), "unmatched", 0.5),
        (of("user", guardContent={"text": {"text": "I prefer horror."}}), "preference", 0.9),
        (of("assistant", citationsContent={"content": [SUGGESTION]}), "recommendation", 0.6),
    ],
)
def test_rules(message: Any, act: str, score: float) -> None:
    assert message_act(message) == act
    assert RuleScorer().score(message) == score


def test_weights_are_data() -> None:
    assert RuleScorer(ImportanceWeights(preference=0.3)).score(user("I prefer horror.")) == 0.3


def test_bands() -> None:
    assert [band_of(score) for score in (1, 0.8, 0.79, 0.5, 0.49, 0)] == [
        Band.HIGH, Band.HIGH, Band.MIDDLE, Band.MIDDLE, Band.LOW, Band.LOW,
    ]  # fmt: skip


class Fixed:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.asked: list[Any] = []

    def score(self, message: Any, act: str, context: Any) -> Any:
        self.asked.append(message)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("value", "score"),
    [
        *((0.7, 0.7), (3, 1.0), (-1, 0.0)),
        *((wrong, 0.5) for wrong in (math.nan, "high", None, RuntimeError("down"))),
    ],
)
def test_a_scorer_is_asked_once_and_a_failure_is_in_the_middle(value: Any, score: float) -> None:
    scorer = Fixed(value)
    notes = FeatureCache(EstimateCounter(), scorer)
    message = user()
    assert notes.measure(message).score == notes.measure(message).score == score
    assert scorer.asked == [message]


def test_a_scorer_may_look_at_the_history() -> None:
    class Recency:
        def score(self, message: Any, act: str, context: Any) -> float:
            return (context.index(message) + 1) / len(context)

    history = [user(), assistant()]
    notes = FeatureCache(EstimateCounter(), Recency())
    assert [notes.measure(message, history).score for message in history] == [0.5, 1.0]


def read(*messages: Any) -> list[MessageFeatures]:
    return FeatureCache(EstimateCounter(), RuleScorer()).measure_all(messages)


@pytest.mark.parametrize(("before", "text", "act"), rows("acts_in_context"))
def test_answer_value_or_wish_is_a_constraint(before: str | None, text: str, act: str) -> None:
    """A value that points at something spoken of is none, and a closing is courtesy."""
    talk = [] if before is None else [user("hello there"), assistant(before)]
    assert read(*talk, user(text))[-1].act == act


def test_a_courtesy_a_question_and_the_reply_to_an_offer_are_none() -> None:
    for said, reply in [
        ("Anything else?", "No, thank you."),
        ("In which city?", "Which ones are there?"),
        ("I recommend the Golden Lion. Shall it be that?", "What about their opening hours then"),
    ]:
        assert read(user("hello there"), assistant(said), user(reply))[-1].act != "constraint"
