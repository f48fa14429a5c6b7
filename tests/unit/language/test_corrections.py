"""Corrections: which of the values said before they replace, and how that is told."""

from typing import Any

import pytest

from strands_manga_memory.language import Fact, FactKind, RuleFactExtractor
from strands_manga_memory.language.summary_facts import merge_facts
from tests.lines import rows
from tests.unit.conversation.messages import assistant, user


def said(*texts: str) -> list[str]:
    """What is known after each text was summarized by itself, as a summary at a time would."""
    slots: list[Fact] = []
    for text in texts:
        slots = merge_facts(
            RuleFactExtractor().extract([user(text), assistant("Noted.")]), earlier=slots
        )
    return [slot.text for slot in slots]


def test_a_value_further_back_stays_before_its_correction() -> None:
    texts = said(
        "The alarm for the tower tour rings at 4:45 pm.",
        "The book is for my friend Ann.",
        "No, sorry, the alarm for the tower tour rings at 3:30 pm.",
    )
    (old,) = [at for at, text in enumerate(texts) if "4:45" in text]
    assert any("3:30" in text for text in texts[old + 1 :])


@pytest.mark.parametrize(("texts", "facts"), rows("corrected_facts"))
def test_a_correction_changes_its_own_subject_alone(texts: list[str], facts: list[str]) -> None:
    messages = [{**user(text), "tracking_id": f"m{number}"} for number, text in enumerate(texts)]
    assert [fact.text for fact in merge_facts(RuleFactExtractor().extract(messages))] == facts


@pytest.mark.parametrize(("first", "answer", "then", "gone", "stays"), rows("refused_values"))
def test_a_value_given_for_one_that_was_refused_takes_its_place(
    first: str, answer: str, then: str, gone: str, stays: str
) -> None:
    slots = merge_facts(RuleFactExtractor().extract([user(first), assistant(answer), user(then)]))
    texts = [slot.text for slot in slots if slot.kind is not FactKind.FINDING]
    assert not any(gone in text for text in texts)
    assert any(stays in text for text in texts)


@pytest.mark.parametrize(("first", "answer", "then"), rows("values_beside_others"))
def test_a_value_that_says_something_else_or_the_same_takes_no_place(
    first: str, answer: str, then: str
) -> None:
    slots = RuleFactExtractor().extract([user(first), assistant(answer), user(then)])
    assert not any(slot.kind is FactKind.CORRECTION for slot in slots)


def test_a_correction_remembers_the_message_it_corrects() -> None:
    messages: list[Any] = [user("My order is ORD-55120."), user("No, I meant ORD-55210.")]
    slots = merge_facts(RuleFactExtractor().extract(messages))
    (correction,) = [slot for slot in slots if slot.kind is FactKind.CORRECTION]
    assert correction.corrects == (messages[0]["tracking_id"],)
    assert not any("55120" in slot.text for slot in slots)


def test_what_is_new_replaces_what_was_merged_before() -> None:
    texts = said(
        "My budget is 12,000 yen.",
        "I live in Kobe.",
        "I live in Kobe with my cat.",
        "My budget is 15,000 yen.",
    )
    assert not any("12,000" in text for text in texts)
    assert sum("Kobe" in text for text in texts) == 1


def test_merging_a_piece_at_a_time_keeps_what_merging_at_once_keeps() -> None:
    texts = [
        f"The book number {at} is for my friend Name{at}x, who lives in town {at * 7}."
        for at in range(12)
    ]
    at_once = merge_facts(RuleFactExtractor().extract([user(text) for text in texts]))
    assert said(*texts) == [slot.text for slot in at_once]


@pytest.mark.parametrize(("texts", "present", "absent"), rows("corrections"))
def test_a_correction_alone_replaces_the_value_before(
    texts: list[str], present: list[str], absent: list[str]
) -> None:
    """It acts once, on values of its own unit, and "that one" is no number."""
    facts = " | ".join(said(*texts))
    assert all(value in facts for value in present)
    assert not any(value in facts for value in absent)
