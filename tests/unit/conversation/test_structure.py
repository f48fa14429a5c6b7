"""What a message is, from its place in the conversation before its words."""

from typing import Any

import pytest

from strands_manga_memory.conversation import EstimateCounter, RuleScorer
from strands_manga_memory.conversation.importance import FeatureCache, MessageFeatures
from tests.lines import rows
from tests.unit.conversation.messages import assistant, user


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
