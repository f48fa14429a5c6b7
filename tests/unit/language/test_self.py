"""What users say of themselves is kept; what they ask about themselves is not taken for it."""

import pytest

from strands_manga_memory.conversation import RuleScorer
from strands_manga_memory.language import DialogueAct, dialogue_act
from strands_manga_memory.language.dialogue_acts import without_questions_about_oneself
from strands_manga_memory.language.preferences import collect_preferences
from tests.lines import rows

KEPT, NOT_KEPT = rows("about_oneself"), rows("questions_about_oneself")
TOLD = (DialogueAct.PREFERENCE, DialogueAct.FACT)


@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_statements_about_oneself_are_told_from_questions(script: str) -> None:
    def of(lines: list[str]) -> list[str]:
        return [line for line in lines if line.isascii() == (script == "English")]

    missed = [line for line in of(KEPT) if dialogue_act(line, "user") not in TOLD]
    wrong = [line for line in of(NOT_KEPT) if dialogue_act(line, "user") in TOLD]
    found = len(of(KEPT)) - len(missed)
    assert found / len(of(KEPT)) >= 0.9, missed
    assert found / (found + len(wrong)) >= 0.95, wrong


def test_a_question_about_oneself_states_no_preference() -> None:
    assert {
        line: collect_preferences([line]) for line in NOT_KEPT if collect_preferences([line])
    } == {}


@pytest.mark.parametrize(("before", "text", "after"), rows("names_and_homes"))
def test_a_name_or_a_home_that_is_so_no_more_is_forgotten(
    before: str, text: str, after: dict[str, str]
) -> None:
    kept = collect_preferences([before, text])
    assert {slot: v for slot, v in kept.items() if slot in ("name", "home", "style")} == after


@pytest.mark.parametrize(
    "text",
    [
        "いいえ、ありません。", "はい、あります。", "はい、好きです。", "ええ、います。",
        "Yes, I do.", "No, it isn't.", "yes we have",
    ],
)  # fmt: skip
def test_the_answer_to_a_question_is_no_mere_acknowledgement(text: str) -> None:
    message = {"role": "user", "content": [{"text": text}]}
    assert RuleScorer().score(message) >= 0.5


@pytest.mark.parametrize(
    "text", ["はい", "はい、お願いします。", "ありがとうございます", "Yes, thanks!", "ok, great"]
)
def test_a_courtesy_stays_one(text: str) -> None:
    message = {"role": "user", "content": [{"text": text}]}
    assert RuleScorer().score(message) == 0.2


def test_only_what_asks_is_left_out() -> None:
    assert (
        without_questions_about_oneself("I love horror. What do I hate?").strip()
        == "I love horror."
    )
    assert (
        without_questions_about_oneself("Nothing is asked here; I love horror.")
        == "Nothing is asked here; I love horror."
    )
