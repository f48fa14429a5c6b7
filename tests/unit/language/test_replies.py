"""What a user's message does depends on what it replies to."""

import pytest

from strands_manga_memory.language import dialogue_act
from strands_manga_memory.language.dialogue_acts import act_of_reply
from strands_manga_memory.language.text_features import text_features
from tests.lines import rows


def after(answer: str, text: str) -> str:
    return str(act_of_reply(text, answer, str(dialogue_act(text, "user")), text_features(text)[0]))


@pytest.mark.parametrize(("answer", "text", "corrects"), rows("replies"))
def test_only_another_value_corrects(answer: str, text: str, corrects: bool) -> None:
    """A refused offer, an agreement and a further wish correct nothing."""
    assert (after(answer, text) == "correction") is corrects


@pytest.mark.parametrize(
    "text", ["Thanks!", "I prefer hardcover.", "Always answer in French.", "My name is Rin.", ""]
)
def test_acts_that_no_reply_changes(text: str) -> None:
    assert after("Unfortunately, it is not available.", text) == dialogue_act(text, "user")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("では、初版でなくても構いません。", "unmatched"),
        ("では、ジャンルは何でもいいです。", "unmatched"),
        ("神保町駅の近くでなくてもいいので、カフェの併設された書店はありますか。", "constraint"),
        ("文庫版でお願いします。", "constraint"),
        ("Romance, and nothing sad", "constraint"),
    ],
)
def test_a_condition_that_is_let_go_sets_none_unless_another_is_set_beside_it(
    text: str, expected: str
) -> None:
    said = str(dialogue_act(text, "user"))
    assert (
        act_of_reply(
            text,
            "申し訳ございません。いかがなさいますか。",
            said,
            text_features(text)[0],
            answers_question=True,
        )
        == expected
    )
