"""What a message is, from its place in the conversation before its words."""

from __future__ import annotations

from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import EstimateCounter, RuleScorer
from strands_manga_memory.conversation.importance import FeatureCache, MessageFeatures, Vocabulary
from strands_manga_memory.testing import ScriptedModel
from tests.lines import rows
from tests.unit.conversation.messages import assistant, user


def read(*messages: Any) -> list[MessageFeatures]:
    return FeatureCache(EstimateCounter(), RuleScorer()).measure_all(messages)


@pytest.mark.parametrize(("before", "text", "act"), rows("acts_in_context"))
def test_an_answer_a_value_or_a_wish_is_a_constraint(before: str | None, text: str, act: str) -> None:
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


def test_among_companions_an_answer_is_talk() -> None:
    talk = [
        message
        for n in range(20)
        for message in (user(f"I went to the lake {n}"), assistant(f"I liked the lake {n} too, my dear!"))
    ]
    assert read(*talk, assistant("And where did you swim?"), user("Near the old pier."))[-1].act == "unmatched"


def test_an_assistant_that_writes_at_length_serves_whatever_it_tells_of_itself() -> None:
    short, long = Vocabulary(), Vocabulary()
    for _ in range(40):
        for heard, tokens in ((short, 12), (long, 400)):
            heard.learn("user", (), tells=True, tokens=12)
            heard.learn("assistant", (), tells=True, tokens=tokens)
    assert short.service == 0.0
    assert long.service == 1.0


def test_the_first_answer_keeps_its_ends_and_the_first_question_all_of_it() -> None:
    counter = EstimateCounter()
    first = [
        user("I am looking for a long series. " * 30),
        assistant("First of all, " + "there is much to say. " * 300 + "So, which one?"),
    ]
    rest = [message for number in range(60) for message in (user(f"question {number}"), assistant(f"answer {number}"))]
    agent = Agent(model=ScriptedModel(), conversation_manager=ImportanceWeightedConversationManager(1_000, counter=counter))
    agent.messages += [*first, *rest]
    agent.conversation_manager.apply_management(agent)
    assert agent.messages[0] == first[0]
    answer = agent.messages[1]["content"][0]["text"]
    assert answer.startswith("First of all, there is much to say.")
    assert answer.endswith("So, which one?")
    assert counter.count(agent.messages[1]) <= 130
