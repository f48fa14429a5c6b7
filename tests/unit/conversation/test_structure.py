"""What a message is, from its place in the conversation before its words."""

from __future__ import annotations

from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import EstimateCounter, RuleScorer
from strands_manga_memory.conversation.importance import FeatureCache, MessageFeatures, Vocabulary
from strands_manga_memory.testing import ScriptedModel
from tests.unit.conversation.messages import assistant, user


def read(*messages: Any) -> list[MessageFeatures]:
    return FeatureCache(EstimateCounter(), RuleScorer()).of(messages)


@pytest.mark.parametrize(
    ("question", "answer"),
    [("In which city?", "San Jose."), ("What time do you leave?", "Early, around dawn."), ("どの地区ですか?", "若葉町です。")],
)
def test_what_answers_a_question_of_an_assistant_is_a_constraint(question: str, answer: str) -> None:
    assert read(user("hello there"), assistant(question), user(answer))[-1].act == "constraint"


def test_what_answers_nothing_and_gives_no_value_is_no_constraint() -> None:
    assert read(user("hello there"), assistant("It is done."), user("Early, around dawn."))[-1].act == "unmatched"


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("Can you look at Villa Rosa in Napa?", "constraint"),
        ("Is volume 3 on a shelf?", "constraint"),
        ("What will the weather be like on the 5th?", "constraint"),
        ("I'll take it for 2 people.", "constraint"),
        ("I'll take it.", "decision"),
        ("That is nice. What is there to see in Napa?", "constraint"),
        ("Is that one in Napa?", "unmatched"),
        ("How far is it from Villa Rosa?", "unmatched"),
        ("What is the address?", "unmatched"),
        ("2/18の南区の気温はわかりますか？", "constraint"),
        ("そちらは若葉駅から近いですか？", "unmatched"),
        ("そちらの住所をお願いできますか？それから、若葉駅には何がありますか？", "constraint"),
        ("若葉駅の近くでなくても大丈夫です。", "unmatched"),
    ],
)
def test_a_value_that_points_at_nothing_spoken_of_is_a_constraint(text: str, act: str) -> None:
    assert read(user("hello there"), assistant("It is done."), user(text))[-1].act == act


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


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("駐車場が広いところがいいです。", "constraint"),
        ("海の近くの宿に泊まりたいです。", "constraint"),
        ("二人で使える部屋を教えてください。", "constraint"),
        ("15時でお願いします。", "constraint"),
        ("その宿の住所を教えてください。", "unmatched"),
        ("そちらの電話番号が知りたいです。", "unmatched"),
        ("いいえ、大丈夫です。ありがとうございました。", "acknowledgement"),
        ("いえ、もう大丈夫です。", "acknowledgement"),
        ("他にはありません。ありがとうございました。", "acknowledgement"),
    ],
)
def test_japanese_wishes_are_constraints_and_closings_are_courtesy(text: str, act: str) -> None:
    assert read(user(text))[0].act == act


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
