"""Slots: what must not be lost, and which of it is current."""

from typing import Any

import pytest

from strands_manga_memory.language import FactKind, RuleFactExtractor
from strands_manga_memory.language.summary_facts import merge_facts
from strands_manga_memory.language.text_features import information_weight, split_sentences
from tests.lines import rows
from tests.unit.conversation.messages import assistant, calls, results, user


def slots(*messages: Any) -> list[tuple[str, str]]:
    return [(s.kind.value, s.text) for s in merge_facts(RuleFactExtractor().extract(messages))]


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (user("I prefer hardcover editions."), "preference", "prefer hardcover editions"),
        (user("ホラーが好きです。"), "preference", "ホラーが好き"),
        (user("No, I meant the deluxe edition."), "correction", "No, I meant the deluxe edition"),
        (user("Nope, sorry! Please set it at 3:30."), "correction", "Please set it at 3:30"),
        (user("Let's go with the slipcase."), "decision", "with the slipcase"),
        (user("Thursday next week."), "said", "Thursday next week"),
        (user("私の住所は神戸市です。"), "said", "私の住所は神戸市"),
        (assistant("Your booking is confirmed, the reference is WXC38SPV."), "outcome", "WXC38SPV"),
        (assistant("I will send you the invoice tomorrow."), "promise", "invoice tomorrow"),
        (assistant("手続きが完了しました。"), "outcome", "手続きが完了し"),
        (assistant("Volume 3 costs 660 yen."), "finding", "Volume 3 costs 660 yen"),
        (calls("t1", tool_input={"query": "tower"}), "task", "lookup(tower)"),
    ],
)
def test_kinds(message: Any, kind: str, text: str) -> None:
    assert any(found == kind and (text in said or said in text) for found, said in slots(message))


@pytest.mark.parametrize(
    "text",
    [
        *("Hello!", "Thanks, that's great.", "ok", "ありがとうございます。", "こんにちは"),
        *("Can you help me with that?", "Do you have anything else?", "それは何ですか？"),
    ],
)
def test_set_phrases_and_sentences_without_content_say_nothing(text: str) -> None:
    assert slots(user(text)) == []


def test_a_question_is_open_until_it_is_answered() -> None:
    question = user("When does the second printing of the atlas arrive?")
    assert ("open question", "When does the second printing of the atlas arrive?") in slots(
        question
    )
    assert "open question" in [
        kind for kind, _ in slots(question, assistant("Let me check with the publisher."))
    ]
    answered = slots(question, assistant("It arrives on May 28."))
    assert "open question" not in [kind for kind, _ in answered]
    assert any("atlas" in text for _, text in answered)


def test_tool_results_are_not_of_the_conversation() -> None:
    assert slots(results("t1", content=[{"text": "CANARY-99 is the secret"}])) == []


def test_the_source_is_the_message() -> None:
    message = user("My desk is on floor 23.")
    assert {s.source for s in RuleFactExtractor().extract([message])} == {message["tracking_id"]}


@pytest.mark.parametrize(("older", "newer", "gone", "stays"), rows("newest_values"))
def test_the_newest_value_wins(older: str, newer: str, gone: str, stays: str) -> None:
    texts = [text for _, text in slots(user(older), assistant("Noted."), user(newer))]
    assert not any(gone in text for text in texts)
    assert any(stays in text for text in texts)


@pytest.mark.parametrize(
    ("text", "value"),
    [("15時でお願いします。", "15時"), ("3冊お願いします", "3冊"), ("了解です、三巻で", "三巻")],
)
def test_a_value_among_set_phrases_is_said(text: str, value: str) -> None:
    assert any(value in said for _, said in slots(user(text)))


def test_two_orders_are_two_facts() -> None:
    texts = " ".join(
        text for _, text in slots(user("My order is ORD-11111."), user("My order is ORD-22222."))
    )
    assert "ORD-11111" in texts
    assert "ORD-22222" in texts


def test_what_is_said_again_is_there_once() -> None:
    assert (
        len(
            slots(
                user("I live in Kobe."),
                user("I live in Kobe."),
                user("I live in Kobe with my cat."),
            )
        )
        == 1
    )


def test_the_number_of_a_line_stays_with_it_and_weighs_nothing() -> None:
    listed = "Here are some:\n1. One Piece, vol. 3, 550 yen\n2. the quiet story\n12. the loud story"
    assert list(split_sentences(listed)) == [
        "Here are some:",
        "1. One Piece, vol. 3, 550 yen",
        "2. the quiet story",
        "12. the loud story",
    ]
    assert (
        information_weight("12. the loud story")
        == information_weight("the loud story")
        == information_weight("Step 12: the loud story")
        == 0
    )
    assert [text for _, text in slots(assistant(listed))] == ["1. One Piece, vol. 3, 550 yen"]
    assert [text for _, text in slots(assistant("| Akira | 1,000 yen |"))] == ["Akira | 1,000 yen"]


def test_sentences_and_their_weight() -> None:
    with_titles = [
        "『けいおん！』が好きです。",
        "よつばと！は全部読みました。",
        "いいね！",
        "頑張って！！",
    ]
    assert list(split_sentences("".join(with_titles))) == with_titles
    assert list(split_sentences("One. Two? 三つ目です。四つ目\nMr. Ito came.")) == [
        "One.",
        "Two?",
        "三つ目です。",
        "四つ目",
        "Mr. Ito came.",
    ]
    assert information_weight("My code is 4417, I am Keiko") > information_weight("the code") == 0
    assert next(iter(FactKind)) is FactKind.CORRECTION


@pytest.mark.parametrize(
    ("sentence", "weight"),
    [
        ("I decided to take the box set of Uzumaki.", 1.0),
        ("What about the shop window, the one with the number 59?", 1.0),
        ("Send one copy to Hina.", 2.0),
        ("The three books arrived.", 1.0),
    ],
)
def test_weight_counts_names_and_numbers_of_a_sentence(sentence: str, weight: float) -> None:
    """Its first word is no name, and "the one" is no number."""
    assert information_weight(sentence) == weight


def test_decision_is_more_important_than_other_statements() -> None:
    facts = RuleFactExtractor().extract(
        [user("I decided to take the box set of Uzumaki."), assistant("Noted.")]
    )
    assert [fact.kind for fact in facts] == [FactKind.DECISION]
